"""aclnnAddRmsNorm and aclnnInplaceAddRmsNorm."""

from __future__ import annotations

import math

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL,
    NO_KERNEL_FOUND,
    NULL,
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
    generated,
    not_floating,
    not_one_a_row,
    not_trailing,
    shape,
    tiled,
)
from tests.helpers import norms

_SUPPORTED = (*MODERN, Product.ATLAS_INFERENCE)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_INFERENCE: (FLOAT, FLOAT16)}
_UNSUPPORTED = (Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING)
_WITH, _WITHOUT, _FULL = " (with rstdOut)", " (without rstdOut)", " (unless x1 or gamma is empty)"
_OUTPUTS = ("yOut", "rstdOut", "xOut")
_ALIKE = ("x1", "x2", "gamma", "yOut", "xOut")
_HALVES = dtype(lambda t: FLOAT16 if t.dtype == FLOAT else t.dtype, *_ALIKE)


def _pre(columns: int = 3) -> Change:
    """Without rstdOut: 16-bit types, and weight as (1, N)."""
    to_halves = _HALVES["gamma"]
    return {**_HALVES, "rstdOut": None, "gamma": {**to_halves, "shape": (1, columns)}}


def _with(change: Change, **fields: object) -> Change:
    """Return a change of a tensor's fields or of other values."""
    return {**change, **{k: {**(change.get(k) or {}), **v} if isinstance(v, dict) else v for k, v in fields.items()}}


def _call(d: D) -> Arguments:
    return {
        "x1": T(d, (2, 3)),
        "x2": T(d, (2, 3)),
        "gamma": T(d, (3,)),
        "epsilon": 1e-6,
        "yOut": T(d, (2, 3)),
        "rstdOut": T(FLOAT, (2, 1)),
        "xOut": T(d, (2, 3)),
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    columns = columns or (1,)
    rstd = rows + (1,) * len(columns)
    return {**shape(rows + columns, "x1", "x2", "yOut", "xOut"), **shape(columns, "gamma"), **shape(rstd, "rstdOut")}


def _unwritten(arguments: Arguments) -> frozenset[str]:
    return frozenset() if math.prod(arguments["x1"].shape + arguments["gamma"].shape) else frozenset(_OUTPUTS)


def _mode(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    if arguments["x1"].dtype == FLOAT:
        return {}
    return {**_pre(arguments["x1"].shape[-1]), **draw(st.sampled_from([{}, {"xOut": None}]))}


def _tiling_fault(check: str, change: Change, argument: str, expected: str, got: str) -> Rejected:
    return Rejected(check + _FULL, change, argument, expected, got)


_EIGHTS = [*map(float, range(8))]
_PROBE = {
    "x1": (T(FLOAT, (2, 4)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
    "x2": (T(FLOAT, (2, 4)), [0.5, 1, -1, 0.5, 0, 1, 1, -1]),
    "gamma": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
}
_SAMPLE = {
    "x1": (T(FLOAT, (2, 16)), _EIGHTS * 4),
    "x2": (T(FLOAT, (2, 16)), _EIGHTS * 4),
    "gamma": (T(FLOAT, (16,)), _EIGHTS * 2),
}
#: Inputs, and what is printed of y, rstd and x.
_EXAMPLES = (
    (
        _SAMPLE,
        " ".join(["0.000000 0.239046 0.956183 2.151412 3.824732 5.976143 8.605646 11.713241"] * 4),
        "0.119523 0.119523",
        " ".join([f"{2 * value:f}" for value in _EIGHTS] * 4),
    ),
    (
        _PROBE,
        "1.044466 -0.348155 -1.392621 1.392621 0.348155 0.696310 -0.000000 2.785240",
        "0.696310 1.392620",
        "1.500000 -1.000000 2.000000 1.000000 0.250000 1.000000 0.000000 1.000000",
    ),
)

ADD_RMS_NORM = Case(
    operator=BY_NAME["add_rms_norm"],
    python=aclnn.add_rms_norm,
    call=_call,
    dtypes=_DTYPES,
    unsupported=dict.fromkeys(_UNSUPPORTED, (NO_KERNEL, "product")),
    reference=norms.add_rms,
    reshape=_reshape,
    mixed=_mode,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: x1, x2, gamma, yOut", "x1 x2 gamma yOut"),
        Rejected(f"present: xOut{_WITH}", {"xOut": None}, "xOut", "an object", "null", NULL),
        *not_floating("x1", where=_WITH),
        Rejected(
            f"data type: x1{_WITHOUT}",
            _with(_pre(), **dtype(FLOAT, *_ALIKE)),
            "x1",
            "data type ACL_FLOAT16",
            "ACL_FLOAT",
        ),
        *differs("x1", "x2", "gamma", "yOut", "xOut"),
        Rejected("data type: rstdOut", dtype(FLOAT16, "rstdOut"), "rstdOut", "data type ACL_FLOAT", "ACL_FLOAT16"),
        *(
            Rejected("1 to 8 dimensions: x1, x2, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("x1", "x2", "gamma")
            for got in ((), NINE)
        ),
        *(
            Rejected(f"same shape as x1: {name}", shape((3, 2), name), name, "shape [2, 3]", "[3, 2]")
            for name in ("x2", "yOut")
        ),
        Rejected("at most 8 dimensions: rstdOut", shape(NINE, "rstdOut"), "rstdOut", "at most 8 dimensions", "9"),
        Rejected(
            f"1 to 2 dimensions: gamma{_WITHOUT}",
            _with(_pre(), **shape((1, 1, 3), "gamma")),
            "gamma",
            "1 to 2 dimensions",
            "3",
        ),
        Rejected("same shape as x1: xOut", shape((3, 2), "xOut"), "xOut", "shape [2, 3]", "[3, 2]"),
        *(
            _tiling_fault(
                f"shape is trailing dimensions of x1: gamma{_WITH}", shape(got, "gamma"), "gamma", expected, str([*got])
            )
            for got, expected in (((4,), "shape [3]"), ((1, 3), "shape [2, 3]"), ((1, 2, 3), "shape [2, 3]"))
        ),
        *(
            _tiling_fault(
                f"shape is [1, N]: gamma{_WITHOUT}",
                _with(_pre(), **shape(got, "gamma")),
                "gamma",
                "shape [1, 3]",
                str([*got]),
            )
            for got in ((3,), (2, 3), (1, 4))
        ),
        _tiling_fault("0 or more: epsilon", {"epsilon": -1e-3}, "epsilon", "0 or more", "-0.001"),
        *(
            _tiling_fault("one element a row: rstdOut", shape(got, "rstdOut"), "rstdOut", "shape [2, 1]", str([*got]))
            for got in ((2,), (1, 1), (2, 3))
        ),
    ),
    never_together=frozenset(
        {
            (f"data type: x1{_WITH}", f"data type: x1{_WITHOUT}"),
            ("at most 8 dimensions: rstdOut", f"1 to 2 dimensions: gamma{_WITHOUT}"),
            (
                f"shape is trailing dimensions of x1: gamma{_WITH}{_FULL}",
                f"shape is [1, N]: gamma{_WITHOUT}{_FULL}",
            ),
        }
    ),
    together={
        (f"data type: x1{_WITHOUT}", "same data type as x1: x2"): {"rstdOut": None, **dtype(FLOAT16, "x2")},
    },
    accepted=(
        Accepted("no rows", _reshape((0,), (3,))),
        Accepted("no columns", _reshape((5,), (0,))),
        Accepted("only gamma is empty", shape((0,), "gamma")),
        Accepted("no leading dimensions", _reshape((), (3,)), _SUPPORTED),
        Accepted("8 dimensions", _reshape((2, 1, 2, 1), (2, 1, 1, 3)), _SUPPORTED),
        Accepted("one row's rstd in another shape", _reshape((1,), (3,)) | shape((), "rstdOut"), _SUPPORTED),
        Accepted("without rstd", _pre(), _SUPPORTED),
        Accepted("only y", {**_pre(), "xOut": None}, _SUPPORTED),
        Accepted("one dimension without rstd", _with(_pre(), **shape((3,), "x1", "x2", "yOut", "xOut")), _SUPPORTED),
    ),
    examples=tuple(
        Example(inputs, {"epsilon": 1e-6}, dict(zip(_OUTPUTS, printed, strict=True))) for inputs, *printed in _EXAMPLES
    ),
)

_NAMES = ("x1Ref", "x2Ref", "gamma", "rstdOut")
_TYPES = f"data types that go together: {', '.join(_NAMES)}"


def _in_place_call(d: D) -> Arguments:
    return {
        "x1Ref": T(d, (2, 3)),
        "x2Ref": T(d, (2, 3)),
        "gamma": T(d, (3,)),
        "epsilon": 1e-6,
        "rstdOut": T(FLOAT, (2, 1)),
    }


def _in_place_reshape(rows: Shape, columns: Shape) -> Change:
    columns = columns or (1,)
    # Where there is nothing to write, no output may have elements.
    rstd = (0,) if 0 in columns else rows + (1,) * len(columns)
    return {**shape(rows + columns, "x1Ref", "x2Ref"), **shape(columns, "gamma"), **shape(rstd, "rstdOut")}


_in_place_fault = tiled(_SUPPORTED)


INPLACE_ADD_RMS_NORM = Case(
    operator=BY_NAME["inplace_add_rms_norm"],
    python=aclnn.inplace_add_rms_norm,
    call=_in_place_call,
    dtypes=_DTYPES,
    unsupported=dict.fromkeys(_UNSUPPORTED, (NO_KERNEL_FOUND, "product")),
    reference=norms.add_rms,
    reshape=_in_place_reshape,
    rejected=(
        *generated(" ".join(_NAMES), _SUPPORTED),
        *(
            _in_place_fault(
                "1 to 8 dimensions: x1Ref, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got))
            )
            for name in ("x1Ref", "gamma")
            for got in ((), NINE)
        ),
        _in_place_fault("no dimension of 0: x1Ref", shape((0, 3), "x1Ref"), "x1Ref", "no dimension of 0", "[0, 3]"),
        _in_place_fault("same shape as x1Ref: x2Ref", shape((3, 2), "x2Ref"), "x2Ref", "shape [2, 3]", "[3, 2]"),
        *not_trailing("x1Ref", _in_place_fault),
        *not_one_a_row(_in_place_fault, "rstdOut"),
        _in_place_fault("0 or more: epsilon", {"epsilon": -1e-3}, "epsilon", "0 or more", "-0.001"),
    ),
    together={("kernel of the product", _TYPES): dtype(D.DOUBLE, "x1Ref")},
    accepted=(
        Accepted("no rows", _in_place_reshape((0,), (3,)), _SUPPORTED),
        Accepted("no columns", _in_place_reshape((5,), (0,)), _SUPPORTED),
        Accepted("no leading dimensions", _in_place_reshape((), (3,)), _SUPPORTED),
        Accepted("8 dimensions", _in_place_reshape((2, 1, 2, 1), (2, 1, 1, 3)), _SUPPORTED),
    ),
    examples=tuple(
        Example(
            {"x1Ref": inputs["x1"], "x2Ref": inputs["x2"], "gamma": inputs["gamma"]},
            {"epsilon": 1e-6},
            {"x1Ref": y, "x2Ref": x, "rstdOut": rstd},
        )
        for inputs, y, rstd, x in _EXAMPLES
    ),
)
