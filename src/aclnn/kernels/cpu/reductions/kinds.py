"""Ways to reduce a row: what sums and maxima start from, and the source of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aclnn.kernels.cpu.reductions.rewrites import PRODUCT_SUM, RUN_SUM
from aclnn.kernels.cpu.reductions.words import BLOCK_SUMS, SMALL_SUM
from aclnn.kernels.trace import REDUCTIONS


class Kind(NamedTuple):
    """A way to reduce: what it starts from, and the source of its steps."""

    start: str
    combine: str
    """The reduction of two vectors to one."""
    of_lanes: str
    """The reduction of a vector's lanes."""
    first: str = "widen({})"
    """The vector that it starts from."""
    dtype: str = "DOUBLE"
    """The data type that it is found in."""
    fused: str = ""
    """The reduction of a vector and two factors, where terms are products that are not rounded."""

    def taking(self, vector: str, parts: Sequence[str]) -> str:
        """Reduce a vector and a term, or its factors, to a vector."""
        return (self.fused or self.combine).format(vector, *parts)


SUM = Kind("0.0", "{} + {}", "sum_of({})")
MAX_OF_FLOAT32 = Kind("-inf", "larger_float32({}, narrow({}))", "largest_float32_of({})", "splat(float32({}))", "FLOAT")
MAX_OF_NUMBERS = MAX_OF_FLOAT32._replace(combine="select({0} < narrow({1}), narrow({1}), {0})")
"""The largest number: functions in float32 lanes make a row of NaN of a NaN without being told."""
_SUM_IN_FLOAT32 = Kind("0.0", "{} + narrow({})", "total({})", "splat(float32({}))", "FLOAT")
KINDS = {
    **dict.fromkeys(BLOCK_SUMS, SUM),
    SMALL_SUM: _SUM_IN_FLOAT32,
    RUN_SUM: SUM,
    PRODUCT_SUM: SUM._replace(fused="fma({1}, {2}, {0})"),
    REDUCTIONS["row_sum"]: SUM,
    REDUCTIONS["row_max"]: Kind("-inf", "larger({}, {})", "largest_of({})"),
}
