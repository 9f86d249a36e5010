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
    copy,
    finish_streams,
    first_lanes,
    load_bfloat16_part,
    load_float16_part,
    load_float32,
    load_float32_part,
    load_one_float32,
    load_one_float64,
    load_one_int64,
    prefetch,
    scratch,
    store_float32,
    store_one_float32,
    store_one_float64,
)
from aclnn.kernels.cpu.vector import absolute, any_lane, fma, lane, select, splat, total

Loop = Callable[..., None]

SEGMENT = 512
"""Columns per segment: its accumulators for dw and db, 4 KiB, stay in the L1 cache."""
GROUP = 4
ENDS = 3 * 64 * GROUP
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

# What `scratch` holds, in bytes: zeros for rows that are missing from a group; room for sums and gradients that nobody
# wants; for this group and the next, rows of dy, x and dx and coefficients; records.
ZEROS, UNUSED = 0, 4 * SEGMENT
PLACES_AT = UNUSED + 8 * SEGMENT
PLACES = 3 * 16 * GROUP
COEFFICIENT_AT = PLACES_AT + 2 * PLACES
RECORD_AT = COEFFICIENT_AT + 2 * 32 * GROUP

# A record, one for each row and segment: float32 each.
SUM_G, SUM_GX, TOP_DY, TOP_XHAT = range(0, 16, 4)
RECORD = 16
# The coefficients of a row, float32 each. SLOW: float32 will not do for the row's dx. UNFIT: nor for another's in its
# group; with the group's first row.
ROW_MEAN, ROW_RSTD, MINUS_C1, MINUS_C2, SLOW, UNFIT = range(0, 24, 4)
COEFFICIENT = 32

# Within these limits no float32 intermediate overflows and none that vanishes matters.
MOST_G, MOST_XHAT = 2.0**60, 2.0**30
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


@register_jitable
def of_rows(coefficients: int, field: int) -> Any:
    """A coefficient of each row of a group, in every lane."""
    at = coefficients + field
    return (
        splat(load_one_float32(at)),
        splat(load_one_float32(at + COEFFICIENT)),
        splat(load_one_float32(at + 2 * COEFFICIENT)),
        splat(load_one_float32(at + 3 * COEFFICIENT)),
    )


@register_jitable
def place_rows(view: int, row: int, count: int, step: int, missing: int, places: int) -> None:
    """Where each row of a group begins in a tensor, and how far its segments are apart; ``missing`` for other rows."""
    for k in range(GROUP):
        present = k < count
        store_int(places + 16 * k, load_one_int64(view + BASE) + offset(view + ROWS, row + k) if present else missing)
        store_int(places + 16 * k + 8, step if present else 0)


@register_jitable
def segments_at(places: int, segment: int) -> Any:
    """The address of a segment in each row of a group."""
    return (
        load_one_int64(places) + segment * load_one_int64(places + 8),
        load_one_int64(places + 16) + segment * load_one_int64(places + 24),
        load_one_int64(places + 32) + segment * load_one_int64(places + 40),
        load_one_int64(places + 48) + segment * load_one_int64(places + 56),
    )


@register_jitable
def fetch(rows: Any, at: int) -> None:
    """Prefetch a line of each row."""
    prefetch(rows[0] + at)
    prefetch(rows[1] + at)
    prefetch(rows[2] + at)
    prefetch(rows[3] + at)


@register_jitable
def copy_ends(rows: Any, at: int, size: int, ends: int) -> None:
    """What is left of each row behind whole vectors, with zeros up to 64 bytes.

    Before anything is in registers: copying is a call, which would not keep them.
    """
    for k in range(GROUP):
        store_float32(ends + 64 * k, splat(np.float32(0.0)))
        copy(ends + 64 * k, rows[k] + at, size)


def summing(dy: Element, x: Element, wanted: Wanted) -> Any:
    """A function that takes a segment of a group to its records and adds its dy·x̂ and dy to float64 sums.

    The records are Σg, Σg·x̂ and the largest |dy| and |x̂| of each row.
    """
    load_dy, load_dy_part, load_x, load_x_part = dy.load, dy.load_part, x.load, x.load_part
    dy_size, x_size, wants_x = dy.size, x.size, wanted.x
    dy_line, x_line = 64 // dy.size - 1, 64 // x.size - 1
    wants_dx, wants_dw, wants_db = wanted

    @register_jitable
    def add(y: Any, xhat: Any, w: Any, terms: Any, sums: Any) -> Any:
        dw, db = terms
        top_dy, top_xhat, sum_g, sum_gx = sums
        if wants_db:
            db = db + y
        if wants_dw:
            dw = fma(y, xhat, dw)
        if wants_dx:
            top_dy, top_xhat = maximum(absolute(y), top_dy), maximum(absolute(xhat), top_xhat)
            g = y * w
            sum_g, sum_gx = sum_g + g, fma(g, xhat, sum_gx)
        return (dw, db), (top_dy, top_xhat, sum_g, sum_gx)

    @register_jitable
    def add_sixteen(dy_at: int, x_at: int, mean: Any, rstd: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(dy_at)
        xhat = (load_x(x_at) - mean) * rstd if wants_x else y
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def add_some(k: int, rest: int, count: int, mean: Any, rstd: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(rest + 64 * k)
        xhat = y
        if wants_x:
            xhat = select(first_lanes(count), (load_x(rest + 64 * GROUP + 64 * k) - mean) * rstd, 0.0)
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def record(sums: Any, at: int) -> None:
        top_dy, top_xhat, sum_g, sum_gx = sums
        store_one_float32(at + TOP_DY, largest_lane(top_dy))
        store_one_float32(at + TOP_XHAT, largest_lane(top_xhat))
        store_one_float32(at + SUM_G, total(sum_g))
        store_one_float32(at + SUM_GX, total(sum_gx))

    @register_jitable
    def settle(terms: Any, j: int, dw_at: int, db_at: int, lost: Any) -> Any:
        """Add the terms of a group's sixteen columns to the float64 sums, but none that float32 could not hold."""
        dw, db = terms
        lost_dw, lost_db = lost
        if wants_dw:
            none = dw - dw
            lost_dw = lost_dw + none
            accumulate(dw_at + 8 * j, select(none == 0.0, dw, 0.0))
        if wants_db:
            none = db - db
            lost_db = lost_db + none
            accumulate(db_at + 8 * j, select(none == 0.0, db, 0.0))
        return lost_dw, lost_db

    @register_jitable
    def add_lost_terms(dys: Any, xs: Any, columns: int, coefficients: int, dw_at: int, db_at: int) -> None:
        """What ``settle`` left out, row by row in float64, which holds all these products."""
        for j in range(columns):
            dw, db = splat(np.float32(0.0)), splat(np.float32(0.0))
            exact_dw = load_one_float64(dw_at + 8 * j) if wants_dw else 0.0
            exact_db = load_one_float64(db_at + 8 * j) if wants_db else 0.0
            for k in range(GROUP):
                row = coefficients + COEFFICIENT * k
                y = load_dy_part(dys[k] + j * dy_size, 1)
                db = db + y
                exact_db += np.float64(lane(y, 0))
                if wants_dw:
                    x, mean, rstd = (
                        load_x_part(xs[k] + j * x_size, 1),
                        load_one_float32(row + ROW_MEAN),
                        load_one_float32(row + ROW_RSTD),
                    )
                    dw = fma(y, (x - mean) * rstd, dw)
                    exact_xhat = (np.float64(lane(x, 0)) - np.float64(mean)) * np.float64(rstd)
                    exact_dw += np.float64(lane(y, 0)) * exact_xhat
            if wants_dw and lane(dw - dw != 0.0, 0):
                store_one_float64(dw_at + 8 * j, exact_dw)
            if wants_db and lane(db - db != 0.0, 0):
                store_one_float64(db_at + 8 * j, exact_db)

    @register_jitable
    def sum_segment(
        dys: Any, xs: Any, w_at: int, columns: int, coefficients: int, dy_ahead: int, x_ahead: int,
        records: int, pitch: int, dw_at: int, db_at: int,
    ) -> None:  # fmt: skip
        whole = columns & -16
        rest, ends = columns - whole, scratch(ENDS)
        if rest:
            copy_ends(dys, whole * dy_size, rest * dy_size, ends)
            if wants_x:
                copy_ends(xs, whole * x_size, rest * x_size, ends + 64 * GROUP)
        means, rstds = of_rows(coefficients, ROW_MEAN), of_rows(coefficients, ROW_RSTD)
        zero = splat(np.float32(0.0))
        none = (zero, zero, zero, zero)
        sums_0, sums_1, sums_2, sums_3 = none, none, none, none
        lost = (zero, zero)
        for j in range(0, whole, 16):
            w = load_float32(w_at + 4 * j) if wants_dx else zero
            dy_at, x_at = j * dy_size, j * x_size
            if dy_ahead and j & dy_line == 0:
                fetch(dys, dy_at + dy_ahead)
            if wants_x and x_ahead and j & x_line == 0:
                fetch(xs, x_at + x_ahead)
            terms = (zero, zero)
            terms, sums_0 = add_sixteen(dys[0] + dy_at, xs[0] + x_at, means[0], rstds[0], w, terms, sums_0)
            terms, sums_1 = add_sixteen(dys[1] + dy_at, xs[1] + x_at, means[1], rstds[1], w, terms, sums_1)
            terms, sums_2 = add_sixteen(dys[2] + dy_at, xs[2] + x_at, means[2], rstds[2], w, terms, sums_2)
            terms, sums_3 = add_sixteen(dys[3] + dy_at, xs[3] + x_at, means[3], rstds[3], w, terms, sums_3)
            lost = settle(terms, j, dw_at, db_at, lost)
        if rest:
            w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
            terms = (zero, zero)
            terms, sums_0 = add_some(0, ends, rest, means[0], rstds[0], w, terms, sums_0)
            terms, sums_1 = add_some(1, ends, rest, means[1], rstds[1], w, terms, sums_1)
            terms, sums_2 = add_some(2, ends, rest, means[2], rstds[2], w, terms, sums_2)
            terms, sums_3 = add_some(3, ends, rest, means[3], rstds[3], w, terms, sums_3)
            lost = settle(terms, whole, dw_at, db_at, lost)
        if wants_dx:
            record(sums_0, records)
            record(sums_1, records + pitch)
            record(sums_2, records + 2 * pitch)
            record(sums_3, records + 3 * pitch)
        if any_lane(lost[0] + lost[1] != 0.0):
            add_lost_terms(dys, xs, columns, coefficients, dw_at, db_at)

    return sum_segment


@register_jitable
def judge(job: int, count: int, records: int, coefficients: int) -> Any:
    """Turn the records of a group's rows into their coefficients; true where float32 will not do for dx."""
    share, segments = 1.0 / load_one_int64(job + 8 * N), load_one_int64(job + 8 * SEGMENTS)
    top_w = np.float64(load_one_float32(job + 8 * TOP_WEIGHT))
    unfit = False
    for k in range(count):
        row = coefficients + COEFFICIENT * k
        top_dy, top_xhat, sum_g, sum_gx = np.float32(0.0), np.float32(0.0), 0.0, 0.0
        for s in range(segments):
            record = records + RECORD * (k * segments + s)
            top_dy = max(top_dy, load_one_float32(record + TOP_DY))
            top_xhat = max(top_xhat, load_one_float32(record + TOP_XHAT))
            sum_g += np.float64(load_one_float32(record + SUM_G))
            sum_gx += np.float64(load_one_float32(record + SUM_GX))
        c1, c2 = sum_g * share, sum_gx * share
        top_g = np.float64(top_dy) * top_w
        finite = c1 - c1 == 0.0 and c2 - c2 == 0.0
        bounded = top_g <= MOST_G and top_xhat <= MOST_XHAT
        visible = abs(c1) >= LEAST_C1 or abs(c2) >= LEAST_C2 or top_g == 0.0
        slow = not (finite and bounded and visible)
        store_one_float32(row + MINUS_C1, np.float32(-c1))
        store_one_float32(row + MINUS_C2, np.float32(-c2))
        store_one_float32(row + SLOW, np.float32(slow))
        unfit |= slow
    store_one_float32(coefficients + UNFIT, np.float32(unfit))
    return unfit


def applying(dy: Element, x: Element, dx: Element) -> Any:
    """A function that writes a segment of a group's dx, a line of each row at a time.

    Half lines of rows in turn, streamed, take up to twice as long.
    """
    load_dy, load_x, store_dx, stream_dx = dy.load, x.load, dx.store, dx.stream
    dy_size, x_size, dx_size, line = dy.size, x.size, dx.size, 64 // dx.size

    @register_jitable
    def gradient(y: Any, x: Any, w: Any, row: Any) -> Any:
        mean, rstd, minus_c1, minus_c2 = row
        return fma((x - mean) * rstd, minus_c2, y * w + minus_c1) * rstd

    @register_jitable
    def write_line(dy_at: int, x_at: int, dx_at: int, w_at: int, row: Any, streamed: int) -> None:
        for i in range(0, line, 16):
            w = load_float32(w_at + 4 * i)
            result = gradient(load_dy(dy_at + i * dy_size), load_x(x_at + i * x_size), w, row)
            if streamed:
                stream_dx(dx_at + i * dx_size, result)
            else:
                store_dx(dx_at + i * dx_size, result)

    @register_jitable
    def write_end(ends: int, w_at: int, count: int, row: Any) -> None:
        for i in range(0, count, 16):
            w = load_float32_part(w_at + 4 * i, min(16, count - i))
            result = gradient(load_dy(ends + i * dy_size), load_x(ends + 64 * GROUP + i * x_size), w, row)
            store_dx(ends + 128 * GROUP + i * dx_size, result)

    @register_jitable
    def apply_segment(
        dys: Any, xs: Any, dxs: Any, w_at: int, columns: int, coefficients: int, dy_ahead: int, x_ahead: int,
        streamed: int,
    ) -> None:  # fmt: skip
        rest = columns % line
        whole, ends = columns - rest, scratch(ENDS)
        if rest:
            copy_ends(dys, whole * dy_size, rest * dy_size, ends)
            copy_ends(xs, whole * x_size, rest * x_size, ends + 64 * GROUP)
        means, rstds = of_rows(coefficients, ROW_MEAN), of_rows(coefficients, ROW_RSTD)
        c1s, c2s = of_rows(coefficients, MINUS_C1), of_rows(coefficients, MINUS_C2)
        row_0, row_1 = (means[0], rstds[0], c1s[0], c2s[0]), (means[1], rstds[1], c1s[1], c2s[1])
        row_2, row_3 = (means[2], rstds[2], c1s[2], c2s[2]), (means[3], rstds[3], c1s[3], c2s[3])
        for j in range(0, whole, line):
            dy_at, x_at, dx_at, w_here = j * dy_size, j * x_size, j * dx_size, w_at + 4 * j
            if dy_ahead:
                fetch(dys, dy_at + dy_ahead)
            if x_ahead:
                fetch(xs, x_at + x_ahead)
            write_line(dys[0] + dy_at, xs[0] + x_at, dxs[0] + dx_at, w_here, row_0, streamed)
            write_line(dys[1] + dy_at, xs[1] + x_at, dxs[1] + dx_at, w_here, row_1, streamed)
            write_line(dys[2] + dy_at, xs[2] + x_at, dxs[2] + dx_at, w_here, row_2, streamed)
            write_line(dys[3] + dy_at, xs[3] + x_at, dxs[3] + dx_at, w_here, row_3, streamed)
        if rest:
            w_here = w_at + 4 * whole
            write_end(ends, w_here, rest, row_0)
            write_end(ends + 64, w_here, rest, row_1)
            write_end(ends + 128, w_here, rest, row_2)
            write_end(ends + 192, w_here, rest, row_3)
            for k in range(GROUP):
                copy(dxs[k] + whole * dx_size, ends + 128 * GROUP + 64 * k, rest * dx_size)

    return apply_segment


def rows(dy: Element, x: Element, dx: Element, wanted: Wanted) -> Loop:
    """The kernel for these elements; those of tensors that are absent or not read do not matter.

    It works on rows [first, last), segments [begin, end). With ALL it does everything, dw and db into accumulators
    number ``partial``, and stops at the first group that float32 will not do for: its dw and db are done, its dx is
    not, and its row goes to ``status``, else ``last``. FORCED does all but dw and db; dx of slow rows means nothing.

    The single steps keep records and coefficients where the job says, ``partial`` being the batch's first row: SUMS
    does dw and db too, JUDGE reports the first unfit group, or ``last``, APPLY writes dx, as FORCED.

    Accumulators are cleared first if ``fresh``. While one group's dx is written the next one's sums are made, a segment
    at a time, and what comes after is prefetched: reads and writes then share the memory evenly.
    """
    sum_segment, apply_segment = summing(dy, x, wanted), applying(dy, x, dx)
    dy_size, x_size, dx_size = dy.size, x.size, dx.size
    wants_x = wanted.x
    wants_dx, wants_dw, wants_db = wanted

    def run(
        job: int, step: int, first: int, last: int, begin: int, end: int, partial: int, fresh: int, room: int,
        status: int,
    ) -> None:  # fmt: skip
        n, segments = load_one_int64(job + 8 * N), load_one_int64(job + 8 * SEGMENTS)
        weight, weight_step = load_one_int64(job + 8 * WEIGHT), load_one_int64(job + 8 * WEIGHT_STEP)
        streamed = load_one_int64(job + 8 * STREAMED)
        dy_view, x_view = job + load_one_int64(job + 8 * DY), job + load_one_int64(job + 8 * X)
        dx_view = job + load_one_int64(job + 8 * DX)
        dw_at = load_one_int64(job + 8 * PARTIALS)
        in_turn = step in (ALL, FORCED)
        if in_turn:
            dw_at += partial * load_one_int64(job + 8 * PARTIAL_BYTES)
        db_at = dw_at + load_one_int64(job + 8 * DB_OFFSET)
        zero = splat(np.float32(0.0))
        if fresh:
            for j in range(8 * SEGMENT * begin, 8 * ((min(n, SEGMENT * end) + 15) & -16), 64):
                if wants_dw:
                    store_float32(dw_at + j, zero)
                if wants_db:
                    store_float32(db_at + j, zero)
        for j in range(0, 4 * SEGMENT, 64):
            store_float32(room + ZEROS + j, zero)
        # From a group to the one after it; 0 where rows are not evenly spaced.
        dy_group, x_group = load_one_int64(dy_view + AHEAD), load_one_int64(x_view + AHEAD) if wants_x else 0
        stopped = last
        row = first - GROUP
        while row < last:
            following = row + GROUP
            odd = (row - first) // GROUP & 1
            here, there = room + PLACES_AT + PLACES * odd, room + PLACES_AT + PLACES * (1 - odd)
            coefficients, records = room + COEFFICIENT_AT, room + RECORD_AT
            if in_turn:
                done, due = coefficients + COEFFICIENT * GROUP * odd, coefficients + COEFFICIENT * GROUP * (1 - odd)
            else:
                due = load_one_int64(job + 8 * COEFFICIENTS) + COEFFICIENT * (following - partial)
                done = due - COEFFICIENT * GROUP
                records = load_one_int64(job + 8 * RECORDS) + RECORD * segments * (following - partial)
            applies = wants_dx and row >= first and step in (ALL, FORCED, APPLY)
            sums = following < last and step in (ALL, FORCED, SUMS)
            if following < last:
                count = min(GROUP, last - following)
                nothing = room + ZEROS
                place_rows(dy_view, following, count, SEGMENT * dy_size, nothing, there)
                if wants_x:
                    place_rows(x_view, following, count, SEGMENT * x_size, nothing, there + 16 * GROUP)
                if wants_dx:
                    unused = room + UNUSED
                    place_rows(dx_view, following, count, SEGMENT * dx_size, unused, there + 32 * GROUP)
                if sums and wants_x:
                    for k in range(count):
                        load_statistics(job, following + k, due + COEFFICIENT * k)
                    for k in range(count, GROUP):
                        store_one_float32(due + COEFFICIENT * k + ROW_MEAN, 0.0)
                        store_one_float32(due + COEFFICIENT * k + ROW_RSTD, 0.0)
            for segment in range(begin, end):
                columns = min(SEGMENT, n - segment * SEGMENT)
                w_at = weight + segment * weight_step
                # What is needed next but one: the following group's next segment, or its successor's first.
                forward, groups = (1, 0) if segment + 1 < end else (begin - segment, 1)
                if wants_dx and applies:
                    far = groups + 1 if in_turn else groups
                    fetches = row + GROUP * far < last
                    dy_ahead = far * dy_group + forward * SEGMENT * dy_size if dy_group and fetches else 0
                    x_ahead = far * x_group + forward * SEGMENT * x_size if x_group and fetches and not in_turn else 0
                    apply_segment(
                        segments_at(here, segment), segments_at(here + 16 * GROUP, segment),
                        segments_at(here + 32 * GROUP, segment), w_at, columns, done, dy_ahead, x_ahead, streamed,
                    )  # fmt: skip
                if sums:
                    fetches = following + GROUP * groups < last
                    x_ahead = groups * x_group + forward * SEGMENT * x_size if x_group and fetches else 0
                    dy_ahead = groups * dy_group + forward * SEGMENT * dy_size if dy_group and fetches else 0
                    at = 8 * SEGMENT * segment
                    sum_segment(
                        segments_at(there, segment), segments_at(there + 16 * GROUP, segment), w_at, columns, due,
                        0 if wants_dx and in_turn else dy_ahead, x_ahead, records + RECORD * segment,
                        RECORD * segments, room + UNUSED if step == FORCED else dw_at + at,
                        room + UNUSED if step == FORCED else db_at + at,
                    )  # fmt: skip
            if wants_dx and following < last and step in (ALL, FORCED, JUDGE):
                unfit = judge(job, min(GROUP, last - following), records, due)
                if unfit and stopped == last:
                    stopped = following
                    if step == ALL:
                        break
            row = following
        finish_streams()
        store_int(status, stopped)

    return run
