"""Ranges and identities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.creation import ranges
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    FLOATING,
    REAL,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    scalar,
    torch,
)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "arange": lambda d: {
        "start": scalar(D.INT64, 7),
        "end": scalar(D.INT64, -2),
        "step": scalar(D.INT64, -3),
        "out": T(d, (3,)),
    },
    "range": lambda d: {
        "start": scalar(D.INT64, 7),
        "end": scalar(D.INT64, -2),
        "step": scalar(D.INT64, -3),
        "out": T(d, (4,)),
    },
    "linspace": lambda d: {"start": scalar(D.DOUBLE, 1), "end": scalar(D.INT64, 8), "steps": 8, "out": T(d, (8,))},
    "log_space": lambda d: {
        "start": scalar(D.DOUBLE, -1),
        "end": scalar(D.INT64, 2),
        "steps": 5,
        "base": 3.0,
        "result": T(d, (5,)),
    },
    "eye": lambda d: {"n": 2, "m": 3},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("arange", "range"), (*FLOATING, D.INT32, D.INT64)),
    "linspace": REAL,
    "log_space": TRAINED,
    "eye": (*(dtype for dtype in REAL if dtype != D.DOUBLE), D.BOOL),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "linspace": lambda a: torch.arange(1, 9),
    "log_space": lambda a: torch.logspace(-1, 2, 5, 3.0, dtype=torch.float64),
    "eye": lambda a: torch.eye(2, 3),
    "arange": lambda a: torch.arange(7, -2, -3),
    "range": lambda a: torch.arange(7, -3, -3),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "linspace": {"steps": 0, "out": {"shape": (0,)}},
    "log_space": {"steps": 0, "result": {"shape": (0,)}},
    "eye": {"n": 0},
    "arange": {"end": scalar(D.INT64, 7), "out": {"shape": (0,)}},
    "range": {"end": scalar(D.INT64, 7), "out": {"shape": (1,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "from start to end": lambda o, name: Break({name: scalar(D.INT64, 1)}, "from 7 to -2"),
    "as many as there are": lambda o, name: Break(shape((5,), name), f"shape [{3 if o.name == 'arange' else 4}]"),
    "as many as steps": lambda o, name: Break(
        shape((4,), name), "shape [5]" if o.name == "log_space" else "8 elements"
    ),
    "above 0": lambda o, name: Break({name: 0.0}, "a number above 0"),
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


def test_linspace_accepts_any_shape_of_as_many_elements() -> None:
    out = Placed(np.zeros((2, 3), np.float32), "contiguous")
    call = {"start": scalar(D.FLOAT, 1), "end": scalar(D.FLOAT, 6), "steps": 6, "out": out.tensor}
    prepare(BY_NAME["linspace"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("d", [np.int32, np.int64])
def test_arange_of_integers_matches_pytorch(d: type[np.signedinteger[Any]]) -> None:
    """64-bit integers ignore the fractions of limits; in both types no value depends on them."""
    for limits in ((0.1, -7.9, -4.0), (0.0, -8.000001, -4.0), (1.9, 7.2, 2.9), (-0.5, 3, 1)):
        expected = torch.arange(*limits, dtype=getattr(torch, np.dtype(d).name)).tolist()
        out = Placed(np.zeros(len(expected), d), "contiguous")
        call = {name: scalar(D.DOUBLE, value) for name, value in zip(("start", "end", "step"), limits, strict=True)}
        prepare(BY_NAME["arange"], call | {"out": out.tensor}, Product.ATLAS_A2).run()
        assert out.view.tolist() == expected


@pytest.mark.parametrize("d", [np.int8, np.int16, np.int32])
def test_linspace_of_integers_matches_pytorch(d: type[np.signedinteger[Any]]) -> None:
    """Their limits have no fractions, and each is counted from the nearer end."""
    for start, end, steps in ((4.3, -3, 50), (-2.7, 9.9, 23), (0, 10, 7), (5.5, 7.5, 1), (1.9, -8, 2)):
        out = Placed(np.zeros(steps, d), "contiguous")
        call = {"start": scalar(D.DOUBLE, start), "end": scalar(D.DOUBLE, end), "steps": steps, "out": out.tensor}
        prepare(BY_NAME["linspace"], call, Product.ATLAS_A2).run()
        dtype = getattr(torch, np.dtype(d).name)
        assert out.view.tolist() == torch.linspace(start, end, steps, dtype=dtype).tolist()


def test_integers_beyond_float64_are_counted_exactly() -> None:
    numbers = {"start": scalar(D.INT64, 2**60), "end": scalar(D.INT64, 2**60 + 3), "step": scalar(D.INT64, 1)}
    found = computed("arange", numbers | {"out": np.zeros(3, np.int64)})["out"]
    assert found.tolist() == torch.arange(2**60, 2**60 + 3).tolist()


@pytest.mark.parametrize(("end", "expected"), [(3.0, [1, 1.5, 2, 2.5, 3]), (2.9, [1, 1.5, 2, 2.5])])
def test_a_range_ends_with_its_end_or_before(end: float, expected: list[float]) -> None:
    call = {name: scalar(D.FLOAT, value) for name, value in (("start", 1), ("end", end), ("step", 0.5))}
    assert computed("range", call | {"out": np.zeros(len(expected), np.float32)})["out"].tolist() == expected
