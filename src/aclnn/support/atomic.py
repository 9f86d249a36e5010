"""Atomic replacement of files, and locks on folders."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(*paths: Path) -> Iterator[tuple[Path, ...]]:
    """Names beside the paths, nobody else's, for what takes their places at the end: all of it, or none.

    Readers find the old file or the new one at each path. Nothing is left of what fails, unless the process is killed.

    Raises:
        OSError: a place cannot be taken; ``filename`` says which.
    """
    fresh, old = (tuple(path.with_name(f".{secrets.token_hex(6)}.tmp") for path in paths) for _ in range(2))
    try:
        yield fresh
        _take_places(fresh, paths, old)
    finally:
        for path in (*fresh, *old):
            with suppress(OSError):
                path.unlink()


def _take_places(fresh: Sequence[Path], paths: Sequence[Path], old: Sequence[Path]) -> None:
    with ExitStack() as restore:
        for new, path, kept in zip(fresh, paths, old, strict=True):
            last = kept is old[-1]  # no later failure would have it restored
            with _named_in_errors(path):
                had_one = not last and _keep(path, kept)
                os.replace(new, path)
            if not last:
                restore.callback(partial(os.replace, kept, path) if had_one else path.unlink)
        restore.pop_all()


def _keep(path: Path, kept: Path) -> bool:
    """Give what is at a path another name too; whether there is anything."""
    with suppress(FileNotFoundError):
        try:
            os.link(path, kept)
        except OSError:  # a file system without hard links, or another user's file
            shutil.copy2(path, kept)
        return True
    return False


def replace_all(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Files by what writes their bytes: a failure to write one leaves every file as it was.

    They take their places one after the other when the last is on the disk; each keeps the permissions of what it
    replaces. Links stay, and what they lead to is replaced. Pipes and devices cannot be replaced: they are written to,
    after the others are written and before those take their places. If the process is killed in between, some files are
    new and the rest old.

    Raises:
        OSError: one cannot be written; ``filename`` is its path as given, or what a link leads to.
    """
    special = [path for path in writers if _is_special(path)]
    regular = [path for path in writers if path not in special]
    with replaced(*(Path(os.path.realpath(path)) for path in regular)) as fresh:
        for path, new in zip(regular, fresh, strict=True):
            with _named_in_errors(path), new.open("xb") as file:
                _keep_permissions(file, path)
                writers[path](file)
                file.flush()
                os.fsync(file.fileno())  # some file systems refuse only now
        for path in special:
            with _named_in_errors(path), path.open("wb") as file:
                writers[path](file)


def _keep_permissions(file: BinaryIO, path: Path) -> None:
    """Before the first byte, so that a private file is never readable."""
    with suppress(FileNotFoundError):
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)


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


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, so that processes that build the same tree wait for one another.

    Best effort: continues without a lock if the file system has none. Permission errors surface on the first write.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((root / ".lock").open("ab")), fcntl.LOCK_EX)
        yield
