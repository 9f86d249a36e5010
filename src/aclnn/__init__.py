"""The aclnn operators of Ascend CANN, on any machine.

``aclnn.<operator>`` are Python functions over arrays; ``aclnn.cann`` has every C name; ``aclnn.acl`` is the runtime
under pyACL's names.
"""

from aclnn.core.products import set_soc_name, soc_name
from aclnn.core.status import AclnnError
from aclnn.operators.ada_layer_norm import ada_layer_norm, ada_layer_norm_backward, ada_layer_norm_v2
from aclnn.operators.add_layer_norm import add_layer_norm, add_layer_norm_grad
from aclnn.operators.add_rms_norm import add_rms_norm, inplace_add_rms_norm
from aclnn.operators.batch_norm import batch_norm, batch_norm_backward, fast_batch_norm_backward
from aclnn.operators.celu import celu, inplace_celu
from aclnn.operators.clipped_swiglu import clipped_swiglu, clipped_swiglu_grad
from aclnn.operators.deep_norm import deep_norm, deep_norm_grad
from aclnn.operators.elu import elu, elu_backward, inplace_elu
from aclnn.operators.fast_gelu import fast_gelu, fast_gelu_backward
from aclnn.operators.ge_glu import ge_glu, ge_glu_backward, ge_glu_v3, ge_glu_v3_backward
from aclnn.operators.gelu import gelu, gelu_backward, gelu_backward_v2, gelu_v2
from aclnn.operators.gemma_rms_norm import gemma_rms_norm
from aclnn.operators.glu import glu, glu_backward
from aclnn.operators.group_norm import group_norm, group_norm_backward
from aclnn.operators.group_norm_silu import group_norm_silu, group_norm_silu_v2
from aclnn.operators.group_norm_swish import group_norm_swish, group_norm_swish_grad
from aclnn.operators.hardshrink import hardshrink, hardshrink_backward
from aclnn.operators.hardsigmoid import hardsigmoid, hardsigmoid_backward, inplace_hardsigmoid
from aclnn.operators.hardswish import hardswish, hardswish_backward, hardswish_backward_v2, inplace_hardswish
from aclnn.operators.hardtanh import hardtanh_backward
from aclnn.operators.instance_norm import instance_norm
from aclnn.operators.layer_norm import fast_layer_norm, layer_norm, layer_norm_backward, layer_norm_with_impl_mode
from aclnn.operators.leaky_relu import inplace_leaky_relu, leaky_relu, leaky_relu_backward
from aclnn.operators.log_sigmoid import log_sigmoid, log_sigmoid_backward, log_sigmoid_forward
from aclnn.operators.mish import inplace_mish, mish, mish_backward
from aclnn.operators.prelu import prelu, prelu_backward
from aclnn.operators.rms_norm import rms_norm, rms_norm_grad
from aclnn.operators.selu import inplace_selu, selu, selu_backward
from aclnn.operators.sigmoid import inplace_sigmoid, sigmoid, sigmoid_backward
from aclnn.operators.silu import silu, silu_backward
from aclnn.operators.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from aclnn.operators.softplus import softplus, softplus_backward
from aclnn.operators.softshrink import shrink, softshrink, softshrink_backward
from aclnn.operators.squared_relu import squared_relu
from aclnn.operators.swi_glu import swi_glu, swi_glu_grad
from aclnn.operators.swish import swish, swish_backward
from aclnn.operators.threshold import inplace_relu, inplace_threshold, relu, threshold, threshold_backward
from aclnn.version import __version__

__all__ = [
    "AclnnError",
    "__version__",
    "ada_layer_norm",
    "ada_layer_norm_backward",
    "ada_layer_norm_v2",
    "add_layer_norm",
    "add_layer_norm_grad",
    "add_rms_norm",
    "batch_norm",
    "batch_norm_backward",
    "celu",
    "clipped_swiglu",
    "clipped_swiglu_grad",
    "deep_norm",
    "deep_norm_grad",
    "elu",
    "elu_backward",
    "fast_batch_norm_backward",
    "fast_gelu",
    "fast_gelu_backward",
    "fast_layer_norm",
    "ge_glu",
    "ge_glu_backward",
    "ge_glu_v3",
    "ge_glu_v3_backward",
    "gelu",
    "gelu_backward",
    "gelu_backward_v2",
    "gelu_v2",
    "gemma_rms_norm",
    "glu",
    "glu_backward",
    "group_norm",
    "group_norm_backward",
    "group_norm_silu",
    "group_norm_silu_v2",
    "group_norm_swish",
    "group_norm_swish_grad",
    "hardshrink",
    "hardshrink_backward",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "hardswish_backward_v2",
    "hardtanh_backward",
    "inplace_add_rms_norm",
    "inplace_celu",
    "inplace_elu",
    "inplace_hardsigmoid",
    "inplace_hardswish",
    "inplace_leaky_relu",
    "inplace_mish",
    "inplace_relu",
    "inplace_selu",
    "inplace_sigmoid",
    "inplace_threshold",
    "instance_norm",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_with_impl_mode",
    "leaky_relu",
    "leaky_relu_backward",
    "log_sigmoid",
    "log_sigmoid_backward",
    "log_sigmoid_forward",
    "log_softmax",
    "log_softmax_backward",
    "mish",
    "mish_backward",
    "prelu",
    "prelu_backward",
    "relu",
    "rms_norm",
    "rms_norm_grad",
    "selu",
    "selu_backward",
    "set_soc_name",
    "shrink",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "soc_name",
    "softmax",
    "softmax_backward",
    "softplus",
    "softplus_backward",
    "softshrink",
    "softshrink_backward",
    "squared_relu",
    "swi_glu",
    "swi_glu_grad",
    "swish",
    "swish_backward",
    "threshold",
    "threshold_backward",
]
