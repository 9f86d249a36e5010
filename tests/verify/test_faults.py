"""Planted faults are named, right results pass: a sample of ``python -m benchmarks.faults``."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from aclnn import batch_norm, group_norm, layer_norm, layer_norm_backward, silu, silu_backward, softmax
from aclnn.verify import check
from aclnn.verify.diagnosis.sums import _by_threads
from aclnn.verify.number_formats import FORMATS
from benchmarks.faults import elements, norms, right

CASES = list(elements.cases())
_FAULTS = list(dict.fromkeys(one.name for one, _ in CASES))
SAMPLE = [
    next((one, index) for one, index in [*CASES[k % 7 :], *CASES] if one.name == name)
    if k % 3 == 0
    else [(one, index) for one, index in CASES if one.name == name][k % sum(one.name == name for one, _ in CASES)]
    for k, name in enumerate(_FAULTS)
]
"""Each fault on one operator and type."""


def test_there_are_enough_faults_and_right_results():
    assert len(_FAULTS) >= 60
    assert len(list(right.clean())) >= 60
    assert len({index for _, index in CASES}) == len(elements.SUBJECTS)


def test_planted_faults_are_named():
    pytest.importorskip("torch")  # whose results are among the faults
    results = [elements.assess(one, index) for one, index in SAMPLE]
    false = [f"{r.fault} on {r.subject}: {r.named}" for r in results if r.kind == "false"]
    assert not false
    assert sum(r.kind == "hit" for r in results) >= 0.95 * len(results)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["aclnn", "correctly rounded", "NumPy, float32", "PyTorch", "JAX, float32 inside"])
def test_right_results_pass(who):
    runs = [(label, run) for name, label, run in right.clean() if name == who]
    if not runs:
        pytest.skip("not installed")
    failed = {label: report.brief() for label, report in ((label, run()) for label, run in runs) if not report.passed}
    assert not failed


def _first(report):
    return report.data["cases"][0]["outputs"][0]["causes"]


def _dump(size=1 << 16):
    rng = np.random.default_rng(11)
    dy, x = rng.normal(size=(2, size)).astype(np.float32)
    return {"grad_output": dy, "self": x}, np.array(silu_backward(dy, x))


def test_a_cause_states_its_share_and_what_would_refute_it():
    inputs, dx = _dump()
    dx[1000:3000] = 0.0
    (cause,) = _first(check("silu_backward", inputs, dx))
    assert cause["name"] == "unwritten"
    assert cause["elements"] > 1900
    assert cause["share"] == 1.0
    assert cause["test"]
    assert "from 1000 to 2999" in cause["text"]


def test_a_gradient_that_is_multiplied_twice_is_named():
    """A result multiplied by grad_output twice is reported as that."""
    inputs, dx = _dump()
    cause = _first(check("silu_backward", inputs, dx * inputs["grad_output"]))[0]
    assert (cause["name"], cause["text"]) == ("wrong-operation", "the gradient is multiplied twice")


def test_a_squared_result_is_not_called_a_gradient():
    x = _dump()[0]["self"]
    cause = _first(check("silu", {"self": x}, np.array(silu(x)) ** 2))[0]
    assert (cause["name"], cause["text"]) == ("wrong-operation", "the result is squared")


def test_unexplained_errors_have_an_unknown_cause():
    """Random errors of 3 % in scattered elements are not reported as cancellation."""
    inputs, dx = _dump()
    struck = np.random.default_rng(4).random(dx.size) < 0.1
    dx[struck] *= np.random.default_rng(5).uniform(0.9, 1.1, struck.sum()).astype(np.float32)
    cause = _first(check("silu_backward", inputs, dx))[0]
    assert cause["name"] == "unknown"
    assert "grad_output from" in cause["text"]
    assert "self from" in cause["text"]


def test_gross_faults_are_stated_before_what_rounding_explains():
    inputs, _ = _dump()
    dy, x = inputs.values()
    s = 1 / (1 + np.exp(-x))
    dx = dy * s * (1 + x * (1 - s))
    dx[7] = np.nan
    causes = _first(check("silu_backward", inputs, dx))
    assert [cause["name"] for cause in causes] == ["not-finite", "cancellation"]


def test_flushed_subnormals_are_named_without_rationals():
    """Diagnosis of 2**18 flushed subnormals, which took 17 s by rationals, uses floats."""
    inputs, _ = _dump(1 << 18)
    inputs["grad_output"] *= np.float32(1e-38)
    dx = np.array(silu_backward(*inputs.values()))
    dx[np.abs(dx) < np.finfo(np.float32).tiny] = 0.0
    report = check("silu_backward", inputs, dx)
    assert report.passed
    assert _first(report)[0]["name"] == "flush-to-zero"


def test_large_outputs_are_searched_in_a_sample_and_counted_as_a_whole():
    inputs, dx = _dump(1 << 19)
    dx[300_000:304_096] = dx[:4096]
    done = []
    (cause,) = _first(check("silu_backward", inputs, dx, progress=done.append))
    assert cause["name"] == "stale"
    assert 4000 < cause["elements"] <= 4096
    assert "from 300000 to 304095" in cause["text"]
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_rows_without_stretches_are_sampled_and_counted_one_by_one():
    """Counting computes each channel of BatchNorm once, not once for each block of elements."""
    x = np.random.default_rng(8).normal(size=(8, 16, 64, 64)).astype(np.float32)
    given = {"training": True, "momentum": 0.1, "eps": 1e-5}
    results = [np.array(result) for result in batch_norm(norms.as_bfloat16(x), **given)]
    results[0][0] = 7.0
    report = check("batch_norm", {"input": x}, results, **given)
    for output in report.data["cases"][0]["outputs"]:
        causes = {cause["name"]: cause["share"] for cause in output["causes"]}
        assert causes["narrow-input"] > (0.8 if output["name"] == "out" else 0.99), output["name"]
        assert output["name"] != "out" or causes["unwritten"] == pytest.approx(1 / 8, abs=0.01)


def _norm(dtype="float32", rows=64, columns=96):
    rng = np.random.default_rng(2)
    kind = FORMATS[dtype]
    dy, x = (kind.round(rng.normal(size=(rows, columns))) for _ in range(2))
    weight = rng.normal(size=columns).astype(np.float32)
    _, mean, rstd = layer_norm(x, [columns])
    inputs = {"grad_out": dy, "input": x, "mean": mean, "rstd": rstd, "weight": weight}
    return inputs, [np.array(a) for a in layer_norm_backward(dy, x, [columns], mean, rstd, weight)]


@pytest.mark.parametrize("one", norms.cases(), ids=lambda one: f"{one.subject}: {one.name}")
def test_faults_of_norms_are_named(one):
    result = norms.assess(one)
    assert result.kind == "hit", result
    assert one.said in result.text


@pytest.mark.parametrize("scale", [1e-7, 1e-5, 1.0, 3e4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_aas_bfloat16_type_are_rounded_as_its_numbers_are(dtype, scale):
    target = FORMATS[dtype]
    rows = scale * np.random.default_rng(0).normal(size=(3, 500, 40))
    sums = np.zeros((3, 40))
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(500):
            sums = target.round(sums + rows[:, i]).astype(np.float64)
        np.testing.assert_array_equal(_by_threads(rows, target), sums.sum(axis=0))


def test_a_large_gradient_of_layer_norm_is_searched_around_its_worst_element():
    inputs, gradients = _norm(rows=3000)
    dx = gradients[0].copy()
    dx.reshape(-1)[96_000:100_096] = dx.reshape(-1)[:4096]
    causes = _first(check("layer_norm_backward", inputs, {"grad_input": dx}, normalized_shape=[96]))
    assert causes[0]["name"] == "stale"
    assert "from 96000 to 100095" in causes[0]["text"]


@pytest.mark.parametrize("dtype", FORMATS)
def test_right_gradients_of_layer_norm_pass(dtype):
    """Cancelling terms fail mere-mare, but not mixed, which is the standard that counts."""
    inputs, gradients = _norm(dtype)
    assert check("layer_norm_backward", inputs, tuple(gradients), normalized_shape=[96]).passed


def test_a_standard_stricter_than_the_type_is_marked():
    rng = np.random.default_rng(0)
    kind = FORMATS["bfloat16"]
    dy, x = (kind.round(rng.normal(size=100_000)) for _ in range(2))
    check_ = partial(check, "hardswish_backward", {"grad_output": dy, "self": x})
    exact = dy.astype(np.float64) * np.where(
        np.abs(x.astype(float)) <= 3, x.astype(float) / 3 + 0.5, x.astype(float) > 3
    )
    report = check_(kind.round(exact.astype(np.float32).astype(np.float64)))
    assert report.passed
    near = kind.round(exact * (1 + 2.0**-10))
    (row,) = (s for s in check_(near).data["cases"][0]["outputs"][0]["standards"] if s["name"] == "close")
    assert row["verdict"] == "fail"
    assert not row["counts"]
    assert row["reason"].startswith("stricter than bfloat16 allows")


def test_a_prediction_of_infinity_fits_no_finite_result():
    x = np.random.default_rng(1).normal(size=(32, 100)).astype(np.float32)
    report = check("softmax", {"self": x}, softmax(x, 0), dim=-1)
    assert not report.passed
    assert "left out, as if 0" not in report.brief()


@pytest.mark.parametrize(
    ("function", "attributes"),
    [(layer_norm, {"normalized_shape": [64]}), (group_norm, {"n": 64, "c": 64, "hxw": 1, "group": 4})],
)
def test_a_wrong_eps_is_named_after_the_attribute(function, attributes):
    x = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    w, b = np.random.default_rng(2).normal(size=(2, 64)).astype(np.float32)
    results = function(input=x, weight=w, bias=b, eps=0.01, **attributes)
    cause = _first(check(function.__name__, {"input": x, "weight": w, "bias": b}, results, eps=1e-5, **attributes))[0]
    assert cause["text"].startswith("as with eps = 0.01")


def test_finite_results_where_nan_is_right_are_named():
    x = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    x[3, 4] = np.nan
    results = tuple(map(np.nan_to_num, layer_norm(x, [64])))
    cause = _first(check("layer_norm", {"input": x}, results, normalized_shape=[64]))[0]
    assert (cause["name"], cause["text"]) == ("not-finite", "finite results instead of NaN or infinity")


def test_a_missing_bias_is_named():
    x = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    w, b = np.random.default_rng(2).normal(size=(2, 64)).astype(np.float32)
    results = layer_norm(x, [64], w, b * 0)
    cause = _first(check("layer_norm", {"input": x, "weight": w, "bias": b}, results, normalized_shape=[64]))[0]
    assert (cause["name"], cause["text"]) == ("wrong-input", "bias is left out, as if it were 0")
