"""Planes and volumes sampled at the places of a grid: aclnnGridSampler2D, aclnnGridSampler3D and their gradients,
and grids of such places: aclnnAffineGrid.

A sample is a weighted sum of the elements around its place. Weights are products of one for each dimension, and so are
their slopes, from which the grid's gradient comes. Of volumes labelled NDHWC channels are the last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    listing,
    one_of,
    only_if,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import (
    MODERN,
    REAL_FLOATING,
    WITH_INFERENCE,
    WITH_TRAINING,
    add_at,
    attribute,
    library_operator,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.vision.upsampling import cubic, cubic_slope

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
#: Bound of coordinates, which is outside every input and fits into an index.
_FAR = 2.0**31


class _Tap(NamedTuple):
    """Index, weight and slope of one element along a dimension, for each point of the grid."""

    index: Any
    weight: Any
    slope: Any


def _within(places: Any, n: int, padding: int, align: bool) -> tuple[Any, Any]:
    """Map coordinates into a dimension according to the padding mode; return them and the map's slope."""
    slope: Any = np.ones_like(places)
    if padding == _REFLECTION:
        low, span = (0.0, n - 1) if align else (-0.5, n)
        turns, rest = np.divmod(np.abs(places - low), span) if span else (0 * places, 0 * places)
        back = turns % 2 == 1
        slope = np.where(back, -1.0, 1.0) * np.where(places < low, -1.0, 1.0)
        places = np.where(back, span - rest, rest) + low
    if padding != _ZEROS:
        slope = np.where((places > 0) & (places < n - 1), slope, 0.0)
        places = places.clip(0, n - 1)
    return np.where(np.abs(places) < _FAR, places, -_FAR), slope


def _taps(grid: Any, n: int, mode: int, padding: int, align: bool) -> list[_Tap]:
    """Return the taps along one dimension for coordinates normalised to -1 to 1."""
    factor = (n - 1) / 2 if align else n / 2
    places = (grid + 1) * factor - (0.0 if align else 0.5)
    if mode == _CUBIC:
        places, _ = _within(places, n, _ZEROS, align)
        first = np.floor(places)
        found = []
        for offset in (-1, 0, 1, 2):
            distances = places - first - offset
            index, _ = _within(first + offset, n, padding, align)
            found.append(_Tap(index, cubic(np.abs(distances)), factor * cubic_slope(distances)))
    else:
        places, slope = _within(places, n, padding, align)
        if mode == _NEAREST:
            found = [_Tap(np.rint(places), np.ones_like(places), np.zeros_like(places))]
        else:
            first = np.floor(places)
            found = [
                _Tap(first, 1 - (places - first), -factor * slope),
                _Tap(first + 1, places - first, factor * slope),
            ]
    return [tap._replace(index=tap.index.astype(np.int64)) for tap in found]


def _corners(
    grid: Any, size: Sequence[int], mode: int, padding: int, align: bool
) -> Iterator[tuple[Any, Any, list[_Tap]]]:
    """Yield, per neighbour of the points, flat indices and a mask of those inside, both (N, points), and taps."""
    # The grid's first coordinate is along the last dimension.
    coordinates = np.moveaxis(grid.astype(np.float64).reshape(len(grid), -1, len(size)), -1, 0)[::-1]
    lines = [_taps(at, n, mode, padding, align) for at, n in zip(coordinates, size, strict=True)]
    for taps in product(*lines):
        inside: Any = np.logical_and.reduce(
            [(tap.index >= 0) & (tap.index < n) for tap, n in zip(taps, size, strict=True)]
        )
        index: Any = np.zeros(inside.shape, np.int64)
        for tap, n in zip(taps, size, strict=True):
            index = index * n + tap.index
        yield np.where(inside, index, 0), inside, list(taps)


def _weight(taps: Sequence[_Tap], but: int | None = None) -> Any:
    """Return the product of the taps' weights, with the slope in place of the weight along axis ``but``."""
    return math.prod(tap.slope if axis == but else tap.weight for axis, tap in enumerate(taps))


def _channels(x: Any) -> Any:
    """Return the elements in float64 as (N, channels, elements)."""
    return x.astype(np.float64).reshape(*x.shape[:2], -1)


def _taken(planes: Any, index: Any, inside: Any) -> Any:
    """Gather elements in each channel, 0 outside the input."""
    return np.where(inside[:, None], np.take_along_axis(planes, index[:, None], 2), 0.0)


def _samples(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    planes = _channels(x)
    total = np.zeros((*x.shape[:2], math.prod(grid.shape[1:-1])))
    for index, inside, taps in _corners(grid, x.shape[2:], mode, padding, align):
        total += _taken(planes, index, inside) * np.expand_dims(_weight(taps), -2)
    return total.reshape(*x.shape[:2], *grid.shape[1:-1])


def _input_gradient(dy: Any, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    lines, size = _channels(dy), math.prod(x.shape[2:])
    total = np.zeros((*x.shape[:2], size))
    rows = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], 1) * size
    for index, inside, taps in _corners(grid, x.shape[2:], mode, padding, align):
        shares = np.where(inside[:, None], lines * np.expand_dims(_weight(taps), -2), 0.0)
        add_at(total, rows + index[:, None], shares)
    return total.reshape(x.shape)


def _grid_gradient(dy: Any, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    lines, planes = _channels(dy), _channels(x)
    total = np.zeros((len(grid), math.prod(grid.shape[1:-1]), grid.shape[-1]))
    for index, inside, taps in _corners(grid, x.shape[2:], mode, padding, align):
        shares = (_taken(planes, index, inside) * lines).sum(1)
        for axis in range(len(taps)):
            total[..., -1 - axis] += shares * _weight(taps, axis)
    return total.reshape(grid.shape)


def _rank(call: Call) -> int:
    return 3 if "3d" in call.operator.name else 2


def _attributes(call: Call) -> dict[str, Any]:
    return {"mode": call["interpolationMode"], "padding": call["paddingMode"], "align": bool(call["alignCorners"])}


def _is_channels_last(call: Call) -> bool:
    return _rank(call) == 3 and call["input"].format == Format.FORMAT_NDHWC


def _channels_second(x: Any, last: bool) -> Any:
    return np.moveaxis(x, -1, 1) if last else x


def _laid_out(x: Any, last: bool) -> Any:
    """Move channels from the second dimension to their place in the layout."""
    return np.moveaxis(x, 1, -1) if last else x


def _forward_work(call: Call) -> Library | None:
    if call["input"].size == 0 or call["grid"].size == 0:
        return None
    last, attributes = _is_channels_last(call), _attributes(call)
    return Library(
        lambda x, grid: _laid_out(_samples(_channels_second(x, last), grid, **attributes), last),
        ("input", "grid"),
        ("out",),
    )


def _wanted(call: Call) -> list[str]:
    return [name for name, wanted in zip(("inputGrad", "gridGrad"), call["outputMask"] or (), strict=False) if wanted]


def _backward_work(call: Call) -> Library | None:
    wanted = _wanted(call)
    if not wanted or any(call[name].size == 0 for name in ("gradOutput", "input", "grid")):
        return None
    gradients: dict[str, Callable[..., Any]] = {"inputGrad": _input_gradient, "gridGrad": _grid_gradient}
    last, attributes = _is_channels_last(call), _attributes(call)

    def compute(dy: Any, x: Any, grid: Any) -> tuple[Any, ...]:
        dy, x = (_channels_second(planes, last) for planes in (dy, x))
        return tuple(
            _laid_out(gradients[name](dy, x, grid, **attributes), last and name == "inputGrad") for name in wanted
        )

    return Library(compute, ("gradOutput", "input", "grid"), tuple(wanted))


def _coordinates(call: Call) -> str | None:
    rank, got, batch = _rank(call), call["grid"].shape, call["input"].shape[0]
    if got[0] == batch and got[-1] == rank:
        return None
    return f"grid: expected {batch} samples (as input) of places of {rank} coordinates, got {extents(got)}"


def _of_volumes(call: Call, name: str) -> str | None:
    allowed, got = (Format.FORMAT_ND, Format.FORMAT_NCDHW, Format.FORMAT_NDHWC), call[name].format
    return None if got in allowed else f"expected format {listing(each.c_name for each in allowed)}, got {got.c_name}"


def _channels_at_places(call: Call) -> tuple[int, ...]:
    batch, *others = call["input"].shape
    places = call["grid"].shape[1:-1]
    return (batch, *places, others[-1]) if _is_channels_last(call) else (batch, others[0], *places)


def _cubic_is_computed(call: Call) -> str | None:
    if call["interpolationMode"] != _CUBIC or (call.product in MODERN and call["input"].dtype != D.DOUBLE):
        return None
    given = f"{call['input'].dtype.c_name} on {call.product.title}"
    return f"interpolationMode: expected 0 or 1 with {given}, got {call['interpolationMode']}"


def _sampler(rank: int) -> tuple[Operator, Operator]:
    """Declare the sampler of planes or volumes, and its gradients."""
    planar = rank == 2
    size, places = ("H, W", "h, w") if planar else ("D, H, W", "d, h, w")
    given = (
        tensor_in("input", f"(N, C, {size})"),
        tensor_in("grid", f"(N, {places}, {rank}): for each sample its place, x first, -1 to 1 from end to end"),
        Parameter(
            "interpolationMode",
            "interpolation_mode",
            Kind.INT64,
            f"0: linear, 1: nearest{', 2: cubic' if planar else ''}",
        ),
        Parameter("paddingMode", "padding_mode", Kind.INT64, "the padding mode, 0: zeros, 1: border, 2: reflection"),
        Parameter(
            "alignCorners",
            "align_corners",
            Kind.BOOL,
            "whether -1 and 1 are the centres of the corner elements instead of their edges",
        ),
    )
    products = WITH_INFERENCE | {Product.ATLAS_200I_500_A2} if planar else WITH_TRAINING
    before_950 = frozenset({D.BF16}) if planar else frozenset()

    def taken(product: Product) -> frozenset[D]:
        found = where_supported(REAL_FLOATING)(product)
        return found if product in CLASS_950 else found - before_950

    def fitting(other: str) -> tuple[Check, ...]:
        modes = (_LINEAR, _NEAREST, _CUBIC) if planar else (_LINEAR, _NEAREST)
        return (
            one_of("interpolationMode", *modes),
            one_of("paddingMode", _ZEROS, _BORDER, _REFLECTION),
            dims_between(rank + 2, rank + 2, "input", "grid", other),
            rule("samples, coordinates: grid", _coordinates),
            shape_is("channels of input at places of grid", _channels_at_places, other),
        )

    forward = Operator(
        name=f"grid_sampler{rank}d",
        function=f"aclnnGridSampler{rank}D",
        summary=f"{'Planes' if planar else 'Volumes'} sampled at the coordinates of a grid.",
        formula="out = interpolation of input at the coordinates of grid",
        parameters=(*given, tensor_out("out", f"(N, C, {places})")),
        support={product: taken(product) for product in products},
        checks=(
            same_dtype("grid", "input"),
            same_dtype("out", "input"),
            dtype_in(taken, "input"),
            *(() if planar else (each("format of volumes", ("input", "out"), _of_volumes),)),
            *fitting("out"),
            value_is("planes that have elements", lambda got: 0 not in got[-2:], "input"),
            *((rule("cubic curves are computed: interpolationMode", _cubic_is_computed),) if planar else ()),
        ),
        work=_forward_work,
    )
    tensors = ("gradOutput", "input", "grid", "inputGrad", "gridGrad")
    trained = (D.FLOAT, D.FLOAT16) if planar else REAL_FLOATING
    backward = Operator(
        name=f"grid_sampler{rank}d_backward",
        function=f"aclnnGridSampler{rank}DBackward",
        summary=f"Gradients of {'planes' if planar else 'volumes'} sampled at the coordinates of a grid.",
        formula="inputGrad, gridGrad = gradients of input and grid",
        parameters=(
            tensor_in("gradOutput", "the gradient with respect to the samples"),
            *given,
            Parameter(
                "outputMask",
                "output_mask",
                Kind.BOOL_ARRAY,
                "which of the two gradients to compute; null: neither",
                optional=True,
            ),
            Parameter("inputGrad", "input_grad", Kind.OUTPUT, "the gradient with respect to input"),
            Parameter("gridGrad", "grid_grad", Kind.OUTPUT, "the gradient with respect to grid"),
        ),
        support={**support(trained, WITH_TRAINING), **support(REAL_FLOATING, MODERN)},
        checks=tuple(
            only_if(check, "where outputMask requests one", lambda call: bool(_wanted(call)))
            for check in (
                present(*tensors),
                *(same_dtype(name, "input") for name in tensors if name != "input"),
                dtype_in(
                    lambda product: where_supported(REAL_FLOATING if product in MODERN else trained)(product), "input"
                ),
                *(() if planar else (each("format of volumes", ("input", "gradOutput"), _of_volumes),)),
                *fitting("gradOutput"),
                *((value_is("planes that have elements", lambda got: 0 not in got[-2:], "input"),) if planar else ()),
                same_shape("inputGrad", "input"),
                same_shape("gridGrad", "grid"),
            )
        ),
        work=_backward_work,
    )
    return forward, backward


def _affine_grid(theta: Any, size: Sequence[int], align: bool) -> Any:
    """Return the grid of each sample, x first: its affine matrix times the centres of elements."""
    lines = [(2 * np.arange(n) + 1 - n) / max(n - 1 if align else n, 1) for n in size[2:]]
    axes = np.meshgrid(*lines, indexing="ij")[::-1]
    return np.einsum("...j,nij->n...i", np.stack([*axes, np.ones_like(axes[0])], -1), theta.astype(np.float64))


def _affine_size(call: Call) -> str | None:
    got = tuple(call["size"])
    if len(got) in (4, 5) and min(got[2:]) > 0:
        return None
    return f"size: expected (N, C, H, W) or (N, C, D, H, W), extents of at least 1, got {extents(got)}"


def _matrices(call: Call) -> tuple[int, ...]:
    rank = len(call["size"]) - 2
    return call["size"][0], rank, rank + 1


AFFINE_GRID = library_operator(
    "affine_grid",
    "out = theta @ (coordinates of size, 1)",
    "Grids of coordinates, transformed by an affine matrix per sample.",
    (
        tensor_in("theta", "(N, 2, 3) or (N, 3, 4): the matrices"),
        attribute("size", Kind.INT_ARRAY, "(N, C, H, W) or (N, C, D, H, W): the extents that are sampled"),
        Parameter(
            "alignCorners",
            "align_corners",
            Kind.BOOL,
            "whether -1 and 1 are the centres of the corner elements instead of their edges",
        ),
        tensor_out("out", "(N, H, W, 2) or (N, D, H, W, 3)"),
    ),
    (
        dtype_in((D.FLOAT, D.FLOAT16), "theta"),
        same_dtype("out", "theta"),
        dims_between(3, 3, "theta"),
        rule("extents: size", _affine_size),
        shape_is("a matrix for each sample of size", _matrices, "theta"),
        shape_is("places of size", lambda call: (call["size"][0], *call["size"][2:], len(call["size"]) - 2), "out"),
    ),
    _affine_grid,
    dtypes=(D.FLOAT, D.FLOAT16),
    products=A2_CLASS | {Product.ATLAS_TRAINING},
    attributes=("size", "alignCorners"),
)
OPERATORS = (*_sampler(2), *_sampler(3), AFFINE_GRID)
