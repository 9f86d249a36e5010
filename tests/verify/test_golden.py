"""Golden values: certified against interval arithmetic and rationals, and by their own bounds."""

import math
import threading
import time
from fractions import Fraction
from functools import partial

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn
from aclnn import formula
from aclnn.core.products import Product
from aclnn.kernels.cpu import threads
from aclnn.operators.fast_gelu import fast_gelu_gradient
from aclnn.operators.gelu import gelu_erf_gradient, gelu_tanh_gradient
from aclnn.operators.hardswish import hardswish_gradient
from aclnn.operators.silu import silu_gradient
from aclnn.operators.softplus import softplus_forward
from aclnn.verify.goldens import expansions
from aclnn.verify.goldens import layer_norm as norm
from aclnn.verify.goldens.enclosures import Ball, Interval
from aclnn.verify.goldens.golden import golden
from aclnn.verify.goldens.values import VALUE_BOUND_ULP, Function, map_blocks
from aclnn.verify.number_formats import FORMATS
from tests.cases import CASES
from tests.cases.table import changed

TYPES = list(FORMATS)
ACTIVATIONS = [
    (("silu_backward", None), "silu"),
    (("fast_gelu_backward", None), "fast_gelu"),
    (("hardswish_backward", None), "hardswish"),
    (("gelu_backward_v2", "none"), "gelu_erf"),
    (("gelu_backward_v2", "tanh"), "gelu_tanh"),
]
IDS = [name for _, name in ACTIVATIONS]
GRADIENTS = {
    "silu": silu_gradient, "fast_gelu": fast_gelu_gradient, "hardswish": hardswish_gradient,
    "gelu_erf": gelu_erf_gradient, "gelu_tanh": gelu_tanh_gradient,
}  # fmt: skip


def kind(dtype):
    return FORMATS[dtype].dtype.numpy.type


def bit_patterns(dtype, count, seed):
    """Return values spread over all bit patterns: every binade, subnormals, infinities, NaNs."""
    width = np.dtype(kind(dtype)).itemsize
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << (8 * width), count).astype(f"u{width}").view(kind(dtype))


def of(operator, mode, dy, x):
    (found,) = golden(operator, {"grad_output": dy, "self": x}, **mode_of((operator, mode))).values()
    return found


def mode_of(key):
    return {} if key[1] is None else {"approximate": key[1]}


@pytest.mark.parametrize("dtype", TYPES)
def test_rounding_to_a_format_is_that_of_exact_arithmetic(dtype):
    target = FORMATS[dtype]
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.normal(size=4000), rng.integers(-160, 130, 4000))
    nearest = target.round(values).astype(np.float64)
    # Midpoints, their float64 neighbours, and numbers that a detour over float32 would round twice.
    finite = nearest[np.isfinite(nearest) & (nearest != 0)]
    middle = finite + 0.5 * target.ulp(finite)
    hard = np.concatenate([values, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    expected = np.array([target.round_exact(Fraction(v)) for v in hard.tolist()])
    assert np.array_equal(target.round(hard).astype(np.float64), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_format_constants_match_the_type(dtype):
    target = FORMATS[dtype]
    info = np.finfo(kind(dtype)) if dtype != "bfloat16" else __import__("ml_dtypes").finfo(kind(dtype))
    assert target.largest == float(info.max)
    assert target.smallest_normal == float(info.smallest_normal)
    assert target.ulp(np.array([1.0]))[0] == float(info.eps)
    assert target.ulp(np.array([0.0]))[0] == float(info.smallest_subnormal)
    assert target.ulp(np.array([np.inf]))[0] == target.ulp(np.array([target.largest]))[0]


@pytest.mark.parametrize(("key", "name"), ACTIVATIONS, ids=IDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_golden_is_the_exact_result_rounded_once(dtype, key, name):
    target = FORMATS[dtype]
    rng = np.random.default_rng(4)
    x = np.concatenate([bit_patterns(dtype, 250, 5), rng.uniform(-9, 9, 250).astype(kind(dtype))])
    dy = np.concatenate([bit_patterns(dtype, 250, 6), rng.normal(size=250).astype(kind(dtype))])
    found = of(*key, dy, x)
    for i in np.flatnonzero(np.isfinite(x.astype(float)) & np.isfinite(dy.astype(float))).tolist():
        exact = exact_product(name, float(dy[i]), float(x[i]))
        assert float(found.rounded[i]) == target.round_exact(exact), (float(dy[i]), float(x[i]))
        # Zero results carry the sign of the exact value.
        if exact != 0:
            assert math.copysign(1, float(found.rounded[i])) == (1 if exact > 0 else -1)
        if float(found.rounded[i]) != 0 and math.isfinite(float(found.rounded[i])):
            ulp = float(target.ulp(np.array([float(exact)]))[0])
            assert abs(Fraction(float(found.value[i])) - exact) <= VALUE_BOUND_ULP * Fraction(ulp)


def exact_product(name, dy, x):
    """Return dy·f(x) to 1 part in 2^200, by mpmath, from independent textbook formulas."""
    if name == "hardswish":
        slope = 0 if x < -3 else 1 if x > 3 else Fraction(x) / 3 + Fraction(1, 2)
        return Fraction(dy) * slope
    edge = {"silu": 300, "fast_gelu": 180}.get(name, 30)
    if x < -edge:  # the derivative is under 1e-100: any negative number serves
        return Fraction(dy) * Fraction(-1, 10**300)
    if x > edge:
        return Fraction(dy) * (1 + Fraction(1, 10**300))
    with mpmath.workprec(3500 if name == "gelu_tanh" else 800):
        t = mpmath.mpf(x)
        if name in ("silu", "fast_gelu"):
            scale = 1 if name == "silu" else mpmath.mpf(1702) / 1000
            s = 1 / (1 + mpmath.exp(-scale * t))
            value = s * (1 + scale * t * (1 - s))
        elif name == "gelu_erf":
            value = (1 + mpmath.erf(t / mpmath.sqrt(2))) / 2 + t * mpmath.npdf(t)
        else:
            root, cubic = mpmath.sqrt(2 / mpmath.pi), mpmath.mpf(44715) / 10**6
            u = root * (t + cubic * t**3)
            hyperbolic = 1 - 2 / (1 + mpmath.exp(2 * u))
            value = (1 + hyperbolic) / 2 + t * mpmath.sech(u) ** 2 / 2 * root * (1 + 3 * cubic * t * t)
        sign, mantissa, exponent, _ = value._mpf_
    return Fraction(dy) * Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent


@pytest.mark.parametrize(("key", "name"), ACTIVATIONS, ids=IDS)
def test_intervals_contain_the_exact_derivative(key, name):
    """Near zero, in the tails and between, intervals are at most a few times wider than necessary."""
    rng = np.random.default_rng(8)
    spread = np.ldexp(rng.normal(size=200), rng.integers(-140, 100, 200))
    x = np.concatenate([rng.uniform(-40, 40, 300), rng.normal(-0.8, 0.6, 300), spread])
    x = x.astype(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        found = Interval.of(GRADIENTS[name].derivative(Interval(x, x)))
    used = 0.0
    for at, low, high in zip(x.tolist(), found.low.tolist(), found.high.tolist(), strict=True):
        exact = exact_product(name, 1.0, at)
        if abs(exact) < Fraction(1, 10**90):
            assert -1e-90 < low <= high < 1e-90
            assert math.copysign(1, low) == math.copysign(1, high) == (-1 if exact < 0 else 1)
            continue
        hair = Fraction(1, 10**250)  # formulas have 1 for what is 1 to a thousand digits
        assert Fraction(low) - hair <= exact <= Fraction(high) + hair
        width = Fraction(high) - Fraction(low)
        used = max(used, float(abs(exact - Fraction(0.5 * (low + high))) / width) if width else 0)
    assert 1e-3 < used < 0.5


LIBRARY = [
    ("exp", -700, 5), ("expm1", -40, 5), ("log", 0, 5), ("log1p", -1, 5), ("tanh", -20, 20), ("erf", -6, 6),
    ("erfc", -5, 25),
]  # fmt: skip


@pytest.mark.parametrize(("word", "low", "high"), LIBRARY)
def test_the_libraries_are_as_good_as_intervals_assume(word, low, high):
    function = getattr(np, word, None) or np.vectorize(getattr(math, word))
    reference = getattr(mpmath, word)
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.uniform(low, high, 2000), np.clip(np.ldexp(rng.normal(size=500), -8), low, high)])
    points = points[(points != 0) & (points != low)]
    found = function(points)
    wide = getattr(Interval(points, points), word)()
    worst = 0.0
    for point, value, low, high in zip(*(a.tolist() for a in (points, found, wide.low, wide.high)), strict=True):
        with mpmath.workprec(200):
            exact = reference(mpmath.mpf(point))
            unit = math.ulp(float(exact))
            worst = max(worst, float(abs(mpmath.mpf(value) - exact) / unit))
            assert low <= exact <= high
        assert high - low > 12 * unit or abs(exact) > 0.999  # at most 1, which intervals know of
    assert 0.0 < worst < 8  # intervals allow 16


def test_constants_are_exact_on_balls_and_contained_in_intervals():
    for constant, exact in (
        (formula.PI, lambda: +mpmath.pi),
        (formula.decimal("0.044715"), lambda: mpmath.mpf(44715) / 1_000_000),
        (1.0 / formula.sqrt(2.0 * formula.PI) - 3, lambda: 1 / mpmath.sqrt(2 * mpmath.pi) - 3),
        (-formula.decimal("1.702") * 2 + formula.PI, lambda: mpmath.pi - 2 * mpmath.mpf(1702) / 1000),
    ):
        wide = Interval.of(constant)
        with mpmath.workprec(200), flint.ctx.workprec(200):
            assert wide.low < exact() < wide.high
            assert abs(Ball.of(constant).ball - flint.arb(mpmath.nstr(exact(), 58))) < 1e-54
            assert float(constant) == pytest.approx(float(exact()), rel=1e-14)


def test_undecided_comparisons_keep_both_results():
    wide = Interval(np.array([-1.0, 1.0, -3.0]), np.array([2.0, 2.0, -2.0]))
    for condition in (wide > 0.0, wide >= 0.0, ~(wide <= 0.0), ~(wide < 0.0), ~((wide < 0.0) | (wide < -9.0))):
        chosen = condition.where(7.0, 5.0)
        assert chosen.low.tolist() == [5.0, 7.0, 5.0]
        assert chosen.high.tolist() == [7.0, 7.0, 5.0]
    points = Interval(np.array([3.0, -0.5]), np.array([3.0, 0.5]))
    equal = (points == 3.0).where(1.0, 0.0)
    assert (equal.low.tolist(), equal.high.tolist()) == ([1.0, 0.0], [1.0, 0.0])
    maybe = (points != 0.25).where(1.0, 0.0)
    assert (maybe.low.tolist(), maybe.high.tolist()) == ([1.0, 0.0], [1.0, 1.0])
    ball = Ball(flint.arb(0, 1))
    low, high = (ball > 0.0).where(2.0, 4.0).ends()
    assert 1.99 < low <= 2.0
    assert 4.0 <= high < 4.01
    assert (~(ball > 2.0)).where(2.0, 4.0).ends() == (2.0, 2.0)


@given(st.data())
def test_enclosures_contain_the_result_of_every_operation(data):
    """Compare each operation on intervals and balls around random numbers with mpmath."""
    numbers = st.floats(-60, 60, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0])
    x, y, z = (data.draw(numbers) for _ in range(3))
    slack = data.draw(st.sampled_from([0.0, 1e-12, 0.25]))
    formula, exact = data.draw(st.sampled_from(OPERATIONS))
    with np.errstate(all="ignore"):
        wide = [Interval(np.array([v - slack]), np.array([v + slack])) if slack else Interval(*[np.array([v])] * 2)
                for v in (x, y, z)]  # fmt: skip
        interval = Interval.of(formula(*wide))
    with flint.ctx.workprec(200):
        ball = Ball.of(formula(*map(Ball.of, (x, y, z)))).ball
    with mpmath.workprec(400):
        expected = exact(*map(mpmath.mpf, (x, y, z)))
        if expected is None:
            return
        margin = mpmath.mpf(2) ** -1070  # below it, float64 rounds products to zero
        low, high = float(interval.low[0]), float(interval.high[0])
        assert math.isnan(low) or math.isnan(high) or low - margin <= expected <= high + margin
        if ball.is_finite():
            text = expected if isinstance(expected, int) else mpmath.nstr(expected, 110)
            assert ball.overlaps(flint.arb(str(text)) * flint.arb(1, 1e-30))
            assert slack or ball.rad() < 1e-20 or abs(expected) > 1e10


def _or_none(function):
    def guarded(*args):
        try:
            value = function(*args)
        except (ZeroDivisionError, ValueError):
            return None
        return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else None

    return guarded


#: Formulas of three numbers, with what they are.
OPERATIONS = [
    (formula_, _or_none(exact))
    for formula_, exact in (
        (lambda x, y, z: x + y * z, lambda x, y, z: x + y * z),
        (lambda x, y, z: 2.0 - x * 0.5 - y, lambda x, y, z: 2 - x / 2 - y),
        (lambda x, y, z: x * y * z, lambda x, y, z: x * y * z),
        (lambda x, y, z: x / (y - z), lambda x, y, z: x / (y - z)),
        (lambda x, y, z: 1.0 / x, lambda x, y, z: 1 / x),
        (lambda x, y, z: formula.exp(x) - formula.expm1(y), lambda x, y, z: mpmath.exp(x) - mpmath.expm1(y)),
        (lambda x, y, z: formula.log(x * x + 1e-3), lambda x, y, z: mpmath.log(x * x + mpmath.mpf(1e-3))),
        (lambda x, y, z: formula.log1p(formula.absolute(x)), lambda x, y, z: mpmath.log1p(abs(x))),
        (lambda x, y, z: formula.tanh(x) * formula.erf(y), lambda x, y, z: mpmath.tanh(x) * mpmath.erf(y)),
        (lambda x, y, z: formula.erfc(x), lambda x, y, z: mpmath.erfc(x)),
        (lambda x, y, z: formula.sigmoid(y), lambda x, y, z: 1 / (1 + mpmath.exp(-y))),
        (lambda x, y, z: formula.sqrt(formula.absolute(x)), lambda x, y, z: mpmath.sqrt(abs(x))),
        (lambda x, y, z: formula.minimum(x, y) - formula.maximum(y, z), lambda x, y, z: min(x, y) - max(y, z)),
        (lambda x, y, z: formula.where((x < y) | (y >= z), x, z), lambda x, y, z: x if x < y or y >= z else z),
        (lambda x, y, z: formula.where(~(x <= y) & (y > z), x, -z), lambda x, y, z: x if not x <= y and y > z else -z),
        (lambda x, y, z: formula.where(x == y, x, z), lambda x, y, z: x if x == y else z),
        (lambda x, y, z: formula.where(x != y, x, 1.0), lambda x, y, z: x if x != y else mpmath.mpf(1)),
        (lambda x, y, z: formula.PI * x + formula.decimal("0.1"), lambda x, y, z: mpmath.pi * x + mpmath.mpf(1) / 10),
        (lambda x, y, z: formula.sqrt(2.0 / formula.PI) - x, lambda x, y, z: mpmath.sqrt(2 / mpmath.pi) - x),
    )
]


@given(st.floats(-1e60, 1e60), st.integers(-5, 5))
def test_the_ends_of_a_ball_round_as_it_does(value, last):
    """At a midpoint, and far below and above it, rounding an end to float64 keeps its side."""
    target = FORMATS["float32"]
    with flint.ctx.workprec(300):
        ball = flint.arb(value) * (1 + flint.arb(last) * flint.arb(2) ** -200)
        low, high = Ball(ball).ends()
    exact = Fraction(value) * (1 + Fraction(last, 2**200))
    for end in (low, high):
        assert float(target.round(np.array([end]))[0]) == target.round_exact(exact)


FAMILY = [case for case in CASES if case.operator.inputs and "norm" not in case.name]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.name}-{dtype}")
        for case in FAMILY
        for dtype in TYPES
        if FORMATS[dtype].dtype in case.dtypes[Product.ATLAS_A2]
    ],
)
def test_every_operator_is_within_its_bound_of_its_golden_value(case, dtype):
    """Also for numbers that are not finite, halves of tensors, and attributes."""
    operator, rows = case.operator, 40
    arguments = changed(case.call(FORMATS[dtype].dtype), case.shaped((rows,), (16,)))
    rng = np.random.default_rng(9)
    inputs = {}
    for parameter in operator.inputs:
        if arguments[parameter.name] is None:
            continue
        shape = arguments[parameter.name].shape
        values = (3 * rng.normal(size=shape)).astype(kind(dtype))
        special = 0 if case.name == "prelu_backward" else min(8 * 16, values.size // 5)  # sums would not be finite
        values.reshape(-1)[:special] = bit_patterns(dtype, 8 * 16, 10)[:special]
        inputs[parameter.python_name] = np.roll(values, 5 * len(inputs))
    attributes = {p.python_name: arguments[p.name] for p in operator.attributes}
    found = golden(operator.name, inputs, **attributes)
    with np.errstate(all="ignore"):
        results = case.python(**inputs, **attributes)
    for result, one in zip(results if isinstance(results, tuple) else (results,), found.values(), strict=True):
        ours, exact = result.astype(np.float64), one.rounded.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(exact))
        finite = np.isfinite(ours) & np.isfinite(exact)
        np.testing.assert_array_equal(ours[~finite], exact[~finite])
        assert finite.sum() > 0.6 * finite.size
        target = FORMATS[dtype]
        allowed = 2.0 if dtype == "float32" else 0.51
        error = np.abs(ours[finite] - one.value[finite])
        if case.name == "log_softmax_backward":  # whose terms cancel: 2^-26 of e^y·Σ dy is allowed besides
            error -= 2.0**-26 * np.abs(inputs["grad_output"].astype(np.float64)[finite] - one.value[finite])
        assert np.max(error / target.ulp(one.value[finite])) <= allowed
        if case.name != "log_softmax":  # whose results may lie closer to 0 than any float64
            zeros = finite & (ours == 0) & (exact == 0)
            np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(exact[zeros]))


REFERENCE_VALUES = {
    ("silu_backward", None): [(-89, "-1.9600799e-37"), (-100, "-3.6828752e-42")],
    ("gelu_backward_v2", "none"): [(-5.5, "-5.7334724e-07"), (-8, "-3.9796073e-14"), (-12, "-2.5578957e-31")],
    ("gelu_backward_v2", "tanh"): [(-5.34, "-1.5266453e-07"), (-8, "-4.7147845e-20")],
    ("fast_gelu_backward", None): [(-30, "-3.3451423e-21"), (-52, "-3.2005829e-37")],
    ("hardswish_backward", None): [(-3, "-0.5"), (3, "1.5"), (-3.0000002, "0"), (3.0000002, "1"), (-1.5, "0")],
}


@pytest.mark.parametrize("key", REFERENCE_VALUES)
def test_golden_values_match_published_ones(key):
    for x, text in REFERENCE_VALUES[key]:
        gradient = Function(GRADIENTS[dict(ACTIVATIONS)[key]])
        value = gradient.golden([np.ones(1), np.array([x], np.float64)], FORMATS["float32"]).value
        assert value[0] == pytest.approx(float(text), rel=6e-8, abs=0)


INFINITE = {
    "silu": (math.nan, math.nan), "fast_gelu": (math.nan, math.nan), "gelu_erf": (math.nan, math.nan),
    "gelu_tanh": (0.0, 1.0), "hardswish": (0.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("key", "name"), ACTIVATIONS, ids=IDS)
def test_infinities_and_nans_follow_the_tables(key, name, dtype):
    x = np.array([-np.inf, np.inf, np.nan, 1.0, 1.0, 1.0, -8.0, -30000.0], kind(dtype))
    dy = np.array([1, 1, 1, np.nan, np.inf, -np.inf, np.inf, np.inf], kind(dtype))
    found = of(*key, dy, x).rounded.astype(np.float64)
    low, high = INFINITE[name]
    slope_at_minus_8 = -1.0 if name != "hardswish" else math.nan
    expected = [low, high, math.nan, math.nan, math.inf, -math.inf, slope_at_minus_8 * math.inf, math.nan]
    assert np.array_equal(found, expected, equal_nan=True)


def test_a_number_of_0_divides_as_ieee_754_has_it():
    """1 / beta is infinite for a beta of 0."""
    x = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)
    found = Function(softplus_forward, (0.0, 20.0)).golden([x], FORMATS["float32"]).value
    np.testing.assert_array_equal(found, aclnn.softplus(x, 0.0, 20.0))


def test_ties_go_to_even():
    least = np.float32(2.0**-149)
    dy = np.arange(1, 200, dtype=np.float32) * least
    found = of("silu_backward", None, dy, np.zeros(199, np.float32)).rounded
    halves = [round(Fraction(k, 2)) for k in range(1, 200)]
    assert np.array_equal(found, np.array(halves, np.float32) * least)


def test_golden_values_broadcast_and_promote():
    dy = np.linspace(-1, 1, 5, dtype=np.float16)
    x = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
    found = of("gelu_backward_v2", "tanh", dy, x)
    whole = of("gelu_backward_v2", "tanh", np.broadcast_to(dy.astype(np.float32), (3, 5)).copy(), x)
    assert found.rounded.shape == (3, 5)
    assert found.rounded.dtype == np.float32
    assert np.array_equal(found.rounded, whole.rounded)
    turned = np.asfortranarray(x)
    assert np.array_equal(of("gelu_backward_v2", "tanh", dy, turned).rounded, whole.rounded)


def test_layer_norm_reproduces_the_worked_example():
    rows = np.array([[2, 3], [4, 5]], np.float32)
    found = golden(
        "layer_norm_backward",
        {
            "grad_out": rows, "input": rows, "mean": np.array([[2], [3]], np.float32),
            "rstd": np.array([[4], [5]], np.float32), "weight": np.ones(2, np.float32),
        },
        normalized_shape=(2,),
    )  # fmt: skip
    assert found["grad_input"].rounded.tolist() == [[-2, -94], [-877.5, -1747.5]]
    assert found["grad_weight"].rounded.tolist() == [20, 62]
    assert found["grad_bias"].rounded.tolist() == [6, 8]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cancelling", [False, True])
def test_layer_norm_is_the_exact_result_rounded_once(dtype, cancelling):
    rng = np.random.default_rng(11)
    rows, columns = 24, 20
    x = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, (rows, columns))
    dy = rng.normal(size=(rows, columns))
    if cancelling:  # huge terms that cancel, down to ties and zeros
        dy[1::2] = -dy[::2]
        x[1::2] = x[::2]
        dy *= 2.0 ** rng.integers(0, 40, columns) if dtype != "float16" else 1.0
    inputs = {
        "grad_out": dy.astype(kind(dtype)), "input": x.astype(kind(dtype)),
        "mean": rng.normal(size=rows).astype(np.float32), "rstd": rng.uniform(0.1, 5, rows).astype(np.float32),
        "weight": rng.normal(size=columns).astype(np.float32),
    }  # fmt: skip
    if cancelling:
        for name in ("mean", "rstd"):
            inputs[name][1::2] = inputs[name][::2]
    found = golden("layer_norm_backward", inputs)
    target, wide = FORMATS[dtype], {name: a.astype(np.float64) for name, a in inputs.items()}
    x64, dy64, mean, rstd, weight = (wide[name] for name in ("input", "grad_out", "mean", "rstd", "weight"))
    for i in range(rows):
        exact = norm.exact_dx(x64[i], dy64[i], float(mean[i]), float(rstd[i]), weight, range(columns))
        assert found["grad_input"].rounded[i].astype(float).tolist() == [target.round_exact(item) for item in exact]
    single = FORMATS["float32"]
    for j in range(columns):
        dw = norm.exact_dw(x64[:, j], dy64[:, j], mean, rstd)
        assert float(found["grad_weight"].rounded[j]) == single.round_exact(dw)
        assert float(found["grad_bias"].rounded[j]) == single.round_exact(norm.exact_db(dy64[:, j]))
        assert not cancelling or found["grad_bias"].rounded[j] == 0


def test_layer_norm_where_dx_cancels():
    """For x = ±d with d·rstd within 2^-37 of 1 and two values of dy, dx is in the last of 80 bits."""
    d = np.random.default_rng(5).uniform(1, 2, 400_000).astype(np.float32).astype(np.float64)
    rstd = (1 / d).astype(np.float32)
    best = np.argsort(np.abs(d * rstd - 1) + (d * rstd == 1))[:30]
    assert np.abs(d * rstd - 1)[best].max() < 2.0**-37
    x = np.where(np.arange(8) % 2, 1.0, -1.0) * d[best, None]
    dy = np.where(x > 0, np.float32(2.7182818), np.float32(-0.31415927)).astype(np.float32)
    inputs = {"grad_out": dy, "input": x.astype(np.float32), "mean": np.zeros(30, np.float32), "rstd": rstd[best]}
    found = golden("layer_norm_backward", inputs)["grad_input"].rounded
    target = FORMATS["float32"]
    for i in range(30):
        exact = norm.exact_dx(x[i], dy[i].astype(np.float64), 0.0, float(rstd[best[i]]), np.ones(8), range(8))
        assert 0 < max(map(abs, exact)) < Fraction(1, 2**34)
        assert found[i].astype(float).tolist() == [target.round_exact(item) for item in exact]


def test_exact_dx_is_the_formula():
    """Compare the rational fallback with the definition in matrices of fractions."""
    rng = np.random.default_rng(12)
    x, dy, weight = (rng.integers(-8, 9, 5).astype(float) for _ in range(3))
    n, mean, rstd = 5, Fraction(1, 4), Fraction(3, 2)
    xhat = [(Fraction(v) - mean) * rstd for v in x]
    g = [Fraction(a) * Fraction(b) for a, b in zip(dy, weight, strict=True)]
    # dx = J^T g for the Jacobian of (x - mean(x))·rstd with rstd a function of x: rstd·(I - 1/n - xhat·xhat^T/n).
    jacobian = [[((i == j) - Fraction(1, n) - xhat[i] * xhat[j] / n) * rstd for j in range(n)] for i in range(n)]
    expected = [sum(row[j] * g[j] for j in range(n)) for row in jacobian]
    assert norm.exact_dx(x, dy, 0.25, 1.5, weight, range(n)) == expected


def test_layer_norm_propagates_what_is_not_finite():
    rng = np.random.default_rng(13)
    x, dy = rng.normal(size=(2, 4, 6)).astype(np.float32)
    x[1, 2], dy[3, 0] = np.nan, np.inf
    stats = {"mean": np.zeros(4, np.float32), "rstd": np.ones(4, np.float32)}
    found = golden("layer_norm_backward", {"grad_out": dy, "input": x, **stats})
    assert np.isnan(found["grad_input"].rounded[1]).all()
    assert np.isfinite(found["grad_input"].rounded[[0, 2]]).all()
    assert np.isnan(found["grad_weight"].rounded[2])
    assert np.isinf(found["grad_bias"].rounded[0])
    assert np.isfinite(found["grad_bias"].rounded[1:]).all()


def test_expansions_account_for_what_they_drop():
    rng = np.random.default_rng(14)

    def number():
        return float(np.ldexp(rng.normal(), int(rng.integers(-60, 60))))

    for _ in range(3000):
        a, b, c, d = (number() for _ in range(4))
        a_hi, a_lo = expansions.two_sum(a, b * 1e-17)
        b_hi, b_lo = expansions.two_sum(c, d * 1e-17)
        first, second = Fraction(a_hi) + Fraction(a_lo), Fraction(b_hi) + Fraction(b_lo)
        n = int(rng.integers(1, 5000))
        for exact, (hi, lo, lost) in (
            (first + second, expansions.add(a_hi, a_lo, b_hi, b_lo)),
            (first * second, expansions.multiply(a_hi, a_lo, b_hi, b_lo)),
            (first * Fraction(b_hi), expansions.scale(a_hi, a_lo, b_hi)),
            (first / n, expansions.divide(a_hi, a_lo, float(n))),
        ):
            error = abs(Fraction(hi) + Fraction(lo) - exact)
            assert error <= Fraction(lost) * (1 + Fraction(1, 2**30))
            assert error <= abs(Fraction(hi)) / 2**95 + Fraction(1, 2**900)
    assert expansions.add(3.0, 0.0, 5.0, 0.0) == (8.0, 0.0, 0.0)
    assert expansions.divide(9.0, 0.0, 4.0) == (2.25, 0.0, 0.0)
    assert expansions.multiply(3.0, 0.0, 1.5, 0.0)[2] == 0.0


def test_odd_rounding_makes_a_second_rounding_harmless():
    rng = np.random.default_rng(15)
    target = FORMATS["float32"]
    for _ in range(2000):
        hi = float(np.float32(rng.normal()))
        half = 0.5 * float(target.ulp(np.array([hi]))[0])
        lo = float(rng.choice([half, -half, 0.0])) + float(rng.choice([1e-30, -1e-30, 0.0]))
        exact = target.round_exact(Fraction(hi) + Fraction(half) + Fraction(lo))
        s, e = expansions.two_sum(hi + half, lo)
        assert float(np.float32(expansions.odd(s, e))) == exact


@pytest.mark.parametrize("count", [1, 3])
def test_blocks_are_computed_on_as_many_threads_as_the_kernels_use(monkeypatch, count):
    """ACLNN_NUM_THREADS, OMP_NUM_THREADS and a container's quota limit the number of threads."""
    together, seen = threading.Barrier(count), set()

    def block(begin, end):
        seen.add(threading.get_ident())
        if begin < count:
            together.wait(10)
        time.sleep(1e-3)
        return begin

    monkeypatch.setattr(threads, "_pool", threads.Pool(count))
    assert list(map_blocks(block, 12, 1)) == list(range(12))
    assert len(seen) == count


def test_ten_million_elements_in_ten_seconds():
    """A tenth of the elements of the slowest definition take less than a second on two cores."""
    rng = np.random.default_rng(16)
    x = rng.uniform(-6, 6, 1_000_000).astype(np.float32)
    dy = rng.normal(size=x.size).astype(np.float32)
    of("gelu_backward_v2", "tanh", dy[:10], x[:10])
    seen = []
    begin = time.perf_counter()
    golden("gelu_backward_v2", {"grad_output": dy, "self": x}, approximate="tanh", progress=seen.append)
    assert time.perf_counter() - begin < 3.0  # 0.1 s alone on two cores; others may be at work
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("operator", "missing", "attributes", "text"),
    [
        ("addd", None, {}, "operator: expected one with golden values .*, such as add, got 'addd'"),
        ("add", None, {}, "operator: expected one whose outputs follow from its inputs .*, got 'add'"),
        ("silu_backward", None, {"approximate": "none"}, "silu_backward: expected none, got 'approximate'"),
        ("gelu_backward_v2", None, {"approximate": "erf"}, "approximate: expected .*none.*tanh.*, got 'erf'"),
        ("silu_backward", "self", {}, "expected inputs grad_output, self, got none for self"),
        ("layer_norm_backward", "rstd", {}, "expected inputs grad_out, input, mean, rstd, got none for rstd"),
    ],
)
def test_operators_without_golden_values_are_named(operator, missing, attributes, text):
    norm = operator == "layer_norm_backward"
    names = ({"grad_out", "input", "mean", "rstd"} if norm else {"grad_output", "self"}) - {missing}
    with pytest.raises(ValueError, match=f"golden: .*{text}"):
        golden(operator, {name: np.ones((2, 3), np.float32) for name in names}, **attributes)


@pytest.mark.parametrize("name", ["input", "mean", "rstd"])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_elements_of_x_that_are_not_finite_do_not_affect_grad_bias(name, broken):
    """The sum of dy includes elements whose x, mean or rstd is not finite."""
    inputs = {
        "grad_out": np.float32([[1, 2, 3, 4], [10, 20, 30, 40]]),
        "input": np.float32([[1, 2, 3, 9], [4, 5, 6, 8]]),
        "mean": np.float32([3, 5]),
        "rstd": np.float32([1, 2]),
    }
    inputs[name][0, ...] = broken
    db = golden("layer_norm_backward", inputs)["grad_bias"].rounded
    assert db.tolist() == [11, 22, 33, 44]
    inputs["grad_out"][1, 2] = broken
    db = golden("layer_norm_backward", inputs)["grad_bias"].rounded
    assert np.array_equal(db, np.float32([11, 22, broken, 44]), equal_nan=True)


@pytest.mark.parametrize(("key", "name"), ACTIVATIONS, ids=IDS)
def test_a_zero_gradient_keeps_the_sign_of_its_product(key, name):
    x = np.float32([1, -1, 0, -5, -30, 30, 1e17, 3e38, -3e38])
    slope = of(*key, np.ones_like(x), x).value
    for zero in (0.0, -0.0):
        dy = np.full_like(x, zero)
        found = of(*key, dy, x)
        assert found.resolved == 0
        assert np.array_equal(np.signbit(found.rounded), np.signbit(dy * slope))
        assert not found.rounded.any()


@pytest.mark.parametrize("key", [item[0] for item in ACTIVATIONS if item[1] != "hardswish"], ids=IDS[:2] + IDS[3:])
def test_a_tie_far_out_is_settled_without_the_digits_of_a_huge_exponential(key):
    """For x = 1e17 the digits would fill the memory; float64 decides what 1,024 bits do not."""
    dy = np.full(4, 1 + 2.0**-11, np.float32)  # halfway between two float16
    x = np.float32([4, 1e3, 1e17, 3e38])
    (found,) = golden(key[0], {"grad_output": dy, "self": x}, np.float16, **mode_of(key)).values()
    assert found.resolved >= 2
    assert found.rounded[1:].tolist() == [1.0, 1.0, 1.0]
    assert found.rounded[0] > 1.0


@pytest.mark.parametrize(("key", "name"), ACTIVATIONS, ids=IDS)
def test_ties_that_a_tiny_x_decides(key, name):
    """Half of a subnormal dy is a tie, which the small addend dy·x decides."""
    rng = np.random.default_rng(7)
    dy = rng.integers(1, 1 << 23, 4000).astype(np.uint32).view(np.float32)
    x = np.float32(2.0) ** rng.integers(-149, -29, 4000).astype(np.float32) * rng.choice(np.float32([-1, 1]), 4000)
    found = of(*key, dy, x)
    assert found.resolved > 1500
    for i in range(0, 4000, 20):
        exact = exact_product(name, float(dy[i]), float(x[i]))
        assert float(found.rounded[i]) == FORMATS["float32"].round_exact(exact), (float(dy[i]), float(x[i]))


def norm_arrays():
    return {
        "grad_out": np.ones((4, 8), np.float32), "input": np.ones((4, 8), np.float32),
        "mean": np.ones(4, np.float32), "rstd": np.ones(4, np.float32), "weight": np.ones(8, np.float32),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cut", "text"),
    [
        ("mean", np.s_[:2], r"mean: expected shape \[4\] .that of rstd., got \[2\]"),
        ("rstd", np.s_[:2], r"mean: expected shape \[2\] .that of rstd., got \[4\]"),
        ("weight", np.s_[:2], r"weight: expected shape \[8\] .normalized_shape., got \[2\]"),
        ("grad_out", np.s_[:, :2], r"grad_out: expected shape \[4, 8\] .that of input., got \[4, 2\]"),
    ],
)
def test_golden_does_not_read_beyond_arrays_that_are_too_short(name, cut, text):
    inputs = norm_arrays()
    inputs[name] = inputs[name][cut]
    with pytest.raises(ValueError, match=f"golden: .*{text}"):
        golden("layer_norm_backward", inputs)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((7,), r"input: expected trailing dimensions \[7\], got \[8\]"),
        ((), "normalized_shape: expected at least 1 dimension, got 0"),
        ((4, 4, 8), "input: expected at least 3 dimensions .as normalized_shape., got 2"),
        (4, "normalized_shape: expected a sequence of integers, got 4"),
    ],
)
def test_golden_rejects_a_normalized_shape_that_does_not_fit(shape, text):
    with pytest.raises(ValueError, match=f"golden: .*{text}"):
        golden("layer_norm_backward", norm_arrays(), normalized_shape=shape)


def test_golden_rejects_the_data_types_that_layer_norm_backward_does():
    """Integers are rejected, as by the operator."""
    inputs = norm_arrays()
    inputs["grad_out"] = inputs["grad_out"].astype(np.int32)
    with pytest.raises(ValueError, match=r"golden: .*grad_out: expected data type ACL_FLOAT.*, got ACL_INT32"):
        golden("layer_norm_backward", inputs)


def test_golden_rejects_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match=r"golden: .*self: expected shape \[3\] \(that of grad_output\), got \[4\]"):
        golden("silu_backward", {"grad_output": np.ones(3, np.float32), "self": np.ones(4, np.float32)})


def test_golden_takes_c_names_and_torch_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.linspace(-3, 3, 50).to(dtype).requires_grad_()
        found = golden("silu_backward", {"gradOutput": torch.ones_like(x), "self": x})["grad_input"].rounded
        expected = torch.ops.aten.silu_backward(torch.ones(50), x.detach().float()).numpy()
        assert np.allclose(found.astype(np.float32), expected, rtol=0.01, atol=0.01)
    with pytest.raises(ValueError, match="golden: silu_backward: grad_output: given twice"):
        golden("silu_backward", {"gradOutput": x, "grad_output": x, "self": x})


def test_balls_leave_the_users_precision_alone():
    """The process's precision in flint is unchanged afterwards."""
    dy, x = np.arange(1, 999, 2, np.uint32).view(np.float32), np.full(499, 1e-20, np.float32)
    found = []
    with flint.ctx.workprec(77):
        settle = partial(Function(GRADIENTS["gelu_tanh"]).golden, [dy, x], FORMATS["float32"])
        threads = [threading.Thread(target=lambda: found.append(settle())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert flint.ctx.prec == 77
    assert [item.resolved for item in found] == [499] * 4
    for item in found[1:]:
        np.testing.assert_array_equal(item.rounded, found[0].rounded)
