"""Plans of formulas over rows.

``plan`` groups dimensions into axes (``Axes``), traces the formula and classifies its tensors (``_Program``), chooses
the direction of lanes and the size of tasks (``_Lanes``), and describes each tensor as strides along the axes, or plans
a dense copy where these would be uneven (``Walked``). Sums over rows are made of partial sums, one for each task
(``Sum``). Where a tensor cannot be described so, NumPy computes (``ReductionPlan``).
"""

from __future__ import annotations

import ctypes
import itertools
import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.kernels import Formula, Operand, Plan
from aclnn.kernels.cpu import target, threads
from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.reductions import rows, walk
from aclnn.kernels.cpu.reductions.across import LONGEST_TILED, Across
from aclnn.kernels.cpu.reductions.along import MOST_RUNS, Along
from aclnn.kernels.cpu.reductions.axes import Axes, NotWalkableError, Walked, strides_along
from aclnn.kernels.cpu.reductions.narrowing import with_short_sums
from aclnn.kernels.cpu.reductions.passes import REDUCES, Passes
from aclnn.kernels.cpu.reductions.rewrites import combined, constants, factored, fused, with_moments, with_rests
from aclnn.kernels.cpu.reductions.sums import PER_US, Sum
from aclnn.kernels.cpu.reductions.words import float32_steps
from aclnn.kernels.cpu.simd.vector import LANES, WIDE
from aclnn.kernels.cpu.strided import CACHED, NONTEMPORAL, STREAMED_ROW, movers
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.layouts import Layouts, Overlaps, SharedOutputs
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
            with suppress(NotWalkableError):
                return _Rows(formula, inputs, wanted, Axes(shape, dims, operands), numbers)
        return ReductionPlan(formula, inputs, wanted, dims, numbers)

    layouts = tuple(output.layout for output in outputs if output is not None)
    return SharedOutputs(make, layouts) if len(layouts) > 1 else make(layouts)


def _first_elements(output: Operand) -> Operand:
    """Return the operand of those first elements of a tensor that are written, if these are evenly spaced."""
    layout, count = output.layout, math.prod(output.shape)
    strides = None if layout.size == count else strides_along(layout, (layout.size,))
    return output if strides is None else output._replace(layout=layout._replace(shape=(count,), strides=strides))


Named = tuple[str, Operand]
"""A variable of the program and its tensor."""


class _Program:
    """The program of a formula, and its tensors by whether they vary along a row, are row-constant, or summed."""

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Operand | float],
        outputs: Sequence[Operand | None],
        axes: Axes,
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
                raise NotWalkableError
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

    def __init__(self, axes: Axes, program: _Program) -> None:
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
            for axis, stride in enumerate(strides_along(operand.layout, extents[id(operand)]) or ()):
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
        self.together = -(-self.tasks // MOST_SUMS)
        """Number of consecutive tasks that share partial sums, for sums over all tasks."""
        run = None if across else self.run
        of_columns = [] if run is None else [pair for pair in summed if extents[id(pair[1])][run] > 1]
        self.totals = [pair for pair in summed if pair not in of_columns]
        """Sums to one element of which a run adds the sum of its terms."""
        own = [pair for pair in of_columns if any(extents[id(pair[1])][axis] > 1 for axis in self.outer)]
        self.sums, self.own_sums = own + [pair for pair in of_columns if pair not in own], len(own)
        """Sums with one element for each of a run, and the number of the first of them that no two tasks share."""


class _Rows:
    """The plan of a formula over rows (see ``aclnn.kernels.cpu.reductions.rows``)."""

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Operand | float],
        outputs: Sequence[Operand | None],
        axes: Axes,
        numbers: tuple[float, ...],
    ) -> None:
        program = _Program(formula, inputs, outputs, axes, len(numbers))
        lanes = _Lanes(axes, program)

        def walked(pair: Named, lane: int | None, written: bool = False) -> tuple[str, Walked]:
            name, operand = pair
            return name, Walked(operand, program.extents[id(operand)], lane, lanes.apart, written)

        of_elements = [walked(pair, lanes.axis) for pair in program.of_elements]
        splats = [(name, one) for name, one in of_elements if lanes.axis is None or one.strides[lanes.axis] == 0]
        vectors = [pair for pair in of_elements if pair not in splats]
        of_rows = [walked(pair, None) for pair in program.of_rows]
        written = [walked(pair, lanes.axis, written=True) for pair in program.written]
        row_outputs = [walked(pair, None, written=True) for pair in program.row_outputs]

        added, combining, together = [name for name, _ in lanes.sums], list[Step](), lanes.together
        of_task = [name for name, one in vectors if not lanes.across and one.step(lanes.beside) == 0]
        fewer = combined(program.steps, added, (*of_task, *program.numbers, COLUMNS))
        if fewer is not None and not program.in_float32:
            added, combining = fewer
            if len(added) > lanes.own_sums:
                together = 1  # accumulated variables need memory of each task

        # In the order of the kernel's operands.
        self._read = [one for _, one in (*vectors, *splats, *of_rows)]
        self._places = [program.inputs[name] for name, _ in (*vectors, *splats, *of_rows)]
        self._written = [one for _, one in (*written, *row_outputs)]
        summed = (*lanes.totals, *lanes.sums)
        self._sums = [Sum(output, axes, lanes.outer, lanes.segments, together) for _, output in summed]
        targets = [*(output for _, output in (*program.written, *program.row_outputs))]
        targets += [one.output for one in self._sums]
        self._targets = [program.outputs[id(output)] for output in targets]

        steps = program.steps if program.in_float32 else self._rewritten(program, lanes, added)
        steps, exact = program.with_short_sums(steps, of_runs=not lanes.across and lanes.runs <= MOST_RUNS)
        of_steps = partial(
            Passes,
            elements=[name for name, _ in (*vectors, *splats)],
            rows=[*program.numbers, COLUMNS, *(name for name, _ in of_rows)],
            results=[*(name for name, _ in written), *added],
            totals=[name for name, _ in lanes.totals],
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
            raise NotWalkableError

        def typed(pairs: list[tuple[str, Walked]]) -> tuple[rows.Variable, ...]:
            return tuple((name, one.dtype) for name, one in pairs)

        apart = any(lanes.apart and one.step(lanes.axis) != one.dtype.itemsize for _, one in (*vectors, *written))
        types = rows.Types(
            typed(vectors), typed(splats), typed(of_rows), typed(written), typed(row_outputs),
            tuple(name for name, _ in lanes.totals), tuple(name for name, _ in lanes.sums),
            tuple(added), tuple(combining),
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
        self._every: list[Walked | Sum] = [*self._read, *self._written, *self._sums]
        self.workspace_bytes = sum(one.nbytes for one in self._every)
        self._describe(axes, lanes, self._every, elements)
        self._overlaps = Overlaps(
            [one.layout for one in self._read],
            [*(one.layout for one in self._written), *(one.output.layout for one in self._sums)],
            self._alike(len(vectors), len(of_rows), len(elements)),
        )
        self._step = max((one.together for one in self._sums), default=1) if self._elements > ALONE else self._tasks
        threads.prepare(-(-self._tasks // self._step))

    @staticmethod
    def _rewritten(program: _Program, lanes: _Lanes, added: Sequence[str]) -> Sequence[Step]:
        """Return the operations, rewritten for fewer passes and roundings; ``added`` are summed over rows by column."""
        results = *program.traced.results, *added
        steps = with_moments(factored(program.steps, lanes.same, results))
        if not program.narrows:
            steps = with_rests(steps, [name for name, _ in program.of_elements])
        return fused(steps, results, only_sums=program.narrows)

    def _describe(self, axes: Axes, lanes: _Lanes, every: list[Walked | Sum], written: list[Walked]) -> None:
        """Describe the walk through every tensor to the kernel; ``written`` are the outputs of elements."""
        counted = list[int]()
        for axis in reversed(lanes.outer):
            counted += (axes.extents[axis], *(one.step(axis) if isinstance(one, Walked) else 0 for one in every))
        for axis in reversed(lanes.along):
            counted += (axes.extents[axis], *(one.step(axis) for one in every))
        self._axes = (ctypes.c_int64 * max(1, len(counted)))(*counted)
        self._steps = (walk.RowSteps * len(every))(
            *(
                walk.RowSteps(
                    one.step(lanes.beside) if isinstance(one, Walked) else 0,
                    one.step(lanes.run),
                    *((0, 1) if isinstance(one, Walked) else (one.task_bytes, one.together)),
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
            if isinstance(one, Sum):
                one.finish(made, wanted)
            elif one.copies:
                one.copy.run((made,), (wanted,), 0)
