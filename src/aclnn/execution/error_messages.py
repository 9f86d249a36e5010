"""Errors of an operator's checks, reworded for Python callers: argument names, outputs, None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aclnn.core.checks import extents
from aclnn.core.operator import Call, Kind, Operator
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.attributes import ATTRIBUTES
from aclnn.execution.executor import check_arguments


def reworded_for_caller(error: AclnnError, call: Call, names: Mapping[str, str]) -> AclnnError:
    """Return an error with the caller's names for the arguments and the same code.

    Checks compare inputs with outputs, and report the first argument in C's order. An output passed by the caller is
    reported if the call would be valid with the output inferred from the inputs; else the inputs are compared with one
    another.

    Args:
        error: the error of the checks.
        call: the call that failed.
        names: the caller's name for each argument passed, by C name.
    """
    operator, message = call.operator, error.message
    inferred = operator.inferred(call) if inferable(operator, call.arguments) else {}
    fitting = {name: tensor for name, tensor in inferred.items() if call[name] is not None}
    called = dict(names)
    if (reworded := _error_message(call, fitting)) is not None:
        message = reworded
        for name, tensor in fitting.items():
            matching = (p.name for p in operator.inputs if call[p.name] and not _mismatch("", call[p.name], tensor))
            called[name] = names.get(next(matching, name), "the output")
    elif mismatched := [name for name, tensor in fitting.items() if _mismatch(name, call[name], tensor)]:
        alone = (name for name in mismatched if _error_message(call, {name: fitting[name]}) is None)
        name = next(alone, mismatched[0])
        message = f"{operator.function}: {_mismatch(name, call[name], fitting[name])}"
    if message.endswith("got ACL_DOUBLE") and any(f": {p.name}: " in message for p in operator.inputs):
        message += ": .astype(np.float32) converts it"
    return AclnnError(error.code, renamed(_with_none(operator, message), called))


def renamed(message: str, names: Mapping[str, str]) -> str:
    """Replace argument names in a message, except in quoted text."""
    quoted_or_name = re.compile(rf"'(?:[^'\\]|\\.)*'|\b(?:{'|'.join(names)})\b")
    return quoted_or_name.sub(lambda found: names.get(found[0], found[0]), message)


def _with_none(operator: Operator, message: str) -> str:
    """Word a message about a missing argument for Python: None instead of a null pointer."""
    text, null, _ = message.rpartition(", got null")
    if not null:
        return message
    kind = next((p.kind for p in operator.attributes if f": {p.name}: " in message), None)
    wanted = "an array" if kind is None else ATTRIBUTES[kind][1]
    return f"{re.sub('expected (an object|a tensor)', f'expected {wanted}', text)}, got None"


def _error_message(call: Call, changed: Mapping[str, Tensor]) -> str | None:
    """Return the error message of a call with some tensors replaced; None if the call is valid."""
    try:
        check_arguments(Call(call.operator, {**call.arguments, **changed}, call.product))
    except AclnnError as error:
        return error.message
    return None


def _mismatch(name: str, given: Tensor, expected: Tensor) -> str:
    if given.dtype != expected.dtype:
        return f"{name}: expected data type {expected.dtype.c_name}, got {given.dtype.c_name}"
    if given.shape != expected.shape:
        return f"{name}: expected shape {extents(expected.shape)}, got {extents(given.shape)}"
    return ""


def inferable(operator: Operator, arguments: Mapping[str, Any]) -> bool:
    """Return true if all arguments that the outputs are inferred from are present."""
    given = [p for p in operator.parameters if p.kind is not Kind.OUTPUT]
    return all(p.optional or arguments[p.name] is not None for p in given)
