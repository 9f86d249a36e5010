"""Layouts of several operands: simplification to a common iteration space, and detection of shared memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from aclnn.core.tensor import ColumnsLayout, Layout, contiguous_strides
from aclnn.kernels import Plan
from aclnn.kernels.numpy_plans import view
from aclnn.support.bounded import BoundedCache


class Axis(NamedTuple):
    """A dimension: extent, and stride in bytes of each operand, outputs last."""

    extent: int
    steps: tuple[int, ...]

    @property
    def out(self) -> int:
        """Stride of the last output."""
        return self.steps[-1]


class Geometry(NamedTuple):
    """Axes from the outermost to the innermost, and the offset in bytes of each operand's first element."""

    axes: tuple[Axis, ...]
    starts: tuple[int, ...]
    ordered: bool
    """True if elements of the output alias so that only writing in logical order is correct: the axes are unchanged."""


def _merge(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Merge adjacent axes if every operand has one stride for both."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].steps == tuple(step * axis.extent for step in axis.steps):
            merged[-1] = Axis(merged[-1].extent * axis.extent, axis.steps)
        else:
            merged.append(axis)
    return tuple(merged)


def simplify(operands: Sequence[Layout]) -> Geometry:
    """Return the common iteration space of operands of one shape without zeros; the last of them is an output.

    Elements of the other outputs must not alias.
    """
    sizes = [operand.dtype.itemsize for operand in operands]
    starts = [operand.offset * operand.dtype.itemsize for operand in operands]
    every = [
        Axis(extent, tuple(stride * size for stride, size in zip(strides, sizes, strict=True)))
        for extent, *strides in zip(operands[-1].shape, *(operand.strides for operand in operands), strict=True)
        if extent > 1
    ]
    axes = [axis for axis in every if axis.out]
    extents, outs = tuple(axis.extent for axis in axes), tuple(axis.out for axis in axes)
    ordered = not Layout(operands[-1].dtype, extents, outs).distinct
    for axis in every:
        # Backwards: of aliasing elements of the output only the last is visible; its address has to increase.
        if axis.out == 0 or (axis.out < 0 and not ordered):
            starts = [start + (axis.extent - 1) * step for start, step in zip(starts, axis.steps, strict=True)]
    if not ordered:
        axes = [axis if axis.out > 0 else Axis(axis.extent, tuple(-step for step in axis.steps)) for axis in axes]
        axes.sort(key=lambda axis: axis.steps[::-1], reverse=True)
    return Geometry(_merge(axes), tuple(starts), ordered)


def merged(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return (extent, stride) of as few axes as possible, innermost first, without extents of 1."""
    axes = [Axis(extent, (stride,)) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    return [(axis.extent, axis.out) for axis in reversed(_merge(axes))]


Layouts = tuple[Layout | None, ...]

_LINE_BYTES = 64
_SOME_ADDRESS = 1 << 40
_WORK = 1000
"""Limit on NumPy's search for shared memory, in steps; this many take microseconds."""


def same_elements(first: Layout, second: Layout) -> bool:
    """Return True if, at the same address, both layouts have the same elements in the same places."""
    return first.strides == second.strides and first.dtype.itemsize == second.dtype.itemsize


@lru_cache(maxsize=1024)
def share_memory(first: Layout, second: Layout, distance: int) -> bool:
    """Return True if elements of both share a byte, with the second layout at the given distance from the first.

    Interleaved elements, as in halves of rows, share none. Also True if the answer would take long.
    """
    arrays = view(first.stored, _SOME_ADDRESS), view(second.stored, _SOME_ADDRESS + distance)
    return np.may_share_memory(*arrays, max_work=_WORK)  # type: ignore[arg-type]  # its stub has 0 and -1 alone


class Overlaps:
    """Inputs that share memory with outputs, determined from each call's addresses."""

    __slots__ = ("_apart", "_pairs", "_read", "_written")

    def __init__(
        self, read: Sequence[Layout | None], written: Sequence[Layout | None], alike: Collection[tuple[int, int]] = ()
    ) -> None:
        """Prepare for a plan's operands.

        Args:
            read: layout read of each input; None for an absent one.
            written: layout written of each output; None for an absent one.
            alike: pairs of an input and an output that may coincide: each element is read before it is written.
        """
        self._read, self._written = read, written
        self._apart: tuple[int, ...] = ()
        """Addresses of the last call without overlap: the next call is often at the same ones."""
        # The ranges overlap if the difference of the output's and the input's address lies between two numbers.
        self._pairs = [
            (i, k, begin - target_end, end - target, (i, k) in alike)
            for i, (begin, end) in ((i, layout.span) for i, layout in enumerate(read) if layout is not None)
            for k, (target, target_end) in ((k, layout.span) for k, layout in enumerate(written) if layout is not None)
        ]

    def among(self, inputs: Sequence[int], outputs: Sequence[int]) -> list[int]:
        """Return the inputs, given all addresses, that an output overlaps."""
        addresses = (*inputs, *outputs)
        if addresses == self._apart:
            return []
        found = []
        for i, k, low, high, same in self._pairs:
            distance = outputs[k] - inputs[i]
            if low < distance < high and not (same and distance == 0):
                first, second = self._read[i], self._written[k]
                if share_memory(cast(Layout, first), cast(Layout, second), distance):
                    found.append(i)
        if not found:
            self._apart = addresses
        return found

    def apart(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Sequence[int], list[NDArray[np.uint8]]]:
        """Return each input's address, or its copy's if an output overlaps it, and the copies."""
        which = self.among(inputs, outputs)
        if not which:
            return inputs, []
        addresses, copies = list(inputs), []
        for i in set(which):
            begin, end = cast(Layout, self._read[i]).span
            copy = np.empty(end - begin, np.uint8)
            ctypes.memmove(copy.ctypes.data, inputs[i] + begin, copy.size)
            copies.append(copy)
            addresses[i] = copy.ctypes.data - begin
        return addresses, copies


def whole_lines(number: int) -> int:
    """Round a size or an address up to whole cache lines, at which workspaces begin."""
    return -(-number // _LINE_BYTES) * _LINE_BYTES


def in_order(make: Callable[[Layouts], Plan], outputs: Layouts, places: Sequence[int]) -> Plan:
    """Return a plan for these outputs, where aliasing elements are written in logical order.

    Args:
        make: makes a plan for layouts of outputs.
        outputs: the requested layouts.
        places: outputs whose aliasing elements the plan writes in an arbitrary order.
    """
    moved = {i: layout for i in places if (layout := outputs[i]) is not None and not layout.distinct}
    return _Copying(make, outputs, moved) if moved else make(outputs)


class SharedOutputs:
    """Plan with outputs that may share elements, of which the last output's prevails."""

    def __init__(self, make: Callable[[Layouts], Plan], outputs: Layouts) -> None:
        self._plan = make(outputs)
        self._make, self._outputs = make, outputs
        self._copying: Plan | None = None
        self._overlaps = Overlaps(outputs, outputs, [(k, k) for k in range(len(outputs))])
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        if self._overlaps.among(outputs, outputs):
            self._run_copying(inputs, outputs)
        else:
            self._plan.run(inputs, outputs, workspace)

    def _run_copying(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run with outputs in newly allocated memory; the workspace may be too small for that."""
        moved = {i: layout for i, layout in enumerate(self._outputs) if layout is not None}
        plan = self._copying = self._copying or _Copying(self._make, self._outputs, moved)
        room = np.empty(plan.workspace_bytes + _LINE_BYTES, np.uint8)
        plan.run(inputs, outputs, whole_lines(room.ctypes.data))


class Matrices:
    """See ``aclnn.kernels.matrices``."""

    workspace_bytes = 0

    def __init__(
        self,
        make: Callable[[Layouts, Layouts], Plan],
        inputs: Sequence[ColumnsLayout],
        outputs: Sequence[ColumnsLayout],
        groups: Layout | None,
        clears: bool,
    ) -> None:
        self._inputs, self._outputs, self._groups, self._clears = inputs, outputs, groups, clears
        self._rows = outputs[0].rows
        self._layouts = [cast(Layout, of.layout or of.packed.layout) for of in (*inputs, *outputs)]
        self._make, self._plans = make, BoundedCache[int, Plan]()
        self._plan(self._rows)

    def _plan(self, rows: int) -> Plan:
        """Return the plan for the first rows."""
        found = self._plans.get(rows)
        if found is None:
            first = [layout._replace(shape=(rows, *layout.shape[1:])) for layout in self._layouts]
            count = len(self._inputs)
            found = self._plans[rows] = self._make(tuple(first[:count]), tuple(first[count:]))
        return found

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        rows = self._rows
        if self._groups is not None:
            rows = min(max(sum(view(self._groups, inputs[-1]).tolist()), 0), rows)
        copies: dict[tuple[int, Layout], NDArray[Any]] = {}

        def place(operand: ColumnsLayout, address: int) -> int:
            if operand.layout is not None:
                return address
            key = address, operand.tensor
            if key not in copies:
                copies[key] = np.ascontiguousarray(view(operand.tensor, address))
            return copies[key].ctypes.data

        read = list(map(place, self._inputs, inputs))
        written = list(map(place, self._outputs, outputs))
        if rows:
            self._plan(rows).run(read, written, workspace)
        if self._clears:
            for layout, address in zip(self._layouts[len(read) :], written, strict=True):
                view(layout, address)[rows:] = 0
        for address, tensor in {(at, of.tensor) for of, at in zip(self._outputs, outputs, strict=True)} & {*copies}:
            copy = copies[address, tensor]
            words = f"u{copy.itemsize}"
            view(tensor, address).view(words).flat[:] = copy.view(words).reshape(-1)


class _Copying:
    """Plan that writes some outputs to temporary memory, and copies them in logical order."""

    def __init__(self, make: Callable[[Layouts], Plan], outputs: Layouts, moved: dict[int, Layout]) -> None:
        self._moved = moved
        self._own = {i: Layout(to.dtype, to.shape, contiguous_strides(to.shape)) for i, to in moved.items()}
        self._plan = make(tuple(self._own.get(i, layout) for i, layout in enumerate(outputs)))
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        copies = {i: np.empty(own.shape, own.dtype.numpy) for i, own in self._own.items()}
        targets = [copies[i].ctypes.data if i in copies else target for i, target in enumerate(outputs)]
        self._plan.run(inputs, targets, workspace)
        for i, copy in copies.items():
            words = f"u{copy.itemsize}"
            view(self._moved[i], outputs[i]).view(words).flat[:] = copy.view(words).reshape(-1)
