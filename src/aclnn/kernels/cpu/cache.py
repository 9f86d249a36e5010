"""On-disk cache of files that are expensive to make, compiled kernels and tables, shared between processes.

A file's name depends on everything that its contents depend on. It is written under a temporary name and renamed, so
that readers see complete files only and concurrent writers do no harm. It begins with a digest of its name and
contents, since damaged machine code would be executed, and is used only if nobody but this user and the superuser could
have written it. File system errors are never fatal: what cannot be stored is made again.
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
    """Return the platform's folder for a user's caches; a temporary one without a home directory."""
    try:
        if sys.platform == "darwin":
            return Path("~/Library/Caches/aclnn").expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "aclnn"
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "aclnn"
    except RuntimeError:
        return temporary_cache()


def temporary_cache() -> Path:
    """Return the user's folder in the temporary directory."""
    return Path(tempfile.gettempdir()) / f"aclnn-{os.getuid() if hasattr(os, 'getuid') else os.environ.get('USERNAME')}"


def _candidates() -> Iterator[Path]:
    chosen = os.environ.get("ACLNN_CACHE_DIR")
    if chosen:
        with suppress(RuntimeError):  # no home directory
            yield Path(chosen).expanduser()
    else:
        yield user_cache()
    yield temporary_cache()


def _can_be_written(path: Path) -> bool:
    """Create the directory if necessary; return True if it is writable, and by nobody else."""
    try:
        make_folder(path)
        expect_trusted(path)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


@cache
def directory() -> Path | None:
    """Return the cache directory: ``ACLNN_CACHE_DIR``, the platform's folder, a temporary one, or None."""
    return next((path for path in _candidates() if _can_be_written(path)), None)


def sources() -> list[Path]:
    """Return the source files whose code and constants are compiled into kernels."""
    package = Path(__file__).parents[2]
    single = package / "core" / "dtypes.py", package / "formula.py"
    fitted = package.glob("kernels/fitted/*.py")
    return sorted([*single, *package.glob("kernels/*.py"), *fitted, *package.glob("kernels/cpu/**/*.py")])


def stamp_of(paths: Iterable[Path]) -> str | None:
    """Return a digest of source files; None if sources are not installed (PyInstaller, zip)."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


@cache
def source_stamp() -> str | None:
    """Return the digest of the kernels' sources."""
    return stamp_of(sources())


def _file(name: str, key: tuple[object, ...]) -> str:
    return f"{name}-{hashlib.sha256(repr((source_stamp(), *key)).encode()).hexdigest()[:32]}"


_DIGEST_BYTES = 16


def _digest(file: str, contents: bytes) -> bytes:
    return hashlib.sha256(file.encode() + contents).digest()[:_DIGEST_BYTES]


def read(name: str, key: tuple[object, ...]) -> bytes | None:
    """Return the contents stored under a name and key; None if there are none, or damaged ones.

    Directories without write permission are searched too, such as that of a container image.
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
    """Store contents, readable for other users too; return None, or the reason for failure."""
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
