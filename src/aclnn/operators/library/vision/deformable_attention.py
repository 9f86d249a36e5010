"""Attention to points of feature maps: aclnnMultiScaleDeformableAttnFunction, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import FLOATING, dims_between, dtype_in, extents, rule, same_dtype, where_supported
from aclnn.core.operator import Call, Check, Library, Shape
from aclnn.core.products import A2_CLASS, Product
from aclnn.operators.library.common import INDEX_TYPES, add_at, declared, expect_within, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_MAPS = ("spatialShape", "levelStartIndex")
_INPUTS = ("value", *_MAPS, "location", "attnWeight")
_GRADIENTS = {"gradValue": "value", "gradLocation": "location", "gradAttnWeight": "attnWeight"}
_FEWEST_QUERIES, _MOST, _UNIT, _WIDEST = 32, 16, 8, 256
_DIMENSIONS = {"value": 4, "spatialShape": 2, "levelStartIndex": 1, "location": 6, "attnWeight": 5}


class _Corner(NamedTuple):
    """One of the four neighbours of each point of a map: (samples, queries, heads, points)."""

    keys: Array
    """Index along the keys of value; 0 outside the map."""
    share: Array
    """Weight of the interpolation; 0 outside the map."""
    slopes: tuple[Array, Array]
    """Derivatives of the weight with respect to the location."""


def _corners(keys: int, shapes: Array, starts: Array, location: Array) -> Iterator[tuple[int, _Corner]]:
    """Yield each map's number with each of the four neighbours of its points."""
    for level, ((rows, columns), start) in enumerate(zip(shapes.tolist(), starts.tolist(), strict=True)):
        expect_within("spatialShape", np.array([rows, columns]), 0, keys)
        expect_within("levelStartIndex", np.array([start, start + rows * columns]), 0, keys, "ends of maps")
        x, y = (location[:, :, :, level, :, at] * extent - 0.5 for at, extent in enumerate((columns, rows)))
        left, top = np.floor(x), np.floor(y)
        for down in (0, 1):
            for right in (0, 1):
                column, row = left + right, top + down
                inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
                across, along = (np.where(inside, part, 0.0) for part in (x - left, y - top))
                across, along = across if right else 1 - across, along if down else 1 - along
                signs = (2 * right - 1) * columns, (2 * down - 1) * rows
                yield (
                    level,
                    _Corner(
                        np.where(inside, start + row * columns + column, 0).astype(np.int64),
                        np.where(inside, across * along, 0.0),
                        (np.where(inside, signs[0] * along, 0.0), np.where(inside, signs[1] * across, 0.0)),
                    ),
                )


def _rows(corner: _Corner) -> tuple[Array, Array, Array]:
    """Return the indices of a corner's rows in value."""
    samples, _, heads, _ = corner.keys.shape
    return np.arange(samples)[:, None, None, None], corner.keys, np.arange(heads)[None, None, :, None]


def _attend(value: Array, shapes: Array, starts: Array, location: Array, weight: Array) -> Array:
    value, location, weight = (x.astype(np.float64) for x in (value, location, weight))
    samples, queries, heads = location.shape[:3]
    found = np.zeros((samples, queries, heads, value.shape[-1]))
    with np.errstate(invalid="ignore"):
        for level, corner in _corners(value.shape[1], shapes, starts, location):
            found += np.einsum("bqhp,bqhpc->bqhc", corner.share * weight[..., level, :], value[_rows(corner)])
    return found.reshape(samples, queries, -1)


def _back(value: Array, shapes: Array, starts: Array, location: Array, weight: Array, grad: Array) -> tuple[Array, ...]:
    value, location, weight, grad = (x.astype(np.float64) for x in (value, location, weight, grad))
    of_value, of_location, of_weight = (np.zeros(x.shape) for x in (value, location, weight))
    arriving = grad.reshape(*location.shape[:3], value.shape[-1])
    places = np.arange(value.size).reshape(value.shape)
    with np.errstate(invalid="ignore"):
        for level, corner in _corners(value.shape[1], shapes, starts, location):
            rows, factor = _rows(corner), weight[..., level, :]
            products = np.einsum("bqhc,bqhpc->bqhp", arriving, value[rows])
            of_weight[..., level, :] += corner.share * products
            for at, slope in enumerate(corner.slopes):
                of_location[..., level, :, at] += slope * products * factor
            add_at(of_value, places[rows], (corner.share * factor)[..., None] * arriving[:, :, :, None])
    return of_value, of_location, of_weight


def _work(call: Call) -> Library | None:
    outputs = tuple(_GRADIENTS) if "gradOutput" in call.arguments else ("output",)
    inputs = (*_INPUTS, "gradOutput") if len(outputs) > 1 else _INPUTS
    if any(call[name].size == 0 for name in inputs):
        return None
    return Library(_back if len(outputs) > 1 else _attend, inputs, outputs)


def _pairs(name: str) -> Check:
    def violation(call: Call) -> str | None:
        got = call[name].shape[-1]
        return None if got == 2 else f"{name}: expected 2 in the last dimension, got {got}"

    return rule(f"pairs: {name}", violation)


def _few(call: Call) -> str | None:
    _, queries, *counts, _ = call["location"].shape
    if "output" in call.arguments and queries < _FEWEST_QUERIES:
        return f"location: expected at least {_FEWEST_QUERIES} queries, got {queries}"
    if max(counts) <= _MOST:
        return None
    return f"location: expected at most {_MOST} heads, maps and points, got {extents(counts)}"


def _width(call: Call) -> str | None:
    got = call["value"].shape[3]
    if got % _UNIT == 0 and got <= _WIDEST:
        return None
    return f"value: expected a multiple of {_UNIT} up to {_WIDEST} in the last dimension, got {got}"


def _shapes(call: Call) -> dict[str, Shape]:
    samples, queries, heads, levels, points, _ = call["location"].shape
    _, keys, _, width = call["value"].shape
    out = (samples, queries, heads * width)
    return {
        "value": (samples, keys, heads, width),
        "spatialShape": (levels, 2),
        "levelStartIndex": (levels,),
        "attnWeight": (samples, queries, heads, levels, points),
        "output": out,
        "gradOutput": out,
        **{name: call[of].shape for name, of in _GRADIENTS.items()},
    }


def _together(*names: str) -> Check:
    def violation(call: Call) -> str | None:
        expected = _shapes(call)
        wrong = next((name for name in names if call[name].shape != expected[name]), None)
        if wrong is None:
            return None
        return f"{wrong}: expected shape {extents(expected[wrong])}, got {extents(call[wrong].shape)}"

    return rule(f"shapes that go together: {', '.join(names)}", violation)


_COMMON = (
    tensor_in("value", "the feature maps, flattened, (samples, keys, heads, channels)"),
    tensor_in("spatialShape", "the height and width of each map; INT32 or INT64"),
    tensor_in("levelStartIndex", "the first key of each map; INT32 or INT64"),
    tensor_in("location", "points, x and y from 0 to 1, (samples, queries, heads, maps, points, 2)"),
    tensor_in("attnWeight", "the weight of each point"),
)


def _checks(*outputs: str, grad: tuple[str, ...] = ()) -> tuple[Check, ...]:
    floats = where_supported(FLOATING)
    return (
        dtype_in(floats, "value"),
        dtype_in(INDEX_TYPES, *_MAPS),
        dtype_in(floats, "location", "attnWeight", *grad, *outputs),
        *(() if grad else (same_dtype("output", "value"),)),
        *(dims_between(dims, dims, name) for name, dims in _DIMENSIONS.items()),
        _pairs("spatialShape"),
        _pairs("location"),
        rule("sizes with a kernel: location", _few),
        rule("channels with a kernel: value", _width),
        _together("value", *_MAPS, "attnWeight", *grad, *outputs),
    )


OPERATORS = (
    declared(
        "multi_scale_deformable_attn_function",
        "output[b, q, h] = sum over maps l and points p of attnWeight[b, q, h, l, p] * "
        "map l of value[b, :, h], interpolated at location[b, q, h, l, p]",
        "Attention to points of feature maps of several sizes.",
        (*_COMMON, tensor_out("output", "(samples, queries, heads * channels)")),
        _checks("output"),
        _work,
        products=A2_CLASS | {Product.ATLAS_INFERENCE},
    ),
    declared(
        "multi_scale_deformable_attention_grad",
        "gradients of aclnnMultiScaleDeformableAttnFunction",
        "Gradients of attention to points of feature maps, with respect to maps, points and weights.",
        (
            *_COMMON,
            tensor_in("gradOutput", "the gradient arriving at the output, (samples, queries, heads * channels)"),
            *(tensor_out(out, f"the gradient with respect to {of}") for out, of in _GRADIENTS.items()),
        ),
        _checks(*_GRADIENTS, grad=("gradOutput",)),
        _work,
    ),
)
