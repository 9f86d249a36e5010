"""Device memory that knows its allocations.

An address given by a program is one of three things: inside a live allocation, which must then contain the whole range;
in the device's address range but in no live allocation, which is an error; or ordinary host memory, for which the
caller is responsible. An allocation's memory is returned when the last reference to it is dropped: queued tasks hold
references, so freeing memory early is safe.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Any

from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_MEMORY_ALLOCATION,
    ACL_ERROR_RT_PARAM_INVALID,
    CODES,
    AclnnError,
)
from aclnn.runtime.arena import Arenas, Block, memory_bytes
from aclnn.runtime.locks import Lock
from aclnn.support.bounded import BoundedCache
from aclnn.support.process import PerProcess

_FREED_REMEMBERED = 4096
# No process on x86-64 (5-level page tables) or AArch64 has addresses on the first page or beyond the highest.
_LOWEST, _BEYOND_HIGHEST = 4096, 1 << 56

DEVICE = "device allocation"
PINNED = "pinned host allocation"
MAPPED = "mapped memory"
REGISTERED = "registered host memory"


class Budget:
    """Bytes allocated from one device's memory. Freed bytes are available at once, even if a task still holds them."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0


class Allocation:
    """A live range of bytes. The memory exists as long as this object does."""

    __slots__ = ("_keep", "address", "budget", "charged", "end", "for_devices", "kind", "nbytes", "registered")

    def __init__(
        self, address: int, nbytes: int, kind: str, keep: object, budget: Budget | None = None, charged: int = 0
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.end = address + nbytes
        self.kind = kind
        self.budget = budget
        self.charged = charged
        self.registered: int | None = None
        """Address that was passed to register the host memory."""
        self.for_devices = False
        """True for host memory that devices may use."""
        self._keep = keep

    def belongs(self, block: Block, budget: Budget) -> bool:
        """Return True for a part of the block, charged to this budget."""
        return self._keep is block and self.budget is budget

    def part(self, address: int, end: int) -> Allocation:
        """Return the part of the allocation up to ``end``, which stays live."""
        return Allocation(address, end - address, self.kind, self._keep, self.budget)

    def __str__(self) -> str:
        return f"{self.kind} {self.address:#x} of {self.nbytes} bytes"


class _Table:
    """Live allocations of one process. Their ranges never overlap.

    An interrupt or a finalizer may come between any two calls, so each update is one assignment to ``allocations``.
    """

    def __init__(self) -> None:
        self.arenas = Arenas()
        self.lock = Lock()
        self.allocations: dict[int, Allocation] = {}
        """Live allocations by address."""
        self.starts: list[int] = []
        """Sorted addresses of live allocations; an interrupt may leave one too many."""
        self.freed: deque[tuple[int, int, str]] = deque(maxlen=_FREED_REMEMBERED)
        self.tasks = BoundedCache[object, Any]()
        """See ``tasks``."""

    def find(self, address: int) -> Allocation | None:
        # Without the lock: a concurrent update moves the starts, which can only hide an allocation (a result is checked
        # at both ends), so only a miss is repeated with the lock.
        allocation = self.look(address)
        if allocation is None:
            with self.lock:
                allocation = self.look(address)
        return allocation

    def look(self, address: int) -> Allocation | None:
        """Return the allocation around an address; without the lock it may be missed."""
        at = bisect_right(self.starts, address)
        while at > 0:
            at -= 1
            try:
                allocation = self.allocations.get(self.starts[at])
            except IndexError:
                return None
            if allocation is not None:
                return allocation if allocation.address <= address < allocation.end else None
        return None

    def remove(self, allocation: Allocation) -> None:
        self.freed.append((allocation.address, allocation.end, allocation.kind))
        budget, fresh = allocation.budget, BoundedCache[object, Any]()
        # No call in between: an interrupt must not separate these updates.
        del self.allocations[allocation.address]
        _outdated, self.tasks = self.tasks, fresh
        if budget is not None:
            budget.used -= allocation.charged
        at = bisect_right(self.starts, allocation.address) - 1
        if self.starts[at] == allocation.address:
            del self.starts[at]


_table = PerProcess(_Table, keep_parents=True)  # a child may still use its parent's allocations


def allocate(nbytes: int, budget: Budget, huge: bool = True, unit: int = 64) -> Allocation:
    """Allocate device memory with undefined contents, 64-byte aligned.

    Args:
        nbytes: at least 1.
        budget: the device's budget.
        huge: prefer huge pages for blocks of 2 MiB or more.
        unit: the size charged to the budget is a multiple of this.

    Raises:
        AclnnError: 207001, the device has not that much left.
    """
    charged = -(-nbytes // unit) * unit
    table = _table.current
    reserved = 0
    try:
        with table.lock:
            if budget.used + charged <= budget.total:
                budget.used += charged
                reserved = charged
        block = table.arenas.allocate(nbytes, huge) if reserved else None
        if block is None:
            raise _exhausted(budget, nbytes, reserved)
        allocation = Allocation(block.address, nbytes, DEVICE, block, budget, charged)
        with table.lock:
            insort(table.starts, allocation.address)
            # No call in between: the allocation is live and charged, or neither.
            table.allocations[allocation.address] = allocation
            reserved = 0
    finally:
        budget.used -= reserved
    return allocation


def _exhausted(budget: Budget, nbytes: int, reserved: int) -> AclnnError:
    free = budget.total - budget.used + reserved
    return AclnnError(
        ACL_ERROR_RT_MEMORY_ALLOCATION,
        f"size: expected at most the {free} bytes that are free of the device's {budget.total}, got {nbytes}",
    )


def allocate_host(nbytes: int) -> Allocation:
    """Allocate pinned host memory, 64-byte aligned; it is ordinary memory, but stale pointers to it are recognised too.

    Raises:
        AclnnError: 207001, not enough memory is left.
    """
    table = _table.current
    total = memory_bytes()
    block = table.arenas.allocate(nbytes, huge=True) if nbytes <= total else None
    if block is None:
        raise AclnnError(
            ACL_ERROR_RT_MEMORY_ALLOCATION, f"size: expected at most {total} bytes of host memory, got {nbytes}"
        )
    allocation = Allocation(block.address, nbytes, PINNED, block)
    with table.lock:
        insort(table.starts, allocation.address)
        table.allocations[allocation.address] = allocation
    return allocation


def charge(budget: Budget, nbytes: int) -> None:
    """Charge a device for memory that ``attach`` will map.

    Raises:
        AclnnError: 207001, the device has not that much left.
    """
    with _table.current.lock:
        if budget.used + nbytes > budget.total:
            raise _exhausted(budget, nbytes, 0)
        budget.used += nbytes


def reserve(nbytes: int) -> Block:
    """Reserve addresses in the device's range that belong to no allocation.

    Raises:
        AclnnError: 207001, the address range is exhausted.
    """
    block = _table.current.arenas.allocate(nbytes, huge=True)
    if block is None:
        raise AclnnError(
            ACL_ERROR_RT_MEMORY_ALLOCATION, f"size: expected at most the free addresses, got {nbytes} bytes"
        )
    return block


def attach(block: Block, address: int, nbytes: int, budget: Budget) -> None:
    """Make part of a reserved range live, merged with adjacent live parts."""
    table = _table.current
    with table.lock:
        before, after = table.look(address - 1), table.allocations.get(address + nbytes)
        first = before.address if before is not None and before.belongs(block, budget) else address
        joins = after is not None and after.belongs(block, budget)
        end = after.end if after is not None and joins else address + nbytes
        if first == address:
            insort(table.starts, first)
        table.allocations[first] = Allocation(first, end - first, MAPPED, block, budget)
        if joins:
            del table.allocations[address + nbytes]
            table.starts.remove(address + nbytes)


def detach(address: int, nbytes: int) -> None:
    """End the life of a part that ``attach`` made live, and return its pages to the system."""
    table = _table.current
    with table.lock:
        whole = table.look(address)
        assert whole is not None
        assert whole.budget is not None
        end = address + nbytes
        if end < whole.end:
            table.allocations[end] = whole.part(end, whole.end)
            insort(table.starts, end)
        if address > whole.address:
            table.allocations[whole.address] = whole.part(whole.address, address)
        else:
            del table.allocations[address]
            table.starts.remove(address)
        table.freed.append((address, end, whole.kind))
        table.tasks = BoundedCache[object, Any]()
    table.arenas.discard(address, end)


def free(address: int, argument: str, kind: str = DEVICE) -> None:
    """Free the live allocation of that kind at this address, without waiting for tasks.

    Raises:
        AclnnError: 107000, there is none.
    """
    table = _table.current
    with table.lock:
        allocation = table.allocations.get(address)
        if allocation is None or allocation.kind != kind:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected the address of a live {kind}, {_what(address, 0)}"
            )
        table.remove(allocation)
    del allocation
    table.arenas.reclaim()


def register(address: int, nbytes: int, for_devices: bool) -> None:
    """Register host memory, from the program or from ``allocate_host``: pinned, and mapped for devices if wanted.

    Raises:
        AclnnError: 507910, it is registered already; 107000, it is not host memory, or has fewer bytes.
    """
    table = _table.current
    with table.lock:
        allocation = table.look(address)
        if allocation is None:
            check_range(address, nbytes, "ptr")
            after = bisect_right(table.starts, address)
            if after < len(table.starts) and table.starts[after] < address + nbytes:
                raise _no_host_memory(address, nbytes)
            allocation = Allocation(address, nbytes, REGISTERED, None)
            insort(table.starts, address)
            table.allocations[address] = allocation
        elif allocation.registered is not None:
            raise AclnnError(
                CODES["ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED"],
                f"ptr: expected memory that is not registered, got {address:#x}, which is",
            )
        elif allocation.kind != PINNED or address + nbytes > allocation.end:
            raise _no_host_memory(address, nbytes)
        allocation.registered, allocation.for_devices = address, for_devices


def _no_host_memory(address: int, nbytes: int) -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"ptr: expected the host's memory, {_what(address, nbytes)}")


def unregister(address: int) -> None:
    """Undo ``register``.

    Raises:
        AclnnError: 507911, no memory is registered at that address.
    """
    table = _table.current
    with table.lock:
        allocation = table.look(address)
        if allocation is None or allocation.registered != address:
            raise AclnnError(
                CODES["ACL_ERROR_HOST_MEMORY_NOT_REGISTERED"],
                f"ptr: expected the address of registered memory, got {address:#x}",
            )
        allocation.registered, allocation.for_devices = None, False
        table.tasks = BoundedCache[object, Any]()
        if allocation.kind == REGISTERED:
            del table.allocations[address]
            table.starts.remove(address)


def tasks() -> BoundedCache[object, Any]:
    """Return a cache that is cleared by every release of memory, for work with validated addresses."""
    return _table.current.tasks


def find(address: int) -> Allocation | None:
    """Return the live allocation that contains the address, None if there is none, in O(log n)."""
    return _table.current.find(address)


def resolve(address: int, nbytes: int, base: int | None = None, budget: Budget | None = None) -> Allocation:
    """Return the live device allocation that contains the whole range, in O(log n).

    Args:
        address: start of the range.
        nbytes: length of the range.
        base: another address that must lie in the allocation, such as that of a tensor whose view the range is.
        budget: budget of the device that must own the allocation; None for any device.

    Raises:
        AclnnError: 107000; the text names the range and the allocation that it leaves.
    """
    if base is None:
        base = address
    allocation = _table.current.find(base)
    if allocation is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"expected live memory, {_what(base, nbytes if base == address else 0)}"
        )
    if not allocation.address <= address <= allocation.end - nbytes:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"expected live memory, {_outside(address, nbytes, allocation)}")
    if allocation.for_devices:
        return allocation
    if allocation.budget is None:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"expected a device's memory, {_what(address, nbytes)}")
    if budget is not None and allocation.budget is not budget:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID,
            f"expected memory of the stream's device, {_what(address, nbytes)} of another device",
        )
    return allocation


def expect_address(address: int, argument: str, code: int = ACL_ERROR_INVALID_PARAM) -> None:
    """Raise an error for a null address.

    Raises:
        AclnnError: ``code``.
    """
    if not address:
        raise AclnnError(code, f"{argument}: expected an address, got null")


def check_range(address: int, nbytes: int, argument: str) -> Allocation | None:
    """Check that a copy may access a range: return its live allocation, or None for unknown host memory.

    Raises:
        AclnnError: 107000, the range leaves its allocation, is unallocated device memory, or is not an address of any
            process.
    """
    allocation = _table.current.find(address)
    if allocation is None:
        if address < _LOWEST or address + nbytes > _BEYOND_HIGHEST or address in _table.current.arenas:
            raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected live memory, {_what(address, nbytes)}")
    elif address + nbytes > allocation.end:
        if allocation.kind == REGISTERED:
            return None
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected a range inside {allocation}, {_what(address, nbytes)}"
        )
    return allocation


def _span(address: int, nbytes: int) -> str:
    return f"[{address:#x}, {address + nbytes:#x}) of {nbytes} bytes" if nbytes else f"{address:#x}"


def _outside(address: int, nbytes: int, allocation: Allocation) -> str:
    """Describe where an invalid range lies relative to the allocation that should contain it, for an error text."""
    got = f"got {_span(address, nbytes)}, which"
    if address < allocation.address:
        return f"{got} begins {allocation.address - address} bytes before {allocation}"
    if address >= allocation.end:
        return f"{got} begins {address - allocation.end} bytes beyond {allocation}"
    return f"{got} reaches {address + nbytes - allocation.end} bytes beyond {allocation}"


def _what(address: int, nbytes: int) -> str:
    """Describe an invalid range, for an error text."""
    got = f"got {_span(address, nbytes)}"
    if address < _LOWEST:
        return f"{got}, which is null or next to it"
    if address + nbytes > _BEYOND_HIGHEST:
        return f"{got}, which is not an address of this process"
    table = _table.current
    with table.lock:
        inside = table.find(address)
        if inside is not None and address + nbytes > inside.end:
            return _outside(address, nbytes, inside)
        if inside is not None:
            return f"{got}, which is {address - inside.address} bytes into {inside}"
        for begin, end, kind in reversed(table.freed):
            if begin <= address < end:
                return f"{got}, which lies in the {kind} {begin:#x} of {end - begin} bytes that was freed"
        return f"{got}; {_nearest(table, address)}"


def _nearest(table: _Table, address: int) -> str:
    after = bisect_right(table.starts, address)
    starts = table.starts[max(after - 1, 0) : after + 1]
    neighbours = [table.allocations[start] for start in starts if start in table.allocations]
    if not neighbours:
        return "nothing is allocated"

    def distance(allocation: Allocation) -> int:
        return max(address - allocation.end + 1, allocation.address - address)

    nearest = min(neighbours, key=distance)
    if nearest.address > address:
        return f"the nearest is {nearest}, {nearest.address - address} bytes above"
    return f"the nearest is {nearest}, which ends {address - nearest.end} bytes below"
