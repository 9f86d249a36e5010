"""How LayerNorm's kernels see a tensor: as rows and columns, each with dimensions of its own."""

from __future__ import annotations

from collections.abc import Sequence

from aclnn.core.tensor import Layout
from aclnn.kernels.cpu.layer_norm import job as jobs

Dims = tuple[tuple[int, int], ...]


def dims_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Dims:
    """(extent, stride in bytes) innermost first, with dimensions merged wherever one stride continues another."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 1:
            continue
        if dims and stride * itemsize == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * extent, dims[-1][1])
        else:
            dims.append((extent, stride * itemsize))
    return tuple(dims) or ((1, itemsize),)


def described(dims: Dims) -> list[int]:
    """Dimensions as compiled code reads them."""
    return [len(dims), *(number for dim in dims for number in dim)]


class View:
    """What a plan keeps of a tensor: its dimensions as rows and columns."""

    def __init__(self, layout: Layout, normalized_dims: int) -> None:
        size = layout.dtype.itemsize
        self.layout, self.dtype, self.itemsize = layout, layout.dtype, size
        self.span = layout.span
        split = len(layout.shape) - normalized_dims
        self.rows = dims_of(layout.shape[:split], layout.strides[:split], size)
        self.columns = dims_of(layout.shape[split:], layout.strides[split:], size)
        self.direct = len(self.columns) == 1 and self.columns[0][1] == size
        """Elements of a row lie side by side."""
        self.distinct = layout.distinct

    def fields(self) -> list[int]:
        """What compiled code reads; the address is still missing."""
        lines = described(self.rows)
        step = self.rows[0][1] if len(self.rows) == 1 else 0
        columns_at = jobs.ROWS + 8 * len(lines)
        return [0, int(self.dtype), self.itemsize, step, int(self.direct), columns_at, *lines, *described(self.columns)]


def rows_of(layout: Layout) -> View:
    """Each element a row."""
    return View(layout, 0)


def columns_of(layout: Layout) -> View:
    """Each element a column."""
    return View(layout, len(layout.shape))
