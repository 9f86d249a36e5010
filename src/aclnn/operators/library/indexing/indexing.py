"""Indexing, reads and writes (aclnnIndex, aclnnGather …); and positions of nonzero elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    axis,
    broadcast_shape,
    dtype_in,
    elsewhere,
    extents,
    limited_dims,
    on,
    one_of,
    public_format,
    real,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import castable
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    MODERN,
    NUMBERS,
    REAL,
    UNSIGNED,
    WITH_INFERENCE,
    add_at,
    expect_within,
    library_operator,
    on_950,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.lists import each_of, public
from aclnn.operators.library.reduction.dimensions import DIM, with_extent

_SELF, _OUT = tensor_in("self", "the elements"), tensor_out()
_REPLACED = tensor_out("selfRef", "the tensor to modify")
_COPIED = tensor_in("selfRef", "the elements")
_INDEX = tensor_in("index", "the indices along dim; INT32 or INT64")
_INDICES = Parameter(
    "indices",
    "indices",
    Kind.INPUT_LIST,
    "an index tensor per dimension; null, or shape [0] and self's data type: the whole dimension",
)
_REDUCTIONS = "0: replace, 1: add, 2: multiply, 3: maximum, 4: minimum"
_REDUCE = Parameter("reduce", "reduce", Kind.INT64, _REDUCTIONS)
_REDUCE_OR_MEAN = Parameter("reduce", "reduce", Kind.INT64, f"{_REDUCTIONS}, 5: the mean")
_INCLUDED = Parameter("includeSelf", "include_self", Kind.BOOL, "whether to include self's own elements")
_TAKEN = where_supported(NUMBERS)
_MOVED = (*NUMBERS, *UNSIGNED)
_GATHERED = (*REAL, *UNSIGNED)
_INDEXED = on_950({D.COMPLEX64}, REAL)
_FILLED = (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT64, D.BOOL)
_FILLED_BY_TENSOR = on_950(REAL, _FILLED)
_FAST = (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT16)
"""Data types of aclnnIndexAddV2's fast mode."""


_KINDS = frozenset({D.INT32, D.INT64, D.BOOL, D.UINT8})


def _given(call: Call) -> dict[int, Any]:
    """Return the index tensors by dimension.

    torch_npu passes a tensor of shape [0] and of the elements' data type for a dimension that is not indexed. So a
    tensor of shape [0] of another type is an empty index, as is any if there are no other indices.
    """
    elements = call[call.operator.parameters[0].name].dtype
    listed = {at: tensor for at, tensor in enumerate(call["indices"]) if tensor is not None}
    certain = {at: each for at, each in listed.items() if each.shape != (0,) or each.dtype in _KINDS - {elements}}
    return certain or {at: each for at, each in listed.items() if each.dtype in _KINDS}


def _known_indices(call: Call) -> str | None:
    name, rank = call.operator.parameters[0].name, len(call[call.operator.parameters[0].name].shape)
    if len(call["indices"]) > rank:
        return f"indices: expected at most {rank} tensors (the dimensions of {name}), got {len(call['indices'])}"
    for at, tensor in _given(call).items():
        if tensor.dtype not in _KINDS:
            return f"indices[{at}]: expected data type ACL_INT32, ACL_INT64 or ACL_BOOL, got {tensor.dtype.c_name}"
    return None


_INDEX_TENSORS = rule("tensors of indices: indices", _known_indices)


def _public_index(call: Call, name: str, at: int) -> str | None:
    return None if call[name][at] is None else public(call, name, at)


def _selector(call: Call) -> Callable[..., tuple[Any, ...]]:
    """Convert arrays of indices to NumPy's index, with PyTorch's semantics."""
    places, count = list(_given(call)), len(call["indices"])

    def select(*arrays: Any) -> tuple[Any, ...]:
        masks = (array != 0 if array.dtype == np.uint8 else array for array in arrays)
        found = dict(zip(places, masks, strict=True))
        return tuple(found.get(at, slice(None)) for at in range(count))

    return select


def _names(call: Call) -> tuple[str, ...]:
    return tuple(f"indices[{at}]" for at in _given(call))


def _index_work(call: Call) -> Library | None:
    if call["out"].size == 0 or call["self"].size == 0:
        return None
    select, shape = _selector(call), call["out"].shape
    return Library(lambda self, *arrays: self[select(*arrays)].reshape(shape), ("self", *_names(call)), ("out",))


def _has_mask(call: Call) -> bool:
    return any(tensor.dtype in (D.BOOL, D.UINT8) for tensor in _given(call).values())


def _selection(call: Call) -> tuple[int, ...] | None:
    """Return the shape selected by indices, without masks among them; None if they do not broadcast."""
    try:
        # Views of a single element have the shapes from which NumPy derives the selection's.
        arrays = {at: np.broadcast_to(np.intp(0), tensor.shape) for at, tensor in _given(call).items()}
        chosen = tuple(arrays.get(at, slice(None)) for at in range(len(call["indices"])))
        elements = call[call.operator.parameters[0].name].shape
        return np.broadcast_to(np.int8(0), tuple(n or 1 for n in elements))[chosen].shape
    except (IndexError, ValueError):  # no broadcasting, or a negative extent
        return None


def _together(call: Call) -> str | None:
    if _has_mask(call) or _selection(call) is not None:
        return None
    texts = " and ".join(extents(tensor.shape) for tensor in _given(call).values())
    return f"indices: expected shapes that broadcast, got {texts}"


_TOGETHER = rule("shapes that broadcast: indices", _together)


def _selected_shape(call: Call) -> str | None:
    if _has_mask(call):
        return None  # the number of elements depends on data
    expected, got = _selection(call), call["out"].shape
    assert expected is not None
    selects_nothing = any(tensor is not None and tensor.shape == (0,) for tensor in call["indices"])
    if got == expected or not call["self"].size or (0 in got and selects_nothing):
        return None
    return f"out: expected shape {extents(expected)} (selected from self), got {extents(got)}"


def _new_values(call: Call) -> str | None:
    if _has_mask(call) or call["selfRef"].size == 0:
        return None
    expected, got = _selection(call), call["values"].shape
    assert expected is not None
    more = max(len(got) - len(expected), 0)  # additional dimensions, which may have extent 1
    fits = got[:more] == (1,) * more and broadcast_shape(got[more:], expected) == expected
    if fits or 0 in expected:
        return None
    return f"values: expected a shape that broadcasts to {extents(expected)} (selected), got {extents(got)}"


def _add_chosen(total: Any, chosen: Any, values: Any) -> None:
    add_at(total, np.arange(total.size).reshape(total.shape)[chosen], values)


def _put_work(call: Call) -> Library | None:
    empty = any(tensor.size == 0 for tensor in _given(call).values())
    if call["selfRef"].size == 0 or call["values"].size == 0 or empty:
        return None
    select, accumulate = _selector(call), call["accumulate"]

    def put(self: Any, values: Any, *arrays: Any) -> Any:
        chosen = select(*arrays)
        wide = np.float64 if accumulate and self.dtype == np.float32 else self.dtype
        result = self.astype(wide, order="C")
        try:
            if accumulate:
                _add_chosen(result, chosen, values)
            else:
                result[chosen] = values
        except ValueError as error:
            text = f"values: expected as many as are selected, got {extents(values.shape)}"
            raise ValueError(text) from error
        return result

    return Library(put, ("selfRef", "values", *_names(call)), ("selfRef",))


def _within(name: str, *others: str) -> Check:
    """Require an index with the tensor's rank, and extents within its own (except along dim) and the others'."""

    def violation(call: Call) -> str | None:
        shape, got = call[name].shape or (1,), call["index"].shape or (1,)
        if len(got) != len(shape):
            return f"index: expected {len(shape)} dimensions (as {name}), got {len(got)}: {extents(got)}"
        along = call["dim"] % len(shape)
        limits = [[n if at != along else math.inf for at, n in enumerate(shape)]]
        for other in others:
            extent_of = call[other].shape or (1,)
            if len(extent_of) != len(shape):
                return f"{other}: expected {len(shape)} dimensions (as {name}), got {extents(extent_of)}"
            limits.append(list(extent_of))
        if call["index"].size == 0 or all(n <= most for each in limits for n, most in zip(got, each, strict=True)):
            return None
        return f"index: expected extents within {extents(shape)} (those of {name}), got {extents(got)}"

    return rule(f"within {name}: index", violation)


def _corner(values: Any, shape: tuple[int, ...], along: int | None = None) -> Any:
    """Return the leading elements, as many as in a shape, along each dimension except one."""
    return values[tuple(slice(None) if at == along else slice(n) for at, n in enumerate(shape))]


def _gather(self: Any, index: Any, dim: int) -> Any:
    values, places = np.atleast_1d(self), np.atleast_1d(index)
    along = dim % values.ndim
    expect_within("index", places, 0, values.shape[along] - 1, "indices")
    return np.take_along_axis(_corner(values, places.shape, along), places, along).reshape(index.shape)


def _open(index: Any, dim: int) -> tuple[Any, ...]:
    """Return open-mesh indices of all dimensions, with those along one given."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim % index.ndim] = index
    return tuple(grid)


def _scattered(self: Any, index: Any, source: Any, dim: int, reduce: int) -> Any:
    if index.size == 0:
        return self
    places = np.atleast_1d(index)
    wide = np.float64 if reduce and self.dtype == np.float32 else self.dtype
    result = np.array(np.atleast_1d(self), dtype=wide, order="C")
    expect_within("index", places, 0, result.shape[dim] - 1, "indices")
    source = np.atleast_1d(source)
    values = convert(_corner(source, places.shape) if source.size != 1 else source, result.dtype)
    at = _open(places, dim)
    if reduce == 1:
        _add_chosen(result, at, values)
    elif reduce:
        {2: np.multiply, 3: np.maximum, 4: np.minimum}[reduce].at(result, at, values)
    else:
        result[at] = values
    return result.reshape(self.shape)


def _scatter(name: str, summary: str, source: Parameter, in_place: bool, header: str) -> Operator:
    first = _REPLACED if in_place else _SELF
    adds, is_tensor = name == "scatter_add", source.is_tensor
    function = (lambda self, index, src, dim: _scattered(self, index, src, dim, 1)) if adds else _scattered
    return library_operator(
        name,
        f"{'selfRef' if in_place else 'out'}[index[i] along dim] {'+' if adds else ''}= {source.name}[i]",
        summary,
        (first, DIM, _INDEX, source, *(() if adds else (_REDUCE,)), *(() if in_place else (_OUT,))),
        (
            dtype_in(_TAKEN, first.name),
            *unless_empty(("index",), dtype_in(INDEX_TYPES, "index")),
            *((same_dtype(source.name, first.name),) if is_tensor else ()),
            *(() if in_place else (same_dtype("out", "self"), same_shape("out", "self"))),
            limited_dims(first.name),
            *unless_empty(
                ("index",), axis("dim", first.name), _within(first.name, *((source.name,) if is_tensor else ()))
            ),
            *(() if adds else (one_of("reduce", *range(5)),)),
        ),
        function,
        header=header,
        inputs=(first.name, "index", source.name),
        attributes=("dim",) if adds else ("dim", "reduce"),
    )


_MEAN = 5


def _neutral(reduce: int, dtype: np.dtype[Any]) -> Any:
    """Return the identity element of a reduction."""
    if reduce not in (3, 4):
        return int(reduce == 2)
    if dtype.kind == "b":
        return reduce == 4
    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-math.inf, math.inf)
    return least if reduce == 3 else most


def _reduced(self: Any, index: Any, source: Any, dim: int, reduce: int, included: bool) -> Any:
    if index.size == 0:
        return self
    start, places = np.array(np.atleast_1d(self)), np.atleast_1d(index)
    expect_within("index", places, 0, start.shape[dim] - 1, "indices")
    at = _open(places, dim)
    if reduce and not included:
        start[at] = _neutral(reduce, start.dtype)
    found = _scattered(start, index, source, dim, 1 if reduce == _MEAN else reduce)
    if reduce == _MEAN:
        counts = np.full(start.shape, int(included))
        np.add.at(counts, at, 1)
        divide = np.floor_divide if found.dtype.kind in "biu" else np.divide
        found = divide(found, np.maximum(counts, 1))
    return found.reshape(self.shape)


def _scatter_reduce(form: str, first: Parameter, *out: Parameter) -> Operator:
    name = first.name
    return library_operator(
        f"{form}scatter_reduce",
        f"{'out = self, out' if out else name}[index[i] along dim] = reduction of src[i] and the old element",
        f"Reduce values with equal indices along a dimension{'' if out else ', in place'}.",
        (first, DIM, _INDEX, tensor_in("src", "the values"), _REDUCE_OR_MEAN, _INCLUDED, *out),
        (
            dtype_in(_TAKEN, name),
            *(same_dtype(other, name) for other in ("src", *(each.name for each in out))),
            *(same_shape(each.name, name) for each in out),
            *unless_empty(
                ("index",), dtype_in(INDEX_TYPES, "index"), limited_dims(name), axis("dim", name), _within(name, "src")
            ),
            one_of("reduce", *range(_MEAN + 1)),
        ),
        _reduced,
        header="scatter_reduce",
        products=A2_CLASS,
        stream_type="aclrtStream " if form else "const aclrtStream ",
        inputs=(name, "index", "src"),
        attributes=("dim", "reduce", "includeSelf"),
    )


def _added(self: Any, index: Any, source: Any, alpha: Any, dim: int) -> Any:
    wide = np.float64 if self.dtype == np.float32 else self.dtype
    result = np.array(np.atleast_1d(self), dtype=wide, order="C")
    along = dim % result.ndim
    expect_within("index", index, 0, result.shape[along] - 1, "indices")
    # The scalar has its own type.
    factor = convert(np.asarray(alpha), result.dtype)
    values = np.atleast_1d(source).astype(wide) * factor if result.dtype != np.bool_ else np.atleast_1d(source) & factor
    _add_chosen(result, (slice(None),) * along + (index.reshape(-1),), values)
    return result.reshape(self.shape)


def _one_index(call: Call) -> str | None:
    shape = call["index"].shape
    return None if len(shape) <= 1 else f"index: expected at most 1 dimension, got {len(shape)}: {extents(shape)}"


_VECTOR = rule("one dimension: index", _one_index)


def _converts(call: Call) -> str | None:
    mine, theirs = call["alpha"].dtype, call["self"].dtype
    if castable(mine, theirs):
        return None
    return f"alpha: expected a data type that converts to {theirs.c_name} (that of self), got {mine.c_name}"


_ALPHA = rule("converts to self's data type: alpha", _converts)


def _fast(call: Call) -> str | None:
    values = call["self"]
    if call["mode"] != 0 or (values.dtype in _FAST and len(values.shape) == 2 and call["dim"] in (0, -2)):
        return None
    return f"mode: expected another with {values.dtype.c_name} of shape {extents(values.shape)}, got 0"


def _index_add(
    name: str,
    dtypes: Collection[D],
    more: tuple[Parameter, ...] = (),
    types: tuple[Check, ...] = (),
    last: tuple[Check, ...] = (),
    products: Collection[Product] = WITH_INFERENCE,
) -> Operator:
    return library_operator(
        name,
        "out = self; out[index] += alpha * source along dim",
        "Add to slices along a dimension.",
        (_SELF, DIM, _INDEX, tensor_in("source", "the rows"), scalar("alpha", "the factor of source"), *more, _OUT),
        (
            dtype_in(where_supported(dtypes), "self"),
            dtype_in(INDEX_TYPES, "index"),
            same_dtype("source", "self"),
            *types,
            same_dtype("out", "self"),
            limited_dims("self"),
            axis("dim", "self"),
            _VECTOR,
            same_shape("out", "self"),
            shape_is("a row for each index", lambda call: with_extent(call, call["index"].size), "source"),
            *last,
        ),
        _added,
        dtypes=dtypes,
        products=products,
        attributes=("dim",),
    )


def _chosen_rows(values: Any, index: Any, dim: int) -> Any:
    expect_within("index", index, 0, values.shape[dim] - 1, "indices")
    return np.take(values, index, dim)


def _chosen_from_either_end(self: Any, index: Any, dim: int) -> Any:
    values, places = np.atleast_1d(self), np.atleast_1d(index)
    extent = values.shape[dim]
    expect_within("index", places, -extent, extent - 1, "indices")
    return np.take(values, places, dim)


def _index_selected(self: Any, index: Any, dim: int) -> Any:
    chosen = _chosen_rows(np.atleast_1d(self), index.reshape(-1), dim)
    return chosen if self.ndim else chosen[0]


def _instead_of_dim(call: Call) -> tuple[int, ...]:
    shape = call["self"].shape or (1,)
    at = call["dim"] % len(shape)
    return (*shape[:at], *(call["index"].shape or (1,)), *shape[at + 1 :])


def _rows(
    name: str,
    formula: str,
    summary: str,
    checks: tuple[Check, ...],
    shape: Callable[[Call], tuple[int, ...]],
    function: Callable[..., Any],
    more: tuple[Parameter, ...] = (),
    attributes: tuple[str, ...] = ("dim",),
    last: tuple[Check, ...] = (),
    products: Collection[Product] = WITH_INFERENCE,
    dtypes: Collection[D] = NUMBERS,
) -> Operator:
    """Declare a function that selects along a dimension by an index tensor."""
    return library_operator(
        name,
        formula,
        summary,
        (_SELF, DIM, _INDEX, *more, _OUT),
        (
            dtype_in(where_supported(dtypes), "self"),
            dtype_in(INDEX_TYPES, "index"),
            same_dtype("out", "self"),
            *checks,
            shape_is("the result", shape, "out"),
            *last,
        ),
        function,
        dtypes=dtypes,
        products=products,
        attributes=attributes,
        empty=("self",),
    )


def _batched_shape(call: Call) -> tuple[int, ...]:
    shape = call["self"].shape
    at = call["dim"] % max(1, len(shape))
    return (*shape[:at], *call["index"].shape[max(0, call["batchDims"]) :], *shape[at + 1 :]) if shape else ()


def _batches(call: Call) -> str | None:
    values, index, got = call["self"].shape, call["index"].shape, call["batchDims"]
    most = min(call["dim"] % max(1, len(values)), len(index))
    if not 0 <= got <= most:
        return f"batchDims: expected from 0 to {most} (dim, or index's dimensions), got {got}"
    if values[:got] == index[:got]:
        return None
    return f"index: expected to begin as self, {extents(values[:got])} (batchDims), got {extents(index[:got])}"


def _chosen_in_batches(self: Any, index: Any, dim: int, batch_dims: int) -> Any:
    if not self.ndim:
        return _index_selected(self, index, 0)
    at = dim % self.ndim
    lead = self.shape[:batch_dims]
    batches = zip(*(x.reshape(-1, *x.shape[batch_dims:]) for x in (self, index)), strict=True)
    chosen = np.stack([_chosen_rows(values, places, at - batch_dims) for values, places in batches])
    return chosen.reshape(*lead, *chosen.shape[1:])


def _places(name: str, summary: str, words: str, find: Callable[[Any], Any], transposed: bool) -> Operator:
    def room(call: Call) -> str | None:
        expected, got = (call["self"].size, len(call["self"].shape)), call["out"].shape
        expected, at = (expected[::-1], 1) if transposed else (expected, 0)
        if len(got) == 2 and got[1 - at] == expected[1 - at] and got[at] <= expected[at]:
            return None
        return f"out: expected shape {extents(expected)} (room for all) or one with fewer {words}s, got {extents(got)}"

    def work(call: Call) -> Library | None:
        got, size = call["out"].shape, call["out"].size
        if size == 0:
            return None

        def find_within(self: Any) -> Any:
            found = find(self)
            if found.size > size:
                raise ValueError(
                    f"out: expected shape {extents(found.shape)} (the nonzero elements), got {extents(got)}"
                )
            return found

        return Library(find_within, ("self",), ("out",), sized_by_result=True)

    return Operator(
        name=name,
        summary=summary,
        formula=f"out = the indices of elements of self that are not 0, a {words} each",
        parameters=(_SELF, tensor_out("out", f"INT64; at most as many {words}s as self has elements")),
        support=support(NUMBERS),
        checks=(
            dtype_in(_TAKEN, "self"),
            dtype_in({D.INT64}, "out"),
            limited_dims("self"),
            *unless_empty(("out",), rule("room for all: out", room)),
        ),
        work=work,
    )


def _filled(self: Any, value: Any, dim: int, index: Any) -> Any:
    result = np.array(np.atleast_1d(self))
    places = np.array(index, np.intp)
    result[(slice(None),) * (dim % result.ndim) + (places,)] = convert(np.asarray(value), result.dtype)
    return result.reshape(self.shape)


def _filled_within(self: Any, index: Any, value: Any, dim: int) -> Any:
    """Fill at indices, ignoring those out of range."""
    extent = np.atleast_1d(self).shape[dim]
    return _filled(self, value, dim, index[(-extent <= index) & (index < extent)])


def _filled_by_array(product: Product) -> Collection[D]:
    return REAL if product in A2_CLASS else where_supported(_FILLED)(product)


def _known_places(first: str) -> Check:
    def violation(call: Call) -> str | None:
        shape, dim = call[first].shape or (1,), call["dim"]
        extent = shape[dim % len(shape)]
        wrong = next((at for at in call["index"] if not -extent <= at < extent), None)
        return None if wrong is None else f"index: expected from {-extent} to {extent - 1}, got {wrong}"

    return rule(f"within {first}: index", violation)


def _index_fill(name: str, summary: str, first: Parameter, by_tensor: bool) -> Operator:
    in_place = first is _REPLACED
    return library_operator(
        name,
        f"{'selfRef' if in_place else 'out'}[index along dim] = value",
        summary,
        (
            first,
            DIM,
            _INDEX if by_tensor else Parameter("index", "index", Kind.INT_ARRAY, "indices along dim"),
            scalar("value", "the number"),
            *(() if in_place else (_OUT,)),
        ),
        (
            dtype_in(_FILLED_BY_TENSOR if by_tensor else _filled_by_array, first.name),
            *(() if in_place else (same_dtype("out", "self"),)),
            *((dtype_in(INDEX_TYPES, "index"),) if by_tensor else ()),
            *unless_empty(
                (first.name,),
                *(() if in_place else (same_shape("out", "self"),)),
                limited_dims(first.name),
                axis("dim", first.name),
                *(() if by_tensor else (_known_places(first.name),)),
            ),
            real("value"),
        ),
        _filled_within if by_tensor else _filled,
        header="index_fill" if by_tensor else "index_fill_tensor",
        dtypes=REAL,
        products=MODERN if by_tensor else WITH_INFERENCE,
        empty=(first.name,),
        attributes=("dim",) if by_tensor else ("dim", "index"),
    )


def _copied(self: Any, index: Any, source: Any, dim: int) -> Any:
    result = np.array(np.atleast_1d(self))
    expect_within("index", index, 0, result.shape[dim] - 1, "indices")
    result[(slice(None),) * (dim % result.ndim) + (index.reshape(-1),)] = np.atleast_1d(source)
    return result.reshape(self.shape)


def _index_copy(name: str, summary: str, out: tuple[Parameter, ...]) -> Operator:
    results = tuple(each.name for each in out)

    def rows(call: Call) -> tuple[int, ...]:
        shape, at = call["selfRef"].shape, call["dim"]
        return shape and tuple(call["index"].size if each == at % len(shape) else n for each, n in enumerate(shape))

    return library_operator(
        name,
        f"{(*results, 'selfRef')[0]}[index along dim] = source",
        summary,
        (_REPLACED if not out else _COPIED, DIM, _INDEX, tensor_in("source", "the rows"), *out),
        (
            dtype_in(_TAKEN, "selfRef"),
            dtype_in(INDEX_TYPES, "index"),
            same_dtype("source", "selfRef"),
            *(same_dtype(each, "selfRef") for each in results),
            limited_dims("selfRef"),
            axis("dim", "selfRef"),
            _VECTOR,
            *(same_shape(each, "selfRef") for each in results),
            shape_is("a row for each index", rows, "source"),
        ),
        _copied,
        header="index_copy",
        inputs=("selfRef", "index", "source"),
        attributes=("dim",),
    )


_WHERE = "Indices of nonzero elements; the first dimension of out becomes their number."
_FILL = "Fill slices along a dimension with a number"

OPERATORS = (
    Operator(
        name="index",
        summary="Select elements by index tensors or masks.",
        formula="out = self[indices]",
        parameters=(_SELF, _INDICES, _OUT),
        support={product: frozenset(_INDEXED(product)) for product in WITH_INFERENCE},
        checks=(
            dtype_in(_INDEXED, "self"),
            same_dtype("out", "self"),
            limited_dims("self"),
            _INDEX_TENSORS,
            public_format("self", "out"),
            each_of("no private format among them", ("indices",), _public_index),
            _TOGETHER,
            rule("shape of the selection: out", _selected_shape),
        ),
        work=_index_work,
    ),
    Operator(
        name="index_put_impl",
        summary="Replace elements selected by index tensors, or add to them, in place.",
        formula="selfRef[indices] = values, or += values",
        parameters=(
            _REPLACED,
            _INDICES,
            tensor_in("values", "the new values; broadcast to the shape of the selection"),
            Parameter("accumulate", "accumulate", Kind.BOOL, "whether to add instead of replace"),
            Parameter("unsafe", "unsafe", Kind.BOOL, "whether to skip checking the indices"),
        ),
        support=support(REAL),
        checks=(
            dtype_in(where_supported(REAL), "selfRef"),
            same_dtype("values", "selfRef"),
            limited_dims("selfRef"),
            _INDEX_TENSORS,
            _TOGETHER,
            *unless_empty(("values",), rule("broadcasts to the selection: values", _new_values)),
        ),
        work=_put_work,
    ),
    _rows(
        "index_select",
        "out = self[index] along dim",
        "Select slices along a dimension.",
        (public_format("self", "index", "out"), limited_dims("self"), axis("dim", "self"), _VECTOR),
        lambda call: with_extent(call, call["index"].size),
        _index_selected,
        dtypes=_MOVED,
    ),
    _rows(
        "gather_v2",
        "out = self[index] along dim, which index's dimensions replace",
        "Select slices along a dimension by indices of any shape.",
        (limited_dims("self", "index"), axis("dim", "self")),
        _instead_of_dim,
        _chosen_from_either_end,
    ),
    _rows(
        "gather_v3",
        "out = self[index] along dim, which index's dimensions after the first batchDims replace",
        "Select slices along a dimension by batched indices.",
        (limited_dims("self", "index"), axis("dim", "self")),
        _batched_shape,
        _chosen_in_batches,
        more=(
            Parameter(
                "batchDims", "batch_dims", Kind.INT64, "the number of leading dimensions that self and index share"
            ),
            Parameter("mode", "mode", Kind.INT64, "ignored: 0 for precision, 1 for speed"),
        ),
        attributes=("dim", "batchDims"),
        last=(
            *elsewhere(CLASS_950, one_of("dim", 0), one_of("batchDims", 0), one_of("mode", 1)),
            *on(CLASS_950, rule("batches: batchDims, index", _batches)),
        ),
        products=MODERN,
    ),
    library_operator(
        "gather",
        "out[i] = self[index[i] along dim]",
        "Gather elements along a dimension.",
        (_SELF, DIM, _INDEX, _OUT),
        (
            dtype_in(where_supported(_GATHERED), "self"),
            *unless_empty(("index",), dtype_in(INDEX_TYPES, "index")),
            same_dtype("out", "self"),
            limited_dims("self"),
            axis("dim", "self"),
            _within("self"),
            same_shape("out", "index"),
        ),
        _gather,
        dtypes=_GATHERED,
        attributes=("dim",),
        empty=("self",),
    ),
    _scatter("scatter", "Scatter values along a dimension.", tensor_in("src", "the values"), False, "scatter"),
    _scatter(
        "inplace_scatter",
        "Scatter values along a dimension, in place.",
        tensor_in("src", "the values"),
        True,
        "scatter",
    ),
    _scatter("scatter_value", "Scatter a number along a dimension.", scalar("value", "the number"), False, "scatter"),
    _scatter(
        "inplace_scatter_value",
        "Scatter a number along a dimension, in place.",
        scalar("value", "the number"),
        True,
        "scatter",
    ),
    _scatter(
        "scatter_add", "Scatter-add values along a dimension.", tensor_in("src", "the values"), False, "scatter_add"
    ),
    _scatter_reduce("", _SELF, _OUT),
    _scatter_reduce("inplace_", _REPLACED),
    _index_add("index_add", NUMBERS),
    _index_add(
        "index_add_v2",
        REAL,
        (Parameter("mode", "mode", Kind.INT64, "0: fast, for the rows of a matrix; otherwise precise"),),
        (_ALPHA,),
        (rule("fast: mode", _fast, ACLNN_ERR_INNER_NULLPTR),),
        MODERN,
    ),
    _index_fill("index_fill_tensor", f"{_FILL}.", _SELF, by_tensor=False),
    _index_fill("inplace_index_fill_tensor", f"{_FILL}, in place.", _REPLACED, by_tensor=False),
    _index_fill("index_fill", f"{_FILL}; indices out of range are skipped.", _SELF, by_tensor=True),
    _index_fill(
        "inplace_index_fill", f"{_FILL}, in place; indices out of range are skipped.", _REPLACED, by_tensor=True
    ),
    _index_copy("index_copy", "Replace slices along a dimension.", (tensor_out("outRef", "the result"),)),
    _index_copy("inplace_index_copy", "Replace slices along a dimension, in place.", ()),
    _places("nonzero", _WHERE, "row", np.argwhere, transposed=False),
    _places("nonzero_v2", _WHERE, "column", lambda self: np.argwhere(self).T, transposed=True),
)
