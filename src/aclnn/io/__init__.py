"""Tensors in files: .npy, .npz, .safetensors, .pt and raw .bin, read without running or trusting anything in them.

Every size in a header is checked against the bytes that are really there before memory is taken; what lies
uncompressed in a file is memory-mapped. Files are written to a temporary name and renamed, so a reader never sees half
of one. Each form has a module that reads and writes it; ``pickles`` are those of .pt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io import npy, npz, pt, raw, safetensors
from aclnn.io.entry import Array, Entry, FileError, refuse
from aclnn.io.zips import DAMAGED
from aclnn.support.atomic import replace_all

__all__ = [
    "CONTAINERS", "SUFFIXES", "Entry", "FileError", "entries", "name_in", "read", "replace_all", "write", "write_all",
]  # fmt: skip


class Form(Protocol):
    """A module that knows a form of files: how to describe its tensors by name, and to write some.

    Raises FileError where a file is not what it claims, or cannot hold what is given.
    """

    def read(self, path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None, /) -> dict[str, Entry]:
        """The tensors of a file of this many bytes; ``dtype`` and ``shape`` as for ``entries``."""

    def write(self, path: Path, file: BinaryIO, tensors: Mapping[str, Array], /) -> None:
        """The bytes of a file that has these tensors; ``path`` is for errors."""


_FORMS: dict[str, Form] = {
    ".npy": npy, ".npz": npz, ".safetensors": safetensors, ".pt": pt, ".pth": pt, ".bin": raw, ".raw": raw,
}  # fmt: skip
SUFFIXES = tuple(_FORMS)
"""What files may be called."""
CONTAINERS = (".npz", ".safetensors", ".pt", ".pth")
"""Those of files that hold tensors by name."""
_NAMELESS = {".npz": "arr_0", ".safetensors": "tensor"}


def _form_of(path: Path) -> Form:
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise refuse(path, f"expected one of {', '.join(SUFFIXES)}, got {path.suffix or 'no suffix'}")
    return form


def entries(
    path: str | os.PathLike[str], dtype: DataType | str | None = None, shape: Sequence[int] | None = None
) -> dict[str, Entry]:
    """The tensors of a file by name, unread; a file that holds a single nameless one has it under "".

    Args:
        path: .npy, .npz, .safetensors, .pt / .pth, .bin / .raw.
        dtype: needed for raw files; for others, what a two-byte void (bfloat16 as NumPy stores it) means.
        shape: needed for raw files; for others it must agree.

    Raises:
        FileError: not readable, truncated, of an unknown kind, or not what it claims.
    """
    path = Path(path)
    wanted = _data_type(dtype)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise refuse(path, "expected a regular file")
        found = _form_of(path).read(path, size, wanted, shape)
    except DAMAGED as error:
        raise refuse(path, f"expected an undamaged archive ({error})") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    if shape is not None:
        for entry in found.values():
            if entry.dtype is not DataType.DT_UNDEFINED and entry.shape != tuple(shape):
                raise refuse(path, f"expected shape {list(shape)}, got {list(entry.shape)}")
    return found


def read(
    path: str | os.PathLike[str],
    name: str | None = None,
    dtype: DataType | str | None = None,
    shape: Sequence[int] | None = None,
) -> Array:
    """One tensor of a file: memory-mapped and read-only, unless it lies compressed or at an odd address.

    Args:
        path: the file.
        name: which tensor; not needed where there is only one.
        dtype: as for ``entries``.
        shape: as for ``entries``.

    Raises:
        FileError: as ``entries``; or there is no such tensor, or several and no name.
    """
    found = entries(path, dtype, shape)
    if name is None:
        if len(found) != 1:
            raise refuse(Path(path), f"expected a tensor's name, one of {', '.join(sorted(found))}")
        name = next(iter(found))
    if name not in found:
        raise refuse(Path(path), f"expected a tensor named {name!r}, got {', '.join(sorted(found)) or 'none'}")
    array = found[name].load()
    return array if array.flags.aligned else array.copy()


def write(path: str | os.PathLike[str], tensors: Array | Mapping[str, Array]) -> None:
    """Write one array, or several by name, in the form that the suffix names. Replaces the file in one step.

    A nameless tensor is called arr_0 in .npz, as NumPy does, and tensor in .safetensors.

    Raises:
        FileError: unknown suffix, several tensors for a form that holds one, a name twice, or a data type or name that
            the form cannot hold.
    """
    write_all({Path(path): tensors})


def write_all(contents: Mapping[Path, Array | Mapping[str, Array]]) -> None:
    """Write several files as ``write`` does; a failure to write one leaves every file as it was.

    Raises:
        FileError: as ``write``.
    """
    writers = {path: _writer(path, tensors) for path, tensors in contents.items()}
    try:
        replace_all(writers)
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}") from error


def _writer(path: Path, tensors: Array | Mapping[str, Array]) -> Callable[[BinaryIO], None]:
    form = _form_of(path)
    checked: dict[str, Array] = {}
    for given, array in (tensors if isinstance(tensors, Mapping) else {"": tensors}).items():
        name = name_in(path, given)
        if name in checked:
            raise refuse(path, f"expected every name once, got {name!r} again")
        checked[name] = _writable(path, array)
    return lambda file: form.write(path, file, checked)


def name_in(path: Path, name: str) -> str:
    """What a tensor is called in a file: nameless ones have a name in some forms."""
    return name or _NAMELESS.get(path.suffix.lower(), "")


def _data_type(dtype: DataType | str | None) -> DataType | None:
    if dtype is None or isinstance(dtype, DataType):
        return dtype
    for candidate in DataType:
        if candidate.numpy_name == dtype:
            return candidate
    raise FileError(f"dtype (--dtype): expected a name such as float32, float16 or bfloat16, got {dtype!r}")


def _writable(path: Path, array: Array) -> Array:
    array = np.asarray(array)
    try:
        DataType.of_numpy(array.dtype)
    except TypeError as error:
        raise refuse(path, str(error)) from error
    return array
