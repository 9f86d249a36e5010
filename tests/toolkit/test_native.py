"""The Python side of objects that live in C, without C; and functions for which Python is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aclnn.capi.prototype import FUNCTIONS
from aclnn.toolkit import trampolines

CHILD = """\
import os, signal, threading
from aclnn.toolkit.native import Native

held, done, parent = threading.Event(), threading.Event(), os.getpid()

class Library:
    def aclnn_take(self, *arguments):
        if os.getpid() == parent:
            held.set()
            done.wait()
        return False

class Interface:
    def new(self, kind):
        return None

native = Native(Interface(), Library())
thread = threading.Thread(target=native.adopt, args=(0x5AC1000000000020,))
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    print(native.adopt(0x5AC1000000000010), flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
thread.join()
"""


def test_a_child_adopts_though_a_thread_of_its_parent_did() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("aclrtMalloc", "500000"),
        ("aclGetTensorDescType", "-1"),
        ("aclGetTensorDescName", '""'),
        ("aclGetRecentErrMsg", "NULL"),
        ("aclCreateTensorDesc", "0"),
        ("aclFloat16ToFloat", "NAN"),
    ],
)
def test_functions_return_fallback_values_without_python(name: str, answer: str) -> None:
    assert trampolines.fallback(FUNCTIONS[name]) == answer
