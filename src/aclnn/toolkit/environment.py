"""Environment for programs that use the toolkit's tree: its variables, and a shell script to source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: MindSpore takes the path of a loaded library, up to this word, for CANN's folder.
HOME = "cann"
#: Folder of the modules that clients import; MindSpore looks for the operator compiler in it.
PYTHON = "opp/built-in/op_impl/ai_core/tbe"

#: Variables that build files and torch_npu read, with the path within the tree.
_VARIABLES = dict.fromkeys(("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_CUSTOM_PATH"), "") | {
    "ASCEND_OPP_PATH": "/opp"
}
#: Search paths of the loader and of Python, with the folder to prepend.
_SEARCHES = {"LD_LIBRARY_PATH": f"/{HOME}/lib64", "PYTHONPATH": f"/{PYTHON}"}
_SET_ENV = """\
# Source this file: it sets the paths of the aclnn toolkit for build files and the loader.
# bash and zsh find the toolkit even if it was moved; other shells use the path of its installation.
_aclnn_home=${{BASH_SOURCE:-${{ZSH_VERSION:+$0}}}}
[ -n "$_aclnn_home" ] || _aclnn_home={home}
_aclnn_home=$(CDPATH= cd -- "$(dirname -- "$_aclnn_home")" && pwd) || return
{exports}
# torch_npu's own launch thread cannot enter Python while another thread waits for it with Python's lock held.
export TASK_QUEUE_ENABLE="${{TASK_QUEUE_ENABLE:-0}}"
{searched}
unset _aclnn_home
"""
_SEARCHED = """\
case ":${{{name}:-}}:" in
    *":$_aclnn_home{place}:"*) ;;
    *) export {name}="$_aclnn_home{place}${{{name}:+:${name}}}" ;;
esac"""


def script(path: Path) -> str:
    """Return the text of ``set_env.sh`` for the given path."""
    exports = "\n".join(f'export {name}="$_aclnn_home{place}"' for name, place in _VARIABLES.items())
    searched = "\n".join(_SEARCHED.format(name=name, place=place) for name, place in _SEARCHES.items())
    return _SET_ENV.format(home=_quoted(str(path)), exports=exports, searched=searched)


def variables(root: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the variables that ``set_env.sh`` exports."""
    result = {**base, **{name: f"{root}{place}" for name, place in _VARIABLES.items()}}
    result["TASK_QUEUE_ENABLE"] = base.get("TASK_QUEUE_ENABLE") or "0"
    for name, place in _SEARCHES.items():
        result[name] = os.pathsep.join(filter(None, [f"{root}{place}", base.get(name)]))
    return result


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
