"""Errors, data types and sizes, shared by all file formats."""

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
"""A function that reads one tensor of a file."""

_VOIDS = {np.dtype("V1"): "one byte", np.dtype("V2"): "two bytes"}
"""Types as which NumPy stores those of ml_dtypes."""
_MAX_EXPANSION, _MAX_EXPANDED_BYTES = 100, 1 << 28


class FileError(ValueError):
    """Failure to read or write tensors; the message names the file."""


@contextmanager
def errors_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error about a file's contents into a FileError that names the file."""
    try:
        yield
    except (FileError, MissingExtraError, MemoryError):
        raise
    except OSError as error:
        raise FileError(f"{error.filename or path}: {error.strerror or error}") from error
    except Exception as error:  # for damaged files, the libraries raise errors of almost any type
        text = str(error).strip().partition("\n")[0]
        raise FileError(f"{path}: {text or type(error).__name__}") from error


def element_type(dtype: np.dtype[Any], wanted: DataType | None) -> np.dtype[Any]:
    """Return the data type of a file's elements; a void, as NumPy stores bfloat16, is ``wanted`` or bfloat16.

    Raises:
        ValueError: tensors have no such data type.
    """
    if dtype not in _VOIDS:
        try:
            return DataType.of_numpy(dtype).numpy
        except TypeError as error:
            raise ValueError(str(error)) from None
    found = wanted or DataType.BF16
    if found.numpy.itemsize != dtype.itemsize:
        raise ValueError(f"expected a data type of {_VOIDS[dtype]}, got {found.numpy_name}")
    return found.numpy


def expect_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], held: int) -> None:
    """Require that a tensor's size equals the bytes held by its file, before memory is allocated.

    Raises:
        ValueError: the tensor is larger or smaller.
    """
    wanted = math.prod(shape) * dtype.itemsize
    if wanted != held:
        raise ValueError(f"expected {wanted} bytes for {list(shape)} of {dtype.name}, got {held}")


def expect_small(name: str, nbytes: int, held: int) -> None:
    """Raise an error for a tensor far larger than its file, as in a decompression bomb.

    Raises:
        ValueError: the tensor exceeds 256 MiB and 100 times the ``held`` bytes.
    """
    if nbytes > max(_MAX_EXPANDED_BYTES, _MAX_EXPANSION * held):
        raise ValueError(f"expected {name!r} to take at most {_MAX_EXPANSION} times its {held} bytes, got {nbytes}")


def row_major_bytes(array: Array) -> memoryview:
    """View an array's elements as bytes in row-major order."""
    return np.ravel(array).view(np.uint8).data


def only(tensors: Mapping[str, Array]) -> Array:
    """Return the only tensor.

    Raises:
        ValueError: there are several tensors, or none.
    """
    if len(tensors) != 1:
        raise ValueError(f"expected one tensor for this format, got {len(tensors)}")
    return next(iter(tensors.values()))
