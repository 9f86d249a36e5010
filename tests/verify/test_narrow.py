"""Outputs of integers and 8-bit floats, and outputs that were inputs."""

from __future__ import annotations

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product, set_soc_name
from aclnn.verify import check
from aclnn.verify.cases.arguments import VERIFIABLE

RNG = np.random.default_rng(5)
X = RNG.normal(size=(16, 64)).astype(np.float16)
SCALE = (np.abs(X.astype(np.float64)).max(-1) / 127).astype(np.float32)
QUOTIENTS = X.astype(np.float64) / SCALE[:, None]
INTEGERS = np.rint(QUOTIENTS).astype(np.int8)


def _outputs(report):
    return {output["name"]: output for output in report.data["cases"][0]["outputs"]}


def _quantized(integers):
    return check("dynamic_quant", {"x": X}, (integers, SCALE))


def test_quantized_integers_are_compared_and_reported_as_other_outputs():
    report = _quantized(INTEGERS)
    output = _outputs(report)["yOut"]
    assert report.passed
    assert (output["dtype"], [one["name"] for one in output["standards"]]) == ("int8", ["bitwise"])
    wrong = INTEGERS.copy()
    wrong[3, 5] += 1
    report = _quantized(wrong)
    assert "yOut fails bitwise; worst error 1 at [3, 5]" in report.brief().splitlines()[0]
    assert 'off by <b class="number">1</b>' in report.to_html()
    assert _outputs(_quantized(np.trunc(QUOTIENTS).astype(np.int8)))["yOut"]["causes"][0]["name"] == "rounding"


def _passes(x, y, bits=8):
    attributes = {"sqrtMode": False, "roundMode": "round", "dstType": {8: 2, 4: 3}[bits], "axis": -1}
    inputs = {"x": np.array([x], np.float32), "scale": np.ones(1, np.float32)}
    return check("ascend_quant_v3", inputs, y, **attributes).passed


def test_a_quantized_number_may_be_off_by_one_only_near_a_tie():
    x, right = [2.5, 3.5, 2.501, np.nextafter(np.float32(-7.5), np.float32(0))], [2, 4, 3, -7]
    changes = ((0, 3, True), (0, 1, False), (1, 3, True), (2, 2, False), (3, -8, True), (3, -6, False))
    for place, other, passes in changes:
        y = np.array([right], np.int8)
        y[0, place] = other
        assert _passes(x, y) == passes, (place, other)


def test_four_bit_integers_of_a_word_are_compared_one_by_one():
    x = [0.5, 1.5, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0]

    def word(first, second, third):
        numbers = enumerate((first, second, third, -3, 4, 5, -6, 7))
        return np.array([[sum((number & 15) << 4 * at for at, number in numbers)]], np.uint32).view(np.int32)

    assert _passes(x, word(0, 2, 2), 4)
    assert _passes(x, word(1, 2, 2), 4)
    assert _passes(x, word(1, 1, 2), 4)
    assert not _passes(x, word(0, 2, 3), 4)


def test_indices_of_equal_elements_may_be_exchanged_but_not_repeated():
    keys = np.array([[3, 1, 3, 2, 3, np.nan], [1, 1, 1, 1, 1, 1]], np.float32)
    values = np.array([[np.nan, 3, 3, 3], [1, 1, 1, 1]], np.float32)
    attributes = {"k": 4, "dim": -1, "largest": True, "sorted": True}

    def passes(*rows):
        return check("topk", {"self": keys}, (values, np.array(rows)), **attributes).passed

    assert passes([5, 0, 2, 4], [0, 1, 2, 3])
    assert passes([5, 4, 0, 2], [5, 1, 4, 3])
    assert not passes([5, 4, 4, 2], [5, 1, 4, 3])
    assert not passes([5, 4, 3, 2], [5, 1, 4, 3])
    assert not passes([5, 4, 0, 6], [5, 1, 4, 3])
    assert check("arg_max", {"self": keys[:, :5]}, np.array([4, 3]), dim=-1, keepdim=False).passed
    assert not check("arg_max", {"self": keys[:, :5]}, np.array([3, 3]), dim=-1, keepdim=False).passed


def test_masks_and_counts_are_exact():
    a, b = X[:8].astype(np.float32), X[8:].astype(np.float32)
    assert check("gt_tensor", {"self": a, "other": b}, a > b).passed
    wrong = a > b
    wrong[2, 2] ^= True
    assert not check("gt_tensor", {"self": a, "other": b}, wrong, standards=["mixed"]).passed
    assert not check("gt_tensor", {"self": a, "other": b}, wrong, all_standards=True).passed


def test_integers_of_activations_are_exact():
    x = np.arange(-8, 8, dtype=np.int32)
    assert check("relu", {"self": x}, np.maximum(x, 0)).passed
    assert not check("relu", {"self": x}, np.maximum(x, 1)).passed


def test_a_call_without_results_is_not_passed():
    with pytest.raises(ValueError, match="expected an output that can be verified, got none that the call writes"):
        check("trans_matmul_weight", {"mmWeightRef": X}, X)


def test_indices_that_rounding_may_change_are_not_verified():
    assert VERIFIABLE["quant_lightning_indexer"].parameter("out").index_of is None
    for name in ("dropout_v3_tensor", "multinomial_tensor", "matmul_all_reduce"):
        assert name not in VERIFIABLE


def test_eight_bit_floats_are_compared_on_their_grid():
    set_soc_name(Product.ASCEND_950.example)
    x = RNG.normal(size=(4, 64)).astype(np.float32)
    attributes = {"axis": -1, "roundModeOptional": "rint", "dstType": 36, "blocksize": 32, "scaleAlg": 0}
    blocks = x.reshape(4, 2, 32)
    exponents = np.floor(np.log2(np.abs(blocks).max(-1))) - 8
    y = (blocks / 2.0 ** exponents[..., None]).astype(np.float64).clip(-448, 448).reshape(x.shape)
    y, scales = y.astype(D.FLOAT8_E4M3FN.numpy), exponents.reshape(4, 1, 2).astype(D.FLOAT8_E8M0.numpy)
    scales = (2.0**exponents).reshape(4, 1, 2).astype(D.FLOAT8_E8M0.numpy)
    report = check("dynamic_mx_quant", {"x": x}, (y, scales), **attributes)
    assert report.passed, report.brief()
    assert [one["name"] for one in _outputs(report)["yOut"]["standards"]] == ["msprobe-ulp", "bitwise"]
    for wrong in ((np.roll(y, 1), scales), (y, (2.0 ** (exponents + 1)).reshape(4, 1, 2).astype(scales.dtype))):
        assert not check("dynamic_mx_quant", {"x": x}, wrong, **attributes).passed
    two_off = np.where(np.abs(y.astype(np.float32)) < 224, y.view(np.uint8) ^ 2, y.view(np.uint8)).view(y.dtype)
    assert _outputs(check("dynamic_mx_quant", {"x": x}, (two_off, scales), **attributes))["yOut"]["worst"]["ulp"] >= 2


def test_outputs_that_were_inputs_need_their_old_contents():
    var, m, v, grad = RNG.normal(size=(4, 3, 40)).astype(np.float32)
    v = np.abs(v)
    numbers = {"beta1Power": 0.9, "beta2Power": 0.99, "lr": 0.1, "weightDecay": 0.01, "beta1": 0.9, "beta2": 0.99}
    inputs = {name: np.array([value], np.float32) for name, value in (numbers | {"eps": 1e-6}).items()}
    power1, power2, lr, decay, beta1, beta2 = (np.float64(np.float32(value)) for value in numbers.values())
    new_m, new_v = (
        m + (1 - beta1) * (grad.astype(np.float64) - m),
        beta2 * v + (1 - beta2) * grad.astype(np.float64) ** 2,
    )
    step = lr / (1 - power1 * beta1) * new_m / (np.sqrt(new_v) / np.sqrt(1 - power2 * beta2) + np.float32(1e-6))
    after = [array.astype(np.float32) for array in (var * (1 - lr * decay) - step, new_m, new_v)]
    before = {"varRef": var, "mRef": m, "vRef": v, "grad": grad} | inputs
    attributes = {"amsgrad": False, "maximize": False}
    report = check("apply_adam_w", before, after, **attributes)
    assert report.passed, report.brief()
    assert [*_outputs(report)] == ["varRef", "mRef", "vRef"]
    assert not check("apply_adam_w", before, (var, *after[1:]), **attributes).passed
    del before["mRef"]
    with pytest.raises(ValueError, match="apply_adam_w: expected mRef as an input too, as it was before the call"):
        check("apply_adam_w", before, after, **attributes)
    with pytest.raises(ValueError, match="mm: expected one of self, mat2, got 'out'"):
        check("mm", {"self": var, "mat2": var.T, "out": var}, var @ var.T, cube_math_type=1)
