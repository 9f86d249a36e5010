"""GPU plans for the operators of ``aclnn.kernels``, wherever the tensors are in memory.

Results are as if all inputs had been read before the outputs were written, one after another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Formula, Nothing, Plan
from aclnn.kernels.cuda.elementwise import Elementwise, copy
from aclnn.kernels.cuda.launch import device, get_or_make, torch
from aclnn.kernels.cuda.norm_backward import NormBackward
from aclnn.kernels.cuda.norm_forward import Norm
from aclnn.kernels.layouts import Overlaps

Layouts = tuple[Layout | None, ...]
#: Plans for inputs and outputs that share no memory.
Make = Callable[[Layouts, Layouts], Plan]


def overlap(one: Layout, other: Layout, distance: int) -> bool:
    """Return True if two tensors share memory, with the second at a distance in bytes from the first.

    Tensors with equal strides that interleave, such as halves of rows, do not; otherwise their spans decide.
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


def _memory(layout: Layout) -> Any:
    """Allocate memory for a contiguous tensor, as a PyTorch tensor of bytes."""
    return torch.empty(math.prod(layout.shape) * layout.dtype.itemsize, dtype=torch.uint8, device=device())


class _Staged:
    """A plan that reads contiguous copies of some inputs, or whose outputs are copied from temporaries in order.

    Among aliasing elements the last one prevails, in the order of outputs and of elements within an output.
    """

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts, copied: Sequence[int], in_turn: bool) -> None:
        read, written = list(inputs), list(outputs)
        self._before: list[tuple[int, Layout, Plan]] = []
        self._after: list[tuple[int, Layout, Plan]] = []
        for i, layout in enumerate(inputs):
            if layout is not None and i in copied:
                read[i] = staged = Layout(layout.dtype, layout.shape, contiguous_strides(layout.shape))
                self._before.append((i, staged, copy(layout, staged)))
        for i, layout in enumerate(outputs):
            if layout is not None and in_turn:
                written[i] = staged = Layout(layout.dtype, layout.shape, contiguous_strides(layout.shape))
                self._after.append((i, staged, copy(staged, layout)))
        self._plan = make(tuple(read), tuple(written))
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        read, written, memories = list(inputs), list(outputs), []
        for addresses, stages in ((read, self._before), (written, self._after)):
            for i, layout, _ in stages:
                memories.append(_memory(layout))
                addresses[i] = memories[-1].data_ptr()
        for i, _, plan in self._before:
            plan.run([inputs[i]], [read[i]], 0)
        self._plan.run(read, written, workspace)
        for i, _, plan in self._after:
            plan.run([written[i]], [outputs[i]], 0)


class _Anywhere:
    """A plan that checks at each run which tensors share memory, and caches a plan for each case.

    One of the first ``replacing`` outputs may alias one of the first ``replaceable`` inputs.
    """

    def __init__(self, make: Make, inputs: Layouts, outputs: Layouts, replaceable: int, replacing: int = 1) -> None:
        self._make, self._inputs, self._outputs = make, inputs, outputs
        self._distinct = all(layout is None or layout.distinct for layout in outputs)
        self._alike = {
            (i, k)
            for (i, given), (k, output) in itertools.product(enumerate(inputs), enumerate(outputs))
            if i < replaceable and k < replacing and given == output
        }
        itself = {(len(inputs) + k, k) for k in range(len(outputs))}
        self._overlaps = Overlaps((*inputs, *outputs), outputs, self._alike | itself)
        self._plans: dict[tuple[int, ...] | None, Plan] = {}
        self.workspace_bytes = self._plan(() if self._distinct else None).workspace_bytes

    def _plan(self, copied: tuple[int, ...] | None) -> Plan:
        """Return the plan with copies of these inputs; for None the one that writes outputs in order."""
        given = self._make, self._inputs, self._outputs
        make = (
            partial(self._make, *given[1:]) if copied == () else partial(_Staged, *given, copied or (), copied is None)
        )
        return get_or_make(self._plans, copied, make)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if self._distinct and not self._overlaps.among([*inputs, *outputs], outputs):
            self._plans[()].run(inputs, outputs, workspace)
            return
        written = [(layout, at) for layout, at in zip(self._outputs, outputs, strict=True) if layout is not None]
        pairs = itertools.combinations(written, 2)
        in_turn = not self._distinct or any(overlap(one, other, to - at) for (one, at), (other, to) in pairs)
        self._plan(None if in_turn else tuple(self._changed(inputs, outputs))).run(inputs, outputs, workspace)

    def _changed(self, inputs: Sequence[int], outputs: Sequence[int]) -> Iterator[int]:
        """Yield the inputs that writes would change, except those that an output exactly aliases."""
        for (i, (one, at)), (k, (other, to)) in itertools.product(
            enumerate(zip(self._inputs, inputs, strict=True)), enumerate(zip(self._outputs, outputs, strict=True))
        ):
            replaced = at == to and (i, k) in self._alike
            if one is not None and other is not None and not replaced and overlap(one, other, to - at):
                yield i


def elementwise(
    formula: Formula, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], numbers: tuple[float, ...] = ()
) -> Plan:
    """See ``aclnn.kernels.elementwise``.

    Raises:
        NotImplementedError: a tensor has a data type that the kernels lack.
    """
    if 0 in outputs[0].shape:
        return Nothing()
    make: Any = partial(Elementwise, formula, numbers)
    return _Anywhere(make, inputs, outputs, len(inputs), len(outputs))


def layer_norm(inputs: Layouts, outputs: Layouts, normalized_dims: int, eps: float, centred: bool = True) -> Plan:
    """See ``aclnn.kernels.layer_norm``."""
    make = partial(Norm, normalized_dims=normalized_dims, eps=eps, centred=centred)
    return _Anywhere(make, inputs, outputs, replaceable=1)


def layer_norm_backward(inputs: Layouts, outputs: Layouts, normalized_dims: int, centred: bool = True) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``; without a mean it is RMSNorm's."""
    assert centred == (inputs[2] is not None)
    return _Anywhere(partial(NormBackward, normalized_dims=normalized_dims), inputs, outputs, replaceable=2)
