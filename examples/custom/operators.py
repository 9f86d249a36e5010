"""Two operators of one's own: ACLNN_OPERATORS=examples/custom/operators.py aclnn info leaky_relu_custom."""

import numpy as np

from aclnn.custom import array_function, elementwise
from aclnn.formula import where


@elementwise("y", dtypes=("float16", "float32"))
def leaky_relu_custom(x, negative_slope: float = 0.01):
    """x, and below 0 a part of it."""
    return where(x > 0.0, x, negative_slope * x)


@array_function(
    "c",
    dtypes=[("float16", "float16", "float32")],
    shapes=lambda a, b, bias, negative_slope: (a[0], b[1]),
)
def matmul_leaky_relu_custom(a, b, bias=None, negative_slope: float = 0.001):
    """A product of matrices with a bias, and leaky ReLU of it."""
    c = a @ b if bias is None else a @ b + bias
    return np.where(c > 0, c, negative_slope * c)
