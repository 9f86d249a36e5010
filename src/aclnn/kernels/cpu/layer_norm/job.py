"""What LayerNorm's compiled code reads and writes besides tensors: the job, records and coefficients of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.memory import load_bfloat16_part, load_float16_part
from aclnn.kernels.cpu.simd.vector import lane
from aclnn.kernels.cpu.structs import load_one_float32, load_one_int64

SEGMENT = 512
"""Columns per segment: its accumulators for dw and db, 8 KiB, stay in the L1 cache."""
GROUP = 4
"""Rows summed in float32 before they go to the float64 accumulators."""
APART = 2048 + 128
"""Bytes between sums of dw and db, modulo 4096: a load whose address ends in the twelve bits of a store before it waits
for that store. On Zen 4, 4096 bytes apart, the sums of 1,024 columns took half as long again."""
PER_US = 2500
"""Elements that a thread does in a microsecond, about: good for judging whether a call is worth waking threads for."""

# What a job holds, one int64 each. SHARE is the float64 1/N, TOP_WEIGHT the float32 max(abs(w)). PARTIAL_COUNT: how
# many partial sums the blocks leave. FRESH: accumulators are cleared first. BEGIN, END: the segments of a batch's rows
# that a call works on. ONLY: the batch holds all rows. SLOW_ROWS: set where float32 will not do for a row. LOST: set
# where a block's sums are not finite. SUM_GROUP … FINISH: addresses of the kernels in ``segments`` and ``exact`` and of
# ``finish``, 0 where they are not needed. MEASURE: of the one that makes whole records, where those that sum are not
# careful. SETS: that of the kernel in ``short`` or ``down``, and SET_ROWS: how many rows it does at a time; 0 where
# none is.
(
    N, SHARE, SEGMENTS, STREAMED, WEIGHT, TOP_WEIGHT, PARTIALS, PARTIAL_BYTES, PARTIAL_COUNT, DB_OFFSET,
    RECORDS, COEFFICIENTS, FRESH, BEGIN, END, ONLY, SLOW_ROWS, LOST, SUM_GROUP, SUM_ROW, SUM_LAST_ROW, MEASURE,
    WRITE_GROUP, WRITE_ROW, JUDGE, ADD_EXACTLY, WRITE_EXACTLY, FINISH, SETS, SET_ROWS, DW, DB, MEAN, RSTD, DY, X, DX,
) = range(37)  # fmt: skip
JOB_FIELDS = 37
# DW … DX hold the distance in bytes from the job to a tensor's own fields, 0 when it is absent. SIZE: of an element.
# STEP: from a row to the next; 0 where they are not evenly spaced. DIRECT: the elements of a row lie side by side. ROWS
# and the fields at distance COLUMNS_AT are dimensions: their number, then extent and stride in bytes of each, innermost
# first.
BASE, CODE, SIZE, STEP, DIRECT, COLUMNS_AT, ROWS = range(0, 56, 8)

# A frame holds the arguments of the kernels that work on columns of rows, one int64 each. DYS, XS, DXS: where these
# begin in each of four rows. …_AHEAD: how far ahead to prefetch. W: the weights. ROW: the first row's coefficients.
# RECORD_AT, PITCH: its first record, and bytes to the next row's. DW_AT, DB_AT: float64 sums. K: the number of a single
# row in its group. BEFORE, TERMS: float32 terms before and after it.
(
    DYS, _, _, _, XS, _, _, _, DXS, _, _, _, DY_AHEAD, X_AHEAD, W, COLUMNS, ROW, RECORD_AT, PITCH, DW_AT, DB_AT,
    K, BEFORE, TERMS, ALL_COLUMNS,
) = range(0, 8 * 25, 8)  # fmt: skip
FRAME = 8 * 25

# A record, one for each row and segment: float32 each. Σg, Σg·x̂, Σ|dy|, Σx̂².
SUM_G, SUM_GX, SUM_SIZE, SUM_SQUARE = range(0, 16, 4)
RECORD = 16
# The coefficients of a row, float32 each. SLOW: float32 will not do for its dx, which is made of the float64 sums.
ROW_MEAN, ROW_RSTD, MINUS_C1, MINUS_C2, SLOW = range(0, 20, 4)
EXACT_G, EXACT_GX = 24, 32
COEFFICIENT = 40


class Job:
    """The numbers that compiled code reads, and where they are."""

    __slots__ = ("address", "numbers")

    def __init__(self, numbers: ctypes.Array[ctypes.c_int64]) -> None:
        self.numbers = numbers
        self.address = ctypes.addressof(numbers)

    @staticmethod
    def of(numbers: Sequence[int]) -> Job:
        """A job with these numbers."""
        return Job((ctypes.c_int64 * len(numbers))(*numbers))

    def copy(self) -> Job:
        """Another job with the same numbers."""
        return Job(type(self.numbers).from_buffer_copy(self.numbers))

    def __getitem__(self, field: int) -> int:
        return self.numbers[field]

    def __setitem__(self, field: int, number: int) -> None:
        self.numbers[field] = number


FLOAT, FLOAT16 = 0, 1
"""ACL's numbers of these data types; any other is bfloat16."""


@register_jitable(forceinline=True)
def of(job: int, field: int) -> Any:
    """A number of the job."""
    return load_one_int64(job + 8 * field)


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


@register_jitable(forceinline=True)
def row_at(view: int, row: int) -> Any:
    """Where a row begins in a tensor; ``view`` is where the tensor's fields are."""
    base, step = load_one_int64(view + BASE), load_one_int64(view + STEP)
    return base + row * step if step else base + offset(view + ROWS, row)


@register_jitable
def _load_sixteen_bit(address: int, code: int) -> Any:
    if code == FLOAT16:
        return lane(load_float16_part(address, 1), 0)
    return lane(load_bfloat16_part(address, 1), 0)


@register_jitable(forceinline=True)
def load_statistic(view: int, row: int) -> Any:
    """A row's mean or rstd, widened; ``view`` is where the tensor's fields are."""
    address, code = row_at(view, row), load_one_int64(view + CODE)
    return load_one_float32(address) if code == FLOAT else _load_sixteen_bit(address, code)
