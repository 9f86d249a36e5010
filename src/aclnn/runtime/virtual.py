"""Virtual memory: addresses that are reserved first and backed, piece by piece, later.

Pools that grow (``expandable_segments`` of torch_npu, llama.cpp's) work so. Pieces that lie beside one another are one
allocation to whoever looks for an address.
"""

from __future__ import annotations

from aclnn.core.status import ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import handles, memory
from aclnn.runtime.arena import LARGE_GRANULE, Block
from aclnn.runtime.locks import Lock
from aclnn.support.process import PerProcess

#: What sizes are rounded up to, and addresses are multiples of.
GRANULE = LARGE_GRANULE


class Physical:
    """A device's memory without an address; its bytes are the device's again when it is neither wanted nor mapped."""

    def __init__(self, nbytes: int, budget: memory.Budget) -> None:
        self.nbytes = nbytes
        self.budget = budget
        self.wanted = True
        self.mapped = False
        self.used = False
        memory.charge(budget, nbytes)

    def release(self) -> None:
        """Give the bytes back unless they are needed."""
        if not (self.wanted or self.mapped):
            self.budget.used -= self.nbytes


class _Reservations:
    """The reserved ranges of a process by their addresses, and what is mapped where."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: dict[int, Block] = {}
        self.mapped: dict[int, Physical] = {}


_reservations = PerProcess(_Reservations, keep_parents=True)


def _refuse(argument: str, expected: str, got: object) -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected {expected}, got {got}")


def allocate(nbytes: int, budget: memory.Budget) -> int:
    """Take memory of a device, and return its handle.

    Raises:
        AclnnError: 207001, the device has not that much left.
    """
    return handles.insert(Physical(-(-nbytes // GRANULE) * GRANULE, budget))


def free(handle: int) -> None:
    """Give memory back; what is mapped is used until it is unmapped."""
    with _reservations.current.lock:
        physical = handles.pop(handle, Physical)
        if physical is None:
            raise _refuse("handle", "one that aclrtMallocPhysical made", handles.describe(handle))
        physical.wanted = False
        physical.release()


def reserve(nbytes: int) -> int:
    """Reserve addresses, which cost nothing."""
    block = memory.reserve(nbytes)
    _reservations.current.blocks[block.address] = block
    return block.address


def release(address: int) -> None:
    """Give addresses back that nothing is mapped at."""
    table = _reservations.current
    with table.lock:
        block = table.blocks.get(address)
        if block is None:
            raise _refuse("virPtr", "an address that aclrtReserveMemAddress returned", f"{address:#x}")
        held = next((at for at in table.mapped if address <= at < address + block.nbytes), None)
        if held is not None:
            raise _refuse("virPtr", "addresses with nothing mapped", f"{address:#x} with memory mapped at {held:#x}")
        del table.blocks[address]


def map_memory(address: int, nbytes: int, handle: int) -> None:
    """Back reserved addresses with memory, all of it; its contents are undefined."""
    table = _reservations.current
    with table.lock:
        physical = handles.get(handle, Physical)
        if physical is None:
            raise _refuse("handle", "one that aclrtMallocPhysical made", handles.describe(handle))
        if -(-nbytes // GRANULE) * GRANULE != physical.nbytes:
            raise _refuse("size", f"{physical.nbytes} (that of the memory)", nbytes)
        block = next((each for each in table.blocks.values() if each.address <= address < _end(each)), None)
        end = address + physical.nbytes
        if block is None or end > _end(block) or (address - block.address) % GRANULE:
            raise _refuse("virPtr", f"a multiple of {GRANULE} bytes into reserved addresses", f"{address:#x}")
        for at, other in table.mapped.items():
            if at < end and address < at + other.nbytes:
                raise _refuse("virPtr", "addresses with nothing mapped", f"{address:#x} with memory mapped at {at:#x}")
        # What was written through the old address would have to move with it.
        if physical.used:
            raise _refuse("handle", "memory that was never mapped", f"{handle:#x}, which was")
        physical.used = physical.mapped = True
        table.mapped[address] = physical
        memory.attach(block, address, physical.nbytes, physical.budget)


def unmap(address: int) -> None:
    """Take the memory from behind an address at which it was mapped."""
    table = _reservations.current
    with table.lock:
        physical = table.mapped.get(address)
        if physical is None:
            raise _refuse("virPtr", "an address at which memory is mapped", f"{address:#x}")
        memory.detach(address, physical.nbytes)
        del table.mapped[address]
        physical.mapped = False
        physical.release()


def _end(block: Block) -> int:
    return block.address + block.nbytes
