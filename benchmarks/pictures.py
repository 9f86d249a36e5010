"""Pictures of measured tables, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm

mpl.rcParams["svg.hashsalt"] = "aclnn"  # the same figures give the same files
Row = dict[str, Any]

THEMES = {
    "light": {
        "text": "#1f2328",
        "grid": "#d0d7de",
        "ground": "#ffffff",
        "aclnn": "#0969da",
        "torch": "#bc4c00",
        "limit": "#6e7781",
        "other": "#8250df",
        "low": "#ffb77c",
        "high": "#54aeff",
    },
    "dark": {
        "text": "#e6edf3",
        "grid": "#30363d",
        "ground": "#0d1117",
        "aclnn": "#58a6ff",
        "torch": "#f0883e",
        "limit": "#8b949e",
        "other": "#bc8cff",
        "low": "#bd561d",
        "high": "#1158c7",
    },
}
DTYPES = ["float32", "float16", "bfloat16"]
BARS = ("aclnn", "other", "torch")
"""Colours of machines, one after the other; then they begin again."""
NAMES = {"aclnn": "aclnn", "torch": "PyTorch", "limit": "memory limit"}


def _style(axes: Any, theme: dict[str, str]) -> None:
    axes.set_facecolor("none")
    axes.tick_params(colors=theme["text"], which="both", labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(theme["grid"])
    axes.grid(True, color=theme["grid"], linewidth=0.6)
    axes.set_axisbelow(True)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(theme["text"])


def _legend(axes: Any, theme: dict[str, str]) -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=theme["text"])


def _save(figure: Any, folder: Path, name: str, mode: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}-{mode}.svg", transparent=True, metadata={"Date": None})
    plt.close(figure)


def label(row: Row) -> str:
    """What an operator is called in pictures and beside them."""
    if row["operator"] == "layer_norm_backward":
        return f"layer_norm {row['shape'].replace('x', '×')}"
    return str(row["operator"]).replace("_backward", "").replace("gelu_v2", "gelu").replace("none", "erf")


def of(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def bars(machines: dict[str, list[Row]], folder: Path, name: str, key: str, title: str) -> None:
    """Horizontal bars by operator and machine, one panel for each data type; a line at 1 marks the value to beat."""
    height = 0.8 / len(machines)
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(
            1, len(DTYPES), layout="constrained", figsize=(11, 2.6 + 1.6 * len(machines)), sharey=True, squeeze=False
        )
        for axes, dtype in zip(panels[0], DTYPES, strict=True):
            for place, ((machine, rows), colour) in enumerate(zip(machines.items(), cycle(BARS), strict=False)):
                chosen = of(rows, dtype=dtype, threads=2.0, provider="aclnn")[::-1]
                at = np.arange(len(chosen)) + ((len(machines) - 1) / 2 - place) * height
                values = np.array([row[key] for row in chosen])
                start = (
                    1.0 if key == "times_torch" else 0.0
                )  # on a logarithmic axis bars have no other natural beginning
                drawn = axes.barh(at, values - start, height, start, color=theme[colour], label=machine)
                form = "%.2f" if key == "share_of_limit" else "%.1f×"
                axes.bar_label(drawn, [form % value for value in values], padding=3, color=theme["text"], fontsize=8)
                axes.set_yticks(np.arange(len(chosen)), [label(row) for row in chosen])
            axes.axvline(1.0, color=theme["torch"] if key == "times_torch" else theme["limit"], linestyle="--")
            axes.set_title(dtype, fontsize=11)
            if key == "times_torch":
                axes.set_xscale("log")
                axes.set_xlim(0.7, 120)
            else:
                axes.set_xlim(0, 1.35)
            _style(axes, theme)
        panels[0][1].set_xlabel(title)
        if len(machines) > 1:
            drawn = panels[0][0].get_legend_handles_labels()
            figure.legend(
                *drawn, loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=theme["text"]
            )
        _save(figure, folder, name, mode)


def sizes(rows: list[Row], folder: Path) -> None:
    """Lines: GB/s against the number of elements."""
    panels_of = list(dict.fromkeys((row["operator"], row["dtype"]) for row in rows))
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(
            1, len(panels_of), layout="constrained", figsize=(12, 3.6), sharey=True, squeeze=False
        )
        for axes, (operator, dtype) in zip(panels[0], panels_of, strict=True):
            for provider, name in NAMES.items():
                line = of(rows, operator=operator, dtype=dtype, provider=provider)
                axes.loglog(
                    [float(row["shape"]) for row in line],
                    [row["gb_per_s"] for row in line],
                    color=theme[provider],
                    label=name,
                    marker="o",
                    markersize=3,
                    linestyle="--" if provider == "limit" else "-",
                )
            axes.set_title(f"{operator.replace('_backward', '')} {dtype}", fontsize=10)
            axes.set_xlabel("elements")
            _style(axes, theme)
        panels[0][0].set_ylabel("GB/s, 2 threads")
        _legend(panels[0][-1], theme)
        _save(figure, folder, "sizes", mode)


def layer_norm_map(rows: list[Row], folder: Path) -> None:
    """A map: how many times PyTorch's speed, by row length, size and what is asked for."""
    chosen = of(rows, provider="aclnn")

    def line_of(row: Row) -> tuple[int, str]:
        m, n = map(int, row["shape"].split("x"))
        return m * n, str(row["layout"]).replace("contiguous, ", "only ").replace("contiguous", "dx dw db")

    lines = list(dict.fromkeys(map(line_of, chosen)))
    columns = sorted({int(row["shape"].split("x")[1]) for row in chosen})
    values = np.full((len(lines), len(columns)), np.nan)
    for row in chosen:
        values[lines.index(line_of(row)), columns.index(int(row["shape"].split("x")[1]))] = row["times_torch"]
    for mode, theme in THEMES.items():
        colours = LinearSegmentedColormap.from_list("ratio", [theme["low"], theme["ground"], theme["high"]])
        figure, axes = plt.subplots(layout="constrained", figsize=(11, 3.4))
        axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=LogNorm(1 / 8, 8), edgecolors=theme["grid"])
        for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
            axes.text(
                j + 0.5, i + 0.5, f"{values[i, j]:.1f}", ha="center", va="center", color=theme["text"], fontsize=9
            )
        axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{n:,}" for n in columns])
        names = [f"M·N = 2^{size.bit_length() - 1}, {outputs}" for size, outputs in lines]
        axes.set_yticks(np.arange(len(lines)) + 0.5, names)
        axes.invert_yaxis()
        axes.set_xlabel("columns N: from tall (left) to flat (right)")
        _style(axes, theme)
        axes.grid(False)
        _save(figure, folder, "layer-norm-map", mode)


def streaming(rows: list[Row], folder: Path) -> None:
    """Both sides of the switch: results written into the cache and around it."""
    for mode, theme in THEMES.items():
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
                    color=theme[colour],
                    label=name,
                    marker="o",
                    markersize=3,
                )
            axes.axvline(rows[0]["switch_bytes"] / 2**20, color=theme["limit"], linestyle="--")
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("MiB of the result; the dashed line is the switch")
            _style(axes, theme)
        panels[0][0].set_ylabel("GB/s")
        _legend(panels[0][0], theme)
        _save(figure, folder, "streaming", mode)
