"""Print a digest of results of the elementwise engine, which tests compare between instruction sets.

``python -m tests.helpers.vector_digest STRIDE [float32] [FORMULA]`` evaluates all formulas, or one, at every STRIDE-th
float32 and all 16-bit numbers, or at float32 alone.
"""

from __future__ import annotations

import hashlib
import sys

import ml_dtypes
import numpy as np

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.operators.elu import unit_elu_forward
from aclnn.operators.fast_gelu import fast_gelu_derivative, fast_gelu_forward
from aclnn.operators.ge_glu import (
    ge_glu_erf_forward,
    ge_glu_erf_gradient,
    ge_glu_tanh_forward,
    ge_glu_tanh_gradient,
)
from aclnn.operators.gelu import gelu_erf_derivative, gelu_erf_forward, gelu_tanh_derivative, gelu_tanh_forward
from aclnn.operators.glu import glu_forward, glu_gradient
from aclnn.operators.hardswish import hardswish_derivative, hardswish_forward
from aclnn.operators.log_sigmoid import log_sigmoid_formula, softplus_of_one
from aclnn.operators.mish import mish_derivative, mish_forward
from aclnn.operators.selu import selu_forward
from aclnn.operators.silu import silu_derivative, silu_forward
from aclnn.operators.swi_glu import swi_glu_forward, swi_glu_gradient
from aclnn.operators.swish import quick_swish_derivative, quick_swish_forward

SLOPES = (
    fast_gelu_derivative,
    gelu_erf_derivative,
    gelu_tanh_derivative,
    hardswish_derivative,
    mish_derivative,
    quick_swish_derivative,
    silu_derivative,
)
VALUES = (
    fast_gelu_forward,
    gelu_erf_forward,
    gelu_tanh_forward,
    hardswish_forward,
    log_sigmoid_formula,
    mish_forward,
    quick_swish_forward,
    selu_forward,
    silu_forward,
    softplus_of_one,
    unit_elu_forward,
)
GATED = {
    ge_glu_erf_forward: (2, 2),
    ge_glu_erf_gradient: (4, 2),
    ge_glu_tanh_forward: (2, 2),
    ge_glu_tanh_gradient: (4, 2),
    glu_forward: (2, 1),
    glu_gradient: (3, 2),
    swi_glu_forward: (2, 1),
    swi_glu_gradient: (3, 2),
}
"""Formulas with their numbers of operands and results."""


def main(stride: int, *only: str) -> None:
    x32 = np.arange(0, 1 << 32, stride, dtype=np.uint32).view(np.float32)
    x16 = np.arange(1 << 16, dtype=np.uint16)
    inputs = [x32] if "float32" in only else [x32, x16.view(np.float16), x16.view(ml_dtypes.bfloat16)]
    arity = dict.fromkeys(SLOPES, (2, 1)) | dict.fromkeys(VALUES, (1, 1)) | GATED
    digest = hashlib.sha256()
    for formula in [formula for formula in arity if formula.__name__ in only] or arity:
        function, (reads, writes) = Gradient(formula) if formula in SLOPES else formula, arity[formula]
        for x in inputs:
            operands = [np.roll(x, 7 * k) for k in reversed(range(reads))]
            for target in inputs:
                outs = [np.zeros(x.size, target.dtype) for _ in range(writes)]
                read, written = (
                    tuple(Layout(DataType.of_numpy(a.dtype), a.shape, (1,)) for a in arrays)
                    for arrays in (operands, outs)
                )
                plan = kernels.elementwise(function, read, written)
                plan.run([operand.ctypes.data for operand in operands], [out.ctypes.data for out in outs], 0)
                for out in outs:
                    nan = np.isnan(out.astype(np.float32))
                    digest.update(nan.tobytes())
                    digest.update(np.where(nan, out.dtype.type(0), out).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
