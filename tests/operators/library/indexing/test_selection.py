"""Selection by a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.indexing import selection
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import REAL, Array, Break, Breaking, LibraryTests, Subject, computed, scalar, torch

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "inplace_masked_scatter": lambda d: {"mask": T(D.BOOL, (3,)), "source": T(d, (7,))},
    "take": lambda d: {"index": T(D.INT64, (2, 2)), "out": T(d, (2, 2))},
    "inplace_put": lambda d: {"index": T(D.INT32, (4,)), "source": T(d, (2, 2)), "accumulate": d != D.BF16},
    "inplace_fill_diagonal": lambda d: {
        "selfRef": T(d, (5, 2)),
        "fillValue": scalar(D.FLOAT, 3.0),
        "wrap": d == D.FLOAT,
    },
    "masked_select": lambda d: {"mask": T(D.BOOL, GRID), "out": T(d, (math.prod(GRID),))},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "masked_select": (*REAL, D.BOOL),
    **dict.fromkeys(
        ("inplace_masked_scatter", "take", "inplace_put", "inplace_fill_diagonal"), (D.FLOAT, D.BF16, D.INT64)
    ),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "inplace_masked_scatter": lambda a: a["selfRef"].masked_scatter(a["mask"], a["source"]),
    "take": lambda a: a["self"].take(a["index"]),
    "inplace_put": lambda a: a["selfRef"].put(a["index"].long(), a["source"], a["accumulate"]),
    "inplace_fill_diagonal": lambda a: a["selfRef"].clone().fill_diagonal_(3, wrap=bool(a["wrap"])),
    "masked_select": lambda a: torch.masked_select(a["self"], a["mask"]),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "masked_select": {"out": {"shape": (0,)}},
    "take": {"index": {"shape": (0,)}, "out": {"shape": (0,)}},
    "inplace_put": {"source": {"shape": (0,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "broadcast shape of selfRef and mask": lambda o, name: Break(shape((4, 2, 3), "mask"), "shape [4, 2, 3]"),
    "same shape as index": lambda o, name: Break(shape((3, 2), name), "shape [2, 2]"),
    "not empty": lambda o, name: Break(shape((0, 3), name), "elements"),
    "as many elements as one for each index": lambda o, name: Break(shape((5,), name), "4"),
    "2 to 8 dimensions": lambda o, name: Break(shape((5,), name), "2 to 8 dimensions"),
    "within the range": lambda o, name: Break({name: scalar(D.DOUBLE, 1e39)}, "the range of ACL_FLOAT"),
    "a matrix or equal extents": lambda o, name: Break(shape((2, 2, 3), name), "equal extents"),
    "size of self and mask": lambda o, name: Break(shape((5,), name), "shape [6]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    # Without accumulation each place is there once.
    return np.array([5, 0, -2, 1]).reshape(array.shape) if name == "index" else array


class TestSelection(LibraryTests):
    subject = Subject(
        selection.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        numbers=numbers,
        empty=EMPTY,
        breaks=BREAKS,
        plain=("masked_select",),
    )


@pytest.mark.usefixtures("device")
def test_a_selection_reports_its_size_after_phase_two() -> None:
    """Callers look at the view next, without synchronising the stream."""
    from aclnn import cann

    status, stream = cann.aclrtCreateStream()
    n = 100_000
    x, mask = np.arange(n, dtype=np.float32), np.arange(n) % 3 == 0
    handles = []
    for array in (x, mask, np.zeros(n, np.float32)):
        _, memory = cann.aclrtMalloc(array.nbytes, 0)
        assert cann.aclrtMemcpy(memory, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
        number = D.of_numpy(array.dtype)
        handles.append((cann.aclCreateTensor([n], 1, number, None, 0, 2, [n], 1, memory), memory))
    (self, _), (chosen, _), (out, memory) = handles
    status, size, executor = cann.aclnnMaskedSelectGetWorkspaceSize(self, chosen, out)
    assert status == 0
    assert cann.aclnnMaskedSelect(0, size, executor, stream) == 0
    status, dims, rank = cann.aclGetViewShape(out)
    assert (status, dims, rank) == (0, [mask.sum()], 1)
    found = np.zeros(mask.sum(), np.float32)
    assert cann.aclrtMemcpy(found.ctypes.data, found.nbytes, memory, found.nbytes, 2) == 0
    np.testing.assert_array_equal(found, x[mask])
    assert cann.aclrtDestroyStream(stream) == 0


@pytest.mark.parametrize(
    ("d", "value", "taken"),
    [
        (D.INT32, math.nan, False),
        (D.INT32, 1e10, False),
        (D.INT32, 1.5, True),
        (D.INT8, -129, False),
        (D.UINT8, 256, False),
        (D.FLOAT16, 1e6, False),
        (D.FLOAT16, math.inf, True),
        (D.BF16, 1e39, True),
        (D.BOOL, 300, True),
    ],
)
def test_a_diagonal_is_filled_with_numbers_within_the_range_of_its_type(d: D, value: float, taken: bool) -> None:
    call = {"selfRef": np.zeros((2, 2), d.numpy), "fillValue": scalar(D.DOUBLE, value), "wrap": False}
    if taken:
        assert computed("inplace_fill_diagonal", call)["selfRef"].diagonal().all()
        return
    with pytest.raises(AclnnError, match="fillValue: expected a number within"):
        computed("inplace_fill_diagonal", call)


def test_a_source_that_is_too_short_is_an_error() -> None:
    call = {"selfRef": np.zeros(4, np.float32), "mask": np.ones(4, bool), "source": np.ones(2, np.float32)}
    with pytest.raises(AclnnError, match=r"^aclnnInplaceMaskedScatter: source: expected at least 4 elements"):
        computed("inplace_masked_scatter", call)


def test_elements_are_taken_of_a_tensor_of_nine_dimensions() -> None:
    """CANN's host test does so; it was rejected."""
    values = np.arange(4.0, dtype=np.float32).reshape(1, 2, 1, 1, 1, 1, 1, 1, 2)
    call = {"self": values, "index": np.array([3, -4]), "out": np.zeros(2, np.float32)}
    assert computed("take", call)["out"].tolist() == [3, 0]
