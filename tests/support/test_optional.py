"""Hints that name an extra."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclnn.support import optional


def test_a_clone_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(optional, "__file__", str(tmp_path / "src/aclnn/support/optional.py"))
    assert optional.install_command("torch") == f"pip install --editable '{tmp_path}[torch]'"


def test_an_installed_package_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "__file__", str(tmp_path / "site-packages/aclnn/support/optional.py"))
    assert optional.install_command("torch") == "pip install 'aclnn[torch]'"
