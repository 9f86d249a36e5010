"""Detect arithmetic on subnormal numbers by the processor's flags, on x86-64 with the GNU C library."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable

import pytest

from aclnn.kernels.cpu import threads

KNOWN = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
"""True where the processor's flags can be read."""

_DEFAULT = ctypes.c_void_p(-1)
_DENORMAL_OPERAND, _UNDERFLOW = 0x02, 0x10


def met(call: Callable[[], object]) -> bool:
    """Return true if an operation of a call reads or makes a subnormal number, which can take 100 cycles.

    The call uses no other threads. Afterwards the flags are as at the start of the program.
    """
    if not KNOWN:
        pytest.skip("needs the floating-point flags of x86-64 and glibc")
    mathematics, environment = ctypes.CDLL("libm.so.6"), ctypes.create_string_buffer(32)
    before = threads.shared().threads
    threads.set_threads(1)
    try:
        call()  # compile first: the compiler and Python compute with floats, too
        mathematics.fesetenv(_DEFAULT)
        call()
        mathematics.fegetenv(environment)
    finally:
        mathematics.fesetenv(_DEFAULT)
        threads.set_threads(before)
    flags = int.from_bytes(environment.raw[28:32], "little")  # MXCSR
    return bool(flags & (_DENORMAL_OPERAND | _UNDERFLOW))
