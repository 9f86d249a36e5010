"""aclnnAlltoAllvGroupedMatMul and aclnnGroupedMatMulAlltoAllv, V2 too: products of tokens with experts on other ranks.

On their way rows lie by ranks and for each by its experts; experts' rows lie by experts and for each by ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    each,
    extents,
    generated,
    listing,
    nothing_to_write,
    null,
    on,
    rule,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, camel, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.expert_ranks import named
from aclnn.operators.library.quantization import given, text
from aclnn.operators.library.ranks import communicator, group, is_group, with_ranks
from aclnn.runtime.collectives import Ranks

_HALVES = (D.FLOAT16, D.BF16)
_A3 = frozenset({Product.ATLAS_A3})
_RANKS = (8, 16, 32, 64, 128)
_MOST_ROWS, _MOST_COLUMNS, _MOST_SHARED, _MOST_EXPERTS, _MOST_COUNTS = 52428800, 65536, 12288, 32, 256
_LEAST_BYTES = 2 << 20
_COUNTS = ("sendCounts", "recvCounts")
_COUNT_TENSORS = ("sendCountsTensorOptional", "recvCountsTensorOptional")
_SHARED = ("mmXOptional", "mmWeightOptional", "mmYOptional")
_PERMUTED = "permuteOutOptional"


def _is_forth(call: Call) -> bool:
    """True where rows go to experts, False where products come back."""
    return "gmmY" in call.arguments


def _out(call: Call) -> str:
    return "gmmY" if _is_forth(call) else "y"


def _tokens(call: Call) -> int:
    """This rank's rows, one for each of its tokens' experts."""
    return int(call["gmmX" if _is_forth(call) else "y"].shape[0])


def _extents(call: Call) -> tuple[int, int, int]:
    """How many experts this rank has, and the rows and columns of their matrices."""
    experts, rows, columns = call["gmmWeight"].shape
    return (experts, columns, rows) if call["transGmmWeight"] else (experts, rows, columns)


def _shared_extents(call: Call) -> tuple[int, int]:
    rows, columns = call["mmWeightOptional"].shape
    return (columns, rows) if call["transMmWeight"] else (rows, columns)


def _all_or_none(call: Call) -> str | None:
    absent = [name for name in _SHARED if call[name] is None]
    if len(absent) in (0, len(_SHARED)):
        return None
    return (
        f"mmXOptional: expected all or none with {listing(_SHARED[1:], 'and')}, got null for {listing(absent, 'and')}"
    )


def _wanted(call: Call) -> str | None:
    flag, there = call["permuteOutFlag"], call[_PERMUTED] is not None
    if flag == there:
        return None
    return f"{_PERMUTED}: expected {'an object' if flag else 'null'} with that permuteOutFlag, got the other"


def _some(name: str) -> Check:
    def complain(call: Call) -> str | None:
        return None if call[name] else f"{name}: expected numbers, got {'null' if call[name] is None else 'none'}"

    return rule(f"some: {name}", complain, ACLNN_ERR_PARAM_INVALID)


def _engine(call: Call) -> str | None:
    got, forth, on_950 = call["commMode"], _is_forth(call), call.product in CLASS_950
    if not forth and not on_950:
        return None
    known = ("ai_cpu", *(("ccu",) if on_950 else ("aiv",)), *(() if forth else ("",)))
    return None if got in known else f"commMode: expected {listing(map(repr, known))}, got {got!r}"


def _as_rows(call: Call, name: str) -> str | None:
    expected, got = call["gmmX"].dtype, call[name].dtype
    if got == expected:
        return None
    return f"expected data type {expected.c_name} (that of gmmX), got {got.c_name}"


def _few_rows(call: Call) -> str | None:
    got = _tokens(call)
    name = "gmmX" if _is_forth(call) else "y"
    return None if 0 < got < _MOST_ROWS else f"{name}: expected from 1 to {_MOST_ROWS - 1} rows, got {got}"


def _matrices(call: Call) -> str | None:
    (experts, rows, columns), expected = _extents(call), call["gmmX"].shape[1]
    if rows != expected:
        return f"gmmWeight: expected {expected} rows of each matrix (the columns of gmmX), got {rows}"
    if 0 < experts <= _MOST_EXPERTS and 0 < rows < _MOST_COLUMNS and 0 < columns < _MOST_COLUMNS:
        return None
    got = extents((experts, rows, columns))
    limits = f"1 to {_MOST_EXPERTS} matrices of 1 to {_MOST_COLUMNS - 1} rows and columns"
    return f"gmmWeight: expected {limits}, got {got}"


def _ranks(call: Call) -> str | None:
    known = (2, 4, *_RANKS, 256) if call.product in CLASS_950 else _RANKS
    got = call["epWorldSize"]
    return None if got in known else f"epWorldSize: expected {listing(map(str, known))}, got {got}"


def _counts_length(call: Call, name: str) -> str | None:
    expected, got = _extents(call)[0] * call["epWorldSize"], len(call[name])
    if got == expected <= _MOST_COUNTS:
        return None
    return f"expected {expected} numbers (of each rank and its experts; at most {_MOST_COUNTS}), got {got}"


def _counts_sum(call: Call, name: str) -> str | None:
    side = "gmmX" if name == "sendCounts" else _out(call)
    expected, counts = call[side].shape[0], call[name]
    if min(counts) >= 0 and sum(counts) == expected:
        return None
    return f"expected numbers from 0 on whose sum is {expected} (the rows of {side}), got {extents(counts)}"


def _enough(call: Call, name: str) -> str | None:
    row = call["gmmX"].shape[1] * 2
    if len(call[name]) % call["epWorldSize"]:  # told before
        return None
    got = [sum(counts) * row for counts in np.reshape(call[name], (call["epWorldSize"], -1)).tolist()]
    if min(got) >= _LEAST_BYTES:
        return None
    return f"expected rows of at least {_LEAST_BYTES} bytes for each rank, got {extents(got)}"


def _turned(call: Call) -> str | None:
    if call["transMmWeight"] and call["mmWeightOptional"] is None:
        return "transMmWeight: expected False without mmWeightOptional, got True"
    return None


def _shared_tokens(call: Call) -> str | None:
    if call["mmXOptional"] is None:
        return None
    tokens, columns = call["mmXOptional"].shape
    rows = _tokens(call)
    whole = call.product in _A3 or not tokens or rows % tokens == 0
    if tokens and whole and 2 <= rows // tokens <= 8 and 0 < columns <= _MOST_SHARED:
        return None
    limits = f"rows that 2 to 8 times are those of the routed tokens ({rows}), of 1 to {_MOST_SHARED} columns"
    return f"mmXOptional: expected {limits}, got {extents((tokens, columns))}"


def _shared_matrix(call: Call) -> str | None:
    if call["mmXOptional"] is None:
        return None
    (rows, columns), expected = _shared_extents(call), call["mmXOptional"].shape[1]
    if rows == expected and 0 < columns < _MOST_COLUMNS:
        return None
    limits = f"{expected} rows (the columns of mmXOptional), 1 to {_MOST_COLUMNS - 1} columns"
    return f"mmWeightOptional: expected {limits}, got {extents((rows, columns))}"


def _columns(call: Call) -> str | None:
    expected, got = _extents(call)[2], call[_out(call)].shape[1]
    return None if got == expected else f"{_out(call)}: expected {expected} columns (those of gmmWeight), got {got}"


def _shared_shape(call: Call) -> tuple[int, int]:
    return call["mmXOptional"].shape[0], _shared_extents(call)[1]


def _of_group(call: Call) -> str | None:
    expected, got = communicator(call).size, call["epWorldSize"]
    return None if got == expected else f"epWorldSize: expected {expected} (that of group), got {got}"


def _by_experts(counts: Any) -> Any:
    """Return the places, among rows by ranks and their experts, of rows by experts and ranks."""
    ranks, experts = counts.shape
    return np.argsort(np.repeat(np.tile(np.arange(experts), ranks), counts.reshape(-1)), kind="stable")


def _parts(rows: Any, lengths: Any) -> list[Any]:
    return np.split(rows, np.cumsum(lengths)[:-1])


def _work(call: Call) -> Library | None:
    forth, out = _is_forth(call), _out(call)
    outputs = (out, *given(call, "mmYOptional", _PERMUTED))
    if call["gmmX"].size == 0 and nothing_to_write(call, outputs):
        return None
    sent, received = (np.reshape(call[name], (call["epWorldSize"], -1)) for name in _COUNTS)

    def products(rows: Any, matrices: Any, lengths: Any) -> Any:
        matrices = matrices.swapaxes(1, 2) if call["transGmmWeight"] else matrices
        return np.concatenate([part @ each for part, each in zip(_parts(rows, lengths), matrices, strict=True)])

    def exchanged(ranks: Ranks, rows: Any) -> Any:
        found = [np.empty((count, rows.shape[1]), rows.dtype) for count in received.sum(1)]
        ranks.exchange(_parts(rows, sent.sum(1)), found)
        return np.concatenate(found)

    def work(ranks: Ranks, x: Any, weight: Any, *shared: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...]
        if forth:
            rows = exchanged(ranks, x)[_by_experts(received)]
            found = (products(rows, weight, received.sum(0)), rows)
        else:
            by_ranks = np.empty((len(x), _extents(call)[2]), x.dtype)
            by_ranks[_by_experts(sent)] = products(x, weight, sent.sum(0))
            found = (exchanged(ranks, by_ranks),)
        if shared:
            tokens, matrix = shared
            found = (found[0], tokens @ (matrix.T if call["transMmWeight"] else matrix), *found[1:])
        return found[: len(outputs)]

    inputs = ("gmmX", "gmmWeight", *given(call, "mmXOptional", "mmWeightOptional"))
    return with_ranks(call, work, inputs, outputs)


def _checks(forth: bool, later: bool) -> tuple[Check, ...]:
    out = "gmmY" if forth else "y"
    permuted = (_PERMUTED,) if forth else ()
    nulls, *others = generated(
        ("gmmX", "gmmWeight"),
        (out,),
        lambda product: [(dtype,) * 3 for dtype in _HALVES],
        dims_between(2, 2, "gmmX", out, *_SHARED, *permuted),
        dims_between(3, 3, "gmmWeight"),
        rule(f"rows of tokens: {'gmmX' if forth else 'y'}", _few_rows),
        rule("matrices of experts: gmmWeight", _matrices),
        rule("known on the product: epWorldSize", _ranks),
        each("of each rank and expert", _COUNTS, _counts_length),
        each("of all rows", _COUNTS, _counts_sum),
        *on(_A3, each("enough for each rank", _COUNTS, _enough)),
        rule("beside its matrix: transMmWeight", _turned),
        rule("tokens of the shared expert: mmXOptional", _shared_tokens),
        rule("matrix of the shared expert: mmWeightOptional", _shared_matrix),
        rule(f"columns of the products: {out}", _columns),
        shape_is("a row for each token", _shared_shape, "mmYOptional"),
        *(
            (shape_is("what experts get", lambda call: (call["gmmY"].shape[0], call["gmmX"].shape[1]), _PERMUTED),)
            if forth
            else ()
        ),
        is_group(),
        rule("that of group: epWorldSize", _of_group),
        written=("gmmX", out),
        optional=(each("data type of gmmX", (*_SHARED, *permuted), _as_rows),),
    )
    (unused,) = with_code(ACLNN_ERR_PARAM_NULLPTR, null(*_COUNT_TENSORS))
    if forth and later:
        unused = each("not taken yet", _COUNT_TENSORS, lambda call, name: "expected null, got a tensor")
    empty, long = named("group", ACLNN_ERR_PARAM_INVALID)
    beside = (
        rule("all or none: mmXOptional", _all_or_none),
        *((rule(f"wanted: {_PERMUTED}", _wanted),) if forth else ()),
    )
    return (
        nulls,
        unused,
        empty,
        *with_code(ACLNN_ERR_PARAM_NULLPTR, *beside),
        long,
        *map(_some, _COUNTS),
        *((rule("an engine: commMode", _engine, ACLNN_ERR_PARAM_INVALID),) if later else ()),
        *others,
    )


def _parameters(forth: bool, later: bool) -> tuple[Parameter, ...]:
    def counts(name: str, meaning: str) -> Parameter:
        return Parameter(name, name, Kind.INT_ARRAY, meaning, optional=True)

    theirs, own = ("its", "this one's") if forth else ("this one's", "its")
    out = tensor_out("gmmY", "products by experts and ranks") if forth else tensor_out("y", "products, by ranks")
    return (
        tensor_in("gmmX", "rows by ranks and their experts" if forth else "rows by this rank's experts and by ranks"),
        tensor_in("gmmWeight", "a matrix for each of this rank's experts"),
        *(optional_in(name, "null") for name in _COUNT_TENSORS),
        optional_in("mmXOptional", "rows of a shared expert, which stay on their rank"),
        optional_in("mmWeightOptional", "its matrix"),
        group(),
        *((text("commMode", "the engine of the exchange, which decides nothing here"),) if later else ()),
        attribute("epWorldSize", Kind.INT64, "how many ranks there are"),
        counts("sendCounts", f"how many rows go to each rank, for each of {theirs} experts"),
        counts("recvCounts", f"how many come from it, for each of {own} experts"),
        attribute("transGmmWeight", Kind.BOOL, "whether experts' matrices are transposed"),
        attribute("transMmWeight", Kind.BOOL, "whether the shared expert's is"),
        *((attribute("permuteOutFlag", Kind.BOOL, "whether what experts get is wanted"),) if forth else ()),
        out,
        tensor_out("mmYOptional", "products of the shared expert", optional=True),
        *((tensor_out(_PERMUTED, "what this rank's experts get", optional=True),) if forth else ()),
    )


def _operator(forth: bool, later: bool) -> Operator:
    name = ("allto_allv_grouped_mat_mul" if forth else "grouped_mat_mul_allto_allv") + ("_v2" if later else "")
    return Operator(
        name=name,
        function=camel(name),
        summary="Send rows to experts on the ranks of a group, and multiply what comes by one's own experts' matrices."
        if forth
        else "Multiply rows by one's own experts' matrices, and send the products back to the ranks of a group.",
        formula="gmmY = Permute(AlltoAllv(gmmX)) @ gmmWeight; mmY = mmX @ mmWeight"
        if forth
        else "y = AlltoAllv(Unpermute(gmmX @ gmmWeight)); mmY = mmX @ mmWeight",
        parameters=_parameters(forth, later),
        support=support(_HALVES, {Product.ATLAS_A3, *CLASS_950}),
        checks=_checks(forth, later),
        work=_work,
    )


OPERATORS = tuple(_operator(forth, later) for forth in (True, False) for later in (False, True))
