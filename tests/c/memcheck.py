"""The documents' sample programs under valgrind: ``python -m tests.c.memcheck``; minutes, most of them compiling."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.toolkit_support import SAMPLES

from aclnn.toolkit.command import compile_program

# Leaks: the interpreter is never ended. Undefined values: its vectorised string functions use them on purpose.
OPTIONS = ("--quiet", "--error-exitcode=99", "--leak-check=no", "--undef-value-errors=no")
SUPPRESSIONS = f"--suppressions={Path(__file__).with_name('valgrind.supp')}"


def findings_in(stderr: str) -> str:
    """Valgrind's own lines: NumPy before 2.3 writes of the long double that valgrind shortens to 64 bits."""
    return "\n".join(line for line in stderr.splitlines() if line.startswith("=="))


def main() -> None:
    findings = 0
    samples = sorted(SAMPLES.glob("*.cpp"))
    with tempfile.TemporaryDirectory() as folder:
        for source in samples:
            program = compile_program(source, Path(folder) / source.stem, options=["-w"])
            begin = time.monotonic()
            done = subprocess.run(
                ["valgrind", *OPTIONS, SUPPRESSIONS, program], capture_output=True, text=True, check=False
            )
            clean = done.returncode == 0 and not findings_in(done.stderr)
            findings += not clean
            print(f"{source.stem}: {'clean' if clean else done.stderr}, {time.monotonic() - begin:.0f} s", flush=True)
    if findings or not samples:
        sys.exit(f"{findings} of {len(samples)} programs have findings; expected programs in {SAMPLES}")


if __name__ == "__main__":
    main()
