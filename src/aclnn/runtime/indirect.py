"""Copies whose addresses a stream reads from device memory at execution, and reductions in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from aclnn.core.dtypes import DataType
from aclnn.core.status import ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import devices, memory
from aclnn.runtime.collectives import MAX, MIN, SUM, Reduction

#: Operations of ``reduce_async``.
OPERATIONS = (SUM, MAX, MIN)

_MAGIC = 0x41434C44


class Description(ctypes.Structure):
    """A copy, as ``describe`` writes it into device memory."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("destination", ctypes.c_uint64),
        ("source", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    )


def describe(at: int, source: int, destination: int, nbytes: int) -> None:
    """``aclrtSetMemcpyDesc``: write a description at an address.

    Raises:
        AclnnError: 107000, the address is not in live device memory.
    """
    held = memory.resolve(at, ctypes.sizeof(Description))
    ctypes.memmove(at, bytes(Description(_MAGIC, destination, source, nbytes)), ctypes.sizeof(Description))
    del held


def copy_described(at: int, stream_handle: int) -> None:
    """``aclrtMemcpyAsyncWithDesc``: queue a copy; its description is read at execution, where it may prove invalid.

    Raises:
        AclnnError: 107000, the description is not in live device memory; 107002 and 107003 about the stream.
    """

    def read() -> tuple[int, int, int]:
        found = Description.from_address(at)
        if found.magic != _MAGIC:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, f"desc: expected what aclrtSetMemcpyDesc wrote, got other bytes at {at:#x}"
            )
        return found.destination, found.source, found.nbytes

    _copy_async(read, [(at, ctypes.sizeof(Description))], stream_handle)


def copy_from_bases(
    destination_at: int, destination_offset: int, source_at: int, source_offset: int, nbytes: int, stream_handle: int
) -> None:
    """``aclrtMemcpyAsyncWithOffset``: queue a copy between addresses read from device memory at execution.

    Raises:
        AclnnError: 107000, an address is not in live device memory; 107002 and 107003 about the stream.
    """

    def read() -> tuple[int, int, int]:
        bases = [ctypes.c_uint64.from_address(at).value for at in (destination_at, source_at)]
        return bases[0] + destination_offset, bases[1] + source_offset, nbytes

    _copy_async(read, [(destination_at, 8), (source_at, 8)], stream_handle)


def _copy_async(read: Callable[[], tuple[int, int, int]], addresses: list[tuple[int, int]], stream_handle: int) -> None:
    stream = devices.own_stream_of(stream_handle)
    held = [memory.resolve(at, nbytes) for at, nbytes in addresses]

    def task(held: object = held) -> None:
        destination, source, nbytes = read()
        ranges = [memory.resolve(address, nbytes) for address in (destination, source)]
        ctypes.memmove(destination, source, nbytes)
        del ranges

    stream.enqueue(task)


def reduce_async(
    destination: int, source: int, nbytes: int, operation: int, dtype: DataType, stream_handle: int
) -> None:
    """``aclrtReduceAsync``: queue a reduction of the source into the destination, element by element.

    Raises:
        AclnnError: 107000, a range is not in live device memory; 107002 and 107003 about the stream.
    """
    stream = devices.own_stream_of(stream_handle)
    held = [memory.resolve(address, nbytes) for address in (destination, source)]
    reduction = Reduction(operation, dtype.numpy)

    def task(held: object = held) -> None:
        bytes_at = (memoryview((ctypes.c_ubyte * nbytes).from_address(at)).cast("B") for at in (destination, source))
        parts = list(bytes_at)
        parts[0][:] = reduction(parts)

    stream.enqueue(task)
