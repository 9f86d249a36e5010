"""Running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import running
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    REAL,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    scalar,
    to_torch,
    wide,
)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "exp_segsum": lambda d: {"self": T(d, (2, 1, 3)), "out": T(d, (2, 1, 3, 3))},
    "cumsum": lambda d: {"dim": 1, "dtype": d},
    "cumsum_v2": lambda d: {"dim": -2, "exclusive": False, "reverse": True},
    "cumprod": lambda d: {"axis": scalar(D.INT64, 0), "dtype": d},
    "inplace_cumprod": lambda d: {"axis": scalar(D.INT32, -2)},
    **{name: lambda d: {"dim": -1, "indicesOut": T(D.INT32, GRID)} for name in ("cummax", "cummin")},
}

_SUMMED = tuple(dtype for dtype in REAL if dtype != D.BOOL)

DTYPES: Mapping[str, tuple[D, ...]] = {
    "exp_segsum": TRAINED,
    "cumsum": (*REAL, *COMPLEX),
    "cumsum_v2": (*_SUMMED, *COMPLEX),
    **dict.fromkeys(("cumprod", "inplace_cumprod"), _SUMMED),
    **dict.fromkeys(("cummax", "cummin"), (D.FLOAT, D.BF16, D.INT64, D.BOOL)),
}


def _segments(a: Mapping[str, Any]) -> Any:
    """From running sums: those of segments are differences of two."""
    sums = wide(a["self"]).cumsum(-1)
    return (sums[..., :, None] - sums[..., None, :]).exp().tril()


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "exp_segsum": _segments,
    "cumsum": lambda a: a["self"].cumsum(1, dtype=a["self"].dtype),
    "cumsum_v2": lambda a: a["self"].flip(0).cumsum(0, dtype=a["self"].dtype).flip(0),
    **dict.fromkeys(("cumprod", "inplace_cumprod"), lambda a: a["input"].cumprod(0, dtype=a["input"].dtype)),
    "cummax": lambda a: tuple(a["self"].cummax(-1)),
    "cummin": lambda a: tuple(a["self"].cummin(-1)),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "exp_segsum": {"self": {"shape": (0, 1, 3)}, "out": {"shape": (0, 1, 3, 3)}},
}

BREAKS: Mapping[str, Breaking] = {
    "3 to 4 dimensions": lambda o, name: Break(shape((2, 3), name), "3 to 4 dimensions"),
    "shape is a row for each element": lambda o, name: Break(shape((2, 1, 3), name), "[2, 1, 3, 3]"),
    "dimension": lambda o, name: Break({name: scalar(D.INT64, 2) if name == "axis" else 2}, "from -2 to 1"),
}


class TestRunning(LibraryTests):
    subject = Subject(running.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, breaks=BREAKS, empty=EMPTY)


def test_a_nan_and_the_last_of_equals_stay_the_extremes() -> None:
    x = np.array([[1, 3, 3, 2, np.nan, 5, np.nan, 1]], np.float32)
    values, places = Placed(x, "contiguous"), Placed(np.zeros(x.shape, np.int64), "contiguous")
    call = {"self": Placed(x, "contiguous").tensor, "dim": 1, "valuesOut": values.tensor, "indicesOut": places.tensor}
    prepare(BY_NAME["cummax"], call, Product.ATLAS_A2).run()
    expected = to_torch(x).cummax(1)
    np.testing.assert_array_equal(values.view, expected[0].numpy())
    np.testing.assert_array_equal(places.view, expected[1].numpy())


@pytest.mark.parametrize(
    ("exclusive", "reverse", "wanted"),
    [
        (False, False, [[0, 1, 2], [3, np.inf, 7]]),
        (True, False, [[0, 0, 0], [0, 1, 2]]),
        (False, True, [[3, np.inf, 7], [3, np.inf, 5]]),
        (True, True, [[3, np.inf, 5], [0, 0, 0]]),
    ],
)
def test_sums_may_go_from_the_end_and_leave_their_own_element_out(exclusive: bool, reverse: bool, wanted: Any) -> None:
    x = np.array([[0, 1, 2], [3, np.inf, 5]], np.float32)
    out = Placed(np.full(x.shape, -1, np.float32), "contiguous")
    call = {"self": Placed(x, "contiguous").tensor, "dim": 0, "exclusive": exclusive, "reverse": reverse}
    prepare(BY_NAME["cumsum_v2"], {**call, "out": out.tensor}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.array(wanted, np.float32))


def test_products_are_of_the_type_of_out_where_dtype_says_none() -> None:
    x, out = Placed(np.array([1.5, 2.5, 2], np.float32), "contiguous"), Placed(np.zeros(3, np.uint16), "contiguous")
    call = {"input": x.tensor, "axis": scalar(D.INT32, 0), "dtype": D.DT_UNDEFINED, "out": out.tensor}
    prepare(BY_NAME["cumprod"], call, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.array([1, 2, 4], np.uint16))


@pytest.mark.parametrize("name", ["cumprod", "inplace_cumprod"])
@pytest.mark.parametrize(
    ("axis", "rejected"),
    [
        (scalar(D.COMPLEX64, 1 + 2j), "ACL_COMPLEX64"),
        (scalar(D.FLOAT, 1), "ACL_FLOAT"),
        (scalar(D.INT64, 2), "to 1, got 2"),
        (scalar(D.INT32, -2), ""),
    ],
)
def test_the_axis_of_a_running_product_is_an_integer(name: str, axis: Scalar, rejected: str) -> None:
    x = Tensor(D.FLOAT, (2, 3))
    arguments = {"input": x, "axis": axis, **({"dtype": D.FLOAT, "out": x} if name == "cumprod" else {})}
    if rejected:
        with pytest.raises(AclnnError, match=rejected):
            prepare(BY_NAME[name], arguments, Product.ATLAS_A2)
    else:
        assert prepare(BY_NAME[name], arguments, Product.ATLAS_A2).prepared.plan


def test_running_extremes_are_converted_to_the_type_of_their_output() -> None:
    x, values = Placed(np.array([1.5, 0.5, 2.5], np.float32), "contiguous"), Placed(np.zeros(3, np.int8), "contiguous")
    places = Placed(np.zeros(3, np.int32), "contiguous")
    call = {"self": x.tensor, "dim": 0, "valuesOut": values.tensor, "indicesOut": places.tensor}
    prepare(BY_NAME["cummax"], call, Product.ATLAS_A2).run()
    assert (values.view.tolist(), places.view.tolist()) == ([1, 1, 2], [0, 0, 2])
