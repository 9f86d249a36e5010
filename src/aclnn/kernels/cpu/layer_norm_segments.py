"""LayerNorm's gradients over one segment of a group of rows: the sums of each row, dw and db; then dx."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_job import (
    COEFFICIENT,
    GROUP,
    MINUS_C1,
    MINUS_C2,
    ROW_MEAN,
    ROW_RSTD,
    SUM_G,
    SUM_GX,
    TOP_DY,
    TOP_XHAT,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element, accumulate, largest_lane, maximum
from aclnn.kernels.cpu.memory import (
    copy,
    first_lanes,
    load_float32,
    load_float32_part,
    load_one_float32,
    load_one_float64,
    prefetch,
    scratch,
    store_float32,
    store_one_float32,
    store_one_float64,
)
from aclnn.kernels.cpu.vector import absolute, any_lane, fma, lane, select, splat, total

ENDS = 3 * 64 * GROUP
"""Room for what is left of each row of dy, x and dx behind whole vectors."""


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
