"""Angles, sums of logarithms, x ln y, shifts of bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import pairs
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import INTEGERS, TRAINED, Array, Break, Breaking, LibraryTests, Subject, scalar, torch

SHIFTS = ("left_shift", "left_shifts", "right_shift")

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **{
        operator.name: lambda d: {"out": T(d if d in TRAINED else D.FLOAT, GRID)}
        for operator in pairs.OPERATORS
        if operator.name not in SHIFTS
    },
    "left_shifts": lambda d: {"shiftBits": scalar(D.INT64, 3)},
}

DTYPES: Mapping[str, tuple[D, ...]] = dict.fromkeys(SHIFTS, INTEGERS)


def _words(function: Callable[[Any, Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda a: function(*(x.double() if isinstance(x, torch.Tensor) else x for x in (a["self"], a["other"])))


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "atan2": _words(torch.atan2),
    "log_add_exp": _words(torch.logaddexp),
    "log_add_exp2": _words(torch.logaddexp2),
    **{f"x_log_y_{kind}": _words(torch.xlogy) for kind in ("tensor", "scalar_other", "scalar_self")},
    "left_shift": lambda a: a["self"] << a["shiftBits"],
    "left_shifts": lambda a: a["self"] << a["shiftBits"],
    "right_shift": lambda a: a["self"] >> a["shiftBits"],
}

BREAKS: Mapping[str, Breaking] = {
    "same shape as other": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcast shape of self and shiftBits": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "shiftBits":
        return np.abs(array.astype(np.int64)) % 5
    if name == "other" and operator.startswith("x_log"):
        return np.abs(array)
    return array[:1] if (operator, name) == ("atan2", "other") else array


class TestPairs(LibraryTests):
    subject = Subject(
        pairs.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        default=(*TRAINED, D.INT32),
        breaks=BREAKS,
        numbers=numbers,
    )
