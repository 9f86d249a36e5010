"""The toolkit's tree, laid out as build files know it: include, lib64, set_env.sh and what some clients look for."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aclnn.cann.prototype import CFunction
from aclnn.kernels.cpu.cache import user_cache
from aclnn.toolkit import compiler, headers, libraries, trampolines
from aclnn.toolkit.libraries import Library
from aclnn.toolkit.lower_runtime import FORWARDS
from aclnn.toolkit.places import locked, replaced
from aclnn.version import __version__

#: The library that each folder of headers belongs to.
_LIBRARY_OF = {"acl": "ascendcl", "aclnn": "nnopbase", "aclnnop": "opapi"}
#: Newer releases split libopapi by field; whichever name a program links, it gets the one library.
_OTHER_NAMES = {"libopapi_nn.so": "libopapi.so"}
_STAMP = "aclnn/build.json"

_SET_ENV = """\
# Source this file: it tells compilers and the loader where the aclnn toolkit is.
# bash and zsh know where it is, wherever it was moved to; in other shells it is where it was laid out.
_aclnn_home=${{BASH_SOURCE:-${{ZSH_VERSION:+$0}}}}
[ -n "$_aclnn_home" ] || _aclnn_home={home}
_aclnn_home=$(CDPATH= cd -- "$(dirname -- "$_aclnn_home")" && pwd) || return
export ASCEND_HOME_PATH="$_aclnn_home"
export ASCEND_TOOLKIT_HOME="$_aclnn_home"
export ASCEND_OPP_PATH="$_aclnn_home/opp"
_aclnn_prepend() {{
    case ":$2:" in
        *":$1:"*) printf '%s' "$2" ;;
        *) printf '%s' "$1${{2:+:$2}}" ;;
    esac
}}
LD_LIBRARY_PATH=$(_aclnn_prepend "$_aclnn_home/lib64" "${{LD_LIBRARY_PATH:-}}")
CPATH=$(_aclnn_prepend "$_aclnn_home/include" "${{CPATH:-}}")
LIBRARY_PATH=$(_aclnn_prepend "$_aclnn_home/lib64" "${{LIBRARY_PATH:-}}")
export LD_LIBRARY_PATH CPATH LIBRARY_PATH
unset _aclnn_home
unset -f _aclnn_prepend
"""


def default_root() -> Path:
    """Where the tree is unless told otherwise: ACLNN_TOOLKIT_DIR, else a folder of the user's cache for this Python."""
    configured = os.environ.get("ACLNN_TOOLKIT_DIR")
    if configured:
        return Path(configured).absolute()
    here = hashlib.sha256(f"{sys.executable}\n{__file__}".encode()).hexdigest()[:8]
    return user_cache() / f"toolkit-{__version__}-{sys.implementation.cache_tag}-{here}"


def grouped() -> tuple[Library, ...]:
    """The libraries with the functions that each defines."""
    functions: dict[str, list[CFunction]] = {name: [] for name in _LIBRARY_OF.values()}
    includes: dict[str, list[str]] = {name: [] for name in _LIBRARY_OF.values()}
    for header, declared in headers.by_header().items():
        name = _LIBRARY_OF[header.split("/")[0]]
        functions[name] += declared
        includes[name].append(header)
    found = tuple(Library(name, tuple(functions[name]), tuple(includes[name])) for name in functions)
    return (*found, Library("runtime", FORWARDS, (headers.LOWER_RUNTIME,)))


def build(root: Path) -> Path:
    """Lay out the tree, over an older one if there is one.

    Raises:
        ToolkitError, MissingExtraError: something is missing on this machine; the text says what to install.
    """
    compiler.check()
    root = root.absolute()
    with locked(root):
        _lay_out(root)
    return root


def _lay_out(root: Path) -> None:
    include, lib = root / "include", root / "lib64"
    files = {f"include/{header}": text for header, text in headers.texts().items()}
    files["set_env.sh"] = _SET_ENV.format(home=_quoted(str(root / "set_env.sh")))
    files["valgrind.supp"] = trampolines.source("valgrind.supp")
    files["opp/scene.info"] = f"os=linux\narch={platform.machine()}\n"
    for name, text in files.items():
        _write(root / name, text)
    lib.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aclnn-toolkit-") as work:
        libraries.build(grouped(), include, lib, Path(work))
    platform_folder = root / f"{platform.machine()}-linux"
    platform_folder.mkdir(exist_ok=True)
    links = {lib / name: target for name, target in _OTHER_NAMES.items()}
    links |= {platform_folder / name: f"../{name}" for name in ("include", "lib64")}
    for link, target in links.items():
        _link(link, target)
    _write(root / _STAMP, json.dumps({"fingerprint": fingerprint()}) + "\n")


def ensure(root: Path | None = None) -> Path:
    """The tree, built if it is missing or older than this package.

    Raises:
        ToolkitError: it cannot be built here.
    """
    root = (root or default_root()).absolute()
    if is_current(root):
        return root
    compiler.check()
    with locked(root):
        if not is_current(root):  # else another process has built it meanwhile
            _lay_out(root)
    return root


def is_current(root: Path) -> bool:
    """Whether the tree was built from what this package and this Python are now."""
    try:
        stamp: Mapping[str, str] = json.loads((root / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("fingerprint") == fingerprint()


def fingerprint() -> str:
    """A digest of everything that the tree is made from."""
    parts = [__version__, sys.version, sys.executable, _SET_ENV, *headers.texts().values()]
    parts += [trampolines.library(library.functions, library.headers) for library in grouped()]
    parts += [trampolines.source(name) for name in ("start.c", "start.h", "bridge.c", "valgrind.supp")]
    parts.append(Path(libraries.__file__).read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def environment(root: Path, base: Mapping[str, str]) -> dict[str, str]:
    """What ``set_env.sh`` exports, on top of an environment."""
    result = dict(base)
    result |= {name: str(root) for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")}
    result["ASCEND_OPP_PATH"] = str(root / "opp")
    for name, folder in (("LD_LIBRARY_PATH", "lib64"), ("CPATH", "include"), ("LIBRARY_PATH", "lib64")):
        result[name] = os.pathsep.join(filter(None, [str(root / folder), base.get(name, "")]))
    return result


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def _link(path: Path, target: str) -> None:
    with replaced(path) as fresh:
        fresh.symlink_to(target)
