"""Sixteen float64 lanes in registers, for sums over float32 lanes and for what is made of them.

Each operation is rounded once, in float64; nothing is fused or reassociated, so every machine gives the same bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from aclnn.kernels.cpu.addresses import pointer
from aclnn.kernels.cpu.vector import FLOATS, LANES, MASK, Vector, by_halves

_INT32, _DOUBLE = ir.IntType(32), ir.DoubleType()

DOUBLES = Vector("float64x16", _DOUBLE)


def _splat(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    undefined = ir.Constant(DOUBLES.llvm, ir.Undefined)
    first = builder.insert_element(undefined, scalar, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, LANES), [_INT32(0)] * LANES))


def _centred(builder: ir.IRBuilder, value: ir.Value, centre: ir.Value) -> ir.Value:
    return builder.fsub(builder.fpext(value, DOUBLES.llvm), _splat(builder, centre))


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
def either(typingctx: Any, mask: Any, chosen: Any, otherwise: Any) -> Any:
    """Lane by lane ``chosen`` where the mask is set, else ``otherwise``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.select(*args)

    return DOUBLES(MASK, DOUBLES, DOUBLES), emit


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
        normalized = builder.fmul(_centred(builder, value, mean), _splat(builder, rstd))
        scaled = builder.fmul(normalized, builder.fpext(weight, DOUBLES.llvm))
        return builder.fptrunc(builder.fadd(scaled, builder.fpext(bias, DOUBLES.llvm)), FLOATS.llvm)

    return FLOATS(FLOATS, types.float64, types.float64, FLOATS, FLOATS), emit
