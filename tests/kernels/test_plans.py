"""New shapes register no new functions with Numba, which would keep them until the process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.typing.templates import builtin_registry

import aclnn
from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Elementwise
from aclnn.core.tensor import Layout
from aclnn.operators import BY_NAME
from benchmarks import norms
from tools.works import works_of


def registered() -> int:
    """Return the number of functions registered with Numba."""
    return len(builtin_registry.functions)


def plan(work: Elementwise, dtype: DataType, size: int) -> None:
    layout = Layout(dtype, (size,), (1,))
    kernels.elementwise(work.formula, (layout,) * len(work.inputs), (layout,) * len(work.outputs), work.numbers)


@pytest.mark.parametrize("dtype", [DataType.FLOAT, DataType.BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name, operator in BY_NAME.items() if operator.inputs])
def test_elementwise_plans_of_another_size_register_no_function(name: str, dtype: DataType) -> None:
    for work in works_of(BY_NAME[name]):
        if isinstance(work, Elementwise):
            plan(work, dtype, 5)
            before = registered()
            plan(work, dtype, 7)
            assert registered() == before


@pytest.mark.parametrize("name", norms.THEIRS)
def test_calls_over_rows_of_another_number_register_no_function(name: str) -> None:
    rng = np.random.default_rng(1)
    counts = []
    for rows in (64, 96, 128):
        given = norms.arguments(name, rows, 256, lambda shape: rng.normal(size=shape).astype(np.float32))
        getattr(aclnn, name)(**given)
        counts.append(registered())
    assert counts[1] == counts[2]


PLANNED_AT_EXIT = """
import llvmlite.binding.ffi as llvm
import numpy as np
import aclnn
from aclnn import kernels

x = np.ones((8, 8), np.float32)
aclnn.hardswish_backward(x, x)
kernels.compile_no_more()
llvm.lib = None
for call in (aclnn.silu, aclnn.elu, aclnn.swi_glu, aclnn.softmax):
    for dtype in (np.float32, np.float16):
        try:
            call(x.astype(dtype), **({"dim": 1} if call in (aclnn.swi_glu, aclnn.softmax) else {}))
        except RuntimeError as error:
            assert "loaded before the process began to end" in str(error), error
        else:
            raise AssertionError(call)
"""


def test_planning_while_the_process_ends_does_not_ask_llvm(tmp_path: Path) -> None:
    # Its destructors have run by then: its answers were garbage, or the process crashed.
    environment = {**os.environ, "ACLNN_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PLANNED_AT_EXIT], env=environment, check=True)
