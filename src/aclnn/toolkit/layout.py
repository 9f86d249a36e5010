"""Layout of the toolkit's tree as build files expect it: include, lib64, set_env.sh and files that clients look for."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.support.atomic import replaced
from aclnn.toolkit import environment, headers, libraries, trampolines
from aclnn.toolkit.libraries import Library
from aclnn.toolkit.rt_aliases import ALIASES, Alias
from aclnn.toolkit.stubs import STUBS, Stub, not_implemented
from aclnn.version import __version__

#: Library for each folder of headers.
_LIBRARY_OF = {"acl": "ascendcl", "aclnn": "nnopbase", "aclnnop": "opapi", "hccl": "hccl"}
#: Folder of a package of custom operators.
_PACKAGE = "opp/vendors/customize/op_api"
#: Aliases: newer releases split libopapi by field and rename the runtime; torch_npu and MindSpore also load libraries
#: of which they call runtime functions only.
_OTHER_NAMES = dict.fromkeys(
    (
        *(f"libopapi_{field}.so" for field in ("nn", "math", "cv", "transformer", "legacy")),
        "libcust_opapi.so",
    ),
    "libopapi.so",
) | dict.fromkeys(
    (
        *("libacl_rt.so", "libacl_op_compiler.so", "libacl_tdt_channel.so"),
        *("libascend_hal.so", "libplatform.so", "libc_sec.so"),
        *("libmspti.so", "libmsprofiler.so", "libms_tools_ext.so", "libprofapi.so"),
    ),
    "libascendcl.so",
)
_OTHER_NAMES |= dict.fromkeys(("libhcomm.so", "libhccl_fwk.so"), "libhccl.so")
_OTHER_NAMES["libgraph.so"] = libraries.GRAPH_ENGINE
#: File in which MindSpore looks for the release; 9.1.0 is the newest that MindSpore 2.10 knows.
_RELEASE, _RELEASE_TEXT = "compiler/version.info", "Version=9.1.0\n"
#: Modules that clients import.
_MODULES = ("acl.py", "te.py")
#: Folders of older releases in which build files and torch_npu look.
_OLDER_FOLDERS = ("runtime", "compiler")
#: Script that build files of older releases source, in bash or zsh.
_SETENV_BASH = '. "$(dirname -- "${BASH_SOURCE:-$0}")/../set_env.sh"\n'


def grouped(unimplemented: Sequence[str] = ()) -> tuple[Library, ...]:
    """Return the libraries, each with its functions; ``unimplemented`` names functions that only return an error."""
    functions: dict[str, list[CFunction | Alias | Stub]] = {name: [] for name in _LIBRARY_OF.values()}
    includes: dict[str, list[str]] = {name: [] for name in _LIBRARY_OF.values()}
    for header, declared in headers.by_header().items():
        name = _LIBRARY_OF[header.split("/")[0]]
        functions[name] += declared
        includes[name].append(header)
    functions["runtime"], includes["runtime"] = list(ALIASES), [headers.LOWER_RUNTIME]
    for stub in (*STUBS, *not_implemented(unimplemented)):
        functions[stub.library].append(stub)
    return tuple(Library(name, tuple(functions[name]), tuple(includes[name])) for name in functions)


def lay_out(root: Path, unimplemented: Sequence[str] = ()) -> None:
    """Write the tree, replacing an older one if present.

    Args:
        root: the tree's folder.
        unimplemented: see ``grouped``.

    Raises:
        ToolkitError: a compiler failed.
    """
    include, lib = root / "include", root / "lib64"
    files = {f"include/{header}": text for header, text in headers.texts().items()}
    files["set_env.sh"] = environment.script(root / "set_env.sh")
    files["bin/setenv.bash"] = _SETENV_BASH
    files["valgrind.supp"] = trampolines.source("valgrind.supp")
    files["opp/scene.info"] = f"os=linux\narch={platform.machine()}\n"
    files[_RELEASE] = _RELEASE_TEXT
    files |= {f"{environment.PYTHON}/{name}": trampolines.source(name) for name in _MODULES}
    for name, text in files.items():
        write(root / name, text)
    lib.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aclnn-toolkit-") as work:
        libraries.build(grouped(unimplemented), include, lib, Path(work))
    platform_folder = root / f"{platform.machine()}-linux"
    platform_folder.mkdir(exist_ok=True)
    links = {lib / name: target for name, target in _OTHER_NAMES.items()}
    links |= {platform_folder / name: f"../{name}" for name in ("include", "lib64")}
    links[platform_folder / "devlib"] = "lib64"
    links[root / environment.HOME] = "."
    links[include / "aclnnop" / "level2"] = "."  # CANN also keeps some of the operators' headers there
    links |= {root / _PACKAGE / "include": "../../../../include/aclnnop", root / _PACKAGE / "lib": "../../../../lib64"}
    for folder in _OLDER_FOLDERS:
        (root / folder).mkdir(exist_ok=True)
        links |= {root / folder / name: f"../{name}" for name in ("include", "lib64")}
    for path, target in links.items():
        link(path, target)


def fingerprint() -> str:
    """Return a digest of everything that the tree is made from."""
    functions = [*FUNCTIONS.values()]
    parts = [__version__, sys.version, *headers.texts().values(), *libraries.shared_sources(functions).values()]
    parts += [trampolines.library(library.functions, library.headers) for library in grouped()]
    parts += [trampolines.table(functions), *map(trampolines.source, ("bridge.c", "valgrind.supp", *_MODULES))]
    modules = libraries.__file__, environment.__file__, __file__
    parts += [Path(module).read_text(encoding="utf-8") for module in modules]
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as (fresh,):
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")


def link(path: Path, target: str) -> None:
    """Make a symbolic link atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as (fresh,):
        fresh.symlink_to(target)
