"""Prefetching suited to the processor; it affects the time only."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.jit import intrinsic
from aclnn.kernels.cpu.simd.vector import call_llvm
from aclnn.kernels.cpu.structs import ADDRESS, moved, pointer

_INT8, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 32, 64))

_AHEAD = 2048
"""Prefetch distance of loops in bytes, if requests are not dropped (docs/tuning.md)."""


def _emit(builder: ir.IRBuilder, address: ir.Value, level: int) -> None:
    """Prefetch the line at an address for reading, into a cache level."""
    read, locality, data = _INT32(0), _INT32(4 - level), _INT32(1)
    place = pointer(builder, address, _INT8)
    call_llvm(builder, "llvm.prefetch.p0", ir.VoidType(), place, read, locality, data)


def _prefetch(level: int, doc: str) -> Any:
    def fetch(builder: ir.IRBuilder, address: ir.Value) -> None:
        _emit(builder, address, level)

    return intrinsic(types.void, ADDRESS, doc=doc)(fetch)


prefetch = _prefetch(2, "Start bringing the line at the address into the second-level cache; any address will do.")
prefetch_near = _prefetch(1, "Start bringing the line at the address into the first-level cache; any address will do.")


def _prefetch_ahead(dropped: int) -> Any:
    def fetch(context: Any, builder: ir.IRBuilder, address: ir.Value) -> None:
        """Prefetch what a loop over contiguous elements will read soon.

        Into the first level, or into the second if requests are dropped and tables would be evicted (docs/tuning.md).
        """
        drops = target.drops_prefetches(context)
        address = moved(builder, address, _INT64(dropped if drops else _AHEAD))
        _emit(builder, address, 2 if drops else 1)

    return intrinsic(types.void, ADDRESS)(fetch)


prefetch_ahead_32 = _prefetch_ahead(1024)
prefetch_ahead_16 = _prefetch_ahead(2048)


@intrinsic(types.void, types.int64, types.int64, types.int64, types.int64)
def prefetch_rest(
    context: Any, builder: ir.IRBuilder, dy: ir.Value, next_dy: ir.Value, x: ir.Value, next_x: ir.Value
) -> None:
    """Prefetch, while dx is written, lines of the next rows that the sums' loop skipped or whose requests were dropped.

    If none are dropped, also prefetch upcoming lines of this row into the first level.
    """
    drops = target.drops_prefetches(context)
    for address, level in ((next_dy, 2), (next_x, 2)) if drops else ((next_x, 2), (dy, 1), (x, 1)):
        _emit(builder, address, level)
