"""Convolutions of tokens with those before them, and their gradients compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.convolution import causal_convolution
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch, wide

NAME, BACKWARD, MASK = "masked_causal_conv1d", "masked_causal_conv1d_backward", "maskOptional"
TOKENS, WEIGHT = (5, 2, 384), (3, 384)


def _call(d: D) -> Arguments:
    return {"x": T(d, TOKENS), "weight": T(d, WEIGHT), MASK: T(D.BOOL, (2, 5)), "out": T(d, TOKENS)}


def _backward_call(d: D) -> Arguments:
    outs = {"gradXOut": T(d, TOKENS), "gradWeightOut": T(d, WEIGHT)}
    return {"gradY": T(d, TOKENS), "x": T(d, TOKENS), "weight": T(d, WEIGHT), MASK: T(D.BOOL, (2, 5)), **outs}


def _convolved(x: Any, weight: Any, mask: Any) -> Any:
    """PyTorch's convolution of each channel, of sequences with two zeros before them."""
    rows = torch.nn.functional.pad(x.permute(1, 2, 0), (2, 0))
    found = torch.nn.functional.conv1d(rows, weight.T[:, None], groups=weight.shape[1]).permute(2, 0, 1)
    return found * mask.T[..., None]


def _forward(a: Mapping[str, Any]) -> Any:
    return _convolved(wide(a["x"]).double(), wide(a["weight"]).double(), a[MASK])


def _gradients(a: Mapping[str, Any]) -> Any:
    x, weight = (wide(a[name]).double().requires_grad_() for name in ("x", "weight"))
    return torch.autograd.grad(_convolved(x, weight, a[MASK]), (x, weight), wide(a["gradY"]).double())


def _on_950(change: Any, expected: str) -> Break:
    return Break(change, expected, product=Product.ASCEND_950)


TILING = {
    "3 dimensions": lambda o, name: _on_950(shape((5, 384), name), "3 dimensions"),
    "sizes with a kernel": lambda o, name: _on_950(shape((5, 2, 400), name), "a multiple of 64 from 384 to 24576"),
    "shape is a window of rows": lambda o, name: _on_950(shape((4, 384), name), "[3, 384]"),
    "each token": lambda o, name: _on_950(shape((5, 2), name), "[2, 5]"),
    "shape of another": lambda o, name: _on_950(shape((2, 384), name), "as "),
}


class TestCausalConvolution(LibraryTests):
    subject = Subject(
        causal_convolution.OPERATORS,
        calls={NAME: _call, BACKWARD: _backward_call},
        references={NAME: _forward, BACKWARD: _gradients},
        default=(D.FLOAT16, D.BF16),
        empty={
            NAME: shape((0, 2, 384), "x", "out") | shape((2, 0), MASK),
            BACKWARD: shape((0, 2, 0), "gradY", "x", "gradXOut") | shape((3, 0), "weight", "gradWeightOut"),
        },
        breaks={
            "data types that go together": lambda o, name: _on_950(dtype(D.INT32, name), "ACL_"),
            "format that counts as ND": lambda o, name: _on_950({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "data type": lambda o, name: _on_950(dtype(D.INT8, name), "ACL_BOOL"),
            **TILING,
        },
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


@pytest.mark.parametrize("tokens", [1, 2, 4])
def test_the_first_tokens_are_convolved_with_zeros(tokens: int) -> None:
    x = np.arange(1, tokens + 1, dtype=np.float16)[:, None, None].repeat(384, 2)
    weight = np.array([100, 10, 1], np.float16)[:, None].repeat(384, 1)
    given = {"x": x, "weight": weight, MASK: None, "out": np.zeros(x.shape, np.float16)}
    found = computed(NAME, given, Product.ASCEND_950)["out"]
    assert found[:, 0, 0].tolist() == [1, 12, 123, 234][:tokens]
    outs = {"gradXOut": np.zeros(x.shape, np.float16), "gradWeightOut": np.zeros((3, 384), np.float16)}
    grads = computed(BACKWARD, {"gradY": x, "x": x, "weight": weight, MASK: None, **outs}, Product.ASCEND_950)
    row = np.array([*range(1, tokens + 1), 0, 0])
    expected = [row[i] + 10 * row[i + 1] + 100 * row[i + 2] for i in range(tokens)]
    assert grads["gradXOut"][:, 0, 0].tolist() == expected
    sums = [sum(row[i] * row[i + 2 - k] for i in range(tokens)) for k in range(3)]
    assert grads["gradWeightOut"][:, 0].tolist() == sums
