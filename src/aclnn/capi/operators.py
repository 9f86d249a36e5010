"""Two-phase function pairs of the operators, generated from their declarations.

``status, workspace_size, executor = aclnnXxxGetWorkspaceSize(…)``, then
``status = aclnnXxx(workspace, workspace_size, executor, stream)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.capi.objects import BoolArray, IntArray, ScalarList, TensorList, live, take
from aclnn.capi.prototype import c_function
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Kind, Operator, Parameter
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import Executor, prepare
from aclnn.operators.registry import C_OPERATORS
from aclnn.runtime import devices, handles

_OBJECTS: dict[Kind, type[Any]] = {
    Kind.INPUT: Tensor,
    Kind.OUTPUT: Tensor,
    Kind.INPUT_LIST: TensorList,
    Kind.OUTPUT_LIST: TensorList,
    Kind.SCALAR: Scalar,
    Kind.SCALAR_LIST: ScalarList,
    Kind.INT_ARRAY: IntArray,
    Kind.BOOL_ARRAY: BoolArray,
}

_ELEMENTS: dict[type[Any], type[Any]] = {TensorList: Tensor, ScalarList: Scalar}


def _value(parameter: Parameter, given: Any) -> Any:
    """Convert a C argument for the engine: objects for handles, None for null."""
    kind = _OBJECTS.get(parameter.kind)
    if kind is None:
        return DataType(given) if parameter.kind is Kind.DTYPE else given
    if not given:
        return None
    found = live(given, kind, parameter.name)
    element = _ELEMENTS.get(kind)
    if element is not None:
        return tuple(live(item, element, f"{parameter.name}[{at}]") if item else None for at, item in enumerate(found))
    return found


def _enter_first_phase(operator: Operator) -> None:
    def first(*given: Any) -> tuple[int, int]:
        arguments = {
            parameter.name: _value(parameter, value)
            for parameter, value in zip(operator.parameters, given, strict=True)
        }
        executor = prepare(operator, arguments)
        return executor.asked_bytes, handles.insert(executor)

    given = ", ".join(parameter.declaration for parameter in operator.parameters)
    _enter(
        first,
        f"aclnnStatus {operator.phase_one}({given}, uint64_t *workspaceSize, aclOpExecutor **executor)",
        [parameter.name for parameter in operator.parameters],
        f"{operator.summary}\n\nPhase one: check the arguments; return the workspace size and an executor.",
    )


def _enter_second_phase(operator: Operator) -> None:
    def second(workspace: int, workspaceSize: int, executor: int, stream: int) -> None:
        missing = workspaceSize > 0 and not workspace
        ready = _take_executor(operator, executor, destroy=missing)
        if missing:
            ready.prepared.check_workspace(workspace, workspaceSize)  # fails, before the stream is looked at
        queue = devices.stream_of(stream)
        ready.run(workspace, workspaceSize, queue, queue.context.device)

    name = operator.function
    _enter(
        second,
        f"aclnnStatus {name}(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, "
        f"{operator.stream_type}stream)",
        ["workspace", "workspaceSize", "executor", "stream"],
        f"{operator.summary}\n\nPhase two: queue the computation.",
    )


def _take_executor(operator: Operator, handle: int, destroy: bool) -> Executor:
    """Return the executor, removed from the table unless it is repeatable, so that a second use fails."""
    executor = live(handle, Executor, "executor")
    if executor.prepared.operator is not operator:
        raise AclnnError(
            ACLNN_ERR_PARAM_INVALID,
            f"executor: expected one from {operator.phase_one}, got one from {executor.prepared.operator.phase_one}",
        )
    if destroy or not executor.repeatable:
        take(handle, Executor, "executor")
    return executor


def _enter(function: Callable[..., Any], prototype: str, inputs: list[str], text: str) -> None:
    function.__doc__ = text
    c_function(prototype, given=inputs)(function)


for _operator in C_OPERATORS:
    _enter_first_phase(_operator)
    _enter_second_phase(_operator)
