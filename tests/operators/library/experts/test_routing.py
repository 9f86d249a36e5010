"""Routes to experts."""

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
from aclnn.operators.library.experts import routing
from tests.cases.table import INVALID, NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    torch,
    wide,
)

INIT, INIT2, INIT3 = "moe_init_routing", "moe_init_routing_v2", "moe_init_routing_v3"
QUANT2, SCALES = "moe_init_routing_quant_v2", "dynamicQuantScaleOutOptional"
ENDS = "moe_compute_expert_tokens"
COUNTS, BEFORE, RANGE = "expertTokensCountOrCumsumOut", "expertTokensBeforeCapacityOut", "activeExpertRangeOptional"
#: Five tokens of four elements, with two of three experts each.
TOKENS, EXPERTS = (5, 4), (5, 2)


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    INIT: lambda d: {
        "x": T(d, TOKENS),
        "rowIdx": T(D.INT32, EXPERTS),
        "expertIdx": T(D.INT32, EXPERTS),
        "activeNum": 3,
        "expandedXOut": T(d, (6, 4)),
        "expandedRowIdxOut": T(D.INT32, (10,)),
        "expandedExpertIdxOut": T(D.INT32, (10,)),
    },
    INIT2: lambda d: {
        "x": T(d, TOKENS),
        "expertIdx": T(D.INT32, EXPERTS),
        "activeNum": 7,
        "expertCapacity": 0,
        "expertNum": 3,
        "dropPadMode": 0,
        "expertTokensCountOrCumsumFlag": 1,
        "expertTokensBeforeCapacityFlag": False,
        "expandedXOut": T(d, (7, 4)),
        "expandedRowIdxOut": T(D.INT32, (10,)),
        COUNTS: T(D.INT32, (3,)),
        BEFORE: None,
    },
    QUANT2: lambda d: {
        "x": T(d, TOKENS),
        "expertIdx": T(D.INT32, EXPERTS),
        "scaleOptional": T(D.FLOAT, (3, 4)),
        "offsetOptional": None,
        "activeNum": 7,
        "expertCapacity": 0,
        "expertNum": 3,
        "dropPadMode": 0,
        "expertTokensCountOrCumsumFlag": 2,
        "expertTokensBeforeCapacityFlag": False,
        "quantMode": 1,
        "expandedXOut": T(D.INT8, (7, 4)),
        "expandedRowIdxOut": T(D.INT32, (10,)),
        f"{COUNTS}Optional": T(D.INT32, (3,)),
        f"{BEFORE}Optional": None,
        SCALES: T(D.FLOAT, (7,)),
    },
    INIT3: lambda d: {
        "x": T(d, TOKENS),
        "expertIdx": T(D.INT32, EXPERTS),
        "scaleOptional": T(D.FLOAT, (5,)),
        "offsetOptional": None,
        "activeNum": -1,
        "expertCapacity": -1,
        "expertNum": 3,
        "dropPadMode": 0,
        "expertTokensNumType": 1,
        "expertTokensNumFlag": True,
        "quantMode": -1,
        RANGE: (1, 3),
        "rowIdxType": 0,
        "expandedXOut": T(d, (10, 4)),
        "expandedRowIdxOut": T(D.INT32, (10,)),
        COUNTS: T(D.INT64, (2,)),
        "expandedScaleOut": T(D.FLOAT, (10,)),
    },
    ENDS: lambda d: {"sortedExperts": T(D.INT32, (6,)), "numExperts": 4, "out": T(D.INT32, (4,))},
}


def _order(experts: Any) -> Any:
    return experts.flatten().long().argsort(stable=True)


def _init(a: Mapping[str, Any]) -> Any:
    order = _order(a["expertIdx"])
    rows = a["rowIdx"].flatten().long()[order]
    return a["x"][rows[:6] % 5], rows.argsort(), a["expertIdx"].flatten()[order]


def _second(a: Mapping[str, Any]) -> Any:
    order = _order(a["expertIdx"])
    counts = torch.bincount(a["expertIdx"].flatten(), minlength=3).cumsum(0)
    return a["x"][order[:7] // 2], order.argsort(), counts


def _second_quantised(a: Mapping[str, Any]) -> Any:
    order = _order(a["expertIdx"])
    rows = wide(a["x"])[order // 2] * wide(a["scaleOptional"])[a["expertIdx"].flatten().long()[order]]
    scales = (rows.abs().amax(-1) / 127).float()
    integers = (rows / wide(scales)[:, None]).round()
    return integers[:7], order.argsort(), torch.bincount(a["expertIdx"].flatten(), minlength=3), scales[:7]


def _third(a: Mapping[str, Any]) -> Any:
    flat = a["expertIdx"].flatten().long()
    order = torch.where(flat < 1, 99, flat).argsort(stable=True)[: (flat > 0).sum()]
    missing = 10 - len(order)
    expanded = torch.cat([a["x"][order // 2], a["x"].new_zeros(missing, 4)])
    scales = torch.cat([a["scaleOptional"][order // 2], torch.zeros(missing)])
    places = torch.full((10,), -1).index_put((order,), torch.arange(len(order)))
    return expanded, places, torch.bincount(flat, minlength=3)[1:], scales


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    INIT: _init,
    INIT2: _second,
    INIT3: _third,
    QUANT2: _second_quantised,
    ENDS: lambda a: torch.bincount(a["sortedExperts"], minlength=4).cumsum(0),
}


def _no_tokens(**further: Any) -> Mapping[str, Any]:
    return {
        "x": {"shape": (0, 4)},
        "expertIdx": {"shape": (0, 2)},
        "expandedXOut": {"shape": (0, 4)},
        "expandedRowIdxOut": {"shape": (0,)},
        **further,
    }


EMPTY: Mapping[str, Mapping[str, Any]] = {
    INIT: _no_tokens(rowIdx={"shape": (0, 2)}, expandedExpertIdxOut={"shape": (0,)}),
    INIT2: _no_tokens(**{COUNTS: {"shape": (3,)}, BEFORE: None}),
    QUANT2: _no_tokens(
        **{f"{COUNTS}Optional": {"shape": (3,)}, f"{BEFORE}Optional": None, SCALES: {"shape": (0,)}},
        offsetOptional=None,
        scaleOptional={"shape": (3, 4)},
    ),
    INIT3: _no_tokens(
        **{COUNTS: {"shape": (2,)}, "offsetOptional": None},
        **{key: {"shape": (0,)} for key in ("scaleOptional", "expandedScaleOut")},
    ),
    ENDS: {"sortedExperts": {"shape": (0,)}, "out": {"shape": (4,)}},
}


def _wrong_type(operator: Operator, name: str) -> Break:
    is_first = operator.checks[0].name.startswith(f"present: {name}") or "Idx" in name or operator.name == ENDS
    return Break(dtype(D.INT16 if is_first else D.FLOAT16, name), "ACL_")


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": _wrong_type,
    "data type": lambda o, name: Break(
        {name: T(D.INT16, (1,)), "quantMode": 0, "expandedXOut": T(D.INT8, (10, 4))}
        if name == "offsetOptional" and o.name == INIT3
        else {name: T(D.INT16, (1,))}
        if name == "offsetOptional"
        else dtype(D.INT16, name),
        "data type",
    ),
    "same data type as x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "integers of 8 bits": lambda o, name: Break({name: 6}, "-1, 0 or 1", product=Product.ASCEND_950),
    "data type of the rows": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "to be quantized": lambda o, name: Break(
        {"quantMode": 0, "x": T(D.INT8, TOKENS), "expandedXOut": T(D.INT8, (10, 4))},
        "ACL_FLOAT, ACL_FLOAT16 or ACL_BF16",
    ),
    "unless with dropPadMode": lambda o, name: Break(
        {name: 1, "dropPadMode": 1, "expandedXOut": T(D.INT8, (3, 1, 4))} | {"expertCapacity": 1, RANGE: None},
        "-1 (no quantization)",
        product=Product.ASCEND_950,
    ),
    "as quantMode asks": lambda o, name: Break(
        shape((4,), name), "[5]" if o.name == INIT3 else "[3, 4] or [1, 4] with quantMode 1"
    ),
    "a number with quantMode 0": lambda o, name: Break(
        {
            "quantMode": 0,
            "scaleOptional": T(D.FLOAT, (1,)),
            "expandedXOut": T(D.INT8, (10 if o.name == INIT3 else 7, 4)),
        },
        "shape [1]",
    ),
    "requested with quantMode 1": lambda o, name: Break({name: None}, "an object with quantMode 1"),
    "whole rows with integers of 4 bits": lambda o, name: Break(
        {"expandedXOut": T(D.INT4, (3, 1, 4)), name: 1, "expertCapacity": 1}, "0 with expandedXOut of ACL_INT4"
    ),
    "dynamic with integers of 4 bits": lambda o, name: Break(
        {"expandedXOut": T(D.INT4, (7, 4)), name: 0}, "1 with expandedXOut of ACL_INT4"
    ),
    "whole bytes": lambda o, name: Break(
        {"x": T(D.FLOAT, (5, 3)), name: T(D.INT4, (7, 3)), "scaleOptional": T(D.FLOAT, (1, 3))},
        "an even last dimension",
    ),
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((5, 2), name), "1 dimension"),
    "1 to 2 dimensions": lambda o, name: Break(shape((5, 2, 1), name), "1 to 2", product=Product.ASCEND_950),
    "same shape as expertIdx": lambda o, name: Break(shape((5, 3), name), "[5, 2]"),
    "a row for each token": lambda o, name: Break(
        shape((4, 2), *((name, "rowIdx") if o.name == INIT else (name,))), "5 rows"
    ),
    "at least 0": lambda o, name: Break({name: -1}, "at least 0"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "allowed value": lambda o, name: Break(
        {name: False if name == "expertTokensNumFlag" else 4}
        | ({"expandedXOut": T(D.INT8, (10, 4))} if name == "quantMode" and o.name == INIT3 else {}),
        {
            "dropPadMode": "0 or 1",
            "expertTokensNumFlag": "True",
            "quantMode": "0 or 1",
        }.get(name, "0, 1 or 2"),
        product=Product.ASCEND_950 if name == "expertTokensNumFlag" else Product.ATLAS_A2,
    ),
    "enough for requested outputs": lambda o, name: Break({name: 0}, "at least 1"),
    "rows of an expert": lambda o, name: Break(
        {"dropPadMode": 1, name: 6} | ({RANGE: None} if o.name == INIT3 else {}), "from 1 to 5"
    ),
    "rows kept": lambda o, name: Break({name: -2}, "at least -1"),
    "among the experts": lambda o, name: Break({name: (2, 4)}, "from 0 to 3"),
    "counts with dropPadMode": lambda o, name: Break(
        {"dropPadMode": 1, "expertCapacity": 1, RANGE: None, name: 0}, "1 with dropPadMode 1"
    ),
    "indices with dropPadMode": lambda o, name: Break({name: 2}, "0 or 1"),
    "shape is that of the rows kept": lambda o, name: Break(shape((8, 4), name), "10" if o.name == INIT3 else "[7, 4]"),
    "shape is the rows kept": lambda o, name: Break(shape((8, 4), name), "[6, 4]"),
    "shape is one for each of expertIdx": lambda o, name: Break(shape((9,), name), "[10]"),
    "shape is a number for each token": lambda o, name: Break(shape((4,), name), "[5]"),
    "shape is one for each expert": lambda o, name: Break(shape((9,), name), "[4]" if o.name == ENDS else "[2]"),
    "shape is one for each row": lambda o, name: Break(
        *((shape((9,), name), "10" if o.name == INIT3 else "7") if "Scale" in name else (shape((4, 2), name), "[5, 2]"))
    ),
    "one for each expert": lambda o, name: Break(
        {name: None}
        if name.startswith(COUNTS)
        else {
            "dropPadMode": 1,
            "expertCapacity": 1,
            "expertTokensBeforeCapacityFlag": True,
            "expandedXOut": T(D.INT8 if o.name == QUANT2 else D.FLOAT, (3, 1, 4)),
        },
        "an object",
    ),
    "from 1 to 2048": lambda o, name: Break({name: 2049}, "2048"),
    "few enough to sort": lambda o, name: Break(shape((2**24,), name), "16777215"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "sortedExperts":
        return np.array([0, 0, 2, 2, 2, 3])
    if name == "rowIdx":
        return np.arange(10).reshape(2, 5).T
    return array % 3 if name == "expertIdx" else array


class TestRouting(LibraryTests):
    subject = Subject(
        tuple(operator for operator in routing.OPERATORS if operator.name != QUANT2),
        calls=CALLS,
        references=REFERENCES,
        dtypes={INIT3: (*TRAINED, D.INT8), ENDS: (D.INT32,)},
        default=TRAINED,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        left=(BEFORE,),
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={
            "integers of 8 bits": NO_KERNEL,
            **dict.fromkeys(
                (
                    *("data types that go together", "data type", "same data type as x", "format that counts as ND"),
                    *("no private format", "data type of the rows"),
                ),
                INVALID,
            ),
        },
    )


class TestQuantisedStart(LibraryTests):
    """Its document counts data types of optional tensors among what the tiling function rejects."""

    subject = Subject(
        (BY_NAME[QUANT2],),
        calls=CALLS,
        references=REFERENCES,
        default=TRAINED,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        left=(f"{BEFORE}Optional",),
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


def _run(name: str, product: Product = Product.ATLAS_A2, **changes: Any) -> dict[str, Any]:
    """Compute with a call of float32 in which arrays stand for some arguments; return what is in the arrays."""
    placed = {key: Placed(value, "contiguous") for key, value in changes.items() if isinstance(value, np.ndarray)}
    call = CALLS[name](D.FLOAT) | changes | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], call, product).run()
    return {key: each.view.tolist() for key, each in placed.items()}


def _filled(*of: int, kind: Any = np.int32) -> Array:
    return np.full(of, 7, kind)


X = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
#: The second has three tokens, the third none.
INDICES = np.array([[1, 0], [1, 0], [3, 1], [0, 3]], np.int32)


def test_init_routing_v2_reproduces_the_documents_example_of_blocks() -> None:
    """aclnnMoeInitRoutingV2's, with values of its own."""
    found = _run(
        INIT2,
        x=X,
        expertIdx=INDICES,
        activeNum=0,
        expertNum=4,
        expertCapacity=2,
        dropPadMode=1,
        expertTokensBeforeCapacityFlag=True,
        expandedXOut=_filled(4, 2, 2, kind=np.float32),
        expandedRowIdxOut=_filled(8),
        **{COUNTS: None, BEFORE: _filled(4)},
    )
    assert found["expandedXOut"] == [[[1, 2], [3, 4]], [[1, 2], [3, 4]], [[0, 0], [0, 0]], [[5, 6], [7, 8]]]
    assert found["expandedRowIdxOut"] == [2, 0, 3, 1, 6, -1, -1, 7]
    assert found[BEFORE] == [3, 3, 0, 2]


@pytest.mark.parametrize(("flag", "counts"), [(0, [7] * 4), (1, [3, 6, 6, 8]), (2, [3, 3, 0, 2])])
def test_expert_token_counts_are_cumulative_or_plain(flag: int, counts: list[int]) -> None:
    given = {"x": X, "expertIdx": INDICES, "activeNum": 0, "expertNum": 4, "expertTokensCountOrCumsumFlag": flag}
    outs = {"expandedXOut": _filled(8, 2, kind=np.float32), "expandedRowIdxOut": _filled(8), COUNTS: _filled(4)}
    found = _run(INIT2, **given, **outs)
    assert found[COUNTS] == counts
    assert found["expandedRowIdxOut"] == [3, 0, 4, 1, 6, 5, 2, 7]
    if flag:
        with pytest.raises(AclnnError, match="expertIdx: expected numbers from 0 to 2, got 3"):
            _run(INIT2, **given | {"expertNum": 3}, **outs | {COUNTS: _filled(3)})


@pytest.mark.parametrize(("asked", "kept"), [(0, 4), (2, 2), (-1, 3), (-9, 0)])
def test_ascend_950_takes_one_expert_per_token_and_rows_from_the_end(asked: int, kept: int) -> None:
    given = {"x": X, "expertIdx": np.array([1, 0, 2, 0]), "activeNum": asked, "expertTokensCountOrCumsumFlag": 0}
    outs = {"expandedXOut": _filled(kept, 2, kind=np.float32), "expandedRowIdxOut": _filled(4), COUNTS: None}
    found = _run(INIT2, Product.ASCEND_950, **given, **outs)
    assert found["expandedRowIdxOut"] == [2, 0, 3, 1]
    assert found["expandedXOut"] == X[[1, 3, 0, 2]][:kept].tolist()


def _third_run(product: Product = Product.ATLAS_A2, **changes: Any) -> dict[str, Any]:
    given = {"x": X, "expertIdx": INDICES, "scaleOptional": X[:, 0].copy(), "expertNum": 4, RANGE: (1, 4)}
    outs = {"expandedXOut": _filled(8, 2, kind=np.float32), "expandedRowIdxOut": _filled(8)}
    counts = {COUNTS: _filled(3, kind=np.int64), "expandedScaleOut": _filled(8, kind=np.float32)}
    return _run(INIT3, product, **given | outs | counts | changes)


def test_experts_of_a_range_get_their_rows() -> None:
    found = _third_run(rowIdxType=1)
    assert found["expandedRowIdxOut"] == [0, 2, 5, 4, 7, 1, 3, 6]
    assert found["expandedXOut"] == [*X[[0, 1, 2, 2, 3]].tolist(), *[[0, 0]] * 3]
    assert found["expandedScaleOut"] == [1, 3, 5, 5, 7, 0, 0, 0]
    assert found[COUNTS] == [3, 0, 2]
    assert _third_run()["expandedRowIdxOut"] == [0, -1, 1, -1, 3, 2, -1, 4]


def test_indices_of_all_experts_follow_those_of_the_range() -> None:
    """torch_npu's test of npu_moe_init_routing_v2 compares them all: later experts, then those before it."""
    found = _third_run(rowIdxType=1, **{RANGE: (1, 2), COUNTS: _filled(1, kind=np.int64)})
    assert found["expandedRowIdxOut"] == [0, 2, 5, 4, 7, 1, 3, 6]
    assert found["expandedScaleOut"] == [1, 3, 5, 0, 0, 0, 0, 0]


ROWS = np.array([[1, 2], [3, 4], [5, 6], [5, 6], [7, 8]])


def test_init_routing_v3_quantizes_to_int8() -> None:
    """torch_npu's npu_moe_init_routing_v2 asks for them; rows are multiplied by their expert's scales."""
    given = {"expandedXOut": _filled(8, 2, kind=np.int8)}
    static = {"scaleOptional": np.array([2], np.float32), "offsetOptional": np.array([-0.75], np.float32)}
    found = _third_run(**given | static, quantMode=0)
    assert found["expandedXOut"] == [*np.rint(2 * ROWS - 0.75).tolist(), *[[0, 0]] * 3]
    assert found["expandedScaleOut"] == [7] * 8
    scales = np.array([[1, -2], [9, 9], [4, 1]], np.float32)
    for scale, rows in ((None, ROWS), (scales, ROWS * scales[[0, 0, 0, 2, 2]]), (scales[:1], ROWS * scales[0])):
        found = _third_run(**given, quantMode=1, scaleOptional=scale)
        largest = np.abs(rows).max(-1)
        assert found["expandedXOut"] == [*np.rint(127 * rows / largest[:, None]).tolist(), *[[0, 0]] * 3]
        np.testing.assert_allclose(found["expandedScaleOut"], [*(largest / 127), 0, 0, 0], 1e-6)


def _quantised_run(**changes: Any) -> dict[str, Any]:
    given = {"x": X, "expertIdx": INDICES, "scaleOptional": None, "activeNum": 0, "expertNum": 4}
    outs = {"expandedXOut": _filled(8, 2, kind=np.int8), "expandedRowIdxOut": _filled(8)}
    counts = {f"{COUNTS}Optional": _filled(4), SCALES: _filled(8, kind=np.float32)}
    return _run(QUANT2, **given | outs | counts | changes)


def test_init_routing_quant_v2_quantizes_to_int8() -> None:
    """torch_npu's npu_moe_init_routing_quant asks for them, for static ones with null for scales."""
    order = [1, 3, 6, 0, 2, 5, 4, 7]
    rows = X[np.array(order) // 2]
    static = {"scaleOptional": np.array([3], np.float32), "offsetOptional": np.array([0.25], np.float32)}
    found = _quantised_run(**static, quantMode=0, **{SCALES: None})
    assert found["expandedXOut"] == np.rint(3 * rows + 0.25).tolist()
    assert found[f"{COUNTS}Optional"] == [3, 3, 0, 2]
    found = _quantised_run()
    assert found["expandedXOut"] == np.rint(127 * rows / rows[:, 1:]).tolist()
    np.testing.assert_allclose(found[SCALES], rows[:, 1] / 127, 1e-6)
    blocks = {"expandedXOut": _filled(4, 1, 2, kind=np.int8), SCALES: _filled(4, kind=np.float32)}
    found = _quantised_run(dropPadMode=1, expertCapacity=1, **blocks)
    assert found["expandedXOut"] == [[[64, 127]], [[64, 127]], [[0, 0]], [[106, 127]]]
    np.testing.assert_allclose(found[SCALES], [2 / 127, 2 / 127, 0, 6 / 127], 1e-6)


def test_each_expert_has_a_row_of_scales() -> None:
    with pytest.raises(AclnnError, match="expertIdx: expected numbers from 0 to 2, got 3"):
        _quantised_run(
            scaleOptional=np.ones((3, 2), np.float32),
            expertNum=3,
            expertTokensCountOrCumsumFlag=0,
            **{f"{COUNTS}Optional": None},
        )


def test_integers_of_four_bits_share_a_byte() -> None:
    room = Placed(np.full(8, 0x77, np.uint8), "contiguous")
    out = Tensor(D.INT4, (8, 2), address=room.tensor.address, owner=room.memory)
    found = _quantised_run(expandedXOut=out, scaleOptional=np.array([[-3, 4]], np.float32))
    assert room.view[:3].tolist() == [0x7D, 0x7C, 0x7B]  # 7 with -2.6, -3.9 and -4.6
    np.testing.assert_allclose(found[SCALES][:3], [8 / 7, 16 / 7, 32 / 7], 1e-6)


def test_eight_bit_floats_keep_their_bytes() -> None:
    """torch_npu's test of npu_moe_init_routing_v2 has HIFLOAT8, which NumPy has not."""
    memory = [np.array([[250, 1], [0, 255], [128, 3], [7, 8]], np.uint8), _filled(8, 2, kind=np.uint8)]
    x, out = (Tensor(D.HIFLOAT8, each.shape, address=each.ctypes.data, owner=each) for each in memory)
    found = _third_run(Product.ASCEND_950, x=x, expandedXOut=out)
    assert memory[1].tolist() == [*memory[0][[0, 1, 2, 2, 3]].tolist(), *[[0, 0]] * 3]
    assert found[COUNTS] == [3, 0, 2]


def test_init_routing_v3_counts_tokens_of_experts() -> None:
    assert _third_run(expertTokensNumType=0)[COUNTS] == [3, 3, 5]
    pairs = _third_run(expertTokensNumType=2, **{COUNTS: _filled(4, 2, kind=np.int64)})[COUNTS]
    assert pairs == [[1, 3], [3, 2], [0, 0], [0, 0]]
    assert _third_run(expertTokensNumFlag=False)[COUNTS] == [7] * 3


def test_init_routing_v3_limits_rows_and_fills_blocks() -> None:
    kept = {"expandedXOut": _filled(2, 2, kind=np.float32), "expandedScaleOut": _filled(2, kind=np.float32)}
    found = _third_run(activeNum=2, **kept)
    assert (found["expandedXOut"], found["expandedScaleOut"]) == ([[1, 2], [3, 4]], [1, 3])
    with pytest.raises(AclnnError, match=r"activeNum: expected -1, 0 or 8 \(all\), got 2"):
        _third_run(Product.ASCEND_950, activeNum=2, **kept)
    blocks = {"expandedXOut": _filled(4, 1, 2, kind=np.float32), "expandedScaleOut": _filled(4, kind=np.float32)}
    padded = {"dropPadMode": 1, "expertCapacity": 1, RANGE: None, COUNTS: _filled(4, kind=np.int64)}
    found = _third_run(**padded, **blocks)
    assert found["expandedXOut"] == [[[1, 2]], [[1, 2]], [[0, 0]], [[5, 6]]]
    assert found["expandedScaleOut"] == [1, 1, 0, 5]
    assert found["expandedRowIdxOut"] == [1, 0, -1, -1, 3, -1, -1, -1]
    assert found[COUNTS] == [3, 3, 0, 2]
    for changes, text in (
        ({RANGE: (0, 3)}, r"activeExpertRangeOptional: expected \[0, 4\] \(all experts\)"),
        ({"rowIdxType": 1}, "rowIdxType: expected 0 with dropPadMode 1"),
    ):
        with pytest.raises(AclnnError, match=text):
            _third_run(**padded | changes, **blocks)


@pytest.mark.parametrize("given", [(0,), (3, 1), (-1, 2), (0, 5121)])
def test_invalid_ranges_of_experts_are_rejected(given: tuple[int, ...]) -> None:
    with pytest.raises(AclnnError, match="activeExpertRangeOptional: expected") as caught:
        _third_run(expertTokensNumType=2, expertNum=6000, **{RANGE: given})
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_the_first_version_keeps_rows_of_a_few_tokens() -> None:
    indices = np.array([[1, 2], [0, 1], [0, 2]], np.int32)
    found = _run(
        INIT,
        x=X[:3].copy(),
        rowIdx=np.arange(6, dtype=np.int32).reshape(2, 3).T.copy(),
        expertIdx=indices,
        activeNum=1,
        expandedXOut=_filled(2, 2, kind=np.float32),
        expandedRowIdxOut=_filled(6),
        expandedExpertIdxOut=_filled(6),
    )
    assert found["expandedExpertIdxOut"] == [0, 0, 1, 1, 2, 2]
    assert found["expandedRowIdxOut"] == [2, 0, 1, 4, 3, 5]
    assert found["expandedXOut"] == [[3, 4], [5, 6]]
