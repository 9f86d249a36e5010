"""Choosing experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import gating
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, LibraryTests, Placed, Subject, torch

GATE = "moe_gating_top_k_softmax"
GATED = ("yOut", "expertIdxOut", "rowIdxOut")


def _gate(x: T, k: int) -> Arguments:
    rows = x.shape[:-1]
    # Atlas inference takes only float16, and no flags.
    finished = None if x.dtype == D.FLOAT16 else T(D.BOOL, rows)
    outs = dict.fromkeys(GATED, T(D.INT32, (*rows, k))) | {"yOut": T(x.dtype, (*rows, k))}
    return {"x": x, "finishedOptional": finished, "k": k, **outs}


def _gated(a: Mapping[str, Any]) -> Any:
    x, k, finished = a["x"].double(), a["k"], a["finishedOptional"]
    values, experts = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
    experts = experts[..., :k]
    rows = experts.numel() // k
    places = torch.arange(rows * k).reshape(k, rows).T.reshape(experts.shape)
    return (
        values[..., :k],
        experts if finished is None else torch.where(finished[..., None], x.shape[-1], experts),
        places,
    )


class TestGating(LibraryTests):
    subject = Subject(
        gating.OPERATORS,
        calls={GATE: lambda d: _gate(T(d, (5, 16)), 3)},
        references={GATE: _gated},
        default=TRAINED,
        empty={GATE: _gate(T(D.FLOAT, (0, 16)), 3)},
        breaks={
            "same data type as x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
            "null": lambda o, name: Break({name: T(D.BOOL, (5,))}, "null", D.FLOAT16, Product.ATLAS_INFERENCE),
            "2 to 3 dimensions": lambda o, name: Break(shape((16,), name), "2 to 3"),
            "extents of 32 bits": lambda o, name: Break(shape((2**31, 16), name), "2147483647"),
            "as many experts as the product takes": lambda o, name: Break(
                shape((5, 2049), name), "2048", product=Product.ASCEND_950
            ),
            "a flag for each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "among the experts": lambda o, name: Break({name: 17}, "from 0 to 16"),
            "shape is a place for each chosen": lambda o, name: Break(shape((5, 4), name), "[5, 3]"),
        },
        codes=dict.fromkeys(
            (
                *("null", "2 to 3 dimensions", "extents of 32 bits", "as many experts as the product takes"),
                *("a flag for each row", "among the experts", "shape is a place for each chosen"),
            ),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


def _run_gate(x: Array, finished: Array | None, k: int, product: Product) -> list[Array]:
    placed = [Placed(np.full((*x.shape[:-1], k), 7, kind), "contiguous") for kind in (x.dtype, np.int32, np.int32)]
    given = {"x": Placed(x, "contiguous").tensor, "finishedOptional": None, "k": k}
    if finished is not None:
        given["finishedOptional"] = Placed(finished, "contiguous").tensor
    outs = dict(zip(GATED, (each.tensor for each in placed), strict=True))
    prepare(BY_NAME[GATE], given | outs, product).run()
    return [each.view for each in placed]


def test_rows_of_three_dimensions_are_numbered_in_order() -> None:
    """The document's formula is of two dimensions; among equal scores the first expert goes before."""
    finished = np.array([[False, True], [False, False]])
    shares, experts, places = _run_gate(np.zeros((2, 2, 4), np.float32), finished, 2, Product.ATLAS_A2)
    assert (shares == 0.25).all()
    assert experts.tolist() == [[[0, 1], [4, 4]], [[0, 1], [0, 1]]]
    assert places.tolist() == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]


def test_atlas_inference_numbers_no_rows_and_takes_blocks_of_experts() -> None:
    x = np.arange(32, dtype=np.float16).reshape(2, 16)
    _, experts, places = _run_gate(x, None, 2, Product.ATLAS_INFERENCE)
    assert experts.tolist() == [[15, 14]] * 2
    assert not places.any()
    for other in (x[:, :8], np.tile(x, 17), x[np.newaxis]):
        with pytest.raises(AclnnError, match="x: expected 2 dimensions, a multiple of 16 up to 256"):
            _run_gate(other, None, 2, Product.ATLAS_INFERENCE)
