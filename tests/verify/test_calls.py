"""Causes that are found by computing a plain operator again; large outputs are computed in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from aclnn.verify import check
from aclnn.verify.goldens import library

RNG = np.random.default_rng(8)
A, B, C = RNG.normal(size=(3, 24, 24)).astype(np.float32)
PRODUCT = A @ B


def _cause(operator, inputs, actual, **attributes):
    (output,) = check(operator, inputs, actual, **attributes).data["cases"][0]["outputs"]
    return output["verdict"], output["causes"][0]["name"], output["causes"][0]["text"]


def _product(actual):
    return _cause("mm", {"self": A, "mat2": B}, actual, cube_math_type=1)


def test_a_wrong_call_of_a_plain_operator_is_named():
    assert _product(A.T @ B)[1:] == ("moved-data", "self is read as if it were transposed (its last two dimensions)")
    assert _product(B @ A)[1:] == ("wrong-input", "self and mat2 are swapped")
    inputs, factors = {"self": C, "mat1": A, "mat2": B}, {"alpha": 0.5, "beta": 2.0, "cube_math_type": 1}
    assert _cause("addmm", inputs, 2 * C + PRODUCT, **factors)[1:] == ("wrong-attribute", "alpha is 1 instead of 0.5")
    assert _cause("addmm", inputs, C + PRODUCT / 2, **factors)[1:] == ("wrong-attribute", "beta is 1 instead of 2")
    image, weight, bias = (RNG.normal(size=n).astype(np.float32) for n in ((1, 3, 8, 8), (4, 3, 1, 1), 4))
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "transposed": False}
    actual = np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], image)
    attributes |= {"output_padding": (0, 0), "cube_math_type": 1}
    inputs = {"input": image, "weight": weight, "bias": bias}
    assert _cause("convolution", inputs, actual, **attributes)[1:] == ("wrong-input", "bias is left out")


def test_reversed_bytes_are_named():
    assert _product(PRODUCT.byteswap())[:2] == ("fail", "byte-order")
    assert _cause("silu", {"self": A}, (A / (1 + np.exp(-A))).byteswap())[:2] == ("fail", "byte-order")


@pytest.mark.parametrize("factor", [1.0005, 1.5])
def test_a_row_with_a_factor_is_not_called_stale(factor):
    x = RNG.normal(size=(64, 128)).astype(np.float32)
    y = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    y[9] *= np.float32(factor)
    text = f"the 128 elements from 1152 to 1279 are {factor:g} times what they should be"
    assert _cause("silu", {"self": x}, y) == ("fail", "scaled", text)


def test_a_row_near_its_results_is_not_called_stale():
    x = RNG.normal(size=(64, 128)).astype(np.float32)
    y = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    y[9] *= RNG.uniform(0.95, 1.05, 128).astype(np.float32)
    assert _cause("silu", {"self": x}, y)[1] == "unknown"


def test_large_outputs_of_elementwise_operators_are_computed_in_blocks(monkeypatch):
    x, y = RNG.normal(size=(2, 300_000)).astype(np.float32)
    sizes, compute = [], library.computed

    def computed(call, inputs):
        sizes.append(max(array.size for array in inputs.values()))
        return compute(call, inputs)

    monkeypatch.setattr(library, "computed", computed)
    monkeypatch.setattr(library, "_WHOLE", 1 << 16)
    assert check("gt_tensor", {"self": x, "other": y}, x > y).passed
    assert check("mul", {"self": x, "other": y}, x * y).passed
    assert max(sizes) <= 1 << 18
    wrong = x * y
    wrong[200_000:] = 0
    output = check("mul", {"self": x, "other": y}, wrong).data["cases"][0]["outputs"][0]
    assert (output["verdict"], output["causes"][0]["name"]) == ("fail", "unwritten")
    sizes.clear()
    for operator, actual, attributes in (
        ("cumsum", np.cumsum(x.astype(np.float64)).astype(np.float32), {"dim": 0, "dtype": "float32"}),
        ("flip", x[::-1].copy(), {"dims": (0,)}),
    ):
        assert check(operator, {"self": x}, actual, **attributes).passed
        assert max(sizes) == x.size


def test_memory_that_golden_values_need_is_stated_before_they_are_computed(monkeypatch):
    monkeypatch.setattr(library, "memory_bytes", lambda: 1 << 12)
    with pytest.raises(ValueError, match=r"mm: expected 1.29e-05 GiB of memory for golden values, got 3.81e-06 GiB"):
        check("mm", {"self": A, "mat2": B}, PRODUCT, cube_math_type=1)
