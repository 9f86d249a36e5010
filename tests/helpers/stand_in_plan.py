"""A plan in place of every kernel's, for tests of what comes before and after: nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aclnn import kernels
from aclnn.execution import executor
from aclnn.kernels import numpy_plans
from aclnn.runtime import memory
from aclnn.support.bounded import BoundedCache


class StandInPlan:
    """Computes nothing; checks that it is given addresses inside live memory."""

    workspace_bytes = 0
    runs = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        StandInPlan.runs += 1
        assert all(address in memory._table.current.arenas for address in (*inputs, *outputs) if address)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan with stand-ins, and forget the plans afterwards."""
    for name in ("elementwise", "layer_norm", "layer_norm_backward", "reduction", "converting"):
        monkeypatch.setattr(kernels, name, lambda *_: StandInPlan())
    monkeypatch.setattr(numpy_plans, "_conversion", lambda *_: StandInPlan())  # it remembers its plans, too
    monkeypatch.setattr(executor, "_prepared", BoundedCache())
