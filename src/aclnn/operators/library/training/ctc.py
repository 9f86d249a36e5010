"""Connectionist temporal classification: aclnnCtcLoss and its gradient.

A target's states are its labels with blanks around them. The log-probabilities to reach a state, alpha, or to
complete the target from it, beta, are computed in float64, one time step after another, for all samples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    MODERN,
    REAL_FLOATING,
    WITH_INFERENCE,
    WITH_TRAINING,
    add_at,
    attribute,
    expect_within,
    support,
    tensor_in,
    tensor_out,
)

_TARGETS = (D.INT32, D.INT64, D.BOOL, D.FLOAT, D.FLOAT16)
_WIDE = (D.FLOAT, D.DOUBLE)
#: Multiple to which the number of states is padded before Ascend 950.
_ALIGNED = 8
_NEVER = -np.inf


class _Lattice(NamedTuple):
    """States of each sample, and the transitions between them."""

    states: Any
    """Class of each state, (samples, states); blanks beyond the last."""
    emitted: Any
    """Log-probability of each state's class, (time, samples, states); -inf beyond the last."""
    skips: Any
    """True for each state that may follow the one two states before."""
    times: Any
    """Number of time steps of each sample."""
    labels: Any
    """Number of labels of each sample."""


def _lattice(lp: Any, targets: Any, times: Sequence[int], lengths: Sequence[int], blank: int) -> _Lattice:
    labels, classes = np.array(lengths, np.int64), lp.shape[2]
    count = labels.max(initial=0)
    given = np.arange(count) < labels[:, None]
    # One-dimensional targets are concatenated.
    found = (targets[:, :count][given] if targets.ndim == 2 else targets).astype(np.int64)
    expect_within("targets", found, 0, classes - 1, "classes")
    states = np.full((len(labels), 2 * count + 1), blank, np.int64)
    states[:, 1::2][given] = found
    there = np.arange(states.shape[1]) <= 2 * labels[:, None]
    emitted = np.where(there, np.take_along_axis(lp, states[None], 2), _NEVER)
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = states[:, 2:] != states[:, :-2]
    return _Lattice(states, emitted, skips, np.array(times, np.int64), labels)


def _back(values: Any, by: int, fill: Any) -> Any:
    """Shift the values by ``by`` states to the right."""
    return np.concatenate([np.full((len(values), by), fill), values], 1)[:, : values.shape[1]]


def _ahead(values: Any, by: int, fill: Any) -> Any:
    """Shift the values by ``by`` states to the left."""
    return np.concatenate([values, np.full((len(values), by), fill)], 1)[:, by:]


def _alphas(lattice: _Lattice) -> Any:
    """Return the log-probabilities to have reached each state, (time, samples, states)."""
    found = np.full(lattice.emitted.shape, _NEVER)
    found[0, :, :2] = lattice.emitted[0, :, :2]
    for time in range(1, len(found)):
        before = found[time - 1]
        skipped = np.where(lattice.skips, _back(before, 2, _NEVER), _NEVER)
        came = np.logaddexp(np.logaddexp(before, _back(before, 1, _NEVER)), skipped)
        found[time] = came + lattice.emitted[time]
    return found


def _is_last(lattice: _Lattice) -> Any:
    """Mark each state in which a target may end: its last label or the following blank."""
    return np.isin(np.arange(lattice.states.shape[1]) - 2 * lattice.labels[:, None], (-1, 0))


def _likelihoods(lattice: _Lattice, alphas: Any) -> Any:
    """Return each target's log-likelihood; without time steps only an empty target is possible."""
    ends = alphas[np.maximum(lattice.times - 1, 0), np.arange(len(lattice.times))]
    found = np.logaddexp.reduce(np.where(_is_last(lattice), ends, _NEVER), 1)
    return np.where(lattice.times > 0, found, np.where(lattice.labels > 0, _NEVER, 0.0))


def _loss(lattice: _Lattice, zero_infinity: bool, width: int) -> tuple[Any, Any]:
    alphas = _alphas(lattice)
    losses = -_likelihoods(lattice, alphas)
    padded = np.full((*alphas.shape[:2], width), _NEVER)
    padded[..., : alphas.shape[2]] = alphas
    return np.where(np.isinf(losses), 0.0, losses) if zero_infinity else losses, padded.swapaxes(0, 1)


def _gradient(lp: Any, lattice: _Lattice, zero_infinity: bool, dy: Any) -> Any:
    # Recompute alpha and the loss: the 16-bit ones are too inaccurate.
    alphas = _alphas(lattice)
    likelihoods, betas = _likelihoods(lattice, alphas), np.full(lattice.states.shape, _NEVER)
    is_last, samples = _is_last(lattice), np.arange(len(lattice.states))
    result, places = np.exp(lp, order="C"), samples[:, None] * lp.shape[2] + lattice.states
    for time in range(len(lp) - 1, -1, -1):
        skipped = np.where(_ahead(lattice.skips, 2, False), _ahead(betas, 2, _NEVER), _NEVER)
        onwards = np.logaddexp(np.logaddexp(betas, _ahead(betas, 1, _NEVER)), skipped)
        ending = np.where(is_last, 0.0, _NEVER)
        betas = np.where((time == lattice.times - 1)[:, None], ending, onwards)
        # Log-probability of passing through a state: alpha includes its emission, beta does not.
        add_at(result[time], places, -np.exp(alphas[time] + betas - likelihoods[:, None]))
        betas = betas + lattice.emitted[time]
    unlikely = np.isneginf(likelihoods)[:, None]
    result = np.where(unlikely, 0.0 if zero_infinity else np.nan, result * dy[:, None])
    return np.where((np.arange(len(lp))[:, None] < lattice.times)[..., None], result, 0.0)


def _batch(call: Call) -> int:
    shape = call["logProbs"].shape
    return shape[1] if len(shape) == 3 else 1


def _over_samples(call: Call, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a function of 3-D logProbs and the data derived from them to the call's tensors."""
    times, lengths, blank = call["inputLengths"], call["targetLengths"], call["blank"]
    zero_infinity, batch = bool(call["zeroInfinity"]), _batch(call)

    def compute(log_probs: Any, targets: Any, *others: Any) -> Any:
        lp = log_probs.astype(np.float64).reshape(len(log_probs), batch, -1)
        return function(lp, _lattice(lp, targets, times, lengths, blank), zero_infinity, *others)

    return compute


def _loss_work(call: Call) -> Library | None:
    if call["logProbs"].size == 0:
        return None
    width, shape = call["logAlphaOut"].shape[-1], call["negLogLikelihoodOut"].shape

    def compute(lp: Any, lattice: _Lattice, zero_infinity: bool) -> tuple[Any, Any]:
        losses, alphas = _loss(lattice, zero_infinity, width)
        return losses.reshape(shape), alphas

    return Library(_over_samples(call, compute), ("logProbs", "targets"), ("negLogLikelihoodOut", "logAlphaOut"))


def _gradient_work(call: Call) -> Library | None:
    if call["logProbs"].size == 0:
        return None
    return Library(_over_samples(call, _gradient), ("logProbs", "targets", "gradOut"), ("out",))


def _class(call: Call) -> str | None:
    classes, got = call["logProbs"].shape[-1], call["blank"]
    return None if 0 <= got < classes else f"blank: expected from 0 to {classes - 1}, got {got}"


def _lengths(name: str, most: Callable[[Call], int | None]) -> Check:
    def violation(call: Call) -> str | None:
        got, batch, limit = call[name], _batch(call), most(call)
        if len(got) == batch and all(0 <= length <= (length if limit is None else limit) for length in got):
            return None
        upper = "up" if limit is None else f"to {limit}"
        return f"{name}: expected {batch} numbers from 0 {upper}, got {extents(got)}"

    return rule(f"one for each sample: {name}", violation)


def _targets(call: Call) -> str | None:
    got, lengths = call["targets"].shape, call["targetLengths"]
    if len(got) == 1:
        total = sum(lengths)
        return None if got == (total,) else f"targets: expected shape {extents((total,))}, got {extents(got)}"
    batch, most = _batch(call), max(lengths, default=0)
    if got[0] == batch and got[1] >= most:
        return None
    return f"targets: expected {batch} rows of at least {most} labels, got {extents(got)}"


def _alpha_shape(call: Call) -> tuple[int, ...]:
    states = 2 * max(call["targetLengths"], default=0) + 1
    if call.product not in CLASS_950:
        states = -(-states // _ALIGNED) * _ALIGNED
    return _batch(call), call["logProbs"].shape[0], states


def _alphas_fit(call: Call) -> str | None:
    expected, got = (*_alpha_shape(call)[:2], 2 * max(call["targetLengths"], default=0) + 1), call["logAlpha"].shape
    if len(got) == 3 and got[:2] == expected[:2] and got[2] >= expected[2]:
        return None
    return f"logAlpha: expected shape {extents(expected)}, or more states, got {extents(got)}"


def _dtypes(product: Product) -> frozenset[D]:
    return where_supported(REAL_FLOATING if product in MODERN else _WIDE)(product)


_GIVEN = (
    tensor_in("logProbs", "the log-probabilities of the classes, (time, samples, classes)"),
    tensor_in("targets", "the labels, one row per sample, or concatenated"),
    Parameter("inputLengths", "input_lengths", Kind.INT_ARRAY, "the number of time steps of each sample"),
    Parameter("targetLengths", "target_lengths", Kind.INT_ARRAY, "the number of labels of each sample"),
)
_CHOICES = (
    attribute("blank", Kind.INT64, "the blank class"),
    Parameter("zeroInfinity", "zero_infinity", Kind.BOOL, "whether to set infinite losses and their gradients to 0"),
)
_FITTING = (
    value_is("at least one time step", lambda got: got[0] > 0, "logProbs"),
    dims_between(1, 2, "targets"),
    rule("a class: blank", _class),
    _lengths("inputLengths", lambda call: int(call["logProbs"].shape[0])),
    _lengths("targetLengths", lambda call: None),
    rule("labels of all samples: targets", _targets),
)
_FORMULA = "-ln of the sum over alignments of targets of the products of their probabilities"

OPERATORS = (
    Operator(
        name="ctc_loss",
        summary="Connectionist temporal classification (CTC) loss.",
        formula=f"negLogLikelihoodOut = {_FORMULA}",
        parameters=(
            *_GIVEN,
            *_CHOICES,
            tensor_out("negLogLikelihoodOut", "the loss of each sample"),
            tensor_out("logAlphaOut", "the forward log-probabilities of the states"),
        ),
        support={**support(_WIDE, WITH_INFERENCE), **support(REAL_FLOATING, MODERN)},
        checks=(
            dims_between(2, 3, "logProbs"),
            *_FITTING,
            shape_is("one for each sample", lambda call: call["logProbs"].shape[1:-1], "negLogLikelihoodOut"),
            shape_is("samples, time, states", _alpha_shape, "logAlphaOut"),
            dtype_in(_dtypes, "logProbs"),
            dtype_in(_TARGETS, "targets"),
            same_dtype("negLogLikelihoodOut", "logProbs"),
            same_dtype("logAlphaOut", "logProbs"),
        ),
        work=_loss_work,
    ),
    Operator(
        name="ctc_loss_backward",
        summary="Gradient of the CTC loss.",
        formula=f"out = gradOut * gradient of {_FORMULA}",
        parameters=(
            tensor_in("gradOut", "the gradient with respect to each sample's loss"),
            *_GIVEN,
            tensor_in("negLogLikelihood", "the losses"),
            tensor_in("logAlpha", "the forward log-probabilities that the forward function wrote"),
            *_CHOICES,
            tensor_out("out", "the gradient with respect to logProbs"),
        ),
        support={**support(_WIDE, WITH_TRAINING), **support(REAL_FLOATING, MODERN)},
        checks=(
            dims_between(3, 3, "logProbs"),
            *_FITTING,
            shape_is("one for each sample", lambda call: call["logProbs"].shape[1:2], "gradOut", "negLogLikelihood"),
            rule("samples, time, states: logAlpha", _alphas_fit),
            same_shape("out", "logProbs"),
            dtype_in(_dtypes, "logProbs"),
            *(same_dtype(name, "logProbs") for name in ("gradOut", "negLogLikelihood", "logAlpha", "out")),
            dtype_in(_TARGETS, "targets"),
        ),
        work=_gradient_work,
    ),
)
