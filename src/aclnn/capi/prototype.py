"""The table of C functions: each is written once, as a Python function under its C prototype.

``@c_function`` is for those that return a status: the Python function takes the C inputs in order, returns the outputs
and raises ``AclnnError``; its callers get ``status`` or ``(status, output, …)``. ``@c_value_function`` is for the
others: callers get the value, or the type's null when it was refused. What a prototype's parameter list has beyond the
Python function's are the out-parameters.

``FUNCTIONS`` holds a record of each: pyACL's names, the C headers and the C entry points follow from it.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import ascii_letters, digits
from types import GenericAlias
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACLNN_ERR_INNER,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    CODES,
    AclnnError,
    HcclResult,
)
from aclnn.runtime import errors

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
One = TypeVar("One", int, float)


class StatusType(NamedTuple):
    """Statuses that every function of a C type may return."""

    null: int
    """An out-parameter is null."""
    miscounted: int
    """An array has less than no elements, or more than a program can mean."""
    internal: int
    """Something failed inside of the function."""


STATUS_TYPES = {
    "aclError": StatusType(ACL_ERROR_INVALID_PARAM, ACL_ERROR_INVALID_PARAM, CODES["ACL_ERROR_INTERNAL_ERROR"]),
    "aclnnStatus": StatusType(ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_INNER),
    "HcclResult": StatusType(*map(int, (HcclResult.HCCL_E_PTR, HcclResult.HCCL_E_PARA, HcclResult.HCCL_E_INTERNAL))),
}

HANDLES = (
    *("aclrtContext", "aclrtStream", "aclrtEvent", "aclrtNotify", "aclrtCntNotify"),
    *("aclrtDrvMemHandle", "aclmdlRI", "aclrtTaskGrp", "aclmdlRITask", "HcclComm"),
)
#: Pointers to functions of a program, each ``void (*)(void *)``.
CALLBACKS = ("aclrtCallback", "aclrtHostFunc")
_INTEGERS = {
    "bool": (0, 1),
    "aclFloat16": (0, 2**16 - 1),
    "int8_t": (-(2**7), 2**7 - 1),
    "uint8_t": (0, 2**8 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "uint32_t": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "uint64_t": (0, 2**64 - 1),
    "size_t": (0, 2**64 - 1),
}
# C's enums are 32 bits wide and take any such number; each function judges what it gets.
_ENUM = _INTEGERS["int32_t"]
_ADDRESSES = _INTEGERS["size_t"]

Converter = Callable[[Any], Any]
Converting = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class CParameter:
    """A parameter of a prototype."""

    name: str
    c_type: str
    """The C type in the prototype, without spaces before the stars: ``const int64_t*``."""
    is_output: bool
    counted_by: str | None = None
    """The parameter that holds an array's number of elements."""
    nullable: bool = False
    """True for an out-parameter that may be null, where the caller does not want it."""
    is_buffer: bool = False
    """Text or a structure is read or written there: its address is what crosses, in Python too."""

    @property
    def element(self) -> str:
        """The type behind one star, without const."""
        return self.c_type.removeprefix("const ").removesuffix("*").removesuffix("const")

    @property
    def is_text(self) -> bool:
        """True for a string that the callee reads."""
        return self.element == "char" and not self.is_output and not self.is_buffer

    @property
    def python_type(self) -> Any:
        """The Python type of an input's argument or an output's result."""
        if self.is_text:
            return str | bytes | None
        kind: Any = float if self.element in ("float", "double") else int
        if self.is_output:
            return kind if self.counted_by is None else GenericAlias(list, kind)
        if self.counted_by is not None:
            return GenericAlias(Sequence, kind | None if _is_address(self.element) else kind) | None
        return kind | None if _is_address(self.c_type) else kind

    @property
    def zero(self) -> Any:
        """Python's value for a call that was refused."""
        if self.counted_by is not None:
            return []
        return 0.0 if self.element in ("float", "double") else 0


@dataclass(frozen=True, eq=False)
class CFunction:
    """A C function. There are thousands: of most nothing but the name is ever wanted."""

    prototype: str
    implementation: Callable[..., Any]
    """Takes the inputs in order, returns the outputs (None, one, or a tuple), raises AclnnError."""
    arrays: Mapping[str, str]
    """Parameters that are arrays, with the parameter that counts their elements."""
    nullable: Collection[str] = ()
    """Out-parameters for which a C caller may pass null."""
    buffers: Collection[str] = ()
    """Parameters at whose address the function reads or writes text or a structure."""
    given: Sequence[str] | None = None
    """The names of the inputs; None for those of the implementation's parameters."""
    null: Any = 0
    """What a function without a status returns when the call was refused."""

    @property
    def name(self) -> str:
        """Its C name."""
        return _parts(self.prototype)[1]

    @property
    def returns(self) -> str:
        """The C return type."""
        return _parts(self.prototype)[0]

    @property
    def returns_status(self) -> bool:
        """True where the return value is a status."""
        return self.returns in STATUS_TYPES

    @property
    def parameters(self) -> tuple[CParameter, ...]:
        """All of them, in C's order."""
        return _parameters(self)

    @property
    def inputs(self) -> tuple[CParameter, ...]:
        """The parameters that a Python caller gives."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_output)

    @property
    def outputs(self) -> tuple[CParameter, ...]:
        """The parameters that a Python caller gets."""
        return tuple(parameter for parameter in self.parameters if parameter.is_output)

    @property
    def accepted(self) -> Mapping[str, inspect.Parameter]:
        """The implementation's parameters."""
        if self.given is None:
            return inspect.signature(self.implementation).parameters
        return {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.given}

    @property
    def signature(self) -> inspect.Signature:
        """The signature in Python, where out-parameters follow the status."""
        return _signature(self)

    @property
    def statuses(self) -> StatusType:
        """The statuses of its type; aclnn's for a function that returns none."""
        return STATUS_TYPES.get(self.returns, STATUS_TYPES["aclnnStatus"])

    def refuse(self, error: AclnnError) -> int:
        """Record an error for this thread's error queries, and return its code."""
        text = f"{self.name}: {error.message}" if error.function is None else error.message
        errors.record(error.code, text)
        return error.code


#: Every C function by name: what it is, and how Python calls it.
FUNCTIONS: dict[str, CFunction] = {}
_CALLS: dict[str, Callable[..., Any]] = {}


class _StatusDecorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, None], /) -> Callable[P, int]: ...
    @overload
    def __call__(self, function: Callable[P, tuple[A, B]], /) -> Callable[P, tuple[int, A, B]]: ...
    @overload
    def __call__(self, function: Callable[P, tuple[A, B, C]], /) -> Callable[P, tuple[int, A, B, C]]: ...
    @overload
    def __call__(self, function: Callable[P, One], /) -> Callable[P, tuple[int, One]]: ...


def c_function(
    prototype: str,
    *,
    arrays: Mapping[str, str] | None = None,
    nullable: Collection[str] = (),
    buffers: Collection[str] = (),
    given: Sequence[str] | None = None,
) -> _StatusDecorator:
    """Enter a function that returns a status.

    Args:
        prototype: ``aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)``.
        arrays: see ``CFunction``, as of what follows.
        nullable: out-parameters.
        buffers: parameters.
        given: names of the inputs.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        record = CFunction(prototype, function, arrays or {}, nullable, buffers, given)
        convert: Converting | None = None
        failed: tuple[Any, ...] = ()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal convert, failed
            if convert is None:
                failed = tuple(parameter.zero for parameter in record.outputs)
                convert = _conversion(record)
            values = convert(args, kwargs)
            try:
                outputs = function(*values)
            except AclnnError as error:
                code = record.refuse(error)
                return (code, *failed) if failed else code
            if not failed:
                return 0
            return (0, outputs) if len(failed) == 1 else (0, *outputs)

        return _enter(record, call)

    return decorate


def c_value_function(
    prototype: str, *, arrays: Mapping[str, str] | None = None, null: Any = 0
) -> Callable[[Callable[P, A]], Callable[P, A]]:
    """Enter a function that returns something else; ``null`` is what it returns when the call was refused."""

    def decorate(function: Callable[P, A]) -> Callable[P, A]:
        record = CFunction(prototype, function, arrays or {}, null=null)
        convert: Converting | None = None

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> A:
            nonlocal convert
            if convert is None:
                convert = _conversion(record)
            values = convert(args, kwargs)
            try:
                return cast(A, record.implementation(*values))
            except AclnnError as error:
                record.refuse(error)
                return cast(A, record.null)

        return _enter(record, call)

    return decorate


def _enter(record: CFunction, call: Callable[P, A]) -> Callable[P, A]:
    call.__name__ = call.__qualname__ = record.name  # one Python function may be entered under several
    FUNCTIONS[record.name], _CALLS[record.name] = record, call
    return call


_PARAMETER = re.compile(r"(?P<c_type>.+?)(?P<name>\w+)")


@cache
def _parts(prototype: str) -> tuple[str, str, str]:
    """Return the C type, the name and the list of parameters of a prototype."""
    # A regular expression takes ten times as long, at the start of every program.
    head, _, rest = prototype.partition("(")
    returns = head.rstrip(f"{ascii_letters}{digits}_")
    name, parameters = head.removeprefix(returns), rest.removesuffix(")")
    if not (returns and name) or parameters == rest:
        raise ValueError(f"expected a C prototype, got {prototype!r}")
    return _tidy(returns), name, parameters


@cache
def _parameters(function: CFunction) -> tuple[CParameter, ...]:
    names, found = [*function.accepted], []
    for declared in filter(None, _parts(function.prototype)[2].removesuffix("void").split(",")):
        part = _PARAMETER.fullmatch(declared.strip())
        if part is None:
            raise ValueError(f"expected a C parameter, got {declared!r}")
        name, c_type = part["name"], _tidy(part["c_type"])
        is_output = name not in names
        if is_output and (not c_type.endswith("*") or "const" in c_type):
            raise ValueError(f"{function.name}: expected an out-parameter or an input of {names}, got {declared!r}")
        counted_by, nullable, is_buffer = function.arrays.get(name), name in function.nullable, name in function.buffers
        found.append(CParameter(name, c_type, is_output, counted_by, nullable, is_buffer))
    if [parameter.name for parameter in found if not parameter.is_output] != names:
        raise ValueError(f"expected the inputs of {function.prototype!r} in order, got {names}")
    return tuple(found)


@cache
def _signature(function: CFunction) -> inspect.Signature:
    accepted = function.accepted
    inputs = [accepted[p.name].replace(annotation=p.python_type) for p in function.inputs]
    if function.returns_status:
        outputs = tuple(p.python_type for p in function.outputs)
        returns = GenericAlias(tuple, (int, *outputs)) if outputs else int
    else:
        returns = get_type_hints(function.implementation)["return"]
    return inspect.Signature(inputs, return_annotation=returns)


@cache
def call_of(name: str) -> Callable[..., Any]:
    """Return what Python calls by a C name, described as Python calls it.

    Raises:
        KeyError: there is no such function.
    """
    record, call = FUNCTIONS[name], _CALLS[name]
    call.__signature__ = record.signature  # type: ignore[attr-defined]  # inspect honours it
    types = {name: parameter.annotation for name, parameter in record.signature.parameters.items()}
    call.__annotations__ = types | {"return": record.signature.return_annotation}
    if record.outputs:
        results = ", ".join(parameter.name for parameter in record.outputs)
        call.__doc__ = f"{inspect.getdoc(record.implementation)}\n\nReturns ``(ret, {results})``."
    return call


def _tidy(c_type: str) -> str:
    # A const value, such as "const size_t", is the callee's own affair.
    tidy = re.sub(r"\s*\*\s*", "*", c_type.strip())
    return tidy if "*" in tidy else tidy.removeprefix("const ")


def _conversion(record: CFunction) -> Converting:
    """Make a converter from Python arguments to C's values: integers in range, addresses, tuples for arrays, text."""
    inputs = record.inputs
    converters = [_converter(parameter) for parameter in inputs]
    names = [parameter.name for parameter in inputs]
    arrays = [
        (at, names.index(parameter.counted_by))
        for at, parameter in enumerate(inputs)
        if parameter.counted_by is not None
    ]
    ranges = [_range_of(parameter) for parameter in inputs]
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]

    def convert(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if kwargs or len(args) != len(converters):
            try:
                bound = record.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{record.name}: {error}") from None
            bound.apply_defaults()
            args = bound.args
        # Nearly every argument of nearly every call is an int in range: half the time of converting one by one.
        for value, low, high in zip(args, lows, highs):  # noqa: B905  (one each; strict costs 0.1 µs)
            if type(value) is not int or not low <= value <= high:
                return convert_each(args)
        return args

    def convert_each(args: Sequence[Any]) -> Sequence[Any]:
        try:
            values = [converter(value) for converter, value in zip(converters, args, strict=True)]
        except (TypeError, ValueError, OverflowError):
            raise _complaint(record, converters, args) from None
        for at, counter in arrays:
            values[at] = _counted(record, at, values[at], values[counter])
        return values

    return convert


def _counted(record: CFunction, at: int, elements: tuple[Any, ...] | None, count: int) -> tuple[Any, ...] | None:
    if elements is None:
        return None
    if not 0 <= count <= len(elements):
        parameter = record.inputs[at]
        raise ValueError(
            f"{record.name}: {parameter.counted_by}: expected from 0 to the {len(elements)} elements of "
            f"{parameter.name}, got {count}"
        )
    return elements[:count]


def _complaint(record: CFunction, converters: Sequence[Converter], args: Sequence[Any]) -> Exception:
    for parameter, converter, value in zip(record.inputs, converters, args, strict=True):
        try:
            converter(value)
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            return kind(f"{record.name}: {parameter.name}: expected {parameter.c_type}, got {value!r}")
    raise AssertionError("one of the arguments is wrong")


def _converter(parameter: CParameter) -> Converter:
    if parameter.counted_by is not None:
        return _array_of(_scalar(parameter.element))
    return _text if parameter.is_text else _scalar(parameter.c_type)


def _is_address(c_type: str) -> bool:
    return c_type.endswith("*") or c_type in HANDLES or c_type in CALLBACKS


def _range_of(parameter: CParameter) -> tuple[int, int]:
    """Integers that are C's value as they stand; none for arrays, text and floating-point numbers."""
    if parameter.counted_by is not None or parameter.is_text or parameter.element in ("float", "double"):
        return 1, 0
    return _range_of_type(parameter.c_type)


def _range_of_type(c_type: str) -> tuple[int, int]:
    return _ADDRESSES if _is_address(c_type) else _INTEGERS.get(c_type, _ENUM)


def _scalar(c_type: str) -> Converter:
    if c_type in ("float", "double"):
        return float
    is_address = _is_address(c_type)
    low, high = _range_of_type(c_type)

    def integer(value: Any) -> int:
        if value is None and is_address:
            return 0
        number = operator.index(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return integer


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return os.fsdecode(value)
    raise TypeError


def _array_of(element: Converter) -> Converter:
    def convert(value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return None if value is None else tuple(map(element, value))

    return convert
