"""Compile kernels for another machine and count instructions in their machine code.

    python machine_code.py TRIPLE CPU FEATURES

Prints a line for each kernel: its name, then mnemonic=count for every mnemonic. Nothing is run.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import llvmlite.binding as llvm

triple, cpu, features = sys.argv[1:]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: triple
llvm.get_default_triple = lambda: triple

import numba  # noqa: E402  (what it compiles for is decided at import)
from numba.core import config, types  # noqa: E402

config.CPU_NAME, config.CPU_FEATURES = cpu, features

from aclnn.dtypes import DataType  # noqa: E402
from aclnn.kernels.cpu.elementwise import contiguous, sixteen_bit_slopes, slopes  # noqa: E402
from aclnn.kernels.cpu.elementwise.kinds import BFLOAT16, FLOAT16, FLOAT32  # noqa: E402

for name, function in {
    "contiguous": contiguous.loop(slopes.silu, FLOAT32, True, slopes.NEAR["silu_slope"]),
    "table": contiguous.loop(None, FLOAT16, True),
    "bfloat16": contiguous.loop(None, BFLOAT16, True),
    "exact": contiguous.loop(slopes.gelu_tanh, FLOAT32, True),
    "near_float16": contiguous.loop(None, FLOAT16, True, sixteen_bit_slopes.near("silu_slope", DataType.FLOAT16)),
    "near_bfloat16": contiguous.loop(None, BFLOAT16, True, sixteen_bit_slopes.near("silu_slope", DataType.BF16)),
}.items():
    compiled = numba.njit(nogil=True)(function)
    compiled.compile((types.int64,) * function.__code__.co_argcount)
    (assembly,) = compiled.inspect_asm().values()
    found = Counter(re.findall(r"^\t([a-z][a-z0-9.]*)", assembly, re.MULTILINE))
    found.update("zmm" for _ in re.findall(r"zmm\d", assembly))
    print(name, *(f"{mnemonic}={count}" for mnemonic, count in found.items()))
