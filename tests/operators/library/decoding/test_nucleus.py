"""Selection of the logits that a sampler may choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.decoding import nucleus
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
    wide,
)

ROWS, WORDS = 4, 9
SAMPLERS = ("top_k_top_p_sample", "top_k_top_p_sample_v2")


def _filtered(a: Mapping[str, Any]) -> Any:
    """Select as vLLM does, with PyTorch's functions."""
    rising, order = wide(a["logits"]).sort(stable=True)
    least = rising.gather(1, (WORDS - a["k"].long())[:, None])
    rising = rising.masked_fill(rising < least, -torch.inf)
    below = rising.softmax(-1).cumsum(-1) <= 1 - wide(a["p"])[:, None]
    below[:, -1] = False
    return torch.empty_like(rising).scatter_(1, order, rising.masked_fill(below, -torch.inf))


def numbers(operator: str, name: str, array: Array) -> Array:
    given = {"p": np.array([1.0, 0.5, 0.25, 0.0]), "k": np.array([9, 9, 4, 1])}
    given |= {"topP": np.array([0.9, 0.5, 1.0, 0.25]), "topK": np.array([9, 3, 4, 0])}
    return given.get(name, np.abs(array) if name == "q" else array)


def _sample_call(name: str, d: D, rows: int = ROWS) -> Arguments:
    call: Arguments = {
        "logits": T(d, (rows, WORDS)),
        "topK": T(D.INT32, (rows,)),
        "topP": T(d, (rows,)),
        "q": T(D.FLOAT, (rows, WORDS)),
        "minPs": None,
        "eps": 1e-8,
        "isNeedLogits": True,
        "topKGuess": 32,
        "ksMax": 1024,
        "inputIsLogits": True,
        "isNeedSampleResult": False,
        "logitsSelectIdx": T(D.INT64, (rows,)),
        **dict.fromkeys(("logitsTopKPSelect", "logitsSortMasked"), T(D.FLOAT, (rows, WORDS))),
        "logitsIdx": T(D.INT64, (rows, WORDS)),
    }
    return {p.name: call[p.name] for p in BY_NAME[name].parameters}


def _sampled(a: Mapping[str, Any]) -> Any:
    """Words one by one, the most probable first, until a limit is reached."""
    chosen, left = [], torch.full((ROWS, WORDS), -torch.inf, dtype=torch.float64)
    for at, row in enumerate(wide(a["logits"])):
        count, share = int(a["topK"][at]) or WORDS, float(a["topP"][at])
        order = sorted(range(WORDS), key=lambda word: -row[word])[:count]
        probabilities = row[order].softmax(-1)
        kept = [n for n in range(count) if probabilities[:n].sum() < share or share >= 1]
        best = max(kept, key=lambda n: probabilities[n] / (a["q"][at, n].double() + a["eps"]))
        chosen.append(order[best])
        for n in kept:
            left[at, order[n]] = row[order[n]]
    return torch.tensor(chosen), left


_SAMPLER_TILING = {
    "2 dimensions": lambda o, name: Break(shape((WORDS,), name), "2 dimensions"),
    "at most 1048576 words": lambda o, name: Break(shape((ROWS, 2**20 + 1), name), "at most 1048576"),
    "shape is one for each row": lambda o, name: Break(
        {name: T(D.FLOAT, (3,))} if name == "minPs" else shape((3,), name), "[4]"
    ),
    "null": lambda o, name: Break({"isNeedSampleResult": True}, "null"),
    "same shape as logits": lambda o, name: Break(
        {"isNeedSampleResult": name.startswith("logitsI") or name.endswith("Masked")}
        | ({} if name == "q" else {"q": None})
        | shape((ROWS, 8), name),
        "[4, 9]",
    ),
}


class TestSamplers(LibraryTests):
    subject = Subject(
        nucleus.OPERATORS[1:],
        calls={name: lambda d, name=name: _sample_call(name, d) for name in SAMPLERS},
        references={SAMPLERS[0]: _sampled, SAMPLERS[1]: _sampled},
        dtypes={SAMPLERS[0]: (D.FLOAT16, D.BF16)},
        default=TRAINED,
        empty={name: _sample_call(name, D.FLOAT if name.endswith("v2") else D.FLOAT16, 0) for name in SAMPLERS},
        left=("logitsIdx", "logitsSortMasked"),
        breaks={
            "data types that go together": lambda o, name: Break(
                dtype(D.DOUBLE if name == "logits" else D.INT16, name), "ACL_"
            ),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "same data type as logits": lambda o, name: Break({name: T(D.FLOAT16, (ROWS,))}, "ACL_FLOAT"),
            **_SAMPLER_TILING,
        },
        numbers=numbers,
        codes=dict.fromkeys(_SAMPLER_TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _sample(**changes: Any) -> dict[str, Array]:
    call = _sample_call(SAMPLERS[1], D.FLOAT, 1) | {"q": None, "isNeedLogits": False}
    given = {name: np.full(each.shape, 7, each.dtype.numpy) for name, each in call.items() if isinstance(each, T)}
    logits = np.log(SHARES)[None].astype(np.float32)
    given = {name: each[:, :6] if each.ndim == 2 else each for name, each in given.items()}
    return computed(SAMPLERS[1], call | given | {"logits": logits, "topP": np.ones(1, np.float32)} | changes)


SHARES = np.array([0.1, 0.05, 0.4, 0.05, 0.25, 0.15])
"""Probabilities of six words, whose order is 2, 4, 5, 0, 1, 3."""


@pytest.mark.parametrize(
    ("k", "p", "least", "most", "words", "whole"),
    [
        (0, 1.0, None, 1024, [0, 1, 2, 3, 4, 5], 1.0),
        (4, 1.0, None, 1024, [2, 4, 5, 0], 0.9),
        (9, 1.0, None, 8, [0, 1, 2, 3, 4, 5], 1.0),
        (0, 0.7, None, 1024, [2, 4, 5], 1.0),
        (2, 0.7, None, 1024, [2, 4], 0.65),
        (0, 0.0, None, 1024, [2], 0.4),
        (0, 1.0, 0.3, 1024, [2, 4, 5], 1.0),
        (4, 0.7, 0.5, 1024, [2, 4], 0.9),
        (0, 1.0, 1.0, 1024, [2], 1.0),
    ],
)
def test_remaining_words_are_returned_with_their_probabilities(
    k: int, p: float, least: float | None, most: int, words: list[int], whole: float
) -> None:
    """In order of their probabilities, but without a threshold; ``whole`` is what the first topK add up to."""
    minimum = None if least is None else np.array([least], np.float32)
    thresholds = {"topK": np.array([k], np.int32), "topP": np.array([p], np.float32), "minPs": minimum, "ksMax": most}
    found = _sample(isNeedSampleResult=True, isNeedLogits=True, **thresholds)
    ordered = words if least is None or k or p < 1 or least >= 1 else sorted(words)
    count = len(words)
    assert found["logitsIdx"][0].tolist() == [*ordered, *[0] * (6 - count)]
    np.testing.assert_allclose(found["logitsSortMasked"][0, :count], SHARES[ordered] / whole, rtol=1e-5)
    assert not found["logitsSortMasked"][0, count:].any()
    assert np.isfinite(found["logitsTopKPSelect"][0]).nonzero()[0].tolist() == sorted(words)
    assert found["logitsSelectIdx"].tolist() == [7]


@pytest.mark.parametrize("k", [0, 3])
def test_probabilities_may_be_given_and_the_greatest_is_chosen(k: int) -> None:
    given = {"logits": SHARES[None].astype(np.float32), "topK": np.array([k], np.int32), "inputIsLogits": False}
    found = _sample(**given, isNeedLogits=True)
    assert found["logitsSelectIdx"].tolist() == [2]
    assert np.flatnonzero(found["logitsTopKPSelect"]).tolist() == ([2, 4, 5] if k else [*range(6)])
    q = np.full((1, 6), 1.0, np.float32)
    q[0, 1] = 0.1
    chosen = _sample(**given, q=q)["logitsSelectIdx"].tolist()
    assert chosen == ([4] if k else [1])


class TestNucleus(LibraryTests):
    subject = Subject(
        nucleus.OPERATORS[:1],
        calls={
            "apply_top_k_top_p": lambda d: {
                "logits": T(d, (ROWS, WORDS)),
                "p": T(d, (ROWS,)),
                "k": T(D.INT32, (ROWS,)),
                "out": T(d, (ROWS, WORDS)),
            }
        },
        references={"apply_top_k_top_p": _filtered},
        default=TRAINED,
        empty={"apply_top_k_top_p": shape((0, WORDS), "logits", "out") | shape((0,), "p", "k")},
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as logits": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "p or k": lambda o, name: Break({"p": None, "k": None}, "one of them"),
            "1 dimension": lambda o, name: Break(shape((ROWS, 1), name), "1 dimension"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
            "2 dimensions": lambda o, name: Break(shape((WORDS,), name), "2 dimensions"),
            "same shape as logits": lambda o, name: Break(shape((ROWS, 8), name), "[4, 9]"),
            "shape is one for each row": lambda o, name: Break(shape((3,), name), "[4]"),
        },
        numbers=numbers,
    )


@pytest.mark.parametrize("k", [0, -3, 4])
def test_a_k_above_the_number_of_words_keeps_all(k: int) -> None:
    logits, out = (Placed(np.array([[1, 3, 2]], np.float32), "contiguous") for _ in range(2))
    p, count = (Placed(np.array([each]), "contiguous") for each in (np.float32(1), np.int32(k)))
    call = {"logits": logits.tensor, "p": p.tensor, "k": count.tensor, "out": out.tensor}
    prepare(BY_NAME["apply_top_k_top_p"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == [[1, 3, 2]]


@pytest.mark.parametrize(
    ("given", "expected"), [({"k": np.int32(2)}, [-np.inf, 3, 2]), ({"p": np.float32(0.5)}, [-np.inf, 3, -np.inf])]
)
def test_one_of_the_thresholds_may_be_null(given: Mapping[str, Any], expected: list[float]) -> None:
    logits, out = (Placed(np.array([[1, 3, 2]], np.float32), "contiguous") for _ in range(2))
    placed = {name: Placed(np.array([number]), "contiguous") for name, number in given.items()}
    thresholds = {"p": None, "k": None} | {name: each.tensor for name, each in placed.items()}
    call = {"logits": logits.tensor, "out": out.tensor, **thresholds}
    prepare(BY_NAME["apply_top_k_top_p"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == [expected]
