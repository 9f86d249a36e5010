"""The command line: files of every kind, lists of cases, exit status 0, 1 and 2."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import aclnn
from aclnn import io as files
from aclnn.cli import console
from aclnn.cli import verify as command
from aclnn.core import products
from aclnn.verify import golden
from aclnn.verify.number_formats import FORMATS
from benchmarks.implementations import literal
from tests.helpers.verify_command import run


def arrays(dtype="float32", size=5000, seed=1):
    kind = FORMATS[dtype].dtype.numpy
    rng = np.random.default_rng(seed)
    return {"grad_output": rng.normal(size=size).astype(kind), "self": rng.uniform(-5, 5, size).astype(kind)}


def dump(folder, suffix, dtype="float32", fault=False):
    inputs = arrays(dtype)
    tensors = dict(inputs, grad_input=golden("silu_backward", inputs)["grad_input"].rounded.copy())
    if fault:
        tensors["grad_input"][100:1000] = 0
    if suffix == ".pt":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if suffix in (".npz", ".safetensors", ".pt"):
        path = folder / f"all{suffix}"
        files.write(path, tensors)
        return {name: f"{path}:{name}" for name in tensors}
    for name, array in tensors.items():
        files.write(folder / f"{name}{suffix}", array)
    return {name: str(folder / f"{name}{suffix}") for name in tensors}


@pytest.mark.parametrize("dtype", list(FORMATS))
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".pt", ".bin"])
def test_verify_passes_right_and_fails_wrong_outputs(tmp_path, suffix, dtype):
    raw = ["--dtype", dtype, "--shape", "5000"] if suffix == ".bin" else []
    for fault, status in ((False, 0), (True, 1)):
        at = dump(tmp_path, suffix, dtype, fault)
        words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", *raw]
        result = run(*words, "--actual", f"grad_input={at['grad_input']}")
        assert result.exit_code == status, result.output
        assert ("FAIL" if fault else "PASS") in result.stdout
    assert "probable cause: the 900 elements from 100 to 999 hold 0" in result.stdout


def test_an_unwritten_end_that_no_standard_sees_fails_in_the_first_line(tmp_path):
    """A named fault must not come with PASS and exit status 0."""
    inputs = arrays(size=20_000)
    inputs["grad_output"] *= np.float32(1e-15)
    actual = golden("silu_backward", inputs)["grad_input"].rounded.copy()
    actual[-200:] = 0
    for name, array in {**inputs, "grad_input": actual}.items():
        files.write(tmp_path / f"{name}.npy", array)
    words = [f"{name}={tmp_path / name}.npy" for name in inputs]
    for standard in ([], ["--standard", "mixed"]):
        result = run("silu_backward", *words, "--actual", tmp_path / "grad_input.npy", *standard)
        assert result.exit_code == 1
        first = result.stdout.splitlines()[0]
        assert first.startswith("FAIL silu_backward: grad_input is wrong: the last 200 elements hold 0")
        assert ", although no standard that counts fails; worst error " in first


def test_reports_are_written_and_agree(tmp_path):
    at = dump(tmp_path, ".npy", fault=True)
    words = ["silu_backward", f"gradOutput={at['grad_output']}", f"--self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert result.exit_code == 1
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["verdict"] == "fail"
    assert data["cases"][0]["arrays"][0]["file"] == at["grad_output"]
    assert "✗ FAIL" in (tmp_path / "r.html").read_text()
    for row in data["cases"][0]["outputs"][0]["standards"]:
        assert row["name"] in result.stdout
    assert run(*words, "--standard", "bitwise").exit_code == 1
    assert run(*words, "--standard", "nonsense").exit_code == 2


def test_a_report_is_printed_alone_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at = dump(tmp_path, ".npy", fault=True)
    words = ["silu_backward", f"gradOutput={at['grad_output']}", f"--self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "fail"
    assert not (tmp_path / "-").exists()


def test_the_product_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(products, "_selected", None)
    inputs = {"grad_output": np.ones((1, 4), np.float32), "self": np.ones((3, 1), np.float32)}
    whole = dict(zip(inputs, np.broadcast_arrays(*inputs.values()), strict=True))
    files.write(tmp_path / "all.npz", dict(inputs, grad_input=golden("silu_backward", whole)["grad_input"].rounded))
    words = ["silu_backward", *(f"{name}={tmp_path}/all.npz" for name in inputs), "--actual", f"{tmp_path}/all.npz"]
    assert run(*words).exit_code == 1
    assert run(*words, "--soc-name", "Ascend950DT_9571").exit_code == 0


def test_verify_takes_attributes_and_a_reference_output(tmp_path):
    inputs = arrays()
    for name, array in inputs.items():
        files.write(tmp_path / f"{name}.npy", array)
    for mode in ("none", "tanh"):
        files.write(tmp_path / f"{mode}.npy", literal("gelu_backward_v2")(**inputs, approximate=mode))
    words = ["gelu_backward_v2", *(f"{name}={tmp_path / name}.npy" for name in inputs)]
    given = [*words, "--actual", tmp_path / "tanh.npy", "--reference", tmp_path / "tanh.npy"]
    result = run(*given, "--approximate", "tanh", "--standard", "mixed", "--standard", "commercial-L2")
    assert result.exit_code == 0, result.output
    assert "commercial-L2" in result.stdout
    wrong = run(*given, "approximate=none", "--standard", "mere-mare")
    assert wrong.exit_code == 1
    assert "computed with approximate='tanh' although 'none' was asked for" in wrong.stdout
    assert run(*given, "--approximate", "Tanh").exit_code == 1
    assert run(*given).exit_code == 1  # "none" is the function's default


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("gradOutput=i.npy", "self=x.npy", "--actual", "x.npy"), "gradOutput: expected data type"),
        (("gradOutput=x.npy", "self=y.npy", "--actual", "x.npy"), "self: expected shape [8] (that of gradOutput)"),
        (("grad_output=x.npy", "self=x.npy", "--actual", "y.npy"), "--actual grad_input: expected shape [8], got [4]"),
        (("grad_output=x.npy", "self=x.npy", "--actual", "gradInput=y.npy"), "--actual gradInput: expected shape"),
        (
            ("grad_output=x.npy", "self=x.npy", "--actual", "x.npy", "--reference", "y.npy"),
            "--reference grad_input: expected",
        ),
    ],
)
def test_errors_name_arguments_as_they_were_typed(tmp_path, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    for name, array in {"x": np.ones(8, np.float32), "y": np.ones(4, np.float32), "i": np.ones(8, np.int32)}.items():
        files.write(tmp_path / f"{name}.npy", array)
    result = run("silu_backward", *words)
    assert result.exit_code == 1
    assert f"aclnn: aclnnSiluBackward: {text}" in result.stderr


def test_a_missing_output_that_the_mask_requests_is_not_reported_as_null(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    files.write(tmp_path / "s.npy", np.ones((2, 1), np.float32))
    words = ["grad_out=x.npy", "input=x.npy", "normalized_shape=8", "mean=s.npy", "rstd=s.npy", "output_mask=1,1,0"]
    result = run("layer_norm_backward", *words, "--actual", "grad_input=x.npy")
    assert result.exit_code == 1
    assert "--actual grad_weight: expected an array (output_mask[1] is true), got None" in result.stderr


def test_verify_checks_layer_norm_backward(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 32)).astype(np.float32)
    inputs = {
        "grad_out": rng.normal(size=x.shape).astype(np.float32), "input": x,
        "mean": x.mean(1), "rstd": 1 / np.sqrt(x.var(1) + np.float32(1e-5)), "weight": np.ones(32, np.float32),
    }  # fmt: skip
    outputs = {name: item.rounded for name, item in golden("layer_norm_backward", inputs).items()}
    files.write(tmp_path / "in.npz", inputs)
    files.write(tmp_path / "out.npz", outputs)
    words = ["layer_norm_backward", *(f"{name}={tmp_path}/in.npz" for name in inputs), "--normalized-shape", "32"]
    actual = [word for name in outputs for word in ("--actual", f"{name}={tmp_path}/out.npz")]
    third = [word for name in outputs for word in ("--reference", f"{name}={tmp_path}/out.npz")]
    result = run(*words, *actual, *third, "--eps", "1e-5", "--json", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    assert "grad_bias" in result.stdout
    (case,) = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert {row["name"] for row in case["outputs"][0]["standards"]} >= {"commercial-L0", "commercial-L2"}
    assert run(*words, "--actual", f"grad_bias={tmp_path}/out.npz").exit_code == 0
    assert run(*words, *actual, "--normalized-shape", "33").exit_code == 2


def lists(folder, suffix, cases):
    path = folder / f"cases{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps(cases))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, cases[0])
            writer.writeheader()
            writer.writerows(cases)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_verify_takes_a_list_of_cases(tmp_path, suffix):
    cases = []
    for number, fault in enumerate((False, True)):
        folder = tmp_path / f"case{number}"
        folder.mkdir()
        dump(folder, ".npy", fault=fault)
        names = {"grad_output": "grad_output", "self": "self", "actual:grad_input": "grad_input"}
        cases.append({"name": f"c{number}"} | {key: f"case{number}/{file}.npy" for key, file in names.items()})
    result = run("silu_backward", "--cases", lists(tmp_path, suffix, cases))
    assert result.exit_code == 1
    assert "PASS c0: silu_backward" in result.stdout
    assert "FAIL c1: silu_backward" in result.stdout
    assert run("silu_backward", "--cases", lists(tmp_path, suffix, cases[:1])).exit_code == 0
    del cases[0]["actual:grad_input"]
    missing = run("silu_backward", "--cases", lists(tmp_path, suffix, cases[:1]))
    assert missing.exit_code == 1
    assert "expected an actual output in case 1" in missing.stderr


def test_verify_takes_a_directory_of_cases(tmp_path):
    (tmp_path / "folder").mkdir()
    dump(tmp_path / "folder", ".npy")
    dump(tmp_path, ".safetensors", fault=True)
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 1
    assert "FAIL all: silu_backward" in result.stdout
    assert "PASS folder: silu_backward" in result.stdout
    (tmp_path / "empty").mkdir()
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path}: expected an actual output in case empty, got none" in result.stderr
    assert run("silu_backward", "--cases", tmp_path / "empty").exit_code == 1


def expect_error(folder, words, status, text):
    paths = {"x": folder / "x.npy", "short": folder / "short.npy", "hostile": folder / "hostile.npy"}
    paths |= {"wide": folder / "wide.npy"}
    files.write(paths["x"], np.ones(8, np.float32))
    files.write(paths["short"], np.ones(7, np.float32))
    np.save(paths["hostile"], np.array([{}], object))
    np.save(paths["wide"], np.ones(8))
    result = run(*(word.format(**paths) for word in words))
    assert result.exit_code == status, result.output
    assert text in result.stderr.replace("\n", "")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["relu_backward"], "operator: expected one with golden values (docs/verify.md), such as prelu_backward"),
        (["rms_norm", "input=a.npy"], "--actual: expected name=FILE with one of out, rstd, got none"),
        (["silu_backward", "dy.npy"], "expected name=FILE"),
        (["silu_backward", "self=a.npy", "self=b.npy"], "self: given twice"),
        (["layer_norm", "input=a.npy", "eps=1e-5", "--eps", "1e-3"], "eps: given twice"),
        (["silu_backward", "--standart", "mixed"], "no option or argument --standart (did you mean --standard?)"),
        (["silu_backward", "--cases", "c.csv", "--so_name=x"], "(did you mean --soc-name?)"),
        (["silu_backward", "selfish=a.npy"], "silu_backward: expected one of grad_output, self"),
        (["silu_backward", "grad_input=a.npy"], "expected --actual grad_input=a.npy for an output"),
        (
            ["silu_backward", "self={x}", "grad_output={x}"],
            "--actual: expected name=FILE with one of grad_input, got none",
        ),
        (
            ["silu_backward", "self={x}", "grad_output={x}", "--actual", "grad_input="],
            "with one of grad_input, got no FILE",
        ),
        (
            ["layer_norm_backward", "--actual", "ln.npz"],
            "--actual: expected grad_input=, grad_weight= or grad_bias= before 'ln.npz': layer_norm_backward has 3",
        ),
        (
            ["layer_norm_backward", "--actual", "grad_bias={x}", "--reference", "{x}"],
            "--reference: expected grad_input=, grad_w",
        ),
        (["silu_backward", "--actual", "grad_input={x}", "--actual", "{x}"], "grad_input: given twice"),
        (["silu_backward", "grad_output={x}", "--actual", "{x}"], "silu_backward: expected self=FILE, got none"),
        (
            ["layer_norm_backward", "grad_out={x}", "input={x}", "--actual", "grad_bias={x}"],
            "layer_norm_backward: expected normalized_shape=value, got none",
        ),
        (["silu_backward", "self={x}", "--actual", "{x}", "--shape", "a,b"], "--shape: expected extents"),
        (
            ["silu_backward", "--cases", "{x}", "--actual", "{x}"],
            "--cases: expected outputs in the list, got --actual or --reference",
        ),
        (["silu_backward", "--json", "--standard=mixed"], "--json: expected FILE or -, got '--standard=mixed'"),
        (["silu_backward", "--html", "--json", "-"], "--html: expected FILE or -, got '--json'"),
        (["silu_backward", "--json", "-", "--html", "-"], "--json and --html: expected two places, got '-' for both"),
        (["silu_backward", "--json", "r", "--html", "./r"], "--json and --html: expected two places, got 'r' for both"),
        (
            ["layer_norm_backward", "input={x}", "--actual", "grad_bias={x}", "--eps", "nan"],
            "eps: expected a finite number",
        ),
        (
            ["layer_norm_backward", "input={x}", "--actual", "grad_bias={x}", "--eps", "-5"],
            "eps: expected a finite number",
        ),
        (["silu_backward", "self={x}", "--actual", "{x}", "--eps", "1e-5"], "eps: expected none"),
        (["silu_backward", "grad_output={x}", "gradOutput={x}", "--actual", "{x}"], "grad_output: given twice"),
        (["silu_backward", "self={x}", "--actual", "grad_input={x}", "--actual", "gradInput={x}"], "given twice"),
        (["silu_backward", "self={x}", "--actual", "{x}", "--dtype", "slef=float16"], "expected one of grad_output"),
        (["silu_backward", "self={x}", "--actual", "{x}", "--shape", "slef=8"], "expected one of grad_output, self"),
        (["silu_backward", "self={x}", "--actual", "{x}", "--shape", "8", "--shape", "8"], "--shape: '8' given twice"),
        (
            ["layer_norm_backward", "--normalized-shape", "x", "--actual", "grad_bias={x}"],
            "expected integers such as 4,8",
        ),
    ],
)
def test_a_wrong_command_line_is_status_2(tmp_path, words, text):
    expect_error(tmp_path, words, 2, text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["silu_backward", "--soc-name", "Ascend999"], "SoC name"),
        (["silu_backward", "self=missing.npy", "grad_output={x}", "--actual", "b.npy"], "missing.npy: No such file"),
        (["silu_backward", "self={x}", "grad_output={x}", "--actual", "{short}"], "[161002"),
        (["silu_backward", "self={hostile}", "grad_output={x}", "--actual", "{x}"], "got dtype('O')"),
        (
            ["softmax", "self={wide}", "--actual", "{wide}"],
            "--actual out: expected float32, float16 or bfloat16, which",
        ),
        (["softmax", "self={wide}", "--actual", "{x}"], "self: expected float32, float16 or bfloat16, which"),
        (["silu_backward", "--cases", "nope.csv"], "aclnn: nope.csv: No such file or directory"),
        (["silu_backward", "--cases", "nope"], "aclnn: nope: No such file or directory"),
        (["silu_backward", "--html", "nodir/r.html"], "aclnn: nodir/r.html: No such file or directory"),
        (["self", "--json", "{x}/r.json"], "x.npy/r.json: Not a directory"),
        (["self", "--json", "/"], "aclnn: /: Is a directory"),
        (["silu_backward", "--cases", "{x}"], "expected a .csv or .json list or a directory, got .npy"),
    ],
)
def test_rejected_arguments_exit_with_status_1(tmp_path, words, text):
    expect_error(tmp_path, words, 1, text)


def _off_by_a_percent(values):
    return values * np.random.default_rng(3).choice(np.float32([0.99, 1.01]), values.shape)


def test_a_standard_that_cannot_assess_the_case_is_rejected(tmp_path):
    at = dump(tmp_path, ".npy", fault=True)
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, "--standard", "commercial-L1")
    assert result.exit_code == 1
    assert "commercial-L1 needs a reference output" in result.stderr
    result = run(*words, "--standard", "classified")
    assert result.exit_code == 1
    assert "FAIL silu_backward: grad_input is wrong: the 900 elements from 100 to 999 hold 0" in result.stdout
    files.write(tmp_path / "grad_input.npy", _off_by_a_percent(np.load(dump(tmp_path, ".npy")["grad_input"])))
    result = run(*words, "--standard", "classified")
    assert result.exit_code == 1
    assert "UNDECIDED silu_backward" in result.stdout


def test_a_list_that_names_something_twice_is_rejected(tmp_path):
    dump(tmp_path, ".npy")
    row = "grad_output.npy,self.npy,self.npy,grad_input.npy"
    (tmp_path / "c.csv").write_text(f"grad_output,self,self,actual\n{row}\n")
    result = run("silu_backward", "--cases", tmp_path / "c.csv")
    assert result.exit_code == 1
    assert "c.csv: expected every name once, got self again" in result.stderr
    (tmp_path / "c.json").write_text('[{"grad_output": "grad_output.npy", "self": "a", "self": "self.npy"}]')
    result = run("silu_backward", "--cases", tmp_path / "c.json")
    assert result.exit_code == 1
    assert "expected every name once, got self again" in result.stderr


@pytest.mark.parametrize("value", [8, True, [8.0]])
def test_a_json_value_of_another_kind_is_rejected(tmp_path, value):
    files.write(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    inputs = dict.fromkeys(("grad_out", "input", "mean", "rstd"), "x.npy")
    case = {**inputs, "actual:grad_bias": "x.npy", "normalized_shape": value}
    result = run("layer_norm_backward", "--cases", lists(tmp_path, ".json", [case]))
    assert result.exit_code == 1
    assert "normalized_shape: expected a sequence of integers" in result.stderr


def test_raw_files_are_described_by_c_names_too(tmp_path):
    at = dump(tmp_path, ".bin", "float16")
    words = ["silu_backward", f"gradOutput={at['grad_output']}", f"self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, *(f"--dtype={name}=float16" for name in ("gradOutput", "self", "gradInput")))
    assert result.exit_code == 0, result.output


def test_an_output_in_a_folder_with_an_equals_sign(tmp_path):
    at = dump(tmp_path, ".npy")
    (tmp_path / "lr=1").mkdir()
    files.write(tmp_path / "lr=1" / "dx.npy", files.read(at["grad_input"]))
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}"]
    result = run(*words, "--actual", tmp_path / "lr=1" / "dx.npy")
    assert result.exit_code == 0, result.output


def test_more_cases_than_files_may_be_open(tmp_path):
    """A case's files are closed once it has been compared."""
    inputs = arrays(size=8)
    exact = golden("silu_backward", inputs)["grad_input"].rounded
    for number in range(40):
        (tmp_path / f"{number}").mkdir()
        for name, array in dict(inputs, grad_input=exact).items():
            files.write(tmp_path / f"{number}" / f"{name}.npy", array)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); from aclnn.cli import main; main()"
    )
    words = ["verify", "silu_backward", "--cases", str(tmp_path), "--standard", "mixed"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("PASS") == 40


def verify(at, *words, output=None, **variables):
    command = [sys.executable, "-m", "aclnn", "verify", "silu_backward", f"grad_output={at['grad_output']}"]
    command += [f"self={at['self']}", "--actual", at["grad_input"], *map(str, words)]
    return subprocess.Popen(
        command, stdout=output or subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | variables
    )


@pytest.mark.parametrize("words", [[], ["--json", "-"]])
def test_a_full_disk_is_reported_without_a_traceback(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = verify(dump(tmp_path, ".npy"), *words, output=full)
        text = done.communicate()[1].decode()
    assert done.returncode == 1
    assert "No space left on device" in text
    assert "Traceback" not in text
    assert "Exception ignored" not in text


@pytest.mark.parametrize("fault", [False, True])
def test_a_reader_that_leaves_early_leaves_the_verdict(tmp_path, fault):
    """ "aclnn verify … | head -2" succeeds with pipefail if the dump passes."""
    reading, writing = os.pipe()
    os.close(reading)
    done = verify(dump(tmp_path, ".npy", fault=fault), output=writing)
    os.close(writing)
    assert done.communicate()[1] == b""
    assert done.returncode == (1 if fault else 0)


@pytest.mark.parametrize("fault", [False, True])
def test_a_closed_output_leaves_the_verdict(tmp_path, fault):
    """A closed standard output (>&-), such as a service's, does not fail a passing dump."""
    program = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    at = dump(tmp_path, ".npy", fault=fault)
    command = ["-m", "aclnn", "verify", "silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--actual", at["grad_input"]], stderr=subprocess.PIPE, check=False
    )
    assert done.stderr == b""
    assert done.returncode == (1 if fault else 0)


def test_a_terminal_without_unicode_gets_a_report(tmp_path):
    done = verify(dump(tmp_path, ".npy", fault=True), PYTHONIOENCODING="ascii")
    text = done.communicate()[0].decode("ascii")
    assert done.returncode == 1
    assert "probable cause" in text


def test_output_to_a_pipe_has_no_empty_line(tmp_path):
    done = verify(dump(tmp_path, ".npy"))
    assert done.communicate()[1] == b""


def test_the_verdict_is_shown_before_a_report_fails(tmp_path):
    """A report that cannot be written does not suppress the verdict."""
    at = dump(tmp_path, ".npy", fault=True)
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, "--json", "/dev/full")
    assert result.exit_code == 1
    assert "FAIL silu_backward" in result.stdout
    assert "/dev/full: No space left on device" in result.stderr


def test_a_missing_directory_is_reported_before_the_comparison(tmp_path, monkeypatch):
    """A missing folder is an ordinary error, reported before the comparison."""
    monkeypatch.setattr(command, "verify_case", None)
    at = dump(tmp_path, ".npy")
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", "--actual", at["grad_input"]]
    for option in ("--json", "--html"):
        result = run(*words, option, tmp_path / "nowhere" / "r")
        assert result.exit_code == 1
        assert f"aclnn: {tmp_path}/nowhere/r: No such file or directory\n" in result.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["self=none.npy", "grad_output=none.npy", "--actual", "none.npy"], "ACL_ERROR_INVALID_FILE"),
        (["--cases", "c.csv"], "ACL_ERROR_INVALID_FILE"),
        (["--standard", "nonsense", "--actual", "none.npy"], "ACL_ERROR_INVALID_PARAM"),
        (["self=a.npy", "grad_output=b.npy", "--actual", "a.npy"], "ACLNN_ERR_PARAM_INVALID"),
        (["--cases", "."], "ACLNN_ERR_PARAM_INVALID"),
    ],
)
def test_an_error_is_a_document_where_one_is_asked_for(tmp_path, monkeypatch, words, name):
    """With --json, errors are JSON on standard output, too."""
    monkeypatch.chdir(tmp_path)
    x = np.ones(3, np.float32)
    files.write("a.npy", x)
    files.write("b.npy", x[:2])
    files.write("one.npz", {"self": x, "grad_output": x[:2], "grad_input": x})
    Path("c.csv").write_text("self,grad_output,actual\na.npy,a.npy,none.npy\n")
    result = run("silu_backward", *words, "--json", "-")
    assert result.exit_code == (2 if "nonsense" in words else 1)
    error = json.loads(result.stdout)["error"]
    assert error["name"] == name
    assert error["message"] in result.stderr


def test_a_page_that_cannot_be_written_leaves_one_document(tmp_path):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    at = dump(tmp_path, ".npy")
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", "--actual", at["grad_input"]]
    result = run(*words, "--json", "-", "--html", "/dev/full")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["message"] == "/dev/full: No space left on device"


def test_reports_show_file_names_that_are_not_utf8(tmp_path):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    at = dump(tmp_path, ".npy")
    name = str(tmp_path / "dx\udcff.npy")
    os.rename(at["grad_input"], name)
    words = ["silu_backward", f"grad_output={at['grad_output']}", f"self={at['self']}", "--actual", name]
    result = run(*words, "--html", tmp_path / "r.html", "--json", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    assert "dx\\udcff.npy" in (tmp_path / "r.html").read_text()


def test_a_norm_without_columns_has_an_empty_gradient(tmp_path):
    inputs = {"grad_out": np.ones((3, 0)), "input": np.ones((3, 0)), "mean": np.ones((3, 1)), "rstd": np.ones((3, 1))}
    tensors = {name: array.astype(np.float32) for name, array in inputs.items()}
    files.write(tmp_path / "a.npz", tensors | {"grad_input": tensors["input"]})
    words = ["layer_norm_backward", *(f"{name}={tmp_path}/a.npz" for name in inputs), "--normalized-shape", "0"]
    result = run(*words, "--actual", f"grad_input={tmp_path}/a.npz")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("c.csv", b"self,actual\n" + b"a" * 140_000 + b",b\n", "c.csv: field larger than field limit"),
        ("c.csv", b"self,actual\n\xff.npy,b\n", "c.csv: 'utf-8' codec can't decode"),
        ("c.json", b'[{"self": "\xff"}]', "c.json: 'utf-8' codec can't decode"),
        ("c.json", b'[{"self": null, "actual": "a.npy"}]', "case 1: silu_backward: expected grad_output=FILE"),
        ("c.csv", b"name,grad_output,self,actual\none,a.npy,a.npy,b.npy\n", "case one: a.npy: No such file"),
    ],
)
def test_an_unusable_list_is_reported_with_its_line(tmp_path, name, content, text):
    files.write(tmp_path / "a.npy" if "null" in str(content) else tmp_path / "other.npy", np.ones(3, np.float32))
    (tmp_path / name).write_bytes(content)
    result = run("silu_backward", "--cases", tmp_path / name)
    assert result.exit_code == 1
    shown = result.stderr.replace("\n", "").replace(f"{tmp_path}/", "")
    assert text in shown.replace("[161001 ACLNN_ERR_PARAM_NULLPTR] ", "")


def test_a_list_saved_by_excel_is_read(tmp_path):
    dump(tmp_path, ".npy")
    (tmp_path / "c.csv").write_bytes(
        b"\xef\xbb\xbfgrad_output,self,actual\r\ngrad_output.npy,self.npy,grad_input.npy\r\n"
    )
    result = run("silu_backward", "--cases", tmp_path / "c.csv")
    assert result.exit_code == 0, result.output


def test_hidden_folders_are_not_cases(tmp_path):
    for name in ("one", ".git"):
        (tmp_path / name).mkdir()
    dump(tmp_path / "one", ".npy")
    assert run("silu_backward", "--cases", tmp_path).exit_code == 0


def test_folders_with_dots_in_their_names_are_distinguished(tmp_path):
    """Folder names keep what follows a dot, and layer.10 comes after layer.2."""
    names = ["layer.0", "layer.2", "layer.10"]
    for name in names:
        (tmp_path / name).mkdir()
        dump(tmp_path / name, ".npy")
    result = run("silu_backward", "--cases", tmp_path, "--json", "-")
    assert [case["name"] for case in json.loads(result.stdout)["cases"]] == names


def test_a_case_whose_name_xml_lacks_is_reported(tmp_path):
    words = dump(tmp_path, ".npy")
    case = {"name": "a\x01b", "actual": words.pop("grad_input"), **words}
    (tmp_path / "list.json").write_text(json.dumps([case]))
    assert run("silu_backward", "--cases", tmp_path / "list.json", "--junit", tmp_path / "r.xml").exit_code == 0
    (test,) = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert test.get("name") == "a\ufffdb grad_input"


@pytest.mark.parametrize("option", ["--html", "--json"])
@pytest.mark.parametrize("read", ["self", "actual", "third", "cases", "of a case", "link"])
def test_a_report_is_not_written_over_what_is_read(tmp_path, option, read):
    """A report must not overwrite an input."""
    words = dump(tmp_path, ".npy")
    x, out = words["self"], words["grad_input"]
    files.write(tmp_path / "third.npy", files.read(out))
    (tmp_path / "list.csv").write_text(f"grad_output,self,actual\n{words['grad_output']},self.npy,{out}\n")
    (tmp_path / "link.npy").symlink_to(x)
    place = {"self": x, "actual": out, "third": tmp_path / "third.npy", "cases": tmp_path / "list.csv", "of a case": x}
    path = Path(place.get(read, tmp_path / "link.npy"))
    before = path.read_bytes()
    if read in ("cases", "of a case"):
        result = run("silu_backward", "--cases", tmp_path / "list.csv", option, path)
    else:
        third = ("--third", tmp_path / "third.npy")
        given = (f"grad_output={words['grad_output']}", f"self={x}", "--actual", out)
        result = run("silu_backward", *given, *third, option, path)
    assert result.exit_code == 2
    name = {"actual": "grad_input", "third": "grad_input", "cases": "--cases"}.get(read, "self")
    case = "case 1: " if read == "of a case" else ""
    expected = f"{case}{option}: expected a file of its own, got {str(path)!r}, which is that of {name}"
    assert expected in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["[/red]", "[bold", "x\x1b[31m\x9b2J\x07"])
def test_a_case_may_be_called_anything(tmp_path, monkeypatch, name):
    """Markup and control characters in names are escaped."""
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", console._Plain(file=screen, force_terminal=True, width=200))
    words = dump(tmp_path, ".npy")
    case = {"name": name, "actual": words.pop("grad_input"), **words}
    (tmp_path / "list.json").write_text(json.dumps([case]))
    verify, asked = command.verify_case, time.monotonic() + 10
    shown = "x\\x1b[31m\\x9b2J\\x07" if name.startswith("x") else name

    def slowly(*arguments):
        verified = verify(*arguments)
        while f"verifying {shown[0]}" not in screen.getvalue() and time.monotonic() < asked:
            time.sleep(0.01)
        return verified

    monkeypatch.setattr(command, "verify_case", slowly)
    result = run("silu_backward", "--cases", tmp_path / "list.json")
    assert result.exit_code == 0, result.output
    assert f"PASS {shown}" in result.stdout
    assert f"verifying {shown}" in screen.getvalue()
    case["self"] = f"absent{name}.npy"
    (tmp_path / "list.json").write_text(json.dumps([case]))
    result = run("silu_backward", "--cases", tmp_path / "list.json")
    assert result.exit_code == 1
    assert f"absent{shown}.npy" in screen.getvalue()


def test_a_path_is_printed_as_it_is(tmp_path):
    (tmp_path / ":smile:").mkdir()
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 1
    assert "in case :smile:, got none" in result.stderr


def test_malformed_lists_of_cases_are_rejected(tmp_path):
    for text in ("", "not json", "{}", "[1]"):
        (tmp_path / "c.json").write_text(text)
        assert run("silu_backward", "--cases", tmp_path / "c.json").exit_code == 1
    (tmp_path / "c.csv").write_text("self,actual\na.npy,b.npy,c.npy\n")
    assert run("silu_backward", "--cases", tmp_path / "c.csv").exit_code == 1


def test_files_named_by_position_are_inputs_and_outputs(tmp_path):
    dy, x = np.random.default_rng(8).normal(size=(2, 3, 40)).astype(np.float32)
    case = tmp_path / "case_0"
    case.mkdir()
    for name, values in (("input0", dy), ("input_1", x), ("output_0", np.array(aclnn.silu_backward(dy, x)))):
        values.tofile(case / f"{name}.bin")
    result = run("silu_backward", "--cases", tmp_path, "--dtype", "float32", "--shape", "3,40")
    assert result.exit_code == 0, result.stderr


def test_one_standard_counts_unless_others_are_asked_for(tmp_path):
    """NumPy's float32 SiLU gradient, which fails mere-mare near the derivative's zero, passes by default."""
    dy, x = np.random.default_rng(8).normal(size=(2, 1 << 15)).astype(np.float32)
    x[:8] = np.float32(-1.278464)
    for name, values in (("dy", dy), ("x", x), ("dx", literal("silu_backward")(grad_output=dy, self=x))):
        np.save(tmp_path / f"{name}.npy", values)
    words = (
        "silu_backward",
        f"grad_output={tmp_path}/dy.npy",
        f"self={tmp_path}/x.npy",
        "--actual",
        f"{tmp_path}/dx.npy",
    )
    usual = run(*words)
    assert usual.exit_code == 0
    assert usual.stdout.startswith("PASS silu_backward: grad_input passes mixed (")
    assert "ULP at [" in usual.stdout.splitlines()[0]
    assert "; probable cause: terms about" in usual.stdout.splitlines()[0]
    assert run(*words, "--all-standards").exit_code == 1
    assert run(*words, "--standard", "mere-mare").exit_code == 1
    assert run(*words, "--standard", "mixed", "--all-standards").exit_code == 2
