"""Measurement of a case: golden values block by block, each standard's tally, and the pictures of each output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aclnn.core.operator import Kind, Library
from aclnn.formula import Gradient
from aclnn.operators import BY_NAME
from aclnn.typing import Array
from aclnn.verify.cases.case import Case
from aclnn.verify.goldens import layer_norm as norm
from aclnn.verify.goldens.library import Computed, Values, values_of
from aclnn.verify.goldens.rows import source_of
from aclnn.verify.goldens.values import (
    BLOCK_ELEMENTS,
    Flat,
    Golden,
    LayerNorm,
    Places,
    Progress,
    joined,
    map_blocks,
    sub_progress,
)
from aclnn.verify.number_formats import NumberFormat, format_of, quiet
from aclnn.verify.standards.measures import Block, Outcome, Standard, Tally, agree
from aclnn.verify.standards.picture import Picture
from aclnn.verify.standards.published import MIXED_LIMITS, matching_tolerance, mixed_tolerance


@dataclass
class Measured:
    """Measurements of a whole output."""

    name: str
    target: NumberFormat
    shape: tuple[int, ...]
    tallies: dict[str, Tally]
    picture: Picture
    resolved: int
    """Number of elements whose golden value float64 left undecided."""
    undecided: int
    """Number of elements with a float64 golden value, since deciding it would take too long."""
    source: Source
    wrong: list[tuple[int, int, Array]]
    """Ranges with wrong elements: begin, end, and a packed bit mask of the wrong elements."""
    golden: Golden | None = None
    """Golden values of an output with at most ``KEPT_ELEMENTS``."""

    @property
    def wrong_count(self) -> int:
        """Number of elements with more than a sound error."""
        return sum(
            int(np.bitwise_count(bits).sum()) if hasattr(np, "bitwise_count") else int(np.unpackbits(bits).sum())
            for _, _, bits in self.wrong
        )

    def wrong_mask(self) -> Array:
        """Mask of the wrong elements among all."""
        found = np.zeros(self.source.size, np.bool_)
        for begin, end, bits in self.wrong:
            found[begin:end] = np.unpackbits(bits, count=end - begin)
        return found

    def outcome(self, standard: Standard) -> Outcome:
        """Return a standard's outcome."""
        return standard.assess(self.tallies[standard.name], self.target)


KEPT_ELEMENTS = 1 << 18
"""Maximum size of an output whose golden values are kept: 3 MB."""


@dataclass(frozen=True)
class Elements:
    """Some elements of an output with their known properties, as flat arrays in row-major order."""

    golden: Golden
    actual: Array
    x: Array
    """Horizontal axis of the error chart: the forward input; for sums over rows, the golden value."""
    inputs: Mapping[str, Array]


class Source:
    """An output with the formula that gives its golden values block by block.

    Args:
        case: case of the output.
        name: name of the output.
        results: for a library operator, the results of ``values_of``.
    """

    def __init__(self, case: Case, name: str, results: Mapping[str, Values] | None = None) -> None:
        self.case, self.name = case, name
        actual = case.actual[name]
        self.shape = actual.shape
        self.size = actual.size
        self.target = format_of(actual.dtype)
        self.actual = Flat(actual)
        self.third = None if name not in case.third else Flat(case.third[name])
        assert case.call is not None
        output = case.operator.parameter(self.name, (Kind.OUTPUT,)).name
        self.whole = (
            Computed(results[output], actual) if results else source_of(case.call, case.inputs, output, actual.dtype)
        )
        formula = self.whole.function.formula if self.size and self.whole.names else None
        self.gradient = formula if isinstance(formula, Gradient) else None

    @property
    def is_enclosed(self) -> bool:
        """True if golden values have error bounds, so that errors beyond a few roundings have a cause."""
        return not isinstance(self.whole, Computed)

    @quiet
    def sound_ulp(self, golden: Golden) -> Array | float:
        """Return the error that needs no cause; for sums of any length, mixed's tolerance."""
        few = self.target.sound_ulp
        if self.is_enclosed or self.target.name not in MIXED_LIMITS:
            return few
        many = mixed_tolerance(golden.value, self.target) / self.target.ulp(golden.value)
        return np.where(np.isfinite(golden.value), np.maximum(few, many), few)

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        return self.whole.golden(at)

    def elements(self, begin: int, end: int) -> Elements:
        """Return elements begin to end; x is the first operand that is not a gradient, for sums the golden value."""
        inputs, golden = self.whole.operands(slice(begin, end)), self.golden(slice(begin, end))
        x = next((values for name, values in inputs.items() if "grad" not in name), golden.value)
        return Elements(golden, self.actual[begin:end], x, inputs)


class NormInputSource(Source):
    """dx of LayerNorm, computed in double-float64 arithmetic."""

    def __init__(self, case: Case, exact: LayerNorm) -> None:
        super().__init__(case, "grad_input")
        self._exact = exact

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements, computed for whole rows."""
        every = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        columns = max(1, self._exact.columns)
        row = every // columns
        value, rounded, resolved = np.empty(every.size), np.empty(every.size, self.target.dtype.numpy), 0
        rows = np.unique(row)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if rows.size else ():
            found = self._exact.block(int(run[0]), int(run[-1]) + 1, self.target)
            here = np.flatnonzero((row >= run[0]) & (row <= run[-1]))
            part = every[here] - run[0] * columns
            value[here], rounded[here] = found.value[part], found.rounded[part]
            resolved += found.resolved
        return Golden(value, rounded, resolved)


class NormSumSource(Source):
    """dw or db of LayerNorm, whose golden values are known after all rows have been processed."""

    def __init__(self, case: Case, name: str, golden: Golden) -> None:
        super().__init__(case, name)
        self._golden = golden

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        return Golden(self._golden.value[at], self._golden.rounded[at])


@dataclass
class _Part:
    tallies: dict[str, Tally]
    picture: Picture
    resolved: int
    undecided: int = 0
    sums: tuple[Array, Array] | None = None
    wrong: tuple[int, int, Array] | None = None
    golden: Golden | None = None


def evaluate(
    case: Case, standards: Sequence[Standard], eps: float | None = None, progress: Progress | None = None
) -> list[Measured]:
    """Measure every output of a case.

    Args:
        case: the case to measure.
        standards: the standards; those that need reference outputs are skipped if the case has none.
        eps: verify LayerNorm's backward in cascade, with mean and rstd computed from the input with this eps.
        progress: called with the fraction done.
    """
    if case.operator.name == "layer_norm_backward":
        return _evaluate_norm(case, standards, eps, progress)
    assert case.call is not None
    work = case.operator.work(case.call)
    is_formula = case.operator.name in BY_NAME and not (isinstance(work, Library) and work.inputs)
    results = None if is_formula else values_of(case.call, case.inputs, case.actual)
    measured = []
    for number, name in enumerate(case.actual):
        source = Source(case, name, results)
        blocks = map_blocks(partial(_measure, source, standards), source.size, source.whole.step)
        part = sub_progress(progress, number / len(case.actual), (number + 1) / len(case.actual))
        measured.append(_whole(source, standards, _reporting(blocks, source.size, source.whole.step, part)))
    return measured


@quiet
def ulp_error(actual: Array, golden: Golden, target: NumberFormat) -> Array:
    """Return each element's error in ULP; 0 or infinite if one of the values is not finite."""
    a = actual.astype(np.float64)
    ulps = np.abs(a - golden.value) / target.ulp(golden.value)
    rounded = golden.rounded.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(rounded)
    error: Array = np.where(finite, ulps, np.where(agree(a, rounded), 0.0, np.inf))
    return error


def _grid(source: Source) -> tuple[int, int]:
    columns = source.shape[-1] if source.shape else 1
    if len(source.shape) < 2 and columns > 4096:  # fold a long vector for the map
        columns = 1 << (columns.bit_length() // 2)
    return max(1, -(-source.size // max(columns, 1))), max(columns, 1)


@quiet
def _measure(source: Source, standards: Sequence[Standard], begin: int, end: int) -> _Part:
    elements = source.elements(begin, end)
    golden = elements.golden
    third = None if source.third is None else source.third[begin:end]
    block = Block(elements.actual, golden.rounded, third, begin)
    tallies = {
        standard.name: standard.measure(block)
        for standard in standards
        if standard.applies(source.target) and (third is not None or not standard.needs_third)
    }
    picture = Picture(*_grid(source))
    failing = block.error > matching_tolerance(block.g, block.target)
    ulps = ulp_error(elements.actual, golden, source.target)
    wrong = ulps > source.sound_ulp(golden)
    picture.add(ulps, agree(block.a, block.g), failing, wrong, elements.x.astype(np.float64), begin)
    struck = (begin, end, np.packbits(wrong)) if wrong.any() else None
    kept = golden if source.size <= KEPT_ELEMENTS else None
    return _Part(tallies, picture, golden.resolved, golden.undecided, None, struck, kept)


def _reporting(blocks: Iterator[_Part], size: int, step: int, progress: Progress | None) -> Iterator[_Part]:
    for number, block in enumerate(blocks, 1):
        if progress is not None:
            progress(min(1.0, number * step / size))
        yield block


def _whole(source: Source, standards: Sequence[Standard], parts: Iterator[_Part]) -> Measured:
    first = _measure(source, standards, 0, 0) if source.size == 0 else next(parts)
    measured = Measured(
        source.name, source.target, source.shape, first.tallies, first.picture, first.resolved,
        first.undecided, source,
        [] if first.wrong is None else [first.wrong],
    )  # fmt: skip
    kept = [first.golden]
    for part in parts:
        kept.append(part.golden)
        if part.wrong is not None:
            measured.wrong.append(part.wrong)
        for name, tally in part.tallies.items():
            measured.tallies[name].merge(tally)
        measured.picture.merge(part.picture)
        measured.resolved += part.resolved
        measured.undecided += part.undecided
    goldens = [golden for golden in kept if golden is not None]
    if goldens:
        measured.golden = joined(goldens, (source.size,), source.actual[0:0].dtype)
    return measured


def norm_golden(case: Case, eps: float | None = None) -> LayerNorm:
    """Return the source of a LayerNorm case's golden values."""
    inputs = case.inputs
    columns = math.prod(case.attributes["normalized_shape"])
    return LayerNorm(
        inputs["grad_out"], inputs["input"], inputs["mean"], inputs["rstd"], inputs.get("weight"), columns, eps
    )


def _evaluate_norm(
    case: Case, standards: Sequence[Standard], eps: float | None, progress: Progress | None
) -> list[Measured]:
    whole = norm_golden(case, eps)
    source = NormInputSource(case, whole) if "grad_input" in case.actual else None
    totals = np.zeros((4, whole.columns)), np.zeros((4, whole.columns))
    step = max(1, BLOCK_ELEMENTS // max(1, whole.columns))

    def rows(begin: int, end: int) -> _Part:
        columns = whole.columns
        part = _Part({}, Picture(1, 1), 0)
        if source is not None:
            part = _measure(source, standards, begin * columns, end * columns)
        if len(case.actual) > (source is not None):
            part.sums = whole.sums(begin, end)
        return part

    def summed(parts: Iterator[_Part]) -> Iterator[_Part]:
        for part in parts:
            for total, more in zip(totals, part.sums or (), strict=False):
                norm.merge_sums(total, more)
            yield part

    parts = summed(_reporting(map_blocks(rows, whole.rows, step), whole.rows, step, progress))
    found = []
    if source is not None:
        found.append(_whole(source, standards, parts))
    for _ in parts:
        pass
    for name, total in zip(("grad_weight", "grad_bias"), totals, strict=True):
        if name in case.actual:
            target = format_of(case.actual[name].dtype)
            golden = whole.columns_golden(total, target, name == "grad_bias")
            sums = NormSumSource(case, name, golden)
            blocks = map_blocks(partial(_measure, sums, standards), sums.size, BLOCK_ELEMENTS)
            measured = _whole(sums, standards, blocks)
            measured.resolved = golden.resolved
            found.append(measured)
    return found
