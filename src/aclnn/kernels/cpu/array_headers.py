"""Recognise NumPy arrays by their headers in compiled code, faster than their attributes are read (docs/tuning.md).

A header is ``PyArrayObject_fields`` of NumPy's stable ABI, which follows the header of every Python object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numba.cpython.unsafe.tuple import tuple_setitem

from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.structs import Address, Int32, Int64, To, address, bytes_at, declared, pointer_to


@declared
class Header(ctypes.Structure):
    """An array's header, from ``data`` on."""

    data: Address
    ndim: Int32
    shape: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    strides: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    base: Int64
    dtype: Address
    flags: Int32


_header_at, _words_at, _objects_at = pointer_to(Header), pointer_to(ctypes.c_int64), pointer_to(ctypes.c_void_p)

_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE
_KIND = _HEAD + 8
"""Offset within a data type of the word that holds kind, character, byte order, flags and number, which distinguishes
numeric types. Equal data types may be different objects, after unpickling for instance."""
_LENGTH, _ITEMS = _HEAD, tuple.__basicsize__

_ABSENT = -1
"""Number of dimensions that stands for None."""


def _match(count: int) -> Callable[..., Any]:
    """Make a function that compares the headers of ``count`` tuple items with the recorded ones."""
    nothing = (0,) * (count + 2)

    def match(arrays: int, expected: int) -> Any:
        if _words_at(arrays + _LENGTH)[0] != count:
            return nothing
        found, objects, words = nothing, _objects_at(bytes_at(arrays) + _ITEMS), _words_at(expected)
        for i in range(count):
            array, ndim = objects[i], words[1]
            if _words_at(array + _TYPE)[0] != words[0]:
                return nothing
            words = words + 2
            if ndim == _ABSENT:
                continue
            header = _header_at(array + _HEAD)
            if (
                header.ndim != ndim
                or _words_at(header.dtype + _KIND)[0] != words[0]
                or header.flags & _WRITEABLE != words[1]
            ):
                return nothing
            for d in range(ndim):
                words = words + 2
                if header.shape[d] != words[0] or header.strides[d] != words[1]:
                    return nothing
            words = words + 2
            found = tuple_setitem(found, i + 1, address(header.data))
        return tuple_setitem(found, count + 1, 1)

    return match


class Headers:
    """See ``aclnn.kernels.headers``."""

    __slots__ = ("_at", "_match", "_words")

    def __init__(self, arrays: tuple[np.ndarray[Any, Any] | None, ...]) -> None:
        words = []
        for array in arrays:
            if array is None:
                words += [id(type(None)), _ABSENT]
            else:
                kind = ctypes.c_int64.from_address(id(array.dtype) + _KIND).value
                words += [id(np.ndarray), array.ndim, kind, array.flags.writeable * _WRITEABLE]
                words += [number for axis in zip(array.shape, array.strides, strict=True) for number in axis]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self._at = ctypes.addressof(self._words)
        # With the GIL, so that no other thread changes an array's header concurrently.
        self._match = kernel(f"headers-{len(arrays)}", (), lambda: _match(len(arrays)), nogil=False)

    def match(self, arrays: tuple[Any, ...]) -> tuple[int, ...]:
        """See ``aclnn.kernels.Headers.match``."""
        found: tuple[int, ...] = self._match(id(arrays), self._at)
        return found
