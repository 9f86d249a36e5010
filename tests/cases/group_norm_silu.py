"""aclnnGroupNormSilu and aclnnGroupNormSiluV2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NAN,
    NINE,
    NO_KERNEL,
    NOT_950,
    NOT_ON_950,
    ONLY_950,
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
    misshapen,
    not_floating,
    other,
    shape,
)
from tests.helpers import norms

_SHAPE = (2, 4, 3)
_KERNELS = (*MODERN, Product.ATLAS_INFERENCE)


def _call(d: D) -> Arguments:
    return {
        "self": T(d, _SHAPE),
        "gamma": T(d, (4,)),
        "beta": T(d, (4,)),
        "group": 2,
        "eps": 1e-5,
        "out": T(d, _SHAPE),
        "meanOut": T(d, (2, 2)),
        "rstdOut": T(d, (2, 2)),
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    given = norms.channels(rows, columns)
    # Products other than the 950 want samples and channels.
    return _of_shape(tuple(extent or 1 for extent in given[:2]) + given[2:])


def _of_shape(given: Shape) -> Change:
    group = 2 if given[1] % 2 == 0 else 1
    return {
        **shape(given, "self", "out"),
        **shape(given[1:2], "gamma", "beta"),
        **shape((given[0], group), "meanOut", "rstdOut"),
        "group": group,
    }


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    absent = draw(st.sampled_from((("gamma", "beta"), ("beta",), ())))
    change: dict[str, Any] = dict(dtype(FLOAT, "gamma", "beta"))
    if product in ONLY_950 and len(absent) < 2:
        change |= dtype(FLOAT, "meanOut", "rstdOut")
    return change | dict.fromkeys(absent)


_KIND = "data type of self or float32: gamma, beta"

GROUP_NORM_SILU = Case(
    operator=BY_NAME["group_norm_silu"],
    python=aclnn.group_norm_silu,
    call=_call,
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_INFERENCE: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), (NO_KERNEL, "product")),
    reference=norms.group_silu,
    reshape=_reshape,
    mixed=_mixed,
    rejected=(
        *every_null("present: self, out, meanOut, rstdOut", "self out meanOut rstdOut"),
        *not_floating("self", "gamma", "beta"),
        Rejected("one data type: gamma, beta", dtype(other, "beta"), "beta", "that of gamma", "ACL_FLOAT"),
        Rejected(_KIND, dtype(FLOAT16, "gamma", "beta"), "gamma", "data type ACL_", "16", dtypes=(FLOAT, BF16)),
        Rejected(_KIND, dtype(FLOAT16, "beta") | {"gamma": None}, "beta", "data type ACL_", "16", dtypes=(FLOAT, BF16)),
        *differs("self", "out"),
        *(
            Rejected(
                "data type of statistics: meanOut, rstdOut", dtype(other, name), name, "data type ACL_", "ACL_FLOAT"
            )
            for name in ("meanOut", "rstdOut")
        ),
        *(
            Rejected("2 to 8 dimensions: self", shape(got, "self"), "self", "2 to 8 dimensions", str(len(got)))
            for got in ((4,), (), NINE)
        ),
        Rejected("same shape as self: out", shape((2, 3, 4), "out"), "out", "shape [2, 4, 3]", "[2, 3, 4]"),
        *misshapen("[N, group]", (2, 1), "meanOut", "rstdOut"),
        *misshapen("[C]", (3,), "gamma", "beta"),
        Rejected("1 or more: group", {"group": 0} | shape((2, 0), "meanOut", "rstdOut"), "group", "1 or more", "0"),
        *(
            Rejected(
                f"samples and channels: self{NOT_ON_950}",
                _of_shape(got),
                "self",
                "one sample and channel",
                str(list(got)),
                products=NOT_950,
            )
            for got in ((2, 0, 3),)
        ),
        Rejected("above 0: eps", {"eps": 0.0}, "eps", "above 0", "0.0"),
        Rejected("above 0: eps", {"eps": NAN}, "eps", "above 0", "nan"),
        Rejected(
            "divides C: group", {"group": 3} | shape((2, 3), "meanOut", "rstdOut"), "group", "a divisor of 4", "3"
        ),
    ),
    accepted=(
        Accepted("no rows", _of_shape((0, 4, 3)), ONLY_950),
        Accepted("no columns", _of_shape((0, 0, 3)), ONLY_950),
        Accepted("no elements in a channel", _of_shape((2, 4, 0)), _KERNELS),
        Accepted("2 dimensions", _of_shape((3, 6)), _KERNELS),
        Accepted("8 dimensions", _of_shape((2, 4, 1, 2, 1, 1, 2, 1)), _KERNELS),
        Accepted("neither weight nor bias", {"gamma": None, "beta": None}, _KERNELS),
        Accepted("float32 parameters", dtype(FLOAT, "gamma", "beta"), (Product.ATLAS_A2, Product.ATLAS_INFERENCE)),
        Accepted("float32 statistics", dtype(FLOAT, "gamma", "beta", "meanOut", "rstdOut"), ONLY_950),
    ),
    examples=(
        Example(
            {
                "self": (T(FLOAT, (2, 3, 4)), [*map(float, range(1, 25))]),
                "gamma": (T(FLOAT, (3,)), [2.0] * 3),
                "beta": (T(FLOAT, (3,)), [2.0] * 3),
            },
            {"group": 1, "eps": 1e-5},
            {
                "out": " ".join(
                    [
                        "-0.277505 -0.214146 -0.013696 0.349984 0.855016 1.448429 2.079075 2.714966 3.342146 3.957284 "
                        "4.561617 5.157670"
                    ]
                    * 2
                ),
                "meanOut": "6.500000 18.500000",
                "rstdOut": "0.289683 0.289683",
            },
        ),
    ),
)

GROUP_NORM_SILU_V2 = replace(
    GROUP_NORM_SILU,
    operator=BY_NAME["group_norm_silu_v2"],
    python=aclnn.group_norm_silu_v2,
    call=lambda d: _call(d) | {"activateSilu": True},
    mixed=lambda draw, product, arguments: _mixed(draw, product, arguments) | {"activateSilu": draw(st.booleans())},
    examples=tuple(
        Example(example.inputs, {**example.attributes, "activateSilu": True}, example.printed)
        for example in GROUP_NORM_SILU.examples
    ),
)
