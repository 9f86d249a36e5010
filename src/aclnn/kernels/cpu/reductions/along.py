"""Kernels whose lanes run along a row, and whose row-constant variables are numbers.

A formula may take both the row's sum of terms times a factor of each run and the terms' sums over rows, as gradients of
grouped norms do. The partial sums of each run then serve for both.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.elementwise.functions import WORDS, times
from aclnn.kernels.cpu.elementwise.general import LINE, SINGLES, Elements
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.reductions.kinds import SUM
from aclnn.kernels.cpu.reductions.passes import Passes
from aclnn.kernels.cpu.reductions.rewrites import RUN_SUM
from aclnn.kernels.cpu.reductions.rows import KEPT, PADDED, Rows, Types
from aclnn.kernels.cpu.reductions.words import BLOCK_SUMS, RUN_SUMS
from aclnn.kernels.cpu.simd.doubles import widen
from aclnn.kernels.cpu.simd.vector import LANES, fma, lane

NEAR = 1 << 14
"""Bytes of a row up to which the next row is prefetched while this one is read again."""
TOGETHER, SCALE = 16, 2.0**-5
"""Rows accumulated in float32 before they are added to float64 sums, and the scale that keeps them from overflowing."""
MOST_RUNS = 1 << 12
"""Maximum number of a row's runs whose sums are kept until float32 is known to suffice for the row."""


def _of_numbers(template: str) -> str:
    """Return the template of an operation on numbers instead of lanes."""
    return f"one_{template}" if template[0].isalpha() else template.replace("~", "not ")


def _of_one(word: Any) -> Any:
    return register_jitable(lambda x: lane(word(widen(x)), 0))


_OF_NUMBERS = {f"one_{name}": _of_one(word) for name, word in WORDS.items()} | {
    "one_sqrt": register_jitable(lambda x: math.sqrt(x)),
    "one_fma": register_jitable(lambda x, y, z: lane(fma(widen(x), widen(y), widen(z)), 0)),
    "one_times": register_jitable(lambda x, y: lane(times(widen(x), widen(y)), 0)),
    "one_where": register_jitable(lambda condition, chosen, otherwise: chosen if condition else otherwise),
}


class Along(Rows):
    """Kernels whose lanes run along a row."""

    names: ClassVar = _OF_NUMBERS

    def __init__(self, passes: Passes, types: Types, exact: Passes | None, shared: Passes | None) -> None:
        """See ``Rows``."""
        super().__init__(passes, types, exact, shared)
        self._deferred = [
            k
            for k, name in self._totals
            if any(narrow and name in passes.totals[place] for place, narrow in enumerate(self._narrowed[:-1]))
        ]
        """The totals that a pass in float32 lanes before the last finds; the last adds them up."""
        self._in_short = [k for k, _ in self._sums if self._narrowed[-1] and types.keeps]
        """The sums of which a few rows are first accumulated in float32."""

    def _together(self) -> int:
        return 1

    def _prepare(self) -> None:
        for k in self._in_short:
            self(f"short{k} = stack_alloc({KEPT // 2 + PADDED})")
            with self.block(f"for at_sum in range(0, 4 * walk.runs * walk.run, {4 * LANES}):"):
                self(f"store_FLOAT(short{k} + at_sum, splat(float32(0.0)))")
        self(*(f"early{k} = float64_at(stack_alloc({8 * MOST_RUNS}))" for k in self._deferred))
        for k in range(len(self._vectors)):
            self(f"next{k} = walk.steps[{k}].row if abs(walk.steps[{k}].row) <= {NEAR} else {LINE}")

    def _of_row(self, number: str) -> str:
        return number

    def _in_lanes(self, name: str) -> str:
        return f"widen({name})"

    def _in_all(self, name: str) -> str:
        return f"all_{name}"

    def _nearest(self, number: str) -> str:
        return f"float64(float32({number}))"

    def _where(self, condition: str, chosen: str, otherwise: str) -> str:
        return chosen

    def _between(self, number: int) -> None:
        self.steps(step._replace(template=_of_numbers(step.template)) for step in self._passes.between(number))

    def _bring_rows(self) -> None:
        self(*(f"{name} = {SINGLES[dtype].format(f'places[{place}]')}" for place, name, dtype in self._rows))

    def _first_kept(self, cut: bool) -> str:
        return "(run * walk.run + begin)" if cut else "run * walk.run"

    def _vectors_of(self, name: str) -> list[str]:
        return [self._in_lanes(name)]

    def _write_rows(self) -> None:
        super()._write_rows()
        if self._in_short:
            with self.block(f"if row % {TOGETHER} == {TOGETHER - 1} or row == rows - 1:"):
                self._add_short_sums()

    def _walk(self, number: int) -> None:
        """Reduce a row's elements and, in the last pass, write results."""
        passes, reductions = self._passes, self._passes.reductions[number]
        found = [(k, step, self._kind(step)) for k, step in enumerate(reductions) if step.template not in BLOCK_SUMS]
        cut = [(k, step) for k, step in enumerate(reductions) if step.template in BLOCK_SUMS]
        written, totals, sums = self._results(number)
        self(*(f"all_{name} = {self.splat}({name})" for name in passes.states[number]))
        self._split_rows(number)
        of_runs = [
            (k, step.operands[0], step.operands[1]) for k, step in enumerate(reductions) if step.template in RUN_SUMS
        ]
        sums_of = {term: f"found{k}" for k, term, _ in of_runs}
        self(*(f"found{k} = {kind.first.format(kind.start)}" for k, _, kind in found))
        self(*(f"whole{k} = widen(0.0)" for k in sorted({k for k, *_ in (*cut, *of_runs)})))
        with self._runs(), self._blocks(bool(cut)):
            self._places(number, "begin" if cut else None)
            starts = [(k, BLOCK_SUMS[step.template]) for k, step in cut]
            self(*(f"found{k}, small{k} = splat(float32({start})), splat(float32(0.0))" for k, start in starts))
            self._load_splats(number)
            self(*(f"found{k} = widen(0.0)" for k, step, _ in found if step.template == RUN_SUM))
            self(*(f"own{k} = widen(0.0)" for k, name in totals if name not in sums_of))
            sizes = {one.dtype.itemsize for one in written}
            streamed = len(written) if sizes in ({2}, {4}) and not reductions else 0
            if streamed:
                first = written[0].first
                alike = [f"(address({first}) - address({other.first})) & {LINE - 1} == 0" for other in written[1:]]
                # Sums need element i in lane i modulo 16, so that no elements may be peeled off to align stores.
                unit = LINE if totals or sums else written[0].dtype.itemsize
                whole = f"address({first}) & {unit - 1} == 0"
                self(f"policy = walk.policy if {' and '.join((whole, *alike))} else 0")
            brought, kept = (self._kept(number, names) for names in (passes.given(number), passes.kept[number]))
            terms = [(f"found{k}", self._reduced(number, step), kind) for k, step, kind in found]
            terms += [(f"own{k}", [self._term(number, name)], SUM) for k, name in totals if name not in sums_of]
            adding = [self._adding(number, k, name) for k, name in sums]
            read = [
                *(
                    one._replace(ahead=one.first.replace("place", "next") if number else "")
                    for one in self._needed(number, self._vectors)
                ),
                *brought,
                *(one for one, _ in adding),
            ]
            written = [*written, *kept, *(one._replace(value=value) for one, value in adding)]
            changed = [*(name for name, *_ in terms), *(f"{name}{k}" for k, _ in cut for name in ("found", "small"))]

            def reduce(limited: bool) -> None:
                for name, values, kind in terms:
                    start = kind.start if limited else None
                    for factors in zip(*(self._limited(value, start) for value in values), strict=True):
                        self(f"{name} = {kind.taking(name, factors)}")
                for k, step in cut:
                    for q, vectors in enumerate(self._in_two(number, step)):
                        some = f"select(first_lanes(limit - {LANES * q}), {{}}, 0.0)" if limited else "{}"
                        self._add_in_two(f"found{k}", f"small{k}", step, vectors, some)

            with self.stretch(read, written, streamed, () if self._wide else changed):
                self._terms(number)
                if self._wide and (terms or cut):
                    with self.block("if whole:"):
                        reduce(limited=False)
                    with self.block("else:"):
                        reduce(limited=True)
                else:
                    reduce(limited=False)
            for k, name in totals:
                own = f"sum_of(widen({sums_of.get(name, f'own{k}')}))"
                if k in self._deferred:
                    self(f"early{k}[run] = {f'(early{k}[run] if begin else 0.0) + ' if cut else ''}{own}")
                else:
                    self(f"float64_at(place{k})[0] += {own}")
            if number == passes.count - 1:
                self(*(f"float64_at(here[{k}])[0] += early{k}[run]" for k in self._deferred))
            for k, _, factor in of_runs:
                same = factor if factor in passes.states[0] else self.vectors(factor)[0]
                self(f"whole{k} = whole{k} + widen(found{k}) * widen({same})")
            ends = [(k, start) for k, start in starts if reductions[k].template not in RUN_SUMS]
            self(*(f"whole{k} = whole{k} + ((widen(found{k}) - {start}) + widen(small{k}))" for k, start in ends))
        for k, step, kind in found:
            lanes = f"whole{k}" if step.template == RUN_SUM else f"found{k}"
            self(f"{step.result} = float64({kind.of_lanes.format(lanes)})")
        self(*(f"{step.result} = sum_of(whole{k})" for k, step in cut))

    def _short_sum(self, k: int) -> Elements:
        """Return the operand of the float32 sums of a few rows."""
        return Elements(f"few{k}", DataType.FLOAT, f"(short{k} + run * walk.run * 4)", None)

    def _adding(self, number: int, k: int, name: str) -> tuple[Elements, str]:
        """Return the operand of a sum over rows, and the source of its new value."""
        term = self._term(number, name)
        if not (self._narrowed[number] and k in self._in_short):
            return Elements(f"sum{k}", DataType.DOUBLE, f"place{k}"), f"sum{k} + {self.splat}({term})"
        single = f"narrow({term})" if name in self._doubles(number) else term
        return self._short_sum(k), f"fma({single}, {SCALE}, few{k})"

    def _add_short_sums(self) -> None:
        """Flush the float32 sums of a few rows to the task's float64 sums."""
        self._double = True
        with self._runs():
            self("end = walk.run")
            self(*(f"place{k} = here[{k}]" for k in self._in_short))
            short = [*map(self._short_sum, self._in_short)]
            sums = [Elements(f"sum{k}", DataType.DOUBLE, f"place{k}", None) for k in self._in_short]
            more = (f"sum{k} + few{k} * {1 / SCALE}" for k in self._in_short)
            written = [one._replace(value=value) for one, value in zip(sums, more, strict=True)]
            with self.stretch([*sums, *short], [*written, *(one._replace(value="0.0") for one in short)], 0):
                pass
