"""A norm's gradients over batches of short rows: all passes in one kernel, bit for bit as ``arithmetic``.

A batch is small enough to stay in the L1 cache between its sums and dx. One bound decides for all of its rows whether
float32 is accurate enough, before anything is written. A batch for which it may not be is left to ``blocks``, which
decides for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu.jit import intrinsic, register_jitable
from aclnn.kernels.cpu.norm.arithmetic import add_halves, standardizer, writing
from aclnn.kernels.cpu.norm.structs import FLOAT, GROUP, SEGMENT, NormSpec, load_statistic, row_batch_args_at
from aclnn.kernels.cpu.simd.doubles import load_doubles, store_doubles, widen
from aclnn.kernels.cpu.simd.memory import Format, load_float32, store_float32
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import (
    DOUBLES,
    FLOATS,
    LANES,
    absolute,
    any_lane,
    broadcast,
    fma,
    joined,
    lane,
    pieces,
    splat,
)
from aclnn.kernels.cpu.structs import address, float32_at, moved, optimization_barrier, pointer, stack_alloc
from aclnn.kernels.cpu.threads import Loop
from aclnn.kernels.layer_norm_limits import LEAST_C1, LEAST_C2, MOST_C

LONGEST, LONGEST_BYTES = SEGMENT, 1024
"""Columns of the longest row that is processed in batches, and bytes of the longest one that is whole vectors."""
HALF = 8
"""Rows whose sums are reduced together, as one vector holds their Σg and Σg·x̂. A batch is a multiple of these."""
ROWS = 32
"""Maximum number of rows of a batch."""
AHEAD = 3 << 12
"""Prefetch distance of dy and x in bytes, for the sums and again for dx."""
ELEMENTS = 1024
"""Maximum number of elements of dy in a batch of more than eight rows. Eight rows of 256 columns take 8 KiB, and with
x and dx still fit into an L1 cache of 32 KiB."""
BOUND = 2.0**50
"""Bound of a batch's sum of x̂² in each lane, far below the square of ``MOST_XHAT``."""

# Offsets in bytes of a thread's data on its stack: float32 coefficients and sums of each row; the sums of eight rows
# before their horizontal reduction, and those of the eight rows before; float32 terms of dw and db.
MEANS, RSTDS, MINUS_C1S, MINUS_C2S, SUMS_G, SUMS_GX, LANES_AT = range(0, 7 * 4 * ROWS, 4 * ROWS)
LANES_BYTES = 2 * 64 * HALF
DW_TERMS = LANES_AT + 2 * LANES_BYTES
DB_TERMS = DW_TERMS + HALF * LONGEST
ROOM = DB_TERMS + HALF * LONGEST


def rows_of_a_batch(columns: int) -> int:
    """Return the number of rows of a batch for a number of columns."""
    padded = -(-columns // LANES) * LANES
    return max(HALF, min(ROWS, ELEMENTS // padded // HALF * HALF))


@intrinsic(types.void, types.int64, types.int64, types.int64)
def _store_totals(builder: ir.IRBuilder, sums_g: ir.Value, sums_gx: ir.Value, address: ir.Value) -> None:
    """Store the horizontal sums, as ``vector.total``, of sixteen vectors at an address: eight Σg and eight Σg·x̂."""
    left, eight = [], ir.VectorType(ir.FloatType(), HALF)
    for i in range(0, 64 * LANES, 128):
        # Loading halves and joining them is as fast as loading whole vectors, and saves a shuffle.
        low, high = (
            [
                builder.load(pointer(builder, moved(builder, address, ir.IntType(64)(i + at + half)), eight), align=32)
                for at in (0, 64)
            ]
            for half in (0, 32)
        )
        left.append(builder.fadd(joined(builder, low), joined(builder, high)))
    for width in (4, 2, 1):
        left = add_halves(builder, left, width)
    for part, sums in zip(pieces(builder, left[0], HALF), (sums_g, sums_gx), strict=True):
        builder.store(part, pointer(builder, sums, part.type), align=32)


@intrinsic(FLOATS, FLOATS, types.float64)
def _minus_product(builder: ir.IRBuilder, value: ir.Value, factor: ir.Value) -> ir.Value:
    """Return -value·factor for sixteen float32 and a float64: multiplied in float64, rounded to float32."""
    product = builder.fmul(builder.fpext(value, DOUBLES.llvm), broadcast(builder, factor))
    return builder.fptrunc(builder.fneg(product), FLOATS.llvm)


@register_jitable
def _store_sums(at: int, sums: Any) -> None:
    """Store the sums of four rows, not yet reduced horizontally, where ``_store_totals`` loads them."""
    sums_0, sums_1, sums_2, sums_3 = sums
    for which in range(2):
        there = at + 64 * HALF * which
        store_float32(there, sums_0[which])
        store_float32(there + 64, sums_1[which])
        store_float32(there + 128, sums_2[which])
        store_float32(there + 192, sums_3[which])


@register_jitable
def _in_line(tensor: Any) -> Any:
    """Return true if the rows' means or rstds are contiguous float32."""
    return tensor.row_step == 4 and tensor.dtype == FLOAT


@register_jitable
def _gather_statistics(block: Any, row: int, rows: int, room: int) -> None:
    """Copy mean and rstd of each row to the stack, unless both are contiguous."""
    if not (_in_line(block.mean) and _in_line(block.rstd)):
        for k in range(rows):
            float32_at(room + MEANS)[k] = load_statistic(block.mean, row + k)
            float32_at(room + RSTDS)[k] = load_statistic(block.rstd, row + k)


@register_jitable
def _statistics_at(block: Any, row: int, room: int) -> Any:
    """Return the addresses of mean and rstd of a batch's rows."""
    if _in_line(block.mean) and _in_line(block.rstd):
        return block.mean.address + 4 * row, block.rstd.address + 4 * row
    return room + MEANS, room + RSTDS


@register_jitable
def _statistics(means: int, rstds: int, k: int) -> Any:
    """Return mean and rstd of row k, broadcast to all lanes."""
    return splat(float32_at(means)[k]), splat(float32_at(rstds)[k])


@register_jitable
def _add_terms(groups: int, n: int, terms_at: int, sums_at: int) -> None:
    """Add the terms of each group to the float64 sums of n columns, in order."""
    padded = (n + LANES - 1) & -LANES
    for j in range(0, padded, LANES):
        total = load_doubles(sums_at + 8 * j)
        at = terms_at + 4 * j
        for _ in range(groups):
            total = total + widen(load_float32(at))
            at += 4 * padded
        store_doubles(sums_at + 8 * j, total)


@register_jitable
def _constants(means: int, rstds: int, room: int, k: int) -> Any:
    """Return all coefficients of row k, broadcast to all lanes."""
    mean, rstd = _statistics(means, rstds, k)
    return mean, rstd, splat(float32_at(room + MINUS_C1S)[k]), splat(float32_at(room + MINUS_C2S)[k])


@register_jitable(forceinline=True)
def _prefetch_ahead(dy_at: int, x_at: int) -> None:
    """Prefetch dy and x ``AHEAD`` bytes on."""
    prefetch(dy_at + AHEAD)
    prefetch(x_at + AHEAD)


def _sums(element: Format, spec: NormSpec) -> Any:
    _, wants_dw, wants_db, centred = spec
    standardize, load, vector_bytes = standardizer(centred), element.load, LANES * element.size

    @register_jitable(forceinline=True)
    def add_sixteen(dy_at: int, x_at: int, row: Any, w: Any, terms: Any, sums: Any, square: Any) -> Any:
        _prefetch_ahead(dy_at, x_at)
        y, xhat = load(dy_at), standardize(load(x_at), row)
        g = y * w
        dw = fma(y, xhat, terms[0]) if wants_dw else terms[0]
        db = terms[1] + y if wants_db else terms[1]
        sums = sums[0] + g if centred else sums[0], fma(g, xhat, sums[1])
        return (dw, db), sums, fma(xhat, xhat, square)

    @register_jitable
    def sum_batch(block: Any, row: int, rows: int, room: int) -> Any:
        """Compute each row's sums and the terms of dw and db; return true if no term overflowed and x̂ is in range."""
        vectors, w_at = (block.n + LANES - 1) // LANES, block.weight
        dy_step, x_step = block.dy.row_step, block.x.row_step
        dy_at, x_at, terms_at = block.dy.address + row * dy_step, block.x.address + row * x_step, room
        means, rstds = _statistics_at(block, row, room)
        zero = splat(np.float32(0.0))
        none = zero, zero
        nothing = -zero, -zero  # adding to -0.0 takes no instruction, and makes no difference to float64 sums
        square, overflow = zero, zero
        for half in range(0, rows + HALF, HALF):
            lanes, before = room + LANES_AT, room + LANES_AT + LANES_BYTES
            if half & HALF:
                lanes, before = before, lanes
            for k in range(half, min(half + HALF, rows), GROUP):
                row_0, row_1 = _statistics(means, rstds, k), _statistics(means, rstds, k + 1)
                row_2, row_3 = _statistics(means, rstds, k + 2), _statistics(means, rstds, k + 3)
                sums_0, sums_1, sums_2, sums_3 = none, none, none, none
                at, x_here, w_here = optimization_barrier(dy_at), optimization_barrier(x_at), w_at
                for _ in range(vectors):
                    w, terms = load_float32(w_here), nothing
                    at_2, x_2 = at + 2 * dy_step, x_here + 2 * x_step
                    terms, sums_0, square = add_sixteen(at, x_here, row_0, w, terms, sums_0, square)
                    terms, sums_1, square = add_sixteen(at + dy_step, x_here + x_step, row_1, w, terms, sums_1, square)
                    terms, sums_2, square = add_sixteen(at_2, x_2, row_2, w, terms, sums_2, square)
                    terms, sums_3, square = add_sixteen(at_2 + dy_step, x_2 + x_step, row_3, w, terms, sums_3, square)
                    overflow = fma(terms[0] + terms[1], zero, overflow)
                    if wants_dw:
                        store_float32(terms_at + DW_TERMS, terms[0])
                    if wants_db:
                        store_float32(terms_at + DB_TERMS, terms[1])
                    terms_at += 64
                    w_here += 64
                    at, x_here = optimization_barrier(at + vector_bytes), optimization_barrier(x_here + vector_bytes)
                _store_sums(lanes + 64 * (k - half), (sums_0, sums_1, sums_2, sums_3))
                dy_at, x_at = dy_at + GROUP * dy_step, x_at + GROUP * x_step
            if half > 0:  # of the eight rows before: stores of these have not yet reached the cache
                done = room + 4 * (half - HALF)
                _store_totals(done + SUMS_G, done + SUMS_GX, before)
        return not any_lane(~((square < BOUND) & (overflow == 0.0)))

    return sum_batch


def _limits(element: Format) -> Any:
    load_part, itemsize = element.load_part, element.size

    @register_jitable
    def all_zero(block: Any, row: int) -> Any:
        """Return true if all of a row's dy are zero."""
        dy_at, n = block.dy.address + row * block.dy.row_step, block.n
        total = splat(np.float32(0.0))
        for j in range(0, n, LANES):
            total = total + absolute(load_part(dy_at + j * itemsize, min(LANES, n - j)))
        return not any_lane(total != 0.0)

    @register_jitable
    def set_coefficients(block: Any, row: int, rows: int, room: int) -> Any:
        """Store -c1 and -c2 of each row on the stack; return true if float32 is accurate enough for all rows."""
        inv_n = block.inv_n
        for first in range(0, rows, LANES):
            at = room + 4 * first
            minus_c1 = _minus_product(load_float32(at + SUMS_G), inv_n)
            minus_c2 = _minus_product(load_float32(at + SUMS_GX), inv_n)
            store_float32(at + MINUS_C1S, minus_c1)
            store_float32(at + MINUS_C2S, minus_c2)
            if any_lane(~((absolute(minus_c1) < MOST_C / 2) & (absolute(minus_c2) < MOST_C / 2))):
                return False
            small = (absolute(minus_c1) < 2 * LEAST_C1) & (absolute(minus_c2) < 2 * LEAST_C2)
            if any_lane(small):
                for k in range(min(LANES, rows - first)):
                    if lane(small, k) and not all_zero(block, row + first + k):
                        return False
        return True

    return set_coefficients


def _writes(element: Format, policy: str, centred: bool) -> Any:
    itemsize, line, streamed = element.size, 64 // element.size, policy != "store"
    write_sixteen, store_sixteen = getattr(element, policy), element.store
    sixteen, write_line, _, write_some = writing(element, policy, centred)

    @register_jitable
    def write_end(dx_at: int, end: Any, written: int, rest: int) -> None:
        """Store the last sixteen columns of a row; those already written are not stored again if non-temporal."""
        if streamed or written + rest < LANES:
            room = address(stack_alloc(64))
            store_sixteen(room, end)
            write_some(room + written * itemsize, rest * itemsize, dx_at + written * itemsize)
        else:
            store_sixteen(dx_at, end)

    @register_jitable
    def write_batch(block: Any, row: int, rows: int, room: int) -> None:
        """Write dx of all rows, one after the other, which is the fastest order for memory."""
        n, (means, rstds) = block.n, _statistics_at(block, row, room)
        rest, last = n % LANES, max(0, n - LANES)
        dy_step, x_step, dx_step = block.dy.row_step, block.x.row_step, block.dx.row_step
        dy_at, x_at = block.dy.address + row * dy_step, block.x.address + row * x_step
        dx_at, w_at = block.dx.address + row * dx_step, block.weight
        for k in range(rows):
            at, x_here, dx_here, w_here = (
                optimization_barrier(dy_at),
                optimization_barrier(x_at),
                optimization_barrier(dx_at),
                w_at,
            )
            constants = _constants(means, rstds, room, k)
            end = constants[0]
            if rest:  # before dx is stored, which may replace dy or x
                end = sixteen(dy_at + last * itemsize, x_at + last * itemsize, w_here + 4 * last, constants)
            for _ in range(n // line):
                _prefetch_ahead(at, x_here)
                write_line(at, x_here, dx_here, w_here, constants)
                at, x_here = optimization_barrier(at + 64), optimization_barrier(x_here + 64)
                dx_here, w_here = optimization_barrier(dx_here + 64), w_here + 4 * line
            if n % line >= LANES:
                _prefetch_ahead(at, x_here)
                write_sixteen(dx_here, sixteen(at, x_here, w_here, constants))
            if rest:
                write_end(dx_at + last * itemsize, end, n - rest - last, rest)
            dy_at, x_at, dx_at = dy_at + dy_step, x_at + x_step, dx_at + dx_step

    return write_batch


def short_rows(element: Format, spec: NormSpec, policy: str) -> Loop:
    """Return the loop over batches of ``rows`` evenly spaced contiguous rows, up to ``stop``.

    It ends before an incomplete batch, or one for which float32 may not be accurate enough. The remainder of a row is
    read as a whole vector: elements after the row have weight 0, and their terms of dw and db are in the padding.
    """
    _, wants_dw, wants_db, centred = spec
    sum_batch, set_coefficients = _sums(element, spec), _limits(element)
    write_batch = _writes(element, policy, centred)

    def run(arguments: int, counter: int, rows: int, stop: int) -> None:
        args = row_batch_args_at(arguments)
        block, room, groups = args.block, address(stack_alloc(ROOM)), rows // GROUP
        n = block.n
        # The last row's whole vectors may extend over rows behind it, which must be readable.
        stop = min(stop, stop + args.behind - (((n + LANES - 1) & -LANES) - 1) // n)
        for at in range(room + SUMS_G, room + LANES_AT, 64):
            store_float32(at, splat(np.float32(1.0)))  # sums of eight rows leave half of a vector unset
        row = args.first
        while row + rows <= stop:
            _gather_statistics(block, row, rows, room)
            if not (sum_batch(block, row, rows, room) and set_coefficients(block, row, rows, room)):
                break
            if wants_dw:
                _add_terms(groups, n, room + DW_TERMS, args.dw)
            if wants_db:
                _add_terms(groups, n, room + DB_TERMS, args.db)
            write_batch(block, row, rows, room)
            row += rows
        args.first = row

    return run
