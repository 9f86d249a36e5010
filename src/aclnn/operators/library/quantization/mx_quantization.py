"""Quantisation to MX formats by aclnnDynamicMxQuant and related functions, and dequantisation by aclnnAntiMxQuant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    generated,
    listing,
    no_zero_dims,
    not_empty,
    nothing_to_write,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import (
    EIGHT_BITS_OF_NUMPY,
    attribute,
    constant_text,
    declared,
    optional_in,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.block_quantization import groups
from aclnn.operators.library.quantization.microscaling import (
    BLOCK,
    ELEMENTS,
    FOUR_BITS,
    PAIR,
    ROUNDINGS,
    Rule,
    carried,
    ceiled,
    factors,
    floored,
    in_blocks,
    in_pairs,
    pairs_shape,
    quantized,
    restored,
)
from aclnn.operators.library.quantization.quantization import given, is_dtype, whole_bytes

HALVES = (D.FLOAT16, D.BF16)
ROUNDING = "roundModeOptional"
OCP, CEILED, RANGED = range(3)
"""Rules for scales: as in the specification; so that nothing saturates; for a range of FLOAT4_E2M1."""
WITHOUT_RANGE = {D.FLOAT8_E5M2: (OCP, CEILED), D.FLOAT8_E4M3FN: (OCP, CEILED)} | dict.fromkeys(FOUR_BITS, (OCP,))
_OF_AXES = {**WITHOUT_RANGE, D.FLOAT4_E2M1: (OCP, RANGED)}
_OF_SQUARES = {**dict.fromkeys(ELEMENTS, (OCP,)), D.FLOAT4_E2M1: (OCP, RANGED)}
_OF_GROUPS = {**WITHOUT_RANGE, **dict.fromkeys(FOUR_BITS, (OCP, RANGED))}
_CARRIED = (6.0, 7.0)
_GROUPED_CARRIED = {D.FLOAT4_E2M1: _CARRIED, D.FLOAT4_E1M2: (1.875,)}
_GROUPED_RANGES = {D.FLOAT4_E2M1: (6.0, 12.0), D.FLOAT4_E1M2: (1.75, 3.5)}
_MOST_BLOCK, _MOST_RANGE = 1024, 12.0

ROUNDING_PARAMETER = Parameter(
    ROUNDING,
    ROUNDING,
    Kind.STRING,
    "the rounding mode: rint or null; for 4-bit types also round or floor",
    optional=True,
)
DST_TYPE = attribute(
    "dstType", Kind.INT64, "the data type: 35 (FLOAT8_E5M2), 36 (FLOAT8_E4M3FN), 40 (FLOAT4_E2M1) or 41 (FLOAT4_E1M2)"
)
SCALE_ALG = attribute(
    "scaleAlg",
    Kind.INT64,
    "the scale algorithm: 0 as in the specification; 1, 8-bit types, without saturation; 2, FLOAT4_E2M1, by dstTypeMax",
)
DST_TYPE_MAX = attribute(
    "dstTypeMax", Kind.DOUBLE, "the upper bound of scaled numbers, 6 to 12, or 0 for 6; rounded to float32"
)


def scales_out(name: str, axis: str) -> Parameter:
    """Declare an output of scales."""
    return tensor_out(name, f"the scales of blocks along {axis}, in pairs; FLOAT8_E8M0", const=True)


def rounding(output: str, name: str = ROUNDING, *absent: None) -> tuple[Check, ...]:
    """Require a rounding mode that the output's format supports; null is accepted if ``absent`` contains None."""

    def violation(call: Call) -> str | None:
        got, of = call[name], call[output].dtype
        if got in (*absent, "rint") or of in FOUR_BITS:
            return None
        return f"{name}: expected rint with {of.c_name} ({output}), got {got}"

    return one_of(name, *absent, *ROUNDINGS), rule(f"rint of eight bits: {name}", violation)


def algorithm(output: str, allowed: Mapping[D, tuple[int, ...]]) -> Check:
    """Require a rule for scales that the output's format supports."""

    def violation(call: Call) -> str | None:
        got, of = call["scaleAlg"], call[output].dtype
        if got in allowed[of]:
            return None
        return f"scaleAlg: expected {listing(map(str, allowed[of]))} with {of.c_name} ({output}), got {got}"

    return rule("scales of the format: scaleAlg", violation)


def _range(call: Call) -> str | None:
    got = float32(call["dstTypeMax"])
    return None if got == 0 or _CARRIED[0] <= got <= _MOST_RANGE else f"dstTypeMax: expected 0 or 6 to 12, got {got}"


RANGE = rule("a range: dstTypeMax", _range)


def even(call: Call, name: str) -> str | None:
    """Return an error text for an odd last dimension with 4-bit types."""
    output = next(p.name for p in call.operator.parameters if p.kind is Kind.OUTPUT)
    got = call[name].shape[-1]
    return (
        None if call[output].dtype not in FOUR_BITS or got % 2 == 0 else f"expected an even last dimension, got {got}"
    )


def rule_of(call: Call, output: str) -> Rule:
    """Return the rule for the scales of a call's blocks."""
    dtype, way = call[output].dtype, call["scaleAlg"]
    if way == OCP:
        return floored(ELEMENTS[dtype])
    if way == CEILED:
        return ceiled(ELEMENTS[dtype].most, subnormal=True, least=float32(call.arguments.get("maxLowBound", 0.0)))
    most = float32(call.arguments.get("dstTypeMax", 0.0)) or ELEMENTS[dtype].most
    return carried(most, call["x"].dtype != D.FLOAT) if most in _CARRIED else ceiled(most, subnormal=False)


def to_integer(call: Call, name: str = ROUNDING) -> Callable[[Any], Any]:
    """Return the rounding function of a call."""
    return ROUNDINGS[call[name] or "rint"]


def columns(inputs: Sequence[D], outputs: int) -> Callable[[Any], list[tuple[D, ...]]]:
    """Return the combinations of data types: any format with any input, one for all outputs, each with scales."""
    return lambda product: [(x, *(y, D.FLOAT8_E8M0) * outputs) for x in inputs for y in ELEMENTS]


def _axis(call: Call) -> str | None:
    rank, got = len(call["x"].shape), call["axis"]
    return None if -rank <= got < rank else f"axis: expected from {-rank} to {rank - 1}, got {got}"


def _plain_block(call: Call) -> str | None:
    got, wide = call["blocksize"], call["x"].dtype == D.FLOAT
    if got == BLOCK or not (wide or call["scaleAlg"] == RANGED):
        return None
    return f"blocksize: expected {BLOCK} {'of ACL_FLOAT' if wide else f'(scaleAlg {RANGED})'}, got {got}"


def _low_bound(call: Call) -> str | None:
    got = call["maxLowBound"]
    if not (math.isfinite(got) and got >= 0):
        return f"maxLowBound: expected a finite number, 0 or more, got {got}"
    return None if got == 0 or call["scaleAlg"] == CEILED else f"maxLowBound: expected 0 without scaleAlg 1, got {got}"


def _long_axis(call: Call) -> str | None:
    x = call["x"]
    got = x.shape[call["axis"]]
    if x.dtype != D.FLOAT or got >= BLOCK:
        return None
    return f"x: expected {BLOCK} numbers or more along the axis of ACL_FLOAT, got {got}"


def _scales_shape(call: Call) -> Shape:
    return pairs_shape(call["x"].shape, call["axis"], call["blocksize"])


def _work(call: Call) -> Library | None:
    outputs = ("yOut", "mxscaleOut")
    if nothing_to_write(call, outputs):
        return None
    axis, size, dtype = call["axis"] % len(call["x"].shape), call["blocksize"], call["yOut"].dtype
    find, to_whole = rule_of(call, "yOut"), to_integer(call)

    def quantize(x: Any) -> Any:
        y, scales = quantized(x, (axis,), dtype, find, to_whole, size)
        return y, in_pairs(scales, axis)

    return Library(quantize, ("x",), outputs)


def _along_axis(version: int) -> Operator:
    further = (DST_TYPE_MAX,) * (version > 1)
    bound = attribute("maxLowBound", Kind.DOUBLE, "the lower bound of a block's largest number (scaleAlg 1)")
    return declared(
        "dynamic_mx_quant" if version == 1 else f"dynamic_mx_quant_v{version}",
        "mxscaleOut = 2^(floor(log2(max |x of the block|)) - emax),  yOut = round(x / mxscaleOut)",
        "Quantize blocks along a dimension to an MX format.",
        (
            tensor_in("x", "the numbers"),
            attribute("axis", Kind.INT64, "the dimension along which to form blocks"),
            ROUNDING_PARAMETER,
            DST_TYPE,
            attribute("blocksize", Kind.INT64, "the block size, a multiple of 32 up to 1024"),
            SCALE_ALG,
            *further,
            *((bound,) * (version > 2)),
            tensor_out("yOut", "the quantized numbers", const=True),
            scales_out("mxscaleOut", "the dimension"),
        ),
        generated(
            ("x",),
            ("yOut", "mxscaleOut"),
            columns(FLOATING, 1),
            *rounding("yOut", ROUNDING, None),
            is_dtype("dstType", "yOut"),
            value_is(
                f"a multiple of {BLOCK} from {BLOCK} to {_MOST_BLOCK}",
                lambda got: 0 < got <= _MOST_BLOCK and got % BLOCK == 0,
                "blocksize",
            ),
            algorithm("yOut", _OF_AXES),
            rule("32: blocksize", _plain_block),
            *((RANGE,) * (version > 1)),
            *((rule("a bound with scaleAlg 1: maxLowBound", _low_bound),) * (version > 2)),
            dims_between(1, 7, "x"),
            rule("a dimension of x: axis", _axis),
            each("even", ("x",), even),
            same_shape("yOut", "x"),
            whole_bytes("yOut"),
            shape_is("two for two blocks", _scales_shape, "mxscaleOut"),
            rule("a block of FLOAT: x", _long_axis),
        ),
        _work,
        FLOATING,
        CLASS_950,
    )


_BOTH = ("y1Out", "mxscale1Out", "y2Out", "mxscale2Out")


def _both_work(call: Call) -> Library | None:
    if nothing_to_write(call, _BOTH):
        return None
    last, dtype, find, to_whole = (
        len(call["x"].shape) - 1,
        call["y1Out"].dtype,
        rule_of(call, "y1Out"),
        to_integer(call),
    )

    def quantize(x: Any) -> Any:
        found = [(axis, *quantized(x, (axis,), dtype, find, to_whole)) for axis in (last, last - 1)]
        return tuple(each for axis, y, scales in found for each in (y, in_pairs(scales, axis)))

    return Library(quantize, ("x",), _BOTH)


def _both(version: int) -> Operator:
    return declared(
        "dynamic_mx_quant_with_dual_axis" + "_v2" * (version > 1),
        "mxscale1Out, mxscale2Out = 2^(floor(log2(max |x of the block|)) - emax),  y1Out = round(x / mxscale1Out)",
        "Quantize blocks of rows, and blocks of columns, to an MX format.",
        (
            tensor_in("x", "a matrix, or a batch of matrices"),
            ROUNDING_PARAMETER,
            DST_TYPE,
            SCALE_ALG,
            *((DST_TYPE_MAX,) * (version > 1)),
            tensor_out("y1Out", "the numbers quantized along the last dimension", const=True),
            scales_out("mxscale1Out", "the last dimension"),
            tensor_out("y2Out", "the numbers quantized along the last but one dimension", const=True),
            scales_out("mxscale2Out", "the one before"),
        ),
        generated(
            ("x",),
            _BOTH,
            columns(HALVES, 2),
            *rounding("y1Out", ROUNDING, None),
            is_dtype("dstType", "y1Out"),
            algorithm("y1Out", _OF_AXES),
            *((RANGE,) * (version > 1)),
            dims_between(2, 7, "x"),
            each("even", ("x",), even),
            same_shape("y1Out", "x"),
            same_shape("y2Out", "x"),
            whole_bytes("y1Out", "y2Out"),
            shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -1), "mxscale1Out"),
            shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -2), "mxscale2Out"),
        ),
        _both_work,
        HALVES,
        CLASS_950,
    )


_SQUARES = ("yOut", "scale1Out", "scale2Out")


def _squares_work(call: Call) -> Library | None:
    if nothing_to_write(call, _SQUARES):
        return None
    shape, dtype, find, to_whole = call["x"].shape, call["yOut"].dtype, rule_of(call, "yOut"), to_integer(call)
    rows, last = len(shape) - 2, len(shape) - 1

    def quantize(x: Any) -> Any:
        y, scales = quantized(x, (rows, last), dtype, find, to_whole)
        first, second = (
            in_pairs(np.take(np.repeat(scales, BLOCK, other), range(shape[other]), other), axis)
            for axis, other in ((last, rows), (rows, last))
        )
        return y, first, second

    return Library(quantize, ("x",), _SQUARES)


_SQUARE = declared(
    "dynamic_block_mx_quant",
    "scale1Out = scale2Out = 2^(floor(log2(max |x of the block|)) - emax),  yOut = round(x / scale1Out)",
    "Quantize 32 x 32 blocks to an MX format.",
    (
        tensor_in("x", "a matrix, or a batch of matrices"),
        ROUNDING_PARAMETER,
        DST_TYPE,
        attribute(
            "scaleAlg", Kind.INT64, "the scale algorithm: 0 as in the OCP specification; 2, FLOAT4_E2M1, by dstTypeMax"
        ),
        attribute("dstTypeMax", Kind.DOUBLE, "the upper bound of scaled numbers, 6 or 7, or 0 for 6"),
        tensor_out("yOut", "the quantized numbers", const=True),
        scales_out("scale1Out", "the last dimension"),
        scales_out("scale2Out", "the one before"),
    ),
    generated(
        ("x",),
        _SQUARES,
        lambda product: [(x, y, D.FLOAT8_E8M0, D.FLOAT8_E8M0) for x in HALVES for y in ELEMENTS],
        *rounding("yOut", ROUNDING, None),
        is_dtype("dstType", "yOut"),
        algorithm("yOut", _OF_SQUARES),
        value_is("0, 6 or 7", lambda got: got in (0.0, *_CARRIED), "dstTypeMax", of=lambda got: float32(got)),
        dims_between(2, 3, "x"),
        no_zero_dims("x"),
        each("even", ("x",), even),
        same_shape("yOut", "x"),
        whole_bytes("yOut"),
        shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -1), "scale1Out"),
        shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -2), "scale2Out"),
    ),
    _squares_work,
    HALVES,
    CLASS_950,
)


_GROUPED = ("y", "mxscale")


def _grouped_range(call: Call) -> str | None:
    got, of = float32(call["dstTypeMax"]), call["y"].dtype
    if of not in FOUR_BITS:
        return None
    least, most = _GROUPED_RANGES[of]
    if got == 0 or least <= got <= most:
        return None
    return f"dstTypeMax: expected 0 or {least} to {most} with {of.c_name}, got {got}"


def _grouped_shape(call: Call) -> Shape:
    rows, columns = call["x"].shape
    return (rows // (BLOCK * PAIR) + call["groupIndex"].shape[0], columns, PAIR)


def _grouped_rule(call: Call) -> Rule:
    dtype, way = call["y"].dtype, call.arguments.get("scaleAlg", OCP)
    if way == OCP:
        return floored(ELEMENTS[dtype])
    if way == CEILED:
        return ceiled(ELEMENTS[dtype].most, subnormal=True)
    most = float32(call["dstTypeMax"]) or ELEMENTS[dtype].most
    return carried(most, rounds=True) if most in _GROUPED_CARRIED[dtype] else ceiled(most, subnormal=False)


def _grouped_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    dtype, shape, find, to_whole = (
        call["y"].dtype,
        _grouped_shape(call),
        _grouped_rule(call),
        ROUNDINGS[call["roundMode"]],
    )

    def quantize(x: Any, ends: Any) -> Any:
        parts, scales = [], np.zeros(shape, np.uint8)
        for group, (begin, end) in enumerate(groups(ends, x.shape[0], "groupIndex")):
            y, found = quantized(x[begin:end], (0,), dtype, find, to_whole)
            first, pairs = begin // (BLOCK * PAIR) + group, in_pairs(found, 0)
            scales[first : first + len(pairs)] = pairs.view(np.uint8)
            parts.append(y)
        return np.concatenate(parts), scales.view(D.FLOAT8_E8M0.numpy)

    return Library(quantize, ("x", "groupIndex"), _GROUPED)


def _grouped(version: int) -> Operator:
    formats = tuple(ELEMENTS) if version > 1 else EIGHT_BITS_OF_NUMPY
    modes = tuple(ROUNDINGS) if version > 1 else ("rint",)
    further = (SCALE_ALG, attribute("dstTypeMax", Kind.DOUBLE, "the upper bound of scaled 4-bit numbers, or 0"))
    return declared(
        "grouped_dynamic_mx_quant" + "_v2" * (version > 1),
        "mxscale = 2^(floor(log2(max |x of the block|)) - emax),  y = round(x / mxscale)",
        "Quantize blocks along the rows of each group to an MX format.",
        (
            tensor_in("x", "the input rows"),
            tensor_in("groupIndex", "the end of each group of rows"),
            constant_text("roundMode", listing(modes)),
            DST_TYPE,
            attribute("blocksize", Kind.INT64, "the block size, 32"),
            *(further * (version > 1)),
            tensor_out("y", "the quantized numbers", const=True),
            scales_out("mxscale", "columns, of each group from a row of its own"),
        ),
        (
            dtype_in(HALVES, "x"),
            dtype_in((D.INT32,) if version > 1 else (D.INT32, D.INT64), "groupIndex"),
            dtype_in(formats, "y"),
            dtype_in((D.FLOAT8_E8M0,), "mxscale"),
            one_of("roundMode", *modes),
            one_of("blocksize", BLOCK),
            *((one_of("scaleAlg", OCP, CEILED, RANGED),) * (version > 1)),
            is_dtype("dstType", "y"),
            dims_between(2, 2, "x"),
            dims_between(1, 1, "groupIndex"),
            same_shape("y", "x"),
            shape_is("two for two blocks", _grouped_shape, "mxscale"),
            not_empty("groupIndex"),
            *(unless_empty(("x",), whole_bytes("y")) * (version > 1)),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                *unless_empty(
                    ("x",),
                    *(
                        (
                            rounding("y", "roundMode")[1],
                            algorithm("y", _OF_GROUPS),
                            rule("a range: dstTypeMax", _grouped_range),
                        )
                        * (version > 1)
                    ),
                ),
            ),
        ),
        _grouped_work,
        HALVES,
        CLASS_950,
    )


_LEVELS = ("yOut", "level0ScaleOut", "level1ScaleOut")
_SMOOTH = "smoothScaleOptional"
_WIDE_BLOCK, _LEAST_NORMAL = 512, 2.0**-126


def _levels_work(call: Call) -> Library | None:
    if nothing_to_write(call, _LEVELS):
        return None
    last, to_whole, of = len(call["x"].shape) - 1, to_integer(call), call["x"].dtype.numpy
    element = ELEMENTS[D.FLOAT4_E2M1]

    def quantize(x: Any, smooth: Any = None) -> Any:
        numbers = (x if smooth is None else (x * smooth).astype(of)).astype(np.float32)
        blocks = in_blocks(numbers, last, _WIDE_BLOCK)
        finite = np.where(np.isfinite(blocks), np.abs(blocks), 0)
        scale = np.max(finite, -1, keepdims=True) * np.float32(1 / element.most)
        scale = np.where(scale < _LEAST_NORMAL, 0, scale).astype(np.float32)
        quotients = np.where(blocks == 0, blocks, (blocks / scale).astype(of).astype(np.float32))
        flat = quotients.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
        y, scales = quantized(flat, (last,), D.FLOAT4_E2M1, floored(element), to_whole)
        return y, scale[..., 0], in_pairs(scales, last)

    return Library(quantize, ("x", *given(call, _SMOOTH)), _LEVELS)


_TWO_LEVELS = declared(
    "dynamic_dual_level_mx_quant",
    "level0ScaleOut = max |x of 512| / 6,  t = x / level0ScaleOut,  "
    "level1ScaleOut = 2^(floor(log2(max |t of 32|)) - 2),  yOut = round(t / level1ScaleOut)",
    "Quantize blocks of rows to FLOAT4_E2M1 with two levels of scales.",
    (
        tensor_in("x", "the input rows"),
        optional_in(_SMOOTH, "the factors of columns, of x's data type"),
        Parameter(ROUNDING, ROUNDING, Kind.STRING, "the rounding mode: rint or null, round, floor", optional=True),
        attribute("level0BlockSize", Kind.INT64, "the block size of FLOAT scales, 512"),
        attribute("level1BlockSize", Kind.INT64, "the block size of power-of-two scales, 32"),
        tensor_out("yOut", "the quantized numbers; FLOAT4_E2M1", const=True),
        tensor_out("level0ScaleOut", "the scales of wide blocks; FLOAT", const=True),
        scales_out("level1ScaleOut", "rows"),
    ),
    generated(
        ("x",),
        _LEVELS,
        lambda product: [(x, D.FLOAT4_E2M1, D.FLOAT, D.FLOAT8_E8M0) for x in HALVES],
        one_of(ROUNDING, None, *ROUNDINGS),
        one_of("level0BlockSize", _WIDE_BLOCK),
        one_of("level1BlockSize", BLOCK),
        dims_between(1, 7, "x"),
        no_zero_dims("x"),
        each("even", ("x",), even),
        same_shape("yOut", "x"),
        whole_bytes("yOut"),
        shape_is(
            "one for each block",
            lambda call: (*call["x"].shape[:-1], -(-call["x"].shape[-1] // _WIDE_BLOCK)),
            "level0ScaleOut",
        ),
        shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -1), "level1ScaleOut"),
        same_dtype(_SMOOTH, "x"),
        shape_is("one for each column", lambda call: call["x"].shape[-1:], _SMOOTH),
    ),
    _levels_work,
    HALVES,
    CLASS_950,
)


def _last(call: Call) -> str | None:
    last, got = len(call["x"].shape) - 1, call["axis"]
    return None if got in (-1, last) else f"axis: expected -1 or {last} (the last dimension), got {got}"


def _restored_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("y",)):
        return None
    dtype, shape = call["x"].dtype, call["x"].shape

    def restore(x: Any, scales: Any) -> Any:
        return restored(x, dtype, shape) * factors(scales, shape[-1])

    return Library(restore, ("x", "mxscale"), ("y",))


_RESTORED = declared(
    "anti_mx_quant",
    "y = x * 2^(mxscale - 127)",
    "Dequantize an MX format.",
    (
        tensor_in("x", "the quantized numbers"),
        tensor_in("mxscale", "the scales of blocks of 32 along the last dimension, in pairs; FLOAT8_E8M0"),
        attribute("axis", Kind.INT64, "the dimension of the blocks: the last"),
        attribute("dstType", Kind.INT64, "the data type of y: 0 (FLOAT), 1 (FLOAT16) or 27 (BF16)"),
        tensor_out("y", "the numbers", const=True),
    ),
    generated(
        ("x", "mxscale"),
        ("y",),
        lambda product: [(x, D.FLOAT8_E8M0, y) for x in ELEMENTS for y in FLOATING],
        is_dtype("dstType", "y"),
        dims_between(1, 7, "x"),
        whole_bytes("x"),
        rule("the last dimension: axis", _last),
        same_shape("y", "x"),
        shape_is("two for two blocks", lambda call: pairs_shape(call["x"].shape, -1), "mxscale"),
    ),
    _restored_work,
    tuple(ELEMENTS),
    CLASS_950,
)

OPERATORS = (*map(_along_axis, (1, 2, 3)), *map(_both, (1, 2)), _SQUARE, *map(_grouped, (1, 2)), _TWO_LEVELS, _RESTORED)
