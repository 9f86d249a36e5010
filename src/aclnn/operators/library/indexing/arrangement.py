"""Rearrangement of elements: aclnnPermute, aclnnSlice, aclnnRoll, repetition, padding and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    axis,
    dims_between,
    dtype_in,
    extents,
    fits,
    has_zero,
    limited_dims,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    value_is,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    COMPLEX,
    EIGHT_BITS,
    EIGHT_BITS_OF_NUMPY,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    add_at,
    add_rows,
    declared,
    library_operator,
    on_950,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.reduction.dimensions import DIM, valid_dims

_SELF, _OUT = tensor_in("self", "the elements"), tensor_out()
_MOVED = (*NUMBERS, *UNSIGNED)
_EXPANDED = (D.FLOAT, D.FLOAT16, D.BF16, D.UINT8, D.INT8, D.INT32, D.INT64, D.BOOL)
_SLICED = (*FLOATING, D.INT8, D.UINT8, D.INT32, D.INT64, D.BOOL)
_SLICED_V2 = tuple(dtype for dtype in _SLICED if dtype != D.DOUBLE)
_ROLLED = (*_SLICED, D.UINT32)


def _rolled(product: Product) -> Collection[D]:
    more = (D.INT16, D.COMPLEX64) if product in CLASS_950 else (D.INT16,) if product.has_bfloat16 else ()
    return where_supported((*_ROLLED, *more))(product)


_REPEATS = Parameter("repeats", "repeats", Kind.INT64, "the number of repetitions")
_OUTPUT_SIZE = Parameter("outputSize", "output_size", Kind.INT64, "the size of out along the dimension")
Shape = tuple[int, ...]


def _numbers(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INT_ARRAY, meaning)


def _moved(
    name: str,
    formula: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    shape: Callable[[Call], Sequence[int]],
    function: Callable[..., Any],
    header: str | None = None,
    number: tuple[Parameter, ...] = (),
    taken: Callable[[Product], Collection[D]] | None = None,
    products: Collection[Product] = WITH_INFERENCE,
) -> Operator:
    """Declare a function that only moves elements; ``taken`` lists its data types unless they are the usual ones."""
    return library_operator(
        name,
        formula,
        summary,
        (_SELF, *parameters, *number, _OUT),
        (
            dtype_in(taken or where_supported(_MOVED), "self"),
            same_dtype("out", "self"),
            limited_dims("self"),
            *checks,
            shape_is("the result", shape, "out"),
        ),
        function,
        header=header or name,
        dtypes=frozenset[D]().union(*map(taken, products)) if taken else _MOVED,
        products=products,
        attributes=tuple(each.name for each in parameters),
        empty=() if number else ("self",),
    )


def _dimensions(name: str) -> Check:
    def violation(call: Call) -> str | None:
        rank = max(len(call["self"].shape), 1)
        wrong = next((dim for dim in call[name] if not -rank <= dim < rank), None)
        return None if wrong is None else f"{name}: expected dimensions from {-rank} to {rank - 1}, got {wrong}"

    return rule(f"dimensions of self: {name}", violation)


def _every_dimension(call: Call) -> str | None:
    dims, rank = call["dims"], len(call["self"].shape)
    if sorted(dim % max(rank, 1) for dim in dims) == [*range(rank)]:
        return None
    return f"dims: expected each of the {rank} dimensions of self once, got {list(dims)}"


def _slice(self: Any, dim: int, start: int, end: int, step: int) -> Any:
    values = np.atleast_1d(self)
    return values[(slice(None),) * (dim % values.ndim) + (slice(start, end, step),)]


def _slice_shape(call: Call) -> Shape:
    shape = call["self"].shape or (1,)
    along = call["dim"] % len(shape)
    taken = len(range(*slice(call["start"], call["end"], call["step"]).indices(max(shape[along], 0))))
    return (*shape[:along], taken, *shape[along + 1 :])


_ON_DIAGONALS = (*REAL_FLOATING, *INTEGERS, D.BOOL, D.COMPLEX64)


def _diagonal_shape(call: Call) -> Shape:
    """Return the shape of a diagonal of a matrix, or of the matrix of a diagonal."""
    shape, at = call["self"].shape, call["diagonal"]
    if call.operator.name == "diag" and len(shape) == 2:
        rows, columns = shape
        return (max(0, min(rows + min(at, 0), columns - max(at, 0))),)
    return (call["self"].size + abs(at),) * 2


def _diagonal_fits(call: Call) -> str | None:
    """Complain of a shape; without elements any is filled with zeros."""
    expected, got = _diagonal_shape(call), call["out"].shape
    if got == expected or not call["self"].size:
        return None
    return f"out: expected shape {extents(expected)} (the result), got {extents(got)}"


def _diagonal_work(call: Call) -> Library | None:
    at, elements = call["diagonal"], call["self"].size
    if not call["out"].size or (not elements and at == 0):
        return None
    if not elements:
        return Library(lambda: (0,), (), ("out",))
    taken = call.operator.name == "diag" and len(call["self"].shape) == 2
    return Library(lambda self: np.diagonal(self, at) if taken else np.diagflat(self, at), ("self",), ("out",))


def _diagonal(name: str, formula: str, summary: str, most: int, checks: tuple[Check, ...]) -> Operator:
    return declared(
        name,
        formula,
        summary,
        (_SELF, Parameter("diagonal", "diagonal", Kind.INT64, "0: the main one, above 0: above it, else below"), _OUT),
        (
            dtype_in(where_supported(_ON_DIAGONALS), "self"),
            *checks,
            dims_between(0, most, "self"),
            rule("shape of the result: out", _diagonal_fits),
        ),
        _diagonal_work,
        dtypes=_ON_DIAGONALS,
        products=WITH_INFERENCE,
    )


_ARRAYS = ("starts", "ends", "axes", "steps")


def _slices_along_axes(shape: Shape, starts: Shape, ends: Shape, axes: Shape, steps: Shape) -> tuple[slice, ...]:
    taken = [slice(None)] * len(shape)
    for start, end, along, step in zip(starts, ends, axes, steps, strict=True):
        taken[along] = slice(start, end, step)
    return tuple(taken)


def _equal_counts(call: Call) -> str | None:
    expected = len(call["starts"])
    name = next((name for name in _ARRAYS if len(call[name]) != expected), None)
    return None if name is None else f"{name}: expected {expected} numbers (as many as starts), got {len(call[name])}"


def _slices_shape(call: Call) -> Shape:
    shape = call["self"].shape
    slices = _slices_along_axes(shape, *(call[name] for name in _ARRAYS))
    return tuple(len(range(*along.indices(n))) for along, n in zip(slices, shape, strict=True))


def _shifted(call: Call) -> str | None:
    rank = len(call["self"].shape)
    wrong = next((dim for dim in call["dims"] if not -rank <= dim < rank), None)
    if wrong is None or call["self"].size == 0:
        return None
    return f"dims: expected any of the {rank} dimensions of self, got {wrong}"


def _as_many(call: Call) -> str | None:
    rank, got = len(call["self"].shape), call["repeats"]
    if rank <= len(got) <= 8 and all(n >= 0 for n in got):
        return None
    return f"repeats: expected {rank} to 8 numbers of at least 0 (self has {rank} dimensions), got {extents(got)}"


def _tiled(call: Call) -> Shape:
    shape, repeats = call["self"].shape, call["repeats"]
    whole = (*(1,) * (len(repeats) - len(shape)), *shape)
    return tuple(n * times for n, times in zip(whole, repeats, strict=True))


def _broadcastable(call: Call) -> str | None:
    shape, size = call["self"].shape, call["size"]
    own = size[len(size) - len(shape) :]
    valid = len(shape) <= len(size) <= 8 and min(size, default=0) >= 0
    if valid and all(n in (1, wanted) for n, wanted in zip(shape, own, strict=True)):
        return None
    return f"size: expected a shape to which {extents(shape)} (self) can be broadcast, got {extents(size)}"


def _stretched(call: Call) -> Shape:
    shape, times = call["self"].shape or (1,), call["repeats"]
    along = call["dim"] % len(shape)
    return (*shape[:along], shape[along] * times, *shape[along + 1 :])


def _counts(call: Call) -> str | None:
    shape, got = call["self"].shape or (1,), call["repeats"].size
    own = shape[call["dim"] % len(shape)] if "dim" in call.arguments else call["self"].size
    return None if got in (1, own) else f"repeats: expected 1 number or {own} (one for each), got {got}"


def _sized(call: Call) -> Shape:
    shape, size = call["self"].shape or (1,), call["outputSize"]
    if "dim" not in call.arguments:
        return (size,)
    along = call["dim"] % len(shape)
    return (*shape[:along], size, *shape[along + 1 :])


def _places(repeats: Any, own: int, size: int) -> Any:
    """Return the source index of each element after repetition."""
    if (repeats < 0).any():
        raise IndexError(f"repeats: expected numbers of at least 0, got {repeats.min()}")
    counts = np.broadcast_to(repeats.reshape(-1), own)
    if (got := sum(counts.tolist())) != size:
        raise IndexError(f"repeats: expected a sum of {size} (the repeated elements), got {got}")
    return np.repeat(np.arange(own), counts)


def _repeated(self: Any, repeats: Any, dim: int, size: int) -> Any:
    values = np.atleast_1d(self)
    return values.take(_places(repeats, values.shape[dim], size), dim)


def _grouped(call: Call) -> str | None:
    gradient, got, count = call["yGrad"].shape or (1,), call["out"].shape or (1,), call["repeats"].size
    along = call["axis"] % len(gradient)
    own = got[along] if count == 1 and along < len(got) else count
    expected = (*gradient[:along], own, *gradient[along + 1 :])
    return None if got == expected else f"out: expected shape {extents(expected)}, got {extents(got)}"


def _gathered(call: Call) -> Library | None:
    out, axis = call["out"].shape or (1,), call["axis"]
    if call["out"].size == 0:
        return None

    def gather(gradient: Any, repeats: Any) -> Any:
        moved = np.moveaxis(np.atleast_1d(gradient), axis, 0)
        total = np.zeros((out[axis], *moved.shape[1:]))
        rows = total.reshape(len(total), -1)
        add_rows(rows, _places(repeats, len(total), len(moved)), moved.reshape(len(moved), rows.shape[1]))
        return np.moveaxis(total, 0, axis).reshape(call["out"].shape)

    return Library(gather, ("yGrad", "repeats"), ("out",))


_REPEATS_TYPES = dtype_in({D.INT32, D.INT64}, "repeats")


def _by_counts(name: str, along: tuple[Parameter, ...]) -> Operator:
    """Declare the repetition of each element or slice by counts in a tensor."""
    return library_operator(
        name,
        f"out = repeats[i] copies of the i-th element of self{' along dim' if along else ''}, adjacent",
        f"Copy each element {'along a dimension ' if along else ''}by the counts in a tensor.",
        (
            _SELF,
            tensor_in("repeats", "the number of copies, one for all or one per element; INT32 or INT64"),
            *along,
            _OUTPUT_SIZE,
            _OUT,
        ),
        (
            dtype_in(where_supported(_MOVED), "self"),
            _REPEATS_TYPES,
            same_dtype("out", "self"),
            limited_dims("self"),
            dims_between(0, 1, "repeats"),
            *([axis("dim", "self")] if along else []),
            rule("one or one for each: repeats", _counts),
            shape_is("the result", _sized, "out"),
        ),
        _repeated if along else lambda self, repeats, size: _repeated(self.reshape(-1), repeats, 0, size),
        header="repeat_interleave",
        dtypes=_MOVED,
        products=MODERN,
        attributes=(*(each.name for each in along), "outputSize"),
    )


def _margins(pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension; ``pad`` begins with the last dimension."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _padded(shape: Sequence[int], pad: Sequence[int]) -> Shape:
    margins = _margins(pad, len(shape))
    return tuple(n + before + after for n, (before, after) in zip(shape, margins, strict=True))


def _even(call: Call) -> str | None:
    shape, pad = call["self"].shape, call["pad"]
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        return f"pad: expected an even number of at most {2 * len(shape)} numbers, got {len(pad)}"
    cut = zip(shape, _margins(pad, len(shape)), strict=True)
    if all(n + min(before, 0) + min(after, 0) >= 0 for n, (before, after) in cut):
        return None
    return f"pad: expected negative numbers that cut no more than there is of {extents(shape)}, got {list(pad)}"


def _constant(self: Any, value: Any, pad: Sequence[int]) -> Any:
    margins = _margins(pad, self.ndim)
    kept = tuple(
        slice(max(-before, 0), n + min(after, 0)) for n, (before, after) in zip(self.shape, margins, strict=True)
    )
    positive = [(max(before, 0), max(after, 0)) for before, after in margins]
    return np.pad(self[kept], positive, constant_values=convert(np.asarray(value), self.dtype))


_TRAINED = FLOATING
_REAL_FIELDS = (*REAL_FLOATING, *COMPLEX)


_PADDED = (*REAL_FLOATING, *INTEGERS, *COMPLEX, D.BOOL)


def _reflected(places: Any, extent: int) -> Any:
    return extent - 1 - np.abs(extent - 1 - np.abs(places))


def _clipped(places: Any, extent: int) -> Any:
    return np.clip(places, 0, extent - 1)


def _wrapped(places: Any, extent: int) -> Any:
    return places % extent


#: Paddings that repeat elements: name, description, and source indices.
_REPEATING: Mapping[str, tuple[str, Callable[[Any, int], Any]]] = {
    "reflection": ("reflection", _reflected),
    "replication": ("replication of the border", _clipped),
    "circular": ("periodic continuation", _wrapped),
}


def _padded_types(kind: str, rank: int) -> Callable[[Product], Collection[D]]:
    if kind == "circular":
        return where_supported((*FLOATING, D.INT8, D.INT32))
    if kind == "replication":
        return where_supported(_PADDED)
    taken = on_950((*UNSIGNED, *(EIGHT_BITS if rank > 1 else ())), _PADDED)
    return lambda product: frozenset(taken(product)) - (set() if product.has_bfloat16 else set(COMPLEX))


def _bfloat16_margins(call: Call) -> str | None:
    got = call["padding"]
    if call["self"].dtype != D.BF16 or (min(got) >= 0 and (max(got) <= 7 or not any(got[2:]))):
        return None
    return f"padding: expected numbers from 0 to 7 of ACL_BF16, or none before the last dimension, got {list(got)}"


def _repeating_pad(kind: str, rank: int) -> tuple[Operator, Operator]:
    """Declare a padding of the last dimensions by their own elements (negative padding crops), and its gradient."""
    words, folded = _REPEATING[kind]
    is_circular, reflects = kind == "circular", kind == "reflection"
    padding = _numbers("padding", "what stands before and after each dimension, the last first")
    taken, products = _padded_types(kind, rank), MODERN if is_circular else WITH_INFERENCE

    def valid(call: Call) -> str | None:
        shape, got = call["self"].shape, call["padding"]
        if len(shape) not in (rank + 1, rank + 2):
            return f"self: expected {rank + 1} or {rank + 2} dimensions, got {len(shape)}: {extents(shape)}"
        if len(got) != 2 * rank:
            return f"padding: expected {2 * rank} numbers, got {len(got)}"
        for n, pair in zip(shape[-rank:], _margins(got, rank), strict=True):
            if reflects and max(pair) >= n:
                return f"padding: expected numbers of at most {n - 1} in a dimension of {n}, got {list(pair)}"
            if is_circular and min(*pair, sum(pair)) < -n:
                return f"padding: expected to crop at most {n} of a dimension of {n}, got {list(pair)}"
        return None

    def samples_only(backward: bool) -> Check:
        def violation(call: Call) -> str | None:
            shape = call["self"].shape
            empty = has_zero(shape) or has_zero(call["gradOutput" if backward else "out"].shape)
            batched = len(shape) == rank + 2 or (backward and kind != "replication")
            if not empty or (batched and not has_zero(shape[1:])):
                return None
            return f"self: expected elements, or no sample of {rank + 2} dimensions, got shape {extents(shape)}"

        return rule("elements of each sample: self", violation)

    def pad(self: Any, numbers: Sequence[int]) -> Any:
        for dim, (before, after) in enumerate(_margins(numbers, self.ndim)):
            extent = self.shape[dim]
            self = self.take(folded(np.arange(-before, extent + after), extent), dim)
        return self

    def spread(gradient: Any, self: Any, numbers: Sequence[int]) -> Any:
        places = pad(np.arange(self.size).reshape(self.shape), numbers).reshape(-1)
        total = np.zeros(self.size, np.result_type(gradient, np.float64))
        add_at(total, places, gradient.reshape(-1))
        return total.reshape(self.shape)

    name = f"{kind}_pad{rank}d"
    fits = rule("fits self: padding", valid)

    def shape(call: Call) -> Shape:
        return _padded(call["self"].shape, call["padding"])

    forward = library_operator(
        name,
        f"out = self, padded by {words}",
        f"Pad the last {f'{rank} dimensions' if rank > 1 else 'dimension'} by {words}.",
        (_SELF, padding, _OUT),
        (
            dtype_in(taken, "self"),
            same_dtype("out", "self"),
            *((public_format("self"),) if is_circular else ()),
            same_format("out", "self"),
            fits,
            shape_is("the result", shape, "out"),
            samples_only(backward=False),
        ),
        pad,
        dtypes=frozenset[D]().union(*map(taken, products)),
        products=products,
        attributes=("padding",),
        empty=("self",),
    )
    differentiable = FLOATING if is_circular else _REAL_FIELDS
    backward = library_operator(
        f"{name}_backward",
        "gradInput = sum of gradOutput over the copies of each element",
        f"Gradient of {name}.",
        (
            tensor_in("gradOutput", "the gradient with respect to the output"),
            _SELF,
            padding,
            tensor_out("gradInput", "the gradient with respect to self"),
        ),
        (
            dtype_in(where_supported(differentiable), "gradOutput"),
            same_dtype("self", "gradOutput"),
            same_dtype("gradInput", "gradOutput"),
            *((public_format("gradOutput"),) if is_circular or rank > 1 else ()),
            same_format("self", "gradOutput"),
            same_format("gradInput", "gradOutput"),
            fits,
            *([rule("margins of BF16: padding", _bfloat16_margins)] if rank == 2 and not is_circular else []),
            shape_is("the result", shape, "gradOutput"),
            same_shape("gradInput", "self"),
            samples_only(backward=True),
        ),
        spread,
        header="pad2d_backward" if rank == 2 and not is_circular else f"{name}_backward",
        dtypes=differentiable,
        products=products,
        attributes=("padding",),
    )
    return forward, backward


def _slices(call: Call) -> Shape:
    """Return the shape of aclnnUnfoldGrad's gradient: slices replace the dimension, and their elements come last."""
    sizes, dim = call["inputSizes"], call["dim"]
    count = (sizes[dim] - call["size"]) // call["step"] + 1
    return (*sizes[:dim], count, *sizes[dim + 1 :], call["size"])


def _unfolds(call: Call) -> str | None:
    sizes, dim, size = call["inputSizes"], call["dim"], call["size"]
    if not 0 <= dim < len(sizes):
        return f"dim: expected from 0 to {len(sizes) - 1}, got {dim}"
    if not 0 < size <= sizes[dim]:
        return f"size: expected from 1 to {sizes[dim]} (the extent along dim), got {size}"
    return None


def _folded(gradient: Any, sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    slices = np.moveaxis(gradient, dim, 0)
    total = np.zeros((sizes[dim], *slices.shape[1:-1]), np.float64)
    for at, each in enumerate(slices):
        total[at * step : at * step + size] += np.moveaxis(each, -1, 0)
    return np.moveaxis(total, 0, dim)


def _even_groups(call: Call) -> str | None:
    groups, channels = call["groups"], call["self"].shape[1]
    if groups > 0 and channels % groups == 0:
        return None
    return f"groups: expected a divisor of {channels} (the channels of self), got {groups}"


def _shuffled(self: Any, groups: int) -> Any:
    batch, channels, *plane = self.shape
    return self.reshape(batch, groups, channels // groups, *plane).swapaxes(1, 2).reshape(self.shape)


OPERATORS = (
    _moved(
        "permute",
        "out = self with its dimensions in the order of dims",
        "Permute the dimensions.",
        (_numbers("dims", "the new order of self's dimensions"),),
        (_dimensions("dims"), rule("each dimension once: dims", _every_dimension)),
        lambda call: [call["self"].shape[dim] for dim in call["dims"]],
        lambda self, dims: self.transpose(dims),
        taken=lambda product: where_supported((*_MOVED, *EIGHT_BITS) if product.has_bfloat16 else _MOVED)(product),
    ),
    _moved(
        "slice",
        "out = self[start : end : step] along dim",
        "Take a slice along a dimension.",
        (
            DIM,
            Parameter("start", "start", Kind.INT64, "the first index; negative ones count from the end"),
            Parameter("end", "end", Kind.INT64, "the end of the slice, exclusive"),
            Parameter("step", "step", Kind.INT64, "the step"),
        ),
        (axis("dim", "self"), value_is("at least 1", lambda got: got > 0, "step")),
        _slice_shape,
        _slice,
        taken=where_supported(_SLICED),
    ),
    _diagonal(
        "diag",
        "out = the diagonal of self, or a matrix with self as one",
        "Take a diagonal of a matrix, or make a matrix of a diagonal.",
        2,
        (same_dtype("out", "self"),),
    ),
    _diagonal(
        "diag_flat",
        "out = a matrix with the elements of self as a diagonal",
        "Make a matrix of a diagonal.",
        8,
        (dtype_in(where_supported(_ON_DIAGONALS), "out"),),
    ),
    library_operator(
        "slice_v2",
        "out = self[starts[i] : ends[i] : steps[i]] along axes[i], of each i",
        "Take slices along dimensions.",
        (
            _SELF,
            _numbers("starts", "the first indices; negative ones count from the end"),
            _numbers("ends", "the indices behind the last"),
            _numbers("axes", "the dimensions"),
            _numbers("steps", "from one index to the next"),
            _OUT,
        ),
        (
            dtype_in(where_supported(_SLICED_V2), "self"),
            same_dtype("out", "self"),
            dims_between(1, 8, "self"),
            rule("as many as starts: ends, axes, steps", _equal_counts),
            valid_dims("axes"),
            value_is("numbers of at least 1", lambda got: all(step > 0 for step in got), "steps"),
            shape_is("the result", _slices_shape, "out"),
        ),
        lambda self, *arrays: self[_slices_along_axes(self.shape, *arrays)],
        dtypes=_SLICED_V2,
        products=WITH_TRAINING,
        attributes=_ARRAYS,
    ),
    _moved(
        "flip",
        "out = self reversed along dims",
        "Reverse some dimensions.",
        (_numbers("dims", "the dimensions to reverse"),),
        (valid_dims("dims"),),
        lambda call: call["self"].shape,
        lambda self, dims: np.flip(self, tuple(dims)) if self.ndim else self,
    ),
    _moved(
        "roll",
        "out[(i + shifts) mod n] = self[i]",
        "Roll elements along some dimensions.",
        (_numbers("shifts", "the shifts"), _numbers("dims", "the dimensions; empty: the flattened tensor")),
        (
            rule("dimensions to shift along: dims", _shifted),
            fits(
                "{} (one for each of dims, one for none)",
                lambda call, got: (len(call["dims"]) or 1, len(got)),
                "shifts",
            ),
        ),
        lambda call: call["self"].shape,
        lambda self, shifts, dims: np.roll(self, tuple(shifts), tuple(dims)) if dims else np.roll(self, shifts[0]),
        taken=_rolled,
    ),
    _moved(
        "repeat",
        "out = repeats copies of self along each dimension",
        "Copy a tensor several times along each dimension.",
        (_numbers("repeats", "the number of copies per dimension; extra ones add leading dimensions"),),
        (rule("one for each dimension: repeats", _as_many),),
        _tiled,
        lambda self, repeats: np.tile(self, tuple(repeats)),
        taken=on_950(EIGHT_BITS, _MOVED),
    ),
    _moved(
        "expand",
        "out = self, broadcast to size",
        "Broadcast a tensor to a shape.",
        (_numbers("size", "the shape of out"),),
        (rule("shape that self can be broadcast to: size", _broadcastable),),
        lambda call: call["size"],
        lambda self, size: np.broadcast_to(self, tuple(size)),
        taken=where_supported(_EXPANDED),
        products=WITH_INFERENCE - CLASS_950,
    ),
    _moved(
        "repeat_interleave_int_with_dim",
        "out = repeats adjacent copies of each element of self along dim",
        "Copy each element several times along a dimension.",
        (_REPEATS, DIM, _OUTPUT_SIZE),
        (axis("dim", "self"),),
        _stretched,
        lambda self, repeats, dim, size: np.repeat(np.atleast_1d(self), repeats, dim),
        header="repeat_interleave",
    ),
    _moved(
        "repeat_interleave_int",
        "out = repeats adjacent copies of each element of self",
        "Copy each element several times, into a flat tensor.",
        (_REPEATS, _OUTPUT_SIZE),
        (),
        lambda call: (call["self"].size * call["repeats"],),
        lambda self, repeats, size: np.repeat(self, repeats),
        header="repeat_interleave",
    ),
    _by_counts("repeat_interleave", ()),
    _by_counts("repeat_interleave_with_dim", (DIM,)),
    library_operator(
        "repeat_interleave_tensor",
        "out = index i, repeats[i] times",
        "Repeat each index by the counts in a tensor.",
        (
            tensor_in("repeats", "the number of copies of each index; INT32 or INT64"),
            _OUTPUT_SIZE,
            tensor_out("out", "the indices; INT64"),
        ),
        (
            _REPEATS_TYPES,
            dtype_in({D.INT64}, "out"),
            dims_between(1, 1, "repeats"),
            shape_is("the result", lambda call: (call["outputSize"],), "out"),
        ),
        lambda repeats, size: _places(repeats, repeats.size, size),
        header="repeat_interleave",
        dtypes=_MOVED,
        products=MODERN,
        attributes=("outputSize",),
    ),
    Operator(
        name="repeat_interleave_grad",
        summary="Gradient of repetitions along a dimension.",
        formula="out[i] = sum of yGrad over the copies of the i-th slice along axis",
        parameters=(
            tensor_in("yGrad", "the gradient with respect to the copies"),
            tensor_in("repeats", "the number of copies, one for all or one per element; INT32 or INT64"),
            Parameter("axis", "axis", Kind.INT64, "the dimension"),
            tensor_out("out", "the gradient with respect to the repeated tensor", const=True),
        ),
        support=support(_TRAINED, MODERN),
        checks=(
            dtype_in(where_supported(_TRAINED), "yGrad"),
            _REPEATS_TYPES,
            same_dtype("out", "yGrad"),
            limited_dims("yGrad", "out"),
            dims_between(0, 1, "repeats"),
            axis("axis", "yGrad"),
            rule("yGrad with one slice for each of repeats: out", _grouped),
        ),
        work=_gathered,
    ),
    _moved(
        "constant_pad_nd",
        "out = self padded with value",
        "Pad dimensions with a number; negative padding crops.",
        (_numbers("pad", "the padding before and after each dimension, last dimension first"),),
        (rule("pairs, no more than dimensions: pad", _even), same_format("out", "self")),
        lambda call: _padded(call["self"].shape, call["pad"]),
        _constant,
        number=(scalar("value", "the number"),),
        taken=on_950(EIGHT_BITS_OF_NUMPY, _MOVED),
    ),
    library_operator(
        "channel_shuffle",
        "out[:, i * groups + g] = self[:, g * channels / groups + i]",
        "Interleave the channels of several groups.",
        (_SELF, Parameter("groups", "groups", Kind.INT64, "the number of groups"), _OUT),
        (
            same_dtype("out", "self"),
            dtype_in(where_supported(NUMBERS), "self"),
            dims_between(3, 7, "self"),
            rule("groups of as many channels: groups", _even_groups),
            same_shape("out", "self"),
        ),
        _shuffled,
        attributes=("groups",),
    ),
    library_operator(
        "unfold_grad",
        "gradIn[i] = sum of gradOut[j, ..., k] along dim, where j * step + k = i",
        "Gradient of unfolding a dimension into slices of one size, which may overlap.",
        (
            tensor_in("gradOut", "the gradient with respect to the slices, whose elements are the last dimension"),
            _numbers("inputSizes", "the shape of the unfolded tensor"),
            Parameter("dim", "dim", Kind.INT64, "the dimension, counted from 0"),
            Parameter("size", "size", Kind.INT64, "the size of each slice"),
            Parameter("step", "step", Kind.INT64, "the step between slices"),
            tensor_out("gradIn", "the gradient with respect to the unfolded tensor", const=True),
        ),
        (
            dtype_in(where_supported(_TRAINED), "gradOut"),
            same_dtype("gradIn", "gradOut"),
            dims_between(1, 8, "gradOut", "gradIn"),
            shape_is("inputSizes", lambda call: call["inputSizes"], "gradIn"),
            rule("from 0 to the last: dim", _unfolds),
            value_is("at least 1", lambda got: got > 0, "step"),
            shape_is("slices of gradIn", _slices, "gradOut"),
            public_format("gradOut"),
        ),
        _folded,
        dtypes=_TRAINED,
        products=MODERN,
        attributes=("inputSizes", "dim", "size", "step"),
    ),
    *(
        each
        for kind in _REPEATING
        for rank in ((2, 3) if kind == "circular" else (1, 2, 3))
        for each in _repeating_pad(kind, rank)
    ),
)
