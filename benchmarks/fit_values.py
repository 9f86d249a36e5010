"""Find the constants of kernels/cpu/elementwise/values_coefficients.py and print that module.

    python -m benchmarks.fit_values > src/aclnn/kernels/cpu/elementwise/values_coefficients.py

h(a) = a·s(-a) gets a polynomial for each of sixteen segments. Centres are tried at several places of a segment, there
the nearest one at which h is almost a float32. The polynomial is a least-squares fit of (h(centre + r) - c0)/r at
Chebyshev nodes, relative to h; its coefficients are rounded to float32 one after the other, the later ones making up
for the rounding of the earlier. The centre with the smallest error in float32 arithmetic is taken. Needs mpmath; takes
half a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp, mpf

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]

mp.dps = 40
_K1 = 2 * mp.sqrt(2 / mp.pi)


class Task(NamedTuple):
    """What to approximate, on sixteen segments of width 1/per_unit, by polynomials of this degree."""

    name: str
    h: Function
    per_unit: float
    degree: int


TASKS = (
    Task("SILU", lambda a: a / (1 + mp.exp(a)), 1.625, 6),
    Task("FAST_GELU", lambda a: a / (1 + mp.exp(mpf("1.702") * a)), 2.75, 6),
    Task("GELU_ERF", lambda a: a * mp.erfc(a / mp.sqrt(2)) / 2, 3.0, 7),
    Task("GELU_TANH", lambda a: a / (1 + mp.exp(_K1 * (a + mpf("0.044715") * a**3))), 3.25, 7),
)

SEGMENTS = 16
SHIFTS = (0.0, -0.15, 0.15, -0.3, 0.3, 0.38, 0.42, 0.45, 0.48)
"""Where in a segment, in widths from its middle, a centre is looked for."""
GRID = 2.0**-13
"""Centres are multiples of this, so that differences from them are exact."""
SAMPLES = 20_000


class Segment(NamedTuple):
    centre: float
    c0: float
    p: tuple[float, ...]
    worst: float
    """The largest error, in ULP, of the samples."""


def nearest(value: Any) -> float:
    return float(np.float32(float(value)))


def ulp(value: Array) -> Array:
    return np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)


def accurate_centre(h: Function, start: float) -> float:
    """The multiple of the grid nearest to ``start`` with h within 0.01 ULP of a float32, or the best of 320."""

    def distance(centre: float) -> float:
        exact = h(mpf(centre))
        return float(abs(exact - nearest(exact)) / np.spacing(np.float32(exact)))

    middle = round(start / GRID)
    offsets = itertools.chain.from_iterable((n, -n) for n in range(160))
    found = []
    for centre in ((middle + offset) * GRID for offset in offsets):
        found.append((distance(centre), centre))
        if found[-1][0] < 0.01:
            break
    return min(found)[1]


def fit(h: Function, centre: float, edges: tuple[float, float], degree: int) -> tuple[float, tuple[float, ...]]:
    """c0 and p[0], p[1], …: see ``aclnn.kernels.cpu.elementwise.coefficients.Segments``."""
    low, high = edges
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    nodes = nodes[np.abs(nodes - centre) > 1e-7]
    c0 = nearest(h(mpf(centre)))
    r, exact = nodes - centre, [h(mpf(node)) for node in nodes]
    weights = np.abs(r) / np.array([float(value) for value in exact])
    scale, p = np.abs(r).max(), []
    rest = [(value - c0) / mpf(step) for value, step in zip(exact, r, strict=True)]
    for power in range(degree):
        basis = np.stack([(r / scale) ** k for k in range(power, degree)], 1) * weights[:, None]
        wanted = np.array([float(value) for value in rest]) * weights
        leading = np.linalg.lstsq(basis, wanted, rcond=1e-15)[0][0] / scale**power
        p.append(0.5 if centre == power == 0 else nearest(leading))  # h'(0) is 1/2
        rest = [value - p[-1] * mpf(step) ** power for value, step in zip(rest, r, strict=True)]
    return c0, tuple(p)


def fma(a: Array, b: Array, c: Array) -> Array:
    """Rounded to float64 on the way to float32, which changes a result in 2^29 or so."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def computed(a: Array, centre: float, c0: float, p: tuple[float, ...]) -> Array:
    """As ``kernels.cpu.elementwise.values`` computes it."""
    first, *others = (np.float32(value) for value in p)
    r = a - np.float32(centre)
    upper = np.full_like(r, others.pop())
    while others:
        upper = fma(upper, r, others.pop())
    total = fma(upper, r, first)
    return fma(r, total, fma(r, fma(upper, r, first - total), np.float32(c0)))


def best_segment(task: Task, i: int, rng: np.random.Generator) -> Segment:
    width = 1.0 / task.per_unit
    low, high = max(0.0, (i - 0.5) * width), (i + 0.5) * width
    a = rng.uniform(low, high, SAMPLES) if i else high * np.exp(-rng.uniform(0, 5, SAMPLES))
    a = np.sort(a).astype(np.float32)
    exact = np.array([float(task.h(mpf(float(value)))) for value in a])

    def attempt(shift: float) -> Segment:
        centre = accurate_centre(task.h, (i + shift) * width) if i else 0.0
        c0, p = fit(task.h, centre, (low, high), task.degree)
        return Segment(centre, c0, p, float((np.abs(computed(a, centre, c0, p) - exact) / ulp(exact)).max()))

    return min((attempt(shift) for shift in (SHIFTS if i else (0.0,))), key=lambda segment: segment.worst)


def short_hex(value: float) -> str:
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def row(values: Any, indent: str) -> Iterator[str]:
    words = [short_hex(value) for value in values]
    yield f"{indent}hex_row("
    for first in range(0, SEGMENTS, 4):
        space = " " if first + 4 < SEGMENTS else ""
        yield f'{indent}    "{" ".join(words[first : first + 4])}{space}"'
    yield f"{indent})"


def module() -> Iterator[str]:
    yield '"""The constants of the float32 activations: h(a) = a·s(-a) on sixteen segments of equal width, a = abs(x).'
    yield ""
    yield "``python -m benchmarks.fit_values`` finds and prints them; tests/test_values_coefficients.py recomputes the"
    yield "entries in high precision and checks each segment."
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from aclnn.kernels.cpu.elementwise.coefficients import Segments, hex_row"
    for task in TASKS:
        rng = np.random.default_rng(0)
        segments = [best_segment(task, i, rng) for i in range(SEGMENTS)]
        bound = nearest((SEGMENTS - 0.5) / task.per_unit * (1 - 2.0**-16))
        yield ""
        yield f"{task.name} = Segments("
        yield f'    per_unit=float.fromhex("{short_hex(task.per_unit)}"),'
        yield f'    bound=float.fromhex("{short_hex(bound)}"),'
        for field in ("centre", "c0"):
            lines = list(row([getattr(segment, field) for segment in segments], "    "))
            yield f"    {field}={lines[0].strip()}"
            yield from lines[1:-1]
            yield "    ),"
        yield "    p=("
        for power in range(task.degree):
            *lines, last = row([segment.p[power] for segment in segments], "        ")
            yield from lines
            yield last + ","
        yield "    ),"
        yield ")"


if __name__ == "__main__":
    print("\n".join(module()))
