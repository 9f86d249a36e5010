"""A reserved address range from which device memory is allocated.

The range is reserved once and never released, so its addresses belong to the device for the life of the process: a
stale or foreign device pointer is recognised, never mistaken for host memory. Each block is placed after the block
allocated last (next fit), which delays the reuse of freed addresses, so that use after free is detected.
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

# Python defines the constant from 3.13 on only. macOS never reserves swap for untouched pages.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_LEAST_BYTES = 1 << 26

#: Alignment of small blocks: that of real devices, and the multiple to which clients round addresses up.
SMALL_GRANULE = 512
#: Alignment and size unit of large blocks: one huge page.
LARGE_GRANULE = 1 << 21

# Leave memory for the program itself.
_SHARE_OF_RAM = 3 / 4
# Reserving addresses costs page tables only (1/512 of the touched bytes); a larger range delays the reuse of addresses.
_ADDRESSES_PER_BYTE = 4


def memory_bytes() -> int:
    """Return ACLNN_MEMORY_BYTES, or three quarters of the memory available to this process."""
    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return integer("ACLNN_MEMORY_BYTES", int(min(ram, cgroups.memory_bytes() or ram) * _SHARE_OF_RAM))


class Block:
    """Bytes of an arena, returned to it when the last reference is dropped."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self) -> None:
        self.address = 0
        self.nbytes = 0


class _Lease(weakref.ref[Block]):
    """Bytes to reclaim when a block dies; an empty range if the allocation failed."""

    __slots__ = ("begin", "end")

    begin: int
    end: int


class Arena:
    """An address range with one alignment.

    Args:
        nbytes: how much to reserve; halved until the system agrees, if address space is limited.
        granule: alignment of every block, and the unit to which sizes are rounded up.
        huge_pages: advise the system to back the range with huge pages.
    """

    def __init__(self, nbytes: int, granule: int, huge_pages: bool = False) -> None:
        self._mapping = _reserve(nbytes + granule)
        self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        # Keep the mapping forever: a kernel may still be writing while the interpreter shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._mapping))
        if huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self.base = -(-self._begin // granule) * granule
        self.end = self.base + (self._begin + len(self._mapping) - self.base) // granule * granule
        self._granule = granule
        self._lock = Lock()
        self._cursor = self.base
        # Sorted free intervals: the only record of free memory. An interrupt or a finalizer may come between any two
        # calls, so each update is a single assignment.
        self._free = [(self.base, self.end)]
        self._leases: set[_Lease] = set()
        self._ended: deque[_Lease] = deque()

    def __contains__(self, address: int) -> bool:
        return self.base <= address < self.end

    def allocate(self, nbytes: int) -> Block | None:
        """Allocate a block of at least ``nbytes``.

        Return None if no free interval is long enough, or if a finalizer calls this while its thread is in the arena.
        """
        need = -(-nbytes // self._granule) * self._granule
        if self._lock.held_by_this_thread():
            return None
        block = Block()
        # The end of a block only appends here, which nothing can interrupt.
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
            # No call from here on: an interrupt must not separate the block from its owner.
            before = [(start, begin)] if start < begin else []
            behind = [(begin + need, end)] if begin + need < end else []
            self._free[at : at + 1] = before + behind
            lease.begin, lease.end = begin, begin + need
            block.address, block.nbytes = begin, need
            self._cursor = begin + need
        return block

    def reclaim(self) -> None:
        """Return the pages of dead blocks to the system."""
        if self._ended and not self._lock.held_by_this_thread():
            with self._lock:
                self._take_back()

    def _take_back(self) -> None:
        while self._ended:
            lease = self._ended[0]
            if lease.begin < lease.end:
                self._merge(lease.begin, lease.end)
            self._leases.discard(lease)
            # Last: after an interrupt before this line the same lease is processed again.
            del self._ended[0]

    def _place(self, need: int) -> int | None:
        """Return the index of the free interval to use: the first one, from the cursor on, that is long enough."""
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
            return  # merged before an interrupt
        joins_before, joins_after = before[1] == begin, after[0] == end
        whole = before[0] if joins_before else begin, after[1] if joins_after else end
        self._return_pages(begin, end, *whole)
        self._free[at - joins_before : at + joins_after] = [whole]

    def discard(self, begin: int, end: int) -> None:
        """Return the pages of a part of a block to the system; the block stays allocated."""
        self._return_pages(begin, end, begin, end)

    def _return_pages(self, begin: int, end: int, free_begin: int, free_end: int) -> None:
        """Return the pages of newly freed bytes that lie wholly within the surrounding free interval."""
        page = mmap.PAGESIZE
        first = max(-(-free_begin // page), begin // page) * page
        last = min(free_end // page, -(-end // page)) * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, first - self._begin, last - first)


class Arenas:
    """One arena for small blocks and one, with huge pages, for large blocks; each is reserved on first use."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._arenas: dict[int, Arena] = {}

    def __contains__(self, address: int) -> bool:
        # A copy: another thread may be adding the second arena.
        return any(address in arena for arena in tuple(self._arenas.values()))

    def allocate(self, nbytes: int, huge: bool) -> Block | None:
        """Allocate a block, in huge pages if wanted and large enough; return None if memory is exhausted."""
        try:
            return self._arena(LARGE_GRANULE if huge and nbytes >= LARGE_GRANULE else SMALL_GRANULE).allocate(nbytes)
        except OSError:  # no address space left
            return None

    def reclaim(self) -> None:
        """Return the pages of dead blocks to the system."""
        for arena in tuple(self._arenas.values()):
            arena.reclaim()

    def discard(self, begin: int, end: int) -> None:
        """Return the pages of a part of a block to the system; the block stays allocated."""
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
