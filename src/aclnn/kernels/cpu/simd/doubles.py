"""Float64 lanes: loads, stores, conversion to and from float32, square roots, polynomials, sums and maxima.

Each operation is rounded once, in float64; nothing is reassociated, so every machine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu.jit import generic, intrinsic
from aclnn.kernels.cpu.simd.vector import (
    DOUBLES,
    FLOATS,
    LANES,
    MASK,
    VECTORS,
    WIDE,
    Vector,
    by_halves,
    call_llvm,
    constant_splat,
    has_lanes,
    multiply_add,
)
from aclnn.kernels.cpu.structs import ADDRESS, pointer

_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()


def _widen(lanes: int, doc: str) -> Any:
    def typed(value: Any) -> Any:
        if has_lanes(value, _DOUBLE) or has_lanes(value, _FLOAT):
            return VECTORS[_DOUBLE, value.lanes](value)
        doubles = VECTORS[_DOUBLE, lanes]
        return doubles(doubles) if isinstance(value, types.Number) else None

    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        same = value.type.element == _DOUBLE
        return value if same else builder.fpext(value, ir.VectorType(_DOUBLE, value.type.count))

    return generic(typed, doc=doc)(emit)


widen = _widen(LANES, "Float32 lanes in float64, a number in sixteen of them; float64 lanes as they are.")
widen_wide = _widen(WIDE * LANES, "Like ``widen``, but a number fills a wide vector.")


def _choice(mask: Any, chosen: Any, otherwise: Any) -> Any:
    if not has_lanes(mask, MASK.lane):
        return None
    doubles = VECTORS[_DOUBLE, mask.lanes]
    fits = all(kind is doubles or isinstance(kind, types.Number) for kind in (chosen, otherwise))
    return doubles(mask, doubles, doubles) if fits else None


@generic(_choice)
def choose(builder: ir.IRBuilder, mask: ir.Value, chosen: ir.Value, otherwise: ir.Value) -> ir.Value:
    """Select ``chosen`` where the mask is set, else ``otherwise``: float64 lanes, or numbers for every lane."""
    return builder.select(mask, chosen, otherwise)


def _of_doubles(lane: ir.Type, emit: Callable[[ir.IRBuilder, ir.Value, ir.Type], ir.Value], doc: str) -> Any:
    """Make a function from float64 lanes to as many lanes; ``emit`` also receives the result's type."""

    def typed(value: Any) -> Any:
        return VECTORS[lane, value.lanes](value) if has_lanes(value, _DOUBLE) else None

    def of_lanes(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return emit(builder, value, ir.VectorType(lane, value.type.count))

    return generic(typed, doc=doc)(of_lanes)


narrow = _of_doubles(_FLOAT, ir.IRBuilder.fptrunc, "Float64 lanes rounded to float32, ties to even.")
root = _of_doubles(
    _DOUBLE,
    lambda builder, value, kind: call_llvm(builder, f"llvm.sqrt.v{kind.count}f64", kind, value),
    "The square root of float64 lanes, correctly rounded.",
)


def polynomial(coefficients: str, in_two: bool = False) -> Any:
    """Make the function of a polynomial with these float64 coefficients (as ``float.hex``), highest power first.

    For long polynomials, summing even and odd powers separately (``in_two``) shortens the dependency chain.
    """
    numbers = list(map(float.fromhex, coefficients.split()))

    def horner(builder: ir.IRBuilder, x: ir.Value, some: list[float]) -> ir.Value:
        value: ir.Value = constant_splat(_DOUBLE, some[0], x.type.count)
        for number in some[1:]:
            value = multiply_add(builder, value, x, constant_splat(_DOUBLE, number, x.type.count))
        return value

    def evaluate(builder: ir.IRBuilder, x: ir.Value, kind: ir.Type) -> ir.Value:
        if not in_two:
            return horner(builder, x, numbers)
        square = builder.fmul(x, x)
        even, odd = (horner(builder, square, numbers[(len(numbers) - 1 - power) % 2 :: 2]) for power in (0, 1))
        return multiply_add(builder, odd, x, even)

    return _of_doubles(_DOUBLE, evaluate, "The polynomial.")


@intrinsic(DOUBLES, ADDRESS)
def load_doubles(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Load sixteen float64."""
    return builder.load(pointer(builder, address, DOUBLES.llvm), align=8)


@intrinsic(types.void, ADDRESS, DOUBLES)
def store_doubles(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Store sixteen float64."""
    builder.store(value, pointer(builder, address, DOUBLES.llvm), align=8)


@intrinsic(types.float64, DOUBLES)
def sum_of(builder: ir.IRBuilder, total: ir.Value) -> ir.Value:
    """Sum the lanes in a fixed tree: halves are added until one lane is left."""
    return by_halves(builder, total, builder.fadd)


def _larger(builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
    chosen = builder.or_(builder.fcmp_ordered(">", second, first), builder.fcmp_unordered("uno", second, second))
    return builder.select(chosen, second, first)


def _maxima(number: types.Type, lanes: Vector) -> tuple[Any, Any]:
    """Make functions for the larger of two lanes, and the largest lane: NaN if any is."""

    def largest(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return by_halves(builder, value, lambda *halves: _larger(builder, *halves))

    return (
        intrinsic(lanes, lanes, lanes, doc="The larger of two lanes, NaN if either is.")(_larger),
        intrinsic(number, lanes, doc="The largest lane, NaN if any is.")(largest),
    )


larger, largest_of = _maxima(types.float64, DOUBLES)
larger_float32, largest_float32_of = _maxima(types.float32, FLOATS)
