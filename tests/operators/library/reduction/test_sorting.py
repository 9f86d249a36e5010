"""Sorting, searching in order, numbers that occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import sorting
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    INTEGERS,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
)

SEARCH = {"sortedSequence": T(D.FLOAT, (2, 5)), "outInt32": True, "right": True, "sorter": T(D.INT64, (2, 5))}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "sort": lambda d: {"stable": True, "dim": 0, "descending": True, "indicesOut": T(D.INT64, GRID)},
    "argsort": lambda d: {"dim": -1, "descending": True, "out": T(D.INT64, GRID)},
    "topk": lambda d: {
        "k": 2,
        "dim": -1,
        "largest": False,
        "sorted": True,
        "valuesOut": T(d, (2, 2)),
        "indicesOut": T(D.INT64, (2, 2)),
    },
    "search_sorted": lambda d: SEARCH | {"sortedSequence": T(d, (2, 5)), "out": T(D.INT32, GRID)},
    "search_sorteds": lambda d: (
        SEARCH | {"sortedSequence": T(d, (5,)), "outInt32": False, "sorter": None, "out": T(D.INT64, ())}
    ),
    "bucketize": lambda d: {"boundaries": T(d, (5,)), "outInt32": True, "right": True, "out": T(D.INT32, GRID)},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("search_sorted", "search_sorteds"), (D.FLOAT, D.FLOAT16, D.INT32)),
    "bucketize": (D.FLOAT, D.BF16, D.INT32),
    "argsort": (*TRAINED, *INTEGERS),
    "sort": (*TRAINED, *INTEGERS, D.BOOL),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "sort": lambda a: tuple(a["self"].sort(dim=0, descending=True, stable=True)),
    "argsort": lambda a: a["self"].argsort(dim=1, descending=True, stable=True),
    "topk": lambda a: tuple(each[:, :2] for each in a["self"].sort(dim=1, stable=True)),
    "search_sorted": lambda a: torch.searchsorted(
        a["sortedSequence"].contiguous(), a["self"].contiguous(), right=True, sorter=a["sorter"].contiguous()
    ),
    "search_sorteds": lambda a: torch.searchsorted(a["sortedSequence"].double(), a["self"], right=True),
    "bucketize": lambda a: torch.bucketize(a["self"].contiguous(), a["boundaries"].contiguous(), right=True),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "topk": {"valuesOut": {"shape": (0, 2)}, "indicesOut": {"shape": (0, 2)}},
    "search_sorted": {"sortedSequence": {"shape": (0, 5)}, "sorter": None},
    "search_sorteds": {"sortedSequence": {"shape": (0,)}, "sorter": None, "out": {"shape": (1,)}},
    "bucketize": {"boundaries": {"shape": (0,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "elements along dim": lambda o, name: Break({name: 4}, "from 0 to 3"),
    "by outInt32": lambda o, name: Break({"outInt32": o.name == "search_sorteds"}, "by outInt32"),
    "several of BF16": lambda o, name: Break(shape((2, 1), "self", "out"), "several elements along dim", D.BF16),
    "rows of self": lambda o, name: Break(shape((3, 5), name, "sorter"), "1 dimension"),
    "1 dimension": lambda o, name: Break(shape((2, 5), name), "1 dimension"),
    "as many elements as one": lambda o, name: Break(shape((2,), name), "1"),
    "as sortedSequence": lambda o, name: Break({name: T(D.INT32, (5,))}, "ACL_INT64"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "sorter":
        return np.broadcast_to(np.array([4, 2, 0, 1, 3]), array.shape)
    if operator == "search_sorted" and name == "sortedSequence":
        return np.broadcast_to(np.array([-1, 2, -3, 4, -5]), array.shape)
    if (operator, name) in (("search_sorteds", "sortedSequence"), ("bucketize", "boundaries")):
        return np.sort(array.astype(np.float64))
    return array


class TestSorting(LibraryTests):
    subject = Subject(
        sorting.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        default=(*REAL, D.BOOL),
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


def test_a_sequence_without_a_sorter_is_in_order_and_equals_are_passed_or_not() -> None:
    sequence = Placed(np.array([1, 3, 3, 7], np.int32), "contiguous")
    values = Placed(np.array([[0, 3], [8, 7]], np.int32), "transposed")
    for right, expected in ((False, [[0, 1], [4, 3]]), (True, [[0, 3], [4, 4]])):
        out = Placed(np.zeros((2, 2), np.int64), "contiguous")
        call = {"sortedSequence": sequence.tensor, "self": values.tensor, "outInt32": False, "right": right}
        prepare(BY_NAME["search_sorted"], call | {"sorter": None, "out": out.tensor}, Product.ATLAS_A2).run()
        assert out.view.tolist() == expected


@pytest.mark.parametrize("dims", [(97,), (5, 40), (40, 5), (3, 64, 2)])
@pytest.mark.parametrize("kind", [np.float32, np.int16, np.bool_])
def test_the_first_few_match_sorting_all(dims: tuple[int, ...], kind: Any) -> None:
    """Equal elements in their order, NaN the greatest, along any dimension."""
    random = np.random.default_rng(3)
    values = random.integers(-4, 5, dims).astype(kind)
    if kind is np.float32:
        values[random.random(dims) < 0.05] = np.nan
    for along in range(len(dims)):
        for descending in (False, True):
            most = dims[along]
            every = sorting.sort_along(values, along, descending, most)
            for count in {1, 2, most // 4, most // 2, most} - {0}:
                found = sorting.sort_along(values, along, descending, count)
                for one, all_of in zip(found, every, strict=True):
                    np.testing.assert_array_equal(one, all_of.take(range(count), along))


def test_in_empty_rows_all_stand_first() -> None:
    call = {"sortedSequence": np.zeros((2, 0), np.float32), "self": np.zeros((2, 3), np.float32), "sorter": None}
    found = computed("search_sorted", call | {"outInt32": False, "right": False, "out": np.full((2, 3), 7)})
    assert not found["out"].any()


@pytest.mark.parametrize(
    ("boundaries", "right", "found"),
    [([0, 10, 100], False, [0, 3, 3, 1, 1, 2]), ([0, 10, 100], True, [0, 3, 3, 2, 1, 3]), ([], False, [0] * 6)],
)
def test_intervals_are_pytorchs(boundaries: list[int], right: bool, found: list[int]) -> None:
    """Intervals of the document's example."""
    call = {"self": np.array([-5, 10000, 150, 10, 5, 100], np.float32), "boundaries": np.array(boundaries, np.int32)}
    call |= {"outInt32": False, "right": right, "out": np.full(6, 7)}
    assert computed("bucketize", call, Product.ASCEND_950)["out"].tolist() == found
