"""Any formula over elements side by side: float64 lanes, or float32 where they do, rounded once to each data type.

A kernel's source is written for its operands and compiled as one function: Numba takes longest to infer the types of
many functions that call one another.

Where a register holds sixteen float32 a wide vector is computed at a time (see ``vector``): of Swish's gradient, in the
cache, sixteen elements take 6.7 instead of 9 ns on Zen 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
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
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.trace import Program, Step, trace

LINE = 64


def _narrow_for(digits: int, halfway: int) -> Any:
    """Float64 lanes as float32 that round to the 16-bit numbers next to them.

    The nearest ones do unless one looks halfway between two such numbers, which takes thousands of numbers to happen by
    chance, and is not exact, as sums of such numbers are.

    Args:
        digits: the mask of bits by which to tell.
        halfway: what these are halfway.
    """

    @register_jitable
    def narrowed(value: Any) -> Any:
        nearest = narrow(value)
        if any_lane((bits(nearest) & digits) == halfway) and any_lane(widen(nearest) != value):
            return narrow_to_odd(value)
        return nearest

    return narrowed


_ROUNDINGS = {
    DataType.DOUBLE: widen,
    DataType.FLOAT: narrow,
    DataType.FLOAT16: _narrow_for(0xFFF, 0),  # also where the nearest ones are subnormal
    DataType.BF16: _narrow_for(0xFFFF, 0x8000),
}
"""Float64 lanes as those to store as a data type."""
SINGLES = {
    DataType.DOUBLE: "float64_at({})[0]",
    DataType.FLOAT: "float64(float32_at({})[0])",
    DataType.FLOAT16: "float64(lane(load_float16_part({}, 1), 0))",
    DataType.BF16: "float64(lane(load_bfloat16_part({}, 1), 0))",
}
"""The element at an address."""

_NAMES = {
    name: value
    for module in (atomics, doubles, memory, prefetch, structs, vector)
    for name, value in vars(module).items()
    if not name.startswith("_")
} | WORDS
"""Names in a kernel's source: the functions of these modules, and a program's words."""
_NAMES |= {
    "float32": np.float32,
    "float64": np.float64,
    "inf": math.inf,
    "nan": math.nan,
    "operands_at": structs.pointer_to(Operands),
}
for _dtype, _form in FORMATS.items():
    _NAMES |= {
        f"load_{_dtype.name}": _form.load,
        f"prefetch_{_dtype.name}": prefetch.prefetch_ahead_16 if _form.size == 2 else prefetch.prefetch_ahead_32,
        f"rounded_{_dtype.name}": _ROUNDINGS[_dtype],
        f"store_{_dtype.name}": _form.store,
        f"stream_{_dtype.name}": _form.stream,
    }
_NAMES |= {f"quarter_{number}": quarter for number, quarter in enumerate(QUARTERS)}


class Elements(NamedTuple):
    """An operand's elements side by side."""

    value: str
    """The variable of lanes."""
    dtype: DataType
    first: str
    """The variable of the first element's address."""
    ahead: str | None = ""
    """Bytes from an element to one that is to be prefetched, as usual if empty; None where nothing is."""


def _on(place: str, nbytes: int) -> str:
    """Name the address so many bytes on."""
    return f"{place} + {nbytes}" if nbytes else place


def _wide(name: str) -> str:
    """Return the float64 counterpart of a program's variable; numbers stay as they are."""
    return f"wide_{name}" if name[0] in "xt" else name


class Source:
    """The source of a kernel that computes with vectors or with wide ones, line by line."""

    def __init__(self, wide: bool, double: bool = True) -> None:
        self.lanes = WIDE * LANES if wide else LANES
        self._double = double
        self.splat = "widen_wide" if wide else "widen"
        """The function that puts a number into all lanes."""
        self._wide, self._lines, self._margin = wide, list[str](), ""

    def __call__(self, *lines: str) -> None:
        """Add lines to the block."""
        self._lines += [self._margin + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Begin a block."""
        self(head)
        self._margin += "    "
        yield
        self._margin = self._margin[4:]

    def function(self, name: str, **names: Any) -> Any:
        """Return the function of a name, with meanings of names beside those of this module."""
        # Of a function without a module, Numba cannot load again what it kept.
        namespace = {"__name__": __name__} | _NAMES | names
        exec(compile("\n".join(self._lines) + "\n", f"<{name}>", "exec"), namespace)
        return namespace[name]

    def steps(self, steps: Iterable[Step], named: Callable[[str], str] = str) -> None:
        """Add operations of a program, their variables under the names that a function gives them."""
        self(*(f"{named(step.result)} = {step.template.format(*map(named, step.operands))}" for step in steps))

    def in_float64(self, where: str, program: Program, dtype: DataType) -> None:
        """Evaluate a program of float32 in float64 where a condition holds, and round its results to a data type."""
        with self.block(f"if any_lane({where}):"):
            self(*(f"wide_x{k} = widen(x{k})" for k in range(program.arity)))
            self.steps(program.steps, _wide)
            for name in program.results:
                self(f"{name} = select({where}, rounded_{dtype.name}({_wide(name)}), {name})")

    def vectors(self, value: str) -> list[str]:
        """Name the vectors of lanes."""
        return [f"quarter_{number}({value})" for number in range(WIDE)] if self._wide else [value]

    def single(self, dtype: DataType, place: str) -> str:
        """Name the element at an address, in all lanes."""
        lanes = f"{self.splat}({SINGLES[dtype].format(place)})"
        return lanes if self._double else f"narrow({lanes})"

    def load(self, value: str, dtype: DataType, place: str) -> None:
        """Load lanes from an address on."""
        loads = [f"load_{dtype.name}({_on(place, at * dtype.itemsize)})" for at in range(0, self.lanes, LANES)]
        lanes = f"side_by_side({', '.join(loads)})" if self._wide else loads[0]
        self(f"{value} = widen({lanes})" if self._double else f"{value} = {lanes}")

    def look_up(self, value: str, table: str, place: str) -> None:
        """Load the entries of a table for the 16-bit elements from an address on."""
        entries = [f"load_entries({table}, {_on(place, 2 * at)})" for at in range(0, self.lanes, LANES)]
        self(f"{value} = side_by_side({', '.join(entries)})" if self._wide else f"{value} = {entries[0]}")

    def rounded(self, value: str, dtype: DataType) -> str:
        """Name lanes as those to store as a data type."""
        return f"rounded_{dtype.name}({self.splat}({value}))" if self._double else value

    def store(self, value: str, dtype: DataType, place: str, way: str = "store") -> None:
        """Store rounded lanes from an address on."""
        for number, part in enumerate(self.vectors(value)):
            self(f"{way}_{dtype.name}({_on(place, number * LANES * dtype.itemsize)}, {part})")

    def _bytes(self, dtype: DataType) -> int:
        return self.lanes * dtype.itemsize

    def room(self, dtypes: Iterable[DataType]) -> int:
        """Return the bytes of lanes of any of these data types, whole lines."""
        return max((LINE, *map(self._bytes, dtypes)))

    def bring(self, dtype: DataType, at: str, to: str, count: str) -> None:
        """Copy so many elements from an address on, less than fill the lanes."""
        nbytes = f"{count} * {dtype.itemsize}"
        self(f"copy_in({at}, {nbytes}, {to})" if self._bytes(dtype) <= LINE else f"copy({to}, {at}, {nbytes})")

    def take_back(self, dtype: DataType, at: str, to: str, count: str) -> None:
        """Copy so many elements to an address."""
        nbytes = f"{count} * {dtype.itemsize}"
        self(f"copy_out({at}, {nbytes}, {to})" if self._bytes(dtype) <= LINE else f"copy({to}, {at}, {nbytes})")

    @contextmanager
    def stretch(
        self, read: Sequence[Elements], written: Sequence[Elements], streamed: int, found: Sequence[str] = ()
    ) -> Iterator[None]:
        """Loop over the elements from the first up to ``end``; what is added meanwhile computes the results.

        There the first ``limit`` lanes count, and in the vectors ``found`` others do not change. Up to the first
        output's first whole line, where there is a ``policy``, whole vectors, what is left: parts of vectors go through
        a ``buffer``. By the policy the first outputs, as many as are ``streamed``, go around the cache.
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
            with self.block(f"for i in range(0, count, {self.lanes}):"):
                for (value, dtype, _, ahead), place in zip(read, here, strict=False):
                    self(f"place = {place}")
                    fetch = "prefetch_near" if ahead else f"prefetch_{dtype.name}"
                    first = f"place + {ahead}" if ahead else "place"
                    lines = range(0, 0 if ahead is None else self._bytes(dtype), LINE)
                    self(*(f"{fetch}({_on(first, line)})" for line in lines))
                    self.load(value, dtype, "place")
                yield
                for k, ((value, dtype, *_), place) in enumerate(zip(written, here[len(read) :], strict=True)):
                    self(f"place = {place}", f"rounded = {self.rounded(value, dtype)}")
                    if k < streamed:
                        with self.block("if policy and whole:"):
                            self.store("rounded", dtype, "place", "stream")
                        with self.block("else:"):
                            self.store("rounded", dtype, "place")
                    else:
                        self.store("rounded", dtype, "place")
            with self.block("if not whole:"):
                self("pass")
                self(*(f"{name} = select(first_lanes(limit), {name}, before_{name})" for name in found))
                for one, place, part in zip(written, places[len(read) :], parts[len(read) :], strict=True):
                    self.take_back(one.dtype, part, place, "count")
            self("at += count")


_EXACT, _FLOAT32, _ROUNDED, _DOUBLE = range(4)
"""A number of the operands' data type, one of float32, one that is rounded to float32, any number."""


def float32_suffices(program: Program, dtype: DataType, numbers: Sequence[float], closely: bool = False) -> bool:
    """Return true if float32 lanes give the results that float64 lanes do, for operands and results of a data type.

    So they do if a number is rounded once at most and is then only chosen, or changes its sign: two numbers of p digits
    make one that rounds to p digits as it does by way of 2p + 2. ``closely`` also admits, for 16 bits, one product with
    a number of float32, which is rounded twice.
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


def loop(
    program: Program,
    inputs: tuple[DataType, ...],
    outputs: tuple[DataType, ...],
    numbers: int,
    double: bool = True,
    single: int | None = None,
    instead: Callable[[Source, Program], dict[str, Any]] | None = None,
) -> Loop:
    """Compute a program of inputs and numbers for contiguous elements (see ``Operands``), given their types.

    Of the input ``single`` there is one element for all. ``instead`` writes other operations that compute the same, and
    returns the meanings of the names in them.
    """
    source = Source(target.has_wide_registers(), double)
    read = [Elements(f"x{k}", dtype, f"input{k}") for k, dtype in enumerate(inputs)]
    pairs = zip(program.results, outputs, strict=True)
    written = [Elements(result, dtype, f"output{k}") for k, (result, dtype) in enumerate(pairs)]
    with source.block("def part(arguments, begin, last):"):
        source("operands = operands_at(arguments)", "policy, end = operands.policy, last - begin")
        for k, elements in enumerate((*written, *read)):
            source(f"{elements.first} = operands.addresses[{k}] + begin * {elements.dtype.itemsize}")
        if single is not None:
            value, dtype, *_ = read.pop(single)
            source(f"{value} = {source.single(dtype, f'operands.addresses[{len(outputs) + single}]')}")
        for k in range(numbers):
            source(f"x{len(inputs) + k} = {source.single(DataType.DOUBLE, f'operands.constants + {8 * k}')}")
        source(f"buffer = stack_alloc({len((*read, *written)) * source.room((*inputs, *outputs))})")
        names = {} if double else _FLOAT32_WORDS
        # Lines that are written in parts between look-ups in tables go to memory in parts (docs/tuning.md).
        streams = instead is None or source.lanes * outputs[0].itemsize >= LINE
        with source.stretch(read, written, len(written) if streams else 0):
            if instead is None:
                source.steps(program.steps)
            else:
                names = instead(source, program)
        with source.block("if policy:"):
            source("finish_streams()")
    return chunked(source.function("part", **names))


_FLOAT32_WORDS = {
    "where": vector.select,
    "absolute": vector.absolute,
    "fma": vector.fma,
    "times": register_jitable(lambda x, y: x * y),
}


@lru_cache(maxsize=512)
def on_float64(formula: Formula, arity: int) -> Any:
    """The formula of ``arity`` elements and numbers on float64 lanes.

    For one thread at a time, as ``jit.kernel`` makes kernels.
    """
    return register_jitable(trace(formula, arity).function(WORDS))


def on_float32(formula: Formula) -> Any:
    """The operations of a fitted version on any number of float32 lanes."""
    return register_jitable(forceinline=True)(trace(formula, 1).function(_FLOAT32_WORDS))
