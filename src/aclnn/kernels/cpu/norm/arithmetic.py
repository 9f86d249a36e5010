"""The three passes of a norm's gradients: sums over columns of four rows, and dx over columns of one row.

Row moments are a row's Σg and Σg·x̂, column moments Σdy and Σdy·x̂ over rows; the affine write is dx = a·g + b·x̂ + c:

    c1 = Σ g / N,  c2 = Σ g·x̂ / N              float32 lanes within a segment, float64 across segments
    dx = fma(-x̂, c2, g - c1)·rstd              g = dy·w, x̂ = (x - mean)·rstd
    dw += fma(dy3, x̂3, … fma(dy1, x̂1, dy0·x̂0)), db += ((dy0 + dy1) + dy2) + dy3    float64 across groups

Each kernel, compiled for a data type and ``NormSpec``, takes the address of ``RowArgs`` and, as its last argument, the
number of columns. dx of a row is computed in float64 where float32 intermediates would overflow or underflow; in
float64, products and sums of float32 numbers do neither. docs/numerics-layer-norm.md has the limits and bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.jit import generic, register_jitable
from aclnn.kernels.cpu.norm.structs import GROUP, SEGMENT, SUMS_BYTES, NormSpec, row_args_at
from aclnn.kernels.cpu.simd.doubles import load_doubles, store_doubles, widen
from aclnn.kernels.cpu.simd.memory import (
    Format,
    copy_in,
    copy_out,
    first_lanes,
    load_float32,
    load_float32_part,
    stream_out,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch, prefetch_near, prefetch_rest
from aclnn.kernels.cpu.simd.vector import LANES, absolute, any_lane, fma, lane, pieces, select, shuffled, splat
from aclnn.kernels.cpu.structs import address, float32_at, float64_at, optimization_barrier, pointer, stack_alloc
from aclnn.kernels.cpu.threads import Loop
from aclnn.kernels.layer_norm_limits import LEAST_C1, LEAST_C2, MOST_C, MOST_XHAT

NEAR = 1024
"""Bytes ahead in a row that a cache line is prefetched a second time, into the L1 cache, where dx is wanted too."""
REMAINDERS = 2 * 64 * GROUP
"""Bytes for the remainders of a group's rows of dy and x after the last whole vector."""

_MOST_SQUARE = MOST_XHAT**2


def add_halves(builder: ir.IRBuilder, vectors: list[ir.Value], width: int) -> list[ir.Value]:
    """Add the halves of each group of 2·width lanes, of one vector or of two concatenated ones at a time."""
    sums = []
    for pair in (vectors[i : i + 2] for i in range(0, len(vectors), 2)):
        lows = [i for i in range(LANES * len(pair)) if i // width % 2 == 0]
        sums.append(builder.fadd(*(shuffled(builder, [i + more for i in lows], *pair) for more in (0, width))))
    return sums


@generic(lambda address, pitch, values: types.void(types.int64, types.int64, values))
def store_totals(builder: ir.IRBuilder, address: ir.Value, pitch: ir.Value, values: ir.Value) -> None:
    """Store the horizontal sum of each value, as ``vector.total``: four contiguous, the next four ``pitch`` bytes on.

    Reducing all of them together takes a quarter of the instructions.
    """
    left = [builder.extract_value(values, i) for i in range(values.type.count)]
    for width in (8, 4, 2, 1):
        left = add_halves(builder, left, width)
    for i, sums in enumerate(pieces(builder, left[0], 4)):
        place = builder.add(address, builder.mul(pitch, ir.IntType(64)(i)))
        builder.store(sums, pointer(builder, place, sums.type), align=4)


@register_jitable
def statistics(coefficients: Any, k: int) -> Any:
    """Return mean and rstd of a group's row k, broadcast to all lanes."""
    row = coefficients + k
    return splat(row.mean), splat(row.rstd)


@register_jitable
def _prefetch_rows(rows: Any, at: int) -> None:
    """Prefetch a cache line of each row."""
    at = optimization_barrier(at)  # else LLVM keeps eight addresses instead of two, and spills them
    prefetch(rows[0] + at)
    prefetch(rows[1] + at)
    prefetch(rows[2] + at)
    prefetch(rows[3] + at)


@register_jitable
def _prefetch_rows_near(rows: Any, at: int) -> None:
    """Prefetch a cache line of each row that is read soon, into the L1 cache."""
    prefetch_near(rows[0] + at + NEAR)
    prefetch_near(rows[1] + at + NEAR)
    prefetch_near(rows[2] + at + NEAR)
    prefetch_near(rows[3] + at + NEAR)


def standardizer(centred: bool) -> Any:
    """Return the function of x and a row's statistics that computes x̂."""

    @register_jitable(forceinline=True)
    def standardize(x: Any, row: Any) -> Any:
        return (x - row[0]) * row[1] if centred else x * row[1]

    return standardize


def _adding(element: Format, spec: NormSpec, checked: bool) -> tuple[Any, Any, Any, Any]:
    """Return functions that accumulate sixteen columns of a row, its remainder, a group's terms, and overflowed terms.

    Sums of a row are accumulated over columns, terms of dw and db over a group's rows.
    """
    load, load_part, itemsize, wants_x = element.load, element.load_part, element.size, spec.x
    wants_dx, wants_dw, wants_db, centred = spec
    standardize = standardizer(centred)

    @register_jitable
    def add(y: Any, xhat: Any, w: Any, terms: Any, sums: Any) -> Any:
        dw, db = terms
        sum_g, sum_gx, size, square = sums  # in the order of RowSums
        if wants_db:
            db = db + y
        if wants_dw:
            dw = fma(y, xhat, dw)
        if wants_dx:
            g = y * w
            if centred:
                sum_g = sum_g + g
            sum_gx = fma(g, xhat, sum_gx)
            if checked:
                size = size + absolute(y)
            square = fma(xhat, xhat, square)
        return (dw, db), (sum_g, sum_gx, size, square)

    @register_jitable
    def sixteen(dy_at: int, x_at: int, row: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load(dy_at)
        return add(y, standardize(load(x_at), row) if wants_x else y, w, terms, sums)

    @register_jitable
    def some(dy_at: int, x_at: int, count: int, row: Any, w: Any, terms: Any, sums: Any) -> Any:
        y = load(dy_at)
        xhat = y
        if wants_x:
            xhat = select(first_lanes(count), standardize(load(x_at), row), 0.0)
        return add(y, xhat, w, terms, sums)

    @register_jitable
    def add_term(total: int, term: Any, overflow: Any) -> Any:
        """Add a group's terms of sixteen columns to float64 sums; if checked, skip and note those that overflowed."""
        if checked:
            none = term - term
            overflow, term = overflow + none, select(none == 0.0, term, 0.0)
        store_doubles(total, load_doubles(total) + widen(term))
        return overflow

    @register_jitable
    def add_terms(terms: Any, dw_at: int, db_at: int, overflow: Any) -> Any:
        dw, db = overflow
        if wants_dw:
            dw = add_term(dw_at, terms[0], dw)
        if wants_db:
            db = add_term(db_at, terms[1], db)
        return dw, db

    @register_jitable
    def add_overflowed(args: Any, columns: int) -> None:
        """Add the terms that ``add_term`` skipped, row by row in float64, in which no such product overflows."""
        total_dw, total_db = float64_at(args.dw), float64_at(args.db)
        for j in range(columns):
            dw, db = splat(np.float32(0.0)), splat(np.float32(0.0))
            exact_dw = total_dw[j] if wants_dw else 0.0
            exact_db = total_db[j] if wants_db else 0.0
            for k in range(GROUP):
                y = load_part(args.dy[k] + j * itemsize, 1)
                exact_y = np.float64(lane(y, 0))
                if wants_x:
                    x = load_part(args.x[k] + j * itemsize, 1)
                    row = statistics(args.coefficients, k)
                    exact_row = np.float64(lane(row[0], 0)), np.float64(lane(row[1], 0))
                    xhat, exact_xhat = standardize(x, row), standardize(np.float64(lane(x, 0)), exact_row)
                    if wants_dw:
                        dw = fma(y, xhat, dw)
                        exact_dw += exact_y * exact_xhat
                db = db + y
                exact_db += exact_y
            if wants_dw and lane(dw - dw != 0.0, 0):
                total_dw[j] = exact_dw
            if wants_db and lane(db - db != 0.0, 0):
                total_db[j] = exact_db

    return sixteen, some, add_terms, add_overflowed


def sum_rows(element: Format, spec: NormSpec, checked: bool) -> Loop:
    """Return the loop that computes the sums of four rows for each segment, and adds dy·x̂ and dy to float64 sums.

    If checked, it computes all of ``RowSums`` and recomputes overflowed terms in float64. Otherwise it takes fewer
    instructions: Σ|dy| is left out, and overflow shows in dw and db.
    """
    add_sixteen, add_some, add_terms, add_overflowed = _adding(element, spec, checked)
    itemsize, wants_x, wants_dx, in_line = element.size, spec.x, spec.dx, 64 // element.size - 1
    # If set, the next rows' x is prefetched here, like dy; else by the pass that writes dx.
    prefetches_x = wants_x and (not wants_dx or target.drops_prefetches(target.host()))

    def run(arguments: int, counter: int, step: int, columns: int) -> None:
        args = row_args_at(arguments)
        dys, xs = args.dy, args.x
        dys, xs = (dys[0], dys[1], dys[2], dys[3]), (xs[0], xs[1], xs[2], xs[3])
        whole = columns & -16
        rest, ends = columns - whole, address(stack_alloc(REMAINDERS))
        if rest:
            for k in range(GROUP):
                copy_in(args.dy[k] + whole * itemsize, rest * itemsize, ends + 64 * k)
                if wants_x:
                    copy_in(args.x[k] + whole * itemsize, rest * itemsize, ends + 64 * (GROUP + k))
        coefficients, w_at = args.coefficients, args.weight
        row_0, row_1 = statistics(coefficients, 0), statistics(coefficients, 1)
        row_2, row_3 = statistics(coefficients, 2), statistics(coefficients, 3)
        dy_ahead, x_ahead, dw_at, db_at = args.dy_ahead, args.x_ahead, args.dw, args.db
        zero, nothing = splat(np.float32(0.0)), splat(np.float32(-0.0))  # -0.0 + y is y: no instruction
        none, overflow = (zero, zero, zero, zero), (zero, zero)
        row_sums, pitch = address(args.sums), args.sums_pitch
        for first in range(0, columns, SEGMENT):
            sums_0, sums_1, sums_2, sums_3 = none, none, none, none
            for j in range(first, min(first + SEGMENT, whole), 16):
                w = load_float32(w_at + 4 * j) if wants_dx else zero
                at = j * itemsize
                if j & in_line == 0:
                    _prefetch_rows(dys, at + dy_ahead)
                    if wants_dx:
                        _prefetch_rows_near(dys, at)
                    if prefetches_x:
                        _prefetch_rows(xs, at + x_ahead)
                    if wants_dx:
                        _prefetch_rows_near(xs, at)
                terms = (nothing, nothing)
                terms, sums_0 = add_sixteen(dys[0] + at, xs[0] + at, row_0, w, terms, sums_0)
                terms, sums_1 = add_sixteen(dys[1] + at, xs[1] + at, row_1, w, terms, sums_1)
                terms, sums_2 = add_sixteen(dys[2] + at, xs[2] + at, row_2, w, terms, sums_2)
                terms, sums_3 = add_sixteen(dys[3] + at, xs[3] + at, row_3, w, terms, sums_3)
                overflow = add_terms(terms, dw_at + 8 * j, db_at + 8 * j, overflow)
            if rest and whole < first + SEGMENT:
                w = load_float32_part(w_at + 4 * whole, rest) if wants_dx else zero
                terms = (nothing, nothing)
                terms, sums_0 = add_some(ends, ends + 256, rest, row_0, w, terms, sums_0)
                terms, sums_1 = add_some(ends + 64, ends + 320, rest, row_1, w, terms, sums_1)
                terms, sums_2 = add_some(ends + 128, ends + 384, rest, row_2, w, terms, sums_2)
                terms, sums_3 = add_some(ends + 192, ends + 448, rest, row_3, w, terms, sums_3)
                overflow = add_terms(terms, dw_at + 8 * whole, db_at + 8 * whole, overflow)
            if wants_dx:
                store_totals(row_sums, pitch, sums_0 + sums_1 + sums_2 + sums_3)
                row_sums += SUMS_BYTES
        if checked and any_lane(overflow[0] + overflow[1] != 0.0):
            add_overflowed(args, columns)

    return run


def writing(element: Format, policy: str, centred: bool) -> tuple[Any, Any, Any, Any]:
    """Return functions that compute sixteen columns of dx, write a cache line, a partial line, and bytes from memory.

    They write by the policy of this name in ``Stores``. The last takes source address, number of bytes, and target.
    """
    standardize, load, store, itemsize = standardizer(centred), element.load, element.store, element.size
    write_dx, line = getattr(element.lines, policy), 64 // itemsize
    write_out = copy_out if policy == "store" else stream_out

    @register_jitable
    def gradient(y: Any, x: Any, w: Any, row: Any) -> Any:
        _, rstd, minus_c1, minus_c2 = row
        g = y * w
        return fma(standardize(x, row), minus_c2, g + minus_c1 if centred else g) * rstd

    @register_jitable
    def sixteen(dy_at: int, x_at: int, w_at: int, row: Any) -> Any:
        return gradient(load(dy_at), load(x_at), load_float32(w_at), row)

    @register_jitable
    def write_line(dy_at: int, x_at: int, dx_at: int, w_at: int, row: Any) -> None:
        first = sixteen(dy_at, x_at, w_at, row)
        if line == 16:
            write_dx(dx_at, first)
        else:
            write_dx(dx_at, first, sixteen(dy_at + 16 * itemsize, x_at + 16 * itemsize, w_at + 64, row))

    @register_jitable
    def write_end(dy_at: int, x_at: int, dx_at: int, w_at: int, count: int, row: Any) -> None:
        end = address(stack_alloc(192))
        copy_in(dy_at, count * itemsize, end)
        copy_in(x_at, count * itemsize, end + 64)
        for i in range(0, count, 16):
            w = load_float32_part(w_at + 4 * i, min(16, count - i))
            result = gradient(load(end + i * itemsize), load(end + 64 + i * itemsize), w, row)
            store(end + 128 + i * itemsize, result)
        write_out(end + 128, count * itemsize, dx_at)

    return sixteen, write_line, write_end, write_out


def write_row(element: Format, policy: str, centred: bool) -> Loop:
    """Return the loop that writes dx of one row, a cache line at a time."""
    _, write_line, write_end, _ = writing(element, policy, centred)
    itemsize, line = element.size, 64 // element.size

    def run(arguments: int, counter: int, step: int, columns: int) -> None:
        args = row_args_at(arguments)
        dy_at, x_at, dx_at, w_at = args.dy[0], args.x[0], args.dx, args.weight
        dy_ahead, x_ahead = dy_at + args.dy_ahead, x_at + args.x_ahead
        of_row = args.coefficients
        row = splat(of_row.mean), splat(of_row.rstd), splat(of_row.minus_c1), splat(of_row.minus_c2)
        rest = columns % line
        whole = columns - rest
        for j in range(0, whole, line):
            at = j * itemsize
            dy_here, x_here = dy_at + at, x_at + at
            prefetch_rest(dy_here + NEAR, dy_ahead + at, x_here + NEAR, x_ahead + at)
            write_line(dy_here, x_here, dx_at + at, w_at + 4 * j, row)
        if rest:
            at = whole * itemsize
            write_end(dy_at + at, x_at + at, dx_at + at, w_at + 4 * whole, rest, row)

    return run


@register_jitable
def _all_zero(weight: int, n: int) -> bool:
    """Return true if all n float32 at an address are zero."""
    weights, j = float32_at(weight), 0
    while j < n and weights[j] == 0.0:
        j += 1
    return j == n


@register_jitable
def set_coefficients(block: Any, sums: Any, row: Any, has_all_sums: bool) -> Any:
    """Compute a row's coefficients from its sums; return true if float32 is not accurate enough for its dx.

    Without all sums (see ``sum_rows``), return true also if this is uncertain.
    """
    sum_g, sum_gx, size, square = 0.0, 0.0, 0.0, 0.0
    for _ in range(block.segments):
        sum_g += np.float64(sums.g)
        sum_gx += np.float64(sums.g_xhat)
        size += np.float64(sums.abs_dy)
        square += np.float64(sums.xhat_squared)
        sums = sums + 1
    c1, c2 = sum_g * block.inv_n, sum_gx * block.inv_n
    bounded = square <= _MOST_SQUARE and abs(c1) <= MOST_C and abs(c2) <= MOST_C
    visible = abs(c1) >= LEAST_C1 or abs(c2) >= LEAST_C2
    if has_all_sums and not visible:
        visible = size == 0.0 or _all_zero(block.weight, block.n)
    row.minus_c1, row.minus_c2 = np.float32(-c1), np.float32(-c2)
    row.sum_g, row.sum_g_xhat = 0.0, 0.0
    row.needs_float64 = not (bounded and visible)
    return row.needs_float64


def _terms(element: Format, centred: bool) -> Any:
    standardize, load_part, itemsize = standardizer(centred), element.load_part, element.size

    @register_jitable
    def terms(args: Any, j: int) -> Any:
        """Return g and x̂ of column j."""
        w, row = float32_at(args.weight)[j], args.coefficients
        g = np.float64(lane(load_part(args.dy[0] + j * itemsize, 1), 0)) * np.float64(w)
        of_row = np.float64(row.mean), np.float64(row.rstd)
        return g, standardize(np.float64(lane(load_part(args.x[0] + j * itemsize, 1), 0)), of_row)

    return terms


def sum_float64(element: Format, centred: bool) -> Loop:
    """Return the loop that adds columns of one row to its float64 sums."""
    terms = _terms(element, centred)

    def run(arguments: int, counter: int, step: int, columns: int) -> None:
        args = row_args_at(arguments)
        row = args.coefficients
        sum_g, sum_gx = row.sum_g, row.sum_g_xhat
        for j in range(columns):
            g, xhat = terms(args, j)
            sum_g += g
            sum_gx += g * xhat
        row.sum_g, row.sum_g_xhat = sum_g, sum_gx

    return run


def write_float64(element: Format, centred: bool) -> Loop:
    """Return the loop that writes columns of one row's dx from its float64 sums."""
    terms, store_part, itemsize = _terms(element, centred), element.store_part, element.size

    def run(arguments: int, counter: int, step: int, columns: int) -> None:
        args = row_args_at(arguments)
        row, dx_at = args.coefficients, args.dx
        c1 = row.sum_g / args.n if centred else 0.0
        c2 = row.sum_g_xhat / args.n
        rstd = np.float64(row.rstd)
        for j in range(columns):
            g, xhat = terms(args, j)
            store_part(dx_at + j * itemsize, splat(np.float32((g - c1 - xhat * c2) * rstd)), 1)

    return run
