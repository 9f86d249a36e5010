"""Tokens to experts and back, by a map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_FIND_KERNEL_ERROR, ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import routing_map
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

PERMUTE, PERMUTE_GRAD = "moe_token_permute_with_routing_map", "moe_token_permute_with_routing_map_grad"
UNPERMUTE, UNPERMUTE_GRAD = "moe_token_unpermute_with_routing_map", "moe_token_unpermute_with_routing_map_grad"
TOKENS, EXPERTS, CHOSEN, COLUMNS = 5, 4, 2, 3
ROWS = TOKENS * CHOSEN
#: Two experts for each token but the last, which has one.
MAP = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]])
#: The rows in order of experts.
EXPERT, TOKEN = MAP.T.nonzero()
#: The row of each slot of a token, -1 for one that is not used.
PLACES = np.array([0, 4, 2, 5, 1, 3, 6, 7, 8, -1])
#: Tokens and weights of rows, two of each expert, where experts have as many.
PADDED_TOKENS = np.array([0, 2, 1, 2, 0, 1, 3, 4])


def _probs(d: D) -> D:
    """Weights may be float32 with bfloat16."""
    return D.FLOAT if d == D.BF16 else d


def _map() -> T:
    return T(D.BOOL, (TOKENS, EXPERTS))


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    PERMUTE: lambda d: {
        "tokens": T(d, (TOKENS, COLUMNS)),
        "routingMap": T(D.INT8, (TOKENS, EXPERTS)),
        "probsOptional": T(_probs(d), (TOKENS, EXPERTS)),
        "numOutTokens": ROWS,
        "dropAndPad": False,
        "permuteTokensOut": T(d, (ROWS, COLUMNS)),
        "permuteProbsOutOptional": T(_probs(d), (ROWS,)),
        "sortedIndicesOut": T(D.INT32, (ROWS,)),
    },
    PERMUTE_GRAD: lambda d: {
        "permutedTokensOutputGrad": T(d, (ROWS, COLUMNS)),
        "permutedProbsOutputGradOptional": T(_probs(d), (ROWS,)),
        "sortedIndices": T(D.INT32, (ROWS,)),
        "routingMapOptional": _map(),
        "experts_num": EXPERTS,
        "tokens_num": TOKENS,
        "dropAndPad": False,
        "tokenGradOut": T(d, (TOKENS, COLUMNS)),
        "probsGradOutOptional": T(_probs(d), (TOKENS, EXPERTS)),
    },
    UNPERMUTE: lambda d: {
        "permutedTokens": T(d, (ROWS, COLUMNS)),
        "sortedIndices": T(D.INT32, (ROWS,)),
        "routingMapOptional": _map(),
        "probsOptional": T(_probs(d), (TOKENS, EXPERTS)),
        "paddedMode": False,
        "restoreShapeOptional": (TOKENS, COLUMNS),
        "unpermutedTokens": T(d, (TOKENS, COLUMNS)),
        **{name: T(D.INT32, (ROWS,)) for name in ("outIndex", "permuteTokenId")},
        "permuteProbs": T(_probs(d), (ROWS,)),
    },
    UNPERMUTE_GRAD: lambda d: {
        "unpermutedTokensGrad": T(d, (TOKENS, COLUMNS)),
        **{name: T(D.INT32, (ROWS,)) for name in ("outIndex", "permuteTokenId")},
        "routingMapOptional": _map(),
        "permutedTokensOptional": T(d, (ROWS, COLUMNS)),
        "probsOptional": T(_probs(d), (TOKENS, EXPERTS)),
        "dropAndPad": False,
        "restoreShapeOptional": None,
        "permutedTokensGradOut": T(d, (ROWS, COLUMNS)),
        "probsGradOutOptional": T(_probs(d), (TOKENS, EXPERTS)),
    },
}


def _permuted(tokens: Any, probs: Any) -> tuple[Any, Any]:
    """The rows and their weights, zeros for the last, which is not used."""
    rows = torch.cat([tokens[TOKEN], tokens.new_zeros(1, COLUMNS)])
    return rows, torch.cat([probs[TOKEN, EXPERT], probs.new_zeros(1)])


def _restored(rows: Any, probs: Any) -> Any:
    weights = probs[TOKEN, EXPERT][:, None]
    return torch.zeros(TOKENS, COLUMNS, dtype=rows.dtype).index_add(0, torch.from_numpy(TOKEN), rows[:-1] * weights)


def _gradients(forward: Callable[..., Any], gradients: Any, *inputs: Any) -> tuple[Any, ...]:
    leaves = [each.requires_grad_() for each in inputs]
    found: tuple[Any, ...] = torch.autograd.grad(forward(*leaves), leaves, gradients)
    return found


def _zeros(*of: int) -> Any:
    return torch.zeros(of, dtype=torch.float64)


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    PERMUTE: lambda a: (*_permuted(wide(a["tokens"]), wide(a["probsOptional"])), torch.from_numpy(PLACES)),
    PERMUTE_GRAD: lambda a: _gradients(
        _permuted,
        (wide(a["permutedTokensOutputGrad"]), wide(a["permutedProbsOutputGradOptional"])),
        _zeros(TOKENS, COLUMNS),
        _zeros(TOKENS, EXPERTS),
    ),
    UNPERMUTE: lambda a: (
        _restored(wide(a["permutedTokens"]), wide(a["probsOptional"])),
        torch.from_numpy(PLACES),
        torch.arange(ROWS) // CHOSEN,
        _permuted(_zeros(TOKENS, COLUMNS), wide(a["probsOptional"]))[1],
    ),
    UNPERMUTE_GRAD: lambda a: _gradients(
        _restored,
        wide(a["unpermutedTokensGrad"]),
        wide(a["permutedTokensOptional"]),
        wide(a["probsOptional"]),
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name.startswith("routingMap"):
        return MAP
    if name in ("sortedIndices", "outIndex"):
        return PLACES
    return np.arange(ROWS) // CHOSEN if name == "permuteTokenId" else array


_NONE = shape((0, COLUMNS), "permuteTokensOut") | shape((0,), "permuteProbsOutOptional", "sortedIndicesOut")
EMPTY: Mapping[str, Mapping[str, Any]] = {
    PERMUTE: {**_NONE, "tokens": {"shape": (TOKENS, COLUMNS)}, "numOutTokens": 0}
    | shape((TOKENS, EXPERTS), "routingMap", "probsOptional"),
    PERMUTE_GRAD: {"tokens_num": 0, "experts_num": 3}
    | shape((0, COLUMNS), "permutedTokensOutputGrad", "tokenGradOut")
    | shape((0, 3), "routingMapOptional", "probsGradOutOptional")
    | shape((0,), "sortedIndices", "permutedProbsOutputGradOptional"),
    UNPERMUTE: shape((0,), "sortedIndices", "outIndex", "permuteTokenId", "permuteProbs"),
    UNPERMUTE_GRAD: shape((0,), "outIndex", "permuteTokenId"),
}


def _other_type(operator: Any, name: str) -> Break:
    return Break(dtype(D.FLOAT16, name), "ACL_FLOAT")


def _other_shape(operator: Any, name: str) -> Break:
    return Break(shape((7, 7), name), "shape [")


SHAPES = (
    *("same shape as routingMap", "same shape as routingMapOptional", "same shape as probsOptional"),
    *("same shape as sortedIndices", "same shape as outIndex", "same shape as permutedTokensGradOut"),
    *("shape is a row for each token", "shape is the rows", "shape is one for each row", "shape is (tokens, experts)"),
    *("shape is the columns of permutedTokens", "shape is the columns of unpermutedTokensGrad"),
)
TYPED = ("tokens", "probsOptional", "permutedTokensOutputGrad", "permutedTokens", "unpermutedTokensGrad")
BREAKS: Mapping[str, Breaking] = {
    **dict.fromkeys(SHAPES, _other_shape),
    **dict.fromkeys([f"same data type as {name}" for name in (*TYPED, "permutedProbsOutputGradOptional")], _other_type),
    "given": lambda o, name: Break({name: None}, "an object"),
    "data type": lambda o, name: Break(dtype(D.INT16, name), "ACL_"),
    "data type with tokens": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
    "data type with permutedTokensOutputGrad": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
    "data type with permutedTokens": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
    "data type with unpermutedTokensGrad": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
    "2 dimensions": lambda o, name: Break(shape((TOKENS,), name), "2 dimensions"),
    "no more than the map has": lambda o, name: Break({name: -1}, "from 0 to 20"),
    "at most 16777214 rows and columns": lambda o, name: Break(
        shape((2**24, EXPERTS), name, "probsOptional") | shape((2**24, COLUMNS), "tokens"), "16777214"
    ),
    "not negative": lambda o, name: Break({name: -1}, "0 or more"),
    "at most 512 rows a token": lambda o, name: Break(
        shape((513 * TOKENS, COLUMNS), name)
        | shape((513 * TOKENS,), "sortedIndices", "outIndex", "permuteTokenId", "permuteProbs"),
        "512",
    ),
}


def _subject(names: tuple[str, ...], **facts: Any) -> Subject:
    return Subject(
        tuple(operator for operator in routing_map.OPERATORS if operator.name in names),
        calls=CALLS,
        references=REFERENCES,
        default=TRAINED,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        **facts,
    )


class TestForwardAndPermutedGradient(LibraryTests):
    subject = _subject(
        (PERMUTE, PERMUTE_GRAD, UNPERMUTE), codes={"at most 512 rows a token": ACLNN_ERR_INNER_FIND_KERNEL_ERROR}
    )


class TestGradientOfSums(LibraryTests):
    subject = _subject(
        (UNPERMUTE_GRAD,),
        codes={
            title: ACLNN_ERR_INNER_TILING_ERROR
            for title in BREAKS
            if title not in ("data type", "same data type as unpermutedTokensGrad")
        },
    )


def _run(name: str, **changes: Any) -> dict[str, Array]:
    """Compute with a call of float32 in which arrays stand for some arguments; return what is in the arrays."""
    placed = {key: Placed(value, "contiguous") for key, value in changes.items() if isinstance(value, np.ndarray)}
    call = CALLS[name](D.FLOAT) | changes | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], call, Product.ATLAS_A2).run()
    return {key: each.view for key, each in placed.items()}


def _sevens(*of: int, kind: Any = np.float32) -> Array:
    return np.full(of, 7, kind)


def test_with_padding_every_expert_has_its_first_tokens() -> None:
    """Expert 0 has two tokens, as the others; where the map has fewer, those follow that are not chosen."""
    tokens = np.arange(TOKENS * COLUMNS, dtype=np.float32).reshape(TOKENS, COLUMNS)
    probs = np.arange(TOKENS * EXPERTS, dtype=np.float32).reshape(TOKENS, EXPERTS)
    found = _run(
        PERMUTE,
        tokens=tokens,
        routingMap=MAP.astype(np.int8),
        probsOptional=probs,
        numOutTokens=11,
        dropAndPad=True,
        permuteTokensOut=_sevens(8, COLUMNS),
        permuteProbsOutOptional=_sevens(8),
        sortedIndicesOut=_sevens(8, kind=np.int32),
    )
    assert found["sortedIndicesOut"].tolist() == PADDED_TOKENS.tolist()
    np.testing.assert_array_equal(found["permuteTokensOut"], tokens[PADDED_TOKENS])
    np.testing.assert_array_equal(found["permuteProbsOutOptional"], probs[PADDED_TOKENS, np.arange(8) // 2])


def test_sums_with_padding_and_their_gradients() -> None:
    random = np.random.default_rng(3)
    rows, gradient = (random.normal(size=(n, COLUMNS)).astype(np.float32) for n in (8, TOKENS))
    probs = random.random((TOKENS, EXPERTS)).astype(np.float32)
    found = _run(
        UNPERMUTE,
        permutedTokens=rows,
        sortedIndices=PADDED_TOKENS.astype(np.int32),
        routingMapOptional=MAP.astype(bool),
        probsOptional=probs,
        paddedMode=True,
        unpermutedTokens=_sevens(TOKENS, COLUMNS),
        outIndex=_sevens(8, kind=np.int32),
        permuteTokenId=_sevens(8, kind=np.int32),
        permuteProbs=_sevens(8),
    )
    leaves = [torch.from_numpy(each.copy()).double().requires_grad_() for each in (rows, probs)]
    weights = leaves[1][PADDED_TOKENS, np.arange(8) // 2]
    expected = _zeros(TOKENS, COLUMNS).index_add(0, torch.from_numpy(PADDED_TOKENS), leaves[0] * weights[:, None])
    expected.backward(torch.from_numpy(gradient))
    np.testing.assert_allclose(found["unpermutedTokens"], expected.detach(), rtol=1e-6, atol=1e-6)
    assert found["permuteTokenId"].tolist() == sorted(PADDED_TOKENS)
    gradients = _run(
        UNPERMUTE_GRAD,
        unpermutedTokensGrad=gradient,
        outIndex=found["outIndex"],
        permuteTokenId=found["permuteTokenId"],
        routingMapOptional=MAP.astype(bool),
        permutedTokensOptional=rows,
        probsOptional=probs,
        dropAndPad=True,
        permutedTokensGradOut=_sevens(8, COLUMNS),
        probsGradOutOptional=_sevens(TOKENS, EXPERTS),
    )
    for name, leaf in zip(("permutedTokensGradOut", "probsGradOutOptional"), leaves, strict=True):
        np.testing.assert_allclose(gradients[name], leaf.grad, rtol=1e-6, atol=1e-6)


def test_without_weights_rows_are_added_up() -> None:
    rows = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    absent = dict.fromkeys(("routingMapOptional", "probsOptional"))
    indices = {name: _sevens(ROWS, kind=np.int32) for name in ("outIndex", "permuteTokenId")}
    found = _run(
        UNPERMUTE,
        permutedTokens=rows,
        sortedIndices=PLACES.astype(np.int32),
        unpermutedTokens=_sevens(TOKENS, COLUMNS),
        permuteProbs=None,
        **absent,
        **indices,
    )
    expected = [rows[:9][token == TOKEN].sum(0) for token in range(TOKENS)]
    np.testing.assert_array_equal(found["unpermutedTokens"], expected)
    gradients = _run(
        UNPERMUTE_GRAD,
        unpermutedTokensGrad=found["unpermutedTokens"],
        outIndex=found["outIndex"],
        permuteTokenId=found["permuteTokenId"],
        permutedTokensOptional=None,
        permutedTokensGradOut=_sevens(ROWS, COLUMNS),
        probsGradOutOptional=None,
        **absent,
    )
    np.testing.assert_array_equal(gradients["permutedTokensGradOut"][:9], found["unpermutedTokens"][TOKEN])
    assert not gradients["permutedTokensGradOut"][9].any()


def test_arguments_required_with_weights() -> None:
    with pytest.raises(AclnnError, match="routingMapOptional: expected an object, got null") as caught:
        _run(UNPERMUTE, routingMapOptional=None)
    assert caught.value.code == NULL


@pytest.mark.parametrize(("name", "place"), [(PERMUTE_GRAD, ROWS), (UNPERMUTE, -2), (UNPERMUTE, ROWS)])
def test_places_beyond_the_rows_are_rejected(name: str, place: int) -> None:
    call = CALLS[name](D.FLOAT)
    tensors = {key: np.zeros(each.shape, each.dtype.numpy) for key, each in call.items() if isinstance(each, T)}
    flags = {"routingMapOptional": MAP.astype(bool)}
    with pytest.raises(AclnnError, match="sortedIndices: expected places from -1 on, below 10"):
        _run(name, **tensors | flags | {"sortedIndices": np.full(ROWS, place, np.int32)})
