"""A directory of files that are expensive to make: compiled kernels and tables, shared between processes.

A file is named after everything that its contents depend on, written beside its place and moved into it, so that
readers see whole files only and concurrent writers do no harm. It begins with a digest of the rest: damaged machine
code would run. No failure of the file system is an error: what cannot be kept is made again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path


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
    yield Path(chosen) if chosen else user_cache()
    yield temporary_cache()


def _usable(path: Path) -> bool:
    """The directory exists (now), is ours and can be written: what others could have written must not be run."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


@cache
def directory() -> Path | None:
    """Where files are kept: ``ACLNN_CACHE_DIR``, the platform's place or a temporary directory; None if none can be."""
    return next((path for path in _candidates() if _usable(path)), None)


def sources() -> list[Path]:
    """The files whose code and constants are compiled into kernels."""
    package = Path(__file__).parents[2]
    return sorted([package / "dtypes.py", *package.glob("kernels/*.py"), *package.glob("kernels/cpu/**/*.py")])


@cache
def source_stamp() -> str | None:
    """A digest of the kernels' source: other code, other files. None where it was not installed (PyInstaller, zip)."""
    digest = hashlib.sha256()
    try:
        for path in sources():
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


def _path(name: str, key: tuple[object, ...]) -> Path | None:
    where = None if source_stamp() is None else directory()
    digest = hashlib.sha256(repr((source_stamp(), *key)).encode()).hexdigest()[:32]
    return None if where is None else where / f"{name}-{digest}"


_DIGEST_BYTES = 16


def _digest(contents: bytes) -> bytes:
    return hashlib.sha256(contents).digest()[:_DIGEST_BYTES]


def read(name: str, key: tuple[object, ...]) -> bytes | None:
    """The contents kept under a name and everything they depend on; None when there are none, or damaged ones."""
    path = _path(name, key)
    if path is None:
        return None
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    contents = kept[_DIGEST_BYTES:]
    return contents if _digest(contents) == kept[:_DIGEST_BYTES] else None


def write(name: str, key: tuple[object, ...], contents: bytes) -> None:
    """Keep contents; quietly not when that is impossible."""
    path = _path(name, key)
    if path is None:
        return
    with suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(contents) + contents)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
