"""LayerNorm's gradients: against the differentiated forward, at extreme magnitudes, and with what is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from tests.cases.table import T
from tests.helpers.calls import assert_close
from tests.helpers.exact import NUMPY
from tests.helpers.normalization import backward

Array = np.ndarray[Any, Any]
F32 = np.float32


def forward(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Return LayerNorm as its document defines it; takes complex arguments for complex steps."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def differentiated(dy: Array, x: Array, weight: Array, bias: Array, eps: float) -> list[Array]:
    """Return the gradients of sum(dy·forward) by complex steps, without cancellation."""
    step = 1e-100j
    results = []
    for place, argument in enumerate((x, weight, bias)):
        gradient = np.empty(argument.shape)
        for i in np.ndindex(argument.shape):
            arguments = [a.astype(complex) for a in (x, weight, bias)]
            arguments[place][i] += step
            gradient[i] = (dy * forward(*arguments, eps)).sum().imag / 1e-100
        results.append(gradient)
    return results


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (5, 3), (4, 17), (3, 40)])
def test_gradients_match_the_forward(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    dy, x = rng.normal(size=(2, rows, columns)).astype(F32).astype(float)
    weight, bias = rng.normal(size=(2, columns)).astype(F32).astype(float)
    eps = 1e-5
    mean = x.mean(-1)
    rstd = 1 / np.sqrt(x.var(-1) + eps)
    got = aclnn.layer_norm_backward(
        *(a.astype(F32) for a in (dy, x)), (columns,), *(a.astype(F32) for a in (mean, rstd, weight, bias))
    )
    for result, exact in zip(got, differentiated(dy, x, weight, bias, eps), strict=True):
        assert np.abs(result - exact).max() <= 2e-5 * max(1, np.abs(exact).max())


def checked(arguments: dict[str, Any]) -> None:
    """Compute gradients, and compare those that are ordinary numbers with the exact ones."""
    columns = arguments["input"].shape[1]
    results = aclnn.layer_norm_backward(
        arguments["gradOut"],
        arguments["input"],
        (columns,),
        arguments["mean"],
        arguments["rstd"],
        arguments["weightOptional"],
    )
    dtype = D.of_numpy(arguments["input"].dtype)
    names = ("gradInputOut", "gradWeightOut", "gradBiasOut")
    outputs = {name: T(dtype, array.shape) for name, array in zip(names, results, strict=True)}
    with np.errstate(invalid="ignore", over="ignore"):
        expected = backward({**arguments, "normalizedShape": (columns,)}, outputs)
    for name, result in zip(names, results, strict=True):
        assert_close(name, result, *expected[name])


@pytest.mark.parametrize("dtype", [D.FLOAT, D.BF16], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("scale", "rstd", "gradient"),
    [
        (1e30, 1e-30, 1.0),
        (1e-30, 1e30, 1.0),
        (1.0, 1.0, 1e37),
        (1.0, 1e-10, 1e37),
        (1.0, 1.0, 1e-37),
        (1e18, 1e-18, 1e30),
        (1e35, 1e-36, 1e-20),
    ],
)
@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (300, 33), (2, 600)])
def test_intermediates_may_be_huge_or_tiny(
    dtype: D, scale: float, rstd: float, gradient: float, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(9)
    kind = NUMPY[dtype]
    checked(
        {
            "gradOut": (rng.normal(size=(rows, columns)) * gradient).astype(kind),
            "input": (rng.normal(size=(rows, columns)) * scale).astype(kind),
            "mean": np.zeros(rows, F32),
            "rstd": np.full(rows, rstd, F32),
            "weightOptional": rng.normal(size=columns).astype(kind),
        }
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["gradOut", "input", "mean", "rstd", "weightOptional"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (300, 33), (2, 600)])
def test_elements_that_are_not_finite_propagate_as_in_the_formula(
    value: float, name: str, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(10)
    arguments = {
        "gradOut": rng.normal(size=(rows, columns)).astype(F32),
        "input": rng.normal(size=(rows, columns)).astype(F32),
        "mean": rng.normal(size=rows).astype(F32),
        "rstd": rng.uniform(0.5, 2, rows).astype(F32),
        "weightOptional": rng.normal(size=columns).astype(F32),
    }
    arguments[name][(1,) * arguments[name].ndim] = value
    checked(arguments)


def test_equal_calls_give_equal_bits() -> None:
    rng = np.random.default_rng(11)
    dy, x = rng.normal(size=(2, 700, 300)).astype(F32)
    first = aclnn.layer_norm_backward(dy, x, (300,), x.mean(1), 1 / x.std(1), x[0])
    for _ in range(20):
        again = aclnn.layer_norm_backward(dy, x, (300,), x.mean(1), 1 / x.std(1), x[0])
        assert [a.tobytes() for a in again] == [f.tobytes() for f in first]


def test_statistics_without_room_are_rejected_untouched() -> None:
    x = np.ones((4, 3), F32)
    small = np.full(3, 7, F32)
    for mean, rstd in ((small, None), (None, small)):
        with pytest.raises(aclnn.AclnnError, match=r"out\[[12]\]: expected shape \[4, 1\], got \[3\]"):
            aclnn.layer_norm(x, (3,), out=(None, mean, rstd))
    assert (small == 7).all()
