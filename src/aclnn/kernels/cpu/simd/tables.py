"""Small tables of float32, looked up lane by lane, and polynomials with coefficients from such tables.

A look-up is a permutation of registers: one AVX-512 instruction for 32 entries, one of AVX2 for eight; NEON permutes
bytes, and without any of these a tree of selections does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.jit import generic, register_jitable
from aclnn.kernels.cpu.simd.vector import (
    FLOATS,
    LANES,
    VECTORS,
    call_llvm,
    constant_splat,
    constants,
    has_lanes,
    joined,
    multiply_add,
    pieces,
    shuffled,
)

_INT8, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()


def _lookup_avx512(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # The permutation uses four bits of the index; eight entries are duplicated so that the fourth does not matter.
    tables = [
        constants(_FLOAT, entries[start : start + LANES] * (LANES // min(LANES, len(entries))))
        for start in range(0, len(entries), LANES)
    ]
    found = []
    for part in pieces(builder, index, LANES):
        if len(tables) == 1:
            found.append(call_llvm(builder, "llvm.x86.avx512.permvar.sf.512", FLOATS.llvm, tables[0], part))
        else:
            name = "llvm.x86.avx512.vpermi2var.ps.512"
            found.append(call_llvm(builder, name, FLOATS.llvm, tables[0], part, tables[1]))
    return joined(builder, found)


def _lookup_avx2(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    table, halves = constants(_FLOAT, entries), pieces(builder, index, 8)
    return joined(builder, [call_llvm(builder, "llvm.x86.avx2.permps", table.type, table, half) for half in halves])


def _lookup_neon(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # A byte permutation over two registers: lane i needs the bytes 4i, 4i + 1, 4i + 2, 4i + 3.
    sixteen = ir.VectorType(_INT8, 16)
    low, high = (builder.bitcast(constants(_FLOAT, entries[start : start + 4]), sixteen) for start in (0, 4))
    seven, steps, first = (constant_splat(_INT32, value, index.type.count) for value in (7, 0x04040404, 0x03020100))
    octets = builder.add(builder.mul(builder.and_(index, seven), steps), first)
    found = []
    for quarter in pieces(builder, octets, 4):
        permuted = call_llvm(
            builder, "llvm.aarch64.neon.tbl2.v16i8", sixteen, low, high, builder.bitcast(quarter, sixteen)
        )
        found.append(builder.bitcast(permuted, ir.VectorType(_FLOAT, 4)))
    return joined(builder, found)


def _lookup_doubles_avx512(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    table, name = constants(_DOUBLE, entries), "llvm.x86.avx512.permvar.df.512"
    return joined(builder, [call_llvm(builder, name, table.type, table, part) for part in pieces(builder, index, 8)])


def _lookup_doubles_avx2(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # For four lanes: the low halves of the entries, then the high ones, each duplicated in both halves of a lane.
    eight, four = ir.VectorType(_INT32, 8), ir.VectorType(_DOUBLE, 4)
    words = [struct.unpack("<2I", struct.pack("<d", entry)) for entry in entries]
    tables = [constants(_INT32, half) for half in zip(*words, strict=True)]
    found = []
    for part in pieces(builder, index, 4):
        places = shuffled(builder, (0, 0, 2, 2, 4, 4, 6, 6), builder.bitcast(part, eight))
        halves = [call_llvm(builder, "llvm.x86.avx2.permd", eight, table, places) for table in tables]
        found.append(builder.bitcast(shuffled(builder, (0, 9, 2, 11, 4, 13, 6, 15), *halves), four))
    return joined(builder, found)


def _bit(builder: ir.IRBuilder, index: ir.Value, bit: int) -> ir.Value:
    """Return the mask of the lanes in which a bit is set."""
    tested = builder.and_(index, constant_splat(index.type.element, 1 << bit, index.type.count))
    return builder.icmp_signed("!=", tested, ir.Constant(index.type, None))


def _lookup_generic(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    """Select by the three low bits of the index, in a tree."""
    lane = _FLOAT if index.type.element == _INT32 else _DOUBLE
    choices: list[ir.Value] = [constant_splat(lane, entry, index.type.count) for entry in entries]
    for bit in range(3):
        is_set = _bit(builder, index, bit)
        choices = [builder.select(is_set, choices[i + 1], choices[i]) for i in range(0, len(choices), 2)]
    return choices[0]


_LOOKUPS = {"avx512": _lookup_avx512, "avx2": _lookup_avx2, "neon": _lookup_neon, "generic": _lookup_generic}
_DOUBLE_LOOKUPS = {"avx512": _lookup_doubles_avx512, "avx2": _lookup_doubles_avx2}


def _lookup(context: Any, builder: ir.IRBuilder, entries: tuple[float, ...], index: ir.Value) -> ir.Value:
    flavour = target.flavour(context)
    if index.type.element == _INT64:
        return _DOUBLE_LOOKUPS.get(flavour, _lookup_generic)(builder, list(entries), index)
    if flavour == "avx512" or len(entries) == 8:
        return _LOOKUPS[flavour](builder, list(entries), index)
    half = len(entries) // 2
    first, second = (_lookup(context, builder, part, index) for part in (entries[:half], entries[half:]))
    return builder.select(_bit(builder, index, half.bit_length() - 1), second, first)


def table(*entries: float) -> Any:
    """Make the function that returns entry ``index & 7``, ``& 15`` or ``& 31`` of a table of that size for each lane.

    INTS index float32, LONGS one of eight float64; also wide ones. Every flavour gives the same bits.
    """
    if len(entries) not in (8, 16, 32):
        raise ValueError(f"table: entries: expected 8, 16 or 32, got {len(entries)}")

    def typed(index: Any) -> Any:
        if has_lanes(index, _INT32):
            return VECTORS[_FLOAT, index.lanes](index)
        return VECTORS[_DOUBLE, index.lanes](index) if has_lanes(index, _INT64) and len(entries) == 8 else None

    def lookup(context: Any, builder: ir.IRBuilder, index: ir.Value) -> ir.Value:
        return _lookup(context, builder, entries, index)

    return generic(typed)(lookup)


def horner(first: Sequence[float], *rows: Sequence[float]) -> Any:
    """Make the polynomial of r whose coefficients, highest power first, are table entries at an index."""
    start, others = table(*first), horner_from(*rows)
    return register_jitable(forceinline=True)(lambda index, r: others(start(index), index, r))


def horner_from(*rows: Sequence[float]) -> Any:
    """Make a polynomial as ``horner`` does, given the leading coefficient; by fused multiply-adds."""

    def typed(start: Any, index: Any, r: Any) -> Any:
        fits = has_lanes(index, _INT32) and start is r is VECTORS[_FLOAT, index.lanes]
        return r(start, index, r) if fits else None

    def polynomial(context: Any, builder: ir.IRBuilder, value: ir.Value, index: ir.Value, r: ir.Value) -> ir.Value:
        for row in rows:
            value = multiply_add(builder, value, r, _lookup(context, builder, tuple(row), index))
        return value

    return generic(typed)(polynomial)
