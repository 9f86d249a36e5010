"""A tensor of a file, described but not read yet, and what all forms of files share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType

Array = np.ndarray[Any, Any]

MAX_DIMS = 64
"""Of a tensor, as in NumPy."""
MAX_EXPANSION = 100
"""Times that a large tensor may exceed its bytes in the file. Deflate reaches 1,032:1 on zeros: small files may, but
one that turns 3 MB into 2 GB is somebody's trap."""
MAX_EXPANDED_BYTES = 1 << 28
"""What may come of any file."""


class FileError(ValueError):
    """A file that cannot be read as tensors; the text names it and says what was expected and what was found."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file, described but not read yet. What ``load`` maps may be unaligned; NumPy copes."""

    dtype: DataType
    """DT_UNDEFINED for what is no tensor of numbers known here: ``load`` then refuses it."""
    shape: tuple[int, ...]
    load: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


def refuse(path: Path, text: str) -> FileError:
    """The error that names a file."""
    return FileError(f"{path}: {text}")


def mapped(path: Path, dtype: DataType, shape: tuple[int, ...], offset: int, fortran: bool = False) -> Array:
    """What lies uncompressed at ``offset``, read-only."""
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    return np.asarray(np.memmap(path, dtype.numpy, "r", offset, shape, "F" if fortran else "C"))


def unreadable(refusal: FileError) -> Entry:
    """One that is there and cannot be read; the file's others can."""

    def load() -> Array:
        raise refusal

    return Entry(DataType.DT_UNDEFINED, (), load)


def expect_indexable(path: Path, dtype: DataType, shape: Sequence[int]) -> None:
    """NumPy multiplies extents whatever stands beside them: (2**63, 0) is no shape although it holds nothing."""
    if math.prod(extent or 1 for extent in shape) * dtype.numpy.itemsize >= 1 << 63:
        raise refuse(path, f"expected extents that span less than 2^63 bytes, got {list(shape)}")


def entry_at(
    path: Path, dtype: DataType, shape: tuple[int, ...], offset: int, end: int, fortran: bool = False
) -> Entry:
    """A tensor that lies uncompressed at ``offset`` and must not reach beyond ``end``."""
    entry = Entry(dtype, shape, lambda: mapped(path, dtype, shape, offset, fortran))
    if entry.nbytes > end - offset:
        raise refuse(
            path, f"expected {entry.nbytes} bytes for {list(shape)} of {dtype.numpy_name}, got {max(end - offset, 0)}"
        )
    expect_indexable(path, dtype, shape)
    return entry


def is_shape(shape: object) -> bool:
    """Whether something read from a header is a list of extents."""
    return (
        isinstance(shape, (tuple, list))
        and len(shape) <= MAX_DIMS
        and all(type(extent) is int and extent >= 0 for extent in shape)
    )


def single(path: Path, tensors: Mapping[str, Array]) -> Array:
    """The only one of the tensors."""
    if len(tensors) != 1:
        raise refuse(path, f"expected one tensor for this form, got {len(tensors)}")
    return next(iter(tensors.values()))


def pieces(array: Array) -> Iterator[bytes]:
    """The elements in row-major order, in pieces that stay small for an array larger than memory."""
    flat, step = array.reshape(-1) if array.flags.c_contiguous else array.flat, 1 << 22
    for begin in range(0, array.size, step):
        yield np.asarray(flat[begin : begin + step]).tobytes()
