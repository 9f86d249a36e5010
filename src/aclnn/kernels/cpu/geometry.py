"""Layouts of several operands with one shape, brought to the simplest equivalent form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aclnn.core.tensor import Layout


class Axis(NamedTuple):
    """One dimension: its extent, and the bytes between neighbours for each operand, outputs last."""

    extent: int
    steps: tuple[int, ...]

    @property
    def out(self) -> int:
        """The last output's step."""
        return self.steps[-1]


class Geometry(NamedTuple):
    """Axes from the outermost to the innermost, and where each operand's walk begins, in bytes from its address."""

    axes: tuple[Axis, ...]
    starts: tuple[int, ...]
    ordered: bool
    """Elements of the output coincide in ways that only writing in logical order resolves: the axes are as given."""


def _last_writes(axes: list[Axis], starts: list[int]) -> list[Axis]:
    """Without the axes along which the output stands still: of their elements only the last is seen in the end."""
    kept = []
    for axis in axes:
        if axis.out == 0:
            for operand, step in enumerate(axis.steps):
                starts[operand] += (axis.extent - 1) * step
        else:
            kept.append(axis)
    return kept


def _moving(layout: Layout) -> Layout:
    """The same without the axes along which it stands still."""
    moving = [(extent, stride) for extent, stride in zip(layout.shape, layout.strides, strict=True) if stride]
    return layout._replace(shape=tuple(n for n, _ in moving), strides=tuple(stride for _, stride in moving))


def _forwards(axis: Axis, starts: list[int]) -> Axis:
    """The axis walked so that the output's address grows."""
    if axis.out > 0:
        return axis
    for operand, step in enumerate(axis.steps):
        starts[operand] += (axis.extent - 1) * step
    return Axis(axis.extent, tuple(-step for step in axis.steps))


def _merge(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes as one wherever every operand steps through them evenly."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].steps == tuple(step * axis.extent for step in axis.steps):
            merged[-1] = Axis(merged[-1].extent * axis.extent, axis.steps)
        else:
            merged.append(axis)
    return tuple(merged)


def simplify(operands: Sequence[Layout]) -> Geometry:
    """The common walk through operands of one shape without zeros; the last of them is an output.

    Elements of other outputs must not coincide.
    """
    sizes = [operand.dtype.itemsize for operand in operands]
    starts = [operand.offset * operand.dtype.itemsize for operand in operands]
    axes = [
        Axis(extent, tuple(stride * size for stride, size in zip(strides, sizes, strict=True)))
        for extent, *strides in zip(operands[-1].shape, *(operand.strides for operand in operands), strict=True)
        if extent > 1
    ]
    axes = _last_writes(axes, starts)
    ordered = not _moving(operands[-1]).distinct
    if not ordered:
        axes = [_forwards(axis, starts) for axis in axes]
        axes.sort(key=lambda axis: axis.steps[::-1], reverse=True)
    return Geometry(_merge(axes), tuple(starts), ordered)
