"""``ACLNN_TRACE=file``: traces with one line per call of a C program, and their reader.

A line has four fields separated by tabs: name, arguments, status (or value), microseconds spent in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Arguments field of a function without implementation.
REJECTED = "rejected"

#: Arguments field of a function that was looked up and not found.
ABSENT = "absent"


@dataclass(frozen=True)
class Record:
    """A traced call."""

    name: str
    arguments: str
    """``size=64, policy=0, devPtr -> 0x7f0000000000``: inputs, then results, which a failed call has not written."""
    status: str
    microseconds: float


def read(path: Path) -> Iterator[Record]:
    """Yield the calls in a trace file.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is not a trace's.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _record(line, f"{path}:{number}")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected a file written by ACLNN_TRACE, got bytes that are not text") from None


def _record(line: str, place: str) -> Record:
    fields = line.rstrip("\n").split("\t")
    try:
        name, arguments, status, microseconds = fields
        return Record(name, arguments, status, float(microseconds))
    except ValueError:
        raise ValueError(f"{place}: expected a line of an ACLNN_TRACE file, got {line[:80]!r}") from None
