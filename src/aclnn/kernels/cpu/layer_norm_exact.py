"""LayerNorm's gradients in float64, for rows whose magnitudes would overflow or vanish in float32.

The products and sums of float32 numbers that the formulas need neither overflow nor vanish there. Everything works on a
group's rows widened to contiguous float32, ``pitch`` bytes apart; ``row`` is where a row's coefficients are.
"""

from __future__ import annotations

import numpy as np

from aclnn.kernels.cpu.layer_norm_lanes import load_double, store_double
from aclnn.kernels.cpu.layer_norm_rows import COEFFICIENT, LARGE, LARGE_DY, ROW_MEAN, ROW_RSTD, SLOW
from aclnn.kernels.cpu.memory import load_one_float32, store_one_float32


def add_sums(dy: int, x: int, w: int, w_step: int, pitch: int, count: int, columns: int, row: int, sums: int) -> None:
    """Add Σg and Σg·x̂ of each slow row to the two float64 that it has at ``sums``; ``w_step`` is 4, or 0 for ones."""
    for k in range(count):
        at = row + COEFFICIENT * k
        if load_one_float32(at + SLOW) > 0.0:
            mean, rstd = np.float64(load_one_float32(at + ROW_MEAN)), np.float64(load_one_float32(at + ROW_RSTD))
            sum_g, sum_gx = load_double(sums + 16 * k), load_double(sums + 16 * k + 8)
            for j in range(columns):
                place = k * pitch + 4 * j
                g = np.float64(load_one_float32(dy + place)) * np.float64(load_one_float32(w + w_step * j))
                sum_g += g
                sum_gx += g * ((np.float64(load_one_float32(x + place)) - mean) * rstd)
            store_double(sums + 16 * k, sum_g)
            store_double(sums + 16 * k + 8, sum_gx)


def apply(
    n: int, dy: int, x: int, dx: int, w: int, w_step: int, pitch: int, count: int, columns: int, row: int, sums: int,
    dw: int, db: int,
) -> None:  # fmt: skip
    """Write dx of slow rows; add the group's terms to the float64 dw and db if they are large. 0: not wanted."""
    large, large_dy = load_one_float32(row + LARGE) > 0.0, load_one_float32(row + LARGE_DY) > 0.0
    for k in range(count):
        at = row + COEFFICIENT * k
        mean, rstd = np.float64(load_one_float32(at + ROW_MEAN)), np.float64(load_one_float32(at + ROW_RSTD))
        slow = load_one_float32(at + SLOW) > 0.0
        for j in range(columns):
            place = k * pitch + 4 * j
            y = np.float64(load_one_float32(dy + place))
            if db and large_dy:
                store_double(db + 8 * j, load_double(db + 8 * j) + y)
            if x:
                xhat = (np.float64(load_one_float32(x + place)) - mean) * rstd
                if dw and large:
                    store_double(dw + 8 * j, load_double(dw + 8 * j) + y * xhat)
                if dx and slow:
                    g = y * np.float64(load_one_float32(w + w_step * j))
                    c1, c2 = load_double(sums + 16 * k) / n, load_double(sums + 16 * k + 8) / n
                    store_one_float32(dx + place, np.float32((g - c1 - xhat * c2) * rstd))
