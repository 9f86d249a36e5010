"""Functions of lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import LISTS, Kind
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import foreach
from tests.cases.table import GRID, INVALID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    INTEGERS,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    lerp,
    scalar,
    torch,
    wide,
)

FUNCTIONS = (
    *("acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "expm1", "log", "log10", "log1p", "log2", "sigmoid", "sin"),
    *("sinh", "tan", "tanh"),
)
FOREACH = tuple(operator.name for operator in foreach.OPERATORS)


#: Functions of a number in a tensor; version 2 takes a scalar.
IN_TENSORS = tuple(name for name in FOREACH if f"{name}_v2" in FOREACH)
#: That tensor by the data type of the lists.
NUMBER = {D.FLOAT16: T(D.FLOAT16, (1,)), D.FLOAT: T(D.FLOAT, ()), D.BF16: T(D.FLOAT, (1, 1))}
#: Functions of a number for each tensor, in one tensor.
IN_ONE_TENSOR = ("foreach_addcmul_list", "foreach_addcdiv_list")
SCALAR_LISTS = {"scalars": (scalar(D.FLOAT, 3), scalar(D.DOUBLE, -0.5))}


def _wides(tensors: Any) -> Any:
    return [*map(wide, tensors)]


def _item(number: Any) -> Any:
    return number.item() if isinstance(number, torch.Tensor) else number


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **{name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} for name in FOREACH},
    **{
        name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} | SCALAR_LISTS
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    **{
        name: lambda d: {
            **{each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")},
            **dict.fromkeys(("scalar", "alpha"), NUMBER[d]),
            "roundMode": T(D.INT8, (1,)),
        }
        for name in IN_TENSORS
    },
    **{
        name: lambda d: {
            **{each: (T(d, GRID), T(d, (4,))) for each in ("x1", "x2", "x3", "out")},
            "scalars": T(d, (1, 2)),
        }
        for name in IN_ONE_TENSOR
    },
    "foreach_non_finite_check_and_unscale": lambda d: {
        "scaledGrads": (T(d, GRID), T(d, (4,))),
        "foundInf": T(D.FLOAT, (1,)),
        "inScale": T(D.FLOAT, (1,)),
    },
    "foreach_lerp_list": lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x1", "x2", "weight", "out")},
    "foreach_round_off_number_v2": lambda d: {
        **{each: (T(d, GRID), T(d, (4,))) for each in ("x", "out")},
        "roundMode": scalar(D.INT8, 3),
    },
    "foreach_norm": lambda d: {
        "x": (T(d, GRID), T(d, (4,))),
        "scalar": scalar(D.FLOAT, 1),
        "out": (T(d, ()), T(d, (1,))),
    },
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **{
        f"foreach_{name}_list{version}": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x1"]), _wides(a["x2"]), alpha=_item(a["alpha"])
        )
        for name in ("add", "sub")
        for version in ("", "_v2")
    },
    **{
        f"foreach_{name}_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x1"]), _wides(a["x2"])
        )
        for name in ("mul", "div", "maximum", "minimum", "pow")
    },
    **{
        f"foreach_{name}_scalar{version}": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), _item(a["scalar"])
        )
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
        for version in ("", "_v2")
    },
    **{
        f"foreach_{name}_scalar_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), [3, -0.5]
        )
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
    },
    **{
        f"foreach_{name}_scalar{kind}": lambda a, name=name, kind=kind: getattr(torch, f"_foreach_{name}")(
            *(_wides(a[each]) for each in ("x1", "x2", "x3")), [3.0, -0.5] if kind == "_list" else _item(a["scalar"])
        )
        for name in ("addcmul", "addcdiv")
        for kind in ("", "_v2", "_list")
    },
    **{
        f"foreach_{name}_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            *(_wides(a[each]) for each in ("x1", "x2", "x3")), [3.0, -0.5]
        )
        for name in ("addcmul", "addcdiv")
    },
    "foreach_non_finite_check_and_unscale": lambda a: [
        *(wide(x) * a["inScale"][0] for x in a["scaledGrads"]),
        a["foundInf"],
    ],
    "foreach_lerp_scalar": lambda a: [lerp(*pair, a["weight"]) for pair in zip(a["x1"], a["x2"], strict=True)],
    **{
        f"foreach_{name}": lambda a, name=name: getattr(torch, f"_foreach_{name}")(_wides(a["x"]))
        for name in ("sqrt", "reciprocal", "exp", "abs", "neg", "sign", *FUNCTIONS)
    },
    "foreach_lerp_list": lambda a: [
        torch.lerp(*map(wide, each)) for each in zip(a["x1"], a["x2"], a["weight"], strict=True)
    ],
    "foreach_pow_scalar_and_tensor": lambda a: torch._foreach_pow(a["scalar"], _wides(a["x"])),
    **{f"foreach_round_off_number{version}": lambda a: torch._foreach_ceil(_wides(a["x"])) for version in ("", "_v2")},
    "foreach_zero_inplace": lambda a: [torch.zeros_like(x) for x in a["x"]],
    "foreach_copy": lambda a: a["x"],
    "foreach_norm": lambda a: torch._foreach_norm(_wides(a["x"]), 1),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{name: {p.name: (T(D.FLOAT, (0, 3)),) for p in BY_NAME[name].parameters if p.kind in LISTS} for name in FOREACH},
    **{
        name: {p.name: (T(D.FLOAT, (0,)),) for p in BY_NAME[name].parameters if p.kind in LISTS}
        | {"scalars": (scalar(D.FLOAT, 1),)}
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    **{
        name: {p.name: (T(D.FLOAT, (0, 3)),) if p.kind in LISTS else {"shape": (1,)} for p in BY_NAME[name].parameters}
        for name in (*IN_TENSORS, *IN_ONE_TENSOR)
    },
    "foreach_norm": {"x": (), "out": ()},
    "foreach_non_finite_check_and_unscale": {
        "scaledGrads": (T(D.FLOAT, (0, 3)),),
        "foundInf": {"shape": (1,)},
        "inScale": {"shape": (1,)},
    },
}

BREAKS: Mapping[str, Breaking] = {
    "as many as in x": lambda o, name: Break(
        {name: SCALAR_LISTS["scalars"][:1] if name == "scalars" else (T(D.FLOAT, GRID),)}, "2 elements"
    ),
    "as many as in x1": lambda o, name: Break({name: (T(D.FLOAT, GRID),)}, "2 elements"),
    "one element each": lambda o, name: Break({name: (T(D.FLOAT, ()), T(D.FLOAT, (2,)))}, "one element"),
    "at most 50 tensors": lambda o, name: Break(
        {p.name: (T(D.FLOAT, (1,)),) * 51 for p in o.parameters if p.kind in LISTS}
        | {p.name: (scalar(D.FLOAT, 3),) * 51 for p in o.parameters if p.kind is Kind.SCALAR_LIST}
        | ({"scalars": {"shape": (51,)}} if o.name in IN_ONE_TENSOR else {}),
        "at most 50",
        product=Product.ASCEND_950,
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    function = operator.removeprefix("foreach_")
    if name == "scalars":
        return np.array([[3, -0.5]])
    if name in ("scalar", "alpha", "roundMode"):
        return np.full(array.shape, 3 if name == "roundMode" else 2.5)
    if function.startswith(("sqrt", "log", "pow")):
        return np.abs(array)
    if function in FUNCTIONS:  # where each of them is a number, away from their poles
        return array / 16
    return array


class TestForeach(LibraryTests):
    subject = Subject(
        tuple(o for o in foreach.OPERATORS if o.name != "foreach_copy" and not o.name.endswith("_v2")),
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS
        | {
            f"data type with {first}": lambda o, name: Break({name: T(D.INT32, (1,))}, "ACL_FLOAT with")
            for first in ("x", "x1")
        }
        | {
            "data type of x1": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT (that of x1[0])", D.FLOAT),
            "a number for each tensor": lambda o, name: Break(shape((3,), name), "2 elements"),
        },
        default=TRAINED,
        # The documents leave shapes, and that their data types are one, to the tiling function.
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(
            (
                *("data type", "data type of each", "real number", "real number each"),
                *("data type with x", "data type with x1", "data type of x1"),
            ),
            INVALID,
        ),
    )


class TestVersion2(LibraryTests):
    subject = Subject(
        tuple(operator for operator in foreach.OPERATORS if operator.name.endswith("_v2")),
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS
        | {
            "data type with x": lambda o, name: Break({name: scalar(D.INT64, 1)}, "ACL_FLOAT or ACL_DOUBLE"),
            "data type with x1": lambda o, name: Break({name: scalar(D.INT64, 1)}, "ACL_FLOAT or ACL_DOUBLE"),
            "number that the data type holds": lambda o, name: Break(
                {name: scalar(D.DOUBLE, np.inf)}, "a number that ACL_FLOAT holds"
            ),
            "format of x": lambda o, name: Break(
                {name: (T(D.FLOAT, GRID, format=Format.FORMAT_NCL), T(D.FLOAT, (4,)))}, "ACL_FORMAT_ND"
            ),
            "no private format among them": lambda o, name: Break(
                {name: (T(D.FLOAT, GRID, format=Format.FORMAT_FRACTAL_NZ), T(D.FLOAT, (4,)))}, "ACL_FORMAT_ND"
            ),
        },
        numbers=numbers,
        default=TRAINED,
        codes={"at most 50 tensors": ACLNN_ERR_INNER_TILING_ERROR, "no null among them": INVALID},
    )


class TestCopy(LibraryTests):
    subject = Subject(
        (BY_NAME["foreach_copy"],),
        calls={"foreach_copy": CALLS["foreach_copy"]},
        references={"foreach_copy": lambda a: a["x"]},
        empty={"foreach_copy": EMPTY["foreach_copy"]},
        breaks={
            "as many as in x": BREAKS["as many as in x"],
            "one data type in the list": lambda o, name: Break(
                {name: (T(D.FLOAT, GRID), T(D.FLOAT16, (4,)))}, "ACL_FLOAT"
            ),
            "data type that x converts to": lambda o, name: Break(
                {name: (T(D.FLOAT, GRID), T(D.FLOAT, (4,)))}, "ACL_INT32", D.INT32
            ),
            "no private format among them": lambda o, name: Break(
                {name: (T(D.FLOAT, GRID, format=Format.FORMAT_FRACTAL_NZ), T(D.FLOAT, (4,)))}, "ACL_FORMAT_ND"
            ),
        },
        default=(*TRAINED, *INTEGERS, D.DOUBLE, D.BOOL),
        codes={"same shape each": ACLNN_ERR_INNER_TILING_ERROR},
    )


@pytest.mark.parametrize(
    ("source", "target"), [(D.FLOAT, D.FLOAT16), (D.FLOAT, D.BF16), (D.FLOAT16, D.FLOAT), (D.BF16, D.FLOAT)]
)
def test_foreach_copy_converts_data_types(source: D, target: D) -> None:
    """FSDP in bfloat16 copies gathered weights so; it was rejected."""
    x, out = Placed(np.array([1.5, -2], source.numpy), "contiguous"), Placed(np.zeros(2, target.numpy), "contiguous")
    prepare(BY_NAME["foreach_copy"], {"x": (x.tensor,), "out": (out.tensor,)}, Product.ATLAS_A2).run()
    assert out.view.tolist() == [1.5, -2]


def test_powers_of_integers_are_integers() -> None:
    for exponent, expected in ((scalar(D.INT64, -1), [0, 1, -1, 0]), (scalar(D.INT64, 3), [8, 1, -1, 27])):
        x, out = Placed(np.array([2, 1, -1, 3], np.int32), "contiguous"), Placed(np.zeros(4, np.int32), "contiguous")
        call = {"x": (x.tensor,), "scalar": exponent, "out": (out.tensor,)}
        prepare(BY_NAME["foreach_pow_scalar_v2"], call, Product.ATLAS_A2).run()
        assert out.view.tolist() == expected


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (1, [-2, -2, -0.0, 0, 2, 2, 3]),
        (2, [-3, -2, -1, 0, 1, 2, 2]),
        (3, [-2, -1, -0.0, 1, 2, 3, 3]),
        (4, [-3, -2, -1, 1, 2, 3, 3]),
        (5, [-2, -1, -0.0, 0, 1, 2, 2]),
        (6, [-3, -1, -1, 1, 1, 3, 3]),
        (7, [-0.5, -0.5, -0.5, 0.5, 0.5, 0.5, 0.75]),
        (0, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.75]),
    ],
)
def test_round_mode_selects_the_direction_of_rounding(mode: int, wanted: list[float]) -> None:
    given = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.75], np.float32)
    x, out = Placed(given, "contiguous"), Placed(np.zeros_like(given), "contiguous")
    call = {"x": (x.tensor,), "roundMode": scalar(D.INT8, mode), "out": (out.tensor,)}
    prepare(BY_NAME["foreach_round_off_number_v2"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == wanted


def test_foreach_copy_of_swapped_lists_keeps_both() -> None:
    """The second copy was one of what the first had written."""
    first, second = (Placed(np.full(4, value, np.float32), "contiguous") for value in (1, 2))
    call = {"x": (first.tensor, second.tensor), "out": (second.tensor, first.tensor)}
    prepare(BY_NAME["foreach_copy"], call, Product.ATLAS_A2).run()
    assert [first.view[0], second.view[0]] == [2, 1]


def test_foreach_norm_of_order_2_is_the_root_of_the_sum_of_squares() -> None:
    x = [Placed(array, "contiguous") for array in (np.array([3, 4], np.float32), np.full((2, 8), -0.5, np.float32))]
    out = [Placed(np.zeros((), np.float32), "contiguous") for _ in x]
    call = {"scalar": scalar(D.FLOAT, 2)} | {
        name: tuple(each.tensor for each in lists) for name, lists in (("x", x), ("out", out))
    }
    prepare(BY_NAME["foreach_norm"], call, Product.ATLAS_A2).run()
    assert [each.view.item() for each in out] == [5.0, 2.0]


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("add", 2**40 + 1, [3, 4]),
        ("mul", 2**32 - 1, [-2, -3]),
        ("pow", 2**40 + 2, [4, 9]),
    ],
)
def test_an_integer_beyond_the_tensors_type_wraps(name: str, number: int, expected: list[int]) -> None:
    """It raised an internal error."""
    x = np.array([2, 3], np.int32)
    call = {"x": (x,), "scalar": scalar(D.INT64, number), "out": (x * 0,)}
    assert computed(f"foreach_{name}_scalar_v2", call)["out"].tolist() == expected


@pytest.mark.parametrize(("order", "expected"), [(np.inf, 0), (-np.inf, np.inf), (2, 0), (1, 0)])
def test_empty_tensors_have_a_norm(order: float, expected: float) -> None:
    call = {"x": (np.zeros(0, np.float32),), "scalar": scalar(D.DOUBLE, order), "out": (np.ones(1, np.float32),)}
    assert computed("foreach_norm", call)["out"].tolist() == [expected]


@pytest.mark.parametrize("version", ["", "_v2"])
@pytest.mark.parametrize(("name", "taken"), [("add", True), ("mul", True), ("div", False), ("sub", False)])
def test_foreach_add_list_v2_accepts_float_with_float16_on_ascend_950(name: str, taken: bool, version: str) -> None:
    """CANN's sources accept it; Atlas A2 does not."""
    operator = BY_NAME[f"foreach_{name}_scalar{version}"]
    arrays = [Placed(np.ones(2, np.float16), "contiguous").tensor for _ in range(2)]
    number = scalar(D.FLOAT, 2) if version else Placed(np.full(1, 2, np.float32), "contiguous").tensor
    call = {"x": (arrays[0],), "scalar": number, "out": (arrays[1],)}
    for product, expected in ((Product.ASCEND_950, taken), (Product.ATLAS_A2, False)):
        if expected:
            prepare(operator, call, product)
        else:
            with pytest.raises(AclnnError, match="with ACL_FLOAT16"):
                prepare(operator, call, product)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_bytes_take_a_number_that_they_do_not_hold(dtype: type) -> None:
    x = np.array([2, 3], dtype)
    call = {"x": (x,), "scalar": scalar(D.INT64, 257), "out": (x * 0,)}
    assert computed("foreach_add_scalar_v2", call)["out"].tolist() == [3, 4]


@pytest.mark.parametrize(("version", "alpha"), [("", np.array([2], np.int32)), ("_v2", scalar(D.INT64, 2))])
def test_bytes_of_two_lists_are_added_on_atlas_a2(version: str, alpha: Any) -> None:
    x = np.array([2, 100], np.uint8)
    call = {"x1": (x,), "x2": (x,), "alpha": alpha, "out": (x * 0,)}
    assert computed(f"foreach_add_list{version}", call)["out"].tolist() == [6, 44]
    with pytest.raises(AclnnError, match="expected a data type that"):
        computed(f"foreach_add_list{version}", call, Product.ASCEND_950)
