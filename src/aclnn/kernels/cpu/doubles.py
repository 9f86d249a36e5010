"""Sixteen float64 lanes in registers: conversions from and to float32, sums over float32 lanes.

Each operation is rounded once, in float64; nothing is fused or reassociated, so every machine gives the same bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from aclnn.kernels.cpu.inner import ADDRESS, intrinsic
from aclnn.kernels.cpu.structs import pointer
from aclnn.kernels.cpu.vector import (
    DOUBLES,
    FLOATS,
    LANES,
    MASK,
    broadcast,
    by_halves,
    call_llvm,
    multiply_add,
)

_DOUBLE = ir.DoubleType()


def _centred(builder: ir.IRBuilder, value: ir.Value, centre: ir.Value) -> ir.Value:
    return builder.fsub(builder.fpext(value, DOUBLES.llvm), broadcast(builder, centre))


@extending.intrinsic
def widen(typingctx: Any, value: Any) -> Any:
    """Float32 lanes, or a number for every lane, in float64; float64 lanes as they are."""
    if value is DOUBLES:
        return DOUBLES(DOUBLES), lambda context, builder, sig, args: args[0]
    if value is not FLOATS and not isinstance(value, (types.Number, types.Boolean)):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        if value is FLOATS:
            return builder.fpext(args[0], DOUBLES.llvm)
        return broadcast(builder, context.cast(builder, args[0], value, types.float64))

    return DOUBLES(value), emit


@extending.intrinsic
def mask_of(typingctx: Any, condition: Any) -> Any:
    """A condition for every lane; a mask as it is."""
    if condition is MASK:
        return MASK(MASK), lambda context, builder, sig, args: args[0]

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        every = builder.sext(args[0], ir.IntType(LANES))
        return builder.bitcast(every, MASK.llvm)

    return (MASK(types.boolean), emit) if isinstance(condition, types.Boolean) else None


@intrinsic(FLOATS, DOUBLES)
def narrow(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Float64 lanes rounded to float32, ties to even."""
    return builder.fptrunc(value, FLOATS.llvm)


@intrinsic(DOUBLES, DOUBLES)
def root(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The square root of float64 lanes, correctly rounded."""
    return call_llvm(builder, f"llvm.sqrt.v{LANES}f64", DOUBLES.llvm, value)


def polynomial(*coefficients: str, in_two: bool = False) -> Any:
    """A function for compiled code: the polynomial with these float64 (as ``float.hex``), highest power first.

    Of a long one even and odd powers are better summed ``in_two``: fused operations wait for one another.
    """
    rows = [ir.Constant(DOUBLES.llvm, [_DOUBLE(float.fromhex(text))] * LANES) for text in coefficients]

    def horner(builder: ir.IRBuilder, x: ir.Value, some: list[ir.Constant]) -> ir.Value:
        value: ir.Value = some[0]
        for coefficient in some[1:]:
            value = multiply_add(builder, value, x, coefficient)
        return value

    @intrinsic(DOUBLES, DOUBLES)
    def evaluate(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
        if not in_two:
            return horner(builder, x, rows)
        square = builder.fmul(x, x)
        even, odd = (horner(builder, square, rows[(len(rows) - 1 - power) % 2 :: 2]) for power in (0, 1))
        return multiply_add(builder, odd, x, even)

    return evaluate


@intrinsic(DOUBLES)
def no_doubles(builder: ir.IRBuilder) -> ir.Value:
    """Sixteen zeros."""
    return ir.Constant(DOUBLES.llvm, [_DOUBLE(0.0)] * LANES)


@intrinsic(DOUBLES, ADDRESS)
def load_doubles(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Sixteen float64 at an address."""
    return builder.load(pointer(builder, address, DOUBLES.llvm), align=8)


@intrinsic(types.void, ADDRESS, DOUBLES)
def store_doubles(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Write sixteen float64."""
    builder.store(value, pointer(builder, address, DOUBLES.llvm), align=8)


@intrinsic(DOUBLES, DOUBLES, FLOATS)
def plus(builder: ir.IRBuilder, total: ir.Value, value: ir.Value) -> ir.Value:
    """total + value, sixteen float64 and sixteen float32."""
    return builder.fadd(total, builder.fpext(value, DOUBLES.llvm))


@intrinsic(DOUBLES, DOUBLES, FLOATS, types.float64)
def plus_square(builder: ir.IRBuilder, total: ir.Value, value: ir.Value, centre: ir.Value) -> ir.Value:
    """total + (value - centre)², sixteen float64, sixteen float32 and a float64."""
    difference = _centred(builder, value, centre)
    return builder.fadd(total, builder.fmul(difference, difference))


@intrinsic(types.float64, DOUBLES)
def sum_of(builder: ir.IRBuilder, total: ir.Value) -> ir.Value:
    """The sum of the lanes, always as the same tree: halves are added until one lane is left."""
    return by_halves(builder, total, builder.fadd)


@intrinsic(FLOATS, FLOATS, types.float64, types.float64, FLOATS, FLOATS)
def standardized(
    builder: ir.IRBuilder, value: ir.Value, mean: ir.Value, rstd: ir.Value, weight: ir.Value, bias: ir.Value
) -> ir.Value:
    """(value - mean)·rstd·weight + bias rounded to float32: mean and rstd are float64, the others sixteen float32."""
    normalized = builder.fmul(_centred(builder, value, mean), broadcast(builder, rstd))
    scaled = builder.fmul(normalized, builder.fpext(weight, DOUBLES.llvm))
    return builder.fptrunc(builder.fadd(scaled, builder.fpext(bias, DOUBLES.llvm)), FLOATS.llvm)
