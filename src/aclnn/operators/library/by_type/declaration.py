"""Declarations shared by the operators that have a type in CANN's graphs and no ``aclnn`` function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Check, Kind, Operator, Parameter, present
from aclnn.operators.library.common import MODERN, library_operator

FLOATS = (D.FLOAT, D.FLOAT16)
"""Data types of operators that know no others."""


def plain_attribute(name: str, kind: Kind) -> Parameter:
    """Declare an attribute."""
    return Parameter(name, name, kind, "an attribute")


def typed(
    op_type: str,
    formula: str,
    parameters: Sequence[Parameter],
    checks: Sequence[Check],
    function: Callable[..., Any],
    dtypes: Collection[D] = FLOATS,
) -> Operator:
    """Declare an operator named after its type, whose function takes the inputs, then the attributes.

    Args:
        op_type: the type.
        formula: formula as text.
        parameters: inputs, attributes and outputs.
        checks: checks after the one that every tensor is present.
        function: function of arrays, with 16-bit types as float32.
        dtypes: data types of the first input.
    """
    tensors = [p.name for p in parameters if p.kind in (Kind.INPUT, Kind.OUTPUT)]
    operator = library_operator(
        op_type,
        formula,
        f"The operator of type {op_type}.",
        tuple(parameters),
        (present(*tensors), *checks),
        function,
        header="",
        dtypes=dtypes,
        products=MODERN,
        attributes=tuple(p.name for p in parameters if p.name not in tensors),
    )
    return replace(operator, function=op_type)
