"""A directory of files that are expensive to make: compiled kernels and tables, shared between processes.

A file is named after everything that its contents depend on, written beside its place and moved into it, so that
readers see whole files only and concurrent writers do no harm. It begins with a digest of its name and the rest, since
damaged machine code would run, and is used only if nobody but this user and the superuser could have put it there. No
failure of the file system is an error: what cannot be kept is made again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from aclnn.support.atomic import replaced
from aclnn.support.trust import expect_trusted, make_folder, open_trusted


def user_cache() -> Path:
    """The platform's folder for a user's files that can be made again; a temporary one where there is no home."""
    try:
        if sys.platform == "darwin":
            return Path("~/Library/Caches/aclnn").expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "aclnn"
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "aclnn"
    except RuntimeError:
        return temporary_cache()


def temporary_cache() -> Path:
    """A user's folder among the temporary ones."""
    return Path(tempfile.gettempdir()) / f"aclnn-{os.getuid() if hasattr(os, 'getuid') else os.environ.get('USERNAME')}"


def _candidates() -> Iterator[Path]:
    chosen = os.environ.get("ACLNN_CACHE_DIR")
    if chosen:
        with suppress(RuntimeError):  # of a home that there is not
            yield Path(chosen).expanduser()
    else:
        yield user_cache()
    yield temporary_cache()


def _can_be_written(path: Path) -> bool:
    """The directory exists (now), others cannot change it, and it takes files."""
    try:
        make_folder(path)
        expect_trusted(path)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


@cache
def directory() -> Path | None:
    """Return the directory of files: ``ACLNN_CACHE_DIR``, the platform's place, a temporary one, or None."""
    return next((path for path in _candidates() if _can_be_written(path)), None)


def sources() -> list[Path]:
    """The files whose code and constants are compiled into kernels."""
    package = Path(__file__).parents[2]
    single = package / "core" / "dtypes.py", package / "formula.py"
    fitted = package.glob("kernels/fitted/*.py")
    return sorted([*single, *package.glob("kernels/*.py"), *fitted, *package.glob("kernels/cpu/**/*.py")])


def stamp_of(paths: Iterable[Path]) -> str | None:
    """A digest of source files: other code, other stamp. None where they were not installed (PyInstaller, zip)."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


@cache
def source_stamp() -> str | None:
    """The stamp of the kernels' source."""
    return stamp_of(sources())


def _file(name: str, key: tuple[object, ...]) -> str:
    return f"{name}-{hashlib.sha256(repr((source_stamp(), *key)).encode()).hexdigest()[:32]}"


_DIGEST_BYTES = 16


def _digest(file: str, contents: bytes) -> bytes:
    return hashlib.sha256(file.encode() + contents).digest()[:_DIGEST_BYTES]


def read(name: str, key: tuple[object, ...]) -> bytes | None:
    """The contents kept under a name and everything they depend on; None when there are none, or damaged ones.

    Also from directories that cannot be written, as that of a container's image.
    """
    if source_stamp() is None:
        return None
    wanted = _file(name, key)
    for where in _candidates():
        with suppress(OSError), open_trusted(where / wanted) as file:
            kept = file.read()
            contents = kept[_DIGEST_BYTES:]
            if kept and _digest(wanted, contents) == kept[:_DIGEST_BYTES]:
                return contents
    return None


def write(name: str, key: tuple[object, ...], contents: bytes) -> str | None:
    """Keep contents, for other users to read too; None, or why that is impossible."""
    if source_stamp() is None:
        return "this installation has no source files"
    where = directory()
    if where is None:
        return "no directory can be written"
    file = _file(name, key)
    try:
        with replaced(where / file) as (fresh,):
            fresh.write_bytes(_digest(file, contents) + contents)
            fresh.chmod(0o644)
    except OSError as error:
        return f"{where}: {error.strerror or error}"
    return None
