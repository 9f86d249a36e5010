"""A norm's gradients over batches of rows that are few or long: threads share them by columns.

The same sums and results as in ``blocks``, a phase at a time; between the phases, sums and coefficients of the batch's
rows are in the workspace.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.norm.arithmetic import Kernel, set_coefficients
from aclnn.kernels.cpu.norm.blocks import (
    ZEROS_BYTES,
    clear,
    fetch_tile,
    finish_both,
    load_statistics,
    prepare,
    return_tile,
    sum_float64,
    sum_part,
    take_room,
    write_part,
)
from aclnn.kernels.cpu.norm.structs import (
    BLOCK_ARGS_BYTES,
    GROUP,
    ROW_ARGS_BYTES,
    SEGMENT,
    SUMS_BYTES,
    block_args_at,
    row_args_at,
)
from aclnn.kernels.cpu.structs import scratch
from aclnn.kernels.cpu.threads import take

SUMS, DECISIONS, WRITES, ALL = range(4)
"""Phases: row sums, dw and db; coefficients and float64 sums of whole rows, by one thread; dx. ALL is everything of all
batches by one thread, from what the call gives to dw and db."""


@register_jitable
def _sum(args: Any, own: Any, first: int, last: int, begin: int, end: int, rows: Any, zeros: int) -> None:
    """Sums of a tile's rows and segments."""
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
    """Coefficients of rows, and float64 sums of those that need them."""
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
    """A phase of a batch, except for decisions, over some of its segments."""
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


def batches() -> Kernel:
    """A phase of a batch, shared by threads; chunks are parts of the segments."""

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        args, zeros, rows = block_args_at(arguments), scratch(ZEROS_BYTES), row_args_at(scratch(ROW_ARGS_BYTES))
        first_phase, after = args.phase, args.phase + 1
        if args.phase == ALL:
            prepare(args)
            first_phase, after = SUMS, WRITES + 1 if args.write_row else SUMS + 1
        own = take_room(args, block_args_at(scratch(BLOCK_ARGS_BYTES)))
        clear(zeros, ZEROS_BYTES)
        # Prefetch the segment after this one: the last of a part guesses that it goes on.
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
