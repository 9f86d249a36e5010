"""The toolkit's tree: find it, check that it is current, and rebuild it (``layout``) if not."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import aclnn
from aclnn import custom
from aclnn.kernels.cpu.cache import temporary_cache, user_cache
from aclnn.support.atomic import locked
from aclnn.support.trust import expect_trusted, expect_trusted_tree, make_folder, unwritable_by_others
from aclnn.toolkit import compiler
from aclnn.version import __version__

_STAMP = "aclnn/build.json"


def default_root() -> Path:
    """Return the tree's default folder: ACLNN_TOOLKIT_DIR, else one in the user's cache for this Python.

    Each value of ``ACLNN_OPERATORS`` has its own folder.

    If others could write to the user's cache, the folder is a temporary one.
    """
    configured = os.environ.get("ACLNN_TOOLKIT_DIR")
    if configured:
        return Path(configured).absolute()
    known = "\n".join((sys.executable, __file__, *map(str, custom.files())))
    here = hashlib.sha256(os.fsencode(known)).hexdigest()[:8]
    cache = user_cache()
    try:
        expect_trusted(cache)
    except OSError:
        cache = temporary_cache()
    return cache / f"toolkit-{__version__}-{sys.implementation.cache_tag}-{here}"


def build(root: Path | None = None, unimplemented: Sequence[str] = ()) -> Path:
    """Write the tree, replacing an older one if present.

    Args:
        root: the tree's folder; the default one must be writable by this user only.
        unimplemented: unknown operators' functions, for which entry points that return an error are defined.

    Raises:
        ToolkitError, MissingExtraError: this machine lacks something; the text says what to install.
        PermissionError: others could write to the default folder.
    """
    compiler.check()
    root = root.absolute() if root else _trusted_folder(default_root())
    with unwritable_by_others(), locked(root):
        _lay_out(root, unimplemented)
    return root


def _lay_out(root: Path, unimplemented: Sequence[str] = ()) -> None:
    _layout().lay_out(root, unimplemented)
    _stamp(root, _layout().fingerprint())


def _stamp(root: Path, fingerprint: str) -> None:
    """Record the fingerprint of the tree."""
    noted = {"fingerprint": fingerprint, "sources": _sources()}
    _layout().write(root / _STAMP, json.dumps(noted) + "\n")


def _layout() -> ModuleType:
    """Import the module that knows every C function, which takes longer than all other start-up work."""
    from aclnn.toolkit import layout

    return layout


def ensure(root: Path | None = None) -> Path:
    """Return the tree, built if it is missing, out of date, or writable by others.

    Raises:
        ToolkitError: it cannot be built here.
        PermissionError: others could write to it again.
    """
    root = (root or default_root()).absolute()
    if is_current(root):
        return root
    compiler.check()
    with unwritable_by_others(), locked(_trusted_folder(root)):
        if not is_current(root):  # another process may have built it while this one waited
            _lay_out(root)
            expect_trusted_tree(root)
    return root


def _trusted_folder(root: Path) -> Path:
    make_folder(root)
    expect_trusted(root)
    return root


def is_current(root: Path) -> bool:
    """Return True if the tree was built from the current package and Python, and others could not change it."""
    try:
        expect_trusted_tree(root)
        stamp: Mapping[str, str] = json.loads((root / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if stamp.get("sources") == _sources():
        return True
    fingerprint = _layout().fingerprint()
    if stamp.get("fingerprint") != fingerprint:
        return False
    with suppress(OSError), unwritable_by_others():
        _stamp(root, fingerprint)
    return True


def _sources() -> str:
    """Return a digest of the sizes and times of all files that determine ``layout.fingerprint``."""
    parts = [__version__, sys.version, sys.executable, *compiler.import_paths()]
    for file in (*_files(Path(aclnn.__file__).parent), *map(Path, custom.files())):
        about = file.stat()
        parts.append(f"{file} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted({*folders} - {"__pycache__"})
        yield from (Path(folder, name) for name in sorted(files))
