"""Which rows float32 will not do for, because magnitudes would overflow or vanish; LayerNorm's dx for these in float64.

The products and sums of float32 numbers that the formulas need neither overflow nor vanish there. The weights are
contiguous float32, ``w_step`` bytes apart: 4, or 0 for ones. ``row`` is where the row's coefficients are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from aclnn.kernels.cpu.layer_norm_job import (
    EXACT_G,
    EXACT_GX,
    MINUS_C1,
    MINUS_C2,
    RECORD,
    ROW_MEAN,
    ROW_RSTD,
    SEGMENTS,
    SLOW,
    SUM_G,
    SUM_GX,
    SUM_SIZE,
    SUM_SQUARE,
    TOP_WEIGHT,
    N,
)
from aclnn.kernels.cpu.layer_norm_lanes import Element
from aclnn.kernels.cpu.memory import (
    load_one_float32,
    load_one_float64,
    load_one_int64,
    store_one_float32,
    store_one_float64,
)
from aclnn.kernels.cpu.vector import lane, splat

# Within these limits no float32 intermediate overflows and none that vanishes matters.
MOST_G, MOST_SQUARE = 2.0**60, 2.0**60
LEAST_C1, LEAST_C2 = 2.0**-90, 2.0**-60


@register_jitable
def judge(job: int, records: int, row: int) -> Any:
    """Turn the records of a row into its coefficients; true where float32 will not do for its dx."""
    share = 1.0 / load_one_int64(job + 8 * N)
    sum_g, sum_gx, size, square = 0.0, 0.0, 0.0, 0.0
    for s in range(load_one_int64(job + 8 * SEGMENTS)):
        record = records + RECORD * s
        sum_g += np.float64(load_one_float32(record + SUM_G))
        sum_gx += np.float64(load_one_float32(record + SUM_GX))
        size += np.float64(load_one_float32(record + SUM_SIZE))
        square += np.float64(load_one_float32(record + SUM_SQUARE))
    c1, c2 = sum_g * share, sum_gx * share
    size *= np.float64(load_one_float32(job + 8 * TOP_WEIGHT))
    finite = c1 - c1 == 0.0 and c2 - c2 == 0.0
    bounded = size <= MOST_G and square <= MOST_SQUARE
    visible = abs(c1) >= LEAST_C1 or abs(c2) >= LEAST_C2 or size == 0.0
    slow = not (finite and bounded and visible)
    store_one_float32(row + MINUS_C1, np.float32(-c1))
    store_one_float32(row + MINUS_C2, np.float32(-c2))
    store_one_float32(row + SLOW, np.float32(slow))
    if slow:
        store_one_float64(row + EXACT_G, 0.0)
        store_one_float64(row + EXACT_GX, 0.0)
    return slow


class Exact(NamedTuple):
    """Compiled functions: ``add`` columns to a row's float64 sums; ``apply`` these to columns of n."""

    add: Any
    apply: Any


def exact(dy: Element, x: Element, dx: Element) -> Exact:
    """The functions for these elements."""
    load_dy, load_x, store_dx = dy.load_part, x.load_part, dx.store_part
    dy_size, x_size, dx_size = dy.size, x.size, dx.size

    @register_jitable
    def terms(dy_at: int, x_at: int, w_at: int, row: int) -> Any:
        g = np.float64(lane(load_dy(dy_at, 1), 0)) * np.float64(load_one_float32(w_at))
        mean, rstd = np.float64(load_one_float32(row + ROW_MEAN)), np.float64(load_one_float32(row + ROW_RSTD))
        return g, (np.float64(lane(load_x(x_at, 1), 0)) - mean) * rstd

    @register_jitable
    def add(dy_at: int, x_at: int, w_at: int, w_step: int, columns: int, row: int) -> None:
        sum_g, sum_gx = load_one_float64(row + EXACT_G), load_one_float64(row + EXACT_GX)
        for j in range(columns):
            g, xhat = terms(dy_at + j * dy_size, x_at + j * x_size, w_at + j * w_step, row)
            sum_g += g
            sum_gx += g * xhat
        store_one_float64(row + EXACT_G, sum_g)
        store_one_float64(row + EXACT_GX, sum_gx)

    @register_jitable
    def apply(n: int, dy_at: int, x_at: int, dx_at: int, w_at: int, w_step: int, columns: int, row: int) -> None:
        c1, c2 = load_one_float64(row + EXACT_G) / n, load_one_float64(row + EXACT_GX) / n
        rstd = np.float64(load_one_float32(row + ROW_RSTD))
        for j in range(columns):
            g, xhat = terms(dy_at + j * dy_size, x_at + j * x_size, w_at + j * w_step, row)
            store_dx(dx_at + j * dx_size, splat(np.float32((g - c1 - xhat * c2) * rstd)), 1)

    return Exact(add, apply)
