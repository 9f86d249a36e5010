"""Tokens of several ranks in order of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import re_routing
from tests.cases.table import INVALID, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Placed, Subject, torch

NAME, SCALES, SCALES_OUT = "moe_re_routing", "perTokenScalesOptional", "permutePerTokenScalesOut"
TOKENS, COUNTS = (7, 3), np.array([[1, 0, 2], [2, 2, 0]])
#: Of tokens 0 to 2 of the first rank, and the others of the second.
ORDER = [0, 3, 4, 5, 6, 1, 2]


def numbers(operator: str, name: str, array: Array) -> Array:
    return COUNTS if name == "expertTokenNumPerRank" else array


def _rerouted(a: Mapping[str, Any]) -> Any:
    return a["tokens"][ORDER], a[SCALES][ORDER], torch.tensor(ORDER), a["expertTokenNumPerRank"].sum(0)


class TestReRouting(LibraryTests):
    subject = Subject(
        re_routing.OPERATORS,
        calls={
            NAME: lambda d: {
                "tokens": T(d, TOKENS),
                "expertTokenNumPerRank": T(D.INT32, (2, 3)),
                SCALES: T(D.FLOAT, (7,)),
                "expertTokenNumType": 1,
                "idxType": 0,
                "permuteTokensOut": T(d, TOKENS),
                SCALES_OUT: T(D.FLOAT, (7,)),
                "permuteTokenIdxOut": T(D.INT32, (7,)),
                "expertTokenNumOut": T(D.INT32, (3,)),
            }
        },
        references={NAME: _rerouted},
        default=(D.FLOAT16, D.BF16, D.INT8),
        empty={
            NAME: {
                **shape((0, 3), "tokens", "permuteTokensOut", "expertTokenNumPerRank"),
                **shape((0,), SCALES, SCALES_OUT, "permuteTokenIdxOut"),
                **shape((3,), "expertTokenNumOut"),
            }
        },
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.INT16, name), "ACL_"),
            f"same data type as {SCALES_OUT}": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "2 dimensions": lambda o, name: Break(shape((7,), name), "2 dimensions"),
            "from 1 to 16383 in the second dimension": lambda o, name: Break(
                shape((7, 16384), name), "from 1 to 16383"
            ),
            "allowed value": lambda o, name: Break({name: 2}, "1"),
            "known on the product": lambda o, name: Break({name: 1}, "0"),
            "a row for each token": lambda o, name: Break(shape((6,), name), "7 in the first"),
            "same shape as tokens": lambda o, name: Break(shape((7, 4), name), "[7, 3]"),
            "shape is that of what belongs to tokens": lambda o, name: Break(shape((6,), name), "[7]"),
            "shape is one for each token": lambda o, name: Break(shape((6,), name), "[7]"),
            "shape is one for each expert": lambda o, name: Break(shape((2,), name), "[3]"),
        },
        numbers=numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(
            ("data types that go together", f"same data type as {SCALES_OUT}", "format that counts as ND"), INVALID
        ),
    )


def _run(**changes: Any) -> dict[str, Any]:
    given = {"tokens": np.arange(7, dtype=np.int8)[:, None], "expertTokenNumPerRank": COUNTS, SCALES: None}
    outs = {"permuteTokensOut": np.zeros((7, 1), np.int8), SCALES_OUT: np.full(7, 9, np.float32)}
    indices = {"permuteTokenIdxOut": np.zeros(7, np.int32), "expertTokenNumOut": np.zeros(3, np.int64)}
    values = given | outs | indices | changes
    placed = {key: Placed(value, "contiguous") for key, value in values.items() if isinstance(value, np.ndarray)}
    call = values | {key: each.tensor for key, each in placed.items()} | {"expertTokenNumType": 1}
    prepare(BY_NAME[NAME], {"idxType": 0} | call, Product.ASCEND_950).run()
    return {key: each.view.tolist() for key, each in placed.items()}


def test_re_routing_returns_positions_before_or_after() -> None:
    """torch_npu's npu_moe_re_routing without scales; what is given for them stays."""
    found = _run()
    assert found["permuteTokensOut"] == [[at] for at in ORDER]
    assert (found["permuteTokenIdxOut"], found["expertTokenNumOut"]) == (ORDER, [3, 2, 2])
    assert found[SCALES_OUT] == [9] * 7
    assert _run(idxType=1)["permuteTokenIdxOut"] == [0, 5, 6, 1, 2, 3, 4]
    with pytest.raises(AclnnError, match="idxType: expected 0 or 1, got 2"):
        _run(idxType=2)


def test_counts_that_do_not_match_the_tokens_are_reported() -> None:
    with pytest.raises(AclnnError, match="expertTokenNumPerRank: expected counts that add up to 7, got 8"):
        _run(expertTokenNumPerRank=COUNTS + np.array([[0, 0, 0], [0, 0, 1]]))


def test_eight_bit_floats_keep_their_bytes() -> None:
    """torch_npu gives HIFLOAT8, which NumPy has not, and scales of FLOAT8_E8M0."""
    memory = [np.arange(250, 257).astype(np.uint8)[:, None].copy() for _ in range(2)]
    tokens, out = (Tensor(D.HIFLOAT8, (7, 1), address=each.ctypes.data, owner=each) for each in memory)
    _run(tokens=tokens, permuteTokensOut=out)
    assert memory[1].tolist() == memory[0][ORDER].tolist()
    scales = (2.0 ** np.arange(-3, 4)).astype(D.FLOAT8_E8M0.numpy)
    found = _run(**{SCALES: scales, SCALES_OUT: np.zeros_like(scales)})
    assert found[SCALES_OUT] == scales[ORDER].tolist()
