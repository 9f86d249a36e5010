"""Compile kernels for another machine and count instructions in their machine code.

    python -m tests.helpers.machine_code TRIPLE CPU FEATURES

Prints a line for each kernel: its name, then mnemonic=count for every mnemonic. Nothing is run.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import llvmlite.binding as llvm

triple, cpu, features = sys.argv[1:]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: triple
llvm.get_default_triple = lambda: triple

import numba  # noqa: E402  (what it compiles for is decided at import)
from numba.core import config, types  # noqa: E402

config.CPU_NAME, config.CPU_FEATURES = cpu, features

from aclnn.core.dtypes import DataType  # noqa: E402
from aclnn.kernels.cpu.elementwise import contiguous  # noqa: E402
from aclnn.kernels.cpu.elementwise.fitted import fast  # noqa: E402
from aclnn.operators.gelu import gelu_tanh_gradient  # noqa: E402
from aclnn.operators.silu import silu_gradient  # noqa: E402


def loop(dtype: DataType, formula: Any = silu_gradient, fitted: bool = True) -> Any:
    """The loop over contiguous elements."""
    return contiguous.loop(formula, fast(formula, dtype) if fitted else None, dtype)


for name, function in {
    "contiguous": loop(DataType.FLOAT),
    "table": loop(DataType.FLOAT16, fitted=False),
    "bfloat16": loop(DataType.BF16, fitted=False),
    "exact": loop(DataType.FLOAT, gelu_tanh_gradient),
    "near_float16": loop(DataType.FLOAT16),
    "near_bfloat16": loop(DataType.BF16),
}.items():
    compiled = numba.njit(nogil=True)(function)
    compiled.compile((types.int64,) * function.__code__.co_argcount)
    (assembly,) = compiled.inspect_asm().values()
    found = Counter(re.findall(r"^\t([a-z][a-z0-9.]*)", assembly, re.MULTILINE))
    found.update("zmm" for _ in re.findall(r"zmm\d", assembly))
    print(name, *(f"{mnemonic}={count}" for mnemonic, count in found.items()))
