"""Norms of rows and of their differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import distances
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    first,
    scalar,
    to_torch,
    torch,
    wide,
)

NARROW = (D.FLOAT, D.FLOAT16)
RENORM = ("renorm", "inplace_renorm")
ORDERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "cdist": lambda d: {
        "x1": T(d, (2, 1, 3, 4)),
        "x2": T(d, (3, 5, 4)),
        "p": 1.5,
        "compute_mode": 0,
        "out": T(d, (2, 3, 3, 5)),
    },
    "cdist_backward": lambda d: {
        **{name: T(d, (2, 3, 5)) for name in ("grad", "cdist")},
        **{name: T(d, (2, 3, 4)) for name in ("x1", "out")},
        "x2": T(d, (1, 5, 4)),
        "p": 1.5,
    },
    "pdist": lambda d: {"self": T(d, (4, 3)), "p": 3.0, "out": T(d, (6,))},
    "pdist_forward": lambda d: {"self": T(d, (4, 3)), "pScalar": scalar(D.FLOAT, 3), "out": T(d, (6,))},
    **dict.fromkeys(RENORM, lambda d: {"p": scalar(D.FLOAT, 1.5), "dim": -1, "maxNorm": scalar(D.FLOAT, 4)}),
}


def _slope(a: Mapping[str, Any]) -> Any:
    """From the distances as they were given, which are not those of x1 and x2."""
    difference = wide(a["x1"])[..., :, None, :] - wide(a["x2"])[..., None, :, :]
    ratio = difference.abs() / wide(a["cdist"])[..., None]
    return (wide(a["grad"])[..., None] * difference.sign() * ratio ** (a["p"] - 1)).sum(-2)


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "cdist": lambda a: torch.cdist(wide(a["x1"]), wide(a["x2"]), a["p"]),
    "cdist_backward": _slope,
    "pdist": lambda a: torch.nn.functional.pdist(wide(a["self"]), a["p"]),
    "pdist_forward": lambda a: torch.nn.functional.pdist(wide(a["self"]), a["pScalar"]),
    **dict.fromkeys(RENORM, lambda a: torch.renorm(wide(first(a)), a["p"], a["dim"], a["maxNorm"])),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "cdist": {"x1": {"shape": (0, 3)}, "x2": {"shape": (5, 3)}, "out": {"shape": (0, 5)}},
    "cdist_backward": {name: {"shape": (0, 3)} for name in ("x1", "out")}
    | {name: {"shape": (0, 5)} for name in ("grad", "cdist")}
    | {"x2": {"shape": (5, 3)}},
    **{name: {"self": {"shape": (1, 3)}, "out": {"shape": (0,)}} for name in ("pdist", "pdist_forward")},
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as out": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as grad": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "2 to 8 dimensions": lambda o, name: Break(
        shape((6,), *({name, "out"} if o.name == "renorm" else (name,))), "2 to 8"
    ),
    "2 to 7 dimensions": lambda o, name: Break(shape((6,), name), "2 to 7"),
    "2 dimensions": lambda o, name: Break(shape((6,), name), "2 dimensions"),
    "rows that fit": lambda o, name: Break(shape((5, 3), name), "as long as"),
    "at least 0": lambda o, name: Break(
        {name: -2.0 if o.name in ("cdist", "cdist_backward", "pdist") else scalar(D.FLOAT, -2)}, "at least 0"
    ),
    "shape is a matrix for each set": lambda o, name: Break(shape((2, 3, 4), name), "a matrix for each set"),
    "same shape as cdist": lambda o, name: Break(shape((1, 3, 5), name), "that of cdist"),
    "its own sets": lambda o, name: Break(shape((1, 3, 4), name) | shape((2, 5, 4), "x2"), "rows of grad"),
    "same shape as x1": lambda o, name: Break(shape((1, 3, 4), name), "that of x1"),
    "shape is one for each pair of rows": lambda o, name: Break(shape((5,), name), "[6]"),
    "dimension of selfRef": lambda o, name: Break({name: 2}, "from -2 to 1"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array.astype(np.float64)) + 1 if name == "cdist" else array


class TestDistances(LibraryTests):
    subject = Subject(
        distances.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        default=TRAINED,
        dtypes=dict.fromkeys(("cdist_backward", "pdist", "pdist_forward"), NARROW),
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("of", NARROW)
def test_gradients_of_distances_are_pytorchs(p: float, of: D) -> None:
    """A row of the first is one of the second too, a column of two rows the same."""
    random = np.random.default_rng(5)
    x1, x2 = (random.normal(size=shape).astype(of.numpy) for shape in ((2, 3, 4), (2, 5, 4)))
    x2[:, 1] = x1[:, 2]
    x2[:, 3, 0] = x1[:, 0, 0]
    dy = random.normal(size=(2, 3, 5)).astype(of.numpy)
    placed = {name: Placed(array, "contiguous") for name, array in (("x1", x1), ("x2", x2), ("grad", dy))}
    placed |= {"cdist": Placed(np.zeros_like(dy), "contiguous"), "out": Placed(np.zeros_like(x1), "contiguous")}
    call = {name: each.tensor for name, each in placed.items()} | {"p": p}
    given = {"x1": call["x1"], "x2": call["x2"], "p": p, "compute_mode": 2, "out": call["cdist"]}
    prepare(BY_NAME["cdist"], given, Product.ASCEND_950).run()
    prepare(BY_NAME["cdist_backward"], call, Product.ASCEND_950).run()
    leaf = to_torch(x1).double().requires_grad_()
    found = torch.cdist(leaf, to_torch(x2).double(), p, "donot_use_mm_for_euclid_dist")
    found.backward(to_torch(dy).double())
    tolerance = 1e-5 if of == D.FLOAT else 1e-2
    np.testing.assert_allclose(placed["cdist"].view, found.detach().numpy(), tolerance, tolerance)
    np.testing.assert_allclose(placed["out"].view, leaf.grad.numpy(), tolerance, tolerance)


def test_minus_one_is_the_infinite_order_of_a_gradient() -> None:
    x = Placed(np.array([[3, 1]], np.float32), "contiguous")
    other = Placed(np.array([[1, 2]], np.float32), "contiguous")
    dy, out = Placed(np.array([[5]], np.float32), "contiguous"), Placed(np.zeros((1, 2), np.float32), "contiguous")
    distance = Placed(np.array([[2]], np.float32), "contiguous")
    call = {"grad": dy.tensor, "x1": x.tensor, "x2": other.tensor, "cdist": distance.tensor, "p": -1.0}
    prepare(BY_NAME["cdist_backward"], call | {"out": out.tensor}, Product.ATLAS_A2).run()
    assert out.view.tolist() == [[5, 0]]


@pytest.mark.parametrize("p", ORDERS)
def test_rows_without_columns_have_distance_0(p: float) -> None:
    out = Placed(np.full((2, 3), 7, np.float32), "contiguous")
    x1, x2 = (Placed(np.zeros(shape, np.float32), "contiguous") for shape in ((2, 0), (3, 0)))
    call = {"x1": x1.tensor, "x2": x2.tensor, "p": p, "compute_mode": 0, "out": out.tensor}
    prepare(BY_NAME["cdist"], call, Product.ATLAS_A2).run()
    assert not out.view.any()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_renorm_scales_slices_along_any_dimension(p: float) -> None:
    x = np.random.default_rng(6).normal(size=(2, 3, 4)).astype(np.float32)
    for dim in (-3, 1, 2):
        given, out = Placed(x, "transposed"), Placed(np.zeros_like(x), "contiguous")
        call = {"self": given.tensor, "p": scalar(D.FLOAT, p), "dim": dim, "maxNorm": scalar(D.FLOAT, 1.5)}
        prepare(BY_NAME["renorm"], call | {"out": out.tensor}, Product.ATLAS_A2).run()
        expected = torch.renorm(to_torch(x).double(), p, dim, 1.5).numpy()
        np.testing.assert_allclose(out.view, expected, 1e-6, 1e-6)
