"""The page docs/benchmarks.md and its pictures, from results.csv."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt

Row = dict[str, Any]

THEMES = {
    "light": {"text": "#1f2328", "grid": "#d0d7de", "aclnn": "#0969da", "torch": "#bc4c00", "limit": "#8c959f"},
    "dark": {"text": "#e6edf3", "grid": "#30363d", "aclnn": "#58a6ff", "torch": "#f0883e", "limit": "#8b949e"},
}


def read(path: Path) -> list[Row]:
    numbers = ("us", "p20_us", "p80_us", "gb_per_s", "share_of_limit", "times_torch")
    with open(path, newline="") as file:
        return [row | {name: float(row[name]) for name in numbers} for row in csv.DictReader(file)]


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
    legend = axes.legend(frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color(theme["text"])


def _save(figure: Any, folder: Path, name: str, mode: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"{name}-{mode}.svg", transparent=True, metadata={"Date": None})
    plt.close(figure)


def _label(row: Row) -> str:
    name = row["operator"].replace("_backward", "").replace("gelu_v2", "gelu")
    return name if row["operator"] != "layer_norm_backward" else f"layer_norm {row['shape'].replace('x', '×')}"


def shares(rows: list[Row], folder: Path) -> None:
    """Bars: how much of the memory limit each operator reaches, by data type, beside PyTorch."""
    dtypes = sorted({row["dtype"] for row in rows}, key=["float32", "float16", "bfloat16"].index)
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(1, len(dtypes), figsize=(11, 4.2), sharey=True, squeeze=False)
        for axes, dtype in zip(panels[0], dtypes, strict=True):
            chosen = [row for row in rows if row["dtype"] == dtype and row["threads"] == "2"]
            names = list(dict.fromkeys(_label(row) for row in chosen))[::-1]
            for shift, provider in ((0.2, "aclnn"), (-0.2, "torch")):
                values = {_label(row): row["share_of_limit"] for row in chosen if row["provider"] == provider}
                places = [i + shift for i in range(len(names))]
                bars = axes.barh(places, [values[name] for name in names], 0.38, color=theme[provider], label=provider)
                axes.bar_label(bars, fmt="%.2f", padding=2, color=theme["text"], fontsize=8)
            axes.set_yticks(range(len(names)), names)
            axes.set_xlim(0, 1.15)
            axes.set_title(dtype, fontsize=11)
            _style(axes, theme)
        panels[0][0].set_xlabel("share of the memory limit, 2 threads")
        _legend(panels[0][-1], theme)
        _save(figure, folder, "shares", mode)


def sizes(rows: list[Row], folder: Path) -> None:
    """Lines: GB/s against the number of elements."""
    panels_of = list(dict.fromkeys((row["operator"], row["dtype"]) for row in rows))
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(1, len(panels_of), figsize=(11, 3.4), squeeze=False)
        for axes, (operator, dtype) in zip(panels[0], panels_of, strict=True):
            for provider in ("limit", "aclnn", "torch"):
                line = [
                    row
                    for row in rows
                    if (row["operator"], row["dtype"], row["provider"]) == (operator, dtype, provider)
                ]
                axes.loglog(
                    [float(row["shape"]) for row in line],
                    [row["gb_per_s"] for row in line],
                    color=theme[provider],
                    label=provider,
                    marker="o",
                    markersize=3,
                    linestyle="--" if provider == "limit" else "-",
                )
            axes.set_title(f"{operator.replace('_backward', '')} {dtype}", fontsize=10)
            axes.set_xlabel("elements")
            _style(axes, theme)
        panels[0][0].set_ylabel("GB/s, 2 threads")
        _legend(panels[0][0], theme)
        _save(figure, folder, "sizes", mode)


def _table(rows: Iterable[Row], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(row[key]) for key in columns.values()) + " |" for row in rows]
    return "\n".join(lines)


def _picture(name: str, alternative: str) -> str:
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}-dark.svg">'
        f'<img alt="{alternative}" src="figures/{name}-light.svg"></picture>'
    )


def write(results: Path, report: Path) -> None:
    """The page and its pictures beside it, in figures/."""
    rows = read(results)
    folder = report.parent / "figures"
    sections = {name: [row for row in rows if row["section"] == name] for name in ("main", "wide", "layouts", "sizes")}
    parts = [
        "# Benchmarks",
        f"Made by `make bench` on {rows[0]['machine']}, commit {rows[0]['commit']}: medians of interleaved rounds "
        "in one process. *Share* is the time of the memory limit (a plain product of two float32 arrays with prefetch "
        "and streaming stores, moving the same bytes) over the operator's; *× torch* is PyTorch's time over aclnn's. "
        "PyTorch writes into a given output where the operator has one; FastGELU and LayerNorm allocate theirs. All "
        "rows, with the 20th and 80th percentiles, are in `benchmarks/results.csv`.",
    ]
    columns = {
        "operator": "operator",
        "type": "dtype",
        "shape": "shape",
        "layout": "layout",
        "threads": "threads",
        "µs": "us",
        "GB/s": "gb_per_s",
        "share": "share_of_limit",
        "× torch": "times_torch",
    }
    titles = {"main": "Large tensors", "wide": "Three times wider data", "layouts": "Layouts", "sizes": "Sizes"}
    for name, chosen in sections.items():
        if not chosen:
            continue
        parts.append(f"## {titles[name]}")
        if name == "main":
            shares(chosen, folder)
            parts.append(_picture("shares", "Share of the memory limit by operator and data type"))
        if name == "sizes":
            sizes(chosen, folder)
            parts.append(_picture("sizes", "GB/s against the number of elements"))
        parts.append(_table((row for row in chosen if row["provider"] == "aclnn"), columns))
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n\n".join(parts) + "\n")
