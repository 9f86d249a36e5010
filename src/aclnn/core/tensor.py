"""Tensors: typed, strided views of memory that is owned elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError


class Layout(NamedTuple):
    """Description of a tensor without its address: all that phase one may depend on."""

    dtype: DataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements, positive, zero or negative."""
    offset: int = 0
    """Offset in elements from the address to the first element."""

    @property
    def size(self) -> int:
        """Number of elements; 1 for a 0-dim tensor."""
        return math.prod(self.shape)

    @property
    def span(self) -> tuple[int, int]:
        """Half-open byte range of the elements relative to the address; (0, 0) for an empty tensor."""
        if 0 in self.shape:
            return 0, 0
        reach = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        bits = self.dtype.bits
        below, above = sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)
        return (self.offset + below) * bits // 8, -(-(self.offset + above + 1) * bits // 8)

    @property
    def stored(self) -> Layout:
        """Layout that NumPy can view: bytes for sub-byte types and for types that NumPy lacks."""
        if self.dtype is DataType.HIFLOAT8:
            return self._replace(dtype=DataType.UINT8)
        if self.dtype.bits >= 8:
            return self
        begin, end = self.span
        return Layout(DataType.UINT8, (end - begin,), (1,), begin)

    @property
    def distinct(self) -> bool:
        """True if no two elements share memory: each stride exceeds the reach of all smaller ones.

        Conservative: False for some interleaved layouts without overlap, such as shape (2, 3) with strides (3, 2).
        """
        if 0 in self.shape:
            return True
        reach = 1
        for stride, extent in sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1):
            if stride < reach:
                return False
            reach += stride * (extent - 1)
        return True


class Scalar(NamedTuple):
    """``aclScalar``: one number, stored as the bytes of its data type."""

    dtype: DataType
    data: bytes

    @property
    def value(self) -> Any:
        """Value as a NumPy scalar.

        Raises:
            AclnnError: 161002, the data type has no NumPy equivalent.
        """
        try:
            return self.dtype.decode(self.data)
        except TypeError:
            text = f"scalar: expected a data type that can be read, got {self.dtype.c_name}"
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, text) from None

    def rounded(self, dtype: DataType) -> float:
        """Return the real part, rounded to a floating-point data type."""
        return float(dtype.decode(dtype.encode(self.value.real)))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


class ColumnsLayout(NamedTuple):
    """Columns of a tensor, viewed as a matrix whose rows are the dimensions before ``dim``."""

    tensor: Layout
    dim: int
    columns: range

    @property
    def rows(self) -> int:
        """Number of the matrix's rows."""
        return math.prod(self.tensor.shape[: self.dim])

    @property
    def layout(self) -> Layout | None:
        """View of the tensor's memory that holds the columns, None if the rows or columns are not evenly spaced."""
        dtype, shape, strides, offset = self.tensor
        row, column = _step(shape[: self.dim], strides[: self.dim]), _step(shape[self.dim :], strides[self.dim :])
        if row is None or column is None:
            return None
        extents = self.rows, len(self.columns)
        return Layout(dtype, extents, (row, column * self.columns.step), offset + column * self.columns.start)

    @property
    def packed(self) -> ColumnsLayout:
        """Return these columns of a contiguous tensor of this shape."""
        return self._replace(tensor=Layout(self.tensor.dtype, self.tensor.shape, contiguous_strides(self.tensor.shape)))


def _step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of dimensions flattened in row-major order; None if uneven, 1 for a single element."""
    moving = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    even = all(outer == inner * extent for (_, outer), (extent, inner) in itertools.pairwise(moving))
    return None if not even else moving[-1][1] if moving else 1


class Tensor:
    """``aclTensor``: a view (shape, strides, offset) of a storage at ``address``, which the tensor never owns.

    Element (i0, i1, …) lies ``offset + Σ ik·stridek`` elements after ``address``. ``owner`` keeps the memory of a host
    array alive; it is None for device tensors, which are recognised by their address.
    """

    __slots__ = ("address", "dtype", "format", "offset", "owner", "shape", "storage_shape", "strides")

    def __init__(
        self,
        dtype: DataType,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
        format: Format = Format.FORMAT_ND,
        storage_shape: Sequence[int] | None = None,
        address: int = 0,
        owner: object = None,
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = contiguous_strides(self.shape) if strides is None else tuple(strides)
        self.offset = offset
        self.format = format
        self.storage_shape = self.shape if storage_shape is None else tuple(storage_shape)
        self.address = address
        self.owner = owner

    @property
    def layout(self) -> Layout:
        """Description without the address."""
        return Layout(self.dtype, self.shape, self.strides)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements lie in row-major order without gaps."""
        laid = zip(self.shape, self.strides, contiguous_strides(self.shape), strict=False)  # see ``view_violation``
        return all(extent == 1 or stride == step for extent, stride, step in laid)

    @property
    def is_transposed(self) -> bool:
        """True if the last two dimensions are stored as the transpose of contiguous matrices."""
        rows, columns = self.shape[-2:]
        return self.strides[-2:] == (1, rows) and rows * columns > 1

    @property
    def offset_bytes(self) -> int:
        """Bytes from the address to the view's first element.

        Raises:
            AclnnError: 161002, the element begins within a byte.
        """
        whole, part = divmod(self.offset * self.dtype.bits, 8)
        if part:
            text = f"offset: expected an even number of {self.dtype.c_name}, two to a byte, got {self.offset}"
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, text)
        return whole

    @property
    def first(self) -> int:
        """Address of the view's first element."""
        return self.address + self.offset_bytes

    def extent(self) -> tuple[int, int]:
        """Return the half-open range of addresses [begin, end) that the view touches."""
        begin, end = self.layout.span
        return self.first + begin, self.first + end

    def __repr__(self) -> str:
        return (
            f"Tensor({self.dtype.c_name}, shape={list(self.shape)}, strides={list(self.strides)}, "
            f"offset={self.offset}, address={self.address:#x})"
        )
