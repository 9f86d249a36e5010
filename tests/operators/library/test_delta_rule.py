"""Linear attention by the gated delta rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import delta_rule
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

LENGTHS, PLACES, ACCEPTED = (3, 2), (5, 1, 4, 0, 3), (2, 1)
INDICES = {"actualSeqLengths": LENGTHS, "ssmStateIndices": PLACES, "numAcceptedTokens": ACCEPTED}


def _call(d: D, tokens: int = 5) -> Arguments:
    """Two sequences of heads of 3 and 2 numbers, two heads of values to each of keys."""
    return {
        "query": T(d, (tokens, 2, 3)),
        "key": T(d, (tokens, 2, 3)),
        "value": T(d, (tokens, 4, 2)),
        "beta": T(d, (tokens, 4)),
        "stateRef": T(d, (6, 4, 2, 3)),
        "out": T(d, (tokens, 4, 2)),
        "g": T(D.FLOAT, (tokens, 4)),
        "gk": None,
        "scaleValue": 0.5,
        **{name: T(D.INT32, (tokens if name == "ssmStateIndices" else 2,)) for name in INDICES},
    }


def _reference(a: Mapping[str, Any]) -> Any:
    """Every head on its own, as the recurrence is written."""
    states, out = wide(a["stateRef"]).clone(), torch.zeros(5, 4, 2, dtype=torch.float64)
    query, key, value, beta, g = (wide(a[name]) for name in ("query", "key", "value", "beta", "g"))
    for tokens, accepted in ((range(3), 2), (range(3, 5), 1)):
        for head in range(4):
            state = states[PLACES[tokens[accepted - 1]], head].clone()
            for t in tokens:
                k = key[t, head // 2]
                state = state @ (g[t, head].exp() * (torch.eye(3) - beta[t, head] * torch.outer(k, k)).double())
                state = state + beta[t, head] * torch.outer(value[t, head], k)
                states[PLACES[t], head] = state
                out[t, head] = 0.5 * state @ query[t, head // 2]
    return states, out


BREAKS: Mapping[str, Breaking] = {
    "null": lambda o, name: Break({name: T(D.FLOAT, (5, 4, 3))}, "null"),
    "3 dimensions": lambda o, name: Break(shape((5, 3), name), "3 dimensions"),
    "4 dimensions": lambda o, name: Break(shape((6, 4, 2), name), "4 dimensions"),
    "1 dimension": lambda o, name: Break(shape((2, 1), name), "1 dimension"),
    "same shape as query": lambda o, name: Break(shape((5, 2, 4), name), "[5, 2, 3]"),
    "heads and their numbers": lambda o, name: Break(
        shape((5, 3, 2), name) if name == "value" else shape((5, 2, 257), name, "key"),
        "multiple of the 2" if name == "value" else "at most 256",
    ),
    "shape is a number for each token and head of value": lambda o, name: Break(shape((5, 2), name), "[5, 4]"),
    "a state for each head": lambda o, name: Break(shape((6, 4, 3, 2), name), "[4, 2, 3]"),
    "shape is a number for each token": lambda o, name: Break(shape((4,), name), "[5]"),
    "same shape as actualSeqLengths": lambda o, name: Break(shape((3,), name), "[2]"),
    "same shape as value": lambda o, name: Break(shape((5, 4, 3), name), "[5, 4, 2]"),
    "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.array(INDICES[name], np.int32)[: array.size] if name in INDICES else array


class TestDeltaRule(LibraryTests):
    subject = Subject(
        delta_rule.OPERATORS,
        calls={"recurrent_gated_delta_rule": _call},
        references={"recurrent_gated_delta_rule": _reference},
        default=(D.BF16,),
        empty={"recurrent_gated_delta_rule": _call(D.BF16, 0) | {name: T(D.INT32, (0,)) for name in INDICES}},
        breaks=BREAKS,
        numbers=numbers,
    )


@pytest.mark.parametrize(
    ("name", "wrong"), [("actualSeqLengths", 4), ("ssmStateIndices", 6), ("numAcceptedTokens", 3), ("g", None)]
)
def test_indices_that_lead_outside_are_told(name: str, wrong: int | None) -> None:
    placed = {
        each: Placed(
            np.array(INDICES[each], np.int32) if each in INDICES else np.ones(T.shape, T.dtype.numpy), "contiguous"
        )
        for each, T in _call(D.BF16).items()
        if each not in ("gk", "scaleValue")
    }
    arguments = {each: one.tensor for each, one in placed.items()} | {"gk": None, "scaleValue": 1.0}
    if wrong is None:
        arguments[name] = None
        prepare(BY_NAME["recurrent_gated_delta_rule"], arguments, Product.ATLAS_A2).run()
        return
    placed[name].view[-1] = wrong
    with pytest.raises(AclnnError, match=f"{name}: expected"):
        prepare(BY_NAME["recurrent_gated_delta_rule"], arguments, Product.ATLAS_A2).run()
