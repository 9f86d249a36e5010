"""Arguments of the norms' compiled code, and tensors of any layout as rows and columns."""

from __future__ import annotations

import ctypes
import itertools
from typing import Annotated, Any, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels.cpu import strided
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd import memory
from aclnn.kernels.cpu.simd.memory import load_float32, store_float32
from aclnn.kernels.cpu.simd.vector import LANES, lane
from aclnn.kernels.cpu.strided import mover_address
from aclnn.kernels.cpu.structs import (
    Float32,
    Float64,
    Int64,
    Shared,
    To,
    address,
    bytes_at,
    declared,
    float32_at,
    pointer_to,
    stack_alloc,
)
from aclnn.kernels.layouts import merged

SEGMENT = 512
"""Columns per segment: its accumulators for dw and db, 8 KiB, stay in the L1 cache."""
GROUP = 4
"""Rows summed in float32 before they go to the float64 accumulators."""
ELEMENTS_PER_US = 2500
"""Elements that a thread processes in a microsecond, approximately; decides whether waking threads is worth it."""
FLOAT, FLOAT16 = int(DataType.FLOAT), int(DataType.FLOAT16)
"""ACL's numbers of these data types; kernels take any other to be bfloat16."""


class NormSpec(NamedTuple):
    """The gradients that a kernel computes, and the norm that they belong to."""

    dx: bool
    dw: bool
    db: bool
    centred: bool = True
    """False for RMSNorm: x̂ = x·rstd, and dx has no c1."""

    @property
    def x(self) -> bool:
        """True if x is read."""
        return self.dx or self.dw


@declared
class Dimension(ctypes.Structure):
    """A dimension of rows or columns."""

    extent: Int64
    stride: Int64
    """Bytes."""


@declared
class TensorDesc(ctypes.Structure):
    """A tensor as rows and columns."""

    address: Int64
    """Address of the first element; 0 for an absent tensor."""
    dtype: Int64
    itemsize: Int64
    row_step: Int64
    """Bytes from one row to the next; 0 if rows are not evenly spaced."""
    contiguous: Int64
    """1 if the elements of a row are contiguous."""
    mover: Int64
    """Address of the kernel ``strided.mover`` for its elements."""
    row_dims: Int64
    rows: Annotated[Any, ctypes.c_int64, To(Dimension)]
    """The innermost dimension first, as ``columns``."""
    column_dims: Int64
    columns: Annotated[Any, ctypes.c_int64, To(Dimension)]


@declared
class RowSums(ctypes.Structure):
    """Sums over a row's columns within a segment."""

    g: Float32
    g_xhat: Float32
    abs_dy: Float32
    xhat_squared: Float32


@declared
class RowCoefficients(ctypes.Structure):
    """Coefficients of a row's dx."""

    mean: Float32
    rstd: Float32
    minus_c1: Float32
    minus_c2: Float32
    needs_float64: Int64
    """1 if float32 is not accurate enough for the row's dx, which is then computed from the float64 sums."""
    sum_g: Float64
    sum_g_xhat: Float64


@declared
class RowArgs(ctypes.Structure):
    """Arguments of the kernels of ``arithmetic``: columns of four rows, or of one row, the first of the four."""

    dy: Annotated[Any, ctypes.c_int64 * GROUP]
    """The address of the first column in each row, like ``x``."""
    x: Annotated[Any, ctypes.c_int64 * GROUP]
    dx: Int64
    dy_ahead: Int64
    """Prefetch distance in bytes, like ``x_ahead``."""
    x_ahead: Int64
    weight: Int64
    coefficients: Annotated[Any, ctypes.c_int64, To(RowCoefficients)]
    sums: Annotated[Any, ctypes.c_int64, To(RowSums)]
    sums_pitch: Int64
    """Bytes from one row's sums to the next row's."""
    dw: Int64
    """Address of float64 sums, like ``db``."""
    db: Int64
    n: Int64
    """Columns of the whole row."""


@declared
class BlockArgs(ctypes.Structure):
    """Arguments of the kernels of ``blocks`` and ``short_rows``."""

    inputs: Annotated[Any, ctypes.c_int64 * 5]
    """Addresses of dy, x, mean, rstd and weight; ``NormPlan.run`` writes them, the outputs and ``workspace``."""
    outputs: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of dx, dw and db."""
    workspace: Int64
    m: Int64
    n: Int64
    inv_n: Float64
    segments: Int64
    block_rows: Int64
    batch_rows: Int64
    partials_at: Int64
    """Offset in bytes of the partial sums of dw and db in the workspace, like the two offsets that follow."""
    sums_at: Int64
    coefficients_at: Int64
    copies_weight: Int64
    """1 if ``weight`` is a float32 copy at the start of the workspace."""
    weight: Int64
    """Address of contiguous float32 weights."""
    partials: Int64
    partial_bytes: Int64
    db_offset: Int64
    """Offset in bytes of a block's sums of db from those of dw."""
    partial_count: Int64
    """Number of partial sums to add up in the end."""
    sums: Annotated[Any, ctypes.c_int64, To(RowSums)]
    """Sums of all rows of a batch, like ``coefficients``."""
    coefficients: Annotated[Any, ctypes.c_int64, To(RowCoefficients)]
    phase: Int64
    batch: Int64
    """The first row of the batch."""
    overflowed: Int64
    """1 if sums of a block are not finite."""
    sum_rows: Int64
    """Addresses of the kernels of ``arithmetic``, this and the following; 0 if not needed."""
    sum_rows_checked: Int64
    """The kernel that computes all sums, if ``sum_rows`` omits some."""
    write_row: Int64
    sum_float64: Int64
    write_float64: Int64
    short_rows: Int64
    row_batch: Int64
    """Number of rows that ``short_rows`` processes at a time."""
    packed: Int64
    """1 if dy, x and dx go through tiles of contiguous rows."""
    tile_rows: Int64
    """Rows of a tile, like ``tile_segments``; without tiles, at least all of them."""
    tile_segments: Int64
    tile_dtype: Int64
    tile_itemsize: Int64
    tiles: Int64
    """Address of the kernel that gathers and scatters tiles."""
    tile_row: Int64
    """The first row in a thread's tile, like ``tile_column``."""
    tile_height: Int64
    """Number of rows in a thread's tile; ``tile_width`` is that of columns."""
    tile_column: Int64
    tile_width: Int64
    room: Int64
    """Address of memory for the threads' tiles, ``room_bytes`` for each thread."""
    room_bytes: Int64
    rooms_taken: Shared
    dy: Annotated[Any, TensorDesc]
    x: Annotated[Any, TensorDesc]
    mean: Annotated[Any, TensorDesc]
    rstd: Annotated[Any, TensorDesc]
    weights: Annotated[Any, TensorDesc]
    dx: Annotated[Any, TensorDesc]
    dw: Annotated[Any, TensorDesc]
    db: Annotated[Any, TensorDesc]


@declared
class RowBatchArgs(ctypes.Structure):
    """Arguments of the kernel of ``short_rows``."""

    block: Annotated[Any, ctypes.c_int64, To(BlockArgs)]
    first: Int64
    """The first row; on return, the first row that is not done."""
    dw: Int64
    """Address of float64 sums, like ``db``."""
    db: Int64
    behind: Int64
    """Number of rows after the last that may be read."""


row_args_at, block_args_at = pointer_to(RowArgs), pointer_to(BlockArgs)
row_batch_args_at, uint16_at = pointer_to(RowBatchArgs), pointer_to(ctypes.c_uint16)
coefficients_at, sums_at = pointer_to(RowCoefficients), pointer_to(RowSums)
ROW_ARGS_BYTES, BLOCK_ARGS_BYTES = ctypes.sizeof(RowArgs), ctypes.sizeof(BlockArgs)
ROW_BATCH_ARGS_BYTES = ctypes.sizeof(RowBatchArgs)
COEFFICIENTS_BYTES, SUMS_BYTES = ctypes.sizeof(RowCoefficients), ctypes.sizeof(RowSums)


class View:
    """A layout as rows and columns."""

    def __init__(self, layout: Layout, column_dims: int) -> None:
        size = layout.dtype.itemsize
        self.layout, self.dtype, self.itemsize = layout, layout.dtype, size
        split = len(layout.shape) - column_dims
        self.rows, self.columns = (
            [(extent, stride * size) for extent, stride in merged(layout.shape[part], layout.strides[part])]
            or [(1, size)]
            for part in (slice(split), slice(split, None))
        )
        self.contiguous = len(self.columns) == 1 and self.columns[0][1] == size
        """True if the elements of a row are contiguous."""
        self._dimensions = (Dimension * (len(self.rows) + len(self.columns)))(
            *itertools.starmap(Dimension, (*self.rows, *self.columns))
        )

    def describe(self, moved: bool = False) -> TensorDesc:
        """Return the view's description for compiled code, without the address; valid as long as the view lives.

        Args:
            moved: True if ``move_tile`` will be called.
        """
        at = ctypes.addressof(self._dimensions)
        return TensorDesc(
            dtype=int(self.dtype),
            itemsize=self.itemsize,
            row_step=self.rows[0][1] if len(self.rows) == 1 else 0,
            contiguous=self.contiguous,
            mover=mover_address(self.itemsize) if moved else 0,
            row_dims=len(self.rows),
            rows=at,
            column_dims=len(self.columns),
            columns=at + ctypes.sizeof(Dimension) * len(self.rows),
        )


@register_jitable
def offset(dims: Any, count: int, index: int) -> int:
    """Return the offset in bytes of the element with this logical index."""
    if count == 1:
        return int(index * dims.stride)
    found: int = 0
    for _ in range(count):
        quotient = index // dims.extent
        found += (index - quotient * dims.extent) * dims.stride
        index = quotient
        dims = dims + 1
    return found


@register_jitable(forceinline=True)
def row_at(tensor: Any, row: int) -> Any:
    """Return the address of a row's first element."""
    step = tensor.row_step
    return tensor.address + (row * step if step else offset(tensor.rows, tensor.row_dims, row))


@register_jitable(forceinline=True)
def column_at(tensor: Any, column: int) -> Any:
    """Return the address of a column in the first row."""
    return tensor.address + offset(tensor.columns, tensor.column_dims, column)


@register_jitable
def copy_one(size: int, source: int, target: int) -> None:
    """Copy an element of 4 or 2 bytes."""
    if size == 4:
        float32_at(target)[0] = float32_at(source)[0]
    else:
        uint16_at(target)[0] = uint16_at(source)[0]


@register_jitable
def load_some(dtype: int, address: int, count: int) -> Any:
    """Load the first ``count`` of sixteen elements, widened to float32; the other lanes are zero."""
    whole = count == LANES
    if dtype == FLOAT:
        return load_float32(address) if whole else memory.load_float32_part(address, count)
    if dtype == FLOAT16:
        return memory.load_float16(address) if whole else memory.load_float16_part(address, count)
    return memory.load_bfloat16(address) if whole else memory.load_bfloat16_part(address, count)


@register_jitable
def store_some(dtype: int, address: int, value: Any, count: int) -> None:
    """Round and store the first ``count`` of sixteen elements."""
    if dtype == FLOAT and count == LANES:
        store_float32(address, value)
    elif dtype == FLOAT:
        memory.store_float32_part(address, value, count)
    elif dtype == FLOAT16:
        memory.store_float16_part(address, value, count)
    else:
        memory.store_bfloat16_part(address, value, count)


@register_jitable(forceinline=True)
def load_statistic(tensor: Any, row: int) -> Any:
    """Load a row's mean or rstd, widened to float32."""
    address = row_at(tensor, row)
    return float32_at(address)[0] if tensor.dtype == FLOAT else lane(load_some(tensor.dtype, address, 1), 0)


@register_jitable
def load_columns(tensor: Any, n: int, target: int) -> None:
    """Widen n elements of any layout to float32 at ``target``, padded with zeros to a whole vector."""
    size, gathered = tensor.itemsize, address(stack_alloc(64))
    for j in range(0, n, LANES):
        count, source = min(LANES, n - j), gathered
        if tensor.contiguous:
            source = tensor.address + j * size
        else:
            for i in range(count):
                copy_one(size, column_at(tensor, j + i), gathered + i * size)
        store_float32(target + 4 * j, load_some(tensor.dtype, source, count))


@register_jitable
def store_columns(tensor: Any, column: int, value: Any, count: int) -> None:
    """Round and store the first ``count`` of sixteen elements from a column on, in any layout."""
    size, rounded = tensor.itemsize, address(stack_alloc(64))
    if tensor.contiguous:
        store_some(tensor.dtype, tensor.address + size * column, value, count)
    else:
        store_some(tensor.dtype, rounded, value, count)
        for i in range(count):
            copy_one(size, rounded + size * i, column_at(tensor, column + i))


@register_jitable
def move_tile(tensor: Any, scatters: int, row: int, rows: int, column: int, columns: int, tile: int) -> None:
    """Gather rows and columns of a tensor of any layout into a dense, row-major tile, or scatter them from there."""
    size, last_row, last_column = tensor.itemsize, row + rows, column + columns
    pitch = columns * size
    while row < last_row:
        height, width, j = last_row - row, columns, column
        if tensor.row_dims > 1:
            height = min(height, tensor.rows.extent - row % tensor.rows.extent)
        if tensor.column_dims > 1:
            height = 1  # gathering may overwrite memory after a row of the tile
        while j < last_column:
            if tensor.column_dims > 1:
                width = min(last_column - j, tensor.columns.extent - j % tensor.columns.extent)
            place = bytes_at(row_at(tensor, row) + column_at(tensor, j) - tensor.address)
            packed = bytes_at(tile + (j - column) * size)
            # For a single row a row stride would only make the mover transpose it.
            step, across = tensor.rows.stride if height > 1 else 0, tensor.columns.stride
            strided.move_tile(tensor.mover, scatters, packed, pitch, size, place, step, across, height, width, 0)
            j += width
        row, tile = row + height, tile + height * pitch


@register_jitable
def widen_all(dtype: int, source: int, count: int, target: int) -> None:
    """Widen contiguous elements to float32; whole vectors are written."""
    size = 4 if dtype == FLOAT else 2
    for i in range(0, count, LANES):
        store_float32(target + 4 * i, load_some(dtype, source + size * i, min(LANES, count - i)))


@register_jitable
def narrow_all(dtype: int, source: int, count: int, target: int) -> None:
    """Round contiguous float32 to a data type; whole vectors are read."""
    size = 4 if dtype == FLOAT else 2
    for i in range(0, count, LANES):
        store_some(dtype, target + size * i, load_float32(source + 4 * i), min(LANES, count - i))
