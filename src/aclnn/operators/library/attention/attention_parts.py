"""Merging of attention over parts of the keys: aclnnRingAttentionUpdate, its V2, aclnnAttentionUpdate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    elsewhere,
    floating,
    listing,
    not_empty,
    one_of,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.lists import alike, as_many, each_of, not_null, of_types

Array = np.ndarray[Any, Any]
_COPIES = 8
"""Number of copies of a row's maximum and sum."""
_MOST_HEADS, _MOST_COLUMNS, _UNIT = 256, 768, 64
_MOST_PARTS, _MOST_OF_PARTS, _STEP = (128, 16), 512, 8
"""Limits of ``aclnnAttentionUpdate``: tensors in a list, before and on Ascend 950; columns, and their divisor."""
_LENGTHS, _LAYOUT, _SOFTMAX_LAYOUT = "actualSeqQlenOptional", "inputLayoutOptional", "inputSoftmaxLayoutOptional"
_STATISTICS = ("prevSoftmaxMax", "prevSoftmaxSum", "curSoftmaxMax", "curSoftmaxSum", "softmaxMaxOut", "softmaxSumOut")
_GIVEN = ("prevAttnOut", *_STATISTICS[:2], "curAttnOut", *_STATISTICS[2:4], "attnOutOut", *_STATISTICS[4:])


def _packed(call: Call) -> bool:
    return bool(call[_LAYOUT] == "TND")


def _of_packed(*checks: Check) -> tuple[Check, ...]:
    return restricted("of TND", _packed, *checks)


def _of_samples(*checks: Check) -> tuple[Check, ...]:
    return restricted("of SBH", lambda call: not _packed(call), *checks)


def _statistics_of_samples(call: Call) -> str | None:
    s, b, h = call["prevAttnOut"].shape
    got = call["prevSoftmaxMax"].shape
    if len(got) == 4 and (got[0], got[2], got[3]) == (b, s, _COPIES) and got[1] and h % got[1] == 0:
        return None
    expected = f"expected shape [{b}, N, {s}, {_COPIES}] with N a divisor of {h}"
    return f"prevSoftmaxMax: {expected}, got {list(got)}"


def _statistics_of_packed(call: Call) -> tuple[int, ...]:
    return (*call["prevAttnOut"].shape[:2], _COPIES)


def _few_columns(call: Call) -> str | None:
    _, heads, columns = call["prevAttnOut"].shape
    if heads <= _MOST_HEADS and columns <= _MOST_COLUMNS and columns % _UNIT == 0:
        return None
    return (
        f"prevAttnOut: expected at most {_MOST_HEADS} heads, and a multiple of {_UNIT} up to {_MOST_COLUMNS} columns, "
        f"got {heads} and {columns}"
    )


def _lengths(call: Call) -> str | None:
    got = call[_LENGTHS]
    if got.dtype == D.INT64 and len(got.shape) == 1:
        return None
    return f"{_LENGTHS}: expected 1 dimension of ACL_INT64, got {len(got.shape)} of {got.dtype.c_name}"


def _by_token(statistic: Array, ends: Array) -> Array:
    """Return statistics as (token, head), from memory ordered by sequence, head and token."""
    tokens, heads, _ = statistic.shape
    flat, found = statistic.reshape(-1, _COPIES)[:, 0], np.empty((tokens, heads))
    for start, end in pairwise(ends):
        found[start:end] = flat[start * heads : end * heads].reshape(heads, end - start).T
    return found


def _merged(first: Array, second: Array, maxima: Any, sums: Any) -> tuple[Array, Array, Array]:
    """Merge two results in float64 by their statistics, which broadcast to them."""
    most = np.maximum(*maxima)
    weights = [total * np.exp(each - most) for each, total in zip(maxima, sums, strict=True)]
    whole = weights[0] + weights[1]
    return (first * weights[0] + second * weights[1]) / whole, most, whole


def _ring_work(call: Call) -> Library:
    packed, by_heads = _packed(call), call.arguments.get(_SOFTMAX_LAYOUT) != "TND"

    def update(*operands: Array) -> tuple[Array, ...]:
        first, max1, sum1, second, max2, sum2 = (each.astype(np.float64) for each in operands[:6])
        _, most, whole = _merged(np.zeros(1), np.zeros(1), (max1, max2), (sum1, sum2))
        if packed:
            of_heads = (_by_token(each, operands[6]) if by_heads else each[..., 0] for each in (max1, max2, sum1, sum2))
            max1, max2, sum1, sum2 = (each[..., None] for each in of_heads)
            return _merged(first, second, (max1, max2), (sum1, sum2))[0], most, whole
        heads = max1.shape[1]
        one, other = (each.reshape(*each.shape[:2], heads, -1) for each in (first, second))  # (S, B, N, D)
        max1, max2, sum1, sum2 = (each[..., 0].transpose(2, 0, 1)[..., None] for each in (max1, max2, sum1, sum2))
        merged = _merged(one, other, (max1, max2), (sum1, sum2))[0]
        return merged.reshape(first.shape), most, whole

    lengths = (_LENGTHS,) if packed else ()
    names = ("prevAttnOut", "prevSoftmaxMax", "prevSoftmaxSum", "curAttnOut", "curSoftmaxMax", "curSoftmaxSum")
    return Library(update, (*names, *lengths), ("attnOutOut", "softmaxMaxOut", "softmaxSumOut"))


def _parts_work(call: Call) -> Library | None:
    count = len(call["lse"])
    names = [f"{name}[{at}]" for name in ("lse", "localOut") for at in range(count)]
    with_lse = call["updateType"] == 1
    if call["out"].size == 0:
        return None

    def update(*operands: Array) -> tuple[Array, ...]:
        logarithms = np.stack([each.astype(np.float64) for each in operands[:count]])
        # Statistics that attention returns for rows whose scores are all masked.
        logarithms[logarithms == np.inf] = -np.inf
        most = logarithms.max(0)
        whole = most + np.log(np.exp(logarithms - most).sum(0))
        out = sum(part * np.exp(lse - whole)[:, None] for part, lse in zip(operands[count:], logarithms, strict=True))
        return (out, whole) if with_lse else (out,)

    return Library(update, tuple(names), ("out", "lseOut") if with_lse else ("out",))


def _as_the_first(call: Call, name: str, at: int) -> str | None:
    expected, got = call[name][0].shape, call[name][at].shape
    return None if got == expected else f"expected shape {list(expected)} (that of {name}[0]), got {list(got)}"


def _out_of_parts(call: Call) -> str | None:
    expected, got = call["localOut"][0], call["out"]
    if (got.dtype, got.shape) == (expected.dtype, expected.shape):
        return None
    return (
        f"out: expected {expected.dtype.c_name} of shape {list(expected.shape)} (as localOut[0]), "
        f"got {got.dtype.c_name} of {list(got.shape)}"
    )


def _rows_of_parts(call: Call) -> str | None:
    lse, part = call["lse"][0].shape, call["localOut"][0].shape
    if len(lse) == 1 and len(part) == 2 and lse[0] == part[0]:
        return None
    return f"lse[0]: expected one for each row of localOut[0], got shapes {list(lse)} and {list(part)}"


def _number_of_parts(call: Call) -> str | None:
    most, got = _MOST_PARTS[call.product in CLASS_950], len(call["lse"])
    return None if 1 <= got <= most else f"lse: expected 1 to {most} tensors on {call.product.title}, got {got}"


def _columns_of_parts(call: Call) -> str | None:
    got = call["localOut"][0].shape[-1]
    if got and got % _STEP == 0 and got <= _MOST_OF_PARTS:
        return None
    return f"localOut[0]: expected a multiple of {_STEP} up to {_MOST_OF_PARTS} columns, got {got}"


def _lse_out(call: Call) -> str | None:
    wanted, given = _returns_lse(call), call["lseOut"] is not None
    if wanted == given:
        return None
    expected, got = ("an object", "null") if wanted else ("null", "a tensor")
    return f"lseOut: expected {expected} with updateType {call['updateType']}, got {got}"


_WITH_LSE = "with updateType 1"


def _returns_lse(call: Call) -> bool:
    return bool(call["updateType"] == 1)


def _ring(name: str, *layout: Parameter) -> Operator:
    """Declare a variant of the ring update, with or without a layout of maxima and sums."""
    layout_known = tuple(
        value_is(f"{listing(map(repr, ('', 'SBH', 'TND')))}", lambda got: got in ("", "SBH", "TND"), _SOFTMAX_LAYOUT)
        for each in layout
    )
    return Operator(
        name=name,
        summary="Merge attention over two parts of the keys.",
        formula="m = max(prevSoftmaxMax, curSoftmaxMax), p = prevSoftmaxSum * e^(prevSoftmaxMax - m), "
        "c = curSoftmaxSum * e^(curSoftmaxMax - m), attnOutOut = (prevAttnOut * p + curAttnOut * c) / (p + c), "
        "softmaxMaxOut = m, softmaxSumOut = p + c",
        parameters=(
            tensor_in("prevAttnOut", "(S, B, H), or (T, N, D)"),
            tensor_in("prevSoftmaxMax", "(B, N, S, 8), or (T, N, 8); FLOAT"),
            tensor_in("prevSoftmaxSum", "as prevSoftmaxMax"),
            tensor_in("curAttnOut", "as prevAttnOut"),
            tensor_in("curSoftmaxMax", "as prevSoftmaxMax"),
            tensor_in("curSoftmaxSum", "as prevSoftmaxMax"),
            optional_in(_LENGTHS, "the cumulative ends of the sequences of TND, beginning with 0; INT64"),
            attribute(_LAYOUT, Kind.STRING, "SBH or TND"),
            *layout,
            tensor_out("attnOutOut", "as prevAttnOut", const=True),
            tensor_out("softmaxMaxOut", "as prevSoftmaxMax", const=True),
            tensor_out("softmaxSumOut", "as prevSoftmaxMax", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            present(*_GIVEN),
            dtype_in(floating, "prevAttnOut"),
            same_dtype("curAttnOut", "prevAttnOut"),
            same_dtype("attnOutOut", "prevAttnOut"),
            dtype_in((D.FLOAT,), *_STATISTICS),
            not_empty(*_GIVEN[:6]),
            one_of(_LAYOUT, "SBH", "TND"),
            dims_between(3, 3, "prevAttnOut"),
            same_shape("curAttnOut", "prevAttnOut"),
            same_shape("attnOutOut", "prevAttnOut"),
            *_of_samples(rule("as prevAttnOut: prevSoftmaxMax", _statistics_of_samples)),
            *_of_packed(shape_is("of tokens and heads", _statistics_of_packed, "prevSoftmaxMax")),
            *(same_shape(each, "prevSoftmaxMax") for each in _STATISTICS[1:]),
            *_of_packed(present(_LENGTHS), public_format(_LENGTHS)),
            public_format(*_GIVEN),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR, *_of_packed(*layout_known, rule(f"lengths: {_LENGTHS}", _lengths))
            ),
            *elsewhere(CLASS_950, *_of_packed(rule("few columns: prevAttnOut", _few_columns))),
        ),
        work=_ring_work,
        in_header_of="ring_attention_update",
    )


OPERATORS = (
    _ring("ring_attention_update"),
    _ring(
        "ring_attention_update_v2",
        attribute(
            _SOFTMAX_LAYOUT,
            Kind.STRING,
            "with layout TND: TND if maxima and sums have that layout too, otherwise they are grouped by head",
        ),
    ),
    Operator(
        name="attention_update",
        summary="Merge attention over any number of parts of the keys.",
        formula="l = ln(sum of e^lse), out = sum of localOut * e^(lse - l), lseOut = l",
        parameters=(
            Parameter(
                "lse", "lse", Kind.INPUT_LIST, "the log-sum-exp of each row; infinite for rows without contribution"
            ),
            Parameter("localOut", "local_out", Kind.INPUT_LIST, "(rows, columns) each"),
            attribute("updateType", Kind.INT64, "1: write lseOut, 0: do not"),
            tensor_out("out", "(rows, columns)"),
            tensor_out("lseOut", "the log-sum-exp of each row; null with updateType 0", optional=True),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            one_of("updateType", 0, 1),
            rule("given or not: lseOut", _lse_out),
            present("lse", "localOut", "out"),
            each_of("no null among them", ("lse", "localOut"), not_null, ACLNN_ERR_PARAM_NULLPTR),
            rule("number of parts: lse", _number_of_parts),
            as_many("lse", ("localOut",)),
            each_of("data type of each", ("lse",), of_types((D.FLOAT,))),
            each_of("data type of each", ("localOut",), of_types(FLOATING)),
            each_of("one data type", ("localOut",), alike("localOut")),
            each_of("same shape as the first", ("lse", "localOut"), _as_the_first),
            rule("rows of localOut: lse", _rows_of_parts),
            rule("columns: localOut", _columns_of_parts),
            rule("as localOut: out", _out_of_parts),
            *restricted(
                _WITH_LSE,
                _returns_lse,
                dtype_in((D.FLOAT,), "lseOut"),
                shape_is("one for each row", lambda call: call["lse"][0].shape, "lseOut"),
            ),
        ),
        work=_parts_work,
    ),
)
