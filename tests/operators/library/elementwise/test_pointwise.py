"""Bounds, choices, interpolation, fused products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.tensor import Scalar
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import pointwise
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    FLOATING,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    lerp,
    scalar,
    tensors_of,
    torch,
)

BY_NAME = {operator.name: operator for operator in pointwise.OPERATORS}

CLAMPS = (
    *("clamp", "clamp_min", "clamp_max", "inplace_clamp_max", "hardtanh", "inplace_hardtanh", "clamp_tensor"),
    *(f"{where}clamp_{name}_tensor" for name in ("min", "max") for where in ("", "inplace_")),
)


BOUNDS: Mapping[str, Scalar] = {"clipValueMin": scalar(D.INT64, 1), "clipValueMax": scalar(D.DOUBLE, 2)}


def _clamped(a: Mapping[str, Any]) -> Any:
    """The upper bound wins."""
    values, low, high = first(a), a.get("clipValueMin"), a.get("clipValueMax")
    values = values if low is None else torch.clamp(values, min=low)
    return values if high is None else torch.clamp(values, max=high)


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **{
        name: lambda d, name=name: {p.name: BOUNDS[p.name] for p in BY_NAME[name].parameters if p.name in BOUNDS}
        for name in CLAMPS
        if not name.endswith("tensor")
    },
    "s_where": lambda d: {"condition": T(D.BOOL, (3,))},
    "masked_scale": lambda d: {"mask": T(D.UINT8 if d == D.BF16 else D.FLOAT, GRID), "scale": 2.5},
    "inplace_masked_fill_tensor": lambda d: {"mask": T(D.BOOL, GRID), "value": T(d, ())},
    "inplace_masked_fill_scalar": lambda d: {"mask": T(D.BOOL, GRID)},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(CLAMPS, REAL),
    **dict.fromkeys(("addcmul", "inplace_addcmul"), (*FLOATING, D.INT8, D.UINT8, D.INT32, D.INT64)),
    **dict.fromkeys(("addcdiv", "inplace_addcdiv"), FLOATING),
    "masked_scale": TRAINED,
    **{f"inplace_masked_fill_{kind}": (*TRAINED, D.INT8, D.INT32, D.INT64, D.BOOL) for kind in ("scalar", "tensor")},
    **dict.fromkeys(("lerp", "lerps", "inplace_lerp", "inplace_lerps"), TRAINED),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(
            first(a), a["tensor1"], a["tensor2"], value=a["value"]
        )
        for name in ("addcmul", "addcdiv")
        for where in ("", "inplace_")
    },
    **{
        f"{where}{name}": lambda a: lerp(first(a), a["end"], a["weight"])
        for name in ("lerp", "lerps")
        for where in ("", "inplace_")
    },
    **dict.fromkeys(CLAMPS, lambda a: _clamped(a)),
    "masked_scale": lambda a: a["self"].double() * a["mask"].double() * 2.5,
    "s_where": lambda a: torch.where(a["condition"], a["self"], a["other"]),
    **{
        f"inplace_masked_fill_{kind}": lambda a: a["selfRef"].masked_fill(a["mask"], a["value"])
        for kind in ("scalar", "tensor")
    },
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "inplace_masked_fill_tensor": {"value": {"shape": ()}},
}

BREAKS: Mapping[str, Breaking] = {
    "broadcast shape of selfRef and mask": lambda o, name: Break(shape((4, 2, 3), "mask"), "shape [4, 2, 3]"),
    "promotable to one that is taken": lambda o, name: Break(
        dtype(D.INT8, tensors_of(o)[0], "tensor1") | dtype(D.UINT8, name), f"{o.function} takes"
    ),
    "broadcast to selfRef": lambda o, name: Break(shape((4, 2, 3), name), "[2, 3]"),
    "broadcast to out": lambda o, name: Break(shape((4, 2, 3), name), "[2, 3]"),
    "0 dimensions": lambda o, name: Break(shape((1,), name), "0 dimensions"),
    "bounds in order": lambda o, name: Break({name: scalar(D.INT64, 3)}, "at most 2"),
    "a bound": lambda o, name: Break({"clipValueMin": None, "clipValueMax": None}, "an object"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) % 1 if name == "weight" and "lerp" in operator else array


class TestPointwise(LibraryTests):
    subject = Subject(
        pointwise.OPERATORS,
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
    )


@pytest.mark.parametrize("out", FLOATING)
def test_lerp_by_a_number_accepts_another_floating_type(out: D) -> None:
    call = {"self": np.ones(2, np.float16), "end": np.full(2, 2, np.float16), "weight": scalar(D.FLOAT, 0.5)}
    assert computed("lerps", call | {"out": np.zeros(2, out.numpy)})["out"].tolist() == [1.5, 1.5]


def test_contiguous_tensors_of_more_than_eight_dimensions_are_interpolated() -> None:
    shape = (1,) * 8 + (2,)
    call = {
        "self": np.ones(shape, np.float32),
        "end": np.full(shape, 2, np.float32),
        "out": np.zeros(shape, np.float32),
    }
    for name, weight in (("lerps", scalar(D.FLOAT, 0.5)), ("lerp", np.full(1, 0.5, np.float32))):
        assert computed(name, call | {"weight": weight})["out"].ravel().tolist() == [1.5, 1.5]


def test_clamp_with_a_minimum_above_the_maximum_gives_the_maximum() -> None:
    """The result was the minimum; PyTorch's and CANN's kernels give the maximum."""
    placed = {
        name: Placed(np.array(values, np.float32), "contiguous")
        for name, values in (("self", [0, 5]), ("clipValueMin", [3, 4]), ("clipValueMax", [2, 1]), ("out", [0, 0]))
    }
    prepare(BY_NAME["clamp_tensor"], {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["out"].view, [2, 1])


@pytest.mark.parametrize(
    ("name", "bounds", "product", "expected"),
    [
        ("clamp", {"clipValueMin": None, "clipValueMax": scalar(D.DOUBLE, math.inf)}, Product.ATLAS_A2, [1, -2, 5]),
        ("clamp_max", {"clipValueMax": scalar(D.DOUBLE, 1e10)}, Product.ATLAS_A2, [1, -2, 5]),
        ("clamp_max", {"clipValueMax": scalar(D.INT64, 2**40)}, Product.ASCEND_950, [1, -2, 5]),
        ("clamp_min", {"clipValueMin": scalar(D.INT64, -(2**40) + 3)}, Product.ASCEND_950, [1, -2, 5]),
        (
            "hardtanh",
            {"clipValueMin": scalar(D.DOUBLE, -math.inf), "clipValueMax": scalar(D.FLOAT, math.inf)},
            Product.ATLAS_A2,
            [1, -2, 5],
        ),
    ],
)
def test_clamp_bounds_beyond_the_types_range_have_no_effect(
    name: str, bounds: Mapping[str, Any], product: Product, expected: list[int]
) -> None:
    """They wrapped: of INT32 below infinity there was only the least."""
    x = np.array([1, -2, 5], np.int32)
    assert computed(name, {"self": x, **bounds, "out": x * 0}, product)["out"].tolist() == expected
