"""The constants of the float32 tails, recomputed with 200 bits: a mistyped digit shows within milliseconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from flint import arb

pytest.importorskip("triton")

from aclnn.kernels.cuda.elementwise import coefficients
from aclnn.kernels.cuda.elementwise.coefficients import Exponential
from constants import (
    nearest,
    two_hundred_bits,  # noqa: F401  (a fixture)
)

pytestmark = pytest.mark.usefixtures("two_hundred_bits")


def test_every_constant_is_a_float32() -> None:
    kappas = [value for value in vars(coefficients).values() if isinstance(value, Exponential)]
    assert len(kappas) == 4
    constants = [*coefficients.GELU_ERF_MILLS]
    for kappa in kappas:
        constants += (kappa.per_unit, kappa.step, kappa.step_low, *kappa.q, *kappa.power, *kappa.power_low)
    assert all(value == float(np.float32(value)) for value in constants)


@pytest.mark.parametrize(
    ("kappa", "scale", "factor"),
    [
        (coefficients.SILU_EXPONENTIAL, "1", lambda: arb(1)),
        (coefficients.FAST_GELU_EXPONENTIAL, "1.702", lambda: arb(1)),
        (coefficients.GELU_ERF_EXPONENTIAL, "0.5", lambda: 1 / (2 * arb.pi()).sqrt()),
        (coefficients.GELU_TANH_EXPONENTIAL, "1", lambda: arb(1)),
    ],
    ids=["silu", "fast_gelu", "gelu_erf", "gelu_tanh"],
)
def test_the_exponentials(kappa: Exponential, scale: str, factor: Callable[[], arb]) -> None:
    k, ln2 = arb(scale), arb(2).log()
    assert kappa.per_unit == nearest(8 * k / ln2)
    step = ln2 / (8 * k)
    assert kappa.step == nearest(step)
    assert kappa.step_low == nearest(step - kappa.step)
    # n·step is exact for every n that occurs, because step ends in enough zeros beside the sum it is added to.
    for i in range(8):
        exact = arb(2) ** (arb(i) / 8) * factor()
        assert kappa.power[i] == nearest(exact)
        rest = exact - kappa.power[i]
        assert kappa.power_low[i] == (nearest(rest) if i or factor() != 1 else 0.0)
    widest = float(step) * 0.501
    for r in np.linspace(-widest, widest, 41).tolist():
        q = kappa.q
        series = arb(r) * (q[0] + arb(r) * (q[1] + arb(r) * (q[2] + arb(r) * q[3])))
        exact = (-k * r).exp()
        assert abs(float((1 + series) / exact - 1)) < 2e-9


def test_the_parts_of_constants() -> None:
    scale = arb("1.702")
    assert nearest(scale) == coefficients.FAST_GELU_SCALE
    assert nearest(scale - coefficients.FAST_GELU_SCALE) == coefficients.FAST_GELU_SCALE_LOW
    k1 = 2 * (2 / arb.pi()).sqrt()
    k3 = arb("0.044715") * k1
    assert nearest(k1) == coefficients.GELU_TANH_K1
    assert nearest(k1 - coefficients.GELU_TANH_K1) == coefficients.GELU_TANH_K1_LOW
    assert nearest(k3) == coefficients.GELU_TANH_K3
    assert nearest(k3 - coefficients.GELU_TANH_K3) == coefficients.GELU_TANH_K3_LOW


def test_the_mills_ratio() -> None:
    """As a part of a - M(a), which is what a relative error of the result comes from."""
    for a in np.linspace(2.75, 15.1, 200).tolist():
        y, z, series = 1.0 / a, 1.0 / (a * a), 0.0
        for v in reversed(coefficients.GELU_ERF_MILLS):
            series = series * z + v
        exact = (arb(a) / arb(2).sqrt()).erfc() / 2 / ((-(arb(a) ** 2) / 2).exp() / (2 * arb.pi()).sqrt())
        assert abs(y + y * z * series - float(exact)) < 3e-8 * (a - float(exact))
        assert math.isfinite(series)
