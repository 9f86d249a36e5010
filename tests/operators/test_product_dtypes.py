"""Data types that the Ascend 950 class takes and Atlas A2 refuses, the other way round, and that none takes."""

from __future__ import annotations

from typing import Any

import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.execution.executor import prepare
from tests.cases.table import Arguments, T
from tests.helpers.library import BY_NAME, described, number_of

A2, A5 = Product.ATLAS_A2, Product.ASCEND_950
BOTH: tuple[Product, ...] = (A2, A5)
NEITHER: tuple[Product, ...] = ()


def _same(dtype: D, *names: str, shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return dict.fromkeys(names, T(dtype, shape))


ROWS: tuple[tuple[str, Arguments, tuple[Product, ...]], ...] = (
    ("split_with_size", _same(D.UINT16, "self") | {"splitSize": (2,), "dim": 0, "out": (T(D.UINT16, (2,)),)}, (A5,)),
    ("split_with_size", _same(D.INT16, "self") | {"splitSize": (2,), "dim": 0, "out": (T(D.INT16, (2,)),)}, BOTH),
    *(
        (
            "one_hot",
            {
                "self": T(D.INT32, (2,)),
                "numClasses": 3,
                **_same(dtype, "onValue", "offValue", shape=(1,)),
                "axis": -1,
                "out": T(dtype, (2, 3)),
            },
            taking,
        )
        for dtype, taking in ((D.INT8, (A5,)), (D.UINT8, (A5,)), (D.FLOAT, BOTH))
    ),
    ("tril", _same(D.COMPLEX64, "self", "out", shape=(2, 3)) | {"diagonal": 0}, (A5,)),
    ("triu", _same(D.COMPLEX64, "self", "out", shape=(2, 3)) | {"diagonal": 0}, (A5,)),
    ("inplace_zero", _same(D.HIFLOAT8, "selfRef"), (A5,)),
    ("inplace_fill_tensor", _same(D.FLOAT8_E5M2, "selfRef", "value", shape=(1,)), (A5,)),
    ("ne_tensor", _same(D.UINT32, "self", "other", "out"), (A5,)),
    ("equal", {**_same(D.COMPLEX64, "self", "other"), "out": T(D.BOOL, (1,))}, NEITHER),
    ("equal", {**_same(D.UINT32, "self", "other"), "out": T(D.BOOL, (1,))}, BOTH),
    (
        "sort",
        _same(D.UINT16, "self", "valuesOut")
        | {"stable": True, "dim": 0, "descending": False, "indicesOut": T(D.INT64, (2,))},
        (A5,),
    ),
    ("argsort", _same(D.DOUBLE, "self") | {"dim": 0, "descending": False, "out": T(D.INT64, (2,))}, NEITHER),
    ("fmod_tensor", _same(D.INT16, "self", "other", "out"), NEITHER),
    ("signbit", {**_same(D.UINT64, "self"), "out": T(D.FLOAT16, (2,))}, BOTH),
    ("tanh", {**_same(D.FLOAT, "self"), "out": T(D.DOUBLE, (2,))}, NEITHER),
    (
        "hardtanh",
        _same(D.FLOAT, "self", "out") | dict.fromkeys(("clipValueMin", "clipValueMax"), number_of(D.BOOL)),
        NEITHER,
    ),
    *(
        (
            "im2col",
            {
                "self": T(dtype, (2, 4, 4)),
                "kernelSize": (2, 2),
                "dilation": (1, 1),
                "padding": (0, 0),
                "stride": (1, 1),
                "out": T(dtype, (8, 9)),
            },
            taking,
        )
        for dtype, taking in ((D.UINT16, (A5,)), (D.BF16, BOTH), (D.COMPLEX128, NEITHER))
    ),
    ("sinc", _same(D.COMPLEX64, "self", "out"), NEITHER),
    ("x_log_y_tensor", _same(D.DOUBLE, "self", "other", "out"), NEITHER),
    ("any", _same(D.COMPLEX64, "self") | {"dim": (0,), "keepdim": False, "out": T(D.BOOL, ())}, NEITHER),
    (
        "std",
        _same(D.DOUBLE, "self") | {"dim": (0,), "correction": 1, "keepdim": False, "out": T(D.DOUBLE, ())},
        NEITHER,
    ),
    ("rsubs", _same(D.BOOL, "self", "out") | {"other": number_of(D.INT32), "alpha": number_of(D.INT32)}, NEITHER),
    (
        "search_sorted",
        _same(D.BF16, "sortedSequence", "self")
        | {"outInt32": False, "right": False, "sorter": None, "out": T(D.INT64, (2,))},
        NEITHER,
    ),
)


@pytest.mark.parametrize("product", BOTH, ids=lambda product: product.name)
@pytest.mark.parametrize(("name", "call", "taking"), ROWS)
def test_data_types(name: str, call: Arguments, taking: tuple[Product, ...], product: Product) -> None:
    if product in taking:
        assert prepare(BY_NAME[name], described(call), product).prepared.plan
    else:
        with pytest.raises(AclnnError, match="expected data type") as caught:
            prepare(BY_NAME[name], described(call), product)
        assert caught.value.code == ACLNN_ERR_PARAM_INVALID
