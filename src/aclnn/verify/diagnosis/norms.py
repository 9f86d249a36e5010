"""LayerNorm's faults: other statistics or operands, terms left out, sums over some rows, sums kept in 16 bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import ENOUGH, FEW, Evidence, Hypothesis
from aclnn.verify.diagnosis.local import Finding
from aclnn.verify.goldens.values import LayerNorm
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import NormInputSource, NormSumSource, whole_rows

Array = np.ndarray[Any, Any]


def hypotheses(e: Evidence) -> Iterator[Hypothesis]:
    """Faults of one of LayerNorm's gradients, of consecutive elements."""
    start = int(e.at[0])

    def fixed(name: str, text: str, values: Array, structural: bool = True, extra: float = 0.05) -> Hypothesis:
        return Hypothesis(name, text, lambda part: values[part.at - start], structural=structural, extra=extra)

    yield fixed("sign", "the result has the wrong sign", -e.v)
    source = e.source
    operations = _of_dx(e, source) if isinstance(source, NormInputSource) else _of_sums(e, source)
    yield from (fixed(*one) for one in operations)
    given = _statistics(e)
    for kind in (FORMATS["float16"], FORMATS["bfloat16"]):
        rounded = {name: kind.round(values).astype(np.float64) for name, values in given.items()}
        if not all(np.array_equal(rounded[name], given[name]) for name in given):
            values = _with_statistics(e, rounded)
            yield fixed("narrow-statistics", f"mean and rstd kept in {kind.name}", values, structural=False, extra=0.1)
            narrow = _with_inputs(e, partial(_kept_in, kind))
            yield fixed("narrow-input", f"the inputs were rounded to {kind.name}", narrow, structural=False)
    for name, change, text in _changes(given["mean"], given["rstd"]):
        size = _size_of(e, _with_statistics(e, change(_STEP)) - e.v)
        if size is not None:
            changed = change(_STEP * size)
            yield fixed(name, text(changed), _with_statistics(e, changed), extra=0.1)
    ratios = (e.a / e.v)[e.wrong & (e.v != 0.0)]
    ratios = ratios[np.isfinite(ratios)]
    if ratios.size:
        factor = float(np.median(ratios))
        yield fixed("scaled", f"the result is {factor:.6g} times what it should be", factor * e.v)


def _kept_in(kind: NumberFormat, values: Array) -> Array:
    return kind.round(values.astype(np.float64)).astype(np.float64)


def _of_dx(e: Evidence, source: NormInputSource) -> Iterator[tuple[str, str, Array]]:
    columns = source.whole.columns
    begin = int(e.at[0])
    first, last, part = whole_rows(begin, begin + e.a.size, columns)
    dy, x = source.whole.inputs(first, last)
    inputs = source.case.inputs
    mean, rstd = (inputs[name].reshape(-1, 1)[first:last].astype(np.float64) for name in ("mean", "rstd"))
    weight = inputs["weight"].reshape(-1).astype(np.float64) if "weight" in inputs else np.ones(columns)
    xhat = (x - mean) * rstd

    def dx(dy: Array, xhat: Array, w: Array | float, c1: float = 1.0, c2: float = 1.0, outer: Any = rstd) -> Array:
        """rstd·(g - c1·Σg/N - c2·x̂·Σ(g·x̂)/N) with g = dy·w."""
        g = dy * w
        value = g - c1 * g.mean(1, keepdims=True) - c2 * xhat * (g * xhat).mean(1, keepdims=True)
        flat: Array = (outer * value).reshape(-1)[part]
        return flat

    if "weight" in inputs:
        yield "wrong-input", "weight is left out, as if it were 1", dx(dy, xhat, 1.0)
    yield "wrong-input", "grad_out and input are exchanged", dx(x, (dy - mean) * rstd, weight)
    yield "wrong-input", "input is taken as it is, not normalised", dx(dy, x, weight)
    for text, c1, c2 in (
        ("the mean of grad_out times weight over a row is not subtracted", 0.0, 1.0),
        ("the part along the normalised input is not subtracted", 1.0, 0.0),
        ("neither the mean nor the part along the normalised input is subtracted", 0.0, 0.0),
        ("sums over a row are subtracted, not means", float(columns), float(columns)),
    ):
        yield "wrong-operation", text, dx(dy, xhat, weight, c1, c2)
    yield "wrong-operation", "the result is not multiplied by rstd", dx(dy, xhat, weight, outer=1.0)
    yield "wrong-operation", "the result is grad_out itself", dy.reshape(-1)[part]


def _of_sums(e: Evidence, source: Any) -> Iterator[tuple[str, str, Array]]:
    inputs, part = source.case.inputs, slice(int(e.at[0]), int(e.at[-1]) + 1)
    mean, rstd = inputs["mean"], inputs["rstd"]
    is_dw, other = source.name == "grad_weight", {"grad_weight": "grad_bias", "grad_bias": "grad_weight"}[source.name]
    rows = mean.size

    def sums(mean: Array, rstd: Array, bias: bool = False) -> Array:
        columns = math.prod(source.case.attributes["normalized_shape"])
        changed = LayerNorm(inputs["grad_out"], inputs["input"], mean, rstd, None, columns)
        return changed.columns_golden(changed.all_sums()[bias], e.target, bias).value[part]

    yield "wrong-operation", f"the result is a mean over the {rows} rows, not a sum", e.v / rows
    if "weight" in inputs:
        weight = inputs["weight"].reshape(-1)[part].astype(np.float64)
        yield "wrong-operation", "grad_out is multiplied by weight", e.v * weight
    yield "wrong-operation", f"the result is {other}", sums(mean, rstd, bias=is_dw)
    if is_dw:
        zero, one = np.zeros_like(mean), np.ones_like(rstd)
        yield "wrong-input", "input is taken as it is, not normalised", sums(zero, one)
        yield "wrong-input", "mean is left out, as if it were 0", sums(zero, rstd)
        yield "wrong-input", "rstd is left out, as if it were 1", sums(mean, one)
    for text, values in _some_rows(e, source):
        yield "missing-rows", text, values


_ROWS_AT_MOST = 1 << 23
"""Elements of the terms that sums over some of the rows are made of."""


def _some_rows(e: Evidence, source: NormSumSource) -> Iterator[tuple[str, Array]]:
    """Sums over the first or the last rows, every second one, or without one of equal shares."""
    if source.case.inputs["input"].size > _ROWS_AT_MOST:
        return
    terms = _terms(source, e.at)
    rows, probe = len(terms), int(np.argmax(e.error * np.isfinite(e.a)))
    ahead = np.cumsum(terms, axis=0)
    total = ahead[-1]
    for text, sums in (("the first {} of {} rows", ahead), ("the last {} of {} rows", total - ahead)):
        distance = np.abs(sums - e.a)
        likely = np.argsort(distance[:, probe])[:8]
        best = int(likely[np.argmin(np.median(distance[likely], axis=1))])
        count = best + 1 if sums is ahead else rows - 1 - best
        if 0 < count < rows:
            yield f"summed over {text.format(count, rows)}", sums[best]
    for step in (2, 4):
        for offset in range(step):
            yield f"summed over every {step}th row from {offset} on", terms[offset::step].sum(axis=0)
    for parts in (2, 4, 8, 16, 32):
        edges = np.linspace(0, rows, parts + 1).astype(int)
        for begin, end in itertools.pairwise(edges):
            if 0 < end - begin < rows:
                yield f"summed without rows {begin} to {end - 1}", total - terms[begin:end].sum(axis=0)


_STEP = 1e-3
"""Of the trial by which the size of a change is found; its effect is nearly proportional."""


_Change = Callable[[float], Mapping[str, Array]]


def _changes(mean: Array, rstd: Array) -> Iterator[tuple[str, _Change, Callable[[Mapping[str, Array]], str]]]:
    """Faults that mean or rstd may have: a name, a function from the fault's size to both, and one to its text."""
    spread = 1.0 / np.median(np.abs(rstd))

    def shifted(size: float) -> Mapping[str, Array]:
        return {"mean": mean + size * spread, "rstd": rstd}

    def scaled(size: float) -> Mapping[str, Array]:
        return {"mean": mean, "rstd": rstd * (1.0 + size)}

    def widened(size: float) -> Mapping[str, Array]:
        return {"mean": mean, "rstd": 1.0 / np.sqrt(rstd**-2.0 + size * spread**2)}

    def offset(changed: Mapping[str, Array]) -> str:
        return f"as with a mean that is off by {np.median(changed['mean'] - mean):.3g}"

    def factor(changed: Mapping[str, Array]) -> str:
        times = np.median(changed["rstd"] / rstd)
        return f"as with an rstd {times:.5g} times the given one (another eps, or the variance's divisor, say)"

    yield "shifted-mean", shifted, offset
    yield "scaled-rstd", scaled, factor
    yield "scaled-rstd", widened, factor


def _size_of(e: Evidence, effect: Array) -> float | None:
    """The number of times an effect has occurred; None where that leaves more than half of the errors' squares."""
    error = e.a - e.v
    finite = np.isfinite(error) & np.isfinite(effect)
    error, effect = error[finite], effect[finite]
    if not effect.any():
        return None
    size = float(error @ effect / (effect @ effect))
    rest = error - size * effect
    return size if rest @ rest <= 0.5 * (error @ error) else None


def _statistics(e: Evidence) -> dict[str, Array]:
    return {name: e.source.case.inputs[name].astype(np.float64) for name in ("mean", "rstd")}


def _with_inputs(e: Evidence, change: Callable[[Array], Array]) -> Array:
    inputs = e.source.case.inputs
    small = {name: change(inputs[name]) for name in ("mean", "rstd", "weight") if name in inputs}
    return _changed(e, {**inputs, **small}, change)


def _with_statistics(e: Evidence, statistics: Mapping[str, Array]) -> Array:
    return _changed(e, {**e.source.case.inputs, **statistics})


def _changed(e: Evidence, inputs: Mapping[str, Array], change: Callable[[Array], Array] = np.asarray) -> Array:
    """The output of other inputs, grad_out and input changed as they are read."""
    source, begin = e.source, int(e.at[0])
    columns = math.prod(source.case.attributes["normalized_shape"])
    dy, x, mean, rstd = (inputs[name] for name in ("grad_out", "input", "mean", "rstd"))
    changed = LayerNorm(dy, x, mean, rstd, inputs.get("weight"), columns, change=change)
    end = begin + e.a.size
    if isinstance(source, NormInputSource):
        first, last, part = whole_rows(begin, end, columns)
        return changed.block(first, last, e.target).value[part]
    sums = changed.all_sums()[source.name == "grad_bias"]
    return changed.columns_golden(sums, e.target, source.name == "grad_bias").value[begin:end]


_SIMULATED_COLUMNS = 64
_SIMULATED_ROWS = 1 << 15
"""Above that only one row after another: each order takes as many steps as a thread has rows."""
_THREADS = (*range(2, 17), 24, 32, 48, 64)
_NARROW = (FORMATS["bfloat16"], FORMATS["float16"])
"""Every bfloat16 of common size is a float16 too, so that the narrower of the two is tried first."""


def narrow_sums(e: Evidence, struck: Array) -> Iterator[Finding]:
    """dw or db with the sum over rows kept in 16 bits: in an order that is known, or because the digits end there."""
    source = e.source
    if not isinstance(source, NormSumSource) or np.count_nonzero(struck) < FEW:
        return
    every = np.flatnonzero(struck)[:_SIMULATED_COLUMNS]
    terms = _terms(source, e.at[every])
    for target in _NARROW:
        if _digits_end(e, every, target) or _summed_in_order(e, every, terms, target):
            text = f"{source.name} summed over the rows in {target.name} instead of float32"
            yield Finding(
                "narrow-sums",
                text,
                "sums in no usual order of additions in that type",
                lambda e: e.wrong,
                structural=False,
            )
            return


def _terms(source: NormSumSource, columns: Array) -> Array:
    """The terms that the rows add to some columns: (M, columns)."""
    inputs, shape = source.case.inputs, (-1, source.size)
    dy = inputs["grad_out"].reshape(shape)[:, columns].astype(np.float64)
    if source.name == "grad_bias":
        return dy
    x = inputs["input"].reshape(shape)[:, columns].astype(np.float64)
    mean, rstd = (inputs[name].reshape(-1, 1).astype(np.float64) for name in ("mean", "rstd"))
    return dy * (x - mean) * rstd


def _digits_end(e: Evidence, every: Array, target: NumberFormat) -> bool:
    """Return whether the sums have no digits beyond a type narrower than the output's, and the exact ones do."""
    a, v = e.a[every], e.v[every]
    if target.digits >= e.target.digits or np.unique(a).size < 0.5 * a.size:
        return False
    short, exact_short = (target.round(values).astype(np.float64) == values for values in (a, v))
    return bool(short.all() and np.mean(exact_short) < 0.5)


def _summed_in_order(e: Evidence, every: Array, terms: Array, target: NumberFormat) -> bool:
    """Return whether adding in the type, in one of the usual orders, gives the output."""
    a, v = e.a[every], e.v[every]
    # Terms are rounded to the type before they are added, or only their sum is.
    rows = np.concatenate([terms, target.round(terms).astype(np.float64)], axis=1)
    for totals in _totals(rows, target):
        for total in np.split(totals, 2):
            allowed = np.maximum(0.1 * np.abs(total - v), 0.51 * e.target.ulp(v))
            if np.count_nonzero(np.abs(total - a) <= allowed) >= ENOUGH * every.size:
                return True
    return False


def _totals(rows: Array, target: NumberFormat) -> Iterator[Array]:
    """Sums of rows, in the orders of a loop, of trees, and of threads that share the rows."""
    yield _by_threads(rows[None], target)
    yield _by_neighbours(rows, target)
    yield _by_halves(rows, target)
    if len(rows) > _SIMULATED_ROWS:
        return
    for threads in _THREADS:
        each = -(-len(rows) // threads)
        padded = np.zeros((threads * each, rows.shape[1]))
        padded[: len(rows)] = rows
        yield _by_threads(padded.reshape(threads, each, -1), target)
        yield _by_threads(padded.reshape(each, threads, -1).swapaxes(0, 1), target)


def _by_threads(rows: Array, target: NumberFormat) -> Array:
    """Of (threads, rows of each, columns): every thread's rows one after another in the type, then the sum of those."""
    sums = np.zeros((rows.shape[0], rows.shape[2]))
    for step in range(rows.shape[1]):
        sums = target.round(sums + rows[:, step]).astype(np.float64)
    total: Array = sums.sum(axis=0)
    return total


def _by_neighbours(rows: Array, target: NumberFormat) -> Array:
    while len(rows) > 1:
        even, odd = rows[::2], rows[1::2]
        rows = np.concatenate([target.round(even[: len(odd)] + odd).astype(np.float64), even[len(odd) :]])
    total: Array = rows.sum(axis=0)
    return total


def _by_halves(rows: Array, target: NumberFormat) -> Array:
    while len(rows) > 1:
        half = len(rows) // 2
        added = target.round(rows[:half] + rows[half : 2 * half]).astype(np.float64)
        rows = np.concatenate([added, rows[2 * half :]])
    total: Array = rows.sum(axis=0)
    return total
