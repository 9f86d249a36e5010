"""The axes of a plan over rows, and its tensors as strides along them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence

from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Operand, Plan, identity
from aclnn.kernels.cpu.elementwise import plans as elementwise
from aclnn.kernels.layouts import whole_lines


class Axes:
    """The axes of a walk: neighbouring dimensions are one axis if each operand has, or broadcasts, all of them.

    Axes depend on shapes alone, and thus the order of additions does.
    """

    def __init__(self, shape: tuple[int, ...], dims: tuple[int, ...], operands: Iterable[Operand]) -> None:
        columns = {dim % len(shape) for dim in dims}
        padded = [(1,) * (len(shape) - len(operand.shape)) + operand.shape for operand in operands]

        def kind(dim: int) -> tuple[bool, ...]:
            return dim in columns, *(given[dim] == shape[dim] for given in padded)

        walked = (dim for dim, extent in enumerate(shape) if extent > 1)
        self._groups, self._rank = [tuple(group) for _, group in itertools.groupby(walked, kind)], len(shape)
        self.extents = [math.prod(shape[dim] for dim in group) for group in self._groups]
        self.elements = math.prod(shape)
        self.rows = [axis for axis, group in enumerate(self._groups) if group[0] not in columns]
        self.columns = [axis for axis, group in enumerate(self._groups) if group[0] in columns]

    def extents_of(self, operand: Operand) -> tuple[int, ...]:
        """Return an operand's extents along the axes; 1 where it is broadcast."""
        shape = (1,) * (self._rank - len(operand.shape)) + operand.shape
        return tuple(
            1 if shape[group[0]] == 1 else extent for extent, group in zip(self.extents, self._groups, strict=True)
        )


def strides_along(layout: Layout, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return strides of a layout's elements in another shape, 0 for an extent of 1; None if they would be uneven."""
    left = [(extent, stride) for extent, stride in zip(layout.shape, layout.strides, strict=True) if extent > 1]
    found = []
    for extent in reversed(shape):
        step, have = 0, 1
        while have < extent:
            inner, stride = left.pop()
            step = stride if have == 1 else step
            wanted = extent // have
            if inner > wanted:
                left.append((inner // wanted, stride * wanted))
            if stride != step * have or (inner % wanted and wanted % inner):
                return None
            have *= min(inner, wanted)
        found.append(step)
    return tuple(reversed(found))


def dense(extents: Sequence[int], last: Collection[int | None]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose innermost axes are ``last``; 0 for an extent of 1."""
    order = sorted(range(len(extents)), key=lambda axis: (axis in last, axis))
    strides = dict(zip(order, contiguous_strides([extents[axis] for axis in order]), strict=True))
    return tuple(strides[axis] if extents[axis] > 1 else 0 for axis in range(len(extents)))


def _refined(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Return the common refinement of two shapes, whose dimensions multiply to those of both; None without one."""
    products = {math.prod(shape[at:]) for shape in (first, second) for at in range(len(shape) + 1)}
    steps = sorted(products)
    if any(upper % lower for lower, upper in itertools.pairwise(steps)):
        return None
    return tuple(upper // lower for lower, upper in itertools.pairwise(steps))[::-1]


class NotWalkableError(Exception):
    """A tensor's elements cannot be described along axes."""


def copy_of(tensor: Layout, walked: Layout, to_tensor: bool) -> Plan:
    """Plan the copy of a tensor to the dense copy that the kernel walks or, ``to_tensor``, back."""
    shape = _refined(tensor.shape, walked.shape)
    here, there = (None if shape is None else strides_along(one, shape) for one in (tensor, walked))
    if shape is None or here is None or there is None:
        raise NotWalkableError
    pair = Layout(tensor.dtype, shape, here), Layout(walked.dtype, shape, there)
    return elementwise.plan(identity, pair[to_tensor : to_tensor + 1], pair[1 - to_tensor : 2 - to_tensor])


class Walked:
    """A tensor of a plan as the kernel walks it: itself, or a dense copy."""

    def __init__(
        self, operand: Operand, extents: tuple[int, ...], last: int | None, apart: bool, written: bool = False
    ) -> None:
        """Describe a tensor.

        Args:
            operand: the tensor.
            extents: its extents along the axes.
            last: the axis along which lanes run; None for a row-constant operand, which may have any strides.
            apart: True if lanes need not be contiguous.
            written: True for an output, whose elements must not coincide.
        """
        self.layout = layout = operand.layout
        self.dtype = layout.dtype
        found = strides_along(layout, extents)
        self.copies = found is None or (written and not layout.distinct)
        if found is not None and last is not None and extents[last] > 1 and not apart:
            self.copies |= found[last] not in ((1,) if written else (0, 1))
        self.strides = dense(extents, (last,)) if self.copies or found is None else found
        self.nbytes = whole_lines(math.prod(extents) * self.dtype.itemsize) if self.copies else 0
        if self.copies:
            self.copy = copy_of(layout, Layout(self.dtype, extents, self.strides), to_tensor=written)

    def step(self, axis: int | None) -> int:
        """Return the bytes from one element to the next along an axis."""
        return 0 if axis is None else self.strides[axis] * self.dtype.itemsize
