"""Kernels over rows: passes over runs of elements, with sums and maxima reduced in float64 lanes in a fixed order.

Lanes run along a row (``along``), or each lane has one of several neighbouring rows (``across``). In both cases element
i of a run is accumulated in partial sum i modulo sixteen, and the sixteen are combined as a binary tree, by halves. So
results are bit for bit the same for every layout, vector width and number of threads.

``Rows`` generates the source of a kernel's loop over tasks and their rows (``part``), and of the passes over each row:
``_row`` runs all passes, in float64 where float32 lanes do not suffice; ``_over`` one pass; ``_terms`` its operations
on a vector of elements. The subclasses have what depends on the direction of lanes.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.elementwise.general import Elements, Source
from aclnn.kernels.cpu.reductions.kinds import KINDS, MAX_OF_FLOAT32, MAX_OF_NUMBERS, Kind
from aclnn.kernels.cpu.reductions.narrowing import Narrowed, narrowed
from aclnn.kernels.cpu.reductions.passes import Passes
from aclnn.kernels.cpu.reductions.rewrites import MOMENTS
from aclnn.kernels.cpu.reductions.walk import RowCall, advance, begin_run, begin_task
from aclnn.kernels.cpu.reductions.words import BLOCK, BLOCK_SUMS, NAMES, RUN_SUMS, SHORT_SUMS
from aclnn.kernels.cpu.simd.vector import LANES, WIDE
from aclnn.kernels.cpu.structs import pointer_to
from aclnn.kernels.trace import REDUCTIONS, Step

VECTOR = LANES * 8
PADDED = WIDE * VECTOR
"""The memory of partial sums is a multiple of this number of bytes."""
_DIGITS = {DataType.FLOAT: 24, DataType.FLOAT16: 11, DataType.BF16: 8}
"""Significant digits of data types."""
_USUAL = 100
"""Row-constant values between 2^-100 and 2^100 neither overflow nor vanish in float32 lanes."""
FAR = 16.0
"""A mean is far from 0 if its square exceeds this number of variances."""
CACHED_ROW = 40 << 10
"""Bytes of a row and its kept variables up to which these stay in the L1 cache."""
KEPT = 1 << 17
"""Maximum number of bytes of a variable that is kept from one pass to the next."""

_NAMES = NAMES | {
    "addresses_at": pointer_to(ctypes.c_void_p),
    "advance": advance,
    "begin_run": begin_run,
    "begin_task": begin_task,
    "call_at": pointer_to(RowCall),
}


Variable = tuple[str, DataType]


class Types(NamedTuple):
    """A kernel's operands, in the order of their addresses, and its options.

    An operand is a variable of the program and its data type.
    """

    vectors: tuple[Variable, ...]
    """Inputs that are loaded as vectors: their elements are contiguous in the direction of lanes."""
    splats: tuple[Variable, ...]
    """Inputs that vary along a row but are the same in all lanes, into which they are broadcast."""
    rows: tuple[Variable, ...]
    """Row-constant inputs, with one element for each row."""
    written: tuple[Variable, ...]
    """Outputs of elements, stored as vectors."""
    row_outputs: tuple[Variable, ...]
    """Outputs with one element for each row."""
    totals: tuple[str, ...]
    """Sums over rows, in float64, to one element of which a run adds the sum of its terms."""
    sums: tuple[str, ...]
    """Sums over rows, in float64, with one element for each of a run, stored as vectors."""
    added: tuple[str, ...]
    """Variables that are accumulated for ``sums``: one for each, or fewer, in the memory of the first sums."""
    combining: tuple[Step, ...]
    """Operations that compute ``sums`` from fewer accumulated variables, after the last row of a task."""
    numbers: tuple[str, ...]
    wide: bool
    """True if several vectors are computed at a time, as one wide vector."""
    apart: bool
    """True if lanes may be apart in memory; rows then have no more than ``across.LONGEST_TILED`` elements."""
    shared: tuple[str, ...]
    """Variables of elements that all rows of a task have in common, computed once and kept for the task."""
    shared_dtype: DataType
    keeps: bool
    """True if a kept variable of the rows computed at a time takes no more than ``KEPT`` bytes."""
    in_float32: bool
    """True if elements are float32 lanes."""
    narrows: bool
    """True if elements are float32 lanes where that suffices, and float64 lanes elsewhere."""


def _narrowed(passes: Passes, types: Types) -> list[Narrowed | None] | None:
    """Return each pass's operations in float32 lanes, None for a pass that remains in float64.

    Passes before the last that compute statistics remain in float64. Return None in place of the list if all must.
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


class Rows(Source, ABC):
    """The source of a kernel, except for what depends on the direction of lanes."""

    names: ClassVar[Mapping[str, Any]] = {}
    """Names that the source uses in addition to those of every kernel."""

    def __init__(self, passes: Passes, types: Types, exact: Passes | None, shared: Passes | None) -> None:
        """Prepare.

        Args:
            passes: the passes over a row.
            types: the operands and options.
            exact: the passes for rows for which float32 does not suffice, if they differ.
            shared: the passes, before a task's rows, that compute ``Types.shared``.
        """
        super().__init__(types.wide, double=not types.in_float32)
        narrow = _narrowed(passes, types)
        if not (narrow or types.in_float32):
            passes, exact = exact or passes, None
        self._passes, self._exact, self._shared = passes, exact, shared
        self._in_float32, self._numbers = types.in_float32, types.numbers
        self._narrowed: list[Narrowed | None] = narrow or [None] * passes.count
        self._shared_dtypes = dict.fromkeys(types.shared, types.shared_dtype)
        self._kept_dtypes = self._dtypes_of_kept(types)
        self._apart = types.apart
        number = count()
        self._vectors = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.vectors]
        self._splats = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.splats]
        self._rows = [(next(number), name, dtype) for name, dtype in types.rows]
        self._written = [Elements(name, dtype, f"place{next(number)}") for name, dtype in types.written]
        self._row_outputs = [(next(number), name, dtype) for name, dtype in types.row_outputs]
        self._totals = [(next(number), name) for name in types.totals]
        self._of_columns = [(next(number), name) for name in types.sums]
        self._combining, self._operands = types.combining, next(number)
        self._sums = [(k, name) for (k, _), name in zip(self._of_columns, types.added, strict=False)]
        self._room = self.room((*(one.dtype for one in (*self._vectors, *self._written)), DataType.DOUBLE))

    def _combine(self) -> None:
        """Compute a task's sums from the accumulated variables, which are in the memory of the first sums."""
        self._double = True
        used = {name for step in self._combining for name in step.operands}
        added, sums = (
            [Elements(name, DataType.DOUBLE, f"place{k}") for k, name in of] for of in (self._sums, self._of_columns)
        )
        others = sums[len(added) :]
        before = [one._replace(value=f"before_{one.value}") for one in others]
        written = sums[: len(added)] + [one._replace(value=f"before_{one.value} + {one.value}") for one in others]
        vectors = [one for one in self._vectors if one.value in used]
        with self._runs():
            self("end = walk.run")
            self(*(f"{one.first} = here[{one.first.removeprefix('place')}]" for one in (*vectors, *sums)))
            self(*(f"all_{name} = {self.splat}({name})" for name in self._numbers if name in used))
            with self.stretch([*vectors, *added, *before], written, 0):
                self.steps(self._combining, lambda name: f"all_{name}" if name in self._numbers else name)

    def _dtypes_of_kept(self, types: Types) -> dict[str, DataType]:
        """Return the data types of kept variables: float32 for those in float32 lanes, else float64."""
        found = dict[str, DataType]()
        for number, names in enumerate(self._passes.kept):
            single = {*names} - self._doubles(number) if types.in_float32 or self._narrowed[number] else ()
            found |= {name: DataType.FLOAT if name in single else DataType.DOUBLE for name in names}
        return found | self._shared_dtypes

    def part(self) -> Any:
        """Make the function that computes a chunk of tasks."""
        operands, together = self._operands, self._together()
        kept = self._passes.given(self._passes.count)
        sums = 4 * len(self._of_columns)
        buffers = max(1, len(self._vectors) + len(self._written) + sums + len(kept))
        with self.block("def part(at, first, last):"):
            self(
                "call = call_at(at)",
                "walk = call.walk",
                f"places, here = addresses_at(stack_alloc({8 * operands})), addresses_at(stack_alloc({8 * operands}))",
            )
            self.buffer(self._room * buffers)
            for name in kept:
                self(f"kept_{name} = stack_alloc({(CACHED_ROW if name in self._passes.given(0) else KEPT) + PADDED})")
            self._prepare()
            for k, name in enumerate(self._numbers):
                self(f"{name} = {self._of_row(f'float64_at(walk.numbers)[{k}]')}")
            with self.block("for task in range(first, last):"):
                self(f"rows = begin_task(call, {operands}, task, places)")
                for k, _ in (*self._totals, *self._of_columns):
                    self(f"cleared = 0 if task % walk.steps[{k}].together else walk.steps[{k}].task")
                    with self.block(f"for at_sum in range(0, cleared, {VECTOR}):"):
                        self(f"store_doubles(places[{k}] + at_sum, widen(0.0))")
                if self._shared is not None:
                    self._pass_before(self._shared)
                with self.block(f"for row in range(0, rows, {together}):"):
                    self(f"width = min({together}, rows - row)")
                    self._bring_rows()
                    self._row()
                    self._between(self._passes.count)
                    self._write_rows()
                    self(f"advance(places, {operands}, walk.steps, {together})")
                if self._combining:
                    self._combine()
            with self.block("if walk.policy:"):
                self("finish_streams()")
        return self.function("part", **_NAMES, **self.names)

    @abstractmethod
    def _together(self) -> int:
        """Return the number of rows computed at a time."""

    @abstractmethod
    def _prepare(self) -> None:
        """Allocate and set up what a chunk's tasks have in common."""

    @abstractmethod
    def _of_row(self, number: str) -> str:
        """Return the source of a number as a row-constant value: a number along rows, lanes across them."""

    @abstractmethod
    def _in_lanes(self, name: str) -> str:
        """Return the source of a row-constant variable in lanes."""

    @abstractmethod
    def _nearest(self, number: str) -> str:
        """Return the source of the float32 nearest to a row-constant value, as such a value."""

    @abstractmethod
    def _where(self, condition: str, chosen: str, otherwise: str) -> str:
        """Return the source that selects one of two row-constant values, where the condition holds for any lane."""

    def _term(self, number: int, name: str) -> str:
        """Return a variable's name in a pass: row-constant ones are broadcast, others are computed for each pass."""
        if name in self._passes.states[number]:
            return self._in_all(name)
        return f"{name}_{number}" if name.startswith("t") else name

    @abstractmethod
    def _in_all(self, name: str) -> str:
        """Return the name of a row-constant variable, broadcast to all lanes of elements."""

    @abstractmethod
    def _between(self, number: int) -> None:
        """Write the operations on a row's state before a pass, or after the last."""

    @abstractmethod
    def _bring_rows(self) -> None:
        """Load the row-constant inputs."""

    def _write_rows(self) -> None:
        """Store the outputs of rows."""
        for place, name, dtype in self._row_outputs:
            for k, part in enumerate(self._vectors_of(name)):
                self(f"store_{dtype.name}(buffer + {k * LANES * dtype.itemsize}, rounded_{dtype.name}({part}))")
            with self.block("for k in range(width):"):
                size = dtype.itemsize
                self(f"copy(places[{place}] + k * walk.steps[{place}].row, buffer + k * {size}, {size})")

    @abstractmethod
    def _vectors_of(self, name: str) -> list[str]:
        """Return the source of each vector of a row-constant variable."""

    @abstractmethod
    def _walk(self, number: int) -> None:
        """Reduce a row's elements and, in the last pass, write results."""

    def _row(self) -> None:
        """Run all passes over the rows computed at a time; in float64 where float32 lanes do not suffice."""
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
        """Return conditions that hold for rows whose values are out of range for float32 lanes."""
        sums = [step.result for steps in self._passes.reductions for step in steps if step.template in SHORT_SUMS]
        if self._in_float32:
            return [f"~(absolute({self._in_lanes(name)}) < inf)" for name in sums]
        numbers = [name for narrow in self._narrowed if narrow for name in narrow.rows]
        found = list[str]()
        for name in dict.fromkeys((*sums, *numbers)):
            size = f"absolute({self._in_lanes(name)})"
            none = "" if name in sums else f" | ({size} == 0.0)"  # a float32 sum of 0 may have lost tiny terms
            found.append(f"~(({size} <= {2.0**_USUAL}) & (({size} >= {2.0**-_USUAL}){none}))")
        return found

    def _pass(self, number: int) -> None:
        """Update a row's state, and pass over its elements."""
        self._between(number)
        self._over(number)

    def _over(self, number: int) -> None:
        """Pass over a row's elements."""
        if self._passes.reductions[number] or (self._passes.results and number == self._passes.count - 1):
            self._walk(number)
        for at in range(0, len(self._passes.moments[number]), len(MOMENTS)):
            self._measure(number, self._passes.moments[number][at : at + len(MOMENTS)])

    def _measure(self, number: int, moments: Sequence[Step]) -> None:
        """Set a row's moments from its sums or, if the mean is far from 0, by another pass relative to that."""
        (mean, _, squares), (_, total, first, about) = (step.result for step in moments), moments[0].operands
        rest, origin, known = moments[1].result, f"{mean}_origin", [*map(self._in_lanes, (first, about, total))]
        self(f"{mean}, {rest}, {squares} = {first}, {self._of_row('0.0')}, {about}")
        self(f"far = (absolute({known[0]}) < inf) & ~({known[1]} * {FAR} >= {known[2]} * {first})")
        with self.block("if any_lane(far):"):
            self(f"{origin} = {self._nearest(first)}")
            self._pass_before(self._passes.measured(number, moments, origin))
            self(f"moved = {origin} + {mean}_moved")
            found = {mean: "moved", rest: f"({origin} - moved) + {mean}_moved", squares: f"{squares}_moved"}
            self(*(f"{name} = {self._where('far', new, name)}" for name, new in found.items()))

    def _pass_before(self, passes: Passes) -> None:
        """Run preliminary passes, which write no results."""
        here = self._passes, self._written, self._totals, self._sums, self._narrowed
        self._passes, self._written, self._totals, self._sums = passes, [], [], []
        self._narrowed = [None] * passes.count
        for number in range(passes.count):
            self._pass(number)
        self._between(passes.count)
        self._passes, self._written, self._totals, self._sums, self._narrowed = here

    @contextmanager
    def _blocks(self, cut: bool) -> Iterator[None]:
        """Loop over a run's blocks of up to ``BLOCK`` elements, ``end`` of them from ``begin`` on, if it is cut."""
        if not cut:
            self("end = walk.run")
            yield
            return
        with self.block(f"for begin in range(0, walk.run, {BLOCK}):"):
            self(f"end = min(walk.run - begin, {BLOCK})")
            yield

    @contextmanager
    def _runs(self) -> Iterator[None]:
        """Loop over a row's runs, ``here`` being the operands' addresses."""
        with self.block("for run in range(walk.runs):"):
            axis = f"walk.axes + walk.outer * {1 + self._operands}"
            self(f"begin_run(places, here, {self._operands}, {axis}, walk.columns, run)")
            yield

    def _results(self, number: int) -> tuple[list[Elements], list[tuple[int, str]], list[tuple[int, str]]]:
        """Return the outputs that a pass writes, and the totals and sums that it adds to."""
        totals = [(k, name) for k, name in self._totals if name in self._passes.totals[number]]
        if number < self._passes.count - 1:
            return [], totals, []
        written = []
        for one in self._written:
            value, double = self._term(number, one.value), one.value in self._doubles(number)
            written.append(one._replace(value=f"rounded_{one.dtype.name}({value})" if double else value))
        return written, totals, self._sums

    def _doubles(self, number: int) -> frozenset[str]:
        """Return the variables that remain float64 lanes in a pass in float32 lanes."""
        narrow = self._narrowed[number]
        return narrow.doubles if narrow else frozenset()

    def _terms(self, number: int) -> None:
        """Write a pass's operations on elements; results that are not finite in float32 are recomputed in float64."""

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

    def _split_rows(self, number: int) -> None:
        """Split the row-constant variables that a pass in float32 lanes needs into two float32."""
        narrow = self._narrowed[number]
        self._double = not (self._in_float32 or narrow)
        for name in narrow.rows if narrow else ():
            value = self._term(number, name)
            self(f"high_{name} = narrow({value})", f"low_{name} = narrow({value} - widen(high_{name}))")

    def _reduced(self, number: int, step: Step) -> list[str]:
        """Return the names of a reduction's term, or of its factors."""
        names = step.operands[:1] if step.template in RUN_SUMS else step.operands
        return [self._term(number, name) for name in names]

    def _in_two(self, number: int, step: Step) -> Iterator[tuple[str, ...]]:
        """Return the source of each vector of a reduction's operands: a term, perhaps followed by its two parts."""
        terms = zip(step.operands, self._reduced(number, step), strict=False)
        values = (f"narrow({term})" if name in self._doubles(number) else term for name, term in terms)
        yield from zip(*map(self.vectors, values), strict=True)

    def _add_in_two(self, total: str, small: str, step: Step, parts: tuple[str, ...], limited: str = "{}") -> None:
        """Add a term, perhaps of two parts, to the accumulator ``total``, and the rounding errors to ``small``."""
        if step.template in SHORT_SUMS:
            first, *second = map(limited.format, parts)
            self(f"{total} = " + (f"fma({first}, {second[0]}, {total})" if second else f"{total} + {first}"))
            return
        value, *of_two = parts
        self(f"before = {total}", f"{total} = before + {limited.format(value)}", f"added = {total} - before")
        lost = f"({of_two[0]} - added) + {of_two[1]}" if of_two else f"{value} - added"
        if of_two and not BLOCK_SUMS[step.template]:  # the total may be smaller than the term
            lost = f"({lost}) + (before - ({total} - added))"
        self(f"{small} = {small} + {limited.format(f'({lost})')}")

    def _kind(self, step: Step) -> Kind:
        """Return a step's reduction; the maximum of inputs of 32 bits or less is taken in float32."""
        kind = KINDS[step.template]
        narrow = any(one.value == step.operands[0] and one.dtype != DataType.DOUBLE for one in self._vectors)
        if not narrow or step.template != REDUCTIONS["row_max"]:
            return kind
        return MAX_OF_FLOAT32 if self._double else MAX_OF_NUMBERS

    def _places(self, number: int, column: str | None) -> None:
        """Set the addresses of a pass's operands at a run's first element, or at a column of the run."""
        written, totals, sums = self._results(number)
        elements = (*self._needed(number, self._vectors), *self._needed(number, self._splats), *written)
        for k in sorted({int(one.first.removeprefix("place")) for one in elements} | {k for k, _ in (*totals, *sums)}):
            self(f"place{k} = here[{k}]" + (f" + {column} * walk.steps[{k}].column" if column else ""))

    def _load_splats(self, number: int) -> None:
        """Load the inputs that are the same in all lanes."""
        self(*(f"{one.value} = {self.single(one.dtype, one.first)}" for one in self._needed(number, self._splats)))

    def _needed(self, number: int, operands: Iterable[Elements]) -> list[Elements]:
        """Return the operands that a pass reads."""
        used = {name for step in self._passes.terms(number) for name in step.operands}
        used |= {name for step in self._passes.reductions[number] for name in step.operands}
        if number == self._passes.count - 1:
            used |= {*self._passes.results}
        return [one for one in operands if one.value in used and one.value not in self._passes.given(number)]

    def _kept(self, number: int, names: Iterable[str]) -> list[Elements]:
        """Return kept variables as operands of a pass, from a run's first element on."""
        first = self._first_kept(any(step.template in BLOCK_SUMS for step in self._passes.reductions[number]))
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
        """Return the bytes from one kept element to the next."""
        return self._together() * dtype.itemsize

    def _first_kept(self, cut: bool) -> str:
        """Return the source of the index of a run's, or a block's, first kept element."""
        return "run * walk.run"

    def _limited(self, value: str, start: str | None, limit: str = "limit") -> list[str]:
        """Return the source of each vector of a value, its lanes from the limit on set to ``start``, if given."""
        vectors = self.vectors(f"{self.splat}({value})")
        if start is None:
            return vectors
        return [f"select(first_lanes({limit} - {LANES * q}), {part}, {start})" for q, part in enumerate(vectors)]
