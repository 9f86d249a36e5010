"""Trusted files, which only this user or the superuser could have put in place, and which may therefore be run.

A user who can write to a folder can replace a file in it, and the owner of a link controls its target. A path is
therefore checked from the root folder down: every folder and link on it must belong to this user or the superuser, and
nobody else may have write access to a folder, except one like /tmp, whose sticky bit protects other users' entries.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

_MOST_LINKS = 40
_NO_SURPRISES = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for ``os.open`` that reject links and do not block on a pipe without a writer."""


def make_folder(path: Path) -> None:
    """Create a folder and its ancestors without write access for others, whatever the umask.

    Raises:
        OSError: a folder cannot be created.
    """
    try:
        path.mkdir(0o755, exist_ok=True)
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(0o755, exist_ok=True)


@contextmanager
def unwritable_by_others() -> Iterator[None]:
    """Deny others write access to whatever this process and its children create meanwhile, regardless of the umask."""
    before = os.umask(0o022)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def expect_trusted(path: Path) -> None:
    """Require that others cannot change or replace a file or folder, as far as the path exists.

    Raises:
        PermissionError: another user owns or may write ``filename``.
        OSError: a part of the path cannot be examined.
    """
    if not hasattr(os, "geteuid"):
        return
    here, rest, links = Path(), [*reversed(path.absolute().parts)], 0
    while rest:
        name = rest.pop()
        here = here.parent if name == ".." else here / name
        try:
            about = os.lstat(here)
        except FileNotFoundError:
            return
        _expect_owner(here, about)
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            rest += reversed(here.readlink().parts)
            here = here.parent
        elif not (rest and _keeps_entries(about)):
            _expect_no_other_writer(here, about)


def expect_trusted_tree(root: Path) -> None:
    """Require that others cannot change or replace a folder or anything in it.

    Raises:
        PermissionError: another user owns or may write ``filename``.
        OSError: an entry cannot be examined.
    """
    expect_trusted(root)
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in (*folders, *files)):
            about = os.lstat(path)
            _expect_owner(path, about)
            if not stat.S_ISLNK(about.st_mode):
                _expect_no_other_writer(path, about)


def open_trusted(path: Path) -> BinaryIO:
    """Open a regular file, not a link, that others cannot change or replace.

    Raises:
        PermissionError: another user owns or may write the file or a part of its path.
        OSError: the file cannot be opened, or is not a regular file.
    """
    expect_trusted(path.parent)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_SURPRISES))  # noqa: SIM115
    try:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        if hasattr(os, "geteuid"):
            _expect_owner(path, about)
            _expect_no_other_writer(path, about)
    except OSError:
        file.close()
        raise
    return file


def _expect_owner(path: Path, about: os.stat_result) -> None:
    if about.st_uid not in (0, os.geteuid()):
        text = f"expected to belong to user {os.geteuid()} or the superuser, got user {about.st_uid}"
        raise PermissionError(errno.EPERM, text, str(path))


def _expect_no_other_writer(path: Path, about: os.stat_result) -> None:
    others = stat.S_IWOTH if _is_private(about.st_gid, os.geteuid()) else stat.S_IWGRP | stat.S_IWOTH
    if about.st_mode & others:
        text = f"expected no write permission for others, got {stat.filemode(about.st_mode)}"
        raise PermissionError(errno.EPERM, text, str(path))


def _keeps_entries(about: os.stat_result) -> bool:
    """Return true if only the superuser may rename or remove other users' entries of a folder."""
    return bool(about.st_mode & stat.S_ISVTX) and about.st_uid == 0


@cache
def _is_private(group: int, user: int) -> bool:
    """Return true if a group is the user's private group, as many systems create for each user."""
    import grp
    import pwd

    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}
