"""First calls of several threads that meet: in C programs, and where the code behind them was once wrong."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aclnn import cann, kernels
from aclnn.capi.prototype import FUNCTIONS
from aclnn.core import products
from aclnn.core.products import Product
from aclnn.runtime import arena, handles
from aclnn.runtime.events import Event
from aclnn.runtime.graphs import Mark
from aclnn.runtime.streams import Record, Stream
from tests.helpers.toolkit_support import SOURCES, Compile, needs_toolkit, run

pytestmark = pytest.mark.slow


def meet(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results of calls that begin at the same time, each in its own thread."""
    together = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(at: int) -> None:
        together.wait()
        try:
            results[at] = calls[at]()
        except BaseException as error:
            results[at] = error

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@needs_toolkit
@pytest.mark.toolkit
class TestPrograms:
    @pytest.mark.parametrize("shift", [0, 4, 8, *(pytest.param(shift, marks=pytest.mark.long) for shift in (2, 6, 10))])
    def test_eight_threads_begin_with_different_calls(self, compiled: Compile, shift: int) -> None:
        done = run(compiled("first_calls.cpp"), shift)
        assert (done.stdout, done.stderr) == ("ok\n", "")

    def test_eight_threads_compile_new_kernels(self, compiled: Compile, tmp_path: Path) -> None:
        done = run(compiled("first_calls.cpp"), 0, env={"ACLNN_CACHE_DIR": str(tmp_path)}, timeout_s=300)
        assert (done.stdout, done.stderr) == ("ok\n", "")

    def test_a_thread_that_saw_no_python_does_not_hide_it_from_the_others(
        self, compiled: Compile, tmp_path: Path
    ) -> None:
        slow = tmp_path / "slow_dlsym.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", slow, SOURCES / "slow_dlsym.c", "-ldl"], check=True)
        done = run(compiled("host.c"), "threads", env={"LD_PRELOAD": str(slow)})
        assert done.stdout == "threads: 0\n"

    def test_children_forked_while_another_thread_makes_the_first_call_do_not_hang(self, compiled: Compile) -> None:
        done = run(compiled("host.c"), "fork-during", timeout_s=60)
        assert done.stdout == "fork-during: 0\n"


def test_two_threads_get_the_same_first_text() -> None:
    server = pytest.importorskip("aclnn.toolkit.entry_points")

    class SlowForeignInterface:
        NULL = None

        def new(self, c_type: str, value: bytes) -> object:
            time.sleep(0.02)
            return bytearray(value)

    border = server._Marshaller(SlowForeignInterface(), None)
    one, other = meet(*[lambda: border.text(FUNCTIONS["aclrtGetSocName"], "Ascend910B2")] * 2)
    assert one is other
    assert border.texts["Ascend910B2"] is one, "what was handed out is kept"


def test_one_of_two_threads_that_destroy_a_tensor_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    find = handles.get

    def slow_find(handle: int | None, kind: type[Any]) -> Any:
        found = find(handle, kind)
        time.sleep(0.02)
        return found

    tensor = cann.aclCreateTensor([1], 1, 0, None, 0, 2, [1], 1, 0)
    monkeypatch.setattr(handles, "get", slow_find)
    assert sorted(meet(*[lambda: cann.aclDestroyTensor(tensor)] * 2)) == [0, 161001]


def test_a_handle_may_be_destroyed_while_it_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    class Vanishing(dict[int, Any]):
        def __contains__(self, key: object) -> bool:
            return self.pop(key, None) is not None  # type: ignore[call-overload]  # any object may be asked for

    handle = handles.insert(object())
    monkeypatch.setattr(handles._objects, "current", Vanishing({handle: object()}))
    assert handles.describe(handle).startswith(f"{handle:#x}, ")


def test_an_address_is_checked_while_another_thread_reserves_the_second_range() -> None:
    arenas = arena.Arenas()

    class Reserving:
        def __contains__(self, address: int) -> bool:
            arenas._arenas[1] = arenas._arenas[0]
            return False

    arenas._arenas[0] = Reserving()  # type: ignore[assignment]  # no dict, but asked like one
    assert 4096 not in arenas


def test_the_default_product_does_not_replace_a_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    product_of, begun = products.product_of, threading.Event()

    def slow_product_of(soc_name: str) -> Product:
        if soc_name == products.DEFAULT_SOC_NAME:
            begun.set()
            time.sleep(0.05)
        return product_of(soc_name)

    def choose() -> None:
        begun.wait()
        products.set_soc_name("Ascend310P3")

    monkeypatch.delenv("ACLNN_SOC_NAME", raising=False)
    monkeypatch.setattr(products, "_selected", None)
    monkeypatch.setattr(products, "product_of", slow_product_of)
    meet(products.current_product, choose)
    assert products.soc_name() == "Ascend310P3"


def test_kernels_are_imported_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    importing: list[str] = []
    met: list[str] = []

    def slow_import(name: str) -> Any:
        met.extend(importing)
        importing.append(name)
        time.sleep(0.02)
        importing.remove(name)
        raise ImportError(name)

    monkeypatch.setattr(kernels, "import_module", slow_import)
    results = meet(
        lambda: kernels.layer_norm((), (), 1, 0.0),
        lambda: kernels.layer_norm_backward((), (), 1),
    )
    assert [type(result) for result in results] == [ImportError, ImportError]
    assert met == []


def test_an_event_may_be_reset_while_it_is_queried() -> None:
    class Reset(Event):
        """A device reset whose record is removed as soon as it is read."""

        @property
        def _latest(self) -> Record | Mark | None:  # type: ignore[override]  # an attribute there
            record, self._record = self._record, None
            return record

        @_latest.setter
        def _latest(self, record: Record | Mark | None) -> None:
            self._record = record

    event, stream = Reset(), Stream()
    event.record(stream)
    assert event.complete()
    event.record(stream)
    assert event.synchronize()


def test_streams_are_found_while_other_threads_make_them() -> None:
    from aclnn.runtime import streams

    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            [Stream() for _ in range(50)]

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    actual = Stream()
    try:
        assert all(actual in streams._live() for _ in range(300))
    finally:
        ended.set()
        for thread in threads:
            thread.join()
