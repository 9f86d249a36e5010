"""Measures of how far two boxes overlap, which operators with and without an ``aclnn`` function share."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_TINY, _LEAST_HEIGHT, _LARGEST_RATIO = 1e-16, 1e-9, 1e4
"""The kernels' guards against degenerate boxes: added to lengths, minimum height, maximum aspect ratio."""


def corners(boxes: Array, by_centre: bool) -> tuple[Array, Array]:
    """Return the lower and the upper corners of boxes in columns, given as corners or as centre and size."""
    first, second = boxes[:2].astype(np.float64), boxes[2:].astype(np.float64)
    return (first - second / 2, first + second / 2) if by_centre else (first, second)


def _compared(boxes: Array, others: Array, by_centre: bool, crossed: bool, mode: str) -> tuple[Array, ...]:
    """Return the overlap of pairs of boxes, the area of one or both, and the measures' other terms."""
    (low, high), (other_low, other_high) = (corners(each, by_centre) for each in (boxes, others))
    if crossed:
        other_low, other_high = other_low[:, :, None], other_high[:, :, None]
        low, high = low[:, None], high[:, None]
    sizes, other_sizes = high - low + _TINY, other_high - other_low + _TINY
    common = np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0.0).prod(0)
    whole = other_sizes.prod(0)
    if mode == "iou":
        whole = whole + sizes.prod(0) - common
    hull = np.maximum(high, other_high) - np.minimum(low, other_low) + _TINY
    apart = (low + high - other_low - other_high) / 2
    angle, other_angle = (
        np.arctan(np.minimum(width / np.maximum(height, _LEAST_HEIGHT), _LARGEST_RATIO))
        for width, height in (sizes, other_sizes)
    )
    return common / whole, whole, hull, apart, other_angle - angle


def generalised(*given: Any) -> Array:
    """Return the generalised overlap of ``_compared`` boxes, a row or rows."""
    shared, whole, hull, _, _ = _compared(*given)
    return np.atleast_2d(shared - (hull.prod(0) - whole) / hull.prod(0))


def by_distance(*given: Any) -> Array:
    """Return the overlap less the squared distance of centres in squared diagonals of the hull."""
    shared, _, hull, apart, _ = _compared(*given)
    return np.atleast_2d(shared - (apart**2).sum(0) / ((hull**2).sum(0) + _TINY))


def complete(*given: Any) -> tuple[Array, Array]:
    """Compute the complete IoU; the last attribute requests the angles' difference, which is returned anyway."""
    shared, _, _, _, turned = _compared(*given[:-1])
    unlike = 4 / np.pi**2 * turned**2
    weight = np.where(unlike > 0, unlike / (1 - shared + unlike), 0.0)
    return by_distance(*given[:-1]) - weight * unlike, np.atleast_2d(turned)
