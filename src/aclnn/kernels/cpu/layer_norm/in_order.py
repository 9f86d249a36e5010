"""Several results whose elements coincide: the last one in logical order stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Plan
from aclnn.kernels.cpu.layer_norm.calls import columns_kernel
from aclnn.kernels.cpu.layer_norm.views import columns_of, described

Layouts = tuple[Layout | None, ...]


def in_order(make: Callable[[Layouts], Plan], outputs: Layouts, places: Sequence[int]) -> Plan:
    """The plan that ``make`` returns for these outputs, if need be for contiguous ones that are copied in order.

    Args:
        make: a plan for layouts of outputs.
        outputs: the layouts asked for.
        places: the outputs in which a plan does not care which of coinciding elements it writes last.
    """
    moved = {i: layout for i in places if (layout := outputs[i]) is not None and not layout.distinct}
    return _Copying(make, outputs, moved) if moved else make(outputs)


class InOrder:
    """A plan whose outputs may share elements: of those in one place the last output's stays."""

    def __init__(self, make: Callable[[Layouts], Plan], outputs: Layouts) -> None:
        self._plan = make(outputs)
        self._make, self._outputs = make, outputs
        self._copying: Plan | None = None
        spans = [(i, *layout.span) for i, layout in enumerate(outputs) if layout is not None]
        # Two ranges meet where the difference of their addresses lies between two numbers.
        self._pairs = [
            (i, k, begin - other_end, end - other)
            for (i, begin, end), (k, other, other_end) in itertools.combinations(spans, 2)
        ]
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        plan = self._plan
        for i, k, low, high in self._pairs:
            if low < outputs[k] - outputs[i] < high:
                plan = self._copying = self._copying or self._in_copies()
                break
        plan.run(inputs, outputs, workspace)

    def _in_copies(self) -> Plan:
        moved = {i: layout for i, layout in enumerate(self._outputs) if layout is not None}
        return _Copying(self._make, self._outputs, moved)


class _Copying:
    """Some outputs go to memory of their own, and from there in logical order."""

    def __init__(self, make: Callable[[Layouts], Plan], outputs: Layouts, moved: dict[int, Layout]) -> None:
        straight = {i: Layout(to.dtype, to.shape, contiguous_strides(to.shape)) for i, to in moved.items()}
        self._plan = make(tuple(straight.get(i, layout) for i, layout in enumerate(outputs)))
        self._moved = {
            i: (to.dtype.itemsize, to.size, [_description(straight[i]), _description(to)]) for i, to in moved.items()
        }
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        rooms = {i: np.empty(itemsize * size, np.uint8) for i, (itemsize, size, _) in self._moved.items()}
        targets = [rooms[i].ctypes.data if i in rooms else target for i, target in enumerate(outputs)]
        self._plan.run(inputs, targets, workspace)
        for i, (itemsize, size, descriptions) in self._moved.items():
            dims = (int(description.ctypes.data) for description in descriptions)
            columns_kernel("copy")(itemsize, size, targets[i], outputs[i], *dims)


def _description(layout: Layout) -> np.ndarray:
    return np.array(described(columns_of(layout).columns), np.int64)
