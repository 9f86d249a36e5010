"""Train two small transformers with PyTorch's operators and with ours, from the same seed, and compare the losses.

A vision transformer classifies scikit-learn's handwritten digits; a language model predicts the characters of Python's
own reference documentation. Needs torch, scikit-learn and, for ``--figure``, matplotlib.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

import aclnn.torch

STEPS = 60
WIDTH, HEADS, DEPTH = 64, 4, 2


class Block(nn.Module):
    """Attention and a two-layer perceptron over (batch, tokens, WIDTH), each after a LayerNorm."""

    def __init__(self, activation: nn.Module, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), activation, nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block: (batch, tokens, WIDTH) to (batch, tokens, WIDTH)."""
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.join(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Blocks between an embedding and a linear head, on each token if causal, else on the mean over tokens."""

    def __init__(self, embed: nn.Module, tokens: int, classes: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.causal = isinstance(embed, nn.Embedding)
        self.embed, self.places = embed, nn.Parameter(0.02 * torch.randn(tokens, WIDTH))
        self.blocks = nn.Sequential(*(Block(activation(), self.causal) for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits: (batch, tokens, classes) if causal, else (batch, classes)."""
        x = self.norm(self.blocks(self.embed(x) + self.places))
        return self.head(x if self.causal else x.mean(1))


def digits() -> tuple[nn.Module, Iterator[tuple[torch.Tensor, torch.Tensor]]]:
    """Build the vision transformer, and batches of 64 images of 8 by 8 pixels as 16 patches of 2 by 2."""
    from sklearn.datasets import load_digits

    data = load_digits()
    patches = torch.tensor(data.images / 16.0, dtype=torch.float32).unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
    labels = torch.tensor(data.target)
    order = torch.Generator().manual_seed(1)

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            chosen = torch.randint(len(labels), (64,), generator=order)
            yield patches[chosen], labels[chosen]

    return Transformer(nn.Linear(4, WIDTH), 16, 10, nn.GELU), batches()


def characters() -> tuple[nn.Module, Iterator[tuple[torch.Tensor, torch.Tensor]]]:
    """Build the language model, and batches of 16 excerpts of 64 characters from the texts of Python's ``help()``."""
    from pydoc_data.topics import topics

    text = "".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    codes = torch.tensor(list(text))
    order = torch.Generator().manual_seed(1)

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            starts = torch.randint(len(codes) - 65, (16,), generator=order)
            part = torch.stack([codes[start : start + 65] for start in starts.tolist()])
            yield part[:, :-1], part[:, 1:]

    return Transformer(nn.Embedding(128, WIDTH), 64, 128, nn.SiLU), batches()


def train(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[tuple[float, float]]:
    """Train a model; yield loss and seconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for x, target in batches:
        begin = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item(), time.perf_counter() - begin


def compare(task: Callable[[], tuple[nn.Module, Any]], steps: int) -> dict[str, Any]:
    """Train with both in turns, from the same weights over the same batches; return losses and median tokens/s."""
    torch.manual_seed(0)
    model, source = task()
    batches = [next(source) for _ in range(steps)]
    ours = aclnn.torch.patch(copy.deepcopy(model))
    pairs = list(zip(train(model, batches), train(ours, batches), strict=True))
    tokens = batches[0][0].shape[0] * batches[0][0].shape[1]
    found = {}
    for name, run in zip(("PyTorch", "aclnn"), zip(*pairs, strict=True), strict=True):
        losses, seconds = map(list, zip(*run, strict=True))
        found[name] = {"losses": losses, "tokens_per_s": tokens / median(seconds)}
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the loss curves above, their difference below."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(results), figsize=(9, 5), sharex=True, height_ratios=(3, 1), facecolor="white")
    for (above, below), (task, runs) in zip(axes.T, results.items(), strict=True):
        theirs, ours = runs["PyTorch"]["losses"], runs["aclnn"]["losses"]
        above.plot(theirs, color="#e07b00", linewidth=4, alpha=0.5, label="PyTorch's operators")
        above.plot(ours, color="#1f4e9c", linewidth=1.2, label="aclnn's operators")
        above.set_title(task)
        above.set_ylabel("loss")
        above.legend(frameon=False)
        below.semilogy([max(abs(a - b), 1e-8) for a, b in zip(theirs, ours, strict=True)], color="#444444", linewidth=1)
        below.set_ylabel("difference")
        below.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=110, facecolor="white")


def main() -> None:
    """Train, print, and draw on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tasks = {"digits: vision transformer": digits, "Python's documentation: characters": characters}
    results = {name: compare(task, options.steps) for name, task in tasks.items()}
    for task, runs in results.items():
        for name, run in runs.items():
            print(f"{task:36}{name:8} loss {run['losses'][-1]:.6f}  {run['tokens_per_s']:8.0f} tokens/s")
    if options.json:
        options.json.write_text(json.dumps(results) + "\n")
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()

# -> digits: vision transformer          PyTorch  loss … tokens/s
# -> digits: vision transformer          aclnn    loss … tokens/s
# -> Python's documentation: characters  PyTorch  loss … tokens/s
# -> Python's documentation: characters  aclnn    loss … tokens/s
