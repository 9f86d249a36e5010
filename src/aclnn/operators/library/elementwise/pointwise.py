"""Functions of three operands: aclnnAddcmul, aclnnAddcdiv, aclnnLerp, clamps, aclnnSWhere, masks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dims_between,
    dtype_in,
    extents,
    floating,
    limited_dims,
    limited_dims_unless_contiguous,
    promotable,
    public_format,
    real,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950
from aclnn.core.promotion import is_floating
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    INTEGERS,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    library_operator,
    promoted_dtype,
    replaced,
    scalar,
    support,
    tensor_in,
    tensor_out,
)

_FIRST, _SECOND = tensor_in("tensor1", "the first factor"), tensor_in("tensor2", "the second factor, or the divisor")
_VALUE = scalar("value", "the factor of the product or quotient")


def _joint(*names: str) -> Callable[[Call], D]:
    """Return a function for the promoted type of tensors, skipping null ones; DT_UNDEFINED if there is none."""
    return lambda call: reduce(promoted_dtype, [call[name].dtype for name in names if call[name] is not None])


def _broadcast_to(out: str, *names: str) -> Check:
    """Require the tensors, except null ones, to broadcast together to the shape of out."""

    def violation(call: Call) -> str | None:
        given = [name for name in names if call[name] is not None]
        shapes = [call[name].shape for name in given]
        if broadcast_shape(*shapes) == call[out].shape:
            return None
        texts = " and ".join(map(extents, shapes))
        return f"{given[-1]}: expected shapes that broadcast to {extents(call[out].shape)} (that of {out}), got {texts}"

    return rule(f"broadcast to {out}: {names[-1]}", violation)


def _fused(
    name: str, symbol: str, summary: str, function: Callable[..., Any], dtypes: Collection[D], public: bool = False
) -> Iterator[Operator]:
    taken = where_supported(dtypes)
    for first, out, words in (("self", "out", ""), ("selfRef", "selfRef", ", in place")):
        tensors = (first, "tensor1", "tensor2")
        in_place, joint = out == first, _joint(*tensors)

        def known(call: Call, tensors: tuple[str, ...] = tensors, joint: Callable[[Call], D] = joint) -> str | None:
            if joint(call) in taken(call.product):
                return None
            names = ", ".join(call[name].dtype.c_name for name in tensors)
            return f"tensor2: expected data types that promote to one that {call.operator.function} takes, got {names}"

        yield library_operator(
            f"inplace_{name}" if in_place else name,
            f"{out} = {first} + value * tensor1 {symbol} tensor2",
            f"{summary}{words}.",
            (
                replaced(const=True) if in_place else tensor_in("self", "the first operand"),
                *(_FIRST, _SECOND, _VALUE),
                *(() if in_place else (tensor_out(),)),
            ),
            (
                dtype_in(taken, *tensors),
                # Any three of floating types and INT64 are supported.
                *([rule("promotable to one that is taken: tensor2", known)] if D.UINT8 in dtypes else []),
                castable_from(joint, out),
                *([public_format(*tensors, out)] if public else []),
                limited_dims(*tensors),
                _broadcast_to(out, *tensors),
            ),
            function,
            header=name,
            dtype=joint,
            dtypes=dtypes,
            products=WITH_TRAINING,
            numbers=("value",),
            fills=True,
        )


_RESULTS = where_supported(REAL_FLOATING)


def _lerps() -> Iterator[Operator]:
    weights = (
        ("lerps", scalar("weight", "0: the first, 1: end"), "lerp_scalar"),
        ("lerp", tensor_in("weight", "0: the first, 1: end"), "lerp_tensor"),
    )
    for (name, weight, header), first in product(weights, ("self", "selfRef")):
        in_place, is_number = first == "selfRef", weight.kind is Kind.SCALAR
        out = first if in_place else "out"
        tensors = (first, "end", *(() if is_number else ("weight",)))
        yield library_operator(
            f"inplace_{name}" if in_place else name,
            f"{out} = {first} + weight * (end - {first})",
            f"Interpolate between two tensors{', into the first' if in_place else ''}.",
            (
                replaced() if in_place else tensor_in("self", "the first operand"),
                *(tensor_in("end", "the second operand"), weight),
                *(() if in_place else (tensor_out(),)),
            ),
            (
                dtype_in(floating, *tensors),
                *(same_dtype(each, first) for each in tensors[1:]),
                *(() if in_place else (dtype_in(_RESULTS, out) if is_number else same_dtype(out, first),)),
                *((real("weight"),) if is_number else ()),
                limited_dims_unless_contiguous(*tensors, out=out),
                _broadcast_to(out, *tensors),
            ),
            _lerp,
            header=header,
            dtypes=FLOATING,
            products=WITH_TRAINING,
        )


def _lerp(self: Any, end: Any, weight: Any) -> Any:
    """Interpolate as PyTorch does, exact at both ends."""
    weight = np.float32(weight) if weight.ndim == 0 else weight
    return np.where(np.abs(weight) < 0.5, self + weight * (end - self), end - (end - self) * (1 - weight))


def _bounded(call: Call) -> str | None:
    if call["clipValueMin"] is None and call["clipValueMax"] is None:
        return "clipValueMin: expected an object where clipValueMax is null, got null"
    return None


def _in_order(call: Call) -> str | None:
    least, greatest = (bound.value for bound in _bounds(call))
    return None if not least > greatest else f"clipValueMin: expected at most {greatest} (clipValueMax), got {least}"


def _bounds(call: Call) -> Iterator[Any]:
    return (call.arguments.get(name) for name in ("clipValueMin", "clipValueMax"))


def _clamp_type(call: Call) -> D:
    """Return the type of the comparison: FLOAT for integers with floating bounds on the 950 class, else out's."""
    dtype: D = call[call.operator.parameters[0].name].dtype
    if call.product not in CLASS_950:
        return call[call.operator.outputs[0].name].dtype
    given = [bound.dtype for bound in _bounds(call) if bound is not None]
    return D.FLOAT if not is_floating(dtype) and any(map(is_floating, given)) else dtype


def _nearest(bound: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a bound to the type of the clamped numbers, saturating at its range."""
    value = np.asarray(bound)
    if {value.dtype.kind, dtype.kind} <= set("iu"):
        limits = np.iinfo(dtype)
        return dtype.type(min(max(int(value), int(limits.min)), int(limits.max)))
    return convert(value, dtype)


def _bounded_by(name: str, summary: str, bounds: tuple[Parameter, ...], header: str = "clamp") -> Operator:
    """Declare a clamp with numbers or tensors as bounds. The upper one wins if the lower exceeds it, as in the kernels.

    An operator whose name begins with ``inplace`` overwrites its argument.
    """
    in_place, by_tensors = name.startswith("inplace"), bounds[0].is_tensor
    first = "selfRef" if in_place else "self"
    out = first if in_place else "out"
    names = tuple(bound.name for bound in bounds)
    required = [bound.name for bound in bounds if not bound.optional]
    joint = _joint(first, *names)

    def work(call: Call) -> Library | None:
        given = [bound for bound in names if call[bound] is not None]
        tensors = (first, *(given if by_tensors else ()))
        if any(call[each].size == 0 for each in tensors):
            return None
        numbers = [] if by_tensors else [call[bound].value for bound in given]

        def clamp(values: Any, *limits: Any) -> Any:
            limits = limits or tuple(_nearest(number, values.dtype) for number in numbers)
            for bound, limit in zip(given, limits, strict=True):
                values = (np.maximum if bound == "clipValueMin" else np.minimum)(values, limit)
            return values

        return Library(clamp, tensors, (out,), joint(call) if by_tensors else _clamp_type(call))

    least = f"max({first}, clipValueMin)" if bounds[0].name == "clipValueMin" else first
    formula = f"min({least}, clipValueMax)" if bounds[-1].name == "clipValueMax" else least
    further: tuple[Check, ...] = (castable_from(joint, out), limited_dims(first), _broadcast_to(out, first, *names))
    if not by_tensors:
        further = (
            *(() if in_place else (same_shape("out", "self"),)),
            limited_dims(first),
            real(*names),
            castable_from(lambda call: _clamp_type(call) if call.product in CLASS_950 else call[first].dtype, out),
        )
    if header == "hardtanh":
        further = (
            *(() if in_place else (same_shape("out", "self"), same_dtype("out", "self"))),
            limited_dims(first),
            dtype_in(_CLAMPED, *names),
            rule(f"bounds in order: {names[0]}", _in_order),
        )
    return Operator(
        name=name,
        summary=summary,
        formula=f"{out} = {formula}",
        parameters=(
            replaced() if in_place else tensor_in("self", "the numbers"),
            *bounds,
            *(() if in_place else (tensor_out(),)),
        ),
        support=support((*REAL_FLOATING, *INTEGERS), WITH_INFERENCE),
        checks=(
            *(() if required else (rule("a bound: clipValueMin", _bounded, ACLNN_ERR_PARAM_NULLPTR),)),
            dtype_in(_CLAMPED, first, out),
            *further,
        ),
        work=work,
        in_header_of=header,
    )


_CLAMPED = where_supported((*REAL_FLOATING, *INTEGERS))
_CHOSEN = (*NUMBERS, *UNSIGNED)
_FUSED = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)


def _limit(kind: Kind, name: str, optional: bool = False) -> Parameter:
    meaning = "the lower bound" if name == "Min" else "the upper bound"
    python_name = f"clip_value_{name.lower()}"
    return Parameter(f"clipValue{name}", python_name, kind, f"{meaning}{'; null: none' if optional else ''}", optional)


_MIN, _MAX = (_limit(Kind.SCALAR, name) for name in ("Min", "Max"))
_MINIMA, _MAXIMA = (_limit(Kind.INPUT, name) for name in ("Min", "Max"))
_FILLED = (D.FLOAT, D.FLOAT16, D.BF16, D.BOOL, D.INT8, D.INT32, D.INT64)


def _masked_fill(name: str, value: Parameter) -> Operator:
    return library_operator(
        name,
        "selfRef = value where mask",
        "Fill elements with a value where a mask is true.",
        (replaced(), tensor_in("mask", "BOOL; broadcasts to selfRef"), value),
        (
            dtype_in(where_supported(_FILLED), "selfRef", *(("value",) if value.is_tensor else ())),
            dtype_in({D.BOOL}, "mask"),
            limited_dims("selfRef", "mask"),
            *((dims_between(0, 0, "value"),) if value.is_tensor else ()),
            broadcastable("mask", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "mask"),
        ),
        lambda self, mask, value: np.where(mask, convert(value.reshape(()), self.dtype), self),
        header=name.removeprefix("inplace_"),
        dtypes=_FILLED,
        empty=("mask",),
    )


OPERATORS = (
    *_fused(
        "addcmul",
        "*",
        "Add a multiple of a product of two tensors",
        lambda self, first, second, value, out=None: np.add(self, value * first * second, out=out),
        (*_FUSED, D.INT8, D.UINT8, D.INT32, D.INT64),
        public=True,
    ),
    *_fused(
        "addcdiv",
        "/",
        "Add a multiple of a quotient of two tensors",
        lambda self, first, second, value, out=None: np.add(self, value * (first / second), out=out),
        (*_FUSED, D.INT64),
    ),
    *_lerps(),
    _bounded_by(
        "clamp",
        "Clamp a tensor between optional bounds.",
        tuple(_limit(Kind.SCALAR, name, optional=True) for name in ("Min", "Max")),
    ),
    _bounded_by("clamp_min", "Clamp a tensor from below.", (_MIN,)),
    _bounded_by("clamp_max", "Clamp a tensor from above.", (_MAX,)),
    _bounded_by("inplace_clamp_max", "Clamp a tensor from above, in place.", (_MAX,)),
    _bounded_by("hardtanh", "Clamp a tensor from below and above.", (_MIN, _MAX), "hardtanh"),
    _bounded_by("inplace_hardtanh", "Clamp a tensor from below and above, in place.", (_MIN, _MAX), "hardtanh"),
    _bounded_by(
        "clamp_tensor",
        "Clamp each element between optional tensors of bounds.",
        tuple(_limit(Kind.INPUT, name, optional=True) for name in ("Min", "Max")),
    ),
    *(
        _bounded_by(f"{where}clamp_{name}_tensor", f"Bound each element from {side}{words}.", (bound,))
        for name, side, bound in (("min", "below", _MINIMA), ("max", "above", _MAXIMA))
        for where, words in (("", ""), ("inplace_", ", in place"))
    ),
    library_operator(
        "s_where",
        "out = self where condition, else other",
        "Select elements from two tensors by a condition.",
        (
            tensor_in("condition", "BOOL or UINT8"),
            tensor_in("self", "the elements selected where condition is true"),
            tensor_in("other", "the elements selected elsewhere"),
            tensor_out(),
        ),
        (
            dtype_in(where_supported(_CHOSEN), "self", "other", "out"),
            dtype_in({D.BOOL, D.UINT8}, "condition"),
            promotable("self", "other"),
            limited_dims("self", "other", "condition"),
            _broadcast_to("out", "self", "other", "condition"),
        ),
        lambda condition, self, other: np.where(condition, self, other),
        dtypes=_CHOSEN,
        empty=("condition", "self", "other"),
    ),
    library_operator(
        "masked_scale",
        "y = self * mask * scale",
        "Multiply by a mask and a scale.",
        (
            tensor_in("self", "the elements"),
            tensor_in("mask", "the mask of zeros and ones; UINT8, INT8, FLOAT16 or FLOAT"),
            Parameter("scale", "scale", Kind.DOUBLE, "the scale"),
            tensor_out("y"),
        ),
        (
            dtype_in(where_supported(FLOATING), "self"),
            dtype_in({D.UINT8, D.INT8, D.FLOAT16, D.FLOAT}, "mask"),
            same_dtype("y", "self"),
            same_shape("mask", "self"),
            same_shape("y", "self"),
        ),
        lambda self, mask, scale: self.astype(np.float64) * mask * scale,
        dtypes=FLOATING,
        products=CLASS_950,
        attributes=("scale",),
    ),
    _masked_fill("inplace_masked_fill_scalar", scalar("value", "the number")),
    _masked_fill("inplace_masked_fill_tensor", tensor_in("value", "the fill value; a 0-dim tensor")),
)
