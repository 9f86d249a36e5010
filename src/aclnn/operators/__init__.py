"""The operators, one file per family. A name in the import below registers a family everywhere except in ``aclnn``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import Any

from aclnn import custom
from aclnn.core.operator import Kind, Operator
from aclnn.operators import (
    ada_layer_norm,
    add_layer_norm,
    add_rms_norm,
    batch_norm,
    celu,
    clipped_swiglu,
    deep_norm,
    elu,
    fast_gelu,
    ge_glu,
    gelu,
    gemma_rms_norm,
    glu,
    group_norm,
    group_norm_silu,
    group_norm_swish,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    instance_norm,
    layer_norm,
    leaky_relu,
    log_sigmoid,
    mish,
    prelu,
    rms_norm,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softshrink,
    squared_relu,
    swi_glu,
    swish,
    threshold,
)

__all__ = ["BY_NAME", "CUSTOM", "OPERATORS", "function_of", "required_arguments", "signature_of"]

# Sorted, since a family may have been imported by an earlier one.
_FAMILIES = sorted((v for v in list(globals().values()) if isinstance(v, ModuleType)), key=lambda m: m.__name__)
_DECLARED: dict[str, tuple[Operator, Callable[..., Any]]] = {
    operator.name: (operator, vars(family)[operator.name])
    for family in _FAMILIES
    for operator in vars(family).values()
    if isinstance(operator, Operator)
    # Otherwise it belongs to another family, and is imported there.
    if getattr(vars(family).get(operator.name), "__module__", None) == family.__name__
}


def _taken() -> list[str]:
    from aclnn.operators.library import LIBRARY_OPERATORS

    return [o.function for o in (*(operator for operator, _ in _DECLARED.values()), *LIBRARY_OPERATORS)]


#: The user's own operators by name, with their functions of arrays if any.
CUSTOM = custom.declared(_taken)
_DECLARED |= {name: (operator, function) for name, (operator, function) in CUSTOM.items() if function}

#: Operators with functions of arrays: those declared in the modules imported above, and the user's own.
OPERATORS: tuple[Operator, ...] = tuple(operator for operator, _ in _DECLARED.values())

BY_NAME = {operator.name: operator for operator in OPERATORS}


def function_of(operator: Operator) -> Callable[..., Any]:
    """Return an operator's function of arrays."""
    return _DECLARED[operator.name][1]


def signature_of(operator: Operator) -> Signature:
    """Return the signature of an operator's function of arrays, also if the function does not exist."""
    if operator.name in _DECLARED:
        return signature(function_of(operator))
    given = (p for p in operator.parameters if p.kind is not Kind.OUTPUT)
    return Signature([Parameter(p.python_name, Parameter.KEYWORD_ONLY) for p in given])


def required_arguments(operator: Operator) -> list[str]:
    """Return the arguments that a command requires: those without a default for which None is not accepted.

    An output is among them if it is updated in place.
    """
    nullable = {parameter.python_name for parameter in operator.parameters if parameter.optional}
    return [
        name
        for name, parameter in signature_of(operator).parameters.items()
        if parameter.default is Parameter.empty and name not in nullable
    ]
