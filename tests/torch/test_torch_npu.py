"""``aclnn torch-npu``, and torch_npu's wheel itself where a Python has it.

That is in a virtual environment of its own, which ``make test-all`` makes (npu/environment.py), or TORCH_NPU_PYTHON
names: with torch_npu installed a plain ``import torch`` needs the toolkit's environment.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aclnn.cli import programs, torch_npu
from aclnn.toolkit import task_queue, tree
from aclnn.toolkit import torch_npu as checks
from aclnn.toolkit.compiler import ToolkitError
from tests.helpers.toolkit_support import RUN_SECONDS, needs_toolkit

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1]
PYTHON = os.environ.get("TORCH_NPU_PYTHON") or str(Path(sys.prefix) / "torch-npu" / "bin" / "python")
needs_wheel = pytest.mark.skipif(not Path(PYTHON).exists(), reason="no environment with torch_npu (npu/environment.py)")
SOC_NAMES = ["Ascend950DT_9571", "Ascend910B2"]
EVERY_SOC = pytest.mark.parametrize("soc_name", [SOC_NAMES[0], pytest.param(SOC_NAMES[1], marks=pytest.mark.long)])


class Package:
    def __init__(self, version: str, root: Path) -> None:
        self.version = version
        self._root = root

    def locate_file(self, path: str) -> Path:
        return self._root / path


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    installed = {"torch": "2.13.0+cpu", "torch_npu": "2.13.0", "pyyaml": "6.0"}

    def distribution(name: str) -> Package:
        if name not in installed:
            raise PackageNotFoundError(name)
        return Package(installed[name], tmp_path)

    monkeypatch.setattr(checks, "distribution", distribution)
    monkeypatch.setattr(checks.sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return installed


class TestCheck:
    def test_matching_packages_are_accepted(self, packages: dict[str, str]) -> None:
        assert checks.check() == {"torch": "2.13.0+cpu", "torch_npu": "2.13.0"}

    @pytest.mark.parametrize("name", ["torch", "torch_npu", "pyyaml"])
    def test_missing_packages_are_named(self, packages: dict[str, str], name: str) -> None:
        del packages[name]
        with pytest.raises(ToolkitError, match=rf"^{name}: not installed: pip install"):
            checks.check()

    @pytest.mark.parametrize(("name", "version"), [("torch", "2.12.0+cpu"), ("torch_npu", "2.7.1.post2")])
    def test_another_version_is_named(self, packages: dict[str, str], name: str, version: str) -> None:
        packages[name] = version
        with pytest.raises(ToolkitError) as caught:
            checks.check()
        assert str(caught.value).startswith(f"{name}: expected 2.13.0, got {version}: pip install")

    def test_pytorchs_cuda_build_is_named(self, packages: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "torch" / "lib").mkdir(parents=True)
        (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
        with pytest.raises(ToolkitError, match="expected PyTorch's CPU build"):
            checks.check()

    @pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64")])
    def test_a_platform_without_a_wheel_is_named(
        self, packages: dict[str, str], monkeypatch: pytest.MonkeyPatch, system: str, machine: str
    ) -> None:
        monkeypatch.setattr(checks.sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        with pytest.raises(ToolkitError, match=f"expected Linux on x86_64 or aarch64.* on {machine}$"):
            checks.check()

    @pytest.mark.parametrize(
        "words",
        [
            ["run", "--soc-name", SOC_NAMES[0]],
            ["--soc-name", SOC_NAMES[0], "run"],
            ["--soc-name", SOC_NAMES[1], "run", "--soc-name", SOC_NAMES[0]],
        ],
        ids=["after run", "before run", "the one after run wins"],
    )
    def test_run_replaces_this_process_by_one_with_the_environment(
        self, packages: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
    ) -> None:
        calls: list[Any] = []
        monkeypatch.setattr(programs.os, "execve", lambda *arguments: calls.append(arguments))
        monkeypatch.setattr(tree, "ensure", lambda: tmp_path)
        monkeypatch.delenv("TASK_QUEUE_ENABLE", raising=False)
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
        assert CliRunner().invoke(torch_npu.app, [*words, "train.py", "--lr", "1"]).exit_code == 0
        ((path, arguments, environment),) = calls
        assert path == sys.executable
        assert arguments == [sys.executable, "train.py", "--lr", "1"]
        assert environment["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(tmp_path / "cann" / "lib64")
        expected = {"ASCEND_HOME_PATH": str(tmp_path), "TASK_QUEUE_ENABLE": "0", "ACLNN_SOC_NAME": "Ascend950DT_9571"}
        expected["OPENBLAS_NUM_THREADS"] = "1"
        assert expected.items() <= environment.items()


def test_the_command_names_the_missing_package() -> None:
    done = subprocess.run([sys.executable, "-m", "aclnn", "torch-npu"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("aclnn: ")
    assert len(done.stderr.splitlines()) == 1


class TestTaskQueue:
    def test_the_task_queue_is_used_by_torch_npu_unless_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TASK_QUEUE_ENABLE", raising=False)
        assert not task_queue.is_used()
        monkeypatch.setitem(sys.modules, "torch_npu", sys)
        assert task_queue.is_used(), "torch_npu's own default"
        monkeypatch.setenv("TASK_QUEUE_ENABLE", "2")
        assert task_queue.is_used()
        monkeypatch.setenv("TASK_QUEUE_ENABLE", "0")
        assert not task_queue.is_used()


def started(*arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start a Python program, given by ``-c`` or by other arguments."""
    given = arguments if len(arguments) > 1 else ("-c", *arguments)
    command = [PYTHON, "-m", "aclnn", "torch-npu", "run", *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env)


def run(*arguments: str, timeout_s: float = RUN_SECONDS, **env: str) -> tuple[str, str]:
    """Return output and errors of a program, which is given as to ``started``."""
    with started(*arguments, **env) as process:
        try:
            output = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()
    assert process.returncode == 0, output
    return output


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
#: Functions of torch_npu that need an operator which there is not, by name and by type.
ABSENT = (
    "torch.ops.npu.npu_fused_causal_conv1d(*(torch.ones(*shape, device='npu', dtype=torch.half)"
    " for shape in ((4, 64), (3, 64), (2, 3, 64))))"
)
ABSENT_TYPE = "torch_npu.npu_nms_with_mask(torch.ones(16, 5, device='npu'), 0.5)"
QUEUED = """
import torch, torch_npu
x = torch.empty(1 << 16, device="npu")
for _ in range(400):
    y = torch.nn.functional.silu(x)
"""


@needs_wheel
@needs_toolkit
@pytest.mark.toolkit
class TestWheel:
    @pytest.mark.long
    def test_segments_grow_where_they_are(self, tmp_path: Path) -> None:
        """Expandable segments, which training scripts enable against fragmentation, need virtual memory."""
        calls = tmp_path / "calls"
        out, _ = run(
            "import torch, torch_npu\n"
            "parts = [torch.ones(1 << 20, device='npu') for _ in range(8)]\n"
            "print(sum(part.sum() for part in parts).item())\n"
            "del parts\n"
            "torch.npu.empty_cache()\n"
            "print(torch.npu.memory_reserved(), torch.ones(1 << 24, device='npu').sum().item())\n",
            PYTORCH_NPU_ALLOC_CONF="expandable_segments:True",
            ACLNN_TRACE=str(calls),
        )
        assert out.split() == ["8388608.0", "0", "16777216.0"]
        assert "aclrtMapMem" in calls.read_text()

    @EVERY_SOC
    def test_programs_use_devices_streams_events_and_memory(self, soc_name: str) -> None:
        cores = {"Ascend950DT_9571": (28, 56), "Ascend910B2": (24, 48)}[soc_name]
        out, err = run(
            "import torch, torch_npu\n"
            "assert torch.npu.is_available() and torch.npu.device_count() == 1\n"
            "x = torch.empty(4, device='npu')\n"
            "assert str(x.device) == 'npu:0'\n"
            "has = torch.npu.get_device_properties(0)\n"
            "print(has.name, has.cube_core_num, has.vector_core_num, has.total_memory)\n"
            "stream, begin, end = torch.npu.Stream(), *(torch.npu.Event(enable_timing=True) for _ in range(2))\n"
            "with torch.npu.stream(stream):\n"
            "    begin.record(); y = torch.nn.functional.silu(x); end.record()\n"
            "stream.synchronize(); torch.npu.current_stream().wait_event(end); torch.npu.synchronize()\n"
            "assert begin.query() and end.query() and begin.elapsed_time(end) >= 0\n"
            "assert torch.ones(16).pin_memory().is_pinned()\n"
            "assert torch.npu.mem_get_info()[1] == has.total_memory and torch.npu.memory_allocated() > 0\n"
            "torch.npu.empty_cache()\n",
            ACLNN_SOC_NAME=soc_name,
            ACLNN_MEMORY_BYTES=str(1 << 30),
        )
        assert out == f"{soc_name} {cores[0]} {cores[1]} {1 << 30}\n"
        if soc_name == SOC_NAMES[0]:  # of older products torch_npu warns that its allocator pads
            assert err == ""

    @pytest.mark.parametrize(
        "mode", ["0", pytest.param("1", marks=pytest.mark.long), pytest.param("2", marks=pytest.mark.long)]
    )
    @EVERY_SOC
    def test_the_torch_npu_tests_pass(self, soc_name: str, mode: str) -> None:
        options = ["-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", str(HERE / "npu")]
        out, _ = run(
            "-m", "pytest", *options, str(HERE / "npu"), ACLNN_SOC_NAME=soc_name, TASK_QUEUE_ENABLE=mode, timeout_s=600
        )
        assert " passed" in out
        assert "failed" not in out

    def test_the_documented_script_prints_what_is_documented(self) -> None:
        page = (HERE.parent / "docs" / "torch-npu.md").read_text()
        script = page.partition("```python\n")[2].partition("```")[0]
        expected = [line.removeprefix("# -> ") for line in script.splitlines() if line.startswith("# -> ")]
        assert run(script)[0].splitlines() == expected

    @pytest.mark.long
    @pytest.mark.parametrize("size", [1, 2, 3, 4])
    def test_ranks_communicate_and_train_as_over_gloo(self, size: int) -> None:
        out, _ = run(*TORCHRUN, str(size), "-m", "tests.npu.ranks", timeout_s=300)
        assert sorted(line[:11] for line in out.splitlines() if line.startswith("rank ")) == [
            f"rank {rank} of {size}" for rank in range(size)
        ]

    @pytest.mark.long
    @EVERY_SOC
    def test_ranks_exchange_matrix_products(self, soc_name: str) -> None:
        out, _ = run(*TORCHRUN, "2", "-m", "tests.npu.products_with_ranks", ACLNN_SOC_NAME=soc_name, timeout_s=300)
        assert sorted(line for line in out.splitlines() if line.startswith("rank ")) == [
            f"rank {rank} of 2: products" for rank in range(2)
        ]

    @pytest.mark.long
    @EVERY_SOC
    def test_ranks_exchange_tokens_of_experts(self, soc_name: str) -> None:
        out, _ = run(*TORCHRUN, "2", "-m", "tests.npu.experts_with_ranks", ACLNN_SOC_NAME=soc_name, timeout_s=300)
        assert sorted(line for line in out.splitlines() if line.startswith("rank ")) == [
            f"rank {rank} of 2: experts" for rank in range(2)
        ]

    @pytest.mark.long
    @pytest.mark.parametrize("size", [1, 2])
    def test_deepspeed_trains_as_plain_pytorch(self, size: int) -> None:
        if run("import importlib.util; print(importlib.util.find_spec('deepspeed'))")[0] == "None\n":
            pytest.skip("no DeepSpeed with torch_npu (npu/deepspeed_trainings.py says how to install it)")
        out, _ = run(*TORCHRUN, str(size), "-m", "tests.npu.deepspeed_trainings", timeout_s=900)
        assert sorted(line[:11] for line in out.splitlines() if line.startswith("rank ")) == [
            f"rank {rank} of {size}" for rank in range(size)
        ]

    @pytest.mark.long
    def test_the_example_of_several_ranks_prints_what_is_documented(self) -> None:
        page = (HERE.parent / "docs" / "torch-npu.md").read_text()
        out, _ = run(*TORCHRUN, "2", str(HERE.parent / "examples" / "torch_npu" / "distributed.py"), timeout_s=300)
        losses = [line for line in out.splitlines() if "2 ranks" in line]
        assert len(losses) == 2
        assert all(line in page for line in losses)

    def test_a_missing_environment_is_reported(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        done = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, text=True, env=environment)
        assert done.returncode
        assert "libhccl.so" in done.stderr or "ASCEND" in done.stderr

    @pytest.mark.parametrize(
        "mode", [pytest.param("0", marks=pytest.mark.long), pytest.param("1", marks=pytest.mark.long), "2"]
    )
    def test_a_process_with_operators_queued_ends(self, mode: str) -> None:
        """With task queue 2, torch_npu waits at exit for its launch thread while it holds the GIL."""
        assert run(f"{QUEUED}print('end')", TASK_QUEUE_ENABLE=mode)[0] == "end\n"

    @pytest.mark.long
    @pytest.mark.parametrize("mode", ["0", "1", "2"])
    def test_twenty_processes_with_operators_queued_end(self, mode: str) -> None:
        for _ in range(20):
            assert run(f"{QUEUED}print('end')", timeout_s=60, TASK_QUEUE_ENABLE=mode)[0] == "end\n"

    def test_a_trace_lists_what_was_called_and_what_was_missing(self) -> None:
        script = (
            "import torch, torch_npu\n"
            "x = torch.ones(4, 4, device='npu')\n"
            "for _ in range(3):\n    y = x @ x\n"
            f"try:\n    {ABSENT}\nfinally:\n    print((y + 1).cpu()[0, 0].item())\n"
        )
        command = [PYTHON, "-m", "aclnn", "torch-npu", "--soc-name", SOC_NAMES[0], "run", "--trace", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
        assert (done.returncode, done.stdout) == (1, "5.0\n")
        listed = {line.split()[0]: line.split()[1:] for line in done.stderr.splitlines() if line.startswith("aclnn")}
        assert listed["aclnnMatmul" if "aclnnMatmul" in listed else "aclnnMm"][:2] == ["3", "calls"]
        assert float(listed["aclnnAdds"][2]) > 0
        assert done.stderr.splitlines()[-1].startswith("missing: ")
        assert "aclnnFusedCausalConv1d" in done.stderr.splitlines()[-1]

    @pytest.mark.parametrize(
        ("soc_name", "absent", "missing"),
        [
            ("Ascend910B2", ABSENT_TYPE, "NMSWithMask"),
            ("Ascend910B2", ABSENT, "aclnnFusedCausalConv1d"),
            ("Ascend950DT_9571", ABSENT, "aclnnFusedCausalConv1d"),
        ],
    )
    def test_a_trace_lists_an_operator_whose_error_the_script_caught(
        self, soc_name: str, absent: str, missing: str
    ) -> None:
        """Missing operators are found in calls, not only in torch_npu's messages on standard error."""
        script = f"import torch, torch_npu\ntry:\n    {absent}\nexcept RuntimeError:\n    print('caught')\n"
        command = [PYTHON, "-m", "aclnn", "torch-npu", "--soc-name", soc_name, "run", "--trace", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
        assert (done.returncode, done.stdout) == (0, "caught\n")
        assert done.stderr.splitlines()[-1] == f"missing: {missing}"

    @pytest.mark.long
    def test_a_wait_that_never_ends_is_reported(self) -> None:
        """Like torch_npu's ``empty_cache``, wait with the GIL for a thread that makes calls."""
        script = (
            "import ctypes, sys, torch, torch_npu\n"
            "torch.ones(1, device='npu')\n"
            "entry = ctypes.CDLL('libascendcl.so').aclrtSynchronizeDevice\n"
            "locked = ctypes.PyDLL(None)\n"
            "sys.setswitchinterval(1000)\n"
            "locked.pthread_create(ctypes.byref(ctypes.c_ulong()), None, entry, None)\n"
            f"locked.sleep({RUN_SECONDS})\n"
        )
        with started(script, TASK_QUEUE_ENABLE="2") as process:
            told = any("set TASK_QUEUE_ENABLE=0" in line for line in process.stderr or ())
            process.kill()
        assert told

    def test_functions_without_an_implementation_return_an_error(self) -> None:
        """Operators for private formats exist by name only, and fail with a message."""
        out, _ = run(
            "import ctypes\nlib = ctypes.CDLL('libacl_op_compiler.so')\n"
            "lib.aclGetRecentErrMsg.restype = ctypes.c_char_p\n"
            "print(lib.aclmdlInitDump(), lib.aclGetRecentErrMsg().decode())\n"
            "value = ctypes.c_int64(7)\n"
            "print(lib.aclrtGetSysParamOpt(0, ctypes.byref(value)), value.value)\n"
        )
        assert out == (
            "200001 aclmdlInitDump: expected a function that this toolkit implements, got one that it only declares "
            "[200001]\n0 0\n"
        )
