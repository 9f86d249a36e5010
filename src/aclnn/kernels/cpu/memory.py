"""Loads and stores of sixteen lanes at raw addresses, for float32, float16 and bfloat16.

``load_<type>(address)`` widens to float32, which is exact; ``store_<type>(address, value)`` rounds once, ties to even,
and keeps NaN a (quiet) NaN. The ``stream_`` forms go around the cache and need an address aligned to the sixteen
elements: 64 bytes for float32, 32 for the others.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.conversions import (
    SHORTS,
    Convert,
    narrow_bfloat16,
    narrow_float16,
    narrow_two_bfloat16,
    round_bfloat16,
    widen_bfloat16,
    widen_float16,
)
from aclnn.kernels.cpu.inner import ADDRESS, intrinsic
from aclnn.kernels.cpu.structs import moved, pointer
from aclnn.kernels.cpu.vector import FLOATS, INTS, LANES, apart

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()


def _load(widen: Convert | None, doc: str) -> Any:
    memory = FLOATS.llvm if widen is None else SHORTS

    def load(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        raw = builder.load(pointer(builder, address, memory), align=1)
        return raw if widen is None else widen(context, builder, raw)

    return intrinsic(FLOATS, ADDRESS, doc=doc)(load)


def write(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, alignment: int, streamed: bool) -> None:
    """Store a value at an address, around the cache if streamed."""
    written = builder.store(value, pointer(builder, address, value.type), align=alignment)
    if streamed:
        written.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


def _store(narrow: Convert | None, doc: str, streamed: bool = False, alignment: int = 1) -> Any:

    def store(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
        raw = value if narrow is None else narrow(context, builder, value)
        if streamed and narrow in (narrow_bfloat16, round_bfloat16) and target.flavour(context) == "avx512":
            # LLVM merges the rounding with the store, and that instruction cannot stream.
            raw = apart(builder, raw)
        write(builder, raw, address, alignment, streamed)

    return intrinsic(types.void, ADDRESS, FLOATS, doc=doc)(store)


load_float32 = _load(None, "Sixteen float32.")
load_float16 = _load(widen_float16, "Sixteen float16, widened.")
load_bfloat16 = _load(widen_bfloat16, "Sixteen bfloat16, widened.")
store_float32 = _store(None, "Sixteen float32.")
store_float16 = _store(narrow_float16, "Sixteen values rounded to float16.")
store_bfloat16 = _store(narrow_bfloat16, "Sixteen values rounded to bfloat16.")
stream_float32 = _store(None, "Sixteen float32 to a 64-byte aligned address, around the cache.", True, 64)
stream_float16 = _store(narrow_float16, "The same for float16; 32-byte aligned.", True, 32)
stream_bfloat16 = _store(narrow_bfloat16, "The same for bfloat16; 32-byte aligned.", True, 32)
store_rounded_bfloat16 = _store(round_bfloat16, "As store_bfloat16; quicker, and more code.")
stream_rounded_bfloat16 = _store(round_bfloat16, "As stream_bfloat16; quicker, and more code.", True, 32)
trickle_float32 = _store(None, "The same for an address aligned to 16 bytes, 16 bytes at a time.", True, 16)
trickle_float16 = _store(narrow_float16, "The same for float16.", True, 16)
trickle_bfloat16 = _store(narrow_bfloat16, "The same for bfloat16.", True, 16)


@intrinsic(types.void, ADDRESS, FLOATS)
def stream_float16_apart(context: Any, builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """As ``stream_float16``, where LLVM would merge the rounding with the store, and that instruction cannot stream."""
    raw = narrow_float16(context, builder, value)
    if target.flavour(context) in ("avx512", "avx2"):
        raw = apart(builder, raw)
    write(builder, raw, address, 32, streamed=True)


def _store_two_bfloat16(doc: str, streamed: bool = False, alignment: int = 1) -> Any:
    def store(context: Any, builder: ir.IRBuilder, address: ir.Value, low: ir.Value, high: ir.Value) -> None:
        write(builder, narrow_two_bfloat16(context, builder, low, high), address, alignment, streamed)

    return intrinsic(types.void, ADDRESS, FLOATS, FLOATS, doc=doc)(store)


store_two_bfloat16 = _store_two_bfloat16("Twice sixteen values rounded to bfloat16, one after the other.")
stream_two_bfloat16 = _store_two_bfloat16("The same around the cache; 32-byte aligned.", True, 32)
trickle_two_bfloat16 = _store_two_bfloat16("The same; aligned to 16 bytes, 16 bytes at a time.", True, 16)


def _transpose(element: ir.Type, doc: str) -> Any:
    row = ir.VectorType(element, LANES)

    def order(indices: list[int]) -> ir.Constant:
        return ir.Constant(INTS.llvm, [_INT32(index) for index in indices])

    def transpose(
        builder: ir.IRBuilder, destination: ir.Value, pitch: ir.Value, source: ir.Value, source_pitch: ir.Value
    ) -> None:
        def row_at(start: ir.Value, step: ir.Value, i: int) -> ir.Value:
            return pointer(builder, moved(builder, start, builder.mul(step, _INT64(i))), row)

        rows = [builder.load(row_at(source, source_pitch, i), align=1) for i in range(LANES)]
        # The blocks off the diagonal change places: of 8 × 8 elements, then of 4 × 4, 2 × 2, 1 × 1.
        for size in (8, 4, 2, 1):
            upper = order([LANES + e - size if e & size else e for e in range(LANES)])
            lower = order([LANES + e if e & size else e + size for e in range(LANES)])
            for i in range(LANES):
                if not i & size:
                    pair = rows[i], rows[i + size]
                    rows[i], rows[i + size] = (builder.shuffle_vector(*pair, mask) for mask in (upper, lower))
        for i in range(LANES):
            builder.store(rows[i], row_at(destination, pitch, i), align=1)

    return intrinsic(types.void, ADDRESS, types.int64, ADDRESS, types.int64, doc=doc)(transpose)


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


@intrinsic(FLOATS, ADDRESS, ADDRESS)
def load_entries(builder: ir.IRBuilder, table: ir.Value, address: ir.Value) -> ir.Value:
    """``table[i]`` for each of the sixteen unsigned 16-bit i at ``address``; ``table`` points to 65,536 float32."""
    return _entries(builder, table, pointer(builder, address, _INT16))
