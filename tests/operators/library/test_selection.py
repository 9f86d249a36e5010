"""Selection by a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import selection
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import REAL, Break, Breaking, LibraryTests, Subject, torch

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "masked_select": lambda d: {"mask": T(D.BOOL, GRID), "out": T(d, (math.prod(GRID),))},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "masked_select": (*REAL, D.BOOL),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "masked_select": lambda a: torch.masked_select(a["self"], a["mask"]),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "masked_select": {"out": {"shape": (0,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "size of self and mask": lambda o, name: Break(shape((5,), name), "shape [6]"),
}


class TestSelection(LibraryTests):
    subject = Subject(
        selection.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        plain=("masked_select",),
    )


@pytest.mark.usefixtures("device")
def test_a_selection_tells_its_size_when_phase_two_returns() -> None:
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
