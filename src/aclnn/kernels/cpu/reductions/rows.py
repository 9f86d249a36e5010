"""Kernels over rows: passes over runs of elements, with sums and maxima in float64 lanes of a fixed order.

Lanes run along a row, or across rows that lie beside one another. Either way an element's term goes to the partial sum
of its number in its run modulo sixteen, and the sixteen are added by halves: every layout, vector width and number of
threads gives the same bits.
"""

from __future__ import annotations

import ctypes
import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.elementwise.general import (
    LINE,
    ROUNDED_FORMATS,
    ROUNDINGS,
    copier,
    first_of,
    loading,
    reader,
    rooms,
    writer,
)
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.reductions.passes import Passes
from aclnn.kernels.cpu.simd.doubles import (
    larger,
    largest_of,
    load_doubles,
    store_doubles,
    sum_of,
    widen,
    widen_wide,
)
from aclnn.kernels.cpu.simd.memory import copy, first_lanes, load_each_bfloat16, load_each_float16
from aclnn.kernels.cpu.simd.vector import LANES, QUARTERS, WIDE, lane, select
from aclnn.kernels.cpu.structs import (
    Address,
    Int64,
    To,
    address,
    declared,
    load_one_float32,
    load_one_float64,
    pointer_to,
    stack_alloc,
    store_one_float64,
)
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.trace import REDUCTIONS

_DOUBLE = 8
_VECTOR = LANES * _DOUBLE
PADDED = WIDE * _VECTOR
"""Bytes of which a partial sum's room is a multiple."""


@declared
class RowSteps(ctypes.Structure):
    """Bytes of an operand from one row to the next, from one element of a run to the next, and for each task."""

    row: Int64
    column: Int64
    task: Int64


@declared
class RowWalk(ctypes.Structure):
    """The rows of a plan. A task is a number of rows beside one another."""

    numbers: Address
    """Of float64: the formula's, and how many elements a row has."""
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
    """Of each of these the extent and every operand's step in bytes; the last comes first, rows' before runs'."""
    steps: Annotated[int, ctypes.c_int64, To(RowSteps)]
    """Of each operand."""


@declared
class RowCall(ctypes.Structure):
    """Arguments of a kernel over rows."""

    walk: Annotated[int, ctypes.c_int64, To(RowWalk)]
    addresses: Annotated[Any, ctypes.c_void_p * 1]
    """One for each operand, in the order of ``Operands``."""


_call_at, _addresses_at = pointer_to(RowCall), pointer_to(ctypes.c_void_p)


class Types(NamedTuple):
    """The operands of a kernel by data type, in the order of their addresses."""

    vectors: tuple[DataType, ...]
    """Inputs whose elements are side by side as lanes are."""
    splats: tuple[DataType, ...]
    """Inputs that are the same in all lanes, and differ along a row."""
    rows: tuple[DataType, ...]
    """Inputs of one element for each row."""
    written: tuple[DataType, ...]
    """Outputs of elements, side by side."""
    row_outputs: tuple[tuple[str, DataType], ...]
    """Outputs of rows, with the variables that they take."""
    totals: int
    """Sums over rows, in float64, of which a run adds to one element."""
    sums: int
    """Those of which it adds to one for each of its elements, side by side."""
    numbers: int
    across: bool
    """Lanes run across rows, not along them."""
    wide: bool
    """A wide vector is computed at a time."""


def _single(dtype: DataType) -> Any:
    """A function of an address giving the element there as a float64."""
    if dtype in (DataType.FLOAT, DataType.DOUBLE):
        load = load_one_float32 if dtype == DataType.FLOAT else load_one_float64
        return register_jitable(lambda address: np.float64(load(address)))
    load_each = load_each_float16 if dtype == DataType.FLOAT16 else load_each_bfloat16
    return register_jitable(lambda address: np.float64(lane(load_each(address), 0)))


def _singles(dtypes: tuple[DataType, ...], in_lanes: Any) -> Any:
    """A function giving the element at each address in every lane."""
    if not dtypes:
        return register_jitable(lambda addresses: ())
    load, others = _single(dtypes[0]), _singles(dtypes[1:], in_lanes)
    return register_jitable(lambda addresses: (in_lanes(load(addresses[0])), *others(addresses[1:])))


def _each(count: int, distance: int, load: Any) -> Any:
    """A function giving what ``load`` finds at ``count`` addresses, a distance apart."""
    if count == 0:
        return register_jitable(lambda address: ())
    others = _each(count - 1, distance, load)
    return register_jitable(lambda address: (load(address), *others(address + distance)))


def _store_each(count: int, distance: int, store: Any) -> Any:
    """A function that stores ``count`` values at addresses that are a distance apart."""
    if count == 0:
        return register_jitable(lambda address, values: None)
    others = _store_each(count - 1, distance, store)

    @register_jitable
    def store_each(address: Any, values: Any) -> None:
        store(address, values[0])
        others(address + distance, values[1:])

    return store_each


def _moved(count: int) -> Any:
    """A function giving ``count`` places, each moved by so many elements of a run."""
    if count == 0:
        return register_jitable(lambda places, steps, j: ())
    others = _moved(count - 1)
    return register_jitable(
        lambda places, steps, j: (places[0] + j * steps[0].column, *others(places + 1, steps + 1, j))
    )


def _quarters(act: Any, wide: bool) -> Any:
    """A function of an accumulator, lanes and a number of them: ``act`` for each sixteen, one after the other."""
    if not wide:
        return act
    first, second, third, fourth = QUARTERS

    @register_jitable
    def each_quarter(total: Any, value: Any, count: int) -> Any:
        total = act(total, first(value), count)
        total = act(total, second(value), count - LANES)
        total = act(total, third(value), count - 2 * LANES)
        return act(total, fourth(value), count - 3 * LANES)

    return each_quarter


class _Kind(NamedTuple):
    """A way to reduce."""

    start: float
    combine: Any
    """Of sixteen lanes."""
    of_lanes: Any


_KINDS = {
    REDUCTIONS["row_sum"]: _Kind(0.0, register_jitable(lambda total, value: total + value), sum_of),
    REDUCTIONS["row_max"]: _Kind(-math.inf, larger, largest_of),
}
_SUM = _KINDS[REDUCTIONS["row_sum"]]


def _accumulate(kinds: tuple[_Kind, ...], wide: bool) -> Any:
    """A function of accumulators of sixteen lanes and values, the first ``count`` of whose lanes it adds to them."""
    if not kinds:
        return register_jitable(lambda totals, values, count: ())
    start, combine = kinds[0].start, kinds[0].combine
    in_lanes, others = widen_wide if wide else widen, _accumulate(kinds[1:], wide)

    @register_jitable
    def sixteen(total: Any, value: Any, count: int) -> Any:
        return combine(total, select(first_lanes(count), value, start))

    every = _quarters(sixteen, wide)
    return register_jitable(
        lambda totals, values, count: (
            every(totals[0], in_lanes(values[0]), count),
            *others(totals[1:], values[1:], count),
        )
    )


def _add_side_by_side(sums: int, wide: bool) -> Any:
    """A function that adds lanes to float64 from each of ``sums`` addresses on."""
    if sums == 0:
        return register_jitable(lambda addresses, values, count: None)
    in_lanes, others = widen_wide if wide else widen, _add_side_by_side(sums - 1, wide)

    @register_jitable
    def sixteen(place: Any, value: Any, count: int) -> Any:
        store_doubles(place, load_doubles(place) + select(first_lanes(count), value, 0.0))
        return place + _VECTOR

    every = _quarters(sixteen, wide)

    @register_jitable
    def add(addresses: Any, values: Any, count: int) -> None:
        every(addresses[0], in_lanes(values[0]), count)
        others(addresses[1:], values[1:], count)

    return add


def _add_each(sums: int, wide: bool) -> Any:
    """A function that adds the sum of each sixteen lanes to the float64 at each of ``sums`` addresses."""
    if sums == 0:
        return register_jitable(lambda addresses, values, count: None)
    in_lanes, others = widen_wide if wide else widen, _add_each(sums - 1, wide)

    @register_jitable
    def sixteen(total: float, value: Any, count: int) -> Any:
        return total + sum_of(select(first_lanes(count), value, 0.0))

    every = _quarters(sixteen, wide)

    @register_jitable
    def add(addresses: Any, values: Any, count: int) -> None:
        store_one_float64(addresses[0], every(load_one_float64(addresses[0]), in_lanes(values[0]), count))
        others(addresses[1:], values[1:], count)

    return add


def _all_aligned(count: int) -> Any:
    """A function that tells whether addresses lie alike within lines."""
    if count < 2:
        return register_jitable(lambda addresses: True)
    others = _all_aligned(count - 1)
    return register_jitable(
        lambda addresses: (address(addresses[0]) - address(addresses[1])) & (LINE - 1) == 0 and others(addresses[1:])
    )


class _Maker:
    """Parts of which a kernel's passes are made."""

    def __init__(self, passes: Passes, types: Types) -> None:
        self.passes, self.types, self.wide = passes, types, types.wide
        self.lanes = WIDE * LANES if types.wide else LANES
        self.state_bytes = (self.lanes if types.across else LANES) * _DOUBLE
        """Of a variable of rows: a value for each lane, or sixteen."""
        self.most = max((len(steps) for steps in passes.reductions), default=0)
        self.residues = LANES if types.across else 1
        """Accumulators of a reduction, of ``state_bytes``."""
        self.totals_bytes = self.residues * self.state_bytes
        self.room = max(LINE, *(self.lanes * d.itemsize for d in (*types.vectors, *types.written, DataType.DOUBLE)))
        self.first_splat = len(types.vectors)
        self.first_row = self.first_splat + len(types.splats)
        self.first_written = self.first_row + len(types.rows)
        self.first_row_output = self.first_written + len(types.written)
        self.first_total = self.first_row_output + len(types.row_outputs)
        self.first_sum = self.first_total + types.totals
        self.operands = self.first_sum + types.sums

    def between(self, number: int) -> Any:
        """Make the function that computes, before a pass, what follows from rows' state."""
        given, computed = self.passes.stages[number]
        if not computed:
            return register_jitable(lambda state: None)
        function, distance = self.passes.between(number), self.state_bytes
        read, put = _each(len(given), distance, load_doubles), _store_each(len(computed), distance, _store_widened)
        new = len(given) * distance

        @register_jitable
        def between(state: Any) -> None:
            for at in range(0, distance, _VECTOR):
                put(state + (new + at), function(*read(state + at)))

        return between

    def kinds(self, number: int) -> tuple[_Kind, ...]:
        """The ways in which a pass reduces."""
        return tuple(_KINDS[step.template] for step in self.passes.reductions[number])

    def along(self, number: int) -> Any:
        """A pass over a run, lanes along it."""
        types, wide, lanes, last = self.types, self.wide, self.lanes, number == self.passes.count - 1
        function, kinds, in_lanes = self.passes.terms(number), self.kinds(number), widen_wide if wide else widen
        written = types.written if last else ()
        take, put = reader(types.vectors, wide), writer(written, wide)
        bring, take_back = copier(types.vectors, False, wide), copier(written, True, wide)
        read_splats, first_splat = _singles(types.splats, in_lanes), self.first_splat
        first_vectors, first_splats = first_of(len(types.vectors)), first_of(len(types.splats))
        first_written, first_output, outputs = first_of(len(written)), self.first_written, len(written)
        load_state = register_jitable(lambda address: in_lanes(load_one_float64(address)))
        read_state = _each(len(self.passes.states[number]), _VECTOR, load_state)
        reductions, totals = len(kinds), types.totals if last else 0
        load_totals, store_totals = (
            _each(reductions, _VECTOR, load_doubles),
            _store_each(reductions, _VECTOR, store_doubles),
        )
        accumulate = _accumulate(kinds, wide)
        no_totals = (0.0,) * totals
        add_totals, first_totals, first_total = _accumulate((_SUM,) * totals, wide), first_of(totals), self.first_total
        finish_totals = _finish_totals(totals)
        sums = types.sums if last else 0
        add_sums, first_sums, first_sum = _add_side_by_side(sums, wide), first_of(sums), self.first_sum
        sum_places = _advanced(sums)
        read_rooms, written_rooms = rooms(len(types.vectors), self.room), rooms(len(written), self.room)
        input_bytes = len(types.vectors) * self.room
        size = written[0].itemsize if written else 1
        alike = len({dtype.itemsize for dtype in written}) == 1 and DataType.DOUBLE not in written
        streams = int(alike and not (reductions or totals or sums))
        after_outputs, after_totals = reductions + outputs, reductions + outputs + totals
        aligned, widened = _all_aligned(len(written)), _widened(totals)

        @register_jitable
        def run(places: Any, walk: Any, state: Any, totals_at: Any, buffer: Any, width: int) -> None:
            end, policy, head = walk.run, 0, 0
            read, to = first_vectors(places), first_written(places + first_output)
            if streams and aligned(to) and address(places[first_output]) & (size - 1) == 0:
                policy = walk.policy
            given = read_splats(first_splats(places + first_splat)) + read_state(state)
            lines, back = read_rooms(buffer), written_rooms(buffer + input_bytes)
            found, own = load_totals(totals_at), widened(no_totals)
            side_by_side = first_sums(places + first_sum)
            at = 0
            while at < end:
                if policy:
                    head = (-address(places[first_output] + at * size) & (LINE - 1)) // size
                whole = head == 0 and end - at >= lanes
                if whole:
                    count, begin, limit, nontemporal, source, target = (end - at) & -lanes, at, lanes, policy, read, to
                else:
                    count = min(end - at, lanes - 1, head) if head else end - at
                    bring(read, at, count, lines)
                    begin, limit, nontemporal, source, target = 0, count, 0, lines, back
                for i in range(begin, begin + count, lanes):
                    values = function(*(take(source, i) + given))
                    found = accumulate(found, values, limit)
                    put(target, i, nontemporal, values[reductions:])
                    own = add_totals(own, values[after_outputs:], limit)
                    add_sums(sum_places(side_by_side, at + i - begin), values[after_totals:], limit)
                if not whole:
                    take_back(to, at, count, back)
                at += count
            store_totals(totals_at, found)
            finish_totals(first_totals(places + first_total), own)

        return run

    def across(self, number: int) -> Any:
        """A pass over a run, lanes across rows."""
        types, wide, lanes, last = self.types, self.wide, self.lanes, number == self.passes.count - 1
        function, kinds, in_lanes = self.passes.terms(number), self.kinds(number), widen_wide if wide else widen
        written = types.written if last else ()
        take, put = reader(types.vectors, wide), writer(written, wide)
        bring, take_back = copier(types.vectors, False, wide), copier(written, True, wide)
        read_splats, splat_places, first_splat = (
            _singles(types.splats, in_lanes),
            _moved(len(types.splats)),
            self.first_splat,
        )
        vector_places, written_places, first_output = (
            _moved(len(types.vectors)),
            _moved(len(written)),
            self.first_written,
        )
        outputs, distance = len(written), self.state_bytes
        load_lanes = loading(DataType.DOUBLE, wide)
        read_state = _each(len(self.passes.states[number]), distance, load_lanes)
        sums = types.totals + types.sums if last else 0
        add_sums, sum_places, first_sum = _add_each(sums, wide), _moved(sums), self.first_total
        reductions, after_outputs = len(kinds), len(kinds) + outputs
        update = _update(kinds, wide, self.totals_bytes)
        read_rooms, written_rooms = rooms(len(types.vectors), self.room), rooms(len(written), self.room)
        input_bytes = len(types.vectors) * self.room

        @register_jitable
        def run(places: Any, walk: Any, state: Any, totals_at: Any, buffer: Any, width: int) -> None:
            given, steps = read_state(state), walk.steps
            lines, back = read_rooms(buffer), written_rooms(buffer + input_bytes)
            for j in range(walk.run):
                source, to = (
                    vector_places(places, steps, j),
                    written_places(places + first_output, steps + first_output, j),
                )
                target = to
                if width < lanes:
                    bring(source, 0, width, lines)
                    source, target = lines, back
                splats = read_splats(splat_places(places + first_splat, steps + first_splat, j))
                values = function(*(take(source, 0) + splats + given))
                update(totals_at + (j & (LANES - 1)) * distance, values)
                put(target, 0, 0, values[reductions:])
                if width < lanes:
                    take_back(to, 0, width, back)
                add_sums(sum_places(places + first_sum, steps + first_sum, j), values[after_outputs:], width)

        return run

    def a_pass(self, number: int) -> Any:
        """A pass over a row, or over rows beside one another: its runs, its results in the rows' state."""
        operands, across = self.operands, self.types.across
        run = self.across(number) if across else self.along(number)
        known = len(self.passes.stages[number][0]) + len(self.passes.stages[number][1])
        kinds, totals_bytes, size = self.kinds(number), self.totals_bytes, self.state_bytes
        begin = _begin(kinds, totals_bytes)
        finish = (_finish_across if across else _finish_along)(kinds, totals_bytes, size)
        new = known * size

        @register_jitable
        def over_runs(walk: Any, places: Any, here: Any, state: Any, totals: Any, buffer: Any, width: int) -> None:
            begin(totals)
            if walk.columns == 0:
                run(places, walk, state, totals, buffer, width)
            else:
                for number in range(walk.runs):
                    axis, position = walk.axes + walk.outer * (1 + operands), number
                    for k in range(operands):
                        here[k] = places[k]
                    for _ in range(walk.columns):
                        extent = axis[0]
                        index, position = position % extent, position // extent
                        for k in range(operands):
                            here[k] = here[k] + index * axis[1 + k]
                        axis = axis + (1 + operands)
                    run(here, walk, state, totals, buffer, width)
            finish(totals, state + new)

        return over_runs

    def rows(self, number: int = 0) -> Any:
        """All passes from a number on, with what comes before each and after the last."""
        between = self.between(number)
        if number == self.passes.count:
            return register_jitable(lambda walk, places, here, state, totals, buffer, width: between(state))
        one, others = self.a_pass(number), self.rows(number + 1)

        @register_jitable
        def passes(walk: Any, places: Any, here: Any, state: Any, totals: Any, buffer: Any, width: int) -> None:
            between(state)
            one(walk, places, here, state, totals, buffer, width)
            others(walk, places, here, state, totals, buffer, width)

        return passes

    def bring_rows(self, place: int = 0) -> Any:
        """Make the function that reads rows' inputs into their state."""
        if place == len(self.types.rows):
            return register_jitable(lambda walk, places, state, width: None)
        load, others = _single(self.types.rows[place]), self.bring_rows(place + 1)
        operand, slot = self.first_row + place, (self.types.numbers + 1 + place) * self.state_bytes

        @register_jitable
        def bring(walk: Any, places: Any, state: Any, width: int) -> None:
            step = walk.steps[operand].row
            for row in range(width):
                store_one_float64(state + (slot + _DOUBLE * row), load(places[operand] + row * step))
            others(walk, places, state, width)

        return bring

    def write_rows(self, place: int = 0) -> Any:
        """Make the function that writes rows' outputs."""
        if place == len(self.types.row_outputs):
            return register_jitable(lambda walk, places, state, buffer, width: None)
        (name, dtype), others = self.types.row_outputs[place], self.write_rows(place + 1)
        operand, size = self.first_row_output + place, dtype.itemsize
        slot = self.passes.states[-1].index(name) * self.state_bytes
        store, rounded = ROUNDED_FORMATS[dtype].store, ROUNDINGS[dtype]

        @register_jitable
        def write(walk: Any, places: Any, state: Any, buffer: Any, width: int) -> None:
            step = walk.steps[operand].row
            for row in range(width):
                if row & (LANES - 1) == 0:
                    store(buffer, rounded(load_doubles(state + (slot + _DOUBLE * row))))
                copy(places[operand] + row * step, buffer + (row & (LANES - 1)) * size, size)
            others(walk, places, state, buffer, width)

        return write


@register_jitable
def _store_widened(address: Any, value: Any) -> None:
    store_doubles(address, widen(value))


def _advanced(count: int) -> Any:
    """A function giving ``count`` addresses so many float64 further."""
    if count == 0:
        return register_jitable(lambda addresses, at: ())
    others = _advanced(count - 1)
    return register_jitable(lambda addresses, at: (addresses[0] + _DOUBLE * at, *others(addresses[1:], at)))


def _widened(count: int) -> Any:
    """A function of ``count`` numbers giving them in sixteen lanes."""
    if count == 0:
        return register_jitable(lambda numbers: ())
    others = _widened(count - 1)
    return register_jitable(lambda numbers: (widen(numbers[0]), *others(numbers[1:])))


def _finish_totals(count: int) -> Any:
    """A function that adds the sums of lanes to float64 at addresses."""
    if count == 0:
        return register_jitable(lambda addresses, totals: None)
    others = _finish_totals(count - 1)

    @register_jitable
    def finish(addresses: Any, totals: Any) -> None:
        store_one_float64(addresses[0], load_one_float64(addresses[0]) + sum_of(totals[0]))
        others(addresses[1:], totals[1:])

    return finish


def _begin(kinds: tuple[_Kind, ...], totals_bytes: int) -> Any:
    """A function that fills accumulators with what reductions start from."""
    if not kinds:
        return register_jitable(lambda totals: None)
    start, others = kinds[0].start, _begin(kinds[1:], totals_bytes)

    @register_jitable
    def begin(totals: Any) -> None:
        for at in range(0, totals_bytes, _VECTOR):
            store_doubles(totals + at, widen(start))
        others(totals + totals_bytes)

    return begin


def _finish_along(kinds: tuple[_Kind, ...], totals_bytes: int, size: int) -> Any:
    """A function that puts what accumulators come to into a row's state."""
    if not kinds:
        return register_jitable(lambda totals, state: None)
    of_lanes, others = kinds[0].of_lanes, _finish_along(kinds[1:], totals_bytes, size)

    @register_jitable
    def finish(totals: Any, state: Any) -> None:
        store_doubles(state, widen(of_lanes(load_doubles(totals))))
        others(totals + totals_bytes, state + size)

    return finish


def _finish_across(kinds: tuple[_Kind, ...], totals_bytes: int, size: int) -> Any:
    """As ``_finish_along`` for a row in each lane: the same tree, of accumulators."""
    if not kinds:
        return register_jitable(lambda totals, state: None)
    combine, others = kinds[0].combine, _finish_across(kinds[1:], totals_bytes, size)

    @register_jitable
    def finish(totals: Any, state: Any) -> None:
        half = totals_bytes // 2
        while half >= size:
            for at in range(0, half, _VECTOR):
                place = totals + at
                store_doubles(place, combine(load_doubles(place), load_doubles(place + half)))
            half //= 2
        for at in range(0, size, _VECTOR):
            store_doubles(state + at, load_doubles(totals + at))
        others(totals + totals_bytes, state + size)

    return finish


def _update(kinds: tuple[_Kind, ...], wide: bool, totals_bytes: int) -> Any:
    """A function that combines values with accumulators of as many lanes."""
    if not kinds:
        return register_jitable(lambda totals, values: None)
    combine, in_lanes = kinds[0].combine, widen_wide if wide else widen
    others = _update(kinds[1:], wide, totals_bytes)

    @register_jitable
    def sixteen(place: Any, value: Any, count: int) -> Any:
        store_doubles(place, combine(load_doubles(place), value))
        return place + _VECTOR

    every = _quarters(sixteen, wide)

    @register_jitable
    def update(totals: Any, values: Any) -> None:
        every(totals, in_lanes(values[0]), 0)
        others(totals + totals_bytes, values[1:])

    return update


def loop(passes: Passes, types: Types) -> Loop:
    """Tasks of rows (see ``RowCall``)."""
    maker = _Maker(passes, types)
    operands, first_sum, size, numbers = maker.operands, maker.first_total, maker.state_bytes, types.numbers + 1
    bring, compute, write = maker.bring_rows(), maker.rows(), maker.write_rows()
    together = maker.lanes if types.across else 1
    pointers, state_bytes = 8 * operands, size * max(1, len(passes.states[-1]))
    totals_bytes = max(1, maker.most) * maker.totals_bytes
    buffer_bytes = maker.room * max(1, len(types.vectors) + len(types.written))

    def part(at: int, first: int, last: int) -> None:
        call = _call_at(at)
        walk = call.walk
        places, here = _addresses_at(stack_alloc(pointers)), _addresses_at(stack_alloc(pointers))
        state, totals, buffer = stack_alloc(state_bytes), stack_alloc(totals_bytes), stack_alloc(buffer_bytes)
        for k in range(0, state_bytes, _VECTOR):
            store_doubles(state + k, widen(0.0))
        for k in range(numbers):
            number = widen(load_one_float64(walk.numbers + _DOUBLE * k))
            for lanes in range(0, size, _VECTOR):
                store_doubles(state + (k * size + lanes), number)
        segments = (walk.beside + walk.block - 1) // walk.block
        for task in range(first, last):
            position, begin = task // segments, task % segments * walk.block
            end = min(walk.beside, begin + walk.block)
            for k in range(operands):
                steps = walk.steps[k]
                places[k] = call.addresses[k] + (begin * steps.row + task * steps.task)
            for k in range(first_sum, operands):
                for place in range(0, walk.steps[k].task, _VECTOR):
                    store_doubles(places[k] + place, widen(0.0))
            axis = walk.axes
            for _ in range(walk.outer):
                extent = axis[0]
                index, position = position % extent, position // extent
                for k in range(operands):
                    places[k] = places[k] + index * axis[1 + k]
                axis = axis + (1 + operands)
            for row in range(begin, end, together):
                width = min(together, end - row)
                bring(walk, places, state, width)
                compute(walk, places, here, state, totals, buffer, width)
                write(walk, places, state, buffer, width)
                for k in range(operands):
                    places[k] = places[k] + together * walk.steps[k].row
        if walk.policy:
            finish_streams()

    return chunked(part)
