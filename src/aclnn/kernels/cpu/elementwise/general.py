"""Any formula over contiguous elements: on float64 lanes, or float32 if sufficient, rounded once to each data type.

A kernel's source is generated for its operands and compiled as a single function: type inference across many small
functions is the slowest part of Numba.

With registers of sixteen float32, a wide vector is computed at a time (see ``vector``): for Swish's gradient, sixteen
elements in cache take 6.7 instead of 9 ns on Zen 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partialmethod
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType, float32
from aclnn.kernels import Formula
from aclnn.kernels.cpu import atomics, structs, target
from aclnn.kernels.cpu.elementwise.functions import WORDS, narrow_to_odd
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd import doubles, memory, prefetch, vector
from aclnn.kernels.cpu.simd.doubles import narrow, widen
from aclnn.kernels.cpu.simd.memory import FORMATS
from aclnn.kernels.cpu.simd.vector import LANES, QUARTERS, WIDE, any_lane, bits
from aclnn.kernels.cpu.strided import Operands
from aclnn.kernels.cpu.structs import int32_at
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.trace import Program, Step, trace

LINE = 64
_TILE = 512
"""Number of elements in which those to be evaluated in float64 are compacted."""


def _narrow_for(digits: int, halfway: int) -> Any:
    """Convert float64 lanes to float32 that round correctly to 16 bits.

    Rounding to nearest does, except for a result halfway between two 16-bit numbers that is inexact. One random number
    in thousands lies there; sums of 16-bit numbers often do, and are exact.

    Args:
        digits: mask of the bits that identify such a result.
        halfway: value of these bits halfway.
    """

    @register_jitable
    def narrowed(value: Any) -> Any:
        nearest = narrow(value)
        if any_lane((bits(nearest) & digits) == halfway) and any_lane(widen(nearest) != value):
            return narrow_to_odd(value)
        return nearest

    return narrowed


@register_jitable
def _gather(values: Any, places: Any, count: int) -> None:
    """Compact float32 at ascending indices to the front."""
    words = int32_at(values)
    for k in range(count):
        words[k] = words[places[k]]


@register_jitable
def _scatter(values: Any, places: Any, count: int, destination: Any) -> None:
    """Move compacted float32 back to their indices."""
    words, result = int32_at(values), int32_at(destination)
    for k in range(count):
        result[places[k]] = words[k]


ROUNDINGS = {
    DataType.DOUBLE: widen,
    DataType.FLOAT: narrow,
    DataType.FLOAT16: _narrow_for(0xFFF, 0),  # also sufficient where results are subnormal
    DataType.BF16: _narrow_for(0xFFFF, 0x8000),
}
"""Conversion of float64 lanes before they are stored as a data type."""
SINGLES = {
    DataType.DOUBLE: "float64_at({})[0]",
    DataType.FLOAT: "float64(float32_at({})[0])",
    DataType.FLOAT16: "float64(lane(load_float16_part({}, 1), 0))",
    DataType.BF16: "float64(lane(load_bfloat16_part({}, 1), 0))",
}
"""Expression that loads the element at an address."""

_NAMES = {
    name: value
    for module in (atomics, doubles, memory, prefetch, structs, vector)
    for name, value in vars(module).items()
    if not name.startswith("_")
} | WORDS
"""Names in a kernel's source: functions of these modules, and of programs."""
_NAMES |= {
    "float32": np.float32,
    "float64": np.float64,
    "inf": math.inf,
    "nan": math.nan,
    "gather": _gather,
    "operands_at": structs.pointer_to(Operands),
    "scatter": _scatter,
}
for _dtype, _form in FORMATS.items():
    _NAMES |= {
        f"load_{_dtype.name}": _form.load,
        f"prefetch_{_dtype.name}": prefetch.prefetch_ahead_16 if _form.size == 2 else prefetch.prefetch_ahead_32,
        f"rounded_{_dtype.name}": ROUNDINGS[_dtype],
        f"store_{_dtype.name}": _form.store,
        f"stream_{_dtype.name}": _form.stream,
    }
_NAMES |= {f"quarter_{number}": quarter for number, quarter in enumerate(QUARTERS)}


class Elements(NamedTuple):
    """Contiguous elements of an operand."""

    value: str
    """Variable with the lanes."""
    dtype: DataType
    first: str
    """Variable with the first element's address."""
    ahead: str | None = ""
    """Prefetch distance in bytes: the default if empty; None for no prefetching."""


def _on(place: str, nbytes: int) -> str:
    """Return the expression of an address plus an offset in bytes."""
    return f"{place} + {nbytes}" if nbytes else place


def _wide(name: str) -> str:
    """Return the float64 counterpart of a program's variable; constants stay unchanged."""
    return f"wide_{name}" if name[0] in "xt" else name


class Source:
    """Generator of a kernel's source, on vectors or wide vectors."""

    def __init__(self, wide: bool, double: bool = True) -> None:
        self.lanes = WIDE * LANES if wide else LANES
        self._double = double
        self.splat = "widen_wide" if wide else "widen"
        """Function that broadcasts a number to all lanes."""
        self.where_outside: tuple[str, ...] = ()
        """Lines to run as soon as some lanes are outside."""
        self._wide, self._lines, self._margin = wide, list[str](), ""

    def __call__(self, *lines: str) -> None:
        """Add lines to the current block."""
        self._lines += [self._margin + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Begin a block."""
        self(head)
        self._margin += "    "
        yield
        self._margin = self._margin[4:]

    def function(self, name: str, **names: Any) -> Any:
        """Return the function with this name, with additional names in its namespace."""
        # Numba cannot reload a cached function without a module.
        namespace = {"__name__": __name__} | _NAMES | names
        exec(compile("\n".join(self._lines) + "\n", f"<{name}>", "exec"), namespace)
        return namespace[name]

    def outside(self, lanes: str, condition: str = "any_negative(outside)") -> None:
        """Add integers that are negative in lanes not covered by the other operations, and a branch for such lanes."""
        self(f"outside = {lanes}")
        if self.where_outside:
            with self.block(f"if {condition}:"):
                self(*self.where_outside)

    def steps(self, steps: Iterable[Step], named: Callable[[str], str] = str) -> None:
        """Add operations of a program, with variables renamed by a function."""
        self(*(f"{named(step.result)} = {step.template.format(*map(named, step.operands))}" for step in steps))

    def vectors(self, value: str) -> list[str]:
        """Return the names of the vectors in lanes."""
        return [f"quarter_{number}({value})" for number in range(WIDE)] if self._wide else [value]

    def single(self, dtype: DataType, place: str) -> str:
        """Return an expression for the element at an address, broadcast to all lanes."""
        lanes = f"{self.splat}({SINGLES[dtype].format(place)})"
        return lanes if self._double else f"narrow({lanes})"

    def numbers(self, first: int, count: int) -> None:
        """Load numbers, the program's arguments from ``first`` on, into all lanes."""
        for k in range(count):
            self(f"x{first + k} = {self.single(DataType.DOUBLE, f'operands.constants + {8 * k}')}")

    def read(self, operands: Iterable[Elements], places: Iterable[str]) -> None:
        """Load operands' lanes at these addresses, and prefetch later ones."""
        for (value, dtype, _, ahead), place in zip(operands, places, strict=False):
            self(f"place = {place}")
            fetch = "prefetch_near" if ahead else f"prefetch_{dtype.name}"
            first = f"place + {ahead}" if ahead else "place"
            lines = range(0, 0 if ahead is None else self._bytes(dtype), LINE)
            self(*(f"{fetch}({_on(first, line)})" for line in lines))
            self.load(value, dtype, "place")

    def load(self, value: str, dtype: DataType, place: str) -> None:
        """Load lanes at an address."""
        loads = [f"load_{dtype.name}({_on(place, at * dtype.itemsize)})" for at in range(0, self.lanes, LANES)]
        lanes = f"side_by_side({', '.join(loads)})" if self._wide else loads[0]
        self(f"{value} = widen({lanes})" if self._double else f"{value} = {lanes}")

    def look_up(self, value: str, table: str, place: str) -> None:
        """Load the table entries for the 16-bit elements at an address."""
        entries = [f"load_entries({table}, {_on(place, 2 * at)})" for at in range(0, self.lanes, LANES)]
        self(f"{value} = side_by_side({', '.join(entries)})" if self._wide else f"{value} = {entries[0]}")

    def rounded(self, value: str, dtype: DataType) -> str:
        """Return an expression for lanes converted before they are stored as a data type."""
        return f"rounded_{dtype.name}({self.splat}({value}))" if self._double else value

    def store(self, value: str, dtype: DataType, place: str, way: str = "store") -> None:
        """Store converted lanes at an address."""
        for number, part in enumerate(self.vectors(value)):
            self(f"{way}_{dtype.name}({_on(place, number * LANES * dtype.itemsize)}, {part})")

    def write(self, value: str, dtype: DataType, place: str, streams: str) -> None:
        """Store converted lanes, with non-temporal stores if a condition is given and holds."""
        if not streams:
            self.store(value, dtype, place)
            return
        with self.block(f"if {streams}:"):
            self.store(value, dtype, place, "stream")
        with self.block("else:"):
            self.store(value, dtype, place)

    def _bytes(self, dtype: DataType) -> int:
        return self.lanes * dtype.itemsize

    def room(self, dtypes: Iterable[DataType]) -> int:
        """Return the bytes of lanes of any of these data types, rounded up to whole cache lines."""
        return max((LINE, *map(self._bytes, dtypes)))

    def buffer(self, size: int) -> None:
        """Allocate the buffer of ``stretch``.

        It is cleared: subnormal or outside values would slow down lanes whose results are unused.
        """
        size += -size % (8 * LANES)
        self(f"buffer = stack_alloc({size})")
        with self.block(f"for at in range(0, {size}, {8 * LANES}):"):
            self("store_doubles(buffer + at, widen(0.0))")

    def bring(self, dtype: DataType, at: str, to: str, count: str, back: bool = False) -> None:
        """Copy ``count`` elements, fewer than the lanes, to a buffer, or back from it."""
        nbytes, copy = f"{count} * {dtype.itemsize}", "copy_out" if back else "copy_in"
        self(f"{copy}({at}, {nbytes}, {to})" if self._bytes(dtype) <= LINE else f"copy({to}, {at}, {nbytes})")

    take_back = partialmethod(bring, back=True)

    @contextmanager
    def stretch(
        self, read: Sequence[Elements], written: Sequence[Elements], streamed: int, found: Sequence[str] = ()
    ) -> Iterator[None]:
        """Loop over the elements from the first to ``end``; lines added within compute the results.

        In them the first ``limit`` lanes are valid, and other lanes of the vectors ``found`` keep their values. With a
        ``policy``, the loop handles elements up to the first output's first whole cache line, whole vectors, and the
        remainder; parts of vectors go through a ``buffer``. The first ``streamed`` outputs use non-temporal stores.
        """
        operands = (*read, *written)
        size = written[0].dtype.itemsize if written else 1
        room = self.room(one.dtype for one in operands)
        places = [f"{one.first} + at * {one.dtype.itemsize}" for one in operands]
        parts = [f"part{k}" for k in range(len(operands))]
        here = [f"{part} + i * {one.dtype.itemsize}" for part, one in zip(parts, operands, strict=True)]
        self("at = 0")
        with self.block("while at < end:"):
            self(
                f"head = (-address({places[len(read)]}) & {LINE - 1}) // {size} if policy else 0"
                if streamed
                else "head = 0"
            )
            self(f"whole = head == 0 and end - at >= {self.lanes}")
            with self.block("if whole:"):
                self(f"count, limit = (end - at) & {-self.lanes}, {self.lanes}")
                self(*(f"{part} = {place}" for part, place in zip(parts, places, strict=True)))
            with self.block("else:"):
                self(f"count = min(end - at, {self.lanes - 1}, head) if head else end - at", "limit = count")
                self(*(f"{part} = {_on('buffer', room * k)}" for k, part in enumerate(parts)))
                for one, place, part in zip(read, places, parts, strict=False):
                    self.bring(one.dtype, place, part, "count")
            self(*(f"before_{name} = {name}" for name in found))
            self("i = 0")
            with self.block("while i < count:"):
                self.read(read, here)
                yield
                for k, ((value, dtype, *_), place) in enumerate(zip(written, here[len(read) :], strict=True)):
                    self(f"place = {place}", f"rounded = {self.rounded(value, dtype)}")
                    self.write("rounded", dtype, "place", "policy and whole" if k < streamed else "")
                self(f"i += {self.lanes}")
            with self.block("if not whole:"):
                self("pass")
                self(*(f"{name} = select(first_lanes(limit), {name}, before_{name})" for name in found))
                for one, place, part in zip(written, places[len(read) :], parts[len(read) :], strict=True):
                    self.take_back(one.dtype, part, place, "count")
            self("at += count")


_EXACT, _FLOAT32, _ROUNDED, _DOUBLE = range(4)
"""Number of the operands' data type; a float32; a number to be rounded to float32; any other number."""


def float32_suffices(program: Program, dtype: DataType, numbers: Sequence[float], closely: bool = False) -> bool:
    """Return True if float32 lanes give the same results as float64 lanes, for this data type of operands and results.

    They do if a number is rounded at most once and then only selected or negated: an operation on two numbers of p
    digits rounds to p digits the same directly and through 2p + 2 digits. ``closely`` also admits, for 16 bits, one
    product with a float32 number, which is rounded twice.
    """

    def kind(number: float) -> int:
        with np.errstate(over="ignore"):
            if math.isnan(number) or float(np.float64(number).astype(dtype.numpy)) == number:
                return _EXACT
        return _FLOAT32 if float32(number) == number else _DOUBLE

    operands = program.arity - len(numbers)
    kinds = {f"x{i}": _EXACT if i < operands else kind(numbers[i - operands]) for i in range(program.arity)}
    for step in program.steps:
        most = max(kinds[name] if name in kinds else kind(float(name)) for name in step.operands)
        match step.template:
            case "{} + {}" | "{} - {}" | "{} * {}" | "{} / {}" | "times({}, {})" if most == _EXACT:
                most = _ROUNDED
            case "{} * {}" | "times({}, {})" if closely and most == _FLOAT32:
                most = _ROUNDED
            case "{} < {}" | "{} <= {}" | "{} > {}" | "{} >= {}" | "{} == {}" | "{} != {}" if most <= _FLOAT32:
                most = _EXACT
            case "where({}, {}, {})" if not kinds.keys().isdisjoint(step.operands[1:]):
                pass
            case "{} & {}" | "{} | {}" | "~{}" | "-{}" | "absolute({})":
                pass
            case _:
                return False
        kinds[step.result] = most
    return max(kinds.get(result, _DOUBLE) for result in program.results) <= _ROUNDED


Instead = Callable[[Source, Program], dict[str, Any]]
"""Function that writes float32 operations for a program's results and states in which lanes they are invalid
(``Source.outside``); returns the values of the names in them."""


def loop(
    program: Program,
    inputs: tuple[DataType, ...],
    outputs: tuple[DataType, ...],
    numbers: int,
    double: bool = True,
    single: int | None = None,
    instead: Instead | None = None,
) -> Loop:
    """Make the kernel of a program of inputs and numbers for contiguous elements (see ``Operands``), given their types.

    The input ``single`` is one element, broadcast. Elements ``outside`` of the operations ``instead`` are evaluated in
    float64.
    """
    source = Source(target.has_wide_registers(), double)
    read = [Elements(f"x{k}", dtype, f"input{k}") for k, dtype in enumerate(inputs)]
    pairs = zip(program.results, outputs, strict=True)
    written = [Elements(result, dtype, f"output{k}") for k, (result, dtype) in enumerate(pairs)]
    names = {} if double else _FLOAT32_WORDS
    with source.block("def part(arguments, begin, last):"):
        source("operands = operands_at(arguments)", "policy, end = operands.policy, last - begin")
        for k, elements in enumerate((*written, *read)):
            source(f"{elements.first} = operands.addresses[{k}] + begin * {elements.dtype.itemsize}")
        if single is not None:
            value, dtype, *_ = read.pop(single)
            source(f"{value} = {source.single(dtype, f'operands.addresses[{len(outputs) + single}]')}")
        source.numbers(len(inputs), numbers)
        source.buffer(len((*read, *written)) * source.room((*inputs, *outputs)))
        # Cache lines written in parts between table look-ups would reach memory in parts (docs/tuning.md).
        streams = instead is None or source.lanes * outputs[0].itemsize >= LINE
        with source.stretch(read, written, len(written) if streams else 0):
            if instead is None:
                source.steps(program.steps)
            else:
                places = (f"part{k} + i * {one.dtype.itemsize}" for k, one in enumerate((*read, *written)))
                source.where_outside = (
                    f"several = min(count - i, {_TILE})",
                    f"tile(operands, policy and whole, several, {', '.join(places)})",
                    "i += several",
                    "continue",
                )
                names = instead(source, program) | {"tile": _tile(program, read, written, instead, streams)}
        with source.block("if policy:"):
            source("finish_streams()")
    return chunked(source.function("part", **names))


def _tile(
    program: Program, read: Sequence[Elements], written: Sequence[Elements], instead: Instead, streams: bool
) -> Any:
    """Compute up to ``_TILE`` elements; those outside of the operations are compacted and evaluated in float64."""
    source, operands = Source(wide=False, double=False), [one.value for one in read]
    numbers, parts = program.arity - len(read), [f"part{k}" for k in range(len((*read, *written)))]
    here = [f"{part} + i * {one.dtype.itemsize}" for part, one in zip(parts, (*read, *written), strict=True)]
    with source.block(f"def tile(operands, policy, count, {', '.join(parts)}):"):
        source(f"places, found = int32_at(stack_alloc({4 * (_TILE + LANES)})), 0")
        for name in dict.fromkeys((*operands, *program.results)):
            source(f"all_{name}, some_{name} = stack_alloc({4 * _TILE}), stack_alloc({4 * _TILE})")
        source.numbers(len(read), numbers)
        with source.block(f"for i in range(0, count, {LANES}):"):
            source.read(read, here)
            names = instead(source, program)
            for name in program.results:
                source.store(name, DataType.FLOAT, f"all_{name} + 4 * i")
            with source.block("if any_negative(outside):"):
                for name in operands:
                    source.store(name, DataType.FLOAT, f"some_{name} + 4 * i")
                source("mask = outside < 0", "store_places(places + found, i, mask)", "found += count_lanes(mask)")
        source(*(f"gather(some_{name}, places, found)" for name in operands))
        for k in range(numbers):
            source(f"wide_x{len(read) + k} = widen({SINGLES[DataType.DOUBLE].format(f'operands.constants + {8 * k}')})")
        with source.block(f"for at in range(0, 4 * found, {4 * LANES}):"):
            source(*(f"wide_{name} = widen(load_float32(some_{name} + at))" for name in operands))
            source.steps(program.steps, _wide)
            for name, one in zip(program.results, written, strict=True):
                source(
                    f"exact = rounded_{one.dtype.name}(widen({_wide(name)}))", f"store_float32(some_{name} + at, exact)"
                )
        source(*(f"scatter(some_{name}, places, found, all_{name})" for name in program.results))
        with source.block(f"for i in range(0, count, {LANES}):"):
            for place, one in zip(here[len(read) :], written, strict=True):
                source(f"result = load_float32(all_{one.value} + 4 * i)")
                source.write("result", one.dtype, place, "policy" if streams else "")
    return register_jitable(source.function("tile", **names))


_FLOAT32_WORDS = {
    "where": vector.select,
    "absolute": vector.absolute,
    "fma": vector.fma,
    "times": register_jitable(lambda x, y: x * y),
}


def on_float32(formula: Formula) -> Any:
    """Return the operations of a fitted version on any number of float32 lanes."""
    return register_jitable(forceinline=True)(trace(formula, 1).function(_FLOAT32_WORDS))
