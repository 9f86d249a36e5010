"""Loads and stores of sixteen lanes at raw addresses, for float32, float16 and bfloat16.

``load_<type>(address)`` widens to float32, which is exact; ``store_<type>(address, value)`` rounds once, ties to even,
and keeps NaN a (quiet) NaN. The ``_part`` forms touch only the first ``count`` elements, 0 ≤ count ≤ 16; lanes beyond
them read as zero. The ``stream_`` forms go around the cache and need an address aligned to the sixteen elements: 64
bytes for float32, 32 for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.vector import (
    FLOATS,
    INTS,
    LANES,
    MASK,
    WIDE,
    WIDE_FLOATS,
    WIDE_INTS,
    apart,
    call_llvm,
    joined,
    pieces,
)

Convert = Callable[[Any, ir.IRBuilder, ir.Value], ir.Value]

_INT1, _INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_HALF, _FLOAT = ir.HalfType(), ir.FloatType()
_SHORTS = ir.VectorType(_INT16, LANES)


def _ints(*values: int) -> ir.Constant:
    return ir.Constant(INTS.llvm, [_INT32(value) for value in (values if len(values) > 1 else values * LANES)])


def _floats(value: float) -> ir.Constant:
    return ir.Constant(FLOATS.llvm, [_FLOAT(value)] * LANES)


def _widen_bfloat16(context: Any, builder: ir.IRBuilder, raw: ir.Value) -> ir.Value:
    return builder.bitcast(builder.shl(builder.zext(raw, INTS.llvm), _ints(16)), FLOATS.llvm)


def _narrow_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    pattern = builder.bitcast(value, INTS.llvm)
    # Adding just under half of the last kept place, or exactly half when that place is odd, rounds ties to even.
    odd = builder.and_(builder.lshr(pattern, _ints(16)), _ints(1))
    rounded = builder.add(pattern, builder.add(odd, _ints(0x7FFF)))
    quiet = builder.or_(pattern, _ints(0x0040_0000))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(chosen, _ints(16)), _SHORTS)


def _widen_float16(context: Any, builder: ir.IRBuilder, raw: ir.Value) -> ir.Value:
    if target.converts_half(context):
        return builder.fpext(builder.bitcast(raw, ir.VectorType(_HALF, LANES)), FLOATS.llvm)
    pattern = builder.zext(raw, INTS.llvm)
    magnitude = builder.and_(pattern, _ints(0x7FFF))
    sign = builder.shl(builder.and_(pattern, _ints(0x8000)), _ints(16))
    shifted = builder.shl(magnitude, _ints(13))
    # The exponents' biases differ by 112; the product is exact and makes subnormals normal.
    finite = builder.fmul(builder.bitcast(shifted, FLOATS.llvm), _floats(2.0**112))
    special = builder.or_(shifted, _ints(0x7F80_0000))
    quiet = builder.or_(special, _ints(0x0040_0000))
    special = builder.select(builder.icmp_signed(">", magnitude, _ints(0x7C00)), quiet, special)
    is_special = builder.icmp_signed(">=", magnitude, _ints(0x7C00))
    chosen = builder.select(is_special, special, builder.bitcast(finite, INTS.llvm))
    return builder.bitcast(builder.or_(chosen, sign), FLOATS.llvm)


def _narrow_float16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    if target.converts_half(context):
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(_HALF, LANES)), _SHORTS)
    pattern = builder.bitcast(value, INTS.llvm)
    magnitude = builder.and_(pattern, _ints(0x7FFF_FFFF))
    sign = builder.and_(builder.lshr(pattern, _ints(16)), _ints(0x8000))
    odd = builder.and_(builder.lshr(magnitude, _ints(13)), _ints(1))
    normal = builder.lshr(builder.add(magnitude, builder.add(odd, _ints(0xFFF - (112 << 23)))), _ints(13))
    # Next to 0.5 one unit in the last place of float32 is the smallest subnormal of float16: the sum rounds there.
    sum_ = builder.fadd(builder.bitcast(magnitude, FLOATS.llvm), _floats(0.5))
    subnormal = builder.sub(builder.bitcast(sum_, INTS.llvm), _ints(0x3F00_0000))
    finite = builder.select(builder.icmp_signed("<", magnitude, _ints(0x3880_0000)), subnormal, normal)
    # 65520, halfway beyond the largest float16, and all above it become infinite.
    bounded = builder.select(builder.icmp_signed(">=", magnitude, _ints(0x477F_F000)), _ints(0x7C00), finite)
    payload = builder.and_(builder.lshr(magnitude, _ints(13)), _ints(0x3FF))
    nan = builder.or_(payload, _ints(0x7E00))
    chosen = builder.select(builder.icmp_signed(">", magnitude, _ints(0x7F80_0000)), nan, bounded)
    return builder.trunc(builder.or_(chosen, sign), _SHORTS)


def _pointer(builder: ir.IRBuilder, address: ir.Value, pointee: ir.Type) -> ir.Value:
    return builder.inttoptr(address, pointee.as_pointer())


def _load(widen: Convert | None, doc: str) -> Any:
    memory = FLOATS.llvm if widen is None else _SHORTS

    def load(typingctx: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            raw = builder.load(_pointer(builder, args[0], memory), align=1)
            return raw if widen is None else widen(context, builder, raw)

        return (FLOATS(types.int64), emit) if isinstance(address, types.Integer) else None

    load.__doc__ = doc
    return intrinsic(load)


def _write(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, alignment: int, streamed: bool) -> None:
    written = builder.store(value, _pointer(builder, address, value.type), align=alignment)
    if streamed:
        written.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


def _store(narrow: Convert | None, doc: str, streamed: bool = False, alignment: int = 1) -> Any:

    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            raw = args[1] if narrow is None else narrow(context, builder, args[1])
            if streamed and narrow is _narrow_bfloat16 and target.flavour(context) == "avx512":
                # LLVM merges the rounding with the store, and that instruction cannot stream.
                raw = apart(builder, raw)
            _write(builder, raw, args[0], alignment, streamed)
            return context.get_dummy_value()

        return (types.void(types.int64, FLOATS), emit) if value is FLOATS else None

    store.__doc__ = doc
    return intrinsic(store)


load_float32 = _load(None, "Sixteen float32.")
load_float16 = _load(_widen_float16, "Sixteen float16, widened.")
load_bfloat16 = _load(_widen_bfloat16, "Sixteen bfloat16, widened.")
store_float32 = _store(None, "Sixteen float32.")
store_float16 = _store(_narrow_float16, "Sixteen values rounded to float16.")
store_bfloat16 = _store(_narrow_bfloat16, "Sixteen values rounded to bfloat16.")
stream_float32 = _store(None, "Sixteen float32 to a 64-byte aligned address, around the cache.", True, 64)
stream_float16 = _store(_narrow_float16, "The same for float16; 32-byte aligned.", True, 32)
stream_bfloat16 = _store(_narrow_bfloat16, "The same for bfloat16; 32-byte aligned.", True, 32)
trickle_float32 = _store(None, "The same for an address aligned to 16 bytes, 16 bytes at a time.", True, 16)
trickle_float16 = _store(_narrow_float16, "The same for float16.", True, 16)
trickle_bfloat16 = _store(_narrow_bfloat16, "The same for bfloat16.", True, 16)


def _again(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.asm(ir.FunctionType(_INT64, [_INT64]), "", "=r,0", [address], False)


# --- wide vectors ----------------------------------------------------------------------------------------------------


def _load_wide(widen: Any, doc: str) -> Any:
    def load(typingctx: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            return widen(context, builder, args[0])

        return (WIDE_FLOATS(types.int64), emit) if isinstance(address, types.Integer) else None

    load.__doc__ = doc
    return intrinsic(load)


def _store_wide(narrow: Any, doc: str, streamed: bool = False) -> Any:
    """``narrow`` gives the registers that are written one after the other."""

    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            place = args[0]
            for register in narrow(context, builder, args[1]):
                size = register.type.count * register.type.element.width // 8
                # Known to be floats of 16 bits they would not stream (LLVM 22).
                raw = apart(builder, register) if streamed and target.flavour(context) == "avx512" else register
                _write(builder, raw, place, size if streamed else 1, streamed)
                place = builder.add(place, _INT64(size))
            return context.get_dummy_value()

        return (types.void(types.int64, WIDE_FLOATS), emit) if value is WIDE_FLOATS else None

    store.__doc__ = doc
    return intrinsic(store)


_PAIRS = ir.VectorType(_INT32, WIDE * LANES // 2)
"""A wide vector of bfloat16, two to a lane. The lower ones become the first half of a wide vector, the upper ones the
second: a shift and a mask, where the order in memory would take a widening of each register."""


def _each_pair(value: int) -> ir.Constant:
    return ir.Constant(_PAIRS, [_INT32(value)] * _PAIRS.count)


def _wide_float32(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.load(_pointer(builder, address, WIDE_FLOATS.llvm), align=1)


def _wide_float16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    # Loaded again where they were looked at before: instructions that take registers apart cost more.
    base = _again(builder, address)
    places = [_pointer(builder, builder.add(base, _INT64(2 * LANES * i)), _SHORTS) for i in range(WIDE)]
    return joined(builder, [_widen_float16(context, builder, builder.load(place, align=1)) for place in places])


def _wide_bfloat16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    pairs = builder.load(_pointer(builder, address, _PAIRS), align=1)
    lower, upper = builder.shl(pairs, _each_pair(16)), builder.and_(pairs, _each_pair(-65536))
    return builder.bitcast(joined(builder, [lower, upper]), WIDE_FLOATS.llvm)


def _wide_registers(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    return pieces(builder, builder.bitcast(value, WIDE_INTS.llvm), LANES)


def _narrow_wide_float16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # Half a register each: joining two takes as long as writing one more.
    return [_narrow_float16(context, builder, piece) for piece in pieces(builder, value, LANES)]


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _round_pairs(builder: ir.IRBuilder, lower: ir.Value, upper: ir.Value) -> ir.Value:
    """Two vectors as bfloat16, by turns."""
    rounded = ir.VectorType(_BFloat(), 2 * LANES)
    both = call_llvm(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", rounded, upper, lower)
    words = builder.bitcast(both, ir.VectorType(_INT16, 2 * LANES))
    turns = [_INT32(i // 2 + i % 2 * LANES) for i in range(2 * LANES)]
    order = ir.Constant(ir.VectorType(_INT32, 2 * LANES), turns)
    return builder.bitcast(builder.shuffle_vector(words, words, order), INTS.llvm)


def _narrow_wide_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # As _narrow_bfloat16; a NaN has no digits below bfloat16's that the sum could carry into the exponent.
    halves = pieces(builder, value, _PAIRS.count)
    if target.rounds_bfloat16(context):
        lower, upper = (pieces(builder, half, LANES) for half in halves)
        return [_round_pairs(builder, *pair) for pair in zip(lower, upper, strict=True)]
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


def _narrow_two_bfloat16(context: Any, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    """Two vectors as bfloat16, one after the other; rounded by an instruction, but for what it makes zero."""

    def by_bits() -> ir.Value:
        both = joined(builder, [_narrow_bfloat16(context, builder, value) for value in (low, high)])
        return apart(builder, both) if target.flavour(context) == "avx512" else both  # as in _store

    if not target.rounds_bfloat16(context):
        return by_bits()
    both = call_llvm(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", ir.VectorType(_BFloat(), 2 * LANES), high, low)
    # Apart: LLVM would compare them as bfloat16, which takes a detour through float32.
    words = apart(builder, builder.bitcast(both, ir.VectorType(_INT16, 2 * LANES)))
    magnitudes = builder.and_(words, ir.Constant(words.type, [_INT16(0x7FFF)] * words.type.count))
    zeros = builder.icmp_unsigned("==", magnitudes, ir.Constant(words.type, None))
    fast = builder.block
    with builder.if_then(_unlikely(builder, zeros)):
        slow, exact = builder.block, by_bits()
    chosen = builder.phi(words.type)
    chosen.add_incoming(words, fast)
    chosen.add_incoming(exact, slow)
    return chosen


def _store_two_bfloat16(doc: str, streamed: bool = False, alignment: int = 1) -> Any:
    def store(typingctx: Any, address: Any, low: Any, high: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            _write(builder, _narrow_two_bfloat16(context, builder, *args[1:]), args[0], alignment, streamed)
            return context.get_dummy_value()

        return (types.void(types.int64, FLOATS, FLOATS), emit) if low is FLOATS and high is FLOATS else None

    store.__doc__ = doc
    return intrinsic(store)


store_two_bfloat16 = _store_two_bfloat16("Twice sixteen values rounded to bfloat16, one after the other.")
stream_two_bfloat16 = _store_two_bfloat16("The same around the cache; 32-byte aligned.", True, 32)
trickle_two_bfloat16 = _store_two_bfloat16("The same; aligned to 16 bytes, 16 bytes at a time.", True, 16)


@intrinsic
def any_tiny_bfloat16(typingctx: Any, address: Any) -> Any:
    """Whether any of a wide vector of bfloat16 is so small that products with slopes are not rounded but made zero.

    Numbers below 2^-100 other than zero, where an instruction rounds (see ``target.rounds_bfloat16``); else none.
    """

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        if not target.rounds_bfloat16(context):
            return _INT1(0)
        lanes = ir.VectorType(_INT16, WIDE * LANES)

        def each(value: int) -> ir.Constant:
            return ir.Constant(lanes, [_INT16(value)] * lanes.count)

        magnitudes = builder.and_(builder.load(_pointer(builder, args[0], lanes), align=1), each(0x7FFF))
        # Zeros become the largest.
        first, second = pieces(builder, builder.sub(magnitudes, each(1)), 2 * LANES)
        least = call_llvm(builder, f"llvm.umin.v{2 * LANES}i16", first.type, first, second)
        limit = ir.Constant(least.type, [_INT16(((127 - 100) << 7) - 1)] * least.type.count)
        return _unlikely(builder, builder.icmp_unsigned("<", least, limit))

    return types.boolean(types.int64), emit


def _unlikely(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Whether any bit of a mask is set, which LLVM is not to expect."""
    whole = ir.IntType(mask.type.count)
    found = builder.icmp_unsigned("!=", builder.bitcast(mask, whole), whole(0))
    return call_llvm(builder, "llvm.expect.i1", _INT1, found, _INT1(0))


def _any_above(word: ir.IntType, doc: str) -> Any:
    lanes = WIDE * LANES
    register = LANES * 32 // word.width

    def above(typingctx: Any, address: Any, bound: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            def each(vector: ir.VectorType, value: int) -> ir.Constant:
                return ir.Constant(vector, [word(value)] * vector.count)

            raw = builder.load(_pointer(builder, args[0], ir.VectorType(word, lanes)), align=1)
            magnitudes = builder.and_(raw, each(raw.type, (1 << (word.width - 1)) - 1))
            # Unlike comparisons, maxima leave the pipes that multiply alone (Zen 4).
            largest, *others = pieces(builder, magnitudes, register)
            for other in others:
                largest = call_llvm(builder, f"llvm.umax.v{register}i{word.width}", largest.type, largest, other)
            limit = builder.insert_element(
                ir.Constant(largest.type, ir.Undefined), builder.trunc(args[1], word), _INT32(0)
            )
            zeros = ir.Constant(ir.VectorType(_INT32, register), None)
            beyond = builder.icmp_unsigned(">", largest, builder.shuffle_vector(limit, limit, zeros))
            return _unlikely(builder, beyond)

        return types.boolean(types.int64, types.int64), emit

    above.__doc__ = doc
    return intrinsic(above)


any_above_32 = _any_above(
    _INT32,
    """Whether any of a wide vector of float32 is above ``bound`` (a bit pattern) in magnitude, or NaN.

    Marked as unlikely, so that what is done then does not take registers from what is done otherwise.
    """,
)
any_above_16 = _any_above(_INT16, "The same for float16 or bfloat16.")


# --- chosen lanes ----------------------------------------------------------------------------------------------------


@intrinsic
def count_lanes(typingctx: Any, mask: Any) -> Any:
    """In how many lanes a mask is set."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        whole = ir.IntType(LANES)
        return builder.zext(builder.ctpop(builder.bitcast(args[0], whole)), _INT64)

    return (types.int64(MASK), emit) if mask is MASK else None


@intrinsic
def store_chosen(typingctx: Any, address: Any, value: Any, mask: Any) -> Any:
    """Write the lanes where the mask is set side by side, and perhaps zeros after them, sixteen float32 in all."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        pointer = _pointer(builder, args[0], FLOATS.llvm)
        if target.flavour(context) == "avx512":
            # In a register first: to memory at once the instruction takes over 100 cycles on Zen 4.
            name = f"llvm.x86.avx512.mask.compress.v{LANES}f32"
            packed = call_llvm(builder, name, FLOATS.llvm, args[1], _floats(0.0), args[2])
            builder.store(apart(builder, packed), pointer, align=1)
        else:
            call_llvm(builder, f"llvm.masked.compressstore.v{LANES}f32", ir.VoidType(), args[1], pointer, args[2])
        return context.get_dummy_value()

    return (types.void(types.int64, FLOATS, MASK), emit) if value is FLOATS and mask is MASK else None


@intrinsic
def load_chosen(typingctx: Any, address: Any, mask: Any, otherwise: Any) -> Any:
    """The reverse: the next float32 from the address for each lane where the mask is set, else ``otherwise``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        pointer = _pointer(builder, args[0], FLOATS.llvm)
        if target.flavour(context) == "avx512":
            packed = apart(builder, builder.load(pointer, align=1))
            name = f"llvm.x86.avx512.mask.expand.v{LANES}f32"
            return call_llvm(builder, name, FLOATS.llvm, packed, args[2], args[1])
        name = f"llvm.masked.expandload.v{LANES}f32"
        return call_llvm(builder, name, FLOATS.llvm, pointer, args[1], args[2])

    return (FLOATS(types.int64, MASK, FLOATS), emit) if mask is MASK and otherwise is FLOATS else None


# --- the first few lanes ---------------------------------------------------------------------------------------------


def _first_lanes(context: Any, builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    vector = ir.VectorType(_INT32, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(count, _INT32), _INT32(0))
    limit = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), _ints(0))
    return builder.icmp_signed("<", _ints(*range(LANES)), limit)


@intrinsic
def first_lanes(typingctx: Any, count: Any) -> Any:
    """The mask of the first ``count`` lanes."""
    if not isinstance(count, types.Integer):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _first_lanes(context, builder, args[0])

    return MASK(types.int64), emit


@intrinsic
def load_float32_part(typingctx: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of sixteen float32, the other lanes zero."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        pointer = _pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(context, builder, args[1])
        return call_llvm(
            builder, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.llvm, pointer, _INT32(1), mask, _floats(0.0)
        )

    return FLOATS(types.int64, types.int64), emit


@intrinsic
def store_float32_part(typingctx: Any, address: Any, value: Any, count: Any) -> Any:
    """Write the first ``count`` lanes."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        pointer = _pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(context, builder, args[2])
        call_llvm(builder, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), args[1], pointer, _INT32(1), mask)
        return context.get_dummy_value()

    return types.void(types.int64, FLOATS, types.int64), emit


def _buffer(builder: ir.IRBuilder) -> ir.Value:
    """Room for sixteen 16-bit elements; few targets have masked loads of those."""
    return cgutils.alloca_once_value(builder, ir.Constant(_SHORTS, None))


def _part_bytes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    return builder.shl(count, _INT64(1))


def _first_sixteen_bit(builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
    """A pointer to sixteen 16-bit elements: the first ``count`` those at the address, the others zero."""
    buffer = _buffer(builder)
    builder.store(ir.Constant(_SHORTS, None), buffer)
    cgutils.raw_memcpy(builder, buffer, _pointer(builder, address, _INT8), _part_bytes(builder, count), 1)
    return buffer


def _load_part(widen: Convert, doc: str) -> Any:
    def load(typingctx: Any, address: Any, count: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            return widen(context, builder, builder.load(_first_sixteen_bit(builder, args[0], args[1])))

        return FLOATS(types.int64, types.int64), emit

    load.__doc__ = doc
    return intrinsic(load)


def _store_part(narrow: Convert, doc: str) -> Any:
    def store(typingctx: Any, address: Any, value: Any, count: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            buffer = _buffer(builder)
            builder.store(narrow(context, builder, args[1]), buffer)
            destination = _pointer(builder, args[0], _INT8)
            cgutils.raw_memcpy(builder, destination, buffer, _part_bytes(builder, args[2]), 1)
            return context.get_dummy_value()

        return types.void(types.int64, FLOATS, types.int64), emit

    store.__doc__ = doc
    return intrinsic(store)


load_float16_part = _load_part(_widen_float16, "The first ``count`` of sixteen float16, widened, the other lanes zero.")
load_bfloat16_part = _load_part(_widen_bfloat16, "The first ``count`` of sixteen bfloat16, the other lanes zero.")
store_float16_part = _store_part(_narrow_float16, "Write the first ``count`` lanes, rounded to float16.")
store_bfloat16_part = _store_part(_narrow_bfloat16, "Write the first ``count`` lanes, rounded to bfloat16.")


# --- the rest --------------------------------------------------------------------------------------------------------


@intrinsic
def again(typingctx: Any, address: Any) -> Any:
    """The address, but unknown to the compiler: it loads from there again rather than keep values in registers."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _again(builder, args[0])

    return types.int64(types.int64), emit


@intrinsic
def fetch_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, which other threads add to as well; what it was before."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.atomic_rmw("add", _pointer(builder, args[0], _INT64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def look(typingctx: Any, address: Any) -> Any:
    """The int64 at an address that other threads write to (``show``, ``fetch_add``): in one order for all threads."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.load_atomic(_pointer(builder, args[0], _INT64), "seq_cst", 8)

    return types.int64(types.int64), emit


@intrinsic
def show(typingctx: Any, address: Any, value: Any) -> Any:
    """Write an int64 for other threads' ``look``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        builder.store_atomic(args[1], _pointer(builder, args[0], _INT64), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _pause(context: Any, builder: ir.IRBuilder) -> None:
    triple = context.codegen().magic_tuple()[0]
    if triple.startswith("x86_64"):
        call_llvm(builder, "llvm.x86.sse2.pause", ir.VoidType())
    elif triple.startswith(("aarch64", "arm64")):
        call_llvm(builder, "llvm.aarch64.hint", ir.VoidType(), _INT32(1))


@intrinsic
def pause(typingctx: Any) -> Any:
    """What a thread does between two looks, for the sake of the processor's other work."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        _pause(context, builder)
        return context.get_dummy_value()

    return types.void(), emit


def invocation(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    """Call the kernel whose address comes first with the other arguments."""
    # Numba's calling convention: places for the result and for an exception come first, a status is returned.
    place = _INT8.as_pointer()
    function = ir.FunctionType(_INT32, [place.as_pointer()] * 2 + [_INT64] * (len(args) - 1))
    places = [cgutils.alloca_once(builder, place) for _ in range(2)]
    builder.call(_pointer(builder, args[0], function), [*places, *args[1:]])
    return context.get_dummy_value()


@intrinsic
def invoke(typingctx: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Call a kernel of eight parameters by its address (see ``compiler.address_of``)."""
    return types.void(*[types.int64] * 9), invocation


@intrinsic
def give_way(typingctx: Any, function: Any) -> Any:
    """Call a C function of no parameters, as the system's ``sched_yield``, by its address; ``pause`` for address 0."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        with builder.if_else(builder.icmp_unsigned("!=", args[0], _INT64(0))) as (known, unknown):
            with known:
                builder.call(_pointer(builder, args[0], ir.FunctionType(_INT32, [])), [])
            with unknown:
                _pause(context, builder)
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def finish_streams(typingctx: Any) -> Any:
    """Make streamed stores visible to other threads, as ordinary stores are without asking."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def scratch(typingctx: Any, size: Any) -> Any:
    """The address of this many bytes on the stack, 64-byte aligned; ``size`` is a constant."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        # Not alloca_once, which would fill it with zeros: 4 KiB of them cost LLVM seconds.
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(_INT8, size.literal_value))
        room.align = 64
        return builder.ptrtoint(room, _INT64)

    return types.int64(size), emit


def _transpose(element: ir.Type, doc: str) -> Any:
    row = ir.VectorType(element, LANES)

    def order(indices: list[int]) -> ir.Constant:
        return ir.Constant(INTS.llvm, [_INT32(index) for index in indices])

    def transpose(typingctx: Any, destination: Any, pitch: Any, source: Any, source_pitch: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            def pointer(start: ir.Value, step: ir.Value, i: int) -> ir.Value:
                return _pointer(builder, builder.add(start, builder.mul(step, _INT64(i))), row)

            rows = [builder.load(pointer(args[2], args[3], i), align=1) for i in range(LANES)]
            # The blocks off the diagonal change places: of 8 × 8 elements, then of 4 × 4, 2 × 2, 1 × 1.
            for size in (8, 4, 2, 1):
                upper = order([LANES + e - size if e & size else e for e in range(LANES)])
                lower = order([LANES + e if e & size else e + size for e in range(LANES)])
                for i in range(LANES):
                    if not i & size:
                        pair = rows[i], rows[i + size]
                        rows[i], rows[i + size] = (builder.shuffle_vector(*pair, mask) for mask in (upper, lower))
            for i in range(LANES):
                builder.store(rows[i], pointer(args[0], args[1], i), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    transpose.__doc__ = doc
    return intrinsic(transpose)


transpose_32 = _transpose(_INT32, "Sixteen rows of sixteen 32-bit elements into sixteen columns; pitches in bytes.")
transpose_16 = _transpose(_INT16, "The same for 16-bit elements.")


def _entries(builder: ir.IRBuilder, table: ir.Value, indices: ir.Value) -> ir.Value:
    """The float32 of a table for the sixteen unsigned 16-bit integers at a pointer.

    Loaded one by one, their indices four at a time: 3.9 ns for sixteen on Zen 4 (indices one by one 4.6, a gather 6.2).
    """
    entries, fours = _pointer(builder, table, _FLOAT), builder.bitcast(indices, _INT64.as_pointer())
    found: ir.Value = ir.Constant(FLOATS.llvm, ir.Undefined)
    for i in range(LANES):
        if i % 4 == 0:
            four = builder.load(builder.gep(fours, [_INT64(i // 4)]), align=1)
        index = builder.and_(builder.lshr(four, _INT64(16 * (i % 4))), _INT64(0xFFFF))
        found = builder.insert_element(found, builder.load(builder.gep(entries, [index])), _INT32(i))
    return found


@intrinsic
def load_entries(typingctx: Any, table: Any, address: Any) -> Any:
    """``table[i]`` for each of the sixteen unsigned 16-bit i at ``address``; ``table`` points to 65,536 float32."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _entries(builder, args[0], _pointer(builder, args[1], _INT16))

    return FLOATS(types.int64, types.int64), emit


def _load_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def load(typingctx: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            return builder.load(_pointer(builder, args[0], lane), align=1)

        return scalar(types.int64), emit

    load.__doc__ = doc
    return intrinsic(load)


def _store_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            builder.store(args[1], _pointer(builder, args[0], lane), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, scalar), emit

    store.__doc__ = doc
    return intrinsic(store)


load_one_float32 = _load_one(_FLOAT, types.float32, "A single float32.")
load_one_float64 = _load_one(ir.DoubleType(), types.float64, "A single float64.")
load_one_uint16 = _load_one(_INT16, types.uint16, "A single 16-bit pattern.")
load_one_uint32 = _load_one(_INT32, types.uint32, "A single 32-bit pattern.")
load_one_int64 = _load_one(_INT64, types.int64, "A single int64.")
store_one_float32 = _store_one(_FLOAT, types.float32, "A single float32.")
store_one_float64 = _store_one(ir.DoubleType(), types.float64, "A single float64.")
store_one_uint16 = _store_one(_INT16, types.uint16, "A single 16-bit pattern.")
store_one_uint32 = _store_one(_INT32, types.uint32, "A single 32-bit pattern.")


@intrinsic
def stream_float16_apart(typingctx: Any, address: Any, value: Any) -> Any:
    """As ``stream_float16``, where LLVM would merge the rounding with the store, and that instruction cannot stream."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        raw = _narrow_float16(context, builder, args[1])
        if target.flavour(context) in ("avx512", "avx2"):
            raw = apart(builder, raw)
        _write(builder, raw, args[0], 32, streamed=True)
        return context.get_dummy_value()

    return types.void(types.int64, FLOATS), emit
