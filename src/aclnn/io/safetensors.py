"""The format safetensors, by the package of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io.common import Loader
from aclnn.support.optional import import_or_raise
from aclnn.typing import Array


def read(path: Path, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Loader]:
    """Read a file as ``aclnn.io.Reader`` says."""
    _ = DataType.BF16.numpy  # import ml_dtypes, without which the package does not find bfloat16
    file = import_or_raise("safetensors", "cli").safe_open(path, "numpy")
    return {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118  (not a mapping)


def write(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a file as ``aclnn.io.Writer`` says."""
    if "__metadata__" in tensors:
        raise ValueError("expected another name than __metadata__, which is not a tensor's")
    contiguous = {name: np.require(array, requirements="C") for name, array in tensors.items()}
    file.write(import_or_raise("safetensors.numpy", "cli").save(contiguous))
