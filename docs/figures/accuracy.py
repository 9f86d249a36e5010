"""The figure docs/figures/accuracy.svg: errors of four derivatives in float32, here and in PyTorch on the CPU.

``python docs/figures/accuracy.py measure`` writes accuracy.csv (needs torch and mpmath), ``… draw`` the figure from it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).with_suffix(".csv")
FIGURE = Path(__file__).with_suffix(".svg")

# Title, from, to. Each range holds the left tail down to where the exact value is zero in float32.
PANELS = (("SiLU", -110, 20), ("GELU (erf)", -15, 6), ("GELU (tanh)", -12, 6), ("FastGELU", -66, 12))
BINS = 260
SAMPLES = 48
SEED = 1


def exact_derivatives() -> dict[str, Callable[[Any], Any]]:
    """The derivatives in 60 digits, from the definition of each function."""
    import mpmath
    from mpmath import mpf

    mpmath.mp.dps = 60
    root, cubic = mpmath.sqrt(2 / mpmath.pi), mpf("0.044715")

    def logistic(scale: Any) -> Callable[[Any], Any]:
        def derivative(x: Any) -> Any:
            s = 1 / (1 + mpmath.exp(-scale * x))
            return s + scale * x * s * (1 - s)

        return derivative

    def gelu_tanh(x: Any) -> Any:
        t = mpmath.tanh(root * (x + cubic * x**3))
        return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * cubic * x * x)

    return {
        "SiLU": logistic(mpf(1)),
        "GELU (erf)": lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x),
        "GELU (tanh)": gelu_tanh,
        "FastGELU": logistic(mpf("1.702")),
    }


def implementations() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """For each panel PyTorch's gradient and ours, from float32 arrays to float32 arrays, dy being 1."""
    import torch

    import aclnn

    aten = torch.ops.aten

    def in_torch(gradient: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        return lambda x: gradient(torch.ones(len(x)), torch.from_numpy(x)).numpy()

    def composed(dy: Any, x: Any) -> Any:
        x = x.requires_grad_()
        (gradient,) = torch.autograd.grad(x * torch.sigmoid(1.702 * x), x, dy)
        return gradient

    return {
        "SiLU": (in_torch(aten.silu_backward), lambda x: aclnn.silu_backward(np.ones_like(x), x)),
        "GELU (erf)": (in_torch(aten.gelu_backward), lambda x: aclnn.gelu_backward_v2(np.ones_like(x), x)),
        "GELU (tanh)": (
            in_torch(lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh")),
            lambda x: aclnn.gelu_backward_v2(np.ones_like(x), x, "tanh"),
        ),
        "FastGELU": (in_torch(composed), lambda x: aclnn.fast_gelu_backward(np.ones_like(x), x)),
    }


def measure() -> None:
    """Write the worst error of each bin to the CSV file."""
    import mpmath
    import torch

    import aclnn

    random = np.random.default_rng(SEED)
    derivatives, gradients = exact_derivatives(), implementations()
    with DATA.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["function", "from", "to", f"torch {torch.__version__}", f"aclnn {aclnn.__version__}"])
        for title, low, high in PANELS:
            edges = np.linspace(low, high, BINS + 1)
            x = random.uniform(edges[:-1, None], edges[1:, None], (BINS, SAMPLES)).astype(np.float32)
            exact = [derivatives[title](mpmath.mpf(float(value))) for value in x.ravel()]
            worst = [worst_ulp(gradient(x.ravel()), exact).tolist() for gradient in gradients[title]]
            for i in range(BINS):
                rows.writerow([title, f"{edges[i]:.4f}", f"{edges[i + 1]:.4f}", *(f"{w[i]:.3g}" for w in worst)])


def worst_ulp(got: Any, exact: list[Any]) -> Any:
    """The largest error of each bin in units of the last place of the exact result."""
    units = np.spacing(np.abs(np.array([float(value) for value in exact], np.float32))).tolist()
    errors = [abs(float(abs(float(g) - e) / u)) for g, e, u in zip(got, exact, units, strict=True)]
    return np.array(errors).reshape(BINS, SAMPLES).max(1)


INK, OURS, THEIRS = "#7a828c", "#2f7fd6", "#d9650b"


def draw() -> None:
    """Draw the CSV file. Middle tones on no background: legible on light and dark pages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with DATA.open(newline="") as file:
        head, *rows = csv.reader(file)
    with pyplot.rc_context({"font.size": 11, "svg.hashsalt": "aclnn"}):
        figure, axes = pyplot.subplots(2, 2, figsize=(10, 5.6), sharey=True, layout="constrained")
        for panel, (title, low, high) in zip(axes.flat, PANELS, strict=True):
            values = np.array([[float(cell) for cell in row[1:]] for row in rows if row[0] == title])
            x = values[:, :2].mean(1)
            panel.axhline(1, color=INK, lw=0.8)
            for column, colour in ((2, THEIRS), (3, OURS)):
                panel.plot(x, np.maximum(values[:, column], 0.1), color=colour, lw=1.6, label=head[column + 1])
            panel.set_yscale("log")
            panel.set_ylim(0.1, 1e8)
            panel.set_yticks([1, 1e2, 1e4, 1e6, 1e8])
            panel.minorticks_off()
            panel.set_xlim(low, high)
            panel.set_title(f"{title}, derivative", color=INK, fontsize=11)
            panel.tick_params(colors=INK)
            panel.grid(color=INK, alpha=0.2)
            for side, spine in panel.spines.items():
                spine.set_visible(side in ("left", "bottom"))
                spine.set_color(INK)
        figure.supxlabel("x", color=INK)
        figure.supylabel("worst error, float32 (units in the last place)", color=INK)
        axes[0, 1].legend(frameon=False, labelcolor=INK, loc="upper right")
        figure.savefig(FIGURE, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["measure", "draw"])
    {"measure": measure, "draw": draw}[parser.parse_args().step]()
