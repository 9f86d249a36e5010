"""Programs in new processes, restricted to other instruction sets than this machine's best."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite.binding import get_host_cpu_name

from aclnn.kernels.cpu.target import DROP_PREFETCHES

ROOT = Path(__file__).parents[2]

SELECTIONS = {"ACLNN_VECTOR": "generic"}
"""Selects table entries by comparisons instead of the machine's shuffles."""
PLAINEST = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
"""Without FMA and AVX, on architectures that have a baseline without them."""
AVX2 = {
    "NUMBA_CPU_NAME": "haswell" if get_host_cpu_name() in DROP_PREFETCHES else "znver1",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,-sse4a,-sha,-clzero,-mwaitx",
}
"""A processor with the other way to prefetch memory."""

_SETS = {"selections": SELECTIONS}
"""The other instruction sets that this machine can run."""
if sys.platform == "linux" and os.uname().machine == "x86_64":
    _SETS["avx2"] = AVX2
if sys.platform != "darwin":
    _SETS["plainest"] = PLAINEST

*_LONG, _SHORT = _SETS
EVERY_OTHER_SET = pytest.mark.parametrize(
    "elsewhere",
    [
        *(pytest.param(_SETS[name], id=name, marks=pytest.mark.long) for name in _LONG),
        pytest.param(_SETS[_SHORT], id=_SHORT),
    ],
)
"""Compiles all kernels of a module again for each set: for the last set in every run, for the others in `long` ones."""


def python(*arguments: str, **environment: str) -> str:
    """Return the output of an interpreter that can import the tests and ``benchmarks``."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def digest_elsewhere(module: str, environment: dict[str, str], *arguments: object) -> str:
    """Return the result of a module's ``digest`` with another instruction set."""
    return python("-c", f"import {module}; print({module}.digest(*{arguments!r}))", **environment).strip()
