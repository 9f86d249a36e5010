"""The walk along a plan's rows: the kernel's argument structs, and the addresses of each row and run."""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.strided import move_along
from aclnn.kernels.cpu.structs import Address, Int64, To, declared


@declared
class RowSteps(ctypes.Structure):
    """Strides of an operand in bytes."""

    row: Int64
    """From row to row."""
    column: Int64
    """From element to element of a run."""
    task: Int64
    """From one task's partial sums to the next's; 0 for a tensor."""
    together: Int64
    """Number of consecutive tasks that add to the same partial sums."""


@declared
class RowWalk(ctypes.Structure):
    """The rows of a plan. A task is a block of neighbouring rows."""

    numbers: Address
    """Address of float64: the formula's numbers, then the number of elements of a row."""
    policy: Int64
    beside: Int64
    """Extent of the dimension along which a task's rows are neighbours."""
    block: Int64
    """Rows of a task."""
    runs: Int64
    """Runs of a row."""
    run: Int64
    """Elements of a run."""
    outer: Int64
    """Number of the other dimensions of rows."""
    columns: Int64
    """Number of dimensions of a row's runs."""
    axes: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    """Extent of each dimension and stride of each operand in bytes; innermost first, rows' before runs'."""
    steps: Annotated[int, ctypes.c_int64, To(RowSteps)]
    """Strides of each operand."""
    movers: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of the kernels ``strided.mover`` for 2, 4 and 8 bytes; 0 where one is not needed."""


@declared
class RowCall(ctypes.Structure):
    """Arguments of a kernel over rows."""

    walk: Annotated[int, ctypes.c_int64, To(RowWalk)]
    addresses: Annotated[Any, ctypes.c_void_p * 1]
    """Address of each operand, in the order of ``rows.Types``."""


@register_jitable
def begin_run(places: Any, here: Any, operands: int, axis: Any, axes: int, run: int) -> None:
    """Set ``here`` to every operand's address at a run's first element; ``places`` are those at the row's."""
    for k in range(operands):
        here[k] = places[k]
    move_along(here, operands, axis, axes, run)


@register_jitable
def begin_task(call: Any, operands: int, task: int, places: Any) -> Any:
    """Set ``places`` to every operand's address at a task's first row; return the number of the task's rows."""
    walk = call.walk
    segments = (walk.beside + walk.block - 1) // walk.block
    position, first = task // segments, task % segments * walk.block
    for k in range(operands):
        steps = walk.steps[k]
        places[k] = call.addresses[k] + (first * steps.row + task // steps.together * steps.task)
    move_along(places, operands, walk.axes, walk.outer, position)
    return min(walk.block, walk.beside - first)


@register_jitable
def advance(places: Any, operands: int, steps: Any, rows: int) -> None:
    """Advance every operand's address by a number of neighbouring rows."""
    for k in range(operands):
        places[k] = places[k] + rows * steps[k].row
