"""Formulas and checks that norms have in common."""

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
    """Mean, biased variance and 1/sqrt(variance + eps) of each row."""
    mean = row_mean(x)
    variance = row_mean((x - mean) * (x - mean))
    return mean, variance, 1.0 / sqrt(variance + eps)


def centred_norm(x: Real, w: Real, b: Real, eps: float) -> tuple[Real, Real, Real]:
    """(x - mean)·rstd·w + b, mean and rstd."""
    mean, _, rstd = moments(x, eps)
    return (x - mean) * rstd * w + b, mean, rstd


def input_gradient(g: Real, xhat: Real, scale: Real) -> Real:
    """(g - Σg/N - xhat·Σ(g·xhat)/N)·scale, the gradient for x of rows xhat = (x - mean)·rstd if scale is rstd.

    Numbers of the row are multiplied first, which leaves two fused operations of elements.
    """
    return g * scale - (xhat * (row_mean(g * xhat) * scale) + row_mean(g) * scale)


def centred_norm_gradients(dy: Real, x: Real, mean: Real, rstd: Real, w: Real) -> tuple[Real, Real, Real]:
    """Gradients for x, and what each element adds to those for w and b."""
    xhat = (x - mean) * rstd
    dw = dy * xhat
    return input_gradient(dy * w, xhat, rstd), dw, dy


def given(call: Call, shape: Shape, **absent: float) -> tuple[View | float, ...]:
    """View optional tensors by name in a shape; the number stands for one that is absent."""
    return tuple(number if call[name] is None else View(name, shape) for name, number in absent.items())


def _epsilon_not_negative(call: Call) -> str | None:
    epsilon = call["epsilon"]
    return f"epsilon: expected 0 or more, got {epsilon}" if float32(epsilon) < 0 else None


EPSILON_NOT_NEGATIVE = rule("0 or more: epsilon", _epsilon_not_negative)


def const_output(name: str, python_name: str, meaning: str) -> Parameter:
    """Declare an output that the prototype calls const, as those of generated interfaces."""
    return Parameter(name, python_name, Kind.OUTPUT, meaning, c_type="const aclTensor *")


def rows_and_columns(call: Call, x: str = "x") -> tuple[Shape, Shape]:
    """The shapes [A…] and [R…] that x's dimensions split into, the latter as many as gamma has."""
    shape = call[x].shape
    split = max(0, len(shape) - len(call["gamma"].shape))
    return shape[:split], shape[split:]


def statistic_shape(call: Call, x: str = "x") -> Shape:
    """The shape of one number for each row, [A…, 1…], as ``rows_and_columns`` splits x."""
    rows, columns = rows_and_columns(call, x)
    return rows + (1,) * len(columns)


def trailing_dims(x: str, *names: str) -> Check:
    """Require the shape [R…] of x's dimensions that ``rows_and_columns`` normalises."""
    return shape_is(f"trailing dimensions of {x}", lambda call: rows_and_columns(call, x)[1], *names)


def one_a_row(x: str, *names: str) -> Check:
    """Require the shape [A…, 1…] of one number for each of x's rows."""
    return shape_is("one element a row", lambda call: statistic_shape(call, x), *names)


class Masked:
    """The outputs of a gradient that ``outputMask`` switches, in its order."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def outputs(self, call: Call) -> tuple[str | None, ...]:
        """Return the names, None for those that are not wanted; of a mask that is refused none is."""
        mask = call["outputMask"] or (False,) * len(self.names)
        return tuple(name if wanted else None for name, wanted in zip(self.names, mask, strict=False))

    def wanted(self, call: Call) -> list[str]:
        """Return the names of those that are wanted."""
        return [name for name in self.outputs(call) if name is not None]

    def of(self, call: Call, values: Sequence[T]) -> dict[str, T]:
        """Return what belongs to those that are wanted, by name."""
        wanted = self.wanted(call)
        return {name: value for name, value in zip(self.names, values, strict=True) if name in wanted}

    def present(self) -> Check:
        """Require those that are wanted."""

        def find(call: Call) -> str | None:
            missing = next((name for name in self.wanted(call) if call[name] is None), None)
            return None if missing is None else f"{missing}: expected a tensor, as its mask value is true, got null"

        return rule("wanted outputs present", find, ACLNN_ERR_PARAM_NULLPTR)

    def where_wanted(self, check: Check) -> Check:
        """Restrict a check of outputs, which skips absent ones, to those that are wanted."""

        def find(call: Call) -> str | None:
            unwanted = dict.fromkeys(set(self.names) - set(self.wanted(call)))
            return check.complaint(replace(call, arguments={**call.arguments, **unwanted}))

        return Check(f"{check.name} (where wanted)", check.code, find)


def root_mean_square(x: Real, eps: float) -> Real:
    """1/sqrt(mean of x² + eps) of each row."""
    return 1.0 / sqrt(row_mean(x * x) + eps)


class Rows:
    """Views of tensors as M rows of N columns, N the product of a tensor's last ``normalized_dims`` dimensions."""

    def __init__(self, shape: Shape, normalized_dims: int) -> None:
        split = len(shape) - normalized_dims
        self.m, self.n = math.prod(shape[:split]), math.prod(shape[split:])

    def all(self, name: str) -> View:
        """View a tensor with every element."""
        return View(name, (self.m, self.n))

    def columns(self, name: str) -> View:
        """View a tensor with one element for each column."""
        return View(name, (1, self.n))

    def statistic(self, name: str) -> View:
        """View a tensor with one element for each row."""
        return View(name, (self.m, 1))
