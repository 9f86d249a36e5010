"""LayerNorm's kernels of five numbers, as those that threads share."""

from __future__ import annotations

import ctypes
from typing import Any

from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.atomics import fetch_add
from aclnn.kernels.cpu.jit import Kernel, address_of, kernel, register_jitable
from aclnn.kernels.cpu.structs import Int64, declared, invoke, pointer_to
from aclnn.kernels.cpu.threads import Loop


@declared
class Five(ctypes.Structure):
    """A kernel and its numbers."""

    kernel: Int64
    a: Int64
    b: Int64
    c: Int64
    d: Int64
    e: Int64


_five_at = pointer_to(Five)


def _five() -> Loop:
    def five(at: int, counter: int, step: int, end: int) -> None:
        given = _five_at(at)
        invoke(given.kernel, given.a, given.b, given.c, given.d, given.e, counter, step, end)

    return five


def sweep(shared: Kernel, operands: tuple[int, ...], step: int, end: int, work_us: int) -> None:
    """Run a kernel of five numbers over chunks on all threads, as ``threads.share``."""
    five = Five(address_of(shared), *operands)
    threads.share(kernel("five", (), _five), ctypes.addressof(five), step, end, work_us)


def prepare(chunks: int) -> None:
    """Compile what threads need to share work of so many chunks."""
    kernel("five", (), _five)
    threads.prepare(chunks)


def shared(part: Any) -> Loop:
    """Return the kernel of five numbers for a function that does the chunk [first, last)."""
    part = register_jitable(part)

    def loop(job: int, a: int, b: int, c: int, d: int, begun: int, step: int, end: int) -> None:
        first = fetch_add(begun, step) if begun else 0
        while first < end:
            part(job, a, b, c, d, first, min(end, first + step))
            first = fetch_add(begun, step) if begun else end

    return loop
