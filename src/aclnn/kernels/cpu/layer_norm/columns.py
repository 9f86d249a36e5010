"""LayerNorm's gradients, the parts that know neither rows nor formulas: any layout in and out, dw and db at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.job import (
    BASE,
    CODE,
    COLUMNS_AT,
    DIRECT,
    FLOAT,
    FLOAT16,
    PARTIAL_BYTES,
    SIZE,
    of,
    offset,
    row_at,
)
from aclnn.kernels.cpu.layer_norm.lanes import add_doubles, largest_lane, load_rounded, load_rounded_to_odd
from aclnn.kernels.cpu.layer_norm.shared import shared
from aclnn.kernels.cpu.simd.memory import (
    load_bfloat16_part,
    load_float16_part,
    load_float32,
    load_float32_part,
    store_bfloat16_part,
    store_float16_part,
    store_float32,
    store_float32_part,
)
from aclnn.kernels.cpu.simd.vector import absolute, select, splat
from aclnn.kernels.cpu.structs import (
    load_one_float32,
    load_one_int64,
    load_one_uint16,
    scratch,
    store_one_float32,
    store_one_int64,
    store_one_uint16,
)
from aclnn.kernels.cpu.threads import Loop


def transfer(
    view: int, back: int, first_row: int, row_count: int, first: int, count: int, tile: int, pitch: int, room: int
) -> None:
    """Bring rows and columns of a tensor of any layout into float32 rows at ``tile``, ``pitch`` bytes apart, or back.

    Rows of the tile are written in whole vectors; what comes after the last column means nothing.
    ``view`` is where the tensor's fields are (see ``job``); ``room`` is for a vector, then 8 bytes for each row and
    column.
    """
    code = load_one_int64(view + CODE)
    dims = view + load_one_int64(view + COLUMNS_AT)
    size = 4 if code == FLOAT else 2
    rows_at, columns_at = room + 64, room + 64 + 8 * row_count
    for k in range(row_count):
        store_one_int64(rows_at + 8 * k, row_at(view, first_row + k))
    for j in range(count):
        store_one_int64(columns_at + 8 * j, offset(dims, first + j))
    direct = load_one_int64(view + DIRECT)
    # A square of elements at a time uses whole cache lines in both directions.
    for k0 in range(0, row_count, 16):
        for j in range(0, count, 16):
            lanes = min(16, count - j)
            for k in range(k0, min(row_count, k0 + 16)):
                row = load_one_int64(rows_at + 8 * k)
                place = row + load_one_int64(columns_at + 8 * j) if direct else room
                if not direct and not back:
                    for i in range(lanes):
                        copy_one(size, row + load_one_int64(columns_at + 8 * (j + i)), room + size * i)
                target = tile + k * pitch + 4 * j
                if back:
                    store_number(code, place, load_float32(target), lanes)
                elif code == FLOAT:
                    store_float32(target, load_float32_part(place, lanes))
                elif code == FLOAT16:
                    store_float32(target, load_float16_part(place, lanes))
                else:
                    store_float32(target, load_bfloat16_part(place, lanes))
                if not direct and back:
                    for i in range(lanes):
                        copy_one(size, room + size * i, row + load_one_int64(columns_at + 8 * (j + i)))


def top_weight(w: int, count: int, target: int) -> None:
    """The largest magnitude among float32 weights; infinite if one is NaN."""
    top = splat(np.float32(0.0))
    for j in range(0, count & -16, 16):
        value = absolute(load_float32(w + 4 * j))
        top = select(value <= top, top, select(value == value, value, np.float32(np.inf)))
    rest = count & 15
    if rest:
        value = absolute(load_float32_part(w + 4 * (count - rest), rest))
        top = select(value <= top, top, select(value == value, value, np.float32(np.inf)))
    store_one_float32(target, largest_lane(top))


STRETCH = 512
"""Columns of one partial sum that are added before those of the next: read along, and in all in the L1 cache."""


@register_jitable
def add_sums(total: int, sums: int, size: int) -> None:
    """Add float64 sums, so many bytes of them, to those at ``total``; both are padded to sixteen."""
    for at in range(0, size, 128):
        add_doubles(total + at, sums + at)


@register_jitable
def store_number(code: int, address: int, value: Any, count: int) -> None:
    """Round and write the first ``count`` of sixteen elements; ``code`` is the ACL number of their data type."""
    if code == FLOAT and count == 16:
        store_float32(address, value)
    elif code == FLOAT:
        store_float32_part(address, value, count)
    elif code == FLOAT16:
        store_float16_part(address, value, count)
    else:
        store_bfloat16_part(address, value, count)


def finish() -> Loop:
    """Columns of dw or db: the partial sums added in order, rounded once; zeros when there are none.

    The first partial sum is used up. Shared by threads as in ``chunks``; the operands: the job, DW or DB, where the
    partial sums are, and their number.
    """

    def part(job: int, gradient: int, partials: int, partial_count: int, unused: int, first: int, last: int) -> None:
        view, pitch = job + of(job, gradient), of(job, PARTIAL_BYTES)
        target, code = load_one_int64(view + BASE), load_one_int64(view + CODE)
        dims = view + load_one_int64(view + COLUMNS_AT)
        direct, size, lanes = load_one_int64(view + DIRECT), load_one_int64(view + SIZE), scratch(64)
        if partial_count:
            for column in range(first, last, STRETCH):
                at, count = partials + 8 * column, min(STRETCH, last - column)
                for p in range(1, partial_count):
                    add_sums(at, at + p * pitch, 8 * count)
        for j in range(first, last, 16):
            count = min(16, last - j)
            value = splat(np.float32(0.0))
            if partial_count:
                value = load_rounded(partials + 8 * j) if code == FLOAT else load_rounded_to_odd(partials + 8 * j)
            if direct:
                store_number(code, target + size * j, value, count)
            else:
                store_number(code, lanes, value, count)
                for k in range(count):
                    copy_one(size, lanes + size * k, target + offset(dims, j + k))

    return shared(part)


@register_jitable
def copy_one(size: int, source: int, target: int) -> None:
    """Copy an element of 4 or 2 bytes."""
    if size == 4:
        store_one_float32(target, load_one_float32(source))
    else:
        store_one_uint16(target, load_one_uint16(source))


def copy(size: int, count: int, source: int, target: int, source_dims: int, target_dims: int) -> None:
    """Copy elements in logical order, so that the last one wins where the target's elements coincide."""
    for i in range(count):
        copy_one(size, source + offset(source_dims, i), target + offset(target_dims, i))
