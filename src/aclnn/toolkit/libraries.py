"""Compilation of the shared libraries: one per set of declared functions, and common parts that reach Python."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import aclnn
from aclnn import custom
from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.support.atomic import replaced
from aclnn.support.optional import import_or_raise
from aclnn.toolkit import abi, trampolines
from aclnn.toolkit.compiler import c_compiler, cxx_compiler, import_paths, python_headers, python_library, run_compiler
from aclnn.toolkit.rt_aliases import Alias
from aclnn.toolkit.stubs import Stub

#: Module with the Python entry points.
ENTRY_POINTS = "aclnn.toolkit.entry_points"
#: Library with the parts of CANN's graph engine, in C++ (``ge.cpp``).
GRAPH_ENGINE = "libge_runner.so"
#: Library with the operations of ATB, in C++ (``atb.cpp``).
BOOST = "libatb.so"

_COMPILE = ("-std=c11", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror=return-type", "-c")
_LINK = ("-shared", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-rpath,$ORIGIN:$ORIGIN/aclnn", "-Wl,--allow-shlib-undefined")
_CXX = ("-std=c++11", "-fPIC", "-O0", "-Wall", "-c")
_NEEDED = ("-Wl,--no-as-needed", "-lstdc++")


@dataclass(frozen=True)
class Library:
    """A shared library to link programs with."""

    name: str
    """Linker's name of the library: ``ascendcl``."""
    functions: tuple[CFunction | Alias | Stub, ...]
    headers: tuple[str, ...]
    """Headers that declare the functions, as a program includes them."""

    @property
    def file(self) -> str:
        """File name: ``libascendcl.so``."""
        return f"lib{self.name}.so"


def build(libraries: Sequence[Library], include: Path, lib: Path, work: Path) -> None:
    """Compile every library into ``lib`` and the common parts into ``lib/aclnn``.

    Args:
        include: folder of the headers.
        lib: existing folder for the libraries.
        work: existing folder for the generated C sources.

    Raises:
        ToolkitError: a compiler, Python's headers or its shared library is missing.
    """
    c, cxx = c_compiler(), cxx_compiler()
    inner = lib / "aclnn"
    inner.mkdir(exist_ok=True)
    functions = list(FUNCTIONS.values())
    _write(work, shared_sources(functions))
    _emit_bridge(functions, work / "bridge.c")
    for library in libraries:
        source = trampolines.library(library.functions, library.headers)
        exports = trampolines.exports(function.name for function in library.functions)
        _write(work, {f"{library.name}.c": source, f"{library.name}.map": exports})

    folders = [f"-I{folder}" for folder in (work, include, python_headers())]

    def compile_source(name: str) -> None:
        # The rest is thousands of generated functions that only pass calls on.
        optimized = {"start": "-O2", "objects": "-O2", "bridge": "-O1"}.get(name, "-O0")
        run_compiler([*c, *_COMPILE, optimized, *folders, "-o", work / f"{name}.o", work / f"{name}.c"])

    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        list(compilers.map(compile_source, ("start", "objects", "bridge", *(library.name for library in libraries))))
    start = inner / "libaclnn_start.so"
    _link(cxx, start, work / "start", work / "objects.o", "-ldl", "-lpthread")
    # The bridge's undefined symbols are resolved by the process's own Python.
    _link(cxx, inner / "bridge.so", work / "bridge", *_NEEDED, start)
    # All libraries depend on one another, so that a symbol is found through any handle. Hence they are linked twice:
    # the first time there are no files to depend on yet.
    files = [lib / library.file for library in libraries]
    for others in ([], files):
        for library in libraries:
            rest = [file for file in others if file.name != library.file]
            _link(cxx, lib / library.file, work / library.name, *_NEEDED, start, *rest)
    # Optimization would let clang drop the functions again.
    is_clang = "clang" in run_compiler([*cxx, "--version"])
    keeps_inline = "-femit-all-decls" if is_clang else "-fkeep-inline-functions"
    for name, file, options in (("ge", GRAPH_ENGINE, ("-D_GLIBCXX_USE_CXX11_ABI=0", keeps_inline)), ("atb", BOOST, ())):
        run_compiler([*cxx, *_CXX, *options, f"-I{include}", "-o", work / f"{name}.o", work / f"{name}.cpp"])
        _link(cxx, lib / file, work / name, *_NEEDED, *files)


def _link(cxx: Sequence[str], file: Path, stem: Path, *options: str | Path) -> None:
    names = [f"-Wl,-soname,{file.name}", f"-Wl,--version-script,{stem}.map"]
    with replaced(file) as (fresh,):
        run_compiler([*cxx, *_LINK, *names, "-o", fresh, f"{stem}.o", *options])


def shared_sources(functions: Sequence[CFunction]) -> dict[str, str]:
    """Return the files included by all libraries' sources, and the sources of the common parts."""
    return {
        "config.h": trampolines.config(_machine()),
        "entries.h": trampolines.entries_header(functions),
        **{name: trampolines.source(name) for name in trampolines.SHARED},
        "start.map": trampolines.exports(["aclnn_*"]),
        "bridge.map": trampolines.exports(["aclnn_bridge_open"]),
        "ge.cpp": trampolines.source("ge.cpp"),
        "ge.map": trampolines.exports(["_ZN2ge*", "_ZNK2ge*"]),
        "atb.cpp": trampolines.source("atb.cpp"),
        "atb.map": trampolines.exports(["_ZN3atb*"]),
    }


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _machine() -> dict[str, str]:
    """Return the definitions of ``config.h`` that locate this machine's Python."""
    # As bytes: the C program's Python may use another file system encoding.
    paths, here = [*map(os.fsencode, import_paths())], os.fsencode(Path(aclnn.__file__).parents[1])
    # The entry points depend on these operators, whatever the program's environment says.
    operators = os.fsencode(os.pathsep.join(map(str, custom.files())))
    return {
        "ACLNN_LIBPYTHON": str(python_library()),
        "ACLNN_PYTHON": sys.executable,
        "ACLNN_PYTHON_VERSION": f"{sys.version_info.major}.{sys.version_info.minor}",
        # First for this package only: Python may have another aclnn installed than the one that built the tree.
        "ACLNN_IMPORT_SERVER": (
            f"import gc, os, sys\npaths, here = [*map(os.fsdecode, {paths!r})], os.fsdecode({here!r})\n"
            "sys.path += [path for path in paths if path not in sys.path]\n"
            f"os.environ[{custom.VARIABLE!r}] = os.fsdecode({operators!r})\n"
            # Collections would take a quarter of the time and find nothing.
            "collects = gc.isenabled()\ngc.disable()\ntry:\n"
            f"    sys.path.insert(0, here)\n    import aclnn\n    sys.path.remove(here)\n    import {ENTRY_POINTS}\n"
            "finally:\n    if collects:\n        gc.enable()\n"
        ),
    }


def _emit_bridge(functions: Sequence[CFunction], path: Path) -> None:
    cffi = import_or_raise("cffi", "toolkit")
    ffi = cffi.FFI()
    entries = [f"{abi.entry_declaration(function)};" for function in functions]
    ffi.embedding_api("\n".join([*entries, *(f"{each};" for each in trampolines.SERVED), "void py_leave(void);"]))
    _, objects, _ = trampolines.source("objects.h").split("Python's part")
    ffi.cdef(
        "void *aclnn_new_array(size_t size);\nvoid aclnn_leave_first(void);\nvoid aclnn_watch(void);\n"
        f"void aclnn_begun(void);\nvoid free(void *);\n/*{objects}*/"
    )
    ffi.set_source("_aclnn_bridge", trampolines.source("bridge.c") + "\n" + trampolines.table(functions))
    ffi.embedding_init_code(
        f"import {ENTRY_POINTS}\nimport _aclnn_bridge\n{ENTRY_POINTS}.attach(_aclnn_bridge.ffi, _aclnn_bridge.lib)"
    )
    with contextlib.redirect_stdout(io.StringIO()):  # cffi prints the name of the file
        ffi.emit_c_code(str(path))
