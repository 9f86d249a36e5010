"""LayerNorm's and RMSNorm's gradients in Triton: float32 sums in a tree determined by M and N only.

Rows are processed in groups, each by one program that keeps the group's sums of dw and db, several short rows at a
time; a second kernel adds the groups in order. If a row is too long for registers, dx takes two passes over it, and dw
and db are summed by separate programs. Rows of dx, and columns of dw and db, that overflow or underflow in float32 are
computed in float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import layer_norm_limits as limits
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.launch import tl, triton
from aclnn.kernels.cuda.rows import (
    Operands,
    alignment,
    chunk_count,
    chunk_indices,
    column_offset,
    load,
    load_columns,
    load_rows,
    row_offset,
    row_start,
    row_step,
    store,
)

GROUPS = 264
"""Maximum number of groups, halved if a row is longer than a tile: two or one for each of an H200's 132
multiprocessors, few enough partial sums. Equal on every device, because the sums' bits depend on it."""
HELD = 16384
"""Length of rows up to which one program holds them in registers; two passes for dx and a third for dw and db would
read dy and x from memory twice."""
TILE = 4096
"""Elements of dy and x that a program processes at a time, unless a row is longer."""
THREAD_ELEMENTS, MOST_WARPS = 16, 16
"""Elements of a tile per thread: 64 bytes of each operand in float32. A longer row's program has eight warps, whose
threads may have 255 registers: with twice as many threads, half of the data would spill."""
CHUNK, CHUNK_ROWS = 2048, 8
"""Columns of longer rows processed at a time; minimum number of rows summed by one program."""
_WEIGHT_HELD = tl.constexpr(8192)
STAGES = 3
"""Tiles in shared memory, of which one is computed while the others are being loaded, if there is room."""
TOTAL_ROWS, TOTAL_COLUMNS = 128, 32
_EXACT_CHUNK = tl.constexpr(1024)

# |g| itself is not compared: an overflow shows in c1 or c2; x̂·c2, then below 2^103, cannot make the largest g
# overflow.
_MOST_C, _MOST_XHAT = tl.constexpr(limits.MOST_C), tl.constexpr(limits.MOST_XHAT)
_LEAST_C1, _LEAST_C2 = tl.constexpr(limits.LEAST_C1), tl.constexpr(limits.LEAST_C2)


@triton.jit
def _combine(g, gx, x_hat, bits, other_g, other_gx, other_x_hat, other_bits):
    """Combine two parts of a row: the sums of g and g·x̂, the largest |x̂|, and the OR of dy's bits."""
    return g + other_g, gx + other_gx, tl.maximum(x_hat, other_x_hat), bits | other_bits


@triton.jit
def _mean_g(total, inverse_n, mean):
    """Return the mean of g to subtract in dx, 0 if x had no mean subtracted."""
    return tl.zeros_like(total) if mean.address is None else total * inverse_n


@triton.jit
def _needs_float64(c1, c2, max_x_hat, bits, max_weight):
    """Return True if float32 does not suffice for a row's dx. The largest |x̂| may miss NaNs; c2 does not."""
    bounded = (max_x_hat <= _MOST_XHAT) & (tl.abs(c1) <= _MOST_C) & (tl.abs(c2) <= _MOST_C)
    # Zeros have no bits but the sign. Triton's interpreter cannot broadcast a single boolean over rows.
    nothing = ((bits << 1) == 0) | (max_weight + c1 * 0.0 == 0.0)
    visible = (tl.abs(c1) >= _LEAST_C1) | (tl.abs(c2) >= _LEAST_C2) | nothing
    return (bounded & visible) == 0


@triton.jit
def _load_chunk(dy, x, dy_row, x_row, centre, scale, chunk, axes, n, BLOCK: tl.constexpr):
    """Return a chunk of a row: columns, their validity, dy and x̂, in the type of mean and rstd."""
    column = chunk_indices(chunk, BLOCK)
    valid = column < n
    g = load(dy, dy_row + column_offset(dy, column, axes), valid).to(scale.dtype)
    values = load(x, x_row + column_offset(x, column, axes), valid).to(scale.dtype)
    return column, valid, g, tl.where(valid, (values - centre) * scale, 0.0)


@triton.jit
def _row_means(
    dy, x, weight, dy_row, x_row, centre, scale, axes, n, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """Return a row's means of g and g·x̂, the largest |x̂|, the bits of the largest |dy|, and the largest |weight|."""
    sum_g, sum_gx = tl.zeros((BLOCK,), scale.dtype), tl.zeros((BLOCK,), scale.dtype)
    max_weight = tl.full((BLOCK,), weight.address is None, tl.float32)
    max_x_hat, max_dy = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for chunk in tl.range(0, chunk_count(n, BLOCK), num_stages=STAGES):
        column, valid, g, x_hat = _load_chunk(dy, x, dy_row, x_row, centre, scale, chunk, axes, n, BLOCK)
        max_x_hat = tl.maximum(max_x_hat, tl.abs(x_hat).to(tl.float32))
        max_dy = tl.maximum(max_dy, tl.abs(g).to(tl.float32))
        if weight.address is not None:
            w = load_columns(weight, column, axes, valid)
            max_weight = tl.maximum(max_weight, tl.abs(w))
            g = g * w.to(scale.dtype)
        sum_g += g
        sum_gx = tl.fma(g, x_hat, sum_gx)
    inverse_n = 1.0 / tl.cast(n, scale.dtype)
    bits = tl.max(max_dy.to(tl.int32, bitcast=True))
    return tl.sum(sum_g) * inverse_n, tl.sum(sum_gx) * inverse_n, tl.max(max_x_hat), bits, tl.max(max_weight)


@triton.jit
def _write_row(
    dy, x, weight, dx, dy_row, x_row, row, centre, scale, c1, c2, axes, n,
    BLOCK: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write dx of one row, given its means."""
    dx_row = row_start(dx, row, axes, 1, ALIGNED)
    for chunk in tl.range(0, chunk_count(n, BLOCK), num_stages=STAGES):
        column, valid, g, x_hat = _load_chunk(dy, x, dy_row, x_row, centre, scale, chunk, axes, n, BLOCK)
        if weight.address is not None:
            g = g * load_columns(weight, column, axes, valid).to(scale.dtype)
        store(dx, dx_row + column_offset(dx, column, axes), tl.fma(-x_hat, c2, g - c1) * scale, valid)


@triton.jit
def _exact_row(dy, x, mean, rstd, weight, dx, row, axes, n):
    """Write dx of one row, computed in float64."""
    dy_row, x_row = row_offset(dy, row, axes), row_offset(x, row, axes)
    centre = load_rows(mean, row, axes, None, 1).to(tl.float64)
    scale = load_rows(rstd, row, axes, None, 1).to(tl.float64)
    c1, c2, _, _, _ = _row_means(dy, x, weight, dy_row, x_row, centre, scale, axes, n, _EXACT_CHUNK, 1)
    c1 = tl.zeros_like(c1) if mean.address is None else c1
    _write_row(dy, x, weight, dx, dy_row, x_row, row, centre, scale, c1, c2, axes, n, _EXACT_CHUNK, 0, 1)


@triton.jit
def long_rows(dy, x, mean, rstd, weight, dx, axes, n, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """Write dx of one row in two passes over its chunks."""
    row = tl.program_id(0).to(tl.int64)
    dy_row, x_row = row_start(dy, row, axes, 1, ALIGNED), row_start(x, row, axes, 1, ALIGNED)
    centre, scale = load_rows(mean, row, axes, None, 1), load_rows(rstd, row, axes, None, 1)
    c1, c2, max_x_hat, bits, max_weight = _row_means(
        dy, x, weight, dy_row, x_row, centre, scale, axes, n, BLOCK, None
    )  # fmt: skip
    c1 = tl.zeros_like(c1) if mean.address is None else c1
    if _needs_float64(c1, c2, max_x_hat, bits, max_weight):
        _exact_row(dy, x, mean, rstd, weight, dx, row, axes, n)
    else:
        _write_row(dy, x, weight, dx, dy_row, x_row, row, centre, scale, c1, c2, axes, n, BLOCK, ALIGNED, None)


@triton.jit
def sum_rows(
    dy, x, mean, rstd, column, valid, axes, begin, end, DW: tl.constexpr, DB: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, TYPE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Return the sums over rows begin to end, for some columns, of dy·x̂ if DW, and of dy if DB."""
    dy_columns, x_columns = column_offset(dy, column, axes)[None, :], column_offset(x, column, axes)[None, :]
    dw, db = tl.zeros((ROWS, BLOCK), TYPE), tl.zeros((ROWS, BLOCK), TYPE)
    for chunk in tl.range(0, chunk_count(end - begin, ROWS), num_stages=STAGES):
        row = begin + chunk_indices(chunk, ROWS) if ROWS > 1 else begin + chunk
        row_valid = row < end
        mask = row_valid[:, None] & valid[None, :] if ROWS > 1 else valid[None, :]
        g = load(dy, row_start(dy, row, axes, ROWS, ALIGNED) + dy_columns, mask).to(TYPE)
        if DB:
            db += g
        if DW:
            values = load(x, row_start(x, row, axes, ROWS, ALIGNED) + x_columns, mask).to(TYPE)
            centre = load_rows(mean, row, axes, row_valid, ROWS).to(TYPE)
            scale = load_rows(rstd, row, axes, row_valid, ROWS).to(TYPE)
            dw = tl.fma(g, tl.where(mask, (values - centre) * scale, 0.0), dw)
    return tl.sum(dw, axis=0), tl.sum(db, axis=0)


@triton.jit
def held_rows(
    dy, x, mean, rstd, weight, dx, partials, flags, axes, m, n, group_rows,
    DW: tl.constexpr, DB: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    FULL: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Process a group of rows held in registers: dx, and the group's sums of dw and db in ``partials`` (groups, 2, n).

    Rows that need float64 are flagged in ``flags`` (m), and processed last. FULL if n is BLOCK.
    """
    group = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < (BLOCK if FULL else (n >> ALIGNED) << ALIGNED)
    dy_columns, x_columns = column_offset(dy, column, axes), column_offset(x, column, axes)
    if dx.address is not None:
        dx_columns = column_offset(dx, column, axes)
        flagged = tl.zeros((ROWS,), tl.int32)
        max_weight = tl.full((), 1.0, tl.float32)
        if weight.address is not None:
            weight_columns = column_offset(weight, column, axes)
            # The longest rows leave no registers for the weight.
            w = load(weight, weight_columns, valid)
            max_weight = tl.max(tl.abs(w))
    if DW:
        dw = tl.zeros((ROWS, BLOCK), tl.float32)
    if DB:
        db = tl.zeros((ROWS, BLOCK), tl.float32)
    inverse_n = 1.0 / n
    begin = group * group_rows
    count = (tl.minimum(m, begin + group_rows) - begin).to(tl.int32)
    flags += begin
    dy_step, x_step, dx_step = row_step(dy, axes), row_step(x, axes), row_step(dx, axes)
    mean_step, rstd_step = row_step(mean, axes), row_step(rstd, axes)
    for first in tl.range(0, count, ROWS, num_stages=STAGES):
        row = begin + first
        row_valid = None
        mask = valid[None, :]
        if ROWS > 1:
            row += tl.arange(0, ROWS)
            row_valid = first + tl.arange(0, ROWS) < count
            mask = row_valid[:, None] if FULL else row_valid[:, None] & mask
        dy_row = row_start(dy, row, axes, ROWS, ALIGNED, dy_step)
        x_row = row_start(x, row, axes, ROWS, ALIGNED, x_step)
        dx_row = row_start(dx, row, axes, ROWS, ALIGNED, dx_step)
        g = load(dy, dy_row + dy_columns[None, :], mask)
        values = load(x, x_row + x_columns[None, :], mask)
        centre = load_rows(mean, row, axes, row_valid, ROWS, mean_step)
        scale = load_rows(rstd, row, axes, row_valid, ROWS, rstd_step)
        x_hat = (values - centre) * scale
        if not FULL:
            x_hat = tl.where(valid[None, :], x_hat, 0.0)
        if DW:
            dw = tl.fma(g, x_hat, dw)
        if DB:
            db += g
        if dx.address is not None:
            bits = g.to(tl.int32, bitcast=True)
            if weight.address is not None:
                if BLOCK > _WEIGHT_HELD:
                    w = load(weight, weight_columns, valid)
                g = g * w[None, :]
            sum_g, sum_gx, max_x_hat, bits = tl.reduce((g, g * x_hat, tl.abs(x_hat), bits), 1, _combine)
            c1, c2 = _mean_g(sum_g, inverse_n, mean), sum_gx * inverse_n
            slow = _needs_float64(c1, c2, max_x_hat, bits, max_weight)
            result = tl.fma(-x_hat, c2[:, None], g - c1[:, None]) * scale
            store(dx, dx_row + dx_columns[None, :], result, mask & (slow == 0)[:, None])
            tl.store(flags + first + tl.arange(0, ROWS), slow.to(tl.int8), mask=row_valid)
            flagged |= slow.to(tl.int32)
    if DW or DB:
        sums = partials + group * 2 * n + column
        if DW:
            tl.store(sums, tl.sum(dw, axis=0), mask=valid)
        if DB:
            tl.store(sums + n, tl.sum(db, axis=0), mask=valid)
    if dx.address is not None:  # noqa: SIM102 - decided at compile time, the next condition at run time
        if tl.max(flagged) > 0:
            tl.debug_barrier()
            for index in tl.range(0, count, num_stages=1):
                if tl.load(flags + index) > 0:
                    _exact_row(dy, x, mean, rstd, weight, dx, begin + index, axes, n)


@triton.jit
def column_sums(
    dy, x, mean, rstd, partials, axes, m, n, group_rows,
    DW: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Sum dw and db over a group of rows that are not held, for one chunk of columns."""
    group = tl.program_id(1).to(tl.int64)
    column = chunk_indices(tl.program_id(0), BLOCK)
    valid = column < n
    begin, end = group * group_rows, tl.minimum(m, (group + 1) * group_rows)
    dw, db = sum_rows(
        dy, x, mean, rstd, column, valid, axes, begin, end, DW, DB, 1, BLOCK, ALIGNED, tl.float32, None
    )  # fmt: skip
    sums = partials + group * 2 * n + column
    if DW:
        tl.store(sums, dw, mask=valid)
    if DB:
        tl.store(sums + n, db, mask=valid)


@triton.jit
def _not_finite(x):
    return (x - x == 0.0) == 0


@triton.jit
def _add_groups(
    dy, x, mean, rstd, sums, out, axes, m, n, group_rows, groups,
    DW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the groups' sums, in several interleaved rows at a time, and round once.

    Sums that are not finite are recomputed in float64, from the rows of groups whose own sum is not finite.
    """
    column = chunk_indices(tl.program_id(0), BLOCK)
    valid = column < n
    found = tl.zeros((ROWS, BLOCK), tl.float32)
    at = sums + column
    for first in range(0, groups, ROWS):
        group = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (group < groups)[:, None] & valid[None, :]
        found += tl.load((group * 2 * n)[:, None] + at[None, :], mask=mask, other=0.0)
    result = tl.sum(found, axis=0)
    overflowed = _not_finite(result)
    if tl.max(overflowed.to(tl.int32)) > 0:
        exact = tl.zeros((BLOCK,), tl.float64)
        for group in tl.range(0, groups, num_stages=1):
            begin = tl.cast(group, tl.int64) * group_rows
            part = tl.load(at + tl.cast(group, tl.int64) * 2 * n, mask=valid, other=0.0)
            more = part.to(tl.float64)
            # NaN stays NaN.
            again = _not_finite(part) & (exact == exact)
            if tl.max(again.to(tl.int32)) > 0:
                end = tl.minimum(m, begin + group_rows)
                dw, db = sum_rows(
                    dy, x, mean, rstd, column, valid, axes, begin, end, DW, not DW, ROWS, BLOCK, 0, tl.float64, 1
                )  # fmt: skip
                more = tl.where(again, dw if DW else db, more)
            exact += more
        result = tl.where(overflowed, exact.to(tl.float32), result)
    store(out, column_offset(out, column, axes), result, valid)


@triton.jit
def add_groups(
    dy, x, mean, rstd, partials, dw, db, axes, m, n, group_rows, groups, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Add dw in the first row of programs and db in the last: one launch, because both are short."""
    which = tl.program_id(1)
    if dw.address is not None:  # noqa: SIM102 - as above
        if which == 0:
            _add_groups(dy, x, mean, rstd, partials, dw, axes, m, n, group_rows, groups, True, ROWS, BLOCK)
    if db.address is not None:  # noqa: SIM102 - as above
        if which == tl.num_programs(1) - 1:
            _add_groups(dy, x, mean, rstd, partials + n, db, axes, m, n, group_rows, groups, False, ROWS, BLOCK)


class NormBackward:
    """Plan for LayerNorm's gradients, or RMSNorm's without a mean, of tensors that share no memory.

    dx may alias dy or x.
    """

    def __init__(
        self, inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int
    ) -> None:
        dy, x = inputs[:2]
        dx, *sums = outputs
        assert dy is not None
        assert x is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        self._inputs, self._outputs, self._normalized_dims = inputs, outputs, normalized_dims
        self._parts: dict[Any, NormBackward] = {}
        self._launch = launch.Launcher()
        vector = sys.maxsize
        self._operands = Operands((*inputs, *outputs), (split, split, vector, vector, 0, split, 0, 0))
        self._aligned = alignment([layout for layout in (dy, x, dx) if layout is not None], split)
        self._block = triton.next_power_of_2(max(1, self._n))
        self._rows = max(1, TILE // self._block) if self._n <= HELD else CHUNK_ROWS
        most = GROUPS if self._block <= TILE else GROUPS // 2
        self._group_rows = max(1, triton.cdiv(self._m, most * self._rows)) * self._rows
        self._groups = triton.cdiv(self._m, self._group_rows)
        weight_bytes = 4 * self._block if self._block > _WEIGHT_HELD.value else 0
        self._tile_bytes = self._rows * self._block * (dy.dtype.itemsize + x.dtype.itemsize) + weight_bytes + 1024
        self._sums = {name: layout is not None for name, layout in zip(("DW", "DB"), sums, strict=True)}
        self._sums_bytes = 8 * self._n * self._groups if any(sums) else 0
        self.workspace_bytes = self._sums_bytes + (self._m if dx is not None else 0)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if self._n == 0:
            return
        sums, has_dx = any(self._sums.values()), self._outputs[0] is not None
        if has_dx and sums and self._n <= HELD and outputs[0] in inputs[:2]:
            # The sums may still need the original dy and x.
            for part in (None, *self._outputs[1:]), (self._outputs[0], None, None):
                make = partial(NormBackward, self._inputs, part, self._normalized_dims)
                launch.get_or_make(self._parts, part, make).run(inputs, outputs, workspace)
            return
        addresses = [*inputs, *outputs]
        flags = workspace + self._sums_bytes
        start = partial(self._launch, kind=launch.kind([*addresses, workspace, flags]))
        dy, x, mean, rstd, weight, dx, dw, db = self._operands.at(addresses)
        partials = launch.pointer(workspace, DataType.FLOAT)
        group = axes, *_ = self._operands.axes, self._m, self._n, self._group_rows
        if self._m and self._n <= HELD:
            num_warps = self._rows * self._block // (32 * THREAD_ELEMENTS)
            num_warps, registers = (num_warps, 128) if num_warps <= MOST_WARPS else (8, 255)
            stages = min(STAGES, 1 + launch.shared_bytes() // self._tile_bytes)
            start(
                held_rows, (self._groups,),
                dy, x, mean, rstd, weight, dx, partials, launch.pointer(flags, DataType.INT8), *group,
                constants={
                    **self._sums, "ROWS": self._rows, "BLOCK": self._block, "FULL": self._n == self._block,
                    "ALIGNED": self._aligned, "STAGES": stages,
                },
                num_warps=num_warps, maxnreg=registers,
            )  # fmt: skip
        elif self._m and sums:
            # There are few groups; a grid's second dimension ends at 65,535.
            start(
                column_sums, (triton.cdiv(self._n, CHUNK), self._groups), dy, x, mean, rstd, partials, *group,
                constants={**self._sums, "BLOCK": CHUNK, "ALIGNED": self._aligned}, num_warps=8,
            )  # fmt: skip
        if sums:
            start(
                add_groups, (triton.cdiv(self._n, TOTAL_COLUMNS), sum(self._sums.values())),
                dy, x, mean, rstd, partials, dw, db, *group, self._groups,
                constants={"ROWS": TOTAL_ROWS, "BLOCK": TOTAL_COLUMNS}, num_warps=8,
            )  # fmt: skip
        if self._m and self._n > HELD and has_dx:
            # After the sums: dx may overwrite dy or x.
            start(
                long_rows, (self._m,), dy, x, mean, rstd, weight, dx, axes, self._n,
                constants={"BLOCK": CHUNK, "ALIGNED": self._aligned}, num_warps=8,
            )  # fmt: skip
