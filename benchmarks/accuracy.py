"""Draw docs/figures/accuracy.svg: errors of four derivatives in float32, of aclnn and of PyTorch on the CPU.

``python -m benchmarks.accuracy`` reads benchmarks/exhaustive_profile.csv, which ``make exhaustive`` writes. It has the
worst error over each 2^20 neighbouring float32, an eighth of an octave.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

from benchmarks.pictures import COLOURS, INK, save, style

DATA = Path(__file__).with_name("exhaustive_profile.csv")
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "accuracy.svg"

# Operator in the table, title, start, end. Each range covers the left tail until the exact value is 0 in float32.
PANELS = (
    ("silu", "SiLU", -110, 20),
    ("gelu_erf", "GELU (erf)", -15, 6),
    ("gelu_tanh", "GELU (tanh)", -12, 6),
    ("fast_gelu", "FastGELU", -66, 12),
)
PROVIDERS = (("pytorch", "PyTorch", COLOURS["torch"]), ("aclnn", "aclnn", COLOURS["aclnn"]))


def steps(rows: list[list[str]]) -> tuple[Any, Any]:
    """Return the ends of the eighths of octaves in ascending order, and the worst error in each."""
    middles, errors = np.array([row[2:] for row in rows], np.float32).T
    first = middles.view(np.uint32) >> 20 << 20
    ends = np.sort(np.stack([first, first + (1 << 20)]).view(np.float32), axis=0)
    order = np.argsort(ends[0])
    return ends[:, order], errors[order]


def draw() -> None:
    """Draw the figure."""
    with DATA.open(newline="") as file:
        table = list(csv.reader(file))
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 5.6), sharey=True, layout="constrained")
    for panel, (operator, title, low, high) in zip(axes.flat, PANELS, strict=True):
        panel.axhline(1, color=INK, lw=0.8)
        for provider, label, colour in PROVIDERS:
            ends, errors = steps([row for row in table if row[:2] == [operator, provider]])
            panel.plot(ends.T.ravel(), np.repeat(np.maximum(errors, 0.1), 2), color=colour, lw=1.6, label=label)
        panel.set_yscale("log")
        panel.set_ylim(0.1, 1e9)
        panel.set_yticks([1, 1e2, 1e4, 1e6, 1e8], ["1", "100", "10,000", "10⁶", "10⁸"])
        panel.minorticks_off()
        panel.set_xlim(low, high)
        panel.set_title(f"{title}, derivative", fontsize=11)
        style(panel)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.supxlabel("x", color=INK)
    figure.supylabel("worst error, float32 (units in the last place)", color=INK)
    axes[0, 1].legend(frameon=False, labelcolor=INK, loc="upper right")
    save(figure, FIGURE)


if __name__ == "__main__":
    draw()
