"""Generate docs/benchmarks.md, a page for each machine, and their figures from the tables in benchmarks/results.

    python -m benchmarks.figures

regenerates them from the committed files.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import gpu_pages, pictures
from benchmarks.pictures import DTYPES, Row, of
from benchmarks.tables import line

HERE = Path(__file__).parent
RESULTS = HERE / "results"
"""Results: a folder for each machine, with results.csv, costs.csv and streaming.csv."""
PAGE = HERE.parent / "docs" / "benchmarks.md"


def folder_of(machine: str) -> str:
    """Return the name of a machine's folder, page and folder of figures."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def read(path: Path) -> list[Row]:
    """Read the rows of a table and convert numbers; a missing file has no rows."""

    def value(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [
            {key: text if key in ("shape", "commit") else value(text) for key, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _table(rows: Iterable[Row], columns: dict[str, str]) -> str:
    cells = ([_cell(row[key]) for key in columns.values()] for row in rows)
    return "\n".join(map(line, (columns, ["---"] * len(columns), *cells)))


def _cell(value: object) -> str:
    return f"{value:,.5g}" if isinstance(value, float) else str(value)


def _picture(path: str, alternative: str) -> str:
    return f"![{alternative}]({path}.svg)"


def _folded(title: str, table: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{table}\n\n</details>"


SLOWER_COLUMNS = {
    "machine": "machine",
    "operator": "operator",
    "type": "dtype",
    "shape": "shape",
    "layout": "layout",
    "threads": "threads",
    "× PyTorch": "times_torch",
}
FAMILY_COLUMNS = {
    "operator": "operator",
    "type": "dtype",
    "µs": "us",
    "GB/s": "gb_per_s",
    "share of the limit": "share_of_limit",
    "× PyTorch": "times_torch",
    "compared with": "beside",
}
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
    """Return the ratio of the limits measured for workloads of equal size."""
    found = []
    for bytes_, dtypes in (("201 MB, float32", DTYPES[:1]), ("101 MB, 16 bits", DTYPES[1:])):
        times = [row["us"] / 1e3 for row in of(rows, provider="limit", threads=2) if row["dtype"] in dtypes]
        if times:
            found.append(f"{min(times):.1f} to {max(times):.1f} ms for {bytes_}")
    return f"During these measurements the limit itself varied with other users' use of the memory: {'; '.join(found)}."


def _ranges(rows: list[Row]) -> str:
    """Describe the speed of LayerNorm's gradients relative to PyTorch, by the number of elements."""
    times: dict[int, list[float]] = {}
    for row in of(rows, provider="aclnn", layout="contiguous"):
        m, n = map(int, row["shape"].split("x"))
        times.setdefault(m * n, []).append(row["times_torch"])
    found = [f"{min(of_size):.1f} to {max(of_size):.1f} for {size:,} elements" for size, of_size in times.items()]
    return f"Speed relative to PyTorch for all three gradients: {', '.join(found)}."


def _commits(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(row["commit"] for row in rows))


SECTIONS = ("main", "family", "norms", "wide", "layouts", "sizes", "map")


def _machine_page(source: Path, rows: list[Row], pictures_folder: Path, path: str) -> str:
    """Write the page of a machine, without sections that were not measured."""
    sections = {name: of(rows, section=name) for name in SECTIONS}
    parts = [f"# Benchmarks on {rows[0]['machine']}"]
    parts.append(f"Measured at commit {_commits(rows)}. [How these figures are measured](../benchmarks.md).")
    parts.append(WITH_JAX if of(rows, provider="jax") else WITHOUT_JAX)
    if main := sections["main"]:
        parts += ["## Large tensors", MAIN, _moving_limit(main), _table(main, COLUMNS)]
    if section := sections["family"]:
        pictures.family(section, pictures_folder)
        parts += ["## The activation family", FAMILY, _against_theirs(section)]
        parts += [_picture(f"{path}/family", "Share of the memory limit by activation and data type")]
        parts += [_table(_members(section), FAMILY_COLUMNS)]
    if section := sections["norms"]:
        shaped = {"operator": "operator", "type": "dtype", "shape": "shape"} | FAMILY_COLUMNS
        parts += ["## Norms and softmax", NORMS, _against_theirs(section), _table(_members(section), shaped)]
    if wide := sections["wide"]:
        parts += ["## Wide data", WIDE, _table(of(wide, provider="aclnn"), COLUMNS)]
    if layouts := sections["layouts"]:
        parts += ["## Layouts", LAYOUTS, _table(of(layouts, provider="aclnn"), COLUMNS)]
    if section := sections["sizes"]:
        pictures.sizes(section, pictures_folder)
        parts += ["## Sizes", SIZES, _picture(f"{path}/sizes", "GB/s against the number of elements")]
        parts += [_folded("All figures", _table(section, COLUMNS))]
    if section := sections["map"]:
        pictures.layer_norm_map(section, pictures_folder)
        parts += ["## LayerNorm from tall to flat", MAP, _ranges(section)]
        parts += [_picture(f"{path}/layer-norm-map", "Speed relative to PyTorch by shape")]
        parts += [_folded("All figures", _table(section, COLUMNS))]
    if switch := read(source / "streaming.csv"):
        pictures.streaming(switch, pictures_folder)
        parts += ["## The streaming switch", STREAMING]
        parts += [_picture(f"{path}/streaming", "GB/s with and without streaming stores")]
    if costs := read(source / "costs.csv"):
        columns = {"cost": "name", "measured": "value", "unit": "unit", "limit": "most", "within the limit": "kept"}
        parts += ["## What else a call costs", COSTS, _table(map(_assessed, costs), columns)]
    return "\n\n".join(parts) + "\n"


def _members(rows: list[Row]) -> Iterator[Row]:
    """Yield the rows of aclnn with the results of PyTorch."""
    for row in of(rows, provider="aclnn"):
        composed = of(rows, provider="composed", operator=row["operator"], dtype=row["dtype"])
        yield row | {"beside": "composed" if composed else "operator"}


def _against_theirs(rows: list[Row]) -> str:
    """Describe the geometric mean of the speeds relative to PyTorch's operators, and the operators that are faster."""
    times = [row for row in _members(rows) if row["beside"] == "operator"]
    mean = statistics.geometric_mean(row["times_torch"] for row in times)
    faster = [
        f"{row['operator']} in {row['dtype']} ({row['times_torch']:.2f} ×)" for row in times if row["times_torch"] < 1
    ]
    return (
        f"Geometric mean of the speeds relative to PyTorch's operators for the same function: {mean:.2f}. "
        f"Slower than PyTorch: {', '.join(faster) or 'none'}."
    )


def _assessed(cost: Row) -> Row:
    """Add to a cost whether it is within its limit, if it has one."""
    bound = cost["most"]
    return cost | {"kept": "" if bound == "" else "yes" if cost["value"] <= bound else "**no**"}


def _overview(machines: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield by machine, for large tensors, the share of the limit on one and two threads, and the ratio to PyTorch."""
    first = next(iter(machines.values()))
    for row in of(first, provider="aclnn", threads=2.0):
        line: Row = {"operator": pictures.label(row), "type": row["dtype"]}
        for machine, rows in machines.items():
            same = of(rows, provider="aclnn", operator=row["operator"], dtype=row["dtype"], shape=row["shape"])
            by_threads = {int(found["threads"]): found for found in same}
            shares = [f"{by_threads[count]['share_of_limit']:.2f}" for count in (1, 2) if count in by_threads]
            line[machine] = ", ".join(shares) + (f"; {by_threads[2]['times_torch']:.1f} ×" if 2 in by_threads else "")
        yield line


def _against_compiled(machines: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield by machine the speed over that of PyTorch's compiled code, on two threads, for large tensors."""
    first = next(iter(machines.values()))
    for row in of(first, provider="torch.compile", threads=2.0):
        line: Row = {"operator": pictures.label(row), "type": row["dtype"]}
        for machine, rows in machines.items():
            same = of(rows, threads=2.0, operator=row["operator"], dtype=row["dtype"], shape=row["shape"])
            us = {found["provider"]: found["us"] for found in same}
            both = "aclnn" in us and "torch.compile" in us
            line[machine] = f"{us['torch.compile'] / us['aclnn']:.1f} ×" if both else ""
        yield line


def _slower(machines: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield all results slower than PyTorch's own operators, the slowest first."""
    found = list[Row]()
    for rows in machines.values():
        theirs = {_workload(row) for row in of(rows, provider="torch")}
        found += [row for row in of(rows, provider="aclnn") if _workload(row) in theirs and row["times_torch"] < 1.0]
    yield from sorted(found, key=lambda row: row["times_torch"])


def _workload(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("section", "operator", "dtype", "shape", "layout", "threads"))


def write(results: Path, report: Path) -> None:
    """Write the page, a folder with it with a page for each machine, and their figures in figures/."""
    drawn, places, measured, everything = report.parent / "figures", [], {}, {}
    for source in sorted(path.parent for path in results.glob("*/results.csv")):
        if rows := read(source / "results.csv"):
            machine, page = rows[0]["machine"], f"{report.stem}/{source.name}.md"
            places.append({"machine": machine, "commit": _commits(rows), "page": f"[{source.name}.md]({page})"})
            (report.parent / page).parent.mkdir(parents=True, exist_ok=True)
            text = _machine_page(source, rows, drawn / source.name, f"../figures/{source.name}")
            (report.parent / page).write_text(text)
            everything[machine] = rows
            if main := of(rows, section="main"):
                measured[machine] = main
    parts = ["# Benchmarks", INTRODUCTION]
    if places:
        columns = {"machine": "machine", "commit": "commit", "all measurements": "page"}
        parts.append(_table(places, columns))
    if measured:
        pictures.bars(measured, drawn, "speed", "times_torch", "gradients: times the speed of eager PyTorch, 2 threads")
        pictures.bars(measured, drawn, "shares", "share_of_limit", "share of the memory limit, 2 threads")
        parts += ["## Large tensors", MAIN]
        parts += [_picture("figures/speed", "Speed relative to PyTorch by operator and data type"), COMPARED]
        parts += [_picture("figures/shares", "Share of the memory limit by operator and data type"), OVERVIEW]
        by_machine = {name: name for name in ("operator", "type", *measured)}
        parts += [_table(_overview(measured), by_machine)]
        parts += ["## Against compiled code", COMPILED, _table(_against_compiled(measured), by_machine)]
        parts += ["## Where PyTorch is faster", SLOWER, _table(_slower(everything), SLOWER_COLUMNS)]
    parts += ["## On an NVIDIA GPU", GPU]
    for folder in sorted(path.parent for path in results.glob("gpu/*/speed.json")):
        page = f"{report.stem}/{folder.name}.md"
        text = gpu_pages.page(folder, drawn / folder.name, f"../figures/{folder.name}")
        (report.parent / page).parent.mkdir(parents=True, exist_ok=True)
        (report.parent / page).write_text(text)
        parts.append(f"- [{folder.name}]({page})")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n\n".join(parts) + "\n")


INTRODUCTION = """These pages are generated: `make bench` measures a machine and adds it;
`python -m benchmarks.figures` draws the pages again from the committed tables in `benchmarks/results`. All providers
run in one process, one after the other in every round, after 10 ms of rest (PyTorch's threads spin for 5 ms after a
call) and 25 ms of warm-up. Figures are medians; the tables also have the 20th and 80th percentiles. A row with a
wrong result gets no ratio.

The **memory limit** is the time of a kernel that multiplies two float32 arrays, with prefetching and streaming
stores, and moves the same number of bytes, measured in the same rounds. The **share of the limit** is that time
divided by the operator's time. It can exceed 1, when other users of the machine's memory slowed down the limit's
kernel at that moment.

PyTorch 2.13 writes to a given output where its operator accepts one; LayerNorm allocates its results. FastGELU, which
PyTorch lacks, is composed of several operators."""

WITH_JAX = """JAX takes part in the activations of large tensors: the compiled gradient of its own functions, which
allocates its results. It always uses all cores, so it has rows only for that number of threads."""

WITHOUT_JAX = """JAX did not take part. If it is installed (`.venv/bin/pip install jax`, 380 MB) and the machine has
two cores, `make bench` measures it as well."""

MAIN = """Gradients of 16,777,216 normally distributed elements. The number of bytes follows from the declaration:
each operand is counted once."""

COMPARED = """Speed relative to PyTorch's own operator (1 is equal). Bars of FastGELU, which PyTorch lacks, compare
with a composition of several operators, and say so."""

OVERVIEW = """Each cell has the share of the memory limit on one thread and on two, then the speed relative to
PyTorch's operator on two threads."""

COMPILED = """Speed relative to the code that `torch.compile` generates from PyTorch's operators, which allocates its
results; two threads."""

SLOWER = """All measurements in which aclnn was slower than PyTorch's own operator: large and small tensors, other
layouts, wide data, and all of LayerNorm's shapes and output masks. The machines' pages have the other measurements.
Layers on small tensors within PyTorch, where the cost of a call dominates, take two to four times as long as
PyTorch's ([costs of a call](benchmarks/amd-epyc-znver4-2-cores.md#what-else-a-call-costs)); two small models
therefore [train](pytorch.md#training) at 0.93 to 0.95 of its speed."""

FAMILY = """Every function that is computed by a formula, on 16,777,216 elements (for gated activations, 4,096 rows,
whose halves are views), on two threads, with default attributes. Each is compared with PyTorch's operator for the
same function or, if there is none, with the formula composed of eager PyTorch operators on whole tensors
("composed"), which writes many intermediate results."""

NORMS = """Three sizes of x in float32, and the largest one in 16 bits, on two threads. Each is compared with
PyTorch's operator for the same function or, if there is none, with a composition of operators ("composed"), such as a
sum and LayerNorm for AddLayerNorm. PyTorch allocates its results, except for softmax."""

WIDE = """Inputs three times as wide (σ = 3) reach the tails of the derivatives. PyTorch computes the same data."""

LAYOUTS = """About 4,194,304 elements. No layout requires a copy of a whole tensor. LayerNorm's rows end within a
cache line."""

SIZES = """Contiguous tensors of 1 to 2²⁶ elements, through the Python function with `out=`. The figures include the
function's overhead; the limit has none. Up to 32,768 elements are computed on one thread."""

MAP = """Speed relative to PyTorch in float32 on two threads; below 1.0 PyTorch is faster. PyTorch accumulates dw and
db in float32, aclnn in float64. PyTorch allocates large results anew and pays for fresh pages; small ones are in the
cache for both. For very few rows, aclnn divides the columns among its threads. Empty cells were not measured."""

STREAMING = """Results that are larger than 4 MiB and than a third of the machine's largest cache (counting at most 16
MiB per processor) are written with streaming stores, which bypass the cache. A smaller result stays in the cache for
its next reader. A larger one does not, and writing it through the cache would first read the overwritten memory.
Hardswish in float32, both ways:"""

COSTS = """Imports and first calls are medians over new processes; calls, layers and memory over up to three.
Compilations start with an empty cache."""

GPU = """`make gpu` checks and measures the GPU kernels and writes the results in `benchmarks/results/gpu`.
[pytorch.md](pytorch.md#nvidia-gpus) describes the kernels."""


if __name__ == "__main__":
    write(RESULTS, PAGE)
