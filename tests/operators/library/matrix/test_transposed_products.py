"""Products of batches of matrices whose dimensions lie in other orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import transposed_products
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Break, LibraryTests, Placed, Subject, described, torch, wide

NAME = "transpose_batch_mat_mul"
B, M, K, N = 4, 3, 5, 2


def _call(d: D) -> Arguments:
    return {
        "x1": T(d, (M, B, K)),
        "x2": T(d, (B, K, N)),
        "bias": None,
        "scale": None,
        "permX1": (1, 0, 2),
        "permX2": (0, 1, 2),
        "permY": (1, 0, 2),
        "cubeMathType": 0,
        "batchSplitFactor": 1,
        "out": T(d, (M, B, N)),
    }


class TestTransposedProducts(LibraryTests):
    subject = Subject(
        transposed_products.OPERATORS,
        calls={NAME: _call},
        references={NAME: lambda a: torch.einsum("mbk,bkn->mbn", wide(a["x1"]), wide(a["x2"]))},
        default=TRAINED,
        # Empty tensors are rejected; this is the least there may be.
        empty={NAME: shape((1, 1, 1), "x1", "x2", "out") | dict.fromkeys(("bias", "scale"))},
        breaks={
            "null": lambda o, name: Break({name: T(D.FLOAT, (N,))}, "null"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "same data type as x1": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "allowed value": lambda o, name: Break({name: 5}, "0, 1, 2, 3 or 4"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
            "not empty": lambda o, name: Break(
                shape((0, B, K), name) if name == "x1" else shape((B, K, 0), name), "elements"
            ),
            "small extents": lambda o, name: Break(
                shape((B, K, 2**16), "x2")
                if name == "x2"
                else shape((B, M, 2**16), "x1") | shape((B, 2**16, N), "x2") | {"permX1": (0, 1, 2)},
                "below 65536",
            ),
            "narrow rows": lambda o, name: Break(
                shape((M, B, 2**14), "x1") | shape((B, 2**14, N), "x2") | {name: 2}, "expected 1 for 65536"
            ),
            "untransposed": lambda o, name: Break(
                shape((B, N, K), "x2") | {name: (0, 2, 1), "batchSplitFactor": 2}, "[0, 1, 2] without permX1 [1, 0, 2]"
            ),
            "3 dimensions": lambda o, name: Break(shape((B, K), name), "3 dimensions"),
            "an order of dimensions": lambda o, name: Break(
                {name: (2, 1, 0)}, "[1, 0, 2]" if name != "permX2" else "[0, 2, 1]"
            ),
            "factors that fit": lambda o, name: Break(shape((B, M, N), name), "4 matrices of 5 rows"),
            "a divisor of the batch": lambda o, name: Break({name: 3}, "a divisor of 4"),
            "shape is the product": lambda o, name: Break(shape((B, M, N), name), "[3, 4, 2]"),
        },
        terms=K,
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_batches_may_be_split_side_by_side(parts: int, turned: bool) -> None:
    random = np.random.default_rng(3)
    x1, x2 = (random.normal(size=of).astype(np.float32) for of in ((B, M, K), (B, N, K) if turned else (B, K, N)))
    product = np.einsum("bmk,bnk->bmn" if turned else "bmk,bkn->bmn", x1.astype(np.float64), x2)
    expected = [np.concatenate(part, axis=-1) for part in product.reshape(parts, -1, M, N)]
    out = np.zeros((M, B, N) if parts == 1 else (parts, M, B // parts * N), np.float32)
    placed = {name: Placed(each, "contiguous") for name, each in {"x1": x1, "x2": x2, "out": out}.items()}
    orders: dict[str, Any] = {"permX1": (0, 1, 2), "permX2": (0, 2, 1) if turned else (0, 1, 2)}
    call = _call(D.FLOAT) | orders | {"batchSplitFactor": parts} | {name: each.tensor for name, each in placed.items()}
    prepare(BY_NAME[NAME], call, Product.ASCEND_950 if turned else Product.ATLAS_A2).run()
    np.testing.assert_allclose(placed["out"].view.reshape(np.shape(expected)), expected, rtol=1e-5, atol=1e-6)


def test_no_exact_accumulation_on_950() -> None:
    call = described(_call(D.FLOAT) | {"cubeMathType": 4})
    prepare(BY_NAME[NAME], call, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="cubeMathType: expected 0, 1, 2 or 3 on"):
        prepare(BY_NAME[NAME], call, Product.ASCEND_950)


def test_a_transposed_second_factor_with_a_transposed_first_before_950() -> None:
    call = _call(D.FLOAT16) | {"x2": T(D.FLOAT16, (B, N, K)), "permX2": (0, 2, 1)}
    prepare(BY_NAME[NAME], described(call), Product.ATLAS_A2)
    call |= {"x1": T(D.FLOAT16, (B, M, K)), "permX1": (0, 1, 2)}
    prepare(BY_NAME[NAME], described(call), Product.ASCEND_950)
    with pytest.raises(AclnnError, match="permX2: expected"):
        prepare(BY_NAME[NAME], described(call), Product.ATLAS_A2)
