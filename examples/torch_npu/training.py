"""Train three models on Huawei's torch_npu and on PyTorch's CPU, from the same seed, and compare.

``aclnn torch-npu run examples/torch_npu/training.py`` prints both losses and the largest differences, and ``--save
FILE`` saves the losses as JSON. ``python examples/torch_npu/training.py --draw FILE PICTURE`` draws them with
matplotlib and does not need torch_npu. The script does not depend on aclnn.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

STEPS = 50
WIDTH, HEADS, DEPTH, TOKENS, BATCH = 64, 4, 2, 32, 16


def perceptron(device: str) -> tuple[Any, Any, Iterator[Any]]:
    """Build a perceptron from 64 numbers to ten classes, SGD with momentum and weight decay, and batches of data."""
    import torch
    from torch import nn

    x = torch.randn(1024, 64)
    labels = (x @ torch.randn(64, 10)).argmax(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.LayerNorm(128), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), batch_size=256)
    return model, optimizer, (batch for _ in range(STEPS) for batch in loader)


def residual(device: str) -> tuple[Any, Any, Iterator[Any]]:
    """Build a network of convolutions, BatchNorm, GroupNorm and pooling, SGD with momentum, and images of strokes."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int, norm: nn.Module) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm, self.last = nn.BatchNorm2d(channels), norm

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.last(self.second(nn.functional.silu(self.norm(self.first(x))))))

    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(Block(16, nn.BatchNorm2d(16)), nn.Conv2d(16, 32, 3, stride=2, padding=1), Block(32, nn.GroupNorm(8, 32))),
        *(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    ).to(device)
    strokes = torch.nn.functional.interpolate(torch.randn(10, 1, 4, 4), 16, mode="bilinear")
    labels = torch.randint(0, 10, (STEPS, 32))
    batches = ((strokes[row] + 0.5 * torch.randn(32, 1, 16, 16), row) for row in labels)
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), batches


def transformer(device: str) -> tuple[Any, Any, Iterator[Any]]:
    """Build a character-level language model with explicit attention, AdamW, and excerpts of Python's reference."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            # The gradient of a bias of the keys is only rounding error, which AdamW would normalize to full steps.
            self.qkv, self.join = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            heads = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            q, k, v = heads
            scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
            later = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
            x = x + self.join(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.norm2(x))

    class Model(nn.Module):
        def __init__(self, characters: int) -> None:
            super().__init__()
            self.embed, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

        def forward(self, text: Any) -> Any:
            x = self.embed(text) + self.places(torch.arange(TOKENS, device=text.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    text = "".join(topics.values())[:50_000].encode("ascii", "replace")
    data = torch.tensor(list(text))
    starts = torch.randint(0, len(text) - TOKENS - 1, (STEPS, BATCH))
    batches = (torch.stack([data[start : start + TOKENS + 1] for start in row]) for row in starts)
    model = Model(128).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), ((b[:, :-1], b[:, 1:].flatten()) for b in batches)


MODELS: dict[str, Callable[[str], tuple[Any, Any, Iterator[Any]]]] = {
    "MLP": perceptron,
    "ResNet": residual,
    "transformer": transformer,
}


def train(name: str, device: str) -> tuple[list[float], dict[str, Any]]:
    """Train a model; return the loss of each step, and the gradients of the first step by parameter."""
    import torch

    torch.manual_seed(0)
    model, optimizer, batches = MODELS[name](device)
    losses: list[float] = []
    gradients: dict[str, Any] = {}
    for _, (x, labels) in zip(range(STEPS), batches, strict=False):
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or {of: parameter.grad.cpu().clone() for of, parameter in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def compare(name: str) -> dict[str, list[float]]:
    """Train on both devices and print the differences."""
    (cpu, wanted), (npu, got) = (train(name, device) for device in ("cpu", "npu"))
    loss = max(abs(there / here - 1) for there, here in zip(npu, cpu, strict=True))
    gradient = max(((got[of] - wanted[of]).abs().max() / wanted[of].abs().max()).item() for of in wanted)
    print(f"{name}: cpu {cpu[0]:.6f} to {cpu[-1]:.6f}, npu {npu[0]:.6f} to {npu[-1]:.6f}")
    print(f"{name}: largest relative difference of {STEPS} losses {loss:.1e}, of the first gradients {gradient:.1e}")
    return {"cpu": cpu, "npu": npu}


def draw(losses: dict[str, dict[str, list[float]]], picture: Path) -> None:
    """Draw the loss curves into an image file, legible on light and dark pages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ink = "#7a828c"
    style = {"font.size": 11, "svg.hashsalt": "aclnn", "text.color": ink, "axes.edgecolor": ink}
    with pyplot.rc_context(style | {"axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}):
        figure, panels = pyplot.subplots(1, len(losses), figsize=(10, 3.3), layout="constrained")
        for axes, (name, curves) in zip(panels, losses.items(), strict=True):
            steps = range(1, len(curves["cpu"]) + 1)
            axes.plot(steps, curves["cpu"], color="#2f7fd6", lw=6, alpha=0.45, label='.to("cpu")')
            axes.plot(steps, curves["npu"], color="#d9650b", lw=1.5, label='.to("npu"), torch_npu on aclnn')
            axes.set_title(name)
            axes.set_xlabel("step")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("cross-entropy, nats")
        curves = panels[0].get_legend_handles_labels()
        figure.legend(*curves, loc="outside lower center", ncols=2, frameon=False, labelcolor=ink)
        figure.savefig(picture, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the losses as JSON")
    parser.add_argument("--draw", type=Path, nargs=2, metavar=("FILE", "PICTURE"), help="draw kept losses")
    given = parser.parse_args()
    if given.draw:
        draw(json.loads(given.draw[0].read_text()), given.draw[1])
    else:
        found = {name: compare(name) for name in given.models}
        if given.save:
            rounded = {n: {d: [round(x, 6) for x in row] for d, row in each.items()} for n, each in found.items()}
            given.save.write_text(json.dumps(rounded, indent=1) + "\n")
