"""An NVIDIA GPU as a device, through PyTorch: its memory and streams are torch.cuda's, whose kernels Triton's are.

Tasks are launched where they are queued and run in the stream's order on the GPU. What a task uses is kept until the
GPU is past it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from weakref import WeakSet

from aclnn import extras
from aclnn.runtime.backend import NO_DEVICE
from aclnn.runtime.locks import Lock
from aclnn.runtime.streams import Stream, Task, nothing
from aclnn.settings import integer
from aclnn.status import AclnnError

torch: Any = extras.require("torch", "cuda")
if find_spec("triton") is None:
    raise extras.MissingExtraError(f"triton is not installed: {extras.command('cuda')}", name="triton")

# How often a wait with a time limit looks; events themselves know none.
_POLL_S = 20e-6


class Block:
    """Memory of a tensor, given back to PyTorch when the last reference goes."""

    __slots__ = ("_tensor", "address")

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.address: int = tensor.data_ptr()


class Spans:
    """A growing set of addresses, in half-open ranges."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ranges: list[tuple[int, int]] = []

    def add(self, begin: int, end: int) -> None:
        """Enter a range, joining those that it touches."""
        with self._lock:
            near = set(filter(lambda r: r[0] <= end and begin <= r[1], self._ranges))
            every = (*near, (begin, end))
            joined = min(every)[0], max(every, key=lambda r: r[1])[1]
            self._ranges = sorted({*self._ranges} - near | {joined})

    def __contains__(self, address: int) -> bool:
        ranges = self._ranges
        at = bisect_right(ranges, address, key=lambda r: r[0]) - 1
        return at >= 0 and address < ranges[at][1]


class _Bytes:
    """Memory of the GPU, as PyTorch takes it from others."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


class _Launching(threading.local):
    stream: Any = None
    """The CUDA stream whose task this thread is launching."""


_launching = _Launching()
# What a child process inherits of its parent's work: never touched again.
_inherited: list[object] = []


class Backend:
    """See ``aclnn.runtime.backend.Backend``. Every device of the runtime is the first GPU."""

    kernels = "cuda"

    def __init__(self) -> None:
        # Nothing here may touch the GPU: a child process makes one of these while it forks.
        self._lock = Lock()
        self._gpu: Any = None
        self._on_device, self._on_host = Spans(), Spans()
        self._streams: WeakSet[CudaStream] = WeakSet()

    def _device(self) -> Any:
        if self._gpu is None:
            if not torch.cuda.is_available():
                raise _no_device(f"torch {torch.__version__}, torch.cuda.is_available() is False")
            try:
                torch.cuda.init()
            except RuntimeError as error:
                raise _no_device(str(error)) from None
            self._gpu = torch.device("cuda", 0)
        return self._gpu

    def memory_bytes(self) -> int:
        """ACLNN_MEMORY_BYTES, or all of the GPU's memory.

        Raises:
            AclnnError: 207004, there is no GPU that PyTorch can use.
        """
        return integer("ACLNN_MEMORY_BYTES", torch.cuda.mem_get_info(self._device())[1])

    def allocate(self, nbytes: int, huge: bool) -> Block | None:
        """Memory of the GPU from PyTorch's allocator, whose addresses are multiples of 512."""
        return self._allocate(nbytes, self._on_device, device=self._device())

    def allocate_host(self, nbytes: int) -> Block | None:
        """Page-locked memory."""
        self._device()
        return self._allocate(nbytes, self._on_host, pin_memory=True)

    def _allocate(self, nbytes: int, spans: Spans, **where: Any) -> Block | None:
        try:
            tensor = torch.empty(nbytes, dtype=torch.uint8, **where)
        except torch.OutOfMemoryError:
            # What was freed while in use comes back when the GPU is past it.
            with self._lock:
                streams = list(self._streams)
            for stream in streams:
                stream.wait()
            try:
                tensor = torch.empty(nbytes, dtype=torch.uint8, **where)
            except torch.OutOfMemoryError:
                return None
        block = Block(tensor)
        spans.add(block.address, block.address + nbytes)
        return block

    def reclaim(self) -> None:
        """PyTorch keeps what blocks held for the next ones."""

    def owns(self, address: int) -> bool:
        """Whether the address was in a block before; PyTorch keeps the addresses of what is given back."""
        return address in self._on_device or address in self._on_host

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """By the GPU, unless both are the host's."""
        if destination not in self._on_device and source not in self._on_device:
            _settle()
            ctypes.memmove(destination, source, nbytes)
            return
        with self._in_order():
            taken = self._bytes(source, nbytes)
            if abs(destination - source) < nbytes:
                taken = taken.clone()
            self._bytes(destination, nbytes).copy_(taken, non_blocking=True)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """By the GPU, unless the memory is the host's."""
        if address not in self._on_device:
            _settle()
            ctypes.memset(address, byte, nbytes)
            return
        with self._in_order():
            self._bytes(address, nbytes).fill_(byte)

    def stream(self, priority: int, flags: int) -> Stream:
        """Priorities and flags are hints, for which torch.cuda's streams have no equivalent."""
        stream = CudaStream(torch.cuda.Stream(self._device()), priority, flags)
        with self._lock:
            self._streams.add(stream)
        return stream

    def _bytes(self, address: int, nbytes: int) -> Any:
        if address in self._on_device:
            return torch.as_tensor(_Bytes(address, nbytes), device=self._device())
        return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Work launched within is a part of the task at hand; outside of any it is done when this ends."""
        with torch.cuda.device(self._device()):
            yield
            if _launching.stream is None:
                torch.cuda.current_stream().synchronize()


def _no_device(why: str) -> AclnnError:
    return AclnnError(NO_DEVICE, f"ACLNN_DEVICE=cuda: expected an NVIDIA GPU that PyTorch can use, got none ({why})")


def _settle() -> None:
    """Before the host itself does a task's work: wait until the stream has come to it."""
    if _launching.stream is not None:
        _launching.stream.synchronize()


class CudaRecord:
    """A CUDA event."""

    __slots__ = ("_event",)

    def __init__(self, stream: Any) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record(stream)

    @property
    def done(self) -> bool:
        """Whether the GPU has come to it."""
        return bool(self._event.query())

    @property
    def has_time(self) -> bool:
        """Whether the GPU has come to it."""
        return self.done

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is done within the time."""
        if timeout_s is None:
            self._event.synchronize()
            return True
        deadline = time.monotonic() + timeout_s
        while not self.done and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self.done

    def ms_since(self, other: CudaRecord) -> float:
        """Milliseconds by the GPU's clock."""
        return float(other._event.elapsed_time(self._event))

    def delay(self, stream: Any) -> None:
        """Let a CUDA stream wait for it."""
        stream.wait_event(self._event)


class CudaStream(Stream):
    """A CUDA stream.

    A task is launched by the thread that queues it. Its failure there is remembered as on any stream; one on the GPU is
    found when somebody waits.
    """

    def __init__(self, stream: Any, priority: int, flags: int) -> None:
        self._stream = stream
        self._running: deque[tuple[int, CudaRecord, Task]] = deque()
        super().__init__(priority, flags)

    def _reset(self) -> None:
        super()._reset()
        # Whoever holds it launches; a task may queue another.
        self._order = Lock()
        self._last = 0
        """The ticket given out last."""
        if self._running:
            _inherited.append(self._running)
        self._running = deque()

    def enqueue(self, task: Task, short: bool = False, dropped: Task = nothing) -> int:
        """See ``Stream``. Every task is launched at once, and what was launched is not taken back."""
        with self._order:
            self._require_open()
            self._last = ticket = self._last + 1
            outer, _launching.stream = _launching.stream, self._stream
            try:
                with torch.cuda.stream(self._stream):
                    interruption = self._attempt(task)
            finally:
                _launching.stream = outer
            self._attempt(lambda: self._running.append((ticket, CudaRecord(self._stream), task)))
            self._attempt(self._forget_finished)
        if interruption is not None:
            raise interruption
        return ticket

    def record(self) -> CudaRecord:
        """See ``Stream``."""
        with self._order:
            self._require_open()
            return CudaRecord(self._stream)

    def hold_up(self, record: CudaRecord) -> None:
        """See ``Stream``."""
        with self._order:
            self._require_open()
            record.delay(self._stream)

    def idle(self) -> bool:
        """See ``Stream``."""
        return bool(self._stream.query())

    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        """See ``Stream``."""
        done = True

        def awaited() -> None:
            nonlocal done
            with self._order:
                target = self._record_of(ticket)
            done = target is None or target.wait(timeout_s)
            with self._order:
                self._forget_finished()

        interruption = self._attempt(awaited)
        if interruption is not None:
            raise interruption
        return done

    def close(self, force: bool = False) -> None:
        """See ``Stream``."""
        with self._lock:
            self._closed = True
        self.wait()

    def drop(self) -> None:
        """See ``Stream``: there is nothing that has not begun."""

    def _attempt(self, task: Task) -> BaseException | None:
        """Do something whose failure is the stream's; an interrupt is returned."""
        try:
            task()
        except BaseException as error:
            return error if self._remember(error) else None
        return None

    def _record_of(self, ticket: int | None) -> CudaRecord | None:
        if ticket is None:
            return None if self.idle() else CudaRecord(self._stream)
        return next((record for number, record, _ in self._running if number == ticket), None)

    def _forget_finished(self) -> None:
        """Forget the tasks that the GPU is past, and with them what they use. Whoever calls holds the order."""
        while self._running and self._running[0][1].done:
            self._running.popleft()
