"""Matrix products with communication of factors or results: aclnnMatmulAllReduce, aclnnAllGatherMatmul …

Ranks exchange float32, or float64 for integer products; sums are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    fits,
    listing,
    not_empty,
    null,
    on,
    one_of,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    shown,
    unless_empty,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    EIGHT_BITS,
    MODERN,
    attribute,
    constant_text,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.distributed.ranks import communicator, group, is_group, with_ranks
from aclnn.operators.library.quantization.quantization import given, product_scale
from aclnn.operators.library.quantization.quantized_products import integer_product
from aclnn.runtime.collectives import Ranks

HALVES = (D.FLOAT16, D.BF16)
_A2, _A3 = Product.ATLAS_A2, Product.ATLAS_A3
_OF_950 = (2, 4, 8, 16, 32, 64)
REDUCING = {_A2: (1, 2, 4, 8), **dict.fromkeys(CLASS_950, (1, *_OF_950))}
_GATHERING = {_A2: (2, 4, 8), _A3: (2, 4, 8, 16, 32), **dict.fromkeys(CLASS_950, _OF_950)}
_SCALING = {_A2: (2, 4, 8), _A3: (2, 4, 8), **dict.fromkeys(CLASS_950, _OF_950)}
_CROSSING = {_A2: (2, 4, 8), **dict.fromkeys((_A3, *CLASS_950), (2, 4, 8, 16))}
"""Supported numbers of ranks."""
_ENGINES = {_A2: ("aiv",), _A3: ("aiv",), **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu"))}
REDUCING_ENGINES = {_A2: ("ai_cpu",), **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu"))}
_TERMS, _SCALES = ("bias", "x3", "biasOptional"), ("x1Scale", "x2Scale")
_LEAST, _MOST = 256, 65534
"""Limits on the columns of x1 whose rows are gathered, or whose products' rows are scattered."""

X1, X2 = tensor_in("x1", "the left factor"), tensor_in("x2", "the right factor")
_BIAS = optional_in("bias", "the bias")
TURN = attribute("commTurn", Kind.INT64, "0: the number of parts of the exchange, chosen automatically")
STREAM = attribute("streamMode", Kind.INT64, "1: stop on failure")


SUM = constant_text("reduceOp", '"sum"')
MODE = constant_text(
    "commMode", "the engine of the exchange, ai_cpu, ccu or aiv depending on the product; without effect here"
)


def known(name: str, *values: object, of: Mapping[Product, Collection[object]] | None = None) -> Check:
    """Require one of these values, or of a product's values, as ``one_of`` does; null is not among them."""

    def violation(call: Call) -> str | None:
        allowed, got = values if of is None else of.get(call.product, (call[name],)), call[name]
        return None if got in allowed else f"{name}: expected {listing(map(repr, allowed))}, got {shown(got)}"

    return rule(f"allowed value: {name}", violation)


def in_tiling(*checks: Check) -> tuple[Check, ...]:
    """Give checks the status of CANN's tiling, which makes them when it divides the work among cores."""
    return tuple(replace(check, name=f"in tiling, {check.name}", code=ACLNN_ERR_INNER_TILING_ERROR) for check in checks)


def no_null(name: str, code: int = ACLNN_ERR_PARAM_NULLPTR, title: str = "a text") -> Check:
    """Require a non-null text."""

    def violation(call: Call) -> str | None:
        return f"{name}: expected a text, got null" if call[name] is None else None

    return rule(f"{title}: {name}", violation, code)


def _is_turned(call: Call) -> str | None:
    return "x1: expected a matrix that is not transposed, got a transposed one" if call["x1"].is_transposed else None


def is_laid(call: Call) -> str | None:
    """Return an error text for an x2 that is neither contiguous nor transposed."""
    x2 = call["x2"]
    if x2.size == 0 or x2.is_contiguous or x2.is_transposed:
        return None
    return f"x2: expected a contiguous matrix or a transposed one, got strides {extents(x2.strides)}"


def _has_columns(call: Call) -> str | None:
    return None if call["x1"].shape[-1] else f"x1: expected columns, got shape {extents(call['x1'].shape)}"


def product_shape(call: Call) -> Shape:
    """Return the shape of x1 @ x2."""
    return (*call["x1"].shape[:-1], call["x2"].shape[1])


LAID = rule("contiguous or transposed: x2", is_laid)
FIT = fits("{} rows (the columns of x1)", lambda call, got: (call["x1"].shape[-1], got.shape[0]), "x2")
HAS_COLUMNS = rule("columns: x1", _has_columns)
_COLUMNS = fits("{} columns (those of x2)", lambda call, got: (call["x2"].shape[1], got.shape[1]), "output")
_NOT_TURNED = rule("not transposed: x1", _is_turned)
_NARROW = value_is(
    f"{_LEAST} to {_MOST} columns", lambda got: _LEAST <= got <= _MOST, "x1", of=lambda got: got.shape[1]
)


def column(name: str) -> Check:
    """Require one number per column of the output."""
    return shape_is("one for each column", lambda call: (call["output"].shape[-1],), name)


def _plain_types(*names: str) -> tuple[Check, ...]:
    """Require FLOAT16 or BF16, the same for all tensors."""
    return dtype_in(where_supported(HALVES), "x1", *names), *(same_dtype(name, "x1") for name in names)


def product_of(x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
    """Multiply matrices, apply the scales of columns and rows to integer products, and add the addends."""
    if x1.dtype == np.int8:
        total, scale = integer_product(x1, x2, (len(x1), x2.shape[1])), operands["x2Scale"]
        total *= product_scale(scale)[0] if scale.dtype.kind == "i" else scale
        total *= operands.get("x1Scale", 1)
    else:
        total = x1 @ x2
    for name in _TERMS:
        total += operands.get(name, 0)
    return total


def _with_operands(
    call: Call, function: Callable[[Ranks, Any, Any, dict[str, Any]], Any], *outputs: str, of: Sequence[str] = ()
) -> Library:
    """Return the computation with x1, x2 and the given optional tensors, by name."""
    optional = given(call, *_TERMS, *of)

    def compute(ranks: Ranks, x1: Any, x2: Any, *further: Any) -> Any:
        return function(ranks, x1, x2, dict(zip(optional, further, strict=True)))

    return with_ranks(call, compute, ("x1", "x2", *optional), outputs)


def _reduced_work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None

    def reduce(ranks: Ranks, x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
        return ranks.total(product_of(x1, x2, operands))

    return _with_operands(call, reduce, "output")


def _all_reduce(
    version: str = "", with_x3: bool = True, engines: Mapping[Product, Collection[str]] | None = None
) -> Operator:
    name = f"matmul_all_reduce{version}"
    x3, mode = (("x3",) * with_x3), ((MODE,) if engines else ())
    return Operator(
        name=name,
        summary="Matrix product with all-reduce.",
        formula=f"output = sum over ranks of (x1 @ x2 + bias{' + x3' * with_x3})",
        parameters=(
            X1,
            X2,
            _BIAS,
            *(optional_in(each, "the addend of the product") for each in x3),
            group(),
            SUM,
            *mode,
            TURN,
            STREAM,
            tensor_out("output", "the sum, on every rank", const=True),
        ),
        support=support(HALVES, REDUCING),
        checks=(
            present("x1", "x2", "output"),
            *_plain_types("x2", "output", "bias", *x3),
            known("reduceOp", "sum"),
            one_of("streamMode", 1),
            public_format("x1", "x2", "bias", *x3, "output"),
            dims_between(2, 2, "x2"),
            dims_between(2, 3, "x1"),
            FIT,
            shape_is("the product", product_shape, "output"),
            *(same_shape(each, "output") for each in x3),
            column("bias"),
            *on({_A2}, LAID),
            *((no_null("commMode"), known("commMode", of=engines)) if engines else ()),
            *unless_empty(("output",), *in_tiling(one_of("commTurn", 0)), is_group(counts=REDUCING)),
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

    def gather(ranks: Ranks, x1: Any, x2: Any, operands: dict[str, Any]) -> Any:
        whole = ranks.gathered(x1).reshape(-1, x1.shape[1])
        if "x1Scale" in operands:
            operands["x1Scale"] = ranks.gathered(operands["x1Scale"]).reshape(-1, 1)
        output = product_of(whole, x2, operands)
        return (output, whole) if gathers else output

    return _with_operands(call, gather, "output", *("gatherOut",) * bool(gathers), of=_SCALES)


def _scattered_shape(call: Call) -> str | None:
    rows, size, got = call["x1"].shape[0], communicator(call).size, call["output"].shape
    if rows % size:
        return f"x1: expected a multiple of {size} rows (as many as ranks), got {rows}"
    expected = (rows // size, call["x2"].shape[1])
    return None if got == expected else f"output: expected shape {extents(expected)}, got {extents(got)}"


def _scattered_work(call: Call) -> Library | None:
    if call["x1"].size == 0 or call["x2"].size == 0:
        return None

    def scatter(ranks: Ranks, x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
        product = product_of(x1, x2, operands)
        return ranks.total_of_own(product.reshape(ranks.size, -1, product.shape[1]))

    return _with_operands(call, scatter, "output", of=_SCALES)


_MATRICES = (dims_between(2, 2, "x1", "x2", "output"), HAS_COLUMNS)
_FACTORS = (_NOT_TURNED, FIT, _NARROW, _COLUMNS)
_GATHER = (
    each("as many columns as x1", ("gatherOut",), _columns_gathered),
    *in_tiling(one_of("gatherIndex", 0), one_of("commTurn", 0), column("bias")),
)
_GATHERED = in_tiling(each("rows of all ranks", ("output", "gatherOut"), _gathered_shape))
_SCATTER = in_tiling(known("reduceOp", "sum"), one_of("commTurn", 0), column("bias"))
_SCATTERED = in_tiling(rule("rows for each rank: x1, output", _scattered_shape))
_GATHER_INDEX = attribute("gatherIndex", Kind.INT64, "0: gather x1")


def _gather_out(const: bool) -> Parameter:
    return tensor_out("gatherOut", "the rows of x1 of all ranks; null or empty: not written", const, optional=True)


_ALL_GATHER = Operator(
    name="all_gather_matmul",
    function="aclnnAllGatherMatmul",
    summary="All-gather of the left factors, then the matrix product.",
    formula="gatherOut = x1 of all ranks, output = gatherOut @ x2 + bias",
    parameters=(
        X1,
        X2,
        _BIAS,
        group(),
        _GATHER_INDEX,
        TURN,
        STREAM,
        tensor_out("output", "the product", const=True),
        _gather_out(const=True),
    ),
    support=support(HALVES, MODERN),
    checks=(
        present("x1", "x2", "output"),
        *_plain_types("x2", "output", "bias", "gatherOut"),
        one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output", "gatherOut"),
        *unless_empty(("x1",), *_FACTORS, *on({_A2}, LAID), *_GATHER, is_group(counts=_GATHERING), *_GATHERED),
    ),
    work=_gathered_work,
)

_REDUCE_SCATTER = Operator(
    name="matmul_reduce_scatter",
    function="aclnnMatmulReduceScatter",
    summary="Matrix product with reduce-scatter.",
    formula="output = this rank's rows of the sum over ranks of (x1 @ x2 + bias)",
    parameters=(
        X1,
        X2,
        _BIAS,
        group(),
        SUM,
        TURN,
        STREAM,
        tensor_out("output", "this rank's rows of the sum", const=True),
    ),
    support=support(HALVES, MODERN),
    checks=(
        present("x1", "x2", "output"),
        *_plain_types("x2", "output", "bias"),
        one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output"),
        *unless_empty(("x1", "x2"), *_FACTORS, *on({_A2}, LAID), *_SCATTER, is_group(counts=_GATHERING), *_SCATTERED),
    ),
    work=_scattered_work,
)


def _uncomputed(call: Call) -> str | None:
    got = call["x1"].dtype
    if got in HALVES or got == D.INT8:
        return None
    return f"x1: expected a data type supported here, FLOAT16, BF16 or INT8, got {got.c_name}"


def _type_of_integers(call: Call, name: str) -> str | None:
    x1, output, got = call["x1"].dtype, call["output"].dtype, call[name].dtype
    allowed = dict.fromkeys([*HALVES] if name == "output" else [output, D.FLOAT]) if x1 == D.INT8 else {}
    if x1 in HALVES:
        allowed = dict.fromkeys([x1] if name == "output" else [x1, D.FLOAT])
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} with {x1.c_name}, got {got.c_name}"


def _scales(call: Call, name: str) -> str | None:
    x1, got = call["x1"].dtype, call[name]
    if x1 != D.INT8:
        return f"expected null with {x1.c_name}, got a tensor"
    of_rows = name == "x1Scale"
    with_bits = not of_rows and call["output"].dtype == D.FLOAT16
    allowed = (D.FLOAT, D.INT64) if with_bits else (D.FLOAT,)
    expected = (call["x1"].shape[0], 1) if of_rows else (1, call["x2"].shape[1])
    if got.dtype not in allowed:
        return f"expected data type {listing(dtype.c_name for dtype in allowed)}, got {got.dtype.c_name}"
    return None if got.shape == expected else f"expected shape {extents(expected)}, got {extents(got.shape)}"


def _has_scales(call: Call) -> str | None:
    missing = call["x1"].dtype == D.INT8 and call["x2Scale"] is None
    return "x2Scale: expected factors with ACL_INT8, got null" if missing else None


def _empty(call: Call, name: str) -> str | None:
    return f"expected null or an empty tensor, got shape {extents(call[name].shape)}" if call[name].size else None


def _types_of(integers: Collection[D], output: Sequence[str]) -> tuple[Check, ...]:
    """Require types of the second versions that are supported here: products of 8-bit and narrower floats are not."""
    floats = (*EIGHT_BITS, D.FLOAT4_E2M1)
    halves = where_supported(HALVES)
    return (
        dtype_in(lambda product: {*halves(product), *(floats if product in CLASS_950 else integers)}, "x1", "x2"),
        dtype_in(lambda product: {*halves(product), *((D.FLOAT,) if product in CLASS_950 else ())}, "output"),
        dtype_in((*HALVES, D.FLOAT), "bias"),
        rule("computed: x1", _uncomputed, ACLNN_ERR_INNER_NULLPTR),
        *on(CLASS_950, *(same_dtype(name, "x1") for name in ("x2", "output", "bias"))),
        *in_tiling(*elsewhere(CLASS_950, same_dtype("x2", "x1"), each("type with x1", output, _type_of_integers))),
    )


def _of_scales(amax: str) -> tuple[Check, ...]:
    return (
        *on(CLASS_950, null(amax)),
        *in_tiling(
            *elsewhere(CLASS_950, each("null or empty", (amax,), _empty), not_empty("x1", "x2")),
            null("quantScale"),
            each("scales", _SCALES, _scales),
            rule("scales of integers: x2Scale", _has_scales),
            one_of("groupSize", 0),
            one_of("blockSize", 0),
        ),
    )


_FURTHER = (
    optional_in("x1Scale", "the scales of rows, (m, 1), FLOAT; for INT8"),
    optional_in("x2Scale", "the scales of columns, (1, n), FLOAT or encoded by aclnnTransQuantParamV2; for INT8"),
    optional_in("quantScale", "null"),
)
_BLOCK_SIZE, _GROUP_SIZE = (attribute(name, Kind.INT64, "0") for name in ("blockSize", "groupSize"))
_AMAX = "null or empty: reserved"
_TAKEN = {**support((*HALVES, D.INT8), A2_CLASS), **support(HALVES, CLASS_950)}

_ALL_GATHER_V2 = Operator(
    name="all_gather_matmul_v2",
    function="aclnnAllGatherMatmulV2",
    summary="All-gather of the left factors, then the matrix product, with scales for integers.",
    formula="gatherOut = x1 of all ranks, output = x1Scale of all ranks * x2Scale * (gatherOut @ x2 + bias)",
    parameters=(
        X1,
        X2,
        _BIAS,
        *_FURTHER,
        _BLOCK_SIZE,
        group(),
        _GATHER_INDEX,
        TURN,
        STREAM,
        _GROUP_SIZE,
        MODE,
        tensor_out("output", "the product"),
        _gather_out(const=False),
        tensor_out("amaxOut", _AMAX, optional=True),
    ),
    support=_TAKEN,
    checks=(
        no_null("commMode", ACLNN_ERR_INNER_NULLPTR, "an engine"),
        present("x1", "x2", "output"),
        *_types_of((D.INT8, D.INT4), ("output",)),
        same_dtype("gatherOut", "x1"),
        one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output", "gatherOut"),
        known("commMode", of=_ENGINES),
        *_of_scales("amaxOut"),
        *in_tiling(*elsewhere(CLASS_950, null("bias"))),
        *unless_empty(("x1",), *_FACTORS, *on(A2_CLASS, LAID), *_GATHER, is_group(counts=_SCALING), *_GATHERED),
    ),
    work=_gathered_work,
)

_REDUCE_SCATTER_V2 = Operator(
    name="matmul_reduce_scatter_v2",
    function="aclnnMatmulReduceScatterV2",
    summary="Matrix product, with scales for integers, and reduce-scatter.",
    formula="output = this rank's rows of the sum over ranks of (x1Scale * x2Scale * (x1 @ x2) + bias)",
    parameters=(
        X1,
        X2,
        _BIAS,
        *_FURTHER,
        _BLOCK_SIZE,
        group(),
        SUM,
        TURN,
        STREAM,
        _GROUP_SIZE,
        MODE,
        tensor_out("output", "this rank's rows of the sum"),
        tensor_out("amaxOutOptional", _AMAX, optional=True),
    ),
    support=_TAKEN,
    checks=(
        present("x1", "x2", "output"),
        *_types_of((D.INT8,), ("output", "bias")),
        one_of("streamMode", 1),
        *_MATRICES,
        public_format("x1", "x2", "bias", "output"),
        *on(CLASS_950, no_null("commMode"), known("commMode", of=_ENGINES)),
        *in_tiling(*elsewhere(CLASS_950, known("commMode", of=_ENGINES))),
        *_of_scales("amaxOutOptional"),
        *unless_empty(("x1", "x2"), *_FACTORS, *on(A2_CLASS, LAID), *_SCATTER, is_group(counts=_SCALING), *_SCATTERED),
    ),
    work=_scattered_work,
)


def _second(call: Call) -> Shape:
    """Return the shape of x2 in the product."""
    rows, columns = call["x2"].shape
    return (columns, rows) if call["transposeX2"] else (rows, columns)


def _turned_once(call: Call) -> str | None:
    twice = call["transposeX2"] and call["x2"].is_transposed
    return "transposeX2: expected false with a transposed x2, got true" if twice else None


def _untouched(call: Call) -> str | None:
    if call["x2"].is_contiguous:
        return None
    return f"x2: expected a contiguous matrix on {call.product.title}, got strides {extents(call['x2'].strides)}"


def _bias_beside(call: Call, name: str) -> str | None:
    x1, got = call["x1"].dtype, call[name].dtype
    allowed = (x1, D.FLOAT) if call.product in CLASS_950 else (D.FLOAT if x1 == D.BF16 else x1,)
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} with {x1.c_name}, got {got.c_name}"


def _axes(*expected: int) -> Check:
    return value_is(f"null or {extents(expected)}", lambda got: got == expected, _AXES, of=lambda got: tuple(got))


def has_length(call: Call) -> str | None:
    """Return an error text for a name that no communicator can have."""
    got = call["group"]
    if got is not None and 0 < len(got) < _LONGEST:
        return None
    return f"group: expected 1 to {_LONGEST - 1} characters, got {shown(got)}"


def _inner_fits(call: Call) -> str | None:
    expected, (got, _) = call["x1"].shape[1], _second(call)
    if got != expected:
        return f"x2: expected {expected} rows to multiply (the columns of x1), got {got}"
    return None if got <= _MOST_MULTIPLIED else f"x2: expected at most {_MOST_MULTIPLIED} rows to multiply, got {got}"


def _crossed_shapes(call: Call) -> str | None:
    """Check the shapes if rows are exchanged before the product."""
    size, (rows, columns), (inner, outer) = communicator(call).size, call["x1"].shape, _second(call)
    if rows % size:
        return f"x1: expected a multiple of {size} rows (as many as ranks), got {rows}"
    most = _MOST_ON_A2 if call.product is _A2 else _MOST_MULTIPLIED
    if inner != size * columns or inner > most:
        return f"x2: expected {size * columns} rows to multiply (those of all ranks), at most {most}, got {inner}"
    for name, expected in (("output", (rows // size, outer)), (_CROSSED, (rows // size, inner))):
        if call[name] is not None and call[name].shape != expected:
            return f"{name}: expected shape {extents(expected)}, got {extents(call[name].shape)}"
    return None


def _parted_shapes(call: Call) -> str | None:
    """Check the shapes if columns are exchanged after the product."""
    size, rows, (_, columns), got = communicator(call).size, call["x1"].shape[0], _second(call), call["output"].shape
    if columns % size:
        return f"x2: expected a multiple of {size} columns to multiply (as many as ranks), got {columns}"
    expected = (size * rows, columns // size)
    return None if got == expected else f"output: expected shape {extents(expected)}, got {extents(got)}"


def _crossed_work(call: Call) -> Library | None:
    if call["x1"].size == 0:
        return None
    turned, crossed = call["transposeX2"], given(call, _CROSSED)

    def multiply(ranks: Ranks, x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
        rows, columns = len(x1) // ranks.size, x1.shape[1]
        received = np.empty((ranks.size, rows, columns), x1.dtype)
        ranks.exchange(x1.reshape(received.shape), received)
        whole = received.swapaxes(0, 1).reshape(rows, -1)
        output = product_of(whole, x2.T if turned else x2, operands)
        return (output, whole) if crossed else output

    return _with_operands(call, multiply, "output", *crossed)


def _parted_work(call: Call) -> Library | None:
    if call["x1"].size == 0:
        return None
    turned = call["transposeX2"]

    def multiply(ranks: Ranks, x1: Any, x2: Any, operands: Mapping[str, Any]) -> Any:
        product = product_of(x1, x2.T if turned else x2, operands)
        parts = product.reshape(len(x1), ranks.size, -1).swapaxes(0, 1)
        received = np.empty(parts.shape, product.dtype)
        ranks.exchange(parts, received)
        return received.reshape(-1, parts.shape[2])

    return _with_operands(call, multiply, "output")


_AXES, _CROSSED, _LONGEST = "alltoAllAxesOptional", "alltoAllOutOptional", 128
_MOST_MULTIPLIED, _MOST_ON_A2 = 65535, 35000
_OWN_ENGINES = {_A2: ("aiv",), _A3: ("ai_cpu",), **dict.fromkeys(CLASS_950, ("ai_cpu", "ccu"))}


def _exchange(version: str, before: bool) -> Operator:
    """Declare a product with an exchange of parts before or after it; the second version names an engine."""
    crossed = (_CROSSED,) * before
    tensors = ("x1", "x2", "biasOptional", "output", *crossed)
    name = f"{'allto_all_matmul' if before else 'matmul_allto_all'}{version}"
    of_column = shape_is("one for each column", lambda call: _second(call)[1:], "biasOptional")
    bias_types = each("type of what is added", ("biasOptional",), _bias_beside)
    last = (
        *(known("commMode", of=_OWN_ENGINES),) * bool(version),
        is_group(counts=_CROSSING),
        *in_tiling(
            rule(f"shapes of all ranks: x1, x2, output, {_CROSSED}", _crossed_shapes)
            if before
            else rule("shapes of all ranks: x2, output", _parted_shapes)
        ),
    )
    return Operator(
        name=name,
        summary="All-to-all exchange of rows, then the matrix product of the joined columns."
        if before
        else "Matrix product, then all-to-all exchange of columns, stacked as rows.",
        formula="output = (this rank's rows of all ranks' x1, side by side) @ x2 + biasOptional"
        if before
        else "output = this rank's columns of all ranks' (x1 @ x2 + biasOptional)",
        parameters=(
            X1,
            X2,
            optional_in("biasOptional", "the bias"),
            Parameter(_AXES, _AXES, Kind.INT_ARRAY, "-2, -1" if before else "-1, -2", optional=True),
            group(),
            *(MODE,) * bool(version),
            attribute("transposeX1", Kind.BOOL, "false"),
            attribute("transposeX2", Kind.BOOL, "whether x2 is transposed"),
            tensor_out("output", "the product" if before else "the parts of all ranks", const=True),
            *(tensor_out(each, "the rows that are multiplied", const=True, optional=True) for each in crossed),
        ),
        support=support(HALVES, MODERN),
        checks=(
            present("x2"),
            not_empty("x2"),
            dims_between(2, 2, "x2"),
            *on(CLASS_950, rule("transposed once: transposeX2", _turned_once)),
            *elsewhere(CLASS_950, rule("contiguous: x2", _untouched)),
            present("x1", "output"),
            dims_between(2, 2, "x1", "output", *crossed),
            HAS_COLUMNS,
            *(() if before else (*elsewhere(CLASS_950, not_empty("x1")), rule("factors that fit: x2", _inner_fits))),
            of_column,
            *_plain_types("x2", "output", *crossed),
            *(on(CLASS_950, bias_types) if before else (bias_types,)),
            public_format(*tensors),
            _axes(*((-2, -1) if before else (-1, -2))),
            one_of("transposeX1", False),
            rule("length of a name: group", has_length),
            *(no_null("commMode"),) * bool(version),
            *(in_tiling(*elsewhere(CLASS_950, bias_types), *on({_A2}, not_empty("x1"))) if before else ()),
            *unless_empty(("x1",), *last),
        ),
        work=_crossed_work if before else _parted_work,
    )


OPERATORS = (
    _all_reduce(with_x3=False),
    _all_reduce("_v2"),
    _all_reduce("_v3", engines=REDUCING_ENGINES),
    _ALL_GATHER,
    _REDUCE_SCATTER,
    _ALL_GATHER_V2,
    _REDUCE_SCATTER_V2,
    *(_exchange(version, before) for before in (True, False) for version in ("", "_v2")),
)
