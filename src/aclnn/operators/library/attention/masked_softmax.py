"""Softmax of scores: aclnnScaledMaskedSoftmax and its gradient, aclnnMaskedSoftmaxWithRelPosBias."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    no_zero_dims,
    one_of,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import (
    MODERN,
    attribute,
    library_operator,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)

#: Value of masked scores in the kernel, which gives equal results for an entirely masked row.
_MASKED = -10000.0


def _shares(x: Any, mask: Any, scale: float) -> Any:
    scores = np.where(mask, _MASKED, x.astype(np.float64) * scale)
    with np.errstate(invalid="ignore"):  # infinite scores
        shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _gradient(gradient: Any, y: Any, mask: Any, scale: float) -> Any:
    y = y.astype(np.float64)
    products = gradient * y
    return np.where(mask, 0.0, (products - products.sum(-1, keepdims=True) * y) * scale)


def _masks(of: str) -> Check:
    def violation(call: Call) -> str | None:
        got, scores = call["mask"].shape, call[of].shape
        if got[2:] == scores[2:] and all(a in (1, b) for a, b in zip(got[:2], scores[:2], strict=True)):
            return None
        return (
            f"mask: expected the shape of {of}, {extents(scores)}, or 1 for the first two extents, got {extents(got)}"
        )

    return rule(f"as {of}: mask", violation)


def _few_scores(of: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        got, most = call[name].shape[-1], 8192 if call.product in CLASS_950 else 4096
        return (
            None if 1 <= got <= most else f"expected 1 to {most} scores in a row, got shape {extents(call[name].shape)}"
        )

    return each("scores in a row", (of,), violation)


def _checks(scores: tuple[str, ...], out: str) -> tuple[Check, ...]:
    first, *others = scores
    return (
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


_WINDOW_MASK, _BIAS = "attenMaskOptional", "relativePosBias"
_WITH_WINDOWS = A2_CLASS | {Product.ATLAS_INFERENCE}


def _windows(call: Call) -> int:
    """Return the number of windows, whose scores have separate masks; 1 without windows."""
    mask = call[_WINDOW_MASK]
    return 1 if mask is None else int(mask.shape[1 if len(mask.shape) == 5 else 0])


def _window_mask(call: Call) -> str | None:
    if call[_WINDOW_MASK] is None:
        return None
    got, scores, windows = call[_WINDOW_MASK].shape, call["x"].shape, _windows(call)
    expected = {3: (windows, *scores[-2:]), 4: (windows, 1, *scores[-2:]), 5: (1, windows, 1, *scores[-2:])}[len(got)]
    fits = windows and (scores[1] == windows if len(scores) == 5 else scores[0] % windows == 0)
    if got == expected and fits:
        return None
    return (
        f"{_WINDOW_MASK}: expected a mask {extents(scores[-2:])} for each of the windows in {extents(scores)}, "
        f"got {extents(got)}"
    )


def _window_bias(call: Call) -> str | None:
    got, expected = call[_BIAS].shape, call["x"].shape[-3:]
    if got == ((1,) * (len(got) - 3) + expected):
        return None
    return f"{_BIAS}: expected shape {extents(expected)}, or 1 before it, got {extents(got)}"


def _window_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    scores, scale, masks = (
        call["x"].shape,
        call["scaleValue"],
        (_WINDOW_MASK,) if call[_WINDOW_MASK] is not None else (),
    )
    windows = scores[1] if len(scores) == 5 else _windows(call)

    def compute(x: Any, bias: Any, *mask: Any) -> Any:
        found = x.reshape(-1, windows, *scores[-3:]).astype(np.float64) * scale + bias.reshape(scores[-3:])
        if mask:
            found += mask[0].reshape(windows, 1, *scores[-2:])
        shares = np.exp(found - found.max(-1, keepdims=True))
        return (shares / shares.sum(-1, keepdims=True)).reshape(scores)

    return Library(compute, ("x", _BIAS, *masks), ("out",))


_MASK = tensor_in("mask", "the mask of scores to exclude; BOOL, the first two dimensions may be 1")
_OPTIONS = (
    attribute("scale", Kind.DOUBLE, "the factor of the scores"),
    attribute("fixTriuMask", Kind.BOOL, "must be false"),
)

OPERATORS = (
    library_operator(
        "scaled_masked_softmax",
        "y = softmax(where(mask, -10000, scale * x))",
        "Softmax of scaled and masked scores.",
        (tensor_in("x", "the scores, four dimensions"), _MASK, *_OPTIONS, tensor_out("y", "the probabilities")),
        _checks(("x",), "y"),
        _shares,
        dtypes=FLOATING,
        products=MODERN,
        attributes=("scale",),
    ),
    library_operator(
        "scaled_masked_softmax_backward",
        "out = where(mask, 0, scale * y * (gradOutput - sum(gradOutput * y)))",
        "Gradient of the softmax of scaled and masked scores.",
        (
            tensor_in("gradOutput", "the gradient with respect to the probabilities, four dimensions"),
            tensor_in("y", "the probabilities"),
            _MASK,
            *_OPTIONS,
            tensor_out("out", "the gradient with respect to the scores"),
        ),
        _checks(("gradOutput", "y"), "out"),
        _gradient,
        dtypes=FLOATING,
        products=MODERN,
        stream_type="const aclrtStream ",
        attributes=("scale",),
    ),
    Operator(
        name="masked_softmax_with_rel_pos_bias",
        summary="Softmax of scaled window attention scores, with masks and relative position biases.",
        formula="out = softmax(scaleValue * x + attenMaskOptional + relativePosBias)",
        parameters=(
            tensor_in("x", "the scores, (samples * windows, heads, rows, columns), or (samples, windows, heads, …)"),
            optional_in(_WINDOW_MASK, "(windows, rows, columns), (windows, 1, …) or (1, windows, 1, …)"),
            tensor_in(_BIAS, "(heads, rows, columns), or 1 before it"),
            attribute("scaleValue", Kind.DOUBLE, "the factor of the scores"),
            attribute("innerPrecisionMode", Kind.INT64, "ignored"),
            tensor_out("out", "the probabilities", const=True),
        ),
        support=support(FLOATING, _WITH_WINDOWS),
        checks=generated(
            ("x", _BIAS),
            ("out",),
            lambda product: [(of,) * 3 for of in FLOATING if of != D.BF16 or product.has_bfloat16],
            dims_between(4, 5, "x"),
            dims_between(3, 5, _WINDOW_MASK, _BIAS),
            no_zero_dims("x"),
            rule(f"a mask for each window: {_WINDOW_MASK}", _window_mask),
            rule(f"a bias for each head: {_BIAS}", _window_bias),
            same_shape("out", "x"),
            optional=(same_dtype(_WINDOW_MASK, "x"),),
        ),
        work=_window_work,
    ),
)
