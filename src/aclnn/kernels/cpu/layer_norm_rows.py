"""LayerNorm's gradients over rows of columns: the compiled part for rows whose elements lie side by side.

A row is cut into segments of 512 columns, and rows are taken in groups of four. For each group: a pass for the sums of
every row, dw and db, a verdict on each row, then one pass for dx while the rows are still in the cache:

    c1 = Σ g / N,  c2 = Σ g·x̂ / N              lanes in float32 within a segment, segments in float64
    dx = fma(-x̂, c2, g - c1)·rstd              g = dy·w, x̂ = (x - mean)·rstd
    dw += fma(dy3, x̂3, … fma(dy1, x̂1, dy0·x̂0)), db += ((dy0 + dy1) + dy2) + dy3    groups in float64

Where dx's magnitudes could overflow or vanish in float32 these kernels stop, and ``layer_norm_exact`` takes over.
docs/numerics-layer-norm.md has the limits and the error bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_job import (
    AHEAD,
    BASE,
    COEFFICIENT,
    COEFFICIENTS,
    DB_OFFSET,
    DX,
    DY,
    GROUP,
    MINUS_C1,
    MINUS_C2,
    PARTIAL_BYTES,
    PARTIALS,
    RECORD,
    RECORDS,
    ROW_MEAN,
    ROW_RSTD,
    ROWS,
    SEGMENT,
    SEGMENTS,
    SLOW,
    STREAMED,
    SUM_G,
    SUM_GX,
    TOP_DY,
    TOP_WEIGHT,
    TOP_XHAT,
    UNFIT,
    WEIGHT,
    WEIGHT_STEP,
    N,
    X,
    load_statistics,
    offset,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element, store_int
from aclnn.kernels.cpu.layer_norm_segments import Wanted, applying, summing
from aclnn.kernels.cpu.memory import (
    finish_streams,
    load_one_float32,
    load_one_int64,
    store_float32,
    store_one_float32,
)
from aclnn.kernels.cpu.vector import splat

Loop = Callable[..., None]

# What `scratch` holds, in bytes: zeros for rows that are missing from a group; room for sums and gradients that nobody
# wants; for this group and the next, rows of dy, x and dx and coefficients; records.
ZEROS, UNUSED = 0, 4 * SEGMENT
PLACES_AT = UNUSED + 8 * SEGMENT
PLACES = 3 * 16 * GROUP
COEFFICIENT_AT = PLACES_AT + 2 * PLACES
RECORD_AT = COEFFICIENT_AT + 2 * 32 * GROUP

# Within these limits no float32 intermediate overflows and none that vanishes matters.
MOST_G, MOST_XHAT = 2.0**60, 2.0**30
LEAST_C1, LEAST_C2 = 2.0**-90, 2.0**-60

ALL, FORCED, SUMS, JUDGE, APPLY = range(5)
"""What a call does: everything for its rows, or one of the three steps."""


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
