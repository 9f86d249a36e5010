"""``aclnn warm`` makes calls that operators take, and later calls find their kernels in the cache."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aclnn import operators
from aclnn.cli import warm
from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.operators import OPERATORS

pytestmark = pytest.mark.slow

WARM = """
from dataclasses import replace
from aclnn.cli import app, warm
from aclnn.core.dtypes import DataType
from aclnn.operators import BY_NAME
operator = BY_NAME[{name!r}]
warm.OPERATORS = [replace(operator, support=dict.fromkeys(operator.support, {{DataType.{dtype}}}))]
"""
COMMAND = """
import sys
sys.argv = ["aclnn", "warm"]
app.app()
"""
CALLS = """
import numpy as np
from aclnn import hardswish_backward
x = np.ones((300, 500), np.float16)
for y in (x, x[:2, :3], np.ones((1 << 12, 1 << 12), np.float16), x[:, :250], x[:, ::2], x.T):
    hardswish_backward(y, y)
"""
NORMS = """
import numpy as np
from aclnn.kernels.cpu import jit
from aclnn import layer_norm_backward
warm.warm()
before = set(jit._compiled)
for rows, columns in ((2, 4), (32, 768), (300, 16), (512, 64), (512, 320), (512, 1024), (3000, 1024), (2, 50_000)):
    x, statistic = np.ones((rows, columns), np.float32), np.ones((rows, 1), np.float32)
    for mask in ((True, True, True), (False, True, True), (True, False, False)):
        for weight in (None, x[0]):
            layer_norm_backward(x, x, (columns,), statistic, statistic, weight, output_mask=mask)
print(*set(jit._compiled) - before)
"""


def run(program: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"ACLNN_CACHE_DIR": str(folder)} if folder else {})
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_warm_calls_every_operator(operator: operators.Operator) -> None:
    calls = list(warm._calls(operator, DataType.FLOAT))
    assert len(calls) > len(warm._SHAPES) * len(warm._LAYOUTS)
    for arguments in calls:
        inspect.signature(operators.function_of(operator)).bind(**arguments)
        assert set(map(operator.parameter, arguments)) <= set(operator.parameters)
    assert max(array.nbytes for array in calls[-1].values() if hasattr(array, "nbytes")) >= STREAM_BYTES


def test_after_warm_ordinary_calls_compile_nothing(tmp_path: Path) -> None:
    done = run(WARM.format(name="hardswish_backward", dtype="FLOAT16") + COMMAND, tmp_path)
    files = sorted(tmp_path.iterdir())
    expected = f"{len(files)} kernels, {len(files)} compiled now, kept in {tmp_path}\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert run(CALLS, tmp_path).returncode == 0
    assert sorted(tmp_path.iterdir()) == files
    done = run(WARM.format(name="hardswish_backward", dtype="FLOAT16") + COMMAND, tmp_path)
    assert done.stdout == f"{len(files)} kernels, 0 compiled now, kept in {tmp_path}\n"


def test_after_warm_layer_norm_gradients_compile_nothing() -> None:
    done = run(WARM.format(name="layer_norm_backward", dtype="FLOAT") + NORMS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [""]


@pytest.mark.parametrize(
    ("obstacle", "why"),
    [
        ("from aclnn.kernels.cpu import cache; cache._candidates = lambda: iter(())", "no directory can be written"),
        ("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99))", "{}: File too large"),
    ],
    ids=["no directory", "full"],
)
def test_warm_fails_if_kernels_cannot_be_cached(obstacle: str, why: str, tmp_path: Path) -> None:
    first = "calls = warm._calls; warm._calls = lambda *given: [next(calls(*given))]"
    done = run(f"{WARM.format(name='inplace_hardswish', dtype='FLOAT')}\n{first}\n{obstacle}\n{COMMAND}", tmp_path)
    assert done.returncode == 1, done.stderr
    count = done.stdout.split()[0]
    assert done.stdout == f"{count} kernels, {count} compiled now, {count} of them not kept: {why.format(tmp_path)}\n"
    assert not list(tmp_path.iterdir())
