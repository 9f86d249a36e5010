"""A caller's arguments for an operator with golden values, normalized: names, arrays, attributes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any, TypeVar

import numpy as np

from aclnn.core.operator import ATTRIBUTES, LISTS, Call, Kind, Library, Operator, Reduction
from aclnn.core.products import current_product
from aclnn.execution.arrays import view
from aclnn.execution.attributes import attribute
from aclnn.operators import BY_NAME, signature_of
from aclnn.operators.registry import C_OPERATORS
from aclnn.typing import Array
from aclnn.verify.number_formats import FORMATS

T = TypeVar("T")

_IN_PLACE = "inplace_"


def _has_golden_values(operator: Operator) -> bool:
    """Return False also for library operators that draw numbers, need other ranks, or have tensor lists."""
    unknown = not operator.has_golden_values or any(
        p.name.startswith("seed")
        or (p.name.startswith("group") and p.kind is Kind.STRING)
        or p.kind in (*LISTS, Kind.SCALAR_LIST)
        for p in operator.parameters
    )
    return operator.name in BY_NAME or not unknown


_GOLDEN = {operator.name: operator for operator in C_OPERATORS if _has_golden_values(operator)}
VERIFIABLE = {
    name: operator
    for name, operator in _GOLDEN.items()
    if not (name.startswith(_IN_PLACE) and name.removeprefix(_IN_PLACE) in _GOLDEN)
}
"""Operators with golden values, by name; in-place variants only of operators without."""


def operator_named(name: str | Operator) -> Operator:
    """Return an operator with golden values, given its name or itself; for an in-place variant, the base operator.

    Raises:
        ValueError: there is none of that name.
    """
    given = name.name if isinstance(name, Operator) else name
    found = VERIFIABLE.get(given.removeprefix(_IN_PLACE)) or VERIFIABLE.get(given)
    if found is None:
        near = "".join(f", such as {one}" for one in get_close_matches(given, VERIFIABLE, 1))
        raise ValueError(f"operator: expected one with golden values (docs/verify.md){near}, got {given!r}")
    return found


def named_inputs(operator: Operator, values: Mapping[str, T]) -> dict[str, T]:
    """Key inputs, and old contents of outputs that the operator updates, by their Python names.

    Raises:
        ValueError: an unknown name, the name of another output, or a parameter given twice.
    """
    read = [p for p in operator.parameters if p.is_read]
    kinds = (Kind.INPUT, Kind.OUTPUT) if any(p.kind is Kind.OUTPUT for p in read) else (Kind.INPUT,)
    for name in values:
        if operator.parameter(name, kinds) not in read:
            raise ValueError(f"{operator.name}: expected one of {', '.join(p.python_name for p in read)}, got {name!r}")
    return operator.by_name(values.items(), kinds)


def arrays_of(named: Mapping[str, Any]) -> dict[str, Array]:
    """Return NumPy arrays, from arrays or torch tensors; None is left out."""
    return {name: _array(value) for name, value in named.items() if value is not None}


def outputs_of(operator: Operator, values: Any) -> dict[str, Array]:
    """Return outputs by Python name, also from a tuple of all outputs, a lone output, or None for no output.

    Raises:
        ValueError: an unknown name, an output given twice, or a tuple of another length.
    """
    if isinstance(values, (tuple, list)):
        if len(values) != len(operator.outputs):
            raise ValueError(f"{operator.name}: expected {len(operator.outputs)} outputs, got {len(values)}")
        values = {p.python_name: value for p, value in zip(operator.outputs, values, strict=True)}
    if values is not None and not isinstance(values, Mapping):
        values = {"": values}
    return arrays_of(operator.by_name((values or {}).items(), (Kind.OUTPUT,)))


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a torch tensor, which cannot be exported to NumPy as bfloat16
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return np.asarray(value.view(torch.int16).numpy()).view(FORMATS["bfloat16"].dtype.numpy)
    return np.asarray(value)


def attributes_of(operator: Operator, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes by Python name, as the operator takes them; the Python function's defaults fill gaps.

    A mask that is not given is None: the outputs to verify imply it.

    Raises:
        ValueError: an unknown name, or an attribute given twice.
        AclnnError: a value of another kind.
    """
    named = operator.by_name(values.items(), ATTRIBUTES)
    function = signature_of(operator).parameters
    given = {
        p.python_name: function[p.python_name].default
        for p in operator.attributes
        if p.kind is not Kind.BOOL_ARRAY and function[p.python_name].default is not Parameter.empty
    } | named
    return {p.python_name: attribute(operator, p, given.get(p.python_name)) for p in operator.attributes}


def call_of(operator: Operator, inputs: Mapping[str, Array], attributes: Mapping[str, Any]) -> Call:
    """Return the call on arguments by Python name, with the outputs that the operator infers."""
    values = {**attributes, **{name: view(array) for name, array in inputs.items()}}
    arguments = {p.name: values.get(p.python_name) for p in operator.parameters}
    call = Call(operator, arguments, current_product())
    return Call(operator, {**arguments, **operator.inferred(call)}, call.product)


def left_alone(call: Call, output: str) -> bool:
    """Return True if the attributes of a valid call disable an output, given by C name."""
    work = call.operator.work(call)
    if isinstance(work, Library) and call.operator.name not in BY_NAME:
        return output not in work.outputs
    if not isinstance(work, Reduction):
        return False
    return output not in [o if isinstance(o, str) else o.tensor for o in work.outputs if o is not None]
