"""Raw bytes of one tensor: .bin, .raw; a .bin that is a zip archive is read as a file of ``torch.save``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io import pt
from aclnn.io.common import Loader, expect_bytes, only, row_major_bytes
from aclnn.typing import Array


def read(path: Path, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Loader]:
    """Read a file as ``aclnn.io.Reader`` says."""
    if dtype is None and zipfile.is_zipfile(path):
        return pt.read(path, dtype, shape)
    if dtype is None:
        raise ValueError("expected a data type for a raw file, such as float32, float16 or bfloat16")
    return {"": lambda: _mapped(path, dtype.numpy, shape)}


def _mapped(path: Path, dtype: np.dtype[np.generic], shape: Sequence[int] | None) -> Array:
    size = path.stat().st_size
    extents = (size // dtype.itemsize,) if shape is None else tuple(shape)
    if min(extents, default=0) < 0:
        raise ValueError(f"expected extents from 0 on, got {list(extents)}")
    expect_bytes(extents, dtype, size)
    return np.memmap(path, dtype, "r", shape=extents) if size else np.empty(extents, dtype)


def write(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a file as ``aclnn.io.Writer`` says."""
    file.write(row_major_bytes(only(tensors)))
