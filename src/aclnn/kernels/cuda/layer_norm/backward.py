"""LayerNorm's and RMSNorm's gradients in Triton: sums in float32 by a tree that M and N alone decide.

Rows are taken in groups, each by one program that keeps the group's sums of dw and db, several short rows at a time; a
second kernel adds the groups in their order. Where a row is too long to be held in registers, dx goes over it twice,
and dw and db are added up by programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise.plans import anywhere
from aclnn.kernels.cuda.launch import TYPES, tl, triton
from aclnn.kernels.cuda.layer_norm.exact import beyond_float32, exact_row, exact_sums, join, mean_of
from aclnn.kernels.cuda.layer_norm.places import (
    Axes,
    alignment,
    chunks,
    in_chunk,
    number,
    numbers,
    place,
    place_all,
    place_of,
    start,
    step_of,
)

GROUPS = 264
"""There are at most so many groups, half of them where a row is longer than a tile: two or one for each of an H200's
132 multiprocessors, few enough partial sums. The same on every device, because the sums' bits depend on it."""
WHOLE = 16384
"""Rows up to this long are held in the registers of one program; two passes over them for dx and a third for dw and db
would read dy and x from memory twice."""
TILE = 4096
"""Elements of dy and x that a program takes at a time, where a row is not longer."""
THREAD_ELEMENTS = 16
"""Of a tile, for each thread: 64 bytes of each operand in float32, of which nothing else is to be spilled."""
CHUNK, CHUNK_ROWS = 2048, 8
"""Columns that longer rows are taken at a time; rows that are added up by one program at least."""
_WEIGHT_KEPT = tl.constexpr(8192)
STAGES = 2
"""Tiles on their way into shared memory while one is computed."""
FINISH_ROWS, FINISH_COLUMNS = 128, 32


@triton.jit
def whole_rows(
    dy, x, mean, rstd, weight, dx, partials, marks, axes, m, n, group_rows,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, WEIGHT: tl.constexpr, DX: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, DW: tl.constexpr, DB: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    FULL: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A group of rows, each held whole: dx, and the group's sums of dw and db into ``partials`` (groups, 2, n).

    Rows beyond float32 are not written but marked in ``marks`` (m), and taken last. FULL when n is BLOCK.
    """
    group = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < (BLOCK if FULL else (n >> ALIGNED) << ALIGNED)
    dy_columns, x_columns = place_all(column, axes, AT[1], COUNT[1]), place_all(column, axes, AT[3], COUNT[3])
    if DX is not None:
        dx_columns = place_all(column, axes, AT[8], COUNT[8])
        marked = tl.zeros((ROWS,), tl.int32)
        most_weight = tl.full((), 1.0, tl.float32)
        if WEIGHT is not None:
            weight_columns = place_all(column, axes, AT[6], COUNT[6])
            # The longest rows leave no registers for it.
            w = numbers(weight, WEIGHT, weight_columns, valid)
            most_weight = tl.max(tl.abs(w))
    if DW:
        dw = tl.zeros((ROWS, BLOCK), tl.float32)
    if DB:
        db = tl.zeros((ROWS, BLOCK), tl.float32)
    share = 1.0 / n
    begin = group * group_rows
    count = (tl.minimum(m, begin + group_rows) - begin).to(tl.int32)
    marks = marks.to(tl.pointer_type(tl.int8)) + begin
    dy_step, x_step = step_of(axes, AT[0], COUNT[0]), step_of(axes, AT[2], COUNT[2])
    mean_step, rstd_step = step_of(axes, AT[4], COUNT[4]), step_of(axes, AT[5], COUNT[5])
    dx_step = step_of(axes, AT[7], COUNT[7])
    for first in tl.range(0, count, ROWS, num_stages=STAGES):
        row = begin + first
        both = valid[None, :]
        if ROWS > 1:
            row += tl.arange(0, ROWS)
            there = first + tl.arange(0, ROWS) < count
            both = there[:, None] if FULL else there[:, None] & both
        dy_row = start(place_of(row, dy_step, axes, AT[0], COUNT[0]), ROWS, ALIGNED)
        x_row = start(place_of(row, x_step, axes, AT[2], COUNT[2]), ROWS, ALIGNED)
        dx_row = start(place_of(row, dx_step, axes, AT[7], COUNT[7]), ROWS, ALIGNED)
        g = numbers(dy, DY, dy_row + dy_columns[None, :], both)
        values = numbers(x, X, x_row + x_columns[None, :], both)
        mean_at = place_of(row, mean_step, axes, AT[4], COUNT[4])
        rstd_at = place_of(row, rstd_step, axes, AT[5], COUNT[5])
        if ROWS > 1:
            centre = numbers(mean, MEAN, mean_at, there)[:, None]
            scale = numbers(rstd, RSTD, rstd_at, there)[:, None]
        else:
            centre, scale = number(mean, MEAN, mean_at), number(rstd, RSTD, rstd_at)
        hat = (values - centre) * scale
        if not FULL:
            hat = tl.where(valid[None, :], hat, 0.0)
        if DW:
            dw = tl.fma(g, hat, dw)
        if DB:
            db += g
        if DX is not None:
            bits = g.to(tl.int32, bitcast=True)
            if WEIGHT is not None:
                if BLOCK > _WEIGHT_KEPT:
                    w = numbers(weight, WEIGHT, weight_columns, valid)
                g = g * w[None, :]
            sum_g, sum_gx, most_hat, bits = tl.reduce((g, g * hat, tl.abs(hat), bits), 1, join)
            c1, c2 = mean_of(sum_g, share, MEAN), sum_gx * share
            slow = beyond_float32(c1, c2, most_hat, bits, most_weight)
            result = tl.fma(-hat, c2[:, None], g - c1[:, None]) * scale
            pointer = dx.to(tl.pointer_type(DX)) + (dx_row + dx_columns[None, :])
            tl.store(pointer, result.to(DX), mask=both & (slow == 0)[:, None])
            tl.store(marks + first + tl.arange(0, ROWS), slow.to(tl.int8), mask=there if ROWS > 1 else None)
            marked |= slow.to(tl.int32)
    if DW or DB:
        sums = partials.to(tl.pointer_type(tl.float32)) + group * 2 * n + column
        if DW:
            tl.store(sums, tl.sum(dw, axis=0), mask=valid)
        if DB:
            tl.store(sums + n, tl.sum(db, axis=0), mask=valid)
    if DX is not None:  # noqa: SIM102 - this is decided when the kernel is compiled, the next when it runs
        if tl.max(marked) > 0:
            tl.debug_barrier()
            for index in tl.range(0, count, num_stages=1):
                if tl.load(marks + index) > 0:
                    exact_row(
                        dy, x, mean, rstd, weight, dx, begin + index, axes, n, DY, X, MEAN, RSTD, WEIGHT, DX, AT, COUNT
                    )  # fmt: skip


@triton.jit
def long_rows(
    dy, x, mean, rstd, weight, dx, axes, n,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, WEIGHT: tl.constexpr, DX: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """dx of one row in two passes over its chunks."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = start(place(row, axes, AT[0], COUNT[0]), 1, ALIGNED)
    x_row = start(place(row, axes, AT[2], COUNT[2]), 1, ALIGNED)
    dx_row = start(place(row, axes, AT[7], COUNT[7]), 1, ALIGNED)
    centre = number(mean, MEAN, place(row, axes, AT[4], COUNT[4]))
    scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5]))
    sum_g, sum_gx = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    most_weight = tl.full((BLOCK,), WEIGHT is None, tl.float32)
    most_hat, most_dy = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for chunk in range(chunks(n, BLOCK)):
        column = in_chunk(chunk, BLOCK)
        valid = column < n
        g = numbers(dy, DY, dy_row + place(column, axes, AT[1], COUNT[1]), valid)
        values = numbers(x, X, x_row + place(column, axes, AT[3], COUNT[3]), valid)
        hat = tl.where(valid, (values - centre) * scale, 0.0)
        most_hat, most_dy = tl.maximum(most_hat, tl.abs(hat)), tl.maximum(most_dy, tl.abs(g))
        if WEIGHT is not None:
            w = numbers(weight, WEIGHT, place(column, axes, AT[6], COUNT[6]), valid)
            most_weight = tl.maximum(most_weight, tl.abs(w))
            g = g * w
        sum_g += g
        sum_gx = tl.fma(g, hat, sum_gx)
    share = 1.0 / n
    c1, c2 = mean_of(tl.sum(sum_g), share, MEAN), tl.sum(sum_gx) * share
    bits = tl.max(most_dy.to(tl.int32, bitcast=True))
    if beyond_float32(c1, c2, tl.max(most_hat), bits, tl.max(most_weight)):
        exact_row(dy, x, mean, rstd, weight, dx, row, axes, n, DY, X, MEAN, RSTD, WEIGHT, DX, AT, COUNT)
    else:
        for chunk in range(chunks(n, BLOCK)):
            column = in_chunk(chunk, BLOCK)
            valid = column < n
            g = numbers(dy, DY, dy_row + place(column, axes, AT[1], COUNT[1]), valid)
            if WEIGHT is not None:
                g = g * numbers(weight, WEIGHT, place(column, axes, AT[6], COUNT[6]), valid)
            hat = (numbers(x, X, x_row + place(column, axes, AT[3], COUNT[3]), valid) - centre) * scale
            result = tl.fma(-hat, c2, g - c1) * scale
            pointer = dx.to(tl.pointer_type(DX)) + dx_row + place(column, axes, AT[8], COUNT[8])
            tl.store(pointer, result.to(DX), mask=valid)


@triton.jit
def column_sums(
    dy, x, mean, rstd, partials, axes, m, n, group_rows,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, DW: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """The sums of dw and db over a group of rows, for one chunk of columns."""
    group = tl.program_id(1).to(tl.int64)
    column = in_chunk(tl.program_id(0), BLOCK)
    valid = column < n
    dy_columns, x_columns = place(column, axes, AT[1], COUNT[1]), place(column, axes, AT[3], COUNT[3])
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(group * group_rows, tl.minimum(m, (group + 1) * group_rows)):
        dy_row = start(place(row, axes, AT[0], COUNT[0]), 1, ALIGNED)
        x_row = start(place(row, axes, AT[2], COUNT[2]), 1, ALIGNED)
        g = numbers(dy, DY, dy_row + dy_columns, valid)
        db += g
        if DW:
            values = numbers(x, X, x_row + x_columns, valid)
            centre = number(mean, MEAN, place(row, axes, AT[4], COUNT[4]))
            scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5]))
            dw = tl.fma(g, tl.where(valid, (values - centre) * scale, 0.0), dw)
    sums = partials.to(tl.pointer_type(tl.float32)) + group * 2 * n + column
    if DW:
        tl.store(sums, dw, mask=valid)
    if DB:
        tl.store(sums + n, db, mask=valid)


@triton.jit
def _not_finite(numbers):
    return (numbers - numbers == 0.0) == 0


@triton.jit
def total(
    dy, x, mean, rstd, sums, out, axes, m, n, group_rows, groups,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, OUT: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, HAT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the groups' sums, some interleaved rows of them at a time, and round once.

    What is not finite then is added up again in float64, from the rows of those groups whose own sum is not finite.
    """
    column = in_chunk(tl.program_id(0), BLOCK)
    valid = column < n
    found = tl.zeros((ROWS, BLOCK), tl.float32)
    at = sums.to(tl.pointer_type(tl.float32)) + column
    for first in range(0, groups, ROWS):
        group = first + tl.arange(0, ROWS).to(tl.int64)
        both = (group < groups)[:, None] & valid[None, :]
        found += tl.load((group * 2 * n)[:, None] + at[None, :], mask=both, other=0.0)
    result = tl.sum(found, axis=0)
    lost = _not_finite(result)
    if tl.max(lost.to(tl.int32)) > 0:
        exact = tl.zeros((BLOCK,), tl.float64)
        for group in tl.range(0, groups, num_stages=1):
            begin = tl.cast(group, tl.int64) * group_rows
            part = tl.load(at + tl.cast(group, tl.int64) * 2 * n, mask=valid, other=0.0)
            more = part.to(tl.float64)
            # NaN stays NaN.
            again = _not_finite(part) & (exact == exact)
            if tl.max(again.to(tl.int32)) > 0:
                end = tl.minimum(m, begin + group_rows)
                rows = exact_sums(
                    dy, x, mean, rstd, column, valid, axes, begin, end, DY, X, MEAN, RSTD, AT, COUNT, HAT, ROWS, BLOCK
                )  # fmt: skip
                more = tl.where(again, rows, more)
            exact += more
        result = tl.where(lost, exact.to(tl.float32), result)
    pointer = out.to(tl.pointer_type(OUT)) + place(column, axes, AT[10 - HAT], COUNT[10 - HAT])
    tl.store(pointer, result.to(OUT), mask=valid)


@triton.jit
def finish(
    dy, x, mean, rstd, partials, dw, db, axes, m, n, group_rows, groups,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, DW: tl.constexpr, DB: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dw by the first row of programs, db by the last: one launch, because both are short."""
    which = tl.program_id(1)
    if DW is not None:  # noqa: SIM102 - as above
        if which == 0:
            total(
                dy, x, mean, rstd, partials, dw, axes, m, n, group_rows, groups,
                DY, X, MEAN, RSTD, DW, AT, COUNT, True, ROWS, BLOCK,
            )  # fmt: skip
    if DB is not None:  # noqa: SIM102 - as above
        if which == tl.num_programs(1) - 1:
            sums = partials.to(tl.pointer_type(tl.float32)) + n
            total(
                dy, x, mean, rstd, sums, db, axes, m, n, group_rows, groups,
                DY, X, MEAN, RSTD, DB, AT, COUNT, False, ROWS, BLOCK,
            )  # fmt: skip


def pointer_to(address: int, layout: Layout | None) -> Any:
    """A tensor's address as a kernel's argument."""
    return launch.pointer(address, DataType.FLOAT if layout is None else layout.dtype)


class _LayerNormBackward:
    def __init__(
        self, inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int
    ) -> None:
        dy, x, mean, rstd, weight = inputs
        dx, self._dw, self._db = outputs
        assert dy is not None
        assert x is not None
        assert rstd is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        self._inputs, self._outputs, self._normalized_dims = inputs, outputs, normalized_dims
        self._parts: dict[Any, _LayerNormBackward] = {}
        self._axes = Axes()
        for layout, parts in (
            (dy, (slice(split), slice(split, None))),
            (x, (slice(split), slice(split, None))),
            (mean, (slice(None),)),
            (rstd, (slice(None),)),
            (weight, (slice(None),)),
            (dx, (slice(split), slice(split, None))),
            (self._dw, (slice(None),)),
            (self._db, (slice(None),)),
        ):
            for part in parts:
                self._axes.add(*((layout.shape[part], layout.strides[part]) if layout is not None else ((), ())))
        self._aligned = alignment([layout for layout in (dy, x, dx) if layout is not None], split)
        self._block = launch.power_of_two(max(1, self._n))
        self._rows = max(1, TILE // self._block) if self._n <= WHOLE else CHUNK_ROWS
        most = GROUPS if self._block <= TILE else GROUPS // 2
        self._group_rows = max(1, -(-self._m // (most * self._rows))) * self._rows
        self._groups = -(-self._m // self._group_rows)
        kept = 4 * self._block if self._block > _WEIGHT_KEPT.value else 0
        self._tile_bytes = self._rows * self._block * (dy.dtype.itemsize + x.dtype.itemsize) + kept + 1024
        wanted = self._dw is not None or self._db is not None
        self._sums_bytes = 8 * self._n * self._groups if wanted else 0
        self.workspace_bytes = self._sums_bytes + (self._m if dx is not None else 0)
        self._constants = {
            "DY": TYPES[dy.dtype],
            "X": TYPES[x.dtype],
            "MEAN": None if mean is None else TYPES[mean.dtype],
            "RSTD": TYPES[rstd.dtype],
            "AT": tuple(self._axes.starts),
            "COUNT": tuple(self._axes.counts),
        }
        self._row_constants = {
            "WEIGHT": None if weight is None else TYPES[weight.dtype],
            "DX": None if dx is None else TYPES[dx.dtype],
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if self._n == 0:
            return
        sums = {"DW": self._dw is not None, "DB": self._db is not None}
        replaced = self._outputs[0] is not None and outputs[0] in inputs[:2]
        if replaced and any(sums.values()) and self._n <= WHOLE:
            # The sums may need dy and x as they were.
            for part in (None, *self._outputs[1:]), (self._outputs[0], None, None):
                make = partial(_LayerNormBackward, self._inputs, part, self._normalized_dims)
                launch.kept(self._parts, part, make).run(inputs, outputs, workspace)
            return
        dy, x, mean, rstd, weight = map(pointer_to, inputs, self._inputs)
        axes, dx = self._axes.address(), self._row_constants["DX"]
        partials, written = launch.pointer(workspace), pointer_to(outputs[0], self._outputs[0])
        group = (axes, self._m, self._n, self._group_rows)
        if self._m and self._n <= WHOLE:
            num_warps = self._rows * self._block // (32 * THREAD_ELEMENTS)
            whole_rows[(self._groups,)](
                dy, x, mean, rstd, weight, written, partials, launch.pointer(workspace + self._sums_bytes), *group,
                **self._constants, **self._row_constants, **sums,
                ROWS=self._rows, BLOCK=self._block, FULL=self._n == self._block, ALIGNED=self._aligned,
                STAGES=STAGES if self._tile_bytes < launch.shared_bytes() else 1, num_warps=num_warps,
                # Two programs of 256 threads to a multiprocessor; and ptxas, left alone, gives 1,024 threads but 32.
                maxnreg=min(128, 2048 // num_warps), enable_fp_fusion=False,
            )  # fmt: skip
        elif self._m and any(sums.values()):
            # Of groups there are few; a grid's second dimension ends at 65,535.
            column_sums[(-(-self._n // CHUNK), self._groups)](
                dy, x, mean, rstd, partials, *group, **self._constants, **sums,
                BLOCK=CHUNK, ALIGNED=self._aligned, num_warps=8, enable_fp_fusion=False,
            )  # fmt: skip
        if any(sums.values()):
            gradients = (self._dw, self._db)
            finish[(-(-self._n // FINISH_COLUMNS), sum(sums.values()))](
                dy, x, mean, rstd, partials, *map(pointer_to, outputs[1:], gradients), *group,
                self._groups, **self._constants,
                **{name: layout and TYPES[layout.dtype] for name, layout in zip(sums, gradients, strict=True)},
                ROWS=FINISH_ROWS, BLOCK=FINISH_COLUMNS, num_warps=8, enable_fp_fusion=False,
            )  # fmt: skip
        if self._m and self._n > WHOLE and dx is not None:
            # After the sums: dx may replace dy or x.
            long_rows[(self._m,)](
                dy, x, mean, rstd, weight, written, axes, self._n, **self._constants, **self._row_constants,
                BLOCK=CHUNK, ALIGNED=self._aligned, num_warps=8, enable_fp_fusion=False,
            )  # fmt: skip


def plan(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    centred: bool = True,
) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``; RMSNorm is what has no mean."""
    assert centred == (inputs[2] is not None)
    make = partial(_LayerNormBackward, normalized_dims=normalized_dims)
    return anywhere(make, inputs, outputs, replaceable=2)
