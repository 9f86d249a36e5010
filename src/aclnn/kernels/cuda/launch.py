"""Triton itself, the current device, and kernel arguments: pointers, and numbers kept in device memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.support import optional

triton: Any = optional.import_or_raise("triton", "cuda")
tl: Any = optional.import_or_raise("triton.language", "cuda")
torch: Any = optional.import_or_raise("torch", "cuda")

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: True if Triton interprets kernels on the CPU (TRITON_INTERPRET=1), with host addresses.
INTERPRETED: bool = triton.knobs.runtime.interpret
PACKED = tl.constexpr(not INTERPRETED)
"""True if inline assembly can be used."""
_HOST = torch.device("cpu")

MOST_PROGRAMS = 65535
"""Maximum extent of a grid's second and third dimensions."""
FLOATS = {DataType.FLOAT, DataType.FLOAT16, DataType.BF16}
"""Data types of the tensors that kernels read and write."""
_TYPES = {
    DataType.FLOAT: (torch.float32, tl.float32),
    DataType.DOUBLE: (torch.float64, tl.float64),
    DataType.FLOAT16: (torch.float16, tl.float16),
    DataType.BF16: (torch.bfloat16, tl.bfloat16),
    DataType.INT8: (torch.int8, tl.int8),
    DataType.INT64: (torch.int64, tl.int64),
}


def current_device() -> int:
    """Return the number of the current CUDA device."""
    return 0 if INTERPRETED else int(torch.cuda.current_device())


def device() -> Any:
    """Return the device for tables and scratch memory: the current CUDA device."""
    return _HOST if INTERPRETED else torch.device("cuda", current_device())


def shared_bytes() -> int:
    """Return the shared memory available to a program on the current device."""
    return 0 if INTERPRETED else _shared_bytes(current_device())


@cache
def _shared_bytes(index: int) -> int:
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def get_or_make(found: dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """Return the value of a key, created if necessary; concurrent creators all get the same one."""
    value = found.get(key)
    return found.setdefault(key, make()) if value is None else value


class _Pointer:
    """An address as a Triton pointer argument, whose alignment Triton knows; otherwise accesses are 4 bytes wide."""

    __slots__ = ("_address", "dtype")

    def __init__(self, address: int, dtype: Any) -> None:
        self._address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        """Return the address."""
        return self._address


def pointer(address: int, dtype: DataType) -> Any:
    """Return an address as a kernel argument."""
    in_torch, in_triton = _TYPES[dtype]
    if not INTERPRETED:
        return _Pointer(address, in_torch)
    # The interpreter would copy everything that a ``data_ptr`` refers to.
    from triton.runtime.interpreter import TensorHandle

    kind = tl.pointer_type(in_triton)
    return tl.tensor(TensorHandle(np.array([address], np.uint64), kind), kind)


class Uploaded:
    """Numbers kept in the memory of each device whose kernels read them.

    An upload makes the host wait for the GPU and cannot be part of a CUDA graph; it happens once, at the first run.
    """

    def __init__(self, numbers: Callable[[], Any], dtype: DataType) -> None:
        self._numbers, self._dtype = numbers, dtype
        self.tensors: dict[Any, Any] = {}

    def pointer(self) -> Any:
        """Return the address of the numbers on the current device, as a kernel argument."""
        tensor = get_or_make(self.tensors, current_device(), lambda: self._upload(device()))
        return pointer(tensor.data_ptr(), self._dtype)

    def _upload(self, where: Any) -> Any:
        # In a separate thread: one that warms up for a CUDA graph (``torch.compile(mode="reduce-overhead")``) allocates
        # from the graph's pool, where nothing may persist.
        tensor = torch.as_tensor(self._numbers(), dtype=_TYPES[self._dtype][0])
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(tensor.to, where).result()


Kind = tuple[int, ...]
"""Current device, and whether each address is a multiple of 16 bytes: kernels are specialized for these."""


def kind(addresses: Sequence[int]) -> Kind:
    """Return the kind of a run, given its addresses."""
    return current_device(), *[address & 15 == 0 for address in addresses]


class Launcher:
    """Launches a plan's kernels, whose arguments are the same in every run except for addresses.

    Triton takes longer to look up a compiled kernel than to launch it; here compiled kernels are cached.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, Kind], Callable[..., None]] = {}

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *arguments: Any, kind: Kind, constants: dict[str, Any], **options: Any
    ) -> None:
        """Launch a kernel, whose last parameters are constants."""
        key = kernel.__name__, kind
        found = self._found.get(key)
        if found is None:
            compiled = kernel[grid](*arguments, **constants, **options, enable_fp_fusion=False)
            if not INTERPRETED:
                self._found[key] = compiled[(*grid, 1, 1)[:3]]
        else:
            found(*arguments, *constants.values())


_BASE = tl.constexpr(1 << 62)


def argument(number: int) -> int:
    """Return an integer in a form for which Triton does not specialize on 1, multiples of 16, or 32 bits."""
    return int(_BASE.value) + 2 * number + 1


@triton.jit
def integer(argument):
    """Return the integer passed as ``argument``."""
    return (argument - _BASE) >> 1


@triton.jit
def table_entry(pointer):
    """Load the float32 or float64 at each address of a read-only table.

    Before Triton 3.7, a ``tl.load`` has its own layout, and its operands and results pass through shared memory.
    """
    if not PACKED:
        entry = tl.load(pointer)
    elif pointer.dtype.element_ty == tl.float64:
        entry = tl.inline_asm_elementwise(
            "ld.global.nc.f64 $0, [$1];", "=d,l", [pointer.to(tl.int64)], tl.float64, True, 1
        )
    else:
        entry = tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [pointer.to(tl.int64)], tl.float32, True, 1
        )
    return entry


@triton.jit
def table_entry_or(pointer, mask, other):
    """Load a ``table_entry`` where the mask holds, else return the other value without a load."""
    if PACKED:
        return tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, $3; @p ld.global.nc.f32 $0, [$1]; }",
            "=&f,l,r,f", [pointer.to(tl.int64), mask.to(tl.int32), other], tl.float32, True, 1,
        )  # fmt: skip
    return tl.load(pointer, mask=mask, other=other)
