"""Formulas and checks common to the norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from aclnn.core.checks import rule, shape_is
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Parameter, Shape, View
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.formula import Real, row_mean, sqrt

T = TypeVar("T")


def moments(x: Real, eps: float) -> tuple[Real, Real, Real]:
    """Return mean, biased variance and 1/sqrt(variance + eps) of each row."""
    mean = row_mean(x)
    variance = row_mean((x - mean) * (x - mean))
    return mean, variance, 1.0 / sqrt(variance + eps)


def centred_norm(x: Real, w: Real, b: Real, eps: float) -> tuple[Real, Real, Real]:
    """Return (x - mean)·rstd·w + b, mean and rstd."""
    mean, _, rstd = moments(x, eps)
    return (x - mean) * rstd * w + b, mean, rstd


def input_gradient(g: Real, xhat: Real, scale: Real) -> Real:
    """Return (g - Σg/N - xhat·Σ(g·xhat)/N)·scale, the gradient for x of rows xhat = (x - mean)·rstd if scale is rstd.

    Per-row numbers are multiplied first, which leaves two fused operations per element.
    """
    return g * scale - (xhat * (row_mean(g * xhat) * scale) + row_mean(g) * scale)


def centred_norm_gradients(dy: Real, x: Real, mean: Real, rstd: Real, w: Real) -> tuple[Real, Real, Real]:
    """Return the gradient for x, and each element's contributions to those for w and b."""
    xhat = (x - mean) * rstd
    dw = dy * xhat
    return input_gradient(dy * w, xhat, rstd), dw, dy


def given(call: Call, shape: Shape, **absent: float) -> tuple[View | float, ...]:
    """View optional tensors, by name, in a shape; a number replaces an absent one."""
    return tuple(number if call[name] is None else View(name, shape) for name, number in absent.items())


def _epsilon_not_negative(call: Call) -> str | None:
    epsilon = call["epsilon"]
    return f"epsilon: expected 0 or more, got {epsilon}" if float32(epsilon) < 0 else None


EPSILON_NOT_NEGATIVE = rule("0 or more: epsilon", _epsilon_not_negative)


def const_output(name: str, python_name: str, meaning: str) -> Parameter:
    """Declare an output that the prototype declares const, as generated interfaces do."""
    return Parameter(name, python_name, Kind.OUTPUT, meaning, c_type="const aclTensor *")


def rows_and_columns(call: Call, x: str = "x") -> tuple[Shape, Shape]:
    """Return the shapes [A…] and [R…] into which x's dimensions split, the latter with gamma's rank."""
    shape = call[x].shape
    split = max(0, len(shape) - len(call["gamma"].shape))
    return shape[:split], shape[split:]


def statistic_shape(call: Call, x: str = "x") -> Shape:
    """Return the shape of per-row numbers, [A…, 1…], with x split by ``rows_and_columns``."""
    rows, columns = rows_and_columns(call, x)
    return rows + (1,) * len(columns)


def trailing_dims(x: str, *names: str) -> Check:
    """Require the shape [R…], the dimensions of x that are normalized (see ``rows_and_columns``)."""
    return shape_is(f"trailing dimensions of {x}", lambda call: rows_and_columns(call, x)[1], *names)


def one_a_row(x: str, *names: str) -> Check:
    """Require the shape [A…, 1…] of per-row numbers of x."""
    return shape_is("one element a row", lambda call: statistic_shape(call, x), *names)


class Masked:
    """Outputs of a gradient that ``outputMask`` enables, in its order."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def outputs(self, call: Call) -> tuple[str | None, ...]:
        """Return the names, None for those that are disabled, which are all of them for an invalid mask."""
        mask = call["outputMask"] or (False,) * len(self.names)
        return tuple(name if wanted else None for name, wanted in zip(self.names, mask, strict=False))

    def wanted(self, call: Call) -> list[str]:
        """Return the names of the enabled outputs."""
        return [name for name in self.outputs(call) if name is not None]

    def of(self, call: Call, values: Sequence[T]) -> dict[str, T]:
        """Return the values of the enabled outputs, by name."""
        wanted = self.wanted(call)
        return {name: value for name, value in zip(self.names, values, strict=True) if name in wanted}

    def present(self) -> Check:
        """Require the enabled outputs."""

        def find(call: Call) -> str | None:
            missing = next((name for name in self.wanted(call) if call[name] is None), None)
            return None if missing is None else f"{missing}: expected a tensor, as its mask value is true, got null"

        return rule("requested outputs present", find, ACLNN_ERR_PARAM_NULLPTR)

    def where_requested(self, check: Check) -> Check:
        """Restrict a check of outputs to the enabled ones."""

        def find(call: Call) -> str | None:
            unrequested = dict.fromkeys(set(self.names) - set(self.wanted(call)))
            return check.violation(replace(call, arguments={**call.arguments, **unrequested}))

        return Check(f"{check.name} (if requested)", check.code, find)


def root_mean_square(x: Real, eps: float) -> Real:
    """Return 1/sqrt(mean of x² + eps) of each row."""
    return 1.0 / sqrt(row_mean(x * x) + eps)


class Rows:
    """Views of tensors as M rows of N columns; N is the product of the last ``normalized_dims`` dimensions."""

    def __init__(self, shape: Shape, normalized_dims: int) -> None:
        split = len(shape) - normalized_dims
        self.m, self.n = math.prod(shape[:split]), math.prod(shape[split:])

    def all(self, name: str) -> View:
        """View a tensor of all elements."""
        return View(name, (self.m, self.n))

    def columns(self, name: str) -> View:
        """View a tensor with one element per column."""
        return View(name, (1, self.n))

    def statistic(self, name: str) -> View:
        """View a tensor with one element per row."""
        return View(name, (self.m, 1))
