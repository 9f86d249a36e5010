"""What rounding errors are relative to: the size of the terms that are added up to each element."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.verify.goldens.values import BLOCK_ELEMENTS
from aclnn.verify.standards.evaluate import (
    Elements,
    ElementwiseSource,
    NormInputSource,
    NormSumSource,
    Source,
    norm_golden,
)

Array = np.ndarray[Any, Any]


def terms_size(source: Source, elements: Elements) -> Array:
    """For LayerNorm the sum of its terms' magnitudes, for formulas of them the operands' product.

    |dy| for gradients of activations, whose derivatives are about 1 at most.
    """
    if isinstance(source, NormInputSource):
        return _of_rows(source, elements)
    if isinstance(source, NormSumSource):
        return _of_columns(source)[elements.start : elements.start + elements.actual.size]
    gradient = isinstance(source, ElementwiseSource) and source.gradient is not None
    operands = [np.abs(values.astype(np.float64)) for values in elements.inputs.values()]
    return np.asarray(operands[0] if gradient else np.prod(operands, axis=0))


def growth_of_flushed(source: Source, elements: Elements) -> Array | float:
    """By how much a term that a device flushes to zero could still have grown on the way to the result."""
    if isinstance(source, NormInputSource):
        return np.maximum(1.0, np.abs(elements.inputs["rstd"].astype(np.float64)))
    return float(source.case.inputs["mean"].size) if isinstance(source, NormSumSource) else 1.0


def _of_rows(source: NormInputSource, elements: Elements) -> Array:
    dy, x, mean, rstd = (elements.inputs[k].astype(np.float64) for k in ("grad_out", "input", "mean", "rstd"))
    g = np.abs(dy * elements.inputs["weight"].astype(np.float64) if "weight" in elements.inputs else dy)
    normal = np.abs((x - mean) * rstd)
    rows = np.arange(elements.start, elements.start + g.size) // max(1, source.whole.columns)
    rows -= rows[:1]
    counts = np.bincount(rows)
    mean_g, mean_normal = ((np.bincount(rows, values) / counts)[rows] for values in (g, g * normal))
    size: Array = np.abs(rstd) * (g + mean_g + normal * mean_normal)
    return size


def _of_columns(source: NormSumSource) -> Array:
    whole, inputs = norm_golden(source.case), source.case.inputs
    mean, rstd = (inputs[name].reshape(-1, 1).astype(np.float64) for name in ("mean", "rstd"))
    total = np.zeros(whole.columns)
    step = max(1, BLOCK_ELEMENTS // max(1, whole.columns))
    for begin in range(0, whole.rows, step):
        part = slice(begin, min(begin + step, whole.rows))
        dy, x = whole.inputs(part.start, part.stop)
        terms = dy if source.name == "grad_bias" else dy * (x - mean[part]) * rstd[part]
        total += np.abs(terms).sum(axis=0)
    return total
