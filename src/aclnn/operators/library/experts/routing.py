"""Routes to experts, as inference takes them: aclnnMoeInitRouting, later versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    generated,
    listing,
    nothing_to_write,
    on,
    one_of,
    only_if,
    public_format,
    rule,
    same_shape,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, expect_within, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import MOST, quantized, whole_bytes

_MOST_EXPERTS, _MOST_LISTED_EXPERTS, _MOST_COUNTED, _MOST_SORTED = 10240, 5120, 2048, 2**24 - 1
_COUNTS, _BEFORE = "expertTokensCountOrCumsumOut", "expertTokensBeforeCapacityOut"
_RANGE, _SCALE, _OFFSET = "activeExpertRangeOptional", "scaleOptional", "offsetOptional"
_SCALES = "dynamicQuantScaleOutOptional"
_UNQUANTIZED, _STATIC, _DYNAMIC, _MOST_MODES = -1, 0, 1, 17
_TAKEN = {**support((*FLOATING, D.INT8), A2_CLASS), **support((*FLOATING, D.INT8, D.HIFLOAT8), CLASS_950)}
#: Kinds of counts in V3: cumulative sums, counts, (expert, count) pairs. V2's values are 1 higher; its 0 means none.
_SUMS, _NUMBERS, _PAIRS = range(3)


def _in_order(experts: Any, first: int, last: int) -> tuple[Any, Any]:
    """Return the stable sort order of experts, those before the range last, and the sorted experts in the range."""
    flat = experts.reshape(-1)
    order = np.argsort(np.where(flat < first, np.iinfo(flat.dtype).max, flat), kind="stable")
    return order, flat[order[: np.count_nonzero((flat >= first) & (flat < last))]]


def _rows_for(experts: Any, capacity: int) -> Any:
    """Return the rows of sorted experts: consecutive, or ``capacity`` rows per expert with -1 for dropped tokens."""
    rows = np.arange(len(experts))
    if not capacity:
        return rows
    place = rows - np.searchsorted(experts, experts)
    return np.where(place < capacity, experts * capacity + place, -1)


def _spread(values: Any, rows: Any, shape: Sequence[int]) -> Any:
    """Scatter values into rows of a new array of zeros; -1 and rows beyond the array are skipped."""
    result = np.zeros(shape, values.dtype)
    kept = (rows >= 0) & (rows < len(result))
    result[rows[kept]] = values[kept]
    return result


def _mode(call: Call) -> int:
    return int(call.arguments.get("quantMode", _UNQUANTIZED))


def _factors(call: Call) -> tuple[str, ...]:
    """Return the given tensors of scales and offsets, by which tokens are quantised or which are routed with them."""
    asked = (_SCALE, _OFFSET) if _mode(call) == _STATIC else (_SCALE,)
    return tuple(name for name in asked if call.arguments.get(name) is not None)


def _taken(call: Call, tokens: Any, groups: Any, scale: Any, offset: Any) -> tuple[Any, Any]:
    """Return the experts' rows, INT8 if quantised, and their scales if quantised dynamically.

    Args:
        call: the call, whose attributes select the quantisation.
        tokens: the values of the rows.
        groups: row of ``scale`` for each row.
        scale: scales with one row for all experts or one per expert; None for 1.
        offset: zero point of static quantisation.
    """
    mode = _mode(call)
    if mode == _UNQUANTIZED:
        return tokens, None
    if scale is not None:
        tokens = tokens * (scale[groups] if len(scale) > 1 else scale)
    if mode == _STATIC:
        return quantized(tokens + offset, D.INT8), None
    largest = np.max(np.abs(tokens), -1, keepdims=True, initial=0.0)
    scales = (largest / MOST[call["expandedXOut"].dtype]).astype(np.float32)
    return quantized(tokens / scales, D.INT8), scales[:, 0]


def _stored(call: Call, expanded: Any) -> Any:
    return quantized(expanded, D.INT4) if call["expandedXOut"].dtype == D.INT4 else expanded


def _is_padded(call: Call) -> bool:
    return bool(call["dropPadMode"] == 1)


def _tokens(call: Call) -> int:
    return int(call["x"].shape[0])


def _chosen(call: Call) -> int:
    """Return the number of experts per token."""
    shape = call["expertIdx"].shape
    return int(shape[1]) if len(shape) > 1 else 1


def _as_many_rows(call: Call) -> str | None:
    expected, got = _tokens(call), call["expertIdx"].shape
    return None if got[0] == expected else f"expertIdx: expected {expected} rows (as many as x), got {extents(got)}"


def _capacity(call: Call) -> str | None:
    most, got = _tokens(call), call["expertCapacity"]
    if not _is_padded(call) or 1 <= got <= most:
        return None
    return f"expertCapacity: expected from 1 to {most} (the rows of x) with dropPadMode 1, got {got}"


def _expanded_shape(call: Call) -> tuple[int, ...]:
    columns = int(call["x"].shape[1])
    if _is_padded(call):
        return call["expertNum"], call["expertCapacity"], columns
    return _expanded_rows(call), columns


def _expanded_rows(call: Call) -> int:
    total, active = call["expertIdx"].size, call["activeNum"]
    if active < 1 and "expertTokensBeforeCapacityFlag" in call.arguments:
        active += total  # which is negative on the 950 products alone
    elif active < 1:
        active = total
    return max(0, min(active, total))


def at_least(name: str, least: int) -> Check:
    """Require an attribute of at least this value."""

    return value_is(f"at least {least}", lambda got: got >= least, name)


def _first_rows(call: Call) -> int:
    return min(_tokens(call), int(call["activeNum"])) * _chosen(call)


def _first_work(call: Call) -> Library | None:
    outputs = ("expandedXOut", "expandedRowIdxOut", "expandedExpertIdxOut")
    if nothing_to_write(call, outputs):
        return None
    tokens, kept, total = _tokens(call), _first_rows(call), call["expertIdx"].size

    def route(x: Any, row_idx: Any, expert_idx: Any) -> tuple[Any, ...]:
        expect_within("rowIdx", row_idx, 0, total - 1)
        order = np.argsort(expert_idx.reshape(-1), kind="stable")
        sources = row_idx.reshape(-1)[order]
        rows = np.zeros(total, np.int32)
        rows[sources] = np.arange(total)
        return x[sources[:kept] % tokens], rows, expert_idx.reshape(-1)[order]

    return Library(route, ("x", "rowIdx", "expertIdx"), outputs)


def _least_experts(call: Call) -> str | None:
    least, got = int(_is_padded(call) or call["expertTokensCountOrCumsumFlag"] > 0), call["expertNum"]
    return None if got >= least else f"expertNum: expected at least {least}, got {got}"


def _wanted_counts(call: Call) -> str | None:
    """Return the name of V2's output of counts; None if counts are not requested."""
    padded = _is_padded(call)
    if not call["expertTokensBeforeCapacityFlag" if padded else "expertTokensCountOrCumsumFlag"]:
        return None
    name = _BEFORE if padded else _COUNTS
    return name if name in call.arguments else f"{name}Optional"


def _second_counts(call: Call, name: str) -> str | None:
    if name != _wanted_counts(call):
        return None
    given, expected = call[name], (call["expertNum"],)
    if given is None:
        return f"{name}: expected an object for a requested output, got null"
    if (given.dtype, given.shape) == (D.INT32, expected):
        return None
    got = f"{given.dtype.c_name} of {extents(given.shape)}"
    return f"{name}: expected ACL_INT32 of shape {extents(expected)}, got {got}"


def _second_work(call: Call) -> Library | None:
    counts = _wanted_counts(call)
    outputs = ("expandedXOut", "expandedRowIdxOut", *((counts,) if counts else ()))
    outputs += (_SCALES,) if _mode(call) == _DYNAMIC else ()
    if nothing_to_write(call, outputs):
        return None
    experts, capacity = call["expertNum"], call["expertCapacity"] if _is_padded(call) else 0
    shape, chosen, summed = _expanded_shape(call), max(1, _chosen(call)), call["expertTokensCountOrCumsumFlag"] == 1
    many = math.prod(shape[:-1])

    def route(x: Any, expert_idx: Any, scale: Any = None, offset: Any = None) -> tuple[Any, ...]:
        if counts or capacity:
            expect_within("expertIdx", expert_idx, 0, experts - 1)
        order = np.argsort(expert_idx.reshape(-1), kind="stable")
        ordered = expert_idx.reshape(-1)[order]
        rows = _rows_for(ordered, capacity)
        places = np.empty_like(rows)
        places[order] = rows
        if scale is not None and len(scale) > 1:
            expect_within("expertIdx", expert_idx, 0, len(scale) - 1)
        taken, scales = _taken(call, x[order // chosen], ordered, scale, offset)
        results = [_stored(call, _spread(taken, rows, (many, shape[-1])).reshape(shape)), places]
        if counts:
            numbers = np.bincount(expert_idx.reshape(-1), minlength=experts)
            results.append(np.cumsum(numbers) if summed and not capacity else numbers)
        if scales is not None:
            results.append(_spread(scales, rows, (many,)))
        return tuple(results)

    return Library(route, ("x", "expertIdx", *_factors(call)), outputs)


def _range(call: Call) -> tuple[int, int]:
    """Return the range [first, last) of the experts whose tokens are routed."""
    first, last = call[_RANGE] or (0, call["expertNum"])
    return first, last


def _active_experts(call: Call) -> str | None:
    given, most = call[_RANGE] or (), call["expertNum"]
    if len(given) not in (0, 2):
        return f"{_RANGE}: expected 2 numbers or none, got {extents(given)}"
    first, last = _range(call)
    if _is_padded(call) and (first, last) != (0, most):
        return f"{_RANGE}: expected [0, {most}] (all experts) with dropPadMode 1, got {extents(given)}"
    if 0 <= first < last <= min(most, _MOST_LISTED_EXPERTS if _is_listed(call) else _MOST_EXPERTS):
        return None
    limit = _MOST_LISTED_EXPERTS if _is_listed(call) else _MOST_EXPERTS
    return f"{_RANGE}: expected numbers in order from 0 to {min(most, limit)}, got {extents((first, last))}"


def _is_listed(call: Call) -> bool:
    return bool(call["expertTokensNumType"] == _PAIRS)


def _active(call: Call) -> str | None:
    total, got = call["expertIdx"].size, call["activeNum"]
    if call.product in CLASS_950:
        return None if got in (-1, 0, total) else f"activeNum: expected -1, 0 or {total} (all), got {got}"
    return None if got >= -1 or _is_padded(call) else f"activeNum: expected at least -1, got {got}"


def _counted(call: Call) -> str | None:
    got = call["expertTokensNumType"]
    if not (_is_padded(call) and call["expertTokensNumFlag"]) or got == _NUMBERS:
        return None
    return f"expertTokensNumType: expected 1 with dropPadMode 1, got {got}"


def _gathered(call: Call) -> str | None:
    allowed, got = (0,) if _is_padded(call) else (0, 1), call["rowIdxType"]
    if got in allowed:
        return None
    return f"rowIdxType: expected {' or '.join(map(str, allowed))} with dropPadMode {call['dropPadMode']}, got {got}"


def _of_integers(call: Call) -> str | None:
    got = call["quantMode"]
    if call.product not in CLASS_950 or not _DYNAMIC < got <= _MOST_MODES:
        return None
    return f"quantMode: expected -1, 0 or 1 (8-bit and 4-bit floats and INT4 are not supported here), got {got}"


def _blocks_of_tokens(call: Call) -> str | None:
    got = call["quantMode"]
    if got == _UNQUANTIZED or not _is_padded(call):
        return None
    return f"quantMode: expected -1 (no quantization) with dropPadMode 1, got {got}"


def _rows_dtype(call: Call, name: str) -> str | None:
    whole, got = call["quantMode"] == _UNQUANTIZED, call[name].dtype
    expected, why = (call["x"].dtype, "that of x") if whole else (D.INT8, "quantized")
    return None if got == expected else f"expected data type {expected.c_name} ({why}), got {got.c_name}"


def _floating_tokens(call: Call) -> str | None:
    got = call["x"].dtype
    if got in FLOATING or call["quantMode"] not in (_STATIC, _DYNAMIC):
        return None
    if got == D.INT8 and call["quantMode"] == _DYNAMIC and call.product in CLASS_950:
        return None  # as older programs have it, says the document
    return f"x: expected ACL_FLOAT, ACL_FLOAT16 or ACL_BF16 to quantise, got {got.c_name}"


def _scale_shape(experts: Callable[[Call], int]) -> Callable[[Call], str | None]:
    """Return a check of the scales' shape; dynamic scales have one row or one per expert."""

    def violation(call: Call) -> str | None:
        mode, scale = call["quantMode"], call[_SCALE]
        if scale is None:
            return f"{_SCALE}: expected an object with quantMode 0, got null" if mode == _STATIC else None
        allowed: tuple[tuple[int, ...], ...] = ((1,) if mode == _STATIC else (_tokens(call),),)
        if mode == _DYNAMIC:
            columns, many = int(call["x"].shape[1]), 1 if call["expandedXOut"].dtype == D.INT4 else experts(call)
            allowed = ((many, columns), (1, columns))
        if scale.shape in allowed:
            return None
        expected = listing(map(extents, dict.fromkeys(allowed)))
        return f"{_SCALE}: expected shape {expected} with quantMode {mode}, got {extents(scale.shape)}"

    return violation


def _offset_shape(call: Call) -> str | None:
    offset = call[_OFFSET]
    if call["quantMode"] != _STATIC or (offset is not None and offset.shape == (1,)):
        return None
    got = "null" if offset is None else extents(offset.shape)
    return f"{_OFFSET}: expected a number of shape [1] with quantMode 0, got {got}"


def _writes_scales(call: Call) -> bool:
    mode = call["quantMode"]
    return bool(mode == _DYNAMIC or (mode == _UNQUANTIZED and call[_SCALE] is not None))


def _third_work(call: Call) -> Library | None:
    counted, scaled = call["expertTokensNumFlag"], _writes_scales(call)
    outputs = ["expandedXOut", "expandedRowIdxOut"]
    outputs += [_COUNTS] if counted else []
    outputs += ["expandedScaleOut"] if scaled else []
    if nothing_to_write(call, outputs):
        return None
    (first, last), capacity = _range(call), call["expertCapacity"] if _is_padded(call) else 0
    shape, chosen, kind = _expanded_shape(call), max(1, _chosen(call)), call["expertTokensNumType"]
    gathered, many = call["rowIdxType"] == 0, math.prod(shape[:-1])
    listed = call[_COUNTS].shape

    def route(x: Any, expert_idx: Any, scale: Any = None, offset: Any = None) -> tuple[Any, ...]:
        places, experts = _in_order(expert_idx, first, last)
        where, rows = places[: len(experts)], _rows_for(experts, capacity)
        if gathered:
            places = np.full(len(places), -1)
            places[where] = rows
        taken, scales = _taken(call, x[where // chosen], experts - first, scale, offset)
        results = [_spread(taken, rows, (many, shape[-1])).reshape(shape), places]
        if counted:
            numbers = np.bincount(experts - first, minlength=last - first)
            results.append(_counts_of(numbers, first, kind, listed))
        if scaled:
            results.append(_spread(scale[where // chosen] if scales is None else scales, rows, (many,)))
        return tuple(results)

    return Library(route, ("x", "expertIdx", *_factors(call)), tuple(outputs))


def _counts_of(numbers: Any, first: int, kind: int, shape: Sequence[int]) -> Any:
    if kind != _PAIRS:
        return np.cumsum(numbers) if kind == _SUMS else numbers
    pairs = np.zeros(shape, np.int64)
    used = np.flatnonzero(numbers)
    pairs[: len(used)] = np.stack([used + first, numbers[used]], -1)
    return pairs


_DROP_PAD = attribute("dropPadMode", Kind.INT64, "1: each expert takes exactly expertCapacity rows")
_X, _EXPERTS = tensor_in("x", "a row for each token"), tensor_in("expertIdx", "the expert indices of each token")
_ROUTED = (
    tensor_out("expandedXOut", "the rows of the tokens, sorted by expert", const=True),
    tensor_out("expandedRowIdxOut", "the indices of each token's rows; INT32", const=True),
)
_LIMITS = (
    attribute("activeNum", Kind.INT64, "the number of rows to keep"),
    attribute("expertCapacity", Kind.INT64, "the capacity of an expert with dropPadMode 1"),
    attribute("expertNum", Kind.INT64, "the number of experts"),
    _DROP_PAD,
)


_OF_EXPERTS = shape_is(
    "one for each expert",
    lambda call: (call["expertNum"], 2) if _is_listed(call) else (_range(call)[1] - _range(call)[0],),
    _COUNTS,
)


def _one_for_each_row(name: str) -> Check:
    return shape_is("one for each row", lambda call: (math.prod(_expanded_shape(call)[:-1]),), name)


def _few_enough(call: Call, name: str) -> str | None:
    got = call[name].size
    return None if got <= _MOST_SORTED else f"expected at most {_MOST_SORTED} elements, got {got}"


def _ends_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    experts = np.arange(call["numExperts"])
    return Library(lambda ordered: np.searchsorted(ordered, experts, "right"), ("sortedExperts",), ("out",))


def _second_dtypes(product: Product) -> list[tuple[D, ...]]:
    indices = (D.INT32, D.INT64) if product in CLASS_950 else (D.INT32,)
    return [(d, index, d, D.INT32) for d in FLOATING for index in indices]


def _quantized_dtypes(product: Product) -> list[tuple[D, ...]]:
    integers = (D.INT8,) if product in CLASS_950 else (D.INT8, D.INT4)
    return [(d, D.INT32, integer, D.INT32) for d in FLOATING for integer in integers]


_OF_TOKENS = (
    dims_between(2, 2, "x"),
    *elsewhere(CLASS_950, dims_between(2, 2, "expertIdx")),
    *on(CLASS_950, dims_between(1, 2, "expertIdx")),
    rule("a row for each token: expertIdx", _as_many_rows),
)
_WANTED = (
    attribute("expertTokensCountOrCumsumFlag", Kind.INT64, "1: write cumulative sums, 2: write counts of rows"),
    attribute("expertTokensBeforeCapacityFlag", Kind.BOOL, "whether to write counts of rows, with dropPadMode 1"),
)


def _counted_rows(counts: str, before: str) -> tuple[Parameter, Parameter]:
    """Return the outputs of row counts after and before the experts' capacity is applied."""
    return (
        tensor_out(counts, "the number of rows of each expert; INT32", const=True, optional=True),
        tensor_out(before, "the number of rows of each expert before dropping; INT32", const=True, optional=True),
    )


_TO_PLACES = (
    shape_is("that of the rows kept", _expanded_shape, "expandedXOut"),
    shape_is("one for each of expertIdx", lambda call: (call["expertIdx"].size,), "expandedRowIdxOut"),
)


def _second_checks(counts: str, before: str, *kept: Check) -> tuple[Check, ...]:
    """Return the checks of V2's tiling functions; ``kept`` are the checks of the number of rows kept."""
    return (
        *_OF_TOKENS,
        one_of("dropPadMode", 0, 1),
        one_of("expertTokensCountOrCumsumFlag", 0, 1, 2),
        *kept,
        at_least("expertCapacity", 0),
        rule("enough for requested outputs: expertNum", _least_experts),
        rule("rows of an expert: expertCapacity", _capacity),
        *_TO_PLACES,
        rule(f"one for each expert: {counts}", lambda call: _second_counts(call, counts)),
        rule(f"one for each expert: {before}", lambda call: _second_counts(call, before)),
    )


def _in_blocks(call: Call) -> str | None:
    if call["expandedXOut"].dtype != D.INT4 or not _is_padded(call):
        return None
    return f"dropPadMode: expected 0 with expandedXOut of ACL_INT4, got {call['dropPadMode']}"


def _wanted_scales(call: Call) -> str | None:
    missing = call["quantMode"] == _DYNAMIC and call[_SCALES] is None
    return f"{_SCALES}: expected an object with quantMode 1, got null" if missing else None


def _not_static(call: Call) -> str | None:
    if call["expandedXOut"].dtype != D.INT4 or call["quantMode"] != _STATIC:
        return None
    return "quantMode: expected 1 with expandedXOut of ACL_INT4, got 0"


OPERATORS = (
    Operator(
        name="moe_init_routing",
        summary="Sort tokens by expert, with rows numbered by columns.",
        formula="expandedExpertIdxOut, sorted = sort(expertIdx, rowIdx); expandedRowIdxOut[sorted[i]] = i; "
        "expandedXOut[i] = x[sorted[i] % rows]",
        parameters=(
            _X,
            tensor_in("rowIdx", "the row indices of expertIdx; INT32"),
            tensor_in("expertIdx", "the expert indices of each token; INT32"),
            attribute("activeNum", Kind.INT64, "the number of tokens whose rows are kept"),
            *_ROUTED,
            tensor_out("expandedExpertIdxOut", "the sorted expert indices; INT32", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("x", "rowIdx", "expertIdx"),
            ("expandedXOut", "expandedRowIdxOut", "expandedExpertIdxOut"),
            lambda product: [(d, D.INT32, D.INT32, d, D.INT32, D.INT32) for d in FLOATING],
            dims_between(2, 2, "x", "expertIdx"),
            same_shape("rowIdx", "expertIdx"),
            rule("a row for each token: expertIdx", _as_many_rows),
            at_least("activeNum", 0),
            shape_is("the rows kept", lambda call: (_first_rows(call), call["x"].shape[1]), "expandedXOut"),
            shape_is(
                "one for each of expertIdx",
                lambda call: (call["expertIdx"].size,),
                *("expandedRowIdxOut", "expandedExpertIdxOut"),
            ),
        ),
        work=_first_work,
    ),
    Operator(
        name="moe_init_routing_v2",
        summary="Sort tokens by expert, optionally with a fixed capacity per expert.",
        formula="expandedRowIdxOut = argsort(argsort(expertIdx)); expandedXOut[expandedRowIdxOut[i]] = x[i / k]",
        parameters=(*(_X, _EXPERTS, *_LIMITS), *(*_WANTED, *_ROUTED, *_counted_rows(_COUNTS, _BEFORE))),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("x", "expertIdx"),
            ("expandedXOut", "expandedRowIdxOut"),
            _second_dtypes,
            *_second_checks(_COUNTS, _BEFORE, *elsewhere(CLASS_950, at_least("activeNum", 0))),
        ),
        work=_second_work,
    ),
    Operator(
        name="moe_init_routing_quant_v2",
        summary="Sort tokens by expert and quantize them, optionally with a fixed capacity per expert.",
        formula="expandedRowIdxOut = argsort(argsort(expertIdx)); expandedXOut[expandedRowIdxOut[i]] = "
        "round(x[i / k] * scaleOptional + offsetOptional), or round(row / scale) with row = x[i / k] * scaleOptional, "
        "scale = max(|row|) / 127 (INT4: / 7)",
        parameters=(
            *(_X, _EXPERTS),
            optional_in(_SCALE, "the quantization scale of all experts or of each; FLOAT"),
            optional_in(_OFFSET, "the offset of the integers with quantMode 0; FLOAT"),
            *(*_LIMITS, *_WANTED),
            attribute("quantMode", Kind.INT64, "0: static, 1: dynamic"),
            *_ROUTED,
            *_counted_rows(f"{_COUNTS}Optional", f"{_BEFORE}Optional"),
            tensor_out(_SCALES, "the scales of rows with quantMode 1; FLOAT", const=True, optional=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("x", "expertIdx"),
            ("expandedXOut", "expandedRowIdxOut"),
            _quantized_dtypes,
            one_of("quantMode", _STATIC, _DYNAMIC),
            *_second_checks(f"{_COUNTS}Optional", f"{_BEFORE}Optional", at_least("activeNum", 0)),
            rule("whole rows with integers of 4 bits: dropPadMode", _in_blocks),
            rule("dynamic with integers of 4 bits: quantMode", _not_static),
            whole_bytes("expandedXOut"),
            dtype_in({D.FLOAT}, _SCALE, _OFFSET, _SCALES),
            rule(f"as quantMode asks: {_SCALE}", _scale_shape(lambda call: int(call["expertNum"]))),
            rule(f"a number with quantMode 0: {_OFFSET}", _offset_shape),
            rule(f"requested with quantMode 1: {_SCALES}", _wanted_scales),
            only_if(_one_for_each_row(_SCALES), "with quantMode 1", _writes_scales),
        ),
        work=_second_work,
    ),
    Operator(
        name="moe_init_routing_v3",
        summary="Sort the tokens of a range of experts by expert, optionally with a fixed capacity per expert.",
        formula="sorted = argsort(expertIdx) in the range; expandedXOut[i] = x[sorted[i] / k]; "
        "expandedRowIdxOut[sorted[i]] = i, or expandedRowIdxOut[i] = sorted[i] with rowIdxType 1",
        parameters=(
            *(_X, tensor_in("expertIdx", "the expert indices of each token; INT32")),
            optional_in(_SCALE, "a scale per token to be copied, or the quantization scale; FLOAT"),
            Parameter(
                _OFFSET, "offset", Kind.INPUT, "the offset of the integers with quantMode 0; FLOAT", optional=True
            ),
            *_LIMITS,
            attribute("expertTokensNumType", Kind.INT64, "0: cumulative sums, 1: counts, 2: (expert, count) pairs"),
            attribute("expertTokensNumFlag", Kind.BOOL, f"whether to write {_COUNTS}"),
            attribute("quantMode", Kind.INT64, "-1: no quantization, 0: static, 1: dynamic"),
            Parameter(_RANGE, _RANGE, Kind.INT_ARRAY, "the range of experts, end exclusive", optional=True),
            attribute(
                "rowIdxType", Kind.INT64, "the contents of expandedRowIdxOut, 0: rows of tokens, 1: tokens of rows"
            ),
            *_ROUTED,
            tensor_out(_COUNTS, "the number of rows of each expert; INT64", const=True),
            tensor_out(
                "expandedScaleOut", "scaleOptional sorted by expert, or the scales of the rows; FLOAT", const=True
            ),
        ),
        support=_TAKEN,
        checks=(
            public_format("x", "expertIdx", _SCALE, "expandedXOut", "expandedRowIdxOut", _COUNTS, "expandedScaleOut"),
            dtype_in(lambda product: _TAKEN.get(product, (*FLOATING, D.INT8)), "x"),
            dtype_in({D.INT32}, "expertIdx", "expandedRowIdxOut"),
            dtype_in({D.FLOAT}, _SCALE, "expandedScaleOut"),
            dtype_in({D.INT64}, _COUNTS),
            only_if(dtype_in({D.FLOAT}, _OFFSET), "with quantMode 0", lambda call: call["quantMode"] == _STATIC),
            rule("integers of 8 bits: quantMode", _of_integers, ACLNN_ERR_INNER_NULLPTR),
            each("data type of the rows", ("expandedXOut",), _rows_dtype),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                dims_between(2, 2, "x", "expertIdx"),
                rule("a row for each token: expertIdx", _as_many_rows),
                one_of("dropPadMode", 0, 1),
                one_of("expertTokensNumType", _SUMS, _NUMBERS, _PAIRS),
                one_of("quantMode", _UNQUANTIZED, _STATIC, _DYNAMIC),
                rule("to be quantized: x", _floating_tokens),
                *on(CLASS_950, rule("unless with dropPadMode: quantMode", _blocks_of_tokens)),
                *on(CLASS_950, one_of("expertTokensNumFlag", True)),
                at_least("expertNum", 1),
                rule("rows kept: activeNum", _active),
                rule("rows of an expert: expertCapacity", _capacity),
                rule(f"among the experts: {_RANGE}", _active_experts),
                rule("counts with dropPadMode: expertTokensNumType", _counted),
                rule("indices with dropPadMode: rowIdxType", _gathered),
                rule(f"as quantMode asks: {_SCALE}", _scale_shape(lambda call: _range(call)[1] - _range(call)[0])),
                rule(f"a number with quantMode 0: {_OFFSET}", _offset_shape),
                *_TO_PLACES,
                only_if(_OF_EXPERTS, "with expertTokensNumFlag", lambda call: bool(call["expertTokensNumFlag"])),
                only_if(_one_for_each_row("expandedScaleOut"), "where it is written", _writes_scales),
            ),
        ),
        work=_third_work,
    ),
    Operator(
        name="moe_compute_expert_tokens",
        summary="Cumulative number of rows of each expert.",
        formula="out[i] = number of sortedExperts <= i",
        parameters=(
            tensor_in("sortedExperts", "the sorted expert indices; INT32"),
            attribute("numExperts", Kind.INT64, "the number of experts"),
            tensor_out("out", "the end of each expert's rows; INT32", const=True),
        ),
        support=support((D.INT32,), MODERN),
        checks=generated(
            ("sortedExperts",),
            ("out",),
            lambda product: [(D.INT32, D.INT32)],
            dims_between(1, 1, "sortedExperts"),
            value_is(f"from 1 to {_MOST_COUNTED}", lambda got: 1 <= got <= _MOST_COUNTED, "numExperts"),
            each("few enough to sort", ("sortedExperts",), _few_enough),
            shape_is("one for each expert", lambda call: (call["numExperts"],), "out"),
        ),
        work=_ends_work,
    ),
)
