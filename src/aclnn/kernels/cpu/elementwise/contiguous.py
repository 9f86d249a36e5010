"""Contiguous elements of one data type by a function's fitted version, or by a table of it at all 16-bit x.

A binary loop computes out = dy·f(x), a unary one out = f(x) and ignores dy. It may work in place, the output being
exactly an input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.elementwise.fitted import Fast
from aclnn.kernels.cpu.elementwise.lut16 import by_entries
from aclnn.kernels.cpu.elementwise.outliers import in_float64, with_outliers
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.memory import (
    FORMATS,
    any_tiny_bfloat16,
    copy,
    copy_in,
    store_entries,
    stream_entries,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.simd.vector import LANES, WIDE, absolute, any_lane, select, splat
from aclnn.kernels.cpu.strided import NONTEMPORAL, TILE, Operands
from aclnn.kernels.cpu.structs import address, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked

_operands_at = pointer_to(Operands)

_LINE = 64
"""Bytes that go to and from memory together."""
_REST = 3 * _LINE


def _wide_of(fast: Fast, dtype: DataType, binary: bool) -> Any:
    """A function that does a wide vector and says so, unless some of it is out of range."""
    ways, function, any_above = FORMATS[dtype].wide, fast.function, FORMATS[dtype].any_above
    assert ways is not None
    load, store, stream = ways
    shrinks = dtype == DataType.BF16
    bound = int(np.array(fast.bound).astype(dtype.numpy).view(FORMATS[dtype].pattern))
    bounded = fast.bound != math.inf

    @register_jitable(forceinline=True)
    def wide(nontemporal: int, dy: Any, x: Any, out: Any) -> bool:
        if (bounded and any_above(x, bound)) or (shrinks and any_tiny_bfloat16(dy)):
            return False
        values = load(dy) * function(load(x)) if binary else function(load(x))
        if nontemporal:
            stream(out, values)
        else:
            store(out, values)
        return True

    return wide


def _product(fast: Fast, load: Any) -> Any:
    """A function of sixteen elements in the range of a fitted version."""
    function = fast.function
    return register_jitable(forceinline=True)(lambda table, x, dy: dy * function(load(x)))


def _product_or_formula(formula: Formula, fast: Fast, load: Any) -> Any:
    """A function of sixteen elements, some of which may be beyond the range of a fitted version."""
    function, bound = fast.function, fast.bound
    exact = in_float64(formula, odd=True)

    @register_jitable(forceinline=True)
    def product(table: Any, x: Any, dy: Any) -> Any:
        values = load(x)
        result, beyond = dy * function(values), ~(absolute(values) <= bound)
        if any_lane(beyond):
            result = select(beyond, exact(values, dy), result)
        return result

    return product


@register_jitable(forceinline=True)
def _by_values(nontemporal: int, table: Any, dy: Any, x: Any, out: Any) -> None:
    if nontemporal:
        stream_entries(table, x, out)
    else:
        store_entries(table, x, out)


def _by_product(product: Any, binary: bool, dtype: DataType) -> Any:
    """A function that does sixteen elements."""
    _, load, store, stream, *_ = FORMATS[dtype]

    @register_jitable(forceinline=True)
    def vector(nontemporal: int, table: Any, dy: Any, x: Any, out: Any) -> None:
        value = product(table, x, load(dy) if binary else splat(1.0))
        if nontemporal:
            stream(out, value)
        else:
            store(out, value)

    return vector


def loop(formula: Formula, fast: Fast | None, dtype: DataType) -> Loop:
    """Contiguous elements of one data type by the fitted version; 16 bits without one, or beyond it, by a table."""
    size, load, *_ = FORMATS[dtype]
    binary = isinstance(formula, Gradient)
    wide: Any = None
    any_outlier: Any = None
    tile: Any = None
    product = by_entries
    if fast is not None:
        if fast.overflows:
            product = _product_or_formula(formula, fast, load)
        elif dtype == DataType.FLOAT or fast.bound == math.inf:
            product = _product(fast, load)
        if dtype == DataType.FLOAT and fast.bound < math.inf:
            any_outlier, tile = with_outliers(formula, fast)
        # Only where a vector is one register: elsewhere a wide one would not fit into the registers.
        if target.has_wide_registers() and ((binary and not fast.overflows) or dtype == DataType.FLOAT):
            wide = _wide_of(fast, dtype, binary)
    looked_up = not binary and product is by_entries
    by_vector = _by_values if looked_up else _by_product(product, binary, dtype)
    vector, vectors = LANES * size, _LINE // (LANES * size)
    prefetch_ahead = prefetch_ahead_16 if size == 2 else prefetch_ahead_32
    most = 1 if fast is None else WIDE * vector // _LINE
    has_wide, has_outliers, last_input = wide is not None, tile is not None, 2 if binary else 1

    def part(arguments: int, first: int, last: int) -> None:
        operands = _operands_at(arguments)
        policy, table, begin, left = operands.policy, operands.constants, first * size, (last - first) * size
        out, dy, x = (
            operands.addresses[0] + begin,
            operands.addresses[1] + begin,
            operands.addresses[last_input] + begin,
        )
        rest = stack_alloc(_REST)
        while left > 0:
            # Up to the output's first whole line, whole lines, what is left: parts of lines go through a buffer.
            head = -address(out) & (_LINE - 1) if policy else 0
            if head == 0 and left >= _LINE:
                here, nontemporal = left & -_LINE, policy
                dy_at, x_at, out_at = dy, x, out
            else:
                here, nontemporal = min(left, head) if head else left, 0
                if binary:
                    copy_in(dy, here, rest)
                copy_in(x, here, rest + _LINE)
                dy_at, x_at, out_at = rest, rest + _LINE, rest + 2 * _LINE
            at, count = 0, (here + _LINE - 1) // _LINE
            while count > 0:
                if has_wide:
                    while count >= most and wide(nontemporal, dy_at + at, x_at + at, out_at + at):
                        for _ in range(most):
                            prefetch_ahead(x_at + at)
                            if binary:
                                prefetch_ahead(dy_at + at)
                            at += _LINE
                        count -= most
                if has_outliers and any_outlier(x_at + at, min(count, most) * _LINE):
                    lines = min(count, TILE // LANES)
                    tile(nontemporal, dy_at + at if binary else x_at + at, x_at + at, out_at + at, lines * _LINE)
                    at += lines * _LINE
                    count -= lines
                    continue
                for _ in range(min(count, most)):
                    prefetch_ahead(x_at + at)
                    if binary:
                        prefetch_ahead(dy_at + at)
                    for _ in range(vectors):
                        by_vector(nontemporal, table, dy_at + at, x_at + at, out_at + at)
                        at += vector
                    count -= 1
            if address(out_at) != address(out):
                copy(out, out_at, here)
            dy, x, out, left = dy + here, x + here, out + here, left - here
        if policy == NONTEMPORAL:
            finish_streams()

    return chunked(part)
