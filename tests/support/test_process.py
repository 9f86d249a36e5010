"""State of a process: a child of a fork starts with its own, by one hook for the whole package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import aclnn

CHILD = """\
import os, weakref
from aclnn.support.process import PerProcess, after_fork

class Table(dict):
    pass

lost, kept = PerProcess(Table), PerProcess(Table, keep_parents=True)
lost.current["parent"] = kept.current["parent"] = 1
watch = [weakref.ref(item.current) for item in (lost, kept)]
order = []
after_fork(lambda: order.append(("first", dict(lost.current))))
after_fork(lambda: order.append("second"))
child = os.fork()
if child == 0:
    print(lost.current, kept.current, [ref() is None for ref in watch], order, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(lost.current, order)
"""


def test_a_child_starts_with_its_own_state() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    child = "{} {} [True, False] [('first', {}), 'second']\n"
    assert done.stdout == child + "{'parent': 1} []\n"


def test_state_is_renewed_by_one_hook() -> None:
    """A single hook renews all state in a child; locks are held across a fork by the function that makes them."""
    root = Path(aclnn.__file__).parent
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if "register_at_fork" in path.read_text()}
    assert found == {"support/process.py", "kernels/locks.py"}
