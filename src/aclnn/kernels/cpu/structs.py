"""Structs that Python and compiled code share, and the pointers by which compiled code reads and writes them.

A struct is declared once, its fields as annotations::

    @declared
    class Rows(ctypes.Structure):
        count: Int64
        scale: Float32
        source: Address
        extents: Annotated[Any, ctypes.c_int64 * 8]

In Python it is a ``ctypes.Structure``. In compiled code, ``rows_at = pointer_to(Rows)`` converts an int64, such as
``ctypes.addressof`` returns, or another pointer to a pointer p to the struct. ``p.count`` loads, ``p.count = n``
stores, and ``p.extents``, a nested array or struct, is a pointer to its first element. ``p + i`` points to the i-th
element after p (in bytes for an ``Address``), and ``p[i]`` is that element: a number or (``c_void_p``) a pointer is
loaded, ``p[i] = v`` stores, aligned or not; a struct is a pointer. A pointer is true unless it is null, and
``address(p)`` is its integer.

LLVM sees offsets into one object, whereas an address computed as an integer could point into any.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global
from numba.extending import lower_builtin, lower_getattr_generic, lower_setattr_generic, models, register_model

from aclnn.kernels.cpu.jit import generic, intrinsic

S = TypeVar("S", bound=ctypes.Structure)

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_POINTER = _INT8.as_pointer()

_IN_COMPILED_CODE = {
    ctypes.c_int64: (types.int64, _INT64),
    ctypes.c_int32: (types.int32, _INT32),
    ctypes.c_uint32: (types.uint32, _INT32),
    ctypes.c_uint16: (types.uint16, _INT16),
    ctypes.c_float: (types.float32, ir.FloatType()),
    ctypes.c_double: (types.float64, ir.DoubleType()),
}
"""Types of Numba and LLVM for those of ctypes."""
_NUMBERS, _LLVM = {kind: number for kind, (number, _) in _IN_COMPILED_CODE.items()}, dict(_IN_COMPILED_CODE.values())


class To:
    """Pointee of an address field, for its annotation."""

    def __init__(self, pointee: Any) -> None:
        self.pointee = pointee


_WITHIN = object()


Int64 = Annotated[int, ctypes.c_int64]
Int32 = Annotated[int, ctypes.c_int32]
Float32 = Annotated[float, ctypes.c_float]
Float64 = Annotated[float, ctypes.c_double]
Address = Annotated[int, ctypes.c_int64, To(None)]
"""Address of bytes, an integer in Python; ``Annotated[int, c_int64, To(Rows)]`` is the address of a struct."""
Shared = Annotated[int, ctypes.c_int64, _WITHIN]
"""Integer that several threads write: compiled code gets a pointer to it, for ``atomics``."""


class Pointer(types.Type):
    """Numba type of pointers to a struct, a number, or (None) bytes."""

    def __init__(self, pointee: Any) -> None:
        super().__init__("p" if pointee is None else f"p{pointee.__name__}")
        self.pointee = pointee
        self.size = 1 if pointee is None else ctypes.sizeof(pointee)
        self.element = _pointer(None) if pointee is ctypes.c_void_p else _NUMBERS.get(pointee)
        """Type of a loaded element, None if elements are structs or bytes."""


class _Field(NamedTuple):
    offset: int
    place: Pointer
    """Type of a pointer to the field, or to the first element of an array."""
    value: Any
    """Type of a loaded value: a number, or the pointer that the field holds; None for a nested struct or array."""


_fields: dict[Any, dict[str, _Field]] = {}


@cache
def _pointer(pointee: Any) -> Pointer:
    if pointee not in (None, ctypes.c_void_p, *_NUMBERS, *_fields):
        raise TypeError(f"pointer_to: pointee: expected a declared struct, a number or None, got {pointee!r}")
    return Pointer(pointee)


def declared(struct: type[S]) -> type[S]:
    """Define a struct's fields by its annotations, ``Annotated[type in Python, type of ctypes]``.

    Raises:
        TypeError: another struct has its name, which occurs in symbols of compiled code.
    """
    if any(struct.__name__ == other.__name__ for other in _fields):
        raise TypeError(f"declared: struct: expected a new name, got {struct.__name__} again")
    names = vars(sys.modules[struct.__module__])
    # Most annotations are names: typing.get_type_hints would compile each as an expression.
    hints = {
        name: get_args(names[text] if text in names else eval(text, names))[1:]
        for name, text in struct.__annotations__.items()
    }
    struct._fields_ = [(name, kind) for name, (kind, *_) in hints.items()]
    found: dict[str, _Field] = {}
    for name, (kind, *to) in hints.items():
        place = _pointer(kind._type_ if issubclass(kind, ctypes.Array) else kind)
        value = place.element if place.pointee is kind else None
        if to:
            value = None if to[0] is _WITHIN else _pointer(to[0].pointee)
        found[name] = _Field(getattr(struct, name).offset, place, value)
    _fields[struct] = found
    return struct


ADDRESS = Pointer, types.int64
"""Parameter types of an intrinsic that takes an address."""


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Pointer) -> None:
        super().__init__(manager, kind, _POINTER)


def pointer(builder: ir.IRBuilder, address: ir.Value, pointee: ir.Type) -> ir.Value:
    """Convert an address, an integer or a pointer, to a pointer to a value of an LLVM type."""
    if isinstance(address.type, ir.IntType):
        return builder.inttoptr(address, pointee.as_pointer())
    return builder.bitcast(address, pointee.as_pointer())


def moved(builder: ir.IRBuilder, address: ir.Value, distance: ir.Value) -> ir.Value:
    """Return an address, an integer or a pointer, advanced by a number of bytes."""
    if isinstance(address.type, ir.IntType):
        return builder.add(address, distance)
    return builder.gep(address, [distance])


@cache
def pointer_to(pointee: Any) -> Any:
    """Return the function that converts an address to a pointer to a struct, a ctypes number, or bytes (None)."""

    @intrinsic(_pointer(pointee), ADDRESS)
    def cast(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        return pointer(builder, address, _INT8)

    return cast


bytes_at, int32_at = pointer_to(None), pointer_to(ctypes.c_int32)
float32_at, float64_at = pointer_to(ctypes.c_float), pointer_to(ctypes.c_double)
BYTES = _pointer(None)


@intrinsic(types.int64, ADDRESS)
def address(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return the integer of a pointer; an integer address unchanged."""
    return value if isinstance(value.type, ir.IntType) else builder.ptrtoint(value, _INT64)


def _load(builder: ir.IRBuilder, place: ir.Value, value: Any, align: int | None = None) -> ir.Value:
    llvm = _POINTER if isinstance(value, Pointer) else _LLVM[value]
    return builder.load(pointer(builder, place, llvm), align=align)


def _store(builder: ir.IRBuilder, place: ir.Value, value: ir.Value, align: int | None = None) -> None:
    builder.store(value, pointer(builder, place, value.type), align=align)


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, kind: Pointer, name: str) -> Any:
        field = _fields.get(kind.pointee, {}).get(name)
        return None if field is None else field.value or field.place


def _place(builder: ir.IRBuilder, base: ir.Value, offset: int) -> ir.Value:
    return builder.gep(base, [_INT64(offset)], inbounds=True)


@lower_getattr_generic(Pointer)
def _get_field(context: Any, builder: ir.IRBuilder, kind: Pointer, base: ir.Value, name: str) -> ir.Value:
    field = _fields[kind.pointee][name]
    place = _place(builder, base, field.offset)
    return place if field.value is None else _load(builder, place, field.value)


@lower_setattr_generic(Pointer)
def _set_field(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...], name: str) -> None:
    field = _fields[sig.args[0].pointee][name]
    if field.value is None:
        raise TypeError(f"{sig.args[0].pointee.__name__}.{name}: expected the field of a number, got what lies within")
    _store(builder, _place(builder, args[0], field.offset), args[1])


def _define(function: Any, result: Any, *shape: Any) -> Any:
    """Decorate what emits the code of an operator on a pointer; ``result`` gives the signature for a pointer type."""

    class Template(AbstractTemplate):
        metadata = {"target": "cpu"}  # noqa: RUF012  (before Numba's own meanings, as in simd.vector)

        def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Any:
            fits = len(args) == len(shape) and all(map(isinstance, args, shape))
            return result(args[0]) if fits else None

    infer_global(function)(Template)
    return lower_builtin(function, *shape)


@_define(operator.add, lambda kind: kind(kind, types.int64), Pointer, types.Integer)
def _element(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    return builder.gep(args[0], [builder.mul(args[1], _INT64(sig.args[0].size))])


@_define(operator.getitem, lambda kind: (kind.element or kind)(kind, types.int64), Pointer, types.Integer)
def _get_element(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    place, element = _element(context, builder, sig, args), sig.args[0].element
    return place if element is None else _load(builder, place, element, align=1)


@_define(
    operator.setitem,
    lambda kind: kind.element and types.void(kind, types.int64, kind.element),
    Pointer,
    types.Integer,
    types.Type,
)
def _set_element(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    _store(builder, _element(context, builder, sig, args), args[2], align=1)
    return context.get_dummy_value()


@_define(bool, lambda kind: types.boolean(kind), Pointer)
def _is_not_null(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
    return builder.icmp_unsigned("!=", args[0], ir.Constant(_POINTER, None))


def reloaded(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Return the address, opaque to the compiler, which then loads again instead of keeping values in registers."""
    return builder.asm(ir.FunctionType(address.type, [address.type]), "", "=r,0", [address], False)


optimization_barrier = generic(lambda address: address(address))(reloaded)


def _exception_of(builder: ir.IRBuilder, kernel: ir.Value, *args: ir.Value) -> ir.Value:
    """Call the kernel at an address; return the address of the exception that it raised, 0 for none."""
    # Numba's calling convention: pointers for the result and an exception come first; the status is returned.
    place = _INT8.as_pointer()
    function = ir.FunctionType(_INT32, [place.as_pointer()] * 2 + [arg.type for arg in args])
    result, exception = (cgutils.alloca_once(builder, place) for _ in range(2))
    status = builder.call(pointer(builder, kernel, function), [result, exception, *args])
    raised = builder.icmp_signed(">", status, _INT32(0))
    return builder.select(raised, builder.ptrtoint(builder.load(exception), _INT64), _INT64(0))


def _raise_again(builder: ir.IRBuilder, exception: ir.Value) -> None:
    """Return from the function that is being built with the exception at an address, unless that is 0."""
    with cgutils.if_unlikely(builder, builder.icmp_unsigned("!=", exception, _INT64(0))):
        place = builder.function.args[1]
        builder.store(builder.inttoptr(exception, place.type.pointee), place)
        builder.ret(_INT32(1))


@intrinsic(types.void, types.int64, ADDRESS, ADDRESS, types.int64, types.int64)
def call_pointer(builder: ir.IRBuilder, kernel: ir.Value, *args: ir.Value) -> None:
    """Call the kernel at an address with its arguments, counter, step and end; propagate its exception."""
    _raise_again(builder, _exception_of(builder, kernel, *args))


call_catching = intrinsic(
    types.int64, types.int64, ADDRESS, ADDRESS, types.int64, types.int64,
    doc="Call as ``call_pointer``, but return the address of the exception that it raised, 0 for none.",
)(_exception_of)  # fmt: skip
raise_again = intrinsic(
    types.void, types.int64, doc="Raise an exception that ``call_catching`` returned; nothing for 0."
)(_raise_again)


@extending.intrinsic
def stack_alloc(typingctx: Any, size: Any) -> Any:
    """Return a pointer to this many bytes on the stack, 64-byte aligned; ``size`` is a constant."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        # Not alloca_once, which would zero the memory: 4 KiB cost LLVM seconds.
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(_INT8, size.literal_value))
        room.align = 64
        return pointer(builder, room, _INT8)

    return BYTES(size), emit
