"""A reserved range of addresses in which device memory is handed out.

The range is reserved once and never given back, so an address in it is the device's for as long as the process lives:
a stale or foreign device pointer is recognised, never mistaken for host memory. Blocks are placed after the last one
given out (next fit), so that a freed address returns as late as possible and use after free is found.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from bisect import bisect_right
from collections import deque

from aclnn.runtime.locks import Lock
from aclnn.support import cgroups
from aclnn.support.env import integer

# Python names it from 3.13 on only. macOS never reserves swap for untouched pages.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_LEAST_BYTES = 1 << 26

#: Alignment of small blocks: real devices' too, and what clients round addresses up to.
SMALL_GRANULE = 512
#: Alignment and size unit of large blocks: one huge page.
LARGE_GRANULE = 1 << 21

# Programs need room beside the device's memory.
_SHARE_OF_RAM = 3 / 4
# Reserved addresses cost nothing but page tables (1/512 of what was touched); the more of them, the later one returns.
_ADDRESSES_PER_BYTE = 4


def memory_bytes() -> int:
    """ACLNN_MEMORY_BYTES, or three quarters of what this process may use of the machine's memory."""
    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return integer("ACLNN_MEMORY_BYTES", int(min(ram, cgroups.memory_bytes() or ram) * _SHARE_OF_RAM))


class Block:
    """Some bytes of an arena, given back when the last reference goes."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self) -> None:
        self.address = 0
        self.nbytes = 0


class _Lease(weakref.ref[Block]):
    """The bytes to reclaim when a block dies; empty if it got none."""

    __slots__ = ("begin", "end")

    begin: int
    end: int


class Arena:
    """A range of addresses with one granule.

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
        self._lock = Lock()
        self._cursor = self.base
        # Free intervals, sorted: the only record of what is free. An interrupt or a finalizer may come between any two
        # calls, so each change is one assignment to it.
        self._free = [(self.base, self.end)]
        self._leases: set[_Lease] = set()
        self._ended: deque[_Lease] = deque()

    def __contains__(self, address: int) -> bool:
        return self.base <= address < self.end

    def allocate(self, nbytes: int) -> Block | None:
        """A block of at least ``nbytes``.

        None when no free interval is long enough, or when called by a finalizer that interrupted this thread inside the
        arena.
        """
        need = -(-nbytes // self._granule) * self._granule
        if self._lock.is_mine():
            return None
        block = Block()
        # Appending is all that happens when a block ends, and nothing can interrupt it.
        lease = _Lease(block, self._ended.append)
        lease.begin = lease.end = 0
        self._leases.add(lease)
        with self._lock:
            self._take_back()
            at = self._place(need)
            if at is None:
                return None
            start, end = self._free[at]
            begin = self._cursor if start <= self._cursor <= end - need else start
            # No call from here on: the block is taken and its owner known, or neither.
            before = [(start, begin)] if start < begin else []
            behind = [(begin + need, end)] if begin + need < end else []
            self._free[at : at + 1] = before + behind
            lease.begin, lease.end = begin, begin + need
            block.address, block.nbytes = begin, need
            self._cursor = begin + need
        return block

    def reclaim(self) -> None:
        """Hand the pages of the blocks that have ended back to the system."""
        if self._ended and not self._lock.is_mine():
            with self._lock:
                self._take_back()

    def _take_back(self) -> None:
        while self._ended:
            lease = self._ended[0]
            if lease.begin < lease.end:
                self._merge(lease.begin, lease.end)
            self._leases.discard(lease)
            # Last: an interrupt before it has the same lease looked at again.
            del self._ended[0]

    def _place(self, need: int) -> int | None:
        """The free interval to take, the first from the cursor on that is long enough."""
        free = self._free
        at = bisect_right(free, (self._cursor, self.end)) - 1
        if at >= 0 and free[at][1] - self._cursor >= need:
            return at
        order = (*range(at + 1, len(free)), *range(at + 1))
        return next((i for i in order if free[i][1] - free[i][0] >= need), None)

    def _merge(self, begin: int, end: int) -> None:
        at = bisect_right(self._free, (begin, self.end))
        before = self._free[at - 1] if at else (0, 0)
        after = self._free[at] if at < len(self._free) else (self.end, self.end)
        if before[1] >= end:
            return  # already done when an interrupt came
        joins_before, joins_after = before[1] == begin, after[0] == end
        whole = before[0] if joins_before else begin, after[1] if joins_after else end
        self._return_pages(begin, end, *whole)
        self._free[at - joins_before : at + joins_after] = [whole]

    def discard(self, begin: int, end: int) -> None:
        """Hand the pages of a block's part back to the system; the block stays."""
        self._return_pages(begin, end, begin, end)

    def _return_pages(self, begin: int, end: int, free_begin: int, free_end: int) -> None:
        """Hand back the pages of the bytes just freed that lie wholly in the free interval around them."""
        page = mmap.PAGESIZE
        first = max(-(-free_begin // page), begin // page) * page
        last = min(free_end // page, -(-end // page)) * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, first - self._begin, last - first)


class Arenas:
    """Ranges for small blocks and, backed by huge pages, for large ones; each reserved when first needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._arenas: dict[int, Arena] = {}

    def __contains__(self, address: int) -> bool:
        # A copy: another thread may be reserving the second range.
        return any(address in arena for arena in tuple(self._arenas.values()))

    def allocate(self, nbytes: int, huge: bool) -> Block | None:
        """A block, in huge pages if wanted and it fills one; None when there is no more."""
        try:
            return self._arena(LARGE_GRANULE if huge and nbytes >= LARGE_GRANULE else SMALL_GRANULE).allocate(nbytes)
        except OSError:  # No addresses left to reserve.
            return None

    def reclaim(self) -> None:
        """Hand the pages of the blocks that have ended back to the system."""
        for arena in tuple(self._arenas.values()):
            arena.reclaim()

    def discard(self, begin: int, end: int) -> None:
        """Hand the pages of a block's part back to the system; the block stays."""
        for arena in tuple(self._arenas.values()):
            if begin in arena:
                arena.discard(begin, end)

    def _arena(self, granule: int) -> Arena:
        arena = self._arenas.get(granule)
        if arena is None:
            with self._lock:
                if granule not in self._arenas:
                    nbytes = memory_bytes() * _ADDRESSES_PER_BYTE
                    self._arenas[granule] = Arena(nbytes, granule, huge_pages=granule == LARGE_GRANULE)
                arena = self._arenas[granule]
        return arena


def _reserve(nbytes: int) -> mmap.mmap:
    while True:
        try:
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, OverflowError):
            if nbytes <= _LEAST_BYTES:
                raise
            nbytes //= 2
