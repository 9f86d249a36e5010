"""LayerNorm's gradients over one segment of a row or group of rows: the sums of each row, dw and db; then dx.

Each kernel takes the address of a frame, which holds its arguments (see ``job``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.elements import Element
from aclnn.kernels.cpu.layer_norm.job import (
    BEFORE,
    COEFFICIENT,
    COLUMNS,
    DB_AT,
    DW_AT,
    DXS,
    DY_AHEAD,
    DYS,
    GROUP,
    MINUS_C1,
    MINUS_C2,
    PITCH,
    RECORD,
    RECORD_AT,
    ROW,
    ROW_MEAN,
    ROW_RSTD,
    SEGMENT,
    TERMS,
    X_AHEAD,
    XS,
    K,
    W,
)
from aclnn.kernels.cpu.layer_norm.lanes import accumulate, store_totals
from aclnn.kernels.cpu.simd.memory import (
    copy_in,
    copy_out,
    first_lanes,
    load_float32,
    load_float32_part,
    store_float32,
    stream_out,
)
from aclnn.kernels.cpu.simd.prefetch import drops_prefetches, prefetch, prefetch_near, prefetch_rest
from aclnn.kernels.cpu.simd.vector import absolute, any_lane, fma, lane, select, splat
from aclnn.kernels.cpu.structs import (
    again,
    load_one_float32,
    load_one_float64,
    load_one_int64,
    scratch,
    store_one_float64,
)

Kernel = Callable[[int], None]

DB_TERMS = 4 * SEGMENT
"""Bytes from a segment's float32 terms of dw to those of db."""
NEAR = 1024
"""Bytes ahead in its row that a line is prefetched a second time, into the first level, where dx is wanted too: sums
alone take up to a tenth longer with it (Zen 4)."""
ENDS = 2 * 64 * GROUP
"""Room for what is left of each row of dy and x behind whole vectors."""


class NormSpec(NamedTuple):
    """Which gradients a kernel computes, and of which norm."""

    dx: bool
    dw: bool
    db: bool
    centred: bool = True
    """False for RMSNorm: x̂ = x·rstd, and dx has no c1."""

    @property
    def x(self) -> bool:
        """Whether x is read at all."""
        return self.dx or self.dw


class Adding(NamedTuple):
    """What kernels that sum have in common.

    Careful ones make whole records and leave out terms that float32 cannot hold. The others take fewer instructions:
    their records have no Σ|dy|, and for Σx̂² a bound where the data type gives one; what terms lose shows in dw and db.
    """

    begin: Any
    sixteen: Any
    some: Any
    terms: Any
    lost: Any


@register_jitable(forceinline=True)
def field(frame: int, place: int) -> Any:
    """An argument."""
    return load_one_int64(frame + place)


@register_jitable
def four(frame: int, place: int) -> Any:
    """Where the segment begins in each row of a group."""
    at = frame + place
    return load_one_int64(at), load_one_int64(at + 8), load_one_int64(at + 16), load_one_int64(at + 24)


@register_jitable
def statistics(coefficients: int, k: int) -> Any:
    """Mean and rstd of a group's row number k, in every lane."""
    row = coefficients + COEFFICIENT * k
    return splat(load_one_float32(row + ROW_MEAN)), splat(load_one_float32(row + ROW_RSTD))


@register_jitable
def constants(coefficients: int, k: int) -> Any:
    """The coefficients of a group's row number k, in every lane."""
    row = coefficients + COEFFICIENT * k
    mean, rstd = statistics(coefficients, k)
    return mean, rstd, splat(load_one_float32(row + MINUS_C1)), splat(load_one_float32(row + MINUS_C2))


@register_jitable(forceinline=True)
def asks_at_once(wants_dx: bool) -> bool:
    """Whether the sums prefetch x of the next rows as well as dy.

    Reading is to go on while dx is written. That asks for both once more where requests are dropped, and elsewhere for
    x alone: on Emerald Rapids rows of 1,024 columns then take 7 to 14 % less, longer ones up to a tenth.
    """
    return not wants_dx or drops_prefetches()


@register_jitable
def fetch(rows: Any, at: int) -> None:
    """Prefetch a line of each row."""
    at = again(at)  # else LLVM keeps eight addresses instead of two, on the stack
    prefetch(rows[0] + at)
    prefetch(rows[1] + at)
    prefetch(rows[2] + at)
    prefetch(rows[3] + at)


@register_jitable
def fetch_near(rows: Any, at: int) -> None:
    """Prefetch what comes soon of each row, into the first level."""
    prefetch_near(rows[0] + at + NEAR)
    prefetch_near(rows[1] + at + NEAR)
    prefetch_near(rows[2] + at + NEAR)
    prefetch_near(rows[3] + at + NEAR)


def standardizer(centred: bool) -> Any:
    """A function of x and a row's statistics: x̂."""

    @register_jitable(forceinline=True)
    def standardize(x: Any, row: Any) -> Any:
        return (x - row[0]) * row[1] if centred else x * row[1]

    return standardize


def _adding(dy: Element, x: Element, spec: NormSpec, careful: bool) -> Adding:
    """How sixteen columns of a row are added, and those of a group to the float64 sums."""
    load_dy, load_dy_part, load_x, load_x_part = dy.load, dy.load_part, x.load, x.load_part
    dy_size, x_size, wants_x = dy.size, x.size, spec.x
    wants_dx, wants_dw, wants_db, _ = spec
    centred, standardize = spec.centred, standardizer(spec.centred)
    most = np.float32(x.most)
    measured = careful or not np.isfinite(most)

    @register_jitable
    def begin(row: Any) -> Any:
        """What the sums of a row begin with: zeros, but for bounds that its statistics give already."""
        zero = splat(np.float32(0.0))
        if wants_dx and not measured:
            xhat = (absolute(row[0]) + most) * row[1] if centred else most * row[1]
            return zero, zero, zero, xhat * xhat * np.float32(SEGMENT // 16)
        return zero, zero, zero, zero

    @register_jitable
    def add(y: Any, xhat: Any, w: Any, terms: Any, sums: Any) -> Any:
        dw, db = terms
        sum_g, sum_gx, size, square = sums  # in the order of a record
        if wants_db:
            db = db + y
        if wants_dw:
            dw = fma(y, xhat, dw)
        if wants_dx:
            g = y * w
            if centred:
                sum_g = sum_g + g
            sum_gx = fma(g, xhat, sum_gx)
            if careful:
                size = size + absolute(y)
            if measured:
                square = fma(xhat, xhat, square)
        return (dw, db), (sum_g, sum_gx, size, square)

    @register_jitable
    def sixteen(dy_at: int, x_at: int, row: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(dy_at)
        xhat = standardize(load_x(x_at), row) if wants_x else y
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def some(dy_at: int, x_at: int, count: int, row: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load_dy(dy_at)
        xhat = y
        if wants_x:
            xhat = select(first_lanes(count), standardize(load_x(x_at), row), 0.0)
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def add_terms(terms: Any, dw_at: int, db_at: int, lost: Any) -> Any:
        """Add the terms of a group's sixteen columns to the float64 sums; if careful, none that float32 cannot hold."""
        dw, db = terms
        lost_dw, lost_db = lost
        if wants_dw:
            if careful:
                none = dw - dw
                lost_dw, dw = lost_dw + none, select(none == 0.0, dw, 0.0)
            accumulate(dw_at, dw)
        if wants_db:
            if careful:
                none = db - db
                lost_db, db = lost_db + none, select(none == 0.0, db, 0.0)
            accumulate(db_at, db)
        return lost_dw, lost_db

    @register_jitable
    def add_lost_terms(frame: int) -> None:
        """What ``add_terms`` left out, row by row in float64, which holds all these products."""
        dw_at, db_at = field(frame, DW_AT), field(frame, DB_AT)
        for j in range(field(frame, COLUMNS)):
            dw, db = splat(np.float32(0.0)), splat(np.float32(0.0))
            exact_dw = load_one_float64(dw_at + 8 * j) if wants_dw else 0.0
            exact_db = load_one_float64(db_at + 8 * j) if wants_db else 0.0
            for k in range(GROUP):
                y = load_dy_part(field(frame, DYS + 8 * k) + j * dy_size, 1)
                db = db + y
                exact_db += np.float64(lane(y, 0))
                if wants_dw:
                    x = load_x_part(field(frame, XS + 8 * k) + j * x_size, 1)
                    row = statistics(field(frame, ROW), k)
                    dw = fma(y, standardize(x, row), dw)
                    exact_row = np.float64(lane(row[0], 0)), np.float64(lane(row[1], 0))
                    exact_dw += np.float64(lane(y, 0)) * standardize(np.float64(lane(x, 0)), exact_row)
            if wants_dw and lane(dw - dw != 0.0, 0):
                store_one_float64(dw_at + 8 * j, exact_dw)
            if wants_db and lane(db - db != 0.0, 0):
                store_one_float64(db_at + 8 * j, exact_db)

    return Adding(begin, sixteen, some, add_terms, add_lost_terms)


def sum_group(dy: Element, x: Element, spec: NormSpec, careful: bool) -> Kernel:
    """The kernel that makes the records of four rows and adds their dy·x̂ and dy to the float64 sums.

    Its columns may be any number of segments, each of which gets its record.
    """
    begin, add_sixteen, add_some, add_terms, add_lost_terms = _adding(dy, x, spec, careful)
    dy_size, x_size, wants_x, wants_dx = dy.size, x.size, spec.x, spec.dx
    dy_line, x_line = 64 // dy.size - 1, 64 // x.size - 1

    def run(frame: int) -> None:
        dys, xs, columns = four(frame, DYS), four(frame, XS), field(frame, COLUMNS)
        whole = columns & -16
        rest, ends = columns - whole, scratch(ENDS)
        if rest:
            for k in range(GROUP):
                copy_in(field(frame, DYS + 8 * k) + whole * dy_size, rest * dy_size, ends + 64 * k)
                if wants_x:
                    copy_in(field(frame, XS + 8 * k) + whole * x_size, rest * x_size, ends + 64 * (GROUP + k))
        coefficients, w_at = field(frame, ROW), field(frame, W)
        row_0, row_1 = statistics(coefficients, 0), statistics(coefficients, 1)
        row_2, row_3 = statistics(coefficients, 2), statistics(coefficients, 3)
        dy_ahead, x_ahead = field(frame, DY_AHEAD), field(frame, X_AHEAD)
        dw_at, db_at = field(frame, DW_AT), field(frame, DB_AT)
        zero, nothing = splat(np.float32(0.0)), splat(np.float32(-0.0))  # to which adding is no operation
        lost = (zero, zero)
        record, pitch = field(frame, RECORD_AT), field(frame, PITCH)
        for first in range(0, columns, SEGMENT):
            sums_0, sums_1, sums_2, sums_3 = begin(row_0), begin(row_1), begin(row_2), begin(row_3)
            for j in range(first, min(first + SEGMENT, whole), 16):
                w = load_float32(w_at + 4 * j) if wants_dx else zero
                at, x_at = j * dy_size, j * x_size
                if j & dy_line == 0:
                    fetch(dys, at + dy_ahead)
                    if wants_dx:
                        fetch_near(dys, at)
                if wants_x and j & x_line == 0:
                    if asks_at_once(wants_dx):
                        fetch(xs, x_at + x_ahead)
                    if wants_dx:
                        fetch_near(xs, x_at)
                terms = (nothing, nothing)
                terms, sums_0 = add_sixteen(dys[0] + at, xs[0] + x_at, row_0, w, terms, sums_0)
                terms, sums_1 = add_sixteen(dys[1] + at, xs[1] + x_at, row_1, w, terms, sums_1)
                terms, sums_2 = add_sixteen(dys[2] + at, xs[2] + x_at, row_2, w, terms, sums_2)
                terms, sums_3 = add_sixteen(dys[3] + at, xs[3] + x_at, row_3, w, terms, sums_3)
                lost = add_terms(terms, dw_at + 8 * j, db_at + 8 * j, lost)
            if rest and whole < first + SEGMENT:
                w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
                terms = (nothing, nothing)
                terms, sums_0 = add_some(ends, ends + 256, rest, row_0, w, terms, sums_0)
                terms, sums_1 = add_some(ends + 64, ends + 320, rest, row_1, w, terms, sums_1)
                terms, sums_2 = add_some(ends + 128, ends + 384, rest, row_2, w, terms, sums_2)
                terms, sums_3 = add_some(ends + 192, ends + 448, rest, row_3, w, terms, sums_3)
                lost = add_terms(terms, dw_at + 8 * whole, db_at + 8 * whole, lost)
            if wants_dx:
                store_totals(record, pitch, sums_0 + sums_1 + sums_2 + sums_3)
                record += RECORD
        if careful and any_lane(lost[0] + lost[1] != 0.0):
            add_lost_terms(frame)

    return run


def sum_row(dy: Element, x: Element, spec: NormSpec, careful: bool, last: bool) -> Kernel:
    """The kernel for one row of a group: its terms are added to those before it, the last row's to the float64 sums."""
    begin, add_sixteen, add_some, add_terms, add_lost_terms = _adding(dy, x, spec, careful)
    dy_size, x_size, wants_x = dy.size, x.size, spec.x
    dy_line, x_line = 64 // dy.size - 1, 64 // x.size - 1
    wants_dx, wants_dw, wants_db, _ = spec

    @register_jitable
    def load_terms(at: int) -> Any:
        zero = splat(np.float32(0.0))
        return (load_float32(at) if wants_dw else zero), (load_float32(at + DB_TERMS) if wants_db else zero)

    @register_jitable
    def keep(frame: int, j: int, terms: Any, lost: Any) -> Any:
        if last:
            return add_terms(terms, field(frame, DW_AT) + 8 * j, field(frame, DB_AT) + 8 * j, lost)
        at = field(frame, TERMS) + 4 * j
        if wants_dw:
            store_float32(at, terms[0])
        if wants_db:
            store_float32(at + DB_TERMS, terms[1])
        return lost

    def run(frame: int) -> None:
        k, columns, before, w_at = field(frame, K), field(frame, COLUMNS), field(frame, BEFORE), field(frame, W)
        dy_at, x_at = field(frame, DYS + 8 * k), field(frame, XS + 8 * k)
        whole = columns & -16
        rest, end = columns - whole, scratch(128)
        if rest:
            copy_in(dy_at + whole * dy_size, rest * dy_size, end)
            if wants_x:
                copy_in(x_at + whole * x_size, rest * x_size, end + 64)
        row = statistics(field(frame, ROW), k)
        dy_ahead, x_ahead = dy_at + field(frame, DY_AHEAD), x_at + field(frame, X_AHEAD)
        zero = splat(np.float32(0.0))
        sums, lost = begin(row), (zero, zero)
        for j in range(0, whole, 16):
            w = load_float32(w_at + 4 * j) if wants_dx else zero
            if j & dy_line == 0:
                prefetch(dy_ahead + j * dy_size)
            if wants_x and j & x_line == 0 and asks_at_once(wants_dx):
                prefetch(x_ahead + j * x_size)
            terms = load_terms(before + 4 * j)
            terms, sums = add_sixteen(dy_at + j * dy_size, x_at + j * x_size, row, w, terms, sums)
            lost = keep(frame, j, terms, lost)
        if rest:
            w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
            terms, sums = add_some(end, end + 64, rest, row, w, load_terms(before + 4 * whole), sums)
            lost = keep(frame, whole, terms, lost)
        if wants_dx:
            store_totals(field(frame, RECORD_AT), 0, sums)
        if last and careful and any_lane(lost[0] + lost[1] != 0.0):
            add_lost_terms(frame)

    return run


def _gradient(centred: bool) -> Any:
    standardize = standardizer(centred)

    @register_jitable
    def gradient(y: Any, x: Any, w: Any, row: Any) -> Any:
        """Sixteen columns of a row's dx, by its ``constants``."""
        _, rstd, minus_c1, minus_c2 = row
        g = y * w
        return fma(standardize(x, row), minus_c2, g + minus_c1 if centred else g) * rstd

    return gradient


class Writing(NamedTuple):
    """What kernels that write dx have in common: sixteen columns of it, a line written, and an end of less than a line.

    ``out`` writes less than a line from memory, as (from, bytes, to).
    """

    sixteen: Any
    line: Any
    end: Any
    out: Any


def writing(dy: Element, x: Element, dx: Element, way: str, centred: bool) -> Writing:
    """How dx is written, ``way`` being one of ``elements.WAYS``."""
    gradient = _gradient(centred)
    load_dy, load_x, store_dx, write_dx = dy.load, x.load, dx.store, dx.lines[way]
    dy_size, x_size, dx_size, line = dy.size, x.size, dx.size, 64 // dx.size
    write_out = copy_out if way == "store" else stream_out

    @register_jitable
    def sixteen(dy_at: int, x_at: int, w_at: int, row: Any) -> Any:
        return gradient(load_dy(dy_at), load_x(x_at), load_float32(w_at), row)

    @register_jitable
    def write_line(dy_at: int, x_at: int, dx_at: int, w_at: int, row: Any) -> None:
        first = sixteen(dy_at, x_at, w_at, row)
        if line == 16:
            write_dx(dx_at, first)
        else:
            write_dx(dx_at, first, sixteen(dy_at + 16 * dy_size, x_at + 16 * x_size, w_at + 64, row))

    @register_jitable
    def write_end(dy_at: int, x_at: int, dx_at: int, w_at: int, count: int, row: Any) -> None:
        end = scratch(192)
        copy_in(dy_at, count * dy_size, end)
        copy_in(x_at, count * x_size, end + 64)
        for i in range(0, count, 16):
            w = load_float32_part(w_at + 4 * i, min(16, count - i))
            result = gradient(load_dy(end + i * dy_size), load_x(end + 64 + i * x_size), w, row)
            store_dx(end + 128 + i * dx_size, result)
        write_out(end + 128, count * dx_size, dx_at)

    return Writing(sixteen, write_line, write_end, write_out)


def write_row(dy: Element, x: Element, dx: Element, way: str, centred: bool) -> Kernel:
    """The kernel that writes dx of one row, the first of the frame's, a line at a time."""
    _, write_line, write_end, _ = writing(dy, x, dx, way, centred)
    dy_size, x_size, dx_size, line = dy.size, x.size, dx.size, 64 // dx.size

    def run(frame: int) -> None:
        columns, w_at = field(frame, COLUMNS), field(frame, W)
        dy_at, x_at, dx_at = field(frame, DYS), field(frame, XS), field(frame, DXS)
        dy_ahead, x_ahead = dy_at + field(frame, DY_AHEAD), x_at + field(frame, X_AHEAD)
        rest, row = columns % line, constants(field(frame, ROW), 0)
        whole = columns - rest
        for j in range(0, whole, line):
            dy_here, x_here = dy_at + j * dy_size, x_at + j * x_size
            prefetch_rest(dy_here + NEAR, dy_ahead + j * dy_size, x_here + NEAR, x_ahead + j * x_size)
            write_line(dy_here, x_here, dx_at + j * dx_size, w_at + 4 * j, row)
        if rest:
            at = dy_at + whole * dy_size, x_at + whole * x_size, dx_at + whole * dx_size
            write_end(at[0], at[1], at[2], w_at + 4 * whole, rest, row)

    return run


def write_group(dy: Element, x: Element, dx: Element, way: str, centred: bool) -> Kernel:
    """The kernel that writes dx of four rows, a line of each at a time."""
    _, write_line, write_end, _ = writing(dy, x, dx, way, centred)
    dy_size, x_size, dx_size, line = dy.size, x.size, dx.size, 64 // dx.size

    def run(frame: int) -> None:
        columns, w_at, row = field(frame, COLUMNS), field(frame, W), field(frame, ROW)
        dys, xs, dxs, rest = four(frame, DYS), four(frame, XS), four(frame, DXS), columns % line
        row_0, row_1, row_2, row_3 = constants(row, 0), constants(row, 1), constants(row, 2), constants(row, 3)
        whole = columns - rest
        for j in range(0, whole, line):
            dy_at, x_at, dx_at, w_here = j * dy_size, j * x_size, j * dx_size, w_at + 4 * j
            write_line(dys[0] + dy_at, xs[0] + x_at, dxs[0] + dx_at, w_here, row_0)
            write_line(dys[1] + dy_at, xs[1] + x_at, dxs[1] + dx_at, w_here, row_1)
            write_line(dys[2] + dy_at, xs[2] + x_at, dxs[2] + dx_at, w_here, row_2)
            write_line(dys[3] + dy_at, xs[3] + x_at, dxs[3] + dx_at, w_here, row_3)
        if rest:
            for k in range(GROUP):
                dy_at, x_at = field(frame, DYS + 8 * k) + whole * dy_size, field(frame, XS + 8 * k) + whole * x_size
                dx_at = field(frame, DXS + 8 * k) + whole * dx_size
                write_end(dy_at, x_at, dx_at, w_at + 4 * whole, rest, constants(row, k))

    return run
