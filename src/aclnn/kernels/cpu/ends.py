"""What is left of a row behind whole vectors: up to 64 bytes, through memory that may be read whole.

On AVX-512 an instruction moves any number of bytes. Elsewhere copying is a call, which would not keep registers: it
comes before anything is in them, or at the very end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.inner import ADDRESS, intrinsic, register_jitable
from aclnn.kernels.cpu.memory import write
from aclnn.kernels.cpu.structs import pointer
from aclnn.kernels.cpu.vector import call_llvm

_INT8, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES, _SIXTEEN = ir.VectorType(_INT8, 64), ir.VectorType(_INT8, 16)


def _first_bytes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    every = builder.sub(builder.shl(_INT64(1), count), _INT64(1))
    return builder.bitcast(every, ir.VectorType(ir.IntType(1), 64))


def _copy(builder: ir.IRBuilder, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
    cgutils.raw_memcpy(builder, pointer(builder, to, _INT8), pointer(builder, source, _INT8), size, 1)


@intrinsic(types.void, ADDRESS, ADDRESS, types.int64)
def copy(builder: ir.IRBuilder, destination: ir.Value, source: ir.Value, size: ir.Value) -> None:
    """Copy bytes between addresses that do not overlap."""
    _copy(builder, destination, source, size)


@intrinsic(types.void, ADDRESS, types.int64, ADDRESS)
def copy_in(context: Any, builder: ir.IRBuilder, source: ir.Value, size: ir.Value, end: ir.Value) -> None:
    """Put the first ``size`` < 64 bytes from ``source`` to ``end``, and zeros behind them up to 64."""
    room, zeros = pointer(builder, end, _BYTES), ir.Constant(_BYTES, None)
    if target.flavour(context) == "avx512":
        place, mask = pointer(builder, source, _BYTES), _first_bytes(builder, size)
        zeros = call_llvm(builder, "llvm.masked.load.v64i8.p0", _BYTES, place, _INT32(1), mask, zeros)
    builder.store(zeros, room, align=1)
    if target.flavour(context) != "avx512":
        _copy(builder, end, source, size)


@intrinsic(types.void, ADDRESS, types.int64, ADDRESS)
def copy_out(context: Any, builder: ir.IRBuilder, end: ir.Value, size: ir.Value, destination: ir.Value) -> None:
    """Put the first ``size`` < 64 of 64 bytes from ``end`` to ``destination``."""
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
    """The same around the cache, as the rest of the line before: sixteen bytes at a time, the last few through it.

    A line that is written both ways goes to memory in parts: rows of 100 float32 took four times as long.
    """
    whole = size & -16
    for at in range(0, whole, 16):
        _stream_sixteen(end + at, destination + at)
    if size > whole:
        copy_out(end + whole, size - whole, destination + whole)
