"""The least, the greatest, the middle elements, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import extremes
from tests.cases.table import GRID, Arguments, T
from tests.helpers.library import (
    BY_NAME,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    to_torch,
)

RANKED = ("median", "median_dim", "nan_median", "nan_median_dim", "kthvalue")
FOUND = {"valuesOut": T(D.FLOAT, (2,)), "indicesOut": T(D.INT64, (2,))}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "min": lambda d: {"out": T(d, ())},
    "max": lambda d: {"out": T(d, (1,))},
    **{name: lambda d: {"dim": -1, "keepdim": False, "out": T(D.INT64, GRID[:1])} for name in ("arg_max", "arg_min")},
    **{name: lambda d: {"dim": (1,), "keepDim": False, "out": T(d, GRID[:1])} for name in ("amax", "amin")},
    **{
        name: lambda d: {"dim": -1, "keepdim": False, "out": T(d, GRID[:1]), "indices": T(D.INT64, GRID[:1])}
        for name in ("max_dim", "min_dim")
    },
    "max_v2": lambda d: {"dims": (1,), "keepDims": False, "noopWithEmptyDims": True, "out": T(d, GRID[:1])},
    **{
        name: lambda d, dim=dim: {"dim": dim, "keepDim": True, "minOut": T(d, (2, 1)), "maxOut": T(d, (2, 1))}
        for name, dim in (("aminmax", (1,)), ("aminmax_dim", 1))
    },
    "aminmax_all": lambda d: {"minOut": T(d, ()), "maxOut": T(d, (1,))},
    "median": lambda d: {"valuesOut": T(d, ())},
    "nan_median": lambda d: {"out": T(d, ())},
    **{
        name: lambda d: {"dim": 1, "keepDim": False, "valuesOut": T(d, (2,)), "indicesOut": T(D.INT64, (2,))}
        for name in ("median_dim", "nan_median_dim")
    },
    "kthvalue": lambda d: {
        "k": 2,
        "dim": -1,
        "keepdim": True,
        "valuesOut": T(d, (2, 1)),
        "indicesOut": T(D.INT64, (2, 1)),
    },
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("arg_max", "arg_min"), REAL),
    **dict.fromkeys((*RANKED, "aminmax", "aminmax_dim", "aminmax_all"), (*TRAINED, D.INT32)),
    **dict.fromkeys(("max_dim", "min_dim"), (D.FLOAT, D.FLOAT16, D.BF16, D.INT64)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "min": lambda a: a["self"].min(),
    "max": lambda a: a["self"].max(),
    "arg_max": lambda a: a["self"].argmax(-1),
    "arg_min": lambda a: a["self"].argmin(-1),
    "amax": lambda a: a["self"].amax(1),
    "amin": lambda a: a["self"].amin(1),
    "max_dim": lambda a: tuple(a["self"].max(-1)),
    "min_dim": lambda a: tuple(a["self"].min(-1)),
    "max_v2": lambda a: a["self"].amax(1),
    **dict.fromkeys(("aminmax", "aminmax_dim"), lambda a: tuple(a["self"].aminmax(dim=1, keepdim=True))),
    "aminmax_all": lambda a: tuple(a["self"].aminmax()),
    "median": lambda a: a["self"].median(),
    "median_dim": lambda a: tuple(a["self"].median(1)),
    "nan_median": lambda a: a["self"].nanmedian(),
    "nan_median_dim": lambda a: tuple(a["self"].nanmedian(1)),
    "kthvalue": lambda a: tuple(a["self"].kthvalue(2, -1, keepdim=True)),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    operator.name: {each.name: {"shape": (0,)} for each in operator.parameters if each.kind is Kind.OUTPUT}
    for operator in extremes.OPERATORS
    if operator.name not in ("min", "max", "median", "nan_median", "aminmax_all")
} | {name: {"minOut": {"shape": (0, 1)}, "maxOut": {"shape": (0, 1)}} for name in ("aminmax", "aminmax_dim")}

BREAKS: Mapping[str, Breaking] = {
    **dict.fromkeys(
        ("elements along dim", "elements along dims"),
        lambda o, name: Break({name: {"shape": (2, 0)}}, "expected elements along dim"),
    ),
    "from 1 to the elements along dim": lambda o, name: Break({name: 4}, "from 1 to 3"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    """None of the numbers whose places are compared is there twice."""
    return np.arange(array.size, dtype=np.int8).reshape(array.shape) * 5 % 7 if operator in RANKED else array


class TestExtremes(LibraryTests):
    subject = Subject(
        extremes.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        default=(*REAL, D.BOOL),
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


@pytest.mark.parametrize("operator", ["median_dim", "nan_median_dim"])
def test_a_median_is_the_first_nan_or_one_of_the_numbers(operator: str) -> None:
    x = np.array([[3, np.nan, 1, np.nan], [4, 2, 8, 6]], np.float32)
    values, places = Placed(np.zeros(2, np.float32), "contiguous"), Placed(np.zeros(2, np.int64), "contiguous")
    call = {"self": Placed(x, "transposed").tensor, "dim": 1, "keepDim": False}
    call |= {"valuesOut": values.tensor, "indicesOut": places.tensor}
    prepare(BY_NAME[operator], call, Product.ATLAS_A2).run()
    expected = to_torch(x).median(1) if operator == "median_dim" else to_torch(x).nanmedian(1)
    np.testing.assert_array_equal(values.view, expected[0].numpy())
    np.testing.assert_array_equal(places.view, expected[1].numpy())


def test_the_median_of_no_element_is_nan() -> None:
    """The output was left unwritten."""
    given, out = Placed(np.zeros(0, np.float32), "contiguous"), Placed(np.float32(7).reshape(()), "contiguous")
    prepare(BY_NAME["median"], {"self": given.tensor, "valuesOut": out.tensor}, Product.ATLAS_A2).run()
    assert np.isnan(out.view)


def test_the_median_of_no_number_is_the_first_nan() -> None:
    """The document's example gives the first; PyTorch gives any of them."""
    x, values = Placed(np.full((1, 3), np.nan, np.float32), "contiguous"), Placed(np.zeros(1, np.float32), "contiguous")
    places = Placed(np.ones(1, np.int64), "contiguous")
    call = {"self": x.tensor, "dim": 1, "keepDim": False, "valuesOut": values.tensor, "indicesOut": places.tensor}
    prepare(BY_NAME["nan_median_dim"], call, Product.ATLAS_A2).run()
    assert np.isnan(values.view)
    assert places.view == 0


def test_the_greatest_of_numbers_without_sign_is_found_on_950() -> None:
    x, out = Placed(np.array([3, 65_535, 7], np.uint16), "contiguous"), Placed(np.zeros((), np.int64), "contiguous")
    call = {"self": x.tensor, "dim": 0, "keepdim": False, "out": out.tensor}
    prepare(BY_NAME["arg_max"], call, Product.ASCEND_950).run()
    assert out.view == 1
    with pytest.raises(AclnnError, match="got ACL_UINT16"):
        prepare(BY_NAME["arg_max"], call, Product.ATLAS_A2)


@pytest.mark.parametrize(
    ("dtype", "taken"),
    [(D.INT32, {Product.ASCEND_950}), (D.DOUBLE, set()), (D.BOOL, {Product.ASCEND_950, Product.ATLAS_A2})],
)
def test_max_dim_data_types_depend_on_the_product(dtype: D, taken: set[Product]) -> None:
    x, found = Tensor(dtype, (2, 3)), Tensor(dtype, (2,))
    call = {"self": x, "dim": 1, "keepdim": False, "out": found, "indices": Tensor(D.UINT16, (2,))}
    for product in (Product.ASCEND_950, Product.ATLAS_A2):
        if product in taken:
            assert prepare(BY_NAME["max_dim"], call, product).prepared.plan
        else:
            with pytest.raises(AclnnError, match="self: expected data type"):
                prepare(BY_NAME["max_dim"], call, product)


@pytest.mark.parametrize("keeps", [True, False])
def test_max_v2_over_no_dimensions_reduces_all_or_nothing(keeps: bool) -> None:
    x = np.array([[3, 7], [5, 1]], np.float32)
    call = {"self": x, "dims": (), "keepDims": True, "noopWithEmptyDims": keeps}
    found = computed("max_v2", call | {"out": np.zeros((2, 2) if keeps else (1, 1), np.float32)})
    assert found["out"].tolist() == (x.tolist() if keeps else [[7.0]])


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_a_single_extreme_has_no_dimension(name: str) -> None:
    call = {"self": Tensor(D.FLOAT, (2, 3)), "dim": (0, 1), "keepDim": False}
    assert prepare(BY_NAME[name], call | {"out": Tensor(D.FLOAT, ())}, Product.ATLAS_A2).prepared.plan
    with pytest.raises(AclnnError, match="out: expected shape"):
        prepare(BY_NAME[name], call | {"out": Tensor(D.FLOAT, (1,))}, Product.ATLAS_A2)
