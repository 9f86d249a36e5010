"""``aclnn run`` of every norm and softmax: files in, files out, the bits of the function of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aclnn import io
from aclnn.cli.app import app
from aclnn.core import products
from tests.cases.table import Case
from tests.operators.test_rows import EVERY, computed, given


def word(value: Any) -> str:
    """Return an attribute as it is typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(word, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@EVERY
def test_run_writes_what_the_function_returns(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(products, "_selected", None)
    arguments = given(case, np.random.default_rng(6).normal(size=(4, 6)), np.dtype(np.float32))
    expected = computed(case, arguments)
    words = ["--soc-name", case.product.example]
    for parameter in (*case.operator.inputs, *case.operator.attributes):
        name, value = parameter.python_name, arguments[parameter.name]
        if isinstance(value, np.ndarray):
            io.write(f"{name}-in.npy", value)
        words.append(f"{name}={name}-in.npy" if isinstance(value, np.ndarray) else f"{name}={word(value)}")
    names = {p.name: p.python_name for p in case.operator.parameters if p.name in expected}
    for name in names.values():
        words += ["--out", f"{name}={name}.npy"]
    done = CliRunner().invoke(app, ["run", case.name, *words])
    assert done.exit_code == 0, done.output
    for c_name, name in names.items():
        np.testing.assert_array_equal(io.read(f"{name}.npy"), expected[c_name])


def test_run_requires_tensors_that_are_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    io.write("x.npy", np.ones((2, 3), np.float32))
    done = CliRunner().invoke(app, ["run", "batch_norm", "input=x.npy", "training=true", "--out", "running_mean=y.npy"])
    assert done.exit_code == 2
    assert "--out: running_mean: expected it as an input, too, got none" in done.stderr
