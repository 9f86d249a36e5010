"""Plain Python formulas, made known to Numba."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu.elementwise import sixteen_bit_slopes
from aclnn.kernels.cpu.elementwise.products import times
from aclnn.kernels.cpu.elementwise.slopes import GRADIENTS, NEAR, Gradient, Near
from aclnn.kernels.cpu.elementwise.values import VALUES
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.vector import LANES, lane, splat, with_lane

_registered: set[Callable[..., Any]] = set()


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)


def _mentioned(function: FunctionType) -> dict[str, object]:
    """The globals and enclosing variables that a function refers to, by name."""
    names = sorted(set(_names(function.__code__)) & set(function.__globals__))
    found = {name: function.__globals__[name] for name in names}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return found | {name: cell.cell_contents for name, cell in cells}


def fingerprint(formula: Formula) -> str:
    """A digest of the formula's code and of every constant and function that it uses: the same in every process."""
    digest = hashlib.sha256()

    def add(function: FunctionType, seen: frozenset[FunctionType]) -> None:
        code = function.__code__
        constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
        digest.update(repr((code.co_code, constants, code.co_names, code.co_varnames)).encode())
        for name, value in _mentioned(function).items():
            digest.update(name.encode())
            if isinstance(value, FunctionType) and value not in seen:
                add(value, seen | {value})
            elif isinstance(value, (int, float, str, tuple)):
                digest.update(repr(value).encode())

    assert isinstance(formula, FunctionType)
    add(formula, frozenset({formula}))
    return digest.hexdigest()


def jitable(function: Any) -> Any:
    """The function, made callable from compiled code together with the plain functions that it calls.

    For one thread at a time, as ``compiler.kernel`` makes kernels.
    """
    if function not in _registered:
        _registered.add(function)
        for value in _mentioned(function).values():
            if isinstance(value, FunctionType):
                jitable(value)
        register_jitable(function)
    return function


def near(formula: Formula, dtype: DataType) -> Near | None:
    """What wide vectors evaluate for x of a type, if the formula has such a version."""
    return NEAR.get(formula.__name__) if dtype == DataType.FLOAT else sixteen_bit_slopes.near(formula.__name__, dtype)


@cache
def gradient(formula: Formula) -> Gradient:
    """dy·formula(x) over sixteen lanes: a tuned version where there is one, else lane by lane in float64.

    As ``jitable``, for one thread at a time.
    """
    if formula.__name__ in GRADIENTS:
        return GRADIENTS[formula.__name__]
    if formula.__name__ in VALUES:
        return times(register_jitable(forceinline=True)(VALUES[formula.__name__]))
    compiled = jitable(formula)

    def lane_by_lane(x: Any, dy: Any) -> Any:
        result = splat(0.0)
        for i in range(LANES):
            result = with_lane(result, i, np.float64(lane(dy, i)) * compiled(np.float64(lane(x, i))))
        return result

    return lane_by_lane
