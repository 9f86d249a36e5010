"""What every kernel needs to start: Triton itself, the device, and Triton's names of data types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.support import optional

triton: Any = optional.require("triton", "cuda")
tl: Any = optional.require("triton.language", "cuda")
torch: Any = optional.require("torch", "cuda")

TYPES = {DataType.FLOAT: tl.float32, DataType.FLOAT16: tl.float16, DataType.BF16: tl.bfloat16}

Key = TypeVar("Key")
Value = TypeVar("Value")

#: True when Triton interprets kernels on the CPU (TRITON_INTERPRET=1): addresses are then the host's.
INTERPRETED: bool = triton.knobs.runtime.interpret
_HOST = torch.device("cpu")


def device() -> Any:
    """Where tables and scratch memory go: the current CUDA device."""
    return _HOST if INTERPRETED else torch.device("cuda", torch.cuda.current_device())


def shared_bytes() -> int:
    """Shared memory that a program may have on the current device."""
    return 0 if INTERPRETED else _shared_bytes(device().index)


@cache
def _shared_bytes(index: int) -> int:
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def kept(found: dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """What is found under a key, made where nothing is; threads that make it at once all get the same."""
    value = found.get(key)
    return found.setdefault(key, make()) if value is None else value


_TORCH = {DataType.FLOAT: torch.float32, DataType.FLOAT16: torch.float16, DataType.BF16: torch.bfloat16}
_TORCH[DataType.INT64] = torch.int64


class _Pointer:
    """An address as Triton takes pointers: it then knows their alignment, without which accesses are 4 bytes wide."""

    __slots__ = ("_address", "dtype")

    def __init__(self, address: int, dtype: Any) -> None:
        self._address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        """The address."""
        return self._address


def pointer(address: int, dtype: DataType = DataType.FLOAT) -> Any:
    """An address as a kernel's argument; the interpreter, which would copy the whole tensor, gets it as a number."""
    if INTERPRETED:
        # A plain number below 2^31, as addresses of the first heap are, would have 32 bits.
        from triton.runtime.interpreter import TensorHandle

        return tl.tensor(TensorHandle(np.array([address], np.int64), tl.int64), tl.int64)
    return _Pointer(address, _TORCH[dtype])


def uploaded(on: dict[Any, Any], numbers: Callable[[], Any], dtype: DataType = DataType.INT64) -> Any:
    """Numbers in the current device's memory, where they are kept, as a kernel's argument.

    An upload makes the host wait for the GPU and cannot be part of a CUDA graph: there is one, at the first run.
    """
    where = device()
    tensor = kept(on, where, lambda: _moved(torch.as_tensor(numbers(), dtype=_TORCH[dtype]), where))
    return pointer(tensor.data_ptr(), dtype)


def _moved(tensor: Any, where: Any) -> Any:
    """A copy on a device, made by a thread of its own.

    One that warms up for a CUDA graph (``torch.compile(mode="reduce-overhead")``) gets memory from the graph's pool,
    where nothing may stay.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(tensor.to, where).result()


_descriptions: dict[tuple[int, ...], dict[Any, Any]] = {}


def on_devices(description: Sequence[int]) -> dict[Any, Any]:
    """Where a description of dimensions was uploaded to (see ``uploaded``).

    Equal ones share it, and it stays for good: CUDA graphs, and kernels that wait on another stream, read it after the
    plan that they were launched by is gone.
    """
    return kept(_descriptions, tuple(description), dict)


def described(shape: Sequence[int], *strides: Sequence[int]) -> list[int]:
    """(extent, stride of each operand) innermost first, merged where one dimension continues another in all of them.

    The outermost extent, which no kernel reads, is 0: tensors that differ in their first dimension alone are alike.
    """
    axes: list[list[int]] = []
    for extent, *steps in zip(reversed(shape), *map(reversed, strides), strict=True):
        if extent == 1:
            continue
        if axes and all(step == inner * axes[-1][0] for step, inner in zip(steps, axes[-1][1:], strict=True)):
            axes[-1][0] *= extent
        else:
            axes.append([extent, *steps])
    axes = axes or [[1] + [1] * len(strides)]
    axes[-1][0] = 0
    return [number for axis in axes for number in axis]


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << max(0, math.ceil(math.log2(number)))


_PACKED = tl.constexpr(not INTERPRETED)


@triton.jit
def wide(numbers):
    """Numbers as float32."""
    if _PACKED and numbers.dtype == tl.bfloat16 and numbers.numel > 1:
        # Two at a time: left alone, the upper one is first moved down and then up again.
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [numbers], tl.float32, True, 2
        )
    return numbers.to(tl.float32)


@triton.jit
def entry_at(pointer):
    """The float32 at each address of a table that nothing writes to.

    Before Triton 3.7 a ``tl.load`` gets a layout of its own, and all that goes in or comes out passes shared memory.
    """
    if _PACKED:
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [pointer.to(tl.int64)], tl.float32, True, 1
        )
    return tl.load(pointer)


@triton.jit
def entry_or(pointer, mask, other):
    """As ``entry_at`` where the mask holds, else the other value; there nothing is read."""
    if _PACKED:
        return tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, $3; @p ld.global.nc.f32 $0, [$1]; }",
            "=&f,l,r,f", [pointer.to(tl.int64), mask.to(tl.int32), other], tl.float32, True, 1,
        )  # fmt: skip
    return tl.load(pointer, mask=mask, other=other)
