"""Tensors in files: .npy, .npz, .safetensors, .pt and raw .bin, read and written by the formats' own libraries.

No code in a file is run. The sizes in a header are checked against the size of the file before memory is allocated, and
.npy, .pt and raw files are memory-mapped. Files are written to a temporary name and renamed, so that readers never see
a partial file.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io import npy, pt, raw, safetensors
from aclnn.io.common import FileError, Loader, element_type, errors_of
from aclnn.support.atomic import replace_all
from aclnn.typing import Array

__all__ = [
    "CONTAINERS", "SUFFIXES", "FileError", "Loader", "entries", "name_in", "read", "replace_all", "write", "write_all",
]  # fmt: skip


class Reader(Protocol):
    """Lists the tensors of a file of one format by name, each with a function that reads it."""

    def __call__(self, path: Path, dtype: DataType | None, shape: Sequence[int] | None, /) -> dict[str, Loader]:
        """List the tensors, with ``dtype`` and ``shape`` as for ``entries``; raise any error for a damaged file."""


class Writer(Protocol):
    """Writes a file of one format."""

    def __call__(self, file: BinaryIO, tensors: Mapping[str, Array], /) -> None:
        """Write the tensors.

        Raises:
            ValueError: the format cannot hold them.
        """


_FORMATS: dict[str, tuple[Reader, Writer]] = {
    ".npy": (npy.read_npy, npy.write_npy),
    ".npz": (npy.read_npz, npy.write_npz),
    ".safetensors": (safetensors.read, safetensors.write),
    ".pt": (pt.read, pt.write),
    ".pth": (pt.read, pt.write),
    ".bin": (raw.read, raw.write),
    ".raw": (raw.read, raw.write),
}
SUFFIXES = tuple(_FORMATS)
"""File name suffixes of the formats."""
CONTAINERS = (".npz", ".safetensors", ".pt", ".pth")
"""Suffixes of the formats that hold tensors by name."""
_NAMELESS = {".npz": "arr_0", ".safetensors": "tensor"}


def _format_of(path: Path) -> tuple[Reader, Writer]:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise FileError(f"{path}: expected one of {', '.join(SUFFIXES)}, got {path.suffix or 'no suffix'}")
    return found


def entries(
    path: str | os.PathLike[str], dtype: DataType | str | None = None, shape: Sequence[int] | None = None
) -> dict[str, Loader]:
    """List the tensors of a file by name, each with a function that reads it; a tensor without a name has the key "".

    Args:
        path: a file with the suffix .npy, .npz, .safetensors, .pt, .pth, .bin or .raw.
        dtype: required for raw files; for others, the meaning of a two-byte void (bfloat16 as NumPy stores it).
        shape: shape of the tensor in a raw file, by default flat; in other formats it must match the stored shape,
            unless the stored array is flat.

    Raises:
        FileError: the file is unreadable, damaged, or of an unknown format; also raised by the functions.
        MissingExtraError: PyTorch is missing for .pt, or the package safetensors for .safetensors.
    """
    path, wanted = Path(path), _data_type(dtype)
    reader, _ = _format_of(path)
    with errors_of(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("expected a regular file")
        found = reader(path, wanted, shape)
    return {name: partial(_load, path, load, wanted, shape) for name, load in found.items()}


def _load(path: Path, load: Loader, dtype: DataType | None, shape: Sequence[int] | None) -> Array:
    with errors_of(path):
        stored = load()
        array = stored.view(element_type(stored.dtype, dtype))
        if shape is not None and array.shape == (math.prod(shape),):
            array = array.reshape(shape)
        if shape is not None and array.shape != tuple(shape):
            raise ValueError(f"expected shape {list(shape)}, got {list(array.shape)}")
        return array if array.flags.aligned else array.copy()


def read(
    path: str | os.PathLike[str],
    name: str | None = None,
    dtype: DataType | str | None = None,
    shape: Sequence[int] | None = None,
) -> Array:
    """Read one tensor of a file; a memory-mapped tensor is read-only.

    Args:
        path: the file.
        name: name of the tensor; optional if the file holds only one.
        dtype: as for ``entries``.
        shape: as for ``entries``.

    Raises:
        FileError: as ``entries``; or the file has no such tensor, or several and ``name`` is None.
    """
    found = entries(path, dtype, shape)
    if name is None and len(found) != 1:
        raise FileError(f"{path}: expected a tensor's name, one of {', '.join(sorted(found)) or 'none'}")
    name = next(iter(found)) if name is None else name
    if name not in found:
        raise FileError(f"{path}: expected a tensor named {name!r}, got {', '.join(sorted(found)) or 'none'}")
    return found[name]()


def write(path: str | os.PathLike[str], tensors: Array | Mapping[str, Array]) -> None:
    """Write one array, or several by name, in the format that the suffix names; replace the file atomically.

    A tensor without a name becomes arr_0 in .npz, as in NumPy, and tensor in .safetensors.

    Raises:
        FileError: an unknown suffix, several tensors for a format that holds one, a duplicate name, or a data type or
            name that the format cannot hold.
    """
    write_all({Path(path): tensors})


def write_all(contents: Mapping[Path, Array | Mapping[str, Array]]) -> None:
    """Write several files as ``write`` does; if one cannot be written, every file stays unchanged.

    Raises:
        FileError: as ``write``.
    """
    try:
        replace_all({path: _bytes_of(path, tensors) for path, tensors in contents.items()})
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}") from error


def _bytes_of(path: Path, tensors: Array | Mapping[str, Array]) -> Callable[[BinaryIO], None]:
    _, writer = _format_of(path)
    named = tensors if isinstance(tensors, Mapping) else {"": tensors}
    checked: dict[str, Array] = {}
    with errors_of(path):
        for given, array in named.items():
            name = name_in(path, given)
            if name in checked:
                raise ValueError(f"expected every name once, got {name!r} again")
            checked[name] = np.asarray(array)
            DataType.of_numpy(checked[name].dtype)

    def write_to(file: BinaryIO) -> None:
        with errors_of(path):
            writer(file, checked)

    return write_to


def name_in(path: Path, name: str) -> str:
    """Return a tensor's name in a file; some formats have a default name."""
    return name or _NAMELESS.get(path.suffix.lower(), "")


def _data_type(dtype: DataType | str | None) -> DataType | None:
    if dtype is None or isinstance(dtype, DataType):
        return dtype
    for candidate in DataType:
        if candidate.numpy_name == dtype:
            return candidate
    raise FileError(f"expected a data type such as float32, float16 or bfloat16, got {dtype!r}")
