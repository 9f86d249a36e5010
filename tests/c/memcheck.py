"""The example and the documents' sample programs under valgrind: ``python -m tests.c.memcheck``; takes minutes."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aclnn.toolkit import tree
from aclnn.toolkit.programs import compile_program
from tests.helpers.toolkit_support import SAMPLES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "c-programs.md"


def command(root: Path) -> list[str]:
    """Return a valgrind command with the documented options, for programs of a tree."""
    (line,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("valgrind "))
    words = shlex.split(line.replace("$ASCEND_HOME_PATH", str(root)))
    assert words[-1] == "./program"
    return [words[0], "--quiet", "--error-exitcode=99", *words[1:-1]]


def findings_in(stderr: str) -> str:
    """Valgrind's own lines: NumPy before 2.3 writes of the long double that valgrind shortens to 64 bits."""
    return "\n".join(line for line in stderr.splitlines() if line.startswith("=="))


def main() -> None:
    findings = 0
    programs = [*ROOT.glob("examples/*.cpp"), *sorted(SAMPLES.glob("*.cpp"))]
    valgrind = command(tree.ensure())
    with tempfile.TemporaryDirectory() as folder:
        for source in programs:
            program = compile_program(source, Path(folder) / source.stem, options=["-w"])
            begin = time.monotonic()
            done = subprocess.run([*valgrind, program], capture_output=True, text=True, check=False)
            clean = done.returncode == 0 and not findings_in(done.stderr)
            findings += not clean
            print(f"{source.stem}: {'clean' if clean else done.stderr}, {time.monotonic() - begin:.0f} s", flush=True)
    if findings:
        sys.exit(f"{findings} of {len(programs)} programs have findings")


if __name__ == "__main__":
    main()
