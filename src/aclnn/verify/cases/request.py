"""A case before loading: names as the user or a list spelt them, files, attribute values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aclnn.io.arguments import Raw


@dataclass(frozen=True)
class CaseRequest:
    """A case to load."""

    operator: str
    values: Mapping[str, Any]
    """Files of inputs and values of attributes."""
    actual: Mapping[str, str]
    third: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    folder: Path = Path()
    roles: tuple[str, str] = ("actual", "third")
    """The caller's words for ``actual`` and ``third``."""
    raw: Raw = field(default_factory=Raw)
    """Data types and shapes that a list or folder states for its raw files."""


def natural_key(path: Path | str) -> list[int | str]:
    """Return a sort key for names with numbers: rank2 precedes rank10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]
