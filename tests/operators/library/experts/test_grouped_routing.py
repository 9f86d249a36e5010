"""Products of experts added up for their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import grouped_routing
from aclnn.operators.library.quantization.four_bits import packed
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import NO_KERNEL, Break, LibraryTests, Placed, Subject, described, torch, wide

FIRST, SECOND, *FOUR_BITS = grouped_routing.OPERATORS
FLOAT, INT8, N = D.FLOAT, D.INT8, 256
ROW_SCALE, GROUPS, SHARED, TUNING = "pertokenScaleOptional", "groupList", "sharedInput", "tuningConfigOptional"
UNUSED = ("offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
NUMBERS: Arguments = {
    "dtype": 0,
    "sharedInputWeight": 0.5,
    "sharedInputOffset": 1,
    "transposeX1": False,
    "transposeX2": False,
    "groupListType": 0,
}


def _call(d: D) -> Arguments:
    rows = dict.fromkeys((ROW_SCALE, "logit"), T(FLOAT, (5,)))
    return {
        "x1": T(INT8, (5, 16)),
        "x2": T(INT8, (2, 16, N), Format.FORMAT_FRACTAL_NZ),
        "scale": T(FLOAT, (2, N)),
        "bias": None,
        **rows,
        GROUPS: T(D.INT64, (2,)),
        SHARED: T(D.BF16, (2, N)),
        "rowIndex": T(D.INT64, (5,)),
        "out": T(FLOAT, (3, N)),
        **NUMBERS,
    }


def _second(d: D) -> Arguments:
    return _call(d) | dict.fromkeys(UNUSED) | {TUNING: (2,)}


def _summed(a: Mapping[str, Any]) -> Any:
    x, weight, scale = (wide(a[name]).double() for name in ("x1", "x2", "scale"))
    total = torch.cat([x[:1] @ weight[0] * scale[0], x[1:4] @ weight[1] * scale[1]])
    total *= (wide(a[ROW_SCALE]) * wide(a["logit"]))[:4, None]
    y = torch.zeros(3, N, dtype=torch.float64).index_add(0, a["rowIndex"][:4], total)
    y[1:] += 0.5 * wide(a[SHARED]).double()
    return y


def _numbers(operator: Operator, name: str, array: Any) -> Any:
    return {GROUPS: np.array([1, 4]), "rowIndex": np.array([2, 0, 2, 1, 0])}.get(name, array)


class TestGroupedRouting(LibraryTests):
    subject = Subject(
        (FIRST, SECOND),
        calls={FIRST.name: _call, SECOND.name: _second},
        references=dict.fromkeys((FIRST.name, SECOND.name), _summed),
        default=(INT8,),
        numbers=_numbers,
        breaks={
            "logits": lambda o, name: Break({name: None}, SHARED),
            "null": lambda o, name: Break({name: T(FLOAT, (2, N))}, "null"),
            "allowed value": lambda o, name: Break({name: True if name.startswith("t") else 2}, "expected"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "public format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "FRACTAL_NZ"),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2"),
            "3 dimensions": lambda o, name: Break(shape((16, N), name), "3"),
            "1 dimension": lambda o, name: Break(shape((5, 1), name), "1"),
            "no dimension of 0": lambda o, name: Break(
                shape((0, 16, N) if name == "x2" else (0, N), name), "no dimension of 0"
            ),
            "whole blocks": lambda o, name: Break(shape((2, 16, N - 32), name), "at least 256"),
            "… columns (the rows of x2)": lambda o, name: Break(shape((5, 15), name), "16 columns"),
            "shape is columns of each group": lambda o, name: Break(shape((N, 2), name), "[2, 256]"),
            "shape is one of each group": lambda o, name: Break(shape((3,), name), "[2]"),
            "shape is one of each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "tokens": lambda o, name: Break(shape((6, N), name), "[at most 5, 256]"),
            "rows of out": lambda o, name: Break(shape((4, N), name), "[at most 3, 256]"),
            "a row of out": lambda o, name: Break({name: 2}, "from 0 to 1"),
            "rows of a group": lambda o, name: Break({name: (6,)}, "from 0 to 5"),
        },
        codes={"logits": ACLNN_ERR_PARAM_NULLPTR},
    )

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        """Empty tensors are rejected."""
        call = described(changed(self.subject.valid(operator, INT8), {"x1": {"shape": (0, 16)}}))
        with pytest.raises(AclnnError, match="x1: expected no dimension of 0"):
            prepare(operator, call, Product.ATLAS_A2)


LISTED, ADDED, LOGITS, PLACES = "groupListOptional", "sharedInputOptional", "logitOptional", "rowIndexOptional"


def _of_four_bits(d: D) -> Arguments:
    return {
        "x1": T(INT8, (5, 16)),
        "x2": T(D.INT32, (2, 16, N // 8)),
        "scaleOptional": T(D.INT64, (2, 4, N)),
        "biasOptional": T(FLOAT, (2, N)),
        **dict.fromkeys(UNUSED),
        "offsetOptional": T(FLOAT, (2, 1, N)),
        **dict.fromkeys((ROW_SCALE, LOGITS), T(FLOAT, (5,))),
        LISTED: T(D.INT64, (2,)),
        ADDED: T(D.BF16, (2, N)),
        PLACES: T(D.INT64, (5,)),
        "out": T(FLOAT, (3, N)),
        **NUMBERS,
    }


def _of_four_bits_tuned(d: D) -> Arguments:
    return _of_four_bits(d) | {TUNING: (2,)}


def _bits(array: Any) -> Any:
    """Factors of each integer, as FLOAT in 64 bits."""
    return np.exp2(array % 4 - 2).astype(np.float32).view(np.uint32).astype(np.int64)


def _summed_of_four_bits(a: Mapping[str, Any]) -> Any:
    words, bits = a["x2"].numpy(), a["scaleOptional"].numpy()
    weight = ((words[..., None] >> np.arange(0, 32, 4) & 15 ^ 8) - 8).reshape(2, 16, N)
    factors = bits.astype(np.uint32).view(np.float32).repeat(4, 1)
    scaled, x = torch.from_numpy(weight * factors).double(), wide(a["x1"]).double() - 8
    bias = a["biasOptional"].double()
    offset = (x + 8).sum(1, keepdim=True) * a["offsetOptional"].double()[[0, 1, 1, 1, 1], 0]
    total = torch.cat([x[:1] @ scaled[0] + bias[0], x[1:4] @ scaled[1] + bias[1]]) + offset[:4]
    total *= (wide(a[ROW_SCALE]) * wide(a[LOGITS]))[:4, None]
    y = torch.zeros(3, N, dtype=torch.float64).index_add(0, a[PLACES][:4], total)
    y[1:] += 0.5 * wide(a[ADDED]).double()
    return y


def _numbers_of_four_bits(operator: Operator, name: str, array: Any) -> Any:
    if name == "scaleOptional":
        return _bits(array)
    return {LISTED: np.array([1, 4]), PLACES: np.array([2, 0, 2, 1, 0])}.get(name, array)


class TestFourBits(LibraryTests):
    subject = Subject(
        tuple(FOUR_BITS),
        calls=dict(zip((each.name for each in FOUR_BITS), (_of_four_bits, _of_four_bits_tuned), strict=True)),
        references=dict.fromkeys((each.name for each in FOUR_BITS), _summed_of_four_bits),
        default=(INT8,),
        numbers=_numbers_of_four_bits,
        breaks={
            "null": lambda o, name: Break({name: T(FLOAT, (2, N))}, "null"),
            "allowed value": lambda o, name: Break({name: True if name.startswith("t") else 2}, "expected"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "public format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2"),
            "3 dimensions": lambda o, name: Break(shape((16, N), name), "3"),
            "1 dimension": lambda o, name: Break(shape((5, 1), name), "1"),
            "no dimension of 0": lambda o, name: Break(
                shape((0, 16, N) if name == "x2" else (0, N), name), "no dimension of 0"
            ),
            "whole bytes": lambda o, name: Break({name: T(D.INT4, (2, 16, 15))}, "an even last dimension"),
            "… columns (the rows of x2)": lambda o, name: Break(shape((5, 15), name), "16 columns"),
            "scales of parts": lambda o, name: Break(shape((2, 3, N), name), "[2, a divisor of 16, 256]"),
            "shape is columns of each group": lambda o, name: Break(shape((N, 2), name), "[2, 256]"),
            "shape is a row of each group": lambda o, name: Break(shape((2, 2, N), name), "[2, 1, 256]"),
            "shape is one of each group": lambda o, name: Break(shape((3,), name), "[2]"),
            "shape is one of each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "sums of tokens": lambda o, name: Break(shape((6, N), name), "[at most "),
            "a row of out": lambda o, name: Break({name: 2}, "from 0 to 1"),
            "rows of a group": lambda o, name: Break({name: (6,)}, "from 0 to 5"),
        },
        codes={"null": NO_KERNEL},
    )

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        """Empty tensors are rejected."""
        call = described(changed(self.subject.valid(operator, INT8), {"x1": {"shape": (0, 16)}}))
        with pytest.raises(AclnnError, match="x1: expected no dimension of 0"):
            prepare(operator, call, Product.ATLAS_A2)


@pytest.mark.parametrize("words", [False, True])
def test_a_bias_of_the_weights_brings_back_what_is_taken_from_rows(words: bool) -> None:
    """With a bias of 8 times the sums of the scaled weights, the result equals the product without offset."""
    random = np.random.default_rng(4)
    x, weight = random.integers(-128, 128, (5, 16), np.int8), random.integers(-8, 8, (2, 16, N), np.int8)
    exponents = random.integers(0, 4, (2, 2, N))
    scaled = weight * np.exp2(exponents - 2).repeat(8, 1)
    held = packed(weight).view(np.int32) if words else packed(weight)
    arrays = {
        "x1": x,
        "scaleOptional": _bits(exponents),
        "biasOptional": (8 * scaled.sum(1)).astype(np.float32),
        LISTED: np.array([2, 3]),
        PLACES: np.array([0, 1, 0, 1, 0]),
        "out": np.full((2, N), 7, np.float32),
    }
    placed = {name: Placed(of, "contiguous") for name, of in arrays.items()}
    dims = held.shape if words else weight.shape
    unused = (ROW_SCALE, LOGITS, ADDED, "offsetOptional")
    given = _of_four_bits(INT8) | dict.fromkeys(unused) | {"groupListType": 1}
    given |= {name: each.tensor for name, each in placed.items()}
    given["x2"] = Tensor(D.INT32 if words else D.INT4, dims, address=held.ctypes.data, owner=held)
    prepare(FOUR_BITS[0], given | {"sharedInputOffset": 0}, Product.ATLAS_A2).run()
    rows = np.concatenate([x[:2] @ scaled[0], x[2:] @ scaled[1]])
    np.testing.assert_array_equal(placed["out"].view, [rows[0] + rows[2] + rows[4], rows[1] + rows[3]])


def _compute(**changes: Any) -> Any:
    random = np.random.default_rng(4)
    arrays = {
        "x1": random.integers(-128, 128, (5, 16), np.int8),
        "x2": random.integers(-128, 128, (2, 16, N), np.int8),
        "scale": np.ones((2, N), np.float32),
        GROUPS: np.array([2, 3]),
        "rowIndex": np.array([0, 1, 0, 1, 0], np.int32),
        "out": np.full((2, N), 7, np.float32),
    } | changes
    placed = {name: Placed(of, "contiguous") for name, of in arrays.items() if isinstance(of, np.ndarray)}
    placed["x2"].tensor.format = Format.FORMAT_FRACTAL_NZ
    given = _call(INT8) | dict.fromkeys((ROW_SCALE, "logit", SHARED)) | arrays
    given |= {name: each.tensor for name, each in placed.items()}
    prepare(FIRST, given, Product.ATLAS_A2).run()
    return placed["out"].view


def test_group_list_sizes_are_equivalent_to_ends() -> None:
    np.testing.assert_array_equal(_compute(sharedInputOffset=0), _compute(groupListType=1, groupList=np.array([2, 1])))


def test_rows_of_no_token_are_rejected() -> None:
    with pytest.raises(AclnnError, match="rowIndex: expected numbers from 0 to 1, got 2"):
        _compute(rowIndex=np.array([0, 1, 2, 1, 0], np.int32))
    with pytest.raises(AclnnError, match=r"groupList\[1\]: expected an end"):
        _compute(groupList=np.array([2, 6]))
