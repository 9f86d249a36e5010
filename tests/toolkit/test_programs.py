"""C and C++ programs: the documents' samples as they are, and this project's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.c import memcheck
from tests.cases import CASES
from tests.cases.table import Case
from tests.helpers.toolkit_support import SAMPLES, Compile, needs_toolkit, run

pytestmark = [needs_toolkit, pytest.mark.toolkit]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "silu_backward.cpp"

#: What the documents' sample programs print.
PRINTED = {
    "fast_gelu_backward": "".join(f"result[{i}] is: 0.000000\n" for i in range(9)),
    "silu_backward": (
        "out result[0] is: 0.927671\nout result[1] is: 1.090784\nout result[2] is: 1.088104\n"
        "out result[3] is: 1.052665\nout result[4] is: 1.026547\nout result[5] is: 1.012326\n"
    ),
    # The sample's gradient is a vector of int, whose bits are the least subnormal float.
    "gelu_backward_v2": "".join(f"result[{i}] is: 0.000000\n" for i in range(8)),
    "hardswish_backward": (
        "result[0] is: 0.000000\nresult[1] is: 0.833333\nresult[2] is: 2.333333\nresult[3] is: 4.500000\n"
        "result[4] is: 4.000000\nresult[5] is: 5.000000\nresult[6] is: 6.000000\nresult[7] is: 7.000000\n"
    ),
    "layer_norm_backward": (
        "out result[0] is: -2.000000\nout result[1] is: -94.000000\nout result[2] is: -877.500000\n"
        "out result[3] is: -1747.500000\ndw result[0] is: 20.000000\ndw result[1] is: 62.000000\n"
        "db result[0] is: 6.000000\ndb result[1] is: 8.000000\n"
    ),
}


def sample(name: str) -> Path:
    path = SAMPLES / f"{name}.cpp"
    if not path.is_file():
        pytest.skip(f"the documents' sample programs are not here ({SAMPLES})")
    return path


@pytest.mark.parametrize("name", PRINTED)
def test_the_documents_programs_print_the_worked_values(compiled: Compile, name: str) -> None:
    done = run(compiled(sample(name), "-w"))
    assert done.stdout == PRINTED[name]
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_programs_pass_the_requested_workspace(compiled: Compile, name: str) -> None:
    done = run(compiled(sample(name), "-w"), env={"ACLNN_TEST_WORKSPACE_BYTES": "4096"})
    assert done.stdout == PRINTED[name]


def test_the_example_prints_what_readme_shows(compiled: Compile) -> None:
    _, shown = (ROOT / "README.md").read_text(encoding="utf-8").split(f"$ aclnn toolkit run examples/{EXAMPLE.name}\n")
    assert run(compiled(EXAMPLE)).stdout == shown[: shown.index("```")]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["elementwise", pytest.param("norms", marks=pytest.mark.long)])
def test_every_operator_runs_in_every_layout(compiled: Compile, part: str) -> None:
    done = run(compiled("operators.cpp"), part, timeout_s=600)
    assert done.stdout == {"elementwise": "735 cases\n", "norms": "84 cases\n"}[part]


def test_programs_initialize_allocate_and_read_error_texts(compiled: Compile) -> None:
    done = run(compiled("lifecycle.c"), env={"ACLNN_MEMORY_BYTES": str(1 << 28)})
    assert done.stdout == "ok\n"


def test_programs_use_streams_and_events(compiled: Compile) -> None:
    assert run(compiled("streams.cpp")).stdout == "ok\n"


def test_programs_use_notifies_and_values(compiled: Compile) -> None:
    assert run(compiled("notifies.cpp"), env={"ACLNN_SOC_NAME": "Ascend950DT_9571"}).stdout == "ok\n"


def test_programs_allocate_with_attributes_and_copy(compiled: Compile) -> None:
    assert run(compiled("memory.cpp"), env={"ACLNN_SOC_NAME": "Ascend910B2"}).stdout == "ok\n"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["flush", pytest.param("toward zero", marks=pytest.mark.long), "trap"])
def test_the_programs_floating_point_mode_changes_no_result(compiled: Compile, tmp_path: Path, mode: str) -> None:
    # A cache of its own: what is computed while kernels are compiled must not depend on the mode either.
    done = run(compiled("modes.c"), mode, env={"ACLNN_CACHE_DIR": str(tmp_path)})
    assert done.stdout == run(compiled("modes.c"), "default").stdout


@pytest.mark.slow
def test_eight_threads_with_ten_thousand_operators_each(compiled: Compile) -> None:
    assert run(compiled("threads.cpp"), 10_000, timeout_s=300).stdout == "80000 operators\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["compute", "threads", "exit"])
def test_programs_pass_address_and_undefined_behaviour_sanitizers(compiled: Compile, way: str) -> None:
    host = compiled("host.c", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    # The interpreter is never ended: all that it holds would count as leaked.
    done = run(host, way, env={"ASAN_OPTIONS": "detect_leaks=0"})
    assert done.stdout.startswith(f"{way}: 0\n")
    assert done.stderr == ""


def under_valgrind(root: Path, program: Path, *arguments: object) -> str:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    valgrind, *options = memcheck.command(root)
    done = run(Path(valgrind), *options, program, *arguments, timeout_s=600)
    assert memcheck.findings_in(done.stderr) == ""
    return done.stdout


@pytest.mark.long
def test_calls_pass_valgrind(toolkit_root: Path, compiled: Compile) -> None:
    assert under_valgrind(toolkit_root, compiled("host.c"), "statuses").endswith("statuses: 0\n")


@pytest.mark.long
def test_a_sample_passes_valgrind_with_the_documented_options(toolkit_root: Path, compiled: Compile) -> None:
    # One; python -m tests.c.memcheck runs them all.
    program = compiled(sample("hardswish_backward"), "-w")
    assert under_valgrind(toolkit_root, program) == PRINTED["hardswish_backward"]


@pytest.mark.parametrize("case", [case for case in CASES if case.name in PRINTED], ids=lambda case: case.name)
def test_the_samples_match_the_table(case: Case) -> None:
    printed = [line.rpartition(" ")[2] for line in PRINTED[case.name].splitlines()]
    assert printed == " ".join(case.examples[0].printed.values()).split()


def test_programs_run_operators_by_type(compiled: Compile) -> None:
    assert run(compiled("by_type.c")).stdout == "0\n-1 -0.5 1 2\n"


def test_two_processes_reduce_their_buffers(compiled: Compile) -> None:
    assert run(compiled("hccl.c", "-D_POSIX_C_SOURCE=200809L")).stdout == "pair: both ranks have the sum\n"
