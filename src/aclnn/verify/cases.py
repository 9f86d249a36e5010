"""A case: one operator's inputs and attributes with the outputs to judge, checked as the operator itself would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aclnn.arrays import view
from aclnn.declaration import Call, Kind, Operator, Parameter
from aclnn.executor import check_arguments
from aclnn.operators import BY_NAME
from aclnn.products import current_product
from aclnn.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.verify.golden import JUDGED
from aclnn.verify.number_formats import FORMATS

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Inputs, attributes, outputs under test and third outputs by Python's names."""

    operator: Operator
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any]
    actual: Mapping[str, Array]
    third: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each array came from, for the report."""


def operator_named(name: str | Operator) -> Operator:
    """An operator that has golden values, by name or as it is.

    Raises:
        ValueError: there is none of that name.
    """
    found = name if isinstance(name, Operator) else BY_NAME.get(name)
    if found is None or found.name not in JUDGED:
        got = repr(name) if found is None else found.name
        raise ValueError(f"operator: expected one of {', '.join(JUDGED)}, got {got}")
    return found


def parameter_named(operator: Operator, name: str, kinds: Sequence[Kind] | None = None) -> Parameter:
    """A parameter by its C or Python name; a lone output also as grad_input.

    Raises:
        ValueError: there is none of those kinds.
    """
    fitting = [p for p in operator.parameters if kinds is None or p.kind in kinds]
    for parameter in fitting:
        if name in (parameter.name, parameter.python_name):
            return parameter
    outputs = [p for p in fitting if p.kind is Kind.OUTPUT]
    if name in ("grad_input", "") and len(outputs) == 1:
        return outputs[0]
    raise ValueError(f"{operator.name}: expected one of {', '.join(p.python_name for p in fitting)}, got {name!r}")


def make_case(
    operator: str | Operator,
    inputs: Mapping[str, Any],
    actual: Any,
    third: Any = None,
    attributes: Mapping[str, Any] | None = None,
    name: str = "",
    sources: Mapping[str, str] | None = None,
) -> Case:
    """Bring names into Python's form, complete the attributes and run the operator's own checks.

    Args:
        operator: by name or declaration.
        inputs: arrays by C or Python name.
        actual: outputs by name, a tuple of all of them (None where masked out), or the array when there is one.
        third: likewise, or None.
        attributes: by C or Python name; layer_norm_backward's mask is by default what ``actual`` holds.
        name: of the case.
        sources: where each array came from.

    Raises:
        AclnnError: what the operator refuses, with its code and text.
        ValueError: an unknown name.
    """
    found = operator_named(operator)
    given = {
        parameter_named(found, key, (Kind.INPUT,)).python_name: _array(value)
        for key, value in inputs.items()
        if value is not None
    }
    outputs = _outputs(found, actual)
    values: dict[str, Any] = {parameter.python_name: None for parameter in found.attributes}
    kinds = [kind for kind in Kind if kind not in (Kind.INPUT, Kind.OUTPUT)]
    for key, value in (attributes or {}).items():
        values[parameter_named(found, key, kinds).python_name] = _attribute(value)
    if "output_mask" in values and values["output_mask"] is None:
        values["output_mask"] = tuple(p.python_name in outputs for p in found.outputs)
    case = Case(found, given, values, outputs, _outputs(found, third), name, dict(sources or {}))
    _validate(case)
    return case


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16 of its own to export it as
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return np.asarray(value.view(torch.int16).numpy()).view(FORMATS["bfloat16"].dtype.numpy)
    return np.asarray(value)


def _attribute(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple, np.ndarray)) else value


def _outputs(operator: Operator, values: Any) -> dict[str, Array]:
    if values is None:
        return {}
    if isinstance(values, (tuple, list)):
        if len(values) != len(operator.outputs):
            raise ValueError(f"{operator.name}: expected {len(operator.outputs)} outputs, got {len(values)}")
        values = {p.python_name: value for p, value in zip(operator.outputs, values, strict=True)}
    if not isinstance(values, Mapping):
        values = {"": values}
    return {
        parameter_named(operator, key, (Kind.OUTPUT,)).python_name: _array(value)
        for key, value in values.items()
        if value is not None
    }


def _validate(case: Case) -> None:
    arguments: dict[str, Any] = {}
    for parameter in case.operator.parameters:
        if parameter.is_tensor:
            array = (case.inputs if parameter.kind is Kind.INPUT else case.actual).get(parameter.python_name)
            try:
                arguments[parameter.name] = None if array is None else view(array)
            except TypeError as error:
                text = f"{case.operator.function}: {parameter.name}: {error}"
                raise AclnnError(ACLNN_ERR_PARAM_INVALID, text) from None
        else:
            arguments[parameter.name] = case.attributes[parameter.python_name]
    check_arguments(Call(case.operator, arguments, current_product()))
    if not case.actual:
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: expected at least one output to judge")
    for name, array in case.third.items():
        if name not in case.actual or array.shape != case.actual[name].shape or array.dtype.name not in FORMATS:
            wanted = list(case.actual[name].shape) if name in case.actual else "an output that is judged"
            text = f"third {name}: expected {wanted}, got {array.dtype} {list(array.shape)}"
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: {text}")
