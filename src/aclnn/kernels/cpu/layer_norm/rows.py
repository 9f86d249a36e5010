"""LayerNorm's gradients over blocks of rows whose elements lie side by side: how a core goes through them.

A row is cut into segments of 512 columns, and rows are taken in groups of four: the sums of every row, dw and db, a
verdict on each row, then dx while the rows are still in the cache:

    c1 = Σ g / N,  c2 = Σ g·x̂ / N              lanes in float32 within a segment, segments in float64
    dx = fma(-x̂, c2, g - c1)·rstd              g = dy·w, x̂ = (x - mean)·rstd
    dw += fma(dy3, x̂3, … fma(dy1, x̂1, dy0·x̂0)), db += ((dy0 + dy1) + dy2) + dy3    groups in float64

The arithmetic is in ``segments``, in kernels for each data type that are called by their addresses.
docs/numerics-layer-norm.md has the limits and the error bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.columns import add_sums
from aclnn.kernels.cpu.layer_norm.job import (
    ADD_EXACTLY,
    ALL_COLUMNS,
    BEFORE,
    COEFFICIENT,
    COLUMNS,
    DB_AT,
    DB_OFFSET,
    DW_AT,
    DX,
    DXS,
    DY,
    DY_AHEAD,
    DYS,
    FRAME,
    FRESH,
    GROUP,
    JUDGE,
    LOST,
    MEAN,
    MEASURE,
    PARTIAL_BYTES,
    PARTIAL_COUNT,
    PARTIALS,
    PITCH,
    RECORD,
    RECORD_AT,
    ROW,
    ROW_MEAN,
    ROW_RSTD,
    RSTD,
    SEGMENT,
    SEGMENTS,
    SET_ROWS,
    SETS,
    SIZE,
    SLOW,
    STEP,
    SUM_GROUP,
    SUM_LAST_ROW,
    SUM_ROW,
    TERMS,
    WEIGHT,
    WRITE_EXACTLY,
    WRITE_GROUP,
    WRITE_ROW,
    X_AHEAD,
    XS,
    K,
    N,
    W,
    X,
    load_statistic,
    of,
    row_at,
)
from aclnn.kernels.cpu.layer_norm.lanes import any_not_finite, call, call_judge
from aclnn.kernels.cpu.simd.memory import store_float32
from aclnn.kernels.cpu.simd.vector import splat
from aclnn.kernels.cpu.structs import (
    invoke,
    load_one_float32,
    load_one_int64,
    scratch,
    store_one_float32,
    store_one_int64,
)
from aclnn.kernels.cpu.threads import Loop

SHORT = 64
"""Rows that are not taken in sets are done four at a time up to here, and the processor's own prefetching keeps up with
them. Longer ones, up to a segment, are summed and written one by one: on Zen 4 256 columns then take 5.5 ns for sixteen
elements instead of 9, because reading and writing overlap. Still longer ones, again summed four at a time, leave the L1
cache in between."""
PIECE = 2 * SEGMENT
"""Columns of dx that are written for one row of a group after the other, which is also the order in which the next
group is prefetched: its sums need the first columns of all its rows first."""
LONGEST = 1 << 15
"""Columns of the longest row that a block may have: its records then fit in the room."""

# What the room of a thread holds, in bytes: zeros for rows that are missing from a group and for terms to begin with;
# float32 terms of dw and db; a group's coefficients and records.
TERMS_AT = 8 * SEGMENT
COEFFICIENTS_AT = TERMS_AT + 8 * SEGMENT
RECORDS_AT = COEFFICIENTS_AT + COEFFICIENT * GROUP
ROOM = RECORDS_AT + RECORD * GROUP * (LONGEST // SEGMENT)


@register_jitable
def clear(address: int, size: int) -> None:
    """Zeros, in whole vectors."""
    zero = splat(np.float32(0.0))
    for at in range(address, address + size, 64):
        store_float32(at, zero)


@register_jitable(forceinline=True)
def place_row(job: int, tensor: int, row: int, column: int, frame: int, place: int) -> None:
    """Put into a frame where a column is in a row."""
    view = job + of(job, tensor)
    store_one_int64(frame + place, row_at(view, row) + column * load_one_int64(view + SIZE))


@register_jitable
def place_rows(job: int, tensor: int, row: int, count: int, column: int, frame: int, place: int, missing: int) -> None:
    """Put into a frame where a column is in each row of a group; ``missing`` for others. No tensor, nothing."""
    if of(job, tensor):
        place_row(job, tensor, row, column, frame, place)
        first, step = load_one_int64(frame + place), load_one_int64(job + of(job, tensor) + STEP)
        if step and count == GROUP:
            store_one_int64(frame + place + 8, first + step)
            store_one_int64(frame + place + 16, first + 2 * step)
            store_one_int64(frame + place + 24, first + 3 * step)
            return
        for k in range(1, GROUP):
            if k < count:
                place_row(job, tensor, row + k, column, frame, place + 8 * k)
            else:
                store_one_int64(frame + place + 8 * k, missing)


@register_jitable
def place_columns(job: int, first: int, count: int, frame: int) -> None:
    """Put the weights of so many columns, and their number, into a frame."""
    store_one_int64(frame + W, of(job, WEIGHT) + 4 * first)
    store_one_int64(frame + COLUMNS, count)


@register_jitable
def load_statistics(job: int, row: int, count: int, coefficients: int) -> None:
    """Put mean and rstd of a group's rows into their coefficients, if x is read; zeros for rows that are missing."""
    if of(job, X):
        for k in range(GROUP):
            at = coefficients + COEFFICIENT * k
            mean, rstd = np.float32(0.0), np.float32(0.0)
            if k < count:
                mean = load_statistic(job + of(job, MEAN), row + k)
                rstd = load_statistic(job + of(job, RSTD), row + k)
            store_one_float32(at + ROW_MEAN, mean)
            store_one_float32(at + ROW_RSTD, rstd)


@register_jitable
def is_slow(coefficients: int) -> Any:
    """Whether float32 will not do for dx of the row with these coefficients."""
    return load_one_float32(coefficients + SLOW) > 0.0


@register_jitable
def place_part(job: int, row: int, first: int, count: int, coefficients: int, frame: int) -> None:
    """Put columns of a row into a frame, as far as they are read."""
    place_row(job, DY, row, first, frame, DYS)
    place_row(job, X, row, first, frame, XS)
    place_columns(job, first, count, frame)
    store_one_int64(frame + ROW, coefficients)


@register_jitable
def write_part(job: int, row: int, first: int, count: int, coefficients: int, frame: int) -> None:
    """dx of columns of a row."""
    place_part(job, row, first, count, coefficients, frame)
    place_row(job, DX, row, first, frame, DXS)
    call(of(job, WRITE_EXACTLY) if is_slow(coefficients) else of(job, WRITE_ROW), frame)


@register_jitable
def _judge_row(job: int, row: int, records: int, coefficients: int, frame: int) -> Any:
    """The verdict on a row, and its float64 sums where it takes them."""
    measured = of(job, MEASURE) == 0
    call_judge(of(job, JUDGE), job, records, coefficients, measured)
    if is_slow(coefficients) and not measured:
        store_one_int64(frame + K, 0)
        for first in range(0, of(job, N), SEGMENT):
            place_part(job, row, first, min(SEGMENT, of(job, N) - first), coefficients, frame)
            store_one_int64(frame + RECORD_AT, records + RECORD * (first // SEGMENT))
            call(of(job, MEASURE), frame)
        call_judge(of(job, JUDGE), job, records, coefficients, 1)
    slow = is_slow(coefficients)
    if slow:
        place_part(job, row, 0, of(job, N), coefficients, frame)
        call(of(job, ADD_EXACTLY), frame)
    return slow


@register_jitable
def _do_one_by_one(job: int, row: int, count: int, room: int, frame: int, single: int) -> None:
    """A group of rows of one segment. A row is written after the next one's sums, which hide the verdict's latency."""
    coefficients, records, terms = room + COEFFICIENTS_AT, room + RECORDS_AT, room + TERMS_AT
    store_one_int64(frame + ROW, coefficients)
    store_one_int64(frame + TERMS, terms)
    place_rows(job, DY, row, count, 0, frame, DYS, room)
    place_rows(job, X, row, count, 0, frame, XS, room)
    place_columns(job, 0, of(job, N), frame)
    for k in range(count + 1):
        if k < count:
            store_one_int64(frame + K, k)
            store_one_int64(frame + RECORD_AT, records + RECORD * k)
            store_one_int64(frame + BEFORE, terms if k else room)
            call(of(job, SUM_ROW) if k + 1 < count else of(job, SUM_LAST_ROW), frame)
        if of(job, DX) and k:
            done = coefficients + COEFFICIENT * (k - 1)
            _judge_row(job, row + k - 1, records + RECORD * (k - 1), done, single)
            write_part(job, row + k - 1, 0, of(job, N), done, single)


@register_jitable
def sum_part(
    job: int, row: int, count: int, first: int, last: int, record: int, frame: int, zeros: int, dw_at: int, db_at: int
) -> None:
    """Records, dw and db of a group's columns, from the beginning of a segment on."""
    size = last - first if count == GROUP else SEGMENT  # there are zeros for a segment of the rows that are missing
    for column in range(first, last, size):
        place_rows(job, DY, row, count, column, frame, DYS, zeros)
        place_rows(job, X, row, count, column, frame, XS, zeros)
        place_columns(job, column, min(size, last - column), frame)
        store_one_int64(frame + RECORD_AT, record + RECORD * ((column - first) // SEGMENT))
        store_one_int64(frame + DW_AT, dw_at + 8 * column)
        store_one_int64(frame + DB_AT, db_at + 8 * column)
        call(of(job, SUM_GROUP), frame)


@register_jitable
def _do_together(job: int, row: int, count: int, room: int, frame: int, single: int) -> None:
    """A group of rows: all sums, then all of dx. Each pass prefetches the next group."""
    coefficients, records, segments = room + COEFFICIENTS_AT, room + RECORDS_AT, of(job, SEGMENTS)
    dw_at, db_at = load_one_int64(frame + DW_AT), load_one_int64(frame + DB_AT)
    store_one_int64(frame + PITCH, RECORD * segments)
    store_one_int64(frame + ROW, coefficients)
    sum_part(job, row, count, 0, of(job, N), records, frame, room, dw_at, db_at)
    if of(job, DX):
        slow = False
        for k in range(count):
            slow |= _judge_row(job, row + k, records + RECORD * segments * k, coefficients + COEFFICIENT * k, single)
        if of(job, WRITE_GROUP) and count == GROUP and not slow:
            place_rows(job, DX, row, count, 0, frame, DXS, 0)
            call(of(job, WRITE_GROUP), frame)
        else:
            for first in range(0, of(job, N), PIECE):
                size = min(PIECE, of(job, N) - first)
                for k in range(count):
                    write_part(job, row + k, first, size, coefficients + COEFFICIENT * k, single)
    store_one_int64(frame + DW_AT, dw_at)
    store_one_int64(frame + DB_AT, db_at)


@register_jitable
def _look_for_lost(job: int, sums: int, size: int) -> None:
    """Note whether sums of dw and db are not all finite."""
    for at in range(sums, sums + size, 128):
        if any_not_finite(at):
            store_one_int64(job + 8 * LOST, 1)


def blocks(one_by_one: bool) -> Loop:
    """Blocks of rows, shared by threads as in ``chunks``.

    The operands: the job, the first row, rows per block, the row after the last, and which accumulators are the first
    block's. One by one, rows have one segment, and dx may not be dy or x: dw and db may have to read them again.

    A thread that does several blocks alone adds their sums up as it goes, in two accumulators that stay in its cache.
    On Zen 4 rows of 4,096 columns then take 5 to 8 % less than where the sums of 64 blocks go to memory and come back.
    """
    do = _do_one_by_one if one_by_one else _do_together

    def run(
        job: int, first_row: int, block_rows: int, last_row: int, number: int, begun: int, step: int, end: int
    ) -> None:
        room, size, n = scratch(ROOM), of(job, PARTIAL_BYTES), of(job, N)
        frame, single = scratch(FRAME), scratch(FRAME)  # a group's, and one row's
        reached = scratch(8)
        clear(room, TERMS_AT)
        store_one_int64(single + ALL_COLUMNS, n)
        dy_step = load_one_int64(job + of(job, DY) + STEP)
        x_step = load_one_int64(job + of(job, X) + STEP) if of(job, X) else 0
        sums, alone = of(job, PARTIALS) + number * size, begun == 0 and end > 1
        block = fetch_add(begun, step) if begun else 0
        while block < end:
            dw_at = sums + (min(block, 1) if alone else block) * size
            if of(job, FRESH):
                clear(dw_at, size)
            store_one_int64(frame + DW_AT, dw_at)
            store_one_int64(frame + DB_AT, dw_at + of(job, DB_OFFSET))
            first = first_row + block * block_rows
            stop = min(last_row, first + block_rows)
            while first < stop:
                last = stop
                if of(job, SETS):
                    db_at = dw_at + of(job, DB_OFFSET)
                    invoke(of(job, SETS), job, first, stop, of(job, SET_ROWS), dw_at, db_at, reached, last_row - stop)
                    first = load_one_int64(reached)
                    last = min(stop, first + of(job, SET_ROWS))
                for row in range(first, last, GROUP):
                    count = min(GROUP, stop - row)
                    following = n > SHORT and row + GROUP < stop
                    for place in (frame, single):
                        store_one_int64(place + DY_AHEAD, GROUP * dy_step if following else 0)
                        store_one_int64(place + X_AHEAD, GROUP * x_step if following else 0)
                    load_statistics(job, row, count, room + COEFFICIENTS_AT)
                    do(job, row, count, room, frame, single)
                first = last
            if not alone:
                _look_for_lost(job, dw_at, size)
            elif block:
                add_sums(sums, dw_at, size)
            block = fetch_add(begun, step) if begun else block + 1
        if alone:
            _look_for_lost(job, sums, size)
            store_one_int64(job + 8 * PARTIAL_COUNT, 1)
        finish_streams()

    return run
