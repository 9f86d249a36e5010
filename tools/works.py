"""Work of operators on small float32 tensors, for the formulas that their declarations lead to."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

from aclnn import operators
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Kind, Operator, Parameter, Work
from aclnn.core.products import Product
from aclnn.core.tensor import Scalar, Tensor

_NUMBERS = {"betaOptional": (1.0, 1.702, 2.0), "alpha": (1.0, 2.0), "beta": (1.0, 2.0), "threshold": (20.0,)}
"""Factors of Swish, ELU, CELU and Softplus, where all but the last have formulas of their own, and a threshold."""
_SLOPES = (1.702, 1.0)
"""Factors of clipped SwiGLU's exponent, of which the first has a formula of its own."""


def works_of(operator: Operator) -> Iterator[Work]:
    """Yield an operator's work for each mode that attributes select, the default first.

    Other attributes have their default, or 1. An operator that computes nothing yields nothing.
    """
    names = [parameter.name for parameter in operator.parameters]
    defaults = operators.signature_of(operator).parameters
    choices = [
        _choices(parameter, None if parameter.kind is Kind.OUTPUT else defaults[parameter.python_name].default)
        for parameter in operator.parameters
    ]
    for values in product(*choices):
        work = operator.work(Call(operator, dict(zip(names, values, strict=True)), Product.ATLAS_A2))
        if work is not None:
            yield work


def _choices(parameter: Parameter, default: Any) -> tuple[Any, ...]:
    given = default not in (None, inspect.Parameter.empty)
    if parameter.is_tensor:
        return (Tensor(DataType.FLOAT, (2, 4)),)
    if parameter.kind is Kind.SCALAR:
        numbers = _NUMBERS.get(parameter.name, (float(default) if given else 1.0,))
        return tuple(Scalar(DataType.DOUBLE, DataType.DOUBLE.encode(number)) for number in numbers)
    if parameter.kind is Kind.BOOL:
        return (False, True)
    if parameter.kind is Kind.BOOL_ARRAY:
        return ((True,) * 3,)
    if parameter.kind is Kind.INT_ARRAY:
        return ((4,),)
    if parameter.name == "alpha" and default == _SLOPES[0]:
        return _SLOPES
    if parameter.name == "approximate":
        return (0, 1) if parameter.kind is Kind.INT64 else ("none", "tanh")
    return (default if given else 1,)
