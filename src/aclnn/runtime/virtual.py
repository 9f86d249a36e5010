"""Virtual memory: addresses that are reserved first and mapped to memory later, piece by piece.

Growing pools work this way (``expandable_segments`` of torch_npu, the pool of llama.cpp). Address look-up treats
adjacent mapped pieces as one allocation.
"""

from __future__ import annotations

from aclnn.core.status import ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import handles, memory
from aclnn.runtime.arena import LARGE_GRANULE, Block
from aclnn.runtime.locks import Lock
from aclnn.support.process import PerProcess

#: Unit of sizes, and alignment of addresses.
GRANULE = LARGE_GRANULE


class Physical:
    """Device memory without an address, released when it is neither owned by a handle nor mapped."""

    def __init__(self, nbytes: int, budget: memory.Budget) -> None:
        self.nbytes = nbytes
        self.budget = budget
        self.wanted = True
        self.mapped = False
        self.used = False
        memory.charge(budget, nbytes)

    def release(self) -> None:
        """Return the bytes to the device unless the memory is owned or mapped."""
        if not (self.wanted or self.mapped):
            self.budget.used -= self.nbytes


class _Reservations:
    """Reserved ranges of a process by address, and what is mapped in them."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: dict[int, Block] = {}
        self.mapped: dict[int, Physical] = {}


_reservations = PerProcess(_Reservations, keep_parents=True)


def _error(argument: str, expected: str, got: object) -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected {expected}, got {got}")


def allocate(nbytes: int, budget: memory.Budget) -> int:
    """Allocate physical memory of a device and return its handle.

    Raises:
        AclnnError: 207001, the device has not that much left.
    """
    return handles.insert(Physical(-(-nbytes // GRANULE) * GRANULE, budget))


def free(handle: int) -> None:
    """Free physical memory; mapped memory stays usable until it is unmapped."""
    with _reservations.current.lock:
        physical = handles.pop(handle, Physical)
        if physical is None:
            raise _error("handle", "one from aclrtMallocPhysical", handles.describe(handle))
        physical.wanted = False
        physical.release()


def reserve(nbytes: int) -> int:
    """Reserve addresses, which takes no memory."""
    block = memory.reserve(nbytes)
    _reservations.current.blocks[block.address] = block
    return block.address


def release(address: int) -> None:
    """Release reserved addresses at which nothing is mapped."""
    table = _reservations.current
    with table.lock:
        block = table.blocks.get(address)
        if block is None:
            raise _error("virPtr", "an address from aclrtReserveMemAddress", f"{address:#x}")
        held = next((at for at in table.mapped if address <= at < address + block.nbytes), None)
        if held is not None:
            raise _error("virPtr", "addresses without mapped memory", f"{address:#x} with memory mapped at {held:#x}")
        del table.blocks[address]


def map_memory(address: int, nbytes: int, handle: int) -> None:
    """Map the whole of a physical memory at reserved addresses; its contents are undefined."""
    table = _reservations.current
    with table.lock:
        physical = handles.get(handle, Physical)
        if physical is None:
            raise _error("handle", "one from aclrtMallocPhysical", handles.describe(handle))
        if -(-nbytes // GRANULE) * GRANULE != physical.nbytes:
            raise _error("size", f"{physical.nbytes} (that of the memory)", nbytes)
        block = next((each for each in table.blocks.values() if each.address <= address < _end(each)), None)
        end = address + physical.nbytes
        if block is None or end > _end(block) or (address - block.address) % GRANULE:
            raise _error("virPtr", f"a multiple of {GRANULE} bytes into reserved addresses", f"{address:#x}")
        for at, other in table.mapped.items():
            if at < end and address < at + other.nbytes:
                raise _error("virPtr", "addresses without mapped memory", f"{address:#x} with memory mapped at {at:#x}")
        # The contents would have to move from the old address to the new one.
        if physical.used:
            raise _error("handle", "memory that was never mapped", f"{handle:#x}, which was mapped")
        physical.used = physical.mapped = True
        table.mapped[address] = physical
        memory.attach(block, address, physical.nbytes, physical.budget)


def unmap(address: int) -> None:
    """Unmap the memory at an address."""
    table = _reservations.current
    with table.lock:
        physical = table.mapped.get(address)
        if physical is None:
            raise _error("virPtr", "an address at which memory is mapped", f"{address:#x}")
        memory.detach(address, physical.nbytes)
        del table.mapped[address]
        physical.mapped = False
        physical.release()


def _end(block: Block) -> int:
    return block.address + block.nbytes
