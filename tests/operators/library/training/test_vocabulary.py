"""Cross entropy of a vocabulary in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import vocabulary
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, Breaking, LibraryTests, Subject, computed, described, torch

PART, LOSS, GRADIENT = (
    "fused_linear_online_max_sum",
    "fused_cross_entropy_loss_with_max_sum",
    "fused_linear_cross_entropy_loss_grad",
)
ROWS, COLUMNS, WORDS = 11, 6, 128
START, END = 3, 8
NUMBERS = ("logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut")

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    PART: lambda d: {
        "input": T(d, (ROWS, COLUMNS)),
        "weight": T(d, (5, COLUMNS)),
        "target": T(D.INT32, (ROWS,)),
        "vocabStartIndex": START,
        "vocabEndIndex": END,
        **dict.fromkeys(NUMBERS, T(D.FLOAT, (ROWS,))),
        "targetMaskOut": T(D.UINT8, (2,)),
        "maskedTargetOut": T(D.INT32, (ROWS,)),
        "vocabParallelLogitsOutOptional": T(d, (ROWS, 5)),
    },
    LOSS: lambda d: {
        **dict.fromkeys(("logitsMax", "sumExpLogits", "predictedLogits", "lossOut"), T(D.FLOAT, (ROWS,))),
        "labelSmoothing": 0.0,
        "inputOptional": None,
        "weightOptional": None,
        "vocabParallelLogitsOptional": T(d, (ROWS, 5)),
        "softMaxOutOptional": T(D.FLOAT, (ROWS, 5)),
    },
    GRADIENT: lambda d: {
        "grad": T(D.FLOAT, (ROWS,)),
        **dict.fromkeys(("input", "inputGradOut"), T(d, (ROWS, COLUMNS))),
        **dict.fromkeys(("weight", "weightGradOut"), T(d, (WORDS, COLUMNS))),
        "targetMask": T(D.UINT8, (2,)),
        "maskedTarget": T(D.INT64, (ROWS,)),
        "labelSmoothing": 0.0,
        **dict.fromkeys(("logitsMaxOptional", "sumExpLogitsOptional"), T(D.FLOAT, (ROWS,))),
        "softmaxOptional": T(D.FLOAT, (ROWS, WORDS)),
    },
}


def _part(a: Mapping[str, Any]) -> Any:
    logits = a["input"].double() @ a["weight"].double().T
    most = logits.max(1).values
    below, mask, places, predicted = logits - most[:, None], [0, 0], [], []
    for row in range(16):
        target = int(a["target"][row]) if row < ROWS else 0
        here = START <= target < END
        mask[row // 8] |= 0 if here else 1 << row % 8
        if row < ROWS:
            places.append(target - START if here else 0)
            predicted.append(float(below[row, target - START]) if here else 0.0)
    found = torch.tensor(predicted, dtype=torch.float64), torch.tensor(mask), torch.tensor(places)
    return most, below.exp().sum(1), *found, logits


def _loss(a: Mapping[str, Any]) -> Any:
    total, scores = a["sumExpLogits"].double(), a["vocabParallelLogitsOptional"].double()
    shares = (scores - a["logitsMax"].double()[:, None]).exp() / total[:, None]
    return total.log() - a["predictedLogits"].double(), shares


def _gradients(a: Mapping[str, Any]) -> Any:
    shares = a["softmaxOptional"].double().clone()
    for row, place in enumerate(a["maskedTarget"].tolist()):
        bit = int(a["targetMask"][row // 8]) >> row % 8 & 1
        shares[row, place] -= 1 - bit
    shares *= a["grad"].double()[:, None]
    return shares @ a["weight"].double(), shares.T @ a["input"].double()


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break({name: {"dtype": D.INT8}} | _without(name), "data type"),
    "same data type as input": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "same data type as target": lambda o, name: Break(dtype(D.INT64, name), "ACL_INT32"),
    "2 dimensions": lambda o, name: Break(shape((ROWS,), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((ROWS, 1), name), "1 dimension"),
    "rows": lambda o, name: Break(shape((0, COLUMNS), name), "expected rows"),
    "at most 65534 columns": lambda o, name: Break(shape((ROWS, 65535), name), "at most 65534"),
    "as many columns as input": lambda o, name: Break(shape((WORDS, 3), name), "6 columns"),
    "shape is a number for each row": lambda o, name: Break(_shaped((3,), name) | _without(name), "[11]"),
    "shape is a bit for each row": lambda o, name: Break(shape((11,), name), "[2]"),
    "shape is a score for each word": lambda o, name: Break(shape((ROWS, 2), name), "[11, "),
    "0 or more": lambda o, name: Break({name: -1}, "0 or more"),
    "not before the first": lambda o, name: Break({name: 2}, "at least 3"),
    "same shape as logitsMax": lambda o, name: Break(shape((3,), name), "[11]"),
    "same shape as vocabParallelLogitsOptional": lambda o, name: Break(shape((ROWS, 2), name), "[11, 5]"),
    "shape is a row for each of logitsMax": lambda o, name: Break(shape((3, 5), name, "softMaxOutOptional"), "[11, 5]"),
    "shape is a row for each of grad": lambda o, name: Break(shape((3, COLUMNS), name), "[11, 6]"),
    "shares, or what they come from": lambda o, name: Break({name: None, "softmaxOptional": None}, "an object"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}} | _without(name), "ND"),
    "allowed value": lambda o, name: Break({name: 0.5}, "0"),
    "at least 128 rows": lambda o, name: Break(shape((127, COLUMNS), name), "at least 128"),
    "a bit for each row": lambda o, name: Break(shape((1,), name), "bits for 11 rows"),
    "same shape as input": lambda o, name: Break(shape((3, COLUMNS), name), "[11, 6]"),
    "same shape as weight": lambda o, name: Break(shape((3, COLUMNS), name), "[128, 6]"),
    "kernel of the product": lambda o, name: Break({}, "one with a kernel", product=Product.ASCEND_950),
}


def _without(name: str) -> dict[str, Any]:
    """Changes that lead to the checks of the softmax's parts."""
    return {"softmaxOptional": None} if name in ("logitsMaxOptional", "sumExpLogitsOptional") else {}


def _shaped(of: tuple[int, ...], *names: str) -> dict[str, Any]:
    return {name: {"shape": of} for name in names}


def _numbers(operator: str, name: str, array: Any) -> Any:
    if name in ("target", "maskedTarget"):
        return np.arange(len(array)) % 10
    return np.abs(array) + 1 if name.startswith("sumExp") else array


class TestVocabulary(LibraryTests):
    subject = Subject(
        vocabulary.OPERATORS,
        calls=CALLS,
        references={PART: _part, LOSS: _loss, GRADIENT: _gradients},
        dtypes={LOSS: (D.FLOAT, D.FLOAT16, D.BF16)},
        default=(D.FLOAT16, D.BF16),
        empty={
            PART: _shaped((0, COLUMNS), "input")
            | _shaped((5, COLUMNS), "weight")
            | _shaped((0,), "target", *NUMBERS, "targetMaskOut", "maskedTargetOut")
            | _shaped((0, 5), "vocabParallelLogitsOutOptional"),
            LOSS: _shaped((0,), "logitsMax", "sumExpLogits", "predictedLogits", "lossOut")
            | dict.fromkeys(("inputOptional", "weightOptional"))
            | _shaped((0, 5), "vocabParallelLogitsOptional", "softMaxOutOptional"),
            GRADIENT: _shaped((0,), "grad", "targetMask", "maskedTarget")
            | _shaped((0, COLUMNS), "input", "inputGradOut")
            | _shaped((WORDS, COLUMNS), "weight", "weightGradOut")
            | _shaped((0,), "logitsMaxOptional", "sumExpLogitsOptional")
            | _shaped((0, WORDS), "softmaxOptional"),
        },
        breaks=BREAKS,
        numbers=_numbers,
        codes={"shares, or what they come from": NULL, "kernel of the product": ACLNN_ERR_RUNTIME_ERROR},
        terms=8,
    )


def test_the_documents_sample_prints_its_losses() -> None:
    """Losses of FLOAT scores: ln(0.5) - 0.5 and ln(1) - 1."""
    numbers = np.array([0.5, 1], np.float32)
    call = dict.fromkeys(("logitsMax", "sumExpLogits", "predictedLogits"), numbers) | {"lossOut": numbers * 0}
    scores = np.array([[1, 0.5], [0.5, 1]], np.float32)
    call |= {"vocabParallelLogitsOptional": scores, "softMaxOutOptional": scores * 0}
    found = computed(LOSS, call | {"labelSmoothing": 0.0, "inputOptional": None, "weightOptional": None})
    np.testing.assert_allclose(found["lossOut"], [-1.193147, -1], 1e-6)
    np.testing.assert_allclose(found["softMaxOutOptional"], [[3.297443, 2], [0.606531, 1]], 1e-6)


@pytest.mark.parametrize("flags", [D.BOOL, D.UINT8])
def test_parts_together_have_the_gradients_of_all_words(flags: D) -> None:
    """Two parts of twelve words, exchanged as Megatron does."""
    random = np.random.default_rng(0)
    x, weight = (random.normal(size=(of, 4)).astype(np.float16) for of in (5, 12))
    target, grad = np.array([0, 11, 5, 6, 7]), random.normal(size=5).astype(np.float32)
    found = []
    for start in (0, 6):
        outs = {name: np.zeros(5, np.float32) for name in NUMBERS}
        outs |= {"targetMaskOut": np.zeros(1, np.uint8), "maskedTargetOut": np.zeros(5, np.int64)}
        given = {"input": x, "weight": weight[start : start + 6], "target": target}
        limits = {"vocabStartIndex": start, "vocabEndIndex": start + 6, "vocabParallelLogitsOutOptional": None}
        found.append(computed(PART, given | outs | limits, Product.ASCEND_950))
    most = np.maximum(*(each[NUMBERS[0]] for each in found))
    total, predicted = np.zeros(5, np.float32), np.zeros(5, np.float32)
    for each in found:
        total += each[NUMBERS[1]] * np.exp(each[NUMBERS[0]] - most)
        here = (each["targetMaskOut"][0] >> np.arange(5) & 1) == 0
        predicted[here] = (each[NUMBERS[2]] + each[NUMBERS[0]] - most)[here]
    exact = [torch.from_numpy(each).double().requires_grad_() for each in (x, weight)]
    losses = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, torch.from_numpy(target), reduction="none")
    np.testing.assert_allclose(np.log(total) - predicted, losses.detach(), 1e-5, 1e-5)
    expected = torch.autograd.grad(losses, exact, torch.from_numpy(grad).double())
    of_rows, of_words = np.zeros((5, 4)), []
    for start, part in zip((0, 6), found, strict=True):
        mask = part["targetMaskOut"] if flags == D.UINT8 else (part["targetMaskOut"][0] >> np.arange(5) & 1) != 0
        call = {"grad": grad, "input": x, "weight": weight[start : start + 6], "targetMask": mask}
        call |= {"maskedTarget": part["maskedTargetOut"], "labelSmoothing": 0.0, "softmaxOptional": None}
        call |= {"logitsMaxOptional": most, "sumExpLogitsOptional": total}
        got = computed(GRADIENT, call | {"inputGradOut": x * 0, "weightGradOut": weight[:6] * 0})
        of_rows += got["inputGradOut"]
        of_words.append(got["weightGradOut"])
    np.testing.assert_allclose(of_rows, expected[0], 2e-3, 2e-3)
    np.testing.assert_allclose(np.concatenate(of_words), expected[1], 2e-3, 2e-3)


def test_target_mask_has_a_flag_for_each_row() -> None:
    call = CALLS[GRADIENT](D.FLOAT16) | {"targetMask": T(D.BOOL, (2,))}
    with pytest.raises(AclnnError, match="targetMask: expected 11 elements, got 2"):
        prepare(BY_NAME[GRADIENT], described(call), Product.ATLAS_A2)


def test_targets_beyond_the_words_are_reported() -> None:
    x = np.ones((2, 3), np.float16)
    outs = {name: np.zeros(2, np.float32) for name in NUMBERS} | {"targetMaskOut": np.zeros(1, np.uint8)}
    call = {"input": x, "weight": x, "target": np.array([4, 6]), "maskedTargetOut": np.zeros(2, np.int64)} | outs
    limits = {"vocabStartIndex": 4, "vocabEndIndex": 9, "vocabParallelLogitsOutOptional": None}
    with pytest.raises(AclnnError, match="target: expected words from 4 on, less 4, from 0 to 1, got 2"):
        computed(PART, call | limits)
