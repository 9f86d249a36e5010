"""Two products with an activation between: aclnnFFN, aclnnFFNV2 and aclnnFFNV3.

With experts, each takes rows of x that follow one another, and has weights of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    fits,
    listing,
    on,
    public_format,
    restricted,
    rule,
    same_dtype,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import (
    attribute,
    constant_text,
    logistic,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.elementwise.gelu_gate import gelu
from aclnn.operators.library.quantization.four_bits import unpacked
from aclnn.operators.library.quantization.quantization import given, product_scale, whole_bytes
from aclnn.operators.library.quantization.quantized_products import integer_product

_TOKENS, _BY_ENDS = "expertTokensOptional", "tokensIndexFlag"
_BIASES = ("bias1Optional", "bias2Optional")
_SCALE, _OFFSET = "scaleOptional", "offsetOptional"
_PRODUCT_SCALES = ("deqScale1Optional", "deqScale2Optional")
_WEIGHT_SCALES = ("antiquantScale1Optional", "antiquantScale2Optional")
_WEIGHT_OFFSETS = ("antiquantOffset1Optional", "antiquantOffset2Optional")
_QUANTIZING = (_SCALE, _OFFSET, *_PRODUCT_SCALES)
_RESTORING = (*_WEIGHT_SCALES, *_WEIGHT_OFFSETS)
_WEIGHTS = ("weight1", "weight2")
_MOST_INNER = 2**16 - 1
_FLOATS, _INTEGERS, _BITS = (D.FLOAT16, D.BF16), (D.INT8, D.INT4), (D.UINT64, D.INT64)

_ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "fastgelu": lambda x: x * logistic(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * logistic(x),
    "gelu": lambda x: gelu(x, is_tanh=True),
}
_GATES = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu"}
"""Functions of the right half of columns, which is then multiplied by the left."""


def _activation(call: Call) -> str:
    return str(call["activation"]).lower()


def _is_gated(call: Call) -> bool:
    return _activation(call) in _GATES


def _known(call: Call) -> str | None:
    if _activation(call) in (*_ACTIVATIONS, *_GATES):
        return None
    return f"activation: expected {listing((*_ACTIVATIONS, *_GATES))}, got {call['activation']}"


def _has_tensor(call: Call) -> bool:
    return call.operator.parameter(_TOKENS).kind is Kind.INPUT


def _experts(call: Call) -> int:
    """The number of experts; 0 for none."""
    tokens = call[_TOKENS]
    if tokens is None:
        return 0
    return int(tokens.shape[0]) if _has_tensor(call) else len(tokens)


def _by_ends(call: Call) -> bool:
    return bool(call.arguments.get(_BY_ENDS, False))


def _rows(call: Call) -> int:
    return math.prod(call["x"].shape[:-1])


def _tokens_violation(tokens: Sequence[int], by_ends: bool, rows: int) -> str | None:
    previous = 0
    for at, count in enumerate(tokens):
        if count < previous:
            return f"{_TOKENS}[{at}]: expected at least {previous}, got {count}"
        if by_ends:
            previous = count
    total = tokens[-1] if by_ends else sum(tokens)
    return None if total == rows else f"{_TOKENS}: expected {rows} rows in all (those of x), got {total}"


def _tokens(call: Call) -> str | None:
    if not _experts(call):
        return None
    return _tokens_violation([int(count) for count in call[_TOKENS]], _by_ends(call), _rows(call))


def _weight_dims(call: Call, name: str) -> str | None:
    expected, got = 3 if _experts(call) else 2, len(call[name].shape)
    if got == expected:
        return None
    return f"expected {expected} dimensions with{'out' * (not _experts(call))} experts, got {got}"


def _fitting(call: Call) -> str | None:
    inner, (rows, columns), last = call["x"].shape[-1], call["weight1"].shape[-2:], call["weight2"].shape[-2:]
    if rows != inner:
        return f"weight1: expected {inner} rows (the columns of x), got {rows}"
    if _is_gated(call):
        if columns % 2:
            return f"weight1: expected an even number of columns, got {columns}"
        if last[0] != columns // 2:
            return f"weight2: expected {columns // 2} rows (half the columns of weight1), got {last[0]}"
    elif last != (columns, rows):
        return f"weight2: expected {columns} rows and {rows} columns, got {extents(last)}"
    return None


def _of_experts(call: Call, name: str) -> str | None:
    expected, got = _experts(call), call[name].shape[0]
    return None if not expected or got == expected else f"expected {expected} in dimension 0 (experts), got {got}"


def _columns(call: Call, which: int) -> Shape:
    """The shape of what has an element for each column of a weight."""
    experts, columns = _experts(call), call[_WEIGHTS[which]].shape[-1]
    return (experts, columns) if experts else (columns,)


def _of_columns(names: tuple[str, str]) -> Check:
    def violation(call: Call, name: str) -> str | None:
        expected, got = _columns(call, names.index(name)), call[name].shape
        return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"

    return each("an element for each column", names, violation)


def _groups(call: Call, which: int) -> int:
    """The groups of rows of a weight that have scales of their own."""
    shape = call[_WEIGHT_SCALES[which]].shape
    return int(shape[-2]) if len(shape) > len(_columns(call, which)) else 1


def _restoring_shape(call: Call, name: str) -> str | None:
    which, got = (name.endswith("2Optional"), call[name].shape)
    columns, weight = _columns(call, which), call[_WEIGHTS[which]]
    rank = len(call[_WEIGHT_SCALES[0]].shape)
    if got == columns and rank == len(columns):
        return None
    if weight.dtype == D.INT4 and len(got) == rank == len(columns) + 1:
        groups = got[-2]
        if got == (*columns[:-1], groups, columns[-1]) and groups and weight.shape[-2] % groups == 0:
            return None
    expected = f"shape {extents(columns)}" + ", or of groups of rows of INT4" * (weight.dtype == D.INT4)
    return f"expected {expected}, in both weights, got {extents(got)}"


def _same_as_scale(call: Call, name: str) -> str | None:
    expected = call[_WEIGHT_SCALES[_WEIGHT_OFFSETS.index(name)]].shape
    got = call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (that of the scale), got {extents(got)}"


def _smoothing(call: Call) -> str | None:
    experts, columns, got = _experts(call), call["weight1"].shape[-1], call[_SCALE].shape
    whole, each_column = ((experts,), (experts, columns)) if experts else ((1,), (columns,))
    if got == whole:
        return None
    if got != each_column:
        return f"{_SCALE}: expected shape {extents(whole)} or {extents(each_column)}, got {extents(got)}"
    deq = call[_PRODUCT_SCALES[0]].dtype
    if deq in (*_BITS, D.BF16):
        return None
    return f"{_PRODUCT_SCALES[0]}: expected no scales of ACL_FLOAT with a scale for each column, got {deq.c_name}"


def _bias_dtype(call: Call, name: str) -> str | None:
    expected = {D.FLOAT16: D.FLOAT16, D.BF16: D.FLOAT, D.INT8: D.INT32}[call["x"].dtype]
    got = call[name].dtype
    return None if got == expected else f"expected data type {expected.c_name} with such x, got {got.c_name}"


def _deq_dtype(call: Call, name: str) -> str | None:
    allowed = (D.BF16,) if call["y"].dtype == D.BF16 else (*_BITS, D.FLOAT)
    got, other = call[name].dtype, call[_PRODUCT_SCALES[0]].dtype
    if got in allowed and got == other:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)}, the same in both, got {got.c_name}"


def _weight_dtype(call: Call) -> str | None:
    x, got = call["x"].dtype, call["weight1"].dtype
    allowed = (D.INT8,) if x == D.INT8 else (x, *_INTEGERS)
    if got in allowed:
        return None
    names = listing(dtype.c_name for dtype in allowed)
    return f"weight1: expected data type {names} with {x.c_name}, got {got.c_name}"


def _result_dtype(call: Call) -> str | None:
    x, got = call["x"].dtype, call["y"].dtype
    allowed = _FLOATS if x == D.INT8 else (x,)
    if got in allowed:
        return None
    names = listing(dtype.c_name for dtype in allowed)
    return f"y: expected data type {names} with x of {x.c_name}, got {got.c_name}"


def _is_quantized(call: Call) -> bool:
    return bool(call["x"].dtype == D.INT8)


def _is_restored(call: Call) -> bool:
    return not _is_quantized(call) and call["weight1"].dtype in _INTEGERS


def _is_plain(call: Call) -> bool:
    return not _is_quantized(call) and not _is_restored(call)


def _needed(names: Sequence[str]) -> Check:
    check = present(*names)
    return replace(check, name=check.name.replace("present", "needed here", 1), code=ACLNN_ERR_PARAM_INVALID)


_INFERENCE = {Product.ATLAS_INFERENCE}


def _is_of_halves(call: Call) -> bool:
    return call.product in _INFERENCE or _is_gated(call)


def _halves(call: Call, name: str) -> str | None:
    got = call[name].dtype
    return None if got == D.FLOAT16 else f"expected data type ACL_FLOAT16 here, got {got.c_name}"


def _no_experts(call: Call) -> str | None:
    got = _experts(call)
    return f"{_TOKENS}: expected no experts with such an activation or product, got {got}" if got else None


def _no_gate(call: Call) -> str | None:
    if not _is_gated(call):
        return None
    return f"activation: expected {listing(_ACTIVATIONS)} on this product, got {call['activation']}"


def _precision(call: Call) -> str | None:
    got, allowed = call["innerPrecise"], [0, 1]
    if _is_of_halves(call):
        allowed = [1]
    elif _is_plain(call) and call["x"].dtype == D.BF16:
        allowed = [0]
    return None if got in allowed else f"innerPrecise: expected {listing(map(str, allowed))} here, got {got}"


def _unused(call: Call, name: str) -> str | None:
    used = _QUANTIZING if _is_quantized(call) else _RESTORING if _is_restored(call) else ()
    return None if name in used else "expected null with such x and weights, got a tensor"


def _read(stored: Any, tensor: Any) -> Any:
    return unpacked(stored, tensor.shape) if tensor.dtype == D.INT4 else stored


def _restored(weight: Any, scale: Any, offset: Any, groups: int) -> Any:
    rows, columns = weight.shape
    grouped = weight.reshape(groups, rows // groups, columns).astype(scale.dtype)
    wide_scale, wide_offset = (each.reshape(groups, 1, columns) for each in (scale, offset))
    return ((grouped + wide_offset) * wide_scale).reshape(rows, columns)


def _activate(activation: str, x: Any) -> Any:
    if activation not in _GATES:
        return _ACTIVATIONS[activation](x)
    left, right = np.split(x, 2, axis=-1)
    return left * _ACTIVATIONS[_GATES[activation]](right)


def _expert(call: Call) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Return what computes rows with one expert's weights, scales and offsets."""
    activation, quantized = _activation(call), _is_quantized(call)
    groups = [_groups(call, which) for which in (0, 1)] if _is_restored(call) else None
    has_bits = quantized and call[_PRODUCT_SCALES[0]].dtype in _BITS

    def multiply(rows: Any, of: Mapping[str, Any], which: int) -> Any:
        weight, bias = of[_WEIGHTS[which]], of.get(_BIASES[which], 0)
        if quantized:
            scale = of[_PRODUCT_SCALES[which]]
            total = integer_product(rows, weight, (len(rows), weight.shape[1])) + bias
            return total * (product_scale(scale)[0] if has_bits else scale)
        if groups is not None:
            weight = _restored(weight, of[_WEIGHT_SCALES[which]], of[_WEIGHT_OFFSETS[which]], groups[which])
        return rows @ weight + bias

    def compute(rows: Any, of: Mapping[str, Any]) -> Any:
        middle = _activate(activation, multiply(rows, of, 0))
        if quantized:
            middle = np.clip(np.rint(middle * of[_SCALE] + of[_OFFSET]), -128, 127)
        return multiply(middle, of, 1)

    return compute


def _work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    experts, by_ends, rows, dims = _experts(call), _by_ends(call), _rows(call), call["y"].shape
    from_tensor = experts > 0 and _has_tensor(call)
    sizes = [int(count) for count in call[_TOKENS]] if experts and not from_tensor else []
    used = (_SCALE, _OFFSET, *_PRODUCT_SCALES, *_RESTORING)
    names = ("x", *_WEIGHTS, *given(call, *_BIASES, *used), *((_TOKENS,) if from_tensor else ()))
    tensors, expert = [call[name] for name in names], _expert(call)

    def compute(*operands: Any) -> Any:
        of = {name: _read(*each) for name, *each in zip(names, operands, tensors, strict=True)}
        x = of.pop("x").reshape(rows, -1)
        if not experts:
            return expert(x, of).reshape(dims)
        tokens: list[int] = of.pop(_TOKENS).tolist() if from_tensor else sizes
        violation = _tokens_violation(tokens, by_ends, rows)
        if violation is not None:
            raise IndexError(violation)
        ends = np.asarray(tokens) if by_ends else np.cumsum(tokens)
        parts = np.split(x, ends[:-1])
        results = [expert(part, {name: each[at] for name, each in of.items()}) for at, part in enumerate(parts)]
        return np.concatenate(results).reshape(dims)

    return Library(compute, names, ("y",))


def _feed_forward(version: int) -> Operator:
    function = "aclnnFFN" + (f"V{version}" if version > 1 else "")
    products = A2_CLASS if version == 1 else A2_CLASS | _INFERENCE
    kind = Kind.INPUT if version == 3 else Kind.INT_ARRAY
    later = (attribute(_BY_ENDS, Kind.BOOL, "true: cumulative row counts of the experts"),) if version > 1 else ()
    nowhere = with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT) if version == 1 else ()
    of_tokens = (dtype_in({D.INT64}, _TOKENS), dims_between(1, 1, _TOKENS)) if version == 3 else ()
    return Operator(
        name="ffn" + (f"_v{version}" if version > 1 else ""),
        function=function,
        summary="Multiply by two weights, or two for each expert, with an activation between.",
        formula="y = activation(x @ weight1 + bias1) @ weight2 + bias2; of INT8: y = (rint(activation((x @ weight1 + "
        "bias1) * deqScale1) * scale + offset) @ weight2 + bias2) * deqScale2",
        parameters=(
            tensor_in("x", "the rows"),
            tensor_in("weight1", "the first weight"),
            tensor_in("weight2", "the second weight"),
            Parameter(_TOKENS, _TOKENS, kind, "how many rows each expert takes, in order", optional=True),
            *(optional_in(name, "added to the product") for name in _BIASES),
            optional_in(_SCALE, "factors with which what is between is quantised"),
            optional_in(_OFFSET, "added to it then"),
            *(optional_in(name, "factors of the product of integers") for name in _PRODUCT_SCALES),
            *(optional_in(name, "factors of a weight of integers") for name in _WEIGHT_SCALES),
            *(optional_in(name, "added to the weight before") for name in _WEIGHT_OFFSETS),
            constant_text("activation", "fastgelu, relu, silu, gelu, geglu, swiglu or reglu"),
            attribute("innerPrecise", Kind.INT64, "0: for precision, 1: for speed; computed the same"),
            *later,
            tensor_out("y", "the result", const=True),
        ),
        support=support((*_FLOATS, D.INT8), products),
        checks=(
            *on(_INFERENCE, *nowhere),
            rule("known: activation", _known),
            present("x", "weight1", "weight2", "y"),
            *of_tokens,
            *(() if version == 3 else (rule(f"as many as x has: {_TOKENS}", _tokens),)),
            public_format("x", *_WEIGHTS, *_BIASES, *_QUANTIZING, *_RESTORING, "y"),
            fits("{} dimensions (as many as x)", lambda call, got: (len(call["x"].shape), len(got.shape)), "y"),
            dims_between(2, 8, "x"),
            each("dimensions of a weight", _WEIGHTS, _weight_dims),
            value_is(
                f"at most {_MOST_INNER} rows", lambda got: got <= _MOST_INNER, *_WEIGHTS, of=lambda got: got.shape[-2]
            ),
            rule("shapes that go together: weight1, weight2", _fitting),
            each("of each expert", _WEIGHTS, _of_experts),
            _of_columns(_BIASES),
            *(() if version == 1 else on(_INFERENCE, dims_between(2, 2, "x"), rule("no gate: activation", _no_gate))),
            same_dtype("weight2", "weight1"),
            *restricted(
                "with a gate or on Atlas inference",
                _is_of_halves,
                each("of halves alone", ("x", "weight1", *_BIASES, "y"), _halves),
                rule(f"no experts: {_TOKENS}", _no_experts),
            ),
            dtype_in({*_FLOATS, D.INT8}, "x"),
            rule("data type with x: y", _result_dtype),
            rule("data type with x: weight1", _weight_dtype),
            rule("for speed or precision: innerPrecise", _precision),
            each("used here", (*_QUANTIZING, *_RESTORING), _unused),
            each("data type with x", _BIASES, _bias_dtype),
            *restricted(
                "of INT8",
                _is_quantized,
                _needed(_QUANTIZING),
                each("data type with y", _PRODUCT_SCALES, _deq_dtype),
                dtype_in({D.FLOAT}, _SCALE, _OFFSET),
                _of_columns(_PRODUCT_SCALES),
                rule(f"for each expert or column: {_SCALE}", _smoothing),
                fits("shape {}", lambda call, got: ((_experts(call) or 1,), got.shape), _OFFSET),
            ),
            *restricted(
                "weights of integers",
                _is_restored,
                _needed(_RESTORING),
                *(same_dtype(name, "x") for name in _RESTORING),
                each("for each column", _WEIGHT_SCALES, _restoring_shape),
                each("as the scale", _WEIGHT_OFFSETS, _same_as_scale),
            ),
            whole_bytes(*_WEIGHTS),
            fits("shape {}", lambda call, got: ((*call["x"].shape[:-1], call["weight2"].shape[-1]), got.shape), "y"),
            *elsewhere(_INFERENCE, KERNEL_OF_THE_PRODUCT),
        ),
        work=_work,
    )


OPERATORS = tuple(map(_feed_forward, (1, 2, 3)))
