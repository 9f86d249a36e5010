"""Optional dependencies: imported on first use, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional dependency is missing; the message contains the command to install it."""


#: Package names that differ from the module's, by module.
_PACKAGES = {"sklearn": "scikit-learn"}


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for a source checkout or an installed package."""
    root = Path(__file__).parents[3]
    if (root / "pyproject.toml").is_file():
        return f"pip install --editable '{root}[{extra}]'"
    return f"pip install 'aclnn[{extra}]'"


def import_or_raise(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Raises:
        MissingExtraError: the module is not installed.
    """
    top = module.split(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != top:
            raise
        raise MissingExtraError(
            f"{_PACKAGES.get(top, module)} is not installed: {install_command(extra)}", name=error.name, path=error.path
        ) from error
