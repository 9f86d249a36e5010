"""Products of a batch of matrices of integers, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import summed_products
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, described, wide

NAME = "quant_matmul_reduce_sum_weight_nz"
UNUSED = ("yScale", "x1Offset", "x2Offset", "yOffset", "bias")


def _call(d: D) -> Arguments:
    return {
        "x1": T(d, (3, 4, 5)),
        "x2": T(d, (3, 5, 6), Format.FORMAT_FRACTAL_NZ),
        "x1Scale": T(D.FLOAT, (3, 4)),
        "x2Scale": T(D.BF16, (6,)),
        **dict.fromkeys(UNUSED),
        "transposeX1": False,
        "transposeX2": False,
        "groupSize": 0,
        "dims": (0,),
        "keepDims": False,
        "out": T(D.BF16, (4, 6)),
    }


def _summed(a: Mapping[str, Any]) -> Any:
    """Compute as torch_npu's document does."""
    products = wide(a["x1"]).double() @ wide(a["x2"]).double()
    return (products * wide(a["x1Scale"])[..., None] * wide(a["x2Scale"])).sum(0)


class TestSummedProducts(LibraryTests):
    subject = Subject(
        summed_products.OPERATORS,
        calls={NAME: _call},
        references={NAME: _summed},
        default=(D.INT8,),
        breaks={
            "null or empty": lambda o, name: Break({name: T(D.FLOAT, (6,))}, "null or an empty tensor"),
            "allowed value": lambda o, name: Break({name: True}, "expected"),
            "0 or less": lambda o, name: Break({name: 32}, "0 or less"),
            "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_"),
            "public format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "FRACTAL_NZ"),
            "3 dimensions": lambda o, name: Break(shape((4, 5), name), "3"),
            "no dimension of 0": lambda o, name: Break(shape((3, 0, 5), name), "no dimension of 0"),
            "matrices that fit": lambda o, name: Break(shape((3, 4, 6), name), "[3, 5, columns]"),
            "shape is one of each column": lambda o, name: Break(shape((5,), name), "[6]"),
            "shape is one of each row": lambda o, name: Break(shape((4, 3), name), "[3, 4]"),
            "shape is the sum of products": lambda o, name: Break(shape((3, 4, 6), name), "[4, 6]"),
        },
    )

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        """Empty tensors are rejected."""
        call = described(changed(self.subject.valid(operator, D.INT8), {"x1": {"shape": (3, 0, 5)}}))
        with pytest.raises(AclnnError, match="x1: expected no dimension of 0"):
            prepare(operator, call, Product.ATLAS_A2)

    def test_empty_tensors_count_as_null(self, operator: Operator) -> None:
        prepare(operator, described(_call(D.INT8) | dict.fromkeys(UNUSED, T(D.FLOAT, (0,)))), Product.ATLAS_A2)

    def test_dims_are_ignored(self, operator: Operator) -> None:
        """torch_npu describes them by a list that is gone by then."""
        prepare(operator, described(_call(D.INT8) | {"dims": (94854355754760,)}), Product.ATLAS_A2)
