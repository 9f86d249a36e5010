"""Patch Triton's interpreter, when imported, to round as hardware does.

Its conversions to bfloat16 lose the carry, and before Triton 3.9 its fused multiply-add rounds twice. Reductions by a
function are also replaced: by halves, as between a warp's lanes, as the interpreter's take milliseconds for a number.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from triton import language as tl
from triton.runtime import interpreter

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_convert = interpreter._convert_float
_create_fma = interpreter.InterpreterBuilder.create_fma


def convert(value: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Convert between float32 and bfloat16."""
    if (source, target) == (tl.float32, tl.bfloat16):
        return value.astype(BFLOAT16).view(np.uint16)
    if (source, target) == (tl.bfloat16, tl.float32):
        return value.view(BFLOAT16).astype(np.float32).view(np.uint32)
    return _convert(value, source, target, rounding)


def fma(x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z of float32, rounded once: rounding the float64 sum to odd makes the second rounding correct."""
    with np.errstate(all="ignore"):
        product, addend = np.multiply(x, y, dtype=np.float64), np.asarray(z, np.float64)
        total = product + addend
        back = total - product
        lost = (product - (total - back)) + (addend - back)
        even = np.atleast_1d(total).view(np.int64).reshape(total.shape) & 1 == 0
        towards = np.nextafter(total, np.copysign(np.inf, lost))
        return np.where((lost != 0) & even & np.isfinite(total), towards, total).astype(np.float32)


def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    if z.data.dtype != np.float32:
        return _create_fma(self, x, y, z)
    return interpreter.TensorHandle(fma(x.data, y.data, z.data), z.dtype.scalar)


def reduce(self: Any, operands: Any) -> Any:
    """Reduce by halves along the axis, whose length is a power of two."""
    parts = [operand.handle.data for operand in operands]
    types = [operand.dtype for operand in operands]
    while (extent := parts[0].shape[self.axis]) > 1:
        halves = [np.split(part, [extent // 2], self.axis) for part in parts]
        sides = [list(map(self.to_tensor, side, types)) for side in zip(*halves, strict=True)]
        joined = self.combine_fn.fn(*sides[0], *sides[1])
        parts = [part.handle.data for part in (joined if isinstance(joined, tuple) else (joined,))]
    return [self.to_tensor(part.squeeze(self.axis), dtype) for part, dtype in zip(parts, types, strict=True)]


interpreter._convert_float = convert
interpreter.ReduceOps.generic_reduce = reduce
interpreter.InterpreterBuilder.create_fma = create_fma
