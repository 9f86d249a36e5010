"""The cache of compiled kernels."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import types
from numba.core.registry import cpu_target

from aclnn.kernels.cpu import cache, jit
from aclnn.support import trust
from aclnn.toolkit import tree

pytestmark = pytest.mark.slow


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set up an empty home and temporary folder as the only places for kernels."""
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
    """Containers may run under a user number without an account."""

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert cache.directory() == cache.temporary_cache()
    assert tree.default_root().parent == cache.temporary_cache()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_home_that_cannot_be_written_leaves_the_temporary_folder(places: Path) -> None:
    (places / "home").chmod(0o500)
    assert cache.directory() == cache.temporary_cache()


def test_nothing_is_cached_without_a_writable_folder(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (places / "temporary").write_text("a file, not a folder")
    (places / "home").rmdir()
    (places / "home").write_text("the same")
    assert cache.directory() is None
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) is None


@pytest.mark.parametrize("damage", [lambda kept: kept[:-1], lambda kept: kept[:-1] + b"?", lambda kept: b""])
def test_damaged_cache_entries_are_not_loaded(places: Path, damage: Callable[[bytes], bytes]) -> None:
    """A system crash may leave a page of zeros in machine code, which would crash every later process."""
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) == b"contents"
    (path,) = cache.user_cache().iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read("kernel", ()) is None


def test_a_file_under_another_kernels_name_is_not_loaded(places: Path) -> None:
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
def test_cache_entries_writable_by_others_are_not_loaded(
    places: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, trusted: bool
) -> None:
    cache.write("kernel", (), b"contents")
    (path,) = cache.user_cache().iterdir()
    path.chmod(mode)
    about = os.stat(path)
    owned = os.stat_result((*about[:4], owner, about.st_gid + 1, *about[6:]))
    monkeypatch.setattr(trust, "expect_trusted", lambda path: None)
    monkeypatch.setattr(os, "fstat", lambda descriptor: owned)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cache.read("kernel", ()) == (b"contents" if trusted else None)


def is_trusted(path: Path) -> bool:
    try:
        trust.expect_trusted(path)
    except PermissionError:
        return False
    return True


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """Make files and folders appear as owned by another user, by path."""
    found: dict[Path, int] = {}
    true = os.lstat

    def lstat(path: Path, **options: Any) -> os.stat_result:
        about = true(path, **options)
        return os.stat_result((*about[:4], found.get(Path(path), about.st_uid), *about[5:]))

    monkeypatch.setattr(os, "lstat", lstat)
    return found


def kept_in(folder: Path, contents: bytes) -> Path:
    """Write a kernel's file, as an attacker might prepare one for the user to unpack."""
    folder.mkdir(parents=True, exist_ok=True)
    file = cache._file("kernel", ())
    (folder / file).write_bytes(cache._digest(file, contents) + contents)
    (folder / file).chmod(0o644)
    return folder / file


def test_a_link_to_a_file_of_the_users_own_is_not_run(places: Path) -> None:
    downloaded = kept_in(places / "home" / "downloads", b"an attacker's")
    cache.temporary_cache().mkdir(parents=True)
    (cache.temporary_cache() / downloaded.name).symlink_to(downloaded)
    assert cache.read("kernel", ()) is None


def test_a_folder_behind_anothers_link_is_not_read(places: Path, owners: dict[Path, int]) -> None:
    downloads = kept_in(places / "home" / "downloads", b"contents").parent
    (places / "temporary").mkdir()
    cache.temporary_cache().symlink_to(downloads)
    assert cache.read("kernel", ()) == b"contents"  # one's own link may lead anywhere
    owners[cache.temporary_cache()] = 1001
    assert cache.read("kernel", ()) is None


def test_a_temporary_folder_that_another_user_made_first_is_not_used(
    places: Path, owners: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in(cache.temporary_cache(), b"contents")
    assert cache.read("kernel", ()) == b"contents"
    owners[cache.temporary_cache()] = owners[places / "home"] = 1001
    assert cache.read("kernel", ()) is None
    assert cache.directory() is None
    monkeypatch.setattr(tree.compiler, "check", lambda: None)
    with pytest.raises(PermissionError, match=r"expected to belong to user \d+ or the superuser, got user 1001"):
        tree.build()


@pytest.mark.parametrize("shared", ["home", "home/.cache", "home/.cache/aclnn"])
def test_a_folder_that_others_may_write_is_passed_over(places: Path, shared: str) -> None:
    kept_in(cache.user_cache(), b"contents")
    assert cache.read("kernel", ()) == b"contents"
    (places / shared).chmod(0o757)
    assert cache.read("kernel", ()) is None
    assert cache.directory() == cache.temporary_cache()
    assert tree.default_root().parent == cache.temporary_cache()


def test_folders_that_only_the_user_can_change_are_trusted(places: Path, owners: dict[Path, int]) -> None:
    shared = places / "temporary"
    shared.mkdir()
    (shared / "own").mkdir()
    shared.chmod(0o1777)
    owners[shared] = 0
    assert is_trusted(shared / "own")
    assert is_trusted(shared / "absent")
    assert not is_trusted(shared)  # anybody may create a file there
    owners[shared] = os.geteuid() or 1001  # a folder's owner may move what is in it, whatever the sticky bit says
    assert not is_trusted(shared / "own")


def test_the_users_own_group_may_write_and_no_other(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With umask 002, common where each user has a group, every folder is writable by that group."""
    folder = places / "home" / "project"
    folder.mkdir()
    folder.chmod(0o775)
    for private in (True, False):
        monkeypatch.setattr(trust, "_is_private", lambda group, user, private=private: private)
        assert is_trusted(folder) == private


def test_circular_links_are_rejected(places: Path) -> None:
    (places / "a").symlink_to("b")
    (places / "b").symlink_to("../" + places.name + "/a")
    with pytest.raises(OSError, match="symbolic links"):
        trust.expect_trusted(places / "a" / "kernels")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_under_a_kernels_name_is_not_waited_for(places: Path) -> None:
    """The first use of the kernel must return."""
    cache.temporary_cache().mkdir(parents=True)
    os.mkfifo(cache.temporary_cache() / cache._file("kernel", ()), 0o644)
    results: list[bytes | None] = []
    reader = threading.Thread(target=lambda: results.append(cache.read("kernel", ())), daemon=True)
    reader.start()
    reader.join(10)
    assert results == [None]


def test_kernel_folders_are_writable_by_their_owner_only_with_any_umask(places: Path) -> None:
    before = os.umask(0)
    try:
        cache.write("kernel", (), b"contents")
    finally:
        os.umask(before)
    assert cache.directory() == cache.user_cache()
    assert cache.read("kernel", ()) == b"contents"


def test_a_folder_that_cannot_be_written_is_read(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers use the compiled kernels of a read-only image."""
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
_VERIFY = """import numpy as np
from aclnn.verify.goldens.enclosures import Points
print(np.zeros(1).view(Points).erfc()[0])"""


def printed(program: str, folder: Path, **variables: str) -> str:
    """Run a program in a new process with this folder for kernels; return its output."""
    environment = os.environ | {"ACLNN_CACHE_DIR": str(folder), **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout


def test_kernels_are_compiled_where_numba_is_asked_not_to(tmp_path: Path) -> None:
    """NUMBA_DISABLE_JIT is set by tests that measure the coverage of jitted functions."""
    assert printed(_GRADIENT, tmp_path, NUMBA_DISABLE_JIT="1") == "0.92767054\n"


def test_a_kernel_that_is_kept_runs_without_what_numba_compiles_with(tmp_path: Path) -> None:
    """Importing Numba's compiler, with SciPy, would take three quarters of a process's first call."""
    program = f"import sys; {_GRADIENT}; print('numba.np.linalg' in sys.modules)"
    assert [printed(program, tmp_path) for _ in range(2)] == ["0.92767054\nTrue\n", "0.92767054\nFalse\n"]


def test_kernels_are_compiled_from_any_depth_of_calls(tmp_path: Path) -> None:
    """Numba recurses more than 900 times for GroupNorm's gradients, which exceeds the limit inside of pytest."""
    deep = "deep = lambda left, call: deep(left - 1, call) if left else call()"
    program = f"import sys, numpy as np, aclnn; x = np.ones(1000, np.float32); aclnn.hardswish(x)\n{deep}\n"
    call = "deep(sys.getrecursionlimit() - 150, lambda: aclnn.silu_backward(x, x))[0]"
    assert printed(f"{program}print({call}, sys.getrecursionlimit())", tmp_path) == "0.92767054 1000\n"


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_as_before_when_a_compilation_has_failed(
    collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit.gc, "isenabled", lambda: collects)
    turned: list[str] = []
    for name in ("enable", "disable"):
        monkeypatch.setattr(jit.gc, name, lambda name=name: turned.append(name))

    def fail() -> None:
        with jit._compiling():
            assert turned == ["disable"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert turned == ["disable"] + ["enable"] * collects


def test_calls_of_the_same_types_are_resolved_once_while_a_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    typing, asked = cpu_target.typing_context, list[Any]()
    typing.refresh()
    resolve = typing.resolve_function_type
    monkeypatch.setattr(typing, "resolve_function_type", lambda *call: asked.append(call) or resolve(*call))
    before = typing.resolve_function_type

    def add(kind: Any) -> Any:
        return typing.resolve_function_type(operator.add, (kind, kind), {}).return_type

    def fail() -> None:
        with jit._compiling():
            assert add(types.int64) is add(types.int64) is types.int64
            assert add(types.float64) is types.float64
            assert len(asked) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert typing.resolve_function_type is before


def test_kernels_compiled_without_optimisation_are_not_everybodys(tmp_path: Path) -> None:
    """Unoptimized kernels, which take seven times as long, are not shared with later processes."""
    printed(_GRADIENT, tmp_path, NUMBA_OPT="0")
    slow = len(list(tmp_path.iterdir()))
    printed(_GRADIENT, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * slow


def test_code_compiled_by_verify_is_cached_with_the_kernels(tmp_path: Path) -> None:
    """Numba's own cache raises if it finds no folder, which must not fail a correct dump."""
    for _ in range(2):
        ours, numbas = tmp_path / "ours", tmp_path / "numbas"
        assert printed(_VERIFY, ours, NUMBA_CACHE_DIR=str(numbas)) == "1.0\n"
        assert any(path.name.startswith("verify-_erfc_of-") for path in ours.iterdir())
        assert not numbas.exists()


def test_without_its_source_an_installation_keeps_nothing(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installations without source: in a zip, of .pyc files, or frozen by PyInstaller."""
    monkeypatch.setattr(cache, "sources", lambda: [places / "archive.zip" / "dtypes.py"])
    cache.source_stamp.cache_clear()
    cache.write("kernel", (), b"contents")
    assert cache.read("kernel", ()) is None
    cache.source_stamp.cache_clear()


_LITTLE_MEMORY = """
import resource
import numpy as np
import aclnn
from aclnn.kernels.cpu import jit  # Numba itself
x = np.ones(8, np.float32)
def attempt(free_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + free_bytes, resource.RLIM_INFINITY))
    try:
        aclnn.silu(x) if jit._compiled else aclnn.gelu(x)
        print("done")
    except MemoryError as error:
        print(error)
attempt(140 << 20)
attempt(1 << 30)
attempt(20 << 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is used is read from /proc")
def test_too_little_memory_to_compile_in_is_a_memory_error(tmp_path: Path) -> None:
    """LLVM itself would abort the process with status 134."""
    environment = os.environ | {"ACLNN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _LITTLE_MEMORY], capture_output=True, text=True, timeout=300, env=environment
    )
    first, second, third = done.stdout.splitlines() or [done.stderr] * 3
    assert first.endswith("expected 192 MiB of free memory to compile it in")
    assert second == "done"
    assert third.endswith("expected 64 MiB of free memory to compile it in")
