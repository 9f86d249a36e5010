"""Plans of elementwise operators; and for tensors that share memory, of any operators.

Those are computed as if every input had been read before outputs were written, one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Formula, Plan
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise.walk import Elementwise, Nothing, copying
from aclnn.kernels.cuda.launch import kept, torch

Layouts = tuple[Layout | None, ...]
#: Plans for inputs and outputs that share no memory.
Make = Callable[[Layouts, Layouts], Plan]


def contiguous(layout: Layout) -> Layout:
    """The same elements in a row."""
    return Layout(layout.dtype, layout.shape, contiguous_strides(layout.shape))


def memory_of(layout: Layout) -> Any:
    """Memory of its own for a contiguous tensor, as a PyTorch tensor of bytes."""
    nbytes = math.prod(layout.shape) * layout.dtype.itemsize
    return torch.empty(nbytes, dtype=torch.uint8, device=launch.device())


class _InOrder:
    """For outputs that overlap one another or themselves: computed apart, then written one after another.

    Of the elements in one place the last stays, in the order of the outputs and of the elements in each of them.
    """

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts) -> None:
        self._between = tuple(layout and contiguous(layout) for layout in outputs)
        self._plan = make(inputs, self._between)
        self.workspace_bytes = self._plan.workspace_bytes
        pairs = zip(self._between, outputs, strict=True)
        self._writers = [between and layout and copying(between, layout) for between, layout in pairs]

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        memories = [None if layout is None else memory_of(layout) for layout in self._between]
        self._plan.run(inputs, [0 if memory is None else memory.data_ptr() for memory in memories], workspace)
        for writer, memory, target in zip(self._writers, memories, outputs, strict=True):
            if writer is not None and memory is not None:
                writer.run([memory.data_ptr()], [target], 0)


class _Apart:
    """For inputs that writing would change: with copies of them."""

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts, which: Sequence[int]) -> None:
        changed = {place: layout for place, layout in enumerate(inputs) if place in which and layout is not None}
        self._copies = {place: contiguous(layout) for place, layout in changed.items()}
        self._copiers = {place: copying(layout, self._copies[place]) for place, layout in changed.items()}
        self._plan = make(tuple(self._copies.get(place, layout) for place, layout in enumerate(inputs)), outputs)
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        memories = {place: memory_of(copy) for place, copy in self._copies.items()}
        addresses = list(inputs)
        for place, memory in memories.items():
            addresses[place] = memory.data_ptr()
            self._copiers[place].run([inputs[place]], [addresses[place]], 0)
        self._plan.run(addresses, outputs, workspace)


def meet(one: Layout, other: Layout, distance: int) -> bool:
    """Tell whether two tensors share memory, the other's address lying so many bytes above that of the one.

    Tensors of the same strides that interleave, as the halves of rows do, are known not to; else their spans decide.
    """
    (low, high), (begin, end) = one.span, other.span
    if distance + begin >= high or low >= distance + end:
        return False
    if (one.dtype, one.shape, one.strides) != (other.dtype, other.shape, other.strides):
        return True
    size = one.dtype.itemsize
    rest = abs(distance + (other.offset - one.offset) * size)
    axes = sorted((abs(step) * size, extent) for extent, step in zip(one.shape, one.strides, strict=True) if step)
    for i, (step, _) in reversed(list(enumerate(axes))):
        reach = size + sum(inner * (extent - 1) for inner, extent in axes[:i])
        rest %= step
        if reach <= rest <= step - reach:
            return False
        if rest >= reach:
            rest = step - rest
        elif step - rest < reach:
            return True
    return True


class _Anywhere:
    """Finds out at each run which tensors share memory, and keeps the plan for each way in which they do."""

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts, replaceable: int, replacing: int) -> None:
        self._make, self._inputs, self._outputs = make, inputs, outputs
        self._replaceable, self._replacing = replaceable, replacing
        self._plan = make(inputs, outputs)
        self.workspace_bytes = self._plan.workspace_bytes
        self._others: dict[Any, Plan] = {}

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        written = [(layout, at) for layout, at in zip(self._outputs, outputs, strict=True) if layout is not None]
        plan, given = self._plan, (self._make, self._inputs, self._outputs)
        if any(meet(one, other, to - at) for (one, at), (other, to) in itertools.combinations(written, 2)):
            plan = kept(self._others, None, partial(_InOrder, *given))
        elif which := tuple(self._changed(inputs, outputs)):
            plan = kept(self._others, which, partial(_Apart, *given, which))
        plan.run(inputs, outputs, workspace)

    def _changed(self, inputs: Sequence[int], outputs: Sequence[int]) -> Iterator[int]:
        """The inputs that writing would change, but for those that an output may exactly replace."""
        for (i, (one, at)), (k, (other, to)) in itertools.product(
            enumerate(zip(self._inputs, inputs, strict=True)), enumerate(zip(self._outputs, outputs, strict=True))
        ):
            replaced = i < self._replaceable and k < self._replacing and one == other and at == to
            if one is not None and other is not None and not replaced and meet(one, other, to - at):
                yield i


def anywhere(make: Make, inputs: Layouts, outputs: Layouts, replaceable: int, replacing: int = 1) -> Plan:
    """A plan for tensors wherever they are.

    One of the first ``replacing`` outputs may have the place of one of the first ``replaceable`` inputs.
    """
    if all(layout is None or layout.distinct for layout in outputs):
        return _Anywhere(make, inputs, outputs, replaceable, replacing)
    return _InOrder(make, inputs, outputs)


def plan(
    formula: Formula, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], numbers: tuple[float, ...] = ()
) -> Plan:
    """See ``aclnn.kernels.elementwise``.

    Raises:
        NotImplementedError: a tensor has a data type that the kernels lack.
    """
    if 0 in outputs[0].shape:
        return Nothing()
    make: Any = partial(Elementwise, formula, numbers)
    return anywhere(make, inputs, outputs, len(inputs), len(outputs))
