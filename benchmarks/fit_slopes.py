"""Find the outer segments of SiLU and FastGELU in kernels/cpu/elementwise/coefficients.py, and print their rows.

    python -m benchmarks.fit_slopes

The inner eight segments of all four functions are numbers given to the project; the outer eight continue them. The
centre is the multiple of 2^-13 nearest to the middle at which g is almost a float32. The polynomial in r = a - centre
approximates (g(a) - g(centre))/r, relative to g, by least squares that are reweighted towards the largest error
(Lawson); its coefficients are rounded to float32 one after the other, the later ones making up for the rounding of the
earlier. Needs mpmath; takes half a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from mpmath import mp, mpf

from aclnn.kernels.cpu.elementwise import coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Segments

mp.dps = 50
Function = Callable[[Any], Any]
TERMS = 7
NODES = 60
ROUNDS = 6
TASKS = (("SILU", mpf(1), coefficients.SILU), ("FAST_GELU", mpf("1.702"), coefficients.FAST_GELU))


def slope(kappa: Any) -> Function:
    """g(a) = f(-a), f being the derivative of x/(1 + e^(-κx))."""

    def g(a: Any) -> Any:
        e = mp.exp(-kappa * a)
        return e * (1 + e - kappa * a) / (1 + e) ** 2

    return g


def nearest(value: Any) -> Any:
    """Rounded to 24 bits."""
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, 24)), int(exponent) - 24)


def in_ulp(error: Any, of: Any) -> Any:
    return abs(error) / mp.ldexp(1, int(mp.frexp(of)[1]) - 24)


def accurate_centre(g: Function, middle: Any) -> Any:
    """The multiple of 2^-13 nearest to the middle with g within 0.01 ULP of a float32, or the best of 480."""
    start, found = int(mp.nint(mp.ldexp(middle, 13))), []
    for offset in itertools.chain.from_iterable((n, -n) for n in range(240)):
        centre = mp.ldexp(start + offset, -13)
        exact = g(centre)
        found.append((in_ulp(exact - nearest(exact), exact), abs(offset), centre))
        if offset <= 0 and min(found)[0] < 0.01:
            break
    return min(found)[2]


def leading_coefficient(basis: list[list[Any]], wanted: list[Any], weights: list[Any]) -> Any:
    """Of the reweighted least-squares fit."""
    emphasis = [mpf(1)] * len(wanted)
    for _ in range(ROUNDS):
        scale = [weight * mp.sqrt(more) for weight, more in zip(weights, emphasis, strict=True)]
        a = mp.matrix([[s * value for value in row] for s, row in zip(scale, basis, strict=True)])
        b = mp.matrix([s * value for s, value in zip(scale, wanted, strict=True)])
        solution = mp.lu_solve(a.T * a, a.T * b)
        errors = [
            abs(weight * (value - mp.fdot(row, solution)))
            for weight, value, row in zip(weights, wanted, basis, strict=True)
        ]
        largest = max(errors)
        emphasis = [max(old * error / largest, mpf("1e-8")) for old, error in zip(emphasis, errors, strict=True)]
    return solution[0]


def fit(g: Function, segments: Segments, i: int) -> list[Any]:
    """The centre, c0, p[0] … of segment i."""
    width = 1 / mpf(segments.per_unit)
    centre = accurate_centre(g, i * width)
    low = (i - mpf(1) / 2) * width * (1 - mpf(2) ** -20) - centre
    high = (i + mpf(1) / 2) * width * (1 + mpf(2) ** -20) - centre
    series = mp.taylor(g, centre, 26)[1:][::-1]
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * j + 1) / (2 * NODES)) for j in range(NODES)]
    weights = [abs(r) / abs(g(centre + r)) + mpf("1e-3") / abs(g(centre)) for r in nodes]
    p: list[Any] = []
    for power in range(TERMS):
        basis = [[r**k for k in range(power, TERMS)] for r in nodes]
        wanted = [mp.polyval(series, r) - mp.polyval(p[::-1] or [0], r) for r in nodes]
        p.append(nearest(leading_coefficient(basis, wanted, weights)))
    return [centre, nearest(g(centre)), *p]


def short_hex(value: Any) -> str:
    mantissa, _, exponent = float(value).hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def main() -> None:
    for name, kappa, segments in TASKS:
        columns = [fit(slope(kappa), segments, i) for i in range(8, 16)]
        labels = ("centre", "c0", *(f"p{k}" for k in range(TERMS)))
        for label, row in zip(labels, zip(*columns, strict=True), strict=True):
            print(name, label, *map(short_hex, row))


if __name__ == "__main__":
    main()
