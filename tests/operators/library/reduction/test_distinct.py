"""Elements and slices, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import distinct
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import BY_NAME, REAL, Array, Break, Breaking, LibraryTests, Placed, Subject, torch

#: Columns of which two are equal, and rows of which two with one another are.
COLUMNS = np.array([[2, 1, 2, 0], [3, 1, 3, 3]])
ROWS = np.array([[1, 2], [1, 2], [2, 2], [1, 2]])

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "unique": lambda d: (
        {"sorted": True, "returnInverse": True, "valueOut": T(d, (6,)), "inverseOut": T(D.INT64, GRID)}
    ),
    "unique2": lambda d: (
        {"sorted": True, "returnInverse": True, "returnCounts": True}
        | {"valueOut": T(d, (6,)), "inverseOut": T(D.INT64, GRID), "countsOut": T(D.INT64, (6,))}
    ),
    "unique_dim": lambda d: (
        {"self": T(d, (2, 4)), "sorted": True, "returnInverse": True, "dim": -1}
        | {"valueOut": T(d, (2, 4)), "inverseOut": T(D.INT64, (4,)), "countsOut": T(D.INT64, (4,))}
    ),
    "unique_consecutive": lambda d: (
        {"self": T(d, (4, 2)), "returnInverse": True, "returnCounts": True, "dim": 1000}
        | {"valueOut": T(d, (8,)), "inverseOut": T(D.INT64, (4, 2)), "countsOut": T(D.INT64, (8,))}
        | ({"dim": 0, "inverseOut": T(D.INT64, (4,))} if d == D.INT32 else {})
    ),
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "unique2": (D.FLOAT, D.BF16, D.INT32),
    "unique_dim": (D.FLOAT, D.BF16, D.INT32),
    "unique_consecutive": (D.FLOAT, D.BF16, D.INT32, D.BOOL, D.COMPLEX64),
}


def consecutive(a: Mapping[str, Any]) -> Any:
    if a["self"].is_complex():
        # PyTorch compares none of these.
        found = torch.unique_consecutive(a["self"].real, return_inverse=True, return_counts=True)
        return (torch.complex(found[0], torch.zeros_like(found[0])), *found[1:])
    dim = None if a["dim"] == 1000 else a["dim"]
    return torch.unique_consecutive(a["self"], return_inverse=True, return_counts=True, dim=dim)


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "unique": lambda a: torch.unique(a["self"], return_inverse=True),
    "unique2": lambda a: torch.unique(a["self"], return_inverse=True, return_counts=True),
    "unique_dim": lambda a: torch.unique(a["self"], return_inverse=True, return_counts=True, dim=-1),
    "unique_consecutive": consecutive,
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "unique": {"valueOut": {"shape": (0,)}},
    "unique2": {"valueOut": {"shape": (0,)}, "countsOut": {"shape": (0,)}},
    "unique_dim": {"inverseOut": {"shape": (3,)}, "countsOut": {"shape": (3,)}},
    "unique_consecutive": {"valueOut": {"shape": (0,)}, "countsOut": {"shape": (0,)}},
}


BREAKS: Mapping[str, Breaking] = {
    "as many as self": lambda o, name: Break(shape((5,), name), "6 elements"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name != "self":
        return array
    return {"unique_dim": COLUMNS, "unique_consecutive": ROWS}.get(operator, array.real % 3).astype(array.dtype)


class TestDistinct(LibraryTests):
    subject = Subject(
        distinct.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        default=(*REAL, D.BOOL),
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        plain=("unique", "unique2", "unique_dim", "unique_consecutive"),
    )


def test_outputs_that_are_not_wanted_need_no_room_and_stay() -> None:
    x = Placed(np.array([3, 3, 1, 3], np.float32), "transposed")
    values, nothing = Placed(np.zeros(4, np.float32), "contiguous"), Placed(np.full(1, 7), "contiguous")
    call = {"self": x.tensor, "valueOut": values.tensor, "inverseOut": nothing.tensor, "countsOut": nothing.tensor}
    flags = {"returnInverse": False, "returnCounts": False, "dim": -1}
    executor = prepare(BY_NAME["unique_consecutive"], call | flags, Product.ATLAS_A2)
    executor.run()
    assert (values.view.tolist(), nothing.view.tolist()) == ([3, 1, 3, 0], [7])


def test_unique_keeps_every_nan() -> None:
    x = Placed(np.array([np.nan, 1, np.nan], np.float32), "contiguous")
    values = Placed(np.zeros(3, np.float32), "contiguous")
    places = Placed(np.zeros(3, np.int64), "contiguous")
    call = {"self": x.tensor, "sorted": True, "returnInverse": True}
    prepare(BY_NAME["unique"], call | {"valueOut": values.tensor, "inverseOut": places.tensor}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(values.view, [1, np.nan, np.nan])
    assert sorted(places.view[[0, 2]]) == [1, 2]


@pytest.mark.parametrize("room", [2, 1])
def test_outputs_need_room_for_what_there_is(room: int) -> None:
    """The document's program of aclnnUniqueDim gives just as much."""
    x = Placed(np.array([[1, 2], [1, 2], [3, 4]], np.float32), "contiguous")
    values = Placed(np.zeros((room, 2), np.float32), "contiguous")
    places, counts = Placed(np.zeros(3, np.int64), "contiguous"), Placed(np.zeros(room, np.int64), "contiguous")
    call = {"self": x.tensor, "sorted": True, "returnInverse": True, "dim": 0, "valueOut": values.tensor}
    call |= {"inverseOut": places.tensor, "countsOut": counts.tensor}
    executor = prepare(BY_NAME["unique_dim"], call, Product.ATLAS_A2)
    if room == 1:
        with pytest.raises(AclnnError, match="valueOut: expected room for 4 elements, got 2"):
            executor.run()
        return
    executor.run()
    assert (values.view.tolist(), places.view.tolist()) == ([[1, 2], [3, 4]], [0, 0, 1])
    assert counts.view.tolist() == [2, 1]
