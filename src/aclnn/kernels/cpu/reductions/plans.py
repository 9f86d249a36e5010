"""Plans of formulas over rows.

``plan`` groups dimensions into axes (``_Axes``), traces the formula and classifies its tensors (``_Program``), chooses
the direction of lanes and the size of tasks (``_Lanes``), and describes each tensor as strides along the axes, or plans
a dense copy where these would be uneven (``_Walked``). Sums over rows are made of partial sums, one for each task
(``_Sum``). Where a tensor cannot be described so, NumPy computes (``ReductionPlan``).
"""

from __future__ import annotations

import ctypes
import itertools
import math
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Formula, Operand, Plan, identity
from aclnn.kernels.cpu import target, threads
from aclnn.kernels.cpu.elementwise import plans as elementwise
from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.reductions import rows, walk
from aclnn.kernels.cpu.reductions.across import LONGEST_TILED, Across
from aclnn.kernels.cpu.reductions.along import MOST_RUNS, Along
from aclnn.kernels.cpu.reductions.narrowing import with_short_sums
from aclnn.kernels.cpu.reductions.passes import REDUCES, Passes
from aclnn.kernels.cpu.reductions.rewrites import combined, constants, factored, fused, with_moments, with_rests
from aclnn.kernels.cpu.reductions.words import float32_steps
from aclnn.kernels.cpu.simd.vector import LANES, WIDE
from aclnn.kernels.cpu.strided import CACHED, NONTEMPORAL, STREAMED_ROW, movers
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.layouts import Layouts, Overlaps, SharedOutputs, whole_lines
from aclnn.kernels.numpy_plans import ReductionPlan
from aclnn.kernels.trace import COLUMNS, Step, trace

COMPUTED = (DataType.FLOAT, DataType.FLOAT16, DataType.BF16, DataType.DOUBLE)

SHORT, SHORT_RUN = 32, 31
"""Elements of the longest row for which lanes run across rows: of several runs, and of a single run."""
TASK, SHARES = 1 << 15, 8
"""Maximum number of a task's elements, and the least number of tasks, for which a task has fewer."""
SUMMED, MOST_SUMS = 1 << 16, 64
"""Minimum number of elements of a task with a partial sum of its own, and maximum number of such tasks."""
FEW_ROWS = 8
"""Minimum number of a task's rows for which values common to all of them are computed once and kept."""
ALONE = 1 << 12
"""Number of elements up to which the calling thread computes everything."""
PER_US = 1000
"""Elements that a thread computes in a microsecond, approximately."""
_TOGETHER = WIDE * LANES


def plan(
    formula: Formula,
    inputs: Sequence[Operand | float],
    outputs: Sequence[Operand | None],
    dims: tuple[int, ...],
    numbers: tuple[float, ...] = (),
) -> Plan:
    """See ``aclnn.kernels.reduction``."""
    outputs = [output and _first_elements(output) for output in outputs]
    operands = [operand for operand in (*inputs, *outputs) if isinstance(operand, Operand)]
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    walkable = 0 not in shape and all(operand.layout.dtype in COMPUTED for operand in operands)
    walkable &= all(output is None or output.layout.size == math.prod(output.shape) for output in outputs)

    def make(layouts: Layouts) -> Plan:
        left = (layout for layout in layouts if layout is not None)
        wanted = [output and output._replace(layout=next(left)) for output in outputs]
        if walkable:
            with suppress(_NotWalkableError):
                return _Rows(formula, inputs, wanted, _Axes(shape, dims, operands), numbers)
        return ReductionPlan(formula, inputs, wanted, dims, numbers)

    layouts = tuple(output.layout for output in outputs if output is not None)
    return SharedOutputs(make, layouts) if len(layouts) > 1 else make(layouts)


def _first_elements(output: Operand) -> Operand:
    """Return the operand of those first elements of a tensor that are written, if these are evenly spaced."""
    layout, count = output.layout, math.prod(output.shape)
    strides = None if layout.size == count else _strides(layout, (layout.size,))
    return output if strides is None else output._replace(layout=layout._replace(shape=(count,), strides=strides))


class _Axes:
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


def _strides(layout: Layout, shape: Sequence[int]) -> tuple[int, ...] | None:
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


def _dense(extents: Sequence[int], last: int | None) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose innermost axis is ``last``; 0 for an extent of 1."""
    order = sorted(range(len(extents)), key=lambda axis: (axis == last, axis))
    strides = dict(zip(order, contiguous_strides([extents[axis] for axis in order]), strict=True))
    return tuple(strides[axis] if extents[axis] > 1 else 0 for axis in range(len(extents)))


def _refined(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Return the common refinement of two shapes, whose dimensions multiply to those of both; None without one."""
    products = {math.prod(shape[at:]) for shape in (first, second) for at in range(len(shape) + 1)}
    steps = sorted(products)
    if any(upper % lower for lower, upper in itertools.pairwise(steps)):
        return None
    return tuple(upper // lower for lower, upper in itertools.pairwise(steps))[::-1]


class _NotWalkableError(Exception):
    """A tensor's elements cannot be described along axes."""


def _copy(tensor: Layout, walked: Layout, to_tensor: bool) -> Plan:
    """Plan the copy of a tensor to the dense copy that the kernel walks or, ``to_tensor``, back."""
    shape = _refined(tensor.shape, walked.shape)
    here, there = (None if shape is None else _strides(one, shape) for one in (tensor, walked))
    if shape is None or here is None or there is None:
        raise _NotWalkableError
    pair = Layout(tensor.dtype, shape, here), Layout(walked.dtype, shape, there)
    return elementwise.plan(identity, pair[to_tensor : to_tensor + 1], pair[1 - to_tensor : 2 - to_tensor])


class _Walked:
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
        found = _strides(layout, extents)
        self.copies = found is None or (written and not layout.distinct)
        if found is not None and last is not None and extents[last] > 1 and not apart:
            self.copies |= found[last] not in ((1,) if written else (0, 1))
        self.strides = _dense(extents, last) if self.copies or found is None else found
        self.nbytes = whole_lines(math.prod(extents) * self.dtype.itemsize) if self.copies else 0
        if self.copies:
            self.copy = _copy(layout, Layout(self.dtype, extents, self.strides), to_tensor=written)

    def step(self, axis: int | None) -> int:
        """Return the bytes from one element to the next along an axis."""
        return 0 if axis is None else self.strides[axis] * self.dtype.itemsize


class _Sum:
    """An output that is a sum over rows, and its tasks' partial sums in the workspace."""

    def __init__(self, output: Operand, axes: _Axes, outer: list[int], segments: int) -> None:
        extents = axes.extents_of(output)
        self.output, self.kept = output, {axis for axis, extent in enumerate(extents) if extent > 1}
        columns = [axis for axis in axes.columns if axis in self.kept]
        count = math.prod(extents[axis] for axis in columns)
        strides = contiguous_strides([extents[axis] for axis in columns])
        self.steps = {axis: 8 * stride for axis, stride in zip(columns, strides, strict=True)}
        # The last vector of the last run may extend beyond its elements.
        self.task_bytes = (-(-count * 8 // rows.PADDED) + 1) * rows.PADDED
        shape = (*(axes.extents[axis] for axis in outer), segments)
        tasks = math.prod(shape)
        self.nbytes = tasks * self.task_bytes
        between = zip(outer, contiguous_strides(shape), strict=False)
        steps = self.steps | {axis: stride * self.task_bytes for axis, stride in between if axis in self.kept}
        # Partial sums of the same elements are added to those of the first task that has some.
        firsts = sum(
            (place * steps.get(axis, 0) for axis, place in zip(outer, np.indices(shape), strict=False)),
            np.zeros(shape, np.int64),
        )
        self._firsts = np.ascontiguousarray(firsts)
        self._walk = self._firsts.ctypes.data, self.task_bytes, count, tasks
        self._adds = tasks > math.prod(axes.extents[axis] for axis in outer if axis in self.kept)
        first = Layout(DataType.DOUBLE, extents, tuple(steps.get(axis, 0) // 8 for axis in range(len(extents))))
        self._copy = _copy(output.layout, first, to_tensor=True)
        self._add = kernel("rows-add", (), walk.add)

    def step(self, axis: int | None) -> int:
        """Return the bytes from one sum to the next along an axis."""
        return 0 if axis is None else self.steps.get(axis, 0)

    def finish(self, partials: int, address: int) -> None:
        """Add up the partial sums and write the output."""
        if self._adds:
            arguments = array("q", (*self._walk, partials))  # as ``SumCall``
            self._add(arguments.buffer_info()[0], 0, 1, 1)
        self._copy.run((partials,), (address,), 0)


Named = tuple[str, Operand]
"""A variable of the program and its tensor."""


class _Program:
    """The program of a formula, and its tensors by whether they vary along a row, are row-constant, or summed."""

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Operand | float],
        outputs: Sequence[Operand | None],
        axes: _Axes,
        numbers: int,
    ) -> None:
        fixed = tuple((place, given) for place, given in enumerate(inputs) if not isinstance(given, Operand))
        self.numbers = tuple(f"x{len(inputs) + place}" for place in range(numbers))
        given = [(f"x{place}", operand) for place, operand in enumerate(inputs) if isinstance(operand, Operand)]
        operands = [*(operand for _, operand in given), *(output for output in outputs if output is not None)]
        self.extents = {id(operand): axes.extents_of(operand) for operand in operands}
        """Extents along the axes."""

        def differs(operand: Operand) -> bool:
            """Return true if an operand varies along a row."""
            return any(self.extents[id(operand)][axis] > 1 for axis in axes.columns)

        self.of_elements: list[Named] = [pair for pair in given if differs(pair[1])]
        self.of_rows: list[Named] = [pair for pair in given if not differs(pair[1])]
        calls = trace(formula, len(inputs) + numbers, fixed, calls=True)
        dtypes = {operand.layout.dtype for operand in operands}
        lanes, self._short = None, DataType.FLOAT not in dtypes
        if DataType.DOUBLE not in dtypes and not any(output.summed for output in operands):
            lanes = float32_steps(calls, [name for name, _ in self.of_elements], self._short)
        self.in_float32 = lanes is not None
        """True if elements are float32 lanes."""
        self.traced = calls if lanes else trace(formula, len(inputs) + numbers, fixed)
        self.steps = lanes or self.traced.steps
        results = zip(self.traced.results, outputs, strict=True)
        wanted = [(result, output) for result, output in results if output is not None]
        self.summed: list[Named] = [pair for pair in wanted if pair[1].summed]
        self.written: list[Named] = [pair for pair in wanted if not pair[1].summed and differs(pair[1])]
        self.row_outputs: list[Named] = [pair for pair in wanted if not pair[1].summed and not differs(pair[1])]
        for _, output in (*self.written, *self.row_outputs):
            full = (*axes.rows, *(axes.columns if differs(output) else ()))
            if math.prod(self.extents[id(output)]) != math.prod(axes.extents[axis] for axis in full):
                raise _NotWalkableError
        self.narrows = {output.layout.dtype.itemsize for _, output in self.written} == {2}
        """True if elements are float32 lanes where these suffice: all results have 16 bits."""
        self.inputs = {name: place for place, (name, _) in enumerate(given)}
        """Positions among the input tensors, by variable."""
        self.outputs = {id(output): place for place, (_, output) in enumerate(wanted)}

    def with_short_sums(self, steps: Sequence[Step], of_runs: bool) -> tuple[Sequence[Step], Sequence[Step] | None]:
        """Return the operations with sums of 16-bit elements in float32, and those with exact sums if they differ.

        ``of_runs``: sums of runs may be in float32, too.
        """
        elements = [name for name, _ in self.of_elements]
        if self.in_float32:
            exact = float32_steps(self.traced, elements, short=True, exact=True) if self._short else None
            return steps, exact
        short = with_short_sums(steps, elements, self.traced.results, of_runs) if self.narrows else steps
        return short, steps if self.narrows else None


class _Lanes:
    """The direction of lanes, along rows or across them, and the rows of a task."""

    def __init__(self, axes: _Axes, program: _Program) -> None:
        extents, summed = program.extents, program.summed
        self.run = axes.columns[-1] if axes.columns else None
        """The axis of a run."""
        self.along = axes.columns[:-1]
        """The axes of a row's runs."""
        inputs = (*program.of_elements, *program.of_rows)
        self.same = [name for name, one in inputs if self.run is None or extents[id(one)][self.run] == 1]
        """Inputs that are constant along a run."""
        self.columns = math.prod(axes.extents[axis] for axis in axes.columns)
        self.runs = math.prod(axes.extents[axis] for axis in self.along)
        kept = {axis for _, output in summed for axis in axes.rows if extents[id(output)][axis] > 1}
        free = [axis for axis in axes.rows if axis not in kept]
        unit = dict.fromkeys(range(len(axes.extents)), 0)
        for _, operand in (*program.of_elements, *program.written):
            for axis, stride in enumerate(_strides(operand.layout, extents[id(operand)]) or ()):
                unit[axis] += stride == 1
        beside = max(free, key=lambda axis: (unit[axis], axis), default=None)
        if summed:
            beside = free[-1] if free else None
        short = SHORT if self.along else SHORT_RUN
        if program.in_float32 and sum(step.template in REDUCES for step in program.steps) > 1:
            short = LONGEST_TILED  # lanes along such a row would wait for one horizontal sum after the other
        across = self.columns <= short
        if not summed and self.run is not None and beside is not None:
            across |= unit[beside] > unit[self.run]
        across &= beside is not None and self.run is not None and axes.extents[beside] >= LANES
        self.beside, self.across, self.axis = beside, across, beside if across else self.run
        self.outer = [axis for axis in axes.rows if axis != beside]
        everywhere = all(extents[id(output)][axis] > 1 for _, output in summed for axis in axes.columns)
        self.wide = target.has_wide_registers() and (everywhere or not across)
        self.apart = across and self.columns <= LONGEST_TILED
        """True if lanes need not be contiguous."""
        self.keeps = self.columns * 8 * ((WIDE if self.wide else 1) * LANES if across else 1) <= rows.KEPT

        self.extent = 1 if beside is None else axes.extents[beside]
        if summed:
            segments = max(1, min(MOST_SUMS, self.extent * self.columns // SUMMED))
            block = -(-self.extent // segments)
        else:
            most = min(TASK, axes.elements // SHARES)
            block = max(1, min(self.extent, most // max(1, self.columns)))
        self.block = -(-block // _TOGETHER) * _TOGETHER if across else block
        """Neighbouring rows of a task."""
        self.segments = -(-self.extent // self.block)
        self.tasks = self.segments * math.prod(axes.extents[axis] for axis in self.outer)


class _Rows:
    """The plan of a formula over rows (see ``aclnn.kernels.cpu.reductions.rows``)."""

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Operand | float],
        outputs: Sequence[Operand | None],
        axes: _Axes,
        numbers: tuple[float, ...],
    ) -> None:
        program = _Program(formula, inputs, outputs, axes, len(numbers))
        lanes = _Lanes(axes, program)

        def walked(pair: Named, lane: int | None, written: bool = False) -> tuple[str, _Walked]:
            name, operand = pair
            return name, _Walked(operand, program.extents[id(operand)], lane, lanes.apart, written)

        of_elements = [walked(pair, lanes.axis) for pair in program.of_elements]
        splats = [(name, one) for name, one in of_elements if lanes.axis is None or one.strides[lanes.axis] == 0]
        vectors = [pair for pair in of_elements if pair not in splats]
        of_rows = [walked(pair, None) for pair in program.of_rows]
        written = [walked(pair, lanes.axis, written=True) for pair in program.written]
        row_outputs = [walked(pair, None, written=True) for pair in program.row_outputs]
        sums = [(result, _Sum(output, axes, lanes.outer, lanes.segments)) for result, output in program.summed]
        totals = [pair for pair in sums if lanes.across or lanes.run not in pair[1].kept]
        sums = [pair for pair in sums if pair not in totals]

        # In the order of the kernel's operands.
        self._read = [one for _, one in (*vectors, *splats, *of_rows)]
        self._places = [program.inputs[name] for name, _ in (*vectors, *splats, *of_rows)]
        self._written = [one for _, one in (*written, *row_outputs)]
        self._sums = [one for _, one in (*totals, *sums)]
        targets = [*(output for _, output in (*program.written, *program.row_outputs))]
        targets += [one.output for one in self._sums]
        self._targets = [program.outputs[id(output)] for output in targets]

        added, combining = [name for name, _ in sums], list[Step]()
        of_task = [name for name, one in vectors if not lanes.across and one.step(lanes.beside) == 0]
        fewer = combined(program.steps, added, (*of_task, *program.numbers, COLUMNS))
        if fewer is not None and not program.in_float32:
            added, combining = fewer
        steps = program.steps if program.in_float32 else self._rewritten(program, lanes, added)
        steps, exact = program.with_short_sums(steps, of_runs=not lanes.across and lanes.runs <= MOST_RUNS)
        of_steps = partial(
            Passes,
            elements=[name for name, _ in (*vectors, *splats)],
            rows=[*program.numbers, COLUMNS, *(name for name, _ in of_rows)],
            results=[*(name for name, _ in written), *added],
            totals=[name for name, _ in totals],
            of_rows=[name for name, _ in row_outputs],
            vectors=[name for name, _ in vectors],
            keeps=lanes.keeps,
        )
        shared, passes = list[str](), of_steps(steps)
        in_doubles = not program.narrows or DataType.DOUBLE in {one.dtype for _, one in vectors}
        shared_dtype = DataType.DOUBLE if in_doubles else DataType.FLOAT
        if of_task and lanes.block >= FEW_ROWS and not (program.in_float32 or program.summed):
            found = of_task
            if in_doubles:
                found = constants(steps, of_task, program.numbers, program.traced.results)
            walked_bytes = sum(one.dtype.itemsize for name, one in (*vectors, *written) if name not in of_task)
            kept_bytes = 8 * len(passes.given(passes.count)) + shared_dtype.itemsize * len(found)
            if lanes.columns * (kept_bytes + walked_bytes) <= rows.CACHED_ROW:
                shared, passes = found, of_steps(steps, given=found)
        if any(result not in passes.states[-1] for result, _ in row_outputs):
            raise _NotWalkableError

        def typed(pairs: list[tuple[str, _Walked]]) -> tuple[rows.Variable, ...]:
            return tuple((name, one.dtype) for name, one in pairs)

        apart = any(lanes.apart and one.step(lanes.axis) != one.dtype.itemsize for _, one in (*vectors, *written))
        types = rows.Types(
            typed(vectors), typed(splats), typed(of_rows), typed(written), typed(row_outputs),
            tuple(result for result, _ in totals), tuple(result for result, _ in sums), tuple(added), tuple(combining),
            (*program.numbers, COLUMNS),
            lanes.wide, apart, tuple(shared), shared_dtype, lanes.keeps,
            program.in_float32, program.narrows,
        )  # fmt: skip
        key = (program.traced.digest, *map(str, (steps, *types)))
        name = f"rows-{program.traced.name}-{'across' if lanes.across else 'along'}"

        def make() -> Loop:
            once = None
            if shared:
                once = Passes(steps, of_task, program.numbers, shared, (), (), (), keeps=False, all_kept=True)
            instead = None if exact is None else of_steps(exact, given=shared)
            return chunked((Across if lanes.across else Along)(passes, types, instead, once).part())

        self._kernel = kernel(name, key, make)

        moved = {dtype.itemsize for _, dtype in (*types.vectors, *types.written)}
        self._movers = movers(moved if types.apart else ())
        elements = [one for _, one in written]
        self._elements, self._tasks = axes.elements, lanes.tasks
        self._numbers = np.array([*numbers, lanes.columns], np.float64)
        self._every: list[_Walked | _Sum] = [*self._read, *self._written, *self._sums]
        self.workspace_bytes = sum(one.nbytes for one in self._every)
        self._describe(axes, lanes, self._every, elements)
        self._overlaps = Overlaps(
            [one.layout for one in self._read],
            [*(one.layout for one in self._written), *(one.output.layout for one in self._sums)],
            self._alike(len(vectors), len(of_rows), len(elements)),
        )
        self._step = 1 if self._elements > ALONE else self._tasks
        threads.prepare(-(-self._tasks // self._step))

    @staticmethod
    def _rewritten(program: _Program, lanes: _Lanes, added: Sequence[str]) -> Sequence[Step]:
        """Return the operations, rewritten for fewer passes and roundings; ``added`` are summed over rows by column."""
        results = *program.traced.results, *added
        steps = with_moments(factored(program.steps, lanes.same, results))
        if not program.narrows:
            steps = with_rests(steps, [name for name, _ in program.of_elements])
        return fused(steps, results, only_sums=program.narrows)

    def _describe(self, axes: _Axes, lanes: _Lanes, every: list[_Walked | _Sum], written: list[_Walked]) -> None:
        """Describe the walk through every tensor to the kernel; ``written`` are the outputs of elements."""
        counted = list[int]()
        for axis in reversed(lanes.outer):
            counted += (axes.extents[axis], *(one.step(axis) if isinstance(one, _Walked) else 0 for one in every))
        for axis in reversed(lanes.along):
            counted += (axes.extents[axis], *(one.step(axis) for one in every))
        self._axes = (ctypes.c_int64 * max(1, len(counted)))(*counted)
        self._steps = (walk.RowSteps * len(every))(
            *(
                walk.RowSteps(
                    one.step(lanes.beside) if isinstance(one, _Walked) else 0,
                    one.step(lanes.run),
                    0 if isinstance(one, _Walked) else one.task_bytes,
                )
                for one in every
            )
        )
        run = 1 if lanes.run is None else axes.extents[lanes.run]
        output_bytes = sum(axes.elements * one.dtype.itemsize for one in written)
        streams = (
            not lanes.across
            and bool(written)
            and min(output_bytes / STREAM_BYTES, run * written[0].dtype.itemsize / STREAMED_ROW) >= 1
        )
        self._walk = walk.RowWalk(
            self._numbers.ctypes.data, NONTEMPORAL if streams else CACHED, lanes.extent, lanes.block,
            lanes.runs, run, len(lanes.outer), len(lanes.along),
            ctypes.addressof(self._axes), ctypes.addressof(self._steps), self._movers,
        )  # fmt: skip
        self._walk_address = ctypes.addressof(self._walk)

    def _alike(self, vectors: int, rows: int, elements: int) -> set[tuple[int, int]]:
        """Return which inputs (i) may be overwritten by which outputs (k): each row reads its part before writing it.

        Args:
            vectors: number of inputs, the first ones, that are read as vectors.
            rows: number of inputs, the last ones, that are read once a row.
            elements: number of outputs, the first ones, of elements.
        """
        read, written = [*enumerate(self._read)], [*enumerate(self._written)]
        return {
            (i, k)
            for inputs, outputs in (
                (read[:vectors], written[:elements]),
                (read[len(read) - rows :], written[elements:]),
            )
            for (i, one), (k, other) in itertools.product(inputs, outputs)
            if one.strides == other.strides and one.dtype.itemsize == other.dtype.itemsize
            if not (one.copies or other.copies)
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        targets = [outputs[place] for place in self._targets]
        read, _copies = self._overlaps.apart([inputs[place] for place in self._places], targets)
        addresses = [*read, *targets]
        if self.workspace_bytes:
            self._arrange(addresses, workspace)
        arguments = array("q", (self._walk_address, *addresses))
        threads.share(self._kernel, arguments.buffer_info()[0], self._step, self._tasks, self._elements // PER_US)
        if self.workspace_bytes:
            self._finish(addresses, targets)

    def _arrange(self, addresses: list[int], workspace: int) -> None:
        """Replace the addresses of tensors with copies in the workspace, and fill those that are read."""
        for place, one in enumerate(self._every):
            if one.nbytes:
                if place < len(self._read):
                    self._read[place].copy.run((addresses[place],), (workspace,), 0)
                addresses[place] = workspace
                workspace += one.nbytes

    def _finish(self, addresses: list[int], targets: list[int]) -> None:
        """Add up partial sums, and copy results from the workspace to the outputs."""
        first = len(self._read)
        for one, made, wanted in zip(self._every[first:], addresses[first:], targets, strict=True):
            if isinstance(one, _Sum):
                one.finish(made, wanted)
            elif one.copies:
                one.copy.run((made,), (wanted,), 0)
