"""Histograms, numbers of occurrences, traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import counting
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import Array, Break, Breaking, LibraryTests, Subject, scalar, torch, wide

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
    "histc": (D.FLOAT, D.BF16),
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
    "as self": lambda o, name: Break(shape((8,), name), "[9]"),
    "at least minlength": lambda o, name: Break(shape((3,), name), "minlength"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
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
