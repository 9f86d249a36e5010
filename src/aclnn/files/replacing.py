"""Writing several files so that all of them appear, or none changes."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def replace_all(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Files by what writes their bytes: all take their places when the last is written, or none changes.

    Links stay, and what they lead to is replaced. Pipes and devices cannot be replaced: they are written to, after the
    others are written and before those take their places.

    Raises:
        OSError: one cannot be written; ``filename`` is its path as given.
    """
    staged: list[tuple[Path, str, Path]] = []
    try:
        for path, write_to in sorted(writers.items(), key=lambda item: _is_special(item[0])):
            with _named_in_errors(path):
                if _is_special(path):
                    with path.open("wb") as file:
                        write_to(file)
                    continue
                target = os.path.realpath(path)
                staged.append((path, target, Path(target).with_name(f".{secrets.token_hex(6)}.tmp")))
                with open(os.open(staged[-1][2], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                    write_to(file)
        for path, target, temporary in staged:
            with _named_in_errors(path):
                os.replace(temporary, target)
    finally:
        for _, _, temporary in staged:
            temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # not there: whoever writes it finds out why
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return not stat.S_ISREG(mode)


@contextmanager
def _named_in_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
