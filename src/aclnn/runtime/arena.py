"""A reserved range of addresses in which device memory is handed out.

The range is reserved once and never given back, so an address in it is the device's for as long as the process lives:
a stale or foreign device pointer is recognised, never mistaken for host memory. Blocks are placed after the last one
given out (next fit), so that a freed address returns as late as possible and use after free is found.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from bisect import bisect_left, bisect_right
from collections import deque

# Python names it from 3.13 on only. macOS never reserves swap for untouched pages.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_LEAST_BYTES = 1 << 26

#: Alignment of small blocks: real devices' too, and what clients round addresses up to.
SMALL_GRANULE = 512
#: Alignment and size unit of large blocks: one huge page.
LARGE_GRANULE = 1 << 21


class Block:
    """Some bytes of an arena, given back when the last reference goes."""

    __slots__ = ("_arena", "address", "nbytes")

    def __init__(self, arena: Arena, address: int, nbytes: int) -> None:
        self._arena = arena
        self.address = address
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._arena.release(self.address, self.nbytes)


class Arena:
    """One range of addresses with one granule.

    Args:
        nbytes: how much to reserve; where the system refuses (limited address space) half of it, and so on.
        granule: alignment of every block, to which sizes are rounded up.
        huge_pages: advise the system to back the range with huge pages.
    """

    def __init__(self, nbytes: int, granule: int, huge_pages: bool = False) -> None:
        self._mapping = _reserve(nbytes + granule)
        self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        # The mapping outlives everything: a kernel may still be writing while the interpreter shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._mapping))
        if huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self.base = -(-self._begin // granule) * granule
        self.end = self.base + (self._begin + len(self._mapping) - self.base) // granule * granule
        self._granule = granule
        self._lock = threading.Lock()
        self._returned: deque[tuple[int, int]] = deque()
        self._cursor = self.base
        # Free intervals: sorted beginnings, and the end of each.
        self._starts = [self.base]
        self._ends = {self.base: self.end}

    def __contains__(self, address: int) -> bool:
        return self.base <= address < self.end

    def allocate(self, nbytes: int) -> Block | None:
        """A block of at least ``nbytes``, or None when no free interval is long enough."""
        need = -(-nbytes // self._granule) * self._granule
        with self._lock:
            self._take_back()
            begin = self._place(need)
            if begin is not None:
                self._carve(begin, need)
                self._cursor = begin + need
        self._drain()
        return None if begin is None else Block(self, begin, need)

    def release(self, address: int, nbytes: int) -> None:
        """Give a block back. Safe in finalizers, also of a thread that is inside this arena at the moment."""
        self._returned.append((address, nbytes))
        self._drain()

    def _drain(self) -> None:
        # Whoever holds the lock sees what was appended meanwhile when it comes here in turn.
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()

    def _take_back(self) -> None:
        while self._returned:
            self._merge(*self._returned.popleft())

    def _place(self, need: int) -> int | None:
        at = bisect_right(self._starts, self._cursor) - 1
        if at >= 0 and self._ends[self._starts[at]] - self._cursor >= need:
            return self._cursor
        for start in (*self._starts[at + 1 :], *self._starts[: at + 1]):
            if self._ends[start] - start >= need:
                return start
        return None

    def _carve(self, begin: int, need: int) -> None:
        at = bisect_right(self._starts, begin) - 1
        start, end = self._starts[at], self._ends[self._starts[at]]
        if start < begin:
            self._ends[start] = begin
            at += 1
        else:
            del self._starts[at], self._ends[start]
        if begin + need < end:
            self._starts.insert(at, begin + need)
            self._ends[begin + need] = end

    def _merge(self, address: int, nbytes: int) -> None:
        begin, end = address, address + nbytes
        at = bisect_left(self._starts, begin)
        if at < len(self._starts) and self._starts[at] == end:
            end = self._ends.pop(self._starts.pop(at))
        if at > 0 and self._ends[self._starts[at - 1]] == begin:
            begin = self._starts[at - 1]
        else:
            self._starts.insert(at, begin)
        self._ends[begin] = end
        self._return_pages(address, nbytes, begin, end)

    def _return_pages(self, address: int, nbytes: int, begin: int, end: int) -> None:
        """Hand back the pages of the bytes just freed that lie wholly in the free interval [begin, end)."""
        page = mmap.PAGESIZE
        first = max(-(-begin // page), address // page) * page
        last = min(end // page, -(-(address + nbytes) // page)) * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, first - self._begin, last - first)


def _reserve(nbytes: int) -> mmap.mmap:
    while True:
        try:
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, OverflowError):
            if nbytes <= _LEAST_BYTES:
                raise
            nbytes //= 2
