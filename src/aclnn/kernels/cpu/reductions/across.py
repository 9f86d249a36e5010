"""Kernels whose lanes run across neighbouring rows: each lane computes one row.

Row-constant variables are lanes. Reductions have sixteen vectors of accumulators in memory, one for each residue of an
element's index modulo sixteen, so that additions have the same order as along a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import ClassVar

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.elementwise.general import SINGLES, Elements
from aclnn.kernels.cpu.reductions.kinds import SUM, Kind
from aclnn.kernels.cpu.reductions.passes import Passes
from aclnn.kernels.cpu.reductions.rewrites import RUN_SUM
from aclnn.kernels.cpu.reductions.rows import VECTOR, Rows, Types
from aclnn.kernels.cpu.reductions.words import BLOCK_SUMS
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.strided import move_tile
from aclnn.kernels.trace import Step

LONGEST_TILED = 56
"""Elements of the longest row that is gathered into a tile, where lanes run across rows that are not contiguous."""


def _accumulators_before(reductions: Sequence[Step]) -> list[int]:
    """Return the number of accumulators before each reduction, which has one to three, and of all of them."""
    counts = dict.fromkeys(BLOCK_SUMS, 3) | {RUN_SUM: 2}
    return [0, *accumulate(counts.get(step.template, 1) for step in reductions)]


class Across(Rows):
    """Kernels with a row in each lane."""

    names: ClassVar = {"move_tile": move_tile}

    def __init__(self, passes: Passes, types: Types, exact: Passes | None, shared: Passes | None) -> None:
        """See ``Rows``."""
        super().__init__(passes, types, exact, shared)
        self._row_bytes = self.lanes * 8
        self._totals_bytes = LANES * self._row_bytes
        """Bytes of one reduction's accumulators, for all residues."""

    def _together(self) -> int:
        return self.lanes

    def _prepare(self) -> None:
        most = max((_accumulators_before(steps)[-1] for steps in self._passes.reductions), default=0)
        self(f"totals = stack_alloc({max(1, most) * self._totals_bytes})")
        self(f"own = stack_alloc({max(1, len(self._rows)) * self._row_bytes})")
        for one in (*self._vectors, *self._written) if self._apart else ():
            self(f"{self._tile(one)} = stack_alloc({LONGEST_TILED * self._pitch(one)})")
        # Accumulators that no element is added to are left out, also from the tree.
        self("residues = 1")
        with self.block(f"while residues < min(walk.run, {LANES}):"):
            self("residues *= 2")

    def _of_row(self, number: str) -> str:
        return f"{self.splat}({number})"

    def _in_lanes(self, name: str) -> str:
        return name

    def _in_all(self, name: str) -> str:
        return name

    def _nearest(self, number: str) -> str:
        return f"widen(narrow({number}))"

    def _where(self, condition: str, chosen: str, otherwise: str) -> str:
        return f"where({condition}, {chosen}, {otherwise})"

    def _between(self, number: int) -> None:
        self.steps(self._passes.between(number))

    def _bring_rows(self) -> None:
        for k, (place, name, dtype) in enumerate(self._rows):
            slot = f"own + {k * self._row_bytes}"
            with self.block("for k in range(width):"):
                element = SINGLES[dtype].format(f"places[{place}] + k * walk.steps[{place}].row")
                self(f"float64_at({slot})[k] = {element}")
            self.load(name, DataType.DOUBLE, slot)
        if self._apart:
            self._move_tiles(0, self._vectors)

    def _vectors_of(self, name: str) -> list[str]:
        return self.vectors(name)

    def _write_rows(self) -> None:
        super()._write_rows()
        if self._apart:
            self._move_tiles(1, self._written)

    def _walk(self, number: int) -> None:
        """Reduce rows' elements and, in the last pass, write results."""
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
                    slot = f"{place} + residue + {q * VECTOR + of_run}"
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
                for part in self._limited(self._term(number, name), SUM.start, "width"):
                    self(f"sum{k} += sum_of({part})")
                self(f"float64_at(place{k})[0] = sum{k}")
        for slot, step in zip(slots, reductions, strict=False):
            kind = self._kind(step)
            self._combine_residues(slot, kind)
            parts = [f"widen(load_{kind.dtype}({slot} + {at * 8}))" for at in range(0, self.lanes, LANES)]
            self(f"{step.result} = " + (f"side_by_side({', '.join(parts)})" if self._wide else parts[0]))

    @contextmanager
    def _residues(self) -> Iterator[None]:
        """Loop over the vectors of accumulators of all residues."""
        with self.block(f"for slot in range(0, residues * {self._row_bytes}, {VECTOR}):"):
            yield

    def _of_two(self, slot: str) -> list[str]:
        """Return the addresses of a total's two float32 accumulators, which lie behind it."""
        return [f"{slot} + {k * self._totals_bytes}" for k in (1, 2)]

    def _start_in_two(self, slot: str, step: Step) -> None:
        for part, start in zip(self._of_two(slot), (BLOCK_SUMS[step.template], 0.0), strict=True):
            self(f"store_FLOAT({part} + slot, splat(float32({start})))")

    def _add_across(self, place: str, number: int, step: Step) -> None:
        """Add a term to a total's two float32 accumulators."""
        for q, parts in enumerate(self._in_two(number, step)):
            first, second = self._of_two(f"{place} + {q * VECTOR}")
            self(f"of_two, small = load_FLOAT({first}), load_FLOAT({second})")
            self._add_in_two("of_two", "small", step, parts)
            self(f"store_FLOAT({first}, of_two)", f"store_FLOAT({second}, small)")

    @contextmanager
    def _multiplied(self, totals: Mapping[str, Step]) -> Iterator[None]:
        """At the end of a run, multiply its sums by the run's factor and add them to the totals."""
        runs = [(place, *step.operands) for place, step in totals.items() if step.template == RUN_SUM]
        factors = {one.value: one for one in self._splats if one.value in {factor for _, _, factor in runs}}
        for name, one in factors.items():
            # Of this pass alone: another pass may load the same element as lanes of another type.
            self(f"{one.first} = here[{one.first.removeprefix('place')}]")
            self(f"of_run_{name} = {self.single(one.dtype, one.first)}")
        yield
        for place, _, name in runs:
            with self.block(f"for slot in range(0, residues * {self._row_bytes}, {self._row_bytes}):"):
                for q, factor in enumerate(self.vectors(f"of_run_{name}" if name in factors else name)):
                    whole, of_run = (f"{place} + slot + {q * VECTOR + at}" for at in (0, self._totals_bytes))
                    self(f"store_doubles({whole}, load_doubles({whole}) + load_doubles({of_run}) * {factor})")
                    self(f"store_doubles({of_run}, widen(0.0))")

    @contextmanager
    def _flushed(self, totals: Mapping[str, Step]) -> Iterator[None]:
        """At the end of a block, flush the float32 accumulators to the totals."""
        yield
        with self._residues() if totals else nullcontext():
            for total, step in totals.items():
                first, second = (f"widen(load_FLOAT({part} + slot))" for part in self._of_two(total))
                added = f"(({first} - {BLOCK_SUMS[step.template]}) + {second})"
                self(f"store_doubles({total} + slot, load_doubles({total} + slot) + {added})")
                self._start_in_two(total, step)

    def _tile(self, one: Elements) -> str:
        """Return the name of an operand's tile."""
        return one.first.replace("place", "tile")

    def _pitch(self, one: Elements) -> int:
        """Return the bytes from one element of a row to the next in a tile."""
        return self.lanes * one.dtype.itemsize

    def _in_tile(self, one: Elements) -> str:
        """Return the source of the address of a run's first elements in a tile."""
        return f"{self._tile(one)} + run * walk.run * {self._pitch(one)}"

    def _move_tiles(self, scatters: int, operands: Iterable[Elements]) -> None:
        """Gather operands' rows into their tiles, or scatter them, and prefetch the rows that follow."""
        with self._runs():
            for one in operands:
                place, size = one.first.removeprefix("place"), one.dtype.itemsize
                tile = f"{self._in_tile(one)}, {size}, {self._pitch(one)}"
                rows = f"here[{place}], steps.row, steps.column, width, walk.run, width * steps.row"
                self(f"steps = walk.steps[{place}]")
                self(f"move_tile(walk.movers[{size >> 2}], {scatters}, {tile}, {rows})")

    def _combine_residues(self, totals: str, kind: Kind) -> None:
        """Combine the accumulators of all residues by halves: the same tree as for lanes along a row."""
        self(f"half = residues * {self._row_bytes // 2}")
        with self.block(f"while half >= {self._row_bytes}:"):
            with self.block(f"for slot in range(0, half, {VECTOR}):"):
                pair = f"load_{kind.dtype}({totals} + slot)", f"widen(load_{kind.dtype}({totals} + slot + half))"
                self(f"store_{kind.dtype}({totals} + slot, {kind.combine.format(*pair)})")
            self("half //= 2")
