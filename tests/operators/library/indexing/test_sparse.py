"""Sparse tensors of coordinates and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_FIND_KERNEL_ERROR, ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.indexing import sparse
from tests.cases.table import INVALID, Arguments, T, dtype, shape
from tests.helpers.library import Break, Breaking, LibraryTests, Subject, computed, torch

COALESCE = "coalesce_sparse"
PLACES = (2, 0, 2, 1, 0)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    COALESCE: lambda d: {
        "uniqueLen": T(D.INT32, (3,)),
        "uniqueIndices": T(D.INT32, (5,)),
        "indices": T(D.INT64, (5, 2)),
        "values": T(d, (5, 3)),
        "newIndicesOut": T(D.INT64, (3, 2)),
        "newValuesOut": T(d, (3, 3)),
    }
}


def _coalesced(a: Mapping[str, Any]) -> Any:
    values = a["values"].double() if a["values"].is_floating_point() else a["values"]
    rows = [[at for at, place in enumerate(PLACES) if place == row] for row in range(3)]
    return torch.stack([a["indices"][at[0]] for at in rows]), torch.stack([values[at].sum(0) for at in rows])


def _numbers(operator: str, name: str, array: Any) -> Any:
    if name == "uniqueIndices":
        return np.array(PLACES)
    return np.array(PLACES)[:, None] * 3 + np.arange(2) if name == "indices" else array


BREAKS: Mapping[str, Breaking] = {
    "kernel of the product": lambda o, name: Break({}, "one with a kernel", product=Product.ATLAS_INFERENCE),
    "data types that go together": lambda o, name: Break(dtype(D.INT8, name), "ACL_"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "1 to 8 dimensions": lambda o, name: Break(shape((), name), "1 to 8"),
    "a place for each row": lambda o, name: Break(shape((4,), name), "5 elements"),
    "shape is a value for each row": lambda o, name: Break(shape((4, 3), name), "[5, 3]"),
    "shape is rows of coordinates": lambda o, name: Break(shape((3, 1), name), "[3, 2]"),
    "shape is a sum for each row": lambda o, name: Break(shape((3, 1), name), "[3, 3]"),
}


class TestSparse(LibraryTests):
    subject = Subject(
        sparse.OPERATORS,
        calls=CALLS,
        references={COALESCE: _coalesced},
        default=(D.FLOAT, D.FLOAT16, D.INT32),
        empty={COALESCE: {name: {"shape": (0,)} for name in ("uniqueLen", "uniqueIndices")}},
        breaks=BREAKS,
        numbers=_numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={
            **dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
            "kernel of the product": ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
        },
    )


def test_places_beyond_the_rows_are_reported() -> None:
    call = {"uniqueLen": np.zeros(1, np.int32), "uniqueIndices": np.array([0, 1], np.int32)}
    call |= {"indices": np.zeros((2, 1), np.int32), "values": np.ones(2, np.float32)}
    outs = {"newIndicesOut": np.zeros((1, 1), np.int32), "newValuesOut": np.zeros(1, np.float32)}
    with pytest.raises(AclnnError, match="uniqueIndices: expected places from 0 to 0, got 1"):
        computed(COALESCE, call | outs)


def test_coalesce_sparse_is_computed_on_ascend_950() -> None:
    """There was no kernel on Ascend 950; the source has one."""
    call = {"uniqueLen": np.array([2], np.int32), "uniqueIndices": np.array([0, 0, 1, 1], np.int32)}
    call["indices"] = np.array([[0, 0], [0, 0], [1, 2], [1, 2]], np.int32)
    call["values"] = np.arange(1, 5, dtype=np.float32)
    call |= {"newIndicesOut": np.zeros((2, 2), np.int32), "newValuesOut": np.zeros(2, np.float32)}
    got = computed(COALESCE, call, Product.ASCEND_950)
    np.testing.assert_array_equal(got["newIndicesOut"], [[0, 0], [1, 2]])
    np.testing.assert_array_equal(got["newValuesOut"], [3, 7])
