"""What plans leave behind: a process that meets new shapes must not grow."""

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


def known_to_numba() -> int:
    """The number of functions that Numba has been told of, which it keeps for ever."""
    return len(builtin_registry.functions)


def plan(work: Elementwise, dtype: DataType, size: int) -> None:
    layout = Layout(dtype, (size,), (1,))
    kernels.elementwise(work.formula, (layout,) * len(work.inputs), (layout,) * len(work.outputs), work.numbers)


@pytest.mark.parametrize("dtype", [DataType.FLOAT, DataType.BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name, operator in BY_NAME.items() if operator.inputs])
def test_elementwise_plans_of_another_size_tell_numba_of_no_function(name: str, dtype: DataType) -> None:
    for work in works_of(BY_NAME[name]):
        if isinstance(work, Elementwise):
            plan(work, dtype, 5)
            before = known_to_numba()
            plan(work, dtype, 7)
            assert known_to_numba() == before


@pytest.mark.parametrize("name", norms.THEIRS)
def test_calls_over_rows_of_another_number_tell_numba_of_no_function(name: str) -> None:
    rng = np.random.default_rng(1)
    told = []
    for rows in (64, 96, 128):
        given = norms.arguments(name, rows, 256, lambda shape: rng.normal(size=shape).astype(np.float32))
        getattr(aclnn, name)(**given)
        told.append(known_to_numba())
    assert told[1] == told[2]
