"""A GPU for programs on machines without one: torch.cuda's part of memory and streams, over host memory.

Work is done when it is launched, but streams and events report it done only after somebody waited: the slowest GPU that
there can be, so what relies on the GPU's being quick is found.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

MEMORY_BYTES = 1 << 26


class Stream:
    def __init__(self, device: Any = None) -> None:
        assert device is None or device == torch.device("cuda", 0)
        self.launched = self.reached = 0

    def query(self) -> bool:
        return self.reached == self.launched

    def synchronize(self) -> None:
        self.reached = self.launched

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.timed = enable_timing

    def record(self, stream: Stream) -> None:
        stream.launched += 1
        self.stream, self.place, self.time = stream, stream.launched, time.perf_counter()

    def query(self) -> bool:
        return self.place <= self.stream.reached

    def synchronize(self) -> None:
        self.stream.reached = max(self.stream.reached, self.place)

    def elapsed_time(self, end: Event) -> float:
        if not (self.timed and end.timed and self.query() and end.query()):
            raise RuntimeError("both events must be recorded and finished")
        return (end.time - self.time) * 1e3


class Cuda:
    """``torch.cuda``."""

    Stream, Event = Stream, Event

    def __init__(self) -> None:
        self.current = Stream()
        self.initialized = False

    def is_available(self) -> bool:
        return True

    def init(self) -> None:
        self.initialized = True

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        assert self.initialized
        return MEMORY_BYTES, MEMORY_BYTES

    def current_stream(self) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        assert device == torch.device("cuda", 0)
        yield


class Torch:
    """``torch``, whose tensors on the GPU are the host's."""

    def __init__(self) -> None:
        self.cuda = Cuda()
        self.room = MEMORY_BYTES
        """Bytes that one more tensor may have."""
        self.given_out: list[Any] = []
        """Kept, as a GPU's addresses never become the host's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, nbytes: int, dtype: Any, device: Any = None, pin_memory: bool = False) -> Any:
        assert pin_memory or device == torch.device("cuda", 0)
        if nbytes > self.room:
            raise torch.OutOfMemoryError(f"tried to allocate {nbytes} bytes")
        memory = torch.empty(nbytes + 512, dtype=dtype)
        self.given_out.append(memory)
        return memory[-memory.data_ptr() % 512 :][:nbytes]

    def as_tensor(self, exported: Any, device: Any) -> Any:
        description = SimpleNamespace(**exported.__cuda_array_interface__)
        (nbytes,), (address, read_only) = description.shape, description.data
        assert (description.typestr, read_only) == ("|u1", False)
        return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)
