"""Functions with fitted versions: lookup, exact values, and the text of their modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from textwrap import wrap
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from aclnn import kernels, operators
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Fitted

Array = NDArray[Any]

BITS = 200
_CANCELLED = 2.0**-18
"""Magnitude below which values are computed in balls, because float64 cancels near a zero of the function."""


@cache
def _functions() -> dict[str, Fitted]:
    names = (f"{operators.__name__}.{found.name}" for found in pkgutil.iter_modules(operators.__path__))
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    fitted = [value for value in values if isinstance(value, Fitted) and value.mirrored is None]
    return {function.__name__: function for function in fitted if function.function.__code__.co_argcount == 1}


def fitted_function(name: str) -> Fitted:
    """Return the function of this name that an operator decorates with ``fitted``.

    Raises:
        ValueError: there is none.
    """
    if name not in _functions():
        raise ValueError(f"name: expected one of {', '.join(sorted(_functions()))}, got {name!r}")
    return _functions()[name]


def in_balls(function: Fitted, x: float) -> Any:
    """Evaluate a function by its formula, as an Arb ball of 200 bits."""
    with flint.ctx.workprec(BITS):
        return function(flint.arb(x))


def exact(function: Fitted, x: Array) -> Array:
    """Evaluate a function by its formula to a relative error of about 2^-32: in float64, or in balls near its zeros."""
    x = np.ascontiguousarray(x, np.float64)
    found = np.empty_like(x)
    layout = Layout(DataType.DOUBLE, x.shape, (1,))
    kernels.elementwise(function.function, (layout,), (layout,)).run([x.ctypes.data], [found.ctypes.data], 0)
    for i in np.flatnonzero(np.abs(found) < _CANCELLED * np.minimum(1.0, np.abs(x))).tolist():
        found[i] = float(in_balls(function, float(x[i])))
    return found


def short_hex(value: float) -> str:
    """Write a float in hexadecimal without trailing zeros."""
    mantissa, _, exponent = float(value).hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


_LINE = 120


def row_of(start: str, values: Iterable[float], indent: str) -> Iterator[str]:
    """Write a ``row("…")`` after ``start``, with the formatter's line breaks."""
    words = [short_hex(value) for value in values]
    line = f'{indent}{start}row("{" ".join(words)}"),'
    if len(line) <= _LINE:
        yield line
        return
    yield f"{indent}{start}row("
    for text in wrap(" ".join(words), _LINE - len(indent) - 7):
        space = "" if text.endswith(words[-1]) else " "
        yield f'{indent}    "{text}{space}"'
    yield f"{indent}),"
