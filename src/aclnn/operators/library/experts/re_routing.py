"""aclnnMoeReRouting: reordering by expert of tokens received from several ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    each,
    extents,
    generated,
    nothing_to_write,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import INDEX_TYPES, attribute, optional_in, support, tensor_in, tensor_out

_MOVED = (D.FLOAT16, D.BF16, D.INT8)
_SUPPORT = {**support(_MOVED, A2_CLASS), **support((*_MOVED, D.FLOAT8_E5M2, D.FLOAT8_E4M3FN, D.HIFLOAT8), CLASS_950)}
_SCALES, _SCALES_OUT = "perTokenScalesOptional", "permutePerTokenScalesOut"
_LONGEST = 16384


def _dtypes(product: Product) -> list[tuple[D, ...]]:
    scales = (D.FLOAT, D.FLOAT8_E8M0) if product in CLASS_950 else (D.FLOAT,)
    return [
        (moved, count, moved, scale, D.INT32, count)
        for moved in _SUPPORT.get(product, ())
        for count in INDEX_TYPES
        for scale in scales
    ]


def _known_index(call: Call) -> str | None:
    allowed, got = ("0", "1") if call.product in CLASS_950 else ("0",), call["idxType"]
    return None if str(got) in allowed else f"idxType: expected {' or '.join(allowed)}, got {got}"


def _a_row_each(call: Call, name: str) -> str | None:
    expected, got = call["tokens"].shape[0], call[name].shape
    return None if got[:1] == (expected,) else f"expected {expected} in the first dimension, got {extents(got)}"


def _scales_shape(call: Call) -> tuple[int, ...]:
    given = call[_SCALES]
    return call["tokens"].shape[:1] if given is None else given.shape


def _work(call: Call) -> Library | None:
    scaled = call[_SCALES] is not None
    outputs = ["permuteTokensOut", *((_SCALES_OUT,) if scaled else ()), "permuteTokenIdxOut", "expertTokenNumOut"]
    if nothing_to_write(call, outputs):
        return None
    rows, scattered = call["tokens"].shape[0], call["idxType"] == 1

    def reroute(tokens: Any, counts: Any, scales: Any = None) -> tuple[Any, ...]:
        if counts.min(initial=0) < 0 or counts.sum() != rows:
            raise IndexError(f"expertTokenNumPerRank: expected counts that add up to {rows}, got {counts.sum()}")
        experts = np.repeat(np.broadcast_to(np.arange(counts.shape[1]), counts.shape).reshape(-1), counts.reshape(-1))
        order = np.argsort(experts, kind="stable")
        places = np.argsort(order) if scattered else order
        moved = (tokens[order], *(() if scales is None else (scales[order],)))
        return (*moved, places, counts.sum(0))

    inputs = ("tokens", "expertTokenNumPerRank", *((_SCALES,) if scaled else ()))
    return Library(reroute, inputs, tuple(outputs))


OPERATORS = (
    Operator(
        name="moe_re_routing",
        summary="Merge tokens of several ranks, each sorted by expert, into the order of experts.",
        formula="permuteTokensOut = tokens[order], order = argsort(experts), by ranks for each of them; "
        "permuteTokenIdxOut = order, or argsort(order) with idxType 1; expertTokenNumOut = sums over ranks",
        parameters=(
            tensor_in("tokens", "a row for each token"),
            tensor_in("expertTokenNumPerRank", "the number of tokens of each expert from each rank; INT32 or INT64"),
            optional_in(_SCALES, "the scales of each token; FLOAT, on Ascend 950 FLOAT8_E8M0 too"),
            attribute("expertTokenNumType", Kind.INT64, "1: expertTokenNumPerRank contains counts"),
            attribute(
                "idxType",
                Kind.INT64,
                "the contents of permuteTokenIdxOut, 0: source of each row, 1: destination, on Ascend 950",
            ),
            tensor_out("permuteTokensOut", "the rows, sorted by expert", const=True),
            tensor_out(_SCALES_OUT, "the scales of the rows", const=True),
            tensor_out("permuteTokenIdxOut", "the source index of each row; INT32", const=True),
            tensor_out("expertTokenNumOut", "the number of tokens of each expert", const=True),
        ),
        support=_SUPPORT,
        checks=generated(
            ("tokens", "expertTokenNumPerRank"),
            ("permuteTokensOut", _SCALES_OUT, "permuteTokenIdxOut", "expertTokenNumOut"),
            _dtypes,
            dims_between(2, 2, "tokens", "expertTokenNumPerRank"),
            value_is(f"from 1 to {_LONGEST - 1} in the second dimension", lambda got: 0 < got[1] < _LONGEST, "tokens"),
            one_of("expertTokenNumType", 1),
            rule("known on the product: idxType", _known_index),
            each("a row for each token", (_SCALES,), _a_row_each),
            same_shape("permuteTokensOut", "tokens"),
            shape_is("that of what belongs to tokens", _scales_shape, _SCALES_OUT),
            shape_is("one for each token", lambda call: call["tokens"].shape[:1], "permuteTokenIdxOut"),
            shape_is("one for each expert", lambda call: call["expertTokenNumPerRank"].shape[1:], "expertTokenNumOut"),
            optional=(same_dtype(_SCALES, _SCALES_OUT),),
        ),
        work=_work,
    ),
)
