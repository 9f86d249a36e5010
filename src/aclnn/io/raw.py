"""Raw bytes of one tensor: .bin, .raw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from aclnn.core.dtypes import DataType
from aclnn.io.entry import MAX_DIMS, Array, Entry, entry_at, is_shape, pieces, refuse, single


def read(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    """See ``aclnn.io.Form``."""
    if dtype is None:
        raise refuse(path, "expected a dtype for a raw file (--dtype float32, float16 or bfloat16)")
    itemsize = dtype.numpy.itemsize
    dims = (size // itemsize,) if shape is None else tuple(shape)
    if not is_shape(dims):
        raise refuse(path, f"expected at most {MAX_DIMS} extents from 0 on, got {list(dims)}")
    if math.prod(dims) * itemsize != size:
        wanted = math.prod(dims) * itemsize
        raise refuse(path, f"expected {wanted} bytes for {list(dims)} of {dtype.numpy_name}, got {size}")
    return {"": entry_at(path, dtype, dims, 0, size)}


def write(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """See ``aclnn.io.Form``."""
    file.writelines(pieces(single(path, tensors)))
