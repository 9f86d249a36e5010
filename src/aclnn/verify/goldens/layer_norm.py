"""LayerNorm's gradients, with sums in double-float64 arithmetic and error bounds.

All arrays are float64 copies of the inputs (M rows, N columns). An output element comes with two numbers that round as
the ends of its interval do; if these differ, ``exact_dx``, ``exact_dw`` and ``exact_db`` decide with rationals. Rows or
sums with a NaN or an infinity follow the formula in IEEE arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from aclnn.typing import Array
from aclnn.verify.compiled import compiled
from aclnn.verify.goldens.expansions import add, divide, ends, multiply, scale, two_product, two_sum


@compiled
def _normalised(x: float, mean: float, rstd: float) -> tuple[float, float, float]:
    """Return (x - mean)·rstd; the difference is exact."""
    hi, lo = two_sum(x, -mean)
    return scale(hi, lo, rstd)


@compiled
def _all_finite(x: Array, dy: Array, mean: float, rstd: float, weight: Array) -> bool:
    total = mean * 0.0 + rstd * 0.0
    for j in range(x.size):
        total += x[j] * 0.0 + dy[j] * 0.0 + weight[j] * 0.0
    return total == 0.0


@compiled
def _plain_row(x: Array, dy: Array, mean: float, rstd: float, weight: Array, value: Array) -> None:
    n = x.size
    sum_g, sum_gx = 0.0, 0.0
    for j in range(n):
        g = dy[j] * weight[j]
        sum_g += g
        sum_gx += g * ((x[j] - mean) * rstd)
    for j in range(n):
        value[j] = (dy[j] * weight[j] - sum_g / n - (x[j] - mean) * rstd * (sum_gx / n)) * rstd


@compiled
def input_gradient(
    x: Array, dy: Array, mean: Array, rstd: Array, weight: Array, value: Array, lower: Array, upper: Array
) -> None:
    """Compute dx of every row: x, dy, value, lower, upper (M, N); mean, rstd (M); weight (N)."""
    n = x.shape[1]
    for i in range(x.shape[0]):
        if not _all_finite(x[i], dy[i], mean[i], rstd[i], weight):
            _plain_row(x[i], dy[i], mean[i], rstd[i], weight, value[i])
            lower[i] = value[i]
            upper[i] = value[i]
            continue
        sum_g, sum_g_lo, lost_g = 0.0, 0.0, 0.0
        sum_gx, sum_gx_lo, lost_gx = 0.0, 0.0, 0.0
        for j in range(n):
            g, g_lo = two_product(dy[i, j], weight[j])
            xhat, xhat_lo, xhat_lost = _normalised(x[i, j], mean[i], rstd[i])
            gx, gx_lo, lost = multiply(g, g_lo, xhat, xhat_lo)
            sum_g, sum_g_lo, last = add(sum_g, sum_g_lo, g, g_lo)
            lost_g += last
            sum_gx, sum_gx_lo, last = add(sum_gx, sum_gx_lo, gx, gx_lo)
            lost_gx += last + lost + xhat_lost * abs(g) * 1.0000001
        for j in range(n):
            g, g_lo = two_product(dy[i, j], weight[j])
            xhat, xhat_lo, xhat_lost = _normalised(x[i, j], mean[i], rstd[i])
            hi, lo, lost = scale(g, g_lo, float(n))
            hi, lo, last = add(hi, lo, -sum_g, -sum_g_lo)
            lost += last + lost_g
            p, p_lo, last = multiply(xhat, xhat_lo, sum_gx, sum_gx_lo)
            lost += last + (abs(xhat) * lost_gx + xhat_lost * (abs(sum_gx) + lost_gx)) * 1.0000001
            hi, lo, last = add(hi, lo, -p, -p_lo)
            lost += last
            hi, lo, last = scale(hi, lo, rstd[i])
            lost = lost * abs(rstd[i]) + last
            hi, lo, last = divide(hi, lo, float(n))
            value[i, j] = hi
            lower[i, j], upper[i, j] = ends(hi, lo, lost / n * 1.0000001 + last)


@compiled
def column_sums(x: Array, dy: Array, mean: Array, rstd: Array, dw: Array, db: Array) -> None:
    """Sum dy·xhat and dy over these rows: dw, db (4, N) receive hi, lo, lost and the plain float64 sum."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            plain = (x[i, j] - mean[i]) * rstd[i] * dy[i, j]
            dw[3, j] += plain
            db[3, j] += dy[i, j]
            if math.isfinite(dy[i, j]):
                db[0, j], db[1, j], last = add(db[0, j], db[1, j], dy[i, j], 0.0)
                db[2, j] += last
            if not math.isfinite(plain):
                continue
            xhat, xhat_lo, xhat_lost = _normalised(x[i, j], mean[i], rstd[i])
            t, t_lo, lost = scale(xhat, xhat_lo, dy[i, j])
            dw[0, j], dw[1, j], last = add(dw[0, j], dw[1, j], t, t_lo)
            dw[2, j] += last + lost + xhat_lost * abs(dy[i, j]) * 1.0000001


@compiled
def merge_sums(total: Array, part: Array) -> None:
    """Add one block's sums (4, N) to the total of the blocks before it."""
    for j in range(total.shape[1]):
        total[0, j], total[1, j], last = add(total[0, j], total[1, j], part[0, j], part[1, j])
        total[2, j] += part[2, j] + last
        total[3, j] += part[3, j]


@compiled
def column_ends(total: Array, value: Array, lower: Array, upper: Array) -> None:
    """Compute value and interval of every column's sum; the plain sum if it is not finite."""
    for j in range(total.shape[1]):
        if math.isfinite(total[3, j]):
            value[j] = total[0, j]
            lower[j], upper[j] = ends(total[0, j], total[1, j], total[2, j])
        else:
            value[j] = total[3, j]
            lower[j] = value[j]
            upper[j] = value[j]


def exact_dx(x: Array, dy: Array, mean: float, rstd: float, weight: Array, columns: Iterable[int]) -> list[Fraction]:
    """Return dx of one finite row at some columns, as rationals."""
    n, r = x.size, Fraction(rstd)
    g = [Fraction(a) * Fraction(b) for a, b in zip(dy.tolist(), weight.tolist(), strict=True)]
    xhat = [(Fraction(v) - Fraction(mean)) * r for v in x.tolist()]
    sum_g = sum(g, Fraction(0))
    sum_gx = sum((a * b for a, b in zip(g, xhat, strict=True)), Fraction(0))
    return [(g[j] - sum_g / n - xhat[j] * sum_gx / n) * r for j in columns]


def exact_dw(x: Array, dy: Array, mean: Array, rstd: Array) -> Fraction:
    """Return Σ dy·xhat of one finite column, as a rational."""
    rows = zip(x.tolist(), dy.tolist(), mean.tolist(), rstd.tolist(), strict=True)
    return sum((Fraction(g) * (Fraction(v) - Fraction(m)) * Fraction(r) for v, g, m, r in rows), Fraction(0))


def exact_db(dy: Array) -> Fraction:
    """Return Σ dy of one finite column, as a rational."""
    return sum(map(Fraction, dy.tolist()), Fraction(0))
