"""Einstein's summation convention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators.library.matrix import einsum
from tests.cases.table import T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch

SHAPES = (1, 2, 3, 4), (1, 2, 3, 5, 4)


class TestEinsum(LibraryTests):
    subject = Subject(
        einsum.OPERATORS,
        calls={
            "einsum": lambda d: {
                "tensors": tuple(T(d, shape) for shape in SHAPES),
                "equation": "abcd,abced->abce",
                "output": T(d, (1, 2, 3, 5)),
            }
        },
        references={"einsum": lambda a: torch.einsum("abcd,abced->abce", *(each.double() for each in a["tensors"]))},
        empty={
            "einsum": {
                "tensors": (T(D.FLOAT, (0,)), T(D.FLOAT, (2,))),
                "equation": "a,b->ab",
                "output": {"shape": (0, 2)},
            }
        },
        breaks={
            "no null among them": lambda o, name: Break({name: (T(D.FLOAT, SHAPES[0]), None)}, "an object"),
            "data type": lambda o, name: Break(dtype(D.BF16, name), "data type"),
            "format ACL_FORMAT_ND each": lambda o, name: Break(
                {name: (T(D.FLOAT, SHAPES[0], Format.FORMAT_NCHW), T(D.FLOAT, SHAPES[1]))}, "ACL_FORMAT_ND"
            ),
            "two": lambda o, name: Break({name: (T(D.FLOAT, SHAPES[0]),)}, "expected two"),
            "data type … (that of tensors)": lambda o, name: Break(dtype(D.INT64, name), "that of tensors"),
            "known equation": lambda o, name: Break({name: "ab,bc->ac"}, "'a,b->ab', in any letters"),
            "shapes of the equation": lambda o, name: Break(
                {name: (T(D.FLOAT, SHAPES[0]), T(D.FLOAT, (1, 2, 3, 5, 5)))}, "[a, b, c, e, d]"
            ),
            "shape is of the equation's result": lambda o, name: Break(shape((1, 2, 3, 4), name), "[1, 2, 3, 5]"),
        },
        default=(D.FLOAT, D.FLOAT16, D.INT16, D.INT32, D.INT64),
    )


@pytest.mark.parametrize("equation", ["a,b->ab", "x,i->xi"])
def test_letters_are_free(equation: str) -> None:
    x, y = np.arange(3, dtype=np.int32), np.arange(1, 3, dtype=np.int32)
    call: dict[str, Any] = {"tensors": (x, y), "equation": equation, "output": np.zeros((3, 2), np.int32)}
    np.testing.assert_array_equal(computed("einsum", call)["output"], np.outer(x, y))
