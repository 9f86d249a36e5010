"""Folders and lists that other tools write: msprobe's dumps, ATK's tasks, TTK's lists with their dumps."""

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest

import aclnn
from aclnn import io as files
from aclnn.verify.number_formats import FORMATS
from tests.helpers.verify_command import run


def random(*shape, dtype="float32"):
    return np.random.default_rng(8).normal(size=shape).astype(FORMATS[dtype].dtype.numpy)


def test_a_dump_of_msprobe_is_a_list_of_cases(tmp_path):
    """dump.json and dump_tensor_data have forward calls, and backward calls, which take x from the forward ones."""
    dy, x = np.random.default_rng(8).normal(size=(2, 3, 40)).astype(np.float32)
    files_of = tmp_path / "dump_tensor_data"
    files_of.mkdir()
    entries = {}
    for number in (0, 1):
        key = f"Functional.silu.{number}"
        tensors = {
            f"{key}.forward.input.0": x,
            f"{key}.forward.output.0": np.array(aclnn.silu(x)) + number,
            f"{key}.backward.input.0": dy,
            f"{key}.backward.output.0": np.array(aclnn.silu_backward(dy, x)),
        }
        for name, values in tensors.items():
            np.save(files_of / f"{name}.npy", values)
        told = {name: [{"type": "torch.Tensor", "data_name": f"{name}.npy"}] for name in tensors}
        entries[f"{key}.forward"] = {
            "input_args": told[f"{key}.forward.input.0"],
            "input_kwargs": {"inplace": {"type": "bool", "value": False}},
            "output": told[f"{key}.forward.output.0"],
        }
        entries[f"{key}.backward"] = {
            "input": told[f"{key}.backward.input.0"],
            "output": told[f"{key}.backward.output.0"],
        }
    (tmp_path / "dump.json").write_text(json.dumps({"task": "tensor", "data": entries}))
    backward = run("silu_backward", "--cases", tmp_path)
    assert backward.exit_code == 0, backward.stderr
    assert backward.stdout.splitlines()[-1] == "2 cases: 2 pass"
    forward = run("silu", "--cases", tmp_path, "--junit", tmp_path / "r.xml")
    assert forward.exit_code == 1
    assert forward.stdout.splitlines()[-1] == "2 cases: 1 pass, 1 fail"
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (failed,) = (test for test in suite if len(test))
    assert failed.get("name") == "Functional.silu.1.forward out"
    none = run("mish", "--cases", tmp_path)
    assert none.exit_code == 1
    assert "expected a call of mish in dump.json, got none" in none.stderr


@pytest.mark.parametrize("text", ["[]", '{"data": 1}', '{"data": {"a.b.0.forward": 1}}', "{", "[" * 100_000])
def test_files_that_are_not_dumps_are_rejected(tmp_path, text):
    (tmp_path / "dump.json").write_text(text)
    result = run("silu", "--cases", tmp_path)
    assert result.exit_code == 1
    assert "expected msprobe's dump with tensors" in result.stderr


def test_dumps_of_steps_ranks_and_modules_are_cases(tmp_path):
    """msprobe dumps to step0/rank0 …, with entries of modules, and keyword arguments for attributes."""
    dy, x = np.random.default_rng(8).normal(size=(2, 3, 40)).astype(np.float32)
    for rank in (0, 1):
        place = tmp_path / "step0" / f"rank{rank}"
        (place / "dump_tensor_data").mkdir(parents=True)
        forward, backward = "Module.act.LeakyReLU.forward.0", "Module.act.LeakyReLU.backward.0"
        out = np.array(aclnn.leaky_relu_backward(dy, x, 0.2, False)) * np.float32(1 + rank)
        for name, values in ((f"{forward}.input.0", x), (f"{backward}.input.0", dy), (f"{backward}.output.0", out)):
            np.save(place / "dump_tensor_data" / f"{name}.npy", values)
        tensor = {"type": "torch.Tensor"}
        entries = {
            forward: {
                "input_args": [{**tensor, "data_name": f"{forward}.input.0.npy"}],
                "input_kwargs": {"negative_slope": {"type": "float", "value": 0.2}},
            },
            backward: {
                "input": [{**tensor, "data_name": f"{backward}.input.0.npy"}],
                "output": [{**tensor, "data_name": f"{backward}.output.0.npy"}],
            },
        }
        (place / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L0", "data": entries}))
    result = run("leaky_relu_backward", "--cases", tmp_path)
    assert result.exit_code == 1, result.stderr
    assert result.stdout.splitlines()[-1] == "2 cases: 1 pass, 1 fail"
    assert "PASS step0/rank0/Module.act.LeakyReLU.backward.0" in result.stdout


def task_of_atk(folder, cases, nodes=("pyaclnn_0", "cpu_0"), protocol=4):
    """A task folder as ``atk task --save_data input --save_data output`` leaves it.

    Args:
        folder: the task's.
        cases: arguments of each call, by the case's number, and its output.
        nodes: the first has the output, any other the output in float32.
        protocol: of pickle; ATK writes 4.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def tensor(value):
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype.name == "bfloat16":
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value)

    for number, (arguments, output) in cases.items():
        place = folder / "input" / "silu" / str(number)
        place.mkdir(parents=True)
        torch.save([tensor(value) for value in arguments], place / "input.bin", pickle_protocol=protocol)
        for node in nodes:
            place = folder / "output" / node / "silu" / str(number)
            place.mkdir(parents=True)
            saved = tensor(output if node == nodes[0] else output.astype(np.float32))
            torch.save(saved, place / "output_0.pt", pickle_protocol=protocol)
            told = [[{"dtype": str(saved.dtype), "shape": list(saved.shape), "stride": list(saved.stride())}]]
            (place / "output_info.json").write_text(json.dumps(told))
    (folder / "report").mkdir()
    (folder / "log").mkdir()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_task_of_atk_is_a_list_of_cases(tmp_path, dtype, protocol):
    """The node under test is compared, the CPU's is not, and cases are in numerical order."""
    dy, x = random(2, 3, 40, dtype=dtype)
    right = np.array(aclnn.silu_backward(dy, x))
    wrong = (right.astype(np.float32) * 3).astype(right.dtype)
    task_of_atk(tmp_path, {10: ((dy, x), wrong), 2: ((dy, x), right)}, protocol=protocol)
    result = run("silu_backward", "--cases", tmp_path, "--json", tmp_path / "r.json")
    assert result.exit_code == 1, result.stderr
    assert result.stdout.splitlines()[-1] == "2 cases: 1 pass, 1 fail"
    verified = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert [case["name"] for case in verified] == ["pyaclnn_0/silu/2", "pyaclnn_0/silu/10"]
    assert [case["verdict"] for case in verified] == ["pass", "fail"]


def test_arguments_of_atk_are_attributes_by_their_place(tmp_path):
    """ELU's gradient has dy, three scalars, a bool and y; an attribute on the command line has precedence."""
    dy, x = random(2, 3, 40)
    right = np.array(aclnn.elu_backward(dy, 0.5, 2.0, 3.0, False, x))
    task_of_atk(tmp_path, {0: ((dy, 0.5, 2.0, 3.0, False, x), right)})
    assert run("elu_backward", "--cases", tmp_path).exit_code == 0
    assert run("elu_backward", "alpha=0.25", "--cases", tmp_path).exit_code == 1


def test_a_node_on_a_gpu_gives_the_third_output(tmp_path):
    dy, x = random(2, 3, 40)
    right = np.array(aclnn.silu_backward(dy, x))
    for folder, nodes, status in (("two", ("npu_0", "cpu_0"), 1), ("three", ("npu_0", "cpu_0", "gpu_reference"), 0)):
        task_of_atk(tmp_path / folder, {0: ((dy, x), right)}, nodes=nodes)
        result = run("silu_backward", "--cases", tmp_path / folder, "--standard", "commercial-L1")
        assert result.exit_code == status, result.stderr + result.stdout


def test_raw_outputs_of_atk_take_what_their_info_says(tmp_path):
    """Arrays are raw bytes, with data type and shape in output_info.json."""
    dy, x = random(2, 3, 40)
    right = np.array(aclnn.silu_backward(dy, x))
    task_of_atk(tmp_path, {0: ((dy, x), right)}, nodes=("pyaclnn_0",))
    place = tmp_path / "output" / "pyaclnn_0" / "silu" / "0"
    (place / "output_0.pt").unlink()
    right.tofile(place / "output_0.bin")
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 0, result.stderr


def test_outputs_of_atk_are_identified_by_their_numbers(tmp_path):
    """A second output without the first is not mistaken for the first."""
    dy, x = random(2, 3, 40)
    task_of_atk(tmp_path, {0: ((dy, x), np.array(aclnn.silu_backward(dy, x)))}, nodes=("pyaclnn_0",))
    place = tmp_path / "output" / "pyaclnn_0" / "silu" / "0"
    (place / "output_0.pt").rename(place / "output_1.pt")
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 1
    assert "expected at most 1 outputs of silu_backward, got output_1.pt" in result.stderr.replace("\n", " ")


def test_copies_next_to_the_outputs_of_atk_are_ignored(tmp_path):
    """Names such as '0_old' are no output numbers."""
    dy, x = random(2, 3, 40)
    task_of_atk(tmp_path, {0: ((dy, x), np.array(aclnn.silu_backward(dy, x)))})
    np.save(tmp_path / "output" / "pyaclnn_0" / "silu" / "0" / "output_0_old.npy", x)
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (lambda dy, x: (dy,), "expected self=FILE, got none"),
        (lambda dy, x: (dy, 1.0), "expected a tensor for self, got float"),
        (lambda dy, x: (dy, x, x), "expected at most 2 arguments of silu_backward, got 3"),
        (None, "expected input/…/0/input.bin, as --save_data input writes it, got none"),
    ],
)
def test_a_task_of_atk_that_does_not_fit_is_rejected(tmp_path, arguments, text):
    dy, x = random(2, 3, 40)
    task_of_atk(tmp_path, {0: ((arguments or (lambda *both: both))(dy, x), dy)})
    if arguments is None:
        (tmp_path / "input" / "silu" / "0" / "input.bin").unlink()
    result = run("silu_backward", "--cases", tmp_path)
    assert result.exit_code == 1
    assert text in result.stderr.replace("\n", " ")


def list_of_ttk(folder, rows, **columns):
    """Make a list of ``ttk aclnn``, whose cells are Python literals."""
    rows = [{**columns, **row} for row in rows]
    with (folder / "cases.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "cases.csv"


@pytest.mark.parametrize("suffix", [".bin", ".npy", ".pt"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_list_of_ttk_finds_its_dumps(tmp_path, suffix, dtype):
    """Inputs have the shapes of their views, outputs are flat; a case without a dump is omitted."""
    if suffix == ".pt":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    dy, x = random(2, 3, 40, dtype=dtype)
    right = np.array(aclnn.silu_backward(dy, x))
    wrong = (right.astype(np.float32) * 3).astype(right.dtype)
    for name, output in (("silu_1", right), ("other", wrong)):
        dumped = (("input_tensor_0", dy), ("input_tensor_1", x), ("output_0", output.ravel()), ("golden_0", right))
        for what, values in dumped:
            files.write(tmp_path / f"{name}_{what}{suffix}", values)
    rows = [
        {"testcase_name": "silu_1"},
        {"testcase_name": "silu_2", "dump_file_prefix": "other"},
        {"testcase_name": "silu_3"},
        {"testcase_name": "silu_1", "is_enabled": "False"},
        {"testcase_name": "silu_1", "api_name": "aclnnGelu"},
    ]
    short = {"float32": "fp32"}.get(dtype, dtype)
    columns = {"tensor_view_shapes": str(((3, 40),) * 3), "tensor_dtypes": str((short,))}
    path = list_of_ttk(tmp_path, rows, api_name="aclnnSiluBackward", **columns)
    result = run("silu_backward", "--cases", path, "--json", tmp_path / "r.json")
    assert result.exit_code == 1, result.stderr
    assert result.stdout.splitlines()[-1] == "2 cases: 1 pass, 1 fail"
    verified = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert [(case["name"], case["verdict"]) for case in verified] == [("silu_1", "pass"), ("silu_2", "fail")]


def test_a_failed_case_of_ttk_is_found_by_its_infix(tmp_path):
    dy, x = random(2, 3, 40)
    for what, values in (("input_0", dy), ("input_1", x), ("output_0", np.array(aclnn.silu_backward(dy, x)))):
        values.tofile(tmp_path / f"a_fail_{what}.bin")
    row = {"testcase_name": "a", "api_name": "aclnnSiluBackward"}
    shapes = {"tensor_view_shapes": str(((3, 40),) * 3), "tensor_dtypes": "('float32',)"}
    assert run("silu_backward", "--cases", list_of_ttk(tmp_path, [row], **shapes)).exit_code == 0


def test_in_place_functions_and_attributes_of_ttk_are_identified_by_the_list(tmp_path):
    """InplaceElu's only tensor is both input and output."""
    x = random(3, 40)
    for what, values in (("input_tensor_0", x), ("output_0", np.array(aclnn.elu(x, 0.5, 2.0, 3.0)))):
        values.tofile(tmp_path / f"elu_{what}.bin")
    row = {
        "testcase_name": "elu",
        "api_name": "aclnnInplaceElu",
        "tensor_view_shapes": "((3, 40),)",
        "tensor_dtypes": "('float32',)",
        "output_tensor_indexes": "(0,)",
        "attributes": "{'alpha': 0.5, 'scale': 2.0, 'inputScale': 3.0}",
    }
    path = list_of_ttk(tmp_path, [row])
    assert run("elu", "--cases", path).exit_code == 0
    assert run("elu", "alpha=0.25", "--cases", path).exit_code == 1
    assert run("elu", "input_scale=0.25", "--cases", path).exit_code == 1, "has precedence under another name"
    assert run("elu", "input_scale=3.0", "--cases", path).exit_code == 0


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({"tensor_view_shapes": "((3, 40"}, "a: tensor_view_shapes: expected a Python literal, got '((3, 40'"),
        ({"tensor_view_shapes": ""}, "a: tensor_view_shapes: expected a Python literal, got 'nothing'"),
        ({"tensor_dtypes": "__import__('os')"}, "a: tensor_dtypes: expected a Python literal"),
        ({"tensor_view_shapes": "3"}, "cases.csv: a: "),
        ({"tensor_view_shapes": "(3, 40, 3)"}, "cases.csv: a: "),
        ({"attributes": "5"}, "cases.csv: a: attributes: expected a dictionary, got 5"),
        ({"attributes": "[1]"}, "cases.csv: a: attributes: expected a dictionary, got [1]"),
        ({"attributes": "{'beta': 1}"}, "cases.csv: a: silu_backward: expected one of"),
        ({"api_name": "aclnnGelu"}, "expected a case of aclnnSiluBackward with its output next to the list"),
        ({"testcase_name": "b"}, "expected a case of aclnnSiluBackward with its output next to the list"),
        ({"tensor_view_shapes": "((3, 40), (3, 41), (3, 40))"}, "case a: "),
    ],
)
def test_lists_of_ttk_that_do_not_fit_are_rejected(tmp_path, cells, text):
    dy, x = random(2, 3, 40)
    for what, values in (("input_tensor_0", dy), ("input_tensor_1", x), ("output_0", dy)):
        values.tofile(tmp_path / f"a_{what}.bin")
    usual = {"testcase_name": "a", "api_name": "aclnnSiluBackward", "tensor_dtypes": "('float32',)"}
    row = {**usual, "tensor_view_shapes": str(((3, 40),) * 3), **cells}
    result = run("silu_backward", "--cases", list_of_ttk(tmp_path, [row]))
    assert result.exit_code == 1
    assert text in result.stderr.replace("\n", " ")


def test_a_tensor_of_ttk_without_a_dump_is_rejected(tmp_path):
    random(3, 40).tofile(tmp_path / "a_output_0.bin")
    row = {"testcase_name": "a", "api_name": "aclnnSiluBackward", "tensor_dtypes": "('float32',)"}
    path = list_of_ttk(tmp_path, [{**row, "tensor_view_shapes": str(((3, 40),) * 3)}])
    result = run("silu_backward", "--cases", path)
    assert result.exit_code == 1
    assert "a: expected a_input_tensor_0 for grad_output, got none" in result.stderr.replace("\n", " ")
