"""aclnnInplaceAddcmul, aclnnInplaceAddcdiv, aclnnInplaceLerps, aclnnClamp, aclnnInplaceMaskedFillScalar."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    extents,
    floating,
    limited_dims,
    present,
    real,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950
from aclnn.core.promotion import is_floating, promote
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    INTEGERS,
    REAL_FLOATING,
    WITH_INFERENCE,
    WITH_TRAINING,
    camel,
    library_operator,
    scalar,
    support,
    tensor_in,
    tensor_out,
)

_FIRST, _SECOND = tensor_in("tensor1", "the first factor"), tensor_in("tensor2", "the second, or the divisor")
_VALUE = scalar("value", "the factor of the product or quotient")


def _replaced(const: bool = False) -> Parameter:
    return tensor_out("selfRef", "the first operand, replaced by the result", const)


def _joint(call: Call) -> D:
    dtypes: list[D] = [call[name].dtype for name in ("selfRef", "tensor1", "tensor2")]
    return reduce(_promoted, dtypes)


def _promoted(first: D, second: D) -> D:
    found = promote(first, second)
    return D.DT_UNDEFINED if found is None else found


def _fused(name: str, symbol: str, summary: str, function: Callable[..., Any], dtypes: Collection[D]) -> Operator:
    taken = where_supported(dtypes)

    def joint(call: Call) -> str | None:
        if _joint(call) in taken(call.product):
            return None
        names = ", ".join(call[name].dtype.c_name for name in ("selfRef", "tensor1", "tensor2"))
        return f"tensor2: expected data types that promote to one that {call.operator.function} takes, got {names}"

    def shape(call: Call) -> str | None:
        shapes = [call[name].shape for name in ("selfRef", "tensor1", "tensor2")]
        if broadcast_shape(*shapes) == shapes[0]:
            return None
        texts = " and ".join(map(extents, shapes[1:]))
        return f"tensor2: expected shapes that broadcast to {extents(shapes[0])} (that of selfRef), got {texts}"

    return library_operator(
        name,
        f"selfRef = selfRef + value * tensor1 {symbol} tensor2",
        summary,
        (_replaced(const=True), _FIRST, _SECOND, _VALUE),
        (
            present("selfRef", "tensor1", "tensor2", "value"),
            dtype_in(taken, "selfRef", "tensor1", "tensor2"),
            # Of floating types and INT64 any three do.
            *([rule("promotable to one that is taken: tensor2", joint)] if D.UINT8 in dtypes else []),
            castable_from(_joint, "selfRef"),
            limited_dims("selfRef", "tensor1", "tensor2"),
            rule("broadcast to selfRef: tensor2", shape),
        ),
        function,
        header=name.removeprefix("inplace_"),
        dtype=_joint,
        dtypes=dtypes,
        products=WITH_TRAINING,
    )


def _bounded(call: Call) -> str | None:
    if call["clipValueMin"] is None and call["clipValueMax"] is None:
        return "clipValueMin: expected an object where clipValueMax is null, got null"
    return None


def _clamp_type(call: Call) -> D:
    """On the 950 class integers between floating bounds are compared as FLOAT; elsewhere out's type decides."""
    dtype: D = call["self"].dtype
    if call.product not in CLASS_950:
        return call["out"].dtype
    bounds = [call[name].dtype for name in ("clipValueMin", "clipValueMax") if call[name] is not None]
    return D.FLOAT if not is_floating(dtype) and any(map(is_floating, bounds)) else dtype


def _clamp(call: Call) -> Callable[..., Any]:
    low, high = (None if call[name] is None else call[name].value for name in ("clipValueMin", "clipValueMax"))

    def clamp(values: Any) -> Any:
        if low is not None:
            values = np.maximum(values, np.asarray(low).astype(values.dtype))
        if high is not None:
            values = np.minimum(values, np.asarray(high).astype(values.dtype))
        return values

    return clamp


def _clamp_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    return Library(_clamp(call), ("self",), ("out",), _clamp_type(call))


_CLAMPED = where_supported((*REAL_FLOATING, *INTEGERS))
_FUSED = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)

OPERATORS = (
    _fused(
        "inplace_addcmul",
        "*",
        "Add a multiple of a product of two tensors, in place.",
        lambda self, first, second, value: self + value * first * second,
        (*_FUSED, D.INT8, D.UINT8, D.INT32, D.INT64),
    ),
    _fused(
        "inplace_addcdiv",
        "/",
        "Add a multiple of a quotient of two tensors, in place.",
        lambda self, first, second, value: self + value * (first / second),
        (*_FUSED, D.INT64),
    ),
    library_operator(
        "inplace_lerps",
        "selfRef = selfRef + weight * (end - selfRef)",
        "Interpolate between two tensors, into the first.",
        (_replaced(), tensor_in("end", "the second operand"), scalar("weight", "0: selfRef, 1: end")),
        (
            present("selfRef", "end", "weight"),
            dtype_in(floating, "selfRef", "end"),
            same_dtype("end", "selfRef"),
            real("weight"),
            broadcastable("end", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "end"),
            limited_dims("selfRef", "end"),
        ),
        lambda self, end, weight: self + np.float32(weight) * (end - self),
        header="lerp_scalar",
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16),
        products=WITH_TRAINING,
    ),
    Operator(
        name="clamp",
        function=camel("clamp"),
        summary="Bound a tensor from below, above or both.",
        formula="out = min(max(self, clipValueMin), clipValueMax)",
        parameters=(
            tensor_in("self", "the numbers"),
            Parameter("clipValueMin", "clip_value_min", Kind.SCALAR, "the least; null: none", optional=True),
            Parameter("clipValueMax", "clip_value_max", Kind.SCALAR, "the greatest; null: none", optional=True),
            tensor_out(),
        ),
        support=support((*REAL_FLOATING, *INTEGERS), WITH_INFERENCE),
        checks=(
            present("self", "out"),
            rule("a bound: clipValueMin", _bounded, ACLNN_ERR_PARAM_NULLPTR),
            dtype_in(_CLAMPED, "self", "out"),
            same_shape("out", "self"),
            limited_dims("self"),
            real("clipValueMin", "clipValueMax"),
            castable_from(lambda call: _clamp_type(call) if call.product in CLASS_950 else call["self"].dtype, "out"),
        ),
        work=_clamp_work,
        in_header_of="clamp",
    ),
    library_operator(
        "inplace_masked_fill_scalar",
        "selfRef = value where mask",
        "Overwrite a tensor where a mask is true.",
        (_replaced(), tensor_in("mask", "BOOL; broadcasts to selfRef"), scalar("value", "the number")),
        (
            present("selfRef", "mask", "value"),
            dtype_in(where_supported((D.FLOAT, D.FLOAT16, D.BF16, D.BOOL, D.INT8, D.INT32, D.INT64)), "selfRef"),
            dtype_in(lambda product: {D.BOOL}, "mask"),
            limited_dims("selfRef", "mask"),
            broadcastable("mask", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "mask"),
        ),
        lambda self, mask, value: np.where(mask, convert(np.asarray(value), self.dtype), self),
        header="masked_fill_scalar",
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16, D.BOOL, D.INT8, D.INT32, D.INT64),
        empty=("mask",),
    ),
)
