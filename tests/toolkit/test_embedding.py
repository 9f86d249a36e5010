"""The interpreter behind the libraries: found or started in every kind of process, or every call gets an error."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aclnn
from aclnn.toolkit import libraries, trampolines
from tests.helpers.toolkit_support import SOURCES, Compile, needs_toolkit, run

pytestmark = [needs_toolkit, pytest.mark.toolkit, pytest.mark.slow]
LIBRARIES = ("libascendcl.so", "libnnopbase.so", "libopapi.so", "libruntime.so")


@pytest.fixture
def host(toolkit_root: Path, tmp_path: Path) -> Path:
    """Compile a host program without a library path."""
    target = tmp_path / "host"
    libraries = ["-lopapi", "-lnnopbase", "-lascendcl", "-lpthread"]
    folders = [f"-I{toolkit_root}/include", f"-L{toolkit_root}/lib64"]
    subprocess.run(["cc", SOURCES / "host.c", "-o", target, *folders, *libraries], check=True)
    return target


@pytest.mark.parametrize("way", ["compute", "threads", "fork", "exit"])
def test_a_c_process_starts_and_exits_cleanly(compiled: Compile, way: str) -> None:
    done = run(compiled("host.c"), way)
    assert done.stderr == ""
    assert done.stdout.startswith(f"{way}: 0\n")
    if way == "exit":
        assert done.stdout.endswith("cleaned up: 0\n")


LOOKED = "looked\n"


@pytest.mark.parametrize(
    ("way", "printed"),
    {
        "return": "",
        "child": "",
        "handler": LOOKED,
        "later handler": LOOKED,
        "object": LOOKED,
        "new operator": "rejected with 561000\n",
    }.items(),
)
def test_leaving_while_a_stream_compiles_its_kernels_does_not_crash(
    compiled: Compile, tmp_path: Path, way: str, printed: str
) -> None:
    # Nothing compiled before: that takes seconds, in which LLVM's destructors ran.
    done = run(compiled("leaving.cpp"), way, env={"ACLNN_CACHE_DIR": str(tmp_path), "ACLNN_NUM_THREADS": "2"})
    assert done.stdout == printed
    assert done.stderr.count("\n") == (way == "new operator")


def test_calls_in_a_child_forked_after_the_first_call_fail_with_a_reason(compiled: Compile) -> None:
    done = run(compiled("host.c"), "fork-after")
    assert done.stderr == "aclnn: this process was forked after the first aclnn call; fork before it.\n"


@pytest.mark.parametrize("mode", ["LOCAL", pytest.param("GLOBAL", marks=pytest.mark.long)])
def test_libraries_open_in_any_order_and_find_every_symbol(toolkit_root: Path, compiled: Compile, mode: str) -> None:
    loader = compiled("loader.c")
    for order in itertools.permutations(LIBRARIES, 2):
        assert run(loader, mode, *(toolkit_root / "lib64" / name for name in order)).stdout == "ok\n"
    for name in (*LIBRARIES, "libopapi_nn.so"):
        assert run(loader, mode, toolkit_root / "lib64" / name).stdout == "ok\n"


def test_libraries_open_by_bare_name(toolkit_root: Path, compiled: Compile) -> None:
    env = {"LD_LIBRARY_PATH": str(toolkit_root / "lib64")}
    assert run(compiled("loader.c"), "LOCAL", *LIBRARIES, env=env).stdout == "ok\n"


def test_libraries_open_by_a_relative_path_from_another_directory(
    toolkit_root: Path, compiled: Compile, tmp_path: Path
) -> None:
    name = os.path.relpath(toolkit_root / "lib64" / "libopapi.so", tmp_path)
    assert run(compiled("loader.c"), "LOCAL", name, cwd=tmp_path).stdout == "ok\n"


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONHOME": "/nonexistent"},
        {"PYTHONPATH": "/nonexistent", "PYTHONSTARTUP": "/nonexistent"},
        {"PYTHONNOUSERSITE": "", "PYTHONSAFEPATH": "1", "PYTHONUTF8": "0", "LC_ALL": "C"},
        {"PYTHONINSPECT": "1", "PYTHONVERBOSE": "1", "PYTHONWARNINGS": "error", "PYTHONMALLOC": "debug"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_foreign_python_variables_have_no_effect(compiled: Compile, env: dict[str, str]) -> None:
    done = run(compiled("host.c"), "compute", env=env)
    assert done.stderr == ""


def test_modules_on_a_foreign_pythonpath_are_not_imported(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    run(compiled("host.c"), "compute", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "lib"),
    [
        pytest.param("other", "tree", id="plain", marks=pytest.mark.long),
        pytest.param("o\x07ther ??'", "tree\udcff", id="odd"),
    ],
)
def test_another_aclnn_that_is_installed_is_not_the_one_that_built_the_tree(
    host: Path, tmp_path: Path, name: str, lib: str
) -> None:
    """As with PYTHONPATH=src with an installed release: the libraries serve the package that they were built from.

    Where a folder's name had a control character or no text in it, they did not compile.
    """
    other = tmp_path / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    (installed,) = (other / "lib").glob("python3.*/site-packages")
    (installed / "aclnn.py").write_text("raise ImportError('the wrong aclnn')")
    own = [str(Path(aclnn.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    python, root = other / "bin" / "python", other / lib
    run(python, "-m", "aclnn", "toolkit", "build", root, env={"PYTHONPATH": os.pathsep.join(own)})
    assert run(host, "compute", env={"LD_LIBRARY_PATH": str(root / "lib64")}).stderr == ""


def test_paths_are_c_strings_of_the_bytes_that_they_are_made_of(tmp_path: Path) -> None:
    path = os.fsdecode(bytes(range(1, 256)) + b"??/")
    (tmp_path / "config.h").write_text(trampolines.config({"PATH": path}))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "config.h"\nint main(void) { fputs(PATH, stdout); }\n'
    )
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-o", "main", "main.c"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout == os.fsencode(path)


def test_the_current_folder_and_pythonpath_of_a_build_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C programs must not import modules from the folders of the tree's build."""
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(installed), *sys.path])
    code = libraries._machine()["ACLNN_IMPORT_SERVER"]
    assert f"'{installed}'" in code
    assert f"'{tmp_path}'" not in code
    assert f"'{Path.cwd()}'" not in code


def test_another_active_virtual_environment_has_no_effect(compiled: Compile, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    env = {"VIRTUAL_ENV": str(tmp_path / "other"), "PATH": f"{tmp_path / 'other' / 'bin'}:{os.environ['PATH']}"}
    assert run(compiled("host.c"), "compute", env=env, cwd=tmp_path).stderr == ""


def test_a_program_runs_without_environment_variables(compiled: Compile, tmp_path: Path) -> None:
    command = ["env", "-i", f"HOME={tmp_path}", str(compiled("host.c")), "statuses"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.splitlines()[0] == "aclInit 0"


class TestPythonCannotStart:
    """Each call returns an error status, and one line says why and what to do."""

    REJECTED = (
        "aclInit 500000\naclrtMalloc 500000\naclnnInit 561000\nfirst phase 561000\nsecond phase 561000\ntensor 0\n"
        "soc null\nstatuses: 0\n"
    )

    @pytest.fixture
    def copy(self, toolkit_root: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(toolkit_root, tmp_path / "copy", symlinks=True))

    def error_of(self, host: Path, lib: Path) -> str:
        done = run(host, "statuses", env={"LD_PRELOAD": "", "LD_LIBRARY_PATH": str(lib)})
        assert done.stdout == self.REJECTED
        (line,) = done.stderr.splitlines()
        assert line.startswith("aclnn: ")
        return line

    def test_a_moved_tree_works(self, host: Path, copy: Path) -> None:
        assert run(host, "statuses", env={"LD_LIBRARY_PATH": str(copy / "lib64")}).stdout.startswith("aclInit 0\n")

    def test_a_missing_bridge_is_named(self, host: Path, copy: Path) -> None:
        (copy / "lib64" / "aclnn" / "bridge.so").unlink()
        line = self.error_of(host, copy / "lib64")
        assert "bridge.so" in line
        assert "aclnn toolkit build" in line

    def test_a_missing_libpython_is_named(self, host: Path, copy: Path) -> None:
        replace_in(copy / "lib64" / "aclnn" / "libaclnn_start.so", b"/libpython", b"/libnobody")
        line = self.error_of(host, copy / "lib64")
        assert "libnobody" in line
        assert "aclnn toolkit build" in line

    def test_entry_points_that_cannot_be_imported_are_named(self, host: Path, copy: Path) -> None:
        replace_in(
            copy / "lib64" / "aclnn" / "bridge.so", b"import aclnn.toolkit.entry_points", b"import aclnn.toolkit.nobody"
        )
        line = self.error_of(host, copy / "lib64")
        assert "aclnn.toolkit.nobody" in line

    def test_an_unwritable_trace_is_named(self, compiled: Compile) -> None:
        done = run(compiled("host.c"), "statuses", env={"ACLNN_TRACE": "/nonexistent/trace"})
        assert done.stdout == self.REJECTED
        (line,) = done.stderr.splitlines()
        assert "ACLNN_TRACE: expected" in line
        assert "'/nonexistent/trace'" in line

    def test_another_version_of_python_is_named(self, host: Path, copy: Path) -> None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        start = copy / "lib64" / "aclnn" / "libaclnn_start.so"
        replace_in(start, f"\0{version}.\0".encode(), b"\x009.9\0".ljust(len(version) + 3, b"\0"))
        assert "the toolkit was built for Python" in self.error_of(host, copy / "lib64")


def replace_in(path: Path, old: bytes, new: bytes) -> None:
    """Change a text in a library, in place."""
    assert len(new) <= len(old)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new.ljust(len(old))))


IN_PYTHON = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
import aclnn.cann as cann
assert lib.aclrtSetDevice(0) == 0
address = ctypes.c_void_p()
assert lib.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(64), 0) == 0
assert cann.aclrtFree(address.value) == 0, "one table of allocations behind both"
assert lib.aclrtFree(address) != 0
print("ok", file=sys.stderr)
"""


INTERRUPTED = """
import ctypes, random, signal, sys, time
lib = ctypes.CDLL(sys.argv[1])
sent = got = 0

def interrupt(*_):
    global sent
    sent += 1
    raise KeyboardInterrupt

def work():
    address, late = ctypes.c_void_p(), time.monotonic() + 5
    while time.monotonic() < late:
        if lib.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(64), 0) == 0:
            lib.aclrtFree(address)

assert lib.aclrtSetDevice(0) == 0
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background does not have
signal.signal(signal.SIGALRM, interrupt)
end = time.monotonic() + 2
while sent <= 50 or time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1e-3))
        work()
    except KeyboardInterrupt:
        got += 1
print(sent - got)
"""


def test_an_interrupt_in_a_call_reaches_the_python_program(toolkit_root: Path) -> None:
    """Ctrl-C must not be swallowed by a call that returns 500000."""
    done = run(Path(sys.executable), "-c", INTERRUPTED, toolkit_root / "lib64" / "libascendcl.so")
    assert done.stdout == "0\n", done.stderr
    assert done.stderr == ""


def test_a_python_process_uses_the_interpreter_that_runs(toolkit_root: Path) -> None:
    for name in LIBRARIES:
        code = IN_PYTHON if name != "libruntime.so" else IN_PYTHON.replace("CDLL(sys", "CDLL(mode=0, name=sys")
        done = run(Path(sys.executable), "-c", code, toolkit_root / "lib64" / name)
        assert done.stderr == "ok\n"


LATE = """
import atexit, ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
assert lib.aclInit(None) == 0 and lib.aclrtSetDevice(0) == 0
libc = ctypes.CDLL(None)
# Both run when the interpreter has ended: C's exit handlers come after Python's.
libc.on_exit(ctypes.cast(lib.aclFinalize, ctypes.c_void_p), None)
if sys.argv[2] == "python":
    atexit.register(lambda: print(lib.aclrtResetDevice(0), lib.aclFinalize(), flush=True))
else:
    print("0 0", flush=True)
"""


@pytest.mark.parametrize("handler", ["python", "c"])
def test_exit_handlers_of_a_python_process_may_make_calls(toolkit_root: Path, handler: str) -> None:
    done = run(Path(sys.executable), "-c", LATE, toolkit_root / "lib64" / "libascendcl.so", handler)
    assert done.stdout == "0 0\n"
    assert done.stderr == ""


@pytest.mark.parametrize("use", ["lib.begin()", "0"], ids=["used", "unused"])
def test_destructors_after_the_end_of_a_python_program_release_without_an_error(compiled: Compile, use: str) -> None:
    """Frameworks that check each status aborted when these calls returned 500000."""
    code = f"import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); sys.exit({use})"
    done = run(Path(sys.executable), "-c", code, compiled("late.cpp", "-shared", "-fPIC"))
    assert done.stdout == "select and wait: 0\ncompute: 561000 500000 500000 500000\nrelease: 0\n"
    assert done.stderr == ""


IN_A_FORKED_PYTHON = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
assert lib.aclInit(None) == 0 and lib.aclrtSetDevice(0) == 0
child = os.fork()
if child == 0:
    stream = ctypes.c_void_p()
    os._exit(lib.aclrtSetDevice(0) or lib.aclrtCreateStream(ctypes.byref(stream)))
assert os.waitpid(child, 0)[1] == 0
assert lib.aclFinalize() == 0
"""


def test_a_python_process_may_fork(toolkit_root: Path) -> None:
    run(Path(sys.executable), "-c", IN_A_FORKED_PYTHON, toolkit_root / "lib64" / "libascendcl.so")


CAPSULES_LOOKED_AT = """
import ctypes, sys
import datetime
hasattr(datetime.datetime_CAPI, "name")
lib = ctypes.CDLL(sys.argv[1])
assert lib.aclInit(None) == 0
"""


def test_inspected_capsules_do_not_abort_the_start(toolkit_root: Path) -> None:
    run(Path(sys.executable), "-c", CAPSULES_LOOKED_AT, toolkit_root / "lib64" / "libascendcl.so")
