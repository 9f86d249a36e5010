"""Gates of mixtures of experts, which choose the experts with the largest scores: aclnnMoeGatingTopK, …Softmax …"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    fits,
    floating,
    generated,
    nothing_to_write,
    null,
    on,
    one_of,
    only_if,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    MODERN,
    attribute,
    expect_within,
    logistic,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.quantization import given
from aclnn.operators.library.reduction.sorting import sort_along

_FINISHED = "finishedOptional"
_SHARES = "softmaxResultOutOptional"
_GATED = ("yOut", "expertIdxOut", "rowIdxOut")
_SCORES = {**support(FLOATING, MODERN), Product.ATLAS_INFERENCE: frozenset({D.FLOAT16})}
_MOST_CHOSEN, _MOST_EXTENT = 1024, 2**31 - 1


def _experts(call: Call) -> str | None:
    got = call["x"].shape[-1]
    if call.product is Product.ATLAS_INFERENCE:
        if len(call["x"].shape) == 2 and got % 16 == 0 and got <= 256:
            return None
        shape = extents(call["x"].shape)
        return f"x: expected 2 dimensions, a multiple of 16 up to 256 in the last, got {shape}"
    if call.product not in CLASS_950 or 1 <= got <= 2048:
        return None
    return f"x: expected 1 to 2048 experts in the last dimension, got {got}"


def _chosen(call: Call) -> str | None:
    most = min(_MOST_CHOSEN, call["x"].shape[-1])
    return None if 0 <= call["k"] <= most else f"k: expected from 0 to {most}, got {call['k']}"


def _softmax(x: Any) -> Any:
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinite scores
        shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _softmax_work(call: Call) -> Library | None:
    if call["yOut"].size == 0:
        return None
    count, numbered = call["k"], call.product is not Product.ATLAS_INFERENCE

    def gate(x: Any, finished: Any = None) -> tuple[Any, Any, Any]:
        values, experts = _chosen_of(_softmax(x), finished, count)
        places = np.arange(experts.size).reshape(count, -1).T.reshape(experts.shape) if numbered else 0
        return values, experts, places

    return Library(gate, ("x", *given(call, _FINISHED)), _GATED)


def _chosen_of(scores: Any, finished: Any, count: int) -> tuple[Any, Any]:
    """Return the largest scores and their experts; in finished rows the number of experts instead."""
    values, experts = sort_along(scores, -1, True, count)
    if finished is not None:
        experts[finished] = scores.shape[-1]
    return values, experts


def _shares_wanted(call: Call) -> bool:
    return bool(call["outputSoftmaxResultFlag"]) and call["renorm"] == 0


def _shares(call: Call) -> str | None:
    if not _shares_wanted(call):
        return None
    given, shape = call[_SHARES], call["x"].shape
    if given is None:
        return f"{_SHARES}: expected an object with outputSoftmaxResultFlag, got null"
    if (given.dtype, given.shape) == (D.FLOAT, shape):
        return None
    got = f"{given.dtype.c_name} of {extents(given.shape)}"
    return f"{_SHARES}: expected ACL_FLOAT of shape {extents(shape)} (that of x), got {got}"


def _second_softmax_work(call: Call) -> Library | None:
    outputs = ("yOut", "expertIdxOut", *((_SHARES,) if _shares_wanted(call) else ()))
    if nothing_to_write(call, outputs):
        return None
    count, chosen_first = call["k"], call["renorm"] == 1

    def gate(x: Any, finished: Any = None) -> tuple[Any, ...]:
        shares = _softmax(x)
        values, experts = _chosen_of(x if chosen_first else shares, finished, count)
        return (_softmax(values) if chosen_first else values, experts, *((shares,) if len(outputs) > 2 else ()))

    return Library(gate, ("x", *given(call, _FINISHED)), outputs)


def _softmax_checks(
    dtypes: Callable[[Product], Collection[D]], outputs: tuple[str, ...], *tiling: Check
) -> tuple[Check, ...]:
    """Check scores, flags, and outputs of the top k."""
    return (
        public_format("x", _FINISHED, *outputs),
        dtype_in(dtypes, "x"),
        dtype_in({D.BOOL}, _FINISHED),
        same_dtype("yOut", "x"),
        dtype_in({D.INT32}, *outputs[1:]),
        *with_code(
            ACLNN_ERR_INNER_TILING_ERROR,
            dims_between(2, 3, "x"),
            value_is(f"at most {_MOST_EXTENT} in a dimension", lambda got: max(got) <= _MOST_EXTENT, "x"),
            rule("as many experts as the product takes: x", _experts),
            fits("shape {} (the rows of x)", lambda call, got: (call["x"].shape[:-1], got.shape), _FINISHED),
            rule("among the experts: k", _chosen),
            shape_is("a place for each chosen", lambda call: (*call["x"].shape[:-1], call["k"]), *outputs),
            *tiling,
        ),
    )


_SOFTMAX, _SIGMOID, _ROOT_OF_SOFTPLUS = range(3)


#: Functions that turn logits into scores, by normType.
_NORMS: Mapping[int, Callable[[Any], Any]] = {
    _SOFTMAX: _softmax,
    _SIGMOID: lambda x: logistic(x.astype(np.float64)),
    _ROOT_OF_SOFTPLUS: lambda x: np.sqrt(np.logaddexp(0.0, x.astype(np.float64))),
}
_BIAS = "biasOptional"
_TABLE = ("inputIdsOptional", "tid2eidOptional")
_LARGEST, _TWO_LARGEST = 0, 1
_MOST_EXPERTS, _BLOCK = 2048, 32
_MOST_OF_TABLE = 64
"""Number of experts in a row of a table."""


def _group_size(call: Call) -> int:
    return int(call["x"].shape[1] // call["groupCount"])


def _in_groups(call: Call) -> bool:
    """Return True if groups can exclude experts: not if there is one group, or all are kept."""
    return call["groupCount"] not in (call["kGroup"], call["x"].shape[1])


def _divided(call: Call) -> str | None:
    experts, count = call["x"].shape[1], call["groupCount"]
    if count < 1 or experts % count:
        return f"groupCount: expected a divisor of {experts} (the experts), got {count}"
    grouped = _in_groups(call)
    size = _group_size(call) if grouped or call.product not in CLASS_950 else experts
    least = 2 if call["groupSelectMode"] == _TWO_LARGEST else 1
    if size >= least and (not grouped or -(-size // _BLOCK) * _BLOCK * count <= _MOST_EXPERTS):
        return None
    limit = f"rounded up to {_BLOCK} at most {_MOST_EXPERTS} in all"
    return f"groupCount: expected groups of at least {least} experts, {limit}, got {count} of {size}"


def _chosen_of_groups(call: Call) -> str | None:
    most, got = _group_size(call) * call["kGroup"], call["k"]
    return None if 1 <= got <= most else f"k: expected from 1 to {most} (the experts of kGroup groups), got {got}"


def _one_group(call: Call) -> str | None:
    got = call["groupCount"]
    if got == 1 or call["normType"] != _ROOT_OF_SOFTPLUS:
        return None
    return f"groupCount: expected 1 with normType {_ROOT_OF_SOFTPLUS} on {call.product.title}, got {got}"


def _hashed(call: Call) -> bool:
    return len(given(call, *_TABLE)) == len(_TABLE)


def _columns_of_table(call: Call, name: str) -> str | None:
    got, count = call[name].shape, call["k"]
    return None if len(got) == 2 and got[1] == count else f"expected shape [keys, {count}], got {extents(got)}"


def _ungrouped(call: Call) -> str | None:
    if not _in_groups(call):
        return None
    got = f"{call['kGroup']} of {call['groupCount']}"
    return f"kGroup: expected all groups (groupCount), or groups of one expert, with a table, got {got}"


def _top_k_work(call: Call) -> Library | None:
    outputs = ("yOut", "expertIdxOut", *(("outOut",) if call["outFlag"] else ()))
    if nothing_to_write(call, outputs):
        return None
    norm, count, normed = _NORMS[call["normType"]], call["k"], call["normType"] != _SOFTMAX or call["renorm"] == 1
    groups, chosen, mode = call["groupCount"], call["kGroup"], call["groupSelectMode"]
    factor, eps, hashed = call["routedScalingFactor"], call["eps"], _hashed(call)

    def found(scores: Any, bias: Any) -> Any:
        parts = (scores + bias).reshape(len(scores), groups, -1)
        best = parts.max(-1) if mode == _LARGEST else np.partition(parts, -2, -1)[..., -2:].sum(-1)
        rejected = np.ones(best.shape, bool)
        np.put_along_axis(rejected, sort_along(best, -1, True, chosen)[1], False, -1)
        parts[rejected] = -np.inf
        return sort_along(parts.reshape(scores.shape), -1, True, count)[1]

    def looked_up(scores: Any, keys: Any, table: Any) -> Any:
        expect_within(_TABLE[0], keys, 0, len(table) - 1)
        expect_within(_TABLE[1], table[keys], 0, scores.shape[-1] - 1)
        return table[keys]

    def gate(x: Any, *others: Any) -> tuple[Any, ...]:
        scores = norm(x)
        experts = looked_up(scores, *others) if hashed else found(scores, *(others or (0.0,)))
        y = np.take_along_axis(scores, experts, -1)
        if normed:
            y /= y.sum(-1, keepdims=True) + eps
        return (y * factor, experts, scores)[: len(outputs)]

    return Library(gate, ("x", *(_TABLE if hashed else given(call, _BIAS))), outputs)


_ROW_FLAGS = Parameter(
    _FINISHED, _FINISHED, Kind.INPUT, "finished rows, which get the number of experts as index; BOOL", optional=True
)
_X, _K = (tensor_in("x", "the scores (rows, experts)"), attribute("k", Kind.INT64, "the number of experts per row"))
_VALUES = tensor_out("yOut", "the weights", const=True)
_NUMBERS = tensor_out("expertIdxOut", "the expert indices; INT32", const=True, index_of="x")
_OF_GROUPS = ("yOut", "expertIdxOut", "outOut")
_GROUPED = (
    dims_between(2, 2, "x"),
    value_is(f"1 to {_MOST_EXPERTS} experts", lambda got: 1 <= got <= _MOST_EXPERTS, "x", of=lambda got: got.shape[1]),
    shape_is("one for each expert", lambda call: call["x"].shape[1:], _BIAS),
    one_of("groupSelectMode", _LARGEST, _TWO_LARGEST),
    one_of("normType", *_NORMS),
    one_of("renorm", 0, 1),
    rule("groups of experts: groupCount", _divided),
    *elsewhere(CLASS_950, rule("one group: groupCount", _one_group)),
    fits(
        "from 1 to {}", lambda call, got: (call["groupCount"], got), "kGroup", holds=lambda most, got: 1 <= got <= most
    ),
    rule("among the experts of groups: k", _chosen_of_groups),
    shape_is("a place for each chosen", lambda call: (call["x"].shape[0], call["k"]), "yOut", "expertIdxOut"),
    only_if(same_shape("outOut", "x"), "with outFlag", lambda call: bool(call["outFlag"])),
)


def _top_k(name: str, summary: str, checks: tuple[Check, ...], *table: Parameter) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        formula="expertIdxOut = the first k of norm(x) + biasOptional in the first kGroup groups"
        + (", or tid2eidOptional[inputIdsOptional]; " if table else "; ")
        + "yOut = routedScalingFactor * outOut[expertIdxOut] / (their sum + eps), outOut = norm(x)",
        parameters=(
            _X,
            Parameter(_BIAS, _BIAS, Kind.INPUT, "a bias per expert, which affects the selection only", optional=True),
            *(*table, _K),
            attribute("kGroup", Kind.INT64, "the number of groups to keep"),
            attribute("groupCount", Kind.INT64, "the number of expert groups"),
            attribute(
                "groupSelectMode", Kind.INT64, "the score of a group, 0: its maximum, 1: the sum of its two largest"
            ),
            attribute("renorm", Kind.INT64, "1: normalize the weights with normType 0"),
            attribute("normType", Kind.INT64, "0: softmax, 1: sigmoid, 2: square root of softplus"),
            attribute("outFlag", Kind.BOOL, "whether to write outOut"),
            attribute("routedScalingFactor", Kind.DOUBLE, "the factor of yOut"),
            attribute("eps", Kind.DOUBLE, "the term added to the sum for stability"),
            *(_VALUES, _NUMBERS),
            tensor_out("outOut", "the scores, with outFlag; FLOAT", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=checks,
        work=_top_k_work,
    )


OPERATORS = (
    Operator(
        name="moe_gating_top_k_softmax",
        summary="Select the top k experts by the softmax of the scores.",
        formula="yOut, expertIdxOut = the first k of softmax(x), sorted; rowIdxOut[row, j] = j * rows + row",
        parameters=(
            *(_X, _ROW_FLAGS, _K, _VALUES, _NUMBERS),
            tensor_out("rowIdxOut", "the row indices numbered by columns, 0 on Atlas inference; INT32", const=True),
        ),
        support=_SCORES,
        checks=_softmax_checks(
            lambda product: _SCORES.get(product, _SCORES[Product.ATLAS_A2]),
            _GATED,
            *on({Product.ATLAS_INFERENCE}, null(_FINISHED)),
        ),
        work=_softmax_work,
    ),
    Operator(
        name="moe_gating_top_k_softmax_v2",
        summary="Select the top k experts by score, before or after the softmax.",
        formula="yOut, expertIdxOut = the first k of softmax(x), or softmax of the first k of x with renorm 1, sorted",
        parameters=(
            *(_X, _ROW_FLAGS, _K),
            attribute("renorm", Kind.INT64, "0: top k of the softmax, 1: softmax of the top k"),
            attribute(
                "outputSoftmaxResultFlag", Kind.BOOL, "whether to write softmaxResultOutOptional, without renorm"
            ),
            *(_VALUES, _NUMBERS),
            Parameter(
                _SHARES, _SHARES, Kind.OUTPUT, "the softmax of x; FLOAT", optional=True, c_type="const aclTensor *"
            ),
        ),
        support=support(FLOATING, MODERN),
        checks=_softmax_checks(floating, _GATED[:2], one_of("renorm", 0, 1), rule(f"as x: {_SHARES}", _shares)),
        work=_second_softmax_work,
    ),
    _top_k(
        "moe_gating_top_k",
        "Select the top k experts from the best groups.",
        generated(
            *(("x",), _OF_GROUPS, lambda product: [(d, d, D.INT32, D.FLOAT) for d in FLOATING]),
            *_GROUPED,
            optional=(same_dtype(_BIAS, "x"),),
        ),
    ),
    _top_k(
        "moe_gating_top_k_v2",
        "Select the top k experts from the best groups, or from a table.",
        (
            dtype_in(floating, "x"),
            *(same_dtype(name, "x") for name in (_BIAS, "yOut")),
            dtype_in(INDEX_TYPES, *_TABLE),
            dtype_in((D.INT32,), "expertIdxOut"),
            dtype_in((D.FLOAT,), "outOut"),
            *unless_empty(
                _OF_GROUPS,
                *with_code(
                    ACLNN_ERR_INNER_TILING_ERROR,
                    *_GROUPED,
                    *restricted(
                        "with a table",
                        _hashed,
                        value_is(f"at most {_MOST_OF_TABLE} with a table", lambda got: got <= _MOST_OF_TABLE, "k"),
                        each("columns of a table", _TABLE[1:], _columns_of_table),
                        shape_is("one for each row", lambda call: call["x"].shape[:1], _TABLE[0]),
                        rule("groups with a table: kGroup", _ungrouped),
                    ),
                ),
                which="every output",
                among=all,
            ),
        ),
        Parameter(_TABLE[0], _TABLE[0], Kind.INPUT, "the table row of each row", optional=True),
        Parameter(_TABLE[1], _TABLE[1], Kind.INPUT, "the table of k experts per row; null: no table", optional=True),
    ),
)
