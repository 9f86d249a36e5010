"""Formulas made known to Numba: the same functions, with the lanes' words in place of the vocabulary's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu.elementwise.functions import WORDS
from aclnn.kernels.cpu.inner import register_jitable

_compilable: dict[Callable[..., Any], Any] = dict(WORDS)


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

    if isinstance(formula, Gradient):
        digest.update(b"gradient")
        formula = formula.derivative
    assert isinstance(formula, FunctionType)
    add(formula, frozenset({formula}))
    return digest.hexdigest()


def compilable(formula: Formula) -> Any:
    """Return the formula as a function over float64 lanes, callable from compiled code.

    For one thread at a time, as ``compiler.kernel`` makes kernels.
    """
    if formula not in _compilable:
        made = _gradient(compilable(formula.derivative)) if isinstance(formula, Gradient) else _translated(formula)
        _compilable[formula] = register_jitable(made)
    return _compilable[formula]


def _gradient(derivative: Any) -> Any:
    def gradient(dy: Any, x: Any, *numbers: Any) -> Any:
        return dy * derivative(x, *numbers)

    return gradient


def _translated(formula: Formula) -> Any:
    """The function with every function that it mentions made compilable."""
    assert isinstance(formula, FunctionType)
    mentioned = {
        name: compilable(value) if isinstance(value, FunctionType) else value
        for name, value in _mentioned(formula).items()
    }
    code = formula.__code__
    cells = tuple(CellType(mentioned[name]) for name in code.co_freevars)
    return FunctionType(code, formula.__globals__ | mentioned, formula.__name__, formula.__defaults__, cells)
