"""The demo's figure: training loss by activation, legible on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aclnn.demo.digits import Training
from aclnn.support.optional import import_or_raise

# Middle tones on a transparent background, with a contrast of at least 3:1 on white and on dark pages.
_INK = "#7a828c"
_STYLES = (
    ("#2f7fd6", "-"),
    ("#d9650b", "--"),
    ("#1f9d61", "-."),
    ("#c2559d", ":"),
    ("#8a6fe8", (0, (5, 1, 1, 1, 1, 1))),
)


def draw(trainings: Sequence[Training], path: Path) -> None:
    """Write the loss curves to an image file in the format of the suffix."""
    import_or_raise("matplotlib", "demo").use("Agg")
    pyplot = import_or_raise("matplotlib.pyplot", "demo")
    losses = np.array([training.losses for training in trainings])
    epochs = range(1, losses.shape[1] + 1)
    with pyplot.rc_context({"font.size": 11}):
        figure, (above, below) = pyplot.subplots(
            2, sharex=True, figsize=(8, 6), height_ratios=(3, 1.4), layout="constrained"
        )
        for training, row, (colour, line) in zip(trainings, losses, _STYLES, strict=False):
            label = f"{training.activation}: {100 * training.test_accuracy:.1f} % of test scans right"
            above.plot(epochs, row, color=colour, linestyle=line, lw=2, label=label)
            below.plot(epochs, row / losses.mean(0), color=colour, linestyle=line, lw=2)
        above.set_yscale("log")
        above.set_title("1,797 handwritten digits, gradients by aclnn", color=_INK)
        above.set_ylabel("training loss\n(cross-entropy, nats)", color=_INK)
        above.legend(frameon=False, labelcolor=_INK)
        below.set_ylabel("loss ÷\nmean of the five", color=_INK)
        below.set_xlabel("epoch", color=_INK)
        for axes in (above, below):
            _style(axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, transparent=True)
        pyplot.close(figure)


def _style(axes: Any) -> None:
    axes.tick_params(colors=_INK, which="both")
    axes.grid(color=_INK, alpha=0.25)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)
