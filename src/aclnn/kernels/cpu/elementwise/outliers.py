"""Float32 x beyond the range of a fitted version: brought side by side and evaluated in float64."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu.elementwise.fitted import Fast
from aclnn.kernels.cpu.elementwise.functions import narrow_to_odd
from aclnn.kernels.cpu.elementwise.general import on_float64
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.doubles import narrow, widen
from aclnn.kernels.cpu.simd.memory import count_lanes, load_float32, store_float32, store_places, stream_float32
from aclnn.kernels.cpu.simd.prefetch import prefetch_ahead_32
from aclnn.kernels.cpu.simd.vector import LANES, absolute, any_lane, select
from aclnn.kernels.cpu.strided import BUFFER
from aclnn.kernels.cpu.structs import pointer_to, stack_alloc

_VECTOR = 4 * LANES
_PLACES = BUFFER + _VECTOR


def in_float64(formula: Formula, odd: bool = False) -> Any:
    """A function of sixteen x and sixteen dy, which functions of x alone ignore, by the formula itself.

    An infinite dy is multiplied with the derivative that float32 has: with 0 where that rounds to it. For 16 bits other
    results are rounded ``odd``, so that rounding once more is exact.
    """
    rounded = narrow_to_odd if odd else narrow
    if not isinstance(formula, Gradient):
        function = on_float64(formula, 1)
        return register_jitable(lambda x, dy: rounded(widen(function(widen(x)))))
    derivative = on_float64(formula.derivative, 1)

    @register_jitable
    def gradient(x: Any, dy: Any) -> Any:
        value = widen(derivative(widen(x)))
        return select(absolute(dy) < math.inf, rounded(widen(dy) * value), dy * narrow(value))

    return gradient


def with_outliers(formula: Formula, fast: Fast) -> tuple[Any, Any]:
    """Return functions that find outliers among x, and that do a tile with some."""
    function, bound = fast.function, fast.bound
    exact, binary, numbers_at = in_float64(formula), isinstance(formula, Gradient), pointer_to(ctypes.c_uint32)

    @register_jitable(forceinline=True)
    def beyond(x: Any) -> Any:
        return ~(absolute(x) <= bound)

    @register_jitable
    def any_outlier(x: Any, size: int) -> bool:
        found = beyond(load_float32(x))
        for at in range(_VECTOR, size, _VECTOR):
            found = found | beyond(load_float32(x + at))
        return bool(any_lane(found))

    @register_jitable
    def tile(nontemporal: int, dy: Any, x: Any, out: Any, size: int) -> None:
        products, places = numbers_at(stack_alloc(BUFFER)), numbers_at(stack_alloc(_PLACES))
        packed_x, packed_dy = numbers_at(stack_alloc(BUFFER)), numbers_at(stack_alloc(BUFFER))
        count = 0
        for at in range(0, size, _VECTOR):
            prefetch_ahead_32(x + at)
            prefetch_ahead_32(dy + at)
            values = load_float32(x + at)
            found = function(values)
            store_float32(products + at // 4, load_float32(dy + at) * found if binary else found)
            outliers = beyond(values)
            if any_lane(outliers):
                store_places(places + count, at // 4, outliers)
                count += count_lanes(outliers)
        for k in range(count):
            packed_x[k], packed_dy[k] = numbers_at(x)[places[k]], numbers_at(dy)[places[k]]
        for k in range(0, count, LANES):
            store_float32(packed_dy + k, exact(load_float32(packed_x + k), load_float32(packed_dy + k)))
        for k in range(count):
            products[places[k]] = packed_dy[k]
        for at in range(0, size, _VECTOR):
            if nontemporal:
                stream_float32(out + at, load_float32(products + at // 4))
            else:
                store_float32(out + at, load_float32(products + at // 4))

    return any_outlier, tile
