"""The gradients' formulas against the forwards', differentiated as power series over balls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest

from aclnn.formula import Constant
from aclnn.operators.elu import elu_slope, elu_value
from aclnn.operators.fast_gelu import fast_gelu_slope, fast_gelu_value
from aclnn.operators.gelu import gelu_erf_slope, gelu_erf_value, gelu_tanh_slope, gelu_tanh_value
from aclnn.operators.hardsigmoid import hardsigmoid_gradient, hardsigmoid_value
from aclnn.operators.hardswish import hardswish_slope, hardswish_v2_slope, hardswish_value
from aclnn.operators.leaky_relu import leaky_relu_slope, leaky_relu_value
from aclnn.operators.log_sigmoid import log_sigmoid_slope, log_sigmoid_value
from aclnn.operators.mish import mish_slope, mish_value
from aclnn.operators.silu import silu_slope, silu_value
from aclnn.operators.softplus import softplus_slope, softplus_value
from aclnn.operators.swi_glu import swi_glu_gradient, swi_glu_value
from aclnn.operators.swish import swish_slope, swish_value
from aclnn.verify.goldens.enclosures import Ball


class Series:
    """A number and its derivative, which formulas run on as they stand."""

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


ELU = (1.5, 0.75, 0.25)
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...]]] = {
    "silu": (silu_value, silu_slope, ()),
    "fast_gelu": (fast_gelu_value, fast_gelu_slope, ()),
    "gelu_erf": (gelu_erf_value, gelu_erf_slope, ()),
    "gelu_tanh": (gelu_tanh_value, gelu_tanh_slope, ()),
    "hardswish": (hardswish_value, hardswish_slope, ()),
    "hardswish_v2": (hardswish_value, hardswish_v2_slope, ()),
    "elu": (elu_value, elu_slope, ELU),
    "log_sigmoid": (log_sigmoid_value, log_sigmoid_slope, ()),
    "mish": (mish_value, mish_slope, ()),
    "swish": (swish_value, swish_slope, (-1.3,)),
    "hardsigmoid": (lambda x, dy: dy * hardsigmoid_value(x), lambda x, dy: hardsigmoid_gradient(dy, x), (0.7,)),
    "leaky_relu": (leaky_relu_value, leaky_relu_slope, (0.3,)),
    "softplus": (softplus_value, softplus_slope, (1.5, 6.0)),
    "swi_glu, gate": (
        lambda x, dy, b: dy * swi_glu_value(x, b),
        lambda x, dy, b: swi_glu_gradient(dy, x, b)[0],
        (0.7, -1.3),
    ),
    "swi_glu, value": (
        lambda x, dy, a: dy * swi_glu_value(a, x),
        lambda x, dy, a: swi_glu_gradient(dy, a, x)[1],
        (0.7, -1.3),
    ),
}


#: Where pieces meet that are not differentiable, although their sum may be.
KINKS: dict[Any, tuple[float, ...]] = {
    hardswish_value: (3.0,),
    leaky_relu_value: (0.0,),
    log_sigmoid_value: (0.0,),
    softplus_value: (0.0,),
}


def points() -> list[float]:
    rng = np.random.default_rng(3)
    spread = np.ldexp(rng.normal(size=60), rng.integers(-60, 4, 60))
    return [*np.concatenate([rng.uniform(-12, 12, 200), spread]).astype(np.float32).tolist(), 0.0]


@pytest.mark.parametrize("name", PAIRS)
def test_a_gradient_is_the_derivative_of_its_forward(name: str) -> None:
    """To 60 digits, at every kind of x where the forward has one."""
    forward, gradient, numbers = PAIRS[name]
    with flint.ctx.workprec(400):
        for x in points():
            if abs(x) in KINKS.get(forward, ()):
                continue
            expected = Series.of(forward(Series(flint.arb(x), 1), *(Series(flint.arb(number)) for number in numbers)))[
                1
            ]
            found = Ball.of(gradient(*map(Ball.of, (x, *numbers)))).ball
            assert expected.rad() < 1e-60
            assert abs(found - expected) <= 1e-60 * abs(expected) + 1e-99, x


def test_a_wrong_gradient_is_seen() -> None:
    with flint.ctx.workprec(400):
        right = Series.of(silu_value(Series(flint.arb(0.5), 1)))[1]
        wrong = fast_gelu_slope(Ball.of(0.5)).ball
        assert abs(wrong - right) > 0.01
    assert math.isclose(float(right), silu_slope(0.5), rel_tol=1e-15)
