"""GroupNorm and Swish, and its gradients: extended precision on numbers that break careless formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.verify import check
from tests.cases.table import T
from tests.helpers import norms
from tests.helpers.calls import assert_close

Array = np.ndarray[Any, Any]
SHAPE, GROUPS = (2, 4, 33), 2
SCALES = (1.0, 40.0, -3.0, 0.0, 1e30)


def given(kind: str) -> dict[str, Array]:
    """Return x, dy, weights and biases for which |z| is in the hundreds: e^-z overflows float32 at -88."""
    rng = np.random.default_rng(5)
    x, dy = (rng.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    w, b = (rng.normal(size=4).astype(np.float32) * np.float32([1, 30, 1, 90]) for _ in range(2))
    if kind == "shifted":
        x += np.float32(100)
    elif kind == "equal":
        x[...] = 0.3
    elif kind == "subnormal":
        x, dy = x * np.float32(1e-41), dy * np.float32(1e-41)
    elif kind == "one large":
        x[0, 0, 0] = 1e30
    elif kind == "NaN":
        x[0, 0, 0] = np.nan
    elif kind == "infinite":
        x[0, 0, 0], b[3] = np.inf, -np.inf
    return {"x": x, "dy": dy, "gamma": w, "beta": b}


def compare(expected: dict[str, tuple[Array, Array]], results: tuple[Array, ...]) -> None:
    for (name, (exact, slack)), got in zip(expected.items(), results, strict=True):
        assert_close(name, got, exact, slack)


@pytest.mark.parametrize("kind", ["ordinary", "shifted", "equal", "subnormal", "one large", "NaN", "infinite"])
def test_special_numbers_follow_the_formula(kind: str) -> None:
    tensors = given(kind)
    wide = {name: array.astype(np.float64) for name, array in tensors.items()}
    x, dy, w, b = tensors.values()
    outputs = {"yOut": T(D.FLOAT, SHAPE), "meanOut": T(D.FLOAT, (2, 2)), "rstdOut": T(D.FLOAT, (2, 2))}
    gradients = {"dxOut": T(D.FLOAT, SHAPE), "dgammaOut": T(D.FLOAT, (4,)), "dbetaOut": T(D.FLOAT, (4,))}
    for scale in SCALES:
        attributes = {"numGroups": GROUPS, "eps": 1e-5, "swishScale": scale, "activateSwish": True}
        results = aclnn.group_norm_swish(x, w, b, GROUPS, swish_scale=scale)
        compare(norms.group_swish(wide | attributes, outputs), results)
        _, mean, rstd = results
        statistics = {"mean": mean.astype(np.float64), "rstd": rstd.astype(np.float64)}
        results = aclnn.group_norm_swish_grad(dy, mean, rstd, x, w, b, GROUPS, swish_scale=scale)
        compare(norms.group_swish_backward(wide | attributes | statistics, gradients), results)


def test_a_nan_spoils_its_group_and_its_channel_only() -> None:
    _, dy, w, b = given("ordinary").values()
    x = given("NaN")["x"]
    y, mean, rstd = aclnn.group_norm_swish(x, w, b, GROUPS)
    dx, dw, db = aclnn.group_norm_swish_grad(dy, mean, rstd, x, w, b, GROUPS)
    for spoilt in (y, dx):
        assert np.isnan(spoilt[0, :2]).all()
        assert np.isfinite(spoilt[0, 2:]).all()
        assert np.isfinite(spoilt[1]).all()
    for spoilt in (dw, db):
        assert np.isnan(spoilt).tolist() == [True, True, False, False]


def test_outputs_that_are_not_required_are_neither_written_nor_checked() -> None:
    x, dy, w, b = given("ordinary").values()
    _, mean, rstd = aclnn.group_norm_swish(x, w, b, GROUPS)
    whole = aclnn.group_norm_swish_grad(dy, mean, rstd, x, w, b, GROUPS)
    kept = np.full(4, 7, np.float32)
    options = {"num_groups": GROUPS, "grad_weight_required": False}
    results = aclnn.group_norm_swish_grad(dy, mean, rstd, x, w, b, **options, out=(None, kept, None))
    assert (kept == 7).all()
    np.testing.assert_array_equal(results[0], whole[0])
    np.testing.assert_array_equal(results[2], whole[2])
    assert not aclnn.group_norm_swish_grad(dy, mean, rstd, x, w, b, **options)[1].any()
    inputs = {"grad_out": dy, "mean": mean, "rstd": rstd, "input": x, "weight": w, "bias": b}
    report = check("group_norm_swish_grad", inputs, results, **options)
    assert [output["name"] for output in report.data["cases"][0]["outputs"]] == ["grad_input", "grad_bias"]
    assert report.passed
