"""Executors: repeated use, destruction, and new addresses for their tensors."""

from __future__ import annotations

from aclnn.capi.objects import TensorList, live, take
from aclnn.capi.prototype import c_function
from aclnn.core.status import ACLNN_ERR_INNER, ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import Executor


def _error_code(executor: int) -> int:
    return ACLNN_ERR_INNER if executor else ACLNN_ERR_INNER_NULLPTR


def _executor(handle: int) -> Executor:
    return live(handle, Executor, "executor", _error_code(handle))


@c_function("aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor)")
def aclSetAclOpExecutorRepeatable(executor: int) -> None:
    """Make an executor reusable until it is destroyed."""
    _executor(executor).repeatable = True


@c_function("aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor)")
def aclDestroyAclOpExecutor(executor: int) -> None:
    """Destroy an executor."""
    take(executor, Executor, "executor", _error_code(executor))


def _set_address(executor: int, tensor: int, addr: int | None) -> None:
    """Set the tensor's address, then check the executor, as CANN does."""
    live(tensor, Tensor, "tensor", ACLNN_ERR_INNER_NULLPTR).address = addr or 0
    _executor(executor)


def _set_element_address(executor: int, index: int, tensors: int, addr: int | None) -> None:
    elements = live(tensors, TensorList, "tensors", ACLNN_ERR_INNER_NULLPTR)
    if index >= len(elements):
        raise AclnnError(
            ACLNN_ERR_PARAM_INVALID, f"relativeIndex: expected less than the list's size {len(elements)}, got {index}"
        )
    _set_address(executor, elements[index], addr)


def _enter_setters() -> None:
    """Enter each setter as ``aclSet…`` and in its older spelling ``AclSet…``."""
    for prefix in ("aclSet", "AclSet"):
        for which in ("Input", "Output", ""):
            name = f"{prefix}{which}TensorAddr"

            @c_function(
                f"aclnnStatus {name}(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr)"
            )
            def set_address(executor: int, index: int, tensor: int, addr: int | None) -> None:
                """Set the address of a tensor of the executor; the index is ignored."""
                _set_address(executor, tensor, addr)

            name = f"{prefix}Dynamic{which}TensorAddr"

            @c_function(
                f"aclnnStatus {name}(aclOpExecutor *executor, size_t irIndex, const size_t relativeIndex, "
                "aclTensorList *tensors, void *addr)"
            )
            def set_element_address(
                executor: int, irIndex: int, relativeIndex: int, tensors: int, addr: int | None
            ) -> None:
                """Set the address of one tensor of a list."""
                _set_element_address(executor, relativeIndex, tensors, addr)


_enter_setters()
