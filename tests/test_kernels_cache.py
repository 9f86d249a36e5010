"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aclnn.kernels.cpu import cache
from aclnn.toolkit import tree


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No place but a home and a temporary folder, in an empty one."""
    for variable in ("ACLNN_CACHE_DIR", "ACLNN_TOOLKIT_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "home").mkdir()
    cache.directory.cache_clear()
    yield tmp_path
    cache.directory.cache_clear()


def test_kernels_are_kept_in_the_users_folder(places: Path) -> None:
    assert cache.directory() == cache.user_cache()
    assert cache.user_cache().is_relative_to(places / "home")


def test_the_variable_comes_first(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_CACHE_DIR", str(places / "chosen"))
    assert cache.directory() == places / "chosen"


def test_a_user_without_a_home_keeps_them_in_a_temporary_folder(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any number for a user."""

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert cache.directory() == cache.temporary_cache()
    assert tree.default_root().parent == cache.temporary_cache()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_home_that_cannot_be_written_leaves_the_temporary_folder(places: Path) -> None:
    (places / "home").chmod(0o500)
    assert cache.directory() == cache.temporary_cache()


def test_without_any_place_nothing_is_kept(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (places / "temporary").write_text("a file, not a folder")
    (places / "home").rmdir()
    (places / "home").write_text("the same")
    assert cache.directory() is None
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) is None


@pytest.mark.parametrize("damage", [lambda kept: kept[:-1], lambda kept: kept[:-1] + b"?", lambda kept: b""])
def test_damaged_contents_are_none(places: Path, damage: Callable[[bytes], bytes]) -> None:
    """A page of zeros in machine code, as a crash of the system leaves it, ended every later process."""
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) == b"contents"
    (path,) = cache.user_cache().iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read("kernel", ()) is None


def test_a_file_under_anothers_name_is_none(places: Path) -> None:
    for name in ("one", "other"):
        cache.write(name, (), name.encode())
    one, other = sorted(cache.user_cache().iterdir())
    one.replace(other)
    assert cache.read("other", ()) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners here")
@pytest.mark.parametrize(
    ("owner", "mode", "trusted"),
    [(0, 0o644, True), (1000, 0o644, True), (1001, 0o644, False), (1000, 0o664, False), (0, 0o666, False)],
)
def test_what_others_could_have_written_is_not_run(
    places: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, trusted: bool
) -> None:
    cache.write("kernel", (), b"contents")
    (path,) = cache.user_cache().iterdir()
    path.chmod(mode)
    about = os.stat(path)
    owned = os.stat_result((about.st_mode, *about[1:4], owner, *about[5:]))
    monkeypatch.setattr(os, "fstat", lambda descriptor: owned)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert cache.read("kernel", ()) == (b"contents" if trusted else None)


def test_a_folder_that_cannot_be_written_is_read(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that brought compiled kernels had them compiled again by every container."""
    monkeypatch.setenv("ACLNN_CACHE_DIR", str(places / "image"))
    cache.write("kernel", (), b"contents")
    cache.directory.cache_clear()
    monkeypatch.setattr(cache, "_can_be_written", lambda path: path == cache.temporary_cache())
    assert cache.directory() == cache.temporary_cache()
    assert cache.read("kernel", ()) == b"contents"


def test_the_variable_may_begin_with_a_tilde(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_CACHE_DIR", "~/chosen")
    assert cache.directory() == places / "home" / "chosen"


_GRADIENT = "import numpy as np, aclnn; x = np.ones(1000, np.float32); print(aclnn.silu_backward(x, x)[0])"
_CERTIFIED = "import numpy as np; from aclnn.verify import slopes; x = np.ones(1); slopes.silu(x, x, x + 0); print(x)"


def printed(program: str, folder: Path, **variables: str) -> str:
    """What a program prints in a process of its own, with this folder for kernels."""
    environment = os.environ | {"ACLNN_CACHE_DIR": str(folder), **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout


def test_kernels_are_compiled_where_numba_is_asked_not_to(tmp_path: Path) -> None:
    """As tests do that measure which lines of their own jitted functions run."""
    assert printed(_GRADIENT, tmp_path, NUMBA_DISABLE_JIT="1") == "0.92767054\n"


def test_kernels_compiled_without_optimisation_are_not_everybodys(tmp_path: Path) -> None:
    """They took seven times as long in every later process."""
    printed(_GRADIENT, tmp_path, NUMBA_OPT="0")
    slow = len(list(tmp_path.iterdir()))
    printed(_GRADIENT, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * slow


def test_what_verify_compiles_is_kept_with_the_kernels(tmp_path: Path) -> None:
    """Numba's own cache raised where it found no folder, so that a good dump failed with exit status 1."""
    for _ in range(2):
        ours, numbas = tmp_path / "ours", tmp_path / "numbas"
        assert printed(_CERTIFIED, ours, NUMBA_CACHE_DIR=str(numbas)) == "[0.92767051]\n"
        assert any(path.name.startswith("verify-silu-") for path in ours.iterdir())
        assert not numbas.exists()


def test_without_its_source_an_installation_keeps_nothing(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a zip, of .pyc files or frozen by PyInstaller; every call raised FileNotFoundError."""
    monkeypatch.setattr(cache, "sources", lambda: [places / "archive.zip" / "dtypes.py"])
    cache.source_stamp.cache_clear()
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) is None
    cache.source_stamp.cache_clear()
