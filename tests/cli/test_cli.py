"""The command line: parsing, files in and out, exit statuses, lazy start."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
import threading
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import aclnn
from aclnn import io as files
from aclnn.capi.prototype import FUNCTIONS
from aclnn.cli import app as app_module
from aclnn.cli import console
from aclnn.cli.app import app
from aclnn.cli.info import _OPTIONAL, describe_installation
from aclnn.core import products
from aclnn.core.status import ACL_ERROR_INVALID_FILE, ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_INVALID
from aclnn.kernels.cpu import threads
from aclnn.operators import BY_NAME, OPERATORS
from aclnn.operators.library import LIBRARY_OPERATORS
from aclnn.operators.registry import C_OPERATORS
from aclnn.support import optional
from tools.pages import PAGES, functions_page

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(products, "_selected", None)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def save(**arrays: Any) -> None:
    for name, array in arrays.items():
        files.write(f"{name}.npy", np.asarray(array))


def pair(dtype: Any = np.float32, shape: tuple[int, ...] = (3, 5)) -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    return random.standard_normal(shape).astype(dtype), (3 * random.standard_normal(shape)).astype(dtype)


def written() -> set[str]:
    return {path.name for path in Path().iterdir()}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("form", ["{}.npy", "all.npz:{}", "all.safetensors:{}", "all.pt:{}"])
def test_run_writes_what_the_function_returns(dtype: Any, form: str) -> None:
    dy, x = pair(dtype)
    if ".pt" in form:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if ":" in form:
        files.write(form.split(":")[0], {"dy": dy, "x": x})
    else:
        save(dy=dy, x=x)
    result = invoke("run", "silu_backward", f"grad_output={form.format('dy')}", f"self={form.format('x')}", "--out",
                    "grad_input=dx.safetensors:dx")  # fmt: skip
    assert result.exit_code == 0, result.output
    got = files.read("dx.safetensors", "dx")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, aclnn.silu_backward(dy, x))


@pytest.mark.parametrize(
    "words",
    [
        ["gradOutput=dy.npy", "self=x.npy", "approximate=tanh", "--out", "gradInput=dx.npy"],
        ["grad_output=dy.npy", "self=x.npy", "--approximate", "tanh", "--out=dx.npy"],
        ["--approximate=tanh", "--out", "dx.npy", "--self", "x.npy", "--grad-output=dy.npy"],
    ],
)
def test_run_accepts_every_spelling_of_names_and_attributes(words: list[str]) -> None:
    dy, x = pair()
    save(dy=dy, x=x)
    result = invoke("run", "gelu_backward_v2", *words)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(files.read("dx.npy"), aclnn.gelu_backward_v2(dy, x, "tanh"))


@pytest.mark.parametrize(
    ("word", "shape", "status", "text"),
    [
        ("gradOut=int.npy", "5", 1, "aclnnLayerNormBackward: gradOut: expected data type"),
        ("gradOut=x.npy", "3,3,5", 1, "expected at least 3 dimensions (as normalizedShape), got 2"),
        ("gradOut=x.npy", "five", 2, "normalized_shape: expected integers such as 4,8, got 'five'"),
        (
            "gradInputOut=x.npy",
            "5",
            2,
            "gradInputOut: expected --out gradInputOut=x.npy for an output, got gradInputOut=x.npy",
        ),
    ],
)
def test_errors_name_arguments_as_they_were_typed(word: str, shape: str, status: int, text: str) -> None:
    _, x = pair()
    save(x=x, int=x.astype(np.int32), s=x[:, :1])
    words = [word, "input=x.npy", f"normalizedShape={shape}", "mean=s.npy", "rstd=s.npy", "--out", "grad_input=dx.npy"]
    result = invoke("run", "layer_norm_backward", *words)
    assert result.exit_code == status
    assert text in result.stderr


def test_raw_files_are_described() -> None:
    dy, x = pair(np.float16, (3, 4))
    Path("dy.bin").write_bytes(dy.tobytes())
    Path("x.bin").write_bytes(x.tobytes())
    words = ["run", "silu_backward", "grad_output=dy.bin", "self=x.bin", "--out", "dx.bin"]
    assert "expected a data type for a raw file" in invoke(*words).stderr
    result = invoke(*words, "--dtype", "float16", "--shape", "3,4", "--shape", "self=3,4")
    assert result.exit_code == 0, result.output
    assert Path("dx.bin").read_bytes() == aclnn.silu_backward(dy, x).tobytes()


def test_raw_files_are_described_by_c_names_too() -> None:
    dy, x = pair(np.float16, (3, 4))
    Path("dy.bin").write_bytes(dy.tobytes())
    save(x=x)
    words = ["run", "silu_backward", "grad_output=dy.bin", "self=x.npy", "--out", "dx.bin"]
    result = invoke(*words, "--dtype", "gradOutput=float16", "--shape", "gradOutput=3,4")
    assert result.exit_code == 0, result.output
    assert Path("dx.bin").read_bytes() == aclnn.silu_backward(dy, x).tobytes()


def layer_norm(*words: str) -> Result:
    random = np.random.default_rng(3)
    x = random.standard_normal((4, 8)).astype(np.float32)
    mean = x.mean(1, keepdims=True)
    save(dy=random.standard_normal((4, 8)).astype(np.float32), x=x, mean=mean, rstd=1 / x.std(1, keepdims=True))
    given = ["grad_out=dy.npy", "input=x.npy", "mean=mean.npy", "rstd=rstd.npy"]
    return invoke("run", "layer_norm_backward", *given, *words)


def test_the_mask_follows_the_outputs_asked_for() -> None:
    result = layer_norm("normalized_shape=8", "--out", "grad_weight=r.npz:dw", "--out", "grad_bias=r.npz:db")
    assert result.exit_code == 0, result.output
    arrays = [files.read(f"{name}.npy") for name in ("dy", "x", "mean", "rstd")]
    _, dw, db = aclnn.layer_norm_backward(*arrays[:2], (8,), *arrays[2:])
    np.testing.assert_array_equal(files.read("r.npz", "dw"), dw)
    np.testing.assert_array_equal(files.read("r.npz", "db"), db)


def test_a_switched_off_output_cannot_be_asked_for() -> None:
    result = layer_norm("normalized_shape=8", "output_mask=1,1,0", "--out", "grad_bias=db.npy")
    assert result.exit_code == 2
    assert "grad_bias is switched off by output_mask" in result.stderr


def test_run_reads_numbers_and_booleans() -> None:
    dy, y = pair()
    save(dy=dy, y=y)
    words = ("grad_output=dy.npy", "self_or_result=y.npy", "--alpha", "2", "--scale", "0.5", "--input-scale", "1")
    for word, value in (("true", True), ("0", False)):
        assert invoke("run", "elu_backward", *words, "--is-result", word, "--out", "dx.npy").exit_code == 0
        np.testing.assert_array_equal(np.load("dx.npy"), aclnn.elu_backward(dy, 2, 0.5, 1, value, y))
    for name, word, wanted in (("is_result", "2", "true or false"), ("alpha", "two", "a number")):
        done = invoke("run", "elu_backward", *words[:2], f"{name}={word}", "--out", "dx.npy")
        assert done.exit_code == 2
        assert f"{name}: expected {wanted}, got '{word}'" in done.stderr


def test_run_prints_json() -> None:
    dy, x = pair(np.float16, (2, 3))
    save(dy=dy, x=x)
    result = invoke(
        "run", "aclnnHardswishBackward", "grad_output=dy.npy", "self=x.npy", "--out", "dx.npy", "--json", "-"
    )
    document = json.loads(result.stdout)
    assert document["seconds"] > 0
    assert document["outputs"] == [{"name": "out", "file": "dx.npy", "dtype": "float16", "shape": [2, 3]}]
    assert (document["operator"], document["soc_name"]) == ("hardswish_backward", "Ascend910B2")


def test_run_can_choose_the_product() -> None:
    dy, x = pair(shape=(1, 4))[0], pair(shape=(3, 1))[1]
    save(dy=dy, x=x)
    words = ["run", "silu_backward", "grad_output=dy.npy", "self=x.npy", "--out", "dx.npy"]
    assert invoke(*words).exit_code == 1
    assert invoke(*words, "--soc-name", "Ascend950DT_9571").exit_code == 0
    assert files.read("dx.npy").shape == (3, 4)


@pytest.mark.parametrize(
    ("x", "soc_name", "code", "text"),
    [
        (np.zeros((3, 4), np.float32), None, ACLNN_ERR_PARAM_INVALID, "aclnnSiluBackward: self: expected shape [3, 5]"),
        (np.zeros((3, 5), np.float64), None, ACLNN_ERR_PARAM_INVALID, "expected data type ACL_FLOAT"),
        (np.zeros((3, 5), np.float32), "Ascend310B1", ACLNN_ERR_INNER_NULLPTR, "expected a product with a kernel"),
        (np.zeros((3, 5), np.float32), "Ascend999", ACLNN_ERR_PARAM_INVALID, "SoC name"),
    ],
)
def test_an_error_is_status_1_with_code_and_text(x: Any, soc_name: str | None, code: int, text: str) -> None:
    save(dy=np.zeros((3, 5), np.float32), x=x)
    Path("dx.npy").write_text("as it was")
    words = ["run", "silu_backward", "grad_output=dy.npy", "self=x.npy", "--out", "dx.npy", "--json", "-"]
    result = invoke(*words, *([] if soc_name is None else ["--soc-name", soc_name]))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == code
    assert text in result.stderr
    assert str(code) in result.stderr
    assert Path("dx.npy").read_text() == "as it was"
    assert written() == {"dy.npy", "x.npy", "dx.npy"}


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("none.npy", None, "none.npy: No such file"),
        ("x.npy", b"\x93NUMPY\x01\x00", "x.npy: EOF: reading array header"),
        ("x.npy", b"", "x.npy: EOF: reading magic string"),
        ("x.txt", b"1 2 3", "x.txt: expected one of .npy"),
        ("folder.npy", "folder", "folder.npy: expected a regular file"),
        ("x.npz:b", {"a": np.zeros(2, np.float32)}, "expected a tensor named 'b', got a"),
    ],
)
def test_an_unreadable_file_is_status_1(file: str, content: Any, text: str) -> None:
    save(dy=np.zeros(2, np.float32))
    if isinstance(content, bytes):
        Path(file).write_bytes(content)
    elif content == "folder":
        Path(file).mkdir()
    elif content is not None:
        np.savez(file.split(":")[0], **content)
    result = invoke("run", "silu_backward", "grad_output=dy.npy", f"self={file}", "--out", "dx.npy", "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == ACL_ERROR_INVALID_FILE
    assert text in result.stderr
    assert "dx.npy" not in written()


def test_a_truncated_file_and_an_object_array_are_status_1() -> None:
    save(dy=np.zeros(2, np.float32))
    Path("x.npy").write_bytes(Path("dy.npy").read_bytes()[:-1])
    np.save("o.npy", np.array([1, "a"], object), allow_pickle=True)
    for file in ("x.npy", "o.npy"):
        result = invoke("run", "silu_backward", "grad_output=dy.npy", f"self={file}", "--out", "dx.npy")
        assert result.exit_code == 1
        assert f"{file}: expected" in result.stderr
    assert "dx.npy" not in written()


@pytest.mark.parametrize("second", ["missing/db.npy", "db.txt"])
def test_when_one_output_cannot_be_written_none_is(second: str) -> None:
    result = layer_norm("normalized_shape=8", "--out", "grad_input=dx.npy", "--out", f"grad_bias={second}")
    assert result.exit_code == 1
    assert second in result.stderr
    assert written() == {"dy.npy", "x.npy", "mean.npy", "rstd.npy"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.npy", "./a.npy"),
        ("a.npy", "link.npy"),
        ("b.safetensors", "b.safetensors:tensor"),
        ("b.npz", "sub/../b.npz:arr_0"),
        ("b.pt", "b.pt"),
    ],
)
def test_two_outputs_in_one_file_are_rejected(first: str, second: str) -> None:
    """Two outputs in one file would overwrite each other."""
    Path("sub").mkdir()
    Path("link.npy").symlink_to("a.npy")
    result = layer_norm("normalized_shape=8", "--out", f"grad_input={first}", "--out", f"grad_weight={second}")
    assert result.exit_code == 2
    assert "--out: expected each file once" in result.stderr
    assert written() == {"dy.npy", "x.npy", "mean.npy", "rstd.npy", "sub", "link.npy"}


def test_a_directory_named_like_an_output_leaves_every_file_alone() -> None:
    Path("dir.npy").mkdir()
    result = layer_norm("normalized_shape=8", "--out", "grad_input=c.npy", "--out", "grad_weight=dir.npy")
    assert result.exit_code == 1
    assert "dir.npy: Is a directory" in result.stderr
    assert written() == {"dy.npy", "x.npy", "mean.npy", "rstd.npy", "dir.npy"}


@pytest.mark.parametrize("file", ["my.npz", "my.safetensors", "my.pt"])
def test_a_file_that_holds_other_tensors_is_left_alone(file: str) -> None:
    """An archive with other tensors must not be replaced."""
    if file == "my.pt":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    dy, x = pair()
    files.write(file, {"dy": dy, "x": x})
    save(dy=dy, x=x)
    words = ["run", "silu_backward", "grad_output=dy.npy", "self=x.npy", "--out"]
    result = invoke(*words, f"grad_input={file}:dx")
    assert result.exit_code == 1
    assert f"{file}: expected a new file, or one that holds nothing but 'dx'" in result.stderr
    assert "'dy', 'x' would be lost" in result.stderr
    assert set(files.entries(file)) == {"dy", "x"}
    for _ in range(2):
        assert invoke(*words, "grad_input=other.npz:dx").exit_code == 0


def test_a_link_stays_and_its_target_is_written() -> None:
    dy, x = pair()
    save(dy=dy, x=x, data=x)
    Path("link.npy").symlink_to("data.npy")
    result = invoke("run", "silu_backward", "grad_output=dy.npy", "self=x.npy", "--out", "link.npy")
    assert result.exit_code == 0, result.output
    assert Path("link.npy").is_symlink()
    np.testing.assert_array_equal(files.read("data.npy"), aclnn.silu_backward(dy, x))


def test_an_output_to_a_pipe_is_written() -> None:
    """A pipe, or /dev/null, must not be replaced by a file."""
    dy, x = pair()
    save(dy=dy, x=x)
    os.mkfifo("pipe.npy")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe.npy").read_bytes()), daemon=True)
    reader.start()
    result = invoke("run", "silu_backward", "grad_output=dy.npy", "self=x.npy", "--out", "pipe.npy")
    reader.join(10)
    assert result.exit_code == 0, result.output
    assert stat.S_ISFIFO(Path("pipe.npy").stat().st_mode)
    np.testing.assert_array_equal(np.load(io.BytesIO(got[0])), aclnn.silu_backward(dy, x))


@pytest.mark.parametrize("words", [["self=\x1b[31mx.npy"], ["\x1b[31mself=x.npy"]])
def test_a_terminal_does_not_obey_the_names_of_files(words: list[str]) -> None:
    result = invoke("run", "silu", *words, "--out", "y.npy")
    assert result.exit_code in (1, 2)
    assert "\x1b[31m" not in result.output
    assert "\\x1b[31m" in result.output


@pytest.mark.parametrize("out", ["x.npy", "./sub/../x.npy", "link.npy", "all.npz:x", "all.npz"])
def test_an_input_is_not_written_over(out: str) -> None:
    """An output over an input is an error."""
    x = pair()[1]
    save(x=x)
    files.write("all.npz", {"x": x})
    Path("sub").mkdir()
    Path("link.npy").symlink_to("x.npy")
    given = "all.npz:x" if "npz" in out else "x.npy"
    result = invoke("run", "silu", f"self={given}", "--out", out)
    assert result.exit_code == 2
    assert f"--out: expected a file of its own, got '{out}', which is that of self" in result.stderr
    np.testing.assert_array_equal(files.read("x.npy"), x)
    np.testing.assert_array_equal(files.read("all.npz", "x"), x)


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        (
            ["--out", "y.npy", "--json", "x.npy"],
            "--json: expected a file of its own, got 'x.npy', which is that of self",
            2,
        ),
        (
            ["--out", "y.npy", "--json", "y.npy"],
            "--json: expected a file of its own, got 'y.npy', which is that of out",
            2,
        ),
        (["--out", "y.npy", "--json", "--out"], "--json: expected FILE or -, got '--out'", 2),
        (["--out", "y.npy", "--json", "no/r.json"], "no/r.json: No such file or directory", 1),
    ],
)
def test_an_unwritable_report_is_rejected_before_the_computation(words: list[str], text: str, status: int) -> None:
    """A report needs a file of its own, which is checked before the computation."""
    x = pair()[1]
    save(x=x)
    result = invoke("run", "silu", "self=x.npy", *words)
    assert result.exit_code == status
    assert text in result.stderr
    assert written() == {"x.npy"}
    np.testing.assert_array_equal(files.read("x.npy"), x)


def test_in_place_operators_do_not_change_input_files() -> None:
    x = pair()[1]
    save(x=x)
    result = invoke("run", "inplace_hardswish", "self=x.npy", "--out", "self=y.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(files.read("x.npy"), x)
    np.testing.assert_array_equal(files.read("y.npy"), aclnn.hardswish(x))


INPUTS = ("grad_output=dy.npy", "self=x.npy")
STATISTICS = ("grad_out=dy.npy", "input=x.npy", "mean=m.npy", "rstd=r.npy")
NORM = (*STATISTICS, "normalized_shape=8")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "softsign", "--out", "dx.npy"], "No such command 'softsign'"),
        (["run", "silu_bakward", "--out", "dx.npy"], "Did you mean 'silu_backward'"),
        (["run", "silu_backward", "self=x.npy", "--out", "dx.npy"], "Missing option '--grad-output'"),
        (["run", "silu_backward", "grad_output=dy.npy", "self=x.npy"], "--out: expected name=FILE"),
        (["run", "silu_backward", "x=x.npy", "--out", "dx.npy"], "got 'x'"),
        (["run", "silu_backward", "x.npy", *INPUTS, "--out", "dx.npy"], "(x.npy)"),
        (["run", "silu_backward", "self=a.npy", "self=b.npy", "--out", "dx.npy"], "self: given twice"),
        (["run", "silu_backward", "--self", "a.npy", "self=b.npy", "--out", "dx.npy"], "self: given twice"),
        (["run", "silu_backward", "grad_input=dx.npy", "--out", "dx.npy"], "expected --out grad_input=dx.npy"),
        (
            ["run", "silu_backward", "gradOutput=a.npy", "grad_output=b.npy", "--out", "dx.npy"],
            "grad_output: given twice",
        ),
        (["run", "silu_backward", *INPUTS, "--shape", "4,b", "--out", "dx.npy"], "expected extents such as 4,8"),
        (
            ["run", "silu_backward", *INPUTS, "--out", "self=dx.npy"],
            "--out: silu_backward: expected one of grad_input, got 'self'",
        ),
        (
            ["run", "silu_backward", *INPUTS, "--out", "a.npy", "--out", "b.npy"],
            "--out: silu_backward: grad_input: given twice",
        ),
        (["run", "silu_backward", "--nonsense", "1", "--out", "a.npy"], "No such option: --nonsense"),
        (["run", "silu_backward", "nonsense=1", "--out", "a.npy"], "got 'nonsense'"),
        (["run", "silu_backward", "--output", "q.npy"], "No such option: --output"),
        (
            ["run", "gelu_backward_v2", "--aproximate=tanh", "--out", "q.npy"],
            "No such option: --aproximate",
        ),
        (["run", "silu_backward", "--jsn"], "No such option: --jsn"),
        (["run", "layer_norm_backward", *STATISTICS, "normalized_shape=a", "--out", "grad_bias=b.npy"], "such as 4,8"),
        (["run", "layer_norm_backward", *NORM, "output_mask=2,1,0", "--out", "grad_bias=b.npy"], "truth values"),
        (
            ["run", "layer_norm_backward", *NORM, "--out", "b.npy"],
            "--out: expected grad_input=, grad_weight= or grad_bias= before 'b.npy': layer_norm_backward has 3 outputs",
        ),
        (
            ["run", "layer_norm", "input=x.npy", "normalized_shape=8", "--out", "o.npy"],
            "--out: expected out=, mean= or rstd= before 'o.npy'",
        ),
        (["run", "silu_backward", *INPUTS, "--out", "grad_input=a.npy", "--out", "b.npy"], "given twice"),
        (
            ["run", "silu_backward", *INPUTS, "--out", "gradInput=a.npy", "--out", "grad_input=b.npy"],
            "given twice",
        ),
        (
            ["run", "silu_backward", *INPUTS, "--dtype", "slef=float16", "--out", "a.npy"],
            "expected one of grad_output, self",
        ),
        (["run", "silu_backward", *INPUTS, "--shape", "approximate=2", "--out", "a.npy"], "got 'approximate'"),
        (
            ["run", "silu_backward", *INPUTS, "--dtype", "float16", "--dtype", "float32", "--out", "a.npy"],
            "--dtype: 'float32' given twice",
        ),
        (["run", "gelu_backward_v2", *INPUTS, "--approximate", "Tanh", "--out", "a.npy"], "not one of 'none', 'tanh'"),
        (["info", "aclnnSilv"], "operator: expected one of docs/operators.md, such as aclnnSilu, got 'aclnnSilv'"),
        (["info", "--json"], "requires an argument"),
        (["nonsense"], "nonsense"),
        (["run", "mm"], "operator: expected one that aclnn run --help lists, got 'mm': it has no Python function"),
        (["run", "aclnnMm"], "got 'aclnnMm': it has no Python function; C programs, aclnn.cann, torch_npu"),
        (["run", "nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_wrong_command_line_is_status_2(words: list[str], text: str) -> None:
    result = invoke(*words)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.replace("│", " ").split())


def test_info_shows_the_environment() -> None:
    assert "Ascend910B2" in invoke("info").stdout
    document = json.loads(invoke("info", "--json", "-", "--soc-name", "Ascend310P3").stdout)
    assert (document["version"], document["product"]) == (aclnn.__version__, "Atlas inference")
    assert document["operators"] == [operator.name for operator in OPERATORS]
    assert document["plain_operators"] == len(C_OPERATORS) - len(OPERATORS)
    assert document["threads"] == threads.shared().threads
    assert document["vector"] in ("avx512", "avx2", "neon", "generic")
    assert Path(document["cache_directory"]).is_absolute()
    assert document["parts"]["numpy"] == np.__version__


def test_every_extra_that_a_hint_names_exists() -> None:
    """Hints name extras that the package has."""
    source = "\n".join(path.read_text() for path in sorted(Path(aclnn.__file__).parent.rglob("*.py")))
    named = set(re.findall(r"""import_or_raise\("[\w.]+", "(\w+)"\)""", source)) | set(_OPTIONAL.values())
    assert {"cli", "torch", "verify"} <= named <= set(metadata("aclnn").get_all("Provides-Extra"))


@pytest.mark.parametrize("operator", [*OPERATORS, *LIBRARY_OPERATORS[::9]], ids=lambda operator: operator.name)
def test_info_of_an_operator_is_its_declaration(operator: Any) -> None:
    document = json.loads(invoke("info", operator.name, "--json", "-").stdout)
    assert [p["c_name"] for p in document["parameters"]] == [p.name for p in operator.parameters]
    assert [c["code"] for c in document["checks"]] == [c.code for c in operator.checks]
    assert operator.function in invoke("info", operator.function).stdout


def test_info_names_data_types_that_numpy_lacks() -> None:
    assert "ACL_FLOAT4_E1M2" in invoke("info", "cast").stdout


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("operators", "docs/operators.md"),
        ("functions", "docs/c-functions.md"),
        ("stub", "src/aclnn/capi/__init__.pyi"),
    ],
)
def test_the_pages_made_from_declarations_are_current(page: str, file: str) -> None:
    text = (Path(__file__).parents[2] / file).read_text(encoding="utf-8")
    assert text == PAGES[page](), f"python -m tools.pages {page} > {file}"


def test_the_page_of_functions_has_all_of_them() -> None:
    text = functions_page()
    listed = {name for name in FUNCTIONS if f" {name}(" in text or f"*{name}(" in text}
    of_operators = {name for operator in C_OPERATORS for name in (operator.function, operator.phase_one)}
    assert {name for name in FUNCTIONS if name not in listed and not name.startswith("aclnn")} <= of_operators


@pytest.mark.parametrize(
    ("operator", "name", "optional", "default", "shown"),
    [
        ("layer_norm", "eps", False, 1e-05, "1e-05"),
        ("layer_norm", "weight", True, None, "may be null"),
        ("layer_norm", "rstd", True, None, "may be null"),
        ("layer_norm", "normalized_shape", False, None, ""),
        ("layer_norm_backward", "output_mask", False, [True, True, True], "true,true,true"),
        ("gelu_backward_v2", "approximate", False, "none", "none"),
        ("gelu_v2", "approximate", False, 0, "0"),
        ("silu_backward", "grad_input", False, None, ""),
    ],
)
def test_info_marks_optional_arguments(operator: str, name: str, optional: bool, default: Any, shown: str) -> None:
    """``aclnn info`` shows which arguments may be null, and defaults."""
    document = json.loads(invoke("info", operator, "--json", "-").stdout)
    (parameter,) = (row for row in document["parameters"] if row["name"] == name)
    assert (parameter["optional"], parameter["default"]) == (optional, default)
    lines = invoke("info", operator).stdout.splitlines()
    begin = next(line for line in lines if "default" in line).index("default")
    (row,) = (line for line in lines if line.split()[:1] == [name])
    assert re.split(r" {2,}|$", row[begin:])[0] == shown


def test_parts_of_the_package_are_commands() -> None:
    listed = invoke("--help").stdout
    assert all(part in listed for part in app_module._PARTS)
    assert "build" in invoke("toolkit", "--help").stdout


def test_progress_shows_on_a_terminal_and_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=terminal, width=80))
        with console.progress(2) as bar:
            bar.step("reading x.npy", advance=0)
            bar._bar.refresh()
            assert ("reading x.npy" in screen.getvalue()) == terminal
        assert screen.getvalue().endswith("\x1b[2K") or not terminal


def test_an_operators_help_is_its_declaration() -> None:
    described = " ".join(invoke("run", "gelu_backward_v2", "--help").stdout.split())
    assert "--grad-output FILE dy, the gradient arriving at the output [required]" in described
    assert re.search(r'--approximate \S?none\|tanh\S? "none" \(erf\) or "tanh" \[default: none\]', described)
    for operator in OPERATORS:
        described = invoke("run", operator.function, "--help").stdout
        for parameter in (*operator.inputs, *operator.attributes):
            assert f"--{parameter.python_name.replace('_', '-')} " in described, operator.name
        assert operator.outputs[0].python_name in described


def test_no_argument_has_the_name_of_an_option_of_every_operator() -> None:
    common = {"out", "dtype", "shape", "soc_name", "json", "help"}
    for operator in OPERATORS:
        assert common.isdisjoint(p.python_name for p in (*operator.inputs, *operator.attributes)), operator.name


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("aclnn run silu_b", {"silu_backward"}),
        ("aclnn info silu_b", {"silu_backward"}),
        ("aclnn info linalg_c", {"linalg_cholesky", "linalg_cross"}),
        ("aclnn verify linalg_c", {"linalg_cholesky", "linalg_cross"}),
        ("aclnn run gelu_backward_v2 --approximate t", {"tanh"}),
        ("aclnn run gelu_backward_v2 --appr", {"--approximate"}),
    ],
)
def test_a_shell_completes_operators_options_and_choices(words: str, found: set[str]) -> None:
    count = str(len(words.split()) - 1)
    done = python("-m", "aclnn", _ACLNN_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count)
    assert set(done.stdout.split()) == found, done.stderr


def test_output_to_a_pipe_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, tables are not wrapped, so that grep finds whole lines."""
    monkeypatch.setenv("COLUMNS", "40")
    installed = invoke("info").stdout
    described = invoke("info", "layer_norm_backward").stdout
    assert re.search(rf"^operators +{', '.join(BY_NAME)} *$", installed, re.MULTILINE)
    for check in BY_NAME["layer_norm_backward"].checks:
        assert re.search(rf"^ *{re.escape(check.name)} +{check.code} *$", described, re.MULTILINE), check.name


def test_a_terminals_tables_fit_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=screen, force_terminal=True, width=60))
    describe_installation(None)
    assert max(map(len, re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines())) <= 60


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


def test_the_module_is_the_command() -> None:
    done = python("-m", "aclnn", "--version")
    assert (done.returncode, done.stdout) == (0, f"aclnn {aclnn.__version__}\n")
    assert python("-m", "aclnn", "run").returncode == 2
    done = python("-m", "aclnn", "info", "--soc-name", "Ascend999")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_an_invalid_environment_variable_is_rejected() -> None:
    for variable in ("ACLNN_NUM_THREADS", "ACLNN_VECTOR"):
        done = python("-m", "aclnn", "info", **{variable: "many"})
        assert done.returncode == 1
        assert f"{variable}: expected" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_empty_environment_variable_counts_as_unset() -> None:
    variables = ("ACLNN_NUM_THREADS", "ACLNN_VECTOR", "ACLNN_SOC_NAME")
    assert python("-m", "aclnn", "info", **dict.fromkeys(variables, "")).returncode == 0


def test_a_full_disk_is_reported_without_a_traceback() -> None:
    """With --json, too, a full disk is an ordinary error."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "aclnn", "info", "--json", "-"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_starting_imports_nothing_heavy() -> None:
    heavy = {"numba", "torch", "ml_dtypes", "matplotlib", "sklearn", "rich.table"}
    code = f"import sys, aclnn.cli.app; print({heavy} & set(sys.modules))"
    assert python("-c", code).stdout == "set()\n"


@pytest.mark.parametrize("module", ["aclnn", "aclnn.cli.run", "aclnn.torch"])
def test_plain_operators_are_imported_on_demand(module: str) -> None:
    """Importing plain operators takes longer than everything else in ``import aclnn``."""
    if module == "aclnn.torch":
        pytest.importorskip("torch")
    code = f"import sys, {module}; print('aclnn.operators.library' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_file_of_several_tensors_gives_the_one_named_like_the_argument(command: str, tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    all_of = {"gradOutput": x + 1, "self": x, "grad_input": aclnn.silu_backward(x + 1, x), "other": x}
    np.savez(tmp_path / "all.npz", **all_of)
    named = ["silu_backward", "grad_output=all.npz", "self=all.npz"]
    more = {"run": ["--out", "grad_input=dx.npy"], "verify": ["--actual", "grad_input=all.npz"]}
    done = python("-m", "aclnn", command, *named, *more[command])
    assert done.returncode == 0, done.stderr
    if command == "run":
        np.testing.assert_array_equal(np.load(tmp_path / "dx.npy"), all_of["grad_input"])


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_cli_a_hint_names_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from aclnn.cli import main; main()"
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr == f"aclnn: {missing} is not installed: {optional.install_command('cli')}\n"
