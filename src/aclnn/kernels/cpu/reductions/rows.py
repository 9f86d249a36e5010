"""Kernels over rows: passes over runs of elements, with sums and maxima in float64 lanes of a fixed order.

Lanes run along a row, or across rows that lie beside one another. Either way an element's term goes to the partial sum
of its number in its run modulo sixteen, and the sixteen are added by halves: every layout, vector width and number of
threads gives the same bits. A row's own variables are numbers along it, and lanes across rows. Where a formula wants
the sum of a row's terms times a number of each run, and those terms' sums over rows, each run's partial sums serve for
both.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate, count
from typing import Any, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.elementwise.functions import WORDS, times
from aclnn.kernels.cpu.elementwise.general import LINE, SINGLES, Elements, Source
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.reductions.narrowing import Narrowed, narrowed
from aclnn.kernels.cpu.reductions.passes import Passes
from aclnn.kernels.cpu.reductions.rewrites import MOMENTS, PRODUCT_SUM, RUN_SUM
from aclnn.kernels.cpu.reductions.walk import RowCall, advance, begin_run, begin_task
from aclnn.kernels.cpu.reductions.words import BLOCK, BLOCK_SUMS, NAMES, RUN_SUMS, SHORT_SUMS, SMALL_SUM
from aclnn.kernels.cpu.simd.doubles import widen
from aclnn.kernels.cpu.simd.vector import LANES, WIDE, fma, lane
from aclnn.kernels.cpu.strided import move_tile
from aclnn.kernels.cpu.structs import pointer_to
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.trace import REDUCTIONS, Step

_VECTOR = LANES * 8
PADDED = WIDE * _VECTOR
"""Bytes of which a partial sum's room is a multiple."""
NEAR = 1 << 14
"""Bytes of a row up to which the next one is prefetched while this one is read once more."""
LONGEST_TILED = 56
"""Elements of the longest row that is brought into a tile, where lanes run across rows that are apart."""
_DIGITS = {DataType.FLOAT: 24, DataType.FLOAT16: 11, DataType.BF16: 8}
"""Significant digits of data types."""
_USUAL = 100
"""Between 2^-100 and 2^100 are numbers of a row with which float32 loses nothing."""
FAR = 16.0
"""A mean is far from 0 if its square is more than as many variances."""
CACHED_ROW = 40 << 10
"""Bytes of a row and of what is kept for it up to which they stay in the first-level cache."""
KEPT = 1 << 17
"""Bytes of a variable that is kept from one pass for the next, at most."""
TOGETHER, SCALE = 16, 2.0**-5
"""Rows that are added up in float32 before they go to float64 sums, and what is multiplied so that none overflows."""
MOST_RUNS = 1 << 12
"""Runs of a row whose sums are kept, at most, until the row is known to suit float32."""


_NAMES = NAMES | {
    "addresses_at": pointer_to(ctypes.c_void_p),
    "advance": advance,
    "begin_run": begin_run,
    "begin_task": begin_task,
    "call_at": pointer_to(RowCall),
    "move_tile": move_tile,
}


Variable = tuple[str, DataType]


class Types(NamedTuple):
    """The operands of a kernel, variables of the program with data types, in the order of their addresses."""

    vectors: tuple[Variable, ...]
    """Inputs whose elements are side by side as lanes are."""
    splats: tuple[Variable, ...]
    """Inputs that are the same in all lanes, and differ along a row."""
    rows: tuple[Variable, ...]
    """Inputs of one element for each row."""
    written: tuple[Variable, ...]
    """Outputs of elements, side by side."""
    row_outputs: tuple[Variable, ...]
    """Outputs of rows."""
    totals: tuple[str, ...]
    """Sums over rows, in float64, of which a run adds to one element."""
    sums: tuple[str, ...]
    """Sums over rows, in float64, one for each element of a run, side by side."""
    added: tuple[str, ...]
    """Variables that a run accumulates: one for each of ``sums``, or fewer, in the places of the first."""
    combining: tuple[Step, ...]
    """Operations that compute ``sums`` from fewer variables, after the last row of a task."""
    numbers: tuple[str, ...]
    across: bool
    """Lanes run across rows, not along them."""
    wide: bool
    """A wide vector is computed at a time."""
    apart: bool
    """Lanes may be apart in memory: rows have no more than ``LONGEST_TILED`` elements."""
    shared: tuple[str, ...]
    """The variables of elements that are the same in every row of a task, and kept for all of them."""
    shared_dtype: DataType
    keeps: bool
    """A variable of a row's elements, or across rows of as many rows, takes no more than ``KEPT``."""
    in_float32: bool
    """Elements are float32 lanes."""
    narrows: bool
    """They are where that suffices, and float64 lanes elsewhere."""


class _Kind(NamedTuple):
    """A way to reduce: what it starts from, and the source of its steps."""

    start: str
    combine: str
    """The reduction of two vectors to one."""
    of_lanes: str
    """The reduction of a vector's lanes."""
    first: str = "widen({})"
    """The vector that it starts from."""
    dtype: str = "DOUBLE"
    """The data type that it is found in."""
    fused: str = ""
    """The reduction of a vector and two factors, where terms are products that are not rounded."""

    def taking(self, vector: str, parts: Sequence[str]) -> str:
        """Reduce a vector and a term, or its factors, to a vector."""
        return (self.fused or self.combine).format(vector, *parts)


_SUM = _Kind("0.0", "{} + {}", "sum_of({})")
_MAX_OF_FLOAT32 = _Kind(
    "-inf", "larger_float32({}, narrow({}))", "largest_float32_of({})", "splat(float32({}))", "FLOAT"
)
_MAX_OF_NUMBERS = _MAX_OF_FLOAT32._replace(combine="select({0} < narrow({1}), narrow({1}), {0})")
"""The largest number: functions in float32 lanes make a row of NaN of a NaN without being told."""
_SUM_IN_FLOAT32 = _Kind("0.0", "{} + narrow({})", "total({})", "splat(float32({}))", "FLOAT")
_KINDS = {
    **dict.fromkeys(BLOCK_SUMS, _SUM),
    SMALL_SUM: _SUM_IN_FLOAT32,
    RUN_SUM: _SUM,
    PRODUCT_SUM: _SUM._replace(fused="fma({1}, {2}, {0})"),
    REDUCTIONS["row_sum"]: _SUM,
    REDUCTIONS["row_max"]: _Kind("-inf", "larger({}, {})", "largest_of({})"),
}


def _of_numbers(template: str) -> str:
    """Return an operation on numbers instead of lanes."""
    return f"one_{template}" if template[0].isalpha() else template.replace("~", "not ")


def _of_one(word: Any) -> Any:
    return register_jitable(lambda x: lane(word(widen(x)), 0))


_NAMES |= {f"one_{name}": _of_one(word) for name, word in WORDS.items()} | {
    "one_sqrt": register_jitable(lambda x: math.sqrt(x)),
    "one_fma": register_jitable(lambda x, y, z: lane(fma(widen(x), widen(y), widen(z)), 0)),
    "one_times": register_jitable(lambda x, y: lane(times(widen(x), widen(y)), 0)),
    "one_where": register_jitable(lambda condition, chosen, otherwise: chosen if condition else otherwise),
}


def _accumulators_before(reductions: Sequence[Step]) -> list[int]:
    """Number the accumulators of reductions across rows, one to three each, and all of them."""
    counts = dict.fromkeys(BLOCK_SUMS, 3) | {RUN_SUM: 2}
    return [0, *accumulate(counts.get(step.template, 1) for step in reductions)]


def _narrowed(passes: Passes, types: Types) -> list[Narrowed | None] | None:
    """Return the operations of each pass in float32 lanes, None for those in float64, or if all are.

    Those are passes before the last that find statistics.
    """
    last, operands = passes.count - 1, (*types.vectors, *types.splats)
    if (
        not types.narrows
        or types.in_float32
        or passes.reductions[last]
        or any(dtype not in _DIGITS for _, dtype in operands)
    ):
        return None
    digits = {name: _DIGITS[dtype] for name, dtype in operands}
    doubles, found = set[str](), list[Narrowed | None]()
    for number in range(passes.count):
        kept = {*passes.kept[number]}
        short = all(step.template in SHORT_SUMS for step in passes.reductions[number])
        if number < last and (passes.moments[number] or not short):
            found.append(None)
            doubles |= kept
            continue
        wanted = {name for step in passes.reductions[number] for name in step.operands} | kept
        wanted |= {*passes.totals[number], *(passes.results if number == last else ())}
        steps = narrowed(passes.terms(number), digits, doubles, {*passes.states[number]}, wanted)
        if steps is None:
            return None
        found.append(steps)
        doubles |= kept & steps.doubles
    return found


class _RowsSource(Source):
    """The source of a kernel.

    A row's variables are lanes that are all alike, or across rows those of as many rows.
    """

    def __init__(self, passes: Passes, types: Types, exact: Passes | None, shared: Passes | None) -> None:
        super().__init__(types.wide, double=not types.in_float32)
        narrow = _narrowed(passes, types)
        if not (narrow or types.in_float32):
            passes, exact = exact or passes, None
        self._passes, self._exact, self._shared = passes, exact, shared
        self._in_float32, self._numbers = types.in_float32, types.numbers
        self._narrowed: list[Narrowed | None] = narrow or [None] * passes.count
        self._shared_dtypes = dict.fromkeys(types.shared, types.shared_dtype)
        self._kept_dtypes = self._dtypes_of_kept(types)
        self._across, self._apart = types.across, types.apart
        number = count()
        self._vectors = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.vectors]
        self._splats = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.splats]
        self._rows = [(next(number), name, dtype) for name, dtype in types.rows]
        self._written = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.written]
        self._row_outputs = [(next(number), name, dtype) for name, dtype in types.row_outputs]
        self._totals = [(next(number), name) for name in types.totals]
        self._deferred = [
            k
            for k, name in self._totals
            if any(narrow and name in passes.totals[place] for place, narrow in enumerate(self._narrowed[:-1]))
        ]
        """The totals that a pass in float32 lanes finds, and only the last one adds to."""
        self._combined = [Elements(name, DataType.DOUBLE, f"place{next(number)}") for name in types.sums]
        self._combining, self._operands = types.combining, next(number)
        self._sums = [
            (int(one.first.removeprefix("place")), name) for one, name in zip(self._combined, types.added, strict=False)
        ]
        self._in_short = [k for k, _ in self._sums if self._narrowed[-1] and types.keeps and not self._across]
        """The sums of which a few rows are added up in float32 first."""
        self._row_bytes = self.lanes * 8 if self._across else _VECTOR
        self._totals_bytes = LANES * self._row_bytes
        """Bytes of the accumulators of a reduction across rows."""
        self._room = self.room((*(one.dtype for one in (*self._vectors, *self._written)), DataType.DOUBLE))

    def _combine(self) -> None:
        """Compute a task's sums from what was added up."""
        self._double = True
        used = {name for step in self._combining for name in step.operands}
        added = [Elements(name, DataType.DOUBLE, f"place{k}") for k, name in self._sums]
        vectors = [one for one in self._vectors if one.value in used]
        with self._runs():
            self("end = walk.run")
            self(*(f"{one.first} = here[{one.first.removeprefix('place')}]" for one in (*vectors, *self._combined)))
            self(*(f"all_{name} = {self.splat}({name})" for name in self._numbers if name in used))
            with self.stretch([*vectors, *added], self._combined, 0):
                self.steps(self._combining, lambda name: f"all_{name}" if name in self._numbers else name)

    def _short_sum(self, k: int) -> Elements:
        """Return what a few rows add up to."""
        return Elements(f"few{k}", DataType.FLOAT, f"(short{k} + run * walk.run * 4)", None)

    def _adding(self, number: int, k: int, name: str) -> tuple[Elements, str]:
        """Return a sum over rows that a pass adds to, and its new value."""
        term = self._term(number, name)
        if not (self._narrowed[number] and k in self._in_short):
            return Elements(f"sum{k}", DataType.DOUBLE, f"place{k}"), f"sum{k} + {self.splat}({term})"
        single = f"narrow({term})" if name in self._doubles(number) else term
        return self._short_sum(k), f"fma({single}, {SCALE}, few{k})"

    def _add_short_sums(self) -> None:
        """Add what a few rows add up to to a task's sums."""
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

    def _dtypes_of_kept(self, types: Types) -> dict[str, DataType]:
        """Return the data types of what passes keep: float32 of what float32 lanes have."""
        found = dict[str, DataType]()
        for number, names in enumerate(self._passes.kept):
            single = {*names} - self._doubles(number) if types.in_float32 or self._narrowed[number] else ()
            found |= {name: DataType.FLOAT if name in single else DataType.DOUBLE for name in names}
        return found | self._shared_dtypes

    def part(self) -> Any:
        """Make the function of a chunk of tasks."""
        operands, together = self._operands, self.lanes if self._across else 1
        kept = self._passes.given(self._passes.count)
        sums = 4 * max(len(self._combined), len(self._sums))
        buffers = max(1, len(self._vectors) + len(self._written) + sums + len(kept))
        most = max((_accumulators_before(steps)[-1] for steps in self._passes.reductions), default=0)
        with self.block("def part(at, first, last):"):
            self(
                "call = call_at(at)",
                "walk = call.walk",
                f"places, here = addresses_at(stack_alloc({8 * operands})), addresses_at(stack_alloc({8 * operands}))",
            )
            self.buffer(self._room * buffers)
            for name in kept:
                self(f"kept_{name} = stack_alloc({(CACHED_ROW if name in self._passes.given(0) else KEPT) + PADDED})")
            for k in self._in_short:
                self(f"short{k} = stack_alloc({KEPT // 2 + PADDED})")
                with self.block(f"for at_sum in range(0, 4 * walk.runs * walk.run, {4 * LANES}):"):
                    self(f"store_FLOAT(short{k} + at_sum, splat(float32(0.0)))")
            self(*(f"early{k} = float64_at(stack_alloc({8 * MOST_RUNS}))" for k in self._deferred))
            if self._across:
                self(f"totals = stack_alloc({max(1, most) * self._totals_bytes})")
                self(f"own = stack_alloc({max(1, len(self._rows)) * self._row_bytes})")
                for one in (*self._vectors, *self._written) if self._apart else ():
                    self(f"{self._tile(one)} = stack_alloc({LONGEST_TILED * self._pitch(one)})")
                # Partial sums that no element goes to are left out, of the tree too.
                self("residues = 1")
                with self.block(f"while residues < min(walk.run, {LANES}):"):
                    self("residues *= 2")
            else:
                for k in range(len(self._vectors)):
                    self(f"next{k} = walk.steps[{k}].row if abs(walk.steps[{k}].row) <= {NEAR} else {LINE}")
            for k, name in enumerate(self._numbers):
                self(f"{name} = {self._of_row(f'float64_at(walk.numbers)[{k}]')}")
            with self.block("for task in range(first, last):"):
                self(f"rows = begin_task(call, {operands}, task, places)")
                for k, _ in (*self._totals, *self._sums):
                    with self.block(f"for at_sum in range(0, walk.steps[{k}].task, {_VECTOR}):"):
                        self(f"store_doubles(places[{k}] + at_sum, widen(0.0))")
                if self._shared is not None:
                    self._pass_before(self._shared)
                with self.block(f"for row in range(0, rows, {together}):"):
                    self(f"width = min({together}, rows - row)")
                    self._bring_rows()
                    if self._apart:
                        self._move_tiles(0, self._vectors)
                    self._row()
                    self._between(self._passes.count)
                    self._write_rows()
                    if self._apart:
                        self._move_tiles(1, self._written)
                    if self._in_short:
                        with self.block(f"if row % {TOGETHER} == {TOGETHER - 1} or row == rows - 1:"):
                            self._add_short_sums()
                    self(f"advance(places, {operands}, walk.steps, {together})")
                if self._combining:
                    self._combine()
            with self.block("if walk.policy:"):
                self("finish_streams()")
        return self.function("part", **_NAMES)

    def _of_row(self, number: str) -> str:
        """Name a number as a variable of rows: itself, or across rows in all lanes."""
        return f"{self.splat}({number})" if self._across else number

    def _between(self, number: int) -> None:
        """Compute before a pass, or after the last, what follows from a row's state."""
        steps = self._passes.between(number)
        self.steps(steps if self._across else (step._replace(template=_of_numbers(step.template)) for step in steps))

    def _row(self) -> None:
        """Pass over a row, or as many as there are lanes; in float64 where float32 lanes do not suffice."""
        if not self._passes.count:
            return
        last = self._passes.count - 1
        first = next((number for number, narrow in enumerate(self._narrowed) if narrow), 0)
        for number in range(last):
            self._pass(number)
        self._between(last)
        unusual = self._unusual() if self._exact else []
        if not unusual:
            self._over(last)
            return
        with self.block(f"if any_lane({' | '.join(unusual)}):"):
            here = self._passes, self._narrowed, self._kept_dtypes
            assert self._exact is not None
            self._passes, self._narrowed = self._exact, [None] * (last + 1)
            if not self._in_float32:
                self._kept_dtypes = dict.fromkeys(self._kept_dtypes, DataType.DOUBLE) | self._shared_dtypes
            for number in range(first, last + 1):
                self._pass(number)
            self._passes, self._narrowed, self._kept_dtypes = here
        with self.block("else:"):
            self._over(last)

    def _unusual(self) -> list[str]:
        """Return conditions of rows whose numbers float32 lanes lose digits of."""
        sums = [step.result for steps in self._passes.reductions for step in steps if step.template in SHORT_SUMS]
        if self._in_float32:
            return [f"~(absolute({self._in_lanes(name)}) < inf)" for name in sums]
        numbers = [name for narrow in self._narrowed if narrow for name in narrow.rows]
        found = list[str]()
        for name in dict.fromkeys((*sums, *numbers)):
            size = f"absolute({self._in_lanes(name)})"
            none = "" if name in sums else f" | ({size} == 0.0)"  # a sum of none that count, or of such as are lost
            found.append(f"~(({size} <= {2.0**_USUAL}) & (({size} >= {2.0**-_USUAL}){none}))")
        return found

    def _pass(self, number: int) -> None:
        """Compute what follows from a row's state, and pass over its elements."""
        self._between(number)
        self._over(number)

    def _over(self, number: int) -> None:
        """Pass over a row's elements."""
        over = self._across_rows if self._across else self._along
        if self._passes.reductions[number] or (self._passes.results and number == self._passes.count - 1):
            over(number)
        for at in range(0, len(self._passes.moments[number]), len(MOMENTS)):
            self._measure(number, self._passes.moments[number][at : at + len(MOMENTS)])

    def _measure(self, number: int, moments: Sequence[Step]) -> None:
        """Find a row's mean and squared differences, where the mean is far from 0 by measuring elements from there."""
        (mean, _, squares), (_, total, first, about) = (step.result for step in moments), moments[0].operands
        rest, origin, known = moments[1].result, f"{mean}_origin", [*map(self._in_lanes, (first, about, total))]
        self(f"{mean}, {rest}, {squares} = {first}, {self._of_row('0.0')}, {about}")
        self(f"far = (absolute({known[0]}) < inf) & ~({known[1]} * {FAR} >= {known[2]} * {first})")
        with self.block("if any_lane(far):"):
            self(f"{origin} = widen(narrow({first}))" if self._across else f"{origin} = float64(float32({first}))")
            self._pass_before(self._passes.measured(number, moments, origin))
            self(f"moved = {origin} + {mean}_moved")
            found = {mean: "moved", rest: f"({origin} - moved) + {mean}_moved", squares: f"{squares}_moved"}
            self(*(f"{name} = {f'where(far, {new}, {name})' if self._across else new}" for name, new in found.items()))

    def _pass_before(self, passes: Passes) -> None:
        """Pass over elements for what later passes take, writing no results."""
        here = self._passes, self._written, self._totals, self._sums, self._narrowed
        self._passes, self._written, self._totals, self._sums = passes, [], [], []
        self._narrowed = [None] * passes.count
        for number in range(passes.count):
            self._pass(number)
        self._between(passes.count)
        self._passes, self._written, self._totals, self._sums, self._narrowed = here

    @contextmanager
    def _blocks(self, cut: bool) -> Iterator[None]:
        """Loop over parts of a run, each from ``begin`` on up to ``end`` elements more, if it is to be cut."""
        if not cut:
            self("end = walk.run")
            yield
            return
        with self.block(f"for begin in range(0, walk.run, {BLOCK}):"):
            self(f"end = min(walk.run - begin, {BLOCK})")
            yield

    @contextmanager
    def _runs(self) -> Iterator[None]:
        """Loop over a row's runs, operands at the places ``here``."""
        with self.block("for run in range(walk.runs):"):
            axis = f"walk.axes + walk.outer * {1 + self._operands}"
            self(f"begin_run(places, here, {self._operands}, {axis}, walk.columns, run)")
            yield

    def _bring_rows(self) -> None:
        """Load rows' inputs."""
        for k, (place, name, dtype) in enumerate(self._rows):
            if not self._across:
                self(f"{name} = {SINGLES[dtype].format(f'places[{place}]')}")
                continue
            slot = f"own + {k * self._row_bytes}"
            with self.block("for k in range(width):"):
                element = SINGLES[dtype].format(f"places[{place}] + k * walk.steps[{place}].row")
                self(f"float64_at({slot})[k] = {element}")
            self.load(name, DataType.DOUBLE, slot)

    def _write_rows(self) -> None:
        """Store rows' outputs."""
        for place, name, dtype in self._row_outputs:
            vectors = self.vectors(name) if self._across else [self._in_lanes(name)]
            for k, part in enumerate(vectors):
                self(f"store_{dtype.name}(buffer + {k * LANES * dtype.itemsize}, rounded_{dtype.name}({part}))")
            with self.block("for k in range(width):"):
                size = dtype.itemsize
                self(f"copy(places[{place}] + k * walk.steps[{place}].row, buffer + k * {size}, {size})")

    def _results(self, number: int) -> tuple[list[Elements], list[tuple[int, str]], list[tuple[int, str]]]:
        """Return what a pass writes, and what it adds to the totals and to the sums."""
        totals = [(k, name) for k, name in self._totals if name in self._passes.totals[number]]
        if number < self._passes.count - 1:
            return [], totals, []
        written = []
        for one in self._written:
            value, double = self._term(number, one.value), one.value in self._doubles(number)
            written.append(one._replace(value=f"rounded_{one.dtype.name}({value})" if double else value))
        return written, totals, self._sums

    def _doubles(self, number: int) -> frozenset[str]:
        """Return the variables of a pass in float32 lanes that are float64 lanes all the same."""
        narrow = self._narrowed[number]
        return narrow.doubles if narrow else frozenset()

    def _terms(self, number: int) -> None:
        """Compute what a pass reduces and, in the last, results; these in float64 where float32 lanes overflow."""

        def named(name: str) -> str:
            return self._term(number, name)

        narrow = self._narrowed[number]
        if narrow is None:
            self.steps(self._passes.terms(number), named)
            return
        self.steps(narrow.steps, named)
        singles = [one.value for one in self._written if one.value not in narrow.doubles]
        if number < self._passes.count - 1 or not singles:
            return
        steps = self._passes.terms(number, singles)
        used = {name for step in steps for name in step.operands} | {*singles}
        operands = {one.value for one in (*self._vectors, *self._splats)}
        operands |= {name for name in self._passes.given(number) if self._kept_dtypes[name] != DataType.DOUBLE}
        doubles = {*self._passes.states[number], *self._passes.given(number)} - operands

        def exact(name: str) -> str:
            return named(name) if name in doubles or not name.isidentifier() else f"exact_{name}"

        self(f"outside = {' | '.join(f'~(absolute({named(name)}) < inf)' for name in singles)}")
        with self.block("if any_lane(outside):"):
            self(*(f"exact_{name} = widen({named(name)})" for name in sorted(operands & used)))
            self.steps(steps, exact)
            self(*(f"{named(name)} = select(outside, narrow({exact(name)}), {named(name)})" for name in singles))

    def _in_lanes(self, name: str) -> str:
        """Name a variable of rows in lanes."""
        return name if self._across else f"widen({name})"

    def _split_rows(self, number: int) -> None:
        """Take in two parts what a pass in float32 lanes needs of a row."""
        narrow = self._narrowed[number]
        self._double = not (self._in_float32 or narrow)
        for name in narrow.rows if narrow else ():
            value = self._term(number, name)
            self(f"high_{name} = narrow({value})", f"low_{name} = narrow({value} - widen(high_{name}))")

    def _term(self, number: int, name: str) -> str:
        """Name a variable in a pass: one of rows in all lanes of elements, one that each pass computes again."""
        if name in self._passes.states[number]:
            return name if self._across else f"all_{name}"
        return f"{name}_{number}" if name.startswith("t") else name

    def _along(self, number: int) -> None:
        """Pass over a row, lanes along it."""
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
                # Sums want elements in the lanes of their numbers, so that none may be written before the first line.
                unit = LINE if totals or sums else written[0].dtype.itemsize
                whole = f"address({first}) & {unit - 1} == 0"
                self(f"policy = walk.policy if {' and '.join((whole, *alike))} else 0")
            brought, kept = (self._kept(number, names) for names in (passes.given(number), passes.kept[number]))
            terms = [(f"found{k}", self._reduced(number, step), kind) for k, step, kind in found]
            terms += [(f"own{k}", [self._term(number, name)], _SUM) for k, name in totals if name not in sums_of]
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

    def _reduced(self, number: int, step: Step) -> list[str]:
        """Name what a pass reduces: a term, or the factors of one."""
        names = step.operands[:1] if step.template in RUN_SUMS else step.operands
        return [self._term(number, name) for name in names]

    def _in_two(self, number: int, step: Step) -> Iterator[tuple[str, ...]]:
        """Name the vectors of a number that is the sum of two more, and of these."""
        terms = zip(step.operands, self._reduced(number, step), strict=False)
        values = (f"narrow({term})" if name in self._doubles(number) else term for name, term in terms)
        yield from zip(*map(self.vectors, values), strict=True)

    def _add_in_two(self, total: str, small: str, step: Step, parts: tuple[str, ...], limited: str = "{}") -> None:
        """Add a number, perhaps the sum of two more, to a total; of two, what the sum loses to the smaller one."""
        if step.template in SHORT_SUMS:
            first, *second = map(limited.format, parts)
            self(f"{total} = " + (f"fma({first}, {second[0]}, {total})" if second else f"{total} + {first}"))
            return
        value, *of_two = parts
        self(f"before = {total}", f"{total} = before + {limited.format(value)}", f"added = {total} - before")
        lost = f"({of_two[0]} - added) + {of_two[1]}" if of_two else f"{value} - added"
        if of_two and not BLOCK_SUMS[step.template]:  # the total may be the smaller of the two
            lost = f"({lost}) + (before - ({total} - added))"
        self(f"{small} = {small} + {limited.format(f'({lost})')}")

    def _kind(self, step: Step) -> _Kind:
        """Return the way to reduce; the largest of what was float32 or less is found in float32."""
        kind = _KINDS[step.template]
        narrow = any(one.value == step.operands[0] and one.dtype != DataType.DOUBLE for one in self._vectors)
        if not narrow or step.template != REDUCTIONS["row_max"]:
            return kind
        return _MAX_OF_FLOAT32 if self._double else _MAX_OF_NUMBERS

    def _places(self, number: int, column: str | None) -> None:
        """Name the places of a pass's operands, of a run's first elements or those of a column."""
        written, totals, sums = self._results(number)
        elements = (*self._needed(number, self._vectors), *self._needed(number, self._splats), *written)
        for k in sorted({int(one.first.removeprefix("place")) for one in elements} | {k for k, _ in (*totals, *sums)}):
            self(f"place{k} = here[{k}]" + (f" + {column} * walk.steps[{k}].column" if column else ""))

    def _load_splats(self, number: int) -> None:
        """Load what is the same in all lanes."""
        self(*(f"{one.value} = {self.single(one.dtype, one.first)}" for one in self._needed(number, self._splats)))

    def _needed(self, number: int, operands: Iterable[Elements]) -> list[Elements]:
        """Return the operands that a pass needs."""
        used = {name for step in self._passes.terms(number) for name in step.operands}
        used |= {name for step in self._passes.reductions[number] for name in step.operands}
        if number == self._passes.count - 1:
            used |= {*self._passes.results}
        return [one for one in operands if one.value in used and one.value not in self._passes.given(number)]

    def _kept(self, number: int, names: Iterable[str]) -> list[Elements]:
        """Return what a pass keeps, or was kept for it, as it lies from a run's first element on."""
        cut = any(step.template in BLOCK_SUMS for step in self._passes.reductions[number])
        first = "(run * walk.run + begin)" if cut and not self._across else "run * walk.run"
        return [
            Elements(
                self._term(number, name),
                dtype := self._kept_dtypes[name],
                f"(kept_{name} + {first} * {self._apart_bytes(dtype)})",
                None,
            )
            for name in dict.fromkeys(names)
        ]

    def _apart_bytes(self, dtype: DataType) -> int:
        """Return the bytes from what is kept of an element to what is of the next."""
        return (self.lanes if self._across else 1) * dtype.itemsize

    def _limited(self, value: str, start: str | None, limit: str = "limit") -> list[str]:
        """Name the vectors of lanes, those from the limit on replaced by what a reduction starts from, if given."""
        vectors = self.vectors(f"{self.splat}({value})")
        if start is None:
            return vectors
        return [f"select(first_lanes({limit} - {LANES * q}), {part}, {start})" for q, part in enumerate(vectors)]

    def _across_rows(self, number: int) -> None:
        """Pass over as many rows as there are lanes."""
        reductions = self._passes.reductions[number]
        written, totals, sums = self._results(number)
        read, room = self._needed(number, self._vectors), self._room
        operands = (*read, *written)
        slots = [f"totals + {place * self._totals_bytes}" for place in _accumulators_before(reductions)]
        cut = {slot: step for slot, step in zip(slots, reductions, strict=False) if step.template in BLOCK_SUMS}
        with self._residues() if reductions else nullcontext():
            for slot, step in zip(slots, reductions, strict=False):
                kind = self._kind(step)
                self(f"store_{kind.dtype}({slot} + slot, {kind.first.format(kind.start)})")
                if slot in cut:
                    self._start_in_two(slot, step)
                if step.template == RUN_SUM:
                    self(f"store_DOUBLE({slot} + {self._totals_bytes} + slot, widen(0.0))")
        self._split_rows(number)
        flush, first = self._flushed(cut), "begin, begin + " if cut else ""
        multiplied = self._multiplied(dict(zip(slots, reductions, strict=False)))
        with self._runs(), multiplied, self._blocks(bool(cut)), flush, self.block(f"for j in range({first}end):"):
            self._places(number, "j")
            if self._apart:
                self(*(f"part{k} = {self._in_tile(one)} + j * {self._pitch(one)}" for k, one in enumerate(operands)))
            else:
                self(*(f"part{k} = {one.first}" for k, one in enumerate(operands)))
                with self.block(f"if width < {self.lanes}:"):
                    self("pass", *(f"part{k} = buffer + {room * k}" for k in range(len(operands))))
                    for k, one in enumerate(read):
                        self.bring(one.dtype, one.first, f"part{k}", "width")
            for k, one in enumerate(read):
                self.load(one.value, one.dtype, f"part{k}")
            self._load_splats(number)
            for value, dtype, first, _ in self._kept(number, self._passes.given(number)):
                self.load(value, dtype, f"{first} + j * {self._apart_bytes(dtype)}")
            self._terms(number)
            for value, dtype, first, _ in self._kept(number, self._passes.kept[number]):
                self.store(value, dtype, f"{first} + j * {self._apart_bytes(dtype)}")
            self(f"residue = (j & {LANES - 1}) * {self._row_bytes}")
            for place, step in zip(slots, reductions, strict=False):
                if step.template in BLOCK_SUMS:
                    self._add_across(f"{place} + residue", number, step)
                    continue
                values, kind = self._reduced(number, step), self._kind(step)
                of_run = self._totals_bytes if step.template == RUN_SUM else 0
                vectors = (self.vectors(f"{self.splat}({value})") for value in values)
                for q, factors in enumerate(zip(*vectors, strict=True)):
                    slot = f"{place} + residue + {q * _VECTOR + of_run}"
                    combined = kind.taking(f"load_{kind.dtype}({slot})", factors)
                    self(f"store_{kind.dtype}({slot}, {combined})")
            for k, (name, dtype, *_) in enumerate(written, len(read)):
                self(f"rounded = {self.rounded(name, dtype)}")
                self.store("rounded", dtype, f"part{k}")
            if written and not self._apart:
                with self.block(f"if width < {self.lanes}:"):
                    for k, one in enumerate(written, len(read)):
                        self.take_back(one.dtype, f"part{k}", one.first, "width")
            for k, name in (*totals, *sums):
                self(f"sum{k} = float64_at(place{k})[0]")
                for part in self._limited(self._term(number, name), _SUM.start, "width"):
                    self(f"sum{k} += sum_of({part})")
                self(f"float64_at(place{k})[0] = sum{k}")
        for slot, step in zip(slots, reductions, strict=False):
            kind = self._kind(step)
            self._combine_residues(slot, kind)
            parts = [f"widen(load_{kind.dtype}({slot} + {at * 8}))" for at in range(0, self.lanes, LANES)]
            self(f"{step.result} = " + (f"side_by_side({', '.join(parts)})" if self._wide else parts[0]))

    @contextmanager
    def _residues(self) -> Iterator[None]:
        """Loop over the accumulators of every lane."""
        with self.block(f"for slot in range(0, residues * {self._row_bytes}, {_VECTOR}):"):
            yield

    def _of_two(self, slot: str) -> list[str]:
        """Name the places of the two float32 beside a total."""
        return [f"{slot} + {k * self._totals_bytes}" for k in (1, 2)]

    def _start_in_two(self, slot: str, step: Step) -> None:
        for part, start in zip(self._of_two(slot), (BLOCK_SUMS[step.template], 0.0), strict=True):
            self(f"store_FLOAT({part} + slot, splat(float32({start})))")

    def _add_across(self, place: str, number: int, step: Step) -> None:
        """Add numbers to the two float32 beside a total."""
        for q, parts in enumerate(self._in_two(number, step)):
            first, second = self._of_two(f"{place} + {q * _VECTOR}")
            self(f"of_two, small = load_FLOAT({first}), load_FLOAT({second})")
            self._add_in_two("of_two", "small", step, parts)
            self(f"store_FLOAT({first}, of_two)", f"store_FLOAT({second}, small)")

    @contextmanager
    def _multiplied(self, totals: Mapping[str, Step]) -> Iterator[None]:
        """Add each run's sums, beside the totals, to these with what they are multiplied with, in the end."""
        yield
        for place, step in totals.items():
            if step.template == RUN_SUM:
                with self.block(f"for slot in range(0, residues * {self._row_bytes}, {self._row_bytes}):"):
                    for q, factor in enumerate(self.vectors(step.operands[1])):
                        whole, of_run = (f"{place} + slot + {q * _VECTOR + at}" for at in (0, self._totals_bytes))
                        self(f"store_doubles({whole}, load_doubles({whole}) + load_doubles({of_run}) * {factor})")
                        self(f"store_doubles({of_run}, widen(0.0))")

    @contextmanager
    def _flushed(self, totals: Mapping[str, Step]) -> Iterator[None]:
        """Add two float32 to the total beside them, in the end."""
        yield
        with self._residues() if totals else nullcontext():
            for total, step in totals.items():
                first, second = (f"widen(load_FLOAT({part} + slot))" for part in self._of_two(total))
                added = f"(({first} - {BLOCK_SUMS[step.template]}) + {second})"
                self(f"store_doubles({total} + slot, load_doubles({total} + slot) + {added})")
                self._start_in_two(total, step)

    def _tile(self, one: Elements) -> str:
        """Name the tile of an operand's rows."""
        return one.first.replace("place", "tile")

    def _pitch(self, one: Elements) -> int:
        """Return the bytes from an element to the next in a tile."""
        return self.lanes * one.dtype.itemsize

    def _in_tile(self, one: Elements) -> str:
        """Name where a run's first elements are in a tile."""
        return f"{self._tile(one)} + run * walk.run * {self._pitch(one)}"

    def _move_tiles(self, scatters: int, operands: Iterable[Elements]) -> None:
        """Gather operands' rows into their tiles, or scatter them, and prefetch as many more."""
        with self._runs():
            for one in operands:
                place, size = one.first.removeprefix("place"), one.dtype.itemsize
                tile = f"{self._in_tile(one)}, {size}, {self._pitch(one)}"
                rows = f"here[{place}], steps.row, steps.column, width, walk.run, width * steps.row"
                self(f"steps = walk.steps[{place}]")
                self(f"move_tile(walk.movers[{size >> 2}], {scatters}, {tile}, {rows})")

    def _combine_residues(self, totals: str, kind: _Kind) -> None:
        """Combine the accumulators of every lane by halves, as those of a row are: lane by lane the same tree."""
        self(f"half = residues * {self._row_bytes // 2}")
        with self.block(f"while half >= {self._row_bytes}:"):
            with self.block(f"for slot in range(0, half, {_VECTOR}):"):
                pair = f"load_{kind.dtype}({totals} + slot)", f"widen(load_{kind.dtype}({totals} + slot + half))"
                self(f"store_{kind.dtype}({totals} + slot, {kind.combine.format(*pair)})")
            self("half //= 2")


def loop(passes: Passes, types: Types, exact: Passes | None = None, shared: Passes | None = None) -> Loop:
    """Tasks of rows (see ``walk.RowCall``).

    Passes that are ``exact`` are taken where float32 does not suffice. The pass of ``shared`` elements comes before
    the rows of a task.
    """
    return chunked(_RowsSource(passes, types, exact, shared).part())
