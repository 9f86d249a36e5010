"""NumPy arrays and PyTorch tensors over the same memory, including ml_dtypes, which PyTorch does not support."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def torch_of(array: Array) -> Any:
    import torch

    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy_of(tensor: Any) -> Array:
    import torch

    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16)).view(BFLOAT16)
    return np.asarray(tensor)
