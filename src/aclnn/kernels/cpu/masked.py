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
from aclnn.kernels.cpu.vector import FLOATS, LANES, MASK, apart, call_llvm

_INT8, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 32, 64))


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
