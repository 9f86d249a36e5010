"""LayerNorm's faults: other statistics than those given, and sums kept in 16 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import ENOUGH, Cause, Evidence
from aclnn.verify.goldens.values import LayerNorm
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import NormInputSource, NormSumSource, whole_rows

Array = np.ndarray[Any, Any]

_FEW = 16


def narrow_statistics(evidence: Evidence) -> Cause | None:
    """mean and rstd rounded to 16 bits."""
    if not isinstance(evidence.source, (NormInputSource, NormSumSource)):
        return None
    given = _statistics(evidence)
    for target in (FORMATS["float16"], FORMATS["bfloat16"]):
        rounded = {name: target.round(values).astype(np.float64) for name, values in given.items()}
        if all(np.array_equal(rounded[name], given[name]) for name in given):
            continue
        cause = _if_computed_with(evidence, "narrow-statistics", f"mean and rstd kept in {target.name}", **rounded)
        if cause is not None:
            return cause
    return None


_STEP = 1e-3
"""Of the trial by which the size of a change is found; its effect is nearly proportional."""


def other_statistics(evidence: Evidence) -> Cause | None:
    """A mean that is off by a number, an rstd that is so many times the given one or has another eps."""
    if not isinstance(evidence.source, (NormInputSource, NormSumSource)) or evidence.a.size < _FEW:
        return None
    given = _statistics(evidence)
    for name, change, text in _changes(given["mean"], given["rstd"]):
        size = _size_of(evidence, _norm_prediction(evidence, change(_STEP)) - evidence.v)
        if size is None:
            continue
        changed = change(_STEP * size)
        cause = _if_computed_with(evidence, name, text(changed), **changed)
        if cause is not None:
            return cause
    return None


_Change = Callable[[float], Mapping[str, Array]]


def _changes(mean: Array, rstd: Array) -> Iterator[tuple[str, _Change, Callable[[Mapping[str, Array]], str]]]:
    """What may be wrong with mean or rstd: from its size to both, and what to call it."""
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


def _size_of(evidence: Evidence, effect: Array) -> float | None:
    """How many times an effect has occurred; None where that leaves more than half of the errors' squares."""
    error = evidence.a - evidence.v
    finite = np.isfinite(error) & np.isfinite(effect)
    error, effect = error[finite], effect[finite]
    if not effect.any():
        return None
    size = float(error @ effect / (effect @ effect))
    rest = error - size * effect
    return size if rest @ rest <= 0.5 * (error @ error) else None


def _statistics(evidence: Evidence) -> dict[str, Array]:
    return {name: evidence.source.case.inputs[name].astype(np.float64) for name in ("mean", "rstd")}


def _if_computed_with(evidence: Evidence, name: str, text: str, mean: Array, rstd: Array) -> Cause | None:
    prediction = _norm_prediction(evidence, {"mean": mean, "rstd": rstd})
    # A tenth of what the fault moves is left to the implementation's own roundings.
    return evidence.if_predicted(name, text, prediction, 0.1 * np.abs(prediction - evidence.v))


def _norm_prediction(evidence: Evidence, statistics: Mapping[str, Array]) -> Array:
    """What the output would be with other statistics."""
    source, begin = evidence.source, evidence.elements.start
    inputs, columns = source.case.inputs, math.prod(source.case.attributes["normalized_shape"])
    mean, rstd = statistics["mean"], statistics["rstd"]
    changed = LayerNorm(inputs["grad_out"], inputs["input"], mean, rstd, inputs.get("weight"), columns)
    end = begin + evidence.a.size
    if isinstance(source, NormInputSource):
        first, last, part = whole_rows(begin, end, columns)
        return changed.block(first, last, evidence.target).value[part]
    sums = changed.all_sums()[source.name == "grad_bias"]
    return changed.columns_golden(sums, evidence.target, source.name == "grad_bias").value[begin:end]


_SIMULATED_COLUMNS = 64
_SIMULATED_ROWS = 1 << 15
"""Above that only one row after another: each order takes as many steps as a thread has rows."""
_THREADS = (*range(2, 17), 24, 32, 48, 64)
_NARROW = (FORMATS["bfloat16"], FORMATS["float16"])
"""Every bfloat16 of common size is a float16 too, so that the narrower of the two is tried first."""


def narrow_sums(evidence: Evidence) -> Cause | None:
    """dw or db with the sum over rows kept in 16 bits: in an order that is known, or because the digits end there."""
    source = evidence.source
    if not isinstance(source, NormSumSource) or evidence.wrong_count < _FEW:
        return None
    every = np.flatnonzero(evidence.wrong)[:_SIMULATED_COLUMNS]
    terms = _terms(source, evidence.elements.start + every)
    for target in _NARROW:
        if _digits_end(evidence, every, target) or _summed_in_order(evidence, every, terms, target):
            text = f"{source.name} summed over the rows in {target.name} instead of float32"
            return evidence.cause("narrow-sums", text, evidence.wrong)
    return None


def _terms(source: NormSumSource, columns: Array) -> Array:
    """What the rows add to some columns: (M, columns)."""
    inputs, shape = source.case.inputs, (-1, source.size)
    dy = inputs["grad_out"].reshape(shape)[:, columns].astype(np.float64)
    if source.name == "grad_bias":
        return dy
    x = inputs["input"].reshape(shape)[:, columns].astype(np.float64)
    mean, rstd = (inputs[name].reshape(-1, 1).astype(np.float64) for name in ("mean", "rstd"))
    return dy * (x - mean) * rstd


def _digits_end(evidence: Evidence, every: Array, target: NumberFormat) -> bool:
    """Whether the sums have no digits beyond a type narrower than the output's, and the exact ones do."""
    a, v = evidence.a[every], evidence.v[every]
    if target.digits >= evidence.target.digits or np.unique(a).size < 0.5 * a.size:
        return False
    short, exact_short = (target.round(values).astype(np.float64) == values for values in (a, v))
    return bool(short.all() and np.mean(exact_short) < 0.5)


def _summed_in_order(evidence: Evidence, every: Array, terms: Array, target: NumberFormat) -> bool:
    """Whether adding in the type, in one of the usual orders, gives the output."""
    a, v = evidence.a[every], evidence.v[every]
    # Terms are rounded to the type before they are added, or only their sum is.
    rows = np.concatenate([terms, target.round(terms).astype(np.float64)], axis=1)
    for totals in _totals(rows, target):
        for total in np.split(totals, 2):
            allowed = np.maximum(0.1 * np.abs(total - v), 0.51 * evidence.target.ulp(v))
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
