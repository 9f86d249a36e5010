"""The walk along a plan's rows: the structs that describe it to a kernel, and the addresses of each row and run."""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.strided import move_along
from aclnn.kernels.cpu.structs import Address, Int64, To, declared, pointer_to
from aclnn.kernels.cpu.threads import Loop


@declared
class RowSteps(ctypes.Structure):
    """Bytes of an operand from one row to the next and from one element of a run to the next, and of a task's sums."""

    row: Int64
    column: Int64
    task: Int64


@declared
class RowWalk(ctypes.Structure):
    """The rows of a plan. A task is a number of rows beside one another."""

    numbers: Address
    """Float64: the formula's numbers, and how many elements a row has."""
    policy: Int64
    beside: Int64
    """Rows that lie beside one another."""
    block: Int64
    """Rows of a task."""
    runs: Int64
    """Runs of a row."""
    run: Int64
    """Elements of a run."""
    outer: Int64
    """Dimensions of rows outside of those beside one another."""
    columns: Int64
    """Dimensions of runs."""
    axes: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    """Extent of each dimension and every operand's step in bytes; the last comes first, rows' before runs'."""
    steps: Annotated[int, ctypes.c_int64, To(RowSteps)]
    """Steps of each operand."""
    movers: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of the kernels ``strided.mover`` for 2, 4 and 8 bytes; 0 of those that are not needed."""


@declared
class RowCall(ctypes.Structure):
    """Arguments of a kernel over rows."""

    walk: Annotated[int, ctypes.c_int64, To(RowWalk)]
    addresses: Annotated[Any, ctypes.c_void_p * 1]
    """Address of each operand, in the order of ``rows.Types``."""


@declared
class SumCall(ctypes.Structure):
    """Arguments of ``add``: partial sums of tasks that are added to others of them."""

    firsts: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    """For each task how many bytes from the first one's those sums begin."""
    task: Int64
    """Bytes of a task's."""
    count: Int64
    """Sums of a task."""
    tasks: Int64
    partials: Address


@register_jitable
def begin_run(places: Any, here: Any, operands: int, axis: Any, axes: int, run: int) -> None:
    """Find every operand's place at a run's first element, along axes from its place at the row's."""
    for k in range(operands):
        here[k] = places[k]
    move_along(here, operands, axis, axes, run)


@register_jitable
def begin_task(call: Any, operands: int, task: int, places: Any) -> Any:
    """Move every operand's place to a task's first row; return how many rows it has."""
    walk = call.walk
    segments = (walk.beside + walk.block - 1) // walk.block
    position, first = task // segments, task % segments * walk.block
    for k in range(operands):
        places[k] = call.addresses[k] + (first * walk.steps[k].row + task * walk.steps[k].task)
    move_along(places, operands, walk.axes, walk.outer, position)
    return min(walk.block, walk.beside - first)


@register_jitable
def advance(places: Any, operands: int, steps: Any, rows: int) -> None:
    """Move every operand's place on by rows beside one another."""
    for k in range(operands):
        places[k] = places[k] + rows * steps[k].row


def add() -> Loop:
    """Add each task's partial sums to those that come first, in order (see ``SumCall``)."""
    call_at, sums_at = pointer_to(SumCall), pointer_to(ctypes.c_double)

    def run(arguments: int, counter: int, step: int, end: int) -> None:
        call = call_at(arguments)
        for task in range(call.tasks):
            source, first = task * call.task, call.firsts[task]
            if first != source:
                total, added = sums_at(call.partials + first), sums_at(call.partials + source)
                for k in range(call.count):
                    total[k] = total[k] + added[k]

    return run
