"""The passes over a row that a program takes, operation by operation.

A reduction needs every element of the row before anything can depend on it. So there are as many passes as the longest
chain of dependent reductions has, and one more where results depend on the last. Values that depend on the row alone
are computed between passes, once a row, and kept as its state. Values that depend on elements are recomputed in each
pass that needs them, which is cheaper than keeping them, except for slow functions such as ``exp`` and combinations of
several tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from aclnn.kernels.cpu.reductions import rewrites
from aclnn.kernels.cpu.reductions.rewrites import MOMENTS, PRODUCT_SUM
from aclnn.kernels.cpu.reductions.words import BLOCK_SUMS, RUN_SUMS, SMALL_SUM
from aclnn.kernels.trace import COLUMNS, CONDITIONS, REDUCTIONS, Step, steps_for

REDUCES = (*rewrites.REDUCES, SMALL_SUM, *BLOCK_SUMS)
_SLOW = ("joined({}, {})", "short_power({}, {})") + tuple(
    f"{word}({{}})" for word in ("exp", "expm1", "log", "log1p", "log1pexp", "tanh", "erf", "erfc")
)


class Passes:
    """The passes of a program.

    Args:
        steps: the operations.
        elements: the program's arguments that vary along a row.
        rows: the row-constant arguments and other numbers.
        results: the variables wanted for each element.
        totals: the variables whose sums over rows are wanted.
        of_rows: the variables wanted for each row.
        vectors: the ``elements`` that are contiguous.
        keeps: True if variables of elements may be kept from one pass to the next.
        given: variables of elements that were kept before the first pass.
        all_kept: True if all results are kept.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        elements: Sequence[str],
        rows: Sequence[str],
        results: Sequence[str],
        totals: Sequence[str],
        of_rows: Sequence[str],
        vectors: Sequence[str],
        keeps: bool,
        given: Sequence[str] = (),
        all_kept: bool = False,
    ) -> None:
        self._steps, self._elements, self._rows = tuple(steps), tuple(elements), tuple(rows)
        self._given = tuple(given)
        wanted = {*results, *totals, *of_rows}
        needed = wanted.union(*(step.operands for step in steps_for(wanted, self._steps)))
        levels = dict.fromkeys((*elements, *rows), 0)
        varying, reductions, between = {*elements}, dict[int, list[Step]](), dict[int, list[str]]()
        moments = dict[int, list[Step]]()
        for step in self._steps:
            level = max(levels.get(operand, 0) for operand in step.operands)
            reduces = step.template in REDUCES
            levels[step.result] = level = level + reduces
            if step.template in MOMENTS:
                if step.operands[-1] not in needed:  # then none of the three moments is
                    continue
                moments.setdefault(level, []).append(step)
            elif reduces and step.result in needed:
                reductions.setdefault(level, []).append(step)
            elif not reduces and varying & {*step.operands}:
                varying.add(step.result)
            elif step.result in needed and step.template not in CONDITIONS:
                between.setdefault(level, []).append(step.result)
        depth = max((*reductions, *moments), default=0)
        self.count = max(depth, 1 + max((levels.get(name, 0) for name in (*results, *totals)), default=-1))
        self.reductions = [tuple(reductions.get(number + 1, ())) for number in range(self.count)]
        """The reductions of each pass."""
        self.moments = [tuple(moments.get(number + 1, ())) for number in range(self.count)]
        """The moments that each pass derives from its sums; for rows whose mean is far from 0 they are measured."""
        early = {
            step.operands[0]: number
            for number, steps in enumerate(self.reductions)
            for step in steps
            if step.template in RUN_SUMS
        }
        self.totals = [
            tuple(name for name in totals if early.get(name, self.count - 1) == number) for number in range(self.count)
        ]
        """The variables that each pass sums over rows: those of its sums of runs; in the last pass, the rest."""
        self.results = (*results, *(self.totals[-1] if self.totals else ()))
        """The variables that the last pass needs for each element."""
        self.states: list[tuple[str, ...]] = []
        """The variables of a row that are known before each pass, and after the last."""
        self.stages: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        """The variables known, and those computed from them, before each pass and after the last."""
        known = tuple(rows)
        for number in range(self.count + 1):
            if number:
                known += tuple(step.result for step in (*self.reductions[number - 1], *self.moments[number - 1]))
            computed = tuple(between.get(number, ()))
            self.stages.append((known, computed))
            known += computed
            self.states.append(known)
        self.kept: list[tuple[str, ...]] = [()] * self.count
        """The variables of elements that each pass keeps for later passes."""
        if all_kept:
            self.kept[-1] = self.results
        for number in range(self.count if keeps else 0):
            worth = self._worth_keeping({*vectors}, {*self.given(number)})
            for step in reversed(self.terms(number)):
                later = (one.result for after in range(number + 1, self.count) for one in self.terms(after))
                if step.result in worth and step.result in later:
                    self.kept[number] += (step.result,)

    def _worth_keeping(self, vectors: set[str], given: set[str]) -> set[str]:
        """Return the results of slow functions, and the variables computed from several vectors or ``given`` ones."""
        worth, read = set[str](), {name: {name} for name in vectors | given}
        for step in self._steps:
            if step.result in given or step.template in REDUCES:
                continue
            read[step.result] = set[str]().union(*(read.get(operand, ()) for operand in step.operands))
            if step.template in _SLOW or (len(read[step.result]) > 1 and step.template not in CONDITIONS):
                worth.add(step.result)
        return worth

    def given(self, number: int) -> tuple[str, ...]:
        """Return the variables of elements that were kept before a pass."""
        return (*self._given, *itertools.chain(*self.kept[:number]))

    def measured(self, number: int, moments: Sequence[Step], origin: str) -> Passes:
        """Return the passes that compute a pass's moments of x relative to an origin of each row.

        They find the mean's distance from the origin and the sum of squared differences from the mean, in the variables
        of the first and the last moment with ``_moved`` appended.
        """
        x = moments[0].operands[0]
        mean, _, squares = (f"{step.result}_moved" for step in moments)
        moved, total, rest = (f"{mean}_{word}" for word in ("by", "total", "rest"))
        steps = [
            *self._steps,
            Step(moved, "{} - {}", (x, origin)),
            Step(total, REDUCTIONS["row_sum"], (moved,)),
            Step(mean, "{} / {}", (total, COLUMNS)),
            Step(rest, "{} - {}", (moved, mean)),
            Step(squares, PRODUCT_SUM, (rest, rest)),
        ]
        rows, given = (*self._rows, origin), self.given(number)
        return Passes(steps, self._elements, rows, (), (), (mean, squares), (), keeps=False, given=given)

    def between(self, number: int) -> list[Step]:
        """Return the operations on a row's state before a pass, or after the last."""
        known, computed = self.stages[number]
        return steps_for(computed, self._steps, known)

    def terms(self, number: int, wanted: Sequence[str] = ()) -> list[Step]:
        """Return the operations of a pass that compute ``wanted`` from elements and a row's state.

        By default these are the operands of the pass's reductions and, in the last pass, the results.
        """
        if not wanted:
            wanted = [name for step in self.reductions[number] for name in step.operands]
            wanted += self.results if number == self.count - 1 else ()
        return steps_for(wanted, self._steps, (*self._elements, *self.states[number], *self.given(number)))
