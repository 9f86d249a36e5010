"""Run an operator on views in poisoned memory, and check everything that it wrote and did not write."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any

import ml_dtypes
import numpy as np

from aclnn.core.operator import Operator, Reduction
from aclnn.core.products import Product
from aclnn.execution.executor import Executor, prepare
from tests.cases.table import Arguments, Case, T
from tests.helpers.guarded import Guarded
from tests.helpers.reference import expected
from tools.works import works_of

Array = np.ndarray[Any, Any]


def compiles_long(operator: Operator) -> bool:
    """Return true if an operator's kernels take seconds to compile, as formulas over rows do for each data type."""
    return any(isinstance(work, Reduction) for work in works_of(operator))


def wanted(case: Case, arguments: Arguments) -> dict[str, T]:
    """Return the outputs that a call computes, and the inputs that it updates."""
    mask = chain(arguments.get("outputMask") or (), repeat(True))
    written = [p.name for p, flag in zip(case.operator.outputs, mask, strict=False) if flag]
    written += [p.name for p in case.operator.inputs if p.updated]
    unwritten = case.unwritten(arguments)
    return {name: arguments[name] for name in written if arguments[name] is not None and name not in unwritten}


_POSITIVE = ("rstd", "runningVar", "saveInvstd")


def numbers(case: Case, name: str, value: T, rng: np.random.Generator) -> Array:
    """Draw ordinary values for an input."""
    array = rng.normal(size=value.shape)
    array = rng.uniform(0.5, 2, value.shape) if name in _POSITIVE else array * (3 if case.curves else 1)
    return np.asarray(array)


def memory(
    case: Case, arguments: Arguments, rng: np.random.Generator, strides: Mapping[str, tuple[int, ...] | None] = {}
) -> dict[str, Any]:
    """Return the arguments with guarded views in place of tensors: inputs filled, outputs poisoned."""
    inputs = {p.name for p in case.operator.inputs}
    result: dict[str, Any] = {}
    for place, (name, value) in enumerate(arguments.items()):
        if isinstance(value, T):
            view = Guarded(value.dtype, value.shape, strides.get(name), place % 3, value.format)
            in_place = name in inputs or not inputs
            result[name] = view.fill(numbers(case, name, value, rng)) if in_place else view
        else:
            result[name] = value
    return result


def bound(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.tensor if isinstance(value, Guarded) else value for name, value in arguments.items()}


def run(executor: Executor) -> None:
    """Run an executor with a workspace of exactly the requested size, surrounded by guard bytes."""
    nbytes = executor.asked_bytes
    guard = 256
    buffer = np.full(nbytes + 2 * guard + 64, 0xA5, np.uint8)
    start = guard - (buffer.ctypes.data + guard) % -64
    executor.run(buffer.ctypes.data + start if nbytes else 0, nbytes)
    assert (buffer[:start] == 0xA5).all()
    assert (buffer[start + nbytes :] == 0xA5).all()


def check(case: Case, arguments: Arguments, guarded: dict[str, Any], product: Product) -> None:
    """Run a call, compare its outputs with the exact values, and check all bytes that must not change."""
    inputs = {p.name for p in case.operator.inputs}
    values = {
        name: value.array.astype(np.float64) if isinstance(value, Guarded) else value for name, value in guarded.items()
    }
    outputs = wanted(case, arguments)
    if not inputs:  # in place
        values |= {name: guarded[name].array.astype(np.float64) for name in outputs}
    values["product"] = product
    run(prepare(case.operator, bound(guarded), product))
    for name, (exact, slack) in expected(case, values, outputs).items():
        assert_close(name, guarded[name].array, exact, slack)
    for name, view in guarded.items():
        if isinstance(view, Guarded):
            assert view.unchanged_outside() if name in outputs else view.unchanged(), name


def assert_close(name: str, got: Array, exact: Array, slack: Array) -> None:
    wide = got.astype(np.float64)
    assert (np.isnan(wide) == np.isnan(exact)).all(), (name, got, exact)
    largest = float(ml_dtypes.finfo(got.dtype).max)
    with np.errstate(invalid="ignore"):
        overflows = np.isinf(wide) & (np.abs(exact) + slack > largest) & (np.sign(wide) == np.sign(exact))
        wrong = ~((wide == exact) | (np.abs(wide - exact) <= slack) | overflows | np.isnan(exact))
    assert not wrong.any(), (name, got[wrong], exact[wrong], slack[wrong])
