"""New shapes register no new functions with Numba, which would keep them until the process ends."""

from __future__ import annotations

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
