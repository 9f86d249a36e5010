"""The size of the terms that are added up to each element, which rounding errors are relative to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aclnn.verify.goldens.rows import Rows
from aclnn.verify.goldens.values import BLOCK_ELEMENTS
from aclnn.verify.standards.evaluate import FormulaSource, NormInputSource, NormSumSource, norm_golden

if TYPE_CHECKING:
    from aclnn.verify.diagnosis.evidence import Evidence

Array = np.ndarray[Any, Any]


def terms_size(evidence: Evidence) -> Array:
    """For LayerNorm the sum of its terms' magnitudes, for formulas of elements the operands' product.

    |dy|·max(1, |x|) for gradients of activations, whose derivatives are about 1 at most and have terms in x.
    """
    source, operands = evidence.source, evidence.operands
    if isinstance(source, NormInputSource):
        return _of_rows(source, operands, int(evidence.at[0]) if evidence.at.size else 0)
    if isinstance(source, NormSumSource):
        return _of_columns(source)[evidence.places]
    if isinstance(source, FormulaSource) and isinstance(source.whole, Rows):
        return source.whole.sizes(evidence.places)
    magnitudes = [np.abs(values) for values in operands.values()]
    if isinstance(source, FormulaSource) and source.gradient is not None:
        return np.asarray(magnitudes[0] * np.maximum(1.0, magnitudes[1]))
    return np.asarray(np.prod(magnitudes, axis=0))


def growth_of_flushed(evidence: Evidence) -> Array | float:
    """By how much a term that a device flushes to zero could still have grown on the way to the result."""
    source = evidence.source
    if isinstance(source, NormInputSource):
        return np.maximum(1.0, np.abs(evidence.operands["rstd"]))
    return float(source.case.inputs["mean"].size) if isinstance(source, NormSumSource) else 1.0


def _of_rows(source: NormInputSource, operands: dict[str, Array], start: int) -> Array:
    dy, x, mean, rstd = (operands[k] for k in ("grad_out", "input", "mean", "rstd"))
    g = np.abs(dy * operands["weight"] if "weight" in operands else dy)
    normal = np.abs((x - mean) * rstd)
    rows = np.arange(start, start + g.size) // max(1, source.whole.columns)
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
