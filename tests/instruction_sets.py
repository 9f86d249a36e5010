"""Programs in new processes, which may use other instructions than this machine's best."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from llvmlite.binding import get_host_cpu_name

from aclnn.kernels.cpu.target import DROP_PREFETCHES

HERE = Path(__file__).parent

SELECTIONS = {"ACLNN_VECTOR": "generic"}
"""In place of the machine's look-ups in tables."""
PLAINEST = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
"""Without FMA and AVX where the machine has a plainer ancestor at all."""
AVX2 = {
    "NUMBA_CPU_NAME": "haswell" if get_host_cpu_name() in DROP_PREFETCHES else "znver1",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,-sse4a,-sha,-clzero,-mwaitx",
}
"""A processor for which memory is prefetched in another way."""

OTHERS = [SELECTIONS]
"""What this machine can do besides its best."""
if sys.platform != "darwin":
    OTHERS.append(PLAINEST)
if sys.platform == "linux" and os.uname().machine == "x86_64":
    OTHERS.append(AVX2)


def python(*arguments: str, **environment: str) -> str:
    """What an interpreter prints that finds the tests' modules and ``benchmarks``."""
    path = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parent / "src")))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests_elsewhere(module: str) -> set[str]:
    """What the module's ``digest()`` gives with each of the other sets."""
    program = f"import {module}; print({module}.digest())"
    return {python("-c", program, **environment).strip() for environment in OTHERS}
