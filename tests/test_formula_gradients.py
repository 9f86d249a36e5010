"""The gradients' formulas against the forwards', differentiated as power series over balls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest

from aclnn.formula import Constant, maximum, minimum
from aclnn.operators.clipped_swiglu import clipped_swiglu_forward, clipped_swiglu_gradient
from aclnn.operators.elu import elu_derivative, elu_derivative_of_result, elu_forward
from aclnn.operators.fast_gelu import fast_gelu_derivative, fast_gelu_forward
from aclnn.operators.ge_glu import (
    ge_glu_erf_forward,
    ge_glu_erf_gradient,
    ge_glu_tanh_forward,
    ge_glu_tanh_gradient,
)
from aclnn.operators.gelu import gelu_erf_derivative, gelu_erf_forward, gelu_tanh_derivative, gelu_tanh_forward
from aclnn.operators.glu import glu_forward, glu_gradient
from aclnn.operators.hardshrink import hardshrink_forward, hardshrink_gradient
from aclnn.operators.hardsigmoid import hardsigmoid_forward, hardsigmoid_gradient
from aclnn.operators.hardswish import hardswish_derivative, hardswish_forward, hardswish_v2_derivative
from aclnn.operators.hardtanh import hardtanh_gradient
from aclnn.operators.leaky_relu import leaky_relu_derivative, leaky_relu_forward
from aclnn.operators.log_sigmoid import log_sigmoid_derivative, log_sigmoid_formula
from aclnn.operators.mish import mish_derivative, mish_forward
from aclnn.operators.prelu import prelu_forward, prelu_gradients
from aclnn.operators.selu import selu_derivative_of_result, selu_forward
from aclnn.operators.sigmoid import sigmoid_derivative_of_result, sigmoid_forward
from aclnn.operators.silu import silu_derivative, silu_forward
from aclnn.operators.softplus import softplus_derivative, softplus_forward
from aclnn.operators.softshrink import shrink_forward, softshrink_gradient
from aclnn.operators.swi_glu import swi_glu_forward, swi_glu_gradient
from aclnn.operators.swish import swish_derivative, swish_forward
from aclnn.operators.threshold import relu_forward, threshold_forward, threshold_gradient
from aclnn.verify.goldens.enclosures import Ball


class Series:
    """A number and its derivative (a dual number), on which formulas run unchanged."""

    def __init__(self, value: Any, slope: Any = 0) -> None:
        self.terms = flint.arb_series([value, slope], 2)

    @staticmethod
    def of(value: Any) -> Any:
        if isinstance(value, Series):
            return value.terms
        return flint.arb_series([value.exact(flint.arb) if isinstance(value, Constant) else flint.arb(value)], 2)

    def then(self, terms: Any) -> Series:
        return Series(terms[0], terms[1])

    def __add__(self, other: Any) -> Series:
        return self.then(self.terms + Series.of(other))

    def __sub__(self, other: Any) -> Series:
        return self.then(self.terms - Series.of(other))

    def __rsub__(self, other: Any) -> Series:
        return self.then(Series.of(other) - self.terms)

    def __mul__(self, other: Any) -> Series:
        return self.then(self.terms * Series.of(other))

    def __truediv__(self, other: Any) -> Series:
        return self.then(self.terms / Series.of(other))

    def __rtruediv__(self, other: Any) -> Series:
        return self.then(Series.of(other) / self.terms)

    def __neg__(self) -> Series:
        return self.then(-self.terms)

    __radd__, __rmul__ = __add__, __mul__

    def __abs__(self) -> Series:
        return self if self.terms[0] > 0 else -self

    def __lt__(self, other: Any) -> bool:
        return bool(self.terms[0] < Series.of(other)[0])

    def __le__(self, other: Any) -> bool:
        return bool(self.terms[0] <= Series.of(other)[0])

    def __gt__(self, other: Any) -> bool:
        return bool(self.terms[0] > Series.of(other)[0])

    def __ge__(self, other: Any) -> bool:
        return bool(self.terms[0] >= Series.of(other)[0])

    def __eq__(self, other: object) -> bool:
        return bool(self.terms[0] == Series.of(other)[0])

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def exp(self) -> Series:
        return self.then(self.terms.exp())

    def expm1(self) -> Series:
        return self.then(self.terms.exp() - 1)

    def log1p(self) -> Series:
        return self.then((1 + self.terms).log())

    def erf(self) -> Series:
        return self.then(self.terms.erf())

    def erfc(self) -> Series:
        return self.then(self.terms.erfc())


ELU, CLIPPED = (1.5, 0.75, 0.25), (1.7, 4.5, 0.5)
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...]]] = {
    "silu": (silu_forward, silu_derivative, ()),
    "fast_gelu": (fast_gelu_forward, fast_gelu_derivative, ()),
    "gelu_erf": (gelu_erf_forward, gelu_erf_derivative, ()),
    "gelu_tanh": (gelu_tanh_forward, gelu_tanh_derivative, ()),
    "hardswish": (hardswish_forward, hardswish_derivative, ()),
    "hardswish_v2": (hardswish_forward, hardswish_v2_derivative, ()),
    "elu": (elu_forward, elu_derivative, ELU),
    "log_sigmoid": (log_sigmoid_formula, log_sigmoid_derivative, ()),
    "mish": (mish_forward, mish_derivative, ()),
    "swish": (swish_forward, swish_derivative, (-1.3,)),
    "hardsigmoid": (lambda x, dy: dy * hardsigmoid_forward(x), lambda x, dy: hardsigmoid_gradient(dy, x), (0.7,)),
    "leaky_relu": (leaky_relu_forward, leaky_relu_derivative, (0.3,)),
    "softplus": (softplus_forward, softplus_derivative, (1.5, 6.0)),
    "elu, by the result": (elu_forward, lambda x, *n: elu_derivative_of_result(elu_forward(x, *n), *n), ELU),
    "selu": (selu_forward, lambda x: selu_derivative_of_result(selu_forward(x)), ()),
    "sigmoid": (sigmoid_forward, lambda x: sigmoid_derivative_of_result(sigmoid_forward(x)), ()),
    "relu": (lambda x, dy: dy * relu_forward(x), lambda x, dy: threshold_gradient(dy, x, 0.0), (0.7,)),
    "threshold": (
        lambda x, dy, at: dy * threshold_forward(x, at, -3.0),
        lambda x, dy, at: threshold_gradient(dy, x, at),
        (0.7, 1.5),
    ),
    "hardtanh": (
        lambda x, dy, low, high: dy * minimum(maximum(x, low), high),
        lambda x, dy, low, high: hardtanh_gradient(dy, x, low, high),
        (0.7, -1.5, 2.5),
    ),
    "hardshrink": (
        lambda x, dy, lambd: dy * hardshrink_forward(x, lambd),
        lambda x, dy, lambd: hardshrink_gradient(dy, x, lambd),
        (0.7, 1.5),
    ),
    "softshrink": (
        lambda x, dy, lambd: dy * shrink_forward(x, lambd, lambd),
        lambda x, dy, lambd: softshrink_gradient(dy, x, lambd),
        (0.7, 1.5),
    ),
    "prelu": (lambda x, dy, w: dy * prelu_forward(x, w), lambda x, dy, w: prelu_gradients(dy, x, w)[0], (0.7, 0.2)),
    "prelu, weight": (
        lambda w, dy, x: dy * prelu_forward(x, w),
        lambda w, dy, x: prelu_gradients(dy, x, w)[1],
        (0.7, -1.3),
    ),
    "glu, value": (lambda x, dy, b: dy * glu_forward(x, b), lambda x, dy, b: glu_gradient(dy, x, b)[0], (0.7, -1.3)),
    "glu, gate": (lambda x, dy, a: dy * glu_forward(a, x), lambda x, dy, a: glu_gradient(dy, a, x)[1], (0.7, -1.3)),
    **{
        f"{name}, {place}": (
            lambda x, dy, other, f=forward, k=k: dy * f(*((x, other) if k == 0 else (other, x)))[0],
            lambda x, dy, other, f=forward, df=gradient, k=k: df(
                dy, *((x, other, f(x, other)[1]) if k == 0 else (other, x, f(other, x)[1]))
            )[k],
            (0.7, -1.3),
        )
        for name, forward, gradient in (
            ("ge_glu_erf", ge_glu_erf_forward, ge_glu_erf_gradient),
            ("ge_glu_tanh", ge_glu_tanh_forward, ge_glu_tanh_gradient),
        )
        for k, place in enumerate(("value", "gate"))
    },
    "clipped_swiglu, a": (
        lambda x, dy, b, *n: dy * clipped_swiglu_forward(x, b, *n),
        lambda x, dy, b, *n: clipped_swiglu_gradient(dy, x, b, *n)[0],
        (0.7, -1.3, *CLIPPED),
    ),
    "clipped_swiglu, b": (
        lambda x, dy, a, *n: dy * clipped_swiglu_forward(a, x, *n),
        lambda x, dy, a, *n: clipped_swiglu_gradient(dy, a, x, *n)[1],
        (0.7, -1.3, *CLIPPED),
    ),
    "swi_glu, gate": (
        lambda x, dy, b: dy * swi_glu_forward(x, b),
        lambda x, dy, b: swi_glu_gradient(dy, x, b)[0],
        (0.7, -1.3),
    ),
    "swi_glu, value": (
        lambda x, dy, a: dy * swi_glu_forward(a, x),
        lambda x, dy, a: swi_glu_gradient(dy, a, x)[1],
        (0.7, -1.3),
    ),
}


#: Where pieces meet that are not differentiable, although their sum may be.
KINKS: dict[str, tuple[float, ...]] = {
    "hardswish": (3.0,),
    "hardswish_v2": (3.0,),
    **dict.fromkeys(("leaky_relu", "log_sigmoid", "softplus", "selu", "relu", "prelu"), (0.0,)),
}


def points() -> list[float]:
    rng = np.random.default_rng(3)
    spread = np.ldexp(rng.normal(size=60), rng.integers(-60, 4, 60))
    return [*np.concatenate([rng.uniform(-12, 12, 200), spread]).astype(np.float32).tolist(), 0.0]


@pytest.mark.parametrize("name", PAIRS)
def test_a_gradient_is_the_derivative_of_its_forward(name: str) -> None:
    """Compare to 60 digits, at every kind of x where the forward has a derivative."""
    forward, gradient, numbers = PAIRS[name]
    with flint.ctx.workprec(400):
        for x in points():
            if abs(x) in KINKS.get(name, ()):
                continue
            expected = Series.of(forward(Series(flint.arb(x), 1), *(Series(flint.arb(number)) for number in numbers)))[
                1
            ]
            found = Ball.of(gradient(*map(Ball.of, (x, *numbers)))).ball
            assert expected.rad() < 1e-60
            assert abs(found - expected) <= 1e-60 * abs(expected) + 1e-99, x


def test_a_wrong_gradient_is_seen() -> None:
    with flint.ctx.workprec(400):
        right = Series.of(silu_forward(Series(flint.arb(0.5), 1)))[1]
        wrong = fast_gelu_derivative(Ball.of(0.5)).ball
        assert abs(wrong - right) > 0.01
    assert math.isclose(float(right), silu_derivative(0.5), rel_tol=1e-15)
