"""``make gpu`` without a GPU: a small run of all its parts, its references and its checks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.long

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")

from benchmarks import gpu, gpu_checks, gpu_machine, gpu_speed  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_references_are_the_formulas() -> None:
    import aclnn
    from aclnn.kernels.sixteen_bit import evaluate

    assert aclnn.operators is not None
    modules = [sys.modules[f"aclnn.operators.{name}"] for name in ("fast_gelu", "gelu", "hardswish", "silu")]
    x = np.concatenate([np.linspace(-30.0, 30.0, 5001), [1e30, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0]])
    for name, reference in gpu_checks.references(torch).items():
        formula = next(vars(module)[name] for module in modules if name in vars(module))
        ours = reference(torch.from_numpy(x)).float()
        exact = torch.from_numpy(evaluate(formula, x))
        worst, at, wrong = gpu_checks.assess(torch, torch.from_numpy(x), ours, exact)
        assert worst <= 0.5001, (name, worst, at)
        assert wrong == 0, name


def test_assess_finds_errors() -> None:
    x = torch.tensor([1.0, 2.0, torch.inf, 3.0])
    exact = torch.tensor([1.0, 1.0, torch.nan, 1.0], dtype=torch.float64)
    off = 1.0 + 3 * torch.finfo(torch.float32).eps
    assess = gpu_checks.assess
    assert assess(torch, x, torch.tensor([1.0, off, 7.0, 1.0]), exact) == (3.0, 2.0, 1)
    assert assess(torch, x, torch.tensor([1.0, 1.0, torch.nan, torch.nan]), exact)[:2] == (torch.inf, 3.0)
    zeros = torch.zeros(2)
    assert assess(torch, zeros, zeros, zeros.double())[2] == 0
    assert assess(torch, zeros, -zeros, zeros.double())[2] == 2, "zeros of the wrong sign"
    assert [gpu.is_wrong(row) for row in ({"passed": False}, {"worst_ulp": 2.1}, {"wrong_special": 1})] == [True] * 3
    assert not any(map(gpu.is_wrong, ({"passed": True, "worst_ulp": 3.0}, {"worst_ulp": 2.0, "wrong_special": 0})))


def test_incomplete_steps_are_failures() -> None:
    """A walk stopped by its deadline, and omitted measurements, count as failures."""
    walked = {"operator": "silu", "worst_ulp": 0.0, "wrong_special": 0, "of": 2**32}
    assert gpu.is_wrong(walked | {"inputs": 0})
    assert gpu.is_wrong(walked | {"inputs": 2**32 - 2**24})
    assert not gpu.is_wrong(walked | {"inputs": 2**32})
    device = Broken()
    planned, left_out = list(gpu_speed.plans(device)), list(gpu_speed.speed(device, -1.0))
    assert [row["check"] for row in left_out] == [f"speed of {plan.label}" for plan in planned]
    assert all(map(gpu.is_wrong, left_out))


def test_errors_of_layer_norm_are_bounded_as_documented() -> None:
    """The bound is 48 units of float32's roundoff times the scale, and one rounding to a 16-bit type."""
    exact, scale = torch.full((2,), 1.0, dtype=torch.float64), torch.tensor([2.0, 2.0], dtype=torch.float64)
    for dtype, unit in ((torch.float32, 48 * 2.0**-23), (torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
        for units, right in ((0.9, True), (2.1, False)):
            off = torch.tensor([1.0, 1.0 + units * unit], dtype=torch.float64).to(dtype)
            assert gpu_checks.within(torch, off, exact, scale) is right, (dtype, units)


def test_slow_measurements_are_named() -> None:
    """Slow means: a large tensor's gradient below its share of a copy's speed, or slower than PyTorch."""
    large = {"operator": "silu_backward", "dtype": "torch.float32", "elements": 1 << 26, "sigma": 1.0}
    rows = {"operator": "layer_norm_backward", "dtype": "torch.float32", "rows": 1 << 15, "columns": 1024}

    def found(label: dict[str, Any], of_copy: float, theirs: float) -> int:
        ours = {**label, "what": "aclnn", "p50_us": 10.0, "of_copy": of_copy}
        return len(list(gpu_speed.too_slow([ours, {**label, "what": "PyTorch", "p50_us": theirs, "of_copy": 1.0}])))

    assert [found(large, 0.86, 11.0), found(large, 0.84, 11.0), found(large, 0.84, 9.0)] == [0, 1, 2]
    assert [found(rows, 0.71, 11.0), found(rows, 0.69, 9.0)] == [0, 2]
    assert found(large | {"sigma": 3.0}, 0.5, 9.0) == 1, "wide data: PyTorch's speed alone is asked for"
    assert found(large | {"elements": 1 << 12}, 0.1, 1.0) == found(large | {"operator": "silu"}, 0.1, 1.0) == 0


def test_a_numba_that_rejects_its_numpy_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert not gpu_checks.numba_runs()


def test_timed_calls_find_the_cache_filled_with_other_data() -> None:
    """An H200's cache of 50 MiB could hold most of a 16-bit tensor of 2^25 elements."""
    done: list[Any] = []

    class Stand:
        """Stands in for tensors, events and torch.cuda, and records calls."""

        def __getattr__(self, name: str) -> Any:
            return lambda *given, **options: done.append((name, *given)) or 2.5

    stand: Any = Stand()
    stand.cuda = cuda = Stand()
    cuda.Event = lambda enable_timing: Stand()  # type: ignore[attr-defined]
    stand.empty = lambda count, **options: done.append(count) or Stand()
    stand.uint8 = torch.uint8
    cuda.get_device_name = lambda: "a GPU"  # type: ignore[attr-defined]
    stand.device = torch.device
    at = gpu_machine.Gpu(stand)
    assert at.time_us(lambda: done.append("call"))[0] == 2500.0
    size, *steps = done
    assert size >= 4 * (50 << 20)
    names = [step if isinstance(step, str) else step[0] for step in steps]
    assert names == ["zero_", "_sleep", "record", "call", "record", "synchronize", "elapsed_time"]


def test_measured_kernels_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan is compiled in one of the shares, none is timed, and a failure does not affect the others."""
    called: list[int] = []

    def plans(at: Any) -> Any:
        for number in range(7):
            calls = {"copy": partial(called.append, number), "aclnn": lambda: 1 // 0}
            yield gpu_speed.Plan(str(number), 1 << (31 if number == 2 else 20), partial(rows, at, calls))

    def rows(at: Any, calls: Any) -> Any:
        yield from gpu_speed.rows_of(at, {"copy_bytes": 1}, 1, calls)

    monkeypatch.setattr(gpu_speed, "plans", plans)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "2")  # put back afterwards
    at: Any = SimpleNamespace(measuring=True, settle=lambda: None)
    for share in range(3):
        assert not list(gpu_speed.compile_ahead(share, 3, at, float("inf")))
    assert sorted(called) == [number for number in range(7) if number != 2 for _ in range(3)]
    assert at.measuring


def test_every_graph_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight graphs for one function, torch.compile silently runs it uncompiled."""
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: uncounted(function, backend=count, **options))

    def count(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    for number in range(12):
        gpu_speed.compiled_anew(torch, lambda x: x + 1)(torch.zeros(number + 2))
    assert len(compiled) == 12


uncounted = torch.compile


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(program, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: make gpu")
def test_the_benchmark_runs_in_tritons_interpreter(tmp_path: Path) -> None:
    """Run all three parts in Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    result = run("--dry-run", "--out", str(tmp_path), TRITON_INTERPRET="1")
    assert result.returncode == 0, result.stdout + result.stderr
    found = {path.stem: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(found) == set(gpu.PARTS)
    assert all(part["machine"]["gpu"] == "none: Triton's interpreter" for part in found.values())
    assert {row["operator"] for row in found["exhaustive"]["results"]} == {*gpu_checks.SLOPES, *gpu_checks.VALUES}
    speed = found["speed"]["results"]
    assert {row["what"] for row in speed} >= {"copy", "aclnn", "PyTorch"}
    assert {row["dtype"] for row in speed} == {"torch.float32", "torch.float16", "torch.bfloat16"}
    assert {row["operator"] for row in speed} >= {*gpu_checks.SLOPES, *gpu_checks.VALUES, "layer_norm"}
    assert {row.get("sigma") for row in speed} == {1.0, 3.0, None}
    assert all(row["host_us"] > 0.0 for row in speed)


class Broken:
    """A device whose operators fail."""

    def __init__(self) -> None:
        self.torch, self.device, self.sizes = torch, torch.device("cpu"), gpu_machine.Gpu.sizes

    def operator(self, name: str) -> Any:
        raise ValueError(f"no {name}")


def test_a_failure_does_not_affect_the_rest(tmp_path: Path) -> None:
    """Exceptions become rows of the report, in each section."""
    with (tmp_path / "rows").open("w") as lines:
        gpu.run_sections(["layouts", "door"], Broken(), float("inf"), lines)
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows[0] == {"check": "layouts", "passed": False, "text": rows[0]["text"]}
    assert len(rows) > 1


def test_a_hanging_measurement_is_stopped_and_its_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(script: str) -> list[dict[str, Any]]:
        def start(command: list[str], **options: Any) -> Any:
            return popen([sys.executable, "-c", script, command[command.index("--rows") + 1]], **options)

        monkeypatch.setattr(gpu.subprocess, "Popen", start)
        found: list[dict[str, Any]] = []
        gpu.run_part(gpu.Part(("speed",), 1.0, 1.0), False, found, saved.append)
        return found

    saved: list[Any] = []
    monkeypatch.setattr(gpu, "SAVED_EVERY_S", 0.5)
    popen = subprocess.Popen
    write = "import sys, time; open(sys.argv[1], 'w').write('{\"what\": 1}\\n{\"wh'); "
    assert job(write + "time.sleep(60)") == [
        {"what": 1}, {"check": "speed", "passed": False, "text": "stopped, its time was up"}
    ]  # fmt: skip
    assert saved[-1] == [{"what": 1}], "before it ended"
    kept, failed = job(write + "sys.exit('illegal memory access')")
    assert (kept, failed["text"]) == ({"what": 1}, "ended with 1: illegal memory access\n")
    child = "import time; open({!r}, 'w').write('begun'); time.sleep(3); open({!r}, 'w').write('left alone')"
    mark = str(tmp_path / "mark")
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child.format(mark, mark)!r}])"
    job(script)
    time.sleep(2.5)
    assert (tmp_path / "mark").read_text() == "begun", "what a section started ends with it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_cut_off_leaves_its_results(number: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    program = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", "--dry-run", "--out", str(tmp_path)]
    process = subprocess.Popen(program, cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, text=True)
    file = tmp_path / "checks.json"
    while not file.exists() or not json.loads(file.read_text())["results"]:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    code = process.wait(60)
    rows = json.loads(file.read_text())["results"]
    assert rows[0]["passed"]
    assert (code, rows[-1].get("text")) == ((130, "interrupted") if number == signal.SIGTERM else (-number, None))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    result = run("--out", str(tmp_path / "results"))
    assert result.returncode == 1
    assert "expected an NVIDIA GPU" in result.stderr
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named() -> None:
    program = "import sys; sys.modules['triton'] = None\nfrom benchmarks import gpu\ngpu.main()"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert "triton is not installed for" in result.stderr
