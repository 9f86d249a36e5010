"""The thread pool: every chunk once, concurrent calls, errors, forks, its size."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Annotated, Any

import numpy as np
import pytest

import aclnn
from aclnn.kernels.cpu import target, threads
from aclnn.kernels.cpu.atomics import atomic_load, fetch_add, pause
from aclnn.kernels.cpu.jit import address_of, kernel
from aclnn.kernels.cpu.structs import Int64, Shared, declared, pointer_to
from aclnn.kernels.cpu.threads import Pool, chunked
from tests.helpers.instruction_sets import python

TWO_PROCESSORS = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two processors"
)


_FORK = """
import os, sys
import numpy as np
import aclnn
from aclnn.kernels.cpu import threads
threads.set_threads(2)
x = np.linspace(-5, 5, 1_000_000, dtype=np.float32)
before = aclnn.silu_backward(x, x)
child = os.fork()
if child == 0:
    os._exit(0 if (aclnn.silu_backward(x, x) == before).all() and threads.shared().threads == 2 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", _FORK], check=True, timeout=120)


_FORK_MEANWHILE = """
import os, signal, sys, threading, time
import numpy as np
import aclnn
from aclnn.kernels.cpu import jit
from aclnn.kernels.cpu.elementwise import lut16

x = np.ones(100, np.float32 if sys.argv[1] == "jit" else np.float16)
aclnn.hardswish_backward(x, x)
lock = {"jit": jit, "lut16": lut16}[sys.argv[1]]._lock
taken = threading.Event()

def hold():
    with lock:
        taken.set()
        time.sleep(0.5)

holder = threading.Thread(target=hold)
holder.start()
taken.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    aclnn.silu_backward(x, x)
    os._exit(0)
holder.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("holds", ["jit", "lut16"])
def test_a_child_forked_while_another_thread_makes_a_kernel_makes_its_own(holds: str) -> None:
    """The child must not wait for a thread that exists only in its parent."""
    subprocess.run([sys.executable, "-c", _FORK_MEANWHILE, holds], check=True, timeout=120)


@pytest.mark.parametrize(
    ("ours", "openmp", "expected"),
    [
        ("3", None, 3), ("1", None, 1), ("3", "1", 3), (None, "1", 1), (None, " 1 ,4", 1),
        (None, "1000", None), (None, "0", None), (None, "many", None), (None, "", None), (None, None, None),
    ],
)  # fmt: skip
def test_variables_set_the_number_of_threads(
    ours: str | None, openmp: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_pool", None)
    for name, value in (("ACLNN_NUM_THREADS", ours), ("OMP_NUM_THREADS", openmp)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert threads.shared().threads == (target.processors() if expected is None else expected)


@pytest.mark.parametrize("value", ["0", "-2", "many", "1.5", "1025", "10000000000000000000000"])
def test_a_wrong_number_of_threads_is_rejected(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from aclnn.kernels.cpu import threads

    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setenv("ACLNN_NUM_THREADS", value)
    with pytest.raises(ValueError, match="ACLNN_NUM_THREADS: expected an integer from 1 to 1024, got "):
        threads.shared()
    with pytest.raises(ValueError, match="expected from 1 to 1024 threads"):
        threads.set_threads(0)


_numbers_at = pointer_to(ctypes.c_int64)


def counting() -> Any:
    """Add 1 to each int64 at ``arguments`` in a chunk."""

    def count(arguments: int, first: int, last: int) -> None:
        for i in range(first, last):
            fetch_add(_numbers_at(arguments) + i, 1)

    return chunked(count)


def sweep(pool: Pool, elements: int, step: int) -> None:
    seen = np.zeros(elements, np.int64)
    pool.share(kernel("count", (), counting), seen.ctypes.data, step, elements, 20 * elements // step)
    np.testing.assert_array_equal(seen, 1)


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_a_shared_kernel_does_everything_once(threads: int) -> None:
    pool = Pool(threads)
    for elements in (0, 1, 7, 8, 9, 1000):
        for _ in range(50):
            sweep(pool, elements, 8)
    time.sleep(0.05)  # the workers rest, and are woken up
    sweep(pool, 100_000, 10)


@declared
class Shares(ctypes.Structure):
    """The number of threads that have begun, and for each of six chunks the counter of its thread."""

    begun: Shared
    counters: Annotated[Any, ctypes.c_int64 * 6]


_shares_at = pointer_to(Shares)


def telling() -> Any:
    """Record each chunk's thread, once two threads have taken a chunk."""

    def tell(arguments: int, counter: int, step: int, end: int) -> None:
        shares, first = _shares_at(arguments), threads.take(counter, step, end, 0)
        fetch_add(shares.begun, 1)
        while atomic_load(shares.begun) < 2:
            pause()
        while first < end:
            shares.counters[first // step] = counter
            first = threads.take(counter, step, end, end)

    return tell


def test_every_thread_begins_with_the_same_chunks_in_each_call() -> None:
    """A thread keeps its chunks from call to call, because their data are in its cache."""
    crew, size = Pool(2), ctypes.sizeof(threads.Share)
    for _ in range(20):
        given = Shares()
        crew.share(kernel("whose", (), telling), ctypes.addressof(given), 10, 51, 2000)
        leader = ctypes.addressof(crew._shares)
        assert {*given.counters} <= {leader, leader + size}
        assert (given.counters[0], given.counters[3]) == (leader, leader + size)


def test_chunks_of_others_are_taken_after_own_ones() -> None:
    shares = Pool(3)._shares
    for share, ends in zip(shares, ((0, 4), (4, 8), (8, 11)), strict=True):
        share.next, share.end = ends
    found = np.full(7, -1)
    kernel("in order", (), in_order)(found.ctypes.data, ctypes.addressof(shares[1]), 2, 11)
    assert found.tolist() == [4, 6, 8, 10, 0, 2, -1]


def in_order() -> Any:
    """Record the order in which chunks are taken."""

    def write(arguments: int, counter: int, step: int, end: int) -> None:
        at, first = _numbers_at(arguments), threads.take(counter, step, end, 0)
        while first < end:
            at[0], first = first, threads.take(counter, step, end, end)
            at = at + 1

    return write


def test_a_dismissed_pool_starts_no_threads() -> None:
    """A caller that fetched the pool before ``set_threads`` must not start workers, which would never end."""
    pool = Pool(2)
    pool.dismiss()
    before = threading.active_count()
    sweep(pool, 100_000, 10)
    assert threading.active_count() == before


def test_several_callers_share_kernels_at_once() -> None:
    pool, failures = Pool(3), []

    def caller() -> None:
        try:
            for i in range(200):
                sweep(pool, 500 + i, 16)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


@declared
class Held(ctypes.Structure):
    """Flags of two working threads: the second one has begun, has ended, and may end."""

    begun: Shared
    ended: Shared
    may_end: Shared


_held_at = pointer_to(Held)


def holding() -> Any:
    """Let the first chunk wait until the second one has begun, and hold the second until it may end."""

    def hold(arguments: int, first: int, last: int) -> None:
        held = _held_at(arguments)
        if first == 0:
            while atomic_load(held.begun) == 0:
                pause()
        else:
            fetch_add(held.begun, 1)
            while atomic_load(held.may_end) == 0:
                pause()
            fetch_add(held.ended, 1)

    return chunked(hold)


@contextmanager
def interrupted(at_work: Callable[[], Any], let_go: Callable[[], Any]) -> Iterator[None]:
    """Interrupt the main thread when all threads are at work, expect that, and release them a little later."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not at_work():
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.2)
        let_go()

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            yield
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for threads")
def test_an_interrupted_caller_returns_after_the_workers() -> None:
    """The caller must not return while workers write into arrays that may be freed."""
    pool, held = Pool(2), Held()
    with interrupted(lambda: held.begun, lambda: setattr(held, "may_end", 1)):
        pool.share(kernel("hold-until-let-go", (), holding), ctypes.addressof(held), 1, 2, 2000)
    assert held.ended == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_after_a_shared_kernel_shares_its_own() -> None:
    program = """if True:
        import os, numpy as np, aclnn
        from aclnn.kernels.cpu import threads
        threads.set_threads(3)
        x = np.linspace(-4, 4, 1 << 18, dtype=np.float32)
        before = aclnn.silu_backward(x, x)
        child = os.fork()
        after = aclnn.silu_backward(x, x)
        assert (before == after).all()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@TWO_PROCESSORS
def test_workers_do_not_wait_on_the_callers_processor() -> None:
    """Linux may wake workers there, behind the caller, which then works alone."""
    pool = Pool(2)
    before = os.sched_getaffinity(0)
    here = min(before)
    try:
        os.sched_setaffinity(0, {here})
        os.sched_setaffinity(0, before)  # most likely still there
        sweep(pool, 1000, 8)
        (worker,) = pool._workers
        assert worker.native_id
        assert os.sched_getaffinity(worker.native_id) == before - {pool._avoided}
    finally:
        os.sched_setaffinity(0, before)


def test_a_caller_bound_to_one_processor_leaves_the_workers_alone() -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("Linux only")
    pool, before = Pool(2), os.sched_getaffinity(0)
    sweep(pool, 1000, 8)
    worker = pool._workers[0].native_id
    assert worker
    allowed = os.sched_getaffinity(worker)
    try:
        os.sched_setaffinity(0, {max(before)})
        sweep(pool, 1000, 8)
        assert os.sched_getaffinity(worker) == allowed
    finally:
        os.sched_setaffinity(0, before)


def test_a_worker_does_not_fall_asleep_when_somebody_is_about_to_lead() -> None:
    """The caller counts sleeping workers once; one that falls asleep later would miss the whole call."""
    crew = Pool(2)
    crew._announced = time.perf_counter() + 60
    worker = threading.Thread(target=crew._rest, daemon=True)
    worker.start()
    worker.join(10)
    assert not worker.is_alive()


_INTERRUPTS = """
import random, signal, sys, threading, time
import numpy as np
import aclnn
from aclnn.kernels.cpu import threads

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

signal.signal(signal.SIGALRM, stop)
threads.set_threads(2)
crew = threads.shared()
x = np.ones(40_000, np.float32)
out = np.empty_like(x)

def sweeps():
    while True:
        aclnn.silu_backward(x, x, out=out)

interrupts, end = 0, time.monotonic() + 3
aclnn.silu_backward(x, x, out=out)
while interrupts <= 100 or time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 4e-4))
        sweeps()
    except Stop:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
time.sleep(0.01)
print(crew._region.leaders, crew._region.within)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that interrupt")
def test_interrupts_at_any_place_leave_nobody_leading_and_nobody_at_work() -> None:
    """After an interrupt at any line of Python, the region is closed, and no call returns while a worker writes."""
    done = subprocess.run([sys.executable, "-c", _INTERRUPTS], capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 0\n", done.stderr


def test_the_workers_of_a_pool_that_is_replaced_end() -> None:
    def workers() -> int:
        return sum(thread.name == "aclnn" for thread in threading.enumerate())

    before, others = threads.shared().threads, workers()
    try:
        for size in (3, 2, 4, 2):
            threads.set_threads(size)
            for _ in range(3):
                sweep(threads.shared(), 1000, 8)
        deadline = time.monotonic() + 30
        while workers() > others + 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        threads.set_threads(before)


class Counted(SimpleQueue[Any]):
    """A queue that counts its puts."""

    entries = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self.entries += 1
        super().put(item, block, timeout)


@pytest.fixture
def crew() -> Pool:
    """Make a pool whose worker has slept for longer than the time between calls of a stream."""
    crew = Pool(2)
    crew._wakeups = Counted()
    sweep(crew, 1000, 8)
    deadline = time.monotonic() + 30
    while not crew._asleep and time.monotonic() < deadline:
        time.sleep(0.01)
    assert crew._asleep == 1
    crew._wakeups.entries = 0
    time.sleep(0.01)
    return crew


def test_a_short_call_after_a_rest_wakes_nobody(crew: Any) -> None:
    """A worker that wakes up late slows the call down: 66 instead of 43 µs for 65,536 elements."""
    sweep(crew, 16, 8)
    assert crew._wakeups.entries == 0
    assert crew._asleep == 1


def test_a_long_call_after_a_rest_wakes_the_workers(crew: Any) -> None:
    sweep(crew, 800, 8)
    assert crew._wakeups.entries == 1


def test_few_large_chunks_wake_the_workers(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four blocks of LayerNorm's gradient take 0.4 ms, which is worth waking workers for."""
    monkeypatch.setattr(threads, "_pool", crew)
    rows = np.ones((256, 4096), np.float32)
    statistic = np.ones((256, 1), np.float32)
    aclnn.layer_norm_backward(rows, rows, [4096], statistic, statistic)
    assert crew._wakeups.entries


def test_short_calls_one_upon_the_other_wake_the_workers(crew: Any) -> None:
    deadline = time.monotonic() + 30
    while not crew._wakeups.entries and time.monotonic() < deadline:
        sweep(crew, 16, 8)
    assert crew._wakeups.entries


def test_wake_ups_leave_no_state_behind(crew: Any) -> None:
    """Wake-ups must not accumulate in a queue."""
    crew._announced = math.inf  # so the worker goes on because of the announcement, and takes no entry for it
    for _ in range(5):
        crew._wakeups.put(True)
    deadline = time.monotonic() + 30
    while not crew._wakeups.empty() and time.monotonic() < deadline:
        time.sleep(0.001)
    left, crew._announced = crew._wakeups.qsize(), -math.inf
    assert left == 0


@pytest.mark.parametrize("wanted", [1, 2, 4])
def test_each_wake_up_is_for_one_worker(wanted: int) -> None:
    """The first worker to wake up must not consume the other workers' wake-ups."""
    crew = Pool(5)
    looks, rest = threading.Semaphore(0), threading.Semaphore(4)

    def look(at: int, wakeups: int, spins: int, system_yield: int, place: int) -> None:
        looks.release()
        rest.acquire()

    workers = [threading.Thread(target=crew._work, args=(look, place), daemon=True) for place in range(4)]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert looks.acquire(timeout=30)
    for _ in range(wanted):
        crew._wakeups.put(True)
    for _ in range(wanted):
        assert looks.acquire(timeout=30)
    assert crew._wakeups.empty()
    rest.release(4)
    for _ in workers:
        crew._wakeups.put(False)
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()


def test_a_caller_whose_threads_never_start_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work must not stay in a queue forever, with all objects that it refers to."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    crew = Pool(3)
    monkeypatch.setattr(threading.Thread, "start", fail)
    sweep(crew, 1000, 8)
    assert crew._wakeups.empty()


def test_a_thread_that_waits_for_the_region_to_close_gives_way() -> None:
    """A spinning thread would use up its time slice while the caller waits for a processor."""
    crew = Pool(2)
    region = crew._region
    region.open, region.kernel, region.step = 1, address_of(kernel("count", (), counting)), 1

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def close() -> int:
        region.open = 0
        return 0

    rest = ctypes.cast(close, ctypes.c_void_p).value
    arguments = ctypes.addressof(region), 0, 10, rest, 1
    served = threading.Thread(target=threads._worker_loop(), args=arguments, daemon=True)
    served.start()
    served.join(20)
    gave_way, region.open = not served.is_alive(), 0
    assert gave_way


@declared
class Raising(ctypes.Structure):
    """The chunk that raises, a flag that it has, and the number of other chunks that are done."""

    chunk: Int64
    raised: Shared
    done: Shared


_raising_at = pointer_to(Raising)


def raising() -> Any:
    """Raise in one chunk, for which the others wait."""

    def run(arguments: int, first: int, last: int) -> None:
        raising = _raising_at(arguments)
        if first == raising.chunk:
            fetch_add(raising.raised, 1)
            raise LookupError("no such chunk")
        while atomic_load(raising.raised) == 0:
            pause()
        fetch_add(raising.done, 1)

    return chunked(run)


@pytest.mark.parametrize("chunk", [0, 1])
def test_an_exception_of_a_shared_kernel_reaches_the_caller(chunk: int) -> None:
    """An exception must not be dropped, in the caller or in a worker, because the chunk's results are missing."""
    crew = Pool(2)
    for _ in range(20):
        given = Raising(chunk=chunk)
        with pytest.raises(LookupError, match="no such chunk"):
            crew.share(kernel("raise", (), raising), ctypes.addressof(given), 1, 2, 2000)
        assert given.done <= 1
        assert not crew._region.leaders
        assert not crew._region.within
    sweep(crew, 1000, 8)


@TWO_PROCESSORS
def test_workers_stay_on_the_processors_that_the_user_gave_them() -> None:
    """Workers keep their affinity, which may be smaller than the caller's."""
    crew, (first, second, *_) = Pool(2), sorted(os.sched_getaffinity(0))
    sweep(crew, 1000, 8)
    (worker,) = crew._workers
    assert worker.native_id
    crew._avoid(first)
    os.sched_setaffinity(worker.native_id, {first})
    crew._avoid(second)
    assert os.sched_getaffinity(worker.native_id) == {first}
    crew._avoid(first)
    assert os.sched_getaffinity(worker.native_id) == {first}


@TWO_PROCESSORS
def test_workers_come_back_to_a_processor_that_the_caller_has_left() -> None:
    crew, usual = Pool(2), os.sched_getaffinity(0)
    sweep(crew, 1000, 8)
    (worker,) = crew._workers
    assert worker.native_id
    for processor in (*usual, *usual):
        crew._avoid(processor)
        assert os.sched_getaffinity(worker.native_id) == usual - {processor}


@TWO_PROCESSORS
def test_neither_the_caller_nor_a_strangers_thread_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread number of 0 means the caller, and that of an ended worker may belong to another process."""
    crew, moved = Pool(3), list[int]()
    sweep(crew, 1000, 8)
    nameless, ended = crew._workers
    crew.dismiss()
    nameless.join(30)
    ended.join(30)
    nameless = threading.Thread(target=time.sleep, args=(1,))
    nameless.start()
    nameless._native_id = None  # type: ignore[attr-defined]
    crew._workers = [nameless, ended]
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, processors: moved.append(thread))
    crew._avoid(min(os.sched_getaffinity(0)))
    assert not moved
    nameless.join()


_LOCKS = """
import sys, threading
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from aclnn.kernels.cpu import target

compiling, asking = threading.Event(), threading.Event()

def compile_first():
    with global_compiler_lock:
        compiling.set()
        asking.wait()
        threading.Event().wait(0.3)  # until the other thread waits for one of the locks
        cpu_target.target_context

def ask():
    compiling.wait()
    asking.set()
    target.has_wide_registers()

workers = [threading.Thread(target=work, daemon=True) for work in (compile_first, ask)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join(20)
print("hung" if any(worker.is_alive() for worker in workers) else "done", flush=True)
sys.stdout.flush()
import os
os._exit(0)  # Numba waits for its lock at the end
"""


def test_the_compilation_target_can_be_queried_while_another_thread_starts_compiling() -> None:
    """Two first calls must not deadlock: one with Numba's lock that waits for the target, one that makes the target."""
    assert python("-c", _LOCKS) == "done\n"
