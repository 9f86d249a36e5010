"""Planes of another size: nearest, linear and cubic interpolation of one to three dimensions, with gradients.

Antialiased interpolation takes more of the old elements where there are fewer new ones. Each is a matrix along each
dimension, multiplied in float64; the gradient takes its transpose. Of tensors labelled NHWC or NDHWC channels are the
last dimension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dtype_in,
    each,
    elsewhere,
    extents,
    listing,
    on,
    public_format,
    rule,
    same_dtype,
    same_format,
    shape_is,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, camel
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import MODERN, support, tensor_in, tensor_out
from aclnn.operators.library.vision.pooling import along_axes

#: A cubic kernel's parameter, as PyTorch has it, and that of antialiased interpolation.
_CUBIC, _CUBIC_ANTIALIASED = -0.75, -0.5
#: Old elements to a new one, at most, where interpolation is antialiased before Ascend 950, and new ones from an old
#: one in the gradient of the nearest centres of lines.
_MOST_STEP = 50
#: The products of the nearest centres of lines and volumes.
_EXACT_BEFORE_950 = A2_CLASS | {Product.ATLAS_INFERENCE}
_CHANNELS_LAST = (Format.FORMAT_NHWC, Format.FORMAT_NDHWC)
_PLANES = (Format.FORMAT_NCHW, Format.FORMAT_NHWC)
#: The formats of functions that do not take every public one.
_FORMATS: Mapping[str, tuple[Format, ...]] = {
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest1d_v2"), (Format.FORMAT_NCL,)),
    **dict.fromkeys(("upsample_nearest2d", "upsample_nearest2d_v2"), _PLANES),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_bilinear2d_backward_v2"), _PLANES),
    **dict.fromkeys(("upsample_bicubic2d", "upsample_nearest_exact2d"), (Format.FORMAT_ND, *_PLANES)),
    "upsample_bicubic2d_backward": (Format.FORMAT_ND, *_PLANES),
    "upsample_nearest_exact2d_backward": (Format.FORMAT_ND, Format.FORMAT_NCHW),
    "upsample_trilinear3d": (Format.FORMAT_ND, Format.FORMAT_NCDHW, Format.FORMAT_NDHWC),
}
#: Those that do not look at the format of the result, which lies as its operand.
_ANY_FORMAT_OUT = ("upsample_nearest_exact2d", "upsample_trilinear3d")
#: Functions that do not look at empty tensors.
_UNSEEN_IF_EMPTY = ("upsample_nearest2d_v2", "upsample_nearest_exact2d", "upsample_nearest_exact2d_backward")
#: Further data types than FLOATING, on Atlas A2 and on Ascend 950.
_TYPES: Mapping[str, tuple[Collection[D], Collection[D]]] = {
    **dict.fromkeys(
        ("upsample_nearest1d", "upsample_nearest1d_v2", "upsample_nearest2d", "upsample_nearest2d_v2"),
        ((D.DOUBLE, D.UINT8), (D.DOUBLE, D.UINT8)),
    ),
    "upsample_nearest3d": ((D.DOUBLE,), (D.DOUBLE, D.UINT8)),
    **dict.fromkeys(("upsample_nearest_exact1d", "upsample_nearest_exact2d"), ((D.UINT8,), ())),
    "upsample_nearest3d_backward": ((D.DOUBLE,), (D.DOUBLE,)),
    "upsample_bilinear2d": ((D.DOUBLE,), (D.DOUBLE,)),
    "upsample_trilinear3d": ((D.DOUBLE,), ()),
}
#: How far a scale of cubic curves may be from the extents' quotient.
_NEAR = 1e-5
#: From the extents before and after, the scale (0: their quotient) and alignCorners.
Weights = Callable[[int, int, float, bool], Any]


def _step(before: int, after: int, scale: float, align: bool = False) -> float:
    """Return the distance of neighbouring new elements, in old elements."""
    if align:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return 1 / scale if scale > 0 else before / after


def _nearest(shift: float) -> Weights:
    def weights(before: int, after: int, scale: float, align: bool) -> Any:
        # In float32, as PyTorch: an element between two others is a matter of rounding.
        places = (np.arange(after, dtype=np.float32) + np.float32(shift)) * np.float32(_step(before, after, scale))
        return _matrix(before, np.floor(places)[:, None].astype(np.int64), np.ones((after, 1)))

    return weights


def _places(before: int, after: int, scale: float, align: bool) -> Any:
    """Return the coordinates of the new elements in old elements."""
    step = _step(before, after, scale, align)
    return np.arange(after) * step if align else (np.arange(after) + 0.5) * step - 0.5


def cubic(distances: Any, a: float = _CUBIC) -> Any:
    """Return the weights of elements at distances of up to 2, by the cubic kernel."""
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((distances - 5) * distances + 8) * distances * a - 4 * a
    return np.where(distances <= 1, near, far)


def cubic_slope(differences: Any) -> Any:
    """Return the derivatives of ``cubic(abs(differences))``."""
    distances = np.abs(differences)
    near = (3 * (_CUBIC + 2) * distances - 2 * (_CUBIC + 3)) * distances
    far = ((3 * distances - 10) * distances + 8) * _CUBIC
    return np.sign(differences) * np.where(distances <= 1, near, far)


def _linear(before: int, after: int, scale: float, align: bool) -> Any:
    places = np.maximum(_places(before, after, scale, align), 0)
    first = np.floor(places)
    rest = places - first
    return _matrix(before, first[:, None].astype(np.int64) + [0, 1], np.stack([1 - rest, rest], -1))


def _cubic(before: int, after: int, scale: float, align: bool) -> Any:
    places = _places(before, after, scale, align)
    first = np.floor(places)
    offsets = [-1, 0, 1, 2]
    return _matrix(
        before, first[:, None].astype(np.int64) + offsets, cubic(np.abs((places - first)[:, None] - offsets))
    )


def _antialiased(reach: int, kernel: Callable[[Any], Any]) -> Weights:
    """Return weights of a kernel whose reach is widened when downsampling; each element's weights add up to 1."""

    def weights(before: int, after: int, scale: float, align: bool) -> Any:
        step = _step(before, after, scale, align)
        wide = max(step, 1.0)
        centres, elements = step * (np.arange(after)[:, None] + 0.5), np.arange(before)
        first, last = (np.floor(centres + side * reach * wide + 0.5) for side in (-1, 1))
        found = kernel(np.abs((elements + 0.5 - centres) / wide)) * ((elements >= first) & (elements < last))
        return found / found.sum(1, keepdims=True)

    return weights


def _matrix(before: int, places: Any, values: Any) -> Any:
    """Return the matrix with these values at these columns of each row; columns outside are clamped."""
    matrix = np.zeros((len(places), before))
    np.add.at(matrix, (np.arange(len(places))[:, None], places.clip(0, before - 1)), values)
    return matrix


def _matrices(
    call: Call, weights: Weights, scales: Sequence[str], before: Sequence[int], after: Sequence[int]
) -> list[Any]:
    align = bool(call["alignCorners"]) if "alignCorners" in call.arguments else False
    given = [call[name] for name in scales] or [0.0] * len(before)
    return [weights(n, m, s, align) for n, m, s in zip(before, after, given, strict=True)]


def _sizes(call: Call, name: str, rank: int, may_be_more: bool = False) -> str | None:
    got = tuple(call[name])
    if (len(got) == rank or (may_be_more and len(got) > rank)) and min(got[:rank]) > 0:
        return None
    return f"{name}: expected {rank} numbers of at least 1, got {extents(got)}"


def _is_channels_last(call: Call, name: str) -> bool:
    return call[name].format in _CHANNELS_LAST


def _formats(name: str, given: str, out: str) -> tuple[Check, ...]:
    if name not in _FORMATS:
        return (public_format(given, out),)

    def violation(call: Call, tensor: str) -> str | None:
        allowed, got = _FORMATS[name], call[tensor].format
        if name == "upsample_bicubic2d_backward" and call.product not in CLASS_950:
            allowed = tuple(each for each in allowed if each not in _CHANNELS_LAST)
        expected = listing(each.c_name for each in allowed)
        return None if got in allowed else f"expected format {expected}, got {got.c_name}"

    alike = () if name in _ANY_FORMAT_OUT else (same_format(out, given),)
    return each("format that is taken", (given,), violation), *alike


def _types(name: str) -> Mapping[Product, Collection[D]]:
    on_a2, on_950 = _TYPES.get(name, ((), ()))
    further = dict.fromkeys(A2_CLASS, on_a2) | dict.fromkeys(CLASS_950, on_950)
    return {product: (*FLOATING, *further.get(product, ())) for product in (*MODERN, *_EXACT_BEFORE_950)}


def _double(call: Call) -> str | None:
    if call["self"].dtype != D.DOUBLE or _is_channels_last(call, "self"):
        return None
    return f"self: expected format ACL_FORMAT_NHWC with ACL_DOUBLE, got {call['self'].format.c_name}"


def _not_negative(scales: Sequence[str]) -> Check:
    return each(
        "not negative",
        tuple(scales),
        lambda call, name: None if call[name] >= 0 else f"expected 0 or more, got {call[name]}",
    )


def _fits_cubic(before: int, after: int, scale: float) -> bool:
    return not scale > 0 or before * (scale - _NEAR) - 1 < after <= before * (scale + _NEAR)


def _fits_linear(before: int, after: int, scale: float) -> bool:
    return not scale >= 0 or before * scale - 1 < after <= before * scale


def _upsampling(
    name: str, words: str, rank: int, weights: Weights, scales: Sequence[str], number: Kind, aligned: bool
) -> Operator:
    """Declare the forward function, or the gradient if the name is a gradient's."""
    backward = name.endswith(("backward", "backward_v2", "grad"))
    exact_lines, antialiased = "exact1d" in name, "_aa" in name
    longer_out = backward and exact_lines
    given = "self" if not antialiased else "x" if "cubic" in name else "input"
    if backward:
        given = "gradOutput" if exact_lines or antialiased else "gradOut"
    out = "gradInput" if backward and weights in (_NEAREST, _EXACT, _cubic) and not exact_lines else "out"
    products = MODERN if weights is not _EXACT or rank == 2 else A2_CLASS if backward else _EXACT_BEFORE_950
    if name == "upsample_nearest_exact1d":
        products |= CLASS_950
    channels = {1: "N, C, L", 2: "N, C, H, W", 3: "N, C, D, H, W"}[rank]

    def places(call: Call, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape[1:-1] if _is_channels_last(call, given) else shape[2:])

    def whole(call: Call, of_places: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the given tensor with other spatial dimensions."""
        batch, *others = call[given].shape
        return (batch, *of_places, others[-1]) if _is_channels_last(call, given) else (batch, others[0], *of_places)

    def old(call: Call) -> tuple[int, ...]:
        if not backward:
            return places(call, call[given].shape)
        size = call["inputSize"]
        return tuple(size[2:]) if rank == 3 else places(call, size)

    def new(call: Call) -> tuple[int, ...]:
        return tuple(call["outputSize"])[:rank]

    def work(call: Call) -> Library | None:
        if call[out].size == 0 or call[given].size == 0:
            return None
        matrices = [each.T if backward else each for each in _matrices(call, weights, scales, old(call), new(call))]
        if longer_out:
            matrices[0] = np.pad(matrices[0], [(0, call[out].shape[2] - len(matrices[0])), (0, 0)])
        if not _is_channels_last(call, given):
            return Library(lambda x: along_axes(x, matrices), (given,), (out,))
        return Library(lambda x: np.moveaxis(along_axes(np.moveaxis(x, -1, 1), matrices), 1, -1), (given,), (out,))

    def ranks(call: Call) -> str | None:
        shape = call[given].shape
        expected = new(call) if backward else None
        if len(shape) == rank + 2 and 0 not in shape[1:] and expected in (None, places(call, shape)):
            return None
        plane = "" if expected is None else f" with outputSize {extents(expected)} for {channels[6:]}"
        return f"{given}: expected ({channels}){plane}, got {extents(shape)}"

    def result(call: Call) -> tuple[int, ...]:
        return whole(call, old(call) if backward else new(call))

    def has_room(call: Call) -> str | None:
        expected, got = result(call), call[out].shape
        if len(got) == 3 and got[:2] == expected[:2] and got[2] >= expected[2]:
            return None
        return f"{out}: expected shape {extents(expected)} or a longer one, got {extents(got)}"

    def fitting(fits: Callable[[int, int, float], bool]) -> Check:
        def violation(call: Call) -> str | None:
            for name, n, m in zip(scales, old(call), new(call), strict=True):
                if not fits(n, m, call[name]):
                    return f"{name}: expected a scale that turns {n} elements into {m} (outputSize), got {call[name]}"
            return None

        return rule(f"goes with outputSize: {', '.join(scales)}", violation)

    def steps(call: Call) -> str | None:
        for name, n, m in zip(scales, old(call), new(call), strict=True):
            if (step := _step(n, m, call[name])) > _MOST_STEP:
                return f"{name}: expected at most {_MOST_STEP} elements to one, got {step:g}"
        return None

    def shares(call: Call) -> str | None:
        if (step := _step(old(call)[0], new(call)[0], call["scales"])) >= 1 / _MOST_STEP:
            return None
        return f"scales: expected at most {_MOST_STEP} elements from one, got one for {step:g}"

    types = _types(name)
    checks = (
        dtype_in(lambda product: where_supported(types.get(product, FLOATING))(product), given),
        same_dtype(out, given),
        *_formats(name, given, out),
        rule(
            "extents after: outputSize",
            lambda call: _sizes(call, "outputSize", rank, may_be_more=name == "upsample_bilinear2d"),
        ),
        *((rule("shape before: inputSize", lambda call: _sizes(call, "inputSize", rank + 2)),) if backward else ()),
        rule(f"planes: {given}", ranks),
        rule(f"room for the requested extents: {out}", has_room)
        if longer_out
        else shape_is("the requested extents", result, out),
        *(on(A2_CLASS, rule(f"elements to one: {', '.join(scales)}", steps)) if antialiased else ()),
        *((rule("with channels last: self", _double), _not_negative(scales)) if name == "upsample_bilinear2d" else ()),
        *((_not_negative(scales),) if backward and weights is _EXACT and rank < 3 else ()),
        *((rule(f"elements from one: {', '.join(scales)}", shares),) if longer_out else ()),
        *(elsewhere(CLASS_950, fitting(_fits_cubic)) if name == "upsample_bicubic2d" else ()),
        *(elsewhere(CLASS_950, fitting(_fits_linear)) if name == "upsample_linear1d" else ()),
    )
    return Operator(
        name=name,
        function=camel(name).replace("Aa", "AA"),
        summary=f"Gradient of {words[0].lower()}{words[1:]}." if backward else f"{words}.",
        formula=f"{out} = the {'gradient' if backward else 'elements'} of self, interpolated",
        parameters=(
            tensor_in(given, "the gradient with respect to the output" if backward else f"({channels})"),
            Parameter("outputSize", "output_size", Kind.INT_ARRAY, "the output size"),
            *((Parameter("inputSize", "input_size", Kind.INT_ARRAY, "the input's shape"),) if backward else ()),
            *(
                (
                    Parameter(
                        "alignCorners",
                        "align_corners",
                        Kind.BOOL,
                        "whether the centres of the corner elements are aligned",
                    ),
                )
                if aligned
                else ()
            ),
            *(Parameter(each, each, number, "the scale factor; 0: the ratio of the sizes") for each in scales),
            tensor_out(out, "the gradient with respect to self" if backward else "the result"),
        ),
        support={product: support(types[product], (product,))[product] for product in products},
        checks=unless_empty((given, out), *checks) if name in _UNSEEN_IF_EMPTY else checks,
        work=work,
        in_header_of=name if antialiased else re.sub(r"(linear|nearest|cubic)(\dd)", r"\1_\2", name),
    )


_NEAREST, _EXACT = _nearest(0.0), _nearest(0.5)
_LINEAR_AA = _antialiased(1, lambda distances: np.maximum(1 - distances, 0))
_CUBIC_AA = _antialiased(2, lambda distances: cubic(np.minimum(distances, 2), _CUBIC_ANTIALIASED))
_ONE, _TWO, _THREE = ("scales",), ("scalesH", "scalesW"), ("scalesD", "scalesH", "scalesW")

OPERATORS = tuple(
    _upsampling(name, words, rank, weights, scales, number, aligned)
    for name, words, rank, weights, scales, number, aligned in (
        ("upsample_nearest1d", "Nearest-neighbour interpolation of lines", 1, _NEAREST, (), Kind.DOUBLE, False),
        (
            "upsample_nearest1d_v2",
            "Nearest-neighbour interpolation of lines",
            1,
            _NEAREST,
            ("scaleL",),
            Kind.FLOAT,
            False,
        ),
        (
            "upsample_nearest1d_backward",
            "Nearest-neighbour interpolation of lines",
            1,
            _NEAREST,
            _ONE,
            Kind.DOUBLE,
            False,
        ),
        ("upsample_nearest2d", "Nearest-neighbour interpolation of planes", 2, _NEAREST, (), Kind.DOUBLE, False),
        ("upsample_nearest2d_v2", "Nearest-neighbour interpolation of planes", 2, _NEAREST, _TWO, Kind.FLOAT, False),
        (
            "upsample_nearest2d_backward",
            "Nearest-neighbour interpolation of planes",
            2,
            _NEAREST,
            _TWO,
            Kind.DOUBLE,
            False,
        ),
        ("upsample_nearest3d", "Nearest-neighbour interpolation of volumes", 3, _NEAREST, _THREE, Kind.DOUBLE, False),
        (
            "upsample_nearest3d_backward",
            "Nearest-neighbour interpolation of volumes",
            3,
            _NEAREST,
            _THREE,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact1d",
            "Exact nearest-neighbour interpolation of lines",
            1,
            _EXACT,
            _ONE,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact1d_backward",
            "Exact nearest-neighbour interpolation of lines",
            1,
            _EXACT,
            _ONE,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact2d",
            "Exact nearest-neighbour interpolation of planes",
            2,
            _EXACT,
            _TWO,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact2d_backward",
            "Exact nearest-neighbour interpolation of planes",
            2,
            _EXACT,
            _TWO,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact3d",
            "Exact nearest-neighbour interpolation of volumes",
            3,
            _EXACT,
            _THREE,
            Kind.DOUBLE,
            False,
        ),
        (
            "upsample_nearest_exact3d_backward",
            "Exact nearest-neighbour interpolation of volumes",
            3,
            _EXACT,
            _THREE,
            Kind.DOUBLE,
            False,
        ),
        ("upsample_linear1d", "Linear interpolation of lines", 1, _linear, _ONE, Kind.DOUBLE, True),
        ("upsample_linear1d_backward", "Linear interpolation of lines", 1, _linear, _ONE, Kind.DOUBLE, True),
        ("upsample_bilinear2d", "Bilinear interpolation of planes", 2, _linear, _TWO, Kind.DOUBLE, True),
        ("upsample_bilinear2d_backward", "Bilinear interpolation of planes", 2, _linear, _TWO, Kind.DOUBLE, True),
        ("upsample_bilinear2d_backward_v2", "Bilinear interpolation of planes", 2, _linear, _TWO, Kind.DOUBLE, True),
        ("upsample_trilinear3d", "Trilinear interpolation of volumes", 3, _linear, _THREE, Kind.DOUBLE, True),
        ("upsample_trilinear3d_backward", "Trilinear interpolation of volumes", 3, _linear, _THREE, Kind.DOUBLE, True),
        ("upsample_bicubic2d", "Bicubic interpolation of planes", 2, _cubic, _TWO, Kind.DOUBLE, True),
        ("upsample_bicubic2d_backward", "Bicubic interpolation of planes", 2, _cubic, _TWO, Kind.DOUBLE, True),
        (
            "upsample_bilinear2d_aa",
            "Antialiased bilinear interpolation of planes",
            2,
            _LINEAR_AA,
            _TWO,
            Kind.DOUBLE,
            True,
        ),
        (
            "upsample_bilinear2d_aa_backward",
            "Antialiased bilinear interpolation of planes",
            2,
            _LINEAR_AA,
            _TWO,
            Kind.DOUBLE,
            True,
        ),
        ("upsample_bicubic2d_aa", "Antialiased bicubic interpolation of planes", 2, _CUBIC_AA, _TWO, Kind.DOUBLE, True),
        (
            "upsample_bicubic2d_aa_grad",
            "Antialiased bicubic interpolation of planes",
            2,
            _CUBIC_AA,
            _TWO,
            Kind.DOUBLE,
            True,
        ),
    )
)
