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
    """Yield unique temporary names with the paths; at the end, rename all of these files to the paths, or none.

    Readers find the old file or the new one at each path. After a failure the temporary files are removed, unless the
    process is killed.

    Raises:
        OSError: a file cannot be renamed; ``filename`` is its path.
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
            last = kept is old[-1]  # no later failure can require its restoration
            with _named_in_errors(path):
                had_one = not last and _keep(path, kept)
                os.replace(new, path)
            if not last:
                restore.callback(partial(os.replace, kept, path) if had_one else path.unlink)
        restore.pop_all()


def _keep(path: Path, kept: Path) -> bool:
    """Link or copy the file at a path to another name; return false if there is no file."""
    with suppress(FileNotFoundError):
        try:
            os.link(path, kept)
        except OSError:  # a file system without hard links, or another user's file
            shutil.copy2(path, kept)
        return True
    return False


def replace_all(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files by functions that write their bytes; if one cannot be written, every file stays unchanged.

    Files are replaced one after the other once all are on disk, and each keeps the permissions of the file that it
    replaces. A link stays, and its target is replaced. Pipes and devices cannot be replaced: they are written after the
    temporary files and before any file is replaced. If the process is killed in between, some files are new and the
    rest old.

    Raises:
        OSError: a file cannot be written; ``filename`` is its path as given, or the target of a link.
    """
    special = [path for path in writers if _is_special(path)]
    regular = [path for path in writers if path not in special]
    with replaced(*(Path(os.path.realpath(path)) for path in regular)) as fresh:
        for path, new in zip(regular, fresh, strict=True):
            with _named_in_errors(path), new.open("xb") as file:
                _keep_permissions(file, path)
                writers[path](file)
                file.flush()
                os.fsync(file.fileno())  # some file systems report errors only now
        for path in special:
            with _named_in_errors(path), path.open("wb") as file:
                writers[path](file)


def _keep_permissions(file: BinaryIO, path: Path) -> None:
    """Copy the permissions of the old file before writing any data, so that a private file is never readable."""
    with suppress(FileNotFoundError):
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # missing or inaccessible: writing it reports the reason
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

    The lock is best effort: without support by the file system there is none. Permission errors surface on the first
    write.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((root / ".lock").open("ab")), fcntl.LOCK_EX)
        yield
