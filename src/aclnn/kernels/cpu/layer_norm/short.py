"""LayerNorm's gradients over sets of short rows: all in one call, with the bits of ``segments``.

A set is so many rows that they stay in the L1 cache between their sums and dx. One bound for all of them says that
float32 will do; nothing is written before it, and a set for which it may not do is left to ``rows``, where
each row has its own verdict.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu.jit import intrinsic, register_jitable
from aclnn.kernels.cpu.layer_norm.elements import Element
from aclnn.kernels.cpu.layer_norm.job import (
    BASE,
    CODE,
    DX,
    DY,
    FLOAT,
    GROUP,
    MEAN,
    RSTD,
    SHARE,
    STEP,
    WEIGHT,
    N,
    X,
    load_statistic,
    of,
)
from aclnn.kernels.cpu.layer_norm.lanes import halves
from aclnn.kernels.cpu.layer_norm.segments import NormSpec, standardizer, writing
from aclnn.kernels.cpu.simd.doubles import load_doubles, plus, store_doubles
from aclnn.kernels.cpu.simd.memory import load_float32, store_float32
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import FLOATS, LANES, absolute, any_lane, fma, lane, splat
from aclnn.kernels.cpu.structs import (
    again,
    load_one_float32,
    load_one_float64,
    load_one_int64,
    pointer,
    scratch,
    store_one_float32,
    store_one_int64,
)
from aclnn.kernels.cpu.threads import Loop
from aclnn.kernels.layer_norm_limits import LEAST_C1, LEAST_C2, MOST_C

LONGEST_BYTES = 1024
"""Size of the longest row that is taken in sets: 256 columns of float32, 512 of 16 bits."""
LONGEST = LONGEST_BYTES // 2
HALF = 8
"""Rows whose sums are reduced together: one vector has their Σg and Σg·x̂. A set is some of these."""
SET = 32
"""Rows of a set, at most."""
AHEAD = 3 << 12
"""How many bytes of dy and of x ahead memory is asked for, for the sums and again for dx: Zen 4 drops requests that are
too many at a time. With 128 columns of float32 16 elements then take 6.0 ns instead of 8.1, on one thread."""
SET_ELEMENTS = 1024
"""Elements of dy in a set of more than eight rows, at most. Eight of the longest rows take 8 KiB, and still stay in an
L1 cache of 32 KiB with x and dx."""
BOUND = 2.0**50
"""On the sum of x̂² of a set in each lane: far within the limit."""

# What the room holds, in bytes: float32 coefficients and sums of each row; lanes of the sums of eight rows, and of the
# eight before; float32 terms of dw and db.
MEANS, RSTDS, MINUS_C1S, MINUS_C2S, SUMS_G, SUMS_GX, LANES_AT = range(0, 7 * 4 * SET, 4 * SET)
LANES_BYTES = 2 * 64 * HALF
DW_TERMS = LANES_AT + 2 * LANES_BYTES
DB_TERMS = DW_TERMS + HALF * LONGEST
ROOM = DB_TERMS + HALF * LONGEST


def rows_of_a_set(columns: int) -> int:
    """How many rows of so many columns are a set."""
    padded = -(-columns // LANES) * LANES
    return max(HALF, min(SET, SET_ELEMENTS // padded // HALF * HALF))


def _part(builder: ir.IRBuilder, address: ir.Value, distance: int, lanes: int) -> ir.Value:
    """A pointer to so many float32."""
    place = builder.add(address, ir.IntType(64)(distance))
    return pointer(builder, place, ir.VectorType(ir.FloatType(), lanes))


def _order(*lanes: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), [ir.IntType(32)(lane) for lane in lanes])


@intrinsic(types.void, types.int64, types.int64, types.int64)
def _store_totals(builder: ir.IRBuilder, sums_g: ir.Value, sums_gx: ir.Value, address: ir.Value) -> None:
    """Write the sums of the lanes, as ``vector.total``, of the sixteen vectors at an address: eight Σg, eight Σg·x̂."""
    left = []
    for i in range(0, 64 * LANES, 128):
        # Halves of vectors come from memory side by side as fast as whole vectors, which would have to be shuffled.
        low, high = (
            [builder.load(_part(builder, address, i + at + half, HALF), align=32) for at in (0, 64)] for half in (0, 32)
        )
        left.append(builder.fadd(*(builder.shuffle_vector(*pair, _order(*range(LANES))) for pair in (low, high))))
    for width in (4, 2, 1):
        left = [builder.fadd(*halves(builder, left[i : i + 2], width)) for i in range(0, len(left), 2)]
    for i, sums in enumerate((sums_g, sums_gx)):
        part = builder.shuffle_vector(left[0], left[0], _order(*range(HALF * i, HALF * i + HALF)))
        builder.store(part, _part(builder, sums, 0, HALF), align=32)


@intrinsic(FLOATS, FLOATS, types.float64)
def _minus_product(builder: ir.IRBuilder, value: ir.Value, factor: ir.Value) -> ir.Value:
    """-value·factor, sixteen float32 and a float64: the product in float64, rounded to float32."""
    doubles = ir.VectorType(ir.DoubleType(), LANES)
    first = builder.insert_element(ir.Constant(doubles, ir.Undefined), factor, ir.IntType(32)(0))
    factors = builder.shuffle_vector(first, first, _order(*[0] * LANES))
    product = builder.fmul(builder.fpext(value, doubles), factors)
    return builder.fptrunc(builder.fneg(product), FLOATS.llvm)


@register_jitable
def _store_sums(at: int, sums: Any) -> None:
    """Write the sums of four rows, still in lanes, where ``_store_totals`` takes them from."""
    sums_0, sums_1, sums_2, sums_3 = sums
    for which in range(2):
        there = at + 64 * HALF * which
        store_float32(there, sums_0[which])
        store_float32(there + 64, sums_1[which])
        store_float32(there + 128, sums_2[which])
        store_float32(there + 192, sums_3[which])


@register_jitable(forceinline=True)
def base(job: int, tensor: int) -> Any:
    """Where a tensor begins."""
    return load_one_int64(job + of(job, tensor) + BASE)


@register_jitable(forceinline=True)
def step(job: int, tensor: int) -> Any:
    """Bytes from a row of a tensor to the next."""
    return load_one_int64(job + of(job, tensor) + STEP)


@register_jitable
def _in_line(job: int, tensor: int) -> Any:
    """Whether each row's mean or rstd is a float32 right behind the one before."""
    return step(job, tensor) == 4 and load_one_int64(job + of(job, tensor) + CODE) == FLOAT


@register_jitable
def gather(job: int, row: int, rows: int, room: int) -> None:
    """Put mean and rstd of each row into the room, if they are not in line."""
    if not (_in_line(job, MEAN) and _in_line(job, RSTD)):
        for k in range(rows):
            store_one_float32(room + MEANS + 4 * k, load_statistic(job + of(job, MEAN), row + k))
            store_one_float32(room + RSTDS + 4 * k, load_statistic(job + of(job, RSTD), row + k))


@register_jitable
def places(job: int, row: int, room: int) -> Any:
    """Where mean and rstd of a set's rows are."""
    if _in_line(job, MEAN) and _in_line(job, RSTD):
        return base(job, MEAN) + 4 * row, base(job, RSTD) + 4 * row
    return room + MEANS, room + RSTDS


@register_jitable
def statistics(means: int, rstds: int, k: int) -> Any:
    """Mean and rstd of row k, in every lane."""
    return splat(load_one_float32(means + 4 * k)), splat(load_one_float32(rstds + 4 * k))


@register_jitable
def _add_terms(groups: int, n: int, terms_at: int, sums_at: int) -> None:
    """Add the terms of so many groups to the float64 sums of n columns, in order."""
    padded = (n + LANES - 1) & -LANES
    for j in range(0, padded, LANES):
        total = load_doubles(sums_at + 8 * j)
        at = terms_at + 4 * j
        for _ in range(groups):
            total = plus(total, load_float32(at))
            at += 4 * padded
        store_doubles(sums_at + 8 * j, total)


@register_jitable
def _constants(means: int, rstds: int, room: int, k: int) -> Any:
    """All coefficients of row k, in every lane."""
    mean, rstd = statistics(means, rstds, k)
    minus_c1 = splat(load_one_float32(room + MINUS_C1S + 4 * k))
    return mean, rstd, minus_c1, splat(load_one_float32(room + MINUS_C2S + 4 * k))


@register_jitable(forceinline=True)
def fetch(dy_at: int, x_at: int) -> None:
    """Prefetch what comes later."""
    prefetch(dy_at + AHEAD)
    prefetch(x_at + AHEAD)


def _sums(dy: Element, x: Element, spec: NormSpec) -> Any:
    _, wants_dw, wants_db, centred = spec
    standardize = standardizer(centred)
    load_dy, load_x, dy_size, x_size = dy.load, x.load, dy.size, x.size

    @register_jitable(forceinline=True)
    def add_sixteen(dy_at: int, x_at: int, row: Any, w: Any, terms: Any, sums: Any, square: Any) -> Any:
        fetch(dy_at, x_at)
        y, xhat = load_dy(dy_at), standardize(load_x(x_at), row)
        g = y * w
        dw = fma(y, xhat, terms[0]) if wants_dw else terms[0]
        db = terms[1] + y if wants_db else terms[1]
        sums = sums[0] + g if centred else sums[0], fma(g, xhat, sums[1])
        return (dw, db), sums, fma(xhat, xhat, square)

    @register_jitable
    def sum_set(job: int, row: int, rows: int, room: int) -> Any:
        """Sums of each row and terms of dw and db; whether float32 holds the terms, and x̂ is small enough."""
        vectors, w_at = (of(job, N) + LANES - 1) // LANES, of(job, WEIGHT)
        dy_step, x_step = step(job, DY), step(job, X)
        dy_at, x_at, terms_at = base(job, DY) + row * dy_step, base(job, X) + row * x_step, room
        means, rstds = places(job, row, room)
        zero = splat(np.float32(0.0))
        none = zero, zero
        nothing = -zero, -zero  # adding to it takes no instruction, and float64 sums do not tell
        square, lost = zero, zero
        for half in range(0, rows + HALF, HALF):
            lanes, before = room + LANES_AT, room + LANES_AT + LANES_BYTES
            if half & HALF:
                lanes, before = before, lanes
            for k in range(half, min(half + HALF, rows), GROUP):
                row_0, row_1 = statistics(means, rstds, k), statistics(means, rstds, k + 1)
                row_2, row_3 = statistics(means, rstds, k + 2), statistics(means, rstds, k + 3)
                sums_0, sums_1, sums_2, sums_3 = none, none, none, none
                at, x_here, w_here = again(dy_at), again(x_at), w_at
                for _ in range(vectors):
                    w, terms = load_float32(w_here), nothing
                    at_2, x_2 = at + 2 * dy_step, x_here + 2 * x_step
                    terms, sums_0, square = add_sixteen(at, x_here, row_0, w, terms, sums_0, square)
                    terms, sums_1, square = add_sixteen(at + dy_step, x_here + x_step, row_1, w, terms, sums_1, square)
                    terms, sums_2, square = add_sixteen(at_2, x_2, row_2, w, terms, sums_2, square)
                    terms, sums_3, square = add_sixteen(at_2 + dy_step, x_2 + x_step, row_3, w, terms, sums_3, square)
                    lost = fma(terms[0] + terms[1], zero, lost)
                    if wants_dw:
                        store_float32(terms_at + DW_TERMS, terms[0])
                    if wants_db:
                        store_float32(terms_at + DB_TERMS, terms[1])
                    terms_at += 64
                    w_here += 64
                    at, x_here = again(at + LANES * dy_size), again(x_here + LANES * x_size)
                _store_sums(lanes + 64 * (k - half), (sums_0, sums_1, sums_2, sums_3))
                dy_at, x_at = dy_at + GROUP * dy_step, x_at + GROUP * x_step
            if half > 0:  # of those before: what has just been written is not yet in the cache
                done = room + 4 * (half - HALF)
                _store_totals(done + SUMS_G, done + SUMS_GX, before)
        return not any_lane(~((square < BOUND) & (lost == 0.0)))

    return sum_set


def _verdicts(dy: Element) -> Any:
    load_part, dy_size = dy.load_part, dy.size

    @register_jitable
    def all_zero(job: int, row: int) -> Any:
        """Whether dy is zero in all of a row."""
        dy_at, n = base(job, DY) + row * step(job, DY), of(job, N)
        total = splat(np.float32(0.0))
        for j in range(0, n, LANES):
            total = total + absolute(load_part(dy_at + j * dy_size, min(LANES, n - j)))
        return not any_lane(total != 0.0)

    @register_jitable
    def none_is_slow(job: int, row: int, rows: int, room: int) -> Any:
        """Put c1 and c2 of each row into the room; whether float32 is enough for all of them."""
        share = load_one_float64(job + 8 * SHARE)
        for first in range(0, rows, LANES):
            at = room + 4 * first
            minus_c1 = _minus_product(load_float32(at + SUMS_G), share)
            minus_c2 = _minus_product(load_float32(at + SUMS_GX), share)
            store_float32(at + MINUS_C1S, minus_c1)
            store_float32(at + MINUS_C2S, minus_c2)
            if any_lane(~((absolute(minus_c1) < MOST_C / 2) & (absolute(minus_c2) < MOST_C / 2))):
                return False
            small = (absolute(minus_c1) < 2 * LEAST_C1) & (absolute(minus_c2) < 2 * LEAST_C2)
            if any_lane(small):
                for k in range(min(LANES, rows - first)):
                    if lane(small, k) and not all_zero(job, row + first + k):
                        return False
        return True

    return none_is_slow


def _writes(dy: Element, x: Element, dx: Element, way: str, centred: bool) -> Any:
    dy_size, x_size, dx_size = dy.size, x.size, dx.size
    write_sixteen, store_sixteen, line, streamed = getattr(dx, way), dx.store, 64 // dx.size, way != "store"
    sixteen, write_line, _, write_some = writing(dy, x, dx, way, centred)

    @register_jitable
    def write_end(dx_at: int, end: Any, written: int, rest: int) -> None:
        """Up to sixteen last columns of a row, of which some have been written: these not again around the cache."""
        if streamed or written + rest < LANES:
            room = scratch(64)
            store_sixteen(room, end)
            write_some(room + written * dx_size, rest * dx_size, dx_at + written * dx_size)
        else:
            store_sixteen(dx_at, end)

    @register_jitable
    def write_set(job: int, row: int, rows: int, room: int) -> None:
        """dx of all rows, one after the other: in this order memory takes it fastest."""
        n, (means, rstds) = of(job, N), places(job, row, room)
        rest, last = n % LANES, max(0, n - LANES)
        dy_step, x_step, dx_step = step(job, DY), step(job, X), step(job, DX)
        dy_at, x_at = base(job, DY) + row * dy_step, base(job, X) + row * x_step
        dx_at = base(job, DX) + row * dx_step
        for k in range(rows):
            at, x_here, dx_here, w_here = again(dy_at), again(x_at), again(dx_at), of(job, WEIGHT)
            constants = _constants(means, rstds, room, k)
            end = constants[0]
            if rest:  # before anything is written, perhaps over dy or x
                end = sixteen(dy_at + last * dy_size, x_at + last * x_size, w_here + 4 * last, constants)
            for _ in range(n // line):
                fetch(at, x_here)
                write_line(at, x_here, dx_here, w_here, constants)
                at, x_here = again(at + line * dy_size), again(x_here + line * x_size)
                dx_here, w_here = again(dx_here + 64), w_here + 4 * line
            if n % line >= LANES:
                fetch(at, x_here)
                write_sixteen(dx_here, sixteen(at, x_here, w_here, constants))
            if rest:
                write_end(dx_at + last * dx_size, end, n - rest - last, rest)
            dy_at, x_at, dx_at = dy_at + dy_step, x_at + x_step, dx_at + dx_step

    return write_set


def sets(dy: Element, x: Element, dx: Element, spec: NormSpec, way: str) -> Loop:
    """The kernel that goes through sets of evenly spaced rows whose elements lie side by side.

    The parameters: the job, the first row, the row after the last, rows of a set, where the float64 sums of dw and db
    are, where to put the first row that is not done (of what is no whole set, or of one out of the ordinary), and how
    many rows there are behind the last. What is left of rows behind whole vectors is read as a whole one: what
    follows them has weight 0, and its terms of dw and db are beyond the last column.
    """
    _, wants_dw, wants_db, centred = spec
    sum_set, none_is_slow, write_set = _sums(dy, x, spec), _verdicts(dy), _writes(dy, x, dx, way, centred)

    def run(job: int, first: int, stop: int, rows: int, dw_at: int, db_at: int, reached: int, more: int) -> None:
        room, groups, n = scratch(ROOM), rows // GROUP, of(job, N)
        stop = min(stop, stop + more - (((n + LANES - 1) & -LANES) - 1) // n)  # with what a row is read with
        for at in range(room + SUMS_G, room + LANES_AT, 64):
            store_float32(at, splat(np.float32(1.0)))  # the sums of eight rows leave half a vector
        row = first
        while row + rows <= stop:
            gather(job, row, rows, room)
            if not (sum_set(job, row, rows, room) and none_is_slow(job, row, rows, room)):
                break
            if wants_dw:
                _add_terms(groups, n, room + DW_TERMS, dw_at)
            if wants_db:
                _add_terms(groups, n, room + DB_TERMS, db_at)
            write_set(job, row, rows, room)
            row += rows
        store_one_int64(reached, row)

    return run
