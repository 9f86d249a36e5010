"""A case: inputs and attributes of an operator with the outputs to verify, validated by the operator's checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aclnn.core.checks import listing
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import current_product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.arrays import empty, view
from aclnn.execution.error_messages import inferable, reworded_for_caller
from aclnn.execution.executor import check_arguments
from aclnn.operators import BY_NAME
from aclnn.typing import Array
from aclnn.verify.cases.arguments import arrays_of, attributes_of, left_alone, named_inputs, operator_named, outputs_of
from aclnn.verify.number_formats import ALL_FORMATS, FORMATS


@dataclass(frozen=True)
class Case:
    """Inputs, attributes, outputs under test and reference outputs ("third"), by Python name."""

    operator: Operator
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any]
    actual: Mapping[str, Array]
    third: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Origin of each array, for the report."""
    call: Call | None = None
    """The operator's call, validated by its checks."""
    unverified: Mapping[str, str] = field(default_factory=dict)
    """Data types of given outputs that cannot be judged, by name: integers with other outputs."""


def make_case(
    operator: str | Operator,
    inputs: Mapping[str, Any],
    actual: Any,
    third: Any = None,
    attributes: Mapping[str, Any] | None = None,
    name: str = "",
    sources: Mapping[str, str] | None = None,
    roles: tuple[str, str] = ("actual", "third"),
) -> Case:
    """Normalize names, complete the attributes and run the operator's checks.

    Args:
        operator: name or declaration.
        inputs: arrays by C or Python name.
        actual: outputs by name, a tuple of all of them (None if masked out), or the single array. Outputs that the
            attributes disable are ignored, as are integer outputs with others.
        third: reference outputs in the same form, or None.
        attributes: values by C or Python name; layer_norm_backward's mask defaults to the outputs in ``actual``.
        name: name of the case.
        sources: origin of each array.
        roles: the caller's words for ``actual`` and ``third``.

    Raises:
        AclnnError: an error of the operator's checks, with its code and text, in the caller's names.
        ValueError: an unknown name, or a name given twice.
    """
    found = operator_named(operator)
    given, outputs = arrays_of(named_inputs(found, inputs)), outputs_of(found, actual)
    values = attributes_of(found, attributes or {})
    if "output_mask" in values and values["output_mask"] is None:
        values["output_mask"] = tuple(p.python_name in outputs for p in found.outputs)
    case = Case(found, given, values, outputs, outputs_of(found, third), name, dict(sources or {}))
    typed = found.by_name((key, key) for key in (*inputs, *(attributes or {})))
    if isinstance(actual, Mapping):
        typed |= found.by_name(((key, key) for key in actual if key), (Kind.OUTPUT,))
    call = _validated(case, typed, roles)
    _expect_old_contents(call, given)
    left = {p.python_name for p in found.outputs if call[p.name] is not None and left_alone(call, p.name)}
    written = {name: array.dtype.name for name, array in case.actual.items() if name not in left}
    ordered = {p.python_name for p in found.outputs if p.index_of is None}  # by numbers that differ by rounding
    unverified = {name: dtype for name, dtype in written.items() if dtype not in ALL_FORMATS or name in ordered}
    left |= {*unverified}
    verified, third = ({n: a for n, a in of.items() if n not in left} for of in (case.actual, case.third))
    if not verified:
        text = f"expected an output that can be verified, got {', '.join(unverified) or 'none that the call writes'}"
        raise ValueError(f"{found.name}: {text}")
    return replace(case, actual=verified, third=third, call=call, unverified=unverified)


def _expect_old_contents(call: Call, inputs: Mapping[str, Array]) -> None:
    """Require the contents before the call of outputs that the operator reads.

    Raises:
        ValueError: one is missing.
    """
    work = call.operator.work(call)
    if isinstance(work, Library) and call.operator.name not in BY_NAME:
        for parameter in call.operator.outputs:
            if parameter.is_read and parameter.name in work.inputs and parameter.python_name not in inputs:
                text = f"expected {parameter.python_name} as an input too, as it was before the call, got none"
                raise ValueError(f"{call.operator.name}: {text}")


def _validated(case: Case, typed: Mapping[str, str], roles: tuple[str, str]) -> Call:
    arguments: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in case.operator.parameters:
        name = typed.get(parameter.python_name, parameter.python_name)
        names[parameter.name] = name = f"{roles[0]} {name}" if parameter.kind is Kind.OUTPUT else name
        if parameter.is_tensor:
            roles_of = (case.inputs,) if parameter.kind is Kind.INPUT else (case.actual, case.inputs)
            array = next((of[key] for of in roles_of if (key := parameter.python_name) in of), None)
            try:
                arguments[parameter.name] = None if array is None else view(array)
            except TypeError as error:
                raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: {name}: {error}") from None
        else:
            arguments[parameter.name] = case.attributes[parameter.python_name]
    call = Call(case.operator, arguments, current_product())
    if "output_mask" not in case.attributes:  # which says which outputs there are
        arguments |= _missing_outputs(call)
    try:
        check_arguments(call)
    except AclnnError as error:
        raise reworded_for_caller(error, call, names) from None
    if not case.actual:
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: expected at least one output to verify")
    none = not any(array.dtype.name in ALL_FORMATS for array in case.actual.values())
    for name, array in (*case.actual.items(), *case.inputs.items()):
        wider = array.dtype.kind == "f" and array.dtype.isbuiltin == 1  # excludes ml_dtypes, whose kind may be "f" too
        if array.dtype.name not in ALL_FORMATS and (wider or (none and name in case.actual)):
            word = f"{roles[0]} {name}" if name in case.actual else typed.get(name, name)
            text = f"expected {listing(FORMATS)}, which can be verified, got {array.dtype}"
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: {word}: {text}")
    for name, array in case.third.items():
        violation = _reference_violation(case, name, array)
        if violation is not None:
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"{case.operator.function}: {roles[1]} {name}: {violation}")
    return call


def _missing_outputs(call: Call) -> dict[str, Tensor]:
    """Return arrays of the inferred types and shapes for outputs that are not given."""
    if not inferable(call.operator, call.arguments):
        return {}
    inferred = call.operator.infer(call)
    missing = {p.name for p in call.operator.outputs if call[p.name] is None}
    return {name: view(empty(*wanted)) for name, wanted in inferred.items() if name in missing and wanted}


def _reference_violation(case: Case, name: str, array: Array) -> str | None:
    if name not in case.actual:
        return f"expected an output that is verified, one of {', '.join(case.actual)}"
    if array.shape != case.actual[name].shape:
        return f"expected shape {list(case.actual[name].shape)}, got {list(array.shape)}"
    return None if array.dtype.name in ALL_FORMATS else f"expected one of {', '.join(FORMATS)}, got {array.dtype}"
