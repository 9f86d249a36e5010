"""aclnnMoeDistributeCombine to V4, aclnnMoeDistributeCombineAddRmsNorm and V2: collect results of remote experts.

Each rank returns the rows that it received, in order; so a rank knows from its own ``expertIds`` what it will receive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    elsewhere,
    extents,
    fits,
    generated,
    nothing_to_write,
    null,
    on,
    rule,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import MODERN, attribute, constant_text, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.distributed.expert_dispatch import ASSIST, PLACES_ON
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
    special_experts,
    token_checks,
)
from aclnn.operators.library.distributed.ranks import with_ranks
from aclnn.operators.library.quantization.quantization import given
from aclnn.runtime.collectives import Ranks

_INTEGERS = 2
#: Number of elements that share a scale when sent as integers.
_BLOCK = 8
_ORIGINAL, _CONSTANT = "oriXOptional", "constExpertVOptional"
_ALPHAS = ("constExpertAlpha1Optional", "constExpertAlpha2Optional")
_OF_SPECIAL = (_ORIGINAL, *_ALPHAS, _CONSTANT)
_NORMED = ("residualX", "gamma")
_SHARED, _ELASTIC, _PERFORMANCE = "sharedExpertXOptional", "elasticInfoOptional", "performanceInfoOptional"


class _Names:
    """Names of a function's tensors; the unversioned functions have shorter ones."""

    def __init__(self, first: bool) -> None:
        optional = "" if first else "Optional"
        self.of_second, self.mask = f"tpSendCounts{optional}", f"xActiveMask{optional}"
        self.reserved = tuple(f"{name}{optional}" for name in ("activationScale", "weightScale", "groupList"))
        self.row_weights = f"expandScales{optional}"
        self.assist, self.out = ("expandIdx", "x") if first else ("assistInfoForCombine", "xOut")


def _carried(call: Call) -> str | None:
    got, known = call["commQuantMode"], (0,) if call.product in PLACES_ON else (0, _INTEGERS)
    return None if got in known else f"commQuantMode: expected {' or '.join(map(str, known))}, got {got}"


def _token_shape(call: Call) -> tuple[int, int]:
    return call["expertIds"].shape[0], call["expandX"].shape[1]


def _apart(call: Call) -> tuple[int, int, int]:
    tokens, columns = _token_shape(call)
    return tokens, 1, columns


def _shared_shape(call: Call) -> str | None:
    got = call[_SHARED]
    if got is None:
        return None
    if call["sharedExpertRankNum"]:
        return f"{_SHARED}: expected null with sharedExpertRankNum {call['sharedExpertRankNum']}, got an object"
    tokens, columns = _token_shape(call)
    if len(got.shape) in (2, 3) and got.shape[-1] == columns and got.size == tokens * columns:
        return None
    return f"{_SHARED}: expected {tokens} rows of {columns} elements in 2 or 3 dimensions, got {extents(got.shape)}"


def _beside_special(name: str) -> Check:
    """Require a tensor, and its shape, if there are experts that need it."""

    def violation(call: Call) -> str | None:
        _, copied, constants = special_experts(call)
        expected = _token_shape(call) if name == _ORIGINAL else (constants, call["expandX"].shape[1])
        got = call[name]
        if got is None:
            needed = constants or (copied and name == _ORIGINAL)
            return f"{name}: expected an object with copyExpertNum or constExpertNum, got null" if needed else None
        if got.shape == expected:
            return None
        return f"{name}: expected shape {extents(expected)}, got {extents(got.shape)}"

    return rule(f"for experts without ranks: {name}", violation)


def _assist_size(call: Call) -> int:
    return int(call["expertIds"].size) if is_first(call) or call.product in PLACES_ON else ASSIST * most_rows(call)


def _sent_size(call: Call) -> int:
    return Experts.of(call).own * int(call["epWorldSize"])


def _by_integers(rows: Any, dtype: D) -> Any:
    """Return rows after the round trip through 8-bit integers."""
    blocks = np.pad(rows, ((0, 0), (0, -rows.shape[1] % _BLOCK))).reshape(len(rows), -1, _BLOCK)
    factors = np.abs(blocks).max(2, keepdims=True) / np.float32(127)
    with np.errstate(all="ignore"):
        integers = np.rint(np.nan_to_num(blocks / factors))
    carried = factors.astype(dtype.numpy).astype(np.float32)
    restored = (integers * carried).astype(dtype.numpy).astype(rows.dtype)
    return restored.reshape(len(rows), -1)[:, : rows.shape[1]]


def _special_rows(call: Call, ids: Any, weights: Any, beside: dict[str, Any]) -> Any:
    """Return the weighted results of copying and constant experts, summed per token."""
    zero, copied, constants = special_experts(call)
    first = call["moeExpertNum"] + zero
    total = 0.0
    if copied:
        copies = (ids >= first) & (ids < first + copied)
        total = total + (weights * copies).sum(1, keepdims=True) * beside[_ORIGINAL]
    for number in range(constants):
        x = beside[_ORIGINAL]
        scores = np.stack([x @ beside[name][number] for name in _ALPHAS])
        shares = np.exp(scores - scores.max(0))
        shares = (shares / shares.sum(0))[..., None]
        mixed = shares[0] * x + shares[1] * beside[_CONSTANT][number]
        total = total + (weights * (ids == first + copied + number)).sum(1, keepdims=True) * mixed
    return total


def _work(call: Call) -> Library | None:
    names, experts = _Names(is_first(call)), Experts.of(call)
    normed = "gamma" in call.arguments
    outputs = ("yOut", "rstdOut", names.out) if normed else (names.out,)
    if nothing_to_write(call, outputs):
        return None
    optional = given(call, names.mask, _SHARED, *_OF_SPECIAL, *_NORMED)
    by_integers, dtype = call["commQuantMode"] == _INTEGERS, call["expandX"].dtype

    def combine(ranks: Ranks, rows: Any, ids: Any, ends: Any, weights: Any, *given_ones: Any) -> Any:
        beside = dict(zip(optional, given_ones, strict=True))
        counts = np.diff(ends[: experts.own * ranks.size], prepend=0)
        if counts.min() < 0 or counts.sum() > len(rows):
            raise IndexError(f"epSendCounts: expected ends of rows from 0 to {len(rows)}, got {extents(ends.tolist())}")
        owners = np.repeat(np.tile(np.arange(ranks.size), experts.own), counts)
        sent = _by_integers(rows[: len(owners)], dtype) if by_integers else rows[: len(owners)]
        active = active_experts(call, ids, beside.get(names.mask))
        routes = Routes.of(experts, ids, active)
        answers = np.empty((len(routes.ranks), rows.shape[1]), rows.dtype)
        everyone = range(ranks.size)
        ranks.exchange([sent[owners == rank] for rank in everyone], [answers[routes.to(rank)] for rank in everyone])
        total = np.zeros((len(ids), rows.shape[1]), rows.dtype)
        whole = np.concatenate([weights * active, np.ones((len(ids), experts.shared), weights.dtype)], 1)
        for place in range(whole.shape[1]):
            here = routes.places == place
            at = routes.tokens[here]
            total[at] += whole[at, place, None] * answers[here]
        total += _special_rows(call, ids, weights * active, beside)
        for name in given(call, _SHARED, "residualX"):
            total += beside[name].reshape(total.shape)
        total[~active.any(1)] = 0
        if not normed:
            return total
        rstd = 1 / np.sqrt((total * total).mean(1, keepdims=True) + total.dtype.type(call["normEps"]))
        return (total * rstd * beside["gamma"])[:, None], rstd[:, None], total[:, None]

    inputs = ("expandX", "expertIds", "epSendCounts", "expertScales", *optional)
    return with_ranks(call, combine, inputs, outputs, "groupEp")


def _checks(version: int, normed: bool) -> tuple[Check, ...]:
    first, special = version == 1, version > 2
    names = _Names(first)
    inputs = ("expandX", "expertIds", names.assist, "epSendCounts", "expertScales", *(_NORMED if normed else ()))
    outputs = ("yOut", "rstdOut", names.out) if normed else (names.out,)
    beside = (*(() if first else (_SHARED,)), *(_OF_SPECIAL if special else ()))

    def columns(product: Product) -> list[tuple[D, ...]]:
        of_rows = [(x, D.INT32, D.INT32, D.INT32, D.FLOAT) for x in ((D.BF16,) if normed else (D.FLOAT16, D.BF16))]
        return [(*column, *((*column[:1] * 3, D.FLOAT) if normed else ()), column[0]) for column in of_rows]

    beside_a2 = (_SHARED, *((*_ALPHAS, _CONSTANT) if special else ()), *((_PERFORMANCE,) if version > 3 else ()))
    checked = (
        *rank_checks(first, special),
        rule("known on the product: commQuantMode", _carried),
        *(() if normed or first else on(PLACES_ON, null(*beside_a2))),
        null(*names.reserved, *((names.mask,) if first else (_ELASTIC,) if special else ())),
        dims_between(2, 2, "expandX", "expertIds", "expertScales"),
        dims_between(1, 1, names.assist, "epSendCounts"),
        *token_checks(None if first else names.mask),
        hidden("expandX"),
        at_least("rows that may have come", "expandX", most_rows),
        at_least("enough of dispatch", names.assist, _assist_size),
        at_least("one for each own expert and rank", "epSendCounts", _sent_size),
        *elsewhere(
            PLACES_ON,
            fits("shape {} (tpWorldSize)", lambda call, got: ((call["tpWorldSize"],), got.shape), names.of_second),
        ),
        same_shape("expertScales", "expertIds"),
        *(() if first else (rule(f"a row for each token: {_SHARED}", _shared_shape),)),
        *(map(_beside_special, _OF_SPECIAL) if special else ()),
        *(
            (
                shape_is("a row for each token", _apart, "residualX", "yOut", names.out),
                shape_is("one for each column", lambda call: _token_shape(call)[1:], "gamma"),
                shape_is("one for each token", lambda call: (call["expertIds"].shape[0], 1, 1), "rstdOut"),
            )
            if normed
            else (shape_is("a row for each token", _token_shape, names.out),)
        ),
    )
    nulls, *others = generated(
        inputs,
        outputs,
        columns,
        *checked,
        optional=(
            dtype_in((D.INT32,), names.of_second),
            dtype_in((D.BOOL,), names.mask),
            *(same_dtype(name, "expandX") for name in beside),
        ),
    )
    return (nulls, *named_groups(ACLNN_ERR_PARAM_INVALID), *others)


def _parameters(version: int, normed: bool) -> tuple[Parameter, ...]:
    first, special = version == 1, version > 2
    names = _Names(first)
    residual = (
        tensor_in("residualX", "the residual, one row per token; BF16"),
        tensor_in("gamma", "the weight of the norm; BF16"),
    )
    share = "a row per constant expert, whose product with a token is the logit of the mixture"
    of_special = (
        optional_in(_ELASTIC, "null"),
        optional_in(_ORIGINAL, "the tokens, for copy and constant experts"),
        *(optional_in(name, share) for name in _ALPHAS),
        optional_in(_CONSTANT, "the constants"),
    )
    return (
        tensor_in("expandX", "the outputs of this rank's experts for the dispatched rows"),
        tensor_in("expertIds", "the expert indices of each token; INT32"),
        tensor_in(names.assist, "from dispatch; ignored"),
        tensor_in("epSendCounts", "from dispatch: the ends of the rows of each expert and rank; INT32"),
        tensor_in("expertScales", "the weights of each token's experts; FLOAT"),
        *(residual if normed else ()),
        optional_in(names.of_second, "from dispatch; ignored"),
        optional_in(names.mask, "the mask of active tokens, or of active experts per token; BOOL"),
        *(optional_in(name, "null") for name in names.reserved),
        optional_in(names.row_weights, "ignored"),
        *(() if first else (optional_in(_SHARED, "the shared experts' outputs, one row per token, to be added"),)),
        *(of_special if special else ()),
        *((optional_in(_PERFORMANCE, "null on Atlas A2, otherwise ignored"),) if version > 3 else ()),
        *rank_attributes(),
        attribute("globalBs", Kind.INT64, "0, or the maximum number of tokens per rank times the number of ranks"),
        attribute("outDtype", Kind.INT64, "ignored"),
        attribute(
            "commQuantMode", Kind.INT64, "0: no quantization, 2: 8-bit integers for the exchange, except on Atlas A2"
        ),
        attribute("groupListType", Kind.INT64, "ignored"),
        *(() if first else (constant_text("commAlg", "the name of the algorithm, without effect"),)),
        *((attribute("normEps", Kind.FLOAT, "added to the mean of squares"),) if normed else ()),
        *(special_attributes() if special else ()),
        *(
            (
                tensor_out("yOut", "the normalized xOut; BF16"),
                tensor_out("rstdOut", "the reciprocal root mean square; FLOAT"),
            )
            if normed
            else ()
        ),
        tensor_out(names.out, "the result, one row per token"),
    )


def _combine(version: int, normed: bool = False) -> Operator:
    name = f"moe_distribute_combine{'_add_rms_norm' if normed else ''}"
    # The functions with a norm have the features of the others' second version.
    suffix = version - 1 if normed else version
    name += f"_v{suffix}" if suffix > 1 else ""
    out = _Names(version == 1).out
    formula = (
        f"{out}[i] = sum over j of expertScales[i, j] * output of expert expertIds[i, j] + outputs of shared experts"
    )
    return Operator(
        name=name,
        summary="Combine the weighted outputs of experts on the ranks of a group"
        + (", with a residual, and normalize the sum." if normed else " to each token."),
        formula=f"{formula} + residualX[i]; yOut = RmsNorm({out}) * gamma" if normed else formula,
        parameters=_parameters(version, normed),
        support=support((D.BF16,), {Product.ATLAS_A3}) if normed else support((D.FLOAT16, D.BF16), MODERN),
        checks=_checks(version, normed),
        work=_work,
    )


OPERATORS = (*(_combine(version) for version in (1, 2, 3, 4)), *(_combine(version, normed=True) for version in (2, 3)))
