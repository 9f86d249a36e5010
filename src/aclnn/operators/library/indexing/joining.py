"""Join a list of tensors into one: aclnnCat, aclnnChunkCat, aclnnStack, aclnnSum, aclnnMaxN, aclnnMinN."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape,
    castable_from,
    dtype_in,
    extents,
    fits,
    one_of,
    public_format,
    rule,
    shape_is,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    EIGHT_BITS,
    MODERN,
    NUMBERS,
    REAL,
    UNSIGNED,
    on_950,
    promoted_dtype,
    support,
    tensor_out,
)
from aclnn.operators.library.lists import alike, each_of, few_dims, not_null, of_types, public

_TAKEN = (*REAL, D.COMPLEX64)


def _taken(product: Product) -> frozenset[D]:
    return where_supported((*_TAKEN, *UNSIGNED, *EIGHT_BITS) if product in CLASS_950 else _TAKEN)(product)


def _conversion(dtype: D) -> D | None:
    """Return the type to convert to; HIFLOAT8 is moved as bytes without conversion."""
    return None if dtype == D.HIFLOAT8 else dtype


def _joined(call: Call) -> dict[str, Any]:
    """Return the tensors by name, without those of shape [0], which are allowed among any others."""
    return {f"tensors[{at}]": tensor for at, tensor in enumerate(call["tensors"]) if tensor.shape != (0,)}


def _axis(call: Call) -> int:
    first = next(iter(_joined(call).values()))
    return int(call["dim"] % len(first.shape))


def _listed(call: Call) -> str | None:
    for name, tensor in _joined(call).items():
        if tensor.dtype not in _taken(call.product):
            return f"{name}: expected a data type that aclnnCat takes, got {tensor.dtype.c_name}"
    return None


def _type(call: Call) -> D:
    return _common(_dtypes(call))


def _common(dtypes: list[D]) -> D:
    """Return the promoted type; 8-bit types promote only with themselves."""
    return dtypes[0] if len(set(dtypes)) == 1 else reduce(promoted_dtype, dtypes)


def _dtypes(call: Call) -> list[D]:
    return [tensor.dtype for tensor in _joined(call).values()] or [call["out"].dtype]


def _promotable(call: Call) -> str | None:
    if _type(call) in (*_TAKEN, *UNSIGNED, *EIGHT_BITS):
        return None
    names = ", ".join(dtype.c_name for dtype in dict.fromkeys(_dtypes(call)))
    return f"tensors: expected data types that promote to one that aclnnCat takes, got {names}"


def _formats(call: Call) -> str | None:
    tensors = {**_joined(call), "out": call["out"]}
    (first, one), *others = tensors.items()
    if one.format.private:
        return f"{first}: expected a format such as ACL_FORMAT_ND, got the private {one.format.c_name}"
    other = next((name for name, tensor in others if tensor.format != one.format), None)
    if other is None:
        return None
    return f"{other}: expected format {one.format.c_name} (that of {first}), got {tensors[other].format.c_name}"


def _dim(call: Call) -> str | None:
    for tensor in _joined(call).values():
        rank = len(tensor.shape)
        if not -rank <= call["dim"] < rank:
            return f"dim: expected one of the {rank} dimensions of the tensors, got {call['dim']}"
    return None


def _shapes(call: Call) -> str | None:
    if not (tensors := _joined(call)):
        return None
    axis, (first, one) = _axis(call), next(iter(tensors.items()))
    for name, tensor in tensors.items():
        mine, theirs = list(tensor.shape), list(one.shape)
        if len(mine) == len(theirs):
            mine[axis] = theirs[axis]
        if mine != theirs:
            return (
                f"{name}: expected shape {extents(one.shape)} (that of {first}) but for dimension {axis}, "
                f"got {extents(tensor.shape)}"
            )
    return None


def _out_shape(call: Call) -> str | None:
    if not (tensors := list(_joined(call).values())):
        return None
    axis, expected, got = _axis(call), list(tensors[0].shape), call["out"].shape
    expected[axis] = sum(tensor.shape[axis] for tensor in tensors)
    if list(got) == expected or not math.prod(expected):
        return None
    return f"out: expected shape {extents(expected)} (that of the tensors together), got {extents(got)}"


def _work(call: Call) -> Library | None:
    names = tuple(name for name, tensor in _joined(call).items() if tensor.size)
    if not names:
        return None
    axis = _axis(call)
    return Library(lambda *tensors: np.concatenate(tensors, axis), names, ("out",), _conversion(_type(call)))


_STACKED = on_950(EIGHT_BITS, (*NUMBERS, *UNSIGNED))


def _stack_dim(call: Call) -> str | None:
    most = len(call["tensors"][0].shape)
    return None if -most - 1 <= call["dim"] <= most else f"dim: expected from {-most - 1} to {most}, got {call['dim']}"


def _some(call: Call) -> str | None:
    return None if call["tensors"] else "tensors: expected at least one tensor, got none"


def _stack_shape(call: Call, name: str, at: int) -> str | None:
    expected, got = call[name][0].shape, call[name][at].shape
    return None if got == expected else f"expected shape {extents(expected)} (that of tensors[0]), got {extents(got)}"


def _stack_type(call: Call) -> D:
    return _common([tensor.dtype for tensor in call["tensors"]])


def _stack_out(call: Call) -> str | None:
    shape, got = call["tensors"][0].shape, call["out"].shape
    axis = call["dim"] % (len(shape) + 1)
    expected = (*shape[:axis], len(call["tensors"]), *shape[axis:])
    if got == expected or 0 in shape:
        return None
    return f"out: expected shape {extents(expected)} (of the tensors together), got {extents(got)}"


def _stack_work(call: Call) -> Library | None:
    if call["out"].size == 0 or 0 in call["tensors"][0].shape:
        return None
    axis = call["dim"]
    names = tuple(f"tensors[{at}]" for at in range(len(call["tensors"])))
    return Library(lambda *tensors: np.stack(tensors, axis), names, ("out",), _conversion(_stack_type(call)))


_ADDED = (D.FLOAT, D.FLOAT16, D.INT8, D.UINT8, D.INT32)


def _together(call: Call) -> tuple[int, ...] | None:
    """Return the shape to which all tensors broadcast, None if they do not."""
    shape: tuple[int, ...] | None = ()
    for tensor in call["tensors"]:
        shape = None if shape is None else broadcast_shape(shape, tensor.shape)
    return shape


def _broadcastable(call: Call) -> str | None:
    if _together(call) is not None:
        return None
    shapes = " ".join(extents(tensor.shape) for tensor in call["tensors"])
    return f"tensors: expected shapes that broadcast to one, got {shapes}"


def _sum_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    names = tuple(f"tensors[{at}]" for at in range(len(call["tensors"])))
    return Library(lambda *tensors: reduce(np.add, tensors), names, ("out",), _sum_type(call))


def _sum_type(call: Call) -> D:
    """Return the accumulation type of 16-bit sums, or the type to which all promote."""
    found = _stack_type(call)
    return D.FLOAT if found == D.FLOAT16 else found


def _extreme(name: str, word: str, function: Callable[[Any, Any], Any]) -> Operator:
    dtypes = (D.FLOAT, D.FLOAT16, D.BF16, D.INT8, D.INT32, D.INT64)

    def work(call: Call) -> Library | None:
        names = tuple(f"tensors[{at}]" for at in range(len(call["tensors"])))
        return Library(lambda *tensors: reduce(function, tensors), names, ("out",)) if call["out"].size else None

    return Operator(
        name=f"{name}_n",
        summary=f"The {word} elements of tensors, which broadcast to one shape; NaN if one is.",
        formula=f"out = {name} of the tensors",
        parameters=(Parameter("tensors", "tensors", Kind.INPUT_LIST, "what is compared"), tensor_out()),
        support=support(dtypes),
        checks=(
            rule("some: tensors", _some),
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("tensors",), of_types(dtypes)),
            each_of("one data type", ("tensors",), alike("tensors")),
            fits("data type {} (that of tensors)", lambda call, got: (call["tensors"][0].dtype, got.dtype), "out"),
            each_of("at most 8 dimensions each", ("tensors",), few_dims),
            rule("broadcast to one shape: tensors", _broadcastable),
            shape_is("of the tensors together", lambda call: _together(call) or (), "out"),
        ),
        work=work,
        in_header_of=f"{name}n",
    )


_CHUNKED = (D.FLOAT, D.FLOAT16, D.BF16)


def _float_stays(call: Call) -> str | None:
    tensors, got = call["tensors"], call["out"].dtype
    if not tensors or tensors[0].dtype != D.FLOAT or got == D.FLOAT:
        return None
    return f"out: expected data type ACL_FLOAT (that of tensors), got {got.c_name}"


def _one_dim_at_least(call: Call, name: str, at: int) -> str | None:
    return None if call[name][at].shape else "expected at least 1 dimension, got none"


def _chunk_shape(call: Call) -> str | None:
    shapes, count, got = (
        [tensor.shape for tensor in call["tensors"] if tensor.size],
        call["numChunks"],
        call["out"].shape,
    )
    expected = (count, sum(-(-rows // count) * math.prod(rest) for rows, *rest in shapes))
    if not shapes or got == expected:
        return None
    return f"out: expected shape {extents(expected)} (of the chunks together), got {extents(got)}"


def _chunk_work(call: Call) -> Library | None:
    names, count = (
        tuple(f"tensors[{at}]" for at, tensor in enumerate(call["tensors"]) if tensor.size),
        call["numChunks"],
    )
    if not names:
        return None

    def join(*tensors: Any) -> Any:
        rest = [-len(tensor) % count for tensor in tensors]
        filled = (
            np.concatenate([tensor, np.zeros((rows, *tensor.shape[1:]), tensor.dtype)])
            for rows, tensor in zip(rest, tensors, strict=True)
        )
        return np.concatenate([tensor.reshape(count, -1) for tensor in filled], 1)

    return Library(join, names, ("out",))


OPERATORS = (
    _extreme("max", "greatest", np.maximum),
    _extreme("min", "least", np.minimum),
    Operator(
        name="chunk_cat",
        function="aclnnChunkCat",
        summary="Cut tensors into equal chunks of rows, the last filled with zeros, and join the chunks of each place.",
        formula="out[i] = the elements of chunk i of each of the tensors, one after the other",
        parameters=(
            Parameter("tensors", "tensors", Kind.INPUT_LIST, "what is cut; empty tensors are skipped"),
            Parameter("dim", "dim", Kind.INT64, "0"),
            Parameter("numChunks", "num_chunks", Kind.INT64, "how many chunks, the rows of out"),
            tensor_out(),
        ),
        support=support(_CHUNKED, MODERN),
        checks=(
            one_of("dim", 0),
            value_is("at least 1", lambda got: got > 0, "numChunks"),
            present("tensors", "out"),
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("tensors",), of_types(_CHUNKED)),
            each_of("one data type", ("tensors",), alike("tensors")),
            dtype_in(where_supported(_CHUNKED), "out"),
            rule("FLOAT stays: out", _float_stays),
            each_of("no private format among them", ("tensors",), public),
            public_format("out"),
            each_of("at most 8 dimensions each", ("tensors",), few_dims),
            each_of("at least 1 dimension each", ("tensors",), _one_dim_at_least),
            rule("shape of the chunks together: out", _chunk_shape),
        ),
        work=_chunk_work,
    ),
    Operator(
        name="sum",
        function="aclnnSum",
        summary="Add several tensors with broadcasting.",
        formula="out = sum of the tensors",
        parameters=(Parameter("tensors", "tensors", Kind.INPUT_LIST, "the tensors to add"), tensor_out()),
        support=support(_ADDED),
        checks=(
            rule("some: tensors", _some),
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("tensors",), of_types(_ADDED)),
            dtype_in(where_supported(_ADDED), "out"),
            each_of("at most 8 dimensions each", ("tensors",), few_dims),
            rule("broadcast to one shape: tensors", _broadcastable),
            shape_is("of the tensors together", lambda call: _together(call) or (), "out"),
        ),
        work=_sum_work,
    ),
    Operator(
        name="cat",
        function="aclnnCat",
        summary="Concatenate tensors along a dimension.",
        formula="out = concatenation of the tensors along dim",
        parameters=(
            Parameter(
                "tensors", "tensors", Kind.INPUT_LIST, "the tensors to concatenate; those of shape [0] are skipped"
            ),
            Parameter("dim", "dim", Kind.INT64, "the dimension to concatenate along"),
            tensor_out(),
        ),
        support=support((*_TAKEN, *UNSIGNED)),
        checks=(
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            rule("data type of each: tensors", _listed),
            dtype_in(_taken, "out"),
            rule("promotable to one: tensors", _promotable),
            castable_from(_type, "out"),
            rule("one public format: tensors, out", _formats),
            each_of("at most 8 dimensions each", ("tensors",), few_dims),
            rule("dimension of the tensors: dim", _dim),
            rule("same shape but for dim: tensors", _shapes),
            rule("shape of the tensors together: out", _out_shape),
        ),
        work=_work,
        stream_type="const aclrtStream ",
    ),
    Operator(
        name="stack",
        function="aclnnStack",
        summary="Stack tensors along a new dimension.",
        formula="out = stack of the tensors along the new dimension dim",
        parameters=(
            Parameter("tensors", "tensors", Kind.INPUT_LIST, "the tensors to stack"),
            Parameter("dim", "dim", Kind.INT64, "the new dimension"),
            tensor_out(),
        ),
        support=support((*NUMBERS, *UNSIGNED)),
        checks=(
            rule("some: tensors", _some),
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("tensors",), of_types(_STACKED)),
            dtype_in(_STACKED, "out"),
            rule(
                "promotable to one: tensors",
                lambda call: None if _stack_type(call) != D.DT_UNDEFINED else _promotable(call),
            ),
            castable_from(_stack_type, "out"),
            each_of("at most 8 dimensions each", ("tensors",), few_dims),
            rule("dimension of out: dim", _stack_dim),
            each_of("same shape", ("tensors",), _stack_shape),
            rule("shape of the tensors together: out", _stack_out),
        ),
        work=_stack_work,
    ),
)
