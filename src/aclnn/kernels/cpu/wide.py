"""Loads and stores of wide vectors (see ``vector``), and whether all of one are such as a fast way is made for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.addresses import reloaded
from aclnn.kernels.cpu.conversions import SHORTS, narrow_float16, round_pairs, widen_float16
from aclnn.kernels.cpu.inner import ADDRESS, intrinsic
from aclnn.kernels.cpu.memory import write
from aclnn.kernels.cpu.structs import moved, pointer
from aclnn.kernels.cpu.vector import LANES, WIDE, WIDE_FLOATS, WIDE_INTS, apart, call_llvm, joined, pieces, unlikely

_INT1, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))


def _load_wide(widen: Any, doc: str) -> Any:
    def load(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        return widen(context, builder, address)

    return intrinsic(WIDE_FLOATS, ADDRESS, doc=doc)(load)


def _store_wide(narrow: Any, doc: str, streamed: bool = False) -> Any:
    """``narrow`` gives the registers that are written one after the other."""

    def store(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
        place = address
        for register in narrow(context, builder, value):
            size = register.type.count * register.type.element.width // 8
            # Known to be floats of 16 bits they would not stream (LLVM 22).
            raw = apart(builder, register) if streamed and target.flavour(context) == "avx512" else register
            write(builder, raw, place, size if streamed else 1, streamed)
            place = moved(builder, place, _INT64(size))

    return intrinsic(types.void, ADDRESS, WIDE_FLOATS, doc=doc)(store)


_PAIRS = ir.VectorType(_INT32, WIDE * LANES // 2)
"""A wide vector of bfloat16, two to a lane. The lower ones become the first half of a wide vector, the upper ones the
second: a shift and a mask, where the order in memory would take a widening of each register."""


def _each_pair(value: int) -> ir.Constant:
    return ir.Constant(_PAIRS, [_INT32(value)] * _PAIRS.count)


def _wide_float32(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.load(pointer(builder, address, WIDE_FLOATS.llvm), align=1)


def _wide_float16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    # Loaded again where they were looked at before: instructions that take registers apart cost more.
    base = reloaded(builder, address)
    places = [pointer(builder, moved(builder, base, _INT64(2 * LANES * i)), SHORTS) for i in range(WIDE)]
    return joined(builder, [widen_float16(context, builder, builder.load(place, align=1)) for place in places])


def _wide_bfloat16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    pairs = builder.load(pointer(builder, address, _PAIRS), align=1)
    lower, upper = builder.shl(pairs, _each_pair(16)), builder.and_(pairs, _each_pair(-65536))
    return builder.bitcast(joined(builder, [lower, upper]), WIDE_FLOATS.llvm)


def _wide_registers(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    return pieces(builder, builder.bitcast(value, WIDE_INTS.llvm), LANES)


def _narrow_wide_float16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # Half a register each: joining two takes as long as writing one more.
    return [narrow_float16(context, builder, piece) for piece in pieces(builder, value, LANES)]


def _narrow_wide_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # As narrow_bfloat16; a NaN has no digits below bfloat16's that the sum could carry into the exponent.
    halves = pieces(builder, value, _PAIRS.count)
    if target.rounds_bfloat16(context):
        lower, upper = (pieces(builder, half, LANES) for half in halves)
        return [round_pairs(builder, *pair) for pair in zip(lower, upper, strict=True)]
    rounded = []
    for half in halves:
        pattern = builder.bitcast(half, _PAIRS)
        odd = builder.and_(builder.lshr(pattern, _each_pair(16)), _each_pair(1))
        rounded.append(builder.add(pattern, builder.add(odd, _each_pair(0x7FFF))))
    lower, upper = builder.lshr(rounded[0], _each_pair(16)), builder.and_(rounded[1], _each_pair(-65536))
    return pieces(builder, builder.or_(lower, upper), LANES)


load_wide_float32 = _load_wide(_wide_float32, "A wide vector of float32.")
load_wide_float16 = _load_wide(_wide_float16, "A wide vector of float16, widened.")
load_wide_bfloat16 = _load_wide(_wide_bfloat16, "A wide vector of bfloat16, widened; every second element comes first.")
store_wide_float32 = _store_wide(_wide_registers, "A wide vector of float32.")
store_wide_float16 = _store_wide(_narrow_wide_float16, "A wide vector rounded to float16.")
store_wide_bfloat16 = _store_wide(
    _narrow_wide_bfloat16,
    "A wide vector, in the order of ``load_wide_bfloat16``, rounded to bfloat16. NaNs come from bfloat16 operands.",
)
stream_wide_float32 = _store_wide(_wide_registers, "The same; 64-byte aligned.", True)
stream_wide_float16 = _store_wide(_narrow_wide_float16, "The same; 64-byte aligned.", True)
stream_wide_bfloat16 = _store_wide(_narrow_wide_bfloat16, "The same; 64-byte aligned.", True)


@intrinsic(types.boolean, ADDRESS)
def any_tiny_bfloat16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Whether any of a wide vector of bfloat16 is so small that products with slopes are not rounded but made zero.

    Numbers below 2^-100 other than zero, where an instruction rounds (see ``target.rounds_bfloat16``); else none.
    """
    if not target.rounds_bfloat16(context):
        return _INT1(0)
    lanes = ir.VectorType(_INT16, WIDE * LANES)

    def each(value: int) -> ir.Constant:
        return ir.Constant(lanes, [_INT16(value)] * lanes.count)

    magnitudes = builder.and_(builder.load(pointer(builder, address, lanes), align=1), each(0x7FFF))
    # Zeros become the largest.
    first, second = pieces(builder, builder.sub(magnitudes, each(1)), 2 * LANES)
    least = call_llvm(builder, f"llvm.umin.v{2 * LANES}i16", first.type, first, second)
    limit = ir.Constant(least.type, [_INT16(((127 - 100) << 7) - 1)] * least.type.count)
    return unlikely(builder, builder.icmp_unsigned("<", least, limit))


def _any_above(word: ir.IntType, doc: str) -> Any:
    lanes = WIDE * LANES
    register = LANES * 32 // word.width

    def above(builder: ir.IRBuilder, address: ir.Value, bound: ir.Value) -> ir.Value:
        def each(vector: ir.VectorType, value: int) -> ir.Constant:
            return ir.Constant(vector, [word(value)] * vector.count)

        raw = builder.load(pointer(builder, address, ir.VectorType(word, lanes)), align=1)
        magnitudes = builder.and_(raw, each(raw.type, (1 << (word.width - 1)) - 1))
        # Unlike comparisons, maxima leave the pipes that multiply alone (Zen 4).
        largest, *others = pieces(builder, magnitudes, register)
        for other in others:
            largest = call_llvm(builder, f"llvm.umax.v{register}i{word.width}", largest.type, largest, other)
        limit = builder.insert_element(ir.Constant(largest.type, ir.Undefined), builder.trunc(bound, word), _INT32(0))
        zeros = ir.Constant(ir.VectorType(_INT32, register), None)
        beyond = builder.icmp_unsigned(">", largest, builder.shuffle_vector(limit, limit, zeros))
        return unlikely(builder, beyond)

    return intrinsic(types.boolean, ADDRESS, types.int64, doc=doc)(above)


any_above_32 = _any_above(
    _INT32,
    """Whether any of a wide vector of float32 is above ``bound`` (a bit pattern) in magnitude, or NaN.

    Marked as unlikely, so that what is done then does not take registers from what is done otherwise.
    """,
)
any_above_16 = _any_above(_INT16, "The same for float16 or bfloat16.")
