"""Loads and stores of some of sixteen lanes: those that a mask chooses, or the first few.

The ``_part`` forms touch only the first ``count`` elements, 0 ≤ count ≤ 16; lanes beyond them read as zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from aclnn.kernels.cpu import target
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
from aclnn.kernels.cpu.inner import ADDRESS, intrinsic
from aclnn.kernels.cpu.structs import moved, pointer
from aclnn.kernels.cpu.vector import FLOATS, LANES, MASK, apart, broadcast, call_llvm, pieces

_INT8, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 32, 64))


@intrinsic(types.int64, MASK)
def count_lanes(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """In how many lanes a mask is set."""
    whole = ir.IntType(LANES)
    return builder.zext(builder.ctpop(builder.bitcast(mask, whole)), _INT64)


def _chosen(mask: int) -> ir.Constant:
    places = [i for i in range(8) if mask >> i & 1]
    return ir.Constant(ir.VectorType(_INT8, 8), [_INT8(i) for i in places + [0] * (8 - len(places))])


_CHOSEN = ir.Constant(ir.ArrayType(ir.VectorType(_INT8, 8), 256), [_chosen(mask) for mask in range(256)])
"""Which of eight bits are set, for each byte."""


@intrinsic(types.void, ADDRESS, types.int64, MASK)
def store_places(context: Any, builder: ir.IRBuilder, address: ir.Value, first: ir.Value, mask: ir.Value) -> None:
    """Write ``first`` + i, int32, side by side for each lane i where the mask is set; 64 bytes may be touched."""
    first = builder.trunc(first, _INT32)
    if target.flavour(context) == "avx512":
        places = builder.add(broadcast(builder, first), ints(*range(LANES)))
        # In a register first: to memory at once the instruction takes over 100 cycles on Zen 4.
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
    vector = ir.VectorType(_INT32, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(count, _INT32), _INT32(0))
    limit = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), ints(0))
    return builder.icmp_signed("<", ints(*range(LANES)), limit)


first_lanes = intrinsic(MASK, types.int64, doc="The mask of the first ``count`` lanes.")(_first_lanes)


@intrinsic(FLOATS, ADDRESS, types.int64)
def load_float32_part(builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
    """The first ``count`` of sixteen float32, the other lanes zero."""
    place = pointer(builder, address, FLOATS.llvm)
    mask = _first_lanes(builder, count)
    return call_llvm(builder, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.llvm, place, _INT32(1), mask, floats(0.0))


@intrinsic(types.void, ADDRESS, FLOATS, types.int64)
def store_float32_part(builder: ir.IRBuilder, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Write the first ``count`` lanes."""
    place = pointer(builder, address, FLOATS.llvm)
    mask = _first_lanes(builder, count)
    call_llvm(builder, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), value, place, _INT32(1), mask)


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
    def load(context: Any, builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
        return widen(context, builder, builder.load(_first_sixteen_bit(builder, address, count)))

    return intrinsic(FLOATS, ADDRESS, types.int64, doc=doc)(load)


def _store_part(narrow: Convert, doc: str) -> Any:
    def store(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
        buffer = _buffer(builder)
        builder.store(narrow(context, builder, value), buffer)
        destination = pointer(builder, address, _INT8)
        cgutils.raw_memcpy(builder, destination, buffer, _part_bytes(builder, count), 1)

    return intrinsic(types.void, ADDRESS, FLOATS, types.int64, doc=doc)(store)


load_float16_part = _load_part(widen_float16, "The first ``count`` of sixteen float16, widened, the other lanes zero.")
load_bfloat16_part = _load_part(widen_bfloat16, "The first ``count`` of sixteen bfloat16, the other lanes zero.")
store_float16_part = _store_part(narrow_float16, "Write the first ``count`` lanes, rounded to float16.")
store_bfloat16_part = _store_part(narrow_bfloat16, "Write the first ``count`` lanes, rounded to bfloat16.")
