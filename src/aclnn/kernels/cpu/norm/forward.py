"""LayerNorm on the CPU: rows widened to float32, statistics and results in float64, each rounded once.

docs/numerics-layer-norm.md derives the error bounds.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from struct import Struct
from typing import Annotated, Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.jit import kernel, register_jitable
from aclnn.kernels.cpu.norm.arithmetic import Kernel
from aclnn.kernels.cpu.norm.structs import (
    ELEMENTS,
    ELEMENTS_PER_US,
    TensorDesc,
    View,
    copy_words,
    dims_of,
    load_columns,
    move_tile,
    narrow_all,
    row_at,
    store_some,
    widen_all,
)
from aclnn.kernels.cpu.simd.doubles import load_doubles, narrow, store_doubles, sum_of, widen
from aclnn.kernels.cpu.simd.memory import first_lanes, load_float32, load_float32_part, store_float32
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import LANES, select, splat
from aclnn.kernels.cpu.structs import Float64, Int64, declared, pointer_to, scratch
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.cpu.threads import take
from aclnn.kernels.layouts import InOrder, Layouts, Overlaps, in_order

_CHUNK_ELEMENTS = 1 << 16
"""Elements that a thread takes at a time: about 20 µs of work."""

_ON_STACK = 1 << 15
"""Bytes of a thread's rows and tiles that are on its stack, at most: to ask for memory takes 2 µs."""

STORE, STREAM, TRICKLE = range(3)
"""``structs.STORE_POLICIES``, as numbers."""


@declared
class ForwardArgs(ctypes.Structure):
    """Arguments of the kernel."""

    inputs: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of x, weight and bias as the call gives them; these come first."""
    outputs: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of out, mean and rstd."""
    room: Int64
    """Address of memory for each thread: a row in float32, weight and bias in float64, and tiles of x and out that are
    not contiguous; 0 for as much of its stack."""
    rooms: Int64
    """Number of threads with such memory."""
    room_bytes: Int64
    row_bytes: Int64
    tile_rows: Int64
    n: Int64
    eps: Float64
    policy: Int64
    """A way to write."""
    rooms_taken: Annotated[Any, ctypes.c_int64 * 1]
    x: Annotated[Any, TensorDesc]
    weight: Annotated[Any, TensorDesc]
    bias: Annotated[Any, TensorDesc]
    out: Annotated[Any, TensorDesc]
    mean: Annotated[Any, TensorDesc]
    rstd: Annotated[Any, TensorDesc]


_args_at, _ARGS_BYTES = pointer_to(ForwardArgs), ctypes.sizeof(ForwardArgs)
_ADDRESSES = Struct("8q")


def _row_moment(term: Any) -> Any:
    """A function (row, n, origin) of compiled code: the sum of the terms, of float64 lanes and an origin, in lanes."""
    term = register_jitable(term)

    @register_jitable
    def moment(row: int, n: int, origin: float) -> Any:
        total, rest = widen(0.0), n % LANES
        for at in range(row, row + 4 * (n - rest), 4 * LANES):
            total = total + term(widen(load_float32(at)), origin)
        if rest:
            last = term(widen(load_float32_part(row + 4 * (n - rest), rest)), origin)
            total = select(first_lanes(rest), total + last, total)
        return total

    return moment


_values = _row_moment(lambda value, origin: value)
_squares = _row_moment(lambda value, origin: (value - origin) * (value - origin))


@register_jitable
def _move(row: int, n: int, origin: np.float32, target: int) -> None:
    """Write the float32 array at ``row``, measured from another origin, to ``target``, in whole vectors."""
    rest, start = n % LANES, splat(origin)
    for at in range(0, 4 * (n - rest), 4 * LANES):
        store_float32(target + at, load_float32(row + at) - start)
    if rest:
        at = 4 * (n - rest)
        store_float32(target + at, load_float32_part(row + at, rest) - start)


def _normalizer(dtype: DataType) -> Any:
    """A function that normalizes the n float32 at ``row`` into contiguous elements at ``out``.

    ``ahead`` is what will be read next; it is brought into the cache, ``ahead_bytes`` for each sixteen elements.
    """
    element = ELEMENTS[dtype]
    store, store_part, size = element.store, element.store_part, element.size
    stream, trickle = element.stream, element.trickle

    @register_jitable
    def standardized(value: Any, mean: float, rstd: float, weight: int, bias: int) -> Any:
        return narrow((widen(value) - mean) * rstd * load_doubles(weight) + load_doubles(bias))

    @register_jitable
    def normalize(
        row: int, n: int, mean: float, rstd: float, weight: int, bias: int, out: int, streamed: int,
        ahead: int, ahead_bytes: int,
    ) -> None:  # fmt: skip
        rest = n % LANES
        for j in range(0, n - rest, LANES):
            prefetch(ahead)
            ahead += ahead_bytes
            value = standardized(load_float32(row + 4 * j), mean, rstd, weight + 8 * j, bias + 8 * j)
            if streamed == STORE:
                store(out + j * size, value)
            elif streamed == STREAM:
                stream(out + j * size, value)
            else:
                trickle(out + j * size, value)
        if rest:
            j = n - rest
            value = standardized(load_float32_part(row + 4 * j, rest), mean, rstd, weight + 8 * j, bias + 8 * j)
            store_part(out + j * size, value, rest)

    return normalize


@register_jitable
def _load_vector(tensor: Any, n: int, row: int, row_bytes: int, absent: float) -> None:
    """Weights or biases at ``row`` in float64, widened once for all rows; ``row_bytes`` they take in float32."""
    if tensor.address:
        load_columns(tensor, n, row + row_bytes)
    for at in range(0, row_bytes, 4 * LANES):
        store_doubles(row + 2 * at, widen(load_float32(row + row_bytes + at)) if tensor.address else widen(absent))


@register_jitable
def _store_statistic(tensor: Any, row: int, value: float) -> None:
    """A row's mean or rstd, if it is wanted."""
    if tensor.address:
        store_some(tensor.dtype, row_at(tensor, row), splat(np.float32(value)), 1)


def forward(x: DataType, out: DataType, centred: bool) -> Kernel:
    """The kernel, for data types of x and out; threads share rows."""
    normalize, into_row = _normalizer(out), _normalizer(DataType.FLOAT)
    no_bias = 0.0 if centred else -0.0  # -0 keeps a result's sign
    x_dtype, out_dtype, x_size, out_size = int(x), int(out), x.itemsize, out.itemsize
    ahead = LANES * x_size
    is_float32 = x == DataType.FLOAT

    @register_jitable
    def do_row(args: Any, index: int, row: int, weight: int, bias: int, x_tile: int, out_tile: int) -> None:
        n, x, out = args.n, args.x, args.out
        source, following = row_at(x, index), row_at(x, index + 1)
        if not x.contiguous:
            source = x_tile
        if not is_float32:
            widen_all(x_dtype, source, n, row)
            source = row
        origin = 0.0
        while True:
            mean = sum_of(_values(source, n, 0.0)) / n if centred and n else 0.0
            variance = sum_of(_squares(source, n, mean)) / n if n else math.nan
            if not centred or not 16.0 * n * variance < mean * mean:
                break
            # All of x is within a quarter of the mean: differences from a float32 there are exact, and far smaller.
            origin += np.float32(mean)
            _move(source, n, np.float32(mean), row)
            source = row
        rstd = 1.0 / math.sqrt(variance + args.eps)
        _store_statistic(args.mean, index, origin + mean)
        _store_statistic(args.rstd, index, rstd)
        if out.contiguous:
            normalize(source, n, mean, rstd, weight, bias, row_at(out, index), args.policy, following, ahead)
        else:
            into_row(source, n, mean, rstd, weight, bias, row, STORE, following, ahead)
            narrow_all(out_dtype, row, n, out_tile)

    @register_jitable
    def do_rows(args: Any, first: int, last: int, row: int) -> None:
        n, row_bytes, x, out = args.n, args.row_bytes, args.x, args.out
        weight, bias, x_tile = row + row_bytes, row + 3 * row_bytes, row + 5 * row_bytes
        out_tile = x_tile + args.tile_rows * row_bytes
        for start in range(first, last, args.tile_rows):
            stop = min(last, start + args.tile_rows)
            if not x.contiguous:
                move_tile(x, 0, start, stop - start, 0, n, x_tile)
            for index in range(start, stop):
                x_at, out_at = x_tile + (index - start) * n * x_size, out_tile + (index - start) * n * out_size
                do_row(args, index, row, weight, bias, x_at, out_at)
            if not out.contiguous:
                move_tile(out, 1, start, stop - start, 0, n, out_tile)

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        given, args = _args_at(arguments), _args_at(scratch(_ARGS_BYTES))
        number = fetch_add(given.rooms_taken, 1)
        if number >= given.rooms:
            return
        copy_words(given, args, _ARGS_BYTES)
        args.x.address, args.weight.address, args.bias.address = args.inputs[0], args.inputs[1], args.inputs[2]
        args.out.address, args.mean.address, args.rstd.address = args.outputs[0], args.outputs[1], args.outputs[2]
        row_bytes, n = args.row_bytes, args.n
        row = args.room + args.room_bytes * number if args.room else scratch(_ON_STACK)
        _load_vector(args.weight, n, row + row_bytes, row_bytes, 1.0)
        _load_vector(args.bias, n, row + 3 * row_bytes, row_bytes, no_bias)
        first = take(counter, step, end, 0)
        while first < end:
            do_rows(args, first, min(end, first + step), row)
            if args.policy:
                finish_streams()
            first = take(counter, step, end, end)

    return run


class LayerNormPlan:
    """Rows are independent: chunks of them go to the threads. No workspace; 20 bytes for each thread and column."""

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
        size = out.dtype.itemsize
        row_bytes = 4 * LANES * (self._n // LANES + 1)  # the last vector is read and written whole
        self._step = max(1, _CHUNK_ELEMENTS // max(1, self._n))
        self._template = ForwardArgs(n=self._n, eps=eps, row_bytes=row_bytes, tile_rows=self._step)
        columns = {"x": normalized_dims, "out": normalized_dims, "weight": None, "bias": None, "mean": 0, "rstd": 0}
        layouts = (x, out, weight, bias, mean, rstd)
        self._views = {
            name: View(layout, len(layout.shape) if dims is None else dims)
            for (name, dims), layout in zip(columns.items(), layouts, strict=True)
            if layout is not None
        }
        for name, view in self._views.items():
            setattr(self._template, name, view.describe(name in ("x", "out") and not view.contiguous))
        self._template.room_bytes = 5 * row_bytes
        if not (self._views["x"].contiguous and self._views["out"].contiguous):
            self._template.tile_rows = min(LANES, self._step)
            self._template.room_bytes += 2 * self._template.tile_rows * row_bytes
        read, written = (
            [None if layout is None else layout.span for layout in layouts] for layouts in (inputs, outputs)
        )
        self._overlaps = Overlaps(read, written, {(0, 0)} if x == out else ())  # a row is read before it is written
        self._vector_bytes = LANES * size
        self._streams = (
            self._n % LANES == 0
            and self._m * self._n * size >= STREAM_BYTES
            and dims_of(out.shape, out.strides, size) == ((self._m * self._n, size),)
        )
        key = x.dtype.name, out.dtype.name, centred
        self._kernel = kernel("norm-forward", key, lambda: forward(x.dtype, out.dtype, centred))
        threads.prepare(-(-self._m // self._step))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """Compute; see ``aclnn.kernels.Plan``."""
        inputs, _copies = self._overlaps.apart(inputs, outputs)
        args = ForwardArgs.from_buffer_copy(self._template)
        count = min(threads.shared().threads, -(-self._m // self._step))
        rooms = np.empty(count * args.room_bytes, np.uint8) if args.room_bytes > _ON_STACK else None
        _ADDRESSES.pack_into(args, 0, *inputs, *outputs, 0 if rooms is None else rooms.ctypes.data, count)
        if self._streams and outputs[0] % 16 == 0:
            args.policy = TRICKLE if outputs[0] % self._vector_bytes else STREAM
        work_us = self._m * self._n // ELEMENTS_PER_US
        threads.share(self._kernel, ctypes.addressof(args), self._step, self._m, work_us)


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
