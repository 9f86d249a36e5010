"""LayerNorm on the CPU: rows widened to float32, statistics and results in float64, each rounded once.

docs/numerics-layer-norm.md derives the error bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.jit import kernel, register_jitable
from aclnn.kernels.cpu.layer_norm.elements import ELEMENTS
from aclnn.kernels.cpu.layer_norm.in_order import InOrder, Layouts, in_order
from aclnn.kernels.cpu.layer_norm.job import PER_US, Job, of, offset
from aclnn.kernels.cpu.layer_norm.shared import prepare, sweep
from aclnn.kernels.cpu.layer_norm.views import described, dims_of
from aclnn.kernels.cpu.simd.doubles import no_doubles, plus, plus_square, standardized, sum_of
from aclnn.kernels.cpu.simd.memory import (
    first_lanes,
    load_float32,
    load_float32_part,
    store_float32,
    store_float32_part,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import LANES, select, splat
from aclnn.kernels.cpu.structs import load_one_int64, scratch, store_one_float32
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.cpu.threads import Loop
from aclnn.kernels.layouts import Overlaps

_CHUNK_ELEMENTS = 1 << 16
"""Elements that a thread takes at a time: about 20 µs of work."""

# What `job` holds, one int64 each: sizes, the bits of eps as float64, then for each tensor its address (0 when absent)
# and where its dimensions are described. A description is (dimensions, extent, stride in bytes, …), innermost first;
# x and out have one for rows and one for columns. STREAMED: a way to write. TAKEN: how many threads have begun.
(
    N, EPS, X, X_ROWS, X_COLUMNS, OUT, OUT_ROWS, OUT_COLUMNS, MEAN, MEAN_ROWS, RSTD, RSTD_ROWS,
    WEIGHT, WEIGHT_COLUMNS, BIAS, BIAS_COLUMNS, STREAMED, TAKEN, _FIELDS,
) = range(19)  # fmt: skip


STORE, STREAM, TRICKLE = range(3)
"""Whole vectors of the result are written through the cache, around it, or around it 16 bytes at a time."""


@register_jitable
def _contiguous(dims: int, itemsize: int) -> Any:
    return load_one_int64(dims) == 1 and load_one_int64(dims + 16) == itemsize


def _reader(dtype: DataType) -> Any:
    """A function (address, dims, n, target) that puts n elements, widened, into the float32 array at ``target``."""
    whole, part, size = ELEMENTS[dtype].load, ELEMENTS[dtype].load_part, ELEMENTS[dtype].size

    @register_jitable
    def read(address: int, dims: int, n: int, target: int) -> None:
        if _contiguous(dims, size):
            rest = n % LANES
            for j in range(0, n - rest, LANES):
                store_float32(target + 4 * j, whole(address + j * size))
            if rest:
                store_float32(target + 4 * (n - rest), part(address + (n - rest) * size, rest))
        else:
            for j in range(n):
                store_float32_part(target + 4 * j, part(address + offset(dims, j), 1), 1)

    return read


def _writer(dtype: DataType) -> Any:
    """A function (source, n, address, dims) that rounds the float32 array at ``source`` into n elements."""
    whole, part, size = ELEMENTS[dtype].store, ELEMENTS[dtype].store_part, ELEMENTS[dtype].size

    @register_jitable
    def write(source: int, n: int, address: int, dims: int) -> None:
        if _contiguous(dims, size):
            rest = n % LANES
            for j in range(0, n - rest, LANES):
                whole(address + j * size, load_float32(source + 4 * j))
            if rest:
                part(address + (n - rest) * size, load_float32(source + 4 * (n - rest)), rest)
        else:
            for j in range(n):
                part(address + offset(dims, j), load_float32_part(source + 4 * j, 1), 1)

    return write


@register_jitable
def _mean(row: int, n: int) -> Any:
    """The mean in float64 of the float32 array at ``row``, which may be read up to a whole vector."""
    total, rest = no_doubles(), n % LANES
    for at in range(row, row + 4 * (n - rest), 4 * LANES):
        total = plus(total, load_float32(at))
    if rest:
        total = plus(total, load_float32_part(row + 4 * (n - rest), rest))
    return sum_of(total) / n


@register_jitable
def _variance(row: int, n: int, mean: float) -> Any:
    """The mean square of the distances from ``mean``, as ``_mean``."""
    total, rest = no_doubles(), n % LANES
    for at in range(row, row + 4 * (n - rest), 4 * LANES):
        total = plus_square(total, load_float32(at), mean)
    if rest:
        added = plus_square(total, load_float32_part(row + 4 * (n - rest), rest), mean)
        total = select(first_lanes(rest), added, total)
    return sum_of(total) / n


@register_jitable
def _move(row: int, n: int, origin: np.float32, target: int) -> None:
    """Write the float32 array at ``row``, measured from another origin, to ``target``, in whole vectors."""
    rest, start = n % LANES, splat(origin)
    for at in range(0, 4 * (n - rest), 4 * LANES):
        store_float32(target + at, load_float32(row + at) - start)
    if rest:
        at = 4 * (n - rest)
        store_float32(target + at, load_float32_part(row + at, rest) - start)


class _Kinds(NamedTuple):
    """The data types that the code depends on; float32 for an absent tensor."""

    x: DataType
    weight: DataType
    bias: DataType
    out: DataType
    mean: DataType
    rstd: DataType


def _normalizer(dtype: DataType) -> Any:
    """A function that normalizes the n float32 at ``row`` into contiguous elements at ``out``.

    ``ahead`` is what will be read next; it is brought into the cache, ``ahead_bytes`` for each sixteen elements.
    """
    element = ELEMENTS[dtype]
    store, store_part, size = element.store, element.store_part, element.size
    stream, trickle = element.stream, element.trickle

    @register_jitable
    def normalize(
        row: int, n: int, mean: float, rstd: float, weight: int, bias: int, out: int, streamed: int,
        ahead: int, ahead_bytes: int,
    ) -> None:  # fmt: skip
        rest = n % LANES
        for j in range(0, n - rest, LANES):
            prefetch(ahead)
            ahead += ahead_bytes
            w, b = load_float32(weight + 4 * j), load_float32(bias + 4 * j)
            value = standardized(load_float32(row + 4 * j), mean, rstd, w, b)
            if streamed == STORE:
                store(out + j * size, value)
            elif streamed == STREAM:
                stream(out + j * size, value)
            else:
                trickle(out + j * size, value)
        if rest:
            j = n - rest
            w, b = load_float32(weight + 4 * j), load_float32(bias + 4 * j)
            store_part(out + j * size, standardized(load_float32_part(row + 4 * j, rest), mean, rstd, w, b), rest)

    return normalize


@register_jitable
def _fill(row: int, row_bytes: int, value: np.float32) -> None:
    for at in range(row, row + row_bytes, 4 * LANES):
        store_float32(at, splat(value))


def _make(kinds: _Kinds, centred: bool) -> Loop:
    """Rows, shared by threads as in ``chunks``.

    The operands: the job, the threads' memory, of three rows in float32 each (one of x or of the result, the weights,
    the biases), the bytes of a row, and how many threads have such memory.
    """
    read, write, normalize = _reader(kinds.x), _writer(kinds.out), _normalizer(kinds.out)
    into_row, no_bias = _normalizer(DataType.FLOAT), np.float32(0.0 if centred else -0.0)  # -0 keeps a result's sign
    read_weight, read_bias = _reader(kinds.weight), _reader(kinds.bias)
    write_mean, write_rstd = _writer(kinds.mean), _writer(kinds.rstd)
    x_size, out_size, as_it_is = kinds.x.itemsize, kinds.out.itemsize, kinds.x == DataType.FLOAT

    @register_jitable
    def rows(job: int, row: int, weight: int, bias: int, first: int, last: int) -> None:
        n = of(job, N)
        eps = np.int64(of(job, EPS)).view(np.float64)
        number = scratch(64)
        x_columns, out_columns = of(job, X_COLUMNS), of(job, OUT_COLUMNS)
        streamed = of(job, STREAMED)
        x = of(job, X) + offset(of(job, X_ROWS), first)
        for index in range(first, last):
            following = of(job, X) + offset(of(job, X_ROWS), index + 1)
            source = row
            if as_it_is and _contiguous(x_columns, x_size):
                source = x
            else:
                read(x, x_columns, n, row)
            origin = 0.0
            while True:
                mean = _mean(source, n) if centred and n else 0.0
                variance = _variance(source, n, mean) if n else math.nan
                if not centred or not 16.0 * n * variance < mean * mean:
                    break
                # All of x is within a quarter of the mean: differences from a float32 there are exact, and far smaller.
                origin += np.float32(mean)
                _move(source, n, np.float32(mean), row)
                source = row
            rstd = 1.0 / math.sqrt(variance + eps)
            if of(job, MEAN):
                store_one_float32(number, np.float32(origin + mean))
                place = of(job, MEAN) + offset(of(job, MEAN_ROWS), index)
                write_mean(number, 1, place, of(job, MEAN_ROWS))
            if of(job, RSTD):
                store_one_float32(number, np.float32(rstd))
                place = of(job, RSTD) + offset(of(job, RSTD_ROWS), index)
                write_rstd(number, 1, place, of(job, RSTD_ROWS))
            place = of(job, OUT) + offset(of(job, OUT_ROWS), index)
            if _contiguous(out_columns, out_size):
                normalize(source, n, mean, rstd, weight, bias, place, streamed, following, LANES * x_size)
            else:
                into_row(source, n, mean, rstd, weight, bias, row, STORE, following, LANES * x_size)
                write(row, n, place, out_columns)
            x = following
        if streamed:
            finish_streams()

    def run(job: int, rooms: int, row_bytes: int, threads: int, unused: int, begun: int, step: int, end: int) -> None:
        number = fetch_add(job + 8 * TAKEN, 1)
        if number >= threads:
            return
        n, row = of(job, N), rooms + 3 * row_bytes * number
        weight, bias = row + row_bytes, row + 2 * row_bytes
        if of(job, WEIGHT):
            read_weight(of(job, WEIGHT), of(job, WEIGHT_COLUMNS), n, weight)
        else:
            _fill(weight, row_bytes, np.float32(1.0))
        if of(job, BIAS):
            read_bias(of(job, BIAS), of(job, BIAS_COLUMNS), n, bias)
        else:
            _fill(bias, row_bytes, no_bias)
        first = fetch_add(begun, step) if begun else 0
        while first < end:
            rows(job, row, weight, bias, first, min(end, first + step))
            first = fetch_add(begun, step) if begun else end

    return run


class LayerNormPlan:
    """Rows are independent: chunks of them go to the threads. No workspace; 12 bytes for each thread and column."""

    workspace_bytes = 0

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        eps: float,
        centred: bool,
    ) -> None:
        x, weight, bias = inputs
        out, mean, rstd = outputs
        assert x is not None
        assert out is not None
        split = len(x.shape) - normalized_dims
        self._m, self._n = math.prod(x.shape[:split]), math.prod(x.shape[split:])
        job = [0] * _FIELDS
        job[N], job[EPS] = self._n, int(np.float64(eps).view(np.int64))
        parts = (
            (X_ROWS, x, slice(split)), (X_COLUMNS, x, slice(split, None)),
            (OUT_ROWS, out, slice(split)), (OUT_COLUMNS, out, slice(split, None)),
            (MEAN_ROWS, mean, slice(None)), (RSTD_ROWS, rstd, slice(None)),
            (WEIGHT_COLUMNS, weight, slice(None)), (BIAS_COLUMNS, bias, slice(None)),
        )  # fmt: skip
        self._descriptions = {
            field: Job.of(described(dims_of(layout.shape[part], layout.strides[part], layout.dtype.itemsize)))
            for field, layout, part in parts
            if layout is not None
        }
        for field, description in self._descriptions.items():
            job[field] = description.address
        self._template = Job.of(job)
        read, written = (
            [None if layout is None else layout.span for layout in layouts] for layouts in (inputs, outputs)
        )
        self._overlaps = Overlaps(read, written, {0} if x == out else ())  # a row is read before it is written
        tensors = x, weight, bias, out, mean, rstd
        kinds = _Kinds(*(DataType.FLOAT if layout is None else layout.dtype for layout in tensors))
        size = out.dtype.itemsize
        self._vector_bytes = LANES * size
        self._streams = (
            self._n % LANES == 0
            and self._m * self._n * size >= STREAM_BYTES
            and dims_of(out.shape, out.strides, size) == ((self._m * self._n, size),)
        )
        self._row_bytes = 4 * LANES * (self._n // LANES + 1)  # the last vector is read and written whole
        self._step = max(1, _CHUNK_ELEMENTS // max(1, self._n))
        self._normalize = kernel("layer_norm_forward", (*map(repr, kinds), centred), lambda: _make(kinds, centred))
        prepare(-(-self._m // self._step))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """Compute; see ``aclnn.kernels.Plan``."""
        job = self._template.copy()
        (job[X], job[WEIGHT], job[BIAS]), _copies = self._overlaps.apart(inputs, outputs)
        job[OUT], job[MEAN], job[RSTD] = outputs
        if self._streams and outputs[0] % 16 == 0:
            job[STREAMED] = TRICKLE if outputs[0] % self._vector_bytes else STREAM
        count = min(threads.shared().threads, -(-self._m // self._step))
        rooms = np.empty(count * 3 * self._row_bytes, np.uint8)
        operands = (job.address, rooms.ctypes.data, self._row_bytes, count, 0)
        sweep(self._normalize, operands, self._step, self._m, self._m * self._n // PER_US)


def _of_rows(layout: Layout | None, rows: int) -> Layout | None:
    """A statistic's first elements, one a row, where they are evenly spaced; else all, of which the others are left."""
    if layout is None or layout.size == rows or len(dims := dims_of(layout.shape, layout.strides, 1)) > 1:
        return layout
    return layout._replace(shape=(rows,), strides=(dims[0][1],))


def plan(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    eps: float,
    centred: bool = True,
) -> Plan:
    """See ``aclnn.kernels.layer_norm``."""

    def make(outputs: Layouts) -> Plan:
        def straight(outputs: Layouts) -> Plan:
            return LayerNormPlan(inputs, outputs, normalized_dims, eps, centred)

        return in_order(straight, outputs, places=(0, 1, 2))

    x = inputs[0]
    assert x is not None
    rows = math.prod(x.shape[: len(x.shape) - normalized_dims])
    return InOrder(make, (outputs[0], *(_of_rows(layout, rows) for layout in outputs[1:])))
