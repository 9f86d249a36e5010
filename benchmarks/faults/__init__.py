"""Benchmark of the diagnosis: planted faults that it must name, and correct results that it must accept.

``python -m benchmarks.faults`` prints the tables; with ``--write`` they replace those in docs/verify-bench.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclnn.verify import check

Array = np.ndarray[Any, Any]


@dataclass
class Result:
    """The diagnosis of one planted fault on one subject."""

    fault: str
    subject: str
    expected: frozenset[str]
    named: str
    text: str
    verdict: str
    seconds: float

    @property
    def kind(self) -> str:
        """Hit, missed, or false (another cause named)."""
        if self.named in self.expected:
            return "hit"
        return "missed" if self.named in ("", "unknown") else "false"


def assess(
    fault: str, subject: str, expected: frozenset[str], output: int, operator: str, inputs: Mapping[str, Array],
    actual: Any, attributes: Mapping[str, Any],
) -> Result:  # fmt: skip
    """Diagnose a planted fault in one of an operator's outputs."""
    begin = time.perf_counter()
    found = check(operator, inputs, actual, **attributes).data["cases"][0]["outputs"][output]
    cause = found["causes"][0] if found["causes"] else {"name": "", "text": ""}
    seconds = time.perf_counter() - begin
    return Result(fault, subject, expected, cause["name"], cause["text"], found["verdict"], seconds)
