"""Many float32 x beyond the bound of a near slope: brought side by side before their tails are computed."""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import scratch
from aclnn.kernels.cpu.elementwise.slopes import Near
from aclnn.kernels.cpu.elementwise.strided import BUFFER
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.masked import count_lanes, load_chosen, store_chosen
from aclnn.kernels.cpu.memory import load_float32, store_float32, stream_float32
from aclnn.kernels.cpu.prefetching import prefetch_ahead_32
from aclnn.kernels.cpu.vector import LANES, WIDE, absolute

_MANY = 3
"""Of 64 x beyond the bound, from which on their tile is packed. GELU takes, on Zen 4, for sixteen: with σ = 2, 2 in 64,
10.3 ns instead of 12.3; with σ = 3, 10 in 64, 11.6 instead of 17.4; with σ = 1.5, 1 in 200, packing is no gain."""


def _few(x: int) -> bool:
    return False


def _without_tails(around: int, dy: int, x: int, out: int, size: int) -> None:
    pass


def tails_of(near: Near | None) -> tuple[Any, Any]:
    """Whether many x of a wide vector are beyond the bound, and what does whole wide vectors of such data.

    With σ = 3, 16 % of GELU's x are, some of nearly every sixteen.
    """
    if near is None or near.tail is None:
        return register_jitable(_few), register_jitable(_without_tails)
    slope, bound, tail = near
    vector, wide = 4 * LANES, 4 * LANES * WIDE

    @register_jitable(forceinline=True)
    def beyond(x: int) -> Any:
        return ~(absolute(load_float32(x)) <= bound)

    @register_jitable
    def many(x: int) -> bool:
        count = 0
        for at in range(0, wide, vector):
            count += count_lanes(beyond(x + at))
        return count >= _MANY

    @register_jitable
    def with_tails(around: int, dy: int, x: int, out: int, size: int) -> None:
        products, packed_x, packed_dy = scratch(BUFFER), scratch(BUFFER), scratch(BUFFER)
        end = 0
        for at in range(0, size, vector):
            prefetch_ahead_32(x + at)
            prefetch_ahead_32(dy + at)
            store_float32(products + at, load_float32(dy + at) * slope(load_float32(x + at)))
            chosen = beyond(x + at)
            store_chosen(packed_x + end, load_float32(x + at), chosen)
            store_chosen(packed_dy + end, load_float32(dy + at), chosen)
            end += 4 * count_lanes(chosen)
        for at in range(0, end, vector):
            store_float32(packed_dy + at, tail(load_float32(packed_x + at), load_float32(packed_dy + at)))
        end = 0
        for at in range(0, size, vector):
            chosen = beyond(x + at)
            product = load_chosen(packed_dy + end, chosen, load_float32(products + at))
            end += 4 * count_lanes(chosen)
            if around:
                stream_float32(out + at, product)
            else:
                store_float32(out + at, product)

    return many, with_tails
