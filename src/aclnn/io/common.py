"""Errors, data types and bytes of arrays, for every file format."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.support.optional import MissingExtraError
from aclnn.typing import Array

Loader = Callable[[], Array]
"""Reads one tensor of a file."""

_MAX_EXPANSION, _MAX_EXPANDED_BYTES = 100, 1 << 28


class FileError(ValueError):
    """A file that cannot be read or written as tensors; the text names it."""


@contextmanager
def errors_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever is raised over a file's contents into a FileError that names the file."""
    try:
        yield
    except (FileError, MissingExtraError, MemoryError):
        raise
    except OSError as error:
        raise FileError(f"{error.filename or path}: {error.strerror or error}") from error
    except Exception as error:  # damaged bytes make the libraries raise almost anything
        text = str(error).strip().partition("\n")[0]
        raise FileError(f"{path}: {text or type(error).__name__}") from error


def element_type(dtype: np.dtype[Any], wanted: DataType | None) -> np.dtype[Any]:
    """Return the data type of a file's elements; a two-byte void, as NumPy stores bfloat16, is ``wanted`` or bfloat16.

    Raises:
        ValueError: not a data type of tensors here.
    """
    if dtype != "V2":
        try:
            return DataType.of_numpy(dtype).numpy
        except TypeError as error:
            raise ValueError(str(error)) from None
    found = wanted or DataType.BF16
    if found.numpy.itemsize != 2:
        raise ValueError(f"expected a data type of two bytes, got {found.numpy_name}")
    return found.numpy


def expect_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], held: int) -> None:
    """Require the bytes that a tensor takes to be those that a file holds for it, before memory is taken.

    Raises:
        ValueError: more or fewer.
    """
    wanted = math.prod(shape) * dtype.itemsize
    if wanted != held:
        raise ValueError(f"expected {wanted} bytes for {list(shape)} of {dtype.name}, got {held}")


def expect_small(name: str, nbytes: int, held: int) -> None:
    """Refuse a tensor that would take far more memory than its file, which no honest file of floats does.

    Raises:
        ValueError: over 100 times the ``held`` bytes and over 256 MiB.
    """
    if nbytes > max(_MAX_EXPANDED_BYTES, _MAX_EXPANSION * held):
        raise ValueError(f"expected {name!r} to take at most {_MAX_EXPANSION} times its {held} bytes, got {nbytes}")


def row_major_bytes(array: Array) -> memoryview:
    """View an array's elements as bytes in row-major order."""
    return np.ravel(array).view(np.uint8).data


def only(tensors: Mapping[str, Array]) -> Array:
    """Return the only tensor.

    Raises:
        ValueError: there are several, or none.
    """
    if len(tensors) != 1:
        raise ValueError(f"expected one tensor for this format, got {len(tensors)}")
    return next(iter(tensors.values()))
