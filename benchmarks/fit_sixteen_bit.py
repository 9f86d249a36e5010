"""Find the polynomials of kernels/cpu/sixteen_bit_coefficients.py, and print their rows.

    python -m benchmarks.fit_sixteen_bit [silu_slope …]

There are few enough 16-bit x to ask for all of them: for each x of a segment the polynomial has to stay within the
interval of values that round to the same 16-bit number as f(x) (the idea of RLIBM), and within 2^-17.7 (float16) or
2^-14.7 (bfloat16) of f(x), relatively. Of the polynomials that do, a linear program finds the one with the least error.
Its coefficients are rounded to float32 one after the other, the later ones making up for the rounding of the earlier.
Since float32 arithmetic rounds as well, the intervals are narrowed; where nothing is left of them, they are narrowed
less, and if then some x rounds wrongly the last digits are varied until none does. Takes a minute; needs SciPy.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from aclnn.dtypes import DataType
from aclnn.kernels.cpu import entries, sixteen_bit_coefficients
from aclnn.kernels.cpu.sixteen_bit_coefficients import SEGMENTS, SHORT_SEGMENTS, ShortSegments
from aclnn.kernels.sixteen_bit import all_inputs, round_to_odd
from aclnn.operators.fast_gelu import fast_gelu_slope
from aclnn.operators.gelu import gelu_erf_slope, gelu_tanh_slope
from aclnn.operators.silu import silu_slope

Array = NDArray[np.float64]

FORMULAS = {f.__name__: f for f in (silu_slope, fast_gelu_slope, gelu_erf_slope, gelu_tanh_slope)}
FORMS: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.BF16: np.dtype(ml_dtypes.bfloat16),
}
TOLERANCES = {DataType.FLOAT16: 2.0**-17.7, DataType.BF16: 2.0**-14.7}
MARGINS = (1.25, 0.75, 0.5, 0.3, 0.15, 0.0, -0.25, -0.5)
"""By how many units of float32 intervals are narrowed."""
TRIALS = 3000


class Task(NamedTuple):
    """The x of a segment, less its centre, and what is asked of the polynomial there."""

    r: Array
    exact: Array
    low: Array
    high: Array
    nearest: NDArray[Any]
    """``exact`` rounded to 16 bits, which is what values between ``low`` and ``high`` round to."""
    tolerance: float

    def part(self, chosen: NDArray[np.bool_]) -> Task:
        return Task(*(field[chosen] for field in self[:-1]), self.tolerance)


def interval(nearest: NDArray[Any]) -> tuple[Array, Array]:
    """The ends of what rounds to these numbers: halfway to their neighbours."""
    form, magnitude = nearest.dtype, np.abs(nearest)
    pattern = magnitude.view(np.uint16)
    middle = magnitude.astype(np.float64)
    below = (middle + (np.maximum(pattern, 1) - 1).view(form).astype(np.float64)) / 2
    above = (middle + (pattern + np.uint16(1)).view(form).astype(np.float64)) / 2
    negative = nearest < 0
    return np.where(negative, -above, below), np.where(negative, -below, above)


def task(formula: Any, dtype: DataType, segments: ShortSegments, i: int) -> tuple[float, Task]:
    number = i if i < SEGMENTS // 2 else i - SEGMENTS
    edges = [(number + side) / segments.per_unit - segments.shift for side in (-0.5, 0.5)]
    x = np.unique(all_inputs(dtype)[np.isfinite(all_inputs(dtype))])
    x = x[(edges[0] <= x) & (x <= edges[1])]
    centre = np.float32(segments.centre[i])
    exact = entries.evaluate(formula, x)
    r = (x.astype(np.float32) - centre).astype(np.float64)
    nearest = round_to_odd(exact).astype(FORMS[dtype])
    return float(centre), Task(r, exact, *interval(nearest), nearest, TOLERANCES[dtype])


def decisive(task: Task) -> NDArray[np.bool_]:
    """The x that bind the polynomial, and enough of the others to keep it in place between them."""
    slack = np.minimum(task.high - task.exact, task.exact - task.low)
    chosen: NDArray[np.bool_] = (slack < 2 * task.tolerance * np.abs(task.exact)) | (np.abs(task.exact) < 2.0**-5)
    chosen[:: max(1, task.r.size // 120)] = True
    chosen[-1] = True
    return chosen


def program(task: Task, fixed: list[float], degree: int, margin: float) -> Array | None:
    """The coefficients that follow the fixed ones, or None where no polynomial does what is asked."""
    weight, powers = 1 / np.abs(task.exact), np.arange(len(fixed), degree + 1)
    rest = task.exact - np.polynomial.polynomial.polyval(task.r, [*fixed, 0.0])
    narrowed = margin * np.exp2(np.floor(np.log2(np.abs(task.exact))) - 23)
    allowed = task.tolerance * np.abs(task.exact)
    above = rest - task.exact + np.minimum(task.high - narrowed, task.exact + allowed)
    below = rest - task.exact + np.maximum(task.low + narrowed, task.exact - allowed)
    scale = max(np.abs(task.r).max(), 1e-3) ** powers
    basis = task.r[:, None] ** powers / scale * weight[:, None]
    ones, zeros = np.ones((weight.size, 1)), np.zeros((weight.size, 1))
    rows = np.block([[basis, -ones], [-basis, -ones], [basis, zeros], [-basis, zeros]])
    bounds = np.concatenate([rest * weight, -rest * weight, above * weight, -below * weight])
    unknowns = [(None, None)] * powers.size + [(0, None)]
    # SciPy's tolerance is absolute: 10^-7.
    found = linprog([0.0] * powers.size + [1e5], A_ub=1e5 * rows, b_ub=1e5 * bounds, bounds=unknowns, method="highs")
    return found.x[:-1] / scale if found.status == 0 else None


def ulp(value: float) -> float:
    return float(np.spacing(np.float32(abs(value) or 1e-30)))


def rounded(task: Task, degree: int, margin: float, fixed: list[float]) -> list[float] | None:
    """The coefficients as float32, each the nearest that leaves the later ones a way."""
    following = program(task, fixed, degree, margin)
    while following is not None and len(fixed) <= degree:
        nearest = float(np.float32(following[0]))
        following = None
        for step in (0, 1, -1, 2, -2, 3, -3):
            candidate = [*fixed, nearest + step * ulp(nearest)]
            following = program(task, candidate, degree, margin) if len(candidate) <= degree else np.array([])
            if following is not None:
                fixed = candidate
                break
    return None if following is None else fixed


def judge(task: Task, c: list[float]) -> tuple[int, float]:
    """How many x round wrongly, and the largest relative error, in float32 arithmetic."""
    r = task.r.astype(np.longdouble)
    value = np.full(task.r.shape, c[-1], np.float32)
    for coefficient in c[-2::-1]:
        value = (value * r + np.longdouble(coefficient)).astype(np.float32)
    wrong = value.astype(task.nearest.dtype) != task.nearest
    return int(wrong.sum()), float(np.max(np.abs(value.astype(np.float64) - task.exact) / np.abs(task.exact)))


def fit(task: Task, degree: int, fixed: list[float], rng: np.random.Generator) -> tuple[int, list[float]]:
    """The number of x that round wrongly, at best 0, and the coefficients."""
    least, best = task.r.size + 1, [0.0] * (degree + 1)
    for margin in MARGINS:
        c = rounded(task.part(decisive(task)), degree, margin, fixed)
        if c is not None and (wrong := judge(task, c)[0]) < least:
            least, best = wrong, c
        if least == 0:
            return least, best
    start = best
    for _ in range(TRIALS):
        steps = [0] * len(fixed) + rng.integers(-6, 7, degree + 1 - len(fixed)).tolist()
        c = [float(np.float32(value + step * ulp(value))) for value, step in zip(start, steps, strict=True)]
        wrong, error = judge(task, c)
        if wrong < least and error <= task.tolerance:
            least, best = wrong, c
        if least == 0:
            break
    return least, best


def short_hex(value: float) -> str:
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FORMULAS))
    names = parser.parse_args().names
    for (name, dtype), segments in SHORT_SEGMENTS.items():
        if name not in names:
            continue
        degree, rng, columns, worst = len(segments.c) - 1, np.random.default_rng(0), [], 0.0
        for i in range(sixteen_bit_coefficients.SEGMENTS):
            centre, asked = task(FORMULAS[name], dtype, segments, i)
            wrong, c = fit(asked, degree, [0.5] if centre == 0.0 else [], rng)
            worst = max(worst, judge(asked, c)[1])
            if wrong:
                print(f"{name} {dtype.name}: {wrong} x of segment {i} round wrongly")
            columns.append(c)
        print(f"{name} {dtype.name}: bound {segments.bound:.3f}, relative error at most 2^{math.log2(worst):.1f}")
        for k, row in enumerate(zip(*columns, strict=True)):
            print(f"c[{k}]", *map(short_hex, row))


if __name__ == "__main__":
    main()
