"""aclnnSoftmax, aclnnLogSoftmax and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
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
    FLOATS,
    GRID,
    MODERN,
    NINE,
    NO_KERNEL,
    NOT_950,
    OLD,
    OLDEST,
    ONLY_950,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    T,
    dtype,
    every_null,
    other,
    shape,
)
from tests.helpers import norms

_WIDE = (*FLOATS, D.DOUBLE)
_MORE = {FLOAT: 1.5, FLOAT16: 0.01, BF16: 0.01}
"""Units with the half of a rounding (docs/numerics-rows.md)."""
_INPUTS = ("gradOutput", "output")


def _forward(d: D) -> Arguments:
    return {"self": T(d, GRID), "dim": -1, "out": T(d, GRID)}


def _gradient(d: D) -> Arguments:
    return {**dict.fromkeys(_INPUTS, T(d, GRID)), "dim": -1, "out": T(d, GRID)}


def _terms(arguments: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Along dim: x less its maximum and the sum of its powers, or dy and y; and how to sum."""
    names = _INPUTS if "output" in arguments else ("self",)
    tensors = [norms.wide(arguments[name], *(arguments[name].shape or (1,))) for name in names]
    along = {"axis": arguments["dim"], "keepdims": True}
    if len(tensors) == 2:
        return *tensors, along
    shifted = tensors[0] - tensors[0].max(**along)
    return shifted, np.exp(shifted).sum(**along), along


def _softmax(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, norms.Expected]:
    if not outputs:
        return {}
    first, second, along = _terms(arguments)
    if "self" in arguments:
        y = np.exp(first) / second
        return norms.rounded({"out": (y, 16 * y)}, outputs, _MORE)
    product = first * second
    whole = abs(second) * abs(product).sum(**along)
    return norms.rounded(
        {"out": (product - second * product.sum(**along), abs(product) + whole, 2 * whole)}, outputs, _MORE
    )


def _log_softmax(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, norms.Expected]:
    if not outputs:
        return {}
    first, second, along = _terms(arguments)
    if "self" in arguments:
        y = first - np.log(second)
        return norms.rounded({"out": (y, 16 * abs(y))}, outputs, _MORE)
    total, sizes, power = first.sum(**along), abs(first).sum(**along), np.exp(second)
    size = abs(first) + power * (16 * sizes + 2.0**18 * abs(total))
    near = power * (2 * abs(total) + sizes)
    return norms.rounded({"out": (first - power * total, size, near)}, outputs, _MORE)


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    """Any dimension, and an output of another type."""
    rank = max(len(arguments["out"].shape), 1)
    return {"dim": draw(st.integers(-rank, rank - 1)), **dtype(draw(st.sampled_from(_WIDE)), "out")}


def _unwritten(arguments: Arguments) -> frozenset[str]:
    inputs = (arguments[name] for name in ("self", *_INPUTS) if name in arguments)
    return frozenset({"out"} if any(0 in tensor.shape for tensor in inputs) else ())


def _dims(of: str, where: str) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(f"dimension of {of}: dim{where}", {"dim": dim}, "dim", "from -2 to 1", str(dim))
        for dim in (-3, 2, 2**32)
    )


def _edges(*names: str) -> tuple[Accepted, ...]:
    every = (*names, "out")
    return (
        Accepted("no columns", shape((2, 0), *every)),
        Accepted("no rows", shape((0, 3), *every)),
        Accepted("0-dim", shape((), *every)),
        Accepted("0-dim, dim 0", {**shape((), *every), "dim": 0}),
        Accepted("the last of 8 dimensions", {**shape((1, 2) * 4, *every), "dim": 7}),
        Accepted("the first of 8 dimensions", {**shape((2, 1) * 4, *every), "dim": -8}),
        Accepted("a middle dimension", {**shape((2, 3, 5), *every), "dim": -2}),
        Accepted("one element in each row", shape((3, 1), *every)),
        Accepted("another type", dtype(D.DOUBLE, "out")),
        Accepted("any format", {names[-1]: {"format": Format.FORMAT_NHWC}, "out": {"format": Format.FORMAT_NC1HWC0}}),
    )


_FORWARD_SUPPORT = {
    "dtypes": dict.fromkeys(MODERN, _WIDE) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16, D.DOUBLE)),
    "unsupported": dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
}
_BACKWARD_SUPPORT = {
    "dtypes": dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    "unsupported": dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
}


def _data_types(where: str) -> tuple[Rejected, ...]:
    check = f"data type: self, out{where}"
    return tuple(
        rejection
        for name in ("self", "out")
        for rejection in (
            Rejected(check, dtype(D.INT64, name), name, "data type ACL_FLOAT", "ACL_INT64"),
            Rejected(check, dtype(BF16, name), name, "ACL_DOUBLE on", "ACL_BF16", products=OLD),
        )
    )


_FULL = " (unless self is empty)"
_NOTHING_LOOKED_AT = {**shape((2, 0), "self"), **shape((2, 3), "out"), "dim": 9}

SOFTMAX = Case(
    operator=BY_NAME["softmax"],
    python=aclnn.softmax,
    call=_forward,
    **_FORWARD_SUPPORT,
    reference=_softmax,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: self, out", "self out"),
        *_data_types(_FULL),
        *_dims("self", _FULL),
        Rejected(f"at most 8 dimensions: self{_FULL}", shape(NINE, "self"), "self", "at most 8", "9"),
        Rejected(f"same shape as self: out{_FULL}", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    ),
    accepted=(*_edges("self"), Accepted("empty, with nothing else looked at", _NOTHING_LOOKED_AT)),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [*range(8)])},
            {"dim": 0},
            {"out": "0.002144 0.002144 0.015842 0.015842 0.117059 0.117059 0.864955 0.864955"},
        ),
        Example(
            {"self": (T(FLOAT, (2, 4)), [-2, -0.5, 0, 1.5, 3, 1, -1, 0.25])},
            {"dim": -1},
            {"out": "0.021746 0.097457 0.160680 0.720117 0.821302 0.111151 0.015043 0.052504"},
        ),
    ),
)

LOG_SOFTMAX = Case(
    operator=BY_NAME["log_softmax"],
    python=aclnn.log_softmax,
    call=_forward,
    **_FORWARD_SUPPORT,
    reference=_log_softmax,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: self, out", "self out"),
        *_dims("self", ""),
        *_data_types(""),
        *(
            Rejected("at most 8 dimensions: self, out", shape(NINE, name), name, "at most 8", "9")
            for name in ("self", "out")
        ),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
        Rejected("same shape as self: out", shape((2, 0), "self"), "out", "shape [2, 0]", "[2, 3]"),
    ),
    accepted=_edges("self"),
    examples=(
        Example(
            {"self": (T(FLOAT, (3, 3)), [*range(1, 10)])},
            {"dim": 1},
            {"out": " ".join(["-2.407606 -1.407606 -0.407606"] * 3)},
        ),
        Example(
            {"self": (T(FLOAT, (2, 4)), [-2, -0.5, 0, 1.5, 3, 1, -1, 0.25])},
            {"dim": -2},
            {"out": "-5.006715 -1.701413 -0.313262 -0.251929 -0.006715 -0.201413 -1.313262 -1.501929"},
        ),
    ),
)

_SPARED, _EMPTY = " (unless an input is empty, but for Ascend 950)", " (unless an input is empty)"


def _types_of_gradient(*names: str) -> tuple[Rejected, ...]:
    check = f"data type: {', '.join(names)}{_SPARED}"
    first, second = (
        Rejected(check, dtype(D.DOUBLE, name), name, "data type ACL_FLOAT", "ACL_DOUBLE") for name in names
    )
    like = f"same data type as gradOutput: output{_SPARED}"
    return (
        first,
        Rejected(check, dtype(BF16, *names), names[0], "ACL_FLOAT16 on", "ACL_BF16", products=OLD),
        second,
        Rejected(like, dtype(other, "output"), "output", "that of gradOutput", "ACL_FLOAT"),
    )


_SHAPES_OF_GRADIENT = (
    *(
        Rejected(f"at most 8 dimensions: gradOutput, output{_SPARED}", shape(NINE, name), name, "at most 8", "9")
        for name in _INPUTS
    ),
    *(
        Rejected(f"same shape as gradOutput: {name}{_SPARED}", shape((2, 4), name), name, "shape [2, 3]", "[2, 4]")
        for name in ("output", "out")
    ),
    Rejected(
        f"same shape as gradOutput: out{_SPARED}",
        shape((2, 0), *_INPUTS),
        "out",
        "shape [2, 0]",
        "[2, 3]",
        products=ONLY_950,
    ),
)
_NUMBERS = Rejected(
    f"data type of numbers: out{_EMPTY}", dtype(D.FLOAT8_E5M2, "out"), "out", "of numbers", "ACL_FLOAT8_E5M2", NO_KERNEL
)
_OUT_NOT_LOOKED_AT = Accepted("empty, with another out", shape((2, 0), *_INPUTS), NOT_950)
_SAMPLE = {
    "gradOutput": (T(FLOAT, (4, 2)), [*range(8)]),
    "output": (T(FLOAT, (4, 2)), [1, 1, 1, 2, 2, 2, 3, 3]),
}

SOFTMAX_BACKWARD = Case(
    operator=BY_NAME["softmax_backward"],
    python=aclnn.softmax_backward,
    call=_gradient,
    **_BACKWARD_SUPPORT,
    reference=_softmax,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: gradOutput, output, out", "gradOutput output out"),
        *_types_of_gradient("gradOutput", "output"),
        *_dims("gradOutput", _SPARED),
        *_SHAPES_OF_GRADIENT,
        _NUMBERS,
    ),
    accepted=(*_edges(*_INPUTS), _OUT_NOT_LOOKED_AT),
    examples=(
        Example(
            _SAMPLE,
            {"dim": 0},
            {"out": "-28.000000 -37.000000 -26.000000 -70.000000 -48.000000 -66.000000 -66.000000 -93.000000"},
        ),
    ),
)

LOG_SOFTMAX_BACKWARD = Case(
    operator=BY_NAME["log_softmax_backward"],
    python=aclnn.log_softmax_backward,
    call=_gradient,
    **_BACKWARD_SUPPORT,
    reference=_log_softmax,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: output, gradOutput, out", "output gradOutput out"),
        *_types_of_gradient("output", "gradOutput"),
        *_SHAPES_OF_GRADIENT,
        *_dims("gradOutput", _SPARED),
        _NUMBERS,
    ),
    accepted=(*_edges(*_INPUTS), _OUT_NOT_LOOKED_AT),
    examples=(
        Example(
            _SAMPLE,
            {"dim": 0},
            {"out": "-32.619381 -42.492508 -30.619383 -115.224899 -84.668671 -113.224899 -235.026443 -314.368591"},
        ),
    ),
)
