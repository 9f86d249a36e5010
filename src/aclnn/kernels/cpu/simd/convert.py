"""Conversion of float32 to and from float16 and bfloat16, in sixteen or twice sixteen lanes, for ``memory``.

Widening is exact. Narrowing rounds once, ties to even, and keeps NaN a (quiet) NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.simd.vector import (
    FLOATS,
    INTS,
    LANES,
    apart,
    call_llvm,
    constant_splat,
    constants,
    joined,
    shuffled,
    unlikely,
)

_INT16, _INT32 = ir.IntType(16), ir.IntType(32)
_HALF, _FLOAT = ir.HalfType(), ir.FloatType()


Convert = Callable[[Any, ir.IRBuilder, ir.Value], ir.Value]

SHORTS = ir.VectorType(_INT16, LANES)
"""Sixteen 16-bit elements in their memory representation."""


def ints(*values: int) -> ir.Constant:
    """Return a vector of sixteen constant integers, or of one in every lane."""
    return constants(_INT32, values if len(values) > 1 else values * LANES)


def floats(value: float) -> ir.Constant:
    """Return a vector with a constant in every lane."""
    return constant_splat(_FLOAT, value)


def widen_bfloat16(context: Any, builder: ir.IRBuilder, raw: ir.Value) -> ir.Value:
    """Convert sixteen bfloat16, as SHORTS, to float32."""
    if not target.permutes_words(context):
        return builder.bitcast(builder.shl(builder.zext(raw, INTS.llvm), ints(16)), FLOATS.llvm)
    # Interleave with zeros by one permutation: LLVM would widen and shift, two instructions.
    words = joined(builder, [raw, ir.Constant(SHORTS, None)])
    # Opaque: from a constant permutation LLVM would make a widening and a shift again.
    order = apart(builder, constants(_INT16, (i // 2 if i % 2 else LANES for i in range(2 * LANES))))
    return builder.bitcast(call_llvm(builder, "llvm.x86.avx512.permvar.hi.512", words.type, words, order), FLOATS.llvm)


def narrow_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Round sixteen float32 to bfloat16, as SHORTS."""
    pattern = builder.bitcast(value, INTS.llvm)
    # Adding just under half of the last kept bit, or exactly half if that bit is odd, rounds ties to even.
    odd = builder.and_(builder.lshr(pattern, ints(16)), ints(1))
    rounded = builder.add(pattern, builder.add(odd, ints(0x7FFF)))
    quiet = builder.or_(pattern, ints(0x0040_0000))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(chosen, ints(16)), SHORTS)


def widen_float16(context: Any, builder: ir.IRBuilder, raw: ir.Value) -> ir.Value:
    """Convert sixteen float16, as SHORTS, to float32."""
    if target.converts_half(context):
        return builder.fpext(builder.bitcast(raw, ir.VectorType(_HALF, LANES)), FLOATS.llvm)
    pattern = builder.zext(raw, INTS.llvm)
    magnitude = builder.and_(pattern, ints(0x7FFF))
    sign = builder.shl(builder.and_(pattern, ints(0x8000)), ints(16))
    shifted = builder.shl(magnitude, ints(13))
    # The exponent biases differ by 112; the product is exact and normalizes subnormals.
    finite = builder.fmul(builder.bitcast(shifted, FLOATS.llvm), floats(2.0**112))
    special = builder.or_(shifted, ints(0x7F80_0000))
    quiet = builder.or_(special, ints(0x0040_0000))
    special = builder.select(builder.icmp_signed(">", magnitude, ints(0x7C00)), quiet, special)
    is_special = builder.icmp_signed(">=", magnitude, ints(0x7C00))
    chosen = builder.select(is_special, special, builder.bitcast(finite, INTS.llvm))
    return builder.bitcast(builder.or_(chosen, sign), FLOATS.llvm)


def narrow_float16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Round sixteen float32 to float16, as SHORTS."""
    if target.converts_half(context):
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(_HALF, LANES)), SHORTS)
    pattern = builder.bitcast(value, INTS.llvm)
    magnitude = builder.and_(pattern, ints(0x7FFF_FFFF))
    sign = builder.and_(builder.lshr(pattern, ints(16)), ints(0x8000))
    odd = builder.and_(builder.lshr(magnitude, ints(13)), ints(1))
    normal = builder.lshr(builder.add(magnitude, builder.add(odd, ints(0xFFF - (112 << 23)))), ints(13))
    # Near 0.5 an ULP of float32 is the smallest subnormal of float16, so the sum rounds to it.
    sum_ = builder.fadd(builder.bitcast(magnitude, FLOATS.llvm), floats(0.5))
    subnormal = builder.sub(builder.bitcast(sum_, INTS.llvm), ints(0x3F00_0000))
    finite = builder.select(builder.icmp_signed("<", magnitude, ints(0x3880_0000)), subnormal, normal)
    # 65520, the midpoint beyond the largest float16, and all larger numbers become infinite.
    bounded = builder.select(builder.icmp_signed(">=", magnitude, ints(0x477F_F000)), ints(0x7C00), finite)
    payload = builder.and_(builder.lshr(magnitude, ints(13)), ints(0x3FF))
    nan = builder.or_(payload, ints(0x7E00))
    chosen = builder.select(builder.icmp_signed(">", magnitude, ints(0x7F80_0000)), nan, bounded)
    return builder.trunc(builder.or_(chosen, sign), SHORTS)


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def round_pairs(builder: ir.IRBuilder, lower: ir.Value, upper: ir.Value) -> ir.Value:
    """Round two vectors to bfloat16, interleaved."""
    rounded = ir.VectorType(_BFloat(), 2 * LANES)
    both = call_llvm(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", rounded, upper, lower)
    words = builder.bitcast(both, ir.VectorType(_INT16, 2 * LANES))
    turns = (i // 2 + i % 2 * LANES for i in range(2 * LANES))
    return builder.bitcast(shuffled(builder, turns, words), INTS.llvm)


_SUBNORMAL = _INT32(1 << 5)
"""Class of subnormal numbers in the instruction's encoding."""


def _unless_subnormal(
    builder: ir.IRBuilder, values: Sequence[ir.Value], rounded: ir.Value, by_bits: Callable[[], ir.Value]
) -> ir.Value:
    """Use the instruction's bfloat16, or ``by_bits`` if a value is subnormal, which the instruction flushes to zero."""
    mask = ir.VectorType(ir.IntType(1), LANES)
    name = "llvm.x86.avx512.fpclass.ps.512"
    found = [call_llvm(builder, name, mask, value, _SUBNORMAL) for value in values]
    words = builder.bitcast(rounded, ir.VectorType(_INT16, rounded.type.count))
    fast = builder.block
    with builder.if_then(unlikely(builder, reduce(builder.or_, found))):
        slow, exact = builder.block, by_bits()
    chosen = builder.phi(words.type)
    chosen.add_incoming(words, fast)
    chosen.add_incoming(exact, slow)
    return chosen


def round_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Round like ``narrow_bfloat16``, by an instruction except for subnormal numbers."""
    if not target.rounds_bfloat16(context):
        return narrow_bfloat16(context, builder, value)
    rounded = call_llvm(builder, "llvm.x86.avx512bf16.cvtneps2bf16.512", ir.VectorType(_BFloat(), LANES), value)
    return _unless_subnormal(builder, [value], rounded, lambda: narrow_bfloat16(context, builder, value))


def narrow_two_bfloat16(context: Any, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    """Round two vectors to bfloat16, concatenated, by an instruction except for subnormal numbers."""

    def by_bits() -> ir.Value:
        both = joined(builder, [narrow_bfloat16(context, builder, value) for value in (low, high)])
        return apart(builder, both) if target.flavour(context) == "avx512" else both  # as ``memory`` stores it

    if not target.rounds_bfloat16(context):
        return by_bits()
    both = call_llvm(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", ir.VectorType(_BFloat(), 2 * LANES), high, low)
    return _unless_subnormal(builder, [low, high], both, by_bits)
