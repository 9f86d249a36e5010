"""Faults that move (nearly) every element: recognised by computing what they would give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from aclnn.formula import Gradient
from aclnn.operators.fast_gelu import fast_gelu, fast_gelu_gradient
from aclnn.operators.gelu import TANH, gelu_erf_gradient, gelu_tanh_gradient, gelu_v2
from aclnn.operators.hardswish import hardswish, hardswish_gradient
from aclnn.operators.silu import silu, silu_gradient
from aclnn.verify.diagnosis.evidence import ENOUGH, SOUND_ULP, Cause, Evidence
from aclnn.verify.diagnosis.norm_operations import norm_operations
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import NumberFormat
from aclnn.verify.standards.evaluate import ElementwiseSource, NormSumSource
from aclnn.verify.standards.measures import agree

Array = np.ndarray[Any, Any]

_FEW = 16


def constant_output(evidence: Evidence) -> Cause | None:
    """(Nearly) the whole output is one number."""
    usual = np.sort(evidence.a)[evidence.a.size // 2]
    same = agree(evidence.a, usual)
    if evidence.a.size < _FEW or np.count_nonzero(same) < 0.98 * evidence.a.size:
        return None
    if np.count_nonzero(same & evidence.wrong) < ENOUGH * evidence.wrong_count:
        return None
    return evidence.cause("constant", f"the whole output is {'NaN' if np.isnan(usual) else format(usual, 'g')}", same)


def edge_rule(evidence: Evidence) -> Cause | None:
    """Hardswish whose middle branch ends before x = ±3."""
    if evidence.source.case.operator.name != "hardswish_backward":
        return None
    exclusive = np.where(evidence.x > 0, evidence.dy, 0.0 * evidence.dy)
    explained = evidence.wrong & (np.abs(evidence.x) == 3.0) & (evidence.a == exclusive)
    if np.count_nonzero(explained) < ENOUGH * evidence.wrong_count:
        return None
    text = "x = ±3 is treated as outside (slope 0 or 1); the middle branch includes both: slope -0.5 at -3, 1.5 at 3"
    return evidence.cause("hardswish-edge", text, explained)


def other_mode(evidence: Evidence) -> Cause | None:
    """GELU's gradient in the mode that was not asked for."""
    source = evidence.source
    other = {
        gelu_erf_gradient: (gelu_tanh_gradient, "none", "tanh"),
        gelu_tanh_gradient: (gelu_erf_gradient, "tanh", "none"),
    }
    if not isinstance(source, ElementwiseSource) or source.gradient not in other:
        return None
    gradient, asked, used = other[source.gradient]
    prediction = Function(gradient).golden([*evidence.elements.inputs.values()], evidence.target).value
    distance = np.abs(prediction - evidence.v)
    # The implementation may have flaws of its own, which are much smaller than what lies between the modes.
    apart = distance > 4.0 * SOUND_ULP[evidence.target.name] * evidence.ulp + 2.0**-18 * np.abs(evidence.dy)
    fits = evidence.near(prediction, 0.05 * distance)
    if np.count_nonzero(apart) < _FEW or np.count_nonzero(fits & apart) < ENOUGH * np.count_nonzero(apart):
        return None
    cause = evidence.cause("wrong-mode", f'computed with approximate "{used}" although "{asked}" was asked for', fits)
    return replace(cause, structural=True)  # the modes differ by less than a gross error


_SHIFTS = 1 << 15
_PROBES = 24


def moved_data(evidence: Evidence) -> Cause | None:
    """The result, or one input of an activation alone, transposed or shifted."""
    if isinstance(evidence.source, NormSumSource) or evidence.wrong_count < max(_FEW, evidence.a.size // 4):
        return None
    ones = np.ones(evidence.a.size)
    parts = [("the result", ones, evidence.v)]
    if isinstance(evidence.source, ElementwiseSource) and evidence.source.gradient is not None:
        parts += [("self alone", evidence.dy, evidence.slope), ("grad_output alone", evidence.slope, evidence.dy)]
    for what, fixed, moving in parts:
        for how, moved in _movements(evidence, fixed, moving):
            prediction = fixed * moved
            # The implementation's own noise is much smaller than what the move changes.
            extra = 0.05 * np.abs(prediction - evidence.v)
            cause = evidence.if_predicted("moved-data", f"{what} is {how}", prediction, extra)
            if cause is not None:
                return cause
    return None


def _movements(evidence: Evidence, fixed: Array, moving: Array) -> Iterator[tuple[str, Array]]:
    shape = evidence.source.shape
    if evidence.whole and len(shape) >= 2 and min(shape[-2:]) > 1:
        yield "transposed (last two dimensions)", moving.reshape((-1, *shape[-2:])).swapaxes(1, 2).reshape(-1)
        yield "transposed (columns read as rows)", _columns_as_rows(moving, shape)
    shift = _shift(evidence, fixed, moving)
    if shift:
        yield f"shifted by {shift} elements", np.roll(moving, shift)


def _columns_as_rows(array: Array, shape: tuple[int, ...]) -> Array:
    turned: Array = array.reshape((-1, shape[-1], shape[-2])).swapaxes(1, 2).reshape(-1)
    return turned


def _shift(evidence: Evidence, fixed: Array, moving: Array) -> int | None:
    """The smallest k with output[i] = fixed[i]·moving[i - k] at most of a few places; None when too many k fit."""
    size = evidence.a.size
    reach = min(_SHIFTS, size // 2)
    candidates = np.arange(-reach, reach + 1)
    # Large results tell best: small ones may be spoilt by the implementation's own cancellation.
    magnitude = np.nan_to_num(np.abs(evidence.a))
    large = magnitude >= np.median(magnitude[evidence.wrong])
    wrong = np.flatnonzero(evidence.wrong & large)
    places = wrong[np.linspace(0, wrong.size - 1, min(_PROBES, wrong.size)).astype(int)]
    votes = np.zeros(candidates.size, int)
    for place in places.tolist():
        predicted = fixed[place] * moving[(place - candidates) % size]
        reach_of = (SOUND_ULP[evidence.target.name] + 1.0) * evidence.target.ulp(predicted)
        votes += np.abs(predicted - evidence.a[place]) <= reach_of
    fitting = candidates[votes >= ENOUGH * places.size]
    if fitting.size == 0 or fitting.size > reach // 4:
        return None
    return int(fitting[np.argmin(np.abs(fitting))])


def other_operation(evidence: Evidence) -> Cause | None:
    """The wrong sign, other inputs than those given, or another operation than the gradient."""
    # NaN tells nothing: too many operations give it.
    if np.count_nonzero(evidence.wrong & np.isfinite(evidence.a)) < max(_FEW, evidence.a.size // 4):
        return None
    for name, text, prediction in itertools.chain(_other_operations(evidence), norm_operations(evidence)):
        cause = evidence.if_predicted(name, text, prediction, 0.05 * np.abs(prediction - evidence.v))
        if cause is not None:
            return cause
    return None


def _other_operations(evidence: Evidence) -> Iterator[tuple[str, str, Array]]:
    yield "wrong-operation", "the result has the wrong sign", -evidence.v
    source = evidence.source
    if not isinstance(source, ElementwiseSource) or source.gradient is None:
        return
    dy, x = evidence.elements.inputs.values()
    for text, first, second in (
        ("grad_output is left out, as if it were 1", np.ones_like(x), x),
        ("grad_output and self are exchanged", x, dy),
        ("self is taken for grad_output too", x, x),
        ("grad_output is taken for self too", dy, dy),
    ):
        yield "wrong-input", text, source.whole.function.golden([first, second], evidence.target).value
    yield "wrong-operation", "the result is grad_output itself", evidence.dy
    if source.gradient not in _FORWARD:
        return
    forward = _FORWARD[source.gradient](x).astype(np.float64)
    yield "wrong-operation", "the result is the forward function, not its gradient", forward
    yield "wrong-operation", "the result is grad_output times the forward function", evidence.dy * forward


_FORWARD: dict[Gradient, Callable[[Array], Array]] = {
    silu_gradient: silu,
    fast_gelu_gradient: fast_gelu,
    gelu_erf_gradient: partial(gelu_v2, approximate=0),
    gelu_tanh_gradient: partial(gelu_v2, approximate=TANH),
    hardswish_gradient: hardswish,
}


def rounding(evidence: Evidence) -> Cause | None:
    """Another direction of the last rounding: toward zero, up, down, or ties not to even."""
    target, v, g, a = evidence.target, evidence.v, evidence.g, evidence.a
    finite = np.isfinite(g) & np.isfinite(a) & (v != 0.0)
    if np.count_nonzero(evidence.wrong & finite) > 0.001 * a.size:
        return None
    magnitude, away = np.abs(g), np.abs(g) > np.abs(v)
    # Neighbours of the golden value on the other side of the exact one, by counting bit patterns.
    bits = target.bits(evidence.elements.golden.rounded).astype(np.int64)
    lower = np.where(away, bits - 1, bits)
    upper = np.where(away, bits, bits + (magnitude < np.abs(v)))
    exact = magnitude == np.abs(v)
    toward_zero, from_zero = (_values(target, np.where(exact, bits, moved)) for moved in (lower, upper))
    positive = v > 0.0
    directions = {
        "toward zero": toward_zero,
        "away from zero": from_zero,
        "toward +inf": np.where(positive, from_zero, toward_zero),
        "toward -inf": np.where(positive, toward_zero, from_zero),
    }
    ties = _ties(evidence, finite, toward_zero, from_zero)
    if ties is not None:
        return ties
    for direction, rounded in directions.items():
        differing = finite & (rounded != g)
        if np.count_nonzero(differing) >= _FEW and _mostly(a == rounded, differing) and _mostly(a == rounded, finite):
            return _rounding_cause(evidence, f"results are rounded {direction}", a == rounded)
    return None


def _ties(evidence: Evidence, finite: Array, toward_zero: Array, from_zero: Array) -> Cause | None:
    tie = finite & (toward_zero != from_zero) & (np.abs(evidence.v - toward_zero) == np.abs(evidence.v - from_zero))
    for direction, rounded in (("away from zero", from_zero), ("toward zero", toward_zero)):
        differing = tie & (rounded != evidence.g)
        elsewhere_right = _mostly(evidence.a == evidence.g, finite & ~tie)
        if np.count_nonzero(differing) >= _FEW and _mostly(evidence.a == rounded, tie) and elsewhere_right:
            return _rounding_cause(evidence, f"ties are rounded {direction}", differing)
    return None


def _rounding_cause(evidence: Evidence, what: str, explained: Array) -> Cause:
    text = f"{what} instead of to nearest, ties to even"
    differing = int(np.count_nonzero(evidence.a != evidence.g))
    count = int(np.count_nonzero(explained & (evidence.a != evidence.g)))
    return Cause("rounding", text, count, count / max(differing, 1))


def _mostly(condition: Array, among: Array) -> bool:
    return bool(np.count_nonzero(condition & among) >= 0.98 * np.count_nonzero(among))


def _values(target: NumberFormat, bits: Array) -> Array:
    unsigned = np.dtype(f"u{target.dtype.numpy.itemsize}")
    values: Array = bits.astype(unsigned).view(target.dtype.numpy).astype(np.float64)
    return values
