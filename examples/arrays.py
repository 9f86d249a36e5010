"""Operators as functions of arrays: any strides, three data types, results in arrays of your choice."""

import ml_dtypes
import numpy as np

import aclnn

np.set_printoptions(precision=4, suppress=True, linewidth=100)
x = np.linspace(-4, 4, 9, dtype=np.float32)
ones = np.ones_like(x)

print("SiLU' :", aclnn.silu_backward(ones, x))
print("GELU' :", aclnn.gelu_backward_v2(ones, x, approximate="tanh"))

# bfloat16 input and output: computed in float32, rounded once.
narrow = x.astype(ml_dtypes.bfloat16)
print("bf16  :", aclnn.silu_backward(narrow, narrow).dtype)

# A reversed view of every second element, and an output that is a column of a larger array.
table = np.zeros((5, 3), np.float32)
aclnn.hardswish_backward(ones[::2], x[::-2], out=table[:, 1])
print("column:", table[:, 1])

# LayerNorm: mean and rstd come from the forward pass; the mask selects the gradients.
rows = np.arange(12, dtype=np.float32).reshape(3, 4)
normalised, mean, rstd = aclnn.layer_norm(rows, (4,))
dx, dw, db = aclnn.layer_norm_backward(rows, rows, (4,), mean, rstd, output_mask=(False, True, True))
print("dw, db:", dw, db, "dx:", dx)

# -> SiLU' : [-0.0527 -0.0881 -0.0908  0.0723  0.5     0.9277  1.0908  1.0881  1.0527]
# -> GELU' : [-0.0003 -0.0116 -0.0861 -0.083   0.5     1.083   1.0861  1.0116  1.0003]
# -> bf16  : bfloat16
# -> column: [ 1.      1.1667  0.5    -0.1667  0.    ]
# -> dw, db: [-16.0996  -6.7082   8.0498  28.1743] [12. 15. 18. 21.] dx: None
