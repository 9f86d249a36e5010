"""aclnnInstanceNorm."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    INVALID,
    NINE,
    PRODUCTS,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    differs,
    dtype,
    every_null,
    shape,
)
from tests.helpers import norms

_ONLY = (Product.ATLAS_INFERENCE,)
_OTHERS = tuple(product for product in PRODUCTS if product not in _ONLY)
_STATISTICS = ("mean", "variance")
_TENSORS = ("x", "gamma", "beta", "y", *_STATISTICS)
_NAMES = (*_TENSORS, "dataFormat")
_FULL = " (unless a tensor is empty)"
_RANK, _FLAT = "4 dimensions: x", "1 dimension: gamma, beta"
_LIKE_X, _LIKE_MEAN = f"same shape as x: y{_FULL}", f"shape is a number for each channel: mean, variance{_FULL}"
_WRONG_FORMAT = "allowed value: dataFormat"


def _call(d: D) -> Arguments:
    return {
        "x": T(d, (2, 4, 3, 2)),
        "gamma": T(d, (4,)),
        "beta": T(d, (4,)),
        "dataFormat": "NCHW",
        "eps": 1e-5,
        "y": T(d, (2, 4, 3, 2)),
        **dict.fromkeys(_STATISTICS, T(d, (2, 4, 1, 1))),
    }


def _of_shape(given: Shape, data_format: str = "NCHW") -> Change:
    last = data_format == "NHWC"
    n, c = given[0], given[-1] if last else given[1]
    return {
        **shape(given, "x", "y"),
        **shape((c,), "gamma", "beta"),
        **shape((n, 1, 1, c) if last else (n, c, 1, 1), *_STATISTICS),
        "dataFormat": data_format,
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    n, c, *space = norms.channels(rows, columns)
    return _of_shape((n, c, *(space[:1] or [1]), math.prod(space[1:])))


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return {**_of_shape(arguments["x"].shape, "NHWC"), "eps": draw(st.sampled_from((1e-5, 0.5)))}


def _unwritten(arguments: Arguments) -> frozenset[str]:
    empty = any(0 in arguments[name].shape for name in _TENSORS)
    return frozenset(("y", *_STATISTICS)) if empty else frozenset()


def _only(check: str, change: Change, *words: Any) -> Rejected:
    return Rejected(check, change, *words, products=_ONLY)


INSTANCE_NORM = Case(
    operator=BY_NAME["instance_norm"],
    python=aclnn.instance_norm,
    call=_call,
    dtypes=dict.fromkeys(_ONLY, (FLOAT, FLOAT16)),
    # Data types come before the product, whose name both rejected say.
    unsupported={product: (INVALID, product.title) for product in _OTHERS},
    reference=norms.instance_forward,
    reshape=_reshape,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null(f"present: {', '.join(_NAMES)}", " ".join(_NAMES)),
        *(
            Rejected(_WRONG_FORMAT, {"dataFormat": got}, "dataFormat", "'NCHW' or 'NHWC'", repr(got))
            for got in ("INVALID", "", "nchw", "NCHWxyz", "ND")
        ),
        *(
            Rejected("data type: x", dtype(got, "x"), "x", "ACL_FLOAT or ACL_FLOAT16 on", got.c_name)
            for got in (BF16, D.DOUBLE)
        ),
        *differs("x", *_TENSORS[1:]),
        Rejected("at most 8 dimensions: x", shape(NINE, "x"), "x", "at most 8 dimensions", "9"),
        Rejected("kernel of the product", {}, "product", "one with a kernel, Atlas inference", "A", products=_OTHERS),
        *(_only(_RANK, shape(got, "x"), "x", "4 dimensions", str(len(got))) for got in ((2, 4, 6), (2, 4, 3, 2, 1))),
        *(
            _only(_FLAT, shape(got, name), name, "1 dimension", str(len(got)))
            for name in ("gamma", "beta")
            for got in ((4, 1), ())
        ),
        _only("shape is [C]: gamma", shape((3,), "gamma"), "gamma", "shape [4]", "[3]"),
        _only("shape is [C]: gamma", {"dataFormat": "NHWC"}, "gamma", "shape [2]", "[4]"),
        _only(_LIKE_X, shape((2, 4, 2, 3), "y"), "y", "shape [2, 4, 3, 2]", "[2, 4, 2, 3]"),
        _only(f"shape is [C]: beta{_FULL}", shape((3,), "beta"), "beta", "shape [4]", "[3]"),
        _only(
            _LIKE_MEAN,
            {**_of_shape((2, 3, 2, 4), "NHWC"), **shape((2, 4, 1, 1), "mean")},
            "mean",
            "shape [2, 1, 1, 4]",
            "[2, 4, 1, 1]",
        ),
        *(_only(_LIKE_MEAN, shape((2, 4), name), name, "shape [2, 4, 1, 1]", "[2, 4]") for name in _STATISTICS),
    ),
    together={("kernel of the product", _RANK): shape((2, 4, 6), "x")},
    accepted=(
        Accepted("no rows", _of_shape((0, 4, 3, 2)), _ONLY),
        Accepted("no columns", _of_shape((2, 4, 0, 2)), _ONLY),
        Accepted("no channels", _of_shape((2, 3, 2, 0), "NHWC"), _ONLY),
        *(Accepted(f"empty {name} alone", shape((0,), name), _ONLY) for name in ("beta", "y", *_STATISTICS)),
        Accepted("one element", _of_shape((1, 1, 1, 1)), _ONLY),
        Accepted("channels last", _of_shape((2, 3, 2, 5), "NHWC"), _ONLY),
        Accepted("eps of 0", {"eps": 0.0}, _ONLY),
        Accepted("eps below 0", {"eps": -1e-5}, _ONLY),
        Accepted("any storage format", {name: {"format": Format.FORMAT_NC1HWC0} for name in _TENSORS}, _ONLY),
    ),
    examples=(
        Example(
            {
                "x": (T(FLOAT, (1, 8, 4, 4)), [0.77] * 128),
                "gamma": (T(FLOAT, (8,)), [1.5] * 8),
                "beta": (T(FLOAT, (8,)), [0.5] * 8),
            },
            {"dataFormat": "NCHW", "eps": 1e-5},
            {
                "y": " ".join(["0.500000"] * 128),
                "mean": " ".join(["0.770000"] * 8),
                "variance": " ".join(["0.000000"] * 8),
            },
        ),
    ),
)
