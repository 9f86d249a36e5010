"""Sixteen float64 lanes in registers: conversions from and to float32, sums over float32 lanes.

Each operation is rounded once, in float64; nothing is fused or reassociated, so every machine gives the same bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from aclnn.kernels.cpu.addresses import pointer
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


@intrinsic
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


@intrinsic
def mask_of(typingctx: Any, condition: Any) -> Any:
    """A condition for every lane; a mask as it is."""
    if condition is MASK:
        return MASK(MASK), lambda context, builder, sig, args: args[0]

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        every = builder.sext(args[0], ir.IntType(LANES))
        return builder.bitcast(every, MASK.llvm)

    return (MASK(types.boolean), emit) if isinstance(condition, types.Boolean) else None


@intrinsic
def narrow(typingctx: Any, value: Any) -> Any:
    """Float64 lanes rounded to float32, ties to even."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.fptrunc(args[0], FLOATS.llvm)

    return FLOATS(DOUBLES), emit


@intrinsic
def root(typingctx: Any, value: Any) -> Any:
    """The square root of float64 lanes, correctly rounded."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return call_llvm(builder, f"llvm.sqrt.v{LANES}f64", DOUBLES.llvm, args[0])

    return DOUBLES(DOUBLES), emit


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

    @intrinsic
    def evaluate(typingctx: Any, x: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            (x,) = args
            if not in_two:
                return horner(builder, x, rows)
            square = builder.fmul(x, x)
            even, odd = (horner(builder, square, rows[(len(rows) - 1 - power) % 2 :: 2]) for power in (0, 1))
            return multiply_add(builder, odd, x, even)

        return DOUBLES(DOUBLES), emit

    return evaluate


@intrinsic
def no_doubles(typingctx: Any) -> Any:
    """Sixteen zeros."""
    return DOUBLES(), lambda context, builder, sig, args: ir.Constant(DOUBLES.llvm, [_DOUBLE(0.0)] * LANES)


@intrinsic
def load_doubles(typingctx: Any, address: Any) -> Any:
    """Sixteen float64 at an address."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.load(pointer(builder, args[0], DOUBLES.llvm), align=8)

    return DOUBLES(types.int64), emit


@intrinsic
def store_doubles(typingctx: Any, address: Any, value: Any) -> Any:
    """Write sixteen float64."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        builder.store(args[1], pointer(builder, args[0], DOUBLES.llvm), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, DOUBLES), emit


@intrinsic
def plus(typingctx: Any, total: Any, value: Any) -> Any:
    """total + value, sixteen float64 and sixteen float32."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.fadd(args[0], builder.fpext(args[1], DOUBLES.llvm))

    return DOUBLES(DOUBLES, FLOATS), emit


@intrinsic
def plus_square(typingctx: Any, total: Any, value: Any, centre: Any) -> Any:
    """total + (value - centre)², sixteen float64, sixteen float32 and a float64."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        difference = _centred(builder, args[1], args[2])
        return builder.fadd(args[0], builder.fmul(difference, difference))

    return DOUBLES(DOUBLES, FLOATS, types.float64), emit


@intrinsic
def sum_of(typingctx: Any, total: Any) -> Any:
    """The sum of the lanes, always as the same tree: halves are added until one lane is left."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return by_halves(builder, args[0], builder.fadd)

    return types.float64(DOUBLES), emit


@intrinsic
def standardized(typingctx: Any, value: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    """(value - mean)·rstd·weight + bias rounded to float32: mean and rstd are float64, the others sixteen float32."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        value, mean, rstd, weight, bias = args
        normalized = builder.fmul(_centred(builder, value, mean), broadcast(builder, rstd))
        scaled = builder.fmul(normalized, builder.fpext(weight, DOUBLES.llvm))
        return builder.fptrunc(builder.fadd(scaled, builder.fpext(bias, DOUBLES.llvm)), FLOATS.llvm)

    return FLOATS(FLOATS, types.float64, types.float64, FLOATS, FLOATS), emit
