"""Systems of linear equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library import solving
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Placed, Subject, precise, torch

(OPERATOR,) = solving.OPERATORS


def call(d: D) -> Arguments:
    return {
        "self": T(d, (2, 1, 3, 4)),
        "A": T(d, (5, 3, 3)),
        "upper": False,
        "transpose": False,
        "unitriangular": False,
        "xOut": T(d, (2, 5, 3, 4)),
        "mOut": T(d, (2, 5, 3, 3)),
    }


def solution(a: Mapping[str, Any]) -> Any:
    matrices = precise(a["A"])
    triangles = torch.triu(matrices) if a["upper"] else torch.tril(matrices)
    found = torch.linalg.solve_triangular(
        triangles.mT if a["transpose"] else triangles,
        precise(a["self"]),
        upper=a["upper"] != a["transpose"],
        unitriangular=a["unitriangular"],
    )
    return found, triangles.expand(2, *triangles.shape)


def well_conditioned(operator: str, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array / 9 + np.eye(array.shape[-1]) if name == "A" else array


class TestSolving(LibraryTests):
    subject = Subject(
        solving.OPERATORS,
        calls={OPERATOR.name: call},
        references={OPERATOR.name: solution},
        default=(D.FLOAT, D.DOUBLE, D.COMPLEX64, D.COMPLEX128),
        empty={
            OPERATOR.name: {
                "self": {"shape": (0, 3)},
                "A": {"shape": (0, 0)},
                "xOut": {"shape": (0, 3)},
                "mOut": {"shape": (0, 0)},
            }
        },
        numbers=well_conditioned,
        terms=4,
        breaks={
            "same data type as self": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "2 to 8 dimensions": lambda o, name: Break(shape((3,), name), "2 to 8 dimensions"),
            "square": lambda o, name: Break(shape((5, 3, 2), name), "as many columns"),
            "as many rows as A": lambda o, name: Break(shape((2, 1, 4, 4), name), "3 rows"),
            "leading dimensions that broadcast": lambda o, name: Break(shape((2, 4, 3, 4), name), "[5]"),
            "shape is self's, broadcast": lambda o, name: Break(shape((2, 5, 4, 3), name), "[2, 5, 3, 4]"),
            "shape is A's, broadcast": lambda o, name: Break(shape((5, 3, 3), name), "[2, 5, 3, 3]"),
            "ones only in float32": lambda o, name: Break({"unitriangular": True}, "ACL_FLOAT", D.DOUBLE),
        },
    )


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_every_form_reads_its_triangle_only(upper: bool, transpose: bool, unit: bool) -> None:
    arguments = call(D.FLOAT) | {"upper": upper, "transpose": transpose, "unitriangular": unit}
    random = np.random.default_rng(7)
    placed: dict[str, Placed] = {}
    for name, value in arguments.items():
        if isinstance(value, T):
            placed[name] = Placed(random.normal(size=value.shape).astype(np.float32), "contiguous")
    matrices = placed["A"].view
    below = np.tri(3, k=-1, dtype=bool)
    matrices[:, below if upper else below.T] = np.nan
    matrices[:, range(3), range(3)] = np.nan if unit else 2
    prepare(OPERATOR, arguments | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    read = np.triu(matrices) if upper else np.tril(matrices)
    np.testing.assert_array_equal(placed["mOut"].view, np.broadcast_to(read, (2, 5, 3, 3)))
    factors = np.where(np.eye(3) > 0, 1.0, read) if unit else read
    factors = factors.swapaxes(-1, -2) if transpose else factors
    right = np.broadcast_to(placed["self"].view, placed["xOut"].view.shape)
    np.testing.assert_allclose(factors @ placed["xOut"].view.astype(np.float64), right, rtol=1e-5, atol=1e-5)


def test_a_singular_matrix_gives_no_finite_solution() -> None:
    placed = {
        name: Placed(np.ones(each, np.float32), "contiguous")
        for name, each in {"self": (2, 1), "A": (2, 2), "xOut": (2, 1), "mOut": (2, 2)}.items()
    }
    placed["A"].view[0, 0] = 0
    flags = dict.fromkeys(("upper", "transpose", "unitriangular"), False)
    prepare(OPERATOR, flags | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    assert not np.isfinite(placed["xOut"].view).any()
