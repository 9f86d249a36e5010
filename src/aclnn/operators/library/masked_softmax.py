"""Softmax of scaled and masked scores, aclnnScaledMaskedSoftmax, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    one_of,
    present,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import MODERN, attribute, library_operator, tensor_in, tensor_out

#: What the kernel puts in the place of a masked score, which leaves equal shares where all are masked.
_MASKED = -10000.0


def _shares(x: Any, mask: Any, scale: float) -> Any:
    scores = np.where(mask, _MASKED, x.astype(np.float64) * scale)
    with np.errstate(invalid="ignore"):  # of infinite scores
        shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _gradient(gradient: Any, y: Any, mask: Any, scale: float) -> Any:
    y = y.astype(np.float64)
    products = gradient * y
    return np.where(mask, 0.0, (products - products.sum(-1, keepdims=True) * y) * scale)


def _masks(of: str) -> Check:
    def complain(call: Call) -> str | None:
        got, scores = call["mask"].shape, call[of].shape
        if got[2:] == scores[2:] and all(a in (1, b) for a, b in zip(got[:2], scores[:2], strict=True)):
            return None
        return (
            f"mask: expected the shape of {of}, {extents(scores)}, or 1 for the first two extents, got {extents(got)}"
        )

    return rule(f"as {of}: mask", complain)


def _few_scores(of: str) -> Check:
    def complain(call: Call, name: str) -> str | None:
        got, most = call[name].shape[-1], 8192 if call.product in CLASS_950 else 4096
        return (
            None if 1 <= got <= most else f"expected 1 to {most} scores in a row, got shape {extents(call[name].shape)}"
        )

    return each("scores in a row", (of,), complain)


def _checks(scores: tuple[str, ...], out: str) -> tuple[Check, ...]:
    first, *others = scores
    return (
        present(*scores, "mask", out),
        dtype_in(FLOATING, first),
        dtype_in({D.BOOL}, "mask"),
        *(same_dtype(name, first) for name in (*others, out)),
        dims_between(4, 4, first, *others, "mask", out),
        *(same_shape(name, first) for name in others),
        _masks(first),
        _few_scores(first),
        same_shape(out, first),
        one_of("fixTriuMask", False),
    )


_MASK = tensor_in("mask", "the scores that do not count; BOOL, 1 for the first two extents broadcasts")
_OPTIONS = (
    attribute("scale", Kind.DOUBLE, "the factor of scores"),
    attribute("fixTriuMask", Kind.BOOL, "only false"),
)

OPERATORS = (
    library_operator(
        "scaled_masked_softmax",
        "y = softmax(where(mask, -10000, scale * x))",
        "Softmax of scaled and masked scores.",
        (tensor_in("x", "the scores, four dimensions"), _MASK, *_OPTIONS, tensor_out("y", "the shares")),
        _checks(("x",), "y"),
        _shares,
        header="scaled_masked_softmax",
        dtypes=FLOATING,
        products=MODERN,
        attributes=("scale",),
    ),
    library_operator(
        "scaled_masked_softmax_backward",
        "out = where(mask, 0, scale * y * (gradOutput - sum(gradOutput * y)))",
        "Gradient of the softmax of scaled and masked scores.",
        (
            tensor_in("gradOutput", "the gradient arriving at the shares, four dimensions"),
            tensor_in("y", "the shares"),
            _MASK,
            *_OPTIONS,
            tensor_out("out", "the gradient of the scores"),
        ),
        _checks(("gradOutput", "y"), "out"),
        _gradient,
        header="scaled_masked_softmax_backward",
        dtypes=FLOATING,
        products=MODERN,
        stream_type="const aclrtStream ",
        attributes=("scale",),
    ),
)
