"""Pages and figures of GPUs, from the results of ``make gpu`` in benchmarks/results/gpu."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import pictures, tables

Row = dict[str, Any]
PROVIDERS = ("aclnn", "PyTorch", "torch.compile", "Liger-Kernel")
_MEASURED = """Times are measured between two events on the GPU's stream; before each call, other data is written
through the GPU's cache. The **copy** is PyTorch's `copy_` of the same number of elements, in the same rounds; shares
compare bytes per second, where each operand is counted once. Gated activations allocate their results, as PyTorch's
do."""


def read(folder: Path, part: str) -> tuple[Row, list[Row]]:
    """Read the entries about the machine, and the rows, of a part's file."""
    found = json.loads((folder / f"{part}.json").read_text())
    return found["machine"], found["results"]


def page(folder: Path, drawn: Path, path: str) -> str:
    """Write the page of a GPU, with figures in the folder ``drawn``, which the page links as ``path``."""
    machine, speed = read(folder, "speed")
    _, checks = read(folder, "checks")
    _, walked = read(folder, "exhaustive")
    measured = [row for row in speed if "of_copy" in row]
    family = [row for row in measured if row.get("section") == "family"]
    _picture(family, drawn / "family.svg")
    failed = [row for row in checks if not row["passed"]]
    parts = [
        f"# On an {machine['gpu']}",
        f"`make gpu` at commit {machine['commit'][:7]}, PyTorch {machine['torch']}, Triton {machine['triton']}, "
        f"{machine['date']}. {_MEASURED}",
        "## Checks",
        f"{len(checks)} checks, {len(failed)} failed{': ' if failed else ''}"
        f"{', '.join(row['check'] for row in failed)}. Worst errors over every float32 x, with dy = 1:",
        _table(_walk(walked), ("operator", "worst error in units of the last place", "at x =")),
        "## Activations",
        f"{_elements(family)} elements from N(0, 1). Geometric mean of the speeds relative to PyTorch's "
        f"operators, where it has them: {_mean(family):.2f}.",
        f"![Share of the copy's speed by activation]({path}/family.svg)",
        _table(_shares(family, ("operator", "dtype")), ("operator", "type", *PROVIDERS[:2])),
    ]
    for name in ("layer_norm_backward", "layer_norm"):
        rows = [row for row in measured if row["operator"] == name]
        parts += [
            f"## `{name}`",
            _table(_shares(rows, ("dtype", "rows", "columns")), ("type", "rows", "columns", *PROVIDERS)),
        ]
    wide = [row for row in measured if row.get("sigma") == 3.0]
    parts += ["## Wide data", f"{_elements(wide)} elements from N(0, 3²), with which most programs evaluate a tail."]
    parts += [_table(_shares(wide, ("operator", "dtype")), ("operator", "type", *PROVIDERS[:2]))]
    return "\n\n".join(parts) + "\n"


def _elements(rows: Iterable[Row]) -> str:
    return f"2^{math.log2(next(iter(rows))['elements']):.0f}"


def _table(rows: Iterable[tuple[Any, ...]], columns: tuple[str, ...]) -> str:
    return "\n".join(tables.line(map(str, cells)) for cells in (columns, ("---",) * len(columns), *rows))


def _walk(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield row["operator"], f"{row['worst_ulp']:.4f}", f"{row['at']:.8g}"


def _shares(rows: Iterable[Row], names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield each provider's shares of the copy's speed, grouped by these columns."""
    for key, found in _by(rows, names).items():
        told = (value.removeprefix("torch.") if isinstance(value, str) else value for value in key)
        providers = PROVIDERS if "columns" in names else PROVIDERS[:2]
        yield *told, *(f"{found[name]['of_copy']:.2f}" if name in found else "" for name in providers)


def _by(rows: Iterable[Row], names: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, Row]]:
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {})[row["what"]] = row
    return found


def _mean(rows: Iterable[Row]) -> float:
    both = (found for found in _by(rows, ("operator", "dtype")).values() if "PyTorch" in found)
    return statistics.geometric_mean(found["PyTorch"]["p50_us"] / found["aclnn"]["p50_us"] for found in both)


def _picture(rows: list[Row], path: Path) -> None:
    """Draw shares of the copy's speed: a dot for each data type, and a ring for PyTorch."""
    dots = []
    for dtype, colour in (("float32", "aclnn"), ("bfloat16", "torch")):
        for what in ("PyTorch", "aclnn"):
            shares = {row["operator"]: row["of_copy"] for row in pictures.of(rows, dtype=f"torch.{dtype}", what=what)}
            dots.append(pictures.Dots(f"{what}, {dtype}", pictures.COLOURS[colour], shares, what == "aclnn"))
    pictures.scatter(dots, dots[1].shares, "share of a copy's speed", path)
