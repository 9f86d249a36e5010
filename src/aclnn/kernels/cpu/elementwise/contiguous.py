"""Contiguous elements of one data type by a function's fitted version, or by a table of its values at all 16-bit x.

A binary loop computes out = dy·f(x), a unary one out = f(x) and ignores dy. It may work in place, the output being
exactly an input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.elementwise.fitted import Fast
from aclnn.kernels.cpu.elementwise.lut16 import by_entries
from aclnn.kernels.cpu.elementwise.outliers import with_outliers
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.memory import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    LOADS,
    STORES,
    STREAMS,
    any_above_16,
    any_above_32,
    any_tiny_bfloat16,
    copy,
    copy_in,
    load_wide_bfloat16,
    load_wide_float16,
    load_wide_float32,
    size_of,
    store_wide_bfloat16,
    store_wide_float16,
    store_wide_float32,
    stream_wide_bfloat16,
    stream_wide_float16,
    stream_wide_float32,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.simd.vector import LANES, WIDE, in_one_register, splat
from aclnn.kernels.cpu.strided import NONTEMPORAL, TILE, Operands
from aclnn.kernels.cpu.structs import address, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked

_operands_at = pointer_to(Operands)

_AHEAD = {FLOAT32: prefetch_ahead_32, FLOAT16: prefetch_ahead_16, BFLOAT16: prefetch_ahead_16}
"""Without prefetching these loops take a third longer."""

_LINE = 64
"""Bytes that go to and from memory together."""
_REST = 3 * _LINE

_WIDE_LOADS = {FLOAT32: load_wide_float32, FLOAT16: load_wide_float16, BFLOAT16: load_wide_bfloat16}
_WIDE_STORES = {FLOAT32: store_wide_float32, FLOAT16: store_wide_float16, BFLOAT16: store_wide_bfloat16}
_WIDE_STREAMS = {FLOAT32: stream_wide_float32, FLOAT16: stream_wide_float16, BFLOAT16: stream_wide_bfloat16}
_ABOVE = {FLOAT32: any_above_32, FLOAT16: any_above_16, BFLOAT16: any_above_16}
_PATTERNS = {FLOAT32: (np.float32, np.uint32), FLOAT16: (np.float16, np.uint16), BFLOAT16: (bfloat16, np.uint16)}


def _without_wide(around: int, dy: Any, x: Any, out: Any) -> bool:
    return False


def _safe(dy: Any) -> bool:
    return False


def _no_outlier(x: Any, size: int) -> bool:
    return False


def _without_tile(around: int, dy: Any, x: Any, out: Any, size: int) -> None:
    pass


def _wide_of(fast: Fast, kind: int) -> Any:
    """A function that does a wide vector and says so, unless some of it is out of range.

    Only where a vector is one register: elsewhere a wide one would not fit into the registers.
    """
    load, store, stream = _WIDE_LOADS[kind], _WIDE_STORES[kind], _WIDE_STREAMS[kind]
    function, any_above = fast.function, _ABOVE[kind]
    unsafe = any_tiny_bfloat16 if kind == BFLOAT16 else register_jitable(_safe)
    form, pattern = _PATTERNS[kind]
    bound, bounded = int(np.array(fast.bound).astype(form).view(pattern)), fast.bound != math.inf

    @register_jitable(forceinline=True)
    def wide(around: int, dy: Any, x: Any, out: Any) -> bool:
        if not in_one_register() or (bounded and any_above(x, bound)) or unsafe(dy):
            return False
        values = load(dy) * function(load(x))
        if around:
            stream(out, values)
        else:
            store(out, values)
        return True

    return wide


def _product(fast: Fast, load: Any) -> Any:
    """A function of sixteen elements in the range of a fitted version."""
    function = fast.function
    return register_jitable(forceinline=True)(lambda table, x, dy: dy * function(load(x)))


def loop(formula: Formula, fast: Fast | None, kind: int) -> Loop:
    """Contiguous elements of one kind by the fitted version; 16 bits beyond its range, or without one, by a table."""
    load, store, stream = LOADS[kind], STORES[kind], STREAMS[kind]
    binary = isinstance(formula, Gradient)
    wide: Any = register_jitable(_without_wide)
    any_outlier, tile = register_jitable(_no_outlier), register_jitable(_without_tile)
    product = by_entries
    if fast is not None:
        if kind == FLOAT32 or fast.bound == math.inf:
            product = _product(fast, load)
        if kind == FLOAT32 and fast.bound < math.inf:
            any_outlier, tile = with_outliers(formula, fast)
        if binary:
            wide = _wide_of(fast, kind)
    size = size_of(kind)
    vector, vectors, prefetch_ahead = LANES * size, _LINE // (LANES * size), _AHEAD[kind]
    most = 1 if fast is None else WIDE * vector // _LINE

    last_input = 2 if binary else 1

    def part(arguments: int, first: int, last: int) -> None:
        operands = _operands_at(arguments)
        streamed, table, begin, left = operands.policy, operands.constants, first * size, (last - first) * size
        out, dy, x = (
            operands.addresses[0] + begin,
            operands.addresses[1] + begin,
            operands.addresses[last_input] + begin,
        )
        rest = stack_alloc(_REST)
        while left > 0:
            # Up to the output's first whole line, whole lines, what is left: parts of lines go through a buffer.
            head = -address(out) & (_LINE - 1) if streamed else 0
            if head == 0 and left >= _LINE:
                here, around = left & -_LINE, streamed
                dy_at, x_at, out_at = dy, x, out
            else:
                here, around = min(left, head) if head else left, 0
                if binary:
                    copy_in(dy, here, rest)
                copy_in(x, here, rest + _LINE)
                dy_at, x_at, out_at = rest, rest + _LINE, rest + 2 * _LINE
            at, count = 0, (here + _LINE - 1) // _LINE
            while count > 0:
                while count >= most and wide(around, dy_at + at, x_at + at, out_at + at):
                    for _ in range(most):
                        prefetch_ahead(x_at + at)
                        prefetch_ahead(dy_at + at)
                        at += _LINE
                    count -= most
                if any_outlier(x_at + at, min(count, most) * _LINE):
                    lines = min(count, TILE // LANES)
                    tile(around, dy_at + at if binary else x_at + at, x_at + at, out_at + at, lines * _LINE)
                    at += lines * _LINE
                    count -= lines
                    continue
                for _ in range(min(count, most)):
                    prefetch_ahead(x_at + at)
                    if binary:
                        prefetch_ahead(dy_at + at)
                    for _ in range(vectors):
                        value = product(table, x_at + at, load(dy_at + at) if binary else splat(1.0))
                        if around:
                            stream(out_at + at, value)
                        else:
                            store(out_at + at, value)
                        at += vector
                    count -= 1
            if address(out_at) != address(out):
                copy(out, out_at, here)
            dy, x, out, left = dy + here, x + here, out + here, left - here
        if streamed == NONTEMPORAL:
            finish_streams()

    return chunked(part)
