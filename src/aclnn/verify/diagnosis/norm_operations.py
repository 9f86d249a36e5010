"""What LayerNorm's outputs would be of other inputs, with a term left out, or as another operation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import Evidence
from aclnn.verify.goldens.values import LayerNorm
from aclnn.verify.standards.evaluate import NormInputSource, NormSumSource, whole_rows

Array = np.ndarray[Any, Any]
Prediction = tuple[str, str, Array]
"""A fault's name, its text and what it would give."""


def norm_operations(evidence: Evidence) -> Iterator[Prediction]:
    """Of LayerNorm's outputs; none of others."""
    source = evidence.source
    if isinstance(source, NormInputSource):
        yield from _of_dx(evidence, source)
    elif isinstance(source, NormSumSource):
        yield from _of_sums(evidence, source)


def _of_dx(evidence: Evidence, source: NormInputSource) -> Iterator[Prediction]:
    columns = source.whole.columns
    begin = evidence.elements.start
    first, last, part = whole_rows(begin, begin + evidence.a.size, columns)
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


def _of_sums(evidence: Evidence, source: NormSumSource) -> Iterator[Prediction]:
    inputs, part = source.case.inputs, slice(evidence.elements.start, evidence.elements.start + evidence.a.size)
    mean, rstd = inputs["mean"], inputs["rstd"]
    is_dw, other = source.name == "grad_weight", {"grad_weight": "grad_bias", "grad_bias": "grad_weight"}[source.name]
    rows = mean.size

    def sums(mean: Array, rstd: Array, bias: bool = False) -> Array:
        columns = math.prod(source.case.attributes["normalized_shape"])
        changed = LayerNorm(inputs["grad_out"], inputs["input"], mean, rstd, None, columns)
        return changed.columns_golden(changed.all_sums()[bias], evidence.target, bias).value[part]

    yield "wrong-operation", f"the result is a mean over the {rows} rows, not a sum", evidence.v / rows
    if "weight" in inputs:
        weight = inputs["weight"].reshape(-1)[part].astype(np.float64)
        yield "wrong-operation", "grad_out is multiplied by weight", evidence.v * weight
    yield "wrong-operation", f"the result is {other}", sums(mean, rstd, bias=is_dw)
    if is_dw:
        zero, one = np.zeros_like(mean), np.ones_like(rstd)
        yield "wrong-input", "input is taken as it is, not normalised", sums(zero, one)
        yield "wrong-input", "mean is left out, as if it were 0", sums(zero, rstd)
        yield "wrong-input", "rstd is left out, as if it were 1", sums(mean, one)
