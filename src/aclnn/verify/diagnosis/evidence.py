"""Elements of a wrong output in float64, as examined by the search for its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aclnn.typing import Array
from aclnn.verify.diagnosis.scales import terms_size
from aclnn.verify.goldens.enclosures import in_float64
from aclnn.verify.goldens.values import Function, Golden, Places, map_blocks
from aclnn.verify.number_formats import NumberFormat, quiet
from aclnn.verify.standards.evaluate import KEPT_ELEMENTS, Measured, Source
from aclnn.verify.standards.measures import agree

FEW = 16
"""Minimum number of elements on which a fault must show, if there are that many."""
ENOUGH = 0.9
"""Share of elements for which a fault must account."""
_WINDOW, _WINDOWS = 1 << 12, 32


@dataclass(frozen=True)
class Cause:
    """A fault that accounts for wrong elements."""

    name: str
    text: str
    test: str
    """Observation that would have refuted the fault."""
    elements: int
    share: float
    """Share of all wrong elements."""
    structural: bool = False
    """True if the data are not a result of the requested operation, however imprecise."""


@dataclass(frozen=True)
class Hypothesis:
    """A fault, and the output values that it would cause."""

    name: str
    text: str
    predict: Callable[..., Array]
    exact: bool = False
    """True if the prediction is bit-exact, for the correct elements too."""
    structural: bool = True
    extra: float = 0.05
    """Allowed error of a prediction, as a share of its distance from the exact value."""


class Evidence:
    """Some elements of an output, with derived quantities computed on demand."""

    def __init__(self, source: Source, at: Places, golden: Golden | None = None, certain: bool = True) -> None:
        self.source, self.places = source, at
        self._golden, self._certain = golden, certain
        self._predicted: tuple[Hypothesis | None, Array] = None, np.empty(0)

    @cached_property
    def at(self) -> Array:
        """Return the indices of the elements."""
        return np.arange(self.places.start, self.places.stop) if isinstance(self.places, slice) else self.places

    def some(self, chosen: Array) -> Evidence:
        """Return the marked elements."""
        part = np.flatnonzero(chosen)
        found = Evidence(self.source, self.at[part])
        for name in ("actual", "golden", "operands"):
            value = getattr(self, name)
            if isinstance(value, Golden):
                cut: Any = Golden(value.value[part], value.rounded[part])
            elif isinstance(value, dict):
                cut = {key: array[part] for key, array in value.items()}
            else:
                cut = value[part]
            found.__dict__[name] = cut
        found.__dict__["size"] = self.size[part]
        return found

    @cached_property
    def actual(self) -> Array:
        """Output under test in its own type."""
        return self.source.actual[self.places]

    @cached_property
    def golden(self) -> Golden:
        """Golden values; values of the formula in float64 suffice unless they must be certain."""
        if self._golden is not None:
            return self._golden
        if not self._certain and self.source.whole.names and not self.source.whole.summed:
            value = self.computed(Function.at_points)
            return Golden(value, self.target.round(value))
        return self.source.golden(self.places)

    @cached_property
    def operands(self) -> dict[str, Array]:
        """Operands by Python name, in float64."""
        given = self.source.whole.operands(self.places)
        return {name: values.astype(np.float64) for name, values in given.items()}

    @cached_property
    def target(self) -> NumberFormat:
        """Number format of the output."""
        return self.source.target

    @cached_property
    def a(self) -> Array:
        """Output under test."""
        return self.actual.astype(np.float64)

    @cached_property
    def g(self) -> Array:
        """Golden values."""
        return self.golden.rounded.astype(np.float64)

    @cached_property
    def v(self) -> Array:
        """Exact values."""
        return self.golden.value

    @cached_property
    def x(self) -> Array:
        """First operand that is not a gradient; the exact value if there is none."""
        return next((values for name, values in self.operands.items() if "grad" not in name), self.v)

    @cached_property
    def dy(self) -> Array | None:
        """Incoming gradient, if it has one element per output element."""
        return next((values for name, values in self.operands.items() if "grad" in name), None)

    @cached_property
    def size(self) -> Array:
        """Magnitudes to which rounding errors of terms are relative."""
        return np.maximum(np.abs(self.v), terms_size(self))

    def _sizes(self, some: Array) -> Array:
        """Return these magnitudes for the marked elements."""
        return self.size[some] if "size" in self.__dict__ else Evidence(self.source, self.at[some], certain=False).size

    @cached_property
    def ulp(self) -> Array:
        """Unit in the last place at each exact value."""
        return self.target.ulp(self.v)

    @cached_property
    def error(self) -> Array:
        """|a - v|; infinite if only one is finite, or both are non-finite and differ."""
        error = np.abs(self.a - self.v)
        alike = agree(self.a, self.g)
        return np.where(np.isfinite(self.a) & np.isfinite(self.g), error, np.where(alike, 0.0, np.inf))

    @cached_property
    def wrong(self) -> Array:
        """Elements whose error exceeds that of sound arithmetic."""
        wrong: Array = self.error > self.source.sound_ulp(self.golden) * self.ulp
        return wrong

    @cached_property
    def noise(self) -> Array:
        """Change that rounding every term in float32 may cause."""
        noise: Array = self.source.sound_ulp(self.golden) * self.ulp + 2.0**-20 * self.size
        return noise

    @cached_property
    def outliers(self) -> Array:
        """Wrong elements that rounding terms in float32 does not explain."""
        outliers: Array = self.error > self.noise
        return outliers

    @cached_property
    def differing(self) -> Array:
        """Elements that differ from the exact result rounded once."""
        return ~agree(self.a, self.g)

    def pieces(self, places: Places) -> Iterator[tuple[Any, Function, list[Array], Callable[[Array], Array]]]:
        """Yield ``pieces`` of ``Elementwise`` or ``Rows``, with the operands in float64."""
        for here, function, operands, gather in self.source.whole.pieces(places):
            yield here, function, [in_float64(values) for values in operands.values()], gather

    def computed(self, change: Callable[..., Array]) -> Array:
        """Return the output of a changed evaluation of the formula."""

        @quiet
        def part(begin: int, end: int) -> Array:
            result = np.zeros(end - begin)
            places = self.places if end - begin == size else self.at[begin:end]
            for here, function, operands, gather in self.pieces(places):
                result[here] = gather(change(function, operands))
            return result

        size = self.actual.size
        return np.concatenate([np.empty(0), *map_blocks(part, size, self.source.whole.at_once)])

    def predicted(self, hypothesis: Hypothesis) -> Array:
        """Return the values predicted by a hypothesis; the latest prediction is cached."""
        if self._predicted[0] is not hypothesis:
            self._predicted = hypothesis, hypothesis.predict(self)
        return self._predicted[1]

    def fits(self, hypothesis: Hypothesis) -> Array:
        """Mark elements that agree with the prediction."""
        prediction = self.predicted(hypothesis)
        same = agree(self.a, self.target.round(prediction).astype(np.float64))
        if hypothesis.exact or same.all():
            return same
        distance, allowed = np.abs(self.a - prediction), self._rounded(prediction)
        distance[np.isinf(distance)] = np.nan  # an infinite prediction is infinitely far from the exact value, too
        same |= distance <= allowed
        if not same.all():
            same |= distance <= hypothesis.extra * np.abs(prediction - self.v)
            rest = np.flatnonzero(~same)
            same[rest] = distance[rest] <= allowed[rest] + 2.0**-21 * self._sizes(rest)
        return same

    def distinguishable(self, hypothesis: Hypothesis) -> Array:
        """Mark elements at which the prediction differs noticeably from the exact value."""
        prediction = self.predicted(hypothesis)
        rounded = self.target.round(prediction).astype(np.float64)
        if hypothesis.exact:
            return ~agree(rounded, self.g)
        apart = np.abs(prediction - self.v) > (2.0 if self._sixteen else 4.0) * self._allowed(prediction)
        distinguishable: Array = apart | (np.isfinite(self.g) != np.isfinite(rounded))
        return distinguishable

    @property
    def _sixteen(self) -> bool:
        return self.target.name != "float32"

    def _rounded(self, prediction: Array) -> Array:
        allowed: Array = (1.05 if self._sixteen else 2.0) * self.target.ulp(prediction)
        return allowed

    def _allowed(self, prediction: Array) -> Array:
        allowed: Array = self._rounded(prediction) + 2.0**-21 * self.size
        return allowed


@dataclass(frozen=True)
class Finding:
    """A fault, the observation that would refute it, and a marker of the elements it explains."""

    name: str
    text: str
    test: str
    explains: Callable[..., Array]
    structural: bool = True


def sample_of(measured: Measured) -> Evidence:
    """Return the whole output; for a large one, windows at the worst element, at wrong elements, and in between."""
    source, size = measured.source, measured.source.size
    read = source.whole.read
    if measured.golden is not None and size * read <= KEPT_ELEMENTS:
        return Evidence(source, slice(0, size), measured.golden)
    every = np.linspace(0, size - 1, _WINDOWS // 4).astype(np.int64)
    centres = [*every.tolist(), measured.picture.worst or 0, *_wrong_places(measured, _WINDOWS - every.size)]
    places = source.whole.positions(np.array(centres)).tolist()
    window = min(_WINDOW, max(1, 8 * _WINDOW // read))
    starts = sorted({max(0, min(c - window // 2, size - window)) // window for c in places})
    chosen = np.concatenate([np.arange(s * window, min(size, (s + 1) * window)) for s in starts])
    at = source.whole.row_by_row(chosen)
    known = measured.golden
    return Evidence(source, at, None if known is None else Golden(known.value[at], known.rounded[at]))


def _wrong_places(measured: Measured, count: int) -> list[int]:
    """Return evenly chosen indices of wrong elements."""
    stretches = measured.wrong
    if not stretches:
        return []
    chosen = []
    for k in range(count):
        begin, end, bits = stretches[k * len(stretches) // count]
        wrong = np.flatnonzero(np.unpackbits(bits, count=end - begin))
        chosen.append(begin + int(wrong[(k * 7919) % wrong.size]))
    return chosen
