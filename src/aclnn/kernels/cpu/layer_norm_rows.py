"""LayerNorm's gradients over blocks of rows whose elements lie side by side: the compiled part for rows of any length
that fit in a core's cache.

A row is cut into segments of 512 columns, and rows are taken in groups of four: the sums of every row, dw and db, a
verdict on each row, then dx while the rows are still in the cache:

    c1 = Σ g / N,  c2 = Σ g·x̂ / N              lanes in float32 within a segment, segments in float64
    dx = fma(-x̂, c2, g - c1)·rstd              g = dy·w, x̂ = (x - mean)·rstd
    dw += fma(dy3, x̂3, … fma(dy1, x̂1, dy0·x̂0)), db += ((dy0 + dy1) + dy2) + dy3    groups in float64

docs/numerics-layer-norm.md has the limits and the error bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_exact import exact, judge
from aclnn.kernels.cpu.layer_norm_job import (
    COEFFICIENT,
    DB_OFFSET,
    DX,
    DY,
    FRESH,
    GROUP,
    IN_PLACE,
    PARTIAL_BYTES,
    PARTIALS,
    RECORD,
    ROW_MEAN,
    ROW_RSTD,
    SEGMENT,
    SEGMENTS,
    SLOW,
    STEP,
    STREAMED,
    WEIGHT,
    WEIGHT_STEP,
    N,
    X,
    load_statistics,
    row_at,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element
from aclnn.kernels.cpu.layer_norm_segments import Wanted, applying, summing
from aclnn.kernels.cpu.loops import Loop, shared
from aclnn.kernels.cpu.memory import (
    finish_streams,
    load_one_float32,
    load_one_int64,
    scratch,
    store_float32,
    store_one_float32,
)
from aclnn.kernels.cpu.vector import splat

SHORT = 64
"""Rows up to here are summed four at a time, and the processor's own prefetching keeps up with them. Longer ones, up to
a segment, are summed and written one by one: on Zen 4 256 columns then take 5.5 ns for sixteen elements instead of 9,
because reading and writing overlap. Still longer ones, again summed four at a time, leave the L1 cache in between."""
LONGEST = 1 << 15
"""Columns of the longest row that a block may have: its records then fit in the room."""

# What the room of a thread holds, in bytes: zeros for rows that are missing from a group; float32 terms of dw and db;
# a group's coefficients and records.
TERMS_AT = 4 * SEGMENT
COEFFICIENTS_AT = TERMS_AT + 8 * SEGMENT
RECORDS_AT = COEFFICIENTS_AT + COEFFICIENT * GROUP
ROOM = RECORDS_AT + RECORD * GROUP * (LONGEST // SEGMENT)


@register_jitable
def clear(address: int, size: int) -> None:
    """Zeros, in whole vectors."""
    zero = splat(np.float32(0.0))
    for at in range(address, address + size, 64):
        store_float32(at, zero)


@register_jitable
def rows_at(view: int, row: int, count: int, shift: int, missing: int) -> Any:
    """Where each row of a group begins in a tensor, ``shift`` bytes further on; ``missing`` for other rows."""
    return (
        row_at(view, row) + shift,
        row_at(view, row + 1) + shift if count > 1 else missing,
        row_at(view, row + 2) + shift if count > 2 else missing,
        row_at(view, row + 3) + shift if count > 3 else missing,
    )


@register_jitable
def load_group_statistics(job: int, row: int, count: int, coefficients: int) -> None:
    """Put mean and rstd of a group's rows into their coefficients; zeros for rows that are missing."""
    for k in range(count):
        load_statistics(job, row + k, coefficients + COEFFICIENT * k)
    for k in range(count, GROUP):
        store_one_float32(coefficients + COEFFICIENT * k + ROW_MEAN, 0.0)
        store_one_float32(coefficients + COEFFICIENT * k + ROW_RSTD, 0.0)


def blocks(dy: Element, x: Element, dx: Element, wanted: Wanted) -> Loop:
    """The kernel for these elements; those of tensors that are absent or not read do not matter.

    Its operands: the job, the first row, rows per block, the row after the last, and which accumulators are the first
    block's. Chunks are blocks.
    """
    sum_group, sum_row, settle = summing(dy, x, wanted)
    apply_row = applying(dy, x, dx)
    add_exactly, apply_exactly = exact(dy, x, dx)
    dy_size, x_size, dx_size = dy.size, x.size, dx.size
    wants_dx, wants_x = wanted.dx, wanted.x

    @register_jitable
    def judge_row(job: int, row: int, records: int, coefficients: int) -> None:
        if judge(job, records, coefficients):
            dy_at = row_at(job + load_one_int64(job + 8 * DY), row)
            x_at = row_at(job + load_one_int64(job + 8 * X), row)
            weight, step = load_one_int64(job + 8 * WEIGHT), load_one_int64(job + 8 * WEIGHT_STEP)
            add_exactly(dy_at, x_at, weight, step // SEGMENT, load_one_int64(job + 8 * N), coefficients)

    @register_jitable
    def write_segment(job: int, row: int, segment: int, coefficients: int, dy_ahead: int, x_ahead: int) -> None:
        n, step = load_one_int64(job + 8 * N), load_one_int64(job + 8 * WEIGHT_STEP)
        column = segment * SEGMENT
        columns = min(SEGMENT, n - column)
        dy_at = row_at(job + load_one_int64(job + 8 * DY), row) + column * dy_size
        x_at = row_at(job + load_one_int64(job + 8 * X), row) + column * x_size
        dx_at = row_at(job + load_one_int64(job + 8 * DX), row) + column * dx_size
        w_at = load_one_int64(job + 8 * WEIGHT) + segment * step
        if load_one_float32(coefficients + SLOW) > 0.0:
            apply_exactly(n, dy_at, x_at, dx_at, w_at, step // SEGMENT, columns, coefficients)
        else:
            streamed = load_one_int64(job + 8 * STREAMED)
            apply_row(dy_at, x_at, dx_at, w_at, columns, coefficients, dy_ahead, x_ahead, streamed)

    @register_jitable
    def sum_segment(
        job: int, row: int, count: int, segment: int, room: int, dy_ahead: int, x_ahead: int, dw_at: int, db_at: int
    ) -> None:
        column, segments = segment * SEGMENT, load_one_int64(job + 8 * SEGMENTS)
        sum_group(
            rows_at(job + load_one_int64(job + 8 * DY), row, count, column * dy_size, room),
            rows_at(job + load_one_int64(job + 8 * X), row, count, column * x_size, room),
            load_one_int64(job + 8 * WEIGHT) + segment * load_one_int64(job + 8 * WEIGHT_STEP),
            min(SEGMENT, load_one_int64(job + 8 * N) - column), room + COEFFICIENTS_AT, dy_ahead, x_ahead,
            room + RECORDS_AT + RECORD * segment, RECORD * segments, dw_at + 8 * column, db_at + 8 * column,
        )  # fmt: skip

    @register_jitable
    def do_one_by_one(
        job: int, row: int, count: int, room: int, dy_ahead: int, x_ahead: int, dw_at: int, db_at: int
    ) -> None:
        n, weight = load_one_int64(job + 8 * N), load_one_int64(job + 8 * WEIGHT)
        dy_view, x_view = job + load_one_int64(job + 8 * DY), job + load_one_int64(job + 8 * X)
        for k in range(count):
            coefficients = room + COEFFICIENTS_AT + COEFFICIENT * k
            dy_at, x_at = row_at(dy_view, row + k), row_at(x_view, row + k) if wants_x else 0
            records, terms = room + RECORDS_AT, room + TERMS_AT
            sum_row(dy_at, x_at, weight, n, coefficients, dy_ahead, x_ahead, records, terms)
            if wants_dx:
                judge_row(job, row + k, records, coefficients)
                write_segment(job, row + k, 0, coefficients, 0, 0)
        dys = rows_at(dy_view, row, count, 0, room)
        xs = rows_at(x_view, row, count, 0, room) if wants_x else dys
        settle(dys, xs, n, room + COEFFICIENTS_AT, room + TERMS_AT, dw_at, db_at)

    @register_jitable
    def do_together(
        job: int, row: int, count: int, room: int, dy_ahead: int, x_ahead: int, dw_at: int, db_at: int
    ) -> None:
        segments = load_one_int64(job + 8 * SEGMENTS)
        # Half of what comes next is prefetched in each pass, so that reads and writes share the memory evenly.
        later = x_ahead if wants_dx else 0
        for segment in range(segments):
            sum_segment(job, row, count, segment, room, dy_ahead, x_ahead - later, dw_at, db_at)
        if wants_dx:
            for k in range(count):
                records = room + RECORDS_AT + RECORD * segments * k
                judge_row(job, row + k, records, room + COEFFICIENTS_AT + COEFFICIENT * k)
            for segment in range(segments):
                for k in range(count):
                    write_segment(job, row + k, segment, room + COEFFICIENTS_AT + COEFFICIENT * k, 0, later)

    @register_jitable
    def do_group(job: int, row: int, stop: int, room: int, dw_at: int, db_at: int) -> None:
        n, count = load_one_int64(job + 8 * N), min(GROUP, stop - row)
        dy_ahead, x_ahead = 0, 0
        if n > SHORT and row + GROUP < stop:
            dy_ahead = GROUP * load_one_int64(job + load_one_int64(job + 8 * DY) + STEP)
            if wants_x:
                x_ahead = GROUP * load_one_int64(job + load_one_int64(job + 8 * X) + STEP)
        if wants_x:
            load_group_statistics(job, row, count, room + COEFFICIENTS_AT)
        if SHORT < n <= SEGMENT and not load_one_int64(job + 8 * IN_PLACE):
            do_one_by_one(job, row, count, room, dy_ahead, x_ahead, dw_at, db_at)
        else:
            do_together(job, row, count, room, dy_ahead, x_ahead, dw_at, db_at)

    def part(job: int, first_row: int, block_rows: int, last_row: int, number: int, first: int, last: int) -> None:
        room = scratch(ROOM)
        clear(room, COEFFICIENTS_AT)
        size = load_one_int64(job + 8 * PARTIAL_BYTES)
        for block in range(first, last):
            dw_at = load_one_int64(job + 8 * PARTIALS) + (number + block) * size
            if load_one_int64(job + 8 * FRESH):
                clear(dw_at, size)
            row = first_row + block * block_rows
            stop = min(last_row, row + block_rows)
            while row < stop:
                do_group(job, row, stop, room, dw_at, dw_at + load_one_int64(job + 8 * DB_OFFSET))
                row += GROUP
        finish_streams()

    return shared(part)
