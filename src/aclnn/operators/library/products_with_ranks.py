"""Products of matrices whose factors or results ranks exchange: aclnnMatmulAllReduce, aclnnAllGatherMatmul …

What ranks send one another is float32; sums are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    listing,
    on,
    present,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    shown,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_NULLPTR,
)
from aclnn.operators.library.common import MODERN, attribute, camel, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization import given
from aclnn.operators.library.ranks import communicator, group, is_group, with_ranks
from aclnn.runtime.collectives import Ranks

_HALVES = (D.FLOAT16, D.BF16)
_A2, _A3 = Product.ATLAS_A2, Product.ATLAS_A3
_OF_950 = (2, 4, 8, 16, 32, 64)
_REDUCING = {_A2: (1, 2, 4, 8), **dict.fromkeys(CLASS_950, (1, *_OF_950))}
_GATHERING = {_A2: (2, 4, 8), _A3: (2, 4, 8, 16, 32), **dict.fromkeys(CLASS_950, _OF_950)}
_CROSSING = {_A2: (2, 4, 8), **dict.fromkeys((_A3, *CLASS_950), (2, 4, 8, 16))}
"""Numbers of ranks."""
_ENGINES = {_A2: ("aiv",), _A3: ("aiv",), **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu"))}
_LEAST, _MOST = 256, 65534
"""Columns of x1 whose rows are gathered, or of whose products rows are scattered."""

_X1, _X2 = tensor_in("x1", "the left factor"), tensor_in("x2", "the right factor")
_BIAS = optional_in("bias", "what is added to each row")
_TURN = attribute("commTurn", Kind.INT64, "0: the parts in which ranks exchange")
_STREAM = attribute("streamMode", Kind.INT64, "1: stop on failure")


def _text(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.STRING, meaning, c_type="const char *")


_SUM = _text("reduceOp", '"sum"')
_MODE = _text("commMode", "the engine of the exchange, which decides nothing here: ai_cpu, ccu or aiv, by product")


def _one_of(name: str, *values: object, of: Mapping[Product, Collection[object]] | None = None) -> Check:
    """Require one of these values, or of a product's; null is none of them."""

    def complain(call: Call) -> str | None:
        allowed, got = values if of is None else of.get(call.product, (call[name],)), call[name]
        return None if got in allowed else f"{name}: expected {listing(map(repr, allowed))}, got {shown(got)}"

    return rule(f"allowed value: {name}", complain)


def _in_tiling(*checks: Check) -> tuple[Check, ...]:
    """Require what CANN finds out when it divides the work among cores."""
    return tuple(replace(check, name=f"in tiling, {check.name}", code=ACLNN_ERR_INNER_TILING_ERROR) for check in checks)


def _no_null(name: str, code: int) -> Check:
    """Require a text."""
    return rule(
        f"a text: {name}", lambda call: f"{name}: expected a text, got null" if call[name] is None else None, code
    )


def _is_turned(call: Call) -> str | None:
    return "x1: expected no transposed matrix, got one" if call["x1"].is_transposed else None


def _is_laid(call: Call) -> str | None:
    x2 = call["x2"]
    if x2.size == 0 or x2.is_contiguous or x2.is_transposed:
        return None
    return f"x2: expected a contiguous matrix or a transposed one, got strides {extents(x2.strides)}"


def _fits(call: Call) -> str | None:
    expected, got = call["x1"].shape[-1], call["x2"].shape[0]
    return None if got == expected else f"x2: expected {expected} rows (the columns of x1), got {got}"


def _has_columns(call: Call) -> str | None:
    return None if call["x1"].shape[1] else f"x1: expected columns, got shape {extents(call['x1'].shape)}"


def _in_range(call: Call) -> str | None:
    got = call["x1"].shape[1]
    return None if _LEAST <= got <= _MOST else f"x1: expected {_LEAST} to {_MOST} columns, got {got}"


def _columns_of_output(call: Call) -> str | None:
    expected, got = call["x2"].shape[1], call["output"].shape[1]
    return None if got == expected else f"output: expected {expected} columns (those of x2), got {got}"


_LAID = rule("contiguous or transposed: x2", _is_laid)
_FIT = rule("as many rows as x1 has columns: x2", _fits)
_COLUMNS = rule("as many columns as x2: output", _columns_of_output)
_NOT_TURNED = rule("not transposed: x1", _is_turned)
_NARROW = rule(f"{_LEAST} to {_MOST} columns: x1", _in_range)


def _columns(name: str) -> Check:
    return shape_is("one for each column", lambda call: (call["output"].shape[-1],), name)


def _plain_types(*names: str) -> tuple[Check, ...]:
    """Require FLOAT16 or BF16, of all tensors the same."""
    return dtype_in(where_supported(_HALVES), "x1", *names), *(same_dtype(name, "x1") for name in names)


def _sum_of_terms(product: Any, terms: Collection[Any]) -> Any:
    for term in terms:
        product += term
    return product


def _reduced_work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None

    def reduce(ranks: Ranks, x1: Any, x2: Any, *terms: Any) -> Any:
        return ranks.total(_sum_of_terms(x1 @ x2, terms))

    return with_ranks(call, reduce, ("x1", "x2", *given(call, "bias", "x3")), ("output",))


def _all_reduce(
    version: str = "", with_x3: bool = True, engines: Mapping[Product, Collection[str]] | None = None
) -> Operator:
    name = f"matmul_all_reduce{version}"
    x3, mode = (("x3",) * with_x3), ((_MODE,) if engines else ())
    return Operator(
        name=name,
        function=camel(name),
        summary="Multiply matrices and add up the products of all ranks.",
        formula=f"output = sum over ranks of (x1 @ x2 + bias{' + x3' * with_x3})",
        parameters=(
            _X1,
            _X2,
            _BIAS,
            *(optional_in(each, "what is added to the product") for each in x3),
            group(),
            _SUM,
            *mode,
            _TURN,
            _STREAM,
            tensor_out("output", "the sum, on every rank", const=True),
        ),
        support=support(_HALVES, _REDUCING),
        checks=(
            present("x1", "x2", "output"),
            *_plain_types("x2", "output", "bias", *x3),
            _one_of("reduceOp", "sum"),
            _one_of("streamMode", 1),
            public_format("x1", "x2", "bias", *x3, "output"),
            dims_between(2, 2, "x2"),
            dims_between(2, 3, "x1"),
            _FIT,
            shape_is("the product", lambda call: (*call["x1"].shape[:-1], call["x2"].shape[1]), "output"),
            *(same_shape(each, "output") for each in x3),
            _columns("bias"),
            *on({_A2}, _LAID),
            *((_no_null("commMode", ACLNN_ERR_PARAM_NULLPTR), _one_of("commMode", of=engines)) if engines else ()),
            *unless_empty(("output",), *_in_tiling(_one_of("commTurn", 0)), is_group(counts=_REDUCING)),
        ),
        work=_reduced_work,
        stream_type="const aclrtStream ",
    )


def _rows_of_all(call: Call) -> int:
    rows: int = call["x1"].shape[0] * communicator(call).size
    return rows


def _gathered_shape(call: Call, name: str) -> str | None:
    columns = call["x2"].shape[1] if name == "output" else call["x1"].shape[1]
    expected, got = (_rows_of_all(call), columns), call[name].shape
    if got == expected or (name == "gatherOut" and call[name].size == 0):
        return None
    return f"expected shape {extents(expected)} (a row for each of all ranks), got {extents(got)}"


def _columns_gathered(call: Call, name: str) -> str | None:
    expected, got = call["x1"].shape[1], call[name].shape
    if call[name].size == 0 or got[1:] == (expected,):
        return None
    return f"expected {expected} columns (those of x1), got shape {extents(got)}"


def _gathered_work(call: Call) -> Library | None:
    if call["x1"].size == 0:
        return None
    gathers = call["gatherOut"] is not None and call["gatherOut"].size

    def gather(ranks: Ranks, x1: Any, x2: Any, *terms: Any) -> Any:
        whole = ranks.gathered(x1).reshape(-1, x1.shape[1])
        output = _sum_of_terms(whole @ x2, terms)
        return (output, whole) if gathers else output

    inputs, outputs = ("x1", "x2", *given(call, "bias")), ("output", *("gatherOut",) * bool(gathers))
    return with_ranks(call, gather, inputs, outputs)


def _scattered_shape(call: Call) -> str | None:
    rows, size, got = call["x1"].shape[0], communicator(call).size, call["output"].shape
    if rows % size:
        return f"x1: expected a multiple of {size} rows (as many as ranks), got {rows}"
    expected = (rows // size, call["x2"].shape[1])
    return None if got == expected else f"output: expected shape {extents(expected)}, got {extents(got)}"


def _scattered_work(call: Call) -> Library | None:
    if call["x1"].size == 0 or call["x2"].size == 0:
        return None

    def scatter(ranks: Ranks, x1: Any, x2: Any, *terms: Any) -> Any:
        product = _sum_of_terms(x1 @ x2, terms)
        return ranks.total_of_own(product.reshape(ranks.size, -1, product.shape[1]))

    return with_ranks(call, scatter, ("x1", "x2", *given(call, "bias")), ("output",))


_MATRICES = (
    dims_between(2, 2, "x1", "x2", "output"),
    rule("columns: x1", _has_columns),
)
_FACTORS = (_NOT_TURNED, _FIT, _NARROW, _COLUMNS)
_GATHER = (
    each("as many columns as x1", ("gatherOut",), _columns_gathered),
    *_in_tiling(_one_of("gatherIndex", 0), _one_of("commTurn", 0), _columns("bias")),
    is_group(counts=_GATHERING),
    *_in_tiling(each("rows of all ranks", ("output", "gatherOut"), _gathered_shape)),
)
_SCATTER = (
    *_in_tiling(_one_of("reduceOp", "sum"), _one_of("commTurn", 0), _columns("bias")),
    is_group(counts=_GATHERING),
    *_in_tiling(rule("rows for each rank: x1, output", _scattered_shape)),
)
_GATHER_INDEX = attribute("gatherIndex", Kind.INT64, "0: x1 is gathered")


def _gather_out(const: bool) -> Parameter:
    return tensor_out("gatherOut", "the rows of x1 of all ranks; null or empty where not wanted", const, optional=True)


_ALL_GATHER = Operator(
    name="all_gather_matmul",
    function="aclnnAllGatherMatmul",
    summary="Gather the rows of all ranks' left factors and multiply them by the right one.",
    formula="gatherOut = x1 of all ranks, output = gatherOut @ x2 + bias",
    parameters=(
        _X1,
        _X2,
        _BIAS,
        group(),
        _GATHER_INDEX,
        _TURN,
        _STREAM,
        tensor_out("output", "the product", const=True),
        _gather_out(const=True),
    ),
    support=support(_HALVES, MODERN),
    checks=(
        present("x1", "x2", "output"),
        *_plain_types("x2", "output", "bias", "gatherOut"),
        _one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output", "gatherOut"),
        *unless_empty(("x1",), *_FACTORS, *on({_A2}, _LAID), *_GATHER),
    ),
    work=_gathered_work,
)

_REDUCE_SCATTER = Operator(
    name="matmul_reduce_scatter",
    function="aclnnMatmulReduceScatter",
    summary="Multiply matrices, add up the products of all ranks and give each rank its rows.",
    formula="output = this rank's rows of the sum over ranks of (x1 @ x2 + bias)",
    parameters=(
        _X1,
        _X2,
        _BIAS,
        group(),
        _SUM,
        _TURN,
        _STREAM,
        tensor_out("output", "this rank's rows of the sum", const=True),
    ),
    support=support(_HALVES, MODERN),
    checks=(
        present("x1", "x2", "output"),
        *_plain_types("x2", "output", "bias"),
        _one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output"),
        *unless_empty(("x1", "x2"), *_FACTORS, *on({_A2}, _LAID), *_SCATTER),
    ),
    work=_scattered_work,
)


OPERATORS = (
    _all_reduce(with_x3=False),
    _all_reduce("_v2"),
    _all_reduce("_v3", engines={_A2: ("ai_cpu",), **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu"))}),
    _ALL_GATHER,
    _REDUCE_SCATTER,
)
