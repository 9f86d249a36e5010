"""Loads and stores of some of sixteen lanes: those that a mask chooses, or the first few.

The ``_part`` forms touch only the first ``count`` elements, 0 ≤ count ≤ 16; lanes beyond them read as zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.addresses import pointer
from aclnn.kernels.cpu.conversions import (
    SHORTS,
    Convert,
    floats,
    ints,
    narrow_bfloat16,
    narrow_float16,
    widen_bfloat16,
    widen_float16,
)
from aclnn.kernels.cpu.vector import FLOATS, LANES, MASK, apart, broadcast, call_llvm, pieces

_INT8, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 32, 64))


@intrinsic
def count_lanes(typingctx: Any, mask: Any) -> Any:
    """In how many lanes a mask is set."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        whole = ir.IntType(LANES)
        return builder.zext(builder.ctpop(builder.bitcast(args[0], whole)), _INT64)

    return (types.int64(MASK), emit) if mask is MASK else None


def _chosen(mask: int) -> ir.Constant:
    places = [i for i in range(8) if mask >> i & 1]
    return ir.Constant(ir.VectorType(_INT8, 8), [_INT8(i) for i in places + [0] * (8 - len(places))])


_CHOSEN = ir.Constant(ir.ArrayType(ir.VectorType(_INT8, 8), 256), [_chosen(mask) for mask in range(256)])
"""Which of eight bits are set, for each byte."""


@intrinsic
def store_places(typingctx: Any, address: Any, first: Any, mask: Any) -> Any:
    """Write ``first`` + i, int32, side by side for each lane i where the mask is set; 64 bytes may be touched."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        address, first, mask = args
        first = builder.trunc(first, _INT32)
        if target.flavour(context) == "avx512":
            places = builder.add(broadcast(builder, first), ints(*range(LANES)))
            # In a register first: to memory at once the instruction takes over 100 cycles on Zen 4.
            name = f"llvm.x86.avx512.mask.compress.v{LANES}i32"
            packed = call_llvm(builder, name, places.type, places, ints(0), mask)
            builder.store(apart(builder, packed), pointer(builder, address, places.type), align=1)
            return context.get_dummy_value()
        table = cgutils.global_constant(builder, "chosen", _CHOSEN)
        for lanes, half in enumerate(pieces(builder, mask, 8)):
            chosen = builder.bitcast(half, _INT8)
            row = builder.load(builder.gep(table, [_INT32(0), builder.zext(chosen, _INT32)]), align=8)
            start = broadcast(builder, builder.add(first, _INT32(8 * lanes)), 8)
            places = builder.add(start, builder.zext(row, start.type))
            builder.store(places, pointer(builder, address, places.type), align=1)
            count = builder.zext(builder.ctpop(chosen), _INT64)
            address = builder.add(address, builder.shl(count, _INT64(2)))
        return context.get_dummy_value()

    return (types.void(types.int64, types.int64, MASK), emit) if mask is MASK else None


def _first_lanes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
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
        return _first_lanes(builder, args[0])

    return MASK(types.int64), emit


@intrinsic
def load_float32_part(typingctx: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of sixteen float32, the other lanes zero."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        place = pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(builder, args[1])
        return call_llvm(builder, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.llvm, place, _INT32(1), mask, floats(0.0))

    return FLOATS(types.int64, types.int64), emit


@intrinsic
def store_float32_part(typingctx: Any, address: Any, value: Any, count: Any) -> Any:
    """Write the first ``count`` lanes."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        place = pointer(builder, args[0], FLOATS.llvm)
        mask = _first_lanes(builder, args[2])
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
