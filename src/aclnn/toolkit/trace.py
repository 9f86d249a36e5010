"""``ACLNN_TRACE=file``: one line for every call of a C program, and reading such a file again.

A line has four fields with tabs between them: name, arguments, status (or value), microseconds spent in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The arguments of a function that is only named.
REFUSED = "refused"

#: The arguments of a function that was looked for in vain.
ABSENT = "absent"


@dataclass(frozen=True)
class Record:
    """A call."""

    name: str
    arguments: str
    """``size=64, policy=0, devPtr -> 0x7f0000000000``: inputs, then results, which a refused call has not written."""
    status: str
    microseconds: float


def read(path: Path) -> Iterator[Record]:
    """The calls that a trace file holds.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is not one of a trace.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _record(line, f"{path}:{number}")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected a file written by ACLNN_TRACE, got bytes that are no text") from None


def _record(line: str, place: str) -> Record:
    fields = line.rstrip("\n").split("\t")
    try:
        name, arguments, status, microseconds = fields
        return Record(name, arguments, status, float(microseconds))
    except ValueError:
        raise ValueError(f"{place}: expected a line of an ACLNN_TRACE file, got {line[:80]!r}") from None
