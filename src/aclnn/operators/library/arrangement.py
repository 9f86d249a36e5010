"""Elements in another arrangement: aclnnPermute, aclnnSlice, aclnnRoll, repetitions, padding and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    axis,
    dims_between,
    dtype_in,
    extents,
    limited_dims,
    present,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    add_at,
    add_rows,
    camel,
    library_operator,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.dimensions import DIM, valid_dims

_SELF, _OUT = tensor_in("self", "the elements"), tensor_out()
_MOVED = (*NUMBERS, *UNSIGNED)
_REPEATS = Parameter("repeats", "repeats", Kind.INT64, "how often")
_OUTPUT_SIZE = Parameter("outputSize", "output_size", Kind.INT64, "the extent of out along the dimension")
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
) -> Operator:
    """A function that only moves elements."""
    arrays = [each.name for each in parameters if each.kind is Kind.INT_ARRAY]
    return library_operator(
        name,
        formula,
        summary,
        (_SELF, *parameters, *number, _OUT),
        (
            present("self", *arrays, *(each.name for each in number), "out"),
            dtype_in(where_supported(_MOVED), "self"),
            same_dtype("out", "self"),
            limited_dims("self"),
            *checks,
            shape_is("the result", shape, "out"),
        ),
        function,
        header=header or name,
        dtypes=_MOVED,
        attributes=tuple(each.name for each in parameters),
        empty=() if number else ("self",),
    )


def _dimensions(name: str) -> Check:
    def complain(call: Call) -> str | None:
        rank = max(len(call["self"].shape), 1)
        wrong = next((dim for dim in call[name] if not -rank <= dim < rank), None)
        return None if wrong is None else f"{name}: expected dimensions from {-rank} to {rank - 1}, got {wrong}"

    return rule(f"dimensions of self: {name}", complain)


def _every_dimension(call: Call) -> str | None:
    dims, rank = call["dims"], len(call["self"].shape)
    if sorted(dim % max(rank, 1) for dim in dims) == [*range(rank)]:
        return None
    return f"dims: expected each of the {rank} dimensions of self once, got {list(dims)}"


def _positive_step(call: Call) -> str | None:
    return None if call["step"] > 0 else f"step: expected at least 1, got {call['step']}"


def _slice(self: Any, dim: int, start: int, end: int, step: int) -> Any:
    values = np.atleast_1d(self)
    return values[(slice(None),) * (dim % values.ndim) + (slice(start, end, step),)]


def _slice_shape(call: Call) -> Shape:
    shape = call["self"].shape or (1,)
    along = call["dim"] % len(shape)
    taken = len(range(*slice(call["start"], call["end"], call["step"]).indices(shape[along])))
    return (*shape[:along], taken, *shape[along + 1 :])


def _shift_for_each(call: Call) -> str | None:
    shifts, dims = len(call["shifts"]), len(call["dims"])
    if shifts == (dims or 1):
        return None
    return f"shifts: expected {dims or 1} (one for each of dims, one for none), got {shifts}"


def _as_many(call: Call) -> str | None:
    rank, got = len(call["self"].shape), call["repeats"]
    if len(got) >= rank and all(n >= 0 for n in got):
        return None
    return f"repeats: expected at least {rank} numbers of at least 0 (the dimensions of self), got {extents(got)}"


def _tiled(call: Call) -> Shape:
    shape, repeats = call["self"].shape, call["repeats"]
    whole = (*(1,) * (len(repeats) - len(shape)), *shape)
    return tuple(n * times for n, times in zip(whole, repeats, strict=True))


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
    """Return the index of what stands at each place after repetition."""
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
    """Copies of each element or slice, as many as a tensor says."""
    return library_operator(
        name,
        f"out = repeats[i] copies of the i-th element of self{' along dim' if along else ''}, beside one another",
        f"Copy each element {'along a dimension ' if along else ''}as often as a tensor says.",
        (
            _SELF,
            tensor_in("repeats", "how often, one number or one for each; INT32 or INT64"),
            *along,
            _OUTPUT_SIZE,
            _OUT,
        ),
        (
            present("self", "repeats", "out"),
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
    """Return the padding before and after each dimension; ``pad`` has the last dimension first."""
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


def _mirror(kind: str, reflects: bool, rank: int) -> tuple[Operator, Operator]:
    """Padding of the last dimensions by what is there, where negative margins cut; and its gradient."""
    dtypes = (*REAL_FLOATING, *INTEGERS, *COMPLEX, D.BOOL)
    padding = _numbers("padding", "what stands before and after each dimension, the last first")

    def valid(call: Call) -> str | None:
        shape, got = call["self"].shape, call["padding"]
        if len(shape) not in (rank + 1, rank + 2):
            return f"self: expected {rank + 1} or {rank + 2} dimensions, got {len(shape)}: {extents(shape)}"
        if len(got) != 2 * rank:
            return f"padding: expected {2 * rank} numbers, got {len(got)}"
        for n, pair in zip(shape[-rank:], _margins(got, rank), strict=True):
            if reflects and max(pair) >= n:
                return f"padding: expected numbers of at most {n - 1} in a dimension of {n}, got {list(pair)}"
        return None

    def pad(self: Any, numbers: Sequence[int]) -> Any:
        for dim, (before, after) in enumerate(_margins(numbers, self.ndim)):
            last = self.shape[dim] - 1
            places = np.arange(-before, last + 1 + after)
            self = self.take(last - np.abs(last - np.abs(places)) if reflects else np.clip(places, 0, last), dim)
        return self

    def spread(gradient: Any, self: Any, numbers: Sequence[int]) -> Any:
        places = pad(np.arange(self.size).reshape(self.shape), numbers).reshape(-1)
        total = np.zeros(self.size, np.result_type(gradient, np.float64))
        add_at(total, places, gradient.reshape(-1))
        return total.reshape(self.shape)

    name, words = f"{kind}_pad{rank}d", f"padded by {'its mirror image' if reflects else 'its border'}"
    fits = rule("fits self: padding", valid)

    def shape(call: Call) -> Shape:
        return _padded(call["self"].shape, call["padding"])

    forward = library_operator(
        name,
        f"out = self, {words}",
        f"Pad the last {f'{rank} dimensions' if rank > 1 else 'dimension'} by {words.removeprefix('padded by ')}.",
        (_SELF, padding, _OUT),
        (
            present("self", "padding", "out"),
            dtype_in(where_supported(dtypes), "self"),
            same_dtype("out", "self"),
            fits,
            shape_is("the result", shape, "out"),
        ),
        pad,
        header=name,
        dtypes=dtypes,
        attributes=("padding",),
        empty=("self",),
    )
    backward = library_operator(
        f"{name}_backward",
        "gradInput = sum of gradOutput where each element of self went",
        f"Gradient of {name}.",
        (
            tensor_in("gradOutput", "the gradient arriving at the output"),
            _SELF,
            padding,
            tensor_out("gradInput", "the gradient of self"),
        ),
        (
            present("gradOutput", "self", "padding", "gradInput"),
            dtype_in(where_supported(_REAL_FIELDS), "gradOutput"),
            same_dtype("self", "gradOutput"),
            same_dtype("gradInput", "gradOutput"),
            fits,
            shape_is("the result", shape, "gradOutput"),
            same_shape("gradInput", "self"),
        ),
        spread,
        header="pad2d_backward" if rank == 2 else f"{name}_backward",
        dtypes=_REAL_FIELDS,
        attributes=("padding",),
    )
    return forward, backward


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
        "out = self, its dimensions in the order of dims",
        "Put the dimensions into another order.",
        (_numbers("dims", "the dimensions of self, each once"),),
        (_dimensions("dims"), rule("each dimension once: dims", _every_dimension)),
        lambda call: [call["self"].shape[dim] for dim in call["dims"]],
        lambda self, dims: self.transpose(dims),
    ),
    _moved(
        "slice",
        "out = self[start : end : step] along dim",
        "Take a slice along a dimension.",
        (
            DIM,
            Parameter("start", "start", Kind.INT64, "the first index; negative ones count from the end"),
            Parameter("end", "end", Kind.INT64, "the index behind the last"),
            Parameter("step", "step", Kind.INT64, "from one index to the next"),
        ),
        (axis("dim", "self"), rule("positive: step", _positive_step)),
        _slice_shape,
        _slice,
    ),
    _moved(
        "flip",
        "out = self, backwards along dims",
        "Reverse some dimensions.",
        (_numbers("dims", "the dimensions"),),
        (valid_dims("dims"),),
        lambda call: call["self"].shape,
        lambda self, dims: np.flip(self, tuple(dims)) if self.ndim else self,
    ),
    _moved(
        "roll",
        "out[i + shifts] = self[i], around the end",
        "Shift elements along some dimensions, those that leave an end to the other.",
        (_numbers("shifts", "how far"), _numbers("dims", "the dimensions; none: all as one")),
        (_dimensions("dims"), rule("one for each of dims: shifts", _shift_for_each)),
        lambda call: call["self"].shape,
        lambda self, shifts, dims: np.roll(self, tuple(shifts), tuple(dims)) if dims else np.roll(self, shifts[0]),
    ),
    _moved(
        "repeat",
        "out = repeats copies of self along each dimension",
        "Copy a tensor several times along each dimension.",
        (_numbers("repeats", "how often, for each dimension; more than self has: new ones first"),),
        (rule("one for each dimension: repeats", _as_many),),
        _tiled,
        lambda self, repeats: np.tile(self, tuple(repeats)),
    ),
    _moved(
        "repeat_interleave_int_with_dim",
        "out = repeats copies of each element of self along dim, beside one another",
        "Copy each element several times along a dimension.",
        (_REPEATS, DIM, _OUTPUT_SIZE),
        (axis("dim", "self"),),
        _stretched,
        lambda self, repeats, dim, size: np.repeat(np.atleast_1d(self), repeats, dim),
        header="repeat_interleave",
    ),
    _moved(
        "repeat_interleave_int",
        "out = repeats copies of each element of self, beside one another",
        "Copy each element several times, into one dimension.",
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
        "out = repeats[i] times i, beside one another",
        "Indices, each as often as a tensor says.",
        (tensor_in("repeats", "how often; INT32 or INT64"), _OUTPUT_SIZE, tensor_out("out", "indices; INT64")),
        (
            present("repeats", "out"),
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
        function=camel("repeat_interleave_grad"),
        summary="Gradient of repetitions along a dimension.",
        formula="out[i] = sum of yGrad where copies of the i-th slice along axis stand",
        parameters=(
            tensor_in("yGrad", "the gradient arriving at the copies"),
            tensor_in("repeats", "how often, one number or one for each; INT32 or INT64"),
            Parameter("axis", "axis", Kind.INT64, "the dimension"),
            tensor_out("out", "the gradient of what was repeated", const=True),
        ),
        support=support(_TRAINED, MODERN),
        checks=(
            present("yGrad", "repeats", "out"),
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
        "out = self, value around it",
        "Pad dimensions by a number; negative margins cut.",
        (_numbers("pad", "what stands before and after each dimension, the last first"),),
        (rule("pairs, no more than dimensions: pad", _even),),
        lambda call: _padded(call["self"].shape, call["pad"]),
        _constant,
        number=(scalar("value", "the number"),),
    ),
    library_operator(
        "channel_shuffle",
        "out[:, i * groups + g] = self[:, g * channels / groups + i]",
        "Channels of several groups, in turn from each.",
        (_SELF, Parameter("groups", "groups", Kind.INT64, "how many"), _OUT),
        (
            present("self", "out"),
            same_dtype("out", "self"),
            dtype_in(where_supported(NUMBERS), "self"),
            dims_between(3, 7, "self"),
            rule("groups of as many channels: groups", _even_groups),
            same_shape("out", "self"),
        ),
        _shuffled,
        header="channel_shuffle",
        attributes=("groups",),
    ),
    *(
        each
        for kind in ("reflection", "replication")
        for rank in (1, 2, 3)
        for each in _mirror(kind, kind == "reflection", rank)
    ),
)
