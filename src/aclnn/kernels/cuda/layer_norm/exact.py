"""Gradients in float64: of rows, and of columns, whose magnitudes overflow or vanish in float32."""

from __future__ import annotations

from aclnn.kernels import layer_norm_limits as limits
from aclnn.kernels.cuda.launch import tl, triton
from aclnn.kernels.cuda.layer_norm.places import chunks, in_chunk, number, numbers, place

# No |g| is compared, one that overflows shows in c1 or c2; nor can x̂·c2, then below 2^103, push the largest g over.
_MOST_C, _MOST_XHAT = tl.constexpr(limits.MOST_C), tl.constexpr(limits.MOST_XHAT)
_LEAST_C1, _LEAST_C2 = tl.constexpr(limits.LEAST_C1), tl.constexpr(limits.LEAST_C2)
_CHUNK = tl.constexpr(1024)


@triton.jit
def join(g, gx, hat, bits, other_g, other_gx, other_hat, other_bits):
    """What is known of two parts of a row: the sums of g and g·x̂, the largest |x̂|, and every bit that a dy has."""
    return g + other_g, gx + other_gx, tl.maximum(hat, other_hat), bits | other_bits


@triton.jit
def mean_of(total, share, MEAN: tl.constexpr):
    """The mean of g that dx lacks, which is 0 where none was subtracted from x."""
    return tl.zeros_like(total) if MEAN is None else total * share


@triton.jit
def beyond_float32(c1, c2, most_hat, bits, most_weight):
    """Whether float32 will not do for a row's dx. The largest |x̂| may leave out NaNs; c2 does not."""
    bounded = (most_hat <= _MOST_XHAT) & (tl.abs(c1) <= _MOST_C) & (tl.abs(c2) <= _MOST_C)
    # Zeros have no bit but the sign. Triton's interpreter cannot spread a single truth value over rows.
    nothing = ((bits << 1) == 0) | (most_weight + c1 * 0.0 == 0.0)
    visible = (tl.abs(c1) >= _LEAST_C1) | (tl.abs(c2) >= _LEAST_C2) | nothing
    return (bounded & visible) == 0


@triton.jit
def _terms(
    dy, x, weight, dy_row, x_row, centre, scale, column, valid, axes,
    DY: tl.constexpr, X: tl.constexpr, WEIGHT: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """g and x̂ of some columns, 0 where not valid."""
    g = numbers(dy, DY, dy_row + place(column, axes, AT[1], COUNT[1]), valid).to(tl.float64)
    if WEIGHT is not None:
        g = g * numbers(weight, WEIGHT, place(column, axes, AT[6], COUNT[6]), valid).to(tl.float64)
    values = numbers(x, X, x_row + place(column, axes, AT[3], COUNT[3]), valid).to(tl.float64)
    return g, tl.where(valid, (values - centre) * scale, 0.0)


@triton.jit
def exact_row(
    dy, x, mean, rstd, weight, dx, row, axes, n,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, WEIGHT: tl.constexpr, DX: tl.constexpr,
    AT: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """dx of one row, in two passes over its chunks."""
    dy_row, x_row = place(row, axes, AT[0], COUNT[0]), place(row, axes, AT[2], COUNT[2])
    centre = number(mean, MEAN, place(row, axes, AT[4], COUNT[4])).to(tl.float64)
    scale = number(rstd, RSTD, place(row, axes, AT[5], COUNT[5])).to(tl.float64)
    sum_g = tl.zeros((_CHUNK,), tl.float64)
    sum_gx = tl.zeros((_CHUNK,), tl.float64)
    for chunk in tl.range(0, chunks(n, _CHUNK), num_stages=1):
        column = in_chunk(chunk, _CHUNK)
        g, hat = _terms(
            dy, x, weight, dy_row, x_row, centre, scale, column, column < n, axes, DY, X, WEIGHT, AT, COUNT
        )  # fmt: skip
        sum_g += g
        sum_gx += g * hat
    c1, c2 = (0.0 if MEAN is None else tl.sum(sum_g) / n), tl.sum(sum_gx) / n
    for chunk in tl.range(0, chunks(n, _CHUNK), num_stages=1):
        column = in_chunk(chunk, _CHUNK)
        g, hat = _terms(
            dy, x, weight, dy_row, x_row, centre, scale, column, column < n, axes, DY, X, WEIGHT, AT, COUNT
        )  # fmt: skip
        result = ((g - c1 - hat * c2) * scale).to(tl.float32)
        pointer = dx.to(tl.pointer_type(DX)) + place(row, axes, AT[7], COUNT[7]) + place(column, axes, AT[8], COUNT[8])
        tl.store(pointer, result.to(DX), mask=column < n)


@triton.jit
def exact_sums(
    dy, x, mean, rstd, column, valid, axes, begin, end,
    DY: tl.constexpr, X: tl.constexpr, MEAN: tl.constexpr, RSTD: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr,
    HAT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of some columns, the sums over the rows from begin to end of dy·x̂ if HAT, else of dy."""
    found = tl.zeros((ROWS, BLOCK), tl.float64)
    for chunk in tl.range(0, chunks(end - begin, ROWS), num_stages=1):
        row = begin + in_chunk(chunk, ROWS)
        there = row < end
        both = there[:, None] & valid[None, :]
        dy_at = place(row, axes, AT[0], COUNT[0])[:, None] + place(column, axes, AT[1], COUNT[1])[None, :]
        term = numbers(dy, DY, dy_at, both).to(tl.float64)
        if HAT:
            x_at = place(row, axes, AT[2], COUNT[2])[:, None] + place(column, axes, AT[3], COUNT[3])[None, :]
            centre = numbers(mean, MEAN, place(row, axes, AT[4], COUNT[4]), there).to(tl.float64)[:, None]
            scale = numbers(rstd, RSTD, place(row, axes, AT[5], COUNT[5]), there).to(tl.float64)[:, None]
            term *= tl.where(both, (numbers(x, X, x_at, both).to(tl.float64) - centre) * scale, 0.0)
        found += term
    return tl.sum(found, axis=0)
