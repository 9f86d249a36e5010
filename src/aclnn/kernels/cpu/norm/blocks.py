"""The walk of a norm's gradients through rows, and the reduction of partial sums to dw and db.

Rows are processed in groups of four and segments of 512 columns: sums of each row, dw and db; then, for each row,
whether float32 is accurate enough; then dx. Threads share blocks of rows (``blocks``), and a group is still in the
cache when its dx is computed. Few or long rows are divided into batches instead, whose columns threads share, one phase
after the other (``batches``); the workspace holds sums and coefficients of the batch's rows between phases.

Kernels of ``arithmetic``, compiled for each data type and called by address, compute. Tensors of several data types, or
whose rows are not contiguous, are gathered into tiles.
"""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

import numpy as np

from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.elementwise.functions import narrow_to_odd
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.norm.arithmetic import set_coefficients
from aclnn.kernels.cpu.norm.structs import (
    BLOCK_ARGS_BYTES,
    FLOAT,
    GROUP,
    ROW_ARGS_BYTES,
    ROW_BATCH_ARGS_BYTES,
    SEGMENT,
    SUMS_BYTES,
    RowCoefficients,
    RowSums,
    block_args_at,
    coefficients_at,
    load_columns,
    load_statistic,
    move_tile,
    narrow_all,
    row_args_at,
    row_at,
    row_batch_args_at,
    store_columns,
    sums_at,
    widen_all,
)
from aclnn.kernels.cpu.simd.doubles import load_doubles, narrow, store_doubles
from aclnn.kernels.cpu.simd.memory import copy, first_lanes, store_float32
from aclnn.kernels.cpu.simd.vector import LANES, any_lane, select, splat
from aclnn.kernels.cpu.structs import address, call_pointer, declared, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked, take

PREFETCHED = 64
"""Columns of the longest row for which hardware prefetching suffices."""
PIECE = 2 * SEGMENT
"""Columns of dx that are written for each row of a group before the following columns. The next group is prefetched in
the same order, because its sums begin with the first columns of all its rows."""
SUMS, DECISIONS, WRITES, ALL = range(4)
"""Phases: row sums, dw and db; coefficients and float64 sums of whole rows, by one thread; dx. In ALL, one thread does
everything for all batches, from the preparation of arguments to dw and db."""
LONGEST = 1 << 15
"""Columns of the longest row of a block, so that its sums fit on the stack."""
FINISHED = 512
"""Columns of dw or db for which all partial sums are added before the next columns: the totals stay in the L1 cache."""


@declared
class Group(ctypes.Structure):
    """The state of a group of rows, on a thread's stack."""

    zeros: Annotated[Any, ctypes.c_float * SEGMENT]
    """Stands in for dy and x of rows that a group lacks."""
    coefficients: Annotated[Any, RowCoefficients * GROUP]
    sums: Annotated[Any, RowSums * (GROUP * (LONGEST // SEGMENT))]


group_at, GROUP_BYTES = pointer_to(Group), ctypes.sizeof(Group)
ZEROS_BYTES = 4 * SEGMENT


@register_jitable
def clear(address: int, size: int) -> None:
    """Zero memory, in whole vectors."""
    zero = splat(np.float32(0.0))
    for at in range(address, address + size, 64):
        store_float32(at, zero)


@register_jitable
def prepare(args: Any) -> None:
    """Distribute the call's addresses, and copy the weights to contiguous float32 if necessary."""
    inputs, outputs = args.inputs, args.outputs
    args.dy.address, args.x.address, args.rstd.address = inputs[0], inputs[1], inputs[3]
    args.mean.address = inputs[2] if inputs[2] else inputs[3]  # RMSNorm loads a mean, too, but does not use it
    args.dx.address, args.dw.address, args.db.address = outputs[0], outputs[1], outputs[2]
    args.partials = args.workspace + args.partials_at
    args.sums = sums_at(args.workspace + args.sums_at)
    args.coefficients = coefficients_at(args.workspace + args.coefficients_at)
    args.weight, args.weights.address = inputs[4], inputs[4]
    if args.copies_weight:
        args.weight = args.workspace
        if args.weights.address:
            load_columns(args.weights, args.n, args.weight)
        else:
            for j in range(0, args.n, LANES):
                store_float32(args.weight + 4 * j, select(first_lanes(args.n - j), splat(np.float32(1.0)), 0.0))


def preparation() -> Loop:
    """Return the loop that prepares the arguments of the other kernels, once a call."""

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        prepare(block_args_at(arguments))

    return run


@register_jitable
def take_room(args: Any, own: Any) -> Any:
    """Return a thread's arguments: with tiles, a copy at ``own`` whose dy, x and dx are in memory of the thread."""
    if not args.packed:
        return args
    copy(own, args, BLOCK_ARGS_BYTES)
    own.room += args.room_bytes * fetch_add(args.rooms_taken, 1)
    own.dy.itemsize, own.x.itemsize, own.dx.itemsize = args.tile_itemsize, args.tile_itemsize, args.tile_itemsize
    return own


@register_jitable
def _fetch(args: Any, own: Any, tensor: Any, at: int, raw: int) -> None:
    """Gather a thread's rows and columns to ``at``, if necessary through ``raw`` to be widened to float32."""
    rows, columns, widens = own.tile_height, own.tile_width, tensor.dtype != args.tile_dtype
    move_tile(tensor, 0, own.tile_row, rows, own.tile_column, columns, raw if widens else at)
    if widens:
        widen_all(tensor.dtype, raw, rows * columns, at)


def tiles() -> Loop:
    """Return the loop that gathers a thread's tiles of dy and x or, if ``scatters``, scatters its tile of dx."""

    def run(arguments: int, thread: int, scatters: int, end: int) -> None:
        args, own = block_args_at(arguments), block_args_at(thread)
        size = (own.room_bytes // 4) & -64
        dx_at, raw = own.room + 2 * size, own.room + 3 * size
        if scatters:
            if args.dx.dtype != args.tile_dtype:
                narrow_all(args.dx.dtype, dx_at, own.tile_height * own.tile_width, raw)
                dx_at = raw
            move_tile(args.dx, 1, own.tile_row, own.tile_height, own.tile_column, own.tile_width, dx_at)
        else:
            _fetch(args, own, args.dy, own.room, raw)
            _fetch(args, own, args.x, own.room + size, raw)
            pitch = own.tile_width * args.tile_itemsize
            start = own.room - own.tile_row * pitch - own.tile_column * args.tile_itemsize
            own.dy.row_step, own.x.row_step, own.dx.row_step = pitch, pitch, pitch
            own.dy.address, own.x.address, own.dx.address = start, start + size, start + 2 * size

    return run


@register_jitable
def fetch_tile(args: Any, own: Any, row: int, rows: int, column: int, columns: int) -> None:
    """Gather rows and columns of dy and x into a thread's tiles, and position the tile of dx."""
    own.tile_row, own.tile_height, own.tile_column, own.tile_width = row, rows, column, columns
    call_pointer(args.tiles, args, own, 0, 1)


@register_jitable
def return_tile(args: Any, own: Any) -> None:
    """Scatter a thread's tile of dx to the tensor."""
    call_pointer(args.tiles, args, own, 1, 1)


@register_jitable(forceinline=True)
def _point_row(tensor: Any, row: int, column: int) -> Any:
    """Return the address of a column in a row."""
    return row_at(tensor, row) + column * tensor.itemsize


@register_jitable
def _point_rows(tensor: Any, row: int, count: int, column: int, places: Any, missing: int) -> None:
    """Store the address of a column in each of a group's rows to ``places``; ``missing`` for rows that it lacks."""
    first, step = _point_row(tensor, row, column), tensor.row_step
    places[0] = first
    if step and count == GROUP:
        places[1], places[2], places[3] = first + step, first + 2 * step, first + 3 * step
        return
    for k in range(1, GROUP):
        places[k] = _point_row(tensor, row + k, column) if k < count else missing


@register_jitable
def load_statistics(args: Any, row: int, count: int, coefficients: Any) -> None:
    """Store mean and rstd of a group's rows into their coefficients; zeros for rows that it lacks."""
    for k in range(GROUP):
        mean, rstd = np.float32(0.0), np.float32(0.0)
        if k < count:
            mean, rstd = load_statistic(args.mean, row + k), load_statistic(args.rstd, row + k)
        # Threads that share a row's columns all store these values, so never another one in between.
        found = coefficients + k
        found.mean, found.rstd = mean, rstd


@register_jitable
def _point_part(args: Any, row: int, column: int, coefficients: Any, one: Any) -> None:
    """Set the addresses of columns of one row in a kernel's arguments."""
    one.dy[0], one.x[0] = _point_row(args.dy, row, column), _point_row(args.x, row, column)
    one.weight, one.coefficients, one.n = args.weight + 4 * column, coefficients, args.n


@register_jitable
def sum_float64(args: Any, row: int, column: int, columns: int, coefficients: Any, one: Any) -> None:
    """Add columns of a row to its float64 sums."""
    _point_part(args, row, column, coefficients, one)
    call_pointer(args.sum_float64, one, 0, columns, columns)


@register_jitable
def write_part(args: Any, row: int, column: int, columns: int, coefficients: Any, one: Any) -> None:
    """Write dx of columns of a row."""
    _point_part(args, row, column, coefficients, one)
    one.dx = _point_row(args.dx, row, column)
    call_pointer(args.write_float64 if coefficients.needs_float64 else args.write_row, one, 0, columns, columns)


@register_jitable
def sum_part(
    args: Any, kernel: int, row: int, count: int, first: int, last: int,
    sums: Any, rows: Any, zeros: int, dw: int, db: int,
) -> None:  # fmt: skip
    """Compute sums of a group's rows, and dw and db of its columns, from the beginning of a segment on."""
    size = last - first if count == GROUP else SEGMENT  # missing rows have zeros for a single segment
    for column in range(first, last, size):
        _point_rows(args.dy, row, count, column, rows.dy, zeros)
        _point_rows(args.x, row, count, column, rows.x, zeros)
        rows.weight, rows.sums = args.weight + 4 * column, sums + (column - first) // SEGMENT
        rows.dw, rows.db = dw + 8 * column, db + 8 * column
        columns = min(size, last - column)
        call_pointer(kernel, rows, 0, columns, columns)


@register_jitable
def _set_group_coefficients(args: Any, count: int, group: Any, has_all_sums: bool) -> bool:
    needs_float64 = False
    for k in range(count):
        needs_float64 |= set_coefficients(args, group.sums + args.segments * k, group.coefficients + k, has_all_sums)
    return needs_float64


@register_jitable
def _do_group(args: Any, row: int, count: int, group: Any, rows: Any, one: Any, dw: int, db: int) -> None:
    """Process a group of rows: all sums, then all of dx. Each pass prefetches the next group."""
    n, zeros, sums, coefficients = args.n, address(group.zeros), group.sums, group.coefficients
    rows.sums_pitch, rows.coefficients = SUMS_BYTES * args.segments, coefficients
    sum_part(args, args.sum_rows, row, count, 0, n, sums, rows, zeros, dw, db)
    if args.write_row:
        in_doubt = _set_group_coefficients(args, count, group, args.sum_rows_checked == 0)
        if in_doubt and args.sum_rows_checked:
            sum_part(args, args.sum_rows_checked, row, count, 0, n, sums, rows, zeros, dw, db)
            in_doubt = _set_group_coefficients(args, count, group, True)
        if in_doubt:
            for k in range(count):
                if coefficients[k].needs_float64:
                    sum_float64(args, row + k, 0, n, coefficients + k, one)
        for first in range(0, n, PIECE):
            for k in range(count):
                write_part(args, row + k, first, min(PIECE, n - first), coefficients + k, one)


@register_jitable
def _do_rows(
    args: Any, first: int, stop: int, behind: int, group: Any, rows: Any, one: Any, batch: Any, dw: int, db: int
) -> None:
    """Process rows of a block; ``behind`` is the number of rows after the last that may be read."""
    while first < stop:
        last = stop
        if args.short_rows:
            batch.block, batch.first, batch.behind, batch.dw, batch.db = args, first, behind, dw, db
            call_pointer(args.short_rows, batch, 0, args.row_batch, stop)
            first = batch.first
            last = min(stop, first + args.row_batch)
        for row in range(first, last, GROUP):
            ahead = GROUP if args.n > PREFETCHED and row + GROUP < stop else 0
            rows.dy_ahead, rows.x_ahead = ahead * args.dy.row_step, ahead * args.x.row_step
            one.dy_ahead, one.x_ahead = rows.dy_ahead, rows.x_ahead
            count = min(GROUP, stop - row)
            load_statistics(args, row, count, group.coefficients)
            _do_group(args, row, count, group, rows, one, dw, db)
        first = last


@register_jitable
def add_sums(total: int, sums: int, size: int) -> None:
    """Add ``size`` bytes of float64 sums to those at ``total``; both are padded to sixteen sums."""
    for at in range(0, size, 128):
        store_doubles(total + at, load_doubles(total + at) + load_doubles(sums + at))


@register_jitable
def _look_for_overflow(args: Any, sums: int, size: int) -> None:
    """Set ``overflowed`` if sums of dw and db are not finite."""
    for at in range(sums, sums + size, 128):
        values = load_doubles(at)
        if any_lane(values - values != 0.0):
            args.overflowed = 1


def blocks() -> Loop:
    """Return the loop over blocks of rows, shared by threads.

    A single thread adds up the sums of all its blocks as it goes, in two accumulators that stay in its cache.
    """

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        args = block_args_at(arguments)
        group, batch = group_at(stack_alloc(GROUP_BYTES)), row_batch_args_at(stack_alloc(ROW_BATCH_ARGS_BYTES))
        rows, one = row_args_at(stack_alloc(ROW_ARGS_BYTES)), row_args_at(stack_alloc(ROW_ARGS_BYTES))
        own = take_room(args, block_args_at(stack_alloc(BLOCK_ARGS_BYTES)))
        clear(address(group.zeros), ZEROS_BYTES)
        size, n, packed = args.partial_bytes, args.n, args.packed
        alone = counter == 0 and end > 1
        block = take(counter, step, end, 0)
        while block < end:
            dw = args.partials + (min(block, 1) if alone else block) * size
            db = dw + args.db_offset
            clear(dw, size)
            stop = min(args.m, (block + 1) * args.block_rows)
            for first in range(block * args.block_rows, stop, args.tile_rows):
                last = min(stop, first + args.tile_rows)
                if packed:
                    fetch_tile(args, own, first, last - first, 0, n)
                _do_rows(own, first, last, 0 if packed else args.m - last, group, rows, one, batch, dw, db)
                if packed and args.write_row:
                    return_tile(args, own)
            if not alone:
                _look_for_overflow(args, dw, size)
            elif block:
                add_sums(args.partials, dw, size)
            block = take(counter, step, end, block + 1)
        if alone:
            _look_for_overflow(args, args.partials, size)
            args.partial_count = 1
        finish_streams()

    return run


@register_jitable
def finish_columns(args: Any, gradient: Any, partials: int, first: int, last: int) -> None:
    """Finalize columns of dw or db: add the partial sums in order and round once; zeros if there are none.

    The first partial sum is overwritten.
    """
    count = args.partial_count
    if count > 1:
        for column in range(first, last, FINISHED):
            at, size = partials + 8 * column, 8 * min(FINISHED, last - column)
            for p in range(1, count):
                add_sums(at, at + p * args.partial_bytes, size)
    for j in range(first, last, LANES):
        value = splat(np.float32(0.0))
        if count:
            total = load_doubles(partials + 8 * j)
            value = narrow(total) if gradient.dtype == FLOAT else narrow_to_odd(total)
        store_columns(gradient, j, value, min(LANES, last - j))


@register_jitable
def finish_both(args: Any, first: int, last: int) -> None:
    """Finalize columns of dw and db, if wanted."""
    if args.dw.address:
        finish_columns(args, args.dw, args.partials, first, last)
    if args.db.address:
        finish_columns(args, args.db, args.partials + args.db_offset, first, last)


def finish() -> Loop:
    """Return the loop that finalizes dw and db, shared by threads; chunks are columns."""

    def part(arguments: int, first: int, last: int) -> None:
        finish_both(block_args_at(arguments), first, last)

    return chunked(part)


@register_jitable
def _sum(args: Any, own: Any, first: int, last: int, begin: int, end: int, rows: Any, zeros: int) -> None:
    """Compute the sums of a tile's rows and segments."""
    rows.sums_pitch = SUMS_BYTES * args.segments
    for row in range(first, last, GROUP):
        count, index = min(GROUP, last - row), row - args.batch
        rows.coefficients = args.coefficients + index
        load_statistics(args, row, count, rows.coefficients)
        sums = args.sums + args.segments * index + begin
        column, stop = SEGMENT * begin, min(args.n, SEGMENT * end)
        dw, db = args.partials, args.partials + args.db_offset
        sum_part(own, args.sum_rows, row, count, column, stop, sums, rows, zeros, dw, db)


@register_jitable
def _decide(args: Any, own: Any, first: int, last: int, rows: Any) -> None:
    """Compute the coefficients of rows, and float64 sums of rows that need them."""
    for row in range(first, last):
        index = row - args.batch
        coefficients = args.coefficients + index
        if set_coefficients(args, args.sums + args.segments * index, coefficients, True):
            for begin in range(0, args.segments, args.tile_segments):
                column = SEGMENT * begin
                columns = min(args.n, SEGMENT * (begin + args.tile_segments)) - column
                if args.packed:
                    fetch_tile(args, own, row, 1, column, columns)
                sum_float64(own, row, column, columns, coefficients, rows)


@register_jitable
def _do_part(args: Any, own: Any, phase: int, begin: int, end: int, rows: Any, zeros: int) -> None:
    """Process some segments of a batch in a phase other than DECISIONS."""
    stop = min(args.m, args.batch + args.batch_rows)
    for segment in range(begin, end, args.tile_segments):
        after = min(end, segment + args.tile_segments)
        column, columns = SEGMENT * segment, min(args.n, SEGMENT * after) - SEGMENT * segment
        if phase == SUMS and args.batch == 0 and args.partial_bytes:
            clear(args.partials + 8 * column, 8 * columns)
            clear(args.partials + args.db_offset + 8 * column, 8 * columns)
        for first in range(args.batch, stop, args.tile_rows):
            last = min(stop, first + args.tile_rows)
            if args.packed:
                fetch_tile(args, own, first, last - first, column, columns)
            if phase == SUMS:
                _sum(args, own, first, last, segment, after, rows, zeros)
                continue
            for row in range(first, last):
                write_part(own, row, column, columns, args.coefficients + (row - args.batch), rows)
            if args.packed:
                return_tile(args, own)


def batches() -> Loop:
    """Return the loop over a phase of a batch, shared by threads; chunks are parts of the segments."""

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        args, zeros = block_args_at(arguments), address(stack_alloc(ZEROS_BYTES))
        rows = row_args_at(stack_alloc(ROW_ARGS_BYTES))
        first_phase, after = args.phase, args.phase + 1
        if args.phase == ALL:
            prepare(args)
            first_phase, after = SUMS, WRITES + 1 if args.write_row else SUMS + 1
        own = take_room(args, block_args_at(stack_alloc(BLOCK_ARGS_BYTES)))
        clear(zeros, ZEROS_BYTES)
        # Prefetch the next segment; after the last one of a part this is a guess that another part follows.
        rows.dy_ahead, rows.x_ahead = SEGMENT * own.dy.itemsize, SEGMENT * own.x.itemsize
        more = True
        while more:
            for phase in range(first_phase, after):
                if phase == DECISIONS:
                    _decide(args, own, args.batch, min(args.m, args.batch + args.batch_rows), rows)
                    continue
                part = take(counter, step, end, 0)
                while part < end:
                    begin, stop = part * args.segments // end, min(end, part + step) * args.segments // end
                    _do_part(args, own, phase, begin, stop, rows, zeros)
                    part = take(counter, step, end, end)
            more = args.phase == ALL and args.batch + args.batch_rows < args.m
            if more:
                args.batch += args.batch_rows
        if args.phase == ALL:
            finish_both(args, 0, args.n)
        finish_streams()

    return run
