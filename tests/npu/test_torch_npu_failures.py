"""torch_npu after an operator has failed; test_torch_npu.py runs it by ``aclnn torch-npu run``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

FAILING = """
import os, sys, torch, torch_npu
x = torch.arange(6.0).npu().reshape(3, 2)
other = torch.npu.Stream()
torch.nn.functional.embedding(torch.tensor([9]).npu(), x)
for act in (torch.npu.synchronize, lambda: (x + 1).cpu(), other.synchronize, other.query):
    try:
        act()
        print("went on")
    except RuntimeError as error:
        print("507000" in str(error) and "from 0 to 2, got 9" in str(error))
sys.stdout.flush()
os._exit(0)
"""


def test_an_operator_that_fails_stops_all_streams_of_the_process() -> None:
    # Its launch thread has a text of its own for the operator that is rejected.
    environment = {**os.environ, "TASK_QUEUE_ENABLE": "0"}
    command = [sys.executable, "-c", FAILING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, env=environment)
    assert done.stdout == "True\n" * 4
