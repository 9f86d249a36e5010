"""Faults of some elements only, found by their positions and contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aclnn.typing import Array
from aclnn.verify.diagnosis.evidence import ENOUGH, FEW, Evidence, Finding
from aclnn.verify.diagnosis.scales import growth_of_flushed
from aclnn.verify.number_formats import FORMATS
from aclnn.verify.standards.evaluate import Measured
from aclnn.verify.standards.measures import agree

_GAP = 8
"""Number of accidentally correct elements allowed inside a run of wrong ones."""
_MOST_POSITIONS = 1 << 22


def in_reverse(e: Evidence) -> Iterator[Finding]:
    """Find elements whose bytes are in reverse order."""
    if e.actual.itemsize == 1:
        return

    def right(e: Evidence) -> Array:
        turned = e.target.bits(e.actual).byteswap().view(e.target.dtype.numpy).astype(np.float64)
        near: Array = np.abs(turned - e.v) <= e.noise
        return near | agree(turned, e.g)

    if np.count_nonzero(right(e)) >= ENOUGH * e.a.size and np.count_nonzero(e.outliers) >= 0.5 * e.a.size:
        text = "the bytes of each element are in reverse order (big-endian)"
        yield Finding("byte-order", text, "an element that is right as it is", lambda e: right(e) & e.wrong)


def flushed(e: Evidence) -> Iterator[Finding]:
    """Find zeros in place of a subnormal result, or caused by a subnormal operand or derivative."""
    least, single = e.target.smallest_normal, FORMATS["float32"].smallest_normal

    def tiny(e: Evidence) -> Array:
        found = np.abs(e.v) < least * growth_of_flushed(e)
        for values in e.operands.values():
            found |= (np.abs(values) < single) & (values != 0.0)
        if e.source.gradient is not None and e.dy is not None:
            found |= np.abs(e.v) < single * np.abs(e.dy)
        return found

    zeros = (e.a == 0.0) & (e.g != 0.0)
    explained = zeros & tiny(e)
    survivors = (e.a != 0.0) & np.isfinite(e.a) & (np.abs(e.g) < least) & (e.g != 0.0)
    if explained.any() and np.count_nonzero(survivors) <= 0.1 * np.count_nonzero(explained):
        text = f"flush to zero: results, operands or derivatives below {max(least, single):.3g} come out as 0"
        yield Finding(
            "flush-to-zero",
            text,
            "results as small that are not 0",
            lambda e: (e.a == 0.0) & (e.g != 0.0) & tiny(e),
            structural=False,
        )


def not_finite(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find NaN or infinity, or 0, for every x beyond a threshold (overflow), or elsewhere; or their absence."""
    broken = struck & ~np.isfinite(e.a) & np.isfinite(e.g)
    for target in (broken, broken | (struck & (e.a == 0.0))):
        for side, sign in ((1.0, ">"), (-1.0, "<")):
            here = side * e.x
            if np.count_nonzero(target) < 2:
                continue
            edge = float(here[target].min())
            survivors = (here > edge) & ~e.wrong & (e.g != 0.0) & (np.abs(e.g) > e.target.smallest_normal)
            if edge > (5.0 if broken.any() else 10.0) and np.count_nonzero(survivors) <= 0.1 * np.count_nonzero(target):
                became = "NaN or infinity" if broken.any() else "0"
                where = f"x {sign} {side * edge:.5g}"
                text = f"overflow: an intermediate exceeds its type for {where}; the result becomes {became}"
                yield Finding(
                    "overflow",
                    text,
                    f"right results for x {sign} {side * edge:.5g}",
                    lambda e, s=side, t=edge: (s * e.x >= t) & (~np.isfinite(e.a) | (e.a == 0.0)),
                    structural=False,
                )
                return
    if broken.any():
        kinds = [
            name for name, found in (("NaN", np.isnan(e.a)), ("infinity", np.isinf(e.a))) if (found & broken).any()
        ]
        text = f"{' and '.join(kinds)} instead of finite results"
        yield Finding(
            "not-finite",
            text,
            "finite elements there",
            lambda e: ~np.isfinite(e.a) & np.isfinite(e.g),
            structural=False,
        )
    elif (struck & np.isfinite(e.a) & ~np.isfinite(e.g)).any():
        yield Finding(
            "not-finite",
            "finite results instead of NaN or infinity",
            "NaN or infinity there",
            lambda e: np.isfinite(e.a) & ~np.isfinite(e.g),
            structural=False,
        )


def edges(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find elements where branches of the formula meet, with the result of the wrong branch."""
    if not struck.any() or not e.operands:
        return

    def other_branch(e: Evidence) -> Array:
        found = np.zeros(e.a.size, bool)
        for step in (2.0**-40, -(2.0**-40)):
            beside = e.computed(lambda f, x, s=step: f.at_points([*x[:-1], x[-1] * (1.0 + s) + 1e-30 * np.sign(s)]))
            found |= (np.abs(beside - e.v) > 2.0 * e.noise) & (np.abs(e.a - beside) <= e.noise)
        return found

    explained = struck & other_branch(e)
    if explained.any():
        points = np.unique(e.x[explained])
        if points.size <= 4:
            at = ", ".join(f"{point:g}" for point in points)
            text = f"where branches of the formula meet (x = {at}) the other branch's result is taken"
            yield Finding("edge", text, "wrong results next to those points", other_branch, structural=False)


def _follows_x(e: Evidence, inside: Array) -> bool:
    """Return True if nearly no element elsewhere is correct at such x: the fault may depend on x, not on position."""
    here = e.x[inside & e.wrong]
    if not here.size:
        return True
    low, high = np.nanquantile(here, (0.02, 0.98))
    right = ~e.wrong & ~inside & (e.x >= low) & (e.x <= high)
    return bool(np.count_nonzero(right) < min(FEW, e.a.size // 8))


def flipped(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find a few elements with one flipped bit, whose reversal gives the correct result."""
    count = np.count_nonzero(struck)
    if not 0 < count <= max(FEW, e.a.size // 100):
        return
    width = 8 * e.actual.dtype.itemsize
    bits, found = e.target.bits(e.actual), {}
    for bit in range(e.target.digits // 2, width):
        back = (bits ^ np.array(1 << bit, bits.dtype)).view(e.actual.dtype).astype(np.float64)
        close = struck & (np.abs(back - e.v) <= np.maximum(e.noise, 1e-30))
        if close.any():
            found[bit] = close
    explained = np.logical_or.reduce([np.zeros(e.a.size, bool), *found.values()])
    if 0 < len(found) <= 3 and np.count_nonzero(explained) >= ENOUGH * count:
        which = {width - 1: "the sign"}.get
        said = ", ".join(which(bit) or f"bit {bit}" for bit in found)
        indices = e.at[explained]
        text = f"{said} flipped in {indices.size} element{'s' * (indices.size > 1)} ({_listed(indices)})"
        yield Finding("bit-flip", text, "an element whose other bits differ too", lambda e: np.isin(e.at, indices))


def _listed(indices: Array) -> str:
    return ", ".join(map(str, indices[:3].tolist())) + (" …" if indices.size > 3 else "")


def unwritten(e: Evidence, measured: Measured, struck: Array) -> Iterator[Finding]:
    """Find one value in runs of the buffer, in columns or rows, or everywhere."""
    if np.count_nonzero(struck) == 0:
        return
    values, counts = np.unique(np.nan_to_num(e.a[struck], nan=np.nan), return_counts=True, equal_nan=True)
    constant = float(values[np.argmax(counts)])
    same = agree(e.a, np.full(1, constant))
    shown = "NaN" if np.isnan(constant) else f"{constant:g}"
    varies = not agree(e.g, np.full(1, e.g[0])).all()
    if np.count_nonzero(same) >= 0.98 * e.a.size and e.a.size >= FEW and varies:
        yield Finding(
            "constant",
            f"the whole output is {shown}",
            "an element of another value",
            lambda e: agree(e.a, np.full(1, constant)),
        )
        return
    if counts.max() < 4:
        return
    found = positions(measured)
    if found is None:
        found = e.at[e.wrong]
    of_number = found[agree(_at(measured, found), np.full(1, constant))]
    whole, text = placed(of_number, measured, lambda i: agree(_at(measured, i), np.full(1, constant)))
    if (
        whole.size < 4
        or _follows_x(e, np.isin(e.at, whole))
        or np.count_nonzero(np.isin(of_number, whole)) < ENOUGH * of_number.size
    ):
        return
    yield Finding(
        "unwritten",
        f"{text} hold {shown} instead of results",
        f"an element there that is not {shown}",
        lambda e: np.isin(e.at, whole) & agree(e.a, np.full(1, constant)),
    )


def stale(e: Evidence, measured: Measured, struck: Array, explained: Callable[[Array], Array]) -> Iterator[Finding]:
    """Find foreign data in runs of the buffer, or in a block of rows and columns."""
    if np.count_nonzero(struck) < 4:
        return
    found = positions(measured) if e.a.size < e.source.size else None
    if found is None:
        found = e.at[struck]
    else:
        found = _clustered(found)
        found = found[~explained(found)]
    whole, text = placed(found, measured, None)
    inside = np.isin(e.at, whole)
    outside = struck & ~inside
    if not 0 < whole.size < 0.5 * measured.source.size or np.count_nonzero(outside) > 0.1 * np.count_nonzero(struck):
        return
    if np.count_nonzero(inside & struck) < 0.5 * np.count_nonzero(inside) or _follows_x(e, inside):
        return
    factor = float(np.median((e.a / e.v)[inside & struck]))
    if np.mean((np.abs(e.a - factor * e.v) <= e.noise)[inside]) >= ENOUGH:
        yield Finding(
            "scaled",
            f"{text} are {factor:.6g} times what they should be",
            "a ratio there that varies",
            lambda e: np.isin(e.at, whole),
            structural=abs(factor - 1.0) > 2.0**-18,
        )
        return
    if np.mean((np.abs(e.a - e.v) <= 0.1 * np.abs(e.v))[inside]) >= ENOUGH:  # too near the results to be foreign
        return
    actual, step = _at(measured, whole), whole.size
    before = whole - step
    same = before.min() >= 0 and np.mean(agree(actual, _at(measured, before))) > ENOUGH
    how = (
        "hold once more what lies before them" if same else "hold values that do not belong there (stale, or another's)"
    )
    yield Finding(
        "stale", f"{text} {how}", "wrong elements elsewhere, or right ones among these", lambda e: np.isin(e.at, whole)
    )


def beyond(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find dy times a constant on one side of an x."""
    if e.dy is None:
        return
    dy = e.dy
    usable = struck & np.isfinite(e.a) & (dy != 0.0) & np.isfinite(e.x)
    with np.errstate(all="ignore"):
        seen = e.a / dy
    for side, sign in ((1.0, ">"), (-1.0, "<")):
        here = usable & (side * e.x > 0.0)
        if np.count_nonzero(here) < FEW:
            continue
        constant = float(np.median(seen[here]))
        allowed = 4.0 * float(e.target.ulp(np.full(1, constant))[0])
        alike = here & (np.abs(seen - constant) <= allowed)
        if np.count_nonzero(alike) < ENOUGH * np.count_nonzero(struck):
            continue
        edge = float((side * e.x[alike]).min())
        there = (side * e.x >= edge) & (dy != 0.0) & np.isfinite(e.a)
        if np.unique(e.x[alike]).size < FEW:
            continue
        if np.count_nonzero(there & (np.abs(seen - constant) <= allowed)) < 0.95 * np.count_nonzero(there):
            continue
        text = f"constant {constant:.4g} instead of the derivative for x {sign} {side * edge:.5g}"
        yield Finding(
            "constant-at-edge", text, "another slope there", lambda e, s=side, t=edge: (s * e.x >= t) & e.wrong
        )
        return


def positions(measured: Measured) -> Array | None:
    """Return the indices of all wrong elements; None if there are too many."""
    return np.flatnonzero(measured.wrong_mask()) if measured.wrong_count <= _MOST_POSITIONS else None


def _clustered(found: Array) -> Array:
    """Return those of many indices that have three others nearby, as in a run."""
    if found.size <= 1 << 16:
        return found
    close = np.flatnonzero(found[3:] - found[:-3] <= 2 * _GAP)
    near = np.zeros(found.size, bool)
    for k in range(4):
        near[close + k] = True
    return found[near]


def _at(measured: Measured, index: Array) -> Array:
    return measured.source.actual[index].astype(np.float64)


def placed(found: Array, measured: Measured, same: Callable[[Array], Array] | None) -> tuple[Array, str]:
    """Return a pattern of wrong elements completed to runs, columns or a block, and its text; empty if scattered."""
    none = np.empty(0, np.int64), ""
    if found.size == 0:
        return none
    found, size, shape = np.sort(found), measured.source.size, measured.shape
    gaps = np.flatnonzero(np.diff(found) > _GAP)
    first, last = found[np.r_[0, gaps + 1]], found[np.r_[gaps, found.size - 1]]
    lengths = last + 1 - first
    counts = np.diff(np.r_[0, gaps + 1, found.size])
    dense = (lengths >= 4) & (counts >= 0.5 * lengths)
    if found.size < 4 and same is not None and last[-1] == size - 1:
        dense = lengths >= 1
    columns = shape[-1] if len(shape) > 1 else 0
    if counts[dense].sum() >= ENOUGH * found.size and dense.sum() <= max(64, found.size // 32):
        whole = np.concatenate([np.arange(a, b + 1) for a, b in zip(first[dense], last[dense], strict=True)])
        if dense.sum() == 1 or not columns:
            return whole, _stretch(int(first[dense][0]), int(last[dense][-1]), int(dense.sum()), whole.size, size)
    if columns > 1:
        row, column = np.divmod(found, columns)
        rows, cols = np.unique(row), np.unique(column)
        share = found.size / max(rows.size * cols.size, 1)
        contiguous = cols[-1] - cols[0] + 1 <= 1.5 * cols.size
        if share >= 0.5 and contiguous and rows.size * cols.size < 0.9 * size and cols.size < columns:
            block = (rows[:, None] * columns + np.arange(cols[0], cols[-1] + 1)).reshape(-1)
            said = "every row" if rows.size == size // columns else f"{rows.size} rows from {rows[0]} to {rows[-1]}"
            return block, f"the {block.size} elements in columns {cols[0]} to {cols[-1]} of {said}"
        if share >= 0.5 and rows.size < 0.5 * size / columns and cols.size > 0.9 * columns:
            block = (rows[:, None] * columns + np.arange(columns)).reshape(-1)
            return block, f"{rows.size} whole rows from {rows[0]} to {rows[-1]}"
    if counts[dense].sum() >= ENOUGH * found.size and dense.sum() <= max(64, found.size // 32):
        return whole, _stretch(int(first[dense][0]), int(last[dense][-1]), int(dense.sum()), whole.size, size)
    return none


def _stretch(first: int, last: int, stretches: int, count: int, size: int) -> str:
    if stretches > 1:
        return f"{count} elements in {stretches} stretches from {first} to {last}"
    if last == size - 1:
        return f"the last {count} elements"
    return f"the first {count} elements" if first == 0 else f"the {count} elements from {first} to {last}"
