"""LayerNorm's gradients over batches of rows that are few or long: threads share them by columns.

The same sums and results as in ``rows``, a step at a time; between the steps, records and coefficients of
the batch's rows are where the job says.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.job import (
    ADD_EXACTLY,
    ALL_COLUMNS,
    APART,
    BEGIN,
    COEFFICIENT,
    COEFFICIENTS,
    DB,
    DB_OFFSET,
    DW,
    DY,
    DY_AHEAD,
    DYS,
    END,
    FINISH,
    FRAME,
    FRESH,
    GROUP,
    JUDGE,
    ONLY,
    PARTIALS,
    PITCH,
    RECORD,
    RECORDS,
    ROW,
    SEGMENT,
    SEGMENTS,
    SIZE,
    SLOW_ROWS,
    X_AHEAD,
    XS,
    N,
    X,
    of,
)
from aclnn.kernels.cpu.layer_norm.lanes import call, call_judge
from aclnn.kernels.cpu.layer_norm.rows import (
    clear,
    is_slow,
    load_statistics,
    place_columns,
    place_row,
    sum_part,
    write_part,
)
from aclnn.kernels.cpu.structs import invoke, load_one_int64, scratch, store_one_int64
from aclnn.kernels.cpu.threads import Loop

VERDICTS, EXACT, WRITE = range(3)
"""The steps after the sums: verdicts and coefficients, of whole rows and by one thread; float64 sums of the slow rows,
by one thread too; dx."""

CHUNK = 4
"""Segments whose dw and db are summed in the room, 34 KiB, and finished at once, where there is only one batch."""
ZEROS = 4 * SEGMENT
DB_SUMS = 8 * SEGMENT * CHUNK + APART
SUMS_ROOM = DB_SUMS + 8 * SEGMENT * CHUNK


@register_jitable
def _coefficients(job: int, index: int) -> Any:
    return of(job, COEFFICIENTS) + COEFFICIENT * index


@register_jitable
def _records(job: int, index: int) -> Any:
    return of(job, RECORDS) + RECORD * of(job, SEGMENTS) * index


@register_jitable
def _column(job: int, segment: int) -> Any:
    """The column with which a segment begins, or that after the last."""
    return min(of(job, N), SEGMENT * segment)


@register_jitable
def _sum_rows(
    job: int, first: int, last: int, batch: int, begin: int, end: int, frame: int, zeros: int, dw_at: int, db_at: int
) -> None:
    store_one_int64(frame + PITCH, RECORD * of(job, SEGMENTS))
    for row in range(first, last, GROUP):
        count, coefficients = min(GROUP, last - row), _coefficients(job, row - batch)
        load_statistics(job, row, count, coefficients)
        store_one_int64(frame + ROW, coefficients)
        record = _records(job, row - batch) + RECORD * begin
        sum_part(job, row, count, SEGMENT * begin, _column(job, end), record, frame, zeros, dw_at, db_at)


@register_jitable
def _sum_part(job: int, first: int, last: int, batch: int, begin: int, end: int, frame: int, zeros: int) -> None:
    dw_at, db_at = of(job, PARTIALS), of(job, PARTIALS) + of(job, DB_OFFSET)
    if of(job, FRESH):
        size = 8 * (min(of(job, N), SEGMENT * end) - SEGMENT * begin)
        if of(job, DW) or of(job, DB):
            clear(dw_at + 8 * SEGMENT * begin, size)
        if of(job, DW) and of(job, DB):
            clear(db_at + 8 * SEGMENT * begin, size)
    _sum_rows(job, first, last, batch, begin, end, frame, zeros, dw_at, db_at)


@register_jitable
def _finish(job: int, gradient: int, sums: int, first: int, last: int) -> None:
    if of(job, gradient):
        counter = scratch(8)
        store_one_int64(counter, first)
        invoke(of(job, FINISH), job, gradient, sums, 1, 0, counter, last, last)


@register_jitable
def _sum_only_part(job: int, last: int, begin: int, end: int, frame: int, zeros: int) -> None:
    """The same for the only batch: dw and db are finished at once, and their sums stay in the cache."""
    sums = scratch(SUMS_ROOM)
    for segment in range(begin, end, CHUNK):
        stop, column = min(end, segment + CHUNK), segment * SEGMENT
        clear(sums, SUMS_ROOM)
        dw_at, db_at = sums - 8 * column, sums - 8 * column + DB_SUMS
        _sum_rows(job, 0, last, 0, segment, stop, frame, zeros, dw_at, db_at)
        _finish(job, DW, dw_at, column, min(of(job, N), stop * SEGMENT))
        _finish(job, DB, db_at, column, min(of(job, N), stop * SEGMENT))


@register_jitable
def _judge_rows(job: int, first: int, last: int, batch: int) -> None:
    for row in range(first, last):
        coefficients = _coefficients(job, row - batch)
        call_judge(of(job, JUDGE), job, _records(job, row - batch), coefficients, 1)
        if is_slow(coefficients):
            store_one_int64(job + 8 * SLOW_ROWS, 1)


@register_jitable
def _add_rows_exactly(job: int, first: int, last: int, batch: int, begin: int, end: int, frame: int) -> None:
    for row in range(first, last):
        coefficients = _coefficients(job, row - batch)
        if is_slow(coefficients):
            store_one_int64(frame + ROW, coefficients)
            for segment in range(begin, end):
                place_row(job, DY, row, segment * SEGMENT, frame, DYS)
                place_row(job, X, row, segment * SEGMENT, frame, XS)
                place_columns(job, segment * SEGMENT, min(SEGMENT, of(job, N) - segment * SEGMENT), frame)
                call(of(job, ADD_EXACTLY), frame)


@register_jitable
def _edge(job: int, part: int, parts: int) -> Any:
    """The segment with which a part begins."""
    start = of(job, BEGIN)
    return start + part * (of(job, END) - start) // parts


@register_jitable
def _prepare(job: int, frame: int) -> None:
    store_one_int64(frame + ALL_COLUMNS, of(job, N))
    # Prefetch the segment after this one: the last of a part guesses that it goes on.
    store_one_int64(frame + DY_AHEAD, SEGMENT * load_one_int64(job + of(job, DY) + SIZE))
    store_one_int64(frame + X_AHEAD, SEGMENT * load_one_int64(job + of(job, X) + SIZE) if of(job, X) else 0)


def batch_sums() -> Loop:
    """Records of all rows, dw and db, shared by threads as in ``chunks``; chunks are parts of the job's segments.

    The operands: the job, the first row, the row after the last, and the batch's first row.
    """

    def run(job: int, first: int, last: int, batch: int, unused: int, begun: int, chunk: int, parts: int) -> None:
        zeros, frame = scratch(ZEROS), scratch(FRAME)
        clear(zeros, ZEROS)
        _prepare(job, frame)
        part = fetch_add(begun, chunk) if begun else 0
        while part < parts:
            begin, end = _edge(job, part, parts), _edge(job, min(parts, part + chunk), parts)
            if of(job, ONLY):
                _sum_only_part(job, last, begin, end, frame, zeros)
            else:
                _sum_part(job, first, last, batch, begin, end, frame, zeros)
            part = fetch_add(begun, chunk) if begun else parts

    return run


def batch_dx() -> Loop:
    """What comes after the sums, likewise. The operands: the job, the step, and rows as above."""

    def run(job: int, step: int, first: int, last: int, batch: int, begun: int, chunk: int, parts: int) -> None:
        frame = scratch(FRAME)
        _prepare(job, frame)
        part = fetch_add(begun, chunk) if begun else 0
        while part < parts:
            begin, end = _edge(job, part, parts), _edge(job, min(parts, part + chunk), parts)
            if step == VERDICTS:
                _judge_rows(job, first, last, batch)
            elif step == EXACT:
                _add_rows_exactly(job, first, last, batch, begin, end, frame)
            else:
                column, count = SEGMENT * begin, _column(job, end) - SEGMENT * begin
                for row in range(first, last):
                    write_part(job, row, column, count, _coefficients(job, row - batch), frame)
            part = fetch_add(begun, chunk) if begun else parts
        finish_streams()

    return run
