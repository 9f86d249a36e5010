"""Optional dependencies: imported on first use, with a hint that names the extra when they are absent."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the text says which command installs it."""


def command(extra: str) -> str:
    """What installs an extra."""
    return f"pip install 'aclnn[{extra}]', or '.[{extra}]' in a clone"


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f"{module} is not installed: {command(extra)}", name=error.name, path=error.path
        ) from error
