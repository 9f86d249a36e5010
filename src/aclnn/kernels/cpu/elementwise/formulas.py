"""Formulas as functions that compiled code calls: on float64 lanes, or on float32 lanes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from aclnn.kernels import Formula
from aclnn.kernels.cpu import vector
from aclnn.kernels.cpu.elementwise.functions import WORDS
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.trace import trace

_FLOAT32_WORDS = {"where": vector.select, "absolute": vector.absolute, "fma": vector.fma}


@lru_cache(maxsize=512)
def on_float64(formula: Formula, arity: int) -> Any:
    """The formula of ``arity`` elements and numbers on float64 lanes.

    For one thread at a time, as ``compiler.kernel`` makes kernels.
    """
    return register_jitable(trace(formula, arity).function(WORDS))


def on_float32(formula: Formula) -> Any:
    """The operations of a fitted version on any number of float32 lanes."""
    return register_jitable(forceinline=True)(trace(formula, 1).function(_FLOAT32_WORDS))
