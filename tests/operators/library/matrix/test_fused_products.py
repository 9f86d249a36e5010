"""Products of matrices with what follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import fused_products
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BREAKS as OF_ALL
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

NAME = "fused_matmul"
FOLLOWING: Mapping[str, Callable[[Any, Any], Any]] = {
    "": lambda y, x3: y,
    "add": lambda y, x3: y + x3,
    "mul": lambda y, x3: y * x3,
    "relu": lambda y, x3: y.relu(),
    "gelu_erf": lambda y, x3: torch.nn.functional.gelu(y),
    "gelu_tanh": lambda y, x3: torch.nn.functional.gelu(y, approximate="tanh"),
}


def _call(d: D, kind: str = "add") -> Arguments:
    return {
        "x1": T(d, (3, 4)),
        "x2": T(d, (4, 5)),
        "bias": T(d, (5,)),
        "x3": T(d, (3, 5)),
        "fusedOpType": kind,
        "cubeMathType": 3,
        "y": T(d, (3, 5)),
    }


def _joined(a: Mapping[str, Any]) -> Any:
    return wide(a["x1"]) @ wide(a["x2"]) + wide(a["bias"]) + wide(a["x3"])


def _on_950(breaking: Breaking) -> Breaking:
    return lambda o, name: breaking(o, name)._replace(product=Product.ASCEND_950)


class TestFusedProducts(LibraryTests):
    subject = Subject(
        fused_products.OPERATORS,
        calls={NAME: _call},
        references={NAME: _joined},
        default=TRAINED,
        empty={NAME: {"bias": None} | shape((0, 4), "x1") | shape((4, 5), "x2") | shape((0, 5), "x3", "y")},
        breaks={
            title: _on_950(breaking)
            for title, breaking in {
                **OF_ALL,
                "allowed value": lambda o, name: (
                    Break({name: 5}, "0, 1, 2, 3 or 4", D.FLOAT16)
                    if name == "cubeMathType"
                    else Break({name: "silu"}, "'relu'")
                ),
                "no bias of gelu": lambda o, name: Break({"fusedOpType": "gelu_erf"}, "null with"),
                "data type of the product": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
                "same data type as x1": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
                "data type of the result": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
                "data type with x1": lambda o, name: Break(dtype(D.BF16, name), "or ACL_FLOAT", D.FLOAT16),
                "less precise": lambda o, name: Break({name: 0}, "3 of ACL_FLOAT"),
                "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
                "dimensions of a product": lambda o, name: Break(shape((1, 1, 3, 4), name), "2 to 3"),
                "that fits x1": lambda o, name: Break(shape((5, 5), name), "[4] and columns"),
                "shape is the product": lambda o, name: Break(shape((5, 3), name), "[3, 5]"),
                "as y": lambda o, name: Break(shape((1, 5), name), "[3, 5]"),
                "of columns": lambda o, name: Break(shape((3, 5), name), "[5] or [1, 5]"),
                "an inner dimension": lambda o, name: Break(
                    shape((3, 0), "x1") | shape((0, 5), "x2"), "columns with bias"
                ),
            }.items()
        },
        codes={"no bias of gelu": NULL},
    )


@pytest.mark.parametrize("kind", FOLLOWING)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_fused_matmul_applies_every_operation(kind: str, batch: tuple[int, ...]) -> None:
    if batch and kind.startswith("gelu"):
        return
    random = np.random.default_rng(3)
    shapes = {"x1": (*batch, 3, 4), "x2": (*batch, 4, 5), "x3": (3, 5), "bias": (1, 5)}
    given: dict[str, Any] = {name: random.normal(size=of).astype(np.float16) for name, of in shapes.items()}
    call = _call(D.FLOAT16, kind) | given | {"y": np.zeros((*batch, 3, 5), np.float16), "cubeMathType": 0}
    call |= {"bias": None} if kind.startswith("gelu") else {}
    found = computed(NAME, call, Product.ASCEND_950)["y"]
    x1, x2, x3, bias = (wide(torch.from_numpy(given[name])) for name in ("x1", "x2", "x3", "bias"))
    y = x1 @ x2 if call["bias"] is None else x1 @ x2 + bias
    np.testing.assert_allclose(found, FOLLOWING[kind](y, x3), rtol=2e-3, atol=2e-3)


def test_fused_matmul_of_16_bits_may_return_float32() -> None:
    ones = {"x1": np.full((1, 2), 300, np.float16), "x2": np.full((2, 1), 300, np.float16), "bias": None, "x3": None}
    call = _call(D.FLOAT16, "16cast32") | ones | {"y": np.zeros((1, 1), np.float32)}
    assert computed(NAME, call, Product.ASCEND_950)["y"].tolist() == [[180000]]
    with pytest.raises(AclnnError, match="x1: expected data type ACL_FLOAT16, ACL_BF16 with") as caught:
        prepare(BY_NAME[NAME], described(_call(D.FLOAT, "16cast32")), Product.ASCEND_950)
    assert caught.value.code == ACLNN_ERR_PARAM_INVALID
