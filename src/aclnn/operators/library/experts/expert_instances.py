"""aclnnMoeUpdateExpert: assignment of tokens to instances of their experts, and skipped experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    extents,
    fits,
    generated,
    nothing_to_write,
    one_of,
    restricted,
    rule,
    same_shape,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    INDEX_TYPES,
    attribute,
    expect_within,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)

_TABLE, _SCALES, _THRESHOLD, _MASK = (
    "eplbTable",
    "expertScalesOptional",
    "pruningThresholdOptional",
    "activeMaskOptional",
)
_IDS_OUT, _MASK_OUT = "balancedExpertIds", "balancedActiveMask"
_BY_RANK, _BY_TOKEN = 0, 1
_MOST_TOKENS, _MOST_CHOSEN, _MOST_EXPERTS, _MOST_RANKS = 512, 16, 1024, 768


def _rank(call: Call) -> str | None:
    got, ranks = call["localRankId"], call["worldSize"]
    return None if 0 <= got < ranks else f"localRankId: expected from 0 to {ranks - 1}, got {got}"


def _chosen_shape(call: Call) -> str | None:
    tokens, chosen = call["expertIds"].shape
    if 0 < tokens <= _MOST_TOKENS and 0 < chosen <= _MOST_CHOSEN:
        return None
    return f"expertIds: expected from 1 to {_MOST_TOKENS} rows of 1 to {_MOST_CHOSEN}, got {extents((tokens, chosen))}"


def _table_shape(call: Call) -> str | None:
    least, ranks = call["expertIds"].shape[1], call["worldSize"] if call["balanceMode"] == _BY_RANK else _MOST_RANKS
    experts, columns = call[_TABLE].shape
    if least <= experts <= _MOST_EXPERTS and 1 < columns <= ranks + 1:
        return None
    expected = f"from {least} to {_MOST_EXPERTS} rows of 2 to {ranks + 1}"
    return f"{_TABLE}: expected {expected}, got {extents((experts, columns))}"


def _threshold_shape(call: Call) -> str | None:
    if call[_THRESHOLD] is None:
        return None
    chosen, got = call["expertIds"].shape[1], call[_THRESHOLD].shape
    if got in ((chosen,), (1, chosen)):
        return None
    return f"{_THRESHOLD}: expected shape [{chosen}] or [1, {chosen}], got {extents(got)}"


def _given_beside(name: str, *others: str) -> Check:
    def violation(call: Call) -> str | None:
        beside = next((other for other in others if call[other] is not None), None)
        return f"{name}: expected an object with {beside}, got null" if call[name] is None and beside else None

    return rule(f"with the others: {name}", violation)


def _work(call: Call) -> Library | None:
    outputs = (_IDS_OUT, _MASK_OUT)
    if nothing_to_write(call, outputs):
        return None
    by_rank, rank, ranks = call["balanceMode"] == _BY_RANK, call["localRankId"], call["worldSize"]
    optional = tuple(name for name in (_SCALES, _THRESHOLD, _MASK) if call[name] is not None)

    def balanced(ids: Any, table: Any) -> Any:
        expect_within("expertIds", ids, 0, len(table) - 1, "experts")
        instances = table[ids, 0]
        expect_within(_TABLE, instances, 1, table.shape[1] - 1, "numbers of instances in the first column")
        nth = rank // -(-ranks // instances) if by_rank else np.arange(len(ids))[:, None] % instances
        return table[ids, nth + 1]

    def update(ids: Any, table: Any, scales: Any = None, threshold: Any = None, active: Any = None) -> Any:
        found = balanced(ids, table)
        if scales is None:
            return found
        kept = scales >= threshold.reshape(1, -1) * scales.sum(1, keepdims=True)
        return found, kept if active is None else kept & active[:, None]

    return Library(update, ("expertIds", _TABLE, *optional), outputs if optional else outputs[:1])


OPERATORS = (
    Operator(
        name="moe_update_expert",
        summary="Select expert instances by rank or token, and drop experts of low weight.",
        formula=f"{_IDS_OUT}[i, j] = {_TABLE}[e, 1 + n], e = expertIds[i, j], c = {_TABLE}[e, 0], "
        f"n = localRankId / ceil(worldSize / c), or i % c with balanceMode 1; "
        f"{_MASK_OUT} = {_SCALES} >= {_THRESHOLD} * the sums of {_SCALES}' rows, and {_MASK}",
        parameters=(
            tensor_in("expertIds", "the expert indices of each token; INT32 or INT64"),
            tensor_in(_TABLE, "the number of instances of each expert, followed by the instances; INT32"),
            optional_in(_SCALES, "the weights of the experts"),
            optional_in(_THRESHOLD, "the minimum share of a token's weights that an expert must have; FLOAT"),
            optional_in(_MASK, "the mask of active tokens; BOOL"),
            attribute("localRankId", Kind.INT64, "the index of this rank"),
            attribute("worldSize", Kind.INT64, "the number of ranks"),
            attribute("balanceMode", Kind.INT64, "the selection, 0: by rank, 1: by token"),
            tensor_out(_IDS_OUT, "the selected instances"),
            tensor_out(_MASK_OUT, "the mask of experts kept, if weights are given; BOOL"),
        ),
        support=support(INDEX_TYPES, {Product.ATLAS_A3, *CLASS_950}),
        checks=generated(
            ("expertIds", _TABLE),
            (_IDS_OUT, _MASK_OUT),
            lambda product: [(index, D.INT32, index, D.BOOL) for index in INDEX_TYPES],
            one_of("balanceMode", _BY_RANK, _BY_TOKEN),
            *restricted(
                "balanceMode 0",
                lambda call: call["balanceMode"] == _BY_RANK,
                value_is(f"from 2 to {_MOST_RANKS}", lambda got: 2 <= got <= _MOST_RANKS, "worldSize"),
                rule("one of the ranks: localRankId", _rank),
            ),
            dims_between(2, 2, "expertIds"),
            rule("few tokens and experts: expertIds", _chosen_shape),
            dims_between(2, 2, _TABLE),
            rule(f"a row for each expert: {_TABLE}", _table_shape),
            same_shape(_SCALES, "expertIds"),
            rule(f"one for each place: {_THRESHOLD}", _threshold_shape),
            fits("shape {}", lambda call, got: (call["expertIds"].shape[:1], got.shape), _MASK),
            _given_beside(_THRESHOLD, _SCALES, _MASK),
            _given_beside(_SCALES, _THRESHOLD),
            same_shape(_IDS_OUT, "expertIds"),
            same_shape(_MASK_OUT, "expertIds"),
            optional=(dtype_in(FLOATING, _SCALES), dtype_in((D.FLOAT,), _THRESHOLD), dtype_in((D.BOOL,), _MASK)),
        ),
        work=_work,
    ),
)
