"""Recognise NumPy arrays by their headers in compiled code, faster than their attributes are read (docs/tuning.md).

A header is what NumPy's stable ABI calls ``PyArrayObject_fields``, and follows what every Python object begins with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cpython.unsafe.tuple import tuple_setitem

from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.structs import load_one_int64, load_one_uint32

_WORD = 8
_TYPE = object.__basicsize__ - _WORD
_DATA, _NDIM, _SHAPE, _STRIDES, _, _DTYPE, _FLAGS = range(object.__basicsize__, object.__basicsize__ + 7 * _WORD, _WORD)
_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE
_KIND = object.__basicsize__ + _WORD
"""In a data type: kind, character, byte order, flags and number, one word that tells numbers' types from one another.
Equal data types need not be the same object: one that was unpickled is not."""
_LENGTH, _ITEMS = object.__basicsize__, tuple.__basicsize__

_ABSENT = -1
"""The number of dimensions of None."""


def _match(count: int) -> Callable[..., Any]:
    """Compare the headers of a tuple's items, ``count`` of them, with what is expected of them."""
    nothing = (0,) * (count + 2)

    def match(arrays: int, expected: int) -> Any:
        if load_one_int64(arrays + _LENGTH) != count:
            return nothing
        found = nothing
        for i in range(count):
            array = load_one_int64(arrays + _ITEMS + _WORD * i)
            ndim = load_one_int64(expected + _WORD)
            if load_one_int64(array + _TYPE) != load_one_int64(expected):
                return nothing
            expected += 2 * _WORD
            if ndim == _ABSENT:
                continue
            if (
                load_one_uint32(array + _NDIM) != ndim
                or load_one_int64(load_one_int64(array + _DTYPE) + _KIND) != load_one_int64(expected)
                or load_one_uint32(array + _FLAGS) & _WRITEABLE != load_one_int64(expected + _WORD)
            ):
                return nothing
            expected += 2 * _WORD
            shape, strides = load_one_int64(array + _SHAPE), load_one_int64(array + _STRIDES)
            for at in range(0, ndim * _WORD, _WORD):
                if load_one_int64(shape + at) != load_one_int64(expected):
                    return nothing
                if load_one_int64(strides + at) != load_one_int64(expected + _WORD):
                    return nothing
                expected += 2 * _WORD
            found = tuple_setitem(found, i + 1, load_one_int64(array + _DATA))
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
        # With the GIL, so that no other thread describes an array anew meanwhile.
        self._match = kernel(f"headers-{len(arrays)}", (), lambda: _match(len(arrays)), nogil=False)

    def match(self, arrays: tuple[Any, ...]) -> tuple[int, ...]:
        """See ``aclnn.kernels.Headers.match``."""
        found: tuple[int, ...] = self._match(id(arrays), self._at)
        return found
