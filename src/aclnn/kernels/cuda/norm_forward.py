"""LayerNorm and RMSNorm in Triton: one program per row, or per several short rows.

The variance is computed around the mean, in a second pass. Rows whose squares overflow or underflow in float32 are
computed in float64.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence

from aclnn.core.tensor import Layout
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
    row_offset,
    row_start,
    store,
)

HELD = 2048
"""Length of rows up to which they are held in registers and read once; longer ones are read in chunks, once from memory
and twice more from the cache. Shorter ones are processed several at a time, to keep enough loads in flight."""
CHUNK, LONG = 2048, 8192
"""Elements of a chunk, doubled for rows longer than ``LONG``: programs of many rows share the cache."""
THREAD_ELEMENTS, THREAD_BYTES = 16, 32
"""Elements and bytes per thread, of held rows and of a chunk."""

# Range of the variance in which its terms neither overflow nor lose relevant digits.
_MIN_VARIANCE, _MAX_VARIANCE = tl.constexpr(2.0**-80), tl.constexpr(2.0**100)


@triton.jit
def _load_tile(
    x, x_row, row_valid, chunk, n, axes,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Load a chunk of some rows: columns, their validity, and elements (rows, columns)."""
    column = chunk_indices(chunk, BLOCK)
    valid = column < (n >> ALIGNED) << ALIGNED
    mask = row_valid[:, None] & valid[None, :] if ROWS > 1 else valid[None, :]
    return column, valid, load(x, x_row + column_offset(x, column, axes)[None, :], mask).to(TYPE)


@triton.jit
def _normalize(
    x, weight, bias, out, mean, rstd, begin, axes, m, n, count, eps,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD: tl.constexpr, ALIGNED: tl.constexpr,
    TYPE: tl.constexpr,
):  # fmt: skip
    """Compute some rows in a type; return the rows that need float64, for which nothing is written."""
    index = tl.arange(0, ROWS)
    row = begin + index if ROWS > 1 else begin
    row_valid = begin + index < m
    x_row, out_row = row_start(x, row, axes, ROWS, ALIGNED), row_start(out, row, axes, ROWS, ALIGNED)
    if HELD:
        column, valid, values = _load_tile(x, x_row, row_valid, 0, n, axes, ROWS, BLOCK, ALIGNED, TYPE)
    total = tl.zeros((ROWS, BLOCK), TYPE)
    high = tl.zeros((ROWS,), TYPE)
    if CENTRED:
        for chunk in range(chunk_count(n, BLOCK)):
            if not HELD:
                column, valid, values = _load_tile(x, x_row, row_valid, chunk, n, axes, ROWS, BLOCK, ALIGNED, TYPE)
            total += values
        high = tl.sum(total, axis=1) / count
    total = tl.zeros((ROWS, BLOCK), TYPE)
    squares = tl.zeros((ROWS, BLOCK), TYPE)
    for chunk in range(chunk_count(n, BLOCK)):
        if not HELD:
            column, valid, values = _load_tile(x, x_row, row_valid, chunk, n, axes, ROWS, BLOCK, ALIGNED, TYPE)
        d = tl.where(valid[None, :], values - high[:, None], 0.0)
        if CENTRED and tl.float32 == TYPE:
            total += d
        squares = tl.fma(d, d, squares)
    variance = tl.sum(squares, axis=1) / count
    low = tl.zeros((ROWS,), TYPE)
    if tl.float32 == TYPE:
        if CENTRED:
            # The mean of the differences corrects the sum's rounding errors.
            low = tl.sum(total, axis=1) / count
        variance = tl.fma(-low, low, variance) + eps
        enough = (variance >= _MIN_VARIANCE) & (variance <= _MAX_VARIANCE) & row_valid
        scale = tl.math.div_rn(tl.full((ROWS,), 1.0, tl.float32), tl.sqrt_rn(variance))
    else:
        enough = row_valid
        scale = 1.0 / tl.sqrt(variance + eps)
    if mean.address is not None:
        shown = high + low if tl.float32 == TYPE else tl.where(n == 0, 0.0, high)
        store(mean, row_offset(mean, begin + index, axes), shown, enough)
    if rstd.address is not None:
        store(rstd, row_offset(rstd, begin + index, axes), scale, enough)
    for chunk in range(chunk_count(n, BLOCK)):
        if not HELD:
            column, valid, values = _load_tile(x, x_row, row_valid, chunk, n, axes, ROWS, BLOCK, ALIGNED, TYPE)
        result = ((values - high[:, None]) - low[:, None]) * scale[:, None]
        if weight.address is not None:
            result = result * load_columns(weight, column, axes, valid)[None, :].to(TYPE)
        if bias.address is not None:
            result = result + load_columns(bias, column, axes, valid)[None, :].to(TYPE)
        target = out_row + column_offset(out, column, axes)[None, :]
        store(out, target, result, enough[:, None] & valid[None, :])
    return (enough == 0) & row_valid


@triton.jit
def normalize(
    x, weight, bias, out, mean, rstd, axes, m, n, count, eps, eps_bits,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD: tl.constexpr, ALIGNED: tl.constexpr,
    EXACT_BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute some rows, HELD in registers if not longer than BLOCK.

    ``count`` is n as float32: NaN without columns, where the mean is 0. ``eps_bits`` are the bits of eps in float64.
    """
    begin = tl.program_id(0).to(tl.int64) * ROWS
    needs_float64 = _normalize(
        x, weight, bias, out, mean, rstd, begin, axes, m, n, count, eps, CENTRED, ROWS, BLOCK, HELD, ALIGNED, tl.float32
    )  # fmt: skip
    needs_float64 = needs_float64.to(tl.int32)
    if tl.max(needs_float64) > 0:
        exact_eps = tl.full((), eps_bits, tl.int64).to(tl.float64, bitcast=True)
        for one in range(ROWS):
            if tl.max(tl.where(tl.arange(0, ROWS) == one, needs_float64, 0)) > 0:
                _normalize(
                    x, weight, bias, out, mean, rstd, begin + one, axes, m, n, count, exact_eps,
                    CENTRED, 1, EXACT_BLOCK, False, ALIGNED, tl.float64,
                )  # fmt: skip


class Norm:
    """Plan for LayerNorm, or RMSNorm if not centred, of tensors that share no memory."""

    workspace_bytes = 0

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        eps: float,
        centred: bool,
    ) -> None:
        x, out = inputs[0], outputs[0]
        assert x is not None
        assert out is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        self._operands = Operands((*inputs, *outputs), (split, 0, 0, split, sys.maxsize, sys.maxsize))
        held = self._n <= HELD
        self._block = triton.next_power_of_2(max(1, self._n)) if held else CHUNK if self._n <= LONG else 2 * CHUNK
        self._rows = max(1, HELD // self._block)
        self._num_warps = (
            self._rows * self._block // (32 * (THREAD_ELEMENTS if held else THREAD_BYTES // x.dtype.itemsize))
        )
        self._registers = 80 if held and x.dtype.itemsize == 4 else 64
        (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
        self._numbers = self._m, self._n, float(self._n) if self._n else math.nan, eps, eps_bits
        self._launch = launch.Launcher()
        self._constants = {
            "CENTRED": centred,
            "ROWS": self._rows,
            "BLOCK": self._block,
            "HELD": held,
            "ALIGNED": alignment((x, out), split),
            "EXACT_BLOCK": min(self._block, 256 if self._rows > 1 else 512),  # larger ones need too many registers
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        addresses = [*inputs, *outputs]
        self._launch(
            normalize, (triton.cdiv(self._m, self._rows),),
            *self._operands.at(addresses), self._operands.axes, *self._numbers,
            kind=launch.kind(addresses), constants=self._constants, num_warps=self._num_warps, maxnreg=self._registers,
        )  # fmt: skip
