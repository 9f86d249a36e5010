"""A small pool of threads that run compiled, GIL-free kernels over chunks of work.

The caller works too, and never waits for a chunk that nobody has begun, so nested calls and any number of callers at
once cannot deadlock. A child process after ``fork`` starts its own threads when it first needs them.

Which thread runs which chunk is left to chance: chunks must be independent, whoever does them.
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
from typing import Any

from aclnn.kernels.cpu import compiler, teamwork
from aclnn.kernels.cpu.compiler import Kernel, address_of
from aclnn.kernels.cpu.target import processors
from aclnn.support.env import integer

Task = Callable[[int], object]


_system: Any = ctypes.PyDLL(None) if os.name == "posix" else None

#: The processor that the calling thread is on; None where that cannot be asked (it is Linux's).
_processor: Callable[[], int] | None = getattr(_system, "sched_getcpu", None)

#: The address of ``sched_yield``, 0 where there is none.
_YIELD: int = ctypes.cast(_system.sched_yield, ctypes.c_void_p).value or 0 if hasattr(_system, "sched_yield") else 0


class _Job:
    """One call: chunks are handed out in order until there are none left, or one has failed."""

    __slots__ = ("begun", "chunks", "error", "helpers", "left", "lock", "task")

    def __init__(self, task: Task, chunks: int) -> None:
        self.task = task
        self.chunks = chunks
        self.begun = count()
        self.error: BaseException | None = None
        self.helpers = 0
        """Workers who may be at a chunk."""
        self.lock = threading.Lock()
        self.left: SimpleQueue[None] = SimpleQueue()
        """An entry for each worker who has left. The caller, who may be interrupted at any place, holds no lock."""

    def work(self) -> None:
        """Take chunks until none is left."""
        while self.error is None and (chunk := next(self.begun)) < self.chunks:
            self.task(chunk)

    def help(self) -> None:
        """The same for a worker, on whom the caller waits."""
        with self.lock:
            self.helpers += 1
        try:
            self.work()
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error
        with self.lock:
            self.helpers -= 1
        self.left.put(None)

    def wait(self) -> None:
        """Return when no worker is at a chunk."""
        while self.helpers:
            self.left.get()


#: Ends a worker.
_LEAVE = _Job(lambda chunk: None, 0)

_PATIENCE = 5000
"""How often a thread looks for work before it rests: 100 to 200 µs."""

_WORTH_WAKING_US = 100
"""Work for which workers are woken when all of them rest: they come after 30 to 70 µs and want the GIL then, so that
a call that ends meanwhile waits for them. On Zen 4, 2 ms after the last call, that pays from 80 µs on, 20 ms after it
from 200 µs."""

_ANNOUNCED_S = 1.0
"""How long workers stay awake for work that a caller has announced and, perhaps interrupted, has not done."""

MOST_THREADS = 1024
"""With a hundred thousand the process ran out of memory for compiled code, and LLVM ended it."""

_STREAM_S = 3e-4
"""Calls that begin within this time of one another are one stream: once woken, workers stay awake for it."""


def _lead() -> Kernel:
    return compiler.kernel("lead", (), teamwork.lead)


def _serve() -> Kernel:
    return compiler.kernel("serve", (), teamwork.serve)


class Pool:
    """``threads`` counts the caller: one thread means that everything runs on the caller's."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        """None wakes a worker up, which then looks at the board."""
        self._workers: list[threading.Thread] = []
        self._affinities: dict[threading.Thread, tuple[set[int], set[int]]] = {}
        """Of each worker the processors that it may use, and those of them that it was last restricted to."""
        self._avoided = -1
        self._lock = threading.Lock()
        self._board = (ctypes.c_int64 * teamwork.FIELDS)()
        self._serials = count(1)
        self._asleep = 0
        self._begun = self._announced = -math.inf
        self._unshared_us = 0

    def run(self, task: Task, chunks: int) -> None:
        """Call ``task(i)`` once for each i in range(chunks); return when all have returned.

        Raises:
            BaseException: the first error of a task; chunks not yet begun are then skipped.
        """
        if self.threads > 1 and chunks > 1:
            self._make_ready()
        helpers = min(len(self._workers), chunks - 1)
        if helpers <= 0:
            for chunk in range(chunks):
                task(chunk)
            return
        job = _Job(task, chunks)
        while True:
            try:
                for _ in range(helpers):
                    self._jobs.put(job)
                helpers = 0
                self._board[teamwork.BELL] += 1
                job.work()
                job.wait()
                break
            except BaseException as error:  # an interrupt too: no worker may go on after this call
                job.error = error
        if job.error is not None:
            raise job.error

    def sweep(self, kernel: Kernel, operands: tuple[int, ...], step: int, end: int, work_us: int) -> None:
        """Run a loop as ``chunks`` makes them over chunks of ``step`` on all threads; they share it without the GIL.

        When all workers rest the caller works alone, unless this call, or a stream of them, is worth waking them.
        ``work_us`` is what one thread takes for all of it, about.
        """
        chunks = -(-end // step)
        if self.threads == 1 or chunks <= 1 or not self._is_worth_sharing(work_us):
            kernel(*operands, 0, end, end)
            return
        self._make_ready()
        self._announced = time.perf_counter()
        for _ in range(min(self._asleep, chunks - 1)):
            self._jobs.put(None)
        board, serial = ctypes.addressof(self._board), next(self._serials)
        led = _lead()(board, serial, _PATIENCE, _YIELD, address_of(kernel), *operands, step, end)
        self._announced = -math.inf
        if not led:
            # Another caller has the workers; they join this one's as soon as they can.
            counter = ctypes.c_int64(0)
            begun = ctypes.addressof(counter)
            self.run(lambda _: kernel(*operands, begun, step, end), self.threads)

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
        serve = _serve()
        with self._lock:
            while len(self._workers) < self.threads - 1:
                worker = threading.Thread(target=self._serve, args=(serve,), name="aclnn", daemon=True)
                try:
                    worker.start()
                except RuntimeError:  # the system, or an interpreter that is shutting down, gives no more threads
                    return
                self._workers.append(worker)
                self._avoided = -1

    def _avoid(self, processor: int) -> None:
        """Let workers run where both they and the calling thread may, but not on the processor where that is now.

        Linux tends to wake a thread on the processor of the one that wakes it, where it waits until that one has done
        nearly all of the work alone: on two cores, after a pause of 10 ms, 2.0 ms for what takes 1.1 otherwise.
        """
        self._avoided = processor
        others = os.sched_getaffinity(0) - {processor}
        with self._lock:
            for worker in self._workers:
                # One that has ended could address another process's thread, and 0 the caller.
                if worker.native_id and worker.is_alive():
                    with suppress(OSError):  # the system may forbid it
                        self._restrict(worker, worker.native_id, others)

    def _restrict(self, worker: threading.Thread, thread: int, others: set[int]) -> None:
        now = os.sched_getaffinity(thread)
        allowed, restricted = self._affinities.get(worker, (now, now))
        if now != restricted:  # by somebody else, who is to have their way
            allowed = now
        if wanted := allowed & others:
            os.sched_setaffinity(thread, wanted)
            self._affinities[worker] = allowed, wanted

    def _serve(self, serve: Kernel) -> None:
        board = ctypes.addressof(self._board)
        job: _Job | None = None
        while job is not _LEAVE:
            if job is not None:
                job.help()
            try:
                job = self._jobs.get_nowait()
            except Empty:
                serve(board, self._board[teamwork.BELL], _PATIENCE, _YIELD)
                job = self._rest() if self._jobs.empty() else None

    def _rest(self) -> _Job | None:
        """Wait for a job, unless somebody is about to lead who counted the sleepers before this one."""
        with self._lock:
            self._asleep += 1
        announced = time.perf_counter() - self._announced < _ANNOUNCED_S
        job = None if announced else self._jobs.get()
        with self._lock:
            self._asleep -= 1
        return job

    def dismiss(self) -> None:
        """Let the workers end when they have done what they were asked for; the callers do what comes then."""
        for _ in self._workers:
            self._jobs.put(_LEAVE)
        self._board[teamwork.BELL] += 1


_pool: Pool | None = None
_first = threading.Lock()


def _forget() -> None:
    """Threads do not survive a fork: the child starts afresh, with the same number."""
    global _pool, _first
    _first = threading.Lock()
    _pool = None if _pool is None else Pool(_pool.threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _usual_threads() -> int:
    """One for each processor that the process may use, but no more than OpenMP's: torchrun gives each process one."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(processors(), int(first)) if first.isdecimal() and int(first) > 0 else processors()


def shared() -> Pool:
    """The process's pool."""
    global _pool
    if _pool is None:
        with _first:
            _pool = _pool or Pool(integer("ACLNN_NUM_THREADS", _usual_threads(), most=MOST_THREADS))
    return _pool


def set_threads(threads: int) -> None:
    """Use this many threads, the caller's included, from the next call on."""
    global _pool
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"set_threads: expected from 1 to {MOST_THREADS} threads, got {threads}")
    before, _pool = _pool, Pool(threads)
    if before is not None:
        before.dismiss()


def prepare(chunks: int) -> None:
    """Compile what threads need to share work of so many chunks."""
    if chunks > 1 and shared().threads > 1:
        _lead()
        _serve()


def run(task: Task, chunks: int) -> None:
    """Run ``task`` on the process's pool, as ``Pool.run``."""
    shared().run(task, chunks)


def sweep(kernel: Kernel, operands: tuple[int, int, int, int, int], step: int, end: int, work_us: int) -> None:
    """Run a kernel as ``chunks`` makes them over chunks of ``step``, on all threads, as ``Pool.sweep``."""
    shared().sweep(kernel, operands, step, end, work_us)
