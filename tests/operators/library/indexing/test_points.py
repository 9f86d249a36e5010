"""Elements and slices at multi-dimensional indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.indexing import points
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import Break, Breaking, LibraryTests, Subject, computed

GATHERED = (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT64, D.INT8, D.UINT8, D.BOOL)


def _gather(d: D) -> Arguments:
    indices = T(D.INT32 if d == D.FLOAT16 else D.INT64, (2, 3, 2))
    return {"self": T(d, (4, 3, 2)), "indices": indices, "negativeIndexSupport": False, "out": T(d, (2, 3, 2))}


def _add(d: D) -> Arguments:
    indices = T(D.INT32 if d == D.FLOAT16 else D.INT64, (2, 3))
    return {"varRef": T(d, (4, 3, 2)), "indices": indices, "updates": T(d, (2, 3, 3, 2))}


def _added(a: Mapping[str, Any]) -> Any:
    is_floating = a["varRef"].is_floating_point()
    wide = a["varRef"].double() if is_floating else a["varRef"]
    updates = a["updates"].to(wide.dtype)
    return wide.index_put((a["indices"].long(),), updates, accumulate=True)


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(
        dtype(D.STRING, *([name, "out"] if name == "self" else [name])),
        "ACL_INT32" if name == "indices" else "ACL_FLOAT",
    ),
    "same data type as varRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "1 to 8 dimensions": lambda o, name: Break(shape((), name), "1 to 8 dimensions"),
    "indices of so many dimensions": lambda o, name: Break(shape((2, 3, 4), name), "from 1 to 3"),
    "shape is slices for all indices": lambda o, name: Break(shape((2, 3), name), "[2, 3, 2]"),
    "slices of varRef": lambda o, name: Break(shape((2, 3, 2, 3), name), "[2, 3, 3, 2] or [2]"),
}


class TestPoints(LibraryTests):
    subject = Subject(
        points.OPERATORS,
        calls={"gather_nd": _gather, "tf_scatter_add": _add},
        references={"gather_nd": lambda a: a["self"][tuple(a["indices"].long().unbind(-1))], "tf_scatter_add": _added},
        dtypes={"gather_nd": GATHERED},
        default=(D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT8, D.UINT8),
        indices={("gather_nd", "indices"): 3, ("tf_scatter_add", "indices"): 4},
        empty={
            "gather_nd": {**shape((0, 3), "self"), **shape((2, 1), "indices"), **shape((2, 3), "out")},
            "tf_scatter_add": {**shape((0, 3), "varRef"), **shape((0,), "indices"), **shape((0, 3), "updates")},
        },
        breaks=BREAKS,
    )


SQUARE, CUBE = np.arange(4, dtype=np.float32).reshape(2, 2), np.arange(8, dtype=np.float32).reshape(2, 2, 2)


@pytest.mark.parametrize(
    ("elements", "indices", "expected"),
    [
        (SQUARE, [[0, 0], [1, 1]], [0, 3]),
        (SQUARE, [[1], [0]], [[2, 3], [0, 1]]),
        (CUBE, [[0, 1], [1, 0]], [[2, 3], [4, 5]]),
        (CUBE, [[[0, 1]], [[1, 0]]], [[[2, 3]], [[4, 5]]]),
    ],
)
def test_gather_nd_reproduces_the_documents_examples(elements: Any, indices: Any, expected: Any) -> None:
    """The examples in the text of the document of aclnnGatherNd."""
    out = np.zeros(np.shape(expected), np.float32)
    given = {"self": elements, "indices": np.array(indices), "negativeIndexSupport": True, "out": out}
    assert computed("gather_nd", given)["out"].tolist() == expected


def test_negative_indices_count_from_the_end_if_they_are_allowed() -> None:
    given = {"self": CUBE, "indices": np.array([[-1, -2], [0, -1]]), "out": np.zeros((2, 2), np.float32)}
    assert computed("gather_nd", given | {"negativeIndexSupport": True})["out"].tolist() == [[4, 5], [2, 3]]
    with pytest.raises(AclnnError, match=r"indices\[0, 0\]: expected from 0 to 1, got -1"):
        computed("gather_nd", given | {"negativeIndexSupport": False})
    given["indices"] = np.array([[0, 0], [-3, 0]])
    with pytest.raises(AclnnError, match=r"indices\[1, 0\]: expected from -2 to 1, got -3"):
        computed("gather_nd", given | {"negativeIndexSupport": True})


def _after(indices: Any, updates: Any) -> Any:
    given = {"varRef": np.arange(6, dtype=np.float32).reshape(3, 2), "indices": np.array(indices)}
    return computed("tf_scatter_add", given | {"updates": np.array(updates, np.float32)})["varRef"].tolist()


def test_slices_at_one_row_add_up() -> None:
    assert _after([0, 2, 0], [[10, 20], [30, 40], [1, 2]]) == [[11, 23], [2, 3], [34, 45]]


def test_the_shape_of_updates_decides_what_indices_are() -> None:
    assert _after([[0, 1], [2, 0]], [10, 20]) == [[0, 11], [2, 3], [24, 5]]
    assert _after([[0, 1], [2, 0]], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]) == [[8, 11], [5, 7], [9, 11]]


def test_points_win_where_both_readings_fit() -> None:
    """With two dimensions of one row each, [[0], [0]] may be two rows, or two points of one index."""
    given = {"varRef": np.zeros((1, 1), np.float32), "indices": np.array([[0]])}
    assert computed("tf_scatter_add", given | {"updates": np.ones((1, 1), np.float32)})["varRef"].tolist() == [[1]]


def test_no_rows_take_no_updates() -> None:
    given = {"varRef": np.zeros((0, 2), np.float32), "indices": np.array([0]), "updates": np.ones((1, 2), np.float32)}
    with pytest.raises(AclnnError, match="indices: expected no elements") as caught:
        computed("tf_scatter_add", given)
    assert caught.value.code == 161002
