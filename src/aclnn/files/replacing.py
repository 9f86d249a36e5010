"""Writing several files so that none changes unless all of them can be written."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def replace_all(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Files by what writes their bytes: a failure to write one leaves every file as it was.

    They take their places one after the other when the last is written; each keeps the permissions of what it replaces.
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
                    _keep_permissions(file, target)
                    write_to(file)
        for path, target, temporary in staged:
            with _named_in_errors(path):
                os.replace(temporary, target)
    finally:
        for _, _, temporary in staged:
            temporary.unlink(missing_ok=True)


def _keep_permissions(file: BinaryIO, target: str) -> None:
    """Before the first byte: what nobody else could read is not to be read meanwhile."""
    with suppress(FileNotFoundError):
        os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)


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
