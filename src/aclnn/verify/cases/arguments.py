"""A caller's arguments for an operator that has golden values, in one form: names, arrays, attributes."""

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
    """Return false also for random numbers, and for tensors in lists or replaced by a library, which no case holds."""
    unknown = not operator.has_golden_values or any(
        p.name == "seed"
        or p.kind in (*LISTS, Kind.SCALAR_LIST)
        or (p.kind is Kind.OUTPUT and (p.updated or p.name.endswith("Ref")))
        for p in operator.parameters
    )
    return operator.name in BY_NAME or not (unknown or operator.name.startswith(_IN_PLACE))


JUDGED = {operator.name: operator for operator in C_OPERATORS if _has_golden_values(operator)}
"""The operators that have golden values, by name."""


def operator_named(name: str | Operator) -> Operator:
    """An operator that has golden values, by name or as it is; of an in-place variant the one that it is a variant of.

    Raises:
        ValueError: there is none of that name.
    """
    given = name.name if isinstance(name, Operator) else name
    found = JUDGED.get(given.removeprefix(_IN_PLACE)) or JUDGED.get(given)
    if found is None:
        near = "".join(f", such as {one}" for one in get_close_matches(given, JUDGED, 1))
        raise ValueError(f"operator: expected one with golden values (docs/verify.md){near}, got {given!r}")
    return found


def arrays_of(operator: Operator, values: Mapping[str, Any], kind: Kind = Kind.INPUT) -> dict[str, Array]:
    """NumPy arrays by Python's names, of arrays or torch tensors by C or Python name; None stays away.

    Raises:
        ValueError: an unknown name, or a parameter twice.
    """
    named = operator.by_name(values.items(), (kind,))
    return {name: _array(value) for name, value in named.items() if value is not None}


def outputs_of(operator: Operator, values: Any) -> dict[str, Array]:
    """As ``arrays_of`` for outputs, which may also be a tuple of all of them, the lone one, or None for none.

    Raises:
        ValueError: an unknown name, an output twice, or a tuple of another length.
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
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16 of its own to export it as
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return np.asarray(value.view(torch.int16).numpy()).view(FORMATS["bfloat16"].dtype.numpy)
    return np.asarray(value)


def attributes_of(operator: Operator, values: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes by Python's names, as the operator takes them; of those not given the Python function's defaults.

    A mask that is not given is None: what there is to judge says what it was.

    Raises:
        ValueError: an unknown name, or an attribute twice.
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
    """The call on these arguments by Python's names, with outputs as the operator would have them."""
    values = {**attributes, **{name: view(array) for name, array in inputs.items()}}
    arguments = {p.name: values.get(p.python_name) for p in operator.parameters}
    call = Call(operator, arguments, current_product())
    return Call(operator, {**arguments, **operator.inferred(call)}, call.product)


def left_alone(call: Call, output: str) -> bool:
    """Return true if the attributes of a sound call keep an output, by C name, from being written."""
    work = call.operator.work(call)
    if isinstance(work, Library) and call.operator.name not in BY_NAME:
        return output not in work.outputs
    if not isinstance(work, Reduction):
        return False
    return output not in [o if isinstance(o, str) else o.tensor for o in work.outputs if o is not None]
