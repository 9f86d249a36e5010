"""Atomic operations on integers shared between threads, and ways to wait."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.jit import intrinsic
from aclnn.kernels.cpu.simd.vector import call_llvm
from aclnn.kernels.cpu.structs import ADDRESS, pointer

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


@intrinsic(types.int64, ADDRESS, types.int64)
def fetch_add(builder: ir.IRBuilder, address: ir.Value, amount: ir.Value) -> ir.Value:
    """Add atomically to the int64 at an address; return its previous value."""
    return builder.atomic_rmw("add", pointer(builder, address, _INT64), amount, "seq_cst")


@intrinsic(types.int64, ADDRESS)
def atomic_load(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Load an int64 written by other threads, with sequential consistency."""
    return builder.load_atomic(pointer(builder, address, _INT64), "seq_cst", 8)


@intrinsic(types.void, ADDRESS, types.int64)
def atomic_store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Store an int64 for other threads' ``atomic_load``."""
    builder.store_atomic(value, pointer(builder, address, _INT64), "seq_cst", 8)


def _is_x86(context: Any) -> bool:
    return bool(target.identity(context.codegen())[0].startswith("x86_64"))


def _pause(context: Any, builder: ir.IRBuilder) -> None:
    triple = target.identity(context.codegen())[0]
    if _is_x86(context):
        call_llvm(builder, "llvm.x86.sse2.pause", ir.VoidType())
    elif triple.startswith(("aarch64", "arm64")):
        call_llvm(builder, "llvm.aarch64.hint", ir.VoidType(), _INT32(1))


pause = intrinsic(types.void, doc="Tell the processor that this is a spin loop.")(_pause)


@intrinsic(types.void, types.int64)
def yield_thread(context: Any, builder: ir.IRBuilder, function: ir.Value) -> None:
    """Call a C function without parameters, such as ``sched_yield``, at an address; ``pause`` if the address is 0."""
    with builder.if_else(builder.icmp_unsigned("!=", function, _INT64(0))) as (known, unknown):
        with known:
            builder.call(pointer(builder, function, ir.FunctionType(_INT32, [])), [])
        with unknown:
            _pause(context, builder)


@intrinsic(types.void)
def finish_streams(context: Any, builder: ir.IRBuilder) -> None:
    """Make non-temporal stores visible to other threads, as ordinary stores are anyway."""
    if _is_x86(context):
        # LLVM may emit any locked instruction for a fence, which need not wait for non-temporal stores.
        call_llvm(builder, "llvm.x86.sse.sfence", ir.VoidType())
    else:
        builder.fence("seq_cst")
