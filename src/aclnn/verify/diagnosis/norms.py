"""LayerNorm's faults: other statistics or operands, terms left out, sums over some rows, sums kept in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import Evidence, Hypothesis
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
        some, changed, operations = searched, sums.changed, _of_sums(sums)
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


def _of_sums(sums: _Sums) -> Iterator[tuple[str, str, _Predict]]:
    inputs = sums.source.case.inputs
    other = "grad_weight" if sums.bias else "grad_bias"
    if "weight" in inputs:
        weight = inputs["weight"].reshape(-1).astype(np.float64)
        yield "wrong-operation", "grad_out is multiplied by weight", lambda part: part.v * weight[part.at]
    yield "wrong-operation", f"the result is {other}", sums.other
    if not sums.bias:
        zero, one = {"mean": np.zeros_like(inputs["mean"])}, {"rstd": np.ones_like(inputs["rstd"])}
        yield "wrong-input", "input is taken as it is, not normalised", sums.changed({**zero, **one})
        yield "wrong-input", "mean is left out, as if it were 0", sums.changed(zero)
        yield "wrong-input", "rstd is left out, as if it were 1", sums.changed(one)


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
