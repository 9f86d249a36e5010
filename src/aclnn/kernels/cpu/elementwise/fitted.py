"""Fitted versions of functions on float32 lanes (piecewise polynomials or other operations), and their products."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.formula import Fitted, Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.elementwise.general import Source, on_float32
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.tables import horner, horner_from, table
from aclnn.kernels.cpu.simd.vector import absolute, any_lane, bits, fma, from_bits, select, where_negative
from aclnn.kernels.fitted import (
    CENTRE_CARRIES,
    LAST_CARRIES,
    SIGNED_FROM,
    Bounded,
    Segments,
    ShortSegments,
    adds_to_first,
    both_signs,
    reach,
    slope,
    version,
)
from aclnn.kernels.products import Products, lines, pattern
from aclnn.kernels.trace import Program

_ROUND = 1.5 * 2.0**23
"""Adding this to a small float32 leaves the nearest integer in the low bits."""

_inlined = register_jitable(forceinline=True)


class Fast(NamedTuple):
    """A function f on any number of float32 lanes, valid for abs(x) up to a bound."""

    function: Any
    bound: float
    overflows: bool = False
    """True if f may exceed float32 beyond the bound, so that the formula itself is evaluated there."""


@lru_cache(maxsize=512)  # Numba never releases a registered function
def fast(formula: Formula, dtype: DataType) -> Fast | None:
    """Return the fitted version of a function, or of a gradient's derivative, for x of a data type."""
    function = formula.derivative if isinstance(formula, Gradient) else formula
    if not isinstance(function, Fitted):
        return None
    if function.mirrored is not None:
        other = fast(function.mirrored, dtype)
        return other and Fast(_mirrored(other.function, function.negated), other.bound)
    if (found := version(function, dtype)) is None:
        return None
    if isinstance(found, Segments):
        return Fast(_by_segments(found, function), reach(found, function.symmetry))
    if isinstance(found, ShortSegments):
        return Fast(_by_short_segments(found), found.bound)
    return Fast(on_float32(found.operations), found.bound, overflows=True) if isinstance(found, Bounded) else None


def operations(formula: Formula, dtype: DataType) -> Formula | None:
    """Return a formula of float32 lanes with the same values for all x of a data type, if there is one."""
    function = formula.derivative if isinstance(formula, Gradient) else formula
    found = version(function, dtype) if isinstance(function, Fitted) and function.mirrored is None else None
    if found is None or isinstance(found, Segments | ShortSegments | Bounded):
        return None
    return Gradient(found) if isinstance(formula, Gradient) else found


def write_products(products: Products, source: Source, program: Program) -> dict[str, Any]:
    """Write operations that compute a program's results by products; return the values of names in them.

    Lanes are float32. Results for which that is not accurate enough are evaluated in float64 instead.
    """
    source(*lines(products, lambda value: f"{value.function.__name__}({value.operand})"))
    source.outside("outside")
    source(f"{', '.join(program.results)} = {', '.join(products.results)}")
    found = dict[str, Any]()
    for value in products.values:
        assert value.segments is not None
        found[value.function.__name__] = _by_segments(value.segments, value.function, in_two=True)
    return found


def write(formula: Formula, dtype: DataType, source: Source, program: Program) -> dict[str, Any]:
    """Write operations that compute a function, or a gradient, by the fitted version; see ``general.Instead``."""
    found = fast(formula, dtype)
    assert found is not None
    (result,), x = program.results, f"x{program.arity - 1}"
    size, bound = f"bits(absolute({x}))", pattern(found.bound)
    source.outside(f"{bound} - {size}", f"any_above({size}, {bound})")
    source(f"{result} = {'x0 * ' if isinstance(formula, Gradient) else ''}fitted({x})")
    return {"fitted": found.function}


def _mirrored(function: Any, negated: bool) -> Any:
    return _inlined((lambda x: -function(-x)) if negated else (lambda x: function(-x)))


_HALVES = {
    "1-f": _inlined(lambda x, g: where_negative(x, g, 1.0 - g)),
    "x+f": _inlined(lambda x, g: select(bits(x) < 0, -0.0, x) - g),
    "odd": _inlined(lambda x, g: where_negative(x, g, -g)),
    "even": _inlined(lambda x, g: g),
}
"""f(x) in terms of x and g(a), by symmetry."""
_SUMS: dict[str, Any] = {
    "neither": _inlined(lambda x, g, rest: g + rest),
    # Correct for negative zero too.
    "x*neither": _inlined(lambda x, g, rest: fma(x, g, -fma(-x, rest, 0.0))),
}


@_inlined
def _less_in_two(minuend: Any, g: Any) -> Any:
    difference = minuend - g[0]
    return difference, ((minuend - difference) - g[0]) - g[1]


@_inlined
def _where_negative_in_two(x: Any, chosen: Any, otherwise: Any) -> Any:
    return where_negative(x, chosen[0], otherwise[0]), where_negative(x, chosen[1], otherwise[1])


@_inlined
def _select_in_two(mask: Any, chosen: Any, otherwise: Any) -> Any:
    return select(mask, chosen[0], otherwise[0]), select(mask, chosen[1], otherwise[1])


_HALVES_IN_TWO = {
    "1-f": _inlined(lambda x, g: _where_negative_in_two(x, g, _less_in_two(1.0, g))),
    "x+f": _inlined(lambda x, g: _less_in_two(select(bits(x) < 0, -0.0, x), g)),
    "odd": _inlined(lambda x, g: _where_negative_in_two(x, g, (-g[0], -g[1]))),
    "even": _inlined(lambda x, g: g),
}
"""As ``_HALVES``, with g and f(x) as sums of two float32."""


def _linear(bound: float, first: float, rest: float) -> tuple[Any, Any]:
    """Return functions giving a from x, and f(x) from x and g(a), for an f with slope ``first + rest`` above 0."""

    @_inlined
    def below_zero(x: Any) -> Any:
        a = select(-x > bound, bound, -x)
        return select(a < 0.0, 0.0, a)

    @_inlined
    def with_line(x: Any, g: Any) -> Any:
        line = select(bits(x) < 0, -0.0, x)
        return fma(line, first, line * rest - g) if rest else line * first - g

    return below_zero, with_line


def _by_segments(segments: Segments, function: Fitted, in_two: bool = False) -> Any:
    """Return f(x) (see ``Segments``), or two float32 with that sum, the first nearly the one nearest to it.

    With look-ups of eight entries, lanes beyond the eighth segment need a second pass.
    """
    count, symmetry = len(segments.centre), function.symmetry or "even"
    summed, signed = adds_to_first(segments, symmetry), both_signs(symmetry)
    first = count if target.has_wide_registers() else 8
    near, far = (_polynomials(segments, some, symmetry, in_two) for some in (slice(first), slice(count - 8, count)))
    per_unit, twice = segments.per_unit, first < count
    halves, choose = (_HALVES_IN_TWO, _select_in_two) if in_two else (_HALVES, select)
    side, start = (_inlined(lambda x: x), _ROUND + SIGNED_FROM) if signed else (absolute, _ROUND)
    if symmetry == "linear":
        side, other_half = _linear(segments.bound, *slope(function))
    else:
        other_half = halves["even" if summed or signed else symmetry]

    @_inlined
    def by_segments(x: Any) -> Any:
        a = side(x)
        i = bits(fma(a, per_unit, start))
        g = near(x, a, i)
        if twice:
            beyond = (i & 8) != 0
            if any_lane(beyond):
                g = choose(beyond, far(x, a, i), g)
        return other_half(x, g)

    return by_segments


def _polynomials(segments: Segments, some: slice, symmetry: str, in_two: bool) -> Any:
    """Evaluate g(a), or f(x) if possible, by some of the segments, for the lanes within them."""
    summed, signed = adds_to_first(segments, symmetry), both_signs(symmetry)
    of_two: Any = _SUMS.get(symmetry)
    p_rest = segments.rest
    centre, c0, p0 = (table(*row[some]) for row in (segments.centre, segments.c0, segments.p[0]))
    rest = horner(*(row[some] for row in reversed(segments.p[1:])))

    @_inlined
    def polynomial(x: Any, a: Any, i: Any) -> Any:
        r = a - centre(i)
        upper = rest(i, r)
        p = fma(upper, r, p0(i))
        lost = fma(upper, r, p0(i) - p)
        c = c0(i)
        if signed:
            # Next to a zero of f, c is the smaller term, and c - g is rounded.
            g = fma(r, p, c)
            return of_two(x, g, fma(r, p, c - g) + fma(r, lost + p_rest, c - ((c - g) + g)))
        if in_two:
            g = fma(r, p, c)
            return g, fma(r, lost, fma(r, p, c - g))
        if summed:
            whole, negative = a - c, bits(x) < 0
            start = select(negative, c, (whole + c) - a)
            return select(negative, -0.0, whole) - fma(r, p, fma(r, lost, start))
        return fma(r, p, fma(r, lost, c))

    return polynomial


def _by_short_segments(segments: ShortSegments) -> Any:
    """Return f(x) for 16-bit x."""
    per_unit, shift = segments.per_unit, segments.shift
    *others, third = segments.c
    centre, last = table(*segments.centre), table(*third)
    rest = horner_from(*reversed(others))
    to_second, to_first = 32 - CENTRE_CARRIES, 32 - LAST_CARRIES

    @_inlined
    def function(x: Any) -> Any:
        shifted = x + shift if shift else x
        i = bits(fma(shifted, per_unit, _ROUND))
        middle, upper = centre(i), last(i)
        r = x - middle
        first, second = from_bits(bits(upper) << to_first), from_bits(bits(middle) << to_second)
        return rest(fma(fma(first, r, second), r, upper), i, r)

    return function
