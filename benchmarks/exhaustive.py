"""Every float32 through every activation and its gradient: the error of aclnn and of PyTorch in units of the last
place.

    python -m benchmarks.exhaustive [--quick] [--only silu silu_forward …]

Writes exhaustive.csv (a row per operator and provider), exhaustive_histogram.csv (how many inputs have which error) and
exhaustive_profile.csv (the worst error by x); the rows of operators that were not asked for stay. The reference for
gradients is aclnn.verify's: float64 with a bound on its error, and interval arithmetic wherever the bound exceeds 2^-8
of a unit. Forwards do not cancel, so float64 is enough: see ``forward_reference``.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aclnn import kernels
from aclnn.dtypes import DataType
from aclnn.kernels.cpu import pool
from aclnn.operators.fast_gelu import fast_gelu_slope, fast_gelu_value
from aclnn.operators.gelu import gelu_erf_slope, gelu_erf_value, gelu_tanh_slope, gelu_tanh_value
from aclnn.operators.hardswish import hardswish_slope, hardswish_value
from aclnn.operators.silu import silu_slope, silu_value
from aclnn.tensor import Layout
from aclnn.verify.certified import slope as certified_slope
from aclnn.verify.slopes import SLOPES as REFERENCES

Array = np.ndarray[Any, Any]
Provider = Callable[[Array], Array]

HERE = Path(__file__).parent
FORMULAS = {
    "silu": silu_slope,
    "fast_gelu": fast_gelu_slope,
    "gelu_erf": gelu_erf_slope,
    "gelu_tanh": gelu_tanh_slope,
    "hardswish": hardswish_slope,
}
FORWARDS = {
    "silu_forward": silu_value,
    "fast_gelu_forward": fast_gelu_value,
    "gelu_erf_forward": gelu_erf_value,
    "gelu_tanh_forward": gelu_tanh_value,
    "hardswish_forward": hardswish_value,
}
EVERY = FORMULAS | FORWARDS

BLOCK = 1 << 20
PART = 1 << 15
"""Inputs that are taken together: their references, of 16 bytes each, stay in the second-level cache."""
BIN = 0.05
BINS = 24
"""Bins of the histogram; the last one is for everything beyond."""
UNSURE = 2.0**-8
NEAR = 2.0**-31
"""Of the exact value: at most 2^-7 units."""


@numba.njit(nogil=True, cache=True)
def score(
    x: Array, got: Array, exact: Array, low: Array, counts: Array, worst: Array, profile: Array, first_row: int
) -> int:
    """Add one block's errors to the counts; returns how many finite inputs gave no finite number.

    worst: (error, x) for negative and for other x; profile: the worst error for each 2^20 neighbouring patterns.
    """
    near, negative = 0, 0
    for i in range(x.size):
        near += abs((np.float64(got[i]) - exact[i]) - low[i]) <= NEAR * abs(exact[i])
        negative += math.copysign(1.0, x[i]) < 0.0
    if near == x.size:  # as for all tiny and huge x: everything in the first bin
        counts[0, 0] += negative
        counts[1, 0] += x.size - negative
        return 0
    broken, patterns = 0, exact.view(np.int64)
    for i in range(x.size):
        if not math.isfinite(x[i]):
            continue
        if not math.isfinite(got[i]):
            broken += 1
            continue
        # The exponents' bits: those of 2^-126 at least, then those of 2^23 over the exact value's power of two.
        exponent = max((patterns[i] >> 52) & 0x7FF, 1023 - 126)
        units = np.int64((2 * 1023 + 23 - exponent) << 52).view(np.float64)
        error = abs((np.float64(got[i]) - exact[i]) - low[i]) * units
        side = 0 if math.copysign(1.0, x[i]) < 0.0 else 1
        counts[side, min(int(error / BIN), BINS - 1)] += 1
        if error > worst[side, 0]:
            worst[side, 0], worst[side, 1] = error, x[i]
        if error > profile[first_row]:
            profile[first_row] = error
    return broken


@dataclass
class Tally:
    """What a provider got wrong."""

    counts: Array = field(default_factory=lambda: np.zeros((2, BINS), np.int64))
    worst: Array = field(default_factory=lambda: np.array([[-1.0, np.nan]] * 2))
    profile: Array = field(default_factory=lambda: np.zeros(4096))
    broken: int = 0

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        better = other.worst[:, 0] > self.worst[:, 0]
        self.worst[better] = other.worst[better]
        self.profile = np.maximum(self.profile, other.profile)
        self.broken += other.broken


def ours(name: str) -> Provider:
    layout = Layout(DataType.FLOAT, (BLOCK,), (1,))

    @cache
    def plan(shape: tuple[int, ...]) -> kernels.Plan:
        whole = layout._replace(shape=shape)
        return kernels.elementwise(EVERY[name], (whole,) * (1 if name in FORWARDS else 2), whole)

    def run(x: Array) -> Array:
        inputs, out = [x] if name in FORWARDS else [np.ones_like(x), x], np.empty_like(x)
        plan(x.shape).run([array.ctypes.data for array in inputs], [out.ctypes.data], 0)
        return out

    return run


def pytorch(name: str) -> Provider | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    aten = torch.ops.aten

    def fast_gelu(dy: Any, x: Any) -> Any:
        s = torch.sigmoid(1.702 * x)
        return dy * (s * (1 + 1.702 * x * (1 - s)))

    forwards: dict[str, Callable[[Any], Any]] = {
        "silu_forward": aten.silu,
        "fast_gelu_forward": lambda x: x * torch.sigmoid(1.702 * x),
        "gelu_erf_forward": aten.gelu,
        "gelu_tanh_forward": lambda x: aten.gelu(x, approximate="tanh"),
        "hardswish_forward": aten.hardswish,
    }
    if name in forwards:
        return lambda x: forwards[name](torch.from_numpy(x)).numpy()
    operators: dict[str, Callable[[Any, Any], Any]] = {
        "silu": aten.silu_backward,
        "fast_gelu": fast_gelu,
        "gelu_erf": aten.gelu_backward,
        "gelu_tanh": lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"),
        "hardswish": aten.hardswish_backward,
    }
    return lambda x: operators[name](torch.ones(x.size), torch.from_numpy(x)).numpy()


SLOPE_AT_ZERO = {
    "silu": 0.5,
    "fast_gelu": 0.851,
    "gelu_erf": math.sqrt(2.0 / math.pi),
    "gelu_tanh": math.sqrt(2.0 / math.pi),
    "hardswish": 1.0 / 3.0,
}
"""The derivatives' own derivatives at 0."""


_SQRT_HALF, _TWICE_SQRT_2_OVER_PI = math.sqrt(0.5), 2.0 * math.sqrt(2.0 / math.pi)


@numba.njit(nogil=True, cache=True)
def _gelu_erf(x: Array) -> Array:
    value = np.empty_like(x)
    for i in range(x.size):
        value[i] = 0.5 * x[i] * math.erfc(-x[i] * _SQRT_HALF)
    return value


def _logistic_product(x: Array, w: Array) -> Array:
    """x / (1 + e^-w), nothing in a float32 from w = -300 on."""
    return x / (1.0 + np.exp(-np.clip(w, -300.0, 300.0)))


def forward_reference(name: str, x: Array) -> Array:
    """The exact value within 2^-16 units of float32.

    Nothing cancels: a term's relative error is a few of 2^-53 and of the library's (16 units of exp or erfc are 2^-49),
    and three roundings of an exponent below 160 are 2^-44; a float32's unit is at least 2^-24. Where x + 3 rounds in
    Hardswish, |x + 3| is at least 1.
    """
    if name == "silu_forward":
        return _logistic_product(x, x)
    if name == "fast_gelu_forward":
        return _logistic_product(x, 1.702 * x)
    if name == "gelu_erf_forward":
        return _gelu_erf(x)
    if name == "gelu_tanh_forward":
        bounded = np.clip(x, -1e30, 1e30)
        return _logistic_product(x, _TWICE_SQRT_2_OVER_PI * (bounded + 0.044715 * bounded * bounded * bounded))
    return np.where(x <= -3.0, 0.0, np.where(x >= 3.0, x, x * (x + 3.0) / 6.0))


def reference(name: str, x: Array) -> tuple[Array, Array]:
    """The exact value or derivative as a float64 and what that lacks, together within 2^-8 units of float32."""
    size = np.abs(x)
    wide = np.where(np.isfinite(x), x, 0.0).astype(np.float64)
    low = np.zeros_like(wide)
    if name in FORWARDS:
        if size.max() <= 2.0**-40:  # the next term, of second order, is below 2^-16 units
            return 0.5 * wide, low
        if size.min() >= 256.0:  # within 10^-100 of its limits
            return np.maximum(wide, 0.0), low
        return forward_reference(name, wide), low
    if size.max() <= 2.0**-27:  # the next term, of third order, is below 2^-80
        return 0.5 + SLOPE_AT_ZERO[name] * wide, low
    if size.min() >= 256.0:  # within 10^-100 of its limits
        return np.where(wide > 0.0, 1.0, 0.0 if name == "hardswish" else -1e-100), low
    exact, bound = np.empty_like(wide), np.empty_like(wide)
    REFERENCES[name](wide, exact, bound)
    unit = np.maximum(np.abs(np.spacing(exact.astype(np.float32))), 2.0**-149).astype(np.float64)
    for i in np.flatnonzero(bound > UNSURE * unit):
        exact[i], low[i] = certified_slope(name, float(wide[i]))
    return exact, low


ROWS = range(1 << 12)


def inputs_of(row: int, stride: int) -> Array:
    """A row's 2^20 bit patterns, or one in ``stride`` of them, from a different phase in each row."""
    return np.arange((row << 20) + row % stride, (row + 1) << 20, stride, dtype=np.uint32).view(np.float32)


def walk(name: str, stride: int, workers: int, progress: Progress) -> dict[str, Tally]:
    candidates = {"aclnn": ours(name), "pytorch": pytorch(name)}
    providers = {label: provider for label, provider in candidates.items() if provider is not None}
    tallies = {label: Tally() for label in providers}

    def block(row: int) -> dict[str, Tally]:
        x = inputs_of(row, stride)
        if not np.isfinite(x).any():
            return {}
        found = {label: Tally() for label in tallies}
        for part in np.split(x, range(PART, x.size, PART)):
            exact, low = reference(name, part)
            for label, tally in found.items():
                got = providers[label](part)
                tally.broken += score(part, got, exact, low, tally.counts, tally.worst, tally.profile, row)
        return found

    bar = progress.add_task(name, total=len(ROWS))
    block(ROWS[0])  # compile before the threads start
    with ThreadPoolExecutor(workers) as executor:
        for found in executor.map(block, ROWS):
            for label, tally in found.items():
                tallies[label].add(tally)
            progress.advance(bar)
    return tallies


FILES = {
    "exhaustive.csv": (
        "operator", "provider", "x", "inputs", "worst_ulp", "worst_x", "above_half", "above_1", "broken"
    ),
    "exhaustive_histogram.csv": ("operator", "provider", "x", "from_ulp", "inputs"),
    "exhaustive_profile.csv": ("operator", "provider", "x", "worst_ulp"),
}  # fmt: skip


def rows_of(name: str, tallies: dict[str, Tally]) -> dict[str, list[tuple[object, ...]]]:
    """An operator's lines for each file."""
    rows: list[tuple[object, ...]] = []
    bins: list[tuple[object, ...]] = []
    places: list[tuple[object, ...]] = []
    centres = (np.arange(4096, dtype=np.uint32) << 20 | 1 << 19).view(np.float32)
    for label, tally in tallies.items():
        for side, sign in enumerate(("negative", "positive")):
            counts = tally.counts[side]
            error, x = tally.worst[side]
            above = [int(counts[round(limit / BIN) :].sum()) for limit in (0.5, 1.0)]
            rows.append((name, label, sign, counts.sum(), f"{error:.5g}", f"{x:.9g}", *above, tally.broken))
            bins += [(name, label, sign, f"{i * BIN:.2f}", count) for i, count in enumerate(counts)]
        places += [
            (name, label, f"{x:.6g}", f"{error:.4g}")
            for x, error in zip(centres, tally.profile, strict=True)
            if 2.0**-12 <= abs(x) <= 256.0
        ]
    return dict(zip(FILES, (rows, bins, places), strict=True))


def save(results: dict[str, dict[str, Tally]], folder: Path) -> None:
    """Write the operators' lines, in the order of ``EVERY``; those of others stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: rows_of(name, tallies) for name, tallies in results.items()}
    for file, header in FILES.items():
        path = folder / file
        with open(path, newline="") if path.exists() else nullcontext([]) as before:
            kept = [row for row in csv.reader(before) if row[0] in EVERY and row[0] not in found]
        lines = kept + [row for rows in found.values() for row in rows[file]]
        lines.sort(key=lambda row: list(EVERY).index(str(row[0])))
        with open(path, "w", newline="") as written:
            csv.writer(written).writerows([header, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one input in 4,096, into build/ instead")
    parser.add_argument("--only", nargs="+", choices=EVERY, default=list(EVERY))
    parser.add_argument("--workers", type=int, default=pool.shared().threads)
    options = parser.parse_args()
    stride = 4096 if options.quick else 1
    pool.set_threads(1)  # the blocks are what is spread over the cores
    columns = (TextColumn("{task.description:17}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    begun, results = time.perf_counter(), {}
    with Progress(*columns) as progress:
        for name in options.only:
            results[name] = walk(name, stride, options.workers, progress)
    folder = Path("build/exhaustive") if options.quick else HERE
    save(results, folder)
    for name, tallies in results.items():
        for label, tally in tallies.items():
            error, x = max(tally.worst.tolist())
            print(f"{name:17} {label:8} worst {error:.5g} ULP at x = {x:.9g}; {tally.broken} not finite")
    print(f"{time.perf_counter() - begun:.0f} s; written to {folder}")


if __name__ == "__main__":
    main()
