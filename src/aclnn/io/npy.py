"""NumPy's .npy, one array, and .npz, a zip archive of arrays; bfloat16 is stored as a two-byte void, as in NumPy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from aclnn.core.dtypes import DataType
from aclnn.io.common import Loader, element_type, expect_bytes, expect_small, only, row_major_bytes
from aclnn.typing import Array


def read_npy(path: Path, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Loader]:
    """Read a file as ``aclnn.io.Reader`` says."""
    return {"": lambda: _mapped(path, dtype)}


def _mapped(path: Path, dtype: DataType | None) -> Array:
    with path.open("rb") as file:
        shape, order, found = _header(file, path.stat().st_size, dtype)
        return np.memmap(path, found, "r", file.tell(), shape, order)


def _header(file: IO[bytes], size: int, dtype: DataType | None) -> tuple[tuple[int, ...], Any, np.dtype[Any]]:
    """Read shape, order and data type from a file of ``size`` bytes, up to the start of the elements."""
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):  # version 3 only adds structured types
        raise ValueError(f"expected version 1 or 2 of the .npy format, got {version[0]}")
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, fortran, stored = read(file)
    found = element_type(stored, dtype)
    expect_bytes(shape, found, size - file.tell())
    return shape, "F" if fortran else "C", found


def write_npy(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a file as ``aclnn.io.Writer`` says."""
    _write(file, only(tensors))


def _write(file: IO[bytes], array: Array) -> None:
    if array.dtype.isbuiltin != 1:
        if array.dtype != DataType.BF16.numpy:
            raise ValueError(f"expected a data type that can be read back, got {array.dtype}")
        array = array.view("V2")
    header = {"descr": npy_format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy_format.write_array_header_1_0(file, header)
    file.write(row_major_bytes(array))


def read_npz(path: Path, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Loader]:
    """Read a file as ``aclnn.io.Reader`` says."""
    archive = zipfile.ZipFile(path)
    return {
        info.filename.removesuffix(".npy"): partial(_member, archive, info, dtype)
        for info in archive.infolist()
        if info.filename.endswith(".npy")
    }


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, dtype: DataType | None) -> Array:
    expect_small(info.filename, info.file_size, info.compress_size)
    with archive.open(info) as file:
        shape, order, found = _header(file, info.file_size, dtype)
        return np.frombuffer(file.read(), found).reshape(shape, order=order)


def write_npz(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a file as ``aclnn.io.Writer`` says."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in tensors.items():
            if "\0" in name:  # zip archives end names at NUL
                raise ValueError(f"expected a name without NUL, got {name!r}")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, array)
