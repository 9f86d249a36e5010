"""Functions of formulas over rows in float32 lanes, within the bounds of docs/numerics-rows.md.

An operator's formula asks for them by ``@fitted()``. Elements are float32 lanes. Row-constant operands, such as the
row's maximum ``top``, are float64 lanes, and LLVM hoists what depends on them alone out of the loop over elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from aclnn.kernels.cpu.elementwise.functions import exp
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.reductions.rewrites import PRODUCT_SUM, RUN_SUM
from aclnn.kernels.cpu.simd.doubles import choose, narrow, widen
from aclnn.kernels.cpu.simd.tables import table
from aclnn.kernels.cpu.simd.vector import absolute, any_lane, bits, fma, from_bits, select
from aclnn.kernels.trace import REDUCTIONS, Program, Step

_ROUND = 1.5 * 2.0**23
"""Added to a small float32, it rounds that to an integer, in the low bits of the sum."""
_PER_EIGHTH = float(np.float32(8.0 / math.log(2.0)))
_EIGHTH = float(np.float32(math.log(2.0) / 8.0))
_REST = float(np.float32(math.log(2.0) / 8.0 - _EIGHTH))
_SCALE, _LOWEST = 64, -105.0
"""Powers that are divided by their sum are scaled by 2^64, their exponents clamped to at least -105.

Their two parts, and those of the sum's inverse, are then normal numbers: subnormal ones may take a hundred times as
long.
"""
_START, _UNSCALED = _ROUND + 8.0 * _SCALE, 2.0**-_SCALE
_NOTHING = 2.0 ** (_SCALE - 151)
"""Scaled powers below this have a share that rounds to 0."""
_BENEATH_SCALE, _BENEATH_LOWEST = 100, -130.0
"""Powers of elements below the maximum, for the logarithm of 1 plus their sum, are scaled by 2^100, their exponents
clamped to at least -130: the sum of 2^28 such powers is still smaller than any float32."""
_BENEATH_START, _BENEATH_UNSCALED = _ROUND + 8.0 * _BENEATH_SCALE, 2.0**-_BENEATH_SCALE
_MOST_EXPONENT = 86.0
"""Largest magnitude of an exponent for which the power of e and its inverse are normal numbers."""
_FAR = 256.0
"""Magnitude of a row's maximum from which on differences from it are exact where they matter."""
_HALF, _THIRD, _FOURTH = 0.5, float.fromhex("0x1.555c7cp-3"), float.fromhex("0x1.554834p-5")
_SHORT_HALF, _SHORT_THIRD = float.fromhex("0x1.00087cp-1"), float.fromhex("0x1.555658p-3")
"""Coefficients of (e^r - 1 - r) / r² for abs(r) ≤ ln 2 / 16."""


def _lacking(numbers: Iterable[float]) -> Any:
    """Return a table of eight float32, j·2^20 subtracted from the bits of entry j: ``_scaled`` adds it with a scale."""
    patterns = np.array(list(numbers), np.float32).view(np.int32) - (np.arange(8, dtype=np.int32) << 20)
    return table(*patterns.view(np.float32).tolist())


_NEAREST = [float(np.float32(2.0 ** (j / 8))) for j in range(8)]
_POWERS = _lacking(_NEAREST)
_RESTS = _lacking([2.0**-33, *(2.0 ** (j / 8) - _NEAREST[j] for j in range(1, 8))])
"""The rounding errors of the powers; 2^-33 instead of the first, because 0 cannot be scaled by its exponent."""

_inlined = register_jitable(forceinline=True)


@_inlined
def _scaled(entry: Any, pattern: Any) -> Any:
    return from_bits(bits(entry) + (pattern << 20))


@_inlined
def _grown(shifted: Any, r: Any) -> Any:
    """Return two parts of e^r·2^(k/8), where the low bits of ``shifted`` are k."""
    t = fma(r * r, fma(fma(r, _FOURTH, _THIRD), r, _HALF), r)
    pattern = bits(shifted)
    a = _scaled(_POWERS(pattern), pattern)
    return a, fma(a, t, _scaled(_RESTS(pattern), pattern))


@_inlined
def _grown_in_one(shifted: Any, r: Any) -> Any:
    """Return e^r·2^(k/8), where the low bits of ``shifted`` are k, for 16-bit results."""
    pattern = bits(shifted)
    a = _scaled(_POWERS(pattern), pattern)
    return fma(a, fma(r * r, fma(r, _SHORT_THIRD, _SHORT_HALF), r), a)


@_inlined
def _shifted(x: Any, top: Any, lowest: float) -> Any:
    """Return x and top less a common shift, x clamped to at least top + ``lowest``; and top in eighths of ln 2."""
    top = narrow(top)
    shift = select(absolute(top) < _FAR, 0.0, top)
    base = top - shift
    x = x - shift
    x = select(x < base + lowest, base + lowest, x)
    return x, base, fma(base, _PER_EIGHTH, _ROUND) - _ROUND


@_inlined
def _parts(x: Any, top: Any) -> Any:
    """Return two parts of e^(x - top)·2^64, times a row-constant factor between 2^(-1/16) and 2^(1/16)."""
    x, _, steps = _shifted(x, top, _LOWEST)
    start = _START - steps
    shifted = fma(x, _PER_EIGHTH, start)
    k = shifted - start
    return _grown(shifted, fma(k, -_REST, fma(k, -_EIGHTH, x)))


@_inlined
def _parts_beneath(x: Any, top: Any) -> Any:
    """Return two parts of e^(x - top)·2^100."""
    x, base, steps = _shifted(x, top, _BENEATH_LOWEST)
    rest = fma(steps, -_REST, fma(steps, -_EIGHTH, base))
    shifted = fma(x - base, _PER_EIGHTH, _BENEATH_START)
    k = shifted - (_BENEATH_START - steps)
    return _grown(shifted, fma(k, -_EIGHTH, x) + fma(k, -_REST, -rest))


@_inlined
def power_of_e(x: Any) -> Any:
    """Return e^x; NaN where e^x or its inverse might not be a normal number."""
    shifted = fma(x, _PER_EIGHTH, _ROUND)
    k = shifted - _ROUND
    value = _grown_in_one(shifted, fma(k, -_REST, fma(k, -_EIGHTH, x)))
    return select(absolute(x) <= _MOST_EXPONENT, value, math.nan)


@_inlined
def power(x: Any, top: Any) -> Any:
    """Return the larger of two parts of a power that is divided by the sum of its row's powers."""
    return _parts(x, top)[0]


@_inlined
def power_rest(x: Any, top: Any) -> Any:
    """Return the smaller part of ``power``."""
    return _parts(x, top)[1]


@_inlined
def _short(x: Any, top: Any, start: float, lowest: float) -> Any:
    """Return e^max(x - top, ``lowest``), scaled by the power of two in ``start``, for 16-bit x."""
    d = x - narrow(top)
    d = select(d < lowest, lowest, d)
    shifted = fma(d, _PER_EIGHTH, start)
    return _grown_in_one(shifted, fma(shifted - start, -_EIGHTH, d))


@_inlined
def short_power(x: Any, top: Any) -> Any:
    """Return e^(x - top)·2^64 for 16-bit x."""
    return _short(x, top, _START, _LOWEST)


@_inlined
def share(power: Any, inverse: Any) -> Any:
    """Return a power's share in the sum of its row's powers, given the inverse of that."""
    inverse = inverse * _UNSCALED
    high = narrow(inverse)
    power = select(power < _NOTHING, 0.0, power)
    return fma(power, high, power * narrow(inverse - widen(high)))


@_inlined
def short_share(power: Any, inverse: Any) -> Any:
    """Return ``share`` for 16-bit results."""
    return select(power < _NOTHING, 0.0, power) * narrow(inverse * _UNSCALED)


@_inlined
def beneath(x: Any, top: Any) -> Any:
    """Return the larger of two parts of e^(x - top)·2^100; 0 for the row's maximum."""
    a, _ = _parts_beneath(x, top)
    return select(x < narrow(top), a, x - narrow(top))


@_inlined
def beneath_rest(x: Any, top: Any) -> Any:
    """Return the smaller part of ``beneath``."""
    _, more = _parts_beneath(x, top)
    return select(x < narrow(top), more, 0.0)


@_inlined
def short_beneath(x: Any, top: Any) -> Any:
    """Return ``beneath`` in one part, for 16-bit x."""
    return select(x < narrow(top), _short(x, top, _BENEATH_START, _BENEATH_LOWEST), x - narrow(top))


@_inlined
def at_top(x: Any, top: Any) -> Any:
    """Return 1 for elements equal to the row's maximum, else 0."""
    top = narrow(top)
    return select(x < top, 0.0, (top - top) + 1.0)


@_inlined
def below(x: Any, top: Any, logarithm: Any) -> Any:
    """Return x less the row's maximum and the logarithm of the sum of powers."""
    return (x - narrow(top)) - narrow(logarithm)


@_inlined
def less_share(dy: Any, y: Any, total: Any) -> Any:
    """Return (dy - total)·y, computed in float64 where float32 gives no finite number."""
    high = narrow(total)
    return _finite_or_in_float64(fma(dy - high, y, -y * narrow(total - widen(high))), dy, y, total)


@_inlined
def short_less_share(dy: Any, y: Any, total: Any) -> Any:
    """Return (dy - total)·y for 16-bit dy and y."""
    return _finite_or_in_float64((dy - narrow(total)) * y, dy, y, total)


@_inlined
def _finite_or_in_float64(dx: Any, dy: Any, y: Any, total: Any) -> Any:
    outside = ~(absolute(dx) < math.inf)
    if any_lane(outside):
        dx = select(outside, narrow(widen(dy) * widen(y) - widen(y) * total), dx)
    return dx


_LESS = 90
"""Powers that multiply a sum are scaled by 2^90, and the sum by 2^-90."""
_LESS_START = _ROUND + 8.0 * _LESS
_LARGEST_TOTAL, _SMALLEST_TOTAL = 2.0**30, 2.0**-30
_LESS_LOWEST, _LESS_HIGHEST = -125.0, 25.0
"""Below the first exponent, products with such sums are smaller than any float32; above the second, powers overflow."""
_LESS_NOTHING = 2.0 ** (_LESS - 180)
"""Scaled powers below this count as 0."""


@_inlined
def _exponent(y: Any, total: Any) -> Any:
    """Return y clamped from below; y in whole eighths of ln 2, as a number and in low bits; the largest y for float32.

    The last is NaN, which no y is below, where the total is out of float32's range.
    """
    size = absolute(total)
    usual = (size < _LARGEST_TOTAL) & ((size > _SMALLEST_TOTAL) | (total == 0.0))
    x = select(y < _LESS_LOWEST, _LESS_LOWEST, y)
    shifted = fma(x, _PER_EIGHTH, _LESS_START)
    return x, shifted - _LESS_START, shifted, narrow(choose(usual, _LESS_HIGHEST, math.nan))


@_inlined
def _or_in_float64(dx: Any, outside: Any, dy: Any, y: Any, total: Any) -> Any:
    if any_lane(outside):
        wide = widen(y)
        none = (total == 0.0) & (wide < math.inf)
        dx = select(outside, narrow(widen(dy) - choose(none, 0.0, exp(wide) * total)), dx)
    return dx


@_inlined
def less_power(dy: Any, y: Any, total: Any) -> Any:
    """Return dy - e^y·total, in float64 where y or the total is out of range; a total of 0 subtracts nothing."""
    x, k, shifted, highest = _exponent(y, total)
    scaled = total * 2.0**-_LESS
    high = narrow(scaled)
    low = narrow(scaled - widen(high))
    a, more = _grown(shifted, fma(k, -_REST, fma(k, -_EIGHTH, x)))
    far = a < _LESS_NOTHING
    a, more = select(far, 0.0, a), select(far, 0.0, more)
    power = a + more
    dx = fma(-power, high, dy) - fma(power, low, ((a - power) + more) * high)
    return _or_in_float64(dx, ~(y <= highest), dy, y, total)


@_inlined
def short_less_power(dy: Any, y: Any, total: Any) -> Any:
    """Return dy - e^y·total for 16-bit dy and y."""
    x, k, shifted, highest = _exponent(y, total)
    power = _grown_in_one(shifted, fma(k, -_EIGHTH, x))
    dx = fma(-power, narrow(total * 2.0**-_LESS), dy)
    return _or_in_float64(dx, ~(y <= highest), dy, y, total)


@_inlined
def joined(first: Any, second: Any) -> Any:
    """Return the rounded sum of a value's two parts."""
    return first + second


class _Word(NamedTuple):
    """The float32 version of a function."""

    function: Any
    short: Any = None
    """The version for 16-bit operands."""
    rest: Any = None
    """Computes the smaller of two parts of the value, if ``function`` computes the larger one."""
    scale: float = 1.0
    """The ratio of the function to this version, up to a row-constant factor where a quotient cancels that."""
    large: bool = False
    """True if every row has a value of about 1 / ``scale``, so that sums may start from ``_LARGE``."""


_WORDS = {
    word.function.__name__: word
    for word in (
        _Word(power, short_power, power_rest, _UNSCALED, large=True),
        _Word(share, short_share),
        _Word(beneath, short_beneath, beneath_rest, _BENEATH_UNSCALED),
        _Word(at_top),
        _Word(below),
        _Word(less_share, short_less_share),
        _Word(less_power, short_less_power),
    )
}
NAMES = {
    function.__name__: function
    for function in (joined, power_of_e, *(function for word in _WORDS.values() for function in word[:3]))
    if function is not None
}
_SUMS = REDUCTIONS["row_sum"], PRODUCT_SUM
SMALL_SUM = "small_sum({})"
"""Sum over a row in float32."""
_LARGE = 2.0 ** (_SCALE + 5)
"""Initial value of accumulators of powers, more than the sixteen powers that a block adds to a lane amount to.

The accumulator's unit in the last place, 2^-18 unscaled, is thus constant, and each addition's rounding error exact.
"""


def _two_sum(parts: int, large: bool) -> str:
    return f"{'large' if large else 'two'}_sum({', '.join(['{}'] * parts)})"


SHORT_SUMS = "short_sum({})", "short_sum({}, {})", f"short_{RUN_SUM}"
"""Sums over a row that accumulate up to ``BLOCK`` elements in one float32: of terms, of products (by FMA), of runs."""
RUN_SUMS = RUN_SUM, SHORT_SUMS[2]
BLOCK_SUMS = dict.fromkeys(SHORT_SUMS, 0.0) | {
    _two_sum(parts, large): _LARGE if large else 0.0 for parts in (1, 3) for large in (False, True)
}
"""Sums over a row that accumulate up to ``BLOCK`` elements in float32, with the accumulators' initial values.

All but ``SHORT_SUMS`` keep the additions' rounding errors in a second float32. The first of three operands is the
rounded sum of the others.
"""
BLOCK = 256


def float32_steps(program: Program, elements: Iterable[str], short: bool, exact: bool = False) -> list[Step] | None:
    """Return the operations of a program with its arguments ``elements`` in float32 lanes.

    None if operations other than these functions, products and sums take elements. Sums of ``short`` elements, of 16
    bits, are accumulated in float32 unless ``exact``.
    """
    steps, varying, words = list[Step](), {*elements}, dict[str, tuple[_Word, tuple[str, ...]]]()
    products = dict[str, tuple[str, ...]]()
    for step in program.steps:
        function = program.functions.get(step.template)
        takes = [operand for operand in step.operands if operand in varying]
        if step.template != REDUCTIONS["row_sum"] and not products.keys().isdisjoint(takes):
            return None
        if not takes:
            if function is not None:
                return None
            steps.append(step)
        elif function is not None and (word := _WORDS.get(function.__name__)):
            parts = _parts_of(step, word, short)
            words[step.result] = word, (step.result, *(part.result for part in parts[:-1]))
            varying.add(step.result)
            steps += parts
        elif step.template in REDUCTIONS.values():
            if takes[0] in words:
                steps += _reduced(step, *words[takes[0]], short)
            else:
                factors = products.get(takes[0], (takes[0],))
                if step.template == REDUCTIONS["row_sum"]:
                    template = SHORT_SUMS[len(factors) - 1] if short and not exact else _SUMS[len(factors) - 1]
                    step = Step(step.result, template, factors)
                steps.append(step)
        elif step.template == "{} * {}" and {*step.operands} <= {*elements}:
            products[step.result] = step.operands
            varying.add(step.result)
        else:
            return None
    return steps if products.keys().isdisjoint(program.results) else None


def _parts_of(step: Step, word: _Word, short: bool) -> list[Step]:
    """Return the steps that compute a function, those of its two parts first, if it has such."""

    def called(function: Any, result: str) -> Step:
        return Step(result, f"{function.__name__}({', '.join('{}' for _ in step.operands)})", step.operands)

    if short and word.short:
        return [called(word.short, step.result)]
    if not word.rest:
        return [called(word.function, step.result)]
    first, second = called(word.function, f"{step.result}_first"), called(word.rest, f"{step.result}_rest")
    return [first, second, Step(step.result, "joined({}, {})", (first.result, second.result))]


def _reduced(step: Step, word: _Word, parts: tuple[str, ...], short: bool) -> list[Step]:
    """Return the steps that sum a function over a row."""
    if word.scale == 1.0:
        return [step._replace(template=SMALL_SUM)]
    total = f"{step.result}_total"
    return [
        Step(total, SHORT_SUMS[0] if short else _two_sum(len(parts), word.large), parts),
        Step(step.result, "{} * {}", (total, repr(word.scale))),
    ]
