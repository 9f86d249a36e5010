"""Comparisons, logic, finiteness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import comparison
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import BREAKS as SHARED
from tests.helpers.library import (
    BY_NAME,
    REAL,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    first,
    number_of,
    scalar,
    torch,
    wide,
)

COMPARISONS = {
    f"{where}{name}_{kind}": name
    for where in ("", "inplace_")
    for name in ("eq", "ne", "gt", "ge", "lt", "le")
    for kind in ("tensor", "scalar")
}


LOGIC = ("logical_and", "logical_or", "logical_xor", "inplace_logical_and", "inplace_logical_or")


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "is_close": lambda d: {"rtol": 0.5, "atol": 1.0, "equal_nan": True, "out": T(D.BOOL, GRID)},
    "equal": lambda d: {"out": T(D.BOOL, (1,))},
    **{
        name: lambda d: {"out": T(D.BOOL, GRID)}
        for name in (
            *(name for name in COMPARISONS if not name.startswith("inplace")),
            *LOGIC[:3],
            "is_finite",
            "is_inf",
            "is_pos_inf",
            "is_neg_inf",
            "signbit",
        )
    },
    "is_in_tensor_scalar": lambda d: {"assumeUnique": False, "invert": True, "out": T(D.BOOL, GRID)},
    "is_in_scalar_tensor": lambda d: {"assumeUnique": True, "invert": False, "out": T(D.BOOL, ())},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **{name: (*REAL, D.BOOL) for name in COMPARISONS if COMPARISONS[name] not in ("eq", "ne")},
    **dict.fromkeys(("is_in_tensor_scalar", "is_in_scalar_tensor"), REAL),
    **dict.fromkeys(("is_finite", "is_inf", "signbit", "is_close", "equal"), (*REAL, D.BOOL)),
    **dict.fromkeys(("is_pos_inf", "is_neg_inf"), (*(dtype for dtype in REAL if dtype != D.DOUBLE), D.BOOL)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **{name: lambda a, word=word: getattr(torch, word)(first(a), a["other"]) for name, word in COMPARISONS.items()},
    **{
        name: lambda a, name=name: getattr(torch, name.removeprefix("inplace_"))(first(a), a["other"]) for name in LOGIC
    },
    "is_finite": lambda a: a["self"].isfinite(),
    "is_inf": lambda a: a["self"].isinf(),
    "is_pos_inf": lambda a: a["self"].isposinf(),
    "is_neg_inf": lambda a: a["self"].isneginf(),
    "signbit": lambda a: a["self"].signbit(),
    "is_close": lambda a: torch.isclose(wide(a["self"]), wide(a["other"]), 0.5, 1.0, True),
    "is_in_tensor_scalar": lambda a: torch.isin(a["element"], a["testElement"], invert=True),
    "is_in_scalar_tensor": lambda a: torch.isin(a["element"], a["testElements"]),
    "equal": lambda a: torch.tensor([torch.equal(a["self"], a["other"])]),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "equal": {"out": {"shape": (1,)}},
    "is_in_scalar_tensor": {"out": {"shape": ()}},
}


def _unpromotable(operator: Operator, name: str) -> Break:
    if operator.name.endswith("ne_tensor"):
        return Break(dtype(D.UINT64, name), "promotes with", product=Product.ASCEND_950)
    if not operator.name.endswith("eq_scalar"):
        return SHARED["promotable"](operator, name)
    return Break(
        {operator.parameters[0].name: T(D.BOOL, GRID), name: scalar(D.UINT64, 1)},
        "promotes with",
        product=Product.ASCEND_950,
    )


BREAKS: Mapping[str, Breaking] = {
    "promotable": _unpromotable,
    "shape is one element": lambda o, name: Break(shape((2,), name), "one element"),
    "0 dimensions": lambda o, name: Break(shape((1,), name), "0 dimensions"),
    "same shape as element": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "data type ACL_BOOL": lambda o, name: Break(dtype(D.UINT8, name), "ACL_BOOL"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name in ("element", "testElements"):
        array[0, 0] = number_of(D.of_numpy(array.dtype)).value
    return array[:1] if name == "other" and operator in COMPARISONS else array  # broadcast


class TestComparison(LibraryTests):
    subject = Subject(
        tuple(operator for operator in comparison.OPERATORS if operator.name != "is_inf"),
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
    )


class TestIsInf(LibraryTests):
    subject = Subject(
        (BY_NAME["is_inf"],),
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        codes={"at most 8 dimensions": ACLNN_ERR_INNER_TILING_ERROR},
    )


def test_is_pos_inf_and_is_neg_inf_find_infinities() -> None:
    call = {"self": np.array([1, np.inf, -np.inf, np.nan], np.float32), "out": np.zeros(4, bool)}
    assert computed("is_inf", call)["out"].tolist() == [False, True, True, False]


@pytest.mark.parametrize("atol", [0.0, 0.5, 1.0])
def test_is_close_compares_integers_exactly(atol: float) -> None:
    """In float64 both were 2**53."""
    x, y = np.array([2**53 + 1, -(2**63)], np.int64), np.array([2**53, 2**63 - 1], np.int64)
    call = {"self": x, "other": y, "rtol": 0.0, "atol": atol, "equal_nan": False, "out": np.zeros(2, bool)}
    assert computed("is_close", call)["out"].tolist() == [atol >= 1, False]


@pytest.mark.parametrize(
    ("name", "x", "other", "wanted"),
    [
        ("ge_scalar", np.float16(0.1), scalar(D.DOUBLE, 0.1), False),
        ("gt_scalar", np.float16(1.5), scalar(D.DOUBLE, 1.5), False),
        ("gt_scalar", np.int32(2**24 + 1), scalar(D.DOUBLE, 2**24), True),
        ("lt_scalar", np.float16(0.1), scalar(D.FLOAT, 0.1), False),
        ("le_scalar", np.int32(2**24 + 1), scalar(D.DOUBLE, 2**24), True),
    ],
)
def test_the_type_in_which_a_number_is_compared_before_ascend_950(name: str, x: Any, other: Any, wanted: bool) -> None:
    """Less, or equal, takes the tensor's type or float32; greater, or equal, float64 where the other has no room."""
    call = {"self": np.array([x]), "other": other, "out": np.zeros(1, bool)}
    assert computed(name, call)["out"].tolist() == [wanted]


@pytest.mark.parametrize(("count", "wanted"), [(9, True), (10, False)])
def test_a_number_among_many_elements_decides_their_type(count: int, wanted: bool) -> None:
    call = {"element": scalar(D.DOUBLE, 0.1), "testElements": np.full(count, 0.1, np.float32)}
    flags = {"assumeUnique": False, "invert": False, "out": np.zeros((), bool)}
    assert computed("is_in_scalar_tensor", call | flags)["out"].item() is wanted


@pytest.mark.parametrize(
    ("name", "dtype", "out", "taken"),
    [
        ("eq_scalar", D.UINT64, D.BOOL, {Product.ASCEND_950}),
        ("eq_scalar", D.FLOAT, D.UINT32, {Product.ASCEND_950}),
        ("eq_tensor", D.FLOAT, D.UINT16, {Product.ASCEND_950}),
        ("lt_scalar", D.FLOAT, D.COMPLEX64, {Product.ASCEND_950}),
        ("lt_tensor", D.FLOAT, D.COMPLEX64, {Product.ASCEND_950}),
        ("logical_or", D.FLOAT, D.UINT32, {Product.ASCEND_950}),
        ("le_scalar", D.FLOAT, D.COMPLEX64, {Product.ASCEND_950}),
        ("le_scalar", D.UINT64, D.BOOL, {Product.ASCEND_950}),
        ("le_tensor", D.UINT64, D.BOOL, {Product.ASCEND_950}),
        ("le_tensor", D.UINT32, D.BOOL, set()),
        ("le_tensor", D.UINT16, D.BOOL, {Product.ASCEND_950, Product.ATLAS_A2}),
    ],
)
def test_comparable_data_types_depend_on_the_product(name: str, dtype: D, out: D, taken: set[Product]) -> None:
    other = scalar(dtype, 1) if name.endswith("scalar") else T(dtype, GRID)
    call = described({"self": T(dtype, GRID), "other": other, "out": T(out, GRID)})
    for product in (Product.ASCEND_950, Product.ATLAS_A2):
        if product in taken:
            prepare(BY_NAME[name], call, product)
        else:
            with pytest.raises(AclnnError, match="expected data type"):
                prepare(BY_NAME[name], call, product)


@pytest.mark.parametrize("dtype", [D.BOOL, D.COMPLEX64])
def test_booleans_and_complex_numbers_are_not_supported(dtype: D) -> None:
    flags = {"assumeUnique": False, "invert": False}
    for name, call in (
        ("is_in_tensor_scalar", {"element": T(D.FLOAT, GRID), "testElement": scalar(dtype, 1), "out": T(D.BOOL, GRID)}),
        ("is_in_scalar_tensor", {"element": scalar(D.FLOAT, 1), "testElements": T(dtype, GRID), "out": T(D.BOOL, ())}),
    ):
        with pytest.raises(AclnnError, match="expected data type"):
            prepare(BY_NAME[name], described(call | flags), Product.ATLAS_A2)
