"""Plans of elementwise operators on the CPU: which kernel runs, over which chunks, on how many threads."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache, partial
from operator import add
from typing import Any, cast

import numpy as np

from aclnn.core.dtypes import DataType, is_float32
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels import Formula, Nothing, Plan
from aclnn.kernels.cpu import strided, threads
from aclnn.kernels.cpu.elementwise import fitted, general, lut16, separable
from aclnn.kernels.cpu.jit import Kernel, address_of, kernel
from aclnn.kernels.cpu.strided import CACHED, NONTEMPORAL, Operands
from aclnn.kernels.cpu.structs import bytes_at, call_pointer, pointer_to, stack_alloc
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.layouts import Geometry, Layouts, Overlaps, SharedOutputs, in_order, same_elements, simplify
from aclnn.kernels.products import products
from aclnn.kernels.sixteen_bit import all_inputs, as_bytes
from aclnn.kernels.trace import trace

CHUNK = 1 << 14
"""Number of elements in a thread's unit of work (docs/tuning.md)."""
PER_US = 3000
"""Approximate number of elements computed per microsecond."""

ALONE = 1 << 15
"""Number of elements up to which the calling thread works alone."""


def plan(
    formula: Formula, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], numbers: tuple[float, ...] = ()
) -> Plan:
    """See ``aclnn.kernels.elementwise``."""
    if 0 in outputs[0].shape:
        return Nothing()
    if len(outputs) == 1:
        return _plan(formula, inputs, outputs, numbers)
    places = range(len(outputs))

    def make(made: Layouts) -> Plan:
        return in_order(lambda own: _plan(formula, inputs, cast(tuple[Layout, ...], own), numbers), made, places)

    return SharedOutputs(make, outputs)


def _plan(
    formula: Formula, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], numbers: tuple[float, ...]
) -> Plan:
    geometry = simplify((*inputs, *outputs))
    sizes = {operand.dtype.itemsize for operand in (*inputs, *outputs)}
    side_by_side = len(outputs) == len(sizes) == 1 and len(inputs) <= 2 and _is_contiguous(geometry, *sizes)
    single = next((axis.steps.index(0) for axis in geometry.axes if side_by_side and 0 in axis.steps), None)
    evaluator = _Evaluator(formula, inputs, outputs, numbers, single)
    if side_by_side and single == evaluator.single:
        return _Contiguous(evaluator, (inputs[0], inputs[-1]), outputs[0], geometry)
    return _Strided(evaluator, inputs, outputs, geometry)


def _is_contiguous(geometry: Geometry, itemsize: int) -> bool:
    """Return True if elements are contiguous; one of two inputs may be a single element."""
    if any(geometry.starts) or geometry.ordered or len(geometry.axes) > 1:
        return False
    return all({*axis.steps} <= {0, itemsize} and axis.steps.count(0) < len(axis.steps) - 1 for axis in geometry.axes)


class _Evaluator:
    """Kernel for contiguous elements, and its constants."""

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Layout],
        outputs: Sequence[Layout],
        numbers: tuple[float, ...],
        single: int | None,
    ) -> None:
        self.single = None
        """The input of which the kernel takes a single element, broadcast."""
        self.constants: Any = np.array(numbers, np.float64) if numbers else None
        read, written = (tuple(operand.dtype for operand in operands) for operands in (inputs, outputs))
        program, dtype = trace(formula, len(inputs) + len(numbers)), read[-1]
        alike, gradient = {*read, *written} == {dtype} != {DataType.DOUBLE}, isinstance(formula, Gradient)
        closely = gradient and dtype.itemsize == 2
        double = not (alike and general.float32_suffices(program, dtype, numbers, closely))
        name = "-".join((formula.__name__, *(operand.dtype.name for operand in (*inputs, *outputs))))

        def evaluation(double: bool, way: str = "general", instead: general.Instead | None = None) -> Kernel:
            own = None if instead else single
            make = partial(general.loop, program, read, written, len(numbers), double, own, instead)
            return kernel(f"{way}-{name}", (program.digest, len(numbers), double, own), make)

        of_one = alike and double and len(outputs) == 1 and len(inputs) == 1 + gradient
        if of_one and not numbers and (operations := fitted.operations(formula, dtype)):
            program, double = trace(operations, len(inputs)), False
        elif of_one:
            fast = None if numbers else fitted.fast(formula, dtype)
            tabled = dtype != DataType.FLOAT and not (fast and fast.overflows)
            table = lut16.table(formula, dtype, numbers) if tabled else None
            if table is not None and gradient and lut16.overflows(table):
                table = fast = None
            tried = None
            if table is not None and general.float32_suffices(program, dtype, numbers, closely=True):
                tried = _numbers_for(evaluation(double=False), formula, dtype, as_bytes(numbers))
            if tried is not None:
                self.constants, double = tried, False
            elif table is not None:
                self.constants, self.kernel = table, _by_table(formula, dtype, fast)
                return
            elif fast is not None:
                self.kernel = evaluation(False, "fitted", partial(fitted.write, formula, dtype))
                return
        if alike and double and dtype.itemsize == 2 and len(inputs) > 1:
            by_tables = separable.plan(formula, len(inputs), dtype, as_bytes(numbers))
            if by_tables is not None:
                self.kernel, self.constants = by_tables
                return
        if alike and dtype == DataType.FLOAT and all(map(is_float32, numbers)):
            found = products(formula, len(inputs) + len(numbers))
            if found is not None:
                self.kernel = evaluation(False, "products", partial(fitted.write_products, found))
                return
        self.kernel, self.single = evaluation(double), single

    @property
    def constants_address(self) -> int:
        """Address of the constants, 0 for none."""
        return 0 if self.constants is None else int(self.constants.ctypes.data)


@lru_cache(maxsize=64)
def _numbers_for(run: Kernel, formula: Formula, dtype: DataType, numbers: bytes) -> Any:
    """Return numbers with which a kernel of one variable reproduces its table, None without any.

    They are the given numbers, or adjacent float32, which a product that is rounded twice may need.
    """
    given = np.frombuffer(numbers)
    wanted = lut16.table(formula, dtype, tuple(given.tolist()))
    every, found, values = np.arange(65536, dtype=np.uint16), np.empty(65536, np.uint16), all_inputs(dtype)
    for towards in (None, 0.0, math.inf):
        tried = given if towards is None else np.nextafter(given.astype(np.float32), np.float32(towards)).astype(float)
        operands = array("q", (CACHED, tried.ctypes.data, found.ctypes.data, every.ctypes.data))
        run(operands.buffer_info()[0], 0, found.size, found.size)
        if np.all((found == wanted) | (np.isnan(values[found]) & np.isnan(values[wanted]))):
            return tried
    return None


def _by_table(formula: Formula, dtype: DataType, fast: fitted.Fast | None) -> Kernel:
    gradient = isinstance(formula, Gradient)
    form = f"{'gradient' if gradient else 'values'}-{dtype.name}"
    if fast is None or not gradient:
        return kernel(f"table-{form}", (), lambda: lut16.loop(dtype, gradient, None))
    digest = trace(formula, 2).digest
    return kernel(f"table-{form}-{formula.__name__}", (digest,), lambda: lut16.loop(dtype, gradient, fast))


def _call() -> Any:
    """Make the function that calls a kernel over contiguous elements, with arguments on the stack (docs/tuning.md)."""
    operands_at, nbytes = pointer_to(Operands), ctypes.sizeof(Operands)

    def call(kernel: int, constants: int, out: int, first: int, last: int, size: int) -> None:
        operands = operands_at(stack_alloc(nbytes))
        operands.policy, operands.constants = CACHED, bytes_at(constants)
        operands.addresses[0] = bytes_at(out)
        operands.addresses[1] = bytes_at(first)
        operands.addresses[2] = bytes_at(last)
        call_pointer(kernel, operands, 0, size, size)

    return call


class _Contiguous:
    """Plan for one or two inputs and an output, all contiguous and of one element size."""

    def __init__(
        self, evaluator: _Evaluator, inputs: tuple[Layout, Layout], output: Layout, geometry: Geometry
    ) -> None:
        self.workspace_bytes = 0
        self._size = math.prod(axis.extent for axis in geometry.axes)
        self._itemsize = output.dtype.itemsize
        self._bytes = self._size * self._itemsize
        self._evaluator = evaluator  # keeps the constants' address valid
        self._constants = evaluator.constants_address
        self._kernel, self._kernel_address = evaluator.kernel, address_of(evaluator.kernel)
        self._overlaps = Overlaps(inputs, [output], [(k, 0) for k in range(2) if k != evaluator.single])
        self._call = kernel("elementwise_call", (), _call)
        threads.prepare(1 if self._size <= ALONE else -(-self._size // CHUNK))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        dy, x, out = inputs[0], inputs[-1], outputs[0]
        reach = self._bytes
        single = self._evaluator.single is not None
        if ((out != dy or single) and abs(out - dy) < reach) or ((out != x or single) and abs(out - x) < reach):
            (dy, x), _copies = self._overlaps.apart((dy, x), (out,))
        size = self._size
        if size <= ALONE:
            self._call(self._kernel_address, self._constants, out, dy, x, size)
        else:
            policy = NONTEMPORAL if reach >= STREAM_BYTES and out % self._itemsize == 0 else CACHED
            operands = array(
                "q", (policy, self._constants, out, dy, x)
            )  # the layout of ``Operands``, but faster to make
            threads.share(self._kernel, operands.buffer_info()[0], CHUNK, size, size // PER_US)


class _Strided:
    """Plan for any layouts and data types, and any number of operands."""

    def __init__(
        self, evaluator: _Evaluator, inputs: Sequence[Layout], outputs: Sequence[Layout], geometry: Geometry
    ) -> None:
        self.workspace_bytes = 0
        self._evaluator = evaluator  # keeps the constants' address valid
        arity = len(inputs), len(outputs)
        self._kernel = kernel("strided-{}-{}".format(*arity), (), lambda: strided.loop(*arity))
        found = strided.tile(
            geometry,
            [operand.dtype.itemsize for operand in (*inputs, *outputs)],
            len(outputs),
            (address_of(evaluator.kernel), evaluator.constants_address),
            STREAM_BYTES,
        )
        self._tiles = found
        self._tiling = ctypes.addressof(found.tiling)
        self._per_chunk = found.total if geometry.ordered else max(1, CHUNK // found.elements)
        threads.prepare(-(-found.total // self._per_chunk))
        self._work_us = found.total * found.elements // PER_US
        self._starts = (*geometry.starts[len(inputs) :], *geometry.starts[: len(inputs)])
        # Reading and writing the same element is harmless unless an element is written twice.
        output = outputs[0]
        alike = {(i, 0) for i, layout in enumerate(inputs) if output.distinct and same_elements(layout, output)}
        self._overlaps = Overlaps(inputs, outputs, alike)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        read, _copies = self._overlaps.apart(inputs, outputs)
        # The layout of ``Strided``, with one address per operand.
        arguments = array("q", (self._tiling, *map(add, (*outputs, *read), self._starts)))
        threads.share(self._kernel, arguments.buffer_info()[0], self._per_chunk, self._tiles.total, self._work_us)
