"""Connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import ctc
from tests.cases.table import INVALID, NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    FLOATING,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    to_torch,
    torch,
    wide,
)

#: Three samples of up to seven steps, of up to three labels out of five classes.
TIME, SAMPLES, CLASSES = 7, 3, 5
TIMES, LENGTHS = (7, 7, 7), (3, 3, 2)
GIVEN = {"inputLengths": TIMES, "targetLengths": LENGTHS, "blank": 2, "zeroInfinity": False}
TARGETS = np.array([[1, 3, 4], [1, 1, 0], [4, 0, 3]])


def _given(d: D) -> Arguments:
    return GIVEN | {"logProbs": T(d, (TIME, SAMPLES, CLASSES)), "targets": T(D.INT64, (SAMPLES, 3))}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "ctc_loss": lambda d: (
        _given(d) | {"negLogLikelihoodOut": T(d, (SAMPLES,)), "logAlphaOut": T(d, (SAMPLES, TIME, 8))}
    ),
    "ctc_loss_backward": lambda d: (
        _given(d)
        | {name: T(d, (SAMPLES,)) for name in ("gradOut", "negLogLikelihood")}
        | {"logAlpha": T(d, (SAMPLES, TIME, 8)), "out": T(d, (TIME, SAMPLES, CLASSES))}
    ),
}


def _losses(a: Mapping[str, Any], leaf: Any) -> Any:
    given = (a["targets"], a["inputLengths"], a["targetLengths"], a["blank"])
    return torch.ops.aten._ctc_loss(leaf, *given, a["zeroInfinity"])


def _gradient(a: Mapping[str, Any]) -> Any:
    leaf = wide(a["logProbs"]).requires_grad_()
    _losses(a, leaf)[0].backward(wide(a["gradOut"]))
    return leaf.grad


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "ctc_loss": lambda a: _losses(a, wide(a["logProbs"]))[0],
    "ctc_loss_backward": _gradient,
}

BREAKS: Mapping[str, Breaking] = {
    "2 to 3 dimensions": lambda o, name: Break(shape((TIME,), name), "2 to 3"),
    "3 dimensions": lambda o, name: Break(shape((TIME, CLASSES), name), "3 dimensions"),
    "at least one time step": lambda o, name: Break(shape((0, SAMPLES, CLASSES), name), "time step"),
    "1 to 2 dimensions": lambda o, name: Break(shape((), name), "1 to 2"),
    "a class": lambda o, name: Break({name: CLASSES}, "from 0 to 4"),
    "one for each sample": lambda o, name: Break(
        {name: (8, 1, 1) if name == "inputLengths" else (-1, 1, 1)}, "3 numbers"
    ),
    "labels of all samples": lambda o, name: Break(shape((SAMPLES, 2), name), "at least 3 labels"),
    "shape is one for each sample": lambda o, name: Break(shape((1,), name), "[3]"),
    "shape is samples, time, states": lambda o, name: Break(shape((SAMPLES, TIME, 7), name), "[3, 7, 8]"),
    "samples, time, states": lambda o, name: Break(shape((SAMPLES, TIME, 6), name), "[3, 7, 7]"),
    "same data type as logProbs": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same shape as logProbs": lambda o, name: Break(shape((TIME, SAMPLES, 4), name), "that of logProbs"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "targets":
        return TARGETS
    if name == "logProbs":
        return array - np.log(np.exp(array.astype(np.float64)).sum(-1, keepdims=True))
    return array


class TestCtc(LibraryTests):
    subject = Subject(
        ctc.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        default=FLOATING,
        empty={
            name: {
                "inputLengths": (),
                "targetLengths": (),
                "logProbs": {"shape": (TIME, 0, CLASSES)},
                "targets": {"shape": (0,)},
                **{
                    each: {"shape": (0,)}
                    for each in ("negLogLikelihoodOut", "negLogLikelihood", "gradOut")
                    if each in call(D.FLOAT)
                },
                **{each: {"shape": (0, TIME, 8)} for each in ("logAlphaOut", "logAlpha") if each in call(D.FLOAT)},
                **({"out": {"shape": (TIME, 0, CLASSES)}} if name.endswith("backward") else {}),
            }
            for name, call in CALLS.items()
        },
        breaks=BREAKS,
        numbers=numbers,
        left=("logAlphaOut",),
        terms=8,
    )

    def test_products_without_a_kernel_reject_after_all_checks(self, operator: Operator) -> None:
        """No call of ``ctc_loss`` fits both Ascend 950 and another product: a test of its own has some for each."""
        if operator.name != "ctc_loss":
            super().test_products_without_a_kernel_reject_after_all_checks(operator)


def _run(
    log_probs: Array, targets: Array, times: tuple[int, ...], lengths: tuple[int, ...], zero_infinity: bool
) -> tuple[Array, Array, Array]:
    """The losses, alpha and the gradient where 1, 2 … arrive at the losses, on Ascend 950."""
    batch = len(times)
    states = 2 * max(lengths) + 1
    placed = {"logProbs": Placed(log_probs, "contiguous"), "targets": Placed(targets, "contiguous")}
    placed |= {"negLogLikelihoodOut": Placed(np.zeros(batch if log_probs.ndim == 3 else ()), "contiguous")}
    placed |= {"logAlphaOut": Placed(np.zeros((batch, len(log_probs), states)), "contiguous")}
    attributes = {"inputLengths": times, "targetLengths": lengths, "blank": 2, "zeroInfinity": zero_infinity}
    call = {name: each.tensor for name, each in placed.items()} | attributes
    prepare(BY_NAME["ctc_loss"], call, Product.ASCEND_950).run()
    losses, alphas = placed["negLogLikelihoodOut"].view, placed["logAlphaOut"].view
    if log_probs.ndim == 2:
        return losses, alphas, np.empty(0)
    gradient, dy = Placed(np.zeros(log_probs.shape), "contiguous"), Placed(np.arange(1.0, batch + 1), "contiguous")
    call = {name: call[name] for name in ("logProbs", "targets", *attributes)}
    call |= {"gradOut": dy.tensor, "negLogLikelihood": placed["negLogLikelihoodOut"].tensor}
    call |= {"logAlpha": placed["logAlphaOut"].tensor, "out": gradient.tensor}
    prepare(BY_NAME["ctc_loss_backward"], call, Product.ASCEND_950).run()
    return losses, alphas, gradient.view


def _log_probs(batch: int) -> Array:
    found = np.random.default_rng(4).normal(size=(TIME, batch, CLASSES)) * 2
    return found - np.log(np.exp(found).sum(-1, keepdims=True))


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("concatenated", [False, True])
def test_losses_of_any_lengths_match_pytorch(zero_infinity: bool, concatenated: bool) -> None:
    """Fewer steps and labels than the others, none of them, and more than there is time for."""
    times, lengths = (7, 5, 3, 4, 2), (3, 2, 0, 1, 3)
    rows = np.array([[1, 3, 4], [1, 1, 0], [4, 0, 3], [0, 4, 4], [3, 3, 1]])
    targets = np.concatenate([row[:n] for row, n in zip(rows, lengths, strict=True)]) if concatenated else rows
    lp = _log_probs(5)
    losses, alphas, gradient = _run(lp, targets, times, lengths, zero_infinity)
    leaf = to_torch(lp).requires_grad_()
    expected, log_alpha = torch.ops.aten._ctc_loss(leaf, to_torch(targets), times, lengths, 2, zero_infinity)
    expected.backward(torch.arange(1.0, 6.0, dtype=torch.float64))
    wanted = expected.detach().numpy()
    assert np.isinf(wanted[4])
    np.testing.assert_allclose(losses, np.where(np.isinf(wanted) & zero_infinity, 0, wanted), 1e-12)
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), 1e-10, 1e-12)
    for sample, (steps, labels) in enumerate(zip(times, lengths, strict=True)):
        part = (sample, slice(steps), slice(2 * labels + 1))
        np.testing.assert_allclose(alphas[part], log_alpha.detach().numpy()[part], 1e-12)


def test_a_single_sample_needs_no_dimension() -> None:
    lp = _log_probs(1)
    losses, alphas, _ = _run(lp[:, 0], np.array([[1, 3, 4]]), (7,), (3,), False)
    expected, log_alpha = torch.ops.aten._ctc_loss(to_torch(lp), torch.tensor([[1, 3, 4]]), (7,), (3,), 2)
    np.testing.assert_allclose(losses, expected[0].item(), 1e-12)
    np.testing.assert_allclose(alphas, log_alpha.numpy(), 1e-12)


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_label_out_of_range_is_an_error(label: int) -> None:
    with pytest.raises(AclnnError, match=f"targets: expected classes from 0 to 4, got {label}"):
        _run(_log_probs(1), np.array([[1, label]]), (7,), (2,), False)


def test_classes_without_a_probability_have_no_share() -> None:
    """Only one alignment is left, whose probability is 1."""
    lp = np.full((3, 1, CLASSES), -np.inf)
    lp[[0, 1, 2], 0, [1, 2, 3]] = 0.0
    losses, _, gradient = _run(lp, np.array([[1, 3]]), (3,), (2,), False)
    assert losses.tolist() == [0.0]
    assert not gradient.any()


@pytest.mark.parametrize(
    ("product", "states", "code"),
    [
        (Product.ATLAS_A2, 8, 0),
        (Product.ATLAS_A2, 7, INVALID),
        (Product.ASCEND_950, 7, 0),
        (Product.ASCEND_950, 8, INVALID),
        (Product.ATLAS_INFERENCE, 8, 0),
        (Product.ATLAS_200I_500_A2, 8, NO_KERNEL),
    ],
)
def test_states_are_padded_before_ascend_950(product: Product, states: int, code: int) -> None:
    call = described(CALLS["ctc_loss"](D.FLOAT) | {"logAlphaOut": T(D.FLOAT, (SAMPLES, TIME, states))})
    if not code:
        prepare(BY_NAME["ctc_loss"], call, product)
        return
    with pytest.raises(AclnnError) as caught:
        prepare(BY_NAME["ctc_loss"], call, product)
    assert caught.value.code == code
