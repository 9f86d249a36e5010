"""Compilation of C and C++ programs with the toolkit's tree."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from aclnn.toolkit import tree
from aclnn.toolkit.compiler import CompileError, ToolkitError, c_compiler, cxx_compiler, run_compiler, words

#: Linker options of a program.
LINKED = ("-lopapi", "-lnnopbase", "-lascendcl", "-lhccl")
_C_SUFFIXES = (".c",)
_CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")


def compile_program(source: Path, executable: Path, root: Path | None = None, options: Sequence[str] = ()) -> Path:
    """Compile and link a C or C++ program with the tree.

    Raises:
        OSError: the file does not exist.
        ToolkitError: the file is not C or C++; there is no compiler, or the compilation failed.
    """
    _expect_program(source)
    root = tree.ensure(root)
    is_c = source.suffix in _C_SUFFIXES
    standard = ["-std=gnu11"] if is_c else ["-std=c++17"]
    flags = words("CFLAGS" if is_c else "CXXFLAGS")
    # The include folders that the vendor's scripts pass for a single file.
    include = [f"-I{root / folder}" for folder in ("include", "include/aclnn", "include/aclnnop")]
    folders = [*include, f"-L{root / 'lib64'}", f"-Wl,-rpath,{root / 'lib64'}"]
    command = [*(c_compiler() if is_c else cxx_compiler()), *standard, "-O1", "-g", *flags, *options, *folders]
    try:
        run_compiler([*command, "-o", executable, source, *LINKED, "-lm", "-lpthread"])
    except CompileError as error:
        raise ToolkitError(f"{error}{_absence(error.output, root)}") from None
    return executable


def _absence(output: str, root: Path) -> str:
    from aclnn.toolkit import absent  # imports every C function, which is needed after failures only

    names = absent.named_in(output)
    if not names:
        return ""
    return (
        f"this toolkit does not have {', '.join(names)}; what it has is listed in docs/c-functions.md, by 'aclnn info' "
        f"(operators) and in {root / 'include'}"
    )


def _expect_program(source: Path) -> None:
    """Reject a file that the linker would take for a linker script."""
    if not stat.S_ISREG(source.stat().st_mode):
        raise ToolkitError(f"{source}: expected a regular file")
    known = _C_SUFFIXES + _CXX_SUFFIXES
    if source.suffix not in known:
        got = source.suffix or "no suffix"
        raise ToolkitError(f"{source}: expected a C or C++ file, one of {', '.join(known)}, got {got}")
