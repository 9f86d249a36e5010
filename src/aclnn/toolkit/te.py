"""Stand-in for CANN's operator compiler, which MindSpore uses at import to declare some of its own operators.

The toolkit's tree contains this file as the package ``te``. It compiles nothing.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

__path__: list[str] = []


class _Anything(types.ModuleType):
    """A module with any attribute, which is another such module; as a decorator it returns the function unchanged."""

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        return arguments[0] if arguments and isinstance(arguments[0], types.FunctionType) else self


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        is_ours = fullname.split(".")[0] in (__name__, "tbe")
        return ModuleSpec(fullname, self, is_package=True) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> _Anything:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


_release = Path(__file__).parents[5] / "compiler" / "version.info"
version = types.SimpleNamespace(version=_release.read_text(encoding="utf-8").strip().partition("=")[2])
sys.meta_path.append(_Finder())
