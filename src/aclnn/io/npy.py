"""NumPy's .npy, one array; bfloat16 as the two-byte void that NumPy makes of it."""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io.entry import MAX_DIMS, Array, Entry, entry_at, is_shape, pieces, refuse, single

_MAX_HEADER = 10_000

_DESCR = re.compile(r"([<>|=])(f2|f4|f8|i1|i2|i4|i8|u1|u2|u4|u8|b1|V2)")
_OTHER_DESCR = re.compile(r"[<|=][fcSUMmVO]\d{0,4}")


def read(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    """See ``aclnn.io.Form``."""
    with path.open("rb") as file:
        return {"": described(path, file, 0, size, dtype)}


def described(path: Path, file: BinaryIO, start: int, end: int, dtype: DataType | None) -> Entry:
    """The array from ``start`` to ``end``, whose header ``file`` stands at."""
    found, shape, fortran, length = header_of(path, file, dtype)
    entry, left = entry_at(path, found, shape, start + length, end, fortran), end - start - length
    if left != entry.nbytes:  # another array, say, appended to the first
        raise refuse(path, f"expected {entry.nbytes} bytes for {list(shape)} of {found.numpy_name}, got {left}")
    return entry


def header_of(path: Path, file: BinaryIO, dtype: DataType | None) -> tuple[DataType, tuple[int, ...], bool, int]:
    """Data type, shape, whether in Fortran order, and the length of the header that ``file`` stands at."""
    magic = file.read(8)
    if magic[:1] == b"\x80":
        raise refuse(path, "expected a .npy file, got a pickle: it could run code and is not opened")
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8 or magic[6] not in (1, 2, 3):
        raise refuse(path, "expected a .npy file of version 1 to 3")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _MAX_HEADER:
        raise refuse(path, f"expected a header of at most {_MAX_HEADER} bytes, got {length}")
    text = file.read(length)
    if len(text) != length:
        raise refuse(path, f"expected a header of {length} bytes, got {len(text)}")
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
        descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise refuse(path, "expected a .npy header with descr, fortran_order and shape") from error
    match = _DESCR.fullmatch(descr) if isinstance(descr, str) else None
    if match is None or (match[1] == ">" and match[2][1] != "1"):
        raise refuse(path, _unsuitable(descr))
    found = (dtype or DataType.BF16) if match[2] == "V2" else DataType.of_numpy(np.dtype(match[2]))
    if found.numpy.itemsize != int(match[2][1]):
        raise refuse(path, f"expected elements of 2 bytes, got a dtype of {found.numpy.itemsize}")
    if not isinstance(fortran, bool) or not is_shape(shape):
        raise refuse(path, f"expected a tuple of at most {MAX_DIMS} extents, got {str(shape)[:80]}")
    return found, tuple(shape), fortran, 8 + width + length


def _unsuitable(descr: object) -> str:
    if isinstance(descr, str) and descr[:1] == ">":
        return f"expected little-endian numbers, got data type {descr!r}"
    note = " (objects are never unpickled)" if descr == "|O" else ""
    return f"expected float32, float16, bfloat16, float64, integers or bool, got {_name_of(descr)}{note}"


def _name_of(descr: object) -> str:
    """NumPy's name of a data type that is not read here; anything else as it stands."""
    if isinstance(descr, str) and _OTHER_DESCR.fullmatch(descr):
        with suppress(TypeError):
            return str(np.dtype(descr).name)
    return repr(descr)[:80]


def write(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """See ``aclnn.io.Form``."""
    array = single(path, tensors)
    file.write(head(path, array))
    file.writelines(pieces(array))


def head(path: Path, array: Array) -> bytes:
    """The header of an array's file."""
    descr = "<V2" if array.dtype.name == "bfloat16" else array.dtype.str
    if not _DESCR.fullmatch(descr):
        raise refuse(path, f"expected a data type that can be read back, got {array.dtype}")
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {array.shape}, }}"
    padded = text + " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()
