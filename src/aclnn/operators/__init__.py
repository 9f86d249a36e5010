"""The operators, one file each. One import line here adds one everywhere but to the names of ``aclnn`` itself."""

from __future__ import annotations

from inspect import Signature, signature

from aclnn.declaration import Operator
from aclnn.operators.celu import CELU, INPLACE_CELU, celu, inplace_celu
from aclnn.operators.elu import ELU, ELU_BACKWARD, INPLACE_ELU, elu, elu_backward, inplace_elu
from aclnn.operators.fast_gelu import FAST_GELU, FAST_GELU_BACKWARD, fast_gelu, fast_gelu_backward
from aclnn.operators.gelu import (
    GELU,
    GELU_BACKWARD,
    GELU_BACKWARD_V2,
    GELU_V2,
    gelu,
    gelu_backward,
    gelu_backward_v2,
    gelu_v2,
)
from aclnn.operators.hardsigmoid import (
    HARDSIGMOID,
    HARDSIGMOID_BACKWARD,
    INPLACE_HARDSIGMOID,
    hardsigmoid,
    hardsigmoid_backward,
    inplace_hardsigmoid,
)
from aclnn.operators.hardswish import (
    HARDSWISH,
    HARDSWISH_BACKWARD,
    HARDSWISH_BACKWARD_V2,
    INPLACE_HARDSWISH,
    hardswish,
    hardswish_backward,
    hardswish_backward_v2,
    inplace_hardswish,
)
from aclnn.operators.hardtanh import HARDTANH_BACKWARD, hardtanh_backward
from aclnn.operators.layer_norm import (
    FAST_LAYER_NORM,
    LAYER_NORM,
    LAYER_NORM_BACKWARD,
    LAYER_NORM_WITH_IMPL_MODE,
    fast_layer_norm,
    layer_norm,
    layer_norm_backward,
    layer_norm_with_impl_mode,
)
from aclnn.operators.leaky_relu import (
    INPLACE_LEAKY_RELU,
    LEAKY_RELU,
    LEAKY_RELU_BACKWARD,
    inplace_leaky_relu,
    leaky_relu,
    leaky_relu_backward,
)
from aclnn.operators.library import LIBRARY_OPERATORS
from aclnn.operators.log_sigmoid import (
    LOG_SIGMOID,
    LOG_SIGMOID_BACKWARD,
    LOG_SIGMOID_FORWARD,
    log_sigmoid,
    log_sigmoid_backward,
    log_sigmoid_forward,
)
from aclnn.operators.mish import INPLACE_MISH, MISH, MISH_BACKWARD, inplace_mish, mish, mish_backward
from aclnn.operators.rms_norm import RMS_NORM, RMS_NORM_GRAD, rms_norm, rms_norm_grad
from aclnn.operators.sigmoid import (
    INPLACE_SIGMOID,
    SIGMOID,
    SIGMOID_BACKWARD,
    inplace_sigmoid,
    sigmoid,
    sigmoid_backward,
)
from aclnn.operators.silu import SILU, SILU_BACKWARD, silu, silu_backward
from aclnn.operators.softplus import SOFTPLUS, SOFTPLUS_BACKWARD, softplus, softplus_backward
from aclnn.operators.swi_glu import SWI_GLU, SWI_GLU_GRAD, swi_glu, swi_glu_grad
from aclnn.operators.swish import SWISH, SWISH_BACKWARD, swish, swish_backward
from aclnn.operators.threshold import (
    INPLACE_RELU,
    INPLACE_THRESHOLD,
    RELU,
    THRESHOLD,
    THRESHOLD_BACKWARD,
    inplace_relu,
    inplace_threshold,
    relu,
    threshold,
    threshold_backward,
)

__all__ = ["BY_NAME", "C_OPERATORS", "OPERATORS", "signature_of"]

#: The operators that are functions of arrays: every one imported above.
OPERATORS: tuple[Operator, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Operator))

#: The operators that have C functions.
C_OPERATORS = (*OPERATORS, *LIBRARY_OPERATORS)

BY_NAME = {operator.name: operator for operator in OPERATORS}


def signature_of(operator: Operator) -> Signature:
    """The operator's Python function's."""
    return signature(globals()[operator.name])
