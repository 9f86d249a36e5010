"""A small pool of threads that run compiled, GIL-free kernels over chunks of work.

Every kernel is ``kernel(arguments, counter, step, end)``: ``arguments`` is the address of a struct (see ``structs``),
``counter`` that of the thread's ``Share`` of the chunks of ``step``, or 0 for a thread that does everything up to
``end``. ``take`` finds the next chunk; ``chunked`` makes such a kernel from a function that processes one chunk.

A parallel region is described in memory. Its leader fills in the description, opens the region and works; the workers
poll it in a short loop, enter while it is open, take chunks, and leave. The leader closes the region and waits until
nobody is within. So a call reaches recently active workers within a microsecond, while waking them takes 30 to 50.
Every thread begins with the same part of the work in each call, so that its cache may still hold what it wrote in the
last one, and continues with parts that others have not begun: chunks must be independent. Of several concurrent callers
one gets the workers, a nested call none; the others work alone. A child process after ``fork`` starts its own threads
on demand.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Annotated, Any

from aclnn.kernels.cpu import jit
from aclnn.kernels.cpu.atomics import atomic_load, atomic_store, fetch_add, pause, yield_thread
from aclnn.kernels.cpu.jit import Kernel, address_of, register_jitable
from aclnn.kernels.cpu.structs import (
    Address,
    Int64,
    Shared,
    address,
    bytes_at,
    call_catching,
    declared,
    pointer_to,
    raise_again,
)
from aclnn.kernels.cpu.target import processors
from aclnn.support.env import integer
from aclnn.support.process import after_fork

Loop = Callable[..., None]

_system: Any = ctypes.PyDLL(None) if os.name == "posix" else None

#: Returns the processor that the calling thread runs on; None if the system cannot tell (only Linux can).
_processor: Callable[[], int] | None = getattr(_system, "sched_getcpu", None)

#: Address of ``sched_yield``, 0 if there is none.
_YIELD: int = ctypes.cast(_system.sched_yield, ctypes.c_void_p).value or 0 if hasattr(_system, "sched_yield") else 0


@declared
class Share(ctypes.Structure):
    """Chunks that a thread begins with, one of a ring; in cache lines of its own, since others write elsewhere."""

    next: Shared
    """Start of the first chunk that has not been taken."""
    end: Int64
    following: Int64
    """Address of the next share."""
    apart: Annotated[Any, ctypes.c_int64 * 13]


_share_at = pointer_to(Share)


@register_jitable
def take(counter: int, step: int, end: int, alone: int) -> int:
    """Return the start of a chunk that has not been taken, from the own share first, or ``end`` if there is none.

    A thread that works alone has no counter, and gets ``alone``, the position from which it continues.
    """
    if counter == 0:
        return alone
    share = _share_at(counter)
    first = fetch_add(share.next, step)
    while first >= share.end:
        share = _share_at(share.following)
        if address(share) == counter:
            return end
        first = fetch_add(share.next, step)
    return int(first)


def chunked(part: Any) -> Loop:
    """Return the kernel of a function that processes the chunk [first, last) of the arguments."""
    part = register_jitable(part)

    def loop(arguments: int, counter: int, step: int, end: int) -> None:
        first = take(counter, step, end, 0)
        while first < end:
            part(arguments, first, min(end, first + step))
            first = take(counter, step, end, end)

    return loop


@declared
class Region(ctypes.Structure):
    """A parallel region. Leadership is recorded here too, as Python may be interrupted between any two of its steps."""

    open: Shared
    """Serial number of the region that may be entered, 0 for none."""
    within: Shared
    """Number of workers within."""
    wakeups: Shared
    """Changes if workers are needed for something else."""
    leaders: Shared
    """1 while a thread leads, more while others try to."""
    raised: Shared
    """An exception raised by the kernel, 0 for none."""
    kernel: Int64
    arguments: Address
    step: Int64
    end: Int64
    shares: Int64
    """Address of the leader's share, which the workers' shares follow."""
    threads: Int64


_region_at = pointer_to(Region)


@register_jitable
def _divide(region: Any) -> None:
    """Divide the chunks equally, in contiguous shares; nobody reads them before the region is open."""
    share, threads, step, end = _share_at(region.shares), region.threads, region.step, region.end
    chunks = (end + step - 1) // step
    for place in range(threads):
        share.next[0] = chunks * place // threads * step
        share.end = min(end, chunks * (place + 1) // threads * step)
        share = share + 1


@register_jitable
def _work(region: Any, place: int) -> None:
    """Process chunks; after an exception no thread takes another one."""
    share, end = _share_at(region.shares), region.end
    mine = address(share + place)
    raised = call_catching(region.kernel, address(region.arguments), mine, region.step, end)
    if raised:
        atomic_store(region.raised, raised)
        for _ in range(region.threads):
            atomic_store(share.next, end)
            share = share + 1


@register_jitable
def _wait(spins: int, system_yield: int) -> int:
    """Pause between two polls, through the system once ``spins`` is 0; return the remaining number of spins."""
    if spins > 0:
        pause()
        return spins - 1
    yield_thread(system_yield)
    return 0


def run_region() -> Any:
    """Make the function that leads a region: returns 1 when the work is done, 0 at once if another thread leads.

    The wait is compiled because Python could interrupt it (Ctrl-C) while other threads still write. An exception of the
    kernel, on any thread, is raised when all have left.
    """

    def run(
        at: int, serial: int, spins: int, system_yield: int, kernel: int, arguments: int, step: int, end: int
    ) -> int:
        region = _region_at(at)
        if fetch_add(region.leaders, 1) != 0:
            fetch_add(region.leaders, -1)
            return 0
        region.kernel, region.step, region.end = kernel, step, end
        region.arguments = bytes_at(arguments)
        _divide(region)
        atomic_store(region.raised, 0)
        atomic_store(region.open, serial)
        _work(region, 0)
        atomic_store(region.open, 0)
        while atomic_load(region.within) > 0:
            spins = _wait(spins, system_yield)
        raised = atomic_load(region.raised)
        fetch_add(region.leaders, -1)
        raise_again(raised)
        return 1

    return run


def worker_loop() -> Loop:
    """Make the workers' loop: enter an open region, until it stays closed for some spins or ``wakeups`` changes.

    A worker that finds no work left waits for the leader to close the region.
    """

    def loop(at: int, wakeups: int, spins: int, system_yield: int, place: int) -> None:
        region, left = _region_at(at), spins
        while left > 0 and atomic_load(region.wakeups) == wakeups:
            serial = atomic_load(region.open)
            if serial:
                # Workers counted before the region closes may read its description: the leader waits for them.
                fetch_add(region.within, 1)
                if atomic_load(region.open) == serial:
                    _work(region, place)
                fetch_add(region.within, -1)
                left = spins
                while atomic_load(region.open) == serial:
                    left = _wait(left, system_yield)
                left = spins
            pause()
            left -= 1

    return loop


_SPINS = 5000
"""Number of polls before a thread sleeps."""

_WORTH_WAKING_US = 100
"""Minimum work for which sleeping workers are woken (docs/tuning.md)."""

_ANNOUNCED_S = 1.0
"""Seconds for which workers stay awake for announced work, which an interrupted caller may never start."""

MOST_THREADS = 1024
"""Limit on threads: with a hundred thousand, LLVM ran out of memory and ended the process."""

_STREAM_S = 3e-4
"""Maximum gap between calls of a stream: once woken, workers stay awake for it."""


def _run_region() -> Kernel:
    return jit.kernel("run_region", (), run_region)


def _worker_loop() -> Kernel:
    return jit.kernel("worker_loop", (), worker_loop)


class Pool:
    """Pool of ``threads`` threads including the caller: with one, everything runs in the caller's thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        """Entries for sleeping workers: True to poll the region, False to end."""
        self._workers: list[threading.Thread] = []
        self._affinities: dict[threading.Thread, tuple[set[int], set[int]]] = {}
        """For each worker, the processors it may use, and those it was last restricted to."""
        self._avoided = -1
        self._dismissed = False
        self._lock = threading.Lock()
        self._shares = (Share * threads)()
        first, size = ctypes.addressof(self._shares), ctypes.sizeof(Share)
        for place, share in enumerate(self._shares, 1):
            share.following = first + place % threads * size
        self._region = Region(shares=first, threads=threads)
        self._serials = count(1)
        self._asleep = 0
        self._begun = self._announced = -math.inf
        self._unshared_us = 0

    def share(self, kernel: Kernel, arguments: int, step: int, end: int, work_us: int) -> None:
        """Run a kernel over chunks of ``step`` on all threads, without the GIL.

        If all workers sleep, the caller works alone, unless this call, or a stream of calls, is worth waking them.
        ``work_us`` is the approximate time of the whole work on one thread.
        """
        chunks = -(-end // step)
        if self.threads == 1 or chunks <= 1 or not self._is_worth_sharing(work_us):
            kernel(arguments, 0, end, end)
            return
        self._make_ready()
        self._announced = time.perf_counter()
        for _ in range(min(self._asleep, chunks - 1)):
            self._wakeups.put(True)
        region, serial = ctypes.addressof(self._region), next(self._serials)
        led = _run_region()(region, serial, _SPINS, _YIELD, address_of(kernel), arguments, step, end)
        self._announced = -math.inf
        if not led:
            kernel(arguments, 0, end, end)

    def _is_worth_sharing(self, work_us: int) -> bool:
        if self._asleep < self.threads - 1:
            return True
        now = time.perf_counter()
        self._unshared_us = work_us + (self._unshared_us if now - self._begun < _STREAM_S else 0)
        self._begun = now
        return self._unshared_us >= _WORTH_WAKING_US

    def _make_ready(self) -> None:
        if len(self._workers) < self.threads - 1:
            self._start()
        here = -1 if _processor is None else _processor()
        if here not in (-1, self._avoided):
            self._avoid(here)

    def _start(self) -> None:
        loop = _worker_loop()
        with self._lock:
            while len(self._workers) < self.threads - 1 and not self._dismissed:
                arguments = loop, len(self._workers) + 1
                worker = threading.Thread(target=self._work, args=arguments, name="aclnn", daemon=True)
                try:
                    worker.start()
                except RuntimeError:  # the system, or a finalizing interpreter, provides no more threads
                    return
                self._workers.append(worker)
                self._avoided = -1

    def _avoid(self, processor: int) -> None:
        """Restrict workers to the processors that they and the calling thread may use, except its current one.

        Linux tends to wake a thread on the waking thread's processor, where it waits until that thread has done nearly
        all of the work alone.
        """
        self._avoided = processor
        others = os.sched_getaffinity(0) - {processor}
        with self._lock:
            for worker in self._workers:
                # The ID of a thread that has ended could belong to another process, and 0 means the caller.
                if worker.native_id and worker.is_alive():
                    with suppress(OSError):  # the system may forbid it
                        self._restrict(worker, worker.native_id, others)

    def _restrict(self, worker: threading.Thread, thread: int, others: set[int]) -> None:
        now = os.sched_getaffinity(thread)
        allowed, restricted = self._affinities.get(worker, (now, now))
        if now != restricted:  # changed by others, whose choice takes precedence
            allowed = now
        if wanted := allowed & others:
            os.sched_setaffinity(thread, wanted)
            self._affinities[worker] = allowed, wanted

    def _work(self, loop: Kernel, place: int) -> None:
        goes_on = True
        while goes_on:
            loop(ctypes.addressof(self._region), self._region.wakeups, _SPINS, _YIELD, place)
            goes_on = self._rest()

    def _rest(self) -> bool:
        """Wait for an entry, unless a thread that counted the sleepers earlier is about to lead; return False to end.

        Each worker takes one entry: the others are meant for other workers.
        """
        with self._lock:
            self._asleep += 1
        goes_on = True
        if time.perf_counter() - self._announced < _ANNOUNCED_S:
            with suppress(Empty):
                goes_on = self._wakeups.get_nowait()
        else:
            goes_on = self._wakeups.get()
        with self._lock:
            self._asleep -= 1
        return goes_on

    def dismiss(self) -> None:
        """End the workers once they have finished their work; callers then work alone."""
        with self._lock:
            self._dismissed = True  # a caller that still has this pool must not start more threads
        for _ in self._workers:
            self._wakeups.put(False)
        self._region.wakeups += 1


_pool: Pool | None = None
_first = threading.Lock()


def _forget() -> None:
    """Forget the pool in a forked child, where its threads do not exist; a new one gets the same number."""
    global _pool, _first
    _first = threading.Lock()
    _pool = None if _pool is None else Pool(_pool.threads)


after_fork(_forget)


def _usual_threads() -> int:
    """Return the number of usable processors, or OpenMP's number of threads if smaller: torchrun sets it to one."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(processors(), int(first)) if first.isdecimal() and int(first) > 0 else processors()


def shared() -> Pool:
    """Return the process's pool."""
    global _pool
    if _pool is None:
        with _first:
            _pool = _pool or Pool(integer("ACLNN_NUM_THREADS", _usual_threads(), most=MOST_THREADS))
    return _pool


def set_threads(threads: int) -> None:
    """Use this many threads, including the caller's, from the next call on; other threads may be in calls."""
    global _pool
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"set_threads: expected from 1 to {MOST_THREADS} threads, got {threads}")
    with _first:
        before, _pool = _pool, Pool(threads)
    if before is not None:
        before.dismiss()


def prepare(chunks: int) -> None:
    """Compile the kernels needed to share this number of chunks."""
    if chunks > 1 and shared().threads > 1:
        _run_region()
        _worker_loop()


def share(kernel: Kernel, arguments: int, step: int, end: int, work_us: int) -> None:
    """Run a kernel over chunks of ``step`` on all of the process's threads; see ``Pool.share``."""
    shared().share(kernel, arguments, step, end, work_us)
