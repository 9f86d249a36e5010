"""Tables of a function of one variable for all 16-bit inputs: its values, or for a gradient those of its derivative.

A derivative's entry is the result of the fitted version for that input if there is one, so that both give the same
bits; else it is a float32 that rounds to 16 bits as the float64 result of the formula does. A second table holds these
values times 2^150, for values too small for all their digits to fit into a float32.

A gradient multiplies dy by entries or, in the range of a fitted version, by its results, which is faster than a
look-up.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.elementwise.fitted import Fast, fast
from aclnn.kernels.cpu.elementwise.general import LINE, Source
from aclnn.kernels.cpu.jit import kernel, register_jitable
from aclnn.kernels.cpu.simd.memory import (
    FORMATS,
    any_above_16,
    any_tiny_bfloat16,
    copy,
    copy_in,
    load_entries,
    store_entries,
    store_float32,
    stream_entries,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch_ahead_16
from aclnn.kernels.cpu.simd.vector import LANES, WIDE, absolute, any_lane, bits, select
from aclnn.kernels.cpu.strided import NONTEMPORAL, Operands
from aclnn.kernels.cpu.structs import address, optimization_barrier, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.locks import lock_across_forks
from aclnn.kernels.sixteen_bit import all_inputs, as_bytes
from aclnn.kernels.trace import Program, trace

_MOST = 64
"""Maximum number of cached tables, of up to half a mebibyte each: attributes may have any number of values."""
_tables: OrderedDict[tuple[Any, ...], NDArray[Any]] = OrderedDict()
_lock = lock_across_forks()


_SECOND = 4 * 65536
"""Offset in bytes of the second table."""
_TINY = 2.0**-100
"""Smaller entries are taken from the second table."""
_LEAST = -(2**31) - 1
_LIMIT = ((127 - 100) << 23) + _LEAST
_TINY_STEP = 2.0**-75
_LARGEST = (2.0 - 2.0**-23) * 2.0**127
_operands_at = pointer_to(Operands)
_REST = 3 * LINE


@register_jitable(forceinline=True)
def _by_entries(table: Any, x: Any, dy: Any) -> Any:
    """Multiply dy by the entries for the sixteen 16-bit x at an address.

    Products of a tiny entry and a dy above 1 use the second table, because the entry's digits do not fit into a
    float32. An infinite dy is multiplied by the entry of the first.
    """
    entry = load_entries(table, x)
    product = entry * dy
    # Zeros wrap around to the largest number.
    if any_lane(bits(absolute(entry)) + _LEAST < _LIMIT):
        size = absolute(dy)
        tiny = (absolute(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
        lifted = load_entries(table + _SECOND, optimization_barrier(x))
        finite = ((dy * _TINY_STEP) * lifted) * _TINY_STEP
        infinite = dy * ((lifted * _TINY_STEP) * _TINY_STEP)
        product = select(tiny, select(size <= _LARGEST, finite, infinite), product)
    return product


def _evaluation(program: Program, dtype: DataType, derivative: bool) -> Any:
    """Make the kernel that evaluates one or both tables, given the addresses of x, the numbers and the results."""
    source, entry = Source(wide=False), f"rounded_{(DataType.FLOAT16 if derivative else dtype).name}"
    with source.block("def evaluate(x, given, out):"):
        for k in range(program.arity - 1):
            source(f"x{1 + k} = {source.single(DataType.DOUBLE, f'given + {8 * k}')}")
        with source.block(f"for i in range(0, 65536, {LANES}):"):
            source.load("x0", dtype, "x + 2 * i")
            source.steps(program.steps)
            source(f"value = widen({program.results[0]})")
            if derivative:
                source.store(f"{entry}(value)", DataType.FLOAT, "out + 4 * i")
                source.store(f"{entry}(value * {2.0**150})", DataType.FLOAT, f"out + 4 * i + {_SECOND}")
            else:
                source.store(f"{entry}(value)", dtype, "out + 2 * i")
    return source.function("evaluate")


def _served(fast: Fast, dtype: DataType) -> Any:
    """Make the kernel that writes the fitted results for all 65,536 x of a 16-bit type."""
    function, load = fast.function, FORMATS[dtype].load

    def evaluate(x: int, out: int) -> None:
        for i in range(0, 65536, LANES):
            store_float32(out + 4 * i, function(load(x + 2 * i)))

    return evaluate


def table(formula: Formula, dtype: DataType, numbers: tuple[float, ...]) -> NDArray[Any]:
    """Return a function's values by bit pattern, or for a gradient the derivative's two tables, 2 × 65,536 float32."""
    derivative = isinstance(formula, Gradient)
    function = formula.derivative if isinstance(formula, Gradient) else formula
    program = trace(function, 1 + len(numbers))
    fitted = fast(formula, dtype) if derivative else None
    key = (program.digest, derivative, fitted is not None, dtype, as_bytes(numbers))
    with _lock:
        if key in _tables:
            _tables.move_to_end(key)
            return _tables[key]
        run = kernel(
            f"table-{function.__name__}-{dtype.name}",
            (program.digest, len(numbers), derivative),
            lambda: _evaluation(program, dtype, derivative),
        )
        patterns, given = np.arange(65536, dtype=np.uint16), np.array((*numbers, 0.0))
        # A look-up of 2-byte entries reads one entry more.
        found: NDArray[Any] = np.empty((2, 65536), np.float32) if derivative else np.empty(65537, np.uint16)[:-1]
        run(patterns.ctypes.data, given.ctypes.data, found.ctypes.data)
        if fitted is not None:
            name, values = f"entries-{function.__name__}-{dtype.name}", np.empty(65536, np.float32)
            run = kernel(name, (program.digest,), lambda: _served(fitted, dtype))
            run(patterns.ctypes.data, values.ctypes.data)
            served = np.abs(all_inputs(dtype)) <= fitted.bound
            found[0][served] = values[served]
        _tables[key] = found
        if len(_tables) > _MOST:
            _tables.popitem(last=False)
        return found


def overflows(table: NDArray[np.float32]) -> bool:
    """Return True if a finite value exceeds float32: a small dy may bring the product back into range."""
    return bool((np.abs(table[0]) == np.finfo(np.float32).max).any())


@register_jitable(forceinline=True)
def _look_up(nontemporal: int, table: Any, dy: Any, x: Any, out: Any) -> None:
    if nontemporal:
        stream_entries(table, x, out)
    else:
        store_entries(table, x, out)


def _multiply(dtype: DataType) -> Any:
    """Make the function that computes sixteen elements of a gradient."""
    _, load, store, stream, *_ = FORMATS[dtype]

    @register_jitable(forceinline=True)
    def vector(nontemporal: int, table: Any, dy: Any, x: Any, out: Any) -> None:
        value = _by_entries(table, x, load(dy))
        if nontemporal:
            stream(out, value)
        else:
            store(out, value)

    return vector


def _multiply_fitted(fitted: Fast, dtype: DataType) -> Any:
    """Make the function that computes a wide vector of a gradient; it returns False if some of it is out of range."""
    ways, function = FORMATS[dtype].wide, fitted.function
    assert ways is not None
    load, store, stream = ways
    shrinks = dtype == DataType.BF16
    bound = int(np.array(fitted.bound).astype(dtype.numpy).view(np.uint16))

    @register_jitable(forceinline=True)
    def wide(nontemporal: int, dy: Any, x: Any, out: Any) -> bool:
        if any_above_16(x, bound) or (shrinks and any_tiny_bfloat16(dy)):
            return False
        values = load(dy) * function(load(x))
        if nontemporal:
            stream(out, values)
        else:
            store(out, values)
        return True

    return wide


def loop(dtype: DataType, gradient: bool, fitted: Fast | None) -> Loop:
    """Make the kernel of contiguous elements by a table: out = f(x), or dy·f(x). The output may alias an input."""
    wide: Any = None
    # Only if a vector fits one register: elsewhere a wide one would not fit into the registers.
    if fitted is not None and gradient and target.has_wide_registers():
        wide = _multiply_fitted(fitted, dtype)
    vector, last_input = _multiply(dtype) if gradient else _look_up, 2 if gradient else 1
    has_wide, most = wide is not None, 2 * WIDE * LANES // LINE if fitted else 1

    def part(arguments: int, first: int, last: int) -> None:
        operands = _operands_at(arguments)
        policy, table, begin, left = operands.policy, operands.constants, 2 * first, 2 * (last - first)
        out, dy, x = (
            operands.addresses[0] + begin,
            operands.addresses[1] + begin,
            operands.addresses[last_input] + begin,
        )
        rest = stack_alloc(_REST)
        while left > 0:
            # Up to the output's first whole cache line, whole lines, remainder: parts of lines go through a buffer.
            head = -address(out) & (LINE - 1) if policy else 0
            if head == 0 and left >= LINE:
                here, nontemporal = left & -LINE, policy
                dy_at, x_at, out_at = dy, x, out
            else:
                here, nontemporal = min(left, head) if head else left, 0
                if gradient:
                    copy_in(dy, here, rest)
                copy_in(x, here, rest + LINE)
                dy_at, x_at, out_at = rest, rest + LINE, rest + 2 * LINE
            at, count = 0, (here + LINE - 1) // LINE
            while count > 0:
                if has_wide:
                    while count >= most and wide(nontemporal, dy_at + at, x_at + at, out_at + at):
                        for _ in range(most):
                            prefetch_ahead_16(x_at + at)
                            prefetch_ahead_16(dy_at + at)
                            at += LINE
                        count -= most
                for _ in range(min(count, most)):
                    prefetch_ahead_16(x_at + at)
                    if gradient:
                        prefetch_ahead_16(dy_at + at)
                    for _ in range(LINE // (2 * LANES)):
                        vector(nontemporal, table, dy_at + at, x_at + at, out_at + at)
                        at += 2 * LANES
                    count -= 1
            if address(out_at) != address(out):
                copy(out, out_at, here)
            dy, x, out, left = dy + here, x + here, out + here, left - here
        if policy == NONTEMPORAL:
            finish_streams()

    return chunked(part)
