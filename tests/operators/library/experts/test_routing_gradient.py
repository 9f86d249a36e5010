"""Back through routes to experts and from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import routing_gradient
from tests.cases.table import INVALID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

INIT, FINAL = "moe_init_routing_v2_grad", "moe_finalize_routing_v2_grad"
#: Five tokens of four elements, with two of three experts each.
TOKENS, EXPERTS = (5, 4), (5, 2)
PLACES = np.array([4, 7, 8, 9, 0, 1, 5, 2, 6, 3])
BLOCKS = {"dropPadMode": 1, "expertNum": 3, "expertCapacity": 4}


def _init(d: D) -> Arguments:
    given = {"gradExpandedX": T(d, (10, 4)), "expandedRowIdx": T(D.INT32, (10,)), "topK": 2}
    return given | {"dropPadMode": 0, "activeNum": 0, "out": T(d, TOKENS)}


def _final(d: D) -> Arguments:
    return {
        "gradY": T(d, TOKENS),
        "expandedRowIdx": T(D.INT32, (10,)),
        "expandedXOptional": T(d, (10, 4)),
        "scalesOptional": T(d, EXPERTS),
        "expertIdxOptional": T(D.INT32, EXPERTS),
        "biasOptional": T(d, (3, 4)),
        "dropPadMode": 0,
        "activeNum": 0,
        "expertNum": 0,
        "expertCapacity": 0,
        "gradExpandedXOut": T(d, (10, 4)),
        "gradScalesOut": T(d, EXPERTS),
    }


def _back_to_tokens(a: Mapping[str, Any]) -> Any:
    """PyTorch's, through the rows that tokens give."""
    tokens = torch.zeros(TOKENS, dtype=torch.float64, requires_grad=True)
    rows = tokens.repeat_interleave(2, 0)[torch.argsort(a["expandedRowIdx"].long())]
    return torch.autograd.grad(rows, tokens, wide(a["gradExpandedX"]))[0]


def _back_to_experts(a: Mapping[str, Any]) -> Any:
    """PyTorch's, through the sum of what experts answered."""
    rows, scales = (wide(a[name]).requires_grad_() for name in ("expandedXOptional", "scalesOptional"))
    answers = rows[a["expandedRowIdx"].long()].reshape(*EXPERTS, 4)
    answers = answers + wide(a["biasOptional"])[a["expertIdxOptional"].long()]
    y = (answers * scales[..., None]).sum(1)
    return torch.autograd.grad(y, (rows, scales), wide(a["gradY"]))


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "expandedRowIdx":
        return PLACES
    return array % 3 if name == "expertIdxOptional" else array


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(
        dtype(D.INT16 if name in ("gradY", "gradExpandedX") or "Idx" in name else D.FLOAT16, name), "ACL_"
    ),
    "data type": lambda o, name: Break(dtype(D.INT64, name), "ACL_INT32"),
    "same data type as gradY": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as gradScalesOut": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
    "at least 1": lambda o, name: Break(BLOCKS | {name: 0} if o.name == FINAL else {name: 0}, "at least 1"),
    "at least 0": lambda o, name: Break({name: -1}, "at least 0"),
    "1 dimension": lambda o, name: Break(shape((5, 2), name), "1 dimension"),
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "… dimensions": lambda o, name: Break(shape((5, 2, 4), name), "2 dimensions"),
    "as many rows as places": lambda o, name: Break(shape((9, 4), name), "10 rows"),
    "a multiple of topK": lambda o, name: Break({"topK": 3}, "a multiple of 3"),
    "shape is a row for each token": lambda o, name: Break(shape((5, 3), name), "[5, 4]"),
    "given with scales": lambda o, name: Break({name: None}, "an object with"),
    "given with biases": lambda o, name: Break({name: None}, "an object with"),
    "a weight for each place": lambda o, name: Break(shape((5, 3), name), "5 rows and 10 elements"),
    "shape is one for each place": lambda o, name: Break(shape((4, 2), name), "[5, 2]"),
    "shape is the rows of experts": lambda o, name: Break(shape((9, 4), name), "[10, 4]"),
    "a row for each expert": lambda o, name: Break(shape((3, 5), name), "of 4 elements"),
    "a place for each row": lambda o, name: Break(
        dict.fromkeys(("expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional")), "5 elements"
    ),
}


class TestRoutingGradient(LibraryTests):
    subject = Subject(
        routing_gradient.OPERATORS,
        calls={INIT: _init, FINAL: _final},
        references={INIT: _back_to_tokens, FINAL: _back_to_experts},
        default=TRAINED,
        empty={
            INIT: {"gradExpandedX": {"shape": (0, 4)}, "expandedRowIdx": {"shape": (0,)}, "out": {"shape": (0, 4)}},
            FINAL: {
                "expandedRowIdx": {"shape": (0,)},
                "biasOptional": {"shape": (3, 4)},
                **{name: {"shape": (0, 4)} for name in ("gradY", "expandedXOptional", "gradExpandedXOut")},
                **{name: {"shape": (0, 2)} for name in ("scalesOptional", "expertIdxOptional", "gradScalesOut")},
            },
        },
        breaks=BREAKS,
        numbers=numbers,
        terms=4,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(
            (
                *("data types that go together", "data type", "format that counts as ND"),
                *("same data type as gradY", "same data type as gradScalesOut"),
            ),
            INVALID,
        ),
    )


def _float(*rows: Any) -> Array:
    return np.array(rows, np.float32)


ROWS = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


def test_the_documents_example_with_nonexistent_rows() -> None:
    given = {"expandedRowIdx": np.array([2, 0, 1, 3], np.int32), "topK": 2, "out": np.zeros((2, 2), np.float32)}
    whole = {"gradExpandedX": _float([1, 1], [3, 3], [2, 2], [4, 4]), "dropPadMode": 0, "activeNum": 0}
    assert computed(INIT, given | whole)["out"].tolist() == [[3, 3], [7, 7]]
    first = {"gradExpandedX": whole["gradExpandedX"][:2].copy(), "dropPadMode": 0, "activeNum": 2}
    assert computed(INIT, given | first)["out"].tolist() == [[1, 1], [3, 3]]
    blocks = {"gradExpandedX": ROWS.reshape(2, 2, 2), "dropPadMode": 1, "activeNum": 9}
    dropped = {"expandedRowIdx": np.array([-1, 3, -1, -1], np.int32)}
    assert computed(INIT, given | blocks | dropped)["out"].tolist() == [[7, 8], [0, 0]]
    with pytest.raises(AclnnError, match="expandedRowIdx: expected numbers from -1 to 3, got 4"):
        computed(INIT, given | blocks | {"expandedRowIdx": np.array([-1, 4, 0, 1], np.int32)})


def test_blocks_have_three_dimensions() -> None:
    with pytest.raises(AclnnError, match="gradExpandedX: expected 3 dimensions, got 2"):
        prepare(BY_NAME[INIT], described(_init(D.FLOAT) | {"dropPadMode": 1}), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="gradExpandedX: expected 3 rows"):
        prepare(BY_NAME[INIT], described(_init(D.FLOAT) | {"activeNum": 3}), Product.ATLAS_A2)


def _backed(**changes: Any) -> dict[str, Any]:
    """The gradients of two tokens of two elements, without biases."""
    given: dict[str, Any] = {
        "gradY": _float([1, 2], [3, 4]),
        "expandedRowIdx": np.array([3, 1, -1, 2], np.int32),
        "expandedXOptional": ROWS,
        "scalesOptional": _float([1, 10], [100, 1000]),
        "gradExpandedXOut": np.full((4, 2), 7, np.float32),
        "gradScalesOut": np.full((2, 2), 7, np.float32),
    }
    given |= dict.fromkeys(("expertIdxOptional", "biasOptional"))
    given |= dict.fromkeys(("dropPadMode", "activeNum", "expertNum", "expertCapacity"), 0)
    return computed(FINAL, given | changes)


def test_rows_without_a_place_are_zeros_and_weights_without_rows_have_only_biases() -> None:
    found = _backed()
    assert found["gradExpandedXOut"].tolist() == [[0, 0], [10, 20], [3000, 4000], [1, 2]]
    assert found["gradScalesOut"].tolist() == [[23, 11], [0, 39]]
    bias = {"expertIdxOptional": np.array([[0, 0], [1, 0]], np.int32), "biasOptional": _float([0, 0], [1, 10])}
    assert _backed(**bias)["gradScalesOut"].tolist() == [[23, 11], [43, 39]]
    with pytest.raises(AclnnError, match="expertIdxOptional: expected numbers from 0 to 1, got 2"):
        _backed(**bias | {"expertIdxOptional": np.array([[0, 2], [1, 0]], np.int32)})
    with pytest.raises(AclnnError, match="expandedRowIdx: expected numbers from -1 to 3, got 4"):
        _backed(expandedRowIdx=np.array([3, 1, 4, 2], np.int32))


def test_the_first_rows_count_as_rows_or_blocks() -> None:
    first = {"expandedXOptional": ROWS[:2].copy(), "gradExpandedXOut": np.full((2, 2), 7, np.float32)}
    found = _backed(activeNum=2, **first)
    assert found["gradExpandedXOut"].tolist() == [[0, 0], [10, 20]]
    assert found["gradScalesOut"].tolist() == [[0, 11], [0, 0]]
    blocks = {"dropPadMode": 1, "expertNum": 2, "expertCapacity": 2, "expandedXOptional": ROWS.reshape(2, 2, 2)}
    found = _backed(activeNum=2, **blocks, gradExpandedXOut=np.full((2, 2, 2), 7, np.float32))
    assert found["gradExpandedXOut"].tolist() == [[[0, 0], [10, 20]], [[3000, 4000], [1, 2]]]
    bias = {"expertIdxOptional": np.array([[0, 0], [1, 0]], np.int32), "biasOptional": _float([0, 0])}
    with pytest.raises(AclnnError, match="biasOptional: expected 2 rows"):
        _backed(**blocks, **bias, gradExpandedXOut=np.full((2, 2, 2), 7, np.float32))


def test_without_weights_rows_are_the_tokens_gradients_and_the_weights_stay_as_they_are() -> None:
    without = dict.fromkeys(("expandedXOptional", "scalesOptional"))
    rows = {"expandedRowIdx": np.array([1, 0], np.int32), "gradExpandedXOut": np.zeros((2, 2), np.float32)}
    found = _backed(**without, **rows)
    assert found["gradExpandedXOut"].tolist() == [[3, 4], [1, 2]]
    assert found["gradScalesOut"].tolist() == [[7, 7], [7, 7]]


@pytest.mark.parametrize(
    ("scales", "product", "taken"),
    [(D.FLOAT, Product.ATLAS_A2, False), (D.FLOAT, Product.ASCEND_950, True), (D.BF16, Product.ASCEND_950, True)],
)
def test_weights_may_have_another_type_on_ascend_950(scales: D, product: Product, taken: bool) -> None:
    weights = {"scalesOptional": T(scales, EXPERTS), "gradScalesOut": T(scales, EXPERTS)}
    arguments = described(_final(D.FLOAT16) | weights)
    if taken:
        prepare(BY_NAME[FINAL], arguments, product)
    else:
        with pytest.raises(AclnnError, match="gradScalesOut: expected data type ACL_FLOAT16"):
            prepare(BY_NAME[FINAL], arguments, product)
