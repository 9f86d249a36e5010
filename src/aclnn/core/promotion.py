"""Type promotion of two tensors, by the documented table."""

from __future__ import annotations

from aclnn.core.dtypes import DataType as D

_COMPLEX = (D.COMPLEX32, D.COMPLEX64, D.COMPLEX128)
_FLOATING = (D.FLOAT16, D.BF16, D.FLOAT, D.DOUBLE)
# From narrow to wide; uint8 counts as narrower than int16.
_INTEGERS = (D.BOOL, D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64)
_ALONE = (D.UINT16, D.UINT32, D.UINT64)
_COMPLEX_OF = {D.DOUBLE: D.COMPLEX128, D.FLOAT: D.COMPLEX64}


def _rank(dtype: D) -> int | None:
    for rank, group in enumerate(((D.BOOL,), (*_INTEGERS, *_ALONE), _FLOATING, _COMPLEX)):
        if dtype in group:
            return rank
    return None


def castable(source: D, target: D) -> bool:
    """Return True if values convert implicitly: within or upwards in the order BOOL, integers, floats, complex."""
    first, second = _rank(source), _rank(target)
    return source == target or (first is not None and second is not None and first <= second)


def is_floating(dtype: D) -> bool:
    """Return True for real floating-point types of at least 16 bits."""
    return dtype in _FLOATING


def is_integer(dtype: D) -> bool:
    """Return True for integer types, which exclude BOOL."""
    return dtype != D.BOOL and dtype in (*_INTEGERS, *_ALONE)


def promote(first: D, second: D) -> D | None:
    """Return the data type to which both promote, None if the table has no entry."""
    if first == second:
        return first if first in (*_COMPLEX, *_FLOATING, *_INTEGERS, *_ALONE) else None
    pair = {first, second}
    if not pair <= {*_COMPLEX, *_FLOATING, *_INTEGERS}:
        return None
    if pair & set(_COMPLEX):
        return max((d if d in _COMPLEX else _COMPLEX_OF.get(d, D.COMPLEX32) for d in pair), key=_COMPLEX.index)
    floats = pair & set(_FLOATING)
    if len(floats) == 2:
        return D.DOUBLE if D.DOUBLE in floats else D.FLOAT
    if floats:
        return floats.pop()
    if pair == {D.INT8, D.UINT8}:
        return D.INT16
    return max(pair, key=_INTEGERS.index)
