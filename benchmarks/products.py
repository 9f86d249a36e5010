"""Gradients of random dy: the error of dy·f'(x) in float32, float16 and bfloat16, in units of the result's last place.

``benchmarks.exhaustive`` runs this; ``exhaustive_products.csv`` has a row per derivative, data type and provider.

dy is a random bit pattern, hence of any magnitude, and sometimes infinite or NaN. 16-bit x are uniform over all
numbers; of float32 x, half are random bit patterns and half lie where f' is curved.

Exact products have a relative error of 2^-32 from the derivative (``reference``) and of 2^-53 from the product in
float64, together at most 2^-8 units of float32 and 2^-21 units of float16. dy·f'(x) is between 10^-145 and 10^39,
where float64 is normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from rich.progress import Progress

from aclnn.verify.number_formats import FORMATS, NumberFormat
from benchmarks.candidates import Candidate, candidates
from benchmarks.references import FORMULAS, Array, reference
from benchmarks.tallies import spread

NAMES = {f"{name}_products": name for name in FORMULAS}
SEED = 20260217
BLOCK = 1 << 20
BLOCKS = 112
"""Number of blocks, for 10^8 finite pairs even in float16, where 1/32 of the patterns is infinite or NaN."""
PART = 1 << 15
BENDS = (2.0**-12, 256.0)
"""Range of |x| where the derivatives are neither linear nor at their limits."""


class Pairs(NamedTuple):
    """Random inputs with the exact derivatives."""

    x: Array
    dy: Array
    exact: Array


@cache
def _derivatives(name: str, target: NumberFormat) -> Array:
    """Return the exact derivatives at every 16-bit x, by bit pattern."""
    patterns = np.arange(1 << 16, dtype=np.uint16).view(target.dtype.numpy)
    return reference(name, patterns)


def _wide(array: Array) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return array.astype(np.float64)


def pairs(name: str, target: NumberFormat, block: int) -> Pairs:
    """Generate a block's pairs, reproducibly."""
    rng = np.random.default_rng([SEED, block])
    kind = target.dtype.numpy
    dy = np.frombuffer(rng.bytes(BLOCK * kind.itemsize), kind)
    if kind.itemsize == 2:
        every = np.tile(np.arange(1 << 16, dtype=np.uint16), BLOCK >> 16)
        return Pairs(every.view(kind), dy, np.tile(_derivatives(name, target), BLOCK >> 16))
    first, last = np.array(BENDS, kind).view(np.uint32)
    bent = rng.integers(first, last, BLOCK // 2, np.uint32) | rng.integers(0, 2, BLOCK // 2, np.uint32) << np.uint32(31)
    x = np.concatenate([np.frombuffer(rng.bytes(2 * BLOCK), kind), bent.view(kind)])
    return Pairs(x, dy, reference(name, x))


@numba.njit(nogil=True, cache=True)
def score(
    dy: Array, exact: Array, got: Array, x: Array, form: tuple[int, int, int], counts: Array, worst: Array
) -> None:
    """Add the errors of finite pairs, all float64, to ``counts``: pairs, errors above 0.5 and 1 units, NaN.

    ``form`` has the format's digits, least and greatest exponent. As in rounding, an infinite result, and every exact
    product beyond the largest number, counts as the next power of two. ``worst`` has (error, x, dy).
    """
    digits, least, greatest = form
    ceiling = 2.0 ** (greatest + 1)
    for i in range(dy.size):
        if not (math.isfinite(dy[i]) and math.isfinite(x[i])):
            continue
        counts[0] += 1
        if math.isnan(got[i]):
            counts[3] += 1
            continue
        product = dy[i] * exact[i]
        if abs(product) >= ceiling:
            product = math.copysign(ceiling, product)
        rounded = math.copysign(min(abs(got[i]), ceiling), got[i])
        exponent = min(max(math.frexp(product)[1] - 1, least), greatest)
        error = math.ldexp(abs(rounded - product), digits - 1 - exponent)
        counts[1] += error > 0.5
        counts[2] += error > 1.0
        if error > worst[0]:
            worst[0], worst[1], worst[2] = error, x[i], dy[i]


@dataclass
class Tally:
    """Counts of a provider's errors in random products."""

    counts: Array = field(default_factory=lambda: np.zeros(4, np.int64))
    worst: Array = field(default_factory=lambda: np.array([-1.0, np.nan, np.nan]))

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        if other.worst[0] > self.worst[0]:
            self.worst = other.worst

    def take(self, provider: Candidate, found: Pairs, target: NumberFormat) -> None:
        """Compute some pairs and add their errors."""
        got = _wide(provider(found.x, found.dy))
        form = target.digits, target.least_exponent, target.greatest_exponent
        score(_wide(found.dy), found.exact, got, _wide(found.x), form, self.counts, self.worst)


def walk(name: str, target: NumberFormat, blocks: int, workers: int, progress: Progress) -> dict[str, Tally]:
    providers = candidates(name)

    def assess(block: int) -> dict[str, Tally]:
        found = {label: Tally() for label in providers}
        drawn = pairs(name, target, block)
        for begin in range(0, BLOCK, PART):
            part = Pairs(*(array[begin : begin + PART] for array in drawn))
            for label, tally in found.items():
                tally.take(providers[label], part, target)
        return found

    return spread(assess, range(blocks), workers, progress, f"{name} {target.name}")


HEADER = (
    "operator", "dtype", "provider", "pairs", "worst_ulp", "worst_x", "worst_dy", "above_half", "above_1", "broken"
)  # fmt: skip


def rows(name: str, quick: bool, workers: int, progress: Progress) -> list[tuple[object, ...]]:
    """Return a derivative's rows of the table."""
    lines: list[tuple[object, ...]] = []
    for target in FORMATS.values():
        for label, tally in walk(name, target, 1 if quick else BLOCKS, workers, progress).items():
            pairs_, half, one, broken = tally.counts.tolist()
            error, x, dy = tally.worst.tolist()
            lines.append((name, target.name, label, pairs_, f"{error:.5g}", f"{x:.9g}", f"{dy:.9g}", half, one, broken))
    return lines
