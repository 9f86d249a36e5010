"""Sums over rows: the tasks' partial sums, in float64, and the kernel that adds them up and writes the output."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Operand
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.elementwise.general import ROUNDINGS
from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.reductions.axes import Axes, copy_of, dense, strides_along
from aclnn.kernels.cpu.reductions.rows import PADDED, VECTOR
from aclnn.kernels.cpu.simd.doubles import load_doubles, store_doubles
from aclnn.kernels.cpu.simd.memory import FORMATS, copy
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.structs import Address, Int64, To, address, declared, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.layouts import whole_lines

FINISHED = 512
"""Columns for which all partial sums are added before the next columns: the totals stay in the L1 cache."""
PER_US = 1000
"""Elements or partial sums that a thread computes in a microsecond, approximately."""


@declared
class Partial(ctypes.Structure):
    """A task's partial sums, as offsets in bytes."""

    total: Int64
    """The partial sums of the first task for the same elements, which these are added to; the task's own if first."""
    element: Int64
    """The first of these elements in the output."""


@declared
class SumCall(ctypes.Structure):
    """Arguments of ``finish``."""

    partials: Annotated[int, ctypes.c_int64, To(Partial)]
    """One for each task."""
    tasks: Int64
    task: Int64
    """Bytes of a task's partial sums."""
    step: Int64
    """Bytes from one element of the output to the next."""
    sums: Address
    output: Address


class Sum:
    """An output that is a sum over rows."""

    def __init__(self, output: Operand, axes: Axes, outer: Sequence[int], segments: int, together: int) -> None:
        """Describe the output and its partial sums.

        Args:
            output: the output.
            axes: the axes of the plan.
            outer: the axes of rows whose positions have tasks of their own.
            segments: number of tasks for each of these positions.
            together: number of consecutive tasks that add to the same partial sums if all tasks' are added up.
        """
        extents, dtype = axes.extents_of(output), output.layout.dtype
        self.output, kept = output, {axis for axis, extent in enumerate(extents) if extent > 1}
        columns = [axis for axis in axes.columns if axis in kept]
        strides = contiguous_strides([extents[axis] for axis in columns])
        self._steps = {axis: 8 * stride for axis, stride in zip(columns, strides, strict=True)}
        self._count = math.prod(extents[axis] for axis in columns)
        # The last vector of the last run may extend beyond its elements.
        self.task_bytes = (-(-self._count * 8 // PADDED) + 1) * PADDED
        shape = (*(axes.extents[axis] for axis in outer), segments)
        self.together = together if kept.isdisjoint(outer) else 1
        if self.together > 1:
            shape = (-(-math.prod(shape) // together),)
        tasks = math.prod(shape)

        found = strides_along(output.layout, extents)
        step = found[columns[-1]] if found and columns else 1
        even = found is not None and all(found[axis] == step * s for axis, s in zip(columns, strides, strict=True))
        self._copies = not even or not output.layout.distinct
        if self._copies or found is None:
            found, step = dense(extents, columns), 1
            self._copy = copy_of(output.layout, Layout(dtype, extents, found), to_tensor=True)
        self._sums_bytes = tasks * self.task_bytes
        copy_bytes = whole_lines(math.prod(extents) * dtype.itemsize) if self._copies else 0
        self.nbytes = self._sums_bytes + copy_bytes

        self._partials = np.zeros((*shape, 2), np.int64)  # as ``Partial``
        for axis, stride, place in zip(outer, contiguous_strides(shape), np.indices(shape), strict=False):
            if axis in kept:
                self._partials[..., 0] += place * stride * self.task_bytes
                self._partials[..., 1] += place * found[axis] * dtype.itemsize
        self._call = self._partials.ctypes.data, tasks, self.task_bytes, step * dtype.itemsize
        self._finish = kernel(f"rows-finish-{dtype.name}", (), partial(finish, dtype))
        self._work_us = tasks * self._count // PER_US
        threads.prepare(-(-self._count // FINISHED))

    def step(self, axis: int | None) -> int:
        """Return the bytes from one sum to the next along an axis."""
        return 0 if axis is None else self._steps.get(axis, 0)

    def finish(self, sums: int, output: int) -> None:
        """Add up the partial sums and write the output."""
        target = sums + self._sums_bytes if self._copies else output
        arguments = array("q", (*self._call, sums, target))  # as ``SumCall``
        threads.share(self._finish, arguments.buffer_info()[0], FINISHED, self._count, self._work_us)
        if self._copies:
            self._copy.run((target,), (output,), 0)


def finish(dtype: DataType) -> Loop:
    """Return the loop that adds partial sums of some columns, in the tasks' order, and writes them as a data type."""
    call_at, itemsize = pointer_to(SumCall), dtype.itemsize
    rounded, store = ROUNDINGS[dtype], FORMATS[dtype].store

    def part(arguments: int, first: int, last: int) -> None:
        call = call_at(arguments)
        sums, output, step, room = address(call.sums), address(call.output), call.step, address(stack_alloc(VECTOR))
        for task in range(call.tasks):
            source, total = task * call.task, call.partials[task].total
            if total != source:
                for at in range(8 * first, 8 * last, VECTOR):
                    here = sums + total + at
                    store_doubles(here, load_doubles(here) + load_doubles(sums + source + at))
        for task in range(call.tasks):
            total, element = call.partials[task].total, call.partials[task].element
            if total == task * call.task:
                for column in range(first, last, LANES):
                    store(room, rounded(load_doubles(sums + total + 8 * column)))
                    width, target = min(LANES, last - column), output + element + column * step
                    if step == itemsize:
                        copy(target, room, width * itemsize)
                    else:
                        for k in range(width):
                            copy(target + k * step, room + k * itemsize, itemsize)

    return chunked(part)
