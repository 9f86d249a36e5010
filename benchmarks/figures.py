"""The page docs/benchmarks.md and its pictures, from results.csv, costs.csv and streaming.csv.

    python -m benchmarks.figures

draws them again from the committed files.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
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
NAMES = {"aclnn": "aclnn", "torch": "PyTorch", "limit": "memory limit"}


def read(path: Path) -> list[Row]:
    """The rows of a table, numbers as numbers."""

    def value(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    with open(path, newline="") as file:
        return [
            {key: text if key in ("shape", "commit") else value(text) for key, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _style(axes: Any, theme: dict[str, str]) -> None:
    axes.set_facecolor("none")
    axes.tick_params(colors=theme["text"], which="both", labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(theme["grid"])
    axes.grid(True, color=theme["grid"], linewidth=0.6)
    axes.set_axisbelow(True)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(theme["text"])


def _legend(axes: Any, theme: dict[str, str], **where: Any) -> None:
    legend = axes.legend(frameon=False, fontsize=9, **where)
    for text in legend.get_texts():
        text.set_color(theme["text"])


def _save(figure: Any, folder: Path, name: str, mode: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"{name}-{mode}.svg", transparent=True, metadata={"Date": None})
    plt.close(figure)


def _label(row: Row) -> str:
    if row["operator"] == "layer_norm_backward":
        return f"layer_norm {row['shape'].replace('x', '×')}"
    return str(row["operator"]).replace("_backward", "").replace("gelu_v2", "gelu").replace("none", "erf")


def _of(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _bars(rows: list[Row], folder: Path, name: str, key: str, title: str, line: float) -> None:
    """Horizontal bars by operator, one panel for each data type; a line marks the value to beat."""
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(1, len(DTYPES), figsize=(11, 4), sharey=True, squeeze=False)
        for axes, dtype in zip(panels[0], DTYPES, strict=True):
            chosen = _of(rows, dtype=dtype, threads=2.0, provider="aclnn")[::-1]
            bars = axes.barh([_label(row) for row in chosen], [row[key] for row in chosen], 0.6, color=theme["aclnn"])
            axes.bar_label(bars, fmt="%.2f" if key == "share_of_limit" else "%.1f×", padding=3, color=theme["text"])
            axes.axvline(line, color=theme["torch"] if key == "times_torch" else theme["limit"], linestyle="--")
            axes.set_title(dtype, fontsize=11)
            if key == "times_torch":
                axes.set_xscale("log")
                axes.set_xlim(0.7, 120)
            else:
                axes.set_xlim(0, 1.35)
            _style(axes, theme)
        panels[0][1].set_xlabel(title)
        _save(figure, folder, name, mode)


def sizes(rows: list[Row], folder: Path) -> None:
    """Lines: GB/s against the number of elements."""
    panels_of = list(dict.fromkeys((row["operator"], row["dtype"]) for row in rows))
    for mode, theme in THEMES.items():
        figure, panels = plt.subplots(1, len(panels_of), figsize=(12, 3.6), sharey=True, squeeze=False)
        for axes, (operator, dtype) in zip(panels[0], panels_of, strict=True):
            for provider, name in NAMES.items():
                line = _of(rows, operator=operator, dtype=dtype, provider=provider)
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
    chosen = _of(rows, provider="aclnn")

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
        figure, axes = plt.subplots(figsize=(11, 3.4))
        axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=LogNorm(0.5, 8), edgecolors=theme["grid"])
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
        figure, panels = plt.subplots(1, 2, figsize=(11, 3.4), squeeze=False)
        for axes, key, title in zip(
            panels[0],
            ("call_us", "call_and_read_us"),
            ("the call alone", "the call, then its result is read"),
            strict=True,
        ):
            for streamed, colour, name in ((0.0, "torch", "into the cache"), (1.0, "aclnn", "around the cache")):
                line = _of(rows, streamed=streamed)
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


def _table(rows: Iterable[Row], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(_cell(row[key]) for key in columns.values()) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:,.5g}" if isinstance(value, float) else str(value)


def _picture(name: str, alternative: str) -> str:
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}-dark.svg">'
        f'<img alt="{alternative}" src="figures/{name}-light.svg"></picture>'
    )


def _folded(title: str, table: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{table}\n\n</details>"


COLUMNS = {
    "operator": "operator",
    "type": "dtype",
    "shape": "shape",
    "layout": "layout",
    "threads": "threads",
    "provider": "provider",
    "µs": "us",
    "GB/s": "gb_per_s",
    "share of the limit": "share_of_limit",
    "× PyTorch": "times_torch",
}


def _moving_limit(rows: list[Row]) -> str:
    """How far the limits of equally large workloads were apart."""
    found = []
    for bytes_, dtypes in (("201 MB, float32", DTYPES[:1]), ("101 MB, 16 bits", DTYPES[1:])):
        times = [row["us"] / 1e3 for row in _of(rows, provider="limit", threads=2) if row["dtype"] in dtypes]
        if times:
            found.append(f"{min(times):.1f} to {max(times):.1f} ms for {bytes_}")
    return (
        f"The limit itself moved while these were measured, by what other users left of the memory: {'; '.join(found)}."
    )


def write(source: Path, report: Path) -> None:
    """The page and its pictures beside it, in figures/; sections that were not measured are left out."""
    rows = read(source / "results.csv")
    folder = report.parent / "figures"
    sections = {name: _of(rows, section=name) for name in ("main", "wide", "layouts", "sizes", "map")}
    parts = ["# Benchmarks"]
    if rows:
        commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
        parts.append(INTRODUCTION.format(machine=rows[0]["machine"], commit=commits))
        parts.append(WITH_JAX if _of(rows, provider="jax") else WITHOUT_JAX)
    if main := sections["main"]:
        _bars(main, folder, "speed", "times_torch", "times PyTorch's speed, 2 threads", 1.0)
        _bars(main, folder, "shares", "share_of_limit", "share of the memory limit, 2 threads", 1.0)
        parts += ["## Large tensors", MAIN]
        parts += [_picture("speed", "Times PyTorch's speed by operator and data type")]
        parts += [_picture("shares", "Share of the memory limit by operator and data type"), _moving_limit(main)]
        parts += [_folded("All figures", _table(main, COLUMNS))]
    if wide := sections["wide"]:
        parts += ["## Wide data", WIDE, _table(_of(wide, provider="aclnn"), COLUMNS)]
    if layouts := sections["layouts"]:
        parts += ["## Layouts", LAYOUTS, _table(_of(layouts, provider="aclnn"), COLUMNS)]
    if section := sections["sizes"]:
        sizes(section, folder)
        parts += ["## Sizes", SIZES, _picture("sizes", "GB/s against the number of elements")]
        parts += [_folded("All figures", _table(section, COLUMNS))]
    if section := sections["map"]:
        layer_norm_map(section, folder)
        parts += ["## LayerNorm from tall to flat", MAP, _picture("layer-norm-map", "Times PyTorch's speed by shape")]
        parts += [_folded("All figures", _table(section, COLUMNS))]
    if (source / "streaming.csv").exists():
        streaming(read(source / "streaming.csv"), folder)
        parts += ["## The streaming switch", STREAMING, _picture("streaming", "GB/s with and without streaming stores")]
    if (source / "costs.csv").exists():
        columns = {"what": "name", "measured": "value", "unit": "unit", "at most": "most"}
        parts += ["## What else a call costs", COSTS, _table(read(source / "costs.csv"), columns)]
    parts += ["## On an NVIDIA GPU", GPU]
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n\n".join(parts) + "\n")


INTRODUCTION = """Made by `make bench` on {machine}, commit {commit}; `python -m benchmarks.figures` draws the page
again from the committed tables. All providers run in one process, one after the other in every round, after a rest of
10 ms (PyTorch's threads spin for 5 ms after a call) and 25 ms of warming up; the figures are medians, their 20th and
80th percentiles are in `benchmarks/results.csv`. A row whose result is wrong gets no ratio.

The **memory limit** is a plain product of two float32 arrays with prefetch and streaming stores that moves the same
bytes, in the same rounds. It is a kernel, not a law: where an operator beats it, other users of the machine's memory
slowed it down in that moment. PyTorch 2.13 writes into a given output where the operator has one; FastGELU, which it
lacks, is composed; LayerNorm allocates."""

WITH_JAX = """JAX takes part in the activations of large tensors: the compiled gradient of its own functions, which
allocates its results. It uses all cores always, so it has rows with as many threads only."""

WITHOUT_JAX = """JAX did not take part. Where it is installed (`.venv/bin/pip install jax`, 380 MB) and the machine has
two cores, `make bench` measures it too."""

MAIN = """16,777,216 normally distributed elements. Bytes are counted from the declaration: each operand once."""

WIDE = """Inputs three times wider (σ = 3) meet the derivatives' tails. The reference stays PyTorch on the same data."""

LAYOUTS = """4,194,304 elements; no copy of a whole tensor is made in any of them."""

SIZES = """Contiguous tensors of 1 to 2²⁶ elements through the Python function with `out=`, that is, its overhead
included; the limit's has none. Up to 32,768 elements one thread does the work."""

MAP = """Times PyTorch's speed in float32, 2 threads; below 1.0 PyTorch is faster. With 2²⁴ elements aclnn is mostly 3
to 6 times as fast, where PyTorch allocates its results anew and pays for fresh pages; in the cache (2²⁰ and 2²²
elements) aclnn is 1 to 2 times as fast. PyTorch is the faster one for db alone of 256 to 1,024 columns, which it adds
in float32, aclnn in float64, and for dx alone of very few rows, whose columns aclnn's threads share."""

STREAMING = """Results larger than a third of the machine's largest cache (and 4 MiB) are written around it. A smaller
one stays there, for whoever reads it next; a larger one does not, and writing it into the cache costs the reading of
what is overwritten. Hardswish in float32, both ways, on a machine with 32 MiB:"""

COSTS = """Imports and first calls are medians of new processes; compilations start with an empty cache."""

GPU = """Nothing has been measured yet: no GPU was at hand. `make gpu` measures it and writes the tables;
[pytorch.md](pytorch.md) says what the compiled kernels let one expect."""


if __name__ == "__main__":
    write(Path(__file__).parent, Path("docs/benchmarks.md"))
