"""LayerNorm's gradients over rows of columns: the compiled part for rows whose elements lie side by side.

A row is cut into segments of 512 columns, and rows are taken in groups of four. For each group: the sums of every row
(one pass, 16 lanes), a verdict on each row, then one pass for dx, dw and db while the rows are still in the cache:

    c1 = Σ g / N,  c2 = Σ g·x̂ / N              lanes in float32 within a segment, segments in float64
    dx = fma(-x̂, c2, g - c1)·rstd              g = dy·w, x̂ = (x - mean)·rstd
    dw += fma(dy3, x̂3, … fma(dy1, x̂1, dy0·x̂0)), db += ((dy0 + dy1) + dy2) + dy3    groups in float64

Where magnitudes could overflow or vanish in float32 these kernels stop, and ``layer_norm_exact`` takes over.
docs/numerics-layer-norm.md has the limits and the error bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_lanes import (
    Element,
    accumulate,
    largest_lane,
    maximum,
    store_int,
)
from aclnn.kernels.cpu.memory import (
    finish_streams,
    first_lanes,
    load_bfloat16_part,
    load_float16_part,
    load_float32,
    load_float32_part,
    load_one_float32,
    load_one_int64,
    prefetch,
    store_float32,
    store_one_float32,
)
from aclnn.kernels.cpu.vector import absolute, fma, lane, select, splat, total

Loop = Callable[..., None]

SEGMENT = 512
"""Columns per segment: its accumulators for dw and db, 4 KiB, stay in the L1 cache."""
GROUP = 4
"""Rows summed in float32 before they go to the float64 accumulators."""

# What `job` holds, one int64 each; TOP_WEIGHT is the float32 max(abs(w)).
(
    N, SEGMENTS, STREAMED, WEIGHT, WEIGHT_STEP, TOP_WEIGHT, PARTIALS, PARTIAL_BYTES, DB_OFFSET, RECORDS, COEFFICIENTS,
    MEAN, RSTD, DY, X, DX,
) = range(16)  # fmt: skip
JOB_FIELDS = 16
# MEAN … DX hold the distance in bytes from the job to a tensor's own fields. ROWS and the fields at distance COLUMNS_AT
# are dimensions: their number, then extent and stride in bytes of each, innermost first.
BASE, CODE, AHEAD, COLUMNS_AT, ROWS = range(0, 40, 8)

# What `scratch` holds, in bytes: accumulators of a segment; of a group, row addresses of dy, x and dx, coefficients and
# records.
TILE_DW, TILE_DB = 0, 4 * SEGMENT
ROW_AT = 8 * SEGMENT
COEFFICIENT_AT = ROW_AT + 32 * GROUP
RECORD_AT = COEFFICIENT_AT + 64 * GROUP

# A record, one for each row and segment: float32 each.
SUM_G, SUM_GX, TOP_DY, TOP_XHAT = range(0, 16, 4)
RECORD = 16
# The coefficients of a row, float32 each; the last three belong to a group and are those of its first row. SLOW:
# float32 will not do for the row's dx. LARGE, LARGE_DY: nor for the group's terms of dw, db. UNFIT: any of these.
ROW_MEAN, ROW_RSTD, MINUS_C1, MINUS_C2, SLOW, LARGE, LARGE_DY, UNFIT = range(0, 32, 4)
COEFFICIENT = 32

# Within these limits no float32 intermediate overflows and none that vanishes matters.
MOST_DY, MOST_G, MOST_XHAT = 2.0**90, 2.0**60, 2.0**30
LEAST_C1, LEAST_C2 = 2.0**-90, 2.0**-60

ALL, FORCED, SUMS, JUDGE, APPLY = range(5)
"""What a call does: everything for its rows, or one of the three steps."""
FLOAT, FLOAT16 = 0, 1
"""ACL's numbers of these data types; any other is bfloat16."""


class Wanted(NamedTuple):
    """Which outputs a kernel computes."""

    dx: bool
    dw: bool
    db: bool

    @property
    def x(self) -> bool:
        """Whether x is read at all."""
        return self.dx or self.dw


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
def load_statistics(job: int, index: int, row: int) -> None:
    """Put a row's mean and rstd into its coefficients."""
    for tensor, place in ((MEAN, ROW_MEAN), (RSTD, ROW_RSTD)):
        view = job + load_one_int64(job + 8 * tensor)
        address, code = load_one_int64(view + BASE) + offset(view + ROWS, index), load_one_int64(view + CODE)
        if code == FLOAT:
            number = load_one_float32(address)
        elif code == FLOAT16:
            number = lane(load_float16_part(address, 1), 0)
        else:
            number = lane(load_bfloat16_part(address, 1), 0)
        store_one_float32(row + place, number)


def summing(dy: Element, x: Element, wanted: Wanted) -> Any:
    """A function that takes one row's segment to its record: Σg, Σg·x̂ and the largest |dy| and |x̂|."""
    load_dy, load_dy_part, load_x, load_x_part = dy.load, dy.load_part, x.load, x.load_part
    dy_size, x_size, wants_x, wants_dx = dy.size, x.size, wanted.x, wanted.dx

    @register_jitable
    def sum_segment(dy_at: int, x_at: int, w_at: int, columns: int, row: int, ahead: int, record: int) -> None:
        mean, rstd = splat(load_one_float32(row + ROW_MEAN)), splat(load_one_float32(row + ROW_RSTD))
        zero = splat(np.float32(0.0))
        sum_g, sum_gx, top_dy, top_xhat = zero, zero, zero, zero
        whole = columns & -16
        for j in range(0, whole, 16):
            prefetch(dy_at + j * dy_size + ahead)
            y = load_dy(dy_at + j * dy_size)
            top_dy = maximum(absolute(y), top_dy)
            if wants_x:
                xhat = (load_x(x_at + j * x_size) - mean) * rstd
                top_xhat = maximum(absolute(xhat), top_xhat)
                if wants_dx:
                    g = y * load_float32(w_at + 4 * j)
                    sum_g = sum_g + g
                    sum_gx = fma(g, xhat, sum_gx)
        rest = columns - whole
        if rest:
            y = load_dy_part(dy_at + whole * dy_size, rest)
            top_dy = maximum(absolute(y), top_dy)
            if wants_x:
                xhat = (load_x_part(x_at + whole * x_size, rest) - mean) * rstd
                xhat = select(first_lanes(rest), xhat, zero)
                top_xhat = maximum(absolute(xhat), top_xhat)
                if wants_dx:
                    g = y * load_float32_part(w_at + 4 * whole, rest)
                    sum_g = sum_g + g
                    sum_gx = fma(g, xhat, sum_gx)
        store_one_float32(record + TOP_DY, largest_lane(top_dy))
        store_one_float32(record + TOP_XHAT, largest_lane(top_xhat))
        store_one_float32(record + SUM_G, total(sum_g))
        store_one_float32(record + SUM_GX, total(sum_gx))

    return sum_segment


@register_jitable
def judge(job: int, wants_dx: bool, count: int, records: int, coefficients: int) -> Any:
    """Turn the records of a group's rows into their coefficients; true where float32 will not do for an output."""
    n, segments = np.float64(load_one_int64(job + 8 * N)), load_one_int64(job + 8 * SEGMENTS)
    top_w = np.float64(load_one_float32(job + 8 * TOP_WEIGHT))
    unfit, large, large_dy = False, False, False
    for k in range(count):
        row = coefficients + COEFFICIENT * k
        top_dy, top_xhat, sum_g, sum_gx = np.float32(0.0), np.float32(0.0), 0.0, 0.0
        for s in range(segments):
            record = records + RECORD * (k * segments + s)
            top_dy = max(top_dy, load_one_float32(record + TOP_DY))
            top_xhat = max(top_xhat, load_one_float32(record + TOP_XHAT))
            sum_g += np.float64(load_one_float32(record + SUM_G))
            sum_gx += np.float64(load_one_float32(record + SUM_GX))
        c1, c2 = sum_g / n, sum_gx / n
        slow = False
        if wants_dx:
            top_g = np.float64(top_dy) * top_w
            finite = c1 - c1 == 0.0 and c2 - c2 == 0.0
            bounded = top_g <= MOST_G and top_xhat <= MOST_XHAT
            visible = abs(c1) >= LEAST_C1 or abs(c2) >= LEAST_C2 or top_g == 0.0
            slow = not (finite and bounded and visible)
        store_one_float32(row + MINUS_C1, np.float32(-c1))
        store_one_float32(row + MINUS_C2, np.float32(-c2))
        store_one_float32(row + SLOW, np.float32(slow))
        large_dy |= top_dy > MOST_DY
        large |= top_dy > MOST_DY or top_xhat > MOST_XHAT
        unfit |= slow
    unfit |= large
    store_one_float32(coefficients + UNFIT, np.float32(unfit))
    store_one_float32(coefficients + LARGE, np.float32(large))
    store_one_float32(coefficients + LARGE_DY, np.float32(large_dy))
    return unfit


def applying(dy: Element, x: Element, dx: Element, wanted: Wanted) -> Any:
    """A function that writes one row's segment of dx and adds dy·x̂ and dy to the accumulators of the segment."""
    load_dy, load_dy_part, load_x, load_x_part = dy.load, dy.load_part, x.load, x.load_part
    store_dx, store_dx_part, stream_dx = dx.store, dx.store_part, dx.stream
    dy_size, x_size, dx_size, wants_x = dy.size, x.size, dx.size, wanted.x
    wants_dx, wants_dw, wants_db = wanted

    @register_jitable
    def apply_row(
        dy_at: int, x_at: int, dx_at: int, w_at: int, columns: int, tile: int, row: int, ahead: int, streamed: int
    ) -> None:
        mean, rstd = splat(load_one_float32(row + ROW_MEAN)), splat(load_one_float32(row + ROW_RSTD))
        minus_c1 = splat(load_one_float32(row + MINUS_C1))
        minus_c2 = splat(load_one_float32(row + MINUS_C2))
        whole = columns & -16
        for j in range(0, whole, 16):
            y = load_dy(dy_at + j * dy_size)
            xhat = y
            if wants_x:
                prefetch(x_at + j * x_size + ahead)
                xhat = (load_x(x_at + j * x_size) - mean) * rstd
            if wants_dx:
                gradient = fma(xhat, minus_c2, y * load_float32(w_at + 4 * j) + minus_c1) * rstd
                if streamed:
                    stream_dx(dx_at + j * dx_size, gradient)
                else:
                    store_dx(dx_at + j * dx_size, gradient)
            if wants_dw:
                sums = tile + TILE_DW + 4 * j
                store_float32(sums, fma(y, xhat, load_float32(sums)))
            if wants_db:
                sums = tile + TILE_DB + 4 * j
                store_float32(sums, load_float32(sums) + y)
        count = columns - whole
        if count:
            y = load_dy_part(dy_at + whole * dy_size, count)
            xhat = y
            if wants_x:
                xhat = (load_x_part(x_at + whole * x_size, count) - mean) * rstd
                xhat = select(first_lanes(count), xhat, 0.0)
            if wants_dx:
                weight = load_float32_part(w_at + 4 * whole, count)
                gradient = fma(xhat, minus_c2, y * weight + minus_c1) * rstd
                store_dx_part(dx_at + whole * dx_size, gradient, count)
            # The other lanes add zero to accumulators that are not used.
            if wants_dw:
                sums = tile + TILE_DW + 4 * whole
                store_float32(sums, fma(y, xhat, load_float32(sums)))
            if wants_db:
                sums = tile + TILE_DB + 4 * whole
                store_float32(sums, load_float32(sums) + y)

    return apply_row


def rows(dy: Element, x: Element, dx: Element, wanted: Wanted) -> Loop:
    """The kernel for these elements; those of tensors that are absent or not read do not matter.

    It works on rows [first, last), segments [begin, end). With ALL it does everything, into accumulators number
    ``partial``, and stops before the first group that float32 will not do for, whose row goes to ``status``, else
    ``last``. FORCED and APPLY do such groups too, but leave out their large terms of dw and db, and dx of slow rows
    means nothing.

    The single steps keep records and coefficients where the job says, ``partial`` being the batch's first row. JUDGE
    reports the first unfit group, or ``last``.

    Accumulators are cleared first if ``fresh``.
    """
    sum_segment, apply_row = summing(dy, x, wanted), applying(dy, x, dx, wanted)
    dy_size, x_size, dx_size = dy.size, x.size, dx.size
    wants_x = wanted.x
    wants_dx, wants_dw, wants_db = wanted

    def run(
        job: int, step: int, first: int, last: int, begin: int, end: int, partial: int, fresh: int, scratch: int,
        status: int,
    ) -> None:  # fmt: skip
        n, segments = load_one_int64(job + 8 * N), load_one_int64(job + 8 * SEGMENTS)
        weight, weight_step = load_one_int64(job + 8 * WEIGHT), load_one_int64(job + 8 * WEIGHT_STEP)
        streamed = load_one_int64(job + 8 * STREAMED)
        dy_view, x_view = job + load_one_int64(job + 8 * DY), job + load_one_int64(job + 8 * X)
        dx_view = job + load_one_int64(job + 8 * DX)
        dw_at = load_one_int64(job + 8 * PARTIALS)
        if step in (ALL, FORCED):
            dw_at += partial * load_one_int64(job + 8 * PARTIAL_BYTES)
        db_at = dw_at + load_one_int64(job + 8 * DB_OFFSET)
        zero = splat(np.float32(0.0))
        if fresh:
            for j in range(8 * SEGMENT * begin, 8 * ((min(n, SEGMENT * end) + 15) & -16), 64):
                if wants_dw:
                    store_float32(dw_at + j, zero)
                if wants_db:
                    store_float32(db_at + j, zero)
        for j in range(0, 8 * SEGMENT, 64):
            store_float32(scratch + j, zero)
        rows_at = scratch + ROW_AT
        coefficients, records = scratch + COEFFICIENT_AT, scratch + RECORD_AT
        stopped = last
        row = first
        while row < last:
            count = min(GROUP, last - row)
            if step in (SUMS, JUDGE, APPLY):
                coefficients = load_one_int64(job + 8 * COEFFICIENTS) + COEFFICIENT * (row - partial)
                records = load_one_int64(job + 8 * RECORDS) + RECORD * segments * (row - partial)
            for k in range(count):
                store_int(rows_at + 8 * k, load_one_int64(dy_view + BASE) + offset(dy_view + ROWS, row + k))
                if wants_x:
                    place = load_one_int64(x_view + BASE) + offset(x_view + ROWS, row + k)
                    store_int(rows_at + 8 * GROUP + 8 * k, place)
                if wants_dx:
                    place = load_one_int64(dx_view + BASE) + offset(dx_view + ROWS, row + k)
                    store_int(rows_at + 16 * GROUP + 8 * k, place)
            if step in (ALL, FORCED, SUMS):
                if wants_x:
                    for k in range(count):
                        load_statistics(job, row + k, coefficients + COEFFICIENT * k)
                for k in range(count):
                    for segment in range(begin, end):
                        columns = min(SEGMENT, n - segment * SEGMENT)
                        sum_segment(
                            load_one_int64(rows_at + 8 * k) + segment * (SEGMENT * dy_size),
                            load_one_int64(rows_at + 8 * GROUP + 8 * k) + segment * (SEGMENT * x_size),
                            weight + segment * weight_step, columns, coefficients + COEFFICIENT * k,
                            load_one_int64(dy_view + AHEAD), records + RECORD * (k * segments + segment),
                        )  # fmt: skip
            if step in (ALL, FORCED, JUDGE):
                unfit = judge(job, wants_dx, count, records, coefficients)
                if unfit and stopped == last:
                    stopped = row
                    if step == ALL:
                        break
            if step in (ALL, FORCED, APPLY):
                for segment in range(begin, end):
                    columns = min(SEGMENT, n - segment * SEGMENT)
                    for k in range(count):
                        apply_row(
                            load_one_int64(rows_at + 8 * k) + segment * (SEGMENT * dy_size),
                            load_one_int64(rows_at + 8 * GROUP + 8 * k) + segment * (SEGMENT * x_size),
                            load_one_int64(rows_at + 16 * GROUP + 8 * k) + segment * (SEGMENT * dx_size),
                            weight + segment * weight_step, columns, scratch, coefficients + COEFFICIENT * k,
                            load_one_int64(x_view + AHEAD), streamed,
                        )  # fmt: skip
                    at = 8 * SEGMENT * segment
                    adds_dw = load_one_float32(coefficients + LARGE) == 0.0
                    adds_db = load_one_float32(coefficients + LARGE_DY) == 0.0
                    for j in range(0, columns, 16):
                        if wants_dw:
                            if adds_dw:
                                accumulate(dw_at + at + 8 * j, load_float32(scratch + TILE_DW + 4 * j))
                            store_float32(scratch + TILE_DW + 4 * j, zero)
                        if wants_db:
                            if adds_db:
                                accumulate(db_at + at + 8 * j, load_float32(scratch + TILE_DB + 4 * j))
                            store_float32(scratch + TILE_DB + 4 * j, zero)
            row += count
        finish_streams()
        store_int(status, stopped)

    return run
