"""Print the polynomials of ``aclnn.kernels.cpu.elementwise.functions``: python -m tools.fit_words.

Each polynomial interpolates its function at Chebyshev nodes. Its coefficients are printed from the highest power to the
lowest, with the largest relative error over 2,001 points after rounding the coefficients to float64.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import mpmath as mp

Function = Callable[[Any], Any]


def interpolate(f: Function, low: Any, high: Any, degree: int) -> list[float]:
    """Return the coefficients of the interpolating polynomial, lowest power first."""
    n = degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    powers = mp.matrix([[node**j for j in range(n)] for node in nodes])
    return [float(c) for c in mp.lu_solve(powers, mp.matrix([f(node) for node in nodes]))]


def worst(f: Function, low: Any, high: Any, coefficients: list[float]) -> float:
    """Return the largest relative error of a polynomial."""
    points = [low + (high - low) * k / mp.mpf(2000) for k in range(2001)]
    return max(float(abs(mp.polyval(coefficients[::-1], x) / f(x) - 1)) for x in points)


def exponential(r: Any) -> Any:
    """(e^r - 1 - r) / r²."""
    return (mp.expm1(r) - r) / r**2 if r else mp.mpf(1) / 2


def logarithm(z: Any) -> Any:
    """(2·artanh(s)/s - 2) / z with z = s²."""
    return (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z if z else mp.mpf(2) / 3


def error_function(z: Any) -> Any:
    """erf(x)/x with z = x²."""
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) if z else 2 / mp.sqrt(mp.pi)


def complement(t: Any) -> Any:
    """(e^(a²)·erfc(a)·(1 + 2a) - 1) / (t + 1) with t = (a - 4)/(a + 4)."""
    t = t if t + 1 else mp.mpf(2) ** -100 - 1
    a = 4 * (1 + t) / (1 - t)
    return (mp.exp(a * a) * mp.erfc(a) * (1 + 2 * a) - 1) / (t + 1)


def main() -> None:
    """Print every polynomial."""
    mp.mp.prec = 1200  # enough bits for the cancellation of e^(28²)
    reach = mp.log(2) / 16 * mp.mpf("1.001")
    widest = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
    for f, low, high, degree in (
        (exponential, -reach, reach, 5),
        (logarithm, mp.mpf(0), widest, 7),
        (logarithm, mp.mpf(0), mp.mpf(1) / 9, 9),
        (error_function, mp.mpf(0), mp.mpf(1) / 4, 8),
        (complement, mp.mpf(-1), mp.mpf(24) / 32, 20),
    ):
        found = interpolate(f, low, high, degree)
        print(f"{f.__doc__}: worst {worst(f, low, high, found):.2g}")
        print(textwrap.fill(" ".join(coefficient.hex() for coefficient in reversed(found)), 112))


if __name__ == "__main__":
    main()
