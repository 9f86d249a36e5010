"""Compile kernels for another machine and count their instructions.

    python -m tests.helpers.machine_code TRIPLE CPU FEATURES

Prints a line for each kernel: its name, then mnemonic=count for each mnemonic. No kernel is run.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import partial
from typing import Any

import llvmlite.binding as llvm

triple, cpu, features = sys.argv[1:]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: triple
llvm.get_default_triple = lambda: triple

import numba  # noqa: E402  (its target is chosen at import)
from numba.core import config, types  # noqa: E402

config.CPU_NAME, config.CPU_FEATURES = cpu, features

from aclnn.core.dtypes import DataType  # noqa: E402
from aclnn.kernels.cpu.elementwise import fitted, general, lut16  # noqa: E402
from aclnn.kernels.trace import trace  # noqa: E402
from aclnn.operators.gelu import gelu_tanh_gradient  # noqa: E402
from aclnn.operators.silu import silu_gradient  # noqa: E402


def by_version(formula: Any) -> Any:
    """Return the loop of a gradient in float32 by its fitted version."""
    write = partial(fitted.write, formula, DataType.FLOAT)
    types = (DataType.FLOAT,) * 2, (DataType.FLOAT,)
    return general.loop(trace(formula, 2), *types, numbers=0, double=False, instead=write)


def by_table(dtype: DataType, near: bool = False) -> Any:
    """Return the loop of a 16-bit gradient by its table or, ``near`` zero, by a fitted version."""
    return lut16.loop(dtype, True, fitted.fast(silu_gradient, dtype) if near else None)


for name, function in {
    "contiguous": by_version(silu_gradient),
    "table": by_table(DataType.FLOAT16),
    "bfloat16": by_table(DataType.BF16),
    "exact": by_version(gelu_tanh_gradient),
    "near_float16": by_table(DataType.FLOAT16, near=True),
    "near_bfloat16": by_table(DataType.BF16, near=True),
}.items():
    compiled = numba.njit(nogil=True)(function)
    compiled.compile((types.int64,) * function.__code__.co_argcount)
    (assembly,) = compiled.inspect_asm().values()
    found = Counter(re.findall(r"^\t([a-z][a-z0-9.]*)", assembly, re.MULTILINE))
    found.update("zmm" for _ in re.findall(r"zmm\d", assembly))
    print(name, *(f"{mnemonic}={count}" for mnemonic, count in found.items()))
