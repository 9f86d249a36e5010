"""Histograms, numbers of occurrences, traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import counting
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Subject, computed, scalar, torch, wide

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "bincount": lambda d: (
        {"self": T(D.INT32, (9,)), "minlength": 4, "out": T(d, (7,))}
        | {"weights": T(d, (9,)) if d == D.FLOAT else None}
    ),
    "histc": lambda d: {"bins": 4, "min": scalar(D.INT64, -2), "max": scalar(D.DOUBLE, 2.5), "out": T(d, (4,))},
    "trace": lambda d: {"out": T(d, ())},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "bincount": (D.FLOAT, D.INT64),
    "histc": (D.FLOAT, D.FLOAT16),
    "trace": (D.FLOAT, D.FLOAT16, D.INT64),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "bincount": lambda a: torch.bincount(a["self"], a["weights"] if a["weights"] is None else wide(a["weights"]), 7),
    "histc": lambda a: torch.histc(wide(a["self"]), 4, -2, 2.5),
    "trace": lambda a: (wide(a["self"]) if a["self"].is_floating_point() else a["self"]).trace(),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "bincount": {"self": {"shape": (0,)}, "weights": None, "out": {"shape": (4,)}},
    "histc": {"out": {"shape": (4,)}},
    "trace": {"out": {"shape": ()}},
}

BREAKS: Mapping[str, Breaking] = {
    "1 dimension": lambda o, name: Break(shape((2, 3), name), "1 dimension"),
    "2 dimensions": lambda o, name: Break(shape((3,), name), "2 dimensions"),
    "same format as self": lambda o, name: Break({name: {"format": Format.FORMAT_NCL}}, "ACL_FORMAT_ND (that of self)"),
    "same shape as self": lambda o, name: Break(shape((8,), name), "[9]"),
    "at least minlength": lambda o, name: Break(shape((3,), name), "minlength"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "finite or equal": lambda o, name: Break({name: scalar(D.FLOAT, np.inf)}, "finite numbers"),
    "at most max": lambda o, name: Break({name: scalar(D.INT64, 3)}, "at most max"),
    "as many as bins": lambda o, name: Break(shape((5,), name), "[4]"),
    "a number": lambda o, name: Break(shape((1,), name), "shape []"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) % 7 if (operator, name) == ("bincount", "self") else array


class TestCounting(LibraryTests):
    subject = Subject(
        counting.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


def test_numbers_that_have_no_place_do_not_count() -> None:
    """Memory for all numbers up to the greatest was asked for."""
    call = {"self": np.array([1, 3, 1, 2**40]), "minlength": 3, "out": np.zeros(3)}
    assert computed("bincount", call | {"weights": None})["out"].tolist() == [0, 2, 0]
    weights = np.array([0.5, 1, 2, 4], np.float32)
    assert computed("bincount", call | {"weights": weights})["out"].tolist() == [0, 2.5, 0]


def test_negative_numbers_are_not_counted() -> None:
    call = {"self": np.array([1, -1], np.int8), "weights": None, "minlength": 3, "out": np.zeros(3)}
    with pytest.raises(AclnnError, match=r"^aclnnBincount: self: expected numbers from 0 to \d+, got -1"):
        computed("bincount", call)


@pytest.mark.parametrize(
    ("x", "low", "high"), [([1, 2.5, 4], 3, 3), ([1, 2.5, 4], np.inf, np.inf), ([1, 3, 4], 1.9, 1.2)]
)
def test_a_histogram_without_a_range_spans_its_numbers(x: list[float], low: float, high: float) -> None:
    """Only from 0 to 0 there was none."""
    numbers = np.array(x, np.int32 if low > high else np.float32)
    call = {"self": numbers, "bins": 2, "min": scalar(D.FLOAT, low), "max": scalar(D.FLOAT, high)}
    assert computed("histc", call | {"out": np.zeros(2, numbers.dtype)})["out"].tolist() == [1, 2]


def test_a_histogram_of_integers_has_no_floating_counts() -> None:
    call = {"self": Tensor(D.INT32, (9,)), "bins": 4, "min": scalar(D.INT64, 0), "max": scalar(D.INT64, 5)}
    with pytest.raises(AclnnError, match="self: expected a data type"):
        prepare(BY_NAME["histc"], call | {"out": Tensor(D.FLOAT, (4,))}, Product.ATLAS_A2)


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_a_histogram_has_finite_ends(number: float) -> None:
    call = {"self": np.array([1, number], np.float32), "bins": 4, "out": np.zeros(4, np.float32)}
    limits = {"min": scalar(D.INT64, 0), "max": scalar(D.INT64, 0)}
    with pytest.raises(AclnnError, match=r"^aclnnHistc: self: expected finite numbers where min and max are equal"):
        computed("histc", call | limits)
    assert computed("histc", call | limits | {"max": scalar(D.INT64, 2)})["out"].tolist() == [0, 0, 1, 0]
