"""Every precision standard of the Ascend ecosystem, each a pure function of (actual, golden, third).

A standard measures blocks and assesses the merged measurements, so a dump may exceed memory. MARE and MERE are the
maximum and the mean of RE, RMSE is √mean((a - g)²), and ULP is a unit in the last place of g.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aclnn.typing import Array
from aclnn.verify.number_formats import NumberFormat
from aclnn.verify.standards.measures import (
    Block,
    Figure,
    Outcome,
    Standard,
    Tally,
    Verdict,
    absolute_error,
    agree,
    mean,
    outcome_of,
    relative_error,
    tally_of,
)

MIXED_LIMITS = {
    "float16": (2.0**-9, 2.0**-9, max(0.1, 32 * 2.0**-10)),
    "bfloat16": (2.0**-6, 2.0**-6, max(1.0, 32 * 2.0**-7)),
    "float32": (2.0**-10, 2.0**-16, max(0.01, 32 * 2.0**-23)),
}
"""rtol, atol and the limit of max|a - g|."""


def mixed_tolerance(g: Array, target: NumberFormat) -> Array:
    """Return atol + rtol·|g|: the largest error of a matching element."""
    rtol, atol, _ = MIXED_LIMITS[target.name]
    tolerance: Array = atol + rtol * np.where(np.isfinite(g), np.abs(g), 0.0)
    return tolerance


def matching_tolerance(g: Array, target: NumberFormat) -> Array:
    """Return the largest error of an element that matches: mixed's, or in a type without that, of a sound result."""
    return mixed_tolerance(g, target) if target.name in MIXED_LIMITS else target.sound_ulp * target.ulp(g)


def _measure_mixed(block: Block) -> Tally:
    excess = block.error / mixed_tolerance(block.g, block.target)
    failing = excess > 1.0
    worst = float(block.error.max(initial=0.0))
    return tally_of(block, failing, excess, {"matched": float(np.count_nonzero(~failing))}, {"max error": worst})


def _assess_mixed(tally: Tally, target: NumberFormat) -> Outcome:
    return outcome_of(
        tally,
        Figure("matched fraction", mean(tally, "matched", 1.0), ">=", 0.99),
        Figure("max |a - g|", tally.maxima["max error"], "<=", MIXED_LIMITS[target.name][2]),
    )


MERE_LIMITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-13}
"""T: MERE must be below T, MARE below 10·T."""


def _measure_relative(block: Block) -> Tally:
    relative = block.relative
    failing = relative >= 10.0 * MERE_LIMITS[block.target.name]
    return tally_of(block, failing, relative, {"RE": float(relative.sum())}, {"RE": float(relative.max(initial=0.0))})


def _assess_relative(tally: Tally, target: NumberFormat) -> Outcome:
    limit = MERE_LIMITS[target.name]
    return outcome_of(
        tally, Figure("MERE", mean(tally, "RE"), "<", limit), Figure("MARE", tally.maxima["RE"], "<", 10.0 * limit)
    )


COMMERCIAL_LIMITS = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}
"""Limits of the ratios test / third of MARE, MERE and RMSE."""
SMALL_VALUES = {"float16": (2.0**-11, 2.0**-16), "bfloat16": (2.0**-8, 2.0**-16), "float32": (2.0**-14, 2.0**-30)}
"""Values below the first number count as small; their absolute error may be up to the second."""


def ratio(test: float, third: float) -> float:
    """Return test / third; 0 if the test has no error, infinite if only the third has none."""
    if test == 0.0:
        return 0.0
    return test / third if third else math.inf


def _measure_dual(block: Block) -> Tally:
    a, g, p = block.a, block.g, block.p
    finite = np.isfinite(a) & np.isfinite(g) & np.isfinite(p)
    wrong = _wrong_non_finite(a, g, p, finite)
    small_below, small_error = SMALL_VALUES[block.target.name]
    small = finite & (np.abs(g) < small_below)
    sums, maxima = {"wrong non-finite": float(np.count_nonzero(wrong))}, {}
    for name, values in (("test", a), ("third", p)):
        error = np.where(finite, absolute_error(values, g), 0.0)
        relative = relative_error(error, g)
        sums[f"RE {name}"], maxima[f"RE {name}"] = float(relative.sum()), float(relative.max(initial=0.0))
        sums[f"squares {name}"] = float(np.square(error).sum())
        sums[f"small {name}"] = float(np.count_nonzero(small & (error > small_error)))
    severity = np.where(wrong, np.inf, np.where(finite, block.relative, 0.0))
    beyond = severity >= 10.0 * MERE_LIMITS[block.target.name]
    return tally_of(block, beyond, severity, sums, maxima)


def _wrong_non_finite(a: Array, g: Array, p: Array, finite: Array) -> Array:
    """Mark where the golden is non-finite, the third agrees and the test does not, or only the test is non-finite."""
    golden_non_finite = ~np.isfinite(g)
    fine = agree(a, p) | (golden_non_finite & agree(a, g))
    missed = golden_non_finite & agree(p, g)
    invented = ~golden_non_finite & ~np.isfinite(a)
    wrong: Array = ~finite & ~fine & (missed | invented)
    return wrong


def error_ratios(tally: Tally) -> dict[str, float]:
    """Return the three ratios test / third of a dual-benchmark tally."""
    return {
        "MARE ratio": ratio(tally.maxima["RE test"], tally.maxima["RE third"]),
        "MERE ratio": ratio(mean(tally, "RE test"), mean(tally, "RE third")),
        "RMSE ratio": ratio(math.sqrt(mean(tally, "squares test")), math.sqrt(mean(tally, "squares third"))),
    }


def _assess_dual(level: str) -> Callable[[Tally, NumberFormat], Outcome]:
    def assess(tally: Tally, target: NumberFormat) -> Outcome:
        limits = zip(error_ratios(tally).items(), COMMERCIAL_LIMITS[level], strict=True)
        small = tally.sums["small test"] / max(tally.sums["small third"], 1.0)
        return outcome_of(
            tally,
            *(Figure(name, value, "<=", limit) for (name, value), limit in limits),
            Figure("small-value ratio", small, "<=", 2.0),
            Figure("wrong non-finite", tally.sums["wrong non-finite"], "<=", 0.0),
        )

    return assess


CANCELLATION_BELOW = {"float32": 2.0**-8, "float16": 2.0**-5, "bfloat16": 2.0**-3}
_CLASSES = ("small", "cancellation", "normal")


def _measure_classified(block: Block) -> Tally:
    largest = block.target.largest
    golden = np.clip(block.g, -largest, largest)
    limit = 10.0 * MERE_LIMITS[block.target.name]
    magnitude = np.abs(golden)
    small_below, cancelled_below = SMALL_VALUES[block.target.name][0], CANCELLATION_BELOW[block.target.name]
    classes = np.where(magnitude < small_below, 0, np.where(magnitude < cancelled_below, 1, 2))
    sums: dict[str, float] = {}

    def relative_of(values: Array) -> Array:
        return relative_error(absolute_error(np.clip(values, -largest, largest), golden), golden)

    def count(name: str, relative: Array) -> None:
        beyond = np.bincount(classes[(relative > limit) & ~np.isnan(block.g)], minlength=3)
        sums.update({f"{kind} {name}": float(beyond[k]) for k, kind in enumerate(_CLASSES)})

    one_sided_nan = np.isnan(block.a) != np.isnan(block.g)
    relative = np.where(one_sided_nan, np.inf, relative_of(block.a))
    count("test", np.where(one_sided_nan, 0.0, relative))
    if block.third is not None:
        count("native", relative_of(block.p))
    sums |= {"RE": float(relative.sum()), "one-sided NaN": float(np.count_nonzero(one_sided_nan))}
    return tally_of(block, relative > limit, relative, sums, {"RE": float(relative.max(initial=0.0))})


def _assess_classified(tally: Tally, target: NumberFormat) -> Outcome:
    nan = Figure("one-sided NaN", tally.sums["one-sided NaN"], "<=", 0.0)
    quick = _assess_relative(tally, target)
    if not nan.holds:
        return outcome_of(tally, nan)
    if quick.verdict is Verdict.PASS:
        return outcome_of(tally, nan, *quick.figures)
    compared = "normal native" in tally.sums
    figures = [nan]
    for kind in _CLASSES:
        native = tally.sums.get(f"{kind} native", 0.0)
        value = tally.sums[f"{kind} test"]
        if kind == "normal" and native == 0.0:
            figures.append(Figure("normal points beyond 10·T", value, "<=", 0.0))
        else:
            figures.append(Figure(f"{kind} points, ratio to native", value / max(native, 1.0), "<=", 2.0))
    outcome = outcome_of(tally, *figures)
    if outcome.verdict is Verdict.FAIL and not compared:
        reason = "needs a native reference in the same type (--reference) to compare the points beyond 10·T with"
        return Outcome(Verdict.UNDECIDED, outcome.figures, tally.first, tally.worst, reason)
    return outcome


CLOSE_LIMITS = {"float16": (1e-3, 1e-3), "bfloat16": (1e-3, 1e-3), "float32": (1e-4, 1e-4)}
"""Relative tolerance of an element (the absolute one is 1e-8), and the fraction of elements that may exceed it."""


def _measure_close(block: Block) -> Tally:
    magnitude = np.where(np.isfinite(block.g), np.abs(block.g), 0.0)
    excess = block.error / (1e-8 + CLOSE_LIMITS[block.target.name][0] * magnitude)
    failing = excess > 1.0
    return tally_of(block, failing, excess, {"failing": float(np.count_nonzero(failing))})


def _assess_close(tally: Tally, target: NumberFormat) -> Outcome:
    return outcome_of(tally, Figure("failing fraction", mean(tally, "failing"), "<=", CLOSE_LIMITS[target.name][1]))


MSPROBE_DIGITS = {"float16": (2, 3), "bfloat16": (2, 3), "float32": (3, 4)}
"""k for which failing "double 10^-k" is an error, and k for which it is a warning."""


def _measure_single(block: Block) -> Tally:
    finite = np.isfinite(block.a) & np.isfinite(block.g)
    a, g = np.where(finite, block.a, 0.0), np.where(finite, block.g, 0.0)
    # Not a @ g: BLAS would start its own threads in addition to those that measure blocks.
    sums = {name: float(np.einsum("i,i", *pair)) for name, pair in (("aa", (a, a)), ("gg", (g, g)), ("ag", (a, g)))}
    for k in MSPROBE_DIGITS[block.target.name]:
        sums[f"beyond {k}"] = float(np.count_nonzero(block.relative > 10.0**-k))
    failing = block.error >= 1e-3
    return tally_of(block, failing, block.error, sums, {"error": float(block.error.max(initial=0.0))})


def cosine(tally: Tally) -> float:
    """Cosine similarity; 1 for two zero vectors, 0 for one."""
    norms = math.sqrt(tally.sums["aa"]) * math.sqrt(tally.sums["gg"])
    if norms == 0.0:
        return 1.0 if tally.sums["aa"] == tally.sums["gg"] else 0.0
    return min(1.0, tally.sums["ag"] / norms)


def _assess_single(tally: Tally, target: NumberFormat) -> Outcome:
    similarity = Figure("cosine similarity", cosine(tally), ">", 0.99)
    absolute = Figure("max |a - g|", tally.maxima["error"], "<", 1e-3)
    error_k, warning_k = MSPROBE_DIGITS[target.name]
    error, warning = (
        Figure(f"fraction with RE > 1e-{k}", mean(tally, f"beyond {k}"), "<", 10.0**-k) for k in (error_k, warning_k)
    )
    figures = (similarity, absolute, error, warning)
    if not similarity.holds:
        verdict = Verdict.FAIL
    elif absolute.holds or (error.holds and warning.holds):
        verdict = Verdict.PASS
    else:
        verdict = Verdict.WARNING if error.holds else Verdict.FAIL
    return Outcome(verdict, figures, tally.first, tally.worst)


def _measure_ulp(block: Block) -> Tally:
    ulps = block.error / block.target.ulp(block.g)
    sums = {"ulps": float(ulps.sum())}
    sums |= {f"beyond {k}": float(np.count_nonzero(ulps > k)) for k in (1, 32)}
    return tally_of(block, ulps > (32 if block.target.name == "float32" else 1), ulps, sums)


def _assess_ulp(tally: Tally, target: NumberFormat) -> Outcome:
    if target.name != "float32":
        return outcome_of(tally, Figure("fraction beyond 1 ULP", mean(tally, "beyond 1"), "<", 0.001))
    figures = (
        Figure("mean ULP", mean(tally, "ulps"), "<", 64.0),
        Figure("fraction beyond 32 ULP", mean(tally, "beyond 32"), "<", 0.05),
    )
    verdict = Verdict.PASS if any(figure.holds for figure in figures) else Verdict.FAIL
    return Outcome(verdict, figures, tally.first, tally.worst, "either of the two suffices")


def _measure_bitwise(block: Block) -> Tally:
    bits = block.target.bits
    differ = (bits(block.actual) != bits(block.golden)) & ~(np.isnan(block.a) & np.isnan(block.g))
    severity = np.where(differ, block.error / block.target.ulp(block.g), -1.0)
    return tally_of(block, differ, severity, {"differing": float(np.count_nonzero(differ))})


def _assess_bitwise(tally: Tally, target: NumberFormat) -> Outcome:
    return outcome_of(tally, Figure("differing elements", tally.sums["differing"], "<=", 0.0))


_COMMERCIAL = "CANN commercial standard, dual benchmark"

STANDARDS: dict[str, Standard] = {
    standard.name: standard
    for standard in (
        Standard("mixed", "CANN ecosystem standard, 2026-07-15", _measure_mixed, _assess_mixed),
        Standard("mere-mare", "CANN ecosystem standard, earlier and English", _measure_relative, _assess_relative),
        Standard("commercial-L0", _COMMERCIAL, _measure_dual, _assess_dual("L0"), needs_third=True),
        Standard("commercial-L1", _COMMERCIAL, _measure_dual, _assess_dual("L1"), needs_third=True),
        Standard("commercial-L2", _COMMERCIAL, _measure_dual, _assess_dual("L2"), needs_third=True),
        Standard("classified", "cann-bench", _measure_classified, _assess_classified),
        Standard("close", "double thousandth", _measure_close, _assess_close),
        Standard("msprobe-single", "msprobe, single benchmark", _measure_single, _assess_single),
        Standard(
            "msprobe-ulp", "msprobe, ULP", _measure_ulp, _assess_ulp, applies=lambda target: target.sound_ulp > 0.0
        ),
        Standard("bitwise", "equal bit for bit", _measure_bitwise, _assess_bitwise, applies=lambda target: True),
    )
}
"""Standards by name, in the order of reports."""


def deciding(target: NumberFormat) -> Standard:
    """Return the standard that decides by default: mixed, or the first that has limits for the format."""
    return next(standard for standard in STANDARDS.values() if standard.applies(target))
