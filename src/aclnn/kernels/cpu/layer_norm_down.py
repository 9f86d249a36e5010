"""LayerNorm's dw and db alone, over sets of short rows: sixteen columns at a time, down the rows.

The float64 sums of sixteen columns stay in registers over all rows of a set. They are kept only if they and all others
of the set are finite, because then nothing has overflowed; else the set is left to ``layer_norm_rows``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.doubles import load_doubles, plus, store_doubles
from aclnn.kernels.cpu.layer_norm_job import DY, GROUP, N, X
from aclnn.kernels.cpu.layer_norm_lanes import Element, load_rounded, store_int
from aclnn.kernels.cpu.layer_norm_segments import Wanted
from aclnn.kernels.cpu.layer_norm_short import MEANS, RSTDS, base, gather, number, places, statistics, step
from aclnn.kernels.cpu.loops import Loop
from aclnn.kernels.cpu.memory import again, copy, prefetch, scratch
from aclnn.kernels.cpu.vector import LANES, any_lane, fma, splat

LONGEST = 128
LONGEST_WITH_DW = 64
"""Columns of the longest row that is taken this way: longer ones come faster from memory when read along."""
SET = 32
"""Rows of a set."""
AHEAD = 64
"""Rows ahead that are prefetched."""

DW_SUMS = max(MEANS, RSTDS) + 4 * SET
DB_SUMS = DW_SUMS + 8 * LONGEST
ROOM = DB_SUMS + 8 * LONGEST


def sums(dy: Element, x: Element, wanted: Wanted) -> Loop:
    """The kernel, with the parameters of ``layer_norm_short.sets``."""
    load_dy, load_x, dy_size, x_size = dy.load, x.load, dy.size, x.size
    _, wants_dw, wants_db = wanted

    @register_jitable(forceinline=True)
    def add_row(at: int, x_at: int, dy_step: int, x_step: int, means: int, rstds: int, k: int, terms: Any) -> Any:
        prefetch(at + AHEAD * dy_step)
        y, dw = load_dy(at), terms[0]
        if wants_dw:
            prefetch(x_at + AHEAD * x_step)
            mean, rstd = statistics(means, rstds, k)
            dw = fma(y, (load_x(x_at) - mean) * rstd, dw)
        return dw, terms[1] + y

    @register_jitable
    def sum_set(job: int, row: int, rows: int, dw_at: int, db_at: int, room: int) -> Any:
        """Put the sums with those of a set added into the room; whether all of them are finite."""
        n, dy_step, dy_at = number(job, N), step(job, DY), base(job, DY) + row * step(job, DY)
        x_step, x_at, means, rstds = 0, 0, 0, 0
        if wants_dw:
            x_step, x_at = step(job, X), base(job, X) + row * step(job, X)
            means, rstds = places(job, row, room)
        lost = splat(np.float32(0.0))
        nothing = -lost, -lost
        for j in range(0, n, LANES):
            at, x_here = dy_at + j * dy_size, x_at + j * x_size
            dw, db = load_doubles(dw_at + 8 * j), load_doubles(db_at + 8 * j)
            for k in range(0, rows, GROUP):
                terms = add_row(at, x_here, dy_step, x_step, means, rstds, k, nothing)
                at, x_here = again(at + dy_step), again(x_here + x_step)
                terms = add_row(at, x_here, dy_step, x_step, means, rstds, k + 1, terms)
                at, x_here = again(at + dy_step), again(x_here + x_step)
                terms = add_row(at, x_here, dy_step, x_step, means, rstds, k + 2, terms)
                at, x_here = again(at + dy_step), again(x_here + x_step)
                terms = add_row(at, x_here, dy_step, x_step, means, rstds, k + 3, terms)
                at, x_here = again(at + dy_step), again(x_here + x_step)
                if wants_dw:
                    dw = plus(dw, terms[0])
                if wants_db:
                    db = plus(db, terms[1])
            if wants_dw:
                store_doubles(room + DW_SUMS + 8 * j, dw)
                lost = lost + load_rounded(room + DW_SUMS + 8 * j) * 0.0
            if wants_db:
                store_doubles(room + DB_SUMS + 8 * j, db)
                lost = lost + load_rounded(room + DB_SUMS + 8 * j) * 0.0
        return not any_lane(lost != 0.0)

    def run(job: int, first: int, stop: int, rows: int, dw_at: int, db_at: int, reached: int, unused: int) -> None:
        room, size, row = scratch(ROOM), 8 * number(job, N), first
        while row + rows <= stop:
            if wants_dw:
                gather(job, row, rows, room)
            if not sum_set(job, row, rows, dw_at, db_at, room):
                break
            if wants_dw:
                copy(dw_at, room + DW_SUMS, size)
            if wants_db:
                copy(db_at, room + DB_SUMS, size)
            row += rows
        store_int(reached, row)

    return run
