"""Compile a kernel once per machine: for int64 arguments, mostly without the GIL, kept on disk between processes.

Numba's own cache keeps one index file for all variants of a function, which processes that compile different variants
at the same time corrupt, and it names closures by the module's file and line only. Here each kernel is one file, named
after all that it depends on (see ``cache``).
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import pickle
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import llvmlite
import numba
from numba.core import config, types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from aclnn import kernels
from aclnn.kernels.cpu import cache, target
from aclnn.kernels.cpu.notice import notice
from aclnn.kernels.locks import lock_across_forks

#: A compiled kernel: integers in, as a rule nothing out.
Kernel = Callable[..., Any]

_compiled: dict[tuple[str, tuple[object, ...]], Kernel] = {}
_addresses: dict[Kernel, int] = {}
_lock = lock_across_forks()
_stopped = False
# What the first kernel takes with the parts of Numba that come with it (160 MiB), and any other (up to 35 MiB).
_FIRST_BYTES, _NEXT_BYTES = 192 << 20, 64 << 20


class KernelCache(_Cache):
    """What Numba asks before and tells after it compiles."""

    def __init__(self, name: str, key: tuple[object, ...]) -> None:
        self._name, self._key = name, key

    @property
    def cache_path(self) -> str | None:
        """Where files are kept."""
        return str(cache.directory())

    def _full_key(self, sig: Any, codegen: Any) -> tuple[object, ...]:
        versions = (numba.__version__, llvmlite.__version__, sys.version, platform.machine())
        return (*self._key, str(sig), codegen.magic_tuple(), versions, target.requested(codegen), config.OPT)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for these types of arguments; None when it must be compiled."""
        target_context.refresh()
        contents = cache.read(self._name, self._full_key(sig, target_context.codegen()))
        if contents is not None:
            # Damaged or foreign contents can fail anywhere: compile again.
            with suppress(Exception):
                found = CompileResult._rebuild(target_context, *pickle.loads(contents))
                notice.found += 1
                return found
        notice.begin()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        notice.end()
        lost = cache.write(self._name, self._full_key(sig, data.codegen), dumps(data._reduce()))
        if lost is not None:
            notice.lost.append(lost)

    def enable(self) -> None:
        """Always on."""

    def disable(self) -> None:
        """Always on."""

    def flush(self) -> None:
        """Files of other keys are never read; there is nothing to flush."""


@contextmanager
def _symbols_of(name: str, key: tuple[object, ...]) -> Iterator[None]:
    """Give the symbols of the functions that are compiled meanwhile numbers that no other kernel's have.

    Numba counts functions from 1 in every process. Kernels that two processes compiled, loaded into a third, would
    share symbols, and one would run the other's inner functions.
    """
    before = FunctionIdentity._unique_ids
    digest = hashlib.sha256(repr((name, key)).encode()).digest()
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(digest[:7], "big") << 8)
    try:
        yield
    finally:
        FunctionIdentity._unique_ids = before


@contextmanager
def _compiling() -> Iterator[None]:
    """Compile where NUMBA_DISABLE_JIT asks for plain Python too: vectors and addresses exist in compiled code only."""
    config.reload_config()  # as the compiler would do, undoing this
    before, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = before


def _require_memory(name: str) -> None:
    """Refuse to begin where LLVM would run out of memory, which ends the process."""
    nbytes = _NEXT_BYTES if _compiled else _FIRST_BYTES
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError(f"kernel {name}: expected {nbytes >> 20} MiB of free memory to compile it in") from None


def kernel(name: str, key: tuple[object, ...], make: Callable[[], Callable[..., Any]], nogil: bool = True) -> Kernel:
    """The compiled form of the function that ``make`` returns; all its parameters are int64.

    Args:
        name: what the file in the cache is called.
        key: what tells this kernel from others of the name; its repr must be the same in every process. The source of
            this package, the versions of Numba and LLVM and the target need not be mentioned.
        make: called only when the process has not compiled or loaded this kernel yet.
        nogil: whether it runs without the GIL.

    Raises:
        RuntimeError: the process is ending, and LLVM with it.
        MemoryError: there is too little to compile or load it in.
    """
    found = _compiled.get((name, key))
    if found is not None:
        return found
    with _lock:
        if (name, key) not in _compiled:
            if _stopped:
                raise RuntimeError(f"kernel {name}: expected one that was loaded before the process began to end")
            _require_memory(name)
            function = make()
            signature = (types.int64,) * function.__code__.co_argcount
            with _compiling(), _symbols_of(name, key):
                # Divisions by zero as IEEE 754 has them, of integers 0: no branch to raise an exception at each.
                dispatcher = numba.njit(nogil=nogil, no_cfunc_wrapper=True, error_model="numpy")(function)
                dispatcher._cache = KernelCache(name, key)
                dispatcher.compile(signature)
            # The entry point takes half the time of the dispatcher's call, which would look at the types again.
            result = dispatcher.overloads[signature]
            _addresses[result.entry_point] = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
            _compiled[name, key] = result.entry_point
            if len(_compiled) == 1:
                for tell in kernels.when_compiler_is_up:
                    tell()
        return _compiled[name, key]


def stop() -> None:
    """Compile and load nothing any more; returns when nothing is."""
    global _stopped
    with _lock:
        _stopped = True


def address_of(compiled: Kernel) -> int:
    """Where a kernel's machine code is, for ``addresses.invoke``."""
    return _addresses[compiled]
