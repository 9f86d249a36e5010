"""Faults that strike some x or some stretch of the buffer: recognised by where they strike and how.

The size of an error is judged against dy: an intermediate that was rounded in float32 leaves about 2**-24·|dy|, however
small the result is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aclnn.formula import Gradient
from aclnn.operators.fast_gelu import fast_gelu_gradient
from aclnn.operators.gelu import gelu_erf_gradient, gelu_tanh_gradient
from aclnn.operators.hardswish import hardswish_gradient
from aclnn.operators.silu import silu_gradient
from aclnn.verify.diagnosis.evidence import ENOUGH, SOUND_ULP, Cause, Evidence, Finding
from aclnn.verify.diagnosis.unwritten import unwritten
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import ElementwiseSource

Array = np.ndarray[Any, Any]

_FEW = 8
_WORTH_NAMING = 0.05
_WORTH_TRUSTING = 0.25
"""Faults that together leave more than three quarters of the wrong elements unexplained are a coincidence."""

_ZEROS = {
    silu_gradient: -1.27846454276,
    gelu_erf_gradient: -0.751791524694,
    gelu_tanh_gradient: -0.752461422071,
    fast_gelu_gradient: -0.751154255441,
    hardswish_gradient: -1.5,
}
"""Where each derivative crosses zero."""


def regional(evidence: Evidence, left: Array) -> list[Cause]:
    """The faults that account for the elements left, each element given to the first that fits; weightiest first."""
    count = np.count_nonzero(left)
    causes = []
    for find in (unwritten, _flush_to_zero, _overflow, _cancellation_at_zero, _one_plus_tail, _constant_beyond):
        finding = find(evidence, left)
        if finding is None:
            continue
        name, text, explained = finding
        if np.count_nonzero(explained & left) >= max(1, _WORTH_NAMING * count):
            causes.append(evidence.cause(name, text, explained & left))
            left = left & ~explained
    if sum(cause.elements for cause in causes) < _WORTH_TRUSTING * count:
        return []
    return sorted(causes, key=lambda cause: -cause.elements)


def _gradient_of(evidence: Evidence) -> Gradient | None:
    return evidence.source.gradient if isinstance(evidence.source, ElementwiseSource) else None


def _flush_to_zero(evidence: Evidence, left: Array) -> Finding | None:
    """Zero instead of a subnormal result, of a result whose slope is subnormal in float32, or of a subnormal input."""
    least = evidence.target.smallest_normal
    tiny = (np.abs(evidence.v) < least) | (np.abs(evidence.slope) < FORMATS["float32"].smallest_normal)
    zeros = left & (evidence.a == 0.0) & (evidence.g != 0.0)
    if not zeros.any() or np.count_nonzero(zeros & tiny) < ENOUGH * np.count_nonzero(zeros):
        return None
    # Results that survive although they are as small speak against it.
    survivors = (evidence.a != 0.0) & (np.abs(evidence.g) < least) & (evidence.g != 0.0)
    if np.count_nonzero(survivors) > 0.1 * np.count_nonzero(zeros & tiny):
        return None
    text = f"flush to zero: results below the smallest normal {evidence.target.name} ({least:.3g}) come out as 0"
    return "flush-to-zero", text, zeros & tiny


def _intermediates(gradient: Gradient) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    """Base-2 logarithms of what naive formulas compute on the way."""
    log2_e = float(np.log2(np.e))
    if gradient in (silu_gradient, fast_gelu_gradient):
        factor = 1.702 if gradient is fast_gelu_gradient else 1.0
        yield "exp(-x)" if factor == 1.0 else "exp(-1.702·x)", lambda x: -factor * x * log2_e
    if gradient is gelu_tanh_gradient:
        yield "exp(-2·u)", lambda x: -2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3) * log2_e
        yield "exp(2·u)", lambda x: 2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3) * log2_e
    if gradient in (gelu_erf_gradient, gelu_tanh_gradient):
        yield "x²", lambda x: 2.0 * np.log2(np.abs(x))
    if gradient is gelu_tanh_gradient:
        yield "x³", lambda x: 3.0 * np.log2(np.abs(x))


def _overflow(evidence: Evidence, left: Array) -> Finding | None:
    """Zero, NaN or infinity where an intermediate of the usual formula exceeds the largest float32 or float16."""
    gradient = _gradient_of(evidence)
    if gradient is None:
        return None
    broken = left & (~np.isfinite(evidence.a) | (evidence.a == 0.0)) & np.isfinite(evidence.x)
    count = np.count_nonzero(broken)
    if count < 1:
        return None
    for target in (FORMATS["float32"], FORMATS["float16"]):
        for what, logarithm in _intermediates(gradient):
            beyond = logarithm(evidence.x) > np.log2(target.largest)
            explained = broken & beyond
            # Past the threshold hardly anything may have come out right that is not zero anyway.
            survivors = beyond & ~left & (evidence.g != 0.0)
            if np.count_nonzero(explained) < ENOUGH * count:
                continue
            if (
                np.count_nonzero(survivors) <= 0.1 * np.count_nonzero(explained)
                or not np.isfinite(evidence.a[explained]).any()
            ):
                became = _shown(evidence, explained)
                text = f"overflow: {what} exceeds the largest {target.name}, and the result becomes {became}"
                return "overflow", text, explained
    unnatural = left & ~np.isfinite(evidence.a) & np.isfinite(evidence.g)
    if np.count_nonzero(unnatural) >= ENOUGH * count:
        return "not-finite", "NaN or infinity instead of a finite result, where nothing overflows", unnatural
    return None


def _shown(evidence: Evidence, at: Array) -> str:
    values = evidence.a[at]
    kinds = [("NaN", np.isnan(values)), ("infinite", np.isinf(values)), ("0", values == 0.0)]
    return " or ".join(name for name, where in kinds if where.any())


def _constant_beyond(evidence: Evidence, left: Array) -> Finding | None:
    """dy times one constant on one side of an x, where the gradient is not constant."""
    if _gradient_of(evidence) is None:
        return None
    usable = left & np.isfinite(evidence.a) & (evidence.dy != 0.0) & np.isfinite(evidence.x)
    seen = np.where(usable, evidence.a / evidence.dy, np.nan)
    for side in (1.0, -1.0):
        here = usable & (side * evidence.x > 0.0)
        if np.count_nonzero(here) < _FEW:
            continue
        # The outermost wrong elements show the constant best: near the edge dy's own flaws may mix in.
        constant = float(np.median(seen[here]))
        allowed = 4.0 * evidence.target.ulp(np.full(1, constant))[0]
        alike = here & (np.abs(seen - constant) <= allowed)
        if np.count_nonzero(alike) < max(_FEW, 0.5 * np.count_nonzero(here)):
            continue
        edge = float(np.quantile(side * evidence.x[alike], 0.001))
        beyond = (side * evidence.x >= edge) & (evidence.dy != 0.0) & np.isfinite(evidence.a)
        predicted = evidence.near(evidence.dy * constant, allowed * np.abs(evidence.dy))
        if np.count_nonzero(predicted & beyond) < 0.95 * np.count_nonzero(beyond):
            continue
        sign = ">" if side > 0 else "<"
        text = f"constant {constant:.4g} instead of the gradient for x {sign} {side * edge:.5g}"
        return "constant-at-edge", text, alike
    return None


def _levels(target: NumberFormat) -> Iterator[tuple[str, float]]:
    """Errors relative to dy that a sum near 1, or near the cancelling terms, leaves when it is kept in a type."""
    yield "float32", 2.0**-20
    if target.name != "float32":
        yield target.name, 4.0 * 2.0**-target.digits


def _absolute_error_only(evidence: Evidence, region: Array) -> tuple[str, Array] | None:
    """The narrowest type whose rounding explains (nearly) all errors of a region; and the elements it explains."""
    count = np.count_nonzero(region)
    if count == 0:
        return None
    error = np.abs(evidence.a - evidence.v)
    # What cancels leaves errors of any number of units; about one everywhere is something else.
    large = error > 2.0 * SOUND_ULP[evidence.target.name] * evidence.ulp
    if np.count_nonzero(large & region) < 0.25 * count:
        return None
    for name, level in _levels(evidence.target):
        explained = region & (error <= level * np.abs(evidence.dy) + evidence.ulp)
        if np.count_nonzero(explained) >= ENOUGH * count:
            return name, explained
    return None


def _cancellation_at_zero(evidence: Evidence, left: Array) -> Finding | None:
    gradient = _gradient_of(evidence)
    if gradient not in _ZEROS:
        return None
    zero = _ZEROS[gradient]
    found = _absolute_error_only(evidence, left & (np.abs(evidence.x - zero) < 0.3))
    if found is None:
        return None
    text = (
        f"cancellation at the derivative's zero (x = {zero:.6f}): terms that cancel there were rounded in {found[0]}, "
        "so that the difference has few digits left"
    )
    return "cancellation-at-zero", text, found[1]


def _one_plus_tail(evidence: Evidence, left: Array) -> Finding | None:
    gradient = _gradient_of(evidence)
    if gradient not in (gelu_erf_gradient, gelu_tanh_gradient):
        return None
    found = _absolute_error_only(evidence, left & (evidence.x < -1.0))
    if found is None:
        return None
    what = "1 + erf(x/√2)" if gradient is gelu_erf_gradient else "1 + tanh(u)"
    text = f"{what} cancels in the negative tail when kept in {found[0]} (use erfc, or a form without the 1 +)"
    return "one-plus-erf", text, found[1]
