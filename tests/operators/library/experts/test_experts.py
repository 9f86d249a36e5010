"""Tokens to experts and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import experts
from tests.cases.table import INVALID, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

PERMUTE, PERMUTE_GRAD = "moe_token_permute", "moe_token_permute_grad"
UNPERMUTE, UNPERMUTE_GRAD = "moe_token_unpermute", "moe_token_unpermute_grad"
#: Of five tokens with two experts each, as many rows of four elements as are kept.
KEPT = 7
PLACES = np.array([4, 7, 8, 9, 0, 1, 5, 2, 6, 3])


def _other(d: D) -> D:
    """Weights may be of another type than tokens."""
    return D.FLOAT if d == D.BF16 else d


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    PERMUTE: lambda d: {
        "tokens": T(d, (5, 4)),
        "indices": T(D.INT64, (5, 2)),
        "numOutTokens": KEPT,
        "paddedMode": False,
        "permuteTokensOut": T(d, (KEPT, 4)),
        "sortedIndicesOut": T(D.INT32, (10,)),
    },
    PERMUTE_GRAD: lambda d: {
        "permutedOutputGrad": T(d, (KEPT, 4)),
        "sortedIndices": T(D.INT32, (10,)),
        "numTopk": 2,
        "paddedMode": False,
        "out": T(d, (5, 4)),
    },
    UNPERMUTE: lambda d: {
        "permutedTokens": T(d, (KEPT, 4)),
        "sortedIndices": T(D.INT32, (10,)),
        "probsOptional": T(_other(d), (5, 2)),
        "paddedMode": False,
        "restoreShapeOptional": (1,),
        "out": T(d, (5, 4)),
    },
    UNPERMUTE_GRAD: lambda d: {
        "permutedTokensOptional": T(d, (KEPT, 4)),
        "unpermutedTokensGrad": T(d, (5, 4)),
        "sortedIndices": T(D.INT32, (10,)),
        "probsOptional": T(_other(d), (5, 2)),
        "paddedMode": False,
        "restoreShapeOptional": None,
        "permutedTokensGradOut": T(d, (KEPT, 4)),
        "probsGradOut": T(_other(d), (5, 2)),
    },
}


def _permute(tokens: Any, indices: Any) -> tuple[Any, Any]:
    """MindSpeed's, of PyTorch's functions."""
    order = indices.flatten().argsort(stable=True)
    return tokens.index_select(0, order[:KEPT] // indices.shape[1]), order.argsort(stable=True)


def _unpermute(rows: Any, places: Any, probs: Any) -> Any:
    whole = torch.cat([rows, rows.new_zeros(len(places) - len(rows), rows.shape[1])])
    return (whole[places.long()].reshape(*probs.shape, -1) * probs[..., None]).sum(1)


def _gradients(forward: Callable[..., Any], gradient: Any, *inputs: Any) -> tuple[Any, ...]:
    leaves = [each.detach().requires_grad_() for each in inputs]
    found: tuple[Any, ...] = torch.autograd.grad(forward(*leaves), leaves, gradient)
    return found


def _permute_gradient(a: Mapping[str, Any]) -> Any:
    """Of tokens whose permutation puts the rows where ``sortedIndices`` says."""
    places = a["sortedIndices"].long()
    order = places.argsort()
    (found,) = _gradients(
        lambda tokens: tokens.repeat_interleave(2, 0)[order][:KEPT],
        wide(a["permutedOutputGrad"]),
        torch.zeros(5, 4, dtype=torch.float64),
    )
    return found


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    PERMUTE: lambda a: _permute(a["tokens"], a["indices"]),
    PERMUTE_GRAD: _permute_gradient,
    UNPERMUTE: lambda a: _unpermute(wide(a["permutedTokens"]), a["sortedIndices"], wide(a["probsOptional"])),
    UNPERMUTE_GRAD: lambda a: _gradients(
        lambda rows, probs: _unpermute(rows, a["sortedIndices"], probs),
        wide(a["unpermutedTokensGrad"]),
        wide(a["permutedTokensOptional"]),
        wide(a["probsOptional"]),
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    PERMUTE: {"indices": {"shape": (0, 2)}, "sortedIndicesOut": {"shape": (0,)}},
    PERMUTE_GRAD: {"sortedIndices": {"shape": (0,)}},
    UNPERMUTE: {"sortedIndices": {"shape": (0,)}, "probsOptional": {"shape": (0, 2)}},
    UNPERMUTE_GRAD: {
        "sortedIndices": {"shape": (0,)},
        **{key: {"shape": (0, 2)} for key in ("probsOptional", "probsGradOut")},
    },
}


def _wrong_type(operator: Operator, name: str) -> Break:
    """Of the first tensor the type decides what goes with it."""
    is_first = operator.checks[0].name.startswith(f"present: {name}")
    return Break(dtype(D.INT16 if is_first or "ndices" in name or name == "probsGradOut" else D.FLOAT16, name), "ACL_")


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": _wrong_type,
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "same data type as unpermutedTokensGrad": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "not padded": lambda o, name: Break({name: True}, "false", product=Product.ASCEND_950),
    "false": lambda o, name: Break({name: True}, "false"),
    "present": lambda o, name: Break({name: None}, "an object", product=Product.ASCEND_950),
    "with probsOptional": lambda o, name: Break({name: None}, "an object"),
    "dimensions of tokens": lambda o, name: Break(shape((5,), name), "2 to 8"),
    "1 to 2 dimensions": lambda o, name: Break(shape((5, 2, 1), name), "1 to 2"),
    "a row for each token": lambda o, name: Break(shape((4, 2), name), "5 rows"),
    "few experts": lambda o, name: Break(
        {name: 513}
        if name == "numTopk"
        else shape((5, 513), name) | ({} if name == "indices" else shape((5 * 513,), "sortedIndices")),
        "512",
    ),
    "at most 16777214 elements": lambda o, name: Break(
        shape((2**16, 256), name) | shape((2**16, 4), "tokens"), "16777214"
    ),
    "2 to 8 dimensions": lambda o, name: Break(shape((7,), name), "2 to 8"),
    "the rows that are kept": lambda o, name: Break(shape((8, 4), name), "7 rows"),
    "shape is one for each of indices": lambda o, name: Break(shape((9,), name), "[10]"),
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((5, 2), name), "1 dimension"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "numTopk for each token": lambda o, name: Break(shape((9,), name), "a multiple of 2"),
    "shape is a row for each token": lambda o, name: Break(shape((6, 4), name), "[5, 4]"),
    "one for each of probsOptional": lambda o, name: Break(shape((9,), name), "10 elements"),
    "same shape as permutedTokensGradOut": lambda o, name: Break(shape((8, 4), name), "[7, 4]"),
    "as probsOptional": lambda o, name: Break(shape((5, 3), name), "[5, 2]"),
    "no dimension of 0": lambda o, name: Break(
        shape((7, 0), "permutedTokensGradOut", "permutedTokensOptional") | shape((5, 0), "unpermutedTokensGrad")
        if name == "unpermutedTokensGrad"
        else shape((0, 4), "permutedTokensGradOut", "permutedTokensOptional"),
        "no dimension of 0",
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "sortedIndices":
        return PLACES
    return array % 4 if name == "indices" else array


TILING = set(BREAKS) - {
    *("data types that go together", "data type", "same data type as unpermutedTokensGrad"),
    *("format that counts as ND", "not padded", "present"),
}


class TestExperts(LibraryTests):
    subject = Subject(
        experts.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        default=TRAINED,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _run(name: str, product: Product = Product.ATLAS_A2, **changes: Any) -> dict[str, Array]:
    """Compute with a call of float32 in which arrays stand for some arguments; return what is in the arrays."""
    arrays = {key: value for key, value in changes.items() if isinstance(value, np.ndarray)}
    placed = {key: Placed(value, "contiguous") for key, value in arrays.items()}
    call = CALLS[name](D.FLOAT) | changes | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], call, product).run()
    return {key: each.view for key, each in placed.items()}


def _filled(*of: int, kind: Any = np.float32) -> Array:
    return np.full(of, 7, kind)


@pytest.mark.parametrize(("asked", "kept"), [(0, 3), (2, 2), (-1, 2), (9, 3), (-9, 0)])
def test_as_many_rows_are_kept_as_asked_for(asked: int, kept: int) -> None:
    """Tokens of several dimensions with one expert each; equal experts in the order of tokens."""
    tokens = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = _run(
        PERMUTE,
        tokens=tokens,
        indices=np.array([1, 0, 1], np.int32),
        numOutTokens=asked,
        permuteTokensOut=_filled(kept, 2, 2),
        sortedIndicesOut=_filled(3, kind=np.int32),
    )
    assert found["sortedIndicesOut"].tolist() == [1, 0, 2]
    np.testing.assert_array_equal(found["permuteTokensOut"], tokens[[1, 0, 2]][:kept])


def test_int8_is_accepted_on_ascend_950_in_two_dimensions() -> None:
    tokens = np.arange(6, dtype=np.int8).reshape(3, 2)
    given: dict[str, Any] = {"indices": np.array([1, 0, 1]), "numOutTokens": 0}
    outs = {"permuteTokensOut": _filled(3, 2, kind=np.int8), "sortedIndicesOut": _filled(3, kind=np.int32)}
    found = _run(PERMUTE, Product.ASCEND_950, tokens=tokens, **given, **outs)
    assert found["permuteTokensOut"].tolist() == [[2, 3], [0, 1], [4, 5]]
    with pytest.raises(AclnnError, match="tokens: expected data type ACL_FLOAT") as caught:
        _run(PERMUTE, tokens=tokens, **given, **outs)
    assert caught.value.code == INVALID
    with pytest.raises(AclnnError, match="tokens: expected 2 dimensions, got 3"):
        _run(PERMUTE, Product.ASCEND_950, tokens=tokens[..., np.newaxis], **given, **outs)


def test_without_weights_each_token_has_one_row() -> None:
    places, rows = np.array([2, 0, 1], np.int32), np.arange(6, dtype=np.float32).reshape(3, 2)
    given = {"sortedIndices": places, "probsOptional": None}
    found = _run(UNPERMUTE, permutedTokens=rows, out=_filled(3, 2), **given)
    np.testing.assert_array_equal(found["out"], rows[places])
    of_gradient = {"unpermutedTokensGrad": rows, "permutedTokensGradOut": _filled(3, 2), "probsGradOut": _filled(0)}
    found = _run(UNPERMUTE_GRAD, permutedTokensOptional=None, **given, **of_gradient)
    np.testing.assert_array_equal(found["permutedTokensGradOut"][places], rows)
    with pytest.raises(AclnnError, match="permutedTokensOptional: expected an object, got null") as caught:
        _run(UNPERMUTE_GRAD, Product.ASCEND_950, permutedTokensOptional=None, **given, **of_gradient)
    assert caught.value.code == NULL


@pytest.mark.parametrize("name", [PERMUTE_GRAD, UNPERMUTE, UNPERMUTE_GRAD])
def test_negative_rows_are_rejected(name: str) -> None:
    tensors = {key: _filled(*each.shape) for key, each in CALLS[name](D.FLOAT).items() if isinstance(each, T)}
    with pytest.raises(AclnnError, match="sortedIndices: expected rows from 0 on, got -1"):
        _run(name, **tensors | {"sortedIndices": np.full(10, -1, np.int32)})


def test_ascend_950_does_not_limit_the_number_of_experts() -> None:
    arguments = CALLS[PERMUTE](D.FLOAT) | {
        "tokens": Tensor(D.FLOAT, (2, 4)),
        "indices": Tensor(D.INT64, (2, 600)),
        "permuteTokensOut": Tensor(D.FLOAT, (KEPT, 4)),
        "sortedIndicesOut": Tensor(D.INT32, (1200,)),
    }
    prepare(BY_NAME[PERMUTE], arguments, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="indices: expected at most 512 for a token, got 600"):
        prepare(BY_NAME[PERMUTE], arguments, Product.ATLAS_A2)
