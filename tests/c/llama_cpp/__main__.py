"""llama.cpp's CANN backend, unmodified, under llama.cpp's own test: ``python -m tests.c.llama_cpp [OPERATOR …]``.

Fetches its source from the package registry, builds it against the toolkit and has each operator's cases compared with
llama.cpp's CPU backend. Needs CMake and a C++ compiler, 2 GB in a temporary folder, or in LLAMA_CPP_FOLDER, where the
build stays for the next time; takes twenty minutes on two processors.
"""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from aclnn.toolkit import tree

PACKAGE = "llama-cpp-python==0.3.36"
SOC = "Ascend910B2"
TOGETHER = 40
"""Cases of one process where an earlier one ended before its last case."""

#: Why cases fail that do: it is llama.cpp's fault.
KNOWN = {
    r"GET_ROWS\(type=q8_0,.*,m=5,r=4,": "a view of quantized rows is taken as if it were all of them",
    r"CONCAT\(type=q": "quantized blocks are joined as if they were numbers",
    r"SET_ROWS\(type_src=f16,type_dst=f32,": "float16 rows are read as float32",
    r"MUL_MAT_ID\(type_a=q8_0,.*amax=100000": "numbers beyond float16's are made float16",
    r"ROPE\(.*n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=[01],v=0,inplace=0,n_offs=0": (
        "sines of more numbers are written into the memory of fewer"
    ),
}

_VERDICT = re.compile(r"\b([A-Z0-9_]+\(\S*?\)): (?:\x1b\[1;3[12]m)?(OK|FAIL|not supported)")
"""A case and its verdict; llama.cpp's CPU backend does not support some."""


def build(folder: Path) -> Path:
    """Build the test in a folder, and return the program."""
    if not (source := next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"), None)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"]
        subprocess.run([*pip, str(folder), PACKAGE], check=True)
        (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder)
        (source,) = folder.glob("llama_cpp_python-*/vendor/llama.cpp")
    options = {"LLAMA_CPP": source, "CANN_INSTALL_DIR": tree.ensure(), "SOC_TYPE": SOC, "GGML_CANN": "ON"}
    options |= {"CMAKE_BUILD_TYPE": "Release", "CMAKE_C_FLAGS": "-w", "CMAKE_CXX_FLAGS": "-w", "GGML_CCACHE": "OFF"}
    given = [f"-D{name}={value}" for name, value in options.items()]
    built = folder / "build"
    subprocess.run(["cmake", "-S", Path(__file__).parent, "-B", built, *given], check=True)
    subprocess.run(["cmake", "--build", built, "--parallel", str(os.cpu_count())], check=True)
    return built / "bin" / "test-backend-ops"


def run(program: Path, *arguments: str) -> tuple[str, bool]:
    """Run the test; return its output, and whether it ended normally."""
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{tree.ensure()}/lib64",
        "ACLNN_SOC_NAME": SOC,
        "GGML_NO_BACKTRACE": "1",
    }
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout + done.stderr, done.returncode >= 0


def verdicts(program: Path, cases: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each case with its verdict, or the error that ended the process; the next process continues after it."""
    left = every = [*dict.fromkeys(cases)]
    while left:
        names = left if left is every else left[:TOGETHER]
        chosen = names[0].partition("(")[0] if names is every else ",".join(names)
        printed, ended = run(program, "test", "-b", "CANN0", "-o", chosen)
        found = dict(_VERDICT.findall(printed))
        missing = [name for name in names if name not in found]
        yield from ((name, found[name]) for name in names if name in found)
        if missing and ended:
            raise RuntimeError(f"expected a verdict on {missing[0]}, got none")
        if missing:
            yield missing[0], next((line for line in printed.splitlines() if "CANN error" in line), "the process ended")
        left = [name for name in left if name not in found and name not in missing[:1]]


def main(chosen: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        program = build(Path(os.environ.get("LLAMA_CPP_FOLDER", temporary)))
        rows = csv.DictReader(io.StringIO(run(program, "support", "-b", "CANN0", "--output", "csv")[0]))
        cases: dict[str, list[str]] = {}
        for row in rows:
            if row["supported"] == "1" and (not chosen or row["op_name"] in chosen):
                cases.setdefault(row["op_name"], []).append(f"{row['op_name']}({row['op_params']})")
        total, passed, unexpected = 0, 0, 0
        for operator, names in cases.items():
            checked = [(name, what) for name, what in verdicts(program, names) if what != "not supported"]
            failed = [(name, what) for name, what in checked if what != "OK"]
            print(f"{operator}: {len(checked) - len(failed)} of {len(checked)}", flush=True)
            for name, what in failed:
                reason = next((why for pattern, why in KNOWN.items() if re.match(pattern, name)), None)
                unexpected += reason is None
                print(f"  {name}: {what}; {reason or 'not known'}", flush=True)
            total += len(checked)
            passed += len(checked) - len(failed)
    print(f"{passed} of {total} cases pass; {unexpected} fail that are not known to")
    sys.exit(min(unexpected, 1))


if __name__ == "__main__":
    main(sys.argv[1:])
