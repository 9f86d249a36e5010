"""What LayerNorm's compiled code reads and writes besides tensors: the job, records and coefficients of rows."""

from __future__ import annotations

from numba.extending import register_jitable

from aclnn.kernels.cpu.memory import (
    load_bfloat16_part,
    load_float16_part,
    load_one_float32,
    load_one_int64,
    store_one_float32,
)
from aclnn.kernels.cpu.vector import lane

SEGMENT = 512
"""Columns per segment: its accumulators for dw and db, 8 KiB, stay in the L1 cache."""
GROUP = 4
"""Rows summed in float32 before they go to the float64 accumulators."""

# What `job` holds, one int64 each; TOP_WEIGHT is the float32 max(abs(w)). FRESH: accumulators are cleared first.
# IN_PLACE: dx is dy or x. BEGIN, END: the segments of a batch's rows that a call works on, in PARTS. ONLY: the batch
# holds all rows. SLOW_ROWS: set where float32 will not do for a row.
(
    N, SEGMENTS, STREAMED, WEIGHT, WEIGHT_STEP, TOP_WEIGHT, PARTIALS, PARTIAL_BYTES, DB_OFFSET, RECORDS, COEFFICIENTS,
    FRESH, IN_PLACE, BEGIN, END, PARTS, ONLY, SLOW_ROWS, DW, DB, MEAN, RSTD, DY, X, DX,
) = range(25)  # fmt: skip
JOB_FIELDS = 25
# DW … DX hold the distance in bytes from the job to a tensor's own fields, 0 when it is absent. STEP: from a row to the
# next; 0 where they are not evenly spaced. DIRECT: the elements of a row lie side by side. ROWS and the fields at
# distance COLUMNS_AT are dimensions: their number, then extent and stride in bytes of each, innermost first.
BASE, CODE, STEP, DIRECT, COLUMNS_AT, ROWS = range(0, 48, 8)

# A record, one for each row and segment: float32 each. Σg, Σg·x̂, Σ|dy|, Σx̂².
SUM_G, SUM_GX, SUM_SIZE, SUM_SQUARE = range(0, 16, 4)
RECORD = 16
# The coefficients of a row, float32 each. SLOW: float32 will not do for its dx, which is made of the float64 sums.
ROW_MEAN, ROW_RSTD, MINUS_C1, MINUS_C2, SLOW = range(0, 20, 4)
EXACT_G, EXACT_GX = 24, 32
COEFFICIENT = 40

FLOAT, FLOAT16 = 0, 1
"""ACL's numbers of these data types; any other is bfloat16."""


@register_jitable
def offset(dims: int, index: int) -> int:
    """Byte offset of the element with this logical index; ``dims`` is where dimensions are described."""
    count = load_one_int64(dims)
    if count == 1:
        return int(index * load_one_int64(dims + 16))
    found: int = 0
    for d in range(count):
        extent = load_one_int64(dims + 8 + 16 * d)
        quotient = index // extent
        found += (index - quotient * extent) * load_one_int64(dims + 16 + 16 * d)
        index = quotient
    return found


@register_jitable
def row_at(view: int, row: int) -> int:
    """Where a row begins in a tensor; ``view`` is where the tensor's fields are."""
    return int(load_one_int64(view + BASE) + offset(view + ROWS, row))


@register_jitable
def load_statistics(job: int, index: int, row: int) -> None:
    """Put a row's mean and rstd into its coefficients."""
    for tensor, place in ((MEAN, ROW_MEAN), (RSTD, ROW_RSTD)):
        view = job + load_one_int64(job + 8 * tensor)
        address, code = row_at(view, index), load_one_int64(view + CODE)
        if code == FLOAT:
            number = load_one_float32(address)
        elif code == FLOAT16:
            number = lane(load_float16_part(address, 1), 0)
        else:
            number = lane(load_bfloat16_part(address, 1), 0)
        store_one_float32(row + place, number)
