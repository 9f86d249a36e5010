"""LayerNorm's gradients over one segment of a row or group of rows: the sums of each row, dw and db; then dx."""

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
    SEGMENT,
    SUM_G,
    SUM_GX,
    SUM_SIZE,
    SUM_SQUARE,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element, accumulate
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

DB_TERMS = 4 * SEGMENT
"""Bytes from a segment's float32 terms of dw to those of db."""
ENDS = 2 * 64 * GROUP
"""Room for what is left of each row of dy and x behind whole vectors."""


class Wanted(NamedTuple):
    """Which outputs a kernel computes."""

    dx: bool
    dw: bool
    db: bool

    @property
    def x(self) -> bool:
        """Whether x is read at all."""
        return self.dx or self.dw


class Summing(NamedTuple):
    """Compiled functions that make records, and add dy·x̂ and dy to float64 sums."""

    group: Any
    row: Any
    settle: Any


@register_jitable
def fetch(rows: Any, at: int) -> None:
    """Prefetch a line of each row."""
    prefetch(rows[0] + at)
    prefetch(rows[1] + at)
    prefetch(rows[2] + at)
    prefetch(rows[3] + at)


@register_jitable
def copy_end(source: int, size: int, end: int) -> None:
    """What is left of a row behind whole vectors, with zeros up to 64 bytes.

    Before anything is in registers: copying is a call, which would not keep them.
    """
    store_float32(end, splat(np.float32(0.0)))
    copy(end, source, size)


def summing(dy: Element, x: Element, wanted: Wanted) -> Summing:
    """The functions for these elements.

    ``group`` takes a segment of four rows to their records and its dy·x̂ and dy to the float64 sums. ``row`` does so
    with one row, but adds to float32 terms, which ``settle`` takes to the float64 sums and clears after each group.
    """
    load_dy, load_dy_part, load_x, load_x_part = dy.load, dy.load_part, x.load, x.load_part
    dy_size, x_size, wants_x = dy.size, x.size, wanted.x
    dy_line, x_line = 64 // dy.size - 1, 64 // x.size - 1
    wants_dx, wants_dw, wants_db = wanted

    @register_jitable
    def add(y: Any, xhat: Any, w: Any, terms: Any, sums: Any) -> Any:
        dw, db = terms
        sum_g, sum_gx, size, square = sums
        if wants_db:
            db = db + y
        if wants_dw:
            dw = fma(y, xhat, dw)
        if wants_dx:
            g = y * w
            sum_g, sum_gx = sum_g + g, fma(g, xhat, sum_gx)
            size, square = size + absolute(y), fma(xhat, xhat, square)
        return (dw, db), (sum_g, sum_gx, size, square)

    @register_jitable
    def add_sixteen(dy_at: int, x_at: int, mean: Any, rstd: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(dy_at)
        xhat = (load_x(x_at) - mean) * rstd if wants_x else y
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def add_some(dy_at: int, x_at: int, count: int, mean: Any, rstd: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(dy_at)
        xhat = y
        if wants_x:
            xhat = select(first_lanes(count), (load_x(x_at) - mean) * rstd, 0.0)
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def record(sums: Any, at: int) -> None:
        store_one_float32(at + SUM_G, total(sums[0]))
        store_one_float32(at + SUM_GX, total(sums[1]))
        store_one_float32(at + SUM_SIZE, total(sums[2]))
        store_one_float32(at + SUM_SQUARE, total(sums[3]))

    @register_jitable
    def add_terms(terms: Any, j: int, dw_at: int, db_at: int, lost: Any) -> Any:
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
        """What ``add_terms`` left out, row by row in float64, which holds all these products."""
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
    def row_of(coefficients: int, k: int) -> Any:
        row = coefficients + COEFFICIENT * k
        return splat(load_one_float32(row + ROW_MEAN)), splat(load_one_float32(row + ROW_RSTD))

    @register_jitable
    def group(
        dys: Any, xs: Any, w_at: int, columns: int, coefficients: int, dy_ahead: int, x_ahead: int,
        records: int, pitch: int, dw_at: int, db_at: int,
    ) -> None:  # fmt: skip
        whole = columns & -16
        rest, ends = columns - whole, scratch(ENDS)
        if rest:
            for k in range(GROUP):
                copy_end(dys[k] + whole * dy_size, rest * dy_size, ends + 64 * k)
                if wants_x:
                    copy_end(xs[k] + whole * x_size, rest * x_size, ends + 64 * (GROUP + k))
        mean_0, rstd_0 = row_of(coefficients, 0)
        mean_1, rstd_1 = row_of(coefficients, 1)
        mean_2, rstd_2 = row_of(coefficients, 2)
        mean_3, rstd_3 = row_of(coefficients, 3)
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
            terms, sums_0 = add_sixteen(dys[0] + dy_at, xs[0] + x_at, mean_0, rstd_0, w, terms, sums_0)
            terms, sums_1 = add_sixteen(dys[1] + dy_at, xs[1] + x_at, mean_1, rstd_1, w, terms, sums_1)
            terms, sums_2 = add_sixteen(dys[2] + dy_at, xs[2] + x_at, mean_2, rstd_2, w, terms, sums_2)
            terms, sums_3 = add_sixteen(dys[3] + dy_at, xs[3] + x_at, mean_3, rstd_3, w, terms, sums_3)
            lost = add_terms(terms, j, dw_at, db_at, lost)
        if rest:
            w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
            terms = (zero, zero)
            terms, sums_0 = add_some(ends, ends + 256, rest, mean_0, rstd_0, w, terms, sums_0)
            terms, sums_1 = add_some(ends + 64, ends + 320, rest, mean_1, rstd_1, w, terms, sums_1)
            terms, sums_2 = add_some(ends + 128, ends + 384, rest, mean_2, rstd_2, w, terms, sums_2)
            terms, sums_3 = add_some(ends + 192, ends + 448, rest, mean_3, rstd_3, w, terms, sums_3)
            lost = add_terms(terms, whole, dw_at, db_at, lost)
        if wants_dx:
            record(sums_0, records)
            record(sums_1, records + pitch)
            record(sums_2, records + 2 * pitch)
            record(sums_3, records + 3 * pitch)
        if any_lane(lost[0] + lost[1] != 0.0):
            add_lost_terms(dys, xs, columns, coefficients, dw_at, db_at)

    @register_jitable
    def load_terms(at: int) -> Any:
        zero = splat(np.float32(0.0))
        return (load_float32(at) if wants_dw else zero), (load_float32(at + DB_TERMS) if wants_db else zero)

    @register_jitable
    def store_terms(at: int, terms: Any) -> None:
        if wants_dw:
            store_float32(at, terms[0])
        if wants_db:
            store_float32(at + DB_TERMS, terms[1])

    @register_jitable
    def row(
        dy_at: int, x_at: int, w_at: int, columns: int, coefficients: int, dy_ahead: int, x_ahead: int, records: int,
        terms_at: int,
    ) -> None:  # fmt: skip
        whole = columns & -16
        rest, end = columns - whole, scratch(128)
        if rest:
            copy_end(dy_at + whole * dy_size, rest * dy_size, end)
            if wants_x:
                copy_end(x_at + whole * x_size, rest * x_size, end + 64)
        mean, rstd = row_of(coefficients, 0)
        zero = splat(np.float32(0.0))
        sums = (zero, zero, zero, zero)
        for j in range(0, whole, 16):
            w = load_float32(w_at + 4 * j) if wants_dx else zero
            if dy_ahead and j & dy_line == 0:
                prefetch(dy_at + j * dy_size + dy_ahead)
            if wants_x and x_ahead and j & x_line == 0:
                prefetch(x_at + j * x_size + x_ahead)
            terms = load_terms(terms_at + 4 * j)
            terms, sums = add_sixteen(dy_at + j * dy_size, x_at + j * x_size, mean, rstd, w, terms, sums)
            store_terms(terms_at + 4 * j, terms)
        if rest:
            w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
            terms, sums = add_some(end, end + 64, rest, mean, rstd, w, load_terms(terms_at + 4 * whole), sums)
            store_terms(terms_at + 4 * whole, terms)
        if wants_dx:
            record(sums, records)

    @register_jitable
    def settle(dys: Any, xs: Any, columns: int, coefficients: int, terms_at: int, dw_at: int, db_at: int) -> None:
        zero = splat(np.float32(0.0))
        lost = (zero, zero)
        for j in range(0, columns, 16):
            lost = add_terms(load_terms(terms_at + 4 * j), j, dw_at, db_at, lost)
            store_terms(terms_at + 4 * j, (zero, zero))
        if any_lane(lost[0] + lost[1] != 0.0):
            add_lost_terms(dys, xs, columns, coefficients, dw_at, db_at)

    return Summing(group, row, settle)


def applying(dy: Element, x: Element, dx: Element) -> Any:
    """A function that writes a segment of a row's dx, a line at a time."""
    load_dy, load_x, store_dx, stream_dx = dy.load, x.load, dx.store, dx.stream
    dy_size, x_size, dx_size, line = dy.size, x.size, dx.size, 64 // dx.size

    @register_jitable
    def gradient(y: Any, x: Any, w: Any, row: Any) -> Any:
        mean, rstd, minus_c1, minus_c2 = row
        return fma((x - mean) * rstd, minus_c2, y * w + minus_c1) * rstd

    @register_jitable
    def apply_row(
        dy_at: int, x_at: int, dx_at: int, w_at: int, columns: int, coefficients: int, dy_ahead: int, x_ahead: int,
        streamed: int,
    ) -> None:  # fmt: skip
        rest = columns % line
        whole, end = columns - rest, scratch(192)
        if rest:
            copy_end(dy_at + whole * dy_size, rest * dy_size, end)
            copy_end(x_at + whole * x_size, rest * x_size, end + 64)
        row = (
            splat(load_one_float32(coefficients + ROW_MEAN)),
            splat(load_one_float32(coefficients + ROW_RSTD)),
            splat(load_one_float32(coefficients + MINUS_C1)),
            splat(load_one_float32(coefficients + MINUS_C2)),
        )
        for j in range(0, whole, line):
            if dy_ahead:
                prefetch(dy_at + j * dy_size + dy_ahead)
            if x_ahead:
                prefetch(x_at + j * x_size + x_ahead)
            for i in range(j, j + line, 16):
                w = load_float32(w_at + 4 * i)
                result = gradient(load_dy(dy_at + i * dy_size), load_x(x_at + i * x_size), w, row)
                if streamed:
                    stream_dx(dx_at + i * dx_size, result)
                else:
                    store_dx(dx_at + i * dx_size, result)
        if rest:
            for i in range(0, rest, 16):
                w = load_float32_part(w_at + 4 * (whole + i), min(16, rest - i))
                result = gradient(load_dy(end + i * dy_size), load_x(end + 64 + i * x_size), w, row)
                store_dx(end + 128 + i * dx_size, result)
            copy(dx_at + whole * dx_size, end + 128, rest * dx_size)

    return apply_row
