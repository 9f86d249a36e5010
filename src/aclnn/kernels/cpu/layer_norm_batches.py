"""LayerNorm's gradients over batches of rows that are few or long: the compiled part, which threads share by columns.

The same sums and results as in ``layer_norm_rows``, a step at a time; between the steps, records and coefficients of
the batch's rows are where the job says.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_columns import finish_gradient
from aclnn.kernels.cpu.layer_norm_exact import exact, judge
from aclnn.kernels.cpu.layer_norm_job import (
    BEGIN,
    COEFFICIENT,
    COEFFICIENTS,
    DB,
    DB_OFFSET,
    DW,
    DX,
    DY,
    END,
    FRESH,
    GROUP,
    ONLY,
    PARTIALS,
    PARTS,
    RECORD,
    RECORDS,
    SEGMENT,
    SEGMENTS,
    SLOW,
    SLOW_ROWS,
    STREAMED,
    WEIGHT,
    WEIGHT_STEP,
    N,
    X,
    row_at,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element, store_int
from aclnn.kernels.cpu.layer_norm_rows import clear, load_group_statistics, rows_at
from aclnn.kernels.cpu.layer_norm_segments import Wanted, applying, summing
from aclnn.kernels.cpu.loops import Loop, shared
from aclnn.kernels.cpu.memory import finish_streams, load_one_float32, load_one_int64, scratch

SUMS, JUDGE, EXACT, APPLY = range(4)
"""The steps: records of all rows, dw and db; coefficients; float64 sums of the slow rows; dx."""

CHUNK = 4
"""Segments whose dw and db are summed in the room, 32 KiB, and finished at once, where there is only one batch."""
ZEROS, SUMS_ROOM = 4 * SEGMENT, 16 * SEGMENT * CHUNK


def batches(dy: Element, x: Element, dx: Element, wanted: Wanted) -> Loop:
    """The kernel for these elements; those of tensors that are absent or not read do not matter.

    Its operands: the job, the step, the first row, the row after the last, and the batch's first row. Chunks are parts
    of the job's segments; JUDGE and EXACT want one thread, and JUDGE whole rows.
    """
    sum_group, _, _ = summing(dy, x, wanted)
    apply_row = applying(dy, x, dx)
    add_exactly, apply_exactly = exact(dy, x, dx)
    dy_size, x_size, dx_size = dy.size, x.size, dx.size
    wants_x = wanted.x
    wants_dx, wants_dw, wants_db = wanted

    @register_jitable
    def coefficients_of(job: int, index: int) -> Any:
        return load_one_int64(job + 8 * COEFFICIENTS) + COEFFICIENT * index

    @register_jitable
    def records_of(job: int, index: int) -> Any:
        return load_one_int64(job + 8 * RECORDS) + RECORD * load_one_int64(job + 8 * SEGMENTS) * index

    @register_jitable
    def sum_rows(
        job: int, first: int, last: int, batch: int, begin: int, end: int, zeros: int, dw_at: int, db_at: int
    ) -> None:
        n, segments = load_one_int64(job + 8 * N), load_one_int64(job + 8 * SEGMENTS)
        dy_view, x_view = job + load_one_int64(job + 8 * DY), job + load_one_int64(job + 8 * X)
        for row in range(first, last, GROUP):
            count = min(GROUP, last - row)
            coefficients, records = coefficients_of(job, row - batch), records_of(job, row - batch)
            if wants_x:
                load_group_statistics(job, row, count, coefficients)
            for segment in range(begin, end):
                column = segment * SEGMENT
                dys = rows_at(dy_view, row, count, column * dy_size, zeros)
                xs = rows_at(x_view, row, count, column * x_size, zeros) if wants_x else dys
                # The next segment; the last one of a part guesses that the rows are long.
                sum_group(
                    dys, xs, load_one_int64(job + 8 * WEIGHT) + segment * load_one_int64(job + 8 * WEIGHT_STEP),
                    min(SEGMENT, n - column), coefficients, SEGMENT * dy_size, SEGMENT * x_size,
                    records + RECORD * segment, RECORD * segments, dw_at + 8 * column, db_at + 8 * column,
                )  # fmt: skip

    @register_jitable
    def sum_part(job: int, first: int, last: int, batch: int, begin: int, end: int, zeros: int) -> None:
        bytes_to_clear = 8 * (min(load_one_int64(job + 8 * N), SEGMENT * end) - SEGMENT * begin)
        dw_at, db_offset = load_one_int64(job + 8 * PARTIALS), load_one_int64(job + 8 * DB_OFFSET)
        if load_one_int64(job + 8 * FRESH):
            if wants_dw or wants_db:
                clear(dw_at + 8 * SEGMENT * begin, bytes_to_clear)
            if wants_dw and wants_db:
                clear(dw_at + db_offset + 8 * SEGMENT * begin, bytes_to_clear)
        sum_rows(job, first, last, batch, begin, end, zeros, dw_at, dw_at + db_offset)

    @register_jitable
    def sum_only_part(job: int, last: int, begin: int, end: int, zeros: int) -> None:
        sums, n = scratch(SUMS_ROOM), load_one_int64(job + 8 * N)
        db_offset = 8 * SEGMENT * CHUNK if wants_dw else 0
        for segment in range(begin, end, CHUNK):
            stop, column = min(end, segment + CHUNK), segment * SEGMENT
            clear(sums, SUMS_ROOM)
            dw_at = sums - 8 * column
            sum_rows(job, 0, last, 0, segment, stop, zeros, dw_at, dw_at + db_offset)
            if wants_dw:
                finish_gradient(job + load_one_int64(job + 8 * DW), dw_at, 1, 0, column, min(n, stop * SEGMENT))
            if wants_db:
                at = dw_at + db_offset
                finish_gradient(job + load_one_int64(job + 8 * DB), at, 1, 0, column, min(n, stop * SEGMENT))

    @register_jitable
    def judge_rows(job: int, first: int, last: int, batch: int) -> None:
        for row in range(first, last):
            if judge(job, records_of(job, row - batch), coefficients_of(job, row - batch)):
                store_int(job + 8 * SLOW_ROWS, 1)

    @register_jitable
    def write_rows(job: int, step: int, first: int, last: int, batch: int, begin: int, end: int) -> None:
        n, w_step = load_one_int64(job + 8 * N), load_one_int64(job + 8 * WEIGHT_STEP)
        streamed = load_one_int64(job + 8 * STREAMED)
        for row in range(first, last):
            coefficients = coefficients_of(job, row - batch)
            slow = load_one_float32(coefficients + SLOW) > 0.0
            for segment in range(begin, end):
                column = segment * SEGMENT
                columns = min(SEGMENT, n - column)
                dy_at = row_at(job + load_one_int64(job + 8 * DY), row) + column * dy_size
                x_at = row_at(job + load_one_int64(job + 8 * X), row) + column * x_size
                w_at = load_one_int64(job + 8 * WEIGHT) + segment * w_step
                if step == EXACT:
                    if slow:
                        add_exactly(dy_at, x_at, w_at, w_step // SEGMENT, columns, coefficients)
                    continue
                dx_at = row_at(job + load_one_int64(job + 8 * DX), row) + column * dx_size
                if slow:
                    apply_exactly(n, dy_at, x_at, dx_at, w_at, w_step // SEGMENT, columns, coefficients)
                else:
                    dy_ahead, x_ahead = SEGMENT * dy_size, SEGMENT * x_size
                    apply_row(dy_at, x_at, dx_at, w_at, columns, coefficients, dy_ahead, x_ahead, streamed)

    def part(job: int, step: int, first_row: int, last_row: int, batch: int, first: int, last: int) -> None:
        zeros = scratch(ZEROS)
        clear(zeros, ZEROS)
        start, parts = load_one_int64(job + 8 * BEGIN), load_one_int64(job + 8 * PARTS)
        segments = load_one_int64(job + 8 * END) - start
        begin, end = start + first * segments // parts, start + last * segments // parts
        if step == SUMS:
            if load_one_int64(job + 8 * ONLY):
                sum_only_part(job, last_row, begin, end, zeros)
            else:
                sum_part(job, first_row, last_row, batch, begin, end, zeros)
        elif wants_dx:
            if step == JUDGE:
                judge_rows(job, first_row, last_row, batch)
            else:
                write_rows(job, step, first_row, last_row, batch, begin, end)
        finish_streams()

    return shared(part)
