"""Size of the terms of each element, to which rounding errors are relative."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aclnn.typing import Array
from aclnn.verify.goldens.rows import Rows

if TYPE_CHECKING:
    from aclnn.verify.diagnosis.evidence import Evidence


def terms_size(evidence: Evidence) -> Array:
    """Return the effect of rounding the operands for formulas over rows, the product of the operands for others.

    For gradients of activations, |dy|·max(1, |x|): derivatives are at most about 1 and have terms in x.
    """
    source = evidence.source
    if isinstance(source.whole, Rows):
        return source.whole.sizes(evidence.places)
    magnitudes = [np.abs(values) for values in evidence.operands.values()]
    if source.gradient is not None:
        return np.asarray(magnitudes[0] * np.maximum(1.0, magnitudes[1]))
    return np.asarray(np.prod(magnitudes, axis=0))


def growth_of_flushed(evidence: Evidence) -> Array | float:
    """Return how much a term that a device flushes to zero could have been amplified in the result."""
    whole = evidence.source.whole
    if isinstance(whole, Rows) and whole.summed:
        return float(whole.addends)
    shared = [np.abs(evidence.operands[name]) for name in whole.shared if name in evidence.operands]
    return np.asarray(np.maximum.reduce([np.ones(evidence.a.size), *shared]))
