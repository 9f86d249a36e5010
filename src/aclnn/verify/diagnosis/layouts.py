"""Results or operands in an order other than their shape's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from aclnn.typing import Array
from aclnn.verify.diagnosis.evidence import ENOUGH, Evidence, Hypothesis
from aclnn.verify.goldens.values import Elementwise
from aclnn.verify.standards.evaluate import Source

Movement = Callable[[Array], Array]
"""Map from elements' indices to the indices of the elements found there."""

_PROBES, _REACH = 24, 1 << 14
_WHOLE = 1 << 21


def layouts(evidence: Evidence, searched: Evidence, struck: Array) -> Iterator[Hypothesis]:
    """Yield results, or one of several operands, transposed, reversed, rolled, or in a device format."""
    source = evidence.source
    if source.size < 4:
        return
    result = _values(evidence)
    if result is None:
        return
    moved: list[tuple[str, Callable[..., Array]]] = [("the result is", lambda e, m: result(m(e.at)))]
    if isinstance(source.whole, Elementwise):
        names = list(source.whole.names)
        if len(names) > 1:
            moved += [(f"{name} alone is", _operand(source, k)) for k, name in enumerate(names)]
    for what, values in moved:
        for how, movement in (*_movements(source.shape), *_rolls(searched, struck, values)):
            yield Hypothesis("moved-data", f"{what} {how}", lambda e, v=values, m=movement: v(e, m))


def _values(evidence: Evidence) -> Callable[[Array], Array] | None:
    """Return the exact values as a function of the index, in float64."""
    source = evidence.source
    if isinstance(source.whole, Elementwise):

        def at(index: Array) -> Array:
            return Evidence(source, index, certain=False).v

        return at
    if evidence.v.size == source.size:
        return lambda index: evidence.v[index]
    if source.size > _WHOLE:
        return None
    every = source.elements(0, source.size).golden.value
    return lambda index: every[index]


def _operand(source: Source, which: int) -> Callable[[Evidence, Movement], Array]:
    def values(evidence: Evidence, movement: Movement) -> Array:
        other = [*Evidence(source, movement(evidence.at)).operands.values()][which]
        result = np.empty(evidence.a.size)
        for here, function, operands, _ in evidence.pieces(evidence.places):
            operands[which] = other[here]
            result[here] = function.at_points(operands)
        return result

    return values


def _movements(shape: tuple[int, ...]) -> Iterator[tuple[str, Movement]]:
    size = math.prod(shape)
    if size < 4:
        return
    yield "reversed as a whole", lambda i: size - 1 - i
    for axis, extent in enumerate(shape):
        if 1 < extent < size:
            yield f"reversed along dimension {axis}", _flipped(shape, axis)
    rank = len(shape)
    for a, b in combinations(range(rank), 2):
        if shape[a] > 1 < shape[b]:
            order = list(range(rank))
            order[a], order[b] = b, a
            name = " (its last two)" if (a, b) == (rank - 2, rank - 1) else ""
            yield f"transposed in dimensions {a} and {b}{name}", _ordered(shape, order)
            yield f"read as if dimensions {a} and {b} were transposed", _ordered(shape, order, back=True)
    if rank >= 3 and shape[1] > 1 and size > shape[0] * shape[1]:
        order = [0, *range(2, rank), 1]
        yield "in NHWC order (channels last)", _ordered(shape, order)
        yield "read as if it were in NHWC order", _ordered(shape, order, back=True)
        for c0 in (16, 32, 8):
            if shape[1] % c0 == 0 and shape[1] > c0:
                split = (shape[0], shape[1] // c0, c0, *shape[2:])
                order = [0, 1, *range(3, rank + 1), 2]
                yield f"in NC1HWC0 order (C0 = {c0})", _ordered(split, order)
                yield f"read as if it were in NC1HWC0 order (C0 = {c0})", _ordered(split, order, back=True)
            elif shape[1] == c0:
                break
    if rank >= 2:
        m, n = shape[-2:]
        for n0 in (16, 32, 8):
            if m % 16 == 0 and n % n0 == 0 and n > n0:
                split = (*shape[:-2], m // 16, 16, n // n0, n0)
                lead = list(range(rank - 2))
                order = [*lead, rank, rank - 2, rank - 1, rank + 1]
                yield f"in FRACTAL_NZ order (16 × {n0} blocks)", _ordered(split, order)
                yield f"read as if it were in FRACTAL_NZ order (16 × {n0} blocks)", _ordered(split, order, back=True)


def _flipped(shape: tuple[int, ...], axis: int) -> Movement:
    inner, extent = math.prod(shape[axis + 1 :]), shape[axis]
    return lambda i: i + (extent - 1 - 2 * (i // inner % extent)) * inner


def _ordered(shape: tuple[int, ...], order: list[int], back: bool = False) -> Movement:
    turned = tuple(shape[k] for k in order)

    def forward(i: Array) -> Array:
        at = np.unravel_index(i, turned)
        return np.asarray(np.ravel_multi_index([at[order.index(k)] for k in range(len(shape))], shape))

    def backward(i: Array) -> Array:
        at = np.unravel_index(i, shape)
        return np.asarray(np.ravel_multi_index([at[k] for k in order], turned))

    return backward if back else forward


def _rolls(
    searched: Evidence, struck: Array, values: Callable[[Evidence, Movement], Array]
) -> Iterator[tuple[str, Movement]]:
    """Yield the smallest shift that explains most of a few elements; none if too many shifts do."""
    size = searched.source.size
    magnitude = np.where(struck & np.isfinite(searched.a), np.abs(searched.a), 0.0)
    large = np.flatnonzero(magnitude >= np.median(magnitude[struck])) if struck.any() else np.empty(0, int)
    large = large[magnitude[large] > 0.0]
    if large.size < 4 or not searched.operands:
        return
    chosen = np.zeros(searched.a.size, bool)
    chosen[large[np.linspace(0, large.size - 1, min(_PROBES, large.size)).astype(int)]] = True
    few = searched.some(chosen)
    reach = min(_REACH, size // 2)
    shifts = np.arange(-reach, reach + 1)
    votes = np.zeros(shifts.size, int)
    for k in range(few.a.size):
        one = Evidence(searched.source, np.repeat(few.at[k : k + 1], shifts.size))
        predicted = values(one, lambda i: (i - shifts) % size)
        units = 16.0 if searched.target.name == "float32" else 1.01
        allowed = units * searched.target.ulp(few.a[k : k + 1])
        votes += np.abs(predicted - few.a[k]) <= allowed
    fitting = shifts[(votes >= ENOUGH * few.a.size) & (shifts != 0)]
    if 0 < fitting.size <= max(2, reach // 4):
        shift = int(fitting[np.argmin(np.abs(fitting))])
        yield f"shifted by {shift} elements", lambda i: (i - shift) % size
