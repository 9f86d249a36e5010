"""Copies and fills: checks in their documented order, then the operation, immediate or on a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.products import Product, current_product
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_INVALID_MEMORY_TYPE,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, graphs, memory
from aclnn.runtime.streams import Stream

HOST_TO_HOST = 0
_KINDS = range(6)
_ATTRIBUTES = range(18)
# ACL_DDR_MEM, its huge- and normal-page variants, and those for peers: products with HBM have none.
_DDR = {0, 2, 3, 6, 7}
_WITHOUT_HBM = {Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE}
# A transfer of this size takes about as long as waking a stream's thread (10 µs at 6 GB/s).
_SHORT_BYTES = 1 << 16

#: Argument name, address, and number of bytes at the address.
_Range = tuple[str, int, int]


def copy(destination: int, capacity: int, source: int, nbytes: int, kind: int) -> None:
    """``aclrtMemcpy``: copy synchronously. The addresses determine the direction.

    Raises:
        AclnnError: the first check that fails, with its code; 107000 for a range that leaves its allocation; 107030 if
            a capture forbids it.
    """
    if _nothing_to_copy(destination, capacity, source, nbytes, kind):
        return
    devices.current()
    _expect_no_capture_forbids()
    held = _ranges(destination, source, nbytes)
    ctypes.memmove(destination, source, nbytes)  # releases the interpreter lock
    del held


def copy_async(destination: int, capacity: int, source: int, nbytes: int, kind: int, stream_handle: int | None) -> None:
    """``aclrtMemcpyAsync``: queue a copy; wait for it if unknown host memory takes part.

    Raises:
        AclnnError: as for ``copy``; 107003 for another context's stream; 207000 from host to host.
    """
    if _nothing_to_copy(destination, capacity, source, nbytes, kind):
        return
    stream = devices.own_stream_of(stream_handle)
    if kind == HOST_TO_HOST:
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "kind: expected a copy from or to the device, got ACL_MEMCPY_HOST_TO_HOST (0)",
        )
    held = _ranges(destination, source, nbytes)
    if None in held:
        _expect_no_capture_forbids(stream)

    def task(held: object = held) -> None:
        ctypes.memmove(destination, source, nbytes)

    ticket = stream.enqueue(task, short=nbytes <= _SHORT_BYTES)
    if None in held:
        stream.wait(ticket)


def _expect_no_capture_forbids(stream: Stream | None = None) -> None:
    """Raise an error if captures of the current context forbid immediate work, or memory that may be freed later.

    Raises:
        AclnnError: 107030.
    """
    if graphs.are_begun():
        graphs.expect_none_forbids(devices.current(), stream)


def _nothing_to_copy(destination: int, capacity: int, source: int, nbytes: int, kind: int) -> bool:
    if nbytes == 0:
        return True
    for name, address in (("dst", destination), ("src", source)):
        memory.expect_address(address, name)
    if kind not in _KINDS:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"kind: expected an aclrtMemcpyKind from 0 to 5, got {kind}")
    _fits("destMax", capacity, nbytes)
    return destination == source


def _fits(name: str, capacity: int, nbytes: int) -> None:
    if nbytes > capacity:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"{name}: expected at least count ({nbytes} bytes), got {capacity}"
        )


def _ranges(destination: int, source: int, nbytes: int) -> tuple[memory.Allocation | None, memory.Allocation | None]:
    return memory.check_range(destination, nbytes, "dst"), memory.check_range(source, nbytes, "src")


def fill(address: int, capacity: int, value: int, nbytes: int) -> None:
    """``aclrtMemset``: set every byte to the low 8 bits of ``value``.

    Raises:
        AclnnError: 100000 for null; 107000 for more bytes than fit, or a range that leaves its allocation; 107030 if a
            capture forbids it.
    """
    if _nothing_to_fill(address, capacity, nbytes):
        return
    _expect_no_capture_forbids()
    held = memory.check_range(address, nbytes, "devPtr")
    ctypes.memset(address, value & 0xFF, nbytes)
    del held


def fill_async(address: int, capacity: int, value: int, nbytes: int, stream_handle: int | None) -> None:
    """``aclrtMemsetAsync``: queue a fill.

    Raises:
        AclnnError: as for ``fill``; 107002 and 107003 about the stream.
    """
    if _nothing_to_fill(address, capacity, nbytes):
        return
    stream = devices.own_stream_of(stream_handle)
    held = memory.check_range(address, nbytes, "devPtr")
    if held is None:
        _expect_no_capture_forbids(stream)

    def task(held: object = held) -> None:
        ctypes.memset(address, value & 0xFF, nbytes)

    ticket = stream.enqueue(task, short=nbytes <= _SHORT_BYTES)
    if held is None:
        stream.wait(ticket)


def _nothing_to_fill(address: int, capacity: int, nbytes: int) -> bool:
    if nbytes == 0:
        return True
    memory.expect_address(address, "devPtr")
    _fits("maxCount", capacity, nbytes)
    return False


def fill_words(address: int, value: int, count: int) -> None:
    """``aclrtMemsetD32``: set 32-bit words.

    Raises:
        AclnnError: as for ``fill``; 107002, no current context.
    """
    _now(lambda: _words(address, count).fill(value), [("ptr", address, 4 * count)])


def fill_words_async(address: int, value: int, count: int, stream_handle: int | None) -> None:
    """``aclrtMemsetD32Async``: queue a fill with 32-bit words.

    Raises:
        AclnnError: as for ``fill_async``.
    """
    _in_order(lambda: _words(address, count).fill(value), [("ptr", address, 4 * count)], stream_handle)


def _words(address: int, count: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(_bytes(address, 4 * count), np.uint32)


def _bytes(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address))


def prefetch(address: int, nbytes: int, stream_handle: int | None) -> None:
    """``aclrtCmoAsync``: queue a task without effect; the host's caches prefetch by themselves.

    Raises:
        AclnnError: 107000, the range is not in live device memory; 107002 and 107003 about the stream.
    """
    stream = devices.own_stream_of(stream_handle)
    held = memory.resolve(address, nbytes)

    def task(held: object = held) -> None:
        pass

    stream.enqueue(task, short=True)


class Rows(NamedTuple):
    """Rows of bytes in memory at equal distances."""

    address: int
    pitch: int
    """Distance between the beginnings of consecutive rows in bytes, at least the width."""
    width: int
    height: int

    @property
    def nbytes(self) -> int:
        """Bytes from the beginning of the first row to the end of the last."""
        return (self.height - 1) * self.pitch + self.width

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Return the bytes as a matrix."""
        found: np.ndarray[Any, Any] = np.ndarray(
            (self.height, self.width), np.uint8, _bytes(self.address, self.nbytes), strides=(self.pitch, 1)
        )
        return found


def copy_rows(to: Rows, start: Rows) -> None:
    """``aclrtMemcpy2d``: copy rows synchronously.

    Raises:
        AclnnError: 107002, no current context; 107000 for rows that leave their allocation; 107030 if a capture forbids
            it.
    """
    _now(lambda: np.copyto(to.array, start.array), _spans(to, start))


def copy_rows_async(to: Rows, start: Rows, stream_handle: int | None) -> None:
    """``aclrtMemcpy2dAsync``: queue a copy of rows; wait for it if unknown host memory takes part.

    Raises:
        AclnnError: as for ``copy_rows``; 107003 for another context's stream.
    """
    _in_order(lambda: np.copyto(to.array, start.array), _spans(to, start), stream_handle)


def _spans(to: Rows, start: Rows) -> list[_Range]:
    return [("dst", to.address, to.nbytes), ("src", start.address, start.nbytes)]


def copy_all(copies: Sequence[tuple[int, int, int]]) -> None:
    """``aclrtMemcpyBatch``: copy ranges (destination, source, bytes) synchronously.

    Raises:
        AclnnError: as for ``copy_rows``.
    """
    _now(lambda: _move(copies), _ends(copies))


def copy_all_async(copies: Sequence[tuple[int, int, int]], stream_handle: int | None) -> None:
    """``aclrtMemcpyBatchAsync``: queue copies of ranges (destination, source, bytes).

    Raises:
        AclnnError: as for ``copy_rows_async``.
    """
    _in_order(lambda: _move(copies), _ends(copies), stream_handle)


def _move(copies: Sequence[tuple[int, int, int]]) -> None:
    for to, start, nbytes in copies:
        ctypes.memmove(to, start, nbytes)


def _ends(copies: Sequence[tuple[int, int, int]]) -> list[_Range]:
    return [end for to, start, nbytes in copies for end in (("dsts", to, nbytes), ("srcs", start, nbytes))]


def _now(work: Callable[[], object], ranges: Sequence[_Range]) -> None:
    devices.current()
    _expect_no_capture_forbids()
    held = [memory.check_range(address, nbytes, name) for name, address, nbytes in ranges]
    work()
    del held


def _in_order(work: Callable[[], object], ranges: Sequence[_Range], stream_handle: int | None) -> None:
    stream = devices.own_stream_of(stream_handle)
    held = [memory.check_range(address, nbytes, name) for name, address, nbytes in ranges]
    if None in held:
        _expect_no_capture_forbids(stream)

    def task(held: object = held) -> None:
        work()

    ticket = stream.enqueue(task, short=sum(nbytes for _, _, nbytes in ranges) <= _SHORT_BYTES)
    if None in held:
        stream.wait(ticket)


def info(attribute: int) -> tuple[int, int]:
    """Return free and total bytes of the current device's memory of that ``aclrtMemAttr``; 0, 0 if it has none.

    Raises:
        AclnnError: 107016, not an attribute; 107002, no current context.
    """
    if attribute not in _ATTRIBUTES:
        raise AclnnError(
            ACL_ERROR_RT_INVALID_MEMORY_TYPE, f"attr: expected an aclrtMemAttr from 0 to 17, got {attribute}"
        )
    budget = devices.current().device.budget
    if attribute in _DDR and current_product() not in _WITHOUT_HBM:
        return 0, 0
    return budget.total - budget.used, budget.total
