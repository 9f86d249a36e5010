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
    """An array that describes its memory as NumPy's do."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Address, shape, strides and data type."""


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array; where an array of another library was given as ``out``, that one."""
ArrayLike: TypeAlias = Array | SupportsDLPack | SupportsArrayInterface
"""An array whose memory is used as it is; sequences of numbers are not taken."""
Number: TypeAlias = float | np.number[Any] | np.bool_
"""A Python or NumPy number."""
