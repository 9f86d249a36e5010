"""Print a digest of everything the elementwise engine computes, for tests to compare between instruction sets.

python vector_digest.py STRIDE [float32]: every STRIDE-th float32 and every 16-bit number, or float32 alone.
"""

from __future__ import annotations

import hashlib
import sys

import ml_dtypes
import numpy as np

from aclnn import kernels
from aclnn.dtypes import DataType
from aclnn.operators.fast_gelu import fast_gelu_slope
from aclnn.operators.gelu import gelu_erf_slope, gelu_tanh_slope
from aclnn.operators.hardswish import hardswish_slope
from aclnn.operators.silu import silu_slope
from aclnn.tensor import Layout


def main(stride: int, only: str = "") -> None:
    x32 = np.arange(0, 1 << 32, stride, dtype=np.uint32).view(np.float32)
    x16 = np.arange(1 << 16, dtype=np.uint16)
    inputs = [x for x in (x32, x16.view(np.float16), x16.view(ml_dtypes.bfloat16)) if only in ("", x.dtype.name)]
    digest = hashlib.sha256()
    for formula in (fast_gelu_slope, gelu_erf_slope, gelu_tanh_slope, hardswish_slope, silu_slope):
        for x in inputs:
            for target in inputs:
                dy = np.roll(x, 7)
                out = np.zeros(x.size, target.dtype)
                layouts = [Layout(DataType.of_numpy(array.dtype), array.shape, (1,)) for array in (dy, x, out)]
                plan = kernels.elementwise(formula, (layouts[0], layouts[1]), layouts[2])
                plan.run([dy.ctypes.data, x.ctypes.data], [out.ctypes.data], 0)
                nan = np.isnan(out.astype(np.float32))
                digest.update(nan.tobytes())
                digest.update(np.where(nan, out.dtype.type(0), out).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
