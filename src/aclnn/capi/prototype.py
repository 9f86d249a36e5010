"""Table of C functions: each is written once, as a Python function with its C prototype.

``@c_function`` declares a function that returns a status: its implementation takes the C inputs in order, returns the
outputs and raises ``AclnnError``; its callers get ``status`` or ``(status, output, …)``. ``@c_value_function`` declares
any other function: callers get the value, or the type's null on an error. The parameters of a prototype that the
Python function lacks are the out-parameters.

``FUNCTIONS`` holds a record of each function; pyACL's names, C headers and C entry points are derived from it.
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
    """Error statuses of a C return type that any of its functions may return."""

    null: int
    """Status if an out-parameter is null."""
    miscounted: int
    """Status if an array's element count is negative or absurdly large."""
    internal: int
    """Status of an internal error."""


STATUS_TYPES = {
    "aclError": StatusType(ACL_ERROR_INVALID_PARAM, ACL_ERROR_INVALID_PARAM, CODES["ACL_ERROR_INTERNAL_ERROR"]),
    "aclnnStatus": StatusType(ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_INNER),
    "HcclResult": StatusType(*map(int, (HcclResult.HCCL_E_PTR, HcclResult.HCCL_E_PARA, HcclResult.HCCL_E_INTERNAL))),
}

HANDLES = (
    *("aclrtContext", "aclrtStream", "aclrtEvent", "aclrtNotify", "aclrtCntNotify"),
    *("aclrtDrvMemHandle", "aclmdlRI", "aclrtTaskGrp", "aclmdlRITask", "HcclComm"),
)
#: Types of pointers to functions of the program.
CALLBACKS = {
    "aclrtCallback": "void (*aclrtCallback)(void *userData)",
    "aclrtHostFunc": "void (*aclrtHostFunc)(void *args)",
    "aclInitCallbackFunc": "aclError (*aclInitCallbackFunc)(const char *configStr, size_t len, void *userData)",
    "aclFinalizeCallbackFunc": "aclError (*aclFinalizeCallbackFunc)(void *userData)",
}
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
# C enums are 32 bits wide and may hold any such number; each function checks its own arguments.
_ENUM = _INTEGERS["int32_t"]
_ADDRESSES = _INTEGERS["size_t"]
_TEARDOWN = re.compile(
    r"acl(rt|nn|op)?(Destroy|Finalize|Free|HostUnregister|Release|ResetDevice|SetCurrentContext|SetDevice$|Synchronize|"
    r"UnSubscribe|Unmap)|\w+Destroy$"
)

Converter = Callable[[Any], Any]
Converting = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class CParameter:
    """A parameter of a prototype."""

    name: str
    c_type: str
    """C type in the prototype, without spaces before the stars: ``const int64_t*``."""
    is_output: bool
    counted_by: str | None = None
    """Name of the parameter that holds the array's element count."""
    nullable: bool = False
    """True for an out-parameter for which the caller may pass null."""
    is_buffer: bool = False
    """True for an address, also in Python, at which text or a structure is read or written."""

    @property
    def element(self) -> str:
        """C type that the pointer refers to, without const."""
        return self.c_type.removeprefix("const ").removesuffix("*").removesuffix("const")

    @property
    def is_text(self) -> bool:
        """True for an input string."""
        return self.element == "char" and not self.is_output and not self.is_buffer

    @property
    def python_type(self) -> Any:
        """Python type of the argument or result."""
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
        """Result in Python if the call fails."""
        if self.counted_by is not None:
            return []
        return 0.0 if self.element in ("float", "double") else 0


@dataclass(frozen=True, eq=False)
class CFunction:
    """A C function. Properties are computed on demand: there are thousands of functions, mostly unused."""

    prototype: str
    implementation: Callable[..., Any]
    """Python function from the inputs in order to the outputs (None, one, or a tuple); raises AclnnError."""
    arrays: Mapping[str, str]
    """Array parameters, each mapped to the parameter with its element count."""
    nullable: Collection[str] = ()
    """Out-parameters for which a C caller may pass null."""
    buffers: Collection[str] = ()
    """Parameters with the address of text or of a structure that the function reads or writes."""
    given: Sequence[str] | None = None
    """Names of the inputs; None for those of the implementation's parameters."""
    null: Any = 0
    """Result of a function without a status if the call fails."""

    @property
    def name(self) -> str:
        """C name."""
        return _parts(self.prototype)[1]

    @property
    def returns(self) -> str:
        """C return type."""
        return _parts(self.prototype)[0]

    @property
    def returns_status(self) -> bool:
        """True if the return value is a status."""
        return self.returns in STATUS_TYPES

    @property
    def is_teardown(self) -> bool:
        """True for functions that destructors call: to release objects, and before that to select a device and wait."""
        return _TEARDOWN.match(self.name) is not None and not self.outputs

    @property
    def parameters(self) -> tuple[CParameter, ...]:
        """All parameters in C's order."""
        return _parameters(self)

    @property
    def inputs(self) -> tuple[CParameter, ...]:
        """Parameters that a Python caller passes."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_output)

    @property
    def outputs(self) -> tuple[CParameter, ...]:
        """Parameters returned to a Python caller."""
        return tuple(parameter for parameter in self.parameters if parameter.is_output)

    @property
    def accepted(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the implementation."""
        if self.given is None:
            return inspect.signature(self.implementation).parameters
        return {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.given}

    @property
    def signature(self) -> inspect.Signature:
        """Python signature, in which out-parameters follow the status."""
        return _signature(self)

    @property
    def statuses(self) -> StatusType:
        """Error statuses of the return type; aclnn's for a function that returns no status."""
        return STATUS_TYPES.get(self.returns, STATUS_TYPES["aclnnStatus"])

    def record_error(self, error: AclnnError) -> int:
        """Record an error for this thread's error queries, without a text if it has none, and return its code."""
        text = f"{self.name}: {error.message}" if error.function is None and error.message else error.message
        errors.record(error.code, text)
        return error.code


#: Every C function by name.
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
    """Declare a function that returns a status.

    Args:
        prototype: ``aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)``.
        arrays: see ``CFunction`` for this and the following.
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
                code = record.record_error(error)
                return (code, *failed) if failed else code
            if not failed:
                return 0
            return (0, outputs) if len(failed) == 1 else (0, *outputs)

        return _enter(record, call)

    return decorate


def c_value_function(
    prototype: str, *, arrays: Mapping[str, str] | None = None, null: Any = 0
) -> Callable[[Callable[P, A]], Callable[P, A]]:
    """Declare a function that does not return a status; ``null`` is its result if the call fails."""

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
                record.record_error(error)
                return cast(A, record.null)

        return _enter(record, call)

    return decorate


def _enter(record: CFunction, call: Callable[P, A]) -> Callable[P, A]:
    call.__name__ = call.__qualname__ = record.name  # one Python function may serve several C functions
    FUNCTIONS[record.name], _CALLS[record.name] = record, call
    return call


_PARAMETER = re.compile(r"(?P<c_type>.+?)(?P<name>\w+)")


@cache
def _parts(prototype: str) -> tuple[str, str, str]:
    """Split a prototype into its return type, name and parameter list."""
    # Not a regular expression: that takes ten times as long, in every program's start-up.
    head, _, rest = prototype.partition("(")
    returns = head.rstrip(f"{ascii_letters}{digits}_")
    name, parameters = head.removeprefix(returns), rest.removesuffix(")")
    if not (returns and name) or parameters == rest:
        raise ValueError(f"expected a C prototype, got {prototype!r}")
    return _normalized(returns), name, parameters


@cache
def _parameters(function: CFunction) -> tuple[CParameter, ...]:
    names, found = [*function.accepted], []
    for declared in filter(None, _parts(function.prototype)[2].removesuffix("void").split(",")):
        part = _PARAMETER.fullmatch(declared.strip())
        if part is None:
            raise ValueError(f"expected a C parameter, got {declared!r}")
        name, c_type = part["name"], _normalized(part["c_type"])
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
    """Return the Python callable of a C name, with signature, annotations and docstring.

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


def _normalized(c_type: str) -> str:
    # Const on a value, such as "const size_t", does not concern the caller.
    tidy = re.sub(r"\s*\*\s*", "*", c_type.strip())
    return tidy if "*" in tidy else tidy.removeprefix("const ")


def _conversion(record: CFunction) -> Converting:
    """Make a converter from Python arguments to C values: integers in range, addresses, tuples for arrays, text."""
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
        # Nearly all arguments are integers in range; this check takes half the time of individual conversion.
        for value, low, high in zip(args, lows, highs):  # noqa: B905  (one each; strict costs 0.1 µs)
            if type(value) is not int or not low <= value <= high:
                return convert_each(args)
        return args

    def convert_each(args: Sequence[Any]) -> Sequence[Any]:
        try:
            values = [converter(value) for converter, value in zip(converters, args, strict=True)]
        except (TypeError, ValueError, OverflowError):
            raise _argument_error(record, converters, args) from None
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


def _argument_error(record: CFunction, converters: Sequence[Converter], args: Sequence[Any]) -> Exception:
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
    """Return the range of integers that need no conversion; an empty one for arrays, text and floating-point types."""
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
