"""The toolkit's libraries through ctypes, as a Python program independent of this package uses them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.core.operator import Kind, Operator
from aclnn.core.tensor import contiguous_strides
from aclnn.toolkit.abi import parameter_type, result_type

_NUMBERS: Mapping[str, Any] = {
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "uintptr_t": ctypes.c_void_p,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "const char *": ctypes.c_char_p,
}


def ctype(border_type: str) -> Any:
    """Return a type's ctypes type: numbers as they are, pointers as addresses (null, a ctypes array or byref())."""
    return _NUMBERS.get(border_type, ctypes.c_void_p)


def load(root: Path, name: str = "opapi") -> ctypes.CDLL:
    """Load a library of the tree and declare the functions' types; each library finds the symbols of all."""
    library = ctypes.CDLL(str(root / "lib64" / f"lib{name}.so"))
    for function in FUNCTIONS.values():
        declare(library, function)
    return library


def declare(library: ctypes.CDLL, function: CFunction) -> None:
    entry = getattr(library, function.name)
    entry.argtypes = [ctype(parameter_type(parameter)) for parameter in function.parameters]
    entry.restype = ctype(result_type(function))


def int64s(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def tensor(
    library: ctypes.CDLL,
    dtype: int,
    shape: Sequence[int],
    address: int = 0,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    format: int = 2,
) -> int:
    """Create a tensor; return its handle."""
    dims = int64s(shape)
    steps = int64s(contiguous_strides(shape) if strides is None else strides)
    handle = library.aclCreateTensor(dims, len(shape), dtype, steps, offset, format, dims, len(shape), address)
    assert handle
    return int(handle)


def argument(library: ctypes.CDLL, kind: Kind, value: Any) -> Any:
    """Return an operator's argument as C takes it: None, a number, a string, or the handle of an array."""
    if value is None:
        return None
    if kind is Kind.INT_ARRAY:
        return library.aclCreateIntArray(int64s(value), len(value))
    if kind is Kind.BOOL_ARRAY:
        return library.aclCreateBoolArray((ctypes.c_bool * max(len(value), 1))(*value), len(value))
    if kind is Kind.SCALAR:
        return library.aclCreateScalar(value.data, value.dtype)
    return value.encode() if kind is Kind.STRING else value


def first_phase(library: ctypes.CDLL, operator: Operator, arguments: Sequence[Any]) -> tuple[int, int, int | None]:
    """Call the first phase; return status, workspace size and executor."""
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    entry = getattr(library, f"{operator.function}GetWorkspaceSize")
    status = entry(*arguments, ctypes.byref(size), ctypes.byref(executor))
    return status, size.value, executor.value


def recent_error(library: ctypes.CDLL) -> str:
    """Return this thread's most recent error message; there must be one."""
    text = library.aclGetRecentErrMsg()
    assert text, "an error without a message"
    return str(text.decode()).split("\n")[0]
