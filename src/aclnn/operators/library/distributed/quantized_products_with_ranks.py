"""All-reduced quantised products: aclnnQuantMatmulAllReduce, aclnnWeightQuantMatmulAllReduce.

Ranks exchange float32, or float64 for integer products; INT8 values if V3 has communication scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    listing,
    not_empty,
    on,
    one_of,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.distributed.products_with_ranks import (
    FIT,
    HALVES,
    LAID,
    MODE,
    REDUCING,
    REDUCING_ENGINES,
    STREAM,
    SUM,
    TURN,
    X1,
    X2,
    column,
    in_tiling,
    known,
    no_null,
    product_shape,
)
from aclnn.operators.library.distributed.ranks import group, is_group, with_ranks
from aclnn.operators.library.matrix.weights import laid, packed_evenly, weighted_product
from aclnn.operators.library.quantization.four_bits import unpacked
from aclnn.operators.library.quantization.quantization import given, product_scale
from aclnn.operators.library.quantization.quantized_products import integer_product
from aclnn.runtime.collectives import Ranks

SCALE, _ROWS, _SENT = "dequantScale", "pertokenScaleOptional", ("commQuantScale1Optional", "commQuantScale2Optional")
_SCALES, _OF_ROWS = (SCALE, "x2Scale"), (_ROWS, "x1ScaleOptional")
"""Names of the scales of columns and rows, before the fourth version and from it on."""
BITS = (D.INT64, D.UINT64)
FACTORS, OFFSET, GROUP_SIZE = "antiquantScale", "antiquantOffset", "antiquantGroupSize"
_GROUP_STEP = 32
_FLOATS = (D.FLOAT8_E4M3FN, D.HIFLOAT8)
_MORE_FLOATS = (*_FLOATS, D.FLOAT8_E5M2, D.FLOAT4_E2M1)
_ALIGNED = {D.INT8: 32, D.INT4: 64}


def _scale_type(name: str, rows: str) -> Check:
    """Check the type of column scales: plain with row scales or BF16 results, encoded ones otherwise."""

    def violation(call: Call) -> str | None:
        output, got = call["output"].dtype, call[name].dtype
        of_rows = call.arguments.get(rows) is not None
        allowed: Collection[D] = (D.BF16,) if output == D.BF16 else (D.FLOAT,) if of_rows else BITS
        if got in allowed:
            return None
        expected, beside = listing(each.c_name for each in allowed), f" with {rows}" if of_rows else ""
        return f"{name}: expected {expected} for {output.c_name}{beside}, got {got.c_name}"

    return rule(f"type with output: {name}", violation)


def scale_shape(call: Call, name: str) -> str | None:
    """Return an error text for scales that are not per column."""
    n, got = call["x2"].shape[1], call[name].shape
    allowed = dict.fromkeys([*(((1,),) if name not in _SENT else ()), (n,), (1, n)])
    return None if got in allowed else f"expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _format_of_weight(call: Call) -> str | None:
    got, taken = call["x2"].format, call.product not in CLASS_950
    if not got.private or (taken and got == Format.FORMAT_FRACTAL_NZ):
        return None
    return f"x2: expected format ACL_FORMAT_ND{' or ACL_FORMAT_FRACTAL_NZ' * taken}, got {got.c_name}"


def _pair(call: Call) -> str | None:
    first, second = (call[name] for name in _SENT)
    if first is None and second is None:
        return None
    for name, other in (_SENT, _SENT[::-1]):
        if call[name] is None:
            return f"{name}: expected factors with {other}, got null"
    if len(first.shape) == len(second.shape):
        return None
    return f"{_SENT[1]}: expected {len(first.shape)} dimensions (as {_SENT[0]}), got {len(second.shape)}"


def _has_inner(call: Call) -> str | None:
    return None if call["x2"].shape[0] else f"x2: expected rows, got shape {extents(call['x2'].shape)}"


def _integers(numbers: Any) -> Any:
    """Round to INT8 values, as float32; a device rounds to FLOAT16 first."""
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16)
    return np.clip(np.rint(np.nan_to_num(halves, copy=False, posinf=127, neginf=-128)), -128, 127).astype(np.float32)


def product_of_integers(x1: Any, x2: Any, operands: Mapping[str, Any], shape: Shape) -> Any:
    """Multiply, scale columns and rows, and add the addends."""
    scale, product = operands[SCALE], integer_product(x1, x2, shape)
    product += operands.get("bias", operands.get("biasOptional", 0))
    product *= scale if scale.dtype.kind == "f" else product_scale(scale)[0]
    if _ROWS in operands:
        product *= operands[_ROWS].reshape(*shape[:-1], 1)
    product += operands.get("x3", operands.get("x3Optional", 0))
    return product


def _quantized_work(call: Call) -> Library:
    shape, kind = product_shape(call), call["output"].dtype.numpy
    further = given(call, *_SCALES, "bias", "biasOptional", "x3", "x3Optional", *_OF_ROWS, *_SENT)
    names = [{_SCALES[1]: SCALE, _OF_ROWS[1]: _ROWS}.get(name, name) for name in further]

    def reduce(ranks: Ranks, x1: Any, x2: Any, *others: Any) -> Any:
        operands = dict(zip(names, others, strict=True))
        product = product_of_integers(x1, x2, operands, shape)
        if _SENT[0] not in operands:
            return ranks.total(product)
        first, second = (operands[name] for name in _SENT)
        total = ranks.total(_integers(product.astype(kind).astype(np.float32) / first))
        return _integers(total * (first / second)) * second

    return with_ranks(call, reduce, ("x1", "x2", *further), ("output",))


def _reducing(*checks: Check) -> tuple[Check, ...]:
    """Require reduction by sum, and shapes of a product."""
    return (
        known("reduceOp", "sum"),
        one_of("streamMode", 1),
        *checks,
        rule("format of the weight: x2", _format_of_weight),
        dims_between(2, 2, "x2"),
        dims_between(2, 3, "x1"),
        FIT,
        shape_is("the product", product_shape, "output"),
        not_empty("output"),
    )


def _factor_types(later: bool) -> Callable[[Product], Collection[D]]:
    return lambda product: {D.INT8, *(_MORE_FLOATS if later and product in CLASS_950 else ())}


def _quantized(version: int) -> Operator:
    name = f"quant_matmul_all_reduce{f'_v{version}' * (version > 1)}"
    ending, later = "Optional" * (version > 1), version > 3
    bias, x3, scale = f"bias{ending}", f"x3{ending}", _SCALES[later]
    rows, sent = _OF_ROWS[later:][:1] if version > 1 else (), _SENT if version > 2 else ()
    of_rows = "".join(f" * {each}" for each in rows)
    columns = tensor_in(scale, "the scales of columns: numbers, or encoded by aclnnTransQuantParamV2")
    factors = (columns, *(optional_in(each, "the scales of rows") for each in rows))
    zeros = ("groupSize", "commQuantMode") if later else ()
    return Operator(
        name=name,
        summary="Quantized matrix product with dequantization and all-reduce.",
        formula=f"output = sum over ranks of ({scale}{of_rows} * (x1 @ x2 + {bias}) + {x3})",
        parameters=(
            X1,
            X2,
            optional_in(bias, "the bias, added before scaling"),
            optional_in(x3, "the addend of the scaled product"),
            *(factors[::-1] if later else factors),
            *(optional_in(each, "the column scales of the exchanged products") for each in sent[:1]),
            *(optional_in(each, "the column scales of the exchanged sums") for each in sent[1:]),
            group(),
            SUM,
            *((MODE,) if version > 4 else ()),
            TURN,
            STREAM,
            *(attribute(each, Kind.INT64, "0") for each in zeros),
            tensor_out("output", "the sum, on every rank", const=True),
        ),
        support=support((D.INT8,), REDUCING),
        checks=(
            present("x1", "x2", scale, "output"),
            *((no_null("reduceOp"),) if later else ()),
            dtype_in(_factor_types(later), "x1", "x2"),
            *((each("computed", ("x1", "x2"), _uncomputed_factor, ACLNN_ERR_INNER_NULLPTR),) if later else ()),
            dtype_in((*BITS, D.BF16, D.FLOAT), scale),
            dtype_in(HALVES, "output"),
            dtype_in((D.INT32,), bias),
            *(dtype_in((D.FLOAT,), each) for each in rows),
            *(same_dtype(each, "output") for each in (x3, *sent)),
            _scale_type(scale, _OF_ROWS[later]),
            *_reducing(public_format("x1", bias, x3, scale, *rows, *sent, "output")),
            column(bias),
            same_shape(x3, "output"),
            each("factors of columns", (scale, *sent), scale_shape),
            *(shape_is("one for each row", lambda call: (math.prod(call["x1"].shape[:-1]),), each) for each in rows),
            *((rule(f"both or none: {', '.join(sent)}", _pair),) if sent else ()),
            *on(set(REDUCING) - CLASS_950, LAID),
            *((known("commMode", of=REDUCING_ENGINES),) if version > 4 else ()),
            *in_tiling(rule("rows: x2", _has_inner), *(one_of(each, 0) for each in ("commTurn", *zeros))),
            is_group(counts=REDUCING),
        ),
        work=_quantized_work,
        stream_type="const aclrtStream ",
    )


def _uncomputed_factor(call: Call, name: str) -> str | None:
    got = call[name].dtype
    return None if got == D.INT8 else f"expected ACL_INT8 (others are not supported here), got {got.c_name}"


def _group_size(call: Call) -> str | None:
    size, inner = call[GROUP_SIZE], call["x1"].shape[-1]
    if size == 0 or inner == 0 or (size % _GROUP_STEP == 0 and _GROUP_STEP <= size < inner):
        return None
    return f"{GROUP_SIZE}: expected 0 or a multiple of {_GROUP_STEP} from {_GROUP_STEP} to {inner - 1}, got {size}"


def _factor_shape(call: Call, name: str) -> str | None:
    size, (k, n), got = call[GROUP_SIZE], call["x2"].shape, call[name].shape
    if not size:
        return scale_shape(call, name)
    expected = (-(-k // size), n)
    return None if got == expected or k == 0 else f"expected shape {extents(expected)}, got {extents(got)}"


def _laid_as_weight(call: Call, name: str) -> str | None:
    tensor, weight = call[name], call["x2"]
    if len(tensor.shape) < 2 or 1 in tensor.shape or tensor.is_transposed == weight.is_transposed:
        return None
    kind = "transposed" if weight.is_transposed else "contiguous"
    return f"expected strides of a {kind} matrix, as x2 has, got {extents(tensor.strides)}"


def _aligned(call: Call) -> str | None:
    step, shape = _ALIGNED[call["x2"].dtype], call["x2"].shape
    return f"x2: expected multiples of {step}, got {extents(shape)}" if any(size % step for size in shape) else None


WEIGHT = (
    rule(f"group size: {GROUP_SIZE}", _group_size),
    each("factors of the weight", (FACTORS,), _factor_shape),
    same_shape(OFFSET, FACTORS),
    each("even", ("x2",), packed_evenly),
    each("contiguous or transposed", ("x2", FACTORS, OFFSET), laid),
    each("laid as x2", (FACTORS, OFFSET), _laid_as_weight),
)
"""Checks of a weight and its scales; the last but one only on Ascend 950."""


def product_with_weight(call: Call) -> Callable[[Any, Any, Mapping[str, Any]], Any]:
    """Return a function that multiplies by the weight as stored, and adds the addends."""
    dtype, (k, n), strides, _ = call["x2"].layout
    shape, size = product_shape(call), call[GROUP_SIZE] or max(k, 1)

    def multiply(x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
        product = np.zeros(shape, np.float32)
        if k:
            weight, rows = unpacked(x2, (k, n), strides) if dtype == D.INT4 else x2, x1.reshape(-1, k)
            scale, offset = operands[FACTORS], operands.get(OFFSET)
            product = weighted_product(rows, weight, scale, offset, -(-k // size), size).reshape(shape)
        for name in ("bias", "x3"):
            product += operands.get(name, 0)
        return product

    return multiply


def _weight_work(call: Call) -> Library:
    further, multiply = given(call, FACTORS, OFFSET, "bias", "x3"), product_with_weight(call)

    def reduce(ranks: Ranks, x1: Any, x2: Any, *others: Any) -> Any:
        return ranks.total(multiply(x1, x2, dict(zip(further, others, strict=True))))

    return with_ranks(call, reduce, ("x1", "x2", *further), ("output",))


def _weighted(version: str = "") -> Operator:
    name = f"weight_quant_matmul_all_reduce{version}"
    mode: tuple[Parameter, ...] = (MODE,) * bool(version)
    halves = ("x1", FACTORS, OFFSET, "bias", "x3", "output")
    return Operator(
        name=name,
        summary="Matrix product with a quantized weight and all-reduce.",
        formula=f"output = sum over ranks of (x1 @ ((x2 + {OFFSET}) * {FACTORS}) + bias + x3)",
        parameters=(
            X1,
            tensor_in("x2", "the weight"),
            optional_in("bias", "the bias"),
            tensor_in(FACTORS, "the scales of the weight: one, per column, or per group of rows"),
            optional_in(OFFSET, "the offset added to the weight before scaling"),
            optional_in("x3", "the addend of the product"),
            group(),
            SUM,
            *mode,
            TURN,
            STREAM,
            attribute(GROUP_SIZE, Kind.INT64, "the number of weight rows per group; 0: no groups"),
            tensor_out("output", "the sum, on every rank", const=True),
        ),
        support=support(HALVES, REDUCING),
        checks=(
            present("x1", "x2", FACTORS, "output"),
            dtype_in(where_supported(HALVES), "x1"),
            dtype_in(lambda product: {D.INT8, D.INT4, *(_FLOATS if product in CLASS_950 else ())}, "x2"),
            *(same_dtype(each, "x1") for each in halves[1:]),
            value_is(
                "ACL_INT8 or ACL_INT4 (others are not supported here)",
                lambda got: got not in _FLOATS,
                "x2",
                of=lambda got: got.dtype,
                code=ACLNN_ERR_INNER_NULLPTR,
            ),
            *_reducing(public_format(*halves)),
            column("bias"),
            same_shape("x3", "output"),
            *WEIGHT[:-2],
            *on(set(REDUCING) - CLASS_950, WEIGHT[-2]),
            WEIGHT[-1],
            *((known("commMode", of=REDUCING_ENGINES),) if version else ()),
            *in_tiling(*on(CLASS_950, rule("aligned: x2", _aligned)), one_of("commTurn", 0)),
            is_group(counts=REDUCING),
        ),
        work=_weight_work,
        stream_type="const aclrtStream ",
    )


OPERATORS = (*(_quantized(version) for version in range(1, 6)), *(_weighted(version) for version in ("", "_v2")))
