"""LayerNorm's dw and db alone, over sets of rows: a strip of columns at a time, down the rows.

The float64 sums of a strip stay in registers over all rows of a set. Nothing is guarded: what four rows lose to
overflow shows in the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.elements import Element
from aclnn.kernels.cpu.layer_norm.job import DY, GROUP, N, X, of
from aclnn.kernels.cpu.layer_norm.segments import NormSpec, standardizer
from aclnn.kernels.cpu.layer_norm.short import MEANS, RSTDS, base, gather, places, statistics, step
from aclnn.kernels.cpu.simd.doubles import load_doubles, plus, store_doubles
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import LANES, fma, splat
from aclnn.kernels.cpu.structs import scratch, store_one_int64
from aclnn.kernels.cpu.threads import Loop

SHORTEST = LANES
"""Columns of the shortest row that is taken this way: its last sixteen columns are loaded as a whole."""
NARROW = 64
"""Columns up to which memory is asked for once, a set ahead: a second time takes db an eighth longer on Zen 4."""
LONG = 1024
"""Columns from which on rows are not taken this way, but four at a time in memory's order (``segments.sum_group``),
which the processor's own prefetching knows. On Zen 4 16,384 rows of 1,024 float32 then take a tenth less, 4,096 of
4,096 a sixth."""
SET = 32
"""Rows of a set, at most."""
WITH_DW, ALONE = 2, 4
"""Vectors side by side in a strip: of dy and x, of dy alone. On Zen 4 narrower strips take a tenth to a fifth longer,
and of dy and x wider ones too."""

# What the room holds, in bytes: mean and rstd of each row; sums of the last sixteen columns, as before the set.
DW_BEFORE = max(MEANS, RSTDS) + 4 * SET
DB_BEFORE = DW_BEFORE + 8 * LANES
ROOM = DB_BEFORE + 8 * LANES


@register_jitable
def _stream(at: int, stride: int, rows: int, j: int, width: int, n: int, size: int) -> Any:
    """How a strip of a set of rows is read: where, from row to row, where to prefetch, and that from row to row.

    Memory is fastest in order: of short rows side by side, each strip prefetches its share of the next set, line by
    line. Where there are gaps it is this strip of the next set.
    """
    place = at + j * size
    if stride == n * size:
        return place, stride, at + rows * (stride + j * size), width * size
    return place, stride, place + rows * stride, stride


@register_jitable(forceinline=True)
def _after(stream: Any, rows: int) -> Any:
    at, stride, far, pace = stream
    return at + rows * stride, stride, far + rows * pace, pace


@register_jitable(forceinline=True)
def _fetch(at: int, stride: int) -> None:
    """Prefetch a line of each of four rows."""
    prefetch(at)
    prefetch(at + stride)
    prefetch(at + 2 * stride)
    prefetch(at + 3 * stride)


def _strip(dy: Element, x: Element, spec: NormSpec, narrow: bool, vectors: int) -> Any:
    """The function that adds a strip of one, two or four vectors to its float64 sums, over a multiple of four rows."""
    load_dy, load_x, dy_size, x_size, width = dy.load, x.load, dy.size, x.size, LANES * vectors
    _, wants_dw, wants_db, centred = spec
    standardize = standardizer(centred)
    two, four = vectors > 1, vectors > 2
    whole_lines = max(dy.size, x.size) == 4  # a vector is a line, not half of one

    @register_jitable(forceinline=True)
    def load_sums(at: Any, j: int) -> Any:
        return load_doubles(at[0] + 8 * j), load_doubles(at[1] + 8 * j)

    @register_jitable(forceinline=True)
    def store_sums(at: Any, j: int, sums: Any) -> None:
        if wants_dw:
            store_doubles(at[0] + 8 * j, sums[0])
        if wants_db:
            store_doubles(at[1] + 8 * j, sums[1])

    @register_jitable(forceinline=True)
    def add_row(dys: Any, xs: Any, k: int, j: int, row: Any, terms: Any) -> Any:
        y, dw = load_dy(dys[0] + k * dys[1] + j * dy_size), terms[0]
        if wants_dw:
            dw = fma(y, standardize(load_x(xs[0] + k * xs[1] + j * x_size), row), dw)
        return dw, terms[1] + y

    @register_jitable(forceinline=True)
    def add_group(dys: Any, xs: Any, j: int, rows: Any, sums: Any) -> Any:
        nothing, (dw, db) = splat(np.float32(-0.0)), sums  # adding to -0 takes no instruction
        terms = add_row(dys, xs, 0, j, rows[0], (nothing, nothing))
        terms = add_row(dys, xs, 1, j, rows[1], terms)
        terms = add_row(dys, xs, 2, j, rows[2], terms)
        terms = add_row(dys, xs, 3, j, rows[3], terms)
        if wants_dw:
            dw = plus(dw, terms[0])
        if wants_db:
            db = plus(db, terms[1])
        return dw, db

    # Apart from the loads: with a branch between an address and its load, LLVM sinks the address to a GEP of null, and
    # takes it for undefined when the function is optimized again where it is called.
    @register_jitable(forceinline=True)
    def fetch_line(dys: Any, xs: Any, j: int) -> None:
        _fetch(dys[2] + j * dy_size, dys[3])
        if wants_dw:
            _fetch(xs[2] + j * x_size, xs[3])
        if not narrow:  # again, soon before use: of many requests at a time Zen 4 drops some
            _fetch(dys[0] + (width + j) * dy_size, dys[1])
            if wants_dw:
                _fetch(xs[0] + (width + j) * x_size, xs[1])

    @register_jitable
    def sum_strip(rows: int, dys: Any, xs: Any, means: int, rstds: int, before: Any, after: Any) -> None:
        sums_0 = load_sums(before, 0)
        if two:
            sums_1 = load_sums(before, LANES)
        if four:
            sums_2, sums_3 = load_sums(before, 2 * LANES), load_sums(before, 3 * LANES)
        for k in range(0, rows, GROUP):
            row_0, row_1 = statistics(means, rstds, k), statistics(means, rstds, k + 1)
            group = row_0, row_1, statistics(means, rstds, k + 2), statistics(means, rstds, k + 3)
            fetch_line(dys, xs, 0)
            sums_0 = add_group(dys, xs, 0, group, sums_0)
            if two:
                if whole_lines:
                    fetch_line(dys, xs, LANES)
                sums_1 = add_group(dys, xs, LANES, group, sums_1)
            if four:
                fetch_line(dys, xs, 2 * LANES)
                sums_2 = add_group(dys, xs, 2 * LANES, group, sums_2)
                if whole_lines:
                    fetch_line(dys, xs, 3 * LANES)
                sums_3 = add_group(dys, xs, 3 * LANES, group, sums_3)
            dys, xs = _after(dys, GROUP), _after(xs, GROUP)
        store_sums(after, 0, sums_0)
        if two:
            store_sums(after, LANES, sums_1)
        if four:
            store_sums(after, 2 * LANES, sums_2)
            store_sums(after, 3 * LANES, sums_3)

    return sum_strip


def sums(dy: Element, x: Element, spec: NormSpec, narrow: bool) -> Loop:
    """The kernel, with the parameters of ``short.sets``; it leaves rows that are no whole group."""
    dy_size, x_size, wants_dw = dy.size, x.size, spec.dw
    vectors = WITH_DW if wants_dw else ALONE
    width = LANES * vectors
    sum_strip, sum_sixteen = (_strip(dy, x, spec, narrow, count) for count in (vectors, 1))

    @register_jitable
    def sum_set(job: int, row: int, rows: int, dw_at: int, db_at: int, room: int) -> None:
        n, dy_step = of(job, N), step(job, DY)
        dy_at, last, whole = base(job, DY) + row * dy_step, n - LANES, n // width * width
        x_at, x_step, means, rstds = dy_at, dy_step, room, room
        if wants_dw:
            x_at, x_step = base(job, X) + row * step(job, X), step(job, X)
            means, rstds = places(job, row, room)
        if n % LANES:
            store_doubles(room + DW_BEFORE, load_doubles(dw_at + 8 * last))
            store_doubles(room + DB_BEFORE, load_doubles(db_at + 8 * last))
        for j in range(0, whole, width):
            dys = _stream(dy_at, dy_step, rows, j, width, n, dy_size)
            xs = _stream(x_at, x_step, rows, j, width, n, x_size)
            at = dw_at + 8 * j, db_at + 8 * j
            sum_strip(rows, dys, xs, means, rstds, at, at)
        for start in range(whole, n, LANES):
            j = min(start, last)
            dys = _stream(dy_at, dy_step, rows, j, LANES, n, dy_size)
            xs = _stream(x_at, x_step, rows, j, LANES, n, x_size)
            at = dw_at + 8 * j, db_at + 8 * j
            before = at if j == start else (room + DW_BEFORE, room + DB_BEFORE)
            sum_sixteen(rows, dys, xs, means, rstds, before, at)

    def run(job: int, first: int, stop: int, rows: int, dw_at: int, db_at: int, reached: int, unused: int) -> None:
        room, row = scratch(ROOM), first
        while row + GROUP <= stop:
            count = min(rows, stop - row & -GROUP)
            if wants_dw:
                gather(job, row, count, room)
            sum_set(job, row, count, dw_at, db_at, room)
            row += count
        store_one_int64(reached, row)

    return run
