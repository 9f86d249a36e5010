"""LayerNorm and RMSNorm in Triton: a program for each row, or for several short ones.

The variance is taken around the mean, in a pass of its own. Rows whose squares overflow or vanish in float32 are taken
in float64.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import partial

from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise.plans import anywhere
from aclnn.kernels.cuda.launch import TYPES, tl, triton
from aclnn.kernels.cuda.layer_norm.backward import pointer_to
from aclnn.kernels.cuda.layer_norm.places import Axes, alignment, chunks, in_chunk, numbers, place, start

HELD, CHUNK = 8192, 4096
"""A row up to so long is held and read once; a longer one is read chunk by chunk, from memory once and twice more from
the cache."""
TILE = 2048
"""Elements that a program takes at least, of as many rows: fewer would leave too few bytes on their way."""
THREAD_ELEMENTS = 16


# Of the variance: its terms neither overflow nor lose digits that matter.
_LEAST, _MOST = tl.constexpr(2.0**-80), tl.constexpr(2.0**100)


@triton.jit
def exact_row(
    x, weight, bias, out, mean, rstd, row, axes, n, count, eps_bits,
    X: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    OUT: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr,
    CENTRED: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row in float64, rounded through float32."""
    x_row, out_row = place(row, axes, AT[0], COUNT[0]), place(row, axes, AT[4], COUNT[4])
    total = tl.zeros((BLOCK,), tl.float64)
    if CENTRED:
        for chunk in tl.range(0, chunks(n, BLOCK), num_stages=1):
            column = in_chunk(chunk, BLOCK)
            total += numbers(x, X, x_row + place(column, axes, AT[1], COUNT[1]), column < n).to(tl.float64)
    centre = tl.sum(total) / count if CENTRED else 0.0
    squares = tl.zeros((BLOCK,), tl.float64)
    for chunk in tl.range(0, chunks(n, BLOCK), num_stages=1):
        column = in_chunk(chunk, BLOCK)
        valid = column < n
        d = numbers(x, X, x_row + place(column, axes, AT[1], COUNT[1]), valid).to(tl.float64) - centre
        squares += tl.where(valid, d * d, 0.0)
    eps = tl.full((), eps_bits, tl.int64).to(tl.float64, bitcast=True)
    scale = 1.0 / tl.sqrt(tl.sum(squares) / count + eps)
    if MEAN is not None:
        shown = tl.where(n == 0, 0.0, centre).to(tl.float32)
        tl.store(mean.to(tl.pointer_type(MEAN)) + place(row, axes, AT[6], COUNT[6]), shown.to(MEAN))
    if RSTD is not None:
        shown = scale.to(tl.float32)
        tl.store(rstd.to(tl.pointer_type(RSTD)) + place(row, axes, AT[7], COUNT[7]), shown.to(RSTD))
    for chunk in tl.range(0, chunks(n, BLOCK), num_stages=1):
        column = in_chunk(chunk, BLOCK)
        valid = column < n
        result = (numbers(x, X, x_row + place(column, axes, AT[1], COUNT[1]), valid).to(tl.float64) - centre) * scale
        if WEIGHT is not None:
            result = result * numbers(weight, WEIGHT, place(column, axes, AT[2], COUNT[2]), valid).to(tl.float64)
        if BIAS is not None:
            result = result + numbers(bias, BIAS, place(column, axes, AT[3], COUNT[3]), valid).to(tl.float64)
        target = out.to(tl.pointer_type(OUT)) + out_row + place(column, axes, AT[5], COUNT[5])
        tl.store(target, result.to(tl.float32).to(OUT), mask=valid)


@triton.jit
def _columns(chunk, n, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """A chunk's columns, and which of them there are."""
    column = in_chunk(chunk, BLOCK)
    return column, column < (n >> ALIGNED) << ALIGNED


@triton.jit
def _of_rows(address, DTYPE: tl.constexpr, row, column, there, valid, ROWS: tl.constexpr):
    """Elements (rows, columns) as float32, 0 where there are none."""
    both = there[:, None] & valid[None, :] if ROWS > 1 else valid[None, :]
    return numbers(address, DTYPE, row + column[None, :], both)


@triton.jit
def rows(
    x, weight, bias, out, mean, rstd, axes, m, n, count, eps, eps_bits,
    X: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    OUT: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr,
    CENTRED: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    HELD: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Some rows, HELD in registers where they are not longer than BLOCK.

    ``count`` is n as float32: NaN when there are no columns, whose mean is 0.
    """
    begin = tl.program_id(0).to(tl.int64) * ROWS
    index = tl.arange(0, ROWS)
    row = begin + index if ROWS > 1 else begin
    there = begin + index < m
    x_row = start(place(row, axes, AT[0], COUNT[0]), ROWS, ALIGNED)
    out_row = start(place(row, axes, AT[4], COUNT[4]), ROWS, ALIGNED)
    if HELD:
        column, valid = _columns(0, n, BLOCK, ALIGNED)
        values = _of_rows(x, X, x_row, place(column, axes, AT[1], COUNT[1]), there, valid, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    high = tl.zeros((ROWS,), tl.float32)
    if CENTRED:
        for chunk in range(chunks(n, BLOCK)):
            if not HELD:
                column, valid = _columns(chunk, n, BLOCK, ALIGNED)
                values = _of_rows(x, X, x_row, place(column, axes, AT[1], COUNT[1]), there, valid, ROWS)
            total += values
        high = tl.sum(total, axis=1) / count
    # What the sum's roundings lost comes back as the mean of the differences.
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for chunk in range(chunks(n, BLOCK)):
        if not HELD:
            column, valid = _columns(chunk, n, BLOCK, ALIGNED)
            values = _of_rows(x, X, x_row, place(column, axes, AT[1], COUNT[1]), there, valid, ROWS)
        d = tl.where(valid[None, :], values - high[:, None], 0.0)
        if CENTRED:
            total += d
        squares = tl.fma(d, d, squares)
    low = tl.sum(total, axis=1) / count if CENTRED else high
    variance = tl.fma(-low, low, tl.sum(squares, axis=1) / count) + eps
    plain = (variance >= _LEAST) & (variance <= _MOST) & there
    scale = tl.math.div_rn(tl.full((ROWS,), 1.0, tl.float32), tl.sqrt_rn(variance))
    if MEAN is not None:
        pointer = mean.to(tl.pointer_type(MEAN)) + place(begin + index, axes, AT[6], COUNT[6])
        tl.store(pointer, (high + low).to(MEAN), mask=plain)
    if RSTD is not None:
        pointer = rstd.to(tl.pointer_type(RSTD)) + place(begin + index, axes, AT[7], COUNT[7])
        tl.store(pointer, scale.to(RSTD), mask=plain)
    for chunk in range(chunks(n, BLOCK)):
        if not HELD:
            column, valid = _columns(chunk, n, BLOCK, ALIGNED)
            values = _of_rows(x, X, x_row, place(column, axes, AT[1], COUNT[1]), there, valid, ROWS)
        result = ((values - high[:, None]) - low[:, None]) * scale[:, None]
        if WEIGHT is not None:
            result = result * numbers(weight, WEIGHT, place(column, axes, AT[2], COUNT[2]), valid)[None, :]
        if BIAS is not None:
            result = result + numbers(bias, BIAS, place(column, axes, AT[3], COUNT[3]), valid)[None, :]
        target = out.to(tl.pointer_type(OUT)) + (out_row + place(column, axes, AT[5], COUNT[5])[None, :])
        tl.store(target, result.to(OUT), mask=plain[:, None] & valid[None, :])
    left = ((plain == 0) & there).to(tl.int32)
    if tl.max(left) > 0:
        for one in range(ROWS):
            if tl.max(tl.where(index == one, left, 0)) > 0:
                exact_row(
                    x, weight, bias, out, mean, rstd, begin + one, axes, n, count, eps_bits,
                    X, WEIGHT, BIAS, OUT, MEAN, RSTD, CENTRED, AT, COUNT, 1024 if BLOCK > 1024 else BLOCK,
                )  # fmt: skip


class _LayerNorm:
    workspace_bytes = 0

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        eps: float,
        centred: bool,
    ) -> None:
        x, weight, bias = inputs
        out, mean, rstd = outputs
        assert x is not None
        assert out is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n, self._eps = math.prod(x.shape[:split]), math.prod(x.shape[split:]), eps
        self._inputs, self._outputs = inputs, outputs
        self._axes = Axes()
        halves, whole = (slice(split), slice(split, None)), (slice(None),)
        for layout, parts in (
            (x, halves), (weight, whole), (bias, whole), (out, halves), (mean, whole), (rstd, whole),
        ):  # fmt: skip
            for part in parts:
                self._axes.add(*((layout.shape[part], layout.strides[part]) if layout is not None else ((), ())))
        self._aligned = alignment((x, out), split)
        names = ("X", "WEIGHT", "BIAS", "OUT", "MEAN", "RSTD")
        self._centred = centred
        self._types = {
            name: None if layout is None else TYPES[layout.dtype]
            for name, layout in zip(names, (*inputs, *outputs), strict=True)
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        block = launch.power_of_two(max(1, self._n)) if self._n <= HELD else CHUNK
        tall = max(1, TILE // block)
        num_warps = min(16, tall * block // (32 * THREAD_ELEMENTS))
        rows[(-(-self._m // tall),)](
            *map(pointer_to, inputs, self._inputs), *map(pointer_to, outputs, self._outputs),
            self._axes.address(), self._m, self._n, float(self._n) if self._n else math.nan, self._eps,
            struct.unpack("q", struct.pack("d", self._eps))[0], **self._types, CENTRED=self._centred,
            AT=tuple(self._axes.starts), COUNT=tuple(self._axes.counts), ROWS=tall, BLOCK=block,
            HELD=self._n <= block, ALIGNED=self._aligned,
            # Two programs of 512 threads to a multiprocessor, one waits for its row while the other computes; of those
            # that take several rows five.
            num_warps=num_warps, maxnreg=96 if tall > 1 else min(128, 1024 // num_warps), enable_fp_fusion=False,
        )  # fmt: skip


def plan(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    eps: float,
    centred: bool = True,
) -> Plan:
    """See ``aclnn.kernels.layer_norm``."""
    make = partial(_LayerNorm, normalized_dims=normalized_dims, eps=eps, centred=centred)
    return anywhere(make, inputs, outputs, replaceable=1)
