"""A caller's arguments for an operator with golden values, normalized: names, arrays, attributes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any

import numpy as np

from aclnn.core.operator import ATTRIBUTES, LISTS, Call, Kind, Library, Operator, Reduction
from aclnn.core.products import current_product
from aclnn.execution.arrays import view
from aclnn.execution.attributes import attribute
from aclnn.operators import BY_NAME, signature_of
from aclnn.operators.registry import C_OPERATORS
from aclnn.typing import Array
from aclnn.verify.number_formats import FORMATS

_IN_PLACE = "inplace_"


def _has_golden_values(operator: Operator) -> bool:
    """Return False also for random operators, and for library operators with tensor lists or in-place tensors."""
    unknown = not operator.has_golden_values or any(
        p.name == "seed"
        or p.kind in (*LISTS, Kind.SCALAR_LIST)
        or (p.kind is Kind.OUTPUT and (p.updated or p.name.endswith("Ref")))
        for p in operator.parameters
    )
    return operator.name in BY_NAME or not (unknown or operator.name.startswith(_IN_PLACE))


VERIFIABLE = {operator.name: operator for operator in C_OPERATORS if _has_golden_values(operator)}
"""Operators with golden values, by name."""


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


def arrays_of(operator: Operator, values: Mapping[str, Any], kind: Kind = Kind.INPUT) -> dict[str, Array]:
    """Return NumPy arrays by Python name, from arrays or torch tensors by C or Python name; None is left out.

    Raises:
        ValueError: an unknown name, or a parameter given twice.
    """
    named = operator.by_name(values.items(), (kind,))
    return {name: _array(value) for name, value in named.items() if value is not None}


def outputs_of(operator: Operator, values: Any) -> dict[str, Array]:
    """Return outputs as ``arrays_of`` does, also from a tuple of all outputs, a lone output, or None for no output.

    Raises:
        ValueError: an unknown name, an output given twice, or a tuple of another length.
    """
    if isinstance(values, (tuple, list)):
        if len(values) != len(operator.outputs):
            raise ValueError(f"{operator.name}: expected {len(operator.outputs)} outputs, got {len(values)}")
        values = {p.python_name: value for p, value in zip(operator.outputs, values, strict=True)}
    if values is not None and not isinstance(values, Mapping):
        values = {"": values}
    return arrays_of(operator, values or {}, Kind.OUTPUT)


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
