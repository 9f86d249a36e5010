"""What compiled code does with an address that is not a vector's: single numbers, room on the stack, calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from aclnn.kernels.cpu.inner import ADDRESS, intrinsic
from aclnn.kernels.cpu.structs import BYTES, pointer

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def reloaded(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The address, but unknown to the compiler: it loads from there again rather than keep values in registers."""
    return builder.asm(ir.FunctionType(address.type, [address.type]), "", "=r,0", [address], False)


@extending.intrinsic
def again(typingctx: Any, address: Any) -> Any:
    """The address, but unknown to the compiler: it loads from there again rather than keep values in registers."""
    return address(address), lambda context, builder, sig, args: reloaded(builder, args[0])


def _exception_of(builder: ir.IRBuilder, kernel: ir.Value, args: Sequence[ir.Value]) -> ir.Value:
    """Call the kernel at an address; the address of the exception that it raised, 0 for none."""
    # Numba's calling convention: places for the result and for an exception come first, a status is returned.
    place = _INT8.as_pointer()
    function = ir.FunctionType(_INT32, [place.as_pointer()] * 2 + [arg.type for arg in args])
    result, exception = (cgutils.alloca_once(builder, place) for _ in range(2))
    status = builder.call(pointer(builder, kernel, function), [result, exception, *args])
    raised = builder.icmp_signed(">", status, _INT32(0))
    return builder.select(raised, builder.ptrtoint(builder.load(exception), _INT64), _INT64(0))


def _raise_again(builder: ir.IRBuilder, exception: ir.Value) -> None:
    """Leave the function that is being built with the exception at an address, unless that is 0."""
    with cgutils.if_unlikely(builder, builder.icmp_unsigned("!=", exception, _INT64(0))):
        place = builder.function.args[1]
        builder.store(builder.inttoptr(exception, place.type.pointee), place)
        builder.ret(_INT32(1))


def call_kernel(builder: ir.IRBuilder, address: ir.Value, *args: ir.Value) -> None:
    """Call the kernel at an address (see ``compiler.address_of``); its exception is the caller's."""
    _raise_again(builder, _exception_of(builder, address, args))


invoke = intrinsic(types.void, *[types.int64] * 9, doc="Call a kernel of eight parameters by its address.")(call_kernel)


@intrinsic(types.void, types.int64, ADDRESS, ADDRESS, types.int64, types.int64)
def call_pointer(builder: ir.IRBuilder, kernel: ir.Value, *args: ir.Value) -> None:
    """Call the kernel at an address with its arguments, counter, step and end; its exception is the caller's."""
    call_kernel(builder, kernel, *args)


@intrinsic(types.int64, types.int64, ADDRESS, ADDRESS, types.int64, types.int64)
def call_catching(builder: ir.IRBuilder, kernel: ir.Value, *args: ir.Value) -> ir.Value:
    """Call as ``call_pointer``, but return the address of the exception that it raised, 0 for none."""
    return _exception_of(builder, kernel, args)


@intrinsic(types.void, types.int64)
def raise_again(builder: ir.IRBuilder, exception: ir.Value) -> None:
    """Raise an exception that ``call_catching`` returned; nothing for 0."""
    _raise_again(builder, exception)


@extending.intrinsic
def stack_alloc(typingctx: Any, size: Any) -> Any:
    """A pointer to this many bytes on the stack, 64-byte aligned; ``size`` is a constant."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        # Not alloca_once, which would fill it with zeros: 4 KiB of them cost LLVM seconds.
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(_INT8, size.literal_value))
        room.align = 64
        return pointer(builder, room, _INT8)

    return BYTES(size), emit


@extending.intrinsic
def scratch(typingctx: Any, size: Any) -> Any:
    """The address of this many bytes on the stack, 64-byte aligned; ``size`` is a constant."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        # Not alloca_once, which would fill it with zeros: 4 KiB of them cost LLVM seconds.
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(_INT8, size.literal_value))
        room.align = 64
        return builder.ptrtoint(room, _INT64)

    return types.int64(size), emit


def _load_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def load(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        return builder.load(pointer(builder, address, lane), align=1)

    return intrinsic(scalar, ADDRESS, doc=doc)(load)


def _store_one(lane: ir.Type, scalar: types.Type, doc: str) -> Any:
    def store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
        builder.store(value, pointer(builder, address, lane), align=1)

    return intrinsic(types.void, ADDRESS, scalar, doc=doc)(store)


load_one_float32 = _load_one(ir.FloatType(), types.float32, "A single float32.")
load_one_float64 = _load_one(ir.DoubleType(), types.float64, "A single float64.")
load_one_uint16 = _load_one(_INT16, types.uint16, "A single 16-bit pattern.")
load_one_uint32 = _load_one(_INT32, types.uint32, "A single 32-bit pattern.")
load_one_int64 = _load_one(_INT64, types.int64, "A single int64.")
store_one_float32 = _store_one(ir.FloatType(), types.float32, "A single float32.")
store_one_float64 = _store_one(ir.DoubleType(), types.float64, "A single float64.")
store_one_uint16 = _store_one(_INT16, types.uint16, "A single 16-bit pattern.")
store_one_uint32 = _store_one(_INT32, types.uint32, "A single 32-bit pattern.")
store_one_int64 = _store_one(_INT64, types.int64, "A single int64.")
