"""LayerNorm's faults: other statistics or operands, terms left out, sums over some rows, sums kept in 16 bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from aclnn.verify.compiled import compiled
from aclnn.verify.diagnosis.evidence import ENOUGH, FEW, Evidence, Hypothesis
from aclnn.verify.diagnosis.local import Finding
from aclnn.verify.goldens.values import LayerNorm
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import NormInputSource, NormSumSource, whole_rows

Array = np.ndarray[Any, Any]


_Predict = Callable[[Evidence], Array]


def hypotheses(e: Evidence, searched: Evidence) -> Iterator[Hypothesis]:
    """Faults of one of LayerNorm's gradients: of consecutive elements of dx, of all columns of dw or db.

    Args:
        e: the elements.
        searched: some of them.
    """
    yield Hypothesis("sign", "the result has the wrong sign", lambda part: -part.v)
    source = e.source
    changed: Callable[..., _Predict]
    if isinstance(source, NormSumSource):
        sums = _Sums(source, searched)
        some, changed, operations = searched, sums.changed, _of_sums(sums, searched)
    else:
        assert isinstance(source, NormInputSource)
        some, changed, operations = e, partial(_changed_dx, e, source), _of_dx(e, source)
    yield from (Hypothesis(*one) for one in operations)
    inputs = source.case.inputs
    given = {name: inputs[name].astype(np.float64) for name in ("mean", "rstd")}
    for kind in (FORMATS["float16"], FORMATS["bfloat16"]):
        kept = partial(_kept_in, kind)
        rounded = {name: kept(values) for name, values in given.items()}
        if not all(np.array_equal(rounded[name], given[name]) for name in given):
            text = f"mean and rstd kept in {kind.name}"
            yield Hypothesis("narrow-statistics", text, changed(rounded), structural=False, extra=0.1)
            for words, names in (("", ("mean", "rstd", "weight")), (" but mean and rstd", ("weight",))):
                small = {name: kept(inputs[name]) for name in names if name in inputs}
                text = f"the inputs{words} were rounded to {kind.name}"
                yield Hypothesis("narrow-input", text, changed(small, kept), structural=False)
    for name, change, text_of in _changes(given["mean"], given["rstd"]):
        size = _size_of(some, changed(change(_STEP))(some) - some.v)
        if size is not None:
            other = change(_STEP * size)
            yield Hypothesis(name, text_of(other), changed(other), extra=0.1)
    ratios = (e.a / e.v)[e.wrong & (e.v != 0.0)]
    ratios = ratios[np.isfinite(ratios)]
    if ratios.size:
        factor = float(np.median(ratios))
        text = f"the result is {factor:.6g} times what it should be"
        yield Hypothesis("scaled", text, lambda part: factor * part.v)


def searched_columns(source: NormSumSource) -> int:
    """The number of columns that faults of sums are looked for in; none where each has too many terms."""
    found = min(48, _TERMS_AT_MOST // source.case.inputs["mean"].size)
    return found if found >= 3 else 0


def _kept_in(kind: NumberFormat, values: Array) -> Array:
    return kind.round(values.astype(np.float64)).astype(np.float64)


def _of_dx(e: Evidence, source: NormInputSource) -> Iterator[tuple[str, str, _Predict]]:
    columns = source.whole.columns
    begin = int(e.at[0])
    first, last, part = whole_rows(begin, begin + e.a.size, columns)
    dy, x = source.whole.inputs(first, last)
    inputs = source.case.inputs
    mean, rstd = (inputs[name].reshape(-1, 1)[first:last].astype(np.float64) for name in ("mean", "rstd"))
    weight = inputs["weight"].reshape(-1).astype(np.float64) if "weight" in inputs else np.ones(columns)
    xhat = (x - mean) * rstd

    def dx(dy: Array, xhat: Array, w: Array | float, c1: float = 1.0, c2: float = 1.0, outer: Any = rstd) -> _Predict:
        """rstd·(g - c1·Σg/N - c2·x̂·Σ(g·x̂)/N) with g = dy·w."""
        g = dy * w
        value = g - c1 * g.mean(1, keepdims=True) - c2 * xhat * (g * xhat).mean(1, keepdims=True)
        return _fixed(e, (outer * value).reshape(-1)[part])

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
    yield "wrong-operation", "the result is grad_out itself", _fixed(e, dy.reshape(-1)[part])


def _fixed(e: Evidence, values: Array) -> _Predict:
    """Predictions for any of consecutive elements."""
    start = int(e.at[0])
    return lambda part: values[part.at - start]


def _without(left_out: _Predict, part: Evidence) -> Array:
    return part.v - left_out(part)


class _Sums:
    """Sums over rows at any columns, which are computed when they are asked for."""

    def __init__(self, source: NormSumSource, searched: Evidence) -> None:
        self.source = source
        self.bias = source.name == "grad_bias"
        self.rows: int = source.case.inputs["mean"].size
        self._searched = searched
        self._of_searched = {name: self._columns(name, searched) for name in ("grad_out", "input")}

    def _columns(self, name: str, part: Evidence) -> Array:
        """An input's values in some columns, of all rows."""
        matrix = self.source.case.inputs[name].reshape(-1, self.source.size)
        return matrix[:, part.places] if isinstance(part.places, slice) else np.take(matrix, part.places, axis=1)

    def changed(self, small: Mapping[str, Array], change: Callable[[Array], Array] = np.asarray) -> _Predict:
        """With another mean or rstd, grad_out and input changed as they are read."""
        return partial(self._sum, small, change, slice(None), self.bias)

    def over(self, rows: slice) -> _Predict:
        """Over some of the rows."""
        return partial(self._sum, {}, np.asarray, rows, self.bias)

    @property
    def other(self) -> _Predict:
        """The other sum."""
        return partial(self._sum, {}, np.asarray, slice(None), not self.bias)

    def _sum(
        self, small: Mapping[str, Array], change: Callable[[Array], Array], rows: slice, bias: bool, part: Evidence
    ) -> Array:
        inputs = {**self.source.case.inputs, **small}
        mean, rstd = (inputs[name].reshape(-1)[rows] for name in ("mean", "rstd"))
        dy, x = (
            (self._of_searched[name] if part is self._searched else self._columns(name, part))[rows]
            for name in ("grad_out", "input")
        )
        total = LayerNorm(dy, x, mean, rstd, None, part.at.size, change=change).all_sums()[bias]
        sums: Array = np.where(np.isfinite(total[3]), total[0], total[3])
        return sums


def _of_sums(sums: _Sums, searched: Evidence) -> Iterator[tuple[str, str, _Predict]]:
    inputs, rows = sums.source.case.inputs, sums.rows
    other = "grad_weight" if sums.bias else "grad_bias"
    yield "wrong-operation", f"the result is a mean over the {rows} rows, not a sum", lambda part: part.v / rows
    if "weight" in inputs:
        weight = inputs["weight"].reshape(-1).astype(np.float64)
        yield "wrong-operation", "grad_out is multiplied by weight", lambda part: part.v * weight[part.at]
    yield "wrong-operation", f"the result is {other}", sums.other
    if not sums.bias:
        zero, one = {"mean": np.zeros_like(inputs["mean"])}, {"rstd": np.ones_like(inputs["rstd"])}
        yield "wrong-input", "input is taken as it is, not normalised", sums.changed({**zero, **one})
        yield "wrong-input", "mean is left out, as if it were 0", sums.changed(zero)
        yield "wrong-input", "rstd is left out, as if it were 1", sums.changed(one)
    for text, predict in _some_rows(sums, searched):
        yield "missing-rows", text, predict


_TERMS_AT_MOST = 1 << 23
"""Terms of the sums that are looked at."""


def _some_rows(sums: _Sums, searched: Evidence) -> Iterator[tuple[str, _Predict]]:
    """Sums over the first or the last rows, every second one, or without one of equal shares."""
    rows = sums.rows
    ahead = np.cumsum(_terms(sums.source, searched.at), axis=0)
    probe = int(np.argmax(searched.error * np.isfinite(searched.a)))
    for text, partial_sums in (("the first {} of {} rows", ahead), ("the last {} of {} rows", ahead[-1] - ahead)):
        distance = np.abs(partial_sums - searched.a)
        likely = np.argsort(distance[:, probe])[:8]
        best = int(likely[np.argmin(np.median(distance[likely], axis=1))])
        count = best + 1 if partial_sums is ahead else rows - 1 - best
        if 0 < count < rows:
            chosen = slice(0, count) if partial_sums is ahead else slice(rows - count, rows)
            yield f"summed over {text.format(count, rows)}", sums.over(chosen)
    for step in (2, 4):
        for offset in range(step):
            yield f"summed over every {step}th row from {offset} on", sums.over(slice(offset, None, step))
    for parts in (2, 4, 8, 16, 32):
        edges = np.linspace(0, rows, parts + 1).astype(int).tolist()
        for begin, end in itertools.pairwise(edges):
            if 0 < end - begin < rows:
                left_out = sums.over(slice(begin, end))
                yield f"summed without rows {begin} to {end - 1}", partial(_without, left_out)


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


def _changed_dx(
    e: Evidence, source: NormInputSource, small: Mapping[str, Array], change: Callable[[Array], Array] = np.asarray
) -> _Predict:
    """With another mean, rstd or weight, grad_out and input changed as they are read."""
    inputs, columns = {**source.case.inputs, **small}, source.whole.columns
    dy, x, mean, rstd = (inputs[name] for name in ("grad_out", "input", "mean", "rstd"))
    changed = LayerNorm(dy, x, mean, rstd, inputs.get("weight"), columns, change=change)
    first, last, part = whole_rows(int(e.at[0]), int(e.at[0]) + e.a.size, columns)
    return _fixed(e, changed.block(first, last, e.target).value[part])


_THREADS = (*range(2, 17), 24, 32, 48, 64)
_NARROW = (FORMATS["bfloat16"], FORMATS["float16"])
"""Every bfloat16 of common size is a float16 too, so that the narrower of the two is tried first."""


def narrow_sums(e: Evidence, struck: Array) -> Iterator[Finding]:
    """dw or db with the sum over rows kept in 16 bits: in an order that is known, or because the digits end there."""
    source = e.source
    if not isinstance(source, NormSumSource) or np.count_nonzero(struck) < FEW or not searched_columns(source):
        return
    every = np.flatnonzero(struck)[: searched_columns(source)]
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
    for threads in _THREADS:
        each = -(-len(rows) // threads)
        if each == 1:  # nothing is added in the type
            break
        padded = np.zeros((threads * each, rows.shape[1]))
        padded[: len(rows)] = rows
        yield _by_threads(padded.reshape(threads, each, -1), target)
        yield _by_threads(padded.reshape(each, threads, -1).swapaxes(0, 1), target)


def _by_threads(rows: Array, target: NumberFormat) -> Array:
    """Of (threads, rows of each, columns): every thread's rows one after another in the type, then the sum of those."""
    sums = np.zeros((rows.shape[0], rows.shape[2]))
    _add_in(rows, 53 - target.digits, target.smallest_normal, target.largest, sums)
    total: Array = sums.sum(axis=0)
    return total


@compiled
def _add_in(rows: Array, drop: int, least: float, largest: float, sums: Array) -> None:
    """Add (threads, rows of each, columns) to sums, each rounded to a type that has so many digits fewer."""
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
