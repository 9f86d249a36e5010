"""Overlap of boxes in planes: aclnnIou, aclnnCIoU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    format_is,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, present
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import MODERN, attribute, constant_text, library_operator, tensor_in, tensor_out
from aclnn.operators.library.vision.box_measures import complete

_COLUMNS = 1024
"""Divisor of the number of boxes for aclnnCIoU."""


def _area(low: Any, high: Any, eps: float) -> Any:
    return np.maximum(high - low + eps, 0.0).prod(-1)


def _overlaps(first: Any, second: Any, mode: str, eps: float, aligned: bool) -> Any:
    first, second = first.astype(np.float64), second.astype(np.float64)
    pairs = (first[:, None], second[:, None] if aligned else second[None])
    (low, high), (other_low, other_high) = ((boxes[..., :2], boxes[..., 2:]) for boxes in pairs)
    common = _area(np.maximum(low, other_low), np.minimum(high, other_high), eps)
    whole = _area(other_low, other_high, eps)
    if mode == "iou":
        whole = whole + _area(low, high, eps) - common
    return common / whole


def _corners(call: Call, name: str) -> str | None:
    got = call[name].shape
    return None if got[1] == 4 else f"expected rows of 4 numbers, got shape {extents(got)}"


def _as_many(call: Call) -> str | None:
    wanted, got = call["bBoxes"].shape[0], call["gtBoxes"].shape[0]
    if not call["aligned"] or wanted == got:
        return None
    return f"gtBoxes: expected {wanted} boxes (as many as bBoxes, with aligned), got {got}"


def _columns(call: Call, name: str) -> str | None:
    got = call[name].shape
    if got[0] == 4 and got[1] % _COLUMNS == 0:
        return None
    return f"expected 4 rows of a multiple of {_COLUMNS} numbers, got shape {extents(got)}"


_TEXT = rule("text: mode", lambda call: None if call["mode"] else "mode: expected 'iou' or 'iof', got null")


def _result(call: Call) -> tuple[int, int]:
    return call["bBoxes"].shape[0], 1 if call["aligned"] else call["gtBoxes"].shape[0]


OPERATORS = (
    library_operator(
        "iou",
        "overlap = intersection / (union, or area of gtBoxes with iof)",
        "Intersection over union (IoU) or over foreground (IoF) of boxes.",
        (
            tensor_in("bBoxes", "(m, 4): corners x0, y0, x1, y1"),
            tensor_in("gtBoxes", "(n, 4)"),
            constant_text("mode", "iou or iof"),
            attribute("eps", Kind.FLOAT, "the term added to widths and heights"),
            attribute("aligned", Kind.BOOL, "whether to compare boxes row by row only, (m, 1)"),
            tensor_out("overlap", "(m, n), or (m, 1)"),
        ),
        (
            present("bBoxes", "gtBoxes", "overlap"),
            dims_between(2, 2, "bBoxes", "gtBoxes", "overlap"),
            dtype_in(floating, "bBoxes"),
            same_dtype("gtBoxes", "bBoxes"),
            same_dtype("overlap", "bBoxes"),
            format_is(Format.FORMAT_ND, "bBoxes", "gtBoxes", "overlap"),
            each("corners", ("bBoxes", "gtBoxes"), _corners),
            rule("as many as bBoxes: gtBoxes", _as_many),
            shape_is("pairs of boxes", _result, "overlap"),
            _TEXT,
            one_of("mode", "iou", "iof"),
            rule(
                "at least 0: eps",
                lambda call: None if call["eps"] >= 0 else f"eps: expected at least 0, got {call['eps']}",
            ),
        ),
        _overlaps,
        dtypes=FLOATING,
        products=MODERN | {Product.ATLAS_INFERENCE},
        attributes=("mode", "eps", "aligned"),
    ),
    replace(
        library_operator(
            "ciou",
            "overlap = IoU - (distance of centres / diagonal of both)^2 - v^2 / (1 - IoU + v), "
            "v = 4 / pi^2 * atanSub^2, atanSub = atan(w / h) of gtBoxes - atan(w / h) of bBoxes",
            "Complete intersection over union (CIoU) of boxes.",
            (
                tensor_in("bBoxes", "(4, n): corners x0, y0, x1, y1, or with trans a centre and a size"),
                tensor_in("gtBoxes", "(4, n)"),
                attribute("trans", Kind.BOOL, "whether boxes are given by centre and size"),
                attribute("isCross", Kind.BOOL, "whether to compare all pairs; false: column by column only"),
                constant_text("mode", "iou or iof"),
                tensor_out("overlap", "(1, n)"),
                tensor_out("atanSub", "(1, n): the difference of the angles"),
            ),
            (
                present("bBoxes", "gtBoxes", "overlap", "atanSub"),
                dtype_in((D.FLOAT, D.FLOAT16), "bBoxes"),
                *(same_dtype(name, "bBoxes") for name in ("gtBoxes", "overlap", "atanSub")),
                format_is(Format.FORMAT_ND, "bBoxes", "gtBoxes", "overlap", "atanSub"),
                one_of("isCross", False),
                _TEXT,
                one_of("mode", "iou", "iof"),
                dims_between(2, 2, "bBoxes", "gtBoxes", "overlap", "atanSub"),
                each("columns", ("bBoxes", "gtBoxes"), _columns),
                same_shape("gtBoxes", "bBoxes"),
                shape_is("one for each column", lambda call: (1, call["bBoxes"].shape[1]), "overlap", "atanSub"),
            ),
            lambda boxes, others, trans, mode: complete(boxes, others, trans, False, mode, True),
            dtypes=(D.FLOAT, D.FLOAT16),
            products=CLASS_950,
            attributes=("trans", "mode"),
        ),
        function="aclnnCIoU",
    ),
)
