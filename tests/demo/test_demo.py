"""The demo: worked examples to the last printed digit, trainings that learn, a figure that can be looked at."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aclnn import cann, capi
from aclnn.cli import demo as command
from aclnn.cli.app import app
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.demo import digits, figure
from aclnn.demo.program import Program
from aclnn.demo.worked_examples import WORKED_EXAMPLES, WorkedExample
from aclnn.operators import BY_NAME

pytestmark = pytest.mark.slow

BACKWARD = {"fast_gelu_backward", "silu_backward", "gelu_backward_v2", "hardswish_backward", "layer_norm_backward"}


def test_every_document_has_a_worked_example() -> None:
    assert {example.operator for example in WORKED_EXAMPLES} == BACKWARD


@pytest.mark.parametrize("example", WORKED_EXAMPLES, ids=lambda example: f"{example.operator}: {example.title}")
def test_worked_examples_print_the_documented_digits(example: WorkedExample) -> None:
    with Program() as program:
        assert example.compute(program) == dict(example.printed)
        assert program.calls == 1


def test_integer_ones_labelled_float_are_read_as_subnormals() -> None:
    example = next(example for example in WORKED_EXAMPLES if "int ones" in example.title)
    assert example.arguments["gradOutput"].ravel().tolist() == [math.ldexp(1, -149)] * 8


def test_a_program_leaves_no_files_behind() -> None:
    with Program() as program:
        free = cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)
        WORKED_EXAMPLES[0].compute(program)
        assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == free


def test_a_program_prints_the_error_and_cleans_up() -> None:
    arguments = dict(WORKED_EXAMPLES[0].arguments) | {"gradInput": np.zeros((2, 2), np.float32)}
    with Program() as program:
        free = cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)
        with pytest.raises(AclnnError, match="aclnnFastGeluBackward: gradInput: expected shape") as caught:
            program.call(BY_NAME[WORKED_EXAMPLES[0].operator], arguments)
        assert caught.value.code == ACLNN_ERR_PARAM_INVALID
        assert program.calls == 0
        assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == free


@pytest.mark.parametrize("activation", digits.ACTIVATIONS, ids=lambda activation: activation.title)
def test_the_gradient_is_that_of_the_forward_pass(activation: digits.Activation) -> None:
    """Compare with central differences of the demo's forward function, which does not use the operators."""
    x = np.linspace(-5.3, 5.3, 64, dtype=np.float32).reshape(4, 16)
    dy = np.linspace(0.5, 2.0, 64, dtype=np.float32).reshape(4, 16)
    step = 1e-5
    wide = x.astype(np.float64)
    expected = dy * (activation.forward(wide + step) - activation.forward(wide - step)) / (2 * step)
    with Program() as program:
        np.testing.assert_allclose(activation.backward(program, dy, x), expected, rtol=1e-5, atol=1e-6)


def test_demo_computes_trains_and_draws(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out"), "--json", "-"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert all(example["expected"] == example["got"] for example in document["worked_examples"])
    assert [training["activation"] for training in document["trainings"]] == [a.title for a in digits.ACTIVATIONS]
    for training in document["trainings"]:
        assert training["test_accuracy"] >= command.LEAST_ACCURACY
        # Two operators for each of 22 batches of an epoch.
        assert training["operator_calls"] == 2 * 22 * digits.EPOCHS
        assert training["losses"][-1] < 0.01 * training["losses"][0]
    width, height = png_size(tmp_path / "out" / "digits-loss.png")
    assert width >= 800
    assert height >= 600


def test_demo_exits_with_1_for_a_wrong_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(WORKED_EXAMPLES[0], printed={"gradInput": ("1.000000",) * 9})
    monkeypatch.setattr(command, "WORKED_EXAMPLES", (broken,))
    monkeypatch.setattr(digits, "ACTIVATIONS", digits.ACTIVATIONS[:1])
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "✗" in result.stdout
    assert "expected the documented digits" in result.stderr


def test_the_demo_figure_is_transparent(tmp_path: Path) -> None:
    trainings = [digits.Training(a.title, 0.97, 1.0, 10, (1.0, 0.1, 0.01)) for a in digits.ACTIVATIONS]
    path = tmp_path / "new folder" / "loss.png"
    figure.draw(trainings, path)
    from matplotlib.image import imread

    pixels = imread(path)
    assert pixels[0, 0, 3] == 0.0
    assert pixels[..., 3].max() == 1.0


def png_size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:24])
    return int(width), int(height)


def test_a_program_without_its_device_leaves_nothing_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails without its device must not leave aclInit counted."""
    finalize, statuses = capi.aclFinalize, []
    monkeypatch.setattr(capi, "aclrtSetDevice", lambda device: ACL_ERROR_INVALID_PARAM)
    monkeypatch.setattr(capi, "aclFinalize", lambda: statuses.append(finalize()))
    with pytest.raises(AclnnError), Program():
        pass
    assert statuses == [0]
