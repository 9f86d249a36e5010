"""aclnnMoeDistributeDispatch to V4: send tokens to experts on other ranks.

A rank receives the rows of its experts in order, for each expert by source rank, and for each rank in token order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    elsewhere,
    extents,
    generated,
    nothing_to_write,
    null,
    on,
    one_of,
    restricted,
    rule,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, attribute, constant_text, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.distributed.expert_ranks import (
    Experts,
    Routes,
    active_experts,
    at_least,
    hidden,
    is_first,
    most_rows,
    named_groups,
    rank_attributes,
    rank_checks,
    special_attributes,
    token_checks,
)
from aclnn.operators.library.distributed.ranks import with_ranks
from aclnn.operators.library.quantization.quantization import dynamically, given, quantized
from aclnn.runtime.collectives import Ranks

#: Products on which ``combine`` receives each row's index among its expert's rows instead of its origin.
PLACES_ON = frozenset({Product.ATLAS_A2})
_PLAIN, _STATIC, _DYNAMIC = 0, 1, 2
#: Elements of ``assistInfoForCombine`` per row that a rank may receive.
ASSIST = 128


class _Names:
    """Names of a version's tensors."""

    def __init__(self, version: int) -> None:
        optional, out = ("Optional", "Out") if version > 1 else ("", "")
        self.scales, self.mask, self.weights = (
            f"{name}{optional}" for name in ("scales", "xActiveMask", "expertScales")
        )
        self.elastic, self.performance = "elasticInfoOptional", "performanceInfoOptional"
        self.rows, self.dynamic, self.counts = (
            f"{name}{out}" for name in ("expandX", "dynamicScales", "expertTokenNums")
        )
        self.received, self.of_second = (f"{name}RecvCounts{out}" for name in ("ep", "tp"))
        self.row_weights = f"expandScales{out}"
        self.assist = "assistInfoForCombineOut" if version > 1 else "expandIdx"

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.rows, self.dynamic, self.assist, self.counts, self.received, self.of_second, self.row_weights)


_FIRST, _LATER = _Names(1), _Names(2)


def _names(call: Call) -> _Names:
    return _FIRST if is_first(call) else _LATER


def _columns(product: Product) -> list[tuple[D, ...]]:
    others = (D.FLOAT, D.INT32, D.INT64, D.INT32, D.INT32, D.FLOAT)
    return [(x, D.INT32, rows, *others) for x in (D.FLOAT16, D.BF16) for rows in (x, D.INT8)]


def _mode(call: Call) -> str | None:
    got, known = call["quantMode"], (0, 1, 2) if call.product in CLASS_950 and not is_first(call) else (0, 2)
    return None if got in known else f"quantMode: expected {' or '.join(map(str, known))}, got {got}"


def _scaled(call: Call) -> str | None:
    name, mode = _names(call).scales, call["quantMode"]
    if mode == _PLAIN and call[name] is not None:
        return f"{name}: expected null with quantMode 0, got an object"
    if mode == _STATIC and call[name] is None:
        return f"{name}: expected an object with quantMode 1, got null"
    return None


def _stored(call: Call) -> str | None:
    name = _names(call).rows
    expected, got = D.INT8 if call["quantMode"] else call["x"].dtype, call[name].dtype
    return None if got == expected else f"{name}: expected {expected.c_name} with that quantMode, got {got.c_name}"


def _scales_shape(call: Call) -> str | None:
    name, columns = _names(call).scales, call["x"].shape[1]
    if call[name] is None:
        return None
    experts, got = Experts.of(call), call[name].shape
    rows = (experts.routed + experts.shared, columns)
    known = [rows, (1,), (columns,)] if call["quantMode"] == _STATIC else [rows]
    return None if got in known else f"{name}: expected shape {' or '.join(map(extents, known))}, got {extents(got)}"


def _same_tokens(call: Call) -> str | None:
    expected, got = call["x"].shape[0], call["expertIds"].shape
    return None if got[0] == expected else f"expertIds: expected {expected} rows (as many as x), got {extents(got)}"


def _rows_shape(call: Call) -> str | None:
    name, least, columns = _names(call).rows, most_rows(call), call["x"].shape[1]
    got = call[name].shape
    if got[0] >= least and got[1] == columns:
        return None
    return f"{name}: expected at least {least} rows of {columns} elements, got {extents(got)}"


def _places(call: Call) -> bool:
    """Return True if ``combine`` receives the index of each row among its expert's rows, as on Atlas A2."""
    return is_first(call) or call.product in PLACES_ON


def _assist_size(call: Call) -> int:
    return int(call["expertIds"].size) if _places(call) else ASSIST * most_rows(call)


def _received_size(call: Call) -> int:
    return Experts.of(call).own * int(call["epWorldSize"])


def _padded(values: Any, shape: Sequence[int]) -> Any:
    """Return values followed by zeros, in the given shape."""
    found = np.zeros(shape, values.dtype)
    found[tuple(map(slice, values.shape))] = values
    return found


def _nth(keys: Any) -> Any:
    """Return the number of earlier equal elements for each element."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int32)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def _work(call: Call) -> Library | None:
    names, experts, mode = _names(call), Experts.of(call), call["quantMode"]
    outputs = names.outputs if mode == _DYNAMIC else tuple(name for name in names.outputs if name != names.dynamic)
    if nothing_to_write(call, names.outputs):
        return None
    optional = given(call, names.scales, names.mask)

    def quantize(rows: Any, scales: Any, numbers: Any) -> tuple[Any, Any]:
        if mode == _PLAIN:
            return rows, np.empty(0, np.float32)
        if scales is not None:
            rows = rows * (scales[numbers] if scales.ndim == 2 else scales)
        if mode == _STATIC:
            return quantized(rows, D.INT8), np.empty(0, np.float32)
        integers, factors = dynamically(rows, 1, D.INT8)
        return integers, factors.reshape(-1)

    def dispatch(ranks: Ranks, x: Any, ids: Any, *given_ones: Any) -> tuple[Any, ...]:
        beside = dict(zip(optional, given_ones, strict=True))
        active = active_experts(call, ids, beside.get(names.mask))
        routes = Routes.of(experts, ids, active)
        rows, factors = quantize(x[routes.tokens], beside.get(names.scales), routes.numbers)
        triples = np.stack([np.full(len(rows), ranks.rank), routes.tokens, routes.places], 1).astype(np.int32)
        sent = [routes.to(rank) for rank in range(ranks.size)]
        own_of = [1 if rank < experts.shared_ranks else experts.each for rank in range(ranks.size)]
        counts = np.empty((ranks.size, experts.own), np.int32)
        ranks.exchange(
            [
                np.bincount(routes.experts[to], minlength=own).astype(np.int32)
                for to, own in zip(sent, own_of, strict=True)
            ],
            [*counts],
        )
        order = np.argsort(np.repeat(np.tile(np.arange(experts.own), ranks.size), counts.reshape(-1)), kind="stable")
        if len(order) > call[names.rows].shape[0]:
            raise IndexError(f"{names.rows}: expected at least {len(order)} rows, got {call[names.rows].shape[0]}")

        def taken(values: Any) -> Any:
            found = [np.empty((count, *values.shape[1:]), values.dtype) for count in counts.sum(1)]
            ranks.exchange([values[to] for to in sent], found)
            return np.concatenate(found)[order]

        found = [_padded(taken(rows), call[names.rows].shape)]
        if mode == _DYNAMIC:
            found.append(_padded(taken(factors), call[names.dynamic].shape))
        if _places(call):
            assist = np.zeros(ids.shape, np.int32)
            routed = routes.places < ids.shape[1]
            assist[routes.tokens[routed], routes.places[routed]] = _nth(routes.numbers[routed])
        else:
            assist = taken(triples)
        per_expert = counts.sum(0)
        return (
            *found,
            _padded(assist.reshape(-1), call[names.assist].shape),
            per_expert if call["expertTokenNumsType"] else per_expert.cumsum(),
            _padded(counts.T.reshape(-1).cumsum(), call[names.received].shape),
            np.zeros(call[names.of_second].shape, np.int32),
            np.zeros(call[names.row_weights].shape, np.float32),
        )

    return with_ranks(call, dispatch, ("x", "expertIds", *optional), outputs, "groupEp")


def _checks(version: int) -> tuple[Check, ...]:
    names = _Names(version)
    null_ones = [names.mask] if version == 1 else [names.elastic] if version > 2 else []
    checked = (
        *rank_checks(version == 1, special=version > 2),
        rule("known on the product: quantMode", _mode),
        one_of("expertTokenNumsType", 0, 1),
        rule(f"with its quantMode: {names.scales}", _scaled),
        rule(f"stored for its quantMode: {names.rows}", _stored),
        *((null(*null_ones),) if null_ones else ()),
        *(on(MODERN - CLASS_950, null(names.performance)) if version > 3 else ()),
        dims_between(2, 2, "x", "expertIds", names.rows),
        dims_between(1, 1, names.assist, names.counts, names.received, names.of_second),
        *restricted("quantMode 2", lambda call: call["quantMode"] == _DYNAMIC, dims_between(1, 1, names.dynamic)),
        *token_checks(None if version == 1 else names.mask),
        hidden("x"),
        rule("a row for each token: expertIds", _same_tokens),
        rule(f"one for each expert: {names.scales}", _scales_shape),
        rule(f"rows that may come: {names.rows}", _rows_shape),
        *restricted(
            "quantMode 2",
            lambda call: call["quantMode"] == _DYNAMIC,
            at_least("one for each row that may come", names.dynamic, most_rows),
        ),
        at_least("enough for combine", names.assist, _assist_size),
        shape_is("one for each own expert", lambda call: (Experts.of(call).own,), names.counts),
        at_least("one for each own expert and rank", names.received, _received_size),
        *elsewhere(PLACES_ON, shape_is("tpWorldSize", lambda call: (call["tpWorldSize"],), names.of_second)),
    )
    nulls, *others = generated(
        ("x", "expertIds"),
        (names.rows, names.dynamic, names.assist, names.counts, names.received, names.of_second, names.row_weights),
        _columns,
        *checked,
        optional=(dtype_in((D.FLOAT,), names.scales, names.weights), dtype_in((D.BOOL,), names.mask)),
    )
    return (nulls, *named_groups(ACLNN_ERR_PARAM_NULLPTR), *others)


def _parameters(version: int) -> tuple[Parameter, ...]:
    names = _Names(version)
    return (
        tensor_in("x", "a row for each token"),
        tensor_in("expertIds", "the expert indices of each token; INT32"),
        optional_in(names.scales, "the smoothing scales of the experts, shared ones first; FLOAT"),
        optional_in(names.mask, "the mask of active tokens, or of active experts per token; BOOL"),
        optional_in(names.weights, "ignored; FLOAT"),
        *((optional_in(names.elastic, "null"),) if version > 2 else ()),
        *((optional_in(names.performance, "null; ignored on Ascend 950"),) if version > 3 else ()),
        *rank_attributes(),
        attribute(
            "quantMode", Kind.INT64, "the quantization mode, 0: none, 1: static, on Ascend 950, 2: dynamic per row"
        ),
        attribute("globalBs", Kind.INT64, "0, or the maximum number of tokens per rank times the number of ranks"),
        attribute(
            "expertTokenNumsType", Kind.INT64, "the contents of expertTokenNumsOut, 0: cumulative sums, 1: counts"
        ),
        *((constant_text("commAlg", "the name of the algorithm, without effect"),) if version > 1 else ()),
        *(special_attributes() if version > 2 else ()),
        tensor_out(names.rows, "the rows for this rank's experts"),
        tensor_out(names.dynamic, "the dequantization scales of the rows with quantMode 2; FLOAT"),
        tensor_out(names.assist, "the information for combine; INT32"),
        tensor_out(names.counts, "the row counts of this rank's experts; INT64"),
        tensor_out(names.received, "the ends of the rows of each expert and rank; INT32"),
        tensor_out(names.of_second, "zeros; INT32"),
        tensor_out(names.row_weights, "zeros; FLOAT"),
    )


def _dispatch(version: int) -> Operator:
    name = f"moe_distribute_dispatch{f'_v{version}' if version > 1 else ''}"
    names = _Names(version)
    return Operator(
        name=name,
        summary="Dispatch tokens to experts on the ranks of a group, and receive the rows of this rank's experts.",
        formula=f"{names.rows} = the rows of x of all ranks whose expertIds are this rank's experts, by experts, ranks "
        f"and tokens; {names.counts} = the row count of each expert",
        parameters=_parameters(version),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=_checks(version),
        work=_work,
    )


OPERATORS = tuple(_dispatch(version) for version in (1, 2, 3, 4))
