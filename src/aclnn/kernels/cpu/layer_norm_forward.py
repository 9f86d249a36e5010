"""LayerNorm on the CPU: rows widened to float32, statistics and results in float64, each rounded once."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from aclnn.dtypes import DataType
from aclnn.kernels.cpu import memory, pool
from aclnn.kernels.cpu.compiler import Kernel, kernel
from aclnn.kernels.cpu.memory import load_float32, load_one_int64, store_float32
from aclnn.tensor import Layout

_CHUNK_ELEMENTS = 1 << 15
"""Elements that a thread takes at a time: about 20 µs of work."""
_LANES = 16

_NAMES = {DataType.FLOAT: "float32", DataType.FLOAT16: "float16", DataType.BF16: "bfloat16"}

# What `job` holds, one int64 each: sizes, the bits of eps as float64, then for each tensor its address (0 when absent)
# and where its dimensions are described. A description is (dimensions, extent, stride in bytes, …), innermost first;
# x and out have one for rows and one for columns.
(N, EPS, X, X_ROWS, X_COLUMNS, OUT, OUT_ROWS, OUT_COLUMNS,
 MEAN, MEAN_ROWS, RSTD, RSTD_ROWS, WEIGHT, WEIGHT_COLUMNS, BIAS, BIAS_COLUMNS) = range(16)  # fmt: skip
_FIELDS = 16


@register_jitable
def _field(job: int, index: int) -> Any:
    return load_one_int64(job + 8 * index)


@register_jitable
def _offset(dims: int, index: int) -> int:
    """Byte offset of the element with this logical index."""
    offset = 0
    for d in range(load_one_int64(dims)):
        extent = load_one_int64(dims + 8 + 16 * d)
        quotient = index // extent
        offset += (index - quotient * extent) * load_one_int64(dims + 16 + 16 * d)
        index = quotient
    return offset


@register_jitable
def _contiguous(dims: int, itemsize: int) -> Any:
    return load_one_int64(dims) == 1 and load_one_int64(dims + 16) == itemsize


def _reader(dtype: DataType) -> Any:
    """A function (address, dims, n, target) that puts n elements, widened, into the float32 array at ``target``."""
    whole, part = getattr(memory, f"load_{_NAMES[dtype]}"), getattr(memory, f"load_{_NAMES[dtype]}_part")
    size = dtype.itemsize

    @register_jitable
    def read(address: int, dims: int, n: int, target: int) -> None:
        if _contiguous(dims, size):
            rest = n % _LANES
            for j in range(0, n - rest, _LANES):
                store_float32(target + 4 * j, whole(address + j * size))
            if rest:
                store_float32(target + 4 * (n - rest), part(address + (n - rest) * size, rest))
        else:
            for j in range(n):
                memory.store_float32_part(target + 4 * j, part(address + _offset(dims, j), 1), 1)

    return read


def _writer(dtype: DataType) -> Any:
    """A function (source, n, address, dims) that rounds the float32 array at ``source`` into n elements."""
    whole, part = getattr(memory, f"store_{_NAMES[dtype]}"), getattr(memory, f"store_{_NAMES[dtype]}_part")
    size = dtype.itemsize

    @register_jitable
    def write(source: int, n: int, address: int, dims: int) -> None:
        if _contiguous(dims, size):
            rest = n % _LANES
            for j in range(0, n - rest, _LANES):
                whole(address + j * size, load_float32(source + 4 * j))
            if rest:
                part(address + (n - rest) * size, load_float32(source + 4 * (n - rest)), rest)
        else:
            for j in range(n):
                part(address + _offset(dims, j), memory.load_float32_part(source + 4 * j, 1), 1)

    return write


@register_jitable
def _sum(row: Any, n: int) -> Any:
    """The sum in float64, sixteen interleaved parts: every machine adds in the same order."""
    parts = np.zeros(_LANES)
    whole = n - n % _LANES
    for j in range(0, whole, _LANES):
        for k in range(_LANES):
            parts[k] += np.float64(row[j + k])
    for j in range(whole, n):
        parts[j - whole] += np.float64(row[j])
    return _folded(parts)


@register_jitable
def _sum_of_squares(row: Any, n: int, mean: float) -> Any:
    parts = np.zeros(_LANES)
    whole = n - n % _LANES
    for j in range(0, whole, _LANES):
        for k in range(_LANES):
            d = np.float64(row[j + k]) - mean
            parts[k] += d * d
    for j in range(whole, n):
        d = np.float64(row[j]) - mean
        parts[j - whole] += d * d
    return _folded(parts)


@register_jitable
def _folded(parts: Any) -> float:
    width = _LANES // 2
    while width:
        for k in range(width):
            parts[k] += parts[k + width]
        width //= 2
    return float(parts[0])


class _Kinds(NamedTuple):
    """The data types that the code depends on; None for an absent tensor."""

    x: DataType
    weight: DataType | None
    bias: DataType | None
    out: DataType
    mean: DataType | None
    rstd: DataType | None


def _make(kinds: _Kinds) -> Callable[[int, int, int], None]:
    read, write = _reader(kinds.x), _writer(kinds.out)
    read_weight, read_bias = _reader(kinds.weight or DataType.FLOAT), _reader(kinds.bias or DataType.FLOAT)
    write_mean, write_rstd = _writer(kinds.mean or DataType.FLOAT), _writer(kinds.rstd or DataType.FLOAT)

    def rows(job: int, first: int, last: int) -> None:
        n = _field(job, N)
        eps = np.int64(_field(job, EPS)).view(np.float64)
        padded = n + _LANES  # the last vector is written whole
        row, weight, bias = np.empty(padded, np.float32), np.ones(padded, np.float32), np.zeros(padded, np.float32)
        number = np.empty(_LANES, np.float32)
        if _field(job, WEIGHT):
            read_weight(_field(job, WEIGHT), _field(job, WEIGHT_COLUMNS), n, weight.ctypes.data)
        if _field(job, BIAS):
            read_bias(_field(job, BIAS), _field(job, BIAS_COLUMNS), n, bias.ctypes.data)
        for index in range(first, last):
            read(_field(job, X) + _offset(_field(job, X_ROWS), index), _field(job, X_COLUMNS), n, row.ctypes.data)
            mean = _sum(row, n) / n if n else 0.0
            rstd = 1.0 / math.sqrt(_sum_of_squares(row, n, mean) / n + eps) if n else math.nan
            if _field(job, MEAN):
                number[0] = mean
                place = _field(job, MEAN) + _offset(_field(job, MEAN_ROWS), index)
                write_mean(number.ctypes.data, 1, place, _field(job, MEAN_ROWS))
            if _field(job, RSTD):
                number[0] = rstd
                place = _field(job, RSTD) + _offset(_field(job, RSTD_ROWS), index)
                write_rstd(number.ctypes.data, 1, place, _field(job, RSTD_ROWS))
            for j in range(n):
                normalized = (np.float64(row[j]) - mean) * rstd
                row[j] = np.float32(normalized * np.float64(weight[j]) + np.float64(bias[j]))
            place = _field(job, OUT) + _offset(_field(job, OUT_ROWS), index)
            write(row.ctypes.data, n, place, _field(job, OUT_COLUMNS))

    return rows


def _described(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> list[int]:
    """Dimensions, extent and stride in bytes of each, innermost first; merged where one stride continues another."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dims and stride * itemsize == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * extent, dims[-1][1])
        elif extent != 1:
            dims.append((extent, stride * itemsize))
    dims = dims or [(1, itemsize)]
    return [len(dims), *(number for dim in dims for number in dim)]


class LayerNormPlan:
    """Rows are independent: chunks of them go to the threads. No workspace."""

    workspace_bytes = 0

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        eps: float,
    ) -> None:
        x, weight, bias = inputs
        out, mean, rstd = outputs
        assert x is not None
        assert out is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        job = [0] * _FIELDS
        job[N], job[EPS] = self._n, int(np.float64(eps).view(np.int64))

        def describe(field: int, layout: Layout | None, part: slice = slice(None)) -> None:
            if layout is not None:
                job[field] = len(job)
                job.extend(_described(layout.shape[part], layout.strides[part], layout.dtype.itemsize))

        for rows, columns, tensor in ((X_ROWS, X_COLUMNS, x), (OUT_ROWS, OUT_COLUMNS, out)):
            describe(rows, tensor, slice(split))
            describe(columns, tensor, slice(split, None))
        for field, layout in (
            (MEAN_ROWS, mean), (RSTD_ROWS, rstd), (WEIGHT_COLUMNS, weight), (BIAS_COLUMNS, bias),
        ):  # fmt: skip
            describe(field, layout)
        self._job = np.array(job, np.int64)
        self._layouts = inputs, outputs
        kinds = _Kinds(*(None if layout is None else layout.dtype for layout in (*inputs, *outputs)))  # type: ignore[arg-type]
        self._kernel: Kernel = kernel("layer_norm_forward", tuple(map(repr, kinds)), lambda: _make(kinds))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """Compute; see ``aclnn.kernels.Plan``."""
        job = self._job.copy()
        here = job.ctypes.data
        for field in (X_ROWS, X_COLUMNS, OUT_ROWS, OUT_COLUMNS, MEAN_ROWS, RSTD_ROWS, WEIGHT_COLUMNS, BIAS_COLUMNS):
            job[field] = here + 8 * job[field]
        kept, (job[X], job[WEIGHT], job[BIAS]) = self._apart(inputs, outputs)
        job[OUT], job[MEAN], job[RSTD] = outputs
        rows = max(1, _CHUNK_ELEMENTS // max(1, self._n))

        def chunk(index: int) -> None:
            self._kernel(here, index * rows, min(self._m, (index + 1) * rows))

        pool.run(chunk, -(-self._m // rows))
        del kept

    def _apart(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[list[Any], list[int]]:
        """Copies of the inputs that an output overlaps, and every input's address, or its copy's.

        A row is read before it is written, so x may be exactly out.
        """
        kept, addresses = [], list(inputs)
        layouts, written = self._layouts
        for place, (layout, address) in enumerate(zip(layouts, inputs, strict=True)):
            for other, target in zip(written, outputs, strict=True):
                if layout is None or other is None or (place == 0 and address == target and layout == other):
                    continue
                begin, end = (address + reach for reach in layout.span)
                low, high = (target + reach for reach in other.span)
                if begin < high and low < end:
                    copy = np.empty(end - begin, np.uint8)
                    ctypes.memmove(copy.ctypes.data, begin, end - begin)
                    kept.append(copy)
                    addresses[place] = copy.ctypes.data + address - begin
                    break
        return kept, addresses


def plan(
    inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int, eps: float
) -> LayerNormPlan:
    """See ``aclnn.kernels.layer_norm``."""
    return LayerNormPlan(inputs, outputs, normalized_dims, eps)
