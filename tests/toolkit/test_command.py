"""``aclnn toolkit``: build, path, run, trace; and what existing build files do with the tree."""

from __future__ import annotations

import errno
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aclnn.cli import console
from aclnn.cli.toolkit import trace_command
from aclnn.support import atomic
from aclnn.toolkit import layout, libraries, trampolines, tree
from aclnn.toolkit.compiler import ToolkitError, c_compiler, cxx_compiler, python_headers, python_library
from tests.helpers.toolkit_support import RUN_SECONDS, SOURCES, Compile, needs_toolkit, run

ACLNN = Path(sys.executable).with_name("aclnn")
HOST = SOURCES / "host.c"
COMPUTED = "compute: 0\n"


def aclnn(*arguments: object, status: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    return run(Path(sys.executable), "-m", "aclnn", "toolkit", *arguments, status=status, env=env)


@needs_toolkit
@pytest.mark.toolkit
class TestTree:
    @pytest.mark.slow
    def test_build_replaces_an_older_tree_and_prints_its_path(self, toolkit_root: Path, tmp_path: Path) -> None:
        root = shutil.copytree(toolkit_root, tmp_path / "tree", symlinks=True)
        (root / "set_env.sh").write_text("another's")
        (root / "lib64" / "libopapi.so").unlink()
        assert aclnn("build", root).stdout == f"{root}\n"
        assert (root / "set_env.sh").read_text() != "another's"
        assert (root / "lib64" / "libopapi.so").exists()
        assert {path.name for path in (tmp_path / "tree").iterdir()} >= {"include", "lib64", "opp", "set_env.sh"}
        assert not list((tmp_path / "tree").rglob("*.tmp"))

    @pytest.mark.slow
    def test_unimplemented_functions_link_and_report_their_names_when_called(
        self, toolkit_root: Path, tmp_path: Path
    ) -> None:
        source, program = tmp_path / "program.c", tmp_path / "program"
        source.write_text(
            '#include <stdio.h>\n#include "acl/acl.h"\n#include "aclnnop/aclnn_silu.h"\n'
            "int aclnnFooBarGetWorkspaceSize(int, double, void *);\nint aclnnFooBar(void *);\n"
            "int main(int argc, char **argv)\n{\n    if (argc == 1) { return aclnnSilu == 0; }\n"
            '    printf("%d ", aclnnFooBarGetWorkspaceSize(1, 2.0, 0));\n    puts(aclGetRecentErrMsg());\n'
            "    return aclnnFooBar(argv) != 561103;\n}\n"
        )
        root = shutil.copytree(toolkit_root, tmp_path / "tree", symlinks=True)
        text = "aclnnFooBarGetWorkspaceSize: expected a function that this toolkit implements"
        subprocess.run([*c_compiler(), f"-I{root}/include", "-c", "-o", f"{program}.o", source], check=True)
        link = [*c_compiler(), "-o", program, f"{program}.o", f"-L{root}/lib64", f"-Wl,-rpath,{root}/lib64"]
        link += ["-lopapi", "-lnnopbase", "-lascendcl"]
        assert b"aclnnFooBar" in subprocess.run(link, capture_output=True).stderr, "there is no such function yet"
        done = aclnn("build", root, "--refuse-undefined", f"{program}.o")
        assert sorted(done.stderr.split(": ")[1].strip().split(", ")) == ["aclnnFooBar", "aclnnFooBarGetWorkspaceSize"]
        subprocess.run(link, check=True)
        assert run(program).stdout == ""
        assert run(program, "call").stdout.startswith(f"561103 {text}")

    def test_refuse_undefined_rejects_other_files_than_objects(self, tmp_path: Path) -> None:
        assert "expected an object file" in aclnn("build", "--refuse-undefined", HOST, status=1).stderr

    @pytest.mark.slow
    def test_path_and_run_build_what_is_missing_or_old(self, toolkit_root: Path, tmp_path: Path) -> None:
        root = shutil.copytree(toolkit_root, tmp_path / "tree", symlinks=True)
        stamp = root / "aclnn" / "build.json"
        before = stamp.stat().st_mtime_ns
        assert aclnn("path", ACLNN_TOOLKIT_DIR=str(root)).stdout == f"{root}\n"
        assert stamp.stat().st_mtime_ns == before, "nothing has changed"
        text = stamp.read_text()
        stamp.write_text(text.replace('"sources": "', '"sources": "older'))
        assert aclnn("path", ACLNN_TOOLKIT_DIR=str(root)).stdout == f"{root}\n"
        assert stamp.read_text() == text, "sources were touched, and say what they said"
        stamp.write_text('{"fingerprint": "older"}')
        (root / "include" / "acl" / "acl.h").unlink()
        done = aclnn("run", HOST, "compute", ACLNN_TOOLKIT_DIR=str(root))
        assert done.stdout == COMPUTED
        assert (root / "include" / "acl" / "acl.h").exists()

    @pytest.mark.parametrize("part", ["config", "entries_header", "table"])
    def test_a_tree_is_as_old_as_its_generated_sources(self, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
        before = layout.fingerprint()
        assert layout.fingerprint() == before
        monkeypatch.setattr(trampolines, part, lambda _: "another")
        assert layout.fingerprint() != before

    def test_run_passes_arguments_and_the_exit_status(self, toolkit_root: Path, tmp_path: Path) -> None:
        program = tmp_path / "program.cpp"
        program.write_text(
            '#include <cstdio>\n#include "acl/acl.h"\n'
            'int main(int argc, char** argv) { std::printf("%d %s\\n", argc, argv[1]); return 7; }\n'
        )
        done = aclnn("run", program, "--flag", status=7, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert done.stdout == "2 --flag\n"

    @pytest.mark.parametrize(
        ("ending", "status", "told"),
        [
            ("abort()", 134, "SIGABRT (Aborted); exit status 134"),
            ("*(volatile int *)0 = 1", 139, "SIGSEGV (Segmentation fault); exit status 139"),
            ("raise(SIGRTMIN + 1)", 163, "signal 35; exit status 163"),
        ],
    )
    def test_a_program_that_a_signal_ends_is_not_silent(
        self, toolkit_root: Path, tmp_path: Path, ending: str, status: int, told: str
    ) -> None:
        program = tmp_path / "program.c"
        program.write_text(f"#include <signal.h>\n#include <stdlib.h>\nint main(void) {{ {ending}; return 0; }}\n")
        done = aclnn("run", program, status=status, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert done.stderr == f"aclnn toolkit: {program} was ended by {told}\n"

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "variable"), [("program.cpp", "CXXFLAGS"), ("program.c", "CFLAGS")])
    def test_run_takes_quoted_flags_as_the_shell_does(
        self, toolkit_root: Path, tmp_path: Path, name: str, variable: str
    ) -> None:
        (tmp_path / name).write_text("#include <stdio.h>\nint main(void) { puts(TEXT); return 0; }\n")
        flags = {variable: "-O2 '-DTEXT=\"two words\"'", "ACLNN_TOOLKIT_DIR": str(toolkit_root)}
        assert aclnn("run", tmp_path / name, **flags).stdout == "two words\n"
        rejected = aclnn("run", tmp_path / name, status=1, **flags | {variable: "'open"})
        assert rejected.stderr.startswith(f'aclnn: {variable}: expected words as in a shell, got "\'open"')

    def test_a_program_that_does_not_compile_ends_with_the_compilers_error(
        self, toolkit_root: Path, tmp_path: Path
    ) -> None:
        program = tmp_path / "broken.c"
        program.write_text('#include "acl/acl.h"\nint main(void) { return aclNoSuchFunction(); }\n')
        done = aclnn("run", program, status=1, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert "aclNoSuchFunction" in done.stderr

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("compiler", "name", "text", "missing"),
        [
            (compiler, name, text, missing)
            for compiler in ("gcc", "clang")
            for name, text, missing in (
                ("a.c", '#include "aclnnop/aclnn_absent.h"\n', "aclnnop/aclnn_absent.h"),
                ("a.cpp", '#include "aclnn_absent.h"\n', "aclnn_absent.h"),
                (
                    "a.cpp",
                    '#include "acl/acl.h"\nint a = aclrtAbsent(0);\nint b = ACL_ABSENT;\n',
                    "ACL_ABSENT, aclrtAbsent",
                ),
                ("a.c", '#include "acl/acl.h"\naclrtAbsentHandle a = 0;\n', "aclrtAbsentHandle"),
                ("a.c", "int aclAbsent(void); int main(void) { return aclAbsent(); }\n", "aclAbsent"),
                ("a.c", "int main(void) { return aclInit(0) + mine(); }\n", ""),
            )
        ],
    )
    def test_missing_functions_are_named(
        self, toolkit_root: Path, tmp_path: Path, compiler: str, name: str, text: str, missing: str
    ) -> None:
        """The toolkit names what it lacks, in addition to the compiler's errors."""
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        (tmp_path / name).write_text(text)
        compilers = {"CC": compiler, "CXX": {"gcc": "g++"}.get(compiler, f"{compiler}++")}
        environment = {"ACLNN_TOOLKIT_DIR": str(toolkit_root), "LC_ALL": "de_DE.UTF-8"}
        rejected = aclnn("run", tmp_path / name, status=1, **environment, **compilers)
        last = rejected.stderr.splitlines()[-1]
        named = re.match("this toolkit does not have (.*); what it has is listed in docs/c-functions.md", last)
        assert ", ".join(sorted(named[1].split(", "))) == missing if missing else named is None

    def test_exec_runs_a_program_with_the_environment(self, toolkit_root: Path) -> None:
        program = "import os, sys; print(os.environ['ASCEND_HOME_PATH'], os.environ['ACLNN_SOC_NAME'], *sys.argv[1:])"
        options = ("exec", "--soc-name", "Ascend910B2", sys.executable, "-c", program, "--trace")
        done = aclnn(*options, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert done.stdout == f"{toolkit_root} Ascend910B2 --trace\n"

    def test_exec_lists_what_was_called_and_missed(self, toolkit_root: Path) -> None:
        program = (
            "import ctypes; acl = ctypes.CDLL('libascendcl.so'); acl.aclmdlExecute(); "
            "ctypes.CDLL('libopapi.so').aclnnReluGetWorkspaceSize(None, None, None, None); raise SystemExit(3)"
        )
        options = ("exec", "--trace", sys.executable, "-c", program)
        done = aclnn(*options, status=3, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert re.search(r"^aclnnRelu +1 calls", done.stderr, re.MULTILINE)
        assert done.stderr.endswith("missing: aclmdlExecute\n")

    def test_exec_of_a_nonexistent_program_fails(self, toolkit_root: Path) -> None:
        rejected = aclnn("exec", "no-such-program", status=1, ACLNN_TOOLKIT_DIR=str(toolkit_root))
        assert rejected.stderr == "aclnn: no-such-program: expected an executable file, or the name of one on PATH\n"

    @pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
    def test_after_set_env_a_plain_compiler_line_works(self, toolkit_root: Path, tmp_path: Path, shell: str) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        folder = toolkit_root
        if shell == "bash":  # which knows where the script is, wherever it was moved to
            folder = shutil.copytree(toolkit_root, tmp_path / "a folder with spaces", symlinks=True)
        script = (
            f'. "{folder}/set_env.sh" && . "{folder}/set_env.sh" && '
            f'cc "{HOST}" -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -o host '
            "-lascendcl -lnnopbase -lopapi -lpthread && ./host compute && "
            'echo "$ASCEND_HOME_PATH|$ASCEND_TOOLKIT_HOME|$ASCEND_CUSTOM_PATH|$ASCEND_OPP_PATH|$LD_LIBRARY_PATH"'
        )
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        command = [shell, "-euc", script]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
        values = f"{folder}|{folder}|{folder}|{folder}/opp|{folder}/cann/lib64\n"
        assert done.stdout == COMPUTED + values

    def test_set_env_does_not_affect_the_compiler(self, toolkit_root: Path, tmp_path: Path) -> None:
        """A compilation without -I and -L fails, as with the vendor's toolkit."""
        script = f'. "{toolkit_root}/set_env.sh" && cc -c "{HOST}" -o host.o'
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert "acl/acl.h" in done.stderr

    @pytest.mark.parametrize("shell", ["bash", "zsh"])
    def test_setenv_of_older_releases_works(self, toolkit_root: Path, tmp_path: Path, shell: str) -> None:
        """Older releases have bin/setenv.bash."""
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        command = [shell, "-ec", f'source "{toolkit_root}/bin/setenv.bash"; echo "$ASCEND_HOME_PATH"']
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout == f"{toolkit_root}\n"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("folder", "libraries"),
        [
            ("lib64", "opapi_math opapi_nn ascendcl nnopbase"),
            ("lib64", "opapi_nn nnopbase acl_rt"),
            ("lib64", "opapi_math opapi_transformer opapi_cv ascendcl nnopbase hccl hccl_fwk c_sec"),
            (f"{platform.machine()}-linux/devlib", "opapi nnopbase ascendcl"),
        ],
    )
    def test_libraries_have_the_names_of_the_vendors_scripts(
        self, toolkit_root: Path, tmp_path: Path, folder: str, libraries: str
    ) -> None:
        """The vendor's scripts link with -lopapi_math and -lacl_rt, and use <arch>-linux/devlib."""
        include = toolkit_root / "include"
        folders = [f"-I{include}", f"-I{include / 'aclnnop'}", f"-L{toolkit_root / folder}"]
        names = [f"-l{name}" for name in libraries.split()]
        subprocess.run(["cc", HOST, *folders, "-o", tmp_path / "host", *names, "-lpthread"], check=True)
        done = run(tmp_path / "host", "compute", env={"LD_LIBRARY_PATH": str(toolkit_root / "lib64")})
        assert done.stdout == COMPUTED

    @pytest.mark.slow
    @pytest.mark.parametrize("header", ["aclnn_silu.h", "aclnn_ops_nn.h", "acl_meta.h"])
    def test_run_finds_headers_as_the_vendors_scripts_do(self, toolkit_root: Path, tmp_path: Path, header: str) -> None:
        """Programs may include headers without their folder."""
        program = tmp_path / "program.c"
        program.write_text(f'#include "{header}"\nint main(void) {{ return ACL_SUCCESS; }}\n')
        aclnn("run", program, ACLNN_TOOLKIT_DIR=str(toolkit_root))

    @pytest.mark.parametrize("name", ["dash", "-sh"])
    def test_set_env_is_not_misled_by_the_name_of_a_shell_or_the_current_folder(
        self, toolkit_root: Path, tmp_path: Path, name: str
    ) -> None:
        dash = shutil.which("dash")
        if dash is None:
            pytest.skip("dash is not installed")
        (tmp_path / "include" / "acl").mkdir(parents=True)
        (tmp_path / "include" / "acl" / "acl.h").touch()
        command = [name, "-ec", f'. "{toolkit_root}/set_env.sh" && echo "$ASCEND_HOME_PATH"']
        done = subprocess.run(command, executable=dash, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert (done.stdout, done.stderr) == (f"{toolkit_root}\n", "")

    @pytest.mark.parametrize("libraries", ["ascendcl nnopbase opapi", "opapi_nn nnopbase ascendcl"])
    def test_cmake_builds_a_program(self, toolkit_root: Path, tmp_path: Path, libraries: str) -> None:
        if shutil.which("cmake") is None:
            pytest.skip("cmake is not installed")
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.14)\nproject(host LANGUAGES C CXX)\n"
            "include_directories($ENV{ASCEND_HOME_PATH}/include)\nlink_directories($ENV{ASCEND_HOME_PATH}/lib64)\n"
            f"add_executable(host {HOST})\ntarget_link_libraries(host {libraries} pthread)\n"
        )
        env = os.environ | {"ASCEND_HOME_PATH": str(toolkit_root)}
        for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"]):
            subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
        assert run(tmp_path / "build" / "host", "compute").stdout == COMPUTED

    @pytest.mark.slow
    @pytest.mark.parametrize("linker", ["bfd", "gold", "lld"])
    def test_every_linker_links_a_program(self, toolkit_root: Path, tmp_path: Path, linker: str) -> None:
        if shutil.which(f"ld.{linker}") is None:
            pytest.skip(f"ld.{linker} is not installed")
        folders = [f"-I{toolkit_root}/include", f"-L{toolkit_root}/lib64", f"-Wl,-rpath,{toolkit_root}/lib64"]
        command = ["cc", f"-fuse-ld={linker}", HOST, "-o", tmp_path / "host", *folders]
        subprocess.run([*command, "-lopapi", "-lnnopbase", "-lascendcl", "-lpthread"], check=True)
        assert run(tmp_path / "host", "compute").stdout == COMPUTED


@needs_toolkit
@pytest.mark.toolkit
class TestTrace:
    def test_trace_has_a_line_for_every_call(self, compiled: Compile, tmp_path: Path) -> None:
        file = tmp_path / "trace"
        run(compiled("host.c"), "compute", env={"ACLNN_TRACE": str(file)})
        rows = [line.split("\t") for line in file.read_text().splitlines()]
        names = [row[0] for row in rows]
        assert names[:3] == ["aclrtSetDevice", "aclrtCreateStream", "aclrtMalloc"]
        assert names[-2:] == ["aclrtDestroyStream", "aclrtResetDevice"]
        assert all(len(row) == 4 and row[2].removeprefix("0x").isalnum() and float(row[3]) > 0 for row in rows)
        first = rows[0]
        assert first[1:3] == ["deviceId=0", "0"]
        arguments = dict(zip(names, (row[1] for row in rows), strict=True))
        assert arguments["aclrtMalloc"].startswith("size=32, policy=0, devPtr -> 0x")
        created = next(row for row in rows if row[0] == "aclCreateTensor")
        assert re.fullmatch("0x[0-9a-f]+", created[2]), "a handle, as where it is an argument"
        assert arguments["aclCreateTensor"].startswith("viewDims=[8], viewDimsNum=1, dataType=0, stride=[1], offset=0")
        assert "workspaceSize -> 0, executor -> 0x" in arguments["aclnnHardswishBackwardGetWorkspaceSize"]

    def test_trace_of_errors_strings_and_null(self, compiled: Compile, tmp_path: Path) -> None:
        file = tmp_path / "trace"
        run(compiled("lifecycle.c"), env={"ACLNN_TRACE": str(file), "ACLNN_MEMORY_BYTES": str(1 << 28)})
        text = file.read_text()
        assert "\naclInit\tconfigPath='/nonexistent/acl.json'\t100003\t" in text
        assert "\naclInit\tconfigPath=None\t0\t" in text
        assert "\naclrtMalloc\tsize=64, policy=0, devPtr -> null\t100000\t" in text
        assert "\naclrtGetSocName\t\t'Ascend910B2'\t" in text

    def test_trace_shows_a_negative_number_of_elements(self, compiled: Compile, tmp_path: Path) -> None:
        program, file = tmp_path / "negative.c", tmp_path / "trace"
        program.write_text(
            '#include "acl/acl.h"\nint main(void)\n{\n    const int64_t dims[] = {2};\n'
            "    return aclCreateTensorDesc(ACL_FLOAT, -1, dims, ACL_FORMAT_ND) != NULL;\n}\n"
        )
        assert run(compiled(program), env={"ACLNN_TRACE": str(file)}).stderr == ""
        assert file.read_text().startswith("aclCreateTensorDesc\tdataType=0, numDims=-1, dims=[], format=2\tnull\t")

    def test_trace_does_not_read_results_of_failed_calls(self, compiled: Compile, tmp_path: Path) -> None:
        program, file = tmp_path / "unwritten.c", tmp_path / "trace"
        program.write_text(
            '#include "aclnn/acl_meta.h"\n'
            "int main(void) { int64_t *dims = (int64_t *)0x1234; uint64_t count = 5;\n"
            "return aclGetViewShape(NULL, &dims, &count) == ACLNN_ERR_PARAM_NULLPTR ? 0 : 1; }\n"
        )
        run(compiled(program), env={"ACLNN_TRACE": str(file)})
        assert file.read_text().startswith("aclGetViewShape\ttensor=null, viewDims -> -, viewDimsNum -> -\t161001\t")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    def test_a_full_disk_ends_the_trace_and_not_the_program(self, compiled: Compile) -> None:
        """Calls must not fail with 500000 when a trace cannot be written."""
        done = run(compiled("host.c"), "compute", env={"ACLNN_TRACE": "/dev/full"})
        assert done.stdout == run(compiled("host.c"), "compute").stdout
        (line,) = done.stderr.splitlines()
        assert line == "aclnn: ACLNN_TRACE: /dev/full: No space left on device; from here on no call is traced"

    def test_trace_command_prints_a_table(self, compiled: Compile, tmp_path: Path) -> None:
        file = tmp_path / "trace"
        run(compiled("lifecycle.c"), env={"ACLNN_TRACE": str(file), "ACLNN_MEMORY_BYTES": str(1 << 28)})
        table = aclnn("trace", file, COLUMNS="40").stdout  # whole lines nevertheless: this is no terminal
        assert "arguments" in table
        assert len([line for line in table.splitlines() if " aclInit " in line and "configPath=" in line]) == 6
        assert "100003 ACL_ERROR_INVALID_FILE" in table
        assert "161002 ACLNN_ERR_PARAM_INVALID" in table
        summary = aclnn("trace", "--summary", file, COLUMNS="40").stdout
        (row,) = (line for line in summary.splitlines() if " aclInit " in line)
        assert [cell.strip() for cell in row.split("│")[1:4]] == ["aclInit", "6", "2"]

    def test_a_status_that_is_not_a_number_is_shown(self, tmp_path: Path) -> None:
        """A status that is no number is printed as it is."""
        (tmp_path / "trace").write_text("aclInit\tnone\t\u00b2\t1.0\n")
        assert "\u00b2" in aclnn("trace", tmp_path / "trace").stdout

    def test_a_narrow_terminal_cuts_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Addresses are not abbreviated with an ellipsis."""
        file, shown = tmp_path / "trace", io.StringIO()
        file.write_text("aclrtFree\tdevPtr=0x7f2304e4e000\t0\t12.5\n")
        monkeypatch.setattr(console, "out", console._Plain(file=shown, force_terminal=True, width=40))
        trace_command(file)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()
        assert max(map(len, lines)) <= 40
        rows = [line.split("│")[1:5] for line in lines if line.startswith("│")]
        cells = ["".join(map(str.strip, column)) for column in zip(*rows, strict=True)]
        assert cells == ["aclrtFree", "devPtr=0x7f2304e4e000", "0", "12.5"]

    def test_trace_rejects_other_files(self, tmp_path: Path) -> None:
        file = tmp_path / "notes"
        file.write_text("not a trace\n")
        assert "expected a line of an ACLNN_TRACE file" in aclnn("trace", file, status=1).stderr


WRITING = """
import sys
from pathlib import Path
from aclnn.toolkit import layout
for number in range(300):
    layout.write(Path(sys.argv[1], "set_env.sh"), "0" * number)
    layout.link(Path(sys.argv[1], "link.so"), "set_env.sh")
"""

ENSURING = """
import sys, time
from pathlib import Path
from aclnn.toolkit import libraries, tree
notes = Path(sys.argv[2])

def note(word):
    with notes.open("a") as file:
        file.write(word)

def build(*arguments):
    note("built\\n")
    while notes.read_text().count("begun") < 2:
        time.sleep(0.01)
    time.sleep(0.5)

libraries.build = build
tree.compiler.check = lambda: None
note("begun\\n")
tree.ensure(Path(sys.argv[1]))
assert tree.is_current(Path(sys.argv[1]))
"""


class TestTwoProcesses:
    """``ctest -j`` runs programs that use one tree at the same time."""

    def run_both(self, code: str, *arguments: Path) -> None:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        assert [process.communicate(timeout=RUN_SECONDS)[1] for process in both] == ["", ""]

    def test_several_processes_write_the_same_files(self, tmp_path: Path) -> None:
        """Two processes that install a tree at once write to different temporary files."""
        self.run_both(WRITING, tmp_path)
        assert sorted(os.listdir(tmp_path)) == ["link.so", "set_env.sh"]

    def test_one_of_several_processes_builds_a_missing_tree(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"
        self.run_both(ENSURING, tmp_path / "tree", notes)
        assert sorted(notes.read_text().split()) == ["begun", "begun", "built"]

    def test_a_tree_is_built_without_file_locks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(atomic.fcntl, "flock", fail)
        monkeypatch.setattr(tree.compiler, "check", lambda: None)
        monkeypatch.setattr(libraries, "build", lambda *arguments: None)
        assert tree.is_current(tree.ensure(tmp_path / "tree"))

    def test_an_unwritable_directory_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setattr(tree.compiler, "check", lambda: None)
        with pytest.raises(NotADirectoryError, match="file/tree"):
            tree.ensure(tmp_path / "file" / "tree")


class TestATreeThatOthersCouldChange:
    """A tree is trusted by its owner and mode, because anybody can compute its fingerprint."""

    @pytest.fixture(autouse=True)
    def _nothing_is_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def build(libraries: object, include: Path, lib: Path, work: Path) -> None:
            (lib / "libopapi.so").write_text("")

        monkeypatch.setattr(tree.compiler, "check", lambda: None)
        monkeypatch.setattr(libraries, "build", build)

    @pytest.mark.parametrize("name", ["set_env.sh", "include/acl/acl.h"])
    def test_a_file_that_others_may_write_is_made_again(self, tmp_path: Path, name: str) -> None:
        root = tree.ensure(tmp_path / "tree")
        own = (root / name).read_text()
        (root / name).write_text("another's")
        (root / name).chmod(0o646)
        assert not tree.is_current(root)
        assert tree.is_current(tree.ensure(root))
        assert (root / name).read_text() == own

    @pytest.mark.parametrize("name", ["tree", "tree/lib64", "."])
    def test_a_folder_that_others_may_write_is_rejected(self, tmp_path: Path, name: str) -> None:
        root = tree.ensure(tmp_path / "tree")
        (tmp_path / name).chmod(0o757)
        with pytest.raises(PermissionError, match="expected no write permission for others, got drwxr-xrwx") as caught:
            tree.ensure(root)
        assert caught.value.filename == str(tmp_path / name)

    def test_a_directory_under_a_shared_one_is_used_only_if_given_to_build(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o777)
        with pytest.raises(PermissionError, match="expected no write permission"):
            tree.ensure(tmp_path / "tree")
        assert tree.build(tmp_path / "tree") == tmp_path / "tree"  # who names a place has chosen it

    def test_a_umask_that_lets_everybody_write_does_not_apply(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            assert tree.is_current(tree.ensure(tmp_path / "tree"))
            assert os.umask(0) == 0
        finally:
            os.umask(before)


class TestFilesThatAreOthers:
    """Files of other types, such as a Python program as a source or no trace, are named in the error."""

    def error_of(self, command: str, file: Path) -> str:
        (line,) = aclnn(command, file, status=1).stderr.splitlines()
        return line.removeprefix("aclnn: ")

    @pytest.mark.parametrize(("command", "name"), [("run", "absent.cpp"), ("trace", "absent")])
    def test_missing_files_are_named(self, tmp_path: Path, command: str, name: str) -> None:
        file = tmp_path / name
        assert self.error_of(command, file) == f"{file}: No such file or directory"

    def test_a_directory_is_rejected(self, tmp_path: Path) -> None:
        assert self.error_of("run", tmp_path) == f"{tmp_path}: expected a regular file"
        assert self.error_of("trace", tmp_path) == f"{tmp_path}: Is a directory"

    @pytest.mark.parametrize(("name", "got"), [("r1.py", ".py"), ("program.o", ".o"), ("program", "no suffix")])
    def test_other_files_than_c_and_cxx_are_rejected(self, tmp_path: Path, name: str, got: str) -> None:
        (tmp_path / name).write_text("print()\n")
        known = ".c, .cpp, .cc, .cxx, .c++, .C"
        expected = f"{tmp_path / name}: expected a C or C++ file, one of {known}, got {got}"
        assert self.error_of("run", tmp_path / name) == expected

    def test_a_trace_that_is_not_text_is_an_error(self, tmp_path: Path) -> None:
        file = tmp_path / "trace"
        file.write_bytes(b"\x7fELF\xff\xfe\n")
        expected = f"{file}: expected a file written by ACLNN_TRACE, got bytes that are not text"
        assert self.error_of("trace", file) == expected


class TestWithoutACompiler:
    """The error says what to install; nothing else in the package needs a compiler."""

    def test_build_names_the_package_to_install(self, tmp_path: Path) -> None:
        done = aclnn("build", tmp_path / "tree", status=1, PATH=str(tmp_path), CC="", CXX="")
        assert "needs a C compiler" in done.stderr
        assert "apt-get install" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "tree").exists(), "nothing half done"

    def test_a_compiler_that_is_named_must_exist(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "no-such-compiler -m64")
        with pytest.raises(ToolkitError, match="CC names 'no-such-compiler'"):
            c_compiler()
        monkeypatch.setenv("CXX", f"{sys.executable} -m64")
        assert cxx_compiler() == [sys.executable, "-m64"]


class TestPythonWithoutItsPartsForC:
    """Distributions package headers and shared library separately; some builds have no shared library."""

    @pytest.fixture
    def variables(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
        found = {"LIBDIR": str(tmp_path), "base": str(tmp_path / "base")}
        monkeypatch.setattr(sysconfig, "get_config_vars", lambda: found)
        monkeypatch.setattr(sysconfig, "get_config_var", found.get)
        return found

    def test_a_static_python_is_rejected(self, variables: dict[str, str], tmp_path: Path) -> None:
        variables["LDLIBRARY"] = variables["INSTSONAME"] = "libpython.a"
        (tmp_path / "libpython.a").touch()
        with pytest.raises(ToolkitError, match=r"as a shared library .*apt-get install python3-dev.*--enable-shared"):
            python_library()

    def test_libpython_is_found_in_the_architectures_folder(self, variables: dict[str, str], tmp_path: Path) -> None:
        variables["MULTIARCH"] = "x86_64-linux-gnu"
        library = tmp_path / "x86_64-linux-gnu" / f"libpython{sysconfig.get_python_version()}.so.1.0"
        library.parent.mkdir()
        library.touch()
        assert python_library() == library

    def test_libpython_of_a_moved_python_is_found(self, variables: dict[str, str], tmp_path: Path) -> None:
        variables["LIBDIR"] = "/nonexistent"
        library = tmp_path / "base" / "lib" / f"libpython{sysconfig.get_python_version()}.so"
        library.parent.mkdir(parents=True)
        library.touch()
        assert python_library() == library

    def test_missing_python_headers_are_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
        with pytest.raises(ToolkitError, match=r"no Python\.h.*apt-get install python3-dev"):
            python_headers()
