"""Faults of sums over rows: missing rows, a mean in place of the sum, accumulation in 16 bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from aclnn.typing import Array
from aclnn.verify.compiled import compiled
from aclnn.verify.diagnosis.evidence import ENOUGH, FEW, Evidence, Finding, Hypothesis
from aclnn.verify.goldens.rows import Rows
from aclnn.verify.goldens.values import BLOCK_ELEMENTS
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import Source

_Predict = Callable[[Evidence], Array]

_TERMS_AT_MOST = 1 << 22
"""Maximum number of terms examined."""


def is_of_sums(source: Source) -> bool:
    """Return True for outputs whose elements are sums over rows."""
    return source.whole.summed and bool(source.whole.names)


def searched_columns(source: Source) -> int:
    """Return the number of sums examined; 0 if each has too many terms."""
    found = min(48, _TERMS_AT_MOST // max(1, _of(source).addends))
    return found if found >= 3 else 0


def _of(source: Source) -> Rows:
    assert isinstance(source.whole, Rows)
    return source.whole


def hypotheses(searched: Evidence) -> Iterator[Hypothesis]:
    """Yield sums over the first, the last or every n-th row, or without one of equal blocks of rows; and a mean."""
    whole = _of(searched.source)
    rows, terms = whole.addends, whole.terms(searched.at)

    def over(chosen: slice) -> _Predict:
        def predict(part: Evidence) -> Array:
            if part is searched:
                return np.asarray(terms[chosen].sum(axis=0))
            step = max(1, BLOCK_ELEMENTS // rows)
            parts = (part.at[begin : begin + step] for begin in range(0, part.at.size, step))
            return np.concatenate([whole.terms(at)[chosen].sum(axis=0) for at in parts])

        return predict

    def missing(text: str, predict: _Predict) -> Hypothesis:
        return Hypothesis("missing-rows", f"summed {text}", predict)

    mean = f"the result is a mean over the {rows} rows, not a sum"
    yield Hypothesis("wrong-operation", mean, lambda part: part.v / rows)
    ahead = np.cumsum(terms, axis=0)
    probe = int(np.argmax(searched.error * np.isfinite(searched.a)))
    for text, partial_sums in (("the first {} of {} rows", ahead), ("the last {} of {} rows", ahead[-1] - ahead)):
        distance = np.abs(partial_sums - searched.a)
        likely = np.argsort(distance[:, probe])[:8]
        best = int(likely[np.argmin(np.median(distance[likely], axis=1))])
        count = best + 1 if partial_sums is ahead else rows - 1 - best
        if 0 < count < rows:
            chosen = slice(0, count) if partial_sums is ahead else slice(rows - count, rows)
            yield missing(f"over {text.format(count, rows)}", over(chosen))
    for step in (2, 4):
        for offset in range(step):
            yield missing(f"over every {step}th row from {offset} on", over(slice(offset, None, step)))
    for parts in (2, 4, 8, 16, 32):
        edges = np.linspace(0, rows, parts + 1).astype(int).tolist()
        for begin, end in itertools.pairwise(edges):
            if 0 < end - begin < rows:
                yield missing(f"without rows {begin} to {end - 1}", partial(_without, over(slice(begin, end))))


def _without(left_out: _Predict, part: Evidence) -> Array:
    return part.v - left_out(part)


_THREADS = (*range(2, 17), 24, 32, 48, 64)
_NARROW = (FORMATS["bfloat16"], FORMATS["float16"])
"""Narrower first: every bfloat16 of ordinary size is a float16 too."""


def narrow_sums(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find sums over rows accumulated in 16 bits: in a known order, or by their number of digits."""
    source = e.source
    if not is_of_sums(source) or np.count_nonzero(struck) < FEW or not searched_columns(source):
        return
    every = np.flatnonzero(struck)[:FEW]
    terms = _of(source).terms(e.at[every])
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


def _digits_end(e: Evidence, every: Array, target: NumberFormat) -> bool:
    """Return True if the sums have a narrower type's digits only, and the exact ones have more."""
    a, v = e.a[every], e.v[every]
    if target.digits >= e.target.digits or np.unique(a).size < 0.5 * a.size:
        return False
    short, exact_short = (target.round(values).astype(np.float64) == values for values in (a, v))
    return bool(short.all() and np.mean(exact_short) < 0.5)


def _summed_in_order(e: Evidence, every: Array, terms: Array, target: NumberFormat) -> bool:
    """Return True if accumulation in the type, in one of the usual orders, gives the output."""
    a, v = e.a[every], e.v[every]
    # Either the terms are rounded to the type before they are added, or only the sums are.
    rows = np.concatenate([terms, target.round(terms).astype(np.float64)], axis=1)
    for totals in _totals(rows, target):
        for total in np.split(totals, 2):
            allowed = np.maximum(0.1 * np.abs(total - v), 0.51 * e.target.ulp(v))
            if np.count_nonzero(np.abs(total - a) <= allowed) >= ENOUGH * every.size:
                return True
    return False


def _totals(rows: Array, target: NumberFormat) -> Iterator[Array]:
    """Yield sums of rows in the orders of a loop, of trees, and of threads that share the rows."""
    yield _by_threads(rows[None], target)
    yield _by_neighbours(rows, target)
    yield _by_halves(rows, target)
    for threads in _THREADS:
        each = -(-len(rows) // threads)
        if each == 1:  # nothing is accumulated in the type
            break
        padded = np.zeros((threads * each, rows.shape[1]))
        padded[: len(rows)] = rows
        yield _by_threads(padded.reshape(threads, each, -1), target)
        yield _by_threads(padded.reshape(each, threads, -1).swapaxes(0, 1), target)


def _by_threads(rows: Array, target: NumberFormat) -> Array:
    """Sum an array of (threads, rows per thread, columns): in sequence per thread in the type, then over threads."""
    sums = np.zeros((rows.shape[0], rows.shape[2]))
    _add_in(rows, 53 - target.digits, target.smallest_normal, target.largest, sums)
    total: Array = sums.sum(axis=0)
    return total


@compiled
def _add_in(rows: Array, drop: int, least: float, largest: float, sums: Array) -> None:
    """Accumulate (threads, rows per thread, columns) into sums, rounded to a type with ``drop`` fewer digits."""
    step = least * 2.0 ** (drop - 52)
    for thread in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            for j in range(rows.shape[2]):
                total = sums[thread, j] + rows[thread, i, j]
                if abs(total) < least:
                    total = np.rint(total / step) * step
                elif math.isfinite(total):
                    bits = np.float64(total).view(np.int64)
                    bits += (np.int64(1) << (drop - 1)) - 1 + (bits >> drop & 1)
                    total = np.int64(bits >> drop << drop).view(np.float64)
                    if abs(total) > largest:
                        total = math.copysign(math.inf, total)
                sums[thread, j] = total


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
