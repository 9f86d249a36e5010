"""The toolkit's tree, laid out as build files know it: include, lib64, set_env.sh and what some clients look for."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aclnn import custom
from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.kernels.cpu.cache import temporary_cache, user_cache
from aclnn.support.atomic import locked, replaced
from aclnn.support.trust import expect_trusted, expect_trusted_tree, make_folder, unwritable_by_others
from aclnn.toolkit import compiler, headers, libraries, trampolines
from aclnn.toolkit.libraries import Library
from aclnn.toolkit.rt_aliases import ALIASES, Alias
from aclnn.toolkit.stubs import STUBS, Stub, refusing
from aclnn.version import __version__

#: The library that each folder of headers belongs to.
_LIBRARY_OF = {"acl": "ascendcl", "aclnn": "nnopbase", "aclnnop": "opapi", "hccl": "hccl"}
#: Where a package of custom operators lies.
_PACKAGE = "opp/vendors/customize/op_api"
#: Newer releases split libopapi by field and name the runtime anew, and torch_npu and MindSpore need libraries of whose
#: functions they call the runtime's only: whichever name a program links, it gets one of the libraries that there are.
_OTHER_NAMES = dict.fromkeys(("libopapi_nn.so", "libopapi_math.so", "libcust_opapi.so"), "libopapi.so") | dict.fromkeys(
    (
        *("libacl_rt.so", "libacl_op_compiler.so", "libacl_tdt_channel.so"),
        *("libascend_hal.so", "libplatform.so", "libc_sec.so"),
        *("libmspti.so", "libmsprofiler.so", "libms_tools_ext.so", "libprofapi.so"),
    ),
    "libascendcl.so",
)
_OTHER_NAMES |= {"libhcomm.so": "libhccl.so", "libgraph.so": libraries.GRAPH_ENGINE}
#: MindSpore takes for CANN's folder what the loader found the libraries in, up to this word.
_HOME = "cann"
#: MindSpore asks there for a release, the newest that its 2.10 knows, and on Python's path for the operators' compiler.
_RELEASE, _COMPILER = "compiler/version.info", "opp/built-in/op_impl/ai_core/tbe"
_RELEASE_TEXT = "Version=9.1.0\n"
#: Folders of older releases that build files and torch_npu look for.
_OLDER_FOLDERS = ("runtime", "compiler")
_STAMP = "aclnn/build.json"

#: What build files and torch_npu ask for, with the place in the tree.
_VARIABLES = dict.fromkeys(("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_CUSTOM_PATH"), "") | {
    "ASCEND_OPP_PATH": "/opp"
}
#: Where the loader and Python search first.
_SEARCHES = {"LD_LIBRARY_PATH": f"/{_HOME}/lib64", "PYTHONPATH": f"/{_COMPILER}"}
_SET_ENV = """\
# Source this file: it tells build files and the loader where the aclnn toolkit is.
# bash and zsh know where it is, wherever it was moved to; in other shells it is where it was laid out.
_aclnn_home=${{BASH_SOURCE:-${{ZSH_VERSION:+$0}}}}
[ -n "$_aclnn_home" ] || _aclnn_home={home}
_aclnn_home=$(CDPATH= cd -- "$(dirname -- "$_aclnn_home")" && pwd) || return
{exports}
# torch_npu's own launch thread cannot enter Python while others wait for it with Python's lock.
export TASK_QUEUE_ENABLE="${{TASK_QUEUE_ENABLE:-0}}"
{searched}
unset _aclnn_home
"""
_SEARCHED = """\
case ":${{{name}:-}}:" in
    *":$_aclnn_home{place}:"*) ;;
    *) export {name}="$_aclnn_home{place}${{{name}:+:${name}}}" ;;
esac"""
#: What the build files of older releases source, in bash or zsh.
_SETENV_BASH = '. "$(dirname -- "${BASH_SOURCE:-$0}")/../set_env.sh"\n'


def default_root() -> Path:
    """Return the tree's default folder: ACLNN_TOOLKIT_DIR, else one in the user's cache for this Python.

    ``ACLNN_OPERATORS`` has one of its own.

    Where others could change the user's cache, it is a temporary folder.
    """
    configured = os.environ.get("ACLNN_TOOLKIT_DIR")
    if configured:
        return Path(configured).absolute()
    known = "\n".join((sys.executable, __file__, *map(str, custom.files())))
    here = hashlib.sha256(os.fsencode(known)).hexdigest()[:8]
    cache = user_cache()
    try:
        expect_trusted(cache)
    except OSError:
        cache = temporary_cache()
    return cache / f"toolkit-{__version__}-{sys.implementation.cache_tag}-{here}"


def grouped(refused: Sequence[str] = ()) -> tuple[Library, ...]:
    """The libraries with the functions that each defines; ``refused`` are operators' functions that only refuse."""
    functions: dict[str, list[CFunction | Alias | Stub]] = {name: [] for name in _LIBRARY_OF.values()}
    includes: dict[str, list[str]] = {name: [] for name in _LIBRARY_OF.values()}
    for header, declared in headers.by_header().items():
        name = _LIBRARY_OF[header.split("/")[0]]
        functions[name] += declared
        includes[name].append(header)
    functions["runtime"], includes["runtime"] = list(ALIASES), [headers.LOWER_RUNTIME]
    for stub in (*STUBS, *refusing(refused)):
        functions[stub.library].append(stub)
    return tuple(Library(name, tuple(functions[name]), tuple(includes[name])) for name in functions)


def build(root: Path | None = None, refused: Sequence[str] = ()) -> Path:
    """Lay out the tree, over an older one if there is one.

    Args:
        root: where; the default folder must be one that others cannot change.
        refused: operators' functions that are not here, for which there shall be entry points that refuse.

    Raises:
        ToolkitError, MissingExtraError: something is missing on this machine; the text says what to install.
        PermissionError: others could change the default folder.
    """
    compiler.check()
    root = root.absolute() if root else _trusted_folder(default_root())
    with unwritable_by_others(), locked(root):
        _lay_out(root, refused)
    return root


def _lay_out(root: Path, refused: Sequence[str] = ()) -> None:
    include, lib = root / "include", root / "lib64"
    files = {f"include/{header}": text for header, text in headers.texts().items()}
    exports = "\n".join(f'export {name}="$_aclnn_home{place}"' for name, place in _VARIABLES.items())
    searched = "\n".join(_SEARCHED.format(name=name, place=place) for name, place in _SEARCHES.items())
    files["set_env.sh"] = _SET_ENV.format(home=_quoted(str(root / "set_env.sh")), exports=exports, searched=searched)
    files["bin/setenv.bash"] = _SETENV_BASH
    files["valgrind.supp"] = trampolines.source("valgrind.supp")
    files["opp/scene.info"] = f"os=linux\narch={platform.machine()}\n"
    files[_RELEASE] = _RELEASE_TEXT
    files[f"{_COMPILER}/te.py"] = trampolines.source("te.py")
    for name, text in files.items():
        _write(root / name, text)
    lib.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aclnn-toolkit-") as work:
        libraries.build(grouped(refused), include, lib, Path(work))
    platform_folder = root / f"{platform.machine()}-linux"
    platform_folder.mkdir(exist_ok=True)
    links = {lib / name: target for name, target in _OTHER_NAMES.items()}
    links |= {platform_folder / name: f"../{name}" for name in ("include", "lib64")}
    links[platform_folder / "devlib"] = "lib64"
    links[root / _HOME] = "."
    links[include / "aclnnop" / "level2"] = "."  # where CANN keeps some of the operators' headers, too
    links |= {root / _PACKAGE / "include": "../../../../include/aclnnop", root / _PACKAGE / "lib": "../../../../lib64"}
    for folder in _OLDER_FOLDERS:
        (root / folder).mkdir(exist_ok=True)
        links |= {root / folder / name: f"../{name}" for name in ("include", "lib64")}
    for link, target in links.items():
        _link(link, target)
    _write(root / _STAMP, json.dumps({"fingerprint": fingerprint()}) + "\n")


def ensure(root: Path | None = None) -> Path:
    """The tree, built if it is missing or older than this package, or if others could have changed a file of it.

    Raises:
        ToolkitError: it cannot be built here.
        PermissionError: others could change it again.
    """
    root = (root or default_root()).absolute()
    if is_current(root):
        return root
    compiler.check()
    with unwritable_by_others(), locked(_trusted_folder(root)):
        if not is_current(root):  # else another process has built it meanwhile
            _lay_out(root)
            expect_trusted_tree(root)
    return root


def _trusted_folder(root: Path) -> Path:
    make_folder(root)
    expect_trusted(root)
    return root


def is_current(root: Path) -> bool:
    """Return True where the tree was built from this package and Python as they are, and others could not change it."""
    try:
        expect_trusted_tree(root)
        stamp: Mapping[str, str] = json.loads((root / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("fingerprint") == fingerprint()


def fingerprint() -> str:
    """A digest of everything that the tree is made from."""
    functions = [*FUNCTIONS.values()]
    parts = [__version__, sys.version, *headers.texts().values(), *libraries.shared_sources(functions).values()]
    parts += [trampolines.library(library.functions, library.headers) for library in grouped()]
    parts += [trampolines.table(functions), *map(trampolines.source, ("bridge.c", "te.py", "valgrind.supp"))]
    parts += [Path(module).read_text(encoding="utf-8") for module in (libraries.__file__, __file__)]
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def environment(root: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the variables that ``set_env.sh`` exports."""
    result = {**base, **{name: f"{root}{place}" for name, place in _VARIABLES.items()}}
    result["TASK_QUEUE_ENABLE"] = base.get("TASK_QUEUE_ENABLE") or "0"
    for name, place in _SEARCHES.items():
        result[name] = os.pathsep.join(filter(None, [f"{root}{place}", base.get(name)]))
    return result


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as (fresh,):
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as (fresh,):
        fresh.symlink_to(target)
