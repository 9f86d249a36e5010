"""Softmax of scaled and masked scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import masked_softmax
from tests.cases.table import INVALID, TILING, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
    wide,
)

SOFTMAX, GRADIENT = "scaled_masked_softmax", "scaled_masked_softmax_backward"
WINDOWS = "masked_softmax_with_rel_pos_bias"
SCORES, MASK = (2, 3, 4, 5), (2, 1, 4, 5)
OPTIONS: Arguments = {"mask": T(D.BOOL, MASK), "scale": 0.75, "fixTriuMask": False}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    SOFTMAX: lambda d: OPTIONS | {"x": T(d, SCORES), "y": T(d, SCORES)},
    GRADIENT: lambda d: OPTIONS | {name: T(d, SCORES) for name in ("gradOutput", "y", "out")},
}


def _softmax(a: Mapping[str, Any]) -> Any:
    return (a["x"].double() * a["scale"]).masked_fill(a["mask"], -10000).softmax(-1)


def _gradient(a: Mapping[str, Any]) -> Any:
    """PyTorch's own function of what softmax gave, which here need not be shares."""
    gradient, y = (wide(a[name]).double() for name in ("gradOutput", "y"))
    return torch.ops.aten._softmax_backward_data(gradient, y, -1, torch.float64).masked_fill(a["mask"], 0) * a["scale"]


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.INT32, name), "data type"),
    "same data type as x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as gradOutput": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "4 dimensions": lambda o, name: Break(shape((3, 4, 5), name), "4 dimensions"),
    "same shape as x": lambda o, name: Break(shape((2, 3, 4, 6), name), "[2, 3, 4, 5]"),
    "same shape as gradOutput": lambda o, name: Break(shape((2, 3, 4, 6), name), "[2, 3, 4, 5]"),
    "as x": lambda o, name: Break(shape((2, 2, 4, 5), name), "1 for the first two extents"),
    "as gradOutput": lambda o, name: Break(shape((2, 3, 1, 5), name), "1 for the first two extents"),
    "scores in a row": lambda o, name: Break(
        shape((1, 1, 1, 4097), *(p.name for p in o.parameters if p.is_tensor)), "1 to 4096"
    ),
    "allowed value": lambda o, name: Break({name: True}, "False"),
}


class TestMaskedSoftmax(LibraryTests):
    subject = Subject(
        masked_softmax.OPERATORS[:2],
        calls=CALLS,
        references={SOFTMAX: _softmax, GRADIENT: _gradient},
        default=TRAINED,
        empty={
            SOFTMAX: {name: {"shape": (0, 3, 4, 5)} for name in ("x", "mask", "y")},
            GRADIENT: {name: {"shape": (0, 3, 4, 5)} for name in ("gradOutput", "y", "mask", "out")},
        },
        breaks=BREAKS,
    )


def _run(name: str, product: Product = Product.ATLAS_A2, **arrays: Any) -> dict[str, Any]:
    placed = {key: Placed(value, "contiguous") for key, value in arrays.items()}
    call = OPTIONS | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], call, product).run()
    return {key: each.view for key, each in placed.items()}


def test_loss_through_the_softmax_has_autograds_gradient() -> None:
    random = np.random.default_rng(3)
    x, arriving = (random.standard_normal(SCORES).astype(np.float32) for _ in range(2))
    mask = random.random(MASK) < 0.4
    mask[0, 0, 1] = True
    leaf = torch.tensor(x).double().requires_grad_()
    expected = (leaf * 0.75).masked_fill(torch.tensor(mask), -10000).softmax(-1)
    expected.backward(torch.tensor(arriving).double())
    y = _run(SOFTMAX, x=x, mask=mask, y=np.zeros_like(x))["y"]
    found = _run(GRADIENT, gradOutput=arriving, y=y, mask=mask, out=np.zeros_like(x))["out"]
    assert y == pytest.approx(expected.detach().numpy(), rel=1e-6, abs=1e-30)
    assert y[0, :, 1].tolist() == [[np.float32(0.2)] * 5] * 3
    assert found == pytest.approx(leaf.grad.numpy(), rel=1e-5, abs=1e-7)


def test_ascend_950_takes_longer_rows() -> None:
    x, mask = np.zeros((1, 1, 1, 8192), np.float32), np.zeros((1, 1, 1, 8192), bool)
    found = _run(SOFTMAX, Product.ASCEND_950, x=x, mask=mask, y=x.copy())["y"]
    assert (found == 2.0**-13).all()
    longer, more = np.zeros((1, 1, 1, 8193), np.float32), np.zeros((1, 1, 1, 8193), bool)
    with pytest.raises(AclnnError, match="1 to 8192 scores"):
        _run(SOFTMAX, Product.ASCEND_950, x=longer, mask=more, y=longer.copy())


def _biased(a: Mapping[str, Any]) -> Any:
    """Of two windows, whose masks alternate along the first dimension."""
    mask = wide(a["attenMaskOptional"]).repeat(2, 1, 1)[:, None]
    return (wide(a["x"]) * 0.5 + mask + wide(a["relativePosBias"])).softmax(-1)


def _windows(d: D) -> Arguments:
    return {
        **{name: T(d, (4, 3, 4, 5)) for name in ("x", "out")},
        "attenMaskOptional": T(d, (2, 4, 5)),
        "relativePosBias": T(d, (3, 4, 5)),
        "scaleValue": 0.5,
        "innerPrecisionMode": 0,
    }


class TestBiasedSoftmax(LibraryTests):
    subject = Subject(
        masked_softmax.OPERATORS[2:],
        calls={WINDOWS: _windows},
        references={WINDOWS: _biased},
        default=TRAINED,
        empty={WINDOWS: _windows(D.FLOAT) | {"out": T(D.FLOAT, (0, 3, 4, 5))}},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "same data type as x": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "4 to 5 dimensions": lambda o, name: Break(shape((3, 4, 5), name), "4 to 5 dimensions"),
            "3 to 5 dimensions": lambda o, name: Break(shape((4, 5), name), "3 to 5 dimensions"),
            "no dimension of 0": lambda o, name: Break(shape((4, 3, 0, 5), name), "no dimension of 0"),
            "a mask for each window": lambda o, name: Break(shape((3, 4, 5), name), "windows in [4, 3, 4, 5]"),
            "a bias for each head": lambda o, name: Break(shape((2, 4, 5), name), "[3, 4, 5]"),
            "same shape as x": lambda o, name: Break(shape((4, 3, 4, 6), name), "[4, 3, 4, 5]"),
        },
        code=TILING,
        codes=dict.fromkeys(
            ("data types that go together", "format that counts as ND", "same data type as x"), INVALID
        ),
    )


@pytest.mark.parametrize("of_mask", [None, (2, 4, 5), (2, 1, 4, 5), (1, 2, 1, 4, 5)])
@pytest.mark.parametrize("of_bias", [(3, 4, 5), (1, 3, 4, 5), (1, 1, 3, 4, 5)])
@pytest.mark.parametrize("of_scores", [(4, 3, 4, 5), (2, 2, 3, 4, 5)])
def test_attention_softmax_of_windows_takes_masks_and_biases_of_every_shape(
    of_mask: tuple[int, ...] | None, of_bias: tuple[int, ...], of_scores: tuple[int, ...]
) -> None:
    random = np.random.default_rng(4)
    x, bias = (random.normal(size=of).astype(np.float32) for of in (of_scores, of_bias))
    expected = torch.tensor(x).double().view(2, 2, 3, 4, 5) * 0.5 + torch.tensor(bias).double().view(3, 4, 5)
    arrays = {"x": x, "relativePosBias": bias, "out": np.zeros_like(x)}
    if of_mask is not None:
        arrays["attenMaskOptional"] = random.normal(size=of_mask).astype(np.float32)
        expected = expected + torch.tensor(arrays["attenMaskOptional"]).double().view(2, 1, 4, 5)
    found = computed(WINDOWS, _windows(D.FLOAT) | {"attenMaskOptional": None} | arrays)["out"]
    np.testing.assert_allclose(found, expected.softmax(-1).view(of_scores), 1e-6)
