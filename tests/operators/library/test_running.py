"""Running sums, products and extremes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library import running
from tests.cases.table import GRID, Arguments, T
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    REAL,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    scalar,
    to_torch,
)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "cumsum": lambda d: {"dim": 1, "dtype": d},
    "cumprod": lambda d: {"axis": scalar(D.INT64, 0), "dtype": d},
    **{name: lambda d: {"dim": -1, "indicesOut": T(D.INT32, GRID)} for name in ("cummax", "cummin")},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("cumsum", "cumprod"), (*REAL, *COMPLEX)),
    **dict.fromkeys(("cummax", "cummin"), (D.FLOAT, D.BF16, D.INT64, D.BOOL)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "cumsum": lambda a: a["self"].cumsum(1, dtype=a["self"].dtype),
    "cumprod": lambda a: a["input"].cumprod(0, dtype=a["input"].dtype),
    "cummax": lambda a: tuple(a["self"].cummax(-1)),
    "cummin": lambda a: tuple(a["self"].cummin(-1)),
}

BREAKS: Mapping[str, Breaking] = {
    "dimension": lambda o, name: Break({name: scalar(D.INT64, 2) if name == "axis" else 2}, "from -2 to 1"),
}


class TestRunning(LibraryTests):
    subject = Subject(running.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, breaks=BREAKS)


def test_a_nan_and_the_last_of_equals_stay_the_extremes() -> None:
    x = np.array([[1, 3, 3, 2, np.nan, 5, np.nan, 1]], np.float32)
    values, places = Placed(x, "contiguous"), Placed(np.zeros(x.shape, np.int64), "contiguous")
    call = {"self": Placed(x, "contiguous").tensor, "dim": 1, "valuesOut": values.tensor, "indicesOut": places.tensor}
    prepare(BY_NAME["cummax"], call, Product.ATLAS_A2).run()
    wanted = to_torch(x).cummax(1)
    np.testing.assert_array_equal(values.view, wanted[0].numpy())
    np.testing.assert_array_equal(places.view, wanted[1].numpy())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("axis", "refused"),
    [
        (scalar(D.COMPLEX64, 1 + 2j), ""),
        (scalar(D.FLOAT, 1), ""),
        (scalar(D.FLOAT, math.nan), "to 1, got nan"),
        (scalar(D.FLOAT, 0.5), "an integer from -2 to 1, got 0.5"),
    ],
)
def test_the_axis_of_a_running_product_may_be_any_number(axis: Scalar, refused: str) -> None:
    """A complex one warned of its imaginary part, NaN was an internal error, and a fraction was cut off."""
    x = Tensor(D.FLOAT, (2, 3))
    arguments = {"input": x, "axis": axis, "dtype": D.FLOAT, "out": x}
    if refused:
        with pytest.raises(AclnnError, match=refused):
            prepare(BY_NAME["cumprod"], arguments, Product.ATLAS_A2)
    else:
        assert prepare(BY_NAME["cumprod"], arguments, Product.ATLAS_A2).prepared.plan
