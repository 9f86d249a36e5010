"""aclnnDynamicBlockQuant and V2: quantisation of matrices with a scale per block, also for groups of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    each,
    generated,
    listing,
    no_zero_dims,
    nothing_to_write,
    one_of,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    EIGHT_BITS_OF_NUMPY,
    MODERN,
    attribute,
    declared,
    expect_within,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.microscaling import ELEMENTS, in_blocks, rounded
from aclnn.operators.library.quantization.quantization import MOST, is_dtype, quantized

_ROUNDING, _ROWS, _COLUMNS, _GROUPS = "roundModeOptional", "rowBlockSize", "colBlockSize", "groupList"
_LARGEST = {D.INT8: MOST[D.INT8], **{dtype: ELEMENTS[dtype].most for dtype in EIGHT_BITS_OF_NUMPY}}
_SIZES = {_ROWS: (1,), _COLUMNS: (128,)}
_SIZES_GROUPED = {_ROWS: (1, 128, 256, 512), _COLUMNS: (64, 128, 192, 256)}
_SIZES_950 = {_ROWS: (1, 64, 128, 256, 512), _COLUMNS: (64, 128, 192, 256)}


def _counts(call: Call) -> Shape:
    """Return the number of blocks in each dimension; each group of rows begins a new block."""
    shape, sizes = call["x"].shape, (call[_ROWS], call[_COLUMNS])
    rows, columns = (-(-extent // size) for extent, size in zip(shape[-2:], sizes, strict=True))
    if _GROUPS in call.arguments:
        rows = shape[-2] // sizes[0] + call[_GROUPS].size
    return (*shape[:-2], rows, columns)


def _by_blocks(x: Any, sizes: tuple[int, int], dtype: D, least: float) -> tuple[Any, Any]:
    """Quantise matrices by blocks; return the quantised numbers and the scales."""
    rows, columns = x.ndim - 2, x.ndim - 1
    blocks = in_blocks(in_blocks(x.astype(np.float64), columns, sizes[1]), rows, sizes[0])
    scale = np.max(np.abs(blocks), (rows + 1, columns + 2), keepdims=True) / _LARGEST[dtype]
    scale = (np.minimum(scale, 1 / least) if least else scale).astype(np.float32)
    quotients = blocks / scale  # NaN in blocks of zeros
    found = quotients if dtype == D.INT8 else rounded(quotients, ELEMENTS[dtype])
    shape = found.shape
    whole = found.reshape(*x.shape[:-2], shape[rows] * sizes[0], shape[columns + 1] * sizes[1])
    y = whole[..., : x.shape[-2], : x.shape[-1]]
    return (quantized(y, D.INT8) if dtype == D.INT8 else y), scale[..., 0, :, 0]


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, ("yOut", "scaleOut")):
        return None
    sizes, shape, dtype = (call[_ROWS], call[_COLUMNS]), _counts(call), call["yOut"].dtype
    least = float32(call["minScale"])

    def quantize(x: Any) -> Any:
        return _by_blocks(x, sizes, dtype, least)

    def quantize_groups(x: Any, ends: Any) -> Any:
        y, scale = np.zeros(x.shape), np.zeros(shape, np.float32)
        # Rows after the last group become zeros.
        for group, (begin, end) in enumerate(groups(ends, x.shape[-2], _GROUPS, whole=False)):
            if begin < end:
                y[..., begin:end, :], found = _by_blocks(x[..., begin:end, :], sizes, dtype, least)
                first = begin // sizes[0] + group
                scale[..., first : first + found.shape[-2], :] = found
        return y, scale

    if _GROUPS in call.arguments:
        return Library(quantize_groups, ("x", _GROUPS), ("yOut", "scaleOut"))
    return Library(quantize, ("x",), ("yOut", "scaleOut"))


def groups(ends: Any, rows: int, name: str, whole: bool = True) -> Iterator[tuple[int, int]]:
    """Yield the bounds of groups of rows.

    Args:
        ends: end of each group.
        rows: number of rows.
        name: argument name for error texts.
        whole: True if every row must belong to a group.

    Raises:
        IndexError: an end exceeds the number of rows.
        ValueError: ends decrease, or rows are left over.
    """
    expect_within(name, ends, 0, rows, "ends of groups")
    if (np.diff(ends) < 0).any():
        raise ValueError(f"{name}: expected ends of groups that do not decrease, got {listing(map(str, ends), 'and')}")
    if whole and ends[-1] != rows:
        raise ValueError(f"{name}: expected {rows} as the last end (the rows of x), got {ends[-1]}")
    return pairwise((0, *ends.tolist()))


def _block(version: int, grouped: bool) -> Operator:
    """Declare a variant; the grouped one is for Ascend 950."""
    sizes = (_SIZES_GROUPED if grouped else _SIZES_950), (_SIZES_GROUPED if grouped else _SIZES)

    def size(call: Call, name: str) -> str | None:
        allowed = sizes[call.product not in CLASS_950][name]
        return None if call[name] in allowed else f"expected {listing(map(str, allowed))}, got {call[name]}"

    def columns(product: Product) -> list[tuple[D, ...]]:
        if grouped:
            return [(x, D.INT32, y, D.FLOAT) for x in (D.FLOAT16, D.BF16) for y in EIGHT_BITS_OF_NUMPY]
        formats = (D.INT8, *EIGHT_BITS_OF_NUMPY) if product in CLASS_950 else (D.INT8,)
        return [(x, y, D.FLOAT) for x in FLOATING for y in formats]

    name = "grouped_dynamic_block_quant" if grouped else "dynamic_block_quant"
    inputs = ("x", _GROUPS) if grouped else ("x",)
    integers = "" if grouped else "2 (INT8), of Ascend 950 "
    of_groups = (tensor_in(_GROUPS, "the end of each group of rows; INT32"),) * grouped
    kind = (attribute("groupListType", Kind.INT64, "0: groupList contains ends"),) * grouped
    range_of = (attribute("dstTypeMax", Kind.DOUBLE, "0: the largest number of the format as upper bound"),)
    return declared(
        name + "_v2" * (version > 1),
        "scaleOut = min(max |x of the block| / max of yOut's type, 1 / minScale),  yOut = round(x / scaleOut)",
        f"Quantize each block of {'groups of rows' if grouped else 'a matrix'} by its maximum.",
        (
            tensor_in("x", "a matrix, or a batch of matrices"),
            *of_groups,
            attribute("minScale", Kind.DOUBLE, "the lower bound of a scale's reciprocal, or 0; rounded to float32"),
            Parameter(_ROUNDING, _ROUNDING, Kind.STRING, "the rounding mode: rint or null", optional=True),
            attribute(
                "dstType", Kind.INT64, f"the data type of yOut: {integers}35 (FLOAT8_E5M2) or 36 (FLOAT8_E4M3FN)"
            ),
            attribute(_ROWS, Kind.INT64, "the number of rows of a block"),
            attribute(_COLUMNS, Kind.INT64, "the number of columns of a block"),
            *kind,
            *(range_of * (version > 1)),
            tensor_out("yOut", "the quantized numbers", const=True),
            tensor_out("scaleOut", "the scale of each block; FLOAT", const=True),
        ),
        generated(
            inputs,
            ("yOut", "scaleOut"),
            columns,
            value_is("a finite number, 0 or more", lambda got: math.isfinite(got) and got >= 0, "minScale"),
            one_of(_ROUNDING, None, "rint"),
            is_dtype("dstType", "yOut"),
            each("size of a block", (_ROWS, _COLUMNS), size),
            *((one_of("groupListType", 0),) * grouped),
            *(
                (
                    value_is(
                        "0 (others are of HIFLOAT8)", lambda got: got == 0, "dstTypeMax", of=lambda got: float32(got)
                    ),
                )
                * (version > 1)
            ),
            dims_between(2, 3, "x"),
            *((dims_between(1, 1, _GROUPS),) * grouped),
            no_zero_dims(*inputs),
            same_shape("yOut", "x"),
            shape_is("one for each block", _counts, "scaleOut"),
        ),
        _work,
        (D.FLOAT16, D.BF16) if grouped else FLOATING,
        CLASS_950 if grouped else MODERN,
    )


OPERATORS = tuple(_block(version, grouped) for grouped in (False, True) for version in (1, 2))
