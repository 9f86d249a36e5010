"""Loads and stores of sixteen lanes at raw addresses, for float32, float16 and bfloat16.

``load_<type>(address)`` widens to float32, which is exact; ``store_<type>(address, value)`` rounds once, ties to even,
and keeps NaN a (quiet) NaN. The ``_part`` forms touch only the first ``count`` elements, 0 ≤ count ≤ 16; lanes beyond
them read as zero. The ``stream_`` forms go around the cache and need an address aligned to the sixteen elements: 64
bytes for float32, 32 for the others.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.conversions import (
    SHORTS,
    Convert,
    floats,
    ints,
    narrow_bfloat16,
    narrow_float16,
    narrow_two_bfloat16,
    widen_bfloat16,
    widen_float16,
)
from aclnn.kernels.cpu.vector import FLOATS, INTS, LANES, MASK, apart, call_llvm

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()


def pointer(builder: ir.IRBuilder, address: ir.Value, pointee: ir.Type) -> ir.Value:
    """An address, an integer, as a pointer to what is there."""
    return builder.inttoptr(address, pointee.as_pointer())


def _load(widen: Convert | None, doc: str) -> Any:
    memory = FLOATS.llvm if widen is None else SHORTS

    def load(typingctx: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            raw = builder.load(pointer(builder, args[0], memory), align=1)
            return raw if widen is None else widen(context, builder, raw)

        return (FLOATS(types.int64), emit) if isinstance(address, types.Integer) else None

    load.__doc__ = doc
    return intrinsic(load)


def write(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, alignment: int, streamed: bool) -> None:
    """Store a value at an address, around the cache if streamed."""
    written = builder.store(value, pointer(builder, address, value.type), align=alignment)
    if streamed:
        written.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


def _store(narrow: Convert | None, doc: str, streamed: bool = False, alignment: int = 1) -> Any:

    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            raw = args[1] if narrow is None else narrow(context, builder, args[1])
            if streamed and narrow is narrow_bfloat16 and target.flavour(context) == "avx512":
                # LLVM merges the rounding with the store, and that instruction cannot stream.
                raw = apart(builder, raw)
            write(builder, raw, args[0], alignment, streamed)
            return context.get_dummy_value()

        return (types.void(types.int64, FLOATS), emit) if value is FLOATS else None

    store.__doc__ = doc
    return intrinsic(store)


load_float32 = _load(None, "Sixteen float32.")
load_float16 = _load(widen_float16, "Sixteen float16, widened.")
load_bfloat16 = _load(widen_bfloat16, "Sixteen bfloat16, widened.")
store_float32 = _store(None, "Sixteen float32.")
store_float16 = _store(narrow_float16, "Sixteen values rounded to float16.")
store_bfloat16 = _store(narrow_bfloat16, "Sixteen values rounded to bfloat16.")
stream_float32 = _store(None, "Sixteen float32 to a 64-byte aligned address, around the cache.", True, 64)
stream_float16 = _store(narrow_float16, "The same for float16; 32-byte aligned.", True, 32)
stream_bfloat16 = _store(narrow_bfloat16, "The same for bfloat16; 32-byte aligned.", True, 32)
trickle_float32 = _store(None, "The same for an address aligned to 16 bytes, 16 bytes at a time.", True, 16)
trickle_float16 = _store(narrow_float16, "The same for float16.", True, 16)
trickle_bfloat16 = _store(narrow_bfloat16, "The same for bfloat16.", True, 16)


def reloaded(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The address, but unknown to the compiler: it loads from there again rather than keep values in registers."""
    return builder.asm(ir.FunctionType(_INT64, [_INT64]), "", "=r,0", [address], False)


def _store_two_bfloat16(doc: str, streamed: bool = False, alignment: int = 1) -> Any:
    def store(typingctx: Any, address: Any, low: Any, high: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            write(builder, narrow_two_bfloat16(context, builder, *args[1:]), args[0], alignment, streamed)
            return context.get_dummy_value()

        return (types.void(types.int64, FLOATS, FLOATS), emit) if low is FLOATS and high is FLOATS else None

    store.__doc__ = doc
    return intrinsic(store)


store_two_bfloat16 = _store_two_bfloat16("Twice sixteen values rounded to bfloat16, one after the other.")
stream_two_bfloat16 = _store_two_bfloat16("The same around the cache; 32-byte aligned.", True, 32)
trickle_two_bfloat16 = _store_two_bfloat16("The same; aligned to 16 bytes, 16 bytes at a time.", True, 16)


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
        place = pointer(builder, args[0], FLOATS.llvm)
        if target.flavour(context) == "avx512":
            # In a register first: to memory at once the instruction takes over 100 cycles on Zen 4.
            name = f"llvm.x86.avx512.mask.compress.v{LANES}f32"
            packed = call_llvm(builder, name, FLOATS.llvm, args[1], floats(0.0), args[2])
            builder.store(apart(builder, packed), place, align=1)
        else:
            call_llvm(builder, f"llvm.masked.compressstore.v{LANES}f32", ir.VoidType(), args[1], place, args[2])
        return context.get_dummy_value()

    return (types.void(types.int64, FLOATS, MASK), emit) if value is FLOATS and mask is MASK else None


@intrinsic
def load_chosen(typingctx: Any, address: Any, mask: Any, otherwise: Any) -> Any:
    """The reverse: the next float32 from the address for each lane where the mask is set, else ``otherwise``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        place = pointer(builder, args[0], FLOATS.llvm)
        if target.flavour(context) == "avx512":
            packed = apart(builder, builder.load(place, align=1))
            name = f"llvm.x86.avx512.mask.expand.v{LANES}f32"
            return call_llvm(builder, name, FLOATS.llvm, packed, args[2], args[1])
        name = f"llvm.masked.expandload.v{LANES}f32"
        return call_llvm(builder, name, FLOATS.llvm, place, args[1], args[2])

    return (FLOATS(types.int64, MASK, FLOATS), emit) if mask is MASK and otherwise is FLOATS else None


# --- the first few lanes ---------------------------------------------------------------------------------------------


def _first_lanes(context: Any, builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    vector = ir.VectorType(_INT32, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(count, _INT32), _INT32(0))
    limit = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), ints(0))
    return builder.icmp_signed("<", ints(*range(LANES)), limit)


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
        place = pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(context, builder, args[1])
        return call_llvm(builder, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.llvm, place, _INT32(1), mask, floats(0.0))

    return FLOATS(types.int64, types.int64), emit


@intrinsic
def store_float32_part(typingctx: Any, address: Any, value: Any, count: Any) -> Any:
    """Write the first ``count`` lanes."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        place = pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(context, builder, args[2])
        call_llvm(builder, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), args[1], place, _INT32(1), mask)
        return context.get_dummy_value()

    return types.void(types.int64, FLOATS, types.int64), emit


def _buffer(builder: ir.IRBuilder) -> ir.Value:
    """Room for sixteen 16-bit elements; few targets have masked loads of those."""
    return cgutils.alloca_once_value(builder, ir.Constant(SHORTS, None))


def _part_bytes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    return builder.shl(count, _INT64(1))


def _first_sixteen_bit(builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
    """A pointer to sixteen 16-bit elements: the first ``count`` those at the address, the others zero."""
    buffer = _buffer(builder)
    builder.store(ir.Constant(SHORTS, None), buffer)
    cgutils.raw_memcpy(builder, buffer, pointer(builder, address, _INT8), _part_bytes(builder, count), 1)
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
            destination = pointer(builder, args[0], _INT8)
            cgutils.raw_memcpy(builder, destination, buffer, _part_bytes(builder, args[2]), 1)
            return context.get_dummy_value()

        return types.void(types.int64, FLOATS, types.int64), emit

    store.__doc__ = doc
    return intrinsic(store)


load_float16_part = _load_part(widen_float16, "The first ``count`` of sixteen float16, widened, the other lanes zero.")
load_bfloat16_part = _load_part(widen_bfloat16, "The first ``count`` of sixteen bfloat16, the other lanes zero.")
store_float16_part = _store_part(narrow_float16, "Write the first ``count`` lanes, rounded to float16.")
store_bfloat16_part = _store_part(narrow_bfloat16, "Write the first ``count`` lanes, rounded to bfloat16.")


@intrinsic
def again(typingctx: Any, address: Any) -> Any:
    """The address, but unknown to the compiler: it loads from there again rather than keep values in registers."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return reloaded(builder, args[0])

    return types.int64(types.int64), emit


def invocation(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    """Call the kernel whose address comes first with the other arguments."""
    # Numba's calling convention: places for the result and for an exception come first, a status is returned.
    place = _INT8.as_pointer()
    function = ir.FunctionType(_INT32, [place.as_pointer()] * 2 + [_INT64] * (len(args) - 1))
    places = [cgutils.alloca_once(builder, place) for _ in range(2)]
    builder.call(pointer(builder, args[0], function), [*places, *args[1:]])
    return context.get_dummy_value()


@intrinsic
def invoke(typingctx: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Call a kernel of eight parameters by its address (see ``compiler.address_of``)."""
    return types.void(*[types.int64] * 9), invocation


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
            def row_at(start: ir.Value, step: ir.Value, i: int) -> ir.Value:
                return pointer(builder, builder.add(start, builder.mul(step, _INT64(i))), row)

            rows = [builder.load(row_at(args[2], args[3], i), align=1) for i in range(LANES)]
            # The blocks off the diagonal change places: of 8 × 8 elements, then of 4 × 4, 2 × 2, 1 × 1.
            for size in (8, 4, 2, 1):
                upper = order([LANES + e - size if e & size else e for e in range(LANES)])
                lower = order([LANES + e if e & size else e + size for e in range(LANES)])
                for i in range(LANES):
                    if not i & size:
                        pair = rows[i], rows[i + size]
                        rows[i], rows[i + size] = (builder.shuffle_vector(*pair, mask) for mask in (upper, lower))
            for i in range(LANES):
                builder.store(rows[i], row_at(args[0], args[1], i), align=1)
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
    entries, fours = pointer(builder, table, _FLOAT), builder.bitcast(indices, _INT64.as_pointer())
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
        return _entries(builder, args[0], pointer(builder, args[1], _INT16))

    return FLOATS(types.int64, types.int64), emit


def _load_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def load(typingctx: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            return builder.load(pointer(builder, args[0], lane), align=1)

        return scalar(types.int64), emit

    load.__doc__ = doc
    return intrinsic(load)


def _store_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            builder.store(args[1], pointer(builder, args[0], lane), align=1)
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
        raw = narrow_float16(context, builder, args[1])
        if target.flavour(context) in ("avx512", "avx2"):
            raw = apart(builder, raw)
        write(builder, raw, args[0], 32, streamed=True)
        return context.get_dummy_value()

    return types.void(types.int64, FLOATS), emit
