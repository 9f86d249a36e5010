"""Small tables of float32, looked up lane by lane, and polynomials whose coefficients come from them.

A look-up is a permutation of registers: one instruction of AVX-512 for 32 entries, of AVX2 for eight; NEON permutes
bytes, and without either a tree of selections does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.imputils import lower_constant
from numba.extending import intrinsic, models, register_model, typeof_impl

from aclnn.kernels.cpu import target
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


class Tables:
    """Several tables of 8, 16 or 32: the coefficients of a polynomial, highest power first, for ``horner``."""

    def __init__(self, *rows: tuple[float, ...]) -> None:
        if not rows or any(len(row) not in (8, 16, 32) for row in rows):
            raise ValueError(
                f"{type(self).__name__}: expected rows of 8, 16 or 32 entries, got lengths {[len(row) for row in rows]}"
            )
        self.rows = rows


class Table(Tables):
    """Constants that ``lookup`` selects from, part of the compiled code: 8, 16 or 32 float32, or 8 float64."""

    def __init__(self, *entries: float) -> None:
        super().__init__(entries)


class _TablesType(types.Dummy):
    """The entries are in the type, so that code generation sees them."""

    def __init__(self, rows: tuple[tuple[float, ...], ...]) -> None:
        super().__init__(f"tables{rows!r}")
        self.rows = rows


@typeof_impl.register(Table)
@typeof_impl.register(Tables)
def _typeof_tables(value: Table | Tables, context: Any) -> _TablesType:
    return _TablesType(value.rows)


register_model(_TablesType)(models.OpaqueModel)


@lower_constant(_TablesType)
def _lower_tables(context: Any, builder: ir.IRBuilder, kind: _TablesType, value: Table | Tables) -> ir.Value:
    return context.get_dummy_value()


def _lookup_avx512(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # The permutation looks at four bits of the index; eight entries twice over make the fourth irrelevant.
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
    # Of four lanes the lower halves of the entries, then the upper ones, each in both halves of a lane.
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
    """The mask of the lanes in which a bit is set."""
    tested = builder.and_(index, constant_splat(index.type.element, 1 << bit, index.type.count))
    return builder.icmp_signed("!=", tested, ir.Constant(index.type, None))


def _lookup_generic(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    """A tree of selections by the three low bits of the index."""
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


@intrinsic
def lookup(typingctx: Any, table: Any, index: Any) -> Any:
    """Entry ``index & 7``, ``& 15`` or ``& 31`` of a table for each lane; every flavour gives the same bits.

    INTS look up float32, LONGS one of eight float64; wide ones too.
    """
    if not isinstance(table, _TablesType) or len(table.rows) != 1:
        return None
    if not has_lanes(index, _INT32) and (not has_lanes(index, _INT64) or len(table.rows[0]) != 8):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _lookup(context, builder, table.rows[0], args[1])

    return VECTORS[_FLOAT if index.lane == _INT32 else _DOUBLE, index.lanes](table, index), emit


@intrinsic
def horner(typingctx: Any, tables: Any, index: Any, r: Any) -> Any:
    """The polynomial in r whose coefficients are each lane's entries of ``tables``, by fused multiply-adds."""
    if not isinstance(tables, _TablesType) or not has_lanes(index, _INT32) or r is not VECTORS[_FLOAT, index.lanes]:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        first, *others = tables.rows
        return _horner(context, builder, _lookup(context, builder, first, args[1]), others, *args[1:])

    return r(tables, index, r), emit


@intrinsic
def horner_from(typingctx: Any, start: Any, tables: Any, index: Any, r: Any) -> Any:
    """Evaluate as ``horner``, with another coefficient, ``start``, before those of ``tables``."""
    if not isinstance(tables, _TablesType) or not has_lanes(index, _INT32) or r is not VECTORS[_FLOAT, index.lanes]:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _horner(context, builder, args[0], tables.rows, *args[2:])

    return (r(r, tables, index, r), emit) if start is r else None


def _horner(
    context: Any,
    builder: ir.IRBuilder,
    value: ir.Value,
    rows: Sequence[tuple[float, ...]],
    index: ir.Value,
    r: ir.Value,
) -> ir.Value:
    for coefficient in (_lookup(context, builder, row, index) for row in rows):
        value = multiply_add(builder, value, r, coefficient)
    return value
