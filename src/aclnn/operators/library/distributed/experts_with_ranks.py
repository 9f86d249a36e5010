"""Expert products with exchange of rows between ranks: aclnnAlltoAllvGroupedMatMul and aclnnGroupedMatMulAlltoAllv.

Counts hold a number per rank and expert, ordered by rank. Exchanged rows are in the same order; rows to be multiplied
are ordered by expert, and for each expert by rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    null,
    public_format,
    rule,
    same_dtype,
    shape_is,
    shown,
    where_supported,
)
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.distributed.products_with_ranks import HALVES, MODE, has_length, in_tiling, known
from aclnn.operators.library.distributed.ranks import communicator, group, is_group, with_ranks
from aclnn.operators.library.quantization.quantization import given
from aclnn.runtime.collectives import Ranks

_RANKS = {Product.ATLAS_A3: (8, 16, 32, 64, 128), **dict.fromkeys(CLASS_950, (2, 4, 8, 16, 32, 64))}
_COUNTS, _TENSORS = ("sendCounts", "recvCounts"), ("sendCountsTensorOptional", "recvCountsTensorOptional")
_SHARED = ("mmXOptional", "mmWeightOptional", "mmYOptional")
_PERMUTED = "permuteOutOptional"
_ROWS, _COLUMNS, _SHARED_COLUMNS = 52428800, 65536, 12288
_DIRECT, _DIRECT_ROWS = "aiv", 5000000
_FEW = {Product.ATLAS_A2: (2, 4, 8)}
_ENGINES = {
    Product.ATLAS_A2: (_DIRECT,),
    Product.ATLAS_A3: ("ai_cpu", _DIRECT),
    **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu")),
}


def _weight(call: Call) -> Shape:
    """Return the number of experts, and of rows and columns of their matrices."""
    experts, rows, columns = call["gmmWeight"].shape
    return (experts, columns, rows) if call["transGmmWeight"] else (experts, rows, columns)


def _shared_weight(call: Call) -> Shape:
    rows, columns = call[_SHARED[1]].shape
    return (columns, rows) if call["transMmWeight"] else (rows, columns)


def _shared_product(call: Call) -> Shape:
    return (call[_SHARED[0]].shape[0], _shared_weight(call)[1])


def _has_name(call: Call) -> str | None:
    return None if call["group"] else f"group: expected a name, got {shown(call['group'])}"


def _all_or_none(call: Call) -> str | None:
    there = given(call, *_SHARED)
    missing = [name for name in _SHARED if name not in there]
    return f"{missing[0]}: expected a tensor with {there[0]}, got null" if there and missing else None


def _permuted(call: Call) -> str | None:
    flag, got = call["permuteOutFlag"], call[_PERMUTED]
    if flag == (got is not None):
        return None
    expected = "a tensor where permuteOutFlag is true" if flag else "null where permuteOutFlag is false"
    return f"{_PERMUTED}: expected {expected}, got {'null' if got is None else extents(got.shape)}"


def _has_counts(name: str) -> Check:
    def violation(call: Call) -> str | None:
        return None if call[name] else f"{name}: expected numbers, got {shown(call[name])}"

    return rule(f"numbers: {name}", violation)


def _no_tensor(call: Call, name: str) -> str | None:
    return f"expected null, got shape {extents(call[name].shape)}"


def _fits(call: Call) -> str | None:
    expected, got = call["gmmX"].shape[1], _weight(call)[1]
    return None if got == expected else f"gmmWeight: expected {expected} rows (the columns of gmmX), got {got}"


def _shared_fits(call: Call) -> str | None:
    if call[_SHARED[0]] is None:
        return None
    expected, got = call[_SHARED[0]].shape[1], _shared_weight(call)[0]
    if got != expected:
        return f"{_SHARED[1]}: expected {expected} rows (the columns of {_SHARED[0]}), got {got}"
    return None if 0 < got <= _SHARED_COLUMNS else f"{_SHARED[1]}: expected 1 to {_SHARED_COLUMNS} rows, got {got}"


def _direct(call: Call) -> bool:
    """Return True if cores exchange rows themselves, with different limits."""
    return call.arguments.get("commMode") == _DIRECT


def _extents_of(sent: str, received: str, before: bool) -> tuple[Check, ...]:
    exchanged = sent if before else received

    def rows(call: Call, name: str) -> str | None:
        direct, got = _direct(call), call[name].shape[0]
        least, most = int(direct or name == exchanged), _DIRECT_ROWS if direct else _ROWS - 1
        return None if least <= got <= most else f"expected {least} to {most} rows, got {got}"

    def factors(call: Call) -> str | None:
        got, direct = _weight(call), _direct(call)
        experts = (512 if before else 1024) if direct else (48 if before else 32)
        columns = 32768 if not before and call.product is Product.ATLAS_A2 else _COLUMNS - 1
        if 0 < got[0] <= experts and 0 < got[1] < _COLUMNS and 0 < got[2] <= columns:
            return None
        limits = f"1 to {experts} experts of 1 to {_COLUMNS - 1} rows and 1 to {columns} columns"
        return f"gmmWeight: expected {limits}, got {extents(got)}"

    return each("few enough rows", (sent, received), rows), rule("few enough: gmmWeight", factors)


def _count(before: bool) -> Check:
    def violation(call: Call, name: str) -> str | None:
        expected, got = _weight(call)[0] * call["epWorldSize"], call[name]
        most = 1024 if _direct(call) else 384 if before else 256
        if expected > most:
            return f"expected at most {most} experts of all ranks, got {expected}"
        if len(got) != expected:
            return f"expected {expected} numbers (one for each expert of all ranks), got {len(got)}"
        return None if min(got) >= 0 else f"expected numbers of 0 or more, got {min(got)}"

    return each("one for each expert", _COUNTS, violation)


def _sums(sent: str, received: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        tensor = dict(zip(_COUNTS, (sent, received), strict=True))[name]
        expected, got = call[tensor].shape[0], sum(call[name])
        return None if got == expected else f"expected a sum of {expected} (the rows of {tensor}), got {got}"

    return each("sum", _COUNTS, violation)


def _ranks(call: Call) -> str | None:
    expected, got = call["epWorldSize"], communicator(call).size
    return None if got == expected else f"group: expected {expected} ranks (epWorldSize), got {got}"


def _blocks(counts: Any) -> list[list[slice]]:
    """Return, for each rank, the rows of each expert in an order by expert."""
    ends = np.cumsum(counts.T.reshape(-1)).reshape(counts.T.shape)
    return [
        [slice(end - count, end) for end, count in zip(*pair, strict=True)] for pair in zip(ends.T, counts, strict=True)
    ]


def _multiply(rows: Any, weights: Any, counts: Any) -> Any:
    """Multiply rows, ordered by expert, by the experts' matrices."""
    ends = np.cumsum(counts.sum(0))
    found = np.empty((len(rows), weights.shape[2]), np.float32)
    for begin, end, weight in zip((0, *ends), ends, weights, strict=False):
        found[begin:end] = rows[begin:end] @ weight
    return found


def _work(before: bool) -> Callable[[Call], Library]:
    def work(call: Call) -> Library:
        ranks_of, shared = call["epWorldSize"], given(call, *_SHARED[:2])
        send, receive = (np.array(call[name], np.int64).reshape(ranks_of, -1) for name in _COUNTS)
        turned, shared_turned = call["transGmmWeight"], call["transMmWeight"]
        permuted = (_PERMUTED,) if before and call["permuteOutFlag"] else ()

        def compute(ranks: Ranks, x: Any, weights: Any, *beside: Any) -> tuple[Any, ...]:
            weights = weights.swapaxes(1, 2) if turned else weights
            found = (beside[0] @ (beside[1].T if shared_turned else beside[1]),) if beside else ()
            if before:
                received = [np.empty((count, x.shape[1]), x.dtype) for count in receive.sum(1)]
                ranks.exchange(np.split(x, np.cumsum(send.sum(1))[:-1]), received)
                whole = np.empty((receive.sum(), x.shape[1]), x.dtype)
                for part, blocks, counts in zip(received, _blocks(receive), receive, strict=True):
                    for rows, block in zip(np.split(part, np.cumsum(counts)[:-1]), blocks, strict=True):
                        whole[block] = rows
                return (_multiply(whole, weights, receive), *found, *((whole,) * len(permuted)))
            products = _multiply(x, weights, send)
            received = [np.empty((count, products.shape[1]), products.dtype) for count in receive.sum(1)]
            ranks.exchange(
                (np.concatenate([products[block] for block in blocks]) for blocks in _blocks(send)), received
            )
            return (np.concatenate(received), *found)

        outputs = ("gmmY" if before else "y", *_SHARED[2:][: len(shared)], *permuted)
        return with_ranks(call, compute, ("gmmX", "gmmWeight", *shared), outputs)

    return work


def _operator(before: bool, version: str) -> Operator:
    """Declare a product before or after an exchange of rows; the second version names an engine."""
    name = f"{'allto_allv_grouped_mat_mul' if before else 'grouped_mat_mul_allto_allv'}{version}"
    ranks = (
        _RANKS
        if not version
        else _RANKS | _FEW | ({Product.ATLAS_A3: (2, 4, *_RANKS[Product.ATLAS_A3])} if before else {})
    )
    output, permuted = "gmmY" if before else "y", (_PERMUTED,) * before
    product = shape_is("the product", lambda call: (sum(call[_COUNTS[1]]), _weight(call)[2]), output)
    outputs = (output, _SHARED[2], *permuted)
    tensors = ("gmmX", "gmmWeight", *_SHARED[:2], *outputs)
    no_tensors = null(*_TENSORS) if before else each("no tensors", _TENSORS, _no_tensor, ACLNN_ERR_PARAM_NULLPTR)
    return Operator(
        name=name,
        summary="All-to-all exchange of rows, then the grouped product with the experts' matrices."
        if before
        else "Grouped product with the experts' matrices, then all-to-all exchange of the rows.",
        formula="permuteOutOptional = rows of all ranks by expert, gmmY = permuteOutOptional @ gmmWeight of the expert"
        if before
        else "y = rows of all ranks' (gmmX @ gmmWeight of the expert)",
        parameters=(
            tensor_in("gmmX", "the rows, by destination rank and expert" if before else "the rows, by expert and rank"),
            tensor_in("gmmWeight", "the matrix of each expert of this rank"),
            *(optional_in(each, "null") for each in _TENSORS),
            optional_in(_SHARED[0], "the rows for the shared expert"),
            optional_in(_SHARED[1], "the matrix of the shared expert"),
            group(),
            *(MODE,) * bool(version),
            attribute("epWorldSize", Kind.INT64, "the number of ranks"),
            Parameter(_COUNTS[0], _COUNTS[0], Kind.INT_ARRAY, "the number of rows to each rank, by expert"),
            Parameter(_COUNTS[1], _COUNTS[1], Kind.INT_ARRAY, "the number of rows from each rank, by expert"),
            attribute("transGmmWeight", Kind.BOOL, "whether the matrices are transposed"),
            attribute("transMmWeight", Kind.BOOL, "whether the shared expert's matrix is transposed"),
            *(attribute("permuteOutFlag", Kind.BOOL, "whether to write the rows") for _ in permuted),
            tensor_out(output, "the products"),
            tensor_out(_SHARED[2], "the product of the shared expert", optional=True),
            *(tensor_out(each, "the rows by expert, before multiplication", optional=True) for each in permuted),
        ),
        support=support(HALVES, ranks),
        checks=(
            *((no_tensors,) if before else ()),
            present("gmmX", "gmmWeight", output),
            *(() if before else (no_tensors,)),
            rule("a name: group", _has_name, ACLNN_ERR_PARAM_NULLPTR),
            rule(f"all or none: {', '.join(_SHARED)}", _all_or_none, ACLNN_ERR_PARAM_NULLPTR),
            *(rule(f"as its flag says: {each}", _permuted, ACLNN_ERR_PARAM_NULLPTR) for each in permuted),
            rule("length of a name: group", has_length),
            *(_has_counts(name) for name in _COUNTS),
            *(known("commMode", of=_ENGINES),) * bool(version),
            dtype_in(where_supported(HALVES), "gmmX"),
            *(same_dtype(each, "gmmX") for each in tensors[1:]),
            public_format(*tensors),
            *in_tiling(
                dims_between(2, 2, "gmmX", *_SHARED[:2], *outputs),
                dims_between(3, 3, "gmmWeight"),
                rule("as many rows as gmmX has columns: gmmWeight", _fits),
                *_extents_of("gmmX", output, before),
                known("epWorldSize", of=ranks),
                _count(before),
                _sums("gmmX", output),
                product,
                *(
                    shape_is("rows of gmmX", lambda call: (sum(call[_COUNTS[1]]), call["gmmX"].shape[1]), each)
                    for each in permuted
                ),
                rule(f"as many rows as {_SHARED[0]} has columns: {_SHARED[1]}", _shared_fits),
                shape_is("the product of all rows", _shared_product, _SHARED[2]),
            ),
            is_group(counts=ranks),
            rule("as many as epWorldSize: group", _ranks, ACLNN_ERR_INNER_TILING_ERROR),
        ),
        work=_work(before),
    )


OPERATORS = tuple(_operator(before, version) for before in (True, False) for version in ("", "_v2"))
