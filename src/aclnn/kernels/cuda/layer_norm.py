"""LayerNorm's gradients in Triton: sums in float32 by a tree that M and N alone decide.

Rows are taken in groups, each by one program that keeps the group's sums of dw and db; a second kernel adds the groups
in their order. Where a row is too long to be held in registers, dx goes over it twice, and dw and db are added up by
programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aclnn.dtypes import DataType
from aclnn.kernels import Plan
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise import copy_of
from aclnn.kernels.cuda.launch import TYPES, tl, torch, triton
from aclnn.tensor import Layout

GROUPS, GROUP_ROWS = 512, 8
"""There are at most 512 groups of at least 8 rows: enough for every multiprocessor, few enough partial sums."""
WHOLE = 16384
"""Rows up to this long are held in the registers of one program, at most 1,024 threads with sixteen columns each.

For an H200 ptxas then spills about 50 of their words, into the first-level cache; two passes over such rows and a third
for dw and db would read dy and x from memory twice.
"""
CHUNK = 2048
"""Columns that longer rows are taken at a time."""
FINISH_ROWS, FINISH_COLUMNS = 32, 64


@triton.jit
def place(index, axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Offset in elements of a row or column by its index; COUNT is 0 for neighbours."""
    offset = index
    if COUNT > 0:
        describes = axes.to(tl.pointer_type(tl.int64)) + START
        offset = index * 0
        for axis in tl.static_range(COUNT):
            extent = tl.load(describes + 2 * axis)
            offset += index % extent * tl.load(describes + 2 * axis + 1)
            index = index // extent
    return offset


@triton.jit
def place_all(columns, axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Offsets of columns of a row that is taken at once: 32 bits will do for neighbours."""
    return place(columns.to(tl.int64), axes, START, COUNT) if COUNT > 0 else columns


@triton.jit
def number(address, DTYPE: tl.constexpr, offset):
    """One element as float32."""
    return tl.load(address.to(tl.pointer_type(DTYPE)) + offset).to(tl.float32)


@triton.jit
def numbers(address, DTYPE: tl.constexpr, offset, valid):
    """Elements as float32, 0 where not valid."""
    return tl.load(address.to(tl.pointer_type(DTYPE)) + offset, mask=valid, other=0.0).to(tl.float32)


@triton.jit
def whole_rows(
    dy, x, mean, rstd, weight, dx, partials, axes, m, n, group_rows,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, WEIGHT: tl.constexpr, DX: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, DW: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """A group of rows, each held whole: dx, and the group's sums of dw and db into ``partials`` (groups, 2, n)."""
    group = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < n
    dy_columns, x_columns = place_all(column, axes, AT[1], COUNT[1]), place_all(column, axes, AT[3], COUNT[3])
    if DX is not None:
        dx_columns = place_all(column, axes, AT[8], COUNT[8])
        if WEIGHT is not None:
            w = numbers(weight, WEIGHT, place(column.to(tl.int64), axes, AT[6], COUNT[6]), valid)
    if DW:
        dw = tl.zeros((BLOCK,), tl.float32)
    if DB:
        db = tl.zeros((BLOCK,), tl.float32)
    for row in range(group * group_rows, tl.minimum(m, (group + 1) * group_rows)):
        dy_row, x_row = place(row, axes, AT[0], COUNT[0]), place(row, axes, AT[2], COUNT[2])
        dx_row = place(row, axes, AT[7], COUNT[7])
        if ALIGNED:
            dy_row, x_row, dx_row = tl.multiple_of(dy_row, 16), tl.multiple_of(x_row, 16), tl.multiple_of(dx_row, 16)
        g = numbers(dy, DY, dy_row + dy_columns, valid)
        values = numbers(x, X, x_row + x_columns, valid)
        scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5]))
        hat = tl.where(valid, (values - number(mean, MEAN, place(row, axes, AT[4], COUNT[4]))) * scale, 0.0)
        if DW:
            dw = tl.fma(g, hat, dw)
        if DB:
            db += g
        if DX is not None:
            if WEIGHT is not None:
                g = g * w
            c1 = tl.sum(g) / n
            c2 = tl.sum(g * hat) / n
            result = tl.fma(-hat, c2, g - c1) * scale
            pointer = dx.to(tl.pointer_type(DX)) + dx_row + dx_columns
            tl.store(pointer, result.to(DX), mask=valid)
    if DW or DB:
        sums = partials.to(tl.pointer_type(tl.float32)) + group * 2 * n + column
        if DW:
            tl.store(sums, dw, mask=valid)
        if DB:
            tl.store(sums + n, db, mask=valid)


@triton.jit
def long_rows(
    dy, x, mean, rstd, weight, dx, axes, n,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, WEIGHT: tl.constexpr, DX: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of one row in two passes over its chunks."""
    row = tl.program_id(0).to(tl.int64)
    dy_row, x_row = place(row, axes, AT[0], COUNT[0]), place(row, axes, AT[2], COUNT[2])
    dx_row = place(row, axes, AT[7], COUNT[7])
    centre = number(mean, MEAN, place(row, axes, AT[4], COUNT[4]))
    scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5]))
    sum_g = tl.zeros((BLOCK,), tl.float32)
    sum_gx = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK).to(tl.int64)
        valid = column < n
        g = numbers(dy, DY, dy_row + place(column, axes, AT[1], COUNT[1]), valid)
        if WEIGHT is not None:
            g = g * numbers(weight, WEIGHT, place(column, axes, AT[6], COUNT[6]), valid)
        values = numbers(x, X, x_row + place(column, axes, AT[3], COUNT[3]), valid)
        sum_g += g
        sum_gx = tl.fma(g, tl.where(valid, (values - centre) * scale, 0.0), sum_gx)
    c1 = tl.sum(sum_g) / n
    c2 = tl.sum(sum_gx) / n
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK).to(tl.int64)
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
):  # fmt: skip
    """The sums of dw and db over a group of rows, for one chunk of columns."""
    group = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    valid = column < n
    dy_columns, x_columns = place(column, axes, AT[1], COUNT[1]), place(column, axes, AT[3], COUNT[3])
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(group * group_rows, tl.minimum(m, (group + 1) * group_rows)):
        g = numbers(dy, DY, place(row, axes, AT[0], COUNT[0]) + dy_columns, valid)
        db += g
        if DW:
            values = numbers(x, X, place(row, axes, AT[2], COUNT[2]) + x_columns, valid)
            centre = number(mean, MEAN, place(row, axes, AT[4], COUNT[4]))
            scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5]))
            dw = tl.fma(g, tl.where(valid, (values - centre) * scale, 0.0), dw)
    sums = partials.to(tl.pointer_type(tl.float32)) + group * 2 * n + column
    if DW:
        tl.store(sums, dw, mask=valid)
    if DB:
        tl.store(sums + n, db, mask=valid)


@triton.jit
def finish(
    partials, out, axes, n, groups,
    OUT: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the groups' sums of dw or db, 32 interleaved rows of them at a time, and round once."""
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = column < n
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, groups, ROWS):
        group = first + tl.arange(0, ROWS).to(tl.int64)
        at = partials.to(tl.pointer_type(tl.float32)) + (group * 2 * n)[:, None] + column[None, :]
        total += tl.load(at, mask=(group < groups)[:, None] & valid[None, :], other=0.0)
    pointer = out.to(tl.pointer_type(OUT)) + place(column, axes, AT, COUNT)
    tl.store(pointer, tl.sum(total, axis=0).to(OUT), mask=valid)


class Axes:
    """The dimensions of every row and column index, one after another as (extent, stride) pairs."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self._on: dict[Any, Any] = {}

    def add(self, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Append the dimensions of one index."""
        described = launch.described(shape, strides)
        near = len(described) == 2 and described[1] == 1
        self.starts.append(len(self.numbers))
        self.counts.append(0 if near else len(described) // 2)
        self.numbers += described

    def address(self) -> Any:
        """The description in the current device's memory, as a kernel's argument."""
        where = launch.device()
        if where not in self._on:
            self._on[where] = torch.tensor(self.numbers, dtype=torch.int64, device=where)
        return launch.pointer(self._on[where].data_ptr(), DataType.INT64)


# Places in AT and COUNT: rows and columns of dy and x, mean, rstd, weight, rows and columns of dx, then these.
_DW, _DB = 9, 10


def overlapped(
    inputs: Sequence[Layout | None],
    sources: Sequence[int],
    outputs: Sequence[Layout | None],
    targets: Sequence[int],
    replaceable: int,
) -> list[int]:
    """The inputs that writing would change; the first output may exactly replace one of the first ``replaceable``."""
    found = []
    for i, (layout, source) in enumerate(zip(inputs, sources, strict=True)):
        for j, (other, target) in enumerate(zip(outputs, targets, strict=True)):
            if layout is None or other is None:
                continue
            if i < replaceable and j == 0 and source == target and layout == other:
                continue
            (low, high), (begin, end) = layout.span, other.span
            if source + low < target + end and target + begin < source + high:
                found.append(i)
                break
    return found


def run_apart(
    make: Callable[[tuple[Layout | None, ...]], Plan],
    layouts: Sequence[Layout | None],
    which: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    workspace: int,
) -> None:
    """Run the plan for contiguous copies of some inputs."""
    copied, addresses, kept = list(layouts), list(inputs), []
    for i in which:
        layout = layouts[i]
        assert layout is not None
        copied[i], memory = copy_of(layout, inputs[i])
        addresses[i] = memory.data_ptr()
        kept.append(memory)
    make(tuple(copied)).run(addresses, outputs, workspace)


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
        assert mean is not None
        assert rstd is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        self._inputs, self._outputs, self._normalized_dims = inputs, outputs, normalized_dims
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
        rows = [layout for layout in (dy, x, dx) if layout is not None]
        # Every row starts on a multiple of sixteen elements: without this Triton would not access 16 bytes at a time.
        self._aligned = split > 0 and all(step % 16 == 0 for layout in rows for step in layout.strides[:split])
        self._group_rows = max(GROUP_ROWS, -(-self._m // GROUPS))
        self._groups = -(-self._m // self._group_rows)
        wanted = self._dw is not None or self._db is not None
        self.workspace_bytes = 8 * self._n * self._groups if wanted else 0
        self._constants = {
            "DY": TYPES[dy.dtype],
            "X": TYPES[x.dtype],
            "MEAN": TYPES[mean.dtype],
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
        if which := overlapped(self._inputs, inputs, self._outputs, outputs, replaceable=2):
            run_apart(
                lambda layouts: plan(layouts, self._outputs, self._normalized_dims),
                self._inputs, which, inputs, outputs, workspace,
            )  # fmt: skip
            return
        dy, x, mean, rstd, weight = map(pointer_to, inputs, self._inputs)
        axes, dx = self._axes.address(), self._row_constants["DX"]
        sums = {"DW": self._dw is not None, "DB": self._db is not None}
        partials, written = launch.pointer(workspace), pointer_to(outputs[0], self._outputs[0])
        group = (partials, axes, self._m, self._n, self._group_rows)
        if self._m and self._n <= WHOLE:
            block = launch.power_of_two(self._n)
            whole_rows[(self._groups,)](
                dy, x, mean, rstd, weight, written, *group, **self._constants, **self._row_constants, **sums,
                BLOCK=block, ALIGNED=self._aligned, num_warps=max(1, block // 512), enable_fp_fusion=False,
            )  # fmt: skip
        elif self._m:
            # The sums come first: dx may replace dy or x.
            if any(sums.values()):
                column_sums[(self._groups, -(-self._n // CHUNK))](
                    dy, x, mean, rstd, *group, **self._constants, **sums,
                    BLOCK=CHUNK, num_warps=8, enable_fp_fusion=False,
                )  # fmt: skip
            if dx is not None:
                long_rows[(self._m,)](
                    dy, x, mean, rstd, weight, written, axes, self._n, **self._constants, **self._row_constants,
                    BLOCK=CHUNK, num_warps=8, enable_fp_fusion=False,
                )  # fmt: skip
        for layout, own, address, offset in (
            (self._dw, _DW, outputs[1], 0),
            (self._db, _DB, outputs[2], 4 * self._n),
        ):
            if layout is not None:
                finish[(-(-self._n // FINISH_COLUMNS),)](
                    launch.pointer(workspace + offset), pointer_to(address, layout), axes, self._n, self._groups,
                    OUT=TYPES[layout.dtype], AT=self._axes.starts[own], COUNT=self._axes.counts[own],
                    ROWS=FINISH_ROWS, BLOCK=FINISH_COLUMNS, num_warps=4, enable_fp_fusion=False,
                )  # fmt: skip


def plan(inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``."""
    return _LayerNormBackward(inputs, outputs, normalized_dims)
