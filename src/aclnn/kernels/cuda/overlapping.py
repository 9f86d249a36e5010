"""Plans for tensors that share memory: as if every input had been read before outputs were written, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aclnn.kernels import Plan
from aclnn.kernels.cuda.elementwise.plans import contiguous, copying, memory_of
from aclnn.kernels.cuda.launch import kept
from aclnn.tensor import Layout

Layouts = tuple[Layout | None, ...]
#: Plans for inputs and outputs that share no memory.
Make = Callable[[Layouts, Layouts], Plan]


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


class _Anywhere:
    """Finds out at each run which tensors share memory, and keeps the plan for each way in which they do."""

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts, replaceable: int) -> None:
        self._make, self._inputs, self._outputs = make, inputs, outputs
        self._plan = make(inputs, outputs)
        self.workspace_bytes = self._plan.workspace_bytes
        self._read = [
            (place, *layout.span, place < replaceable and layout == outputs[0])
            for place, layout in enumerate(inputs)
            if layout is not None
        ]
        self._written = [(place, *layout.span) for place, layout in enumerate(outputs) if layout is not None]
        self._others: dict[Any, Plan] = {}

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        written = sorted((outputs[place] + low, outputs[place] + high) for place, low, high in self._written)
        plan, given = self._plan, (self._make, self._inputs, self._outputs)
        if any(end > begin for (_, end), (begin, _) in itertools.pairwise(written)):
            plan = kept(self._others, None, partial(_InOrder, *given))
        elif which := tuple(self._changed(inputs, outputs[0], written)):
            plan = kept(self._others, which, partial(_Apart, *given, which))
        plan.run(inputs, outputs, workspace)

    def _changed(self, inputs: Sequence[int], first: int, written: Sequence[tuple[int, int]]) -> list[int]:
        """The inputs that writing would change; the first output may exactly replace some."""
        found = []
        for place, low, high, same in self._read:
            at = inputs[place]
            if same and at == first:
                continue
            for begin, end in written:
                if at + low < end and begin < at + high:
                    found.append(place)
                    break
        return found


def anywhere(make: Make, inputs: Layouts, outputs: Layouts, replaceable: int) -> Plan:
    """A plan for tensors wherever they are; the first output may replace one of the first ``replaceable`` inputs."""
    if all(layout is None or layout.distinct for layout in outputs):
        return _Anywhere(make, inputs, outputs, replaceable)
    return _InOrder(make, inputs, outputs)
