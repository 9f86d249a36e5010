"""Compilation of C and C++ programs against the toolkit's tree."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from aclnn.toolkit import tree
from aclnn.toolkit.compiler import CompileError, ToolkitError, c_compiler, cxx_compiler, run_compiler, words

#: Libraries that a program links.
LINKED = ("-lopapi", "-lnnopbase", "-lascendcl", "-lhccl")
_C_SUFFIXES = (".c",)
_CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")


def compile_program(source: Path, executable: Path, root: Path | None = None, options: Sequence[str] = ()) -> Path:
    """Compile and link one C or C++ program against the tree.

    Raises:
        OSError: there is no such file.
        ToolkitError: the file is not one of C or C++; no compiler, or it refuses the program.
    """
    _expect_program(source)
    root = tree.ensure(root)
    is_c = source.suffix in _C_SUFFIXES
    standard = ["-std=gnu11"] if is_c else ["-std=c++17"]
    flags = words("CFLAGS" if is_c else "CXXFLAGS")
    # The folders that the vendor's scripts name for a single file.
    include = [f"-I{root / folder}" for folder in ("include", "include/aclnn", "include/aclnnop")]
    folders = [*include, f"-L{root / 'lib64'}", f"-Wl,-rpath,{root / 'lib64'}"]
    command = [*(c_compiler() if is_c else cxx_compiler()), *standard, "-O1", "-g", *flags, *options, *folders]
    try:
        run_compiler([*command, "-o", executable, source, *LINKED, "-lm", "-lpthread"])
    except CompileError as error:
        raise ToolkitError(f"{error}{_absence(error.output, root)}") from None
    return executable


def _absence(output: str, root: Path) -> str:
    from aclnn.toolkit import absent  # which knows every function of C; most programs compile without it

    names = absent.named_in(output)
    if not names:
        return ""
    return (
        f"this toolkit does not have {', '.join(names)}; what it has is listed in docs/c-functions.md, by 'aclnn info' "
        f"(operators) and in {root / 'include'}"
    )


def _expect_program(source: Path) -> None:
    """Refuse what a linker would take for its script."""
    if not stat.S_ISREG(source.stat().st_mode):
        raise ToolkitError(f"{source}: expected a regular file")
    known = _C_SUFFIXES + _CXX_SUFFIXES
    if source.suffix not in known:
        got = source.suffix or "no suffix"
        raise ToolkitError(f"{source}: expected a C or C++ file, one of {', '.join(known)}, got {got}")
