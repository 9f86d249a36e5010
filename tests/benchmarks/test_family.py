"""Rows of the activation family: each function once for each mode, and checked before it is timed."""

from __future__ import annotations

from collections import Counter

import pytest

from aclnn.core.dtypes import DataType
from benchmarks import family, workloads

pytest.importorskip("torch")  # which rows are compared with

MEMBERS = {member.label: member for member in family.members(DataType.FLOAT)}


def test_each_function_has_its_rows() -> None:
    counts = Counter(member.operator.name for member in MEMBERS.values())
    twice = {"gelu_v2", "gelu_backward_v2", "ge_glu", "ge_glu_v3", "ge_glu_backward", "ge_glu_v3_backward"}
    assert {name for name, count in counts.items() if count == 2} == twice | set(family.FURTHER)
    assert {"mish", "glu_backward", "prelu", "clipped_swiglu_grad", "hardtanh_backward"} <= set(counts)
    assert not any(name.startswith(("inplace", "layer_norm", "add")) for name in counts)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["clipped_swiglu_grad", "glu", "prelu", "ge_glu_backward 1", "gelu_backward_v2 tanh"])
def test_a_row_is_checked(label: str) -> None:
    row = workloads.member(MEMBERS[label], "float32", 1 << 14)
    assert row.check() is None
    assert [name for name in row.calls if name in ("torch", "composed")]
    for call in row.calls.values():
        call()
    row.calls["aclnn"] = lambda: None  # leaves NaN
    assert "ULP" in (row.check() or "")


def test_bytes_match_each_tensor_once() -> None:
    row = workloads.member(MEMBERS["swi_glu_grad"], "float32", 1 << 14)
    assert row.nbytes == 4 * ((1 << 14) + (1 << 14) + (1 << 13))
