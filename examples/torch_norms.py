"""Train a transformer and a small ResNet with PyTorch's norms and activations and with ours, and compare the losses.

Both classify scikit-learn's handwritten digits, from the same weights over the same batches. The transformer has
RMSNorm, LayerNorm, attention with a softmax, and GELU; the ResNet has BatchNorm with ReLU and GroupNorm with SiLU. The
program needs torch, scikit-learn and, for ``--draw``, matplotlib.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import aclnn.torch

STEPS = 60
WIDTH, HEADS, CHANNELS, CLASSES = 32, 4, 16, 10


class Transformer(nn.Module):
    """One block over 16 patches of 2 by 2: attention after an RMSNorm, a perceptron after a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Linear(4, WIDTH), nn.Parameter(0.02 * torch.randn(16, WIDTH))
        self.norm1, self.norm2, self.norm3 = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.join, self.softmax = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Softmax(-1)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 1, 8, 8) to logits (batch, CLASSES)."""
        batch = len(images)
        patches = images.unfold(2, 2, 2).unfold(3, 2, 2).reshape(batch, 16, 4)
        x = self.embed(patches) + self.places
        q, k, v = self.qkv(self.norm1(x)).view(batch, 16, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = self.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5)
        x = x + self.join((weights @ v).transpose(1, 2).reshape(batch, 16, WIDTH))
        x = x + self.mlp(self.norm2(x))
        return self.head(self.norm3(x).mean(1))


class ResNet(nn.Module):
    """A stem and two residual blocks over 8 by 8 pixels, with BatchNorm and ReLU, then GroupNorm and SiLU."""

    def __init__(self) -> None:
        super().__init__()

        def block(norm: Callable[[], nn.Module], activation: nn.Module) -> nn.Module:
            def convolution() -> nn.Module:
                return nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)

            return nn.Sequential(convolution(), norm(), activation, convolution(), norm())

        self.stem = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU())
        self.first, self.relu = block(lambda: nn.BatchNorm2d(CHANNELS), nn.ReLU()), nn.ReLU()
        self.second, self.silu = block(lambda: nn.GroupNorm(4, CHANNELS), nn.SiLU()), nn.SiLU()
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 1, 8, 8) to logits (batch, CLASSES)."""
        x = self.stem(images)
        x = self.relu(x + self.first(x))
        x = self.silu(x + self.second(x))
        return self.head(x.mean((2, 3)))


MODELS: dict[str, Callable[[], nn.Module]] = {"transformer": Transformer, "resnet": ResNet}


def train(model: nn.Module, steps: int) -> list[float]:
    """Train a model and return the loss of each step."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = torch.tensor(data.images / 16.0, dtype=torch.float32)[:, None], torch.tensor(data.target)
    order = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        chosen = torch.randint(len(labels), (64,), generator=order)
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(name: str, steps: int = STEPS) -> dict[str, list[float]]:
    """Train one model with both, and print the largest difference of the losses."""
    torch.manual_seed(0)
    model = MODELS[name]()
    ours = aclnn.torch.patch(copy.deepcopy(model))
    losses = {"PyTorch": train(model, steps), "aclnn": train(ours, steps)}
    largest = max(abs(one - two) / one for one, two in zip(*losses.values(), strict=True))
    first, last = losses["aclnn"][0], losses["aclnn"][-1]
    print(f"{name}: loss {first:.4f} to {last:.4f} in {steps} steps, at most {largest:.1e} of it from PyTorch's")
    return losses


def draw(losses: dict[str, dict[str, list[float]]], picture: Path) -> None:
    """Draw the loss curves into an image file, legible on light and dark pages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ink = "#7a828c"
    style = {"font.size": 11, "svg.hashsalt": "aclnn", "text.color": ink, "axes.edgecolor": ink}
    with pyplot.rc_context(style | {"axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}):
        figure, panels = pyplot.subplots(1, len(losses), figsize=(8, 3), layout="constrained", squeeze=False)
        for axes, (name, curves) in zip(panels[0], losses.items(), strict=True):
            steps = range(1, len(curves["PyTorch"]) + 1)
            axes.plot(steps, curves["PyTorch"], color="#2f7fd6", lw=6, alpha=0.45, label="PyTorch's modules")
            axes.plot(steps, curves["aclnn"], color="#d9650b", lw=1.5, label="patched with aclnn's")
            axes.set_title(name)
            axes.set_xlabel("step")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0][0].set_ylabel("cross-entropy, nats")
        panels[0][0].legend(frameon=False, labelcolor=ink)
        figure.savefig(picture, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--draw", type=Path, metavar="PICTURE", help="draw the losses")
    given = parser.parse_args()
    found = {name: compare(name, given.steps) for name in given.models}
    if given.draw:
        draw(found, given.draw)

# -> transformer: loss 2.5462 to 1.939… in 60 steps, at most … of it from PyTorch's
# -> resnet: loss 2.4529 to 1.1… in 60 steps, at most … of it from PyTorch's
