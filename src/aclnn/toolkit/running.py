"""Programs that find the toolkit's libraries themselves, as Python's do: their environment, and what they called."""

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
from aclnn.toolkit.trace import ABSENT, REFUSED, read

# From warnings on torch_npu logs which functions it does not find (``aclAppLog``).
_LOGGING = {"ASCEND_GLOBAL_LOG_LEVEL": "2"}

# A call of an operator by its type, and the status where there is none.
_BY_TYPE = re.compile(r"opType='(\w+)'")
_UNKNOWN_TYPE = str(CODES["ACL_ERROR_API_NOT_SUPPORT"])


class OperatorUse(NamedTuple):
    """A program's use of an operator."""

    name: str
    """Its C name."""
    calls: int
    """The number of calls of phase one."""
    microseconds: float
    """Time in Python, both phases, without what a stream computes later."""


class TracedRun(NamedTuple):
    """The outcome of a traced program."""

    status: int
    """The exit status, negative for one ended by a signal."""
    operators: list[OperatorUse]
    """The longest first."""
    missing: list[str]
    """Functions and operators that were refused or looked for in vain."""


def run_traced(command: Sequence[str], environment: Mapping[str, str]) -> TracedRun:
    """Run a program and note its operators."""
    with tempfile.TemporaryDirectory(prefix="aclnn-trace-") as folder:
        file = Path(folder) / "trace"
        file.touch()
        done = subprocess.run(command, env={**environment, **_LOGGING, "ACLNN_TRACE": str(file)}, check=False)
        missing: dict[str, None] = {}
        uses: dict[str, OperatorUse] = {}
        for record in read(file):
            name = record.name.removesuffix(PHASE_ONE)
            by_type = _BY_TYPE.match(record.arguments) if name.startswith("aclop") else None
            if record.arguments in (REFUSED, ABSENT) or (by_type and record.status == _UNKNOWN_TYPE):
                missing[by_type[1] if by_type else name] = None
            elif record.name.endswith(PHASE_ONE) or name in uses:
                used = uses.get(name, OperatorUse(name, 0, 0.0))
                calls = used.calls + record.name.endswith(PHASE_ONE)
                uses[name] = OperatorUse(name, calls, used.microseconds + record.microseconds)
    return TracedRun(done.returncode, sorted(uses.values(), key=lambda use: -use.microseconds), [*missing])


def environment(chosen: str | None) -> dict[str, str]:
    """Return the environment of a program that finds the toolkit's libraries itself, emulating a SoC.

    Raises:
        AclnnError: no such SoC.
    """
    if chosen is not None:
        product_of(chosen)
    # A small product shared out among threads waits for a processor that another of the program's threads has: on a
    # busy machine with two of them a training step of a perceptron took 26 ms instead of 1.6.
    defaults = {"OPENBLAS_NUM_THREADS": "1"}
    soc = {} if chosen is None else {"ACLNN_SOC_NAME": chosen}
    return defaults | variables(tree.ensure(), os.environ) | soc
