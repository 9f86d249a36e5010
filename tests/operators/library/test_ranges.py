"""Ranges and identities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library import ranges
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import BY_NAME, FLOATING, REAL, Break, Breaking, LibraryTests, Placed, Subject, scalar, torch

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "arange": lambda d: {
        "start": scalar(D.INT64, 7),
        "end": scalar(D.INT64, -2),
        "step": scalar(D.INT64, -3),
        "out": T(d, (3,)),
    },
    "linspace": lambda d: {"start": scalar(D.DOUBLE, 1), "end": scalar(D.INT64, 8), "steps": 8, "out": T(d, (8,))},
    "eye": lambda d: {"n": 2, "m": 3},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "arange": (*FLOATING, D.INT32, D.INT64),
    "linspace": REAL,
    "eye": (*REAL, D.BOOL),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "linspace": lambda a: torch.arange(1, 9),
    "eye": lambda a: torch.eye(2, 3),
    "arange": lambda a: torch.arange(7, -2, -3),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "linspace": {"steps": 0, "out": {"shape": (0,)}},
    "eye": {"n": 0},
    "arange": {"end": scalar(D.INT64, 7), "out": {"shape": (0,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "from start to end": lambda o, name: Break({name: scalar(D.INT64, 1)}, "from 7 to -2"),
    "as many as there are": lambda o, name: Break(shape((4,), name), "shape [3]"),
    "as many as steps": lambda o, name: Break(shape((4,), name), "shape [8]"),
    "n by m": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
}


class TestRanges(LibraryTests):
    subject = Subject(ranges.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS)


def test_a_range_may_have_dimensions_of_1_before_it() -> None:
    """llama.cpp's tensors have four dimensions, and CANN's source does not look."""
    out = Placed(np.zeros((1, 1, 4), np.float32), "contiguous")
    call = {name: scalar(D.FLOAT, value) for name, value in (("start", 1), ("end", 3), ("step", 0.5))}
    prepare(BY_NAME["arange"], call | {"out": out.tensor}, Product.ATLAS_A2).run()
    assert out.view.tolist() == [[[1, 1.5, 2, 2.5]]]
