"""Rectangles of planes pooled in bins: aclnnRoiAlign, aclnnRoiAlignV2 and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, extents, format_is, one_of, rule, same_dtype, shape_is, value_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Parameter, present
from aclnn.core.products import A2_CLASS, Product
from aclnn.operators.library.common import attribute, constant_text, library_operator, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_FLOATS = (D.FLOAT, D.FLOAT16)
_WHOLE, _HALF_BACK = 0, 2
"""Values of the mode of corners: unshifted, or shifted back by half a pixel."""
_MOST_WEIGHTS = 1 << 26
"""Maximum number of interpolation weights of a rectangle along one side."""
_BEFORE_950 = A2_CLASS | {Product.ATLAS_TRAINING}


def _points(
    rois: Array,
    planes: tuple[int, ...],
    bins: tuple[int, int],
    scale: float,
    samples: int,
    end: int,
    starts: bool = False,
) -> Iterator[tuple[int, Array, Array]]:
    """Yield, for each rectangle, its image and the interpolation weights of its sampling points by row and column.

    Args:
        rois: rows of an image index and two corners.
        planes: shape of the images.
        bins: number of bins in a column and in a row.
        scale: factor from the corners' coordinates to pixels.
        samples: sampling points along each side of a bin; 0 for one per pixel.
        end: 1 moves ends by a pixel before scaling; 2 and 3 move corners back by half a pixel after scaling.
        starts: whether an ``end`` of 1 moves the starts too.
    """
    for image, *corners in rois.astype(np.float64):
        if not 0 <= image < planes[0]:
            raise IndexError(f"rois: expected images from 0 to {planes[0] - 1}, got {image}")
        low, high = (
            (np.array(corners[:2]) + (starts and end == 1)) * scale,
            (np.array(corners[2:]) + (end == 1)) * scale,
        )
        sizes = np.maximum(high - low, 1) if end < 2 else high - low
        if end >= 2:
            low = low - 0.5
        columns, rows = (
            _of_pixels(begin, size / count, count, samples, extent)
            for begin, size, count, extent in zip(low, sizes, bins[::-1], planes[:1:-1], strict=True)
        )
        yield int(image), rows, columns


def _of_pixels(begin: float, size: float, bins: int, samples: int, extent: int) -> Array:
    """Return the weights (bins, points, pixels) along one side; all are 0 for points more than a pixel outside."""
    across = samples or max(0.0, np.ceil(size))
    if not bins * across * extent <= _MOST_WEIGHTS:
        raise IndexError(f"rois: expected at most {_MOST_WEIGHTS} weights of pixels along a side, got {across} points")
    count = int(across)
    places = begin + size * (np.arange(bins * count) + 0.5) / max(1, count)
    kept = np.clip(places, 0, extent - 1)
    low = np.minimum(np.floor(kept).astype(np.int64), max(0, extent - 2))
    of, at = np.zeros((len(places), extent)), np.arange(len(places))
    of[at, low] += 1 - (kept - low)
    of[at, np.minimum(low + 1, extent - 1)] += kept - low
    of[(places < -1) | (places > extent)] = 0
    return of.reshape(bins, count, extent)


def _mean(weights: Array) -> Array:
    """Return the weights of pixels in the mean over each bin's points; 0 for a bin without points."""
    return np.asarray(weights.sum(1) / max(1, weights.shape[1]))


def align(
    starts: bool, x: Array, rois: Array, scale: float, height: int, width: int, samples: int, end: int, pooling: str
) -> Array:
    """Pool the sampling points in each bin of the rectangles; a point is interpolated linearly between pixels."""
    found = np.empty((len(rois), x.shape[1], height, width))
    for at, (image, rows, columns) in enumerate(_points(rois, x.shape, (height, width), scale, samples, end, starts)):
        planes = x[image].astype(np.float64)
        if pooling == "avg":
            found[at] = _mean(rows) @ planes @ _mean(columns).T
        else:
            points = np.einsum("ijh,chw,klw->cijkl", rows, planes, columns, optimize=True)
            found[at] = points.max((2, 4), initial=-np.inf)
    return found


def align_back(
    dy: Array, rois: Array, shape: Sequence[int], width: int, height: int, scale: float, samples: int, end: int
) -> Array:
    """Return the gradient of average pooling with respect to the planes."""
    found = np.zeros(tuple(shape))
    for at, (image, rows, columns) in enumerate(_points(rois, found.shape, (height, width), scale, samples, end)):
        found[image] += _mean(rows).T @ dy[at].astype(np.float64) @ _mean(columns)
    return found


def _formats(planes: Sequence[str], others: Sequence[str]) -> tuple[Check, ...]:
    return format_is(Format.FORMAT_NCHW, *planes), format_is(Format.FORMAT_ND, *others)


def _row_of(rois: str, columns: int) -> Check:
    def violation(call: Call) -> str | None:
        got = call[rois].shape
        return None if got[1] == columns else f"{rois}: expected rows of {columns} numbers, got shape {extents(got)}"

    return rule(f"{columns} numbers in a row: {rois}", violation)


def _some_planes(call: Call) -> str | None:
    n, _, h, w = got = call["self"].shape
    return None if n and h and w else f"self: expected planes that have elements, got {extents(got)}"


def _four_extents(call: Call) -> str | None:
    got = tuple(call["inputShape"])
    if len(got) == 4 and min(got) >= 0:
        return None
    return f"inputShape: expected 4 extents (N, C, H, W), got {extents(got)}"


def _pooled(call: Call) -> tuple[int, ...]:
    height, width = ("outputHeight", "outputWidth") if "rois" in call.arguments else ("pooledHeight", "pooledWidth")
    rectangles = call["rois" if "rois" in call.arguments else "boxes"].shape[0]
    channels = call["inputShape"] if "inputShape" in call.arguments else call["self"].shape
    return rectangles, channels[1], call[height], call[width]


def _align_of_batch(
    x: Array, rois: Array, batch: Array, mode: str, height: int, width: int, samples: int, scale: float
) -> Array:
    if x.size == 0:
        return np.zeros((len(rois), x.shape[1], height, width))
    return align(False, x, np.column_stack((batch, rois)), scale, height, width, samples, _WHOLE, mode)


def _align_of_boxes(
    x: Array, boxes: Array, height: int, width: int, scale: float, samples: int, aligned: bool
) -> Array:
    return align(False, x, boxes, scale, height, width, samples, _HALF_BACK if aligned else _WHOLE, "avg")


def _back_from_boxes(
    dy: Array, boxes: Array, shape: Sequence[int], height: int, width: int, scale: float, samples: int, aligned: bool
) -> Array:
    return align_back(dy, boxes, shape, width, height, scale, samples, _HALF_BACK if aligned else _WHOLE)


_SCALE = attribute("spatialScale", Kind.FLOAT, "the factor from box coordinates to the planes")
_POINTS = "the number of sampling points along each side of a bin; 0: adaptive"
_POOLED = (
    attribute("pooledHeight", Kind.INT64, "the number of bins down"),
    attribute("pooledWidth", Kind.INT64, "the number of bins across"),
    _SCALE,
    attribute("samplingRatio", Kind.INT64, _POINTS),
    attribute("aligned", Kind.BOOL, "whether to shift boxes by half a pixel, without a minimum size"),
)
_POOLED_NAMES = tuple(p.name for p in _POOLED)
_BOXES = tensor_in("boxes", "(K, 5): image, x0, y0, x1, y1")


def _int(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INT32, meaning, c_type="int ")


_LIMITS = (
    value_is("0 or more", lambda got: got >= 0, "samplingRatio"),
    value_is("a finite number above 0", lambda got: math.isfinite(got) and got > 0, "spatialScale"),
)

OPERATORS = (
    library_operator(
        "roi_align",
        "out = mean or max of samplingRatio^2 points in each bin of rois * spatialScale",
        "RoIAlign as in ONNX.",
        (
            tensor_in("self", "(N, C, H, W)"),
            tensor_in("rois", "(K, 4): x0, y0, x1, y1"),
            tensor_in("batchIndices", "(K): the image of each; INT32"),
            constant_text("mode", "the pooling mode: avg or max"),
            _int("outputHeight", "the number of bins down"),
            _int("outputWidth", "the number of bins across"),
            _int("samplingRatio", _POINTS),
            _SCALE,
            tensor_out("out", "(K, C, outputHeight, outputWidth)"),
        ),
        (
            present("self", "rois", "batchIndices", "out"),
            dtype_in(_FLOATS, "self"),
            dtype_in((D.INT32,), "batchIndices"),
            same_dtype("rois", "self"),
            same_dtype("out", "self"),
            *_formats(("self", "out"), ("rois", "batchIndices")),
            dims_between(4, 4, "self"),
            dims_between(2, 2, "rois"),
            _row_of("rois", 4),
            shape_is("one for each rectangle", lambda call: call["rois"].shape[:1], "batchIndices"),
            shape_is("the bins", _pooled, "out"),
            rule("text: mode", lambda call: None if call["mode"] else "mode: expected 'avg' or 'max', got null"),
            one_of("mode", "avg", "max"),
            *_LIMITS,
        ),
        _align_of_batch,
        dtypes=_FLOATS,
        stream_type="const aclrtStream ",
        attributes=("mode", "outputHeight", "outputWidth", "samplingRatio", "spatialScale"),
    ),
    library_operator(
        "roi_align_v2",
        "out = means of samplingRatio^2 points in each bin of boxes * spatialScale (- 0.5 with aligned)",
        "RoIAlign as in torchvision.",
        (tensor_in("self", "(N, C, H, W)"), _BOXES, *_POOLED, tensor_out("out", "(K, C, pooledHeight, pooledWidth)")),
        (
            dtype_in(_FLOATS, "self"),
            same_dtype("boxes", "self"),
            same_dtype("out", "self"),
            *_formats(("self", "out"), ("boxes",)),
            dims_between(4, 4, "self"),
            dims_between(2, 2, "boxes"),
            rule("planes have elements: self", _some_planes),
            _row_of("boxes", 5),
            shape_is("the bins", _pooled, "out"),
            *_LIMITS,
        ),
        _align_of_boxes,
        dtypes=_FLOATS,
        products=_BEFORE_950 | {Product.ATLAS_INFERENCE},
        attributes=_POOLED_NAMES,
    ),
    library_operator(
        "roi_align_v2_backward",
        "gradInput = the gradient of aclnnRoiAlignV2 with respect to its planes",
        "Gradient of RoIAlign.",
        (
            tensor_in("gradOutput", "the gradient with respect to the bins"),
            _BOXES,
            attribute("inputShape", Kind.INT_ARRAY, "(N, C, H, W): the shape of the planes"),
            *_POOLED,
            tensor_out("gradInput", "the gradient with respect to the planes"),
        ),
        (
            dtype_in((D.FLOAT,), "gradOutput", "boxes", "gradInput"),
            *_formats(("gradOutput", "gradInput"), ("boxes",)),
            dims_between(2, 2, "boxes"),
            _row_of("boxes", 5),
            rule("4 extents: inputShape", _four_extents),
            shape_is("the bins", _pooled, "gradOutput"),
            shape_is("that of the planes", lambda call: call["inputShape"], "gradInput"),
            *_LIMITS,
        ),
        _back_from_boxes,
        dtypes=(D.FLOAT,),
        products=_BEFORE_950,
        attributes=("inputShape", *_POOLED_NAMES),
    ),
)
