"""The CPU as a device: memory from reserved address ranges, queues served by threads."""

from __future__ import annotations

import ctypes
import os

from aclnn import control_group
from aclnn.runtime.arena import LARGE_GRANULE, SMALL_GRANULE, Arena, Block
from aclnn.runtime.host_streams import HostStream
from aclnn.runtime.locks import Lock
from aclnn.settings import integer

# Programs need room beside the device's memory.
_SHARE_OF_RAM = 3 / 4
# Reserved addresses cost nothing but page tables (1/512 of what was touched); the more of them, the later one returns.
_ADDRESSES_PER_BYTE = 4


class Backend:
    """See ``aclnn.runtime.backend.Backend``."""

    kernels = "cpu"

    def __init__(self) -> None:
        self._lock = Lock()
        self._arenas: dict[int, Arena] = {}

    def memory_bytes(self) -> int:
        """ACLNN_MEMORY_BYTES, or three quarters of what this process may use of the machine's memory."""
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return integer("ACLNN_MEMORY_BYTES", int(min(ram, control_group.memory_bytes() or ram) * _SHARE_OF_RAM))

    def allocate(self, nbytes: int, huge: bool) -> Block | None:
        """Blocks of a huge page or more come from a range that is backed by huge pages."""
        try:
            return self._arena(LARGE_GRANULE if huge and nbytes >= LARGE_GRANULE else SMALL_GRANULE).allocate(nbytes)
        except OSError:  # No addresses left to reserve.
            return None

    def allocate_host(self, nbytes: int) -> Block | None:
        """Host memory is no different here, but stale pointers to it are recognised as well."""
        return self.allocate(nbytes, huge=True)

    def reclaim(self) -> None:
        """The pages of blocks that have ended."""
        for arena in tuple(self._arenas.values()):
            arena.reclaim()

    def owns(self, address: int) -> bool:
        """Whether the address lies in a reserved range."""
        # A copy: another thread may be reserving the second range.
        return any(address in arena for arena in tuple(self._arenas.values()))

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """``memmove``, without the interpreter's lock."""
        ctypes.memmove(destination, source, nbytes)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """``memset``, without the interpreter's lock."""
        ctypes.memset(address, byte, nbytes)

    def stream(self, priority: int, flags: int) -> HostStream:
        """Priorities and flags are hints to hardware queues; there is nothing to choose between here."""
        return HostStream(priority, flags)

    def _arena(self, granule: int) -> Arena:
        arena = self._arenas.get(granule)
        if arena is None:
            with self._lock:
                if granule not in self._arenas:
                    nbytes = self.memory_bytes() * _ADDRESSES_PER_BYTE
                    self._arenas[granule] = Arena(nbytes, granule, huge_pages=granule == LARGE_GRANULE)
                arena = self._arenas[granule]
        return arena
