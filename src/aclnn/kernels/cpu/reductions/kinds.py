"""Reductions of a row: the initial values of sums and maxima, and the source of their operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aclnn.kernels.cpu.reductions.rewrites import PRODUCT_SUM, RUN_SUM
from aclnn.kernels.cpu.reductions.words import BLOCK_SUMS, SMALL_SUM
from aclnn.kernels.trace import REDUCTIONS


class Kind(NamedTuple):
    """A reduction: its initial value, and the source of its operations."""

    start: str
    combine: str
    """Combines two vectors into one."""
    of_lanes: str
    """Reduces a vector's lanes to one number."""
    first: str = "widen({})"
    """Makes the initial accumulator of ``start``."""
    dtype: str = "DOUBLE"
    """The data type of the accumulator."""
    fused: str = ""
    """Accumulates the product of two factors without rounding it, if terms are such products."""

    def taking(self, vector: str, parts: Sequence[str]) -> str:
        """Return the source that accumulates a term, or the product of its factors, into a vector."""
        return (self.fused or self.combine).format(vector, *parts)


SUM = Kind("0.0", "{} + {}", "sum_of({})")
MAX_OF_FLOAT32 = Kind("-inf", "larger_float32({}, narrow({}))", "largest_float32_of({})", "splat(float32({}))", "FLOAT")
MAX_OF_NUMBERS = MAX_OF_FLOAT32._replace(combine="select({0} < narrow({1}), narrow({1}), {0})")
"""A maximum that ignores NaN: in float32 lanes, other functions propagate a NaN to its whole row."""
_SUM_IN_FLOAT32 = Kind("0.0", "{} + narrow({})", "total({})", "splat(float32({}))", "FLOAT")
KINDS = {
    **dict.fromkeys(BLOCK_SUMS, SUM),
    SMALL_SUM: _SUM_IN_FLOAT32,
    RUN_SUM: SUM,
    PRODUCT_SUM: SUM._replace(fused="fma({1}, {2}, {0})"),
    REDUCTIONS["row_sum"]: SUM,
    REDUCTIONS["row_max"]: Kind("-inf", "larger({}, {})", "largest_of({})"),
}
