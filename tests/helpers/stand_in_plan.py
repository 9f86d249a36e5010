"""A plan that replaces those of all kernels, for tests of the code around them: nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aclnn import kernels
from aclnn.execution import executor
from aclnn.kernels import numpy_plans
from aclnn.runtime import memory
from aclnn.support.bounded import BoundedCache


class StandInPlan:
    """A plan that computes nothing, but checks that addresses are in live memory."""

    workspace_bytes = 0
    runs = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        StandInPlan.runs += 1
        assert all(address in memory._table.current.arenas for address in (*inputs, *outputs) if address)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace kernels' plans by stand-ins, and drop cached plans afterwards."""
    for name in ("elementwise", "layer_norm", "layer_norm_backward", "reduction", "converting"):
        monkeypatch.setattr(kernels, name, lambda *_: StandInPlan())
    monkeypatch.setattr(numpy_plans, "_conversion", lambda *_: StandInPlan())  # it caches plans, too
    monkeypatch.setattr(executor, "_prepared", BoundedCache())
