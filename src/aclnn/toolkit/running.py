"""Runs of programs that load the toolkit's libraries themselves, such as Python programs: environment and traces."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aclnn.core.operator import PHASE_ONE
from aclnn.core.products import product_of
from aclnn.core.status import CODES
from aclnn.toolkit import tree
from aclnn.toolkit.environment import variables
from aclnn.toolkit.trace import ABSENT, REJECTED, read

# torch_npu logs functions that it does not find as warnings (``aclAppLog``).
_LOGGING = {"ASCEND_GLOBAL_LOG_LEVEL": "2"}

# Type in the trace of a call by type, and the status of an unknown type.
_BY_TYPE = re.compile(r"opType='(\w+)'")
_UNKNOWN_TYPE = str(CODES["ACL_ERROR_API_NOT_SUPPORT"])


class OperatorUse(NamedTuple):
    """Use of an operator by a program."""

    name: str
    """C name."""
    calls: int
    """Number of calls of phase one."""
    microseconds: float
    """Time in Python in both phases, without asynchronous computation."""


class TracedRun(NamedTuple):
    """Result of a traced program."""

    status: int
    """Exit status, negative if ended by a signal."""
    operators: list[OperatorUse]
    """Operators by decreasing time."""
    missing: list[str]
    """Functions and operators that failed as unsupported or were not found."""


def run_traced(command: Sequence[str], environment: Mapping[str, str]) -> TracedRun:
    """Run a program and record its operators."""
    with tempfile.TemporaryDirectory(prefix="aclnn-trace-") as folder:
        file = Path(folder) / "trace"
        file.touch()
        done = subprocess.run(command, env={**environment, **_LOGGING, "ACLNN_TRACE": str(file)}, check=False)
        missing: dict[str, None] = {}
        uses: dict[str, OperatorUse] = {}
        for record in read(file):
            name = record.name.removesuffix(PHASE_ONE)
            by_type = _BY_TYPE.match(record.arguments) if name.startswith("aclop") else None
            if record.arguments in (REJECTED, ABSENT) or (by_type and record.status == _UNKNOWN_TYPE):
                missing[by_type[1] if by_type else name] = None
            elif record.name.endswith(PHASE_ONE) or name in uses:
                used = uses.get(name, OperatorUse(name, 0, 0.0))
                calls = used.calls + record.name.endswith(PHASE_ONE)
                uses[name] = OperatorUse(name, calls, used.microseconds + record.microseconds)
    return TracedRun(done.returncode, sorted(uses.values(), key=lambda use: -use.microseconds), [*missing])


def environment(chosen: str | None) -> dict[str, str]:
    """Return the environment of a program that loads the toolkit's libraries itself.

    Raises:
        AclnnError: no such SoC.
    """
    if chosen is not None:
        product_of(chosen)
    # Splitting a small product among threads makes it wait for a processor that another thread of the program has: on a
    # busy machine with two processors, a training step of a perceptron took 26 ms instead of 1.6.
    defaults = {"OPENBLAS_NUM_THREADS": "1"}
    soc = {} if chosen is None else {"ACLNN_SOC_NAME": chosen}
    return defaults | variables(tree.ensure(), os.environ) | soc
