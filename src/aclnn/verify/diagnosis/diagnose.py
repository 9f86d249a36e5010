"""Search for the causes of a wrong output: outright faults of some elements first, then rounding for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from aclnn.typing import Array
from aclnn.verify.diagnosis import local, sums
from aclnn.verify.diagnosis.calls import otherwise_called
from aclnn.verify.diagnosis.evidence import ENOUGH, FEW, Cause, Evidence, Finding, Hypothesis, sample_of
from aclnn.verify.diagnosis.formulas import cut_to, hypotheses
from aclnn.verify.diagnosis.layouts import layouts
from aclnn.verify.goldens.rows import Rows, evenly
from aclnn.verify.goldens.values import BLOCK_ELEMENTS, Progress, map_blocks
from aclnn.verify.number_formats import FORMATS, NumberFormat, quiet
from aclnn.verify.standards.evaluate import Measured
from aclnn.verify.standards.measures import agree

_SEARCHED = 3072
_SEARCHED_ROWS = 1 << 15
"""Elements of the rows that form the searched sample."""
_LAST = frozenset({"flush-to-zero", "cancellation", "one-plus-erf"})
"""Causes stated after outright faults, however many elements they explain."""
_PROBED = 8
"""A sufficient hypothesis must predict half of this many elements, and be distinguishable on as many."""
_CLOSE_ENOUGH = 0.4
"""Mean distance, in tolerances, below which no better fit is searched for."""


@quiet
def diagnose(measured: Measured, progress: Progress | None = None) -> list[Cause]:
    """Return the probable causes of an output's errors, with their shares; "unknown" for unexplained errors.

    A large output is searched in a sample; the causes' shares are then counted on all elements.
    """
    if not measured.source.size:
        return []
    e = sample_of(measured)
    if not e.wrong.any():
        found = list(_directions(e)) if not measured.wrong_count else []
        return [_rounding(e, one) for one in found]
    findings: list[Finding] = []
    left = e.wrong.copy()

    def take(found: Iterable[Finding]) -> bool:
        nonlocal left
        for one in found:
            explained = one.explains(e) & left
            if explained.any():
                findings.append(one)
                left = left & ~explained
                return True
        return False

    def outliers() -> Array:
        found: Array = left & e.outliers
        return found

    take(local.in_reverse(e))
    take(local.flushed(e))
    take(local.not_finite(e, left))
    take(local.edges(e, left))
    take(sums.narrow_sums(e, outliers()))
    take(local.unwritten(e, measured, outliers()))
    if np.count_nonzero(outliers()) <= max(FEW, e.a.size // 100):
        take(local.flipped(e, outliers()))
    if outliers().any() or left.any():
        struck = outliers() if outliers().any() else left
        take(_best(e, struck, left))
    if outliers().any():
        take(local.beyond(e, outliers()))
        take(_narrow(e, outliers()))

        def explained(index: Array) -> Array:
            @quiet
            def known(begin: int, end: int) -> Array:
                part = Evidence(measured.source, index[begin:end], certain=False)
                return np.asarray(np.logical_or.reduce([~part.outliers, *(one.explains(part) for one in findings)]))

            return np.concatenate([np.empty(0, bool), *map_blocks(known, index.size, BLOCK_ELEMENTS)])

        take(local.stale(e, measured, outliers(), explained))
    unknown = np.count_nonzero(outliers()) > 0.1 * np.count_nonzero(e.outliers)
    if left.any():
        take(_cancelled(e, left & ~e.outliers))
    causes = _counted(measured, e, findings, progress)
    if unknown or np.count_nonzero(left) > 0.1 * np.count_nonzero(e.wrong):
        struck = outliers() if outliers().any() else left
        share = max(0.0, 1.0 - sum(cause.share for cause in causes))
        cause = Cause(
            "unknown",
            f"no known fault explains {facts(e, struck, measured)}",
            "",
            round(share * measured.wrong_count),
            share,
        )
        causes = [cause, *causes] if outliers().any() else [*causes, cause]
    return causes


def _best(e: Evidence, struck: Array, left: Array) -> Iterator[Finding]:
    """Yield the hypothesis that fits the struck elements, and the correct ones, best.

    With only a few distinct x, formulas and constants cannot be told apart better than by chance.
    """
    if np.unique(e.x[struck]).size < 4:
        return
    chosen, near = np.zeros(e.a.size, bool), np.ones(e.a.size, bool)
    most = _SEARCHED
    if isinstance(e.source.whole, Rows):
        near = e.source.whole.near(e.at, struck, _SEARCHED_ROWS)
    if sums.is_of_sums(e.source):
        most = sums.searched_columns(e.source)
    for among, count in ((struck, most), (~e.wrong, most // 3)):
        chosen[evenly(np.flatnonzero(among & near), count)] = True
    if not chosen.any():
        return
    searched = e.some(chosen)
    target = struck[chosen]
    probed = np.zeros(target.size, bool)
    probed[evenly(np.flatnonzero(target), _PROBED)] = True
    probe = searched.some(probed)
    found: tuple[float, Hypothesis] | None = None
    for one in _all(e, searched, target):
        if not one.exact and (np.mean(fits := probe.fits(one)) < 0.5 or not (fits & probe.distinguishable(one)).any()):
            continue
        score = _score(searched, target, one)
        if score is not None and (found is None or score < 0.8 * found[0]):
            found = score, one
            if score <= _CLOSE_ENOUGH and one.name != "scaled":
                break
    if found is not None:
        one = found[1]
        yield Finding(
            one.name,
            one.text,
            _TESTS.get(one.name, "results that differ from those predicted"),
            lambda e: e.fits(one),
            one.structural,
        )


_TESTS = {
    "moved-data": "one element that is where its index says",
    "scaled": "a ratio to the exact result that varies",
    "sign": "one element with the right sign",
}


def _all(e: Evidence, searched: Evidence, struck: Array) -> Iterator[Hypothesis]:
    if sums.is_of_sums(e.source):
        yield from sums.hypotheses(searched)
    yield from hypotheses(e, searched, struck)
    if not e.source.is_enclosed:
        yield from otherwise_called(e.source)
    yield from layouts(e, searched, struck)


def _score(searched: Evidence, struck: Array, one: Hypothesis) -> float | None:
    """Return the mean distance from a hypothesis's prediction, in tolerances; None if elements refute it."""
    fits, decisive = searched.fits(one), searched.distinguishable(one)
    if one.exact:
        differing = searched.differing
        if np.count_nonzero(decisive) < min(FEW, int(np.count_nonzero(differing))) or np.mean(fits) < 0.95:
            return None
        if np.count_nonzero(fits & differing) < ENOUGH * np.count_nonzero(differing):
            return None
        return 1.0 - float(np.mean(fits))
    count = np.count_nonzero(struck)
    if count < 3 or np.count_nonzero(fits & struck) < ENOUGH * count:
        return None
    if np.count_nonzero(fits & decisive & struck) < max(1, 0.4 * count):
        return None
    if np.count_nonzero(fits & decisive) < ENOUGH * np.count_nonzero(decisive):
        return None
    if np.count_nonzero(fits & ~struck) < ENOUGH * np.count_nonzero(~struck):
        return None
    prediction = searched.predicted(one)
    allowed = 2.0 * searched.target.ulp(prediction) + 2.0**-21 * searched.size
    distance = np.minimum(np.abs(searched.a - prediction) / allowed, 4.0)
    return float(
        np.mean(
            np.where(
                agree(searched.a, searched.target.round(prediction).astype(np.float64)),
                0.0,
                np.nan_to_num(distance, nan=4.0),
            )
        )
    )


def _narrow(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find arithmetic in a 16-bit type: results without further digits, or errors of a few of its units."""
    for kind in (FORMATS["bfloat16"], FORMATS["float16"]):
        finite = np.isfinite(e.a) & (e.a != 0.0)
        if kind.digits < e.target.digits:
            short = kind.round(e.a).astype(np.float64) == e.a
            exact = kind.round(e.g).astype(np.float64) == e.g
            if np.count_nonzero(finite) >= FEW and short[finite].mean() > 0.99 and exact[finite].mean() < 0.5:
                yield Finding(
                    "narrow-computation",
                    f"computed in {kind.name}: no result has more digits",
                    f"a result with more digits than {kind.name} has",
                    lambda e: e.wrong,
                    structural=False,
                )
                return
            level = 24.0 * 2.0**-kind.digits
            if e.a.size < 256 or np.count_nonzero(e.outliers) < 0.5 * e.a.size:
                continue
        elif kind is not e.target:
            continue
        else:
            level = 16.0 * 2.0**-kind.digits
        many = np.count_nonzero(struck) >= max(FEW, 0.01 * e.a.size)
        explained = e.error <= level * e.size + e.ulp
        if (
            many
            and np.count_nonzero(explained & struck) >= 0.98 * np.count_nonzero(struck)
            and _unbiased(e, struck)
            and _of_its_units(e, struck, kind)
        ):
            yield Finding(
                "narrow-computation",
                f"computed in {kind.name}: all errors are within a few of its units",
                f"an error beyond {level:.2g} of the terms, or errors of one sign",
                lambda e, level=level: e.error <= level * e.size + e.ulp,
                structural=False,
            )
            return


def _unbiased(e: Evidence, struck: Array) -> bool:
    """Return True if errors have both signs, as rounding errors do."""
    signs = np.sign((e.a - e.v) * np.sign(e.v))[struck & np.isfinite(e.a)]
    return bool(signs.size < FEW or abs(signs.mean()) < 0.8)


def _of_its_units(e: Evidence, struck: Array, kind: NumberFormat) -> bool:
    """Return True if errors have the size of several roundings, not only a far smaller one."""
    return bool(np.median((e.error / e.size)[struck]) >= 2.0 ** (-kind.digits - 2))


def _cancelled(e: Evidence, struck: Array) -> Iterator[Finding]:
    """Find cancellation: terms rounded in float32 that are large compared with the result."""
    if not struck.any():
        return
    low, high = np.quantile(e.x[struck], (0.02, 0.98))
    times = float(np.median(e.size[struck] / np.maximum(np.abs(e.v[struck]), 1e-300)))
    operator = e.source.case.operator.name
    one_plus = "gelu" in operator and "fast" not in operator and np.median(e.x[struck]) < -1.0
    name = "one-plus-erf" if one_plus else "cancellation"
    hint = "; 1 + erf or 1 + tanh in the negative tail does that" if one_plus else ""
    text = (
        f"terms about {times:.2g} times the result were rounded in float32 and "
        f"cancel, for x from {low:.5g} to {high:.5g}{hint}"
    )
    yield Finding(
        name,
        text,
        "an error beyond 16 units of float32 at the size of the terms",
        lambda e: e.wrong & ~e.outliers,
        structural=False,
    )


def _directions(e: Evidence) -> Iterator[Finding]:
    """Find another rounding direction of the result."""
    target, v = e.target, e.v
    finite = np.isfinite(e.g) & np.isfinite(e.a)
    short = cut_to(target, v)
    long = np.where(short == v, v, short + np.copysign(target.ulp(v), v))
    tie = (short != v) & (np.abs(v - short) == np.abs(long - v))
    choices = {
        "toward zero": short, "away from zero": long, "toward +inf": np.where(v > 0, long, short),
        "toward -inf": np.where(v > 0, short, long), "to nearest, ties away from zero": np.where(tie, long, e.g),
        "to nearest, ties toward zero": np.where(tie, short, e.g),
    }  # fmt: skip
    for direction, values in choices.items():
        decisive = finite & (values != e.g)
        right = np.count_nonzero(decisive & (e.a == values)) >= 0.98 * np.count_nonzero(decisive)
        if (
            np.count_nonzero(decisive) >= FEW
            and right
            and np.count_nonzero(finite & (e.a == values)) >= 0.98 * np.count_nonzero(finite)
        ):
            yield Finding(
                "rounding",
                f"results are rounded {direction} instead of to nearest, ties to even",
                "results rounded to the other neighbour",
                lambda e: e.differing,
                structural=False,
            )
            return


def _rounding(e: Evidence, one: Finding) -> Cause:
    count = int(np.count_nonzero(e.differing))
    return Cause(one.name, one.text, one.test, count, 1.0)


def _counted(measured: Measured, e: Evidence, findings: list[Finding], progress: Progress | None) -> list[Cause]:
    """Return the causes with their shares of all wrong elements; the first explanation of an element counts."""
    source = measured.source
    counts = np.zeros(len(findings), np.int64)

    def count(part: Evidence, wrong: Array) -> Array:
        left, found = wrong.copy(), np.zeros(len(findings), np.int64)
        for k, one in enumerate(findings):
            if not left.any():
                break
            explained = left & one.explains(part)
            found[k] = np.count_nonzero(explained)
            left &= ~explained
        return found

    if e.a.size == source.size:
        counts, total = count(e, e.wrong), int(np.count_nonzero(e.wrong))
    else:
        wrong, step = measured.wrong_mask(), source.whole.step

        @quiet
        def block(begin: int, end: int) -> Array:
            part = Evidence(source, source.whole.row_by_row(slice(begin, end)), certain=False)
            here = wrong[part.places]
            if np.count_nonzero(here) > here.size // 2:  # whole rows cost less than most elements of each
                return count(part, here)
            found = part.at[here]
            return count(Evidence(source, found, certain=False), np.ones(found.size, bool))

        total = int(np.count_nonzero(wrong))
        for number, found in enumerate(map_blocks(block, source.size, step), 1):
            counts = counts + found
            if progress is not None:
                progress(min(1.0, number * step / source.size))
    scale = max(total, 1)
    shares = [
        Cause(one.name, one.text, one.test, int(c), int(c) / scale, one.structural)
        for one, c in zip(findings, counts, strict=True)
        if c
    ]
    return sorted(shares, key=lambda cause: (cause.name in _LAST, -cause.elements))


def facts(e: Evidence, struck: Array, measured: Measured) -> str:
    """Describe an unknown cause: location of the elements, their operands, and how they differ."""
    index = e.at[struck]
    parts = [f"{index.size} of {e.a.size} elements looked at"]
    for name, values in e.operands.items():
        low, high = (float(q) for q in np.nanquantile(values[struck], (0.0, 1.0)))
        every_low, every_high = (float(q) for q in np.nanquantile(values, (0.0, 1.0)))
        within = "" if (low, high) == (every_low, every_high) else f" (of {every_low:.4g} to {every_high:.4g})"
        parts.append(f"{name} from {low:.4g} to {high:.4g}{within}")
    if len(measured.shape) > 1:
        columns = measured.shape[-1]
        row, column = np.divmod(index, columns)
        parts.append(f"rows {row.min()} to {row.max()}, columns {column.min()} to {column.max()}")
    parts.append(f"indices {index.min()} to {index.max()}")
    with np.errstate(all="ignore"):
        ratios = (e.a / e.v)[struck]
    ratios = ratios[np.isfinite(ratios)]
    if ratios.size:
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        parts.append(f"ratio to the exact result {middle:.4g} ({low:.4g} to {high:.4g} for 80 %)")
    return "; ".join(parts)
