"""What LayerNorm's kernels need beyond float32 lanes: sums of lanes, in float64 too, and calls of one another."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from aclnn.kernels.cpu.jit import intrinsic
from aclnn.kernels.cpu.simd.vector import FLOATS, LANES, by_halves, call_llvm
from aclnn.kernels.cpu.structs import call_kernel, pointer

_INT32 = ir.IntType(32)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def _doubles(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return pointer(builder, address, _DOUBLES)


@intrinsic(types.void, types.int64, FLOATS)
def accumulate(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Add sixteen float32 to the sixteen float64 at the address."""
    pointer = _doubles(builder, address)
    total = builder.fadd(builder.load(pointer, align=8), builder.fpext(value, _DOUBLES))
    builder.store(total, pointer, align=8)


@intrinsic(types.void, types.int64, types.int64)
def add_doubles(builder: ir.IRBuilder, address: ir.Value, other: ir.Value) -> None:
    """Add the sixteen float64 at ``other`` to those at ``address``."""
    pointer = _doubles(builder, address)
    added = builder.load(_doubles(builder, other), align=8)
    builder.store(builder.fadd(builder.load(pointer, align=8), added), pointer, align=8)


@intrinsic(FLOATS, types.int64)
def load_rounded(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Sixteen float64, rounded to float32."""
    return builder.fptrunc(builder.load(_doubles(builder, address), align=8), FLOATS.llvm)


@intrinsic(FLOATS, types.int64)
def load_rounded_to_odd(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Sixteen float64 as float32 whose last bit is set where digits were lost.

    A second rounding, to 16 bits, then gives what a single one would have given (Boldo and Melquiond, 2008).
    """
    ints = ir.VectorType(_INT32, LANES)
    one = ir.Constant(ints, [_INT32(1)] * LANES)
    exact = builder.load(_doubles(builder, address), align=8)
    nearest = builder.fptrunc(exact, FLOATS.llvm)
    back = builder.fpext(nearest, _DOUBLES)
    pattern = builder.bitcast(nearest, ints)
    # An even neighbour gives way to the odd one on the other side of the exact value.
    name = f"llvm.fabs.v{LANES}f64"
    below = builder.fcmp_ordered(
        "<", call_llvm(builder, name, _DOUBLES, back), call_llvm(builder, name, _DOUBLES, exact)
    )
    other = builder.select(below, builder.add(pattern, one), builder.sub(pattern, one))
    even = builder.icmp_unsigned("==", builder.and_(pattern, one), ir.Constant(ints, [_INT32(0)] * LANES))
    moved = builder.and_(even, builder.fcmp_ordered("!=", back, exact))
    return builder.bitcast(builder.select(moved, other, pattern), FLOATS.llvm)


@intrinsic(types.boolean, types.int64)
def any_not_finite(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Whether any of sixteen float64 is infinite or NaN."""
    values = builder.load(_doubles(builder, address), align=8)
    none = builder.fsub(values, values)
    whole = ir.IntType(LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(builder.fcmp_unordered("uno", none, none), whole), whole(0))


def halves(builder: ir.IRBuilder, vectors: list[ir.Value], width: int) -> tuple[ir.Value, ir.Value]:
    """Of every 2·width lanes of one vector or two, one after the other, the first half, and the second."""
    first, second = vectors[0], vectors[-1] if len(vectors) > 1 else ir.Constant(vectors[0].type, ir.Undefined)
    lanes = first.type.count * len(vectors)
    lows = [i for i in range(lanes) if i // width % 2 == 0]
    mask = ir.VectorType(_INT32, len(lows))
    low, high = (
        builder.shuffle_vector(first, second, ir.Constant(mask, [_INT32(i + more) for i in lows]))
        for more in (0, width)
    )
    return low, high


@extending.intrinsic
def store_totals(typingctx: Any, address: Any, pitch: Any, values: Any) -> Any:
    """Sums of the lanes of each value, as ``vector.total``; four of them side by side, the next four ``pitch`` on.

    All at once they take a quarter of the instructions.
    """
    count = len(values)

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        left = [builder.extract_value(args[2], i) for i in range(count)]
        width = LANES // 2
        while width:
            pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
            left = [builder.fadd(*halves(builder, pair, width)) for pair in pairs]
            width //= 2
        four = ir.VectorType(ir.FloatType(), 4)
        for i in range(count // 4):
            mask = ir.Constant(ir.VectorType(_INT32, 4), [_INT32(4 * i + k) for k in range(4)])
            sums = builder.shuffle_vector(left[0], ir.Constant(left[0].type, ir.Undefined), mask)
            place = builder.add(args[0], builder.mul(args[1], ir.IntType(64)(i)))
            builder.store(sums, pointer(builder, place, four), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, values), emit


call = intrinsic(types.void, types.int64, types.int64, doc="Call a kernel by its address with a frame.")(call_kernel)
call_judge = intrinsic(types.void, *[types.int64] * 5, doc="Call ``exact.judge`` by its address.")(call_kernel)


@intrinsic(types.float32, FLOATS)
def largest_lane(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The largest of sixteen lanes, none of which is NaN."""

    def larger(low: ir.Value, high: ir.Value) -> ir.Value:
        return builder.select(builder.fcmp_ordered(">", low, high), low, high)

    return by_halves(builder, value, larger)
