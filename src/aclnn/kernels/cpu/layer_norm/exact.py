"""Which rows float32 will not do for, because magnitudes would overflow or vanish; LayerNorm's dx for these in float64.

The products and sums of float32 numbers that the formulas need neither overflow nor vanish there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.layer_norm.elements import Element
from aclnn.kernels.cpu.layer_norm.job import (
    ALL_COLUMNS,
    COLUMNS,
    DXS,
    DYS,
    EXACT_G,
    EXACT_GX,
    MINUS_C1,
    MINUS_C2,
    RECORD,
    ROW,
    ROW_MEAN,
    ROW_RSTD,
    SEGMENTS,
    SHARE,
    SLOW,
    SUM_G,
    SUM_GX,
    SUM_SIZE,
    SUM_SQUARE,
    TOP_WEIGHT,
    XS,
    W,
    of,
)
from aclnn.kernels.cpu.layer_norm.segments import Kernel, field, standardizer
from aclnn.kernels.cpu.simd.vector import lane, splat
from aclnn.kernels.cpu.structs import load_one_float32, load_one_float64, store_one_float32, store_one_float64
from aclnn.kernels.layer_norm_limits import LEAST_C1, LEAST_C2, MOST_C, MOST_XHAT

_MOST_SQUARE = MOST_XHAT**2


def judge(job: int, records: int, row: int, whole: int) -> None:
    """The kernel that turns the records of a row into its coefficients: slow where float32 will not do for its dx.

    If the records are not whole, slow where that is in doubt: kernels that are not careful leave out Σ|dy|, and may
    have a bound in place of Σx̂².
    """
    share = load_one_float64(job + 8 * SHARE)
    sum_g, sum_gx, size, square = 0.0, 0.0, 0.0, 0.0
    for s in range(of(job, SEGMENTS)):
        record = records + RECORD * s
        sum_g += np.float64(load_one_float32(record + SUM_G))
        sum_gx += np.float64(load_one_float32(record + SUM_GX))
        size += np.float64(load_one_float32(record + SUM_SIZE))
        square += np.float64(load_one_float32(record + SUM_SQUARE))
    c1, c2 = sum_g * share, sum_gx * share
    bounded = square <= _MOST_SQUARE and abs(c1) <= MOST_C and abs(c2) <= MOST_C
    visible = abs(c1) >= LEAST_C1 or abs(c2) >= LEAST_C2
    if whole and not visible:
        visible = size * np.float64(load_one_float32(job + 8 * TOP_WEIGHT)) == 0.0
    slow = not (bounded and visible)
    store_one_float32(row + MINUS_C1, np.float32(-c1))
    store_one_float32(row + MINUS_C2, np.float32(-c2))
    store_one_float32(row + SLOW, np.float32(slow))
    if slow:
        store_one_float64(row + EXACT_G, 0.0)
        store_one_float64(row + EXACT_GX, 0.0)


def _terms(dy: Element, x: Element, centred: bool) -> Any:
    standardize = standardizer(centred)
    load_dy, load_x, dy_size, x_size = dy.load_part, x.load_part, dy.size, x.size

    @register_jitable
    def terms(frame: int, j: int) -> Any:
        """g and x̂ of column j."""
        w = load_one_float32(field(frame, W) + 4 * j)
        g = np.float64(lane(load_dy(field(frame, DYS) + j * dy_size, 1), 0)) * np.float64(w)
        row = field(frame, ROW)
        statistics = np.float64(load_one_float32(row + ROW_MEAN)), np.float64(load_one_float32(row + ROW_RSTD))
        return g, standardize(np.float64(lane(load_x(field(frame, XS) + j * x_size, 1), 0)), statistics)

    return terms


def add_exactly(dy: Element, x: Element, centred: bool) -> Kernel:
    """The kernel that adds columns to the float64 sums of the frame's first row."""
    terms = _terms(dy, x, centred)

    def run(frame: int) -> None:
        row = field(frame, ROW)
        sum_g, sum_gx = load_one_float64(row + EXACT_G), load_one_float64(row + EXACT_GX)
        for j in range(field(frame, COLUMNS)):
            g, xhat = terms(frame, j)
            sum_g += g
            sum_gx += g * xhat
        store_one_float64(row + EXACT_G, sum_g)
        store_one_float64(row + EXACT_GX, sum_gx)

    return run


def write_exactly(dy: Element, x: Element, dx: Element, centred: bool) -> Kernel:
    """The kernel that writes columns of that row's dx; ALL_COLUMNS is how many the row has."""
    terms, store_dx, dx_size = _terms(dy, x, centred), dx.store_part, dx.size

    def run(frame: int) -> None:
        row, n, dx_at = field(frame, ROW), field(frame, ALL_COLUMNS), field(frame, DXS)
        c1 = load_one_float64(row + EXACT_G) / n if centred else 0.0
        c2 = load_one_float64(row + EXACT_GX) / n
        rstd = np.float64(load_one_float32(row + ROW_RSTD))
        for j in range(field(frame, COLUMNS)):
            g, xhat = terms(frame, j)
            store_dx(dx_at + j * dx_size, splat(np.float32((g - c1 - xhat * c2) * rstd)), 1)

    return run
