"""Types in the signatures of aclnn's functions."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

__all__ = ["Array", "ArrayLike", "Number", "SupportsArrayInterface", "SupportsDLPack"]


class SupportsDLPack(Protocol):
    """An array of PyTorch, JAX, CuPy or any other library with DLPack."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any:
        """Return a capsule with the array."""


class SupportsArrayInterface(Protocol):
    """An array with NumPy's array interface."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Address, shape, strides and data type, as in NumPy."""


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array; as a result, an array of another library if it was passed as ``out``."""
ArrayLike: TypeAlias = Array | SupportsDLPack | SupportsArrayInterface
"""An array whose memory is used without a copy; sequences of numbers are not accepted."""
Number: TypeAlias = float | np.number[Any] | np.bool_
"""A Python or NumPy number."""
