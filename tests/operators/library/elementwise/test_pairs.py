"""Angles, sums of logarithms, x ln y, common divisors, parts of complex numbers, shifts of bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import pairs
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    INTEGERS,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    scalar,
    torch,
)

SHIFTS = ("left_shift", "left_shifts", "right_shift")

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **{
        operator.name: lambda d: {"out": T(d if d in TRAINED else D.FLOAT, GRID)}
        for operator in pairs.OPERATORS
        if operator.name not in (*SHIFTS, "gcd")
    },
    "complex": lambda d: {"out": T(D.COMPLEX64 if d == D.FLOAT else D.COMPLEX128, GRID)},
    "polar": lambda d: {"out": T(D.COMPLEX64, GRID)},
    "left_shifts": lambda d: {"shiftBits": scalar(D.INT64, 3)},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("inplace_atan2", "inplace_x_log_y_tensor", "inplace_x_log_y_scalar_other"), TRAINED),
    **dict.fromkeys(SHIFTS, INTEGERS),
    "gcd": (D.INT16, D.INT32, D.INT64),
    "complex": (D.FLOAT, D.DOUBLE),
    "polar": (D.FLOAT,),
}


def _words(function: Callable[[Any, Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda a: function(*(x.double() if isinstance(x, torch.Tensor) else x for x in (first(a), a["other"])))


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("atan2", "inplace_atan2"), _words(torch.atan2)),
    "log_add_exp": _words(torch.logaddexp),
    "log_add_exp2": _words(torch.logaddexp2),
    **{f"x_log_y_{kind}": _words(torch.xlogy) for kind in ("tensor", "scalar_other", "scalar_self")},
    **{f"inplace_x_log_y_{kind}": _words(torch.xlogy) for kind in ("tensor", "scalar_other")},
    "gcd": lambda a: torch.gcd(a["self"], a["other"]),
    "complex": lambda a: torch.complex(a["real"], a["imag"]),
    "polar": lambda a: torch.polar(a["input"], a["angle"]),
    "left_shift": lambda a: a["self"] << a["shiftBits"],
    "left_shifts": lambda a: a["self"] << a["shiftBits"],
    "right_shift": lambda a: a["self"] >> a["shiftBits"],
}

BREAKS: Mapping[str, Breaking] = {
    "promotes to an integer": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_INT16, ACL_INT32 or ACL_INT64"),
    "same data type as real": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "same data type as input": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "of these parts": lambda o, name: Break(dtype(D.COMPLEX128, name), "ACL_COMPLEX64"),
    "broadcasts with real": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcasts with input": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of input and angle": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "broadcast shape of real and imag": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "no private format": lambda o, name: Break(
        {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND", product=Product.ASCEND_950
    ),
    "same shape as other": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcast shape of self and shiftBits": lambda o, name: (
        Break(shape((2, 1), name), "shape [2, 3]")
        if name == "out"
        else Break(shape((4, 2, 3), "shiftBits"), "shape [4, 2, 3]")
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "shiftBits":
        return np.abs(array.astype(np.int64)) % 5
    if name == "other" and operator.startswith("x_log"):
        return np.abs(array)
    return array[:1] if (operator, name) in (("atan2", "other"), ("complex", "imag"), ("polar", "angle")) else array


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


def test_complex_keeps_an_infinite_part_beside_a_finite_one() -> None:
    placed = {
        "real": Placed(np.float32(2).reshape(()), "contiguous"),
        "imag": Placed(np.array([np.inf], np.float32), "contiguous"),
        "out": Placed(np.zeros(1, np.complex64), "contiguous"),
    }
    prepare(BY_NAME["complex"], {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    assert placed["out"].view[0] == complex(2, np.inf)


@pytest.mark.parametrize(("kind", "x"), [(np.int8, -128), (np.uint8, 255), (np.int64, -(2**40))])
def test_right_shift_clamps_shifts_to_the_bits_of_the_type(kind: type[np.integer[Any]], x: int) -> None:
    """CANN's kernel clamps shifts to this range; the document states only the lower bound."""
    width = 8 * np.dtype(kind).itemsize
    shifts = np.array([0, 1, width - 1, width, 127, *(() if kind is np.uint8 else (-1, -128))], kind)
    call = {"self": np.full(shifts.shape, x, kind), "shiftBits": shifts, "out": np.zeros(shifts.shape, kind)}
    few = [min(max(int(shift), 0), width - 1) for shift in shifts]
    assert computed("right_shift", call)["out"].tolist() == [x // 2**bits for bits in few]
