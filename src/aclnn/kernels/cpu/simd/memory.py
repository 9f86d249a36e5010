"""Loads and stores for float32, float16 and bfloat16: of sixteen lanes, of the first few, of four times as many.

``load_<type>(address)`` widens to float32, which is exact; ``store_<type>(address, value)`` rounds once, ties to even,
and keeps NaN a (quiet) NaN. ``stream_`` and ``trickle_`` are non-temporal stores, which bypass the cache: of a whole
vector, aligned to its 64 bytes of float32 or 32 of 16-bit types, and in pieces of 16 aligned bytes. The ``_part`` forms
access only the first ``count`` elements, 0 ≤ count ≤ 16. ``copy_in`` and ``copy_out`` pass a remainder of up to 64
bytes through memory that may be read whole: AVX-512 moves any number of bytes by an instruction, while elsewhere a copy
is a call, which would clobber registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.jit import intrinsic, register_jitable
from aclnn.kernels.cpu.simd.convert import (
    SHORTS,
    Convert,
    floats,
    ints,
    narrow_bfloat16,
    narrow_float16,
    narrow_two_bfloat16,
    round_bfloat16,
    round_pairs,
    widen_bfloat16,
    widen_float16,
)
from aclnn.kernels.cpu.simd.doubles import load_doubles, store_doubles
from aclnn.kernels.cpu.simd.vector import (
    FLOATS,
    INTS,
    LANES,
    MASK,
    WIDE,
    WIDE_FLOATS,
    above,
    apart,
    broadcast,
    call_llvm,
    constant_splat,
    constants,
    joined,
    pieces,
    shuffled,
    unlikely,
)
from aclnn.kernels.cpu.structs import ADDRESS, moved, pointer, reloaded

_INT1, _INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_FLOAT = ir.FloatType()


def _load(widen: Convert | None, doc: str) -> Any:
    memory = FLOATS.llvm if widen is None else SHORTS

    def load(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        raw = builder.load(pointer(builder, address, memory), align=1)
        return raw if widen is None else widen(context, builder, raw)

    return intrinsic(FLOATS, ADDRESS, doc=doc)(load)


def write(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, alignment: int, streamed: bool) -> None:
    """Store a value at an address, non-temporally if streamed."""
    written = builder.store(value, pointer(builder, address, value.type), align=alignment)
    if streamed:
        written.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


class Stores(NamedTuple):
    """Stores through the cache, non-temporal stores of whole vectors, and non-temporal stores of 16 bytes."""

    store: Any
    stream: Any
    trickle: Any


def _stores(narrow: Any, doc: str, vectors: int = 1) -> Stores:
    """Make the stores of a vector, or of two consecutive ones."""
    merging: dict[Any, tuple[str, ...]] = {narrow_float16: ("avx512", "avx2"), round_bfloat16: ("avx512",)}

    def way(alignment: int, streamed: bool, how: str) -> Any:
        def store(context: Any, builder: ir.IRBuilder, address: ir.Value, *values: ir.Value) -> None:
            (raw,) = values if narrow is None else (narrow(context, builder, *values),)
            if streamed and target.flavour(context) in merging.get(narrow, ()):
                # LLVM would merge the rounding with the store, into an instruction without a non-temporal form.
                raw = apart(builder, raw)
            write(builder, raw, address, alignment, streamed)

        return intrinsic(types.void, ADDRESS, *[FLOATS] * vectors, doc=f"Write {doc}{how}.")(store)

    whole = 64 if narrow is None else 32
    return Stores(
        way(1, False, ""),
        way(whole, True, f" around the cache; {whole}-byte aligned"),
        way(16, True, " around the cache, 16 bytes at a time; aligned to these"),
    )


load_float32 = _load(None, "Sixteen float32.")
load_float16 = _load(widen_float16, "Sixteen float16, widened.")
load_bfloat16 = _load(widen_bfloat16, "Sixteen bfloat16, widened.")
store_float32, stream_float32, trickle_float32 = _stores(None, "sixteen float32")
store_float16, stream_float16, trickle_float16 = _stores(narrow_float16, "sixteen values rounded to float16")
store_bfloat16, stream_bfloat16, trickle_bfloat16 = _stores(round_bfloat16, "sixteen values rounded to bfloat16")


def _transpose(element: ir.Type, doc: str) -> Any:
    row = ir.VectorType(element, LANES)

    def transpose(
        builder: ir.IRBuilder, destination: ir.Value, pitch: ir.Value, source: ir.Value, source_pitch: ir.Value
    ) -> None:
        def row_at(start: ir.Value, step: ir.Value, i: int) -> ir.Value:
            return pointer(builder, moved(builder, start, builder.mul(step, _INT64(i))), row)

        rows = [builder.load(row_at(source, source_pitch, i), align=1) for i in range(LANES)]
        # Swap the off-diagonal blocks of 8 × 8 elements, then of 4 × 4, 2 × 2 and 1 × 1.
        for size in (8, 4, 2, 1):
            upper = [LANES + e - size if e & size else e for e in range(LANES)]
            lower = [LANES + e if e & size else e + size for e in range(LANES)]
            for i in range(LANES):
                if not i & size:
                    pair = rows[i], rows[i + size]
                    rows[i], rows[i + size] = (shuffled(builder, lanes, *pair) for lanes in (upper, lower))
        for i in range(LANES):
            builder.store(rows[i], row_at(destination, pitch, i), align=1)

    return intrinsic(types.void, ADDRESS, types.int64, ADDRESS, types.int64, doc=doc)(transpose)


transpose_32 = _transpose(_INT32, "Sixteen rows of sixteen 32-bit elements into sixteen columns; pitches in bytes.")
transpose_16 = _transpose(_INT16, "Sixteen rows of sixteen 16-bit elements into columns; pitches in bytes.")


def _gather_pairs(element: ir.Type) -> Any:
    pairs = ir.VectorType(element, 2 * LANES)

    def gather(builder: ir.IRBuilder, destination: ir.Value, source: ir.Value) -> None:
        read = builder.load(pointer(builder, source, pairs), align=1)
        write(builder, shuffled(builder, range(0, 2 * LANES, 2), read), destination, 1, False)

    doc = f"Copy sixteen {element.width}-bit elements, every other one read; one more may be."
    return intrinsic(types.void, ADDRESS, ADDRESS, doc=doc)(gather)


gather_pairs_32, gather_pairs_16 = _gather_pairs(_INT32), _gather_pairs(_INT16)


@intrinsic(types.void, ADDRESS, ADDRESS)
def scatter_pairs_16(builder: ir.IRBuilder, destination: ir.Value, source: ir.Value) -> None:
    """Copy sixteen 16-bit elements to every other element."""
    pairs = ir.VectorType(_INT16, 2 * LANES)
    read = builder.load(pointer(builder, source, SHORTS), align=1)
    spread = shuffled(builder, (i // 2 for i in range(2 * LANES)), read)
    mask, name = constants(_INT1, [1, 0] * LANES), f"llvm.masked.store.v{2 * LANES}i16.p0"
    call_llvm(builder, name, ir.VoidType(), spread, pointer(builder, destination, pairs), _INT32(1), mask)


def _entries(context: Any, kind: ir.VectorType, builder: ir.IRBuilder, table: ir.Value, address: ir.Value) -> ir.Value:
    """Return ``table[i]`` for each of the sixteen unsigned 16-bit i at ``address``.

    Uses a gather instruction, or individual loads, with indices extracted four at a time (docs/tuning.md).
    """
    if target.gathers_fast(context):
        indices = builder.zext(builder.load(pointer(builder, address, SHORTS), align=1), INTS.llvm)
        every = constant_splat(_INT1, 1)
        size = _INT32(4 if kind == FLOATS.llvm else 2)  # of two 2-byte entries, the first is used
        start, nothing = pointer(builder, table, _INT8), ir.Constant(INTS.llvm, ir.Undefined)
        name = "llvm.x86.avx512.mask.gather.dpi.512"
        gathered = call_llvm(builder, name, INTS.llvm, nothing, start, indices, every, size)
        return builder.bitcast(gathered, kind) if kind == FLOATS.llvm else builder.trunc(gathered, kind)
    entries, fours = pointer(builder, table, kind.element), pointer(builder, address, _INT64)
    found: ir.Value = ir.Constant(kind, ir.Undefined)
    for i in range(LANES):
        if i % 4 == 0:
            four = builder.load(builder.gep(fours, [_INT64(i // 4)]), align=1)
        index = builder.and_(builder.lshr(four, _INT64(16 * (i % 4))), _INT64(0xFFFF))
        found = builder.insert_element(found, builder.load(builder.gep(entries, [index])), _INT32(i))
    return found


@intrinsic(FLOATS, ADDRESS, ADDRESS)
def load_entries(context: Any, builder: ir.IRBuilder, table: ir.Value, address: ir.Value) -> ir.Value:
    """Load entries of a table of 65,536 float32 for the sixteen 16-bit numbers at an address."""
    return _entries(context, FLOATS.llvm, builder, table, address)


def _move_entries(streamed: bool, how: str) -> Any:
    def move(context: Any, builder: ir.IRBuilder, table: ir.Value, address: ir.Value, out: ir.Value) -> None:
        entries = _entries(context, SHORTS, builder, table, address)
        write(builder, entries, out, 32 if streamed else 1, streamed)

    doc = f"Write the entries of sixteen 16-bit numbers in a table of 65,537 others{how}; the last one is not used."
    return intrinsic(types.void, ADDRESS, ADDRESS, ADDRESS, doc=doc)(move)


store_entries, stream_entries = _move_entries(False, ""), _move_entries(True, " around the cache; 32-byte aligned")


@intrinsic(types.int64, MASK)
def count_lanes(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Count the lanes in which a mask is set."""
    whole = ir.IntType(LANES)
    return builder.zext(builder.ctpop(builder.bitcast(mask, whole)), _INT64)


def _chosen(mask: int) -> ir.Constant:
    places = [i for i in range(8) if mask >> i & 1]
    return constants(_INT8, places + [0] * (8 - len(places)))


_CHOSEN = ir.Constant(ir.ArrayType(ir.VectorType(_INT8, 8), 256), [_chosen(mask) for mask in range(256)])
"""Indices of the set bits of each byte."""


@intrinsic(types.void, ADDRESS, types.int64, MASK)
def store_places(context: Any, builder: ir.IRBuilder, address: ir.Value, first: ir.Value, mask: ir.Value) -> None:
    """Store ``first`` + i as int32, compacted, for each lane i with the mask set; up to 64 bytes may be written."""
    first = builder.trunc(first, _INT32)
    if target.flavour(context) == "avx512":
        places = builder.add(broadcast(builder, first), ints(*range(LANES)))
        # Compress in a register first: the form with a memory destination is slow (docs/tuning.md).
        name = f"llvm.x86.avx512.mask.compress.v{LANES}i32"
        packed = call_llvm(builder, name, places.type, places, ints(0), mask)
        builder.store(apart(builder, packed), pointer(builder, address, places.type), align=1)
        return
    table = cgutils.global_constant(builder, "chosen", _CHOSEN)
    for lanes, half in enumerate(pieces(builder, mask, 8)):
        chosen = builder.bitcast(half, _INT8)
        row = builder.load(builder.gep(table, [_INT32(0), builder.zext(chosen, _INT32)]), align=8)
        start = broadcast(builder, builder.add(first, _INT32(8 * lanes)), 8)
        places = builder.add(start, builder.zext(row, start.type))
        builder.store(places, pointer(builder, address, places.type), align=1)
        count = builder.zext(builder.ctpop(chosen), _INT64)
        address = moved(builder, address, builder.shl(count, _INT64(2)))


def _first_lanes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    return builder.icmp_signed("<", ints(*range(LANES)), broadcast(builder, builder.trunc(count, _INT32)))


first_lanes = intrinsic(MASK, types.int64, doc="The mask of the first ``count`` lanes.")(_first_lanes)


@intrinsic(FLOATS, ADDRESS, types.int64)
def load_float32_part(builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
    """Load the first ``count`` of sixteen float32; the other lanes are zero."""
    place = pointer(builder, address, FLOATS.llvm)
    mask = _first_lanes(builder, count)
    return call_llvm(builder, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.llvm, place, _INT32(1), mask, floats(0.0))


@intrinsic(types.void, ADDRESS, FLOATS, types.int64)
def store_float32_part(builder: ir.IRBuilder, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Store the first ``count`` lanes."""
    place = pointer(builder, address, FLOATS.llvm)
    mask = _first_lanes(builder, count)
    call_llvm(builder, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), value, place, _INT32(1), mask)


def _copy(builder: ir.IRBuilder, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
    cgutils.raw_memcpy(builder, pointer(builder, to, _INT8), pointer(builder, source, _INT8), size, 1)


copy = intrinsic(
    types.void, ADDRESS, ADDRESS, types.int64, doc="Copy bytes to an address from another; they do not overlap."
)(_copy)


def _parts(widen: Convert, narrow: Convert, name: str) -> tuple[Any, Any]:
    """Make functions that load and store the first few of sixteen 16-bit elements; few targets have masked loads."""

    def load(context: Any, builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
        buffer = cgutils.alloca_once_value(builder, ir.Constant(SHORTS, None))
        builder.store(ir.Constant(SHORTS, None), buffer)
        _copy(builder, buffer, address, builder.shl(count, _INT64(1)))
        return widen(context, builder, builder.load(buffer))

    def store(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
        buffer = cgutils.alloca_once_value(builder, ir.Constant(SHORTS, None))
        builder.store(narrow(context, builder, value), buffer)
        _copy(builder, address, buffer, builder.shl(count, _INT64(1)))

    return (
        intrinsic(FLOATS, ADDRESS, types.int64, doc=f"The first ``count`` of {name}, widened; the others are zero.")(
            load
        ),
        intrinsic(types.void, ADDRESS, FLOATS, types.int64, doc=f"Write the first ``count`` lanes as {name}.")(store),
    )


load_float16_part, store_float16_part = _parts(widen_float16, narrow_float16, "sixteen float16")
load_bfloat16_part, store_bfloat16_part = _parts(widen_bfloat16, narrow_bfloat16, "sixteen bfloat16")


_BYTES, _SIXTEEN = ir.VectorType(_INT8, 64), ir.VectorType(_INT8, 16)


def _first_bytes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    every = builder.sub(builder.shl(_INT64(1), count), _INT64(1))
    return builder.bitcast(every, ir.VectorType(_INT1, 64))


@intrinsic(types.void, ADDRESS, types.int64, ADDRESS)
def copy_in(context: Any, builder: ir.IRBuilder, source: ir.Value, size: ir.Value, end: ir.Value) -> None:
    """Copy the first ``size`` < 64 bytes from ``source`` to ``end``, and zero the rest of the 64."""
    room, zeros = pointer(builder, end, _BYTES), ir.Constant(_BYTES, None)
    if target.flavour(context) == "avx512":
        place, mask = pointer(builder, source, _BYTES), _first_bytes(builder, size)
        zeros = call_llvm(builder, "llvm.masked.load.v64i8.p0", _BYTES, place, _INT32(1), mask, zeros)
    builder.store(zeros, room, align=1)
    if target.flavour(context) != "avx512":
        _copy(builder, end, source, size)


@intrinsic(types.void, ADDRESS, types.int64, ADDRESS)
def copy_out(context: Any, builder: ir.IRBuilder, end: ir.Value, size: ir.Value, destination: ir.Value) -> None:
    """Copy the first ``size`` < 64 bytes from ``end`` to ``destination``."""
    if target.flavour(context) == "avx512":
        value = builder.load(pointer(builder, end, _BYTES), align=1)
        place, mask = pointer(builder, destination, _BYTES), _first_bytes(builder, size)
        call_llvm(builder, "llvm.masked.store.v64i8.p0", ir.VoidType(), value, place, _INT32(1), mask)
    else:
        _copy(builder, destination, end, size)


@intrinsic(types.void, ADDRESS, ADDRESS)
def _stream_sixteen(builder: ir.IRBuilder, source: ir.Value, destination: ir.Value) -> None:
    value = builder.load(pointer(builder, source, _SIXTEEN), align=1)
    write(builder, value, destination, 16, streamed=True)


@register_jitable
def stream_out(end: int, size: int, destination: int) -> None:
    """Copy out with 16-byte non-temporal stores, like the rest of the line before; the last bytes are ordinary stores.

    A line written both ways reaches memory in parts.
    """
    whole = size & -16
    for at in range(0, whole, 16):
        _stream_sixteen(end + at, destination + at)
    if size > whole:
        copy_out(end + whole, size - whole, destination + whole)


def _wide(load: Any, narrow: Any, name: str) -> tuple[Any, Any, Any]:
    """Make functions that load, store and stream (64-byte aligned) a wide vector; ``narrow`` returns the registers."""

    def way(streamed: bool) -> Any:
        def store(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
            for register in narrow(context, builder, value):
                size = register.type.count * register.type.element.width // 8
                # As floats of 16 bits they would not be stored non-temporally (LLVM 22).
                raw = apart(builder, register) if streamed and target.flavour(context) == "avx512" else register
                write(builder, raw, address, size if streamed else 1, streamed)
                address = moved(builder, address, _INT64(size))

        return intrinsic(types.void, ADDRESS, WIDE_FLOATS, doc=f"Write a wide vector rounded to {name}.")(store)

    return intrinsic(WIDE_FLOATS, ADDRESS, doc=f"A wide vector of {name}, widened.")(load), way(False), way(True)


_PAIRS = ir.VectorType(_INT32, WIDE * LANES // 2)
"""A wide vector of bfloat16 as 32-bit lanes. The lower elements form the first half of a wide float32 vector, the upper
ones the second: a shift and a mask, whereas memory order would take a widening of each register."""


def _each_pair(value: int) -> ir.Constant:
    return constant_splat(_INT32, value, _PAIRS.count)


def _wide_float16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    # Loaded again although already in registers: extracting parts of registers costs more.
    base = reloaded(builder, address)
    places = [pointer(builder, moved(builder, base, _INT64(2 * LANES * i)), SHORTS) for i in range(WIDE)]
    return joined(builder, [widen_float16(context, builder, builder.load(place, align=1)) for place in places])


def _wide_bfloat16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    pairs = builder.load(pointer(builder, address, _PAIRS), align=1)
    lower, upper = builder.shl(pairs, _each_pair(16)), builder.and_(pairs, _each_pair(-65536))
    return builder.bitcast(joined(builder, [lower, upper]), WIDE_FLOATS.llvm)


def _narrow_wide_float16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # Half a register each: joining two takes as long as another store.
    return [narrow_float16(context, builder, piece) for piece in pieces(builder, value, LANES)]


def _narrow_wide_bfloat16(context: Any, builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    # Like narrow_bfloat16; a NaN has no digits below bfloat16's that could carry into the exponent.
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


@intrinsic(types.boolean, ADDRESS)
def any_tiny_bfloat16(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Return True if a wide vector of bfloat16 has elements whose tiny products would be flushed instead of rounded.

    These are nonzero numbers below 2^-100 if an instruction rounds (see ``target.rounds_bfloat16``), none otherwise.
    """
    if not target.rounds_bfloat16(context):
        return _INT1(0)
    lanes = ir.VectorType(_INT16, WIDE * LANES)

    sign_off, one = (constant_splat(_INT16, value, lanes.count) for value in (0x7FFF, 1))
    magnitudes = builder.and_(builder.load(pointer(builder, address, lanes), align=1), sign_off)
    # Zeros wrap around to the largest number.
    first, second = pieces(builder, builder.sub(magnitudes, one), 2 * LANES)
    least = call_llvm(builder, f"llvm.umin.v{2 * LANES}i16", first.type, first, second)
    limit = constant_splat(_INT16, ((127 - 100) << 7) - 1, 2 * LANES)
    return unlikely(builder, builder.icmp_unsigned("<", least, limit))


@intrinsic(types.boolean, ADDRESS, types.int64)
def any_above_16(builder: ir.IRBuilder, address: ir.Value, bound: ir.Value) -> ir.Value:
    """Return True if an element of a wide vector of float16 or bfloat16 exceeds a bound in magnitude, or is NaN.

    The bound is a bit pattern; see ``vector.any_above``.
    """
    lanes = WIDE * LANES
    raw = builder.load(pointer(builder, address, ir.VectorType(_INT16, lanes)), align=1)
    magnitudes = builder.and_(raw, constant_splat(_INT16, 0x7FFF, lanes))
    return above(builder, magnitudes, builder.trunc(bound, _INT16), 2 * LANES)


def _in_two(write: Any) -> Any:
    @register_jitable
    def both(address: int, low: Any, high: Any) -> None:
        write(address, low)
        write(address + 32, high)

    return both


class Format(NamedTuple):
    """Functions that read and write elements of a data type as float32 lanes (float64 as float64, never streamed)."""

    size: int
    load: Any
    store: Any
    stream: Any
    trickle: Any = None
    load_part: Any = None
    store_part: Any = None
    lines: Stores | None = None
    """Stores of 64 bytes, from one vector or two."""
    wide: tuple[Any, Any, Any] | None = None
    """Load, store and stream a wide vector of 16-bit elements; for bfloat16, even elements come first, and NaNs must
    come from bfloat16."""


FORMATS = {
    DataType.FLOAT: Format(
        4, load_float32, store_float32, stream_float32, trickle_float32, load_float32_part, store_float32_part,
        Stores(store_float32, stream_float32, trickle_float32),
    ),
    DataType.FLOAT16: Format(
        2, load_float16, store_float16, stream_float16, trickle_float16, load_float16_part, store_float16_part,
        Stores(*map(_in_two, (store_float16, stream_float16, trickle_float16))),
        _wide(_wide_float16, _narrow_wide_float16, "float16"),
    ),
    DataType.BF16: Format(
        2, load_bfloat16, store_bfloat16, stream_bfloat16, trickle_bfloat16, load_bfloat16_part, store_bfloat16_part,
        _stores(narrow_two_bfloat16, "twice sixteen values rounded to bfloat16", vectors=2),
        _wide(_wide_bfloat16, _narrow_wide_bfloat16, "bfloat16"),
    ),
    DataType.DOUBLE: Format(8, load_doubles, store_doubles, store_doubles),
}  # fmt: skip
