"""Views surrounded by poisoned memory, which detect writes outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.tensor import Layout, Tensor, contiguous_strides

GUARD = 70  # poisoned elements before and after a view: more than a vector and a cache line

# NaNs with a payload: a read of poison shows in the result, a write to it in its bits.
_POISON = {8: np.uint64(0x7FF8DEADDEADDEAD), 4: np.uint32(0x7FC0DEAD), 2: np.uint16(0x7FDE), 1: np.uint8(0xA5)}


class Guarded:
    """A view of storage of its own, with poison before it, after it and in gaps between its elements."""

    def __init__(
        self,
        dtype: D,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        shift: int = 0,
        format: Format = Format.FORMAT_ND,
    ) -> None:
        self.dtype, self.shape, self.format = dtype, tuple(shape), format
        self.strides = contiguous_strides(self.shape) if strides is None else tuple(strides)
        low, high = Layout(dtype, self.shape, self.strides).span
        itemsize = dtype.itemsize
        self.offset = GUARD + shift - low // itemsize
        elements = self.offset + max(high // itemsize, 0) + GUARD
        self.bits = np.full(elements, _POISON[itemsize])
        self.storage = self.bits.view(dtype.numpy)
        self.array: np.ndarray[Any, Any] = as_strided(
            self.storage[self.offset :], self.shape, [stride * itemsize for stride in self.strides]
        )
        self._inside = np.zeros(elements, bool)
        as_strided(self._inside[self.offset :], self.shape, self.strides)[...] = True
        self._before = self.bits.copy()

    def fill(self, values: np.ndarray[Any, Any]) -> Guarded:
        self.array[...] = values
        self._before = self.bits.copy()
        return self

    @property
    def tensor(self) -> Tensor:
        address = self.storage.__array_interface__["data"][0]
        return Tensor(
            self.dtype, self.shape, self.strides, self.offset, self.format, address=address, owner=self.storage
        )

    def place(self, storage: np.ndarray[Any, Any]) -> None:
        """Move the view to another, larger storage, whose contents it takes over."""
        self.storage = storage
        self.array = as_strided(
            storage[self.offset :], self.shape, [stride * self.dtype.itemsize for stride in self.strides]
        )

    def mask(self, elements: int) -> np.ndarray[Any, Any]:
        """Return a mask of the elements of a storage that belong to the view."""
        inside = np.zeros(elements, bool)
        inside[: self._inside.size] = self._inside
        return inside

    def unchanged(self) -> bool:
        return bool((self.bits == self._before).all())

    def unchanged_outside(self) -> bool:
        return bool((self.bits == self._before)[~self._inside].all())


@st.composite
def strides(draw: st.DrawFn, shape: Sequence[int], overlap: bool) -> tuple[int, ...]:
    """Draw strides of a view: axes in any order, forwards, backwards, with gaps; zero only if ``overlap``."""
    order = draw(st.permutations(range(len(shape))))
    result = [0] * len(shape)
    reach = 1
    for axis in order:
        step = reach * draw(st.sampled_from((1, 1, 1, 2, 3)))
        result[axis] = step * draw(st.sampled_from((1, 1, -1)))
        reach = step * max(shape[axis], 1)
        if overlap and draw(st.integers(0, 5)) == 0:
            result[axis] = 0
    return tuple(result)


def layouts(shape: Sequence[int], overlap: bool) -> st.SearchStrategy[tuple[int, ...] | None]:
    """Draw strides of a view; None, for contiguous, about every third time."""
    return st.one_of(st.none(), strides(shape, overlap), strides(shape, overlap))


SHAPES = st.one_of(
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.lists(st.integers(1, 3), min_size=5, max_size=8).map(tuple),
    st.sampled_from(
        [(1,), (15,), (16,), (17,), (63,), (64,), (65,), (257,), (3, 100), (100, 3), (2, 1, 130), (33, 65)]
    ),
)
