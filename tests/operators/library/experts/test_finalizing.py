"""Back from experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import finalizing
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
    described,
    torch,
    wide,
)

FINAL, FINAL2, FINAL4 = (f"moe_finalize_routing{version}" for version in ("", "_v2", "_v4"))
#: Five tokens of four elements, with two of three experts each.
TOKENS, EXPERTS = (5, 4), (5, 2)
SPECIAL = ("xOptional", "alpha1Optional", "alpha2Optional", "vOptional")
RANGES = ("zeroExpertRange", "copyExpertRange", "constantExpertRange")


def _final(d: D) -> Arguments:
    return {
        "expandedX": T(d, (10, 4)),
        "expandedRowIdx": T(D.INT32, (10,)),
        "x1Optional": T(d, TOKENS),
        "x2Optional": T(d, TOKENS),
        "biasOptional": T(d, (3, 4)),
        "scalesOptional": T(d, EXPERTS),
        "expertIdxOptional": T(D.INT32, EXPERTS),
        "dropPadMode": 2,
        "out": T(d, TOKENS),
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    FINAL: lambda d: {
        "expandedX": T(d, (10, 4)),
        "x1": T(d, TOKENS),
        "x2Optional": None,
        "bias": T(d, (3, 4)),
        "scales": T(d, EXPERTS),
        "expandedRowIdx": T(D.INT32, (10,)),
        "expandedExpertIdx": T(D.INT32, EXPERTS),
        "out": T(d, TOKENS),
    },
    FINAL2: _final,
    FINAL4: lambda d: _final(d) | dict.fromkeys(SPECIAL) | dict.fromkeys(RANGES, ()) | {"k": 2},
}


def _finalized(a: Mapping[str, Any]) -> Any:
    """Of the fifth and the ninth expert's answers the row is missing."""
    first = "x1" in a
    x1, x2, bias, scales, experts = (
        a[name]
        for name in (
            ("x1", "x2Optional", "bias", "scales", "expandedExpertIdx")
            if first
            else ("x1Optional", "x2Optional", "biasOptional", "scalesOptional", "expertIdxOptional")
        )
    )
    places = a["expandedRowIdx"].long()
    places = places.reshape(2, 5).T if first else places.reshape(5, 2)
    rows = torch.cat([wide(a["expandedX"]), torch.zeros(1, 4)])[places]
    added = wide(x1) + (0 if x2 is None else wide(x2))
    return added + (wide(scales)[..., None] * (rows + wide(bias)[experts.long()])).sum(1)


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(
        dtype(D.INT16 if name == "expandedX" or "Idx" in name else D.FLOAT16, name), "ACL_"
    ),
    "data type": lambda o, name: Break(dtype(D.INT16, name), "data type"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((5, 2), name), "1 dimension"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "allowed value": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "shape is one for each row": lambda o, name: Break(shape((4, 2), name), "[5, 2]"),
    "same data type as expandedX": lambda o, name: Break(
        {name: T(D.FLOAT16, TOKENS if name != "biasOptional" else (3, 4))}, "ACL_FLOAT"
    ),
    "data type with expandedX": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "not computed": lambda o, name: Break({name: (1, 2) if name in RANGES else T(D.FLOAT, TOKENS)}, "null"),
    "dimensions of rows": lambda o, name: Break(shape((10, 4, 1), name), "2 dimensions"),
    "a column for each expert": lambda o, name: Break(
        shape((5, 0), name) if o.name != FINAL4 else shape((5, 1), name),
        "2 columns" if o.name == FINAL4 else "1 column",
    ),
    "a row for each of them": lambda o, name: Break(shape((9,), name), "a multiple of 2"),
    "shape is a row for each token": lambda o, name: Break({name: T(D.FLOAT, (4, 4))}, "[5, 4]"),
    "a second one after the first": lambda o, name: Break(
        {"x1Optional": None, name: T(D.FLOAT, TOKENS)}, "null without x1Optional"
    ),
    "a row for each expert": lambda o, name: Break(shape((1, 4), name), "at least 2 rows"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "expandedRowIdx":
        return np.array([4, 7, 8, 9, -1, 1, 5, 2, 6, 3])
    return array % 3 if name in ("expertIdxOptional", "expandedExpertIdx") else array


class TestFinalizing(LibraryTests):
    subject = Subject(
        finalizing.OPERATORS[1:],
        calls=CALLS,
        references=dict.fromkeys((FINAL2, FINAL4), _finalized),
        default=TRAINED,
        empty={
            name: {
                "expandedX": {"shape": (0, 4)},
                "expandedRowIdx": {"shape": (0,)},
                "biasOptional": {"shape": (3, 4)},
                **{key: {"shape": (0, 4)} for key in ("x1Optional", "x2Optional", "out")},
                **{key: {"shape": (0, 2)} for key in ("scalesOptional", "expertIdxOptional")},
                **dict.fromkeys(SPECIAL if name == FINAL4 else ()),
            }
            for name in (FINAL2, FINAL4)
        },
        breaks=BREAKS,
        numbers=numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={
            "not computed": NO_KERNEL,
            **dict.fromkeys(
                (
                    *("data types that go together", "data type", "format that counts as ND"),
                    *("same data type as expandedX", "data type with expandedX"),
                ),
                INVALID,
            ),
        },
    )


class TestFirstEnd(LibraryTests):
    """Its document names other codes, and there is no kernel on Ascend 950."""

    subject = Subject(
        (BY_NAME[FINAL],),
        calls=CALLS,
        references={FINAL: _finalized},
        default=TRAINED,
        empty={
            FINAL: {
                "expandedX": {"shape": (0, 4)},
                "expandedRowIdx": {"shape": (0,)},
                "x2Optional": None,
                "bias": {"shape": (3, 4)},
                **{key: {"shape": (0, 4)} for key in ("x1", "out")},
                **{key: {"shape": (0, 2)} for key in ("scales", "expandedExpertIdx")},
            }
        },
        breaks=BREAKS,
        numbers=numbers,
    )


X = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


def _final_run(name: str = FINAL2, **changes: Any) -> list[Any]:
    """Compute with a call of float32 in which arrays stand for some arguments; return the result."""
    nothing = dict.fromkeys(("x1Optional", "x2Optional", "biasOptional", "scalesOptional", "expertIdxOptional"))
    given = nothing | {"out": np.full((2, 2), 7, np.float32)} | changes
    placed = {key: Placed(value, "contiguous") for key, value in given.items() if isinstance(value, np.ndarray)}
    call = CALLS[name](D.FLOAT) | given | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], call, Product.ATLAS_A2).run()
    found: list[Any] = placed["out"].view.tolist()
    return found


def test_rows_of_tokens_are_read_by_columns_or_rows_and_from_blocks() -> None:
    scales = np.array([[1, 10], [100, 1000]], np.float32)
    indices = np.array([3, 1, -1, 2], np.int32)
    for mode, expected in ((0, [[7, 8], [5300, 6400]]), (2, [[37, 48], [5000, 6000]])):
        assert _final_run(expandedX=X, expandedRowIdx=indices, scalesOptional=scales, dropPadMode=mode) == expected
        blocks = X.reshape(2, 2, 2)
        found = _final_run(expandedX=blocks, expandedRowIdx=indices, scalesOptional=scales, dropPadMode=mode + 1)
        assert found == expected
    assert _final_run(FINAL4, expandedX=X, expandedRowIdx=indices) == [[10, 12], [5, 6]]


def test_without_weights_the_second_version_has_one_row_each() -> None:
    assert _final_run(expandedX=X, expandedRowIdx=np.array([3, 1], np.int32)) == X[[3, 1]].tolist()
    with pytest.raises(AclnnError, match="expandedRowIdx: expected numbers from -1 to 3, got 4"):
        _final_run(expandedX=X, expandedRowIdx=np.array([3, 4], np.int32))
    bias = {"biasOptional": X, "expertIdxOptional": np.array([[0], [4]], np.int32)}
    with pytest.raises(AclnnError, match="expertIdxOptional: expected numbers from 0 to 3, got 4"):
        _final_run(expandedX=X, expandedRowIdx=np.array([3, 1], np.int32), **bias)


def test_biases_need_experts_and_have_a_row_for_each_block() -> None:
    given = {"expandedX": X.reshape(2, 2, 2), "expandedRowIdx": np.array([3, 1], np.int32), "dropPadMode": 3}
    with pytest.raises(AclnnError, match="biasOptional: expected null without expertIdxOptional, got a tensor"):
        _final_run(**given, biasOptional=X[:2].copy())
    with pytest.raises(AclnnError, match="biasOptional: expected as many rows as expandedX has blocks of 2 elements"):
        _final_run(**given, biasOptional=X, expertIdxOptional=np.zeros((2, 1), np.int32))


@pytest.mark.parametrize(
    ("rows", "scales", "product", "taken"),
    [
        (D.BF16, D.FLOAT, Product.ATLAS_A2, True),
        (D.FLOAT16, D.FLOAT, Product.ATLAS_A2, False),
        (D.FLOAT16, D.BF16, Product.ASCEND_950, True),
    ],
)
def test_weights_may_have_another_type(rows: D, scales: D, product: Product, taken: bool) -> None:
    arguments = described(_final(rows) | {"scalesOptional": T(scales, EXPERTS)})
    if taken:
        prepare(BY_NAME[FINAL2], arguments, product)
    else:
        with pytest.raises(AclnnError, match="scalesOptional: expected data type ACL_FLOAT16"):
            prepare(BY_NAME[FINAL2], arguments, product)
