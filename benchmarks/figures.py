"""The page docs/benchmarks.md, a page for each machine and their pictures, from the tables in benchmarks/results.

    python -m benchmarks.figures

draws them again from the committed files.
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
"""A folder for each machine, with results.csv, costs.csv and streaming.csv."""
PAGE = HERE.parent / "docs" / "benchmarks.md"


def folder_of(machine: str) -> str:
    """Name of a machine's folder, page and folder of pictures."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def read(path: Path) -> list[Row]:
    """The rows of a table, numbers as numbers; none where there is no such file."""

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
    "PyTorch's": "beside",
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
    """Ratio of the limits of equally large workloads."""
    found = []
    for bytes_, dtypes in (("201 MB, float32", DTYPES[:1]), ("101 MB, 16 bits", DTYPES[1:])):
        times = [row["us"] / 1e3 for row in of(rows, provider="limit", threads=2) if row["dtype"] in dtypes]
        if times:
            found.append(f"{min(times):.1f} to {max(times):.1f} ms for {bytes_}")
    return (
        f"The limit itself moved while these were measured, by what other users left of the memory: {'; '.join(found)}."
    )


def _ranges(rows: list[Row]) -> str:
    """Speed of LayerNorm's gradients over PyTorch's, by the number of elements."""
    times: dict[int, list[float]] = {}
    for row in of(rows, provider="aclnn", layout="contiguous"):
        m, n = map(int, row["shape"].split("x"))
        times.setdefault(m * n, []).append(row["times_torch"])
    found = [f"{min(of_size):.1f} to {max(of_size):.1f} with {size:,} elements" for size, of_size in times.items()]
    return f"All three gradients: {', '.join(found)}."


def _commits(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(row["commit"] for row in rows))


SECTIONS = ("main", "family", "norms", "wide", "layouts", "sizes", "map")


def _machine_page(source: Path, rows: list[Row], pictures_folder: Path, path: str) -> str:
    """All that was measured on one machine; sections that were not are left out."""
    sections = {name: of(rows, section=name) for name in SECTIONS}
    parts = [f"# Benchmarks on {rows[0]['machine']}"]
    parts.append(f"At commit {_commits(rows)}. [What was measured, and how](../benchmarks.md).")
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
        parts += [_picture(f"{path}/layer-norm-map", "Times PyTorch's speed by shape")]
        parts += [_folded("All figures", _table(section, COLUMNS))]
    if switch := read(source / "streaming.csv"):
        pictures.streaming(switch, pictures_folder)
        parts += ["## The streaming switch", STREAMING]
        parts += [_picture(f"{path}/streaming", "GB/s with and without streaming stores")]
    if costs := read(source / "costs.csv"):
        columns = {"what": "name", "measured": "value", "unit": "unit", "at most": "most", "kept": "kept"}
        parts += ["## What else a call costs", COSTS, _table(map(_judged, costs), columns)]
    return "\n\n".join(parts) + "\n"


def _members(rows: list[Row]) -> Iterator[Row]:
    """The rows of aclnn, with what PyTorch has beside them."""
    for row in of(rows, provider="aclnn"):
        composed = of(rows, provider="composed", operator=row["operator"], dtype=row["dtype"])
        yield row | {"beside": "composed" if composed else "operator"}


def _against_theirs(rows: list[Row]) -> str:
    """The geometric mean of the speeds against PyTorch's operators, and those that are faster."""
    times = [row for row in _members(rows) if row["beside"] == "operator"]
    mean = statistics.geometric_mean(row["times_torch"] for row in times)
    faster = [
        f"{row['operator']} in {row['dtype']} ({row['times_torch']:.2f} ×)" for row in times if row["times_torch"] < 1
    ]
    return (
        f"Against PyTorch's operators of the same function: {mean:.2f} times their speed in the geometric mean. "
        f"Slower than those: {', '.join(faster) or 'none'}."
    )


def _judged(cost: Row) -> Row:
    """With whether its bound was kept, if it has one."""
    bound = cost["most"]
    return cost | {"kept": "" if bound == "" else "yes" if cost["value"] <= bound else "**no**"}


def _overview(machines: dict[str, list[Row]]) -> Iterator[Row]:
    """Share of the limit on one thread and on two, and times PyTorch's speed on two, of large tensors by machine."""
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
    """Times the speed of PyTorch's compiled code, on two threads, of large tensors by machine."""
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
    """All that was measured to be slower than PyTorch's own operators, the worst first."""
    found = list[Row]()
    for rows in machines.values():
        theirs = {_workload(row) for row in of(rows, provider="torch")}
        found += [row for row in of(rows, provider="aclnn") if _workload(row) in theirs and row["times_torch"] < 1.0]
    yield from sorted(found, key=lambda row: row["times_torch"])


def _workload(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("section", "operator", "dtype", "shape", "layout", "threads"))


def write(results: Path, report: Path) -> None:
    """The page, one for each machine in a folder beside it, and their pictures in figures/."""
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
        columns = {"machine": "machine", "commit": "commit", "everything measured there": "page"}
        parts.append(_table(places, columns))
    if measured:
        pictures.bars(measured, drawn, "speed", "times_torch", "gradients: times the speed of eager PyTorch, 2 threads")
        pictures.bars(measured, drawn, "shares", "share_of_limit", "share of the memory limit, 2 threads")
        parts += ["## Large tensors", MAIN]
        parts += [_picture("figures/speed", "Times PyTorch's speed by operator and data type"), COMPARED]
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


INTRODUCTION = """Made by `make bench`, which adds the machine that it runs on; `python -m benchmarks.figures` draws the
pages again from the committed tables in `benchmarks/results`. All providers run in one process, one after the other in
every round, after a rest of 10 ms (PyTorch's threads spin for 5 ms after a call) and 25 ms of warming up; the figures
are medians, the tables have their 20th and 80th percentiles too. A row whose result is wrong gets no ratio.

The **memory limit** is a plain product of two float32 arrays with prefetch and streaming stores that moves the same
bytes, in the same rounds. It is a kernel, not a law: where an operator beats it, other users of the machine's memory
slowed it down in that moment. PyTorch 2.13 writes into a given output where the operator has one; FastGELU, which it
lacks, is composed; LayerNorm allocates."""

WITH_JAX = """JAX takes part in the activations of large tensors: the compiled gradient of its own functions, which
allocates its results. It uses all cores always, so it has rows with as many threads only."""

WITHOUT_JAX = """JAX did not take part. Where it is installed (`.venv/bin/pip install jax`, 380 MB) and the machine has
two cores, `make bench` measures it too."""

MAIN = """16,777,216 normally distributed elements. Bytes are counted from the declaration: each operand once."""

COMPARED = """Times the speed of PyTorch's own operator; of FastGELU, which it lacks, times that of a composition of
several: such bars say so."""

OVERVIEW = """Shares of the limit on one thread and on two, then times PyTorch's speed on two."""

COMPILED = """Times the speed of what `torch.compile` makes of PyTorch's operators, which allocates its results. Two
threads."""

SLOWER = """Everything that was measured and came out slower than PyTorch's own operator, of large and small tensors,
other layouts, wide data and all of LayerNorm's shapes and masks; the pages of the machines have the rest. Layers of
small tensors inside of PyTorch, where a call's own time is all there is, take two to four times PyTorch's time
([what else a call costs](benchmarks/amd-epyc-znver4-2-cores.md#what-else-a-call-costs)), and so two small models
[train](pytorch.md#training) at 0.93 to 0.95 of its speed."""

FAMILY = """Every function that is computed by a formula, on 16,777,216 elements (of gated ones 4,096 rows; their halves
are views), two threads, with the attributes' defaults. Beside it stands PyTorch's operator for the same function; where
there is none, the formula, operation by operation in eager PyTorch's operators on whole tensors (composed), which
writes many intermediate results."""

NORMS = """x in three sizes in float32 and the largest in 16 bits, two threads. Beside it stands PyTorch's operator for
the same function; where there is none, the operators that it takes (composed), such as a sum and LayerNorm for
AddLayerNorm. PyTorch allocates its results, softmax's aside."""

WIDE = """Inputs three times wider (σ = 3) meet the derivatives' tails. The reference stays PyTorch on the same data."""

LAYOUTS = """About 4,194,304 elements; no copy of a whole tensor is made in any of them. LayerNorm's rows are those that
end within a cache line."""

SIZES = """Contiguous tensors of 1 to 2²⁶ elements through the Python function with `out=`, that is, its overhead
included; the limit's has none. Up to 32,768 elements one thread does the work."""

MAP = """Times PyTorch's speed in float32, 2 threads; below 1.0 PyTorch is faster. It adds dw and db in float32, aclnn
in float64. Large results it allocates anew and pays for fresh pages; small ones both find in the cache. Very few rows
share their columns among aclnn's threads. Empty cells were not measured."""

STREAMING = """Results larger than a third of the machine's largest cache, of which each processor counts on 16 MiB at
most, and than 4 MiB are written around it. A smaller one stays there, for whoever reads it next; a larger one does not,
and writing it into the cache costs the reading of what is overwritten. Hardswish in float32, both ways:"""

COSTS = """Imports and first calls are medians of new processes, calls, layers and memory of up to three;
compilations start with an empty cache."""

GPU = """`make gpu` checks and measures the kernels there; what it writes is committed in `benchmarks/results/gpu`.
[pytorch.md](pytorch.md#nvidia-gpus) says how they are made."""


if __name__ == "__main__":
    write(RESULTS, PAGE)
