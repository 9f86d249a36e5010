"""The system's C and C++ compilers, and the parts of Python that compilation needs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from aclnn.support.optional import import_or_raise

_INSTALLED = ("site-packages", "dist-packages")


class ToolkitError(RuntimeError):
    """The toolkit cannot be built or used; the text says what to do."""


class CompileError(ToolkitError):
    """A failed compilation."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(f"the compiler failed: {command}\n{output}")
        self.output = output
        """The compiler's output."""


def c_compiler() -> list[str]:
    """Return the command of the C compiler: ``$CC``, else cc, gcc or clang.

    Raises:
        ToolkitError: there is none.
    """
    return _find("CC", ("cc", "gcc", "clang"))


def cxx_compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, else c++, g++ or clang++.

    Raises:
        ToolkitError: there is none.
    """
    return _find("CXX", ("c++", "g++", "clang++"))


def words(variable: str) -> list[str]:
    """Split an environment variable into words with shell quoting; return an empty list if it is unset.

    Raises:
        ToolkitError: a quote is not closed.
    """
    text = os.environ.get(variable, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ToolkitError(f"{variable}: expected words as in a shell, got {text!r} ({error})") from None


def _find(variable: str, names: Sequence[str]) -> list[str]:
    command = words(variable)
    if command:
        if shutil.which(command[0]):
            return command
        raise ToolkitError(f"{variable} names {command[0]!r}, which is not an executable file on PATH")
    for name in names:
        if shutil.which(name):
            return [name]
    language = "C++" if variable == "CXX" else "C"
    raise ToolkitError(
        f"the toolkit needs a {language} compiler, and found none of {', '.join(names)}: install one "
        "(Debian, Ubuntu: apt-get install g++ python3-dev; Fedora: dnf install gcc-c++ python3-devel) or set "
        f"{variable}"
    )


def python_headers() -> Path:
    """Return the folder of Python.h.

    Raises:
        ToolkitError: the headers are not installed.
    """
    folder = Path(sysconfig.get_paths()["include"])
    if not (folder / "Python.h").exists():
        raise ToolkitError(
            f"the toolkit needs Python's C headers, and {folder} has no Python.h: install them (Debian, Ubuntu: "
            "apt-get install python3-dev; Fedora: dnf install python3-devel)"
        )
    return folder


def python_library() -> Path:
    """Return Python's shared library, which a C program loads.

    Raises:
        ToolkitError: this Python has none.
    """
    variables = sysconfig.get_config_vars()
    version = sysconfig.get_python_version()
    names = [variables.get(key) or "" for key in ("INSTSONAME", "LDLIBRARY")]
    names += [f"libpython{version}.so.1.0", f"libpython{version}.so"]
    folders = [variables.get(key) or "" for key in ("LIBDIR", "LIBPL")]
    folders += [f"{variables.get('LIBDIR')}/{variables.get('MULTIARCH')}", f"{sysconfig.get_config_var('base')}/lib"]
    for name in names:
        for folder in folders:
            path = Path(folder, name)
            if folder and ".so" in name and path.is_file():
                return path.resolve()
    raise ToolkitError(
        f"the toolkit needs Python {version} as a shared library (libpython{version}.so), and this interpreter has "
        f"none in {variables.get('LIBDIR')}: install it (Debian, Ubuntu: apt-get install python3-dev) or use a "
        "Python that was configured with --enable-shared"
    )


def import_paths() -> list[str]:
    """Return the folders of installed packages that Python searches.

    The current folder and those of PYTHONPATH depend on the caller and are left out.
    """
    found = dict.fromkeys(sys.path)
    return [path for path in found if Path(path).name in _INSTALLED and Path(path).is_dir()]


def check() -> None:
    """Check that everything needed to build the toolkit is installed.

    Raises:
        ToolkitError: a compiler, Python's headers or its shared library is missing; the text says what to install.
        MissingExtraError: cffi is not installed.
    """
    for find in (c_compiler, cxx_compiler, python_headers, python_library):
        find()
    import_or_raise("cffi", "toolkit")


def run_compiler(command: Sequence[str | os.PathLike[str]]) -> str:
    """Run a compiler and return its standard output.

    Raises:
        CompileError: it failed; the text contains its messages.
    """
    parts = [os.fspath(part) for part in command]
    in_english = os.environ | {"LC_ALL": "C.UTF-8"}  # ``absent`` parses the messages
    result = subprocess.run(parts, capture_output=True, text=True, errors="replace", env=in_english, check=False)
    if result.returncode:
        raise CompileError(shlex.join(parts), f"{result.stderr}{result.stdout}")
    return result.stdout
