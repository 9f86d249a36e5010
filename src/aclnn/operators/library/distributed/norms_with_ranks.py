"""RMSNorm of an addend plus the all-reduced product: aclnnMatmulAllReduceAddRmsNorm and its quantised variants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    has_zero,
    listing,
    one_of,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import Product
from aclnn.operators.library.common import attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.distributed.products_with_ranks import (
    FIT,
    HALVES,
    HAS_COLUMNS,
    LAID,
    REDUCING,
    STREAM,
    SUM,
    TURN,
    X1,
    X2,
    in_tiling,
    known,
    product_of,
    product_shape,
)
from aclnn.operators.library.distributed.quantized_products_with_ranks import (
    BITS,
    FACTORS,
    GROUP_SIZE,
    OFFSET,
    SCALE,
    WEIGHT,
    product_of_integers,
    product_with_weight,
    scale_shape,
)
from aclnn.operators.library.distributed.ranks import group, is_group, with_ranks
from aclnn.operators.library.quantization.quantization import given
from aclnn.operators.library.quantization.quantized_norms import reciprocal_rms
from aclnn.runtime.collectives import Ranks

_COUNTS = {Product.ATLAS_A2: REDUCING[Product.ATLAS_A2]}
_Multiply = Callable[[Any, Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class _Form:
    """Variant for some data types of the factors: additional tensors, checks and product."""

    prefix: str
    formula: str
    taken: Collection[D]
    further: tuple[Parameter, ...]
    types: tuple[Check, ...]
    tiling: tuple[Check, ...]
    multiply: Callable[[Call], _Multiply]
    last: tuple[Parameter, ...] = ()

    @property
    def scales(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.further if not each.optional)


def _rows_of_residual(call: Call) -> str | None:
    expected, (batch, rows, _) = call["x1"].shape[:-1], call["residual"].shape
    if (batch * rows,) == expected or (batch, rows) == expected:
        return None
    return f"residual: expected as many rows as x1, {extents(expected)}, got {extents((batch, rows))}"


def _scale_type(call: Call) -> str | None:
    residual, got = call["residual"].dtype, call[SCALE].dtype
    allowed: Collection[D] = (D.BF16,) if residual == D.BF16 else BITS
    if got in allowed:
        return None
    return f"{SCALE}: expected {listing(each.c_name for each in allowed)} with {residual.c_name}, got {got.c_name}"


def _operator(form: _Form, in_place: bool) -> Operator:
    """Declare a function whose sum is an output of its own, or replaces the addend."""
    total = "residual" if in_place else "y"
    outputs = (total, "normOut")
    name = f"{'inplace_' * in_place}{form.prefix}matmul_all_reduce_add_rms_norm"
    further = tuple(each.name for each in form.further)
    required = ("x1", "x2", "residual", "gamma", *form.scales)

    def work(call: Call) -> Library | None:
        if any(has_zero(call[each].shape) for each in required):
            return None
        optional, multiply = given(call, *further, "bias"), form.multiply(call)
        epsilon, shape = float32(call["epsilon"]), call["residual"].shape

        def normalize(ranks: Ranks, x1: Any, x2: Any, residual: Any, gamma: Any, *others: Any) -> tuple[Any, Any]:
            product = multiply(x1, x2, dict(zip(optional, others, strict=True)))
            y = ranks.total(product).reshape(shape).astype(np.float64) + residual
            return y, y * reciprocal_rms(y, (-1,), epsilon) * gamma

        return with_ranks(call, normalize, ("x1", "x2", "residual", "gamma", *optional), outputs)

    return Operator(
        name=name,
        summary="All-reduced matrix product with residual addition and RMSNorm.",
        formula=f"{total} = sum over ranks of ({form.formula}) + residual, normOut = {total} / RMS({total}) * gamma",
        parameters=(
            X1,
            X2,
            optional_in("bias", "the bias"),
            *form.further,
            tensor_out("residual", "the residual, replaced by the sum", const=True)
            if in_place
            else tensor_in("residual", "the addend of the sum"),
            tensor_in("gamma", "the weight of columns"),
            attribute("epsilon", Kind.DOUBLE, "between 0 and 1, added to the mean square; rounded to float32"),
            group(),
            SUM,
            TURN,
            STREAM,
            *form.last,
            *(() if in_place else (tensor_out("y", "the sum", const=True),)),
            tensor_out("normOut", "the normalized sum", const=True),
        ),
        support=support(form.taken, _COUNTS),
        checks=(
            present(*dict.fromkeys((*required, *outputs))),
            dims_between(2, 2, "x2"),
            dims_between(2, 3, "x1"),
            dims_between(3, 3, "residual"),
            FIT,
            fits("{} columns (those of x2)", lambda call, got: (call["x2"].shape[1], got.shape[2]), "residual"),
            HAS_COLUMNS,
            *unless_empty(
                required,
                one_of("streamMode", 1),
                *form.types,
                *(same_dtype(each, "residual") for each in ("gamma", "normOut", *outputs[:1]) if each != "residual"),
                public_format("x1", "x2", "bias", *further, "residual", "gamma", *outputs[:1], "normOut"),
                *in_tiling(
                    shape_is("one for each column", lambda call: (call["x2"].shape[1],), "gamma", "bias"),
                    *(same_shape(each, "residual") for each in ("normOut", *outputs[:1]) if each != "residual"),
                    rule("as many rows as x1: residual", _rows_of_residual),
                    value_is("a number between 0 and 1", lambda got: 0 < float32(got) < 1, "epsilon"),
                    known("reduceOp", "sum"),
                    one_of("commTurn", 0),
                    *form.tiling,
                ),
                is_group(counts=_COUNTS),
            ),
        ),
        work=work,
        stream_type="const aclrtStream ",
    )


def _integers(call: Call) -> _Multiply:
    shape = product_shape(call)
    return lambda x1, x2, operands: product_of_integers(x1, x2, operands, shape)


_FORMS = (
    _Form(
        "",
        "x1 @ x2 + bias",
        HALVES,
        (),
        (dtype_in(HALVES, "x1"), *(same_dtype(each, "x1") for each in ("x2", "bias", "residual"))),
        (LAID,),
        lambda call: product_of,
    ),
    _Form(
        "quant_",
        f"{SCALE} * (x1 @ x2 + bias)",
        (D.INT8,),
        (tensor_in(SCALE, "the scales of columns: numbers, or encoded by aclnnTransQuantParamV2"),),
        (
            dtype_in((D.INT8,), "x1", "x2"),
            dtype_in((D.INT32,), "bias"),
            dtype_in(HALVES, "residual"),
            dtype_in((*BITS, D.BF16), SCALE),
            rule(f"type with residual: {SCALE}", _scale_type),
        ),
        (each("factors of columns", (SCALE,), scale_shape), LAID),
        _integers,
    ),
    _Form(
        "weight_quant_",
        f"x1 @ ((x2 + {OFFSET}) * {FACTORS}) + bias",
        HALVES,
        (
            tensor_in(FACTORS, "the scales of the weight: one, per column, or per group of rows"),
            optional_in(OFFSET, "the offset added to the weight before scaling"),
        ),
        (
            dtype_in(HALVES, "x1"),
            dtype_in((D.INT8, D.INT4), "x2"),
            *(same_dtype(each, "x1") for each in (FACTORS, OFFSET, "bias", "residual")),
        ),
        WEIGHT,
        product_with_weight,
        (attribute(GROUP_SIZE, Kind.INT64, "the number of weight rows per group; 0: no groups"),),
    ),
)

OPERATORS = tuple(_operator(form, in_place) for form in _FORMS for in_place in (False, True))
