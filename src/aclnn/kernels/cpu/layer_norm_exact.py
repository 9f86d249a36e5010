"""LayerNorm's gradients in float64, for rows whose magnitudes would overflow or vanish in float32.

The products and sums of float32 numbers that the formulas need neither overflow nor vanish there. Everything works on a
group's rows widened to contiguous float32, ``pitch`` bytes apart; ``row`` is where a row's coefficients are.
"""

from __future__ import annotations

import numpy as np

from aclnn.kernels.cpu.layer_norm_job import COEFFICIENT, ROW_MEAN, ROW_RSTD, SLOW
from aclnn.kernels.cpu.memory import load_one_float32, load_one_float64, store_one_float32, store_one_float64


def add_sums(dy: int, x: int, w: int, w_step: int, pitch: int, count: int, columns: int, row: int, sums: int) -> None:
    """Add Σg and Σg·x̂ of each slow row to the two float64 that it has at ``sums``; ``w_step`` is 4, or 0 for ones."""
    for k in range(count):
        at = row + COEFFICIENT * k
        if load_one_float32(at + SLOW) > 0.0:
            mean, rstd = np.float64(load_one_float32(at + ROW_MEAN)), np.float64(load_one_float32(at + ROW_RSTD))
            sum_g, sum_gx = load_one_float64(sums + 16 * k), load_one_float64(sums + 16 * k + 8)
            for j in range(columns):
                place = k * pitch + 4 * j
                g = np.float64(load_one_float32(dy + place)) * np.float64(load_one_float32(w + w_step * j))
                sum_g += g
                sum_gx += g * ((np.float64(load_one_float32(x + place)) - mean) * rstd)
            store_one_float64(sums + 16 * k, sum_g)
            store_one_float64(sums + 16 * k + 8, sum_gx)


def apply(
    n: int, dy: int, x: int, dx: int, w: int, w_step: int, pitch: int, count: int, columns: int, row: int, sums: int
) -> None:
    """Write dx of slow rows of ``n`` columns, whose sums are at ``sums``."""
    for k in range(count):
        at = row + COEFFICIENT * k
        if load_one_float32(at + SLOW) > 0.0:
            mean, rstd = np.float64(load_one_float32(at + ROW_MEAN)), np.float64(load_one_float32(at + ROW_RSTD))
            c1, c2 = load_one_float64(sums + 16 * k) / n, load_one_float64(sums + 16 * k + 8) / n
            for j in range(columns):
                place = k * pitch + 4 * j
                g = np.float64(load_one_float32(dy + place)) * np.float64(load_one_float32(w + w_step * j))
                xhat = (np.float64(load_one_float32(x + place)) - mean) * rstd
                store_one_float32(dx + place, np.float32((g - c1 - xhat * c2) * rstd))
