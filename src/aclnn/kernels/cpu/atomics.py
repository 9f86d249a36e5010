"""What threads say to one another through memory, and how they wait."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from aclnn.kernels.cpu.addresses import pointer
from aclnn.kernels.cpu.vector import call_llvm

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def fetch_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, which other threads add to as well; what it was before."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.atomic_rmw("add", pointer(builder, args[0], _INT64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def look(typingctx: Any, address: Any) -> Any:
    """The int64 at an address that other threads write to (``show``, ``fetch_add``): in one order for all threads."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.load_atomic(pointer(builder, args[0], _INT64), "seq_cst", 8)

    return types.int64(types.int64), emit


@intrinsic
def show(typingctx: Any, address: Any, value: Any) -> Any:
    """Write an int64 for other threads' ``look``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        builder.store_atomic(args[1], pointer(builder, args[0], _INT64), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _is_x86(context: Any) -> bool:
    return bool(context.codegen().magic_tuple()[0].startswith("x86_64"))


def _pause(context: Any, builder: ir.IRBuilder) -> None:
    triple = context.codegen().magic_tuple()[0]
    if _is_x86(context):
        call_llvm(builder, "llvm.x86.sse2.pause", ir.VoidType())
    elif triple.startswith(("aarch64", "arm64")):
        call_llvm(builder, "llvm.aarch64.hint", ir.VoidType(), _INT32(1))


@intrinsic
def pause(typingctx: Any) -> Any:
    """What a thread does between two looks, for the sake of the processor's other work."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        _pause(context, builder)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def give_way(typingctx: Any, function: Any) -> Any:
    """Call a C function of no parameters, as the system's ``sched_yield``, by its address; ``pause`` for address 0."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        with builder.if_else(builder.icmp_unsigned("!=", args[0], _INT64(0))) as (known, unknown):
            with known:
                builder.call(pointer(builder, args[0], ir.FunctionType(_INT32, [])), [])
            with unknown:
                _pause(context, builder)
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def finish_streams(typingctx: Any) -> Any:
    """Make streamed stores visible to other threads, as ordinary stores are without asking."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        if _is_x86(context):
            # A fence may become any locked instruction, which is not promised to wait for them.
            call_llvm(builder, "llvm.x86.sse.sfence", ir.VoidType())
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit
