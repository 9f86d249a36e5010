"""Figures of benchmark tables, with middle tones and without a background, legible on light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm

mpl.rcParams["svg.hashsalt"] = "aclnn"  # reproducible files
mpl.rcParams["svg.fonttype"] = "none"  # text, since outlines of letters would dominate the file
mpl.rcParams["font.sans-serif"] = ["DejaVu Sans"]
Row = dict[str, Any]

INK = "#7a828c"
"""Colour of text, axes and grids."""
COLOURS = {"aclnn": "#2f7fd6", "torch": "#d9650b", "other": "#9a6ee0", "limit": INK}
SLOWER, EQUAL, FASTER = "#b3541e", "#6e7781", "#1f6fc4"
"""Colours of a map's cells, dark enough for white text."""
DTYPES = ["float32", "float16", "bfloat16"]
BARS = ("aclnn", "other", "torch")
"""Colours of machines, used cyclically."""
NAMES = {"aclnn": "aclnn", "torch": "PyTorch", "limit": "memory limit"}
COMPOSED = {"fast_gelu_backward"}
"""Operators that eager PyTorch lacks, measured as a composition of its operators."""


def style(axes: Any) -> None:
    """Apply the common colours to axes."""
    axes.set_facecolor("none")
    axes.minorticks_off()
    axes.tick_params(colors=INK, which="both", labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_alpha(0.4)
    axes.grid(True, color=INK, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(INK)


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)


def _four_digits(number: re.Match[str]) -> str:
    return f"{float(number[0]):.4g}"


def save(figure: Any, path: Path) -> None:
    """Write a figure as a small SVG, with one shape per line, four-digit numbers, and no group names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = re.sub(r"<metadata>.*</metadata>\n|<!--.*?-->\n?", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r" id=\"[a-z0-9.]+_[0-9]+\"|(?<=\n) +", "", text)
    text = re.sub(r"<[a-z][^>]*>", lambda tag: re.sub(r"\d+\.\d+", _four_digits, tag[0]), text)
    text = re.sub(r" ?\n(?=[A-Zz\"]|</g>|<use|<g|</defs>)", " ", text)
    path.write_text(re.sub(r"> +<", "><", text))


def label(row: Row) -> str:
    """Return an operator's name in figures and tables."""
    if row["operator"] == "layer_norm_backward":
        return f"layer_norm {row['shape'].replace('x', '×')}"
    return str(row["operator"]).replace("_backward", "").replace("gelu_v2", "gelu").replace("none", "erf")


def of(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def family(rows: list[Row], folder: Path) -> None:
    """Draw each activation's share of the limit, a dot for each data type, the fastest in float32 on top."""
    ours = of(rows, provider="aclnn")
    dots = [
        Dots(dtype, COLOURS[name], {row["operator"]: row["share_of_limit"] for row in of(ours, dtype=dtype)})
        for dtype, name in zip(DTYPES, BARS, strict=True)
    ]
    scatter(dots, dots[0].shares, "share of the memory limit, 2 threads", folder / "family.svg")


class Dots(NamedTuple):
    """Shares by operator with the same marker."""

    label: str
    colour: str
    shares: dict[str, float]
    filled: bool = True


def scatter(dots: list[Dots], order: dict[str, float], title: str, path: Path) -> None:
    """Draw a line for each operator, the one with the largest share in ``order`` on top."""
    names = sorted(order, key=lambda name: order[name])
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.17 * len(names)))
    for label, colour, shares, filled in dots:
        known = [(shares[name], place) for place, name in enumerate(names) if name in shares]
        face = colour if filled else "none"
        axes.scatter(*zip(*known, strict=True), s=16, facecolors=face, edgecolors=colour, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, max(1.0, *(share for one in dots for share in one.shares.values())) + 0.02)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlabel(title)
    style(axes)
    axes.tick_params(axis="y", labelsize=7)
    _legend(axes)
    figure.tight_layout()
    save(figure, path)


def bars(machines: dict[str, list[Row]], folder: Path, name: str, key: str, title: str) -> None:
    """Draw horizontal bars by operator and machine, a panel for each data type; a line at 1 marks the reference."""
    height = 0.8 / len(machines)
    against_torch = key == "times_torch"
    figure, panels = plt.subplots(
        1, len(DTYPES), layout="constrained", figsize=(11, 2.6 + 1.6 * len(machines)), sharey=True, squeeze=False
    )
    for axes, dtype in zip(panels[0], DTYPES, strict=True):
        for place, ((machine, rows), colour) in enumerate(zip(machines.items(), cycle(BARS), strict=False)):
            chosen = of(rows, dtype=dtype, threads=2.0, provider="aclnn")[::-1]
            at = np.arange(len(chosen)) + ((len(machines) - 1) / 2 - place) * height
            values = np.array([row[key] for row in chosen])
            start = 1.0 if against_torch else 0.0  # the natural base of bars on a logarithmic axis
            drawn = axes.barh(at, values - start, height, start, color=COLOURS[colour], label=machine)
            axes.bar_label(drawn, [_bar_label(row, key) for row in chosen], padding=3, color=INK, fontsize=8)
            axes.set_yticks(np.arange(len(chosen)), [label(row) for row in chosen])
        axes.axvline(1.0, color=COLOURS["torch" if against_torch else "limit"], linestyle="--")
        axes.set_title(dtype, fontsize=11)
        if against_torch:
            axes.set_xscale("log")
            axes.set_xlim(0.7, 1500)
            axes.set_xticks([1, 10, 100], ["1×", "10×", "100×"])
        else:
            axes.set_xlim(0, 1.35)
        style(axes)
    panels[0][1].set_xlabel(title)
    if len(machines) > 1:
        drawn = panels[0][0].get_legend_handles_labels()
        figure.legend(*drawn, loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    save(figure, folder / f"{name}.svg")


def _bar_label(row: Row, key: str) -> str:
    """Return a bar's value, with the reference unless that is a single operator."""
    if key != "times_torch":
        return f"{row[key]:.2f}"
    return f"{row[key]:.1f}×" + (" a composition" if row["operator"] in COMPOSED else "")


def sizes(rows: list[Row], folder: Path) -> None:
    """Draw GB/s against the number of elements."""
    panels_of = list(dict.fromkeys((row["operator"], row["dtype"]) for row in rows))
    figure, panels = plt.subplots(
        1, len(panels_of), layout="constrained", figsize=(12, 3.6), sharey=True, squeeze=False
    )
    for axes, (operator, dtype) in zip(panels[0], panels_of, strict=True):
        for provider, name in NAMES.items():
            line = of(rows, operator=operator, dtype=dtype, provider=provider)
            axes.loglog(
                [float(row["shape"]) for row in line],
                [row["gb_per_s"] for row in line],
                color=COLOURS[provider],
                label=name,
                marker="o",
                markersize=3,
                linestyle="--" if provider == "limit" else "-",
            )
        axes.set_title(f"{operator.replace('_backward', '')} {dtype}", fontsize=10)
        axes.set_xlabel("elements")
        style(axes)
    panels[0][0].set_ylabel("GB/s, 2 threads")
    _legend(panels[0][-1])
    save(figure, folder / "sizes.svg")


def layer_norm_map(rows: list[Row], folder: Path) -> None:
    """Draw a map of LayerNorm's speed relative to PyTorch, by row length, size and output mask."""
    chosen = of(rows, provider="aclnn")

    def line_of(row: Row) -> tuple[int, str]:
        m, n = map(int, row["shape"].split("x"))
        return m * n, str(row["layout"]).replace("contiguous, ", "only ").replace("contiguous", "dx dw db")

    lines = list(dict.fromkeys(map(line_of, chosen)))
    columns = sorted({int(row["shape"].split("x")[1]) for row in chosen})
    values = np.full((len(lines), len(columns)), np.nan)
    for row in chosen:
        values[lines.index(line_of(row)), columns.index(int(row["shape"].split("x")[1]))] = row["times_torch"]
    colours = LinearSegmentedColormap.from_list("ratio", [SLOWER, EQUAL, FASTER])
    figure, axes = plt.subplots(layout="constrained", figsize=(11, 3.4))
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=LogNorm(1 / 8, 8), edgecolors=INK)
    for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
        axes.text(j + 0.5, i + 0.5, f"{values[i, j]:.1f}", ha="center", va="center", color="white", fontsize=9)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{n:,}" for n in columns])
    names = [f"M·N = 2^{size.bit_length() - 1}, {outputs}" for size, outputs in lines]
    axes.set_yticks(np.arange(len(lines)) + 0.5, names)
    axes.invert_yaxis()
    axes.set_xlabel("columns N: from tall (left) to flat (right)")
    style(axes)
    axes.grid(False)
    save(figure, folder / "layer-norm-map.svg")


def streaming(rows: list[Row], folder: Path) -> None:
    """Draw the times of cached and non-temporal stores against the size of the result."""
    figure, panels = plt.subplots(1, 2, layout="constrained", figsize=(11, 3.4), squeeze=False)
    for axes, key, title in zip(
        panels[0],
        ("call_us", "call_and_read_us"),
        ("the call alone", "the call, then its result is read"),
        strict=True,
    ):
        for streamed, colour, name in ((0.0, "torch", "into the cache"), (1.0, "aclnn", "around the cache")):
            line = of(rows, streamed=streamed)
            size = np.array([row["result_bytes"] for row in line])
            axes.semilogx(
                size / 2**20,
                3 * size / np.array([row[key] for row in line]) / 1e3,
                base=2,
                color=COLOURS[colour],
                label=name,
                marker="o",
                markersize=3,
            )
        axes.axvline(rows[0]["switch_bytes"] / 2**20, color=COLOURS["limit"], linestyle="--")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("MiB of the result; the dashed line is the switch")
        style(axes)
    panels[0][0].set_ylabel("GB/s")
    _legend(panels[0][0])
    save(figure, folder / "streaming.svg")
