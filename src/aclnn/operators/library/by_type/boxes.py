"""Operators on boxes that have a type in CANN's graphs but no ``aclnn`` function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, each, extents, one_of, rule, same_dtype, shape_is, value_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator
from aclnn.core.products import CLASS_950
from aclnn.operators.library.by_type.declaration import FLOATS, plain_attribute, typed
from aclnn.operators.library.common import tensor_in, tensor_out
from aclnn.operators.library.vision.box_measures import by_distance, complete, corners, generalised
from aclnn.operators.library.vision.roi_align import align, align_back

Array = np.ndarray[Any, Any]


def _floats(*names: str) -> tuple[Check, ...]:
    """Require a floating-point type of the first tensor, and the same type of the others."""
    return dtype_in(FLOATS, names[0]), *(same_dtype(name, names[0]) for name in names[1:])


def _shared(boxes: Array, others: Array, mode: str, eps: float, aligned: bool) -> Array:
    """Return the overlap ratios of boxes in rows, with sides extended by ``eps``."""
    (low, high), (other_low, other_high) = (corners(each.T, False) for each in (boxes, others))
    if not aligned:
        other_low, other_high = other_low[:, :, None], other_high[:, :, None]
        low, high = low[:, None], high[:, None]
    common = np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0.0).prod(0)
    whole = (other_high - other_low + eps).prod(0)
    if mode == "iou":
        whole = whole + (high - low + eps).prod(0) - common
    return np.asarray((common / whole)[:, None] if aligned else common / whole)


def _rows_of_pairs(call: Call) -> tuple[int, int]:
    return call["gtboxes"].shape[0], 1 if call["aligned"] else call["bboxes"].shape[0]


def _as_many_rows(call: Call) -> str | None:
    wanted, got = call["bboxes"].shape[0], call["gtboxes"].shape[0]
    return None if not call["aligned"] or wanted == got else f"gtboxes: expected {wanted} boxes, got {got}"


def _pairs(call: Call) -> tuple[int, int]:
    boxes, others = call["bboxes"].shape[1], call["gtboxes"].shape[1]
    return (others, boxes) if call["is_cross"] else (1, boxes)


def _columns_of_boxes(call: Call, name: str) -> str | None:
    got = call[name].shape
    return None if got[0] == 4 else f"expected boxes in columns of 4 numbers, got shape {extents(got)}"


def _as_many_boxes(call: Call) -> str | None:
    wanted, got = call["bboxes"].shape[1], call["gtboxes"].shape[1]
    return None if call["is_cross"] or wanted == got else f"gtboxes: expected {wanted} boxes (as bboxes has), got {got}"


def _overlap(op_type: str, formula: str, function: Callable[..., Any], second: str | None = None) -> Operator:
    outputs = ("overlap", second) if second else ("overlap",)
    names = ("bboxes", "gtboxes", *outputs)
    flags = ("atan_sub_flag",) if second else ()
    return typed(
        op_type,
        formula,
        (
            *(tensor_in(name, "boxes in columns") for name in ("bboxes", "gtboxes")),
            plain_attribute("trans", Kind.BOOL),
            plain_attribute("is_cross", Kind.BOOL),
            plain_attribute("mode", Kind.STRING),
            *(plain_attribute(name, Kind.BOOL) for name in flags),
            *(tensor_out(name) for name in outputs),
        ),
        (
            *_floats(*names),
            one_of("mode", "iou", "iof"),
            dims_between(2, 2, "bboxes", "gtboxes"),
            each("columns", ("bboxes", "gtboxes"), _columns_of_boxes),
            rule("as many as bboxes: gtboxes", _as_many_boxes),
            shape_is("pairs of boxes", _pairs, *outputs),
        ),
        function,
    )


def _centred(boxes: Array) -> tuple[Array, Array]:
    """Return centres and sizes of boxes in rows whose corner pixels are included."""
    boxes = boxes.astype(np.float64)
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1


def _encode(anchors: Array, boxes: Array, means: Sequence[float], stds: Sequence[float]) -> Array:
    (centre, size), (to, to_size) = _centred(anchors), _centred(boxes)
    deltas = np.concatenate([(to - centre) / size, np.log(to_size / size)], 1)
    return np.asarray((deltas - np.asarray(means)) / np.asarray(stds))


def _decode(
    rois: Array,
    deltas: Array,
    means: Sequence[float],
    stds: Sequence[float],
    max_shape: Sequence[int],
    wh_ratio_clip: float,
) -> Array:
    centre, size = _centred(rois)
    moved = deltas.astype(np.float64) * np.asarray(stds) + np.asarray(means)
    most = abs(np.log(wh_ratio_clip))
    to, to_size = centre + size * moved[:, :2], size * np.exp(np.clip(moved[:, 2:], -most, most))
    half = (to_size - 1) / 2
    height, width = max_shape
    limits = np.array([width - 1, height - 1, width - 1, height - 1])
    return np.clip(np.concatenate([to - half, to + half], 1), 0, limits)


def _four(call: Call) -> str | None:
    lengths = {"means": 4, "stds": 4, "max_shape": 2}
    for name, wanted in lengths.items():
        given = call.arguments.get(name)
        if given is not None and len(given) != wanted:
            return f"{name}: expected {wanted} numbers, got {len(given)}"
    return None


def _four_columns(call: Call, name: str) -> str | None:
    got = call[name].shape
    return None if got[1] == 4 else f"expected rows of 4 numbers, got shape {extents(got)}"


def _box_rows(
    op_type: str, formula: str, names: str, attributes: dict[str, Kind], function: Callable[..., Any]
) -> Operator:
    first, second, out = names.split()
    return typed(
        op_type,
        formula,
        (
            tensor_in(first, "boxes in rows"),
            tensor_in(second, "boxes in rows"),
            *(plain_attribute(name, kind) for name, kind in attributes.items()),
            tensor_out(out),
        ),
        (
            *_floats(first, second, out),
            dims_between(2, 2, first),
            each("rows", (first,), _four_columns),
            shape_is("as many boxes", lambda call: call[first].shape, second, out),
            rule(f"as many numbers as there must be: {', '.join(attributes)}", _four),
        ),
        function,
    )


_LIST = Kind.INT_ARRAY
"""Kind of a list of numbers: calls by type have a kind for float lists, which no ``aclnn`` function uses."""


def _suppressed(
    boxes: Array, scores: Array, most: Array, threshold: Array, least: Array, pad: bool
) -> tuple[Array, int]:
    """Return the indices of the boxes with the highest scores by non-maximum suppression, padded with zeros."""
    corners = boxes.astype(np.float64).reshape(-1, 2, 2)
    low, high = corners.min(1), corners.max(1)
    areas = (high - low).prod(1)
    kept: list[int] = []
    for at in np.argsort(-scores.astype(np.float64), kind="stable"):
        if len(kept) == most or scores[at] <= least:
            break
        common = np.maximum(np.minimum(high[at], high[kept]) - np.maximum(low[at], low[kept]), 0.0).prod(1)
        if not (common > threshold * (areas[at] + areas[kept] - common)).any():
            kept.append(int(at))
    return np.pad(np.array(kept, np.int32), (0, int(most) - len(kept))), len(kept)


def _pooled_planes(call: Call) -> tuple[int, ...]:
    return call["rois"].shape[0], call["xdiff_shape"][1], call["pooled_height"], call["pooled_width"]


def _responsible(boxes: Array, extent: Sequence[int], strides: Sequence[int], anchors: int) -> Array:
    """Mark, for each anchor, the grid cells that contain the centre of a box."""
    centres = (boxes[:, :2].astype(np.float64) + boxes[:, 2:]) / 2
    places = np.clip(np.floor(centres / strides).astype(np.int64), 0, np.array(extent[::-1]) - 1)
    flags = np.zeros(tuple(extent), np.uint8)
    flags[places[:, 1], places[:, 0]] = 1
    return np.repeat(flags.reshape(-1), anchors)


def _a_grid(call: Call) -> str | None:
    for name in ("featmap_size", "strides"):
        if len(call[name]) != 2 or min(call[name]) < 1:
            return f"{name}: expected 2 numbers above 0, got {extents(call[name])}"
    if call["num_base_anchors"] >= 1:
        return None
    return f"num_base_anchors: expected 1 or more, got {call['num_base_anchors']}"


_LEAST = 1e-6
"""Minimum distance of YOLO's encoded coordinates from 0 and 1, and minimum ratio of sizes."""


def _encode_for_yolo(anchors: Array, boxes: Array, stride: Array) -> Array:
    """Return the offsets of centres from their cells in strides, and the logarithms of size ratios."""
    (low, high), (to_low, to_high) = (corners(each.T, False) for each in (anchors, boxes))
    moved = (to_low + to_high - low - high) / 2 / stride + 0.5
    ratio = np.log(np.maximum((to_high - to_low) / (high - low), _LEAST))
    return np.concatenate([np.clip(moved, _LEAST, 1 - _LEAST), ratio]).T


def _pooled(call: Call) -> tuple[int, ...]:
    return call["rois"].shape[0], call["features"].shape[1], call["pooled_height"], call["pooled_width"]


def _some_bins(call: Call) -> str | None:
    if min(call["pooled_height"], call["pooled_width"]) >= 1 and call["sample_num"] >= 0:
        return None
    return f"sample_num: expected 0 or more, and at least 1 bin, got {call['sample_num']}"


def _five_columns(call: Call) -> str | None:
    got = call["rois"].shape
    return None if got[1] == 5 else f"rois: expected rows of an image and 4 numbers, got shape {extents(got)}"


def _roi_align(moved_starts: bool) -> Operator:
    return typed(
        "ROIAlign",
        "y = means or largest of sample_num^2 points in each bin of rois * spatial_scale",
        (
            tensor_in("features", "(N, C, H, W)"),
            tensor_in("rois", "images and corners in rows"),
            plain_attribute("spatial_scale", Kind.DOUBLE),
            *(
                plain_attribute(name, Kind.INT64)
                for name in ("pooled_height", "pooled_width", "sample_num", "roi_end_mode")
            ),
            plain_attribute("pool_mode", Kind.STRING),
            tensor_out("y"),
        ),
        (
            *_floats("features", "rois", "y"),
            dims_between(4, 4, "features"),
            dims_between(2, 2, "rois"),
            rule("rows: rois", _five_columns),
            rule("bins and points: sample_num", _some_bins),
            one_of("roi_end_mode", 0, 1, 2, 3),
            one_of("pool_mode", "avg", "max"),
            shape_is("bins", _pooled, "y"),
        ),
        partial(align, moved_starts),
    )


GIOU = _overlap("GIoU", "overlap = IoU - (hull - union) / hull", generalised)
DIOU = _overlap("DIoU", "overlap = IoU - (distance of centres / diagonal of the hull)^2", by_distance)
CIOU = _overlap(
    "CIoU",
    "overlap = DIoU - v^2 / (1 - IoU + v), v = 4 / pi^2 * atan_sub^2, atan_sub = the difference of angles atan(w / h)",
    complete,
    "atan_sub",
)
IOU = typed(
    "Iou",
    "overlap = intersection / (union, or area of gtboxes with iof); eps is added to all sides but the intersection's",
    (
        *(tensor_in(name, "boxes in rows") for name in ("bboxes", "gtboxes")),
        plain_attribute("mode", Kind.STRING),
        plain_attribute("eps", Kind.DOUBLE),
        plain_attribute("aligned", Kind.BOOL),
        tensor_out("overlap"),
    ),
    (
        *_floats("bboxes", "gtboxes", "overlap"),
        one_of("mode", "iou", "iof"),
        dims_between(2, 2, "bboxes", "gtboxes"),
        each("rows", ("bboxes", "gtboxes"), _four_columns),
        rule("as many as bboxes: gtboxes", _as_many_rows),
        shape_is("pairs of boxes", _rows_of_pairs, "overlap"),
    ),
    _shared,
)
ENCODE = _box_rows(
    "BoundingBoxEncode",
    "delats = ((distance of centres, ln of the ratio of sizes) - means) / stds",
    "anchor_box ground_truth_box delats",
    {"means": _LIST, "stds": _LIST},
    _encode,
)
DECODE = _box_rows(
    "BoundingBoxDecode",
    "bboxes = the boxes that deltas * stds + means make of rois, inside of max_shape",
    "rois deltas bboxes",
    {"means": _LIST, "stds": _LIST, "max_shape": _LIST, "wh_ratio_clip": Kind.DOUBLE},
    _decode,
)
SUPPRESSION = typed(
    "NonMaxSuppressionV4",
    "selected_indices = indices by descending score, without boxes whose IoU with a selected box exceeds iou_threshold",
    (
        tensor_in("boxes", "corners in rows"),
        tensor_in("scores", "the score of each box"),
        tensor_in("max_output_size", "one number"),
        tensor_in("iou_threshold", "one number"),
        tensor_in("score_threshold", "one number"),
        plain_attribute("pad_to_max_output_size", Kind.BOOL),
        tensor_out("selected_indices"),
        tensor_out("valid_outputs"),
    ),
    (
        *_floats("boxes", "scores"),
        dtype_in((D.INT32,), "max_output_size", "selected_indices", "valid_outputs"),
        dtype_in(FLOATS, "iou_threshold", "score_threshold"),
        dims_between(2, 2, "boxes"),
        each("rows", ("boxes",), _four_columns),
        shape_is("one for each box", lambda call: call["boxes"].shape[:1], "scores"),
        shape_is("one number", lambda call: (), "max_output_size", "iou_threshold", "score_threshold", "valid_outputs"),
        dims_between(1, 1, "selected_indices"),
    ),
    _suppressed,
    (*FLOATS, D.INT32),
)
_BEFORE_950, _ON_950 = map(_roi_align, (False, True))
ROI_ALIGN = replace(_BEFORE_950, work=lambda call: (_ON_950 if call.product in CLASS_950 else _BEFORE_950).work(call))
ROI_ALIGN_GRAD = typed(
    "ROIAlignGrad",
    "xdiff = gradient of ROIAlign with respect to its features",
    (
        tensor_in("ydiff", "the gradient with respect to the result"),
        tensor_in("rois", "images and corners in rows"),
        plain_attribute("xdiff_shape", Kind.INT_ARRAY),
        *(plain_attribute(name, Kind.INT64) for name in ("pooled_width", "pooled_height")),
        plain_attribute("spatial_scale", Kind.DOUBLE),
        *(plain_attribute(name, Kind.INT64) for name in ("sample_num", "roi_end_mode")),
        tensor_out("xdiff"),
    ),
    (
        dtype_in((D.FLOAT,), "ydiff", "rois", "xdiff"),
        dims_between(2, 2, "rois"),
        rule("rows: rois", _five_columns),
        rule("bins and points: sample_num", _some_bins),
        one_of("roi_end_mode", 0, 1, 2, 3),
        value_is("4 extents", lambda got: len(got) == 4, "xdiff_shape"),
        shape_is("bins", _pooled_planes, "ydiff"),
        shape_is("the features", lambda call: tuple(call["xdiff_shape"]), "xdiff"),
    ),
    align_back,
)
RESPONSE_FLAGS = typed(
    "AnchorResponseFlags",
    "flags = 1 where the centre of a box lies in a grid of steps",
    (
        tensor_in("gt_bboxes", "boxes in rows"),
        *(plain_attribute(name, Kind.INT_ARRAY) for name in ("featmap_size", "strides")),
        plain_attribute("num_base_anchors", Kind.INT64),
        tensor_out("flags"),
    ),
    (
        *_floats("gt_bboxes"),
        dtype_in((D.UINT8,), "flags"),
        dims_between(2, 2, "gt_bboxes"),
        each("rows", ("gt_bboxes",), _four_columns),
        rule("a grid: featmap_size, strides, num_base_anchors", _a_grid),
        shape_is("anchors", lambda call: (math.prod((*call["featmap_size"], call["num_base_anchors"])),), "flags"),
    ),
    _responsible,
    (*FLOATS, D.UINT8),
)
YOLO_ENCODE = typed(
    "YoloBoxesEncode",
    "encoded_bboxes = (distance of centres / stride + 0.5, ln of the ratio of sizes), both limited",
    (
        *(tensor_in(name, "boxes in rows") for name in ("anchor_boxes", "gt_bboxes")),
        tensor_in("stride", "of each"),
        tensor_out("encoded_bboxes"),
    ),
    (
        *_floats("anchor_boxes", "gt_bboxes", "encoded_bboxes"),
        dtype_in((D.INT32,), "stride"),
        dims_between(2, 2, "anchor_boxes"),
        each("rows", ("anchor_boxes",), _four_columns),
        shape_is("as many boxes", lambda call: call["anchor_boxes"].shape, "gt_bboxes", "encoded_bboxes"),
        shape_is("one for each box", lambda call: call["anchor_boxes"].shape[:1], "stride"),
    ),
    _encode_for_yolo,
    (*FLOATS, D.INT32),
)
