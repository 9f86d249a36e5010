"""The operators, one file each. One import line here is all it takes to add one everywhere."""

from __future__ import annotations

from inspect import Signature, signature

from aclnn.declaration import Operator
from aclnn.operators.fast_gelu import FAST_GELU, FAST_GELU_BACKWARD, fast_gelu, fast_gelu_backward
from aclnn.operators.gelu import GELU, GELU_BACKWARD_V2, GELU_V2, gelu, gelu_backward_v2, gelu_v2
from aclnn.operators.hardswish import (
    HARDSWISH,
    HARDSWISH_BACKWARD,
    INPLACE_HARDSWISH,
    hardswish,
    hardswish_backward,
    inplace_hardswish,
)
from aclnn.operators.layer_norm import (
    LAYER_NORM,
    LAYER_NORM_BACKWARD,
    LAYER_NORM_WITH_IMPL_MODE,
    layer_norm,
    layer_norm_backward,
    layer_norm_with_impl_mode,
)
from aclnn.operators.silu import SILU, SILU_BACKWARD, silu, silu_backward

#: Every operator imported above.
OPERATORS: tuple[Operator, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Operator))

BY_NAME = {operator.name: operator for operator in OPERATORS}


def signature_of(operator: Operator) -> Signature:
    """The operator's Python function's."""
    return signature(globals()[operator.name])


__all__ = ["BY_NAME", "OPERATORS"] + [operator.name for operator in OPERATORS]
