"""Rows of norms and softmax: each operator once for each size, checked before it is timed."""

from __future__ import annotations

import pytest

from aclnn.core.dtypes import DataType
from aclnn.operators import BY_NAME
from benchmarks import family, norms, workloads

pytest.importorskip("torch")  # which rows are compared with


def test_each_operator_has_its_rows() -> None:
    of_elements = {member.operator.name for member in family.members(DataType.FLOAT)}
    others = {name for name in BY_NAME if name not in of_elements and not name.startswith("inplace")}
    # LayerNorm's gradients have rows of their own; InstanceNorm is another product's.
    assert others - {"layer_norm_backward", "instance_norm"} <= {*norms.members(DataType.FLOAT)}
    assert not of_elements & {*norms.THEIRS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax_backward", "add_layer_norm_grad", "group_norm_backward", "batch_norm"])
def test_a_row_is_checked(name: str) -> None:
    row = workloads.norm(name, 64, 256, "float32")
    assert row.check() is None
    assert len(row.calls) == 2
    for call in row.calls.values():
        call()
    row.calls["aclnn"] = lambda: None  # leaves NaN
    assert "relative error nan" in (row.check() or "")


def test_bytes_match_each_tensor_once() -> None:
    assert workloads.norm("softmax", 64, 256, "float32").nbytes == 2 * 4 * 64 * 256
