"""aclnnLSTM and aclnnGRU with their gradients: layers of cells along time, in one or both directions.

Gates are in PyTorch's order, and sums are accumulated in float64. Values saved for the gradient are ordered by time,
whatever the direction. After the end of a sequence its state stays and the output is 0; GRU has no such sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import dtype_in, extents, on, one_of, rule, value_is, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import LISTS, Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, declared, logistic, support, tensor_in, tensor_out
from aclnn.operators.library.lists import each_of, not_null, of_types

Arrays = tuple[Any, ...]
Shape = tuple[int, ...]
_TYPES = (D.FLOAT, D.FLOAT16)


class Cell(NamedTuple):
    """A recurrent cell: a step from the input's and the state's sums, and its gradient."""

    gates: int
    kept: tuple[str, ...]
    """Parameters of the forward function with each step's values for the gradient."""
    states: tuple[int, ...]
    """Indices of the state among ``kept``, the output first."""
    step: Callable[[Any, Any, Arrays, Any], Arrays]
    """Function of the input's and the state's sums, the previous state, and an update mask; returns the kept values."""
    back: Callable[[Arrays, Arrays, Arrays], tuple[Any, Any, Arrays]]
    """Function of the state's gradient, the kept values and the previous state; returns gradients of sums and state."""


def _lstm_step(mine: Any, theirs: Any, state: Arrays, lasts: Any) -> Arrays:
    i, f, g, o = np.split(mine + theirs, 4, -1)
    i, f, g, o = logistic(i), logistic(f), np.tanh(g), logistic(o)
    c = np.where(lasts, f * state[1] + i * g, state[1])
    return i, g, f, o, np.where(lasts, o * np.tanh(c), state[0]), c, np.tanh(c)


def _lstm_back(gradient: Arrays, kept: Arrays, state: Arrays) -> tuple[Any, Any, Arrays]:
    i, g, f, o, _, _, tanh = kept
    dh, dc = gradient
    dc = dc + dh * o * (1 - tanh * tanh)
    parts = (dc * g * i * (1 - i), dc * state[1] * f * (1 - f), dc * i * (1 - g * g), dh * tanh * o * (1 - o))
    sums = np.concatenate(parts, -1)
    return sums, sums, (0, dc * f)


def _gru_step(mine: Any, theirs: Any, state: Arrays, lasts: Any) -> Arrays:
    (mine_r, mine_z, mine_n), (r, z, hidden) = np.split(mine, 3, -1), np.split(theirs, 3, -1)
    r, z = logistic(mine_r + r), logistic(mine_z + z)
    n = np.tanh(mine_n + r * hidden)
    return r, z, n, hidden, np.where(lasts, (1 - z) * n + z * state[0], state[0])


def _gru_back(gradient: Arrays, kept: Arrays, state: Arrays) -> tuple[Any, Any, Arrays]:
    (dh,), (r, z, n, hidden, _) = gradient, kept
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * hidden * r * (1 - r), dh * (state[0] - n) * z * (1 - z)
    return np.concatenate((dr, dz, dn), -1), np.concatenate((dr, dz, dn * r), -1), (dh * z,)


LSTM = Cell(4, ("iOut", "jOut", "fOut", "oOut", "hOut", "cOut", "tanhCOut"), (4, 5), _lstm_step, _lstm_back)
GRU = Cell(3, ("rOut", "zOut", "nOut", "hnOut", "hOut"), (4,), _gru_step, _gru_back)


def _run(
    cell: Cell, x: Any, state: Arrays, weights: Sequence[Any], lasts: Any, reverse: bool = False
) -> tuple[Arrays, Arrays]:
    """Return the last state, and the kept values over time; ``lasts`` selects the states updated in each step."""
    mine = x @ weights[0].T + (weights[2] if len(weights) > 2 else 0)
    steps: list[Arrays] = []
    for at in reversed(range(len(x))) if reverse else range(len(x)):
        theirs = state[0] @ weights[1].T + (weights[3] if len(weights) > 2 else 0)
        kept = cell.step(mine[at], theirs, state, lasts[at])
        state = tuple(kept[place] for place in cell.states)
        steps.append(kept)
    return state, tuple(np.stack(each) for each in zip(*(steps[::-1] if reverse else steps), strict=True))


def _run_back(
    cell: Cell,
    x: Any,
    first: Arrays,
    weights: Sequence[Any],
    kept: Arrays,
    dy: Any,
    gradient: Arrays,
    lasts: Any,
    reverse: bool = False,
) -> tuple[Any, Arrays, list[Any]]:
    """Return the gradients of the input, of the initial state and of the weights."""
    count = len(x)
    mine, theirs, before = np.empty((3, count), object)
    dy = np.where(lasts, dy, 0)
    for at in range(count) if reverse else reversed(range(count)):
        last = at + 1 if reverse else at - 1
        state = tuple(kept[place][last] for place in cell.states) if 0 <= last < count else first
        gradient = (gradient[0] + dy[at], *gradient[1:])
        *sums, earlier = cell.back(gradient, tuple(each[at] for each in kept), state)
        mine[at], theirs[at] = (np.where(np.tile(lasts[at], cell.gates), each, 0) for each in sums)
        gradient = tuple(np.where(lasts[at], *each) for each in zip(earlier, gradient, strict=True))
        gradient = (gradient[0] + theirs[at] @ weights[1], *gradient[1:])
        before[at] = state[0]
    of_input, of_state, states = (np.stack(list(each)) for each in (mine, theirs, before))
    found = [np.tensordot(of_input, x, ((0, 1), (0, 1))), np.tensordot(of_state, states, ((0, 1), (0, 1)))]
    found += [of_input.sum((0, 1)), of_state.sum((0, 1))] if len(weights) > 2 else []
    return of_input @ weights[0], gradient, found


class Form(NamedTuple):
    """Extents of a call."""

    layers: int
    directions: int
    per_layer: int
    """Number of weights and biases per layer and direction."""
    time: int
    batch: int
    hidden: int
    first: bool
    """True if the batch dimension comes first."""
    packed: bool
    """True if sequences have lengths of their own; time and batch then share a dimension, except in the output."""

    def sequence(self, width: int) -> Shape:
        """Return the shape of ``width`` numbers per time step and sample."""
        if self.packed:
            return (self.time * self.batch, width)
        return (self.batch, self.time, width) if self.first else (self.time, self.batch, width)

    def output(self) -> Shape:
        """Return the shape of the output."""
        width = self.directions * self.hidden
        return (self.time, self.batch, width) if self.packed else self.sequence(width)


def _sizes_name(call: Call) -> str:
    """Return the name of the parameter with the number of active samples per step, longest sequences first."""
    return next(name for name in ("batchSizes", "batchSizesOptional") if name in call.arguments)


def _form(call: Call) -> Form:
    shape, first, sizes = call["input"].shape, bool(call["batchFirst"]), call[_sizes_name(call)]
    both = call["bidirectional"] if "bidirectional" in call.arguments else call["bidirection"]
    weights = call["params"]
    hidden = weights[1].shape[-1] if len(weights) > 1 and weights[1].shape else 0
    if sizes is None:
        time, batch = (shape[1], shape[0]) if first else (shape[0], shape[1])
    else:
        time, batch = sizes.shape[0], shape[0] // sizes.shape[0]
    packed, directions, per_layer = sizes is not None, 2 if both else 1, 4 if call["hasBias"] else 2
    return Form(call["numLayers"], directions, per_layer, time, batch, hidden, first and not packed, packed)


def _timed(x: Any, form: Form) -> Any:
    x = x.reshape(form.time, form.batch, x.shape[-1]) if form.packed else x
    return (x.swapaxes(0, 1) if form.first else x).astype(np.float64)


def _lasting(form: Form, sizes: Any = None) -> Any:
    """Return the samples whose states each step updates: the first ``sizes``, or all."""
    lasts = True if sizes is None else sizes[:, None, None] > np.arange(form.batch)[:, None]
    return np.broadcast_to(lasts, (form.time, form.batch, form.hidden))


def _forward(
    cell: Cell, form: Form, x: Any, states: Arrays, weights: Sequence[Any], lasts: Any
) -> tuple[Any, Arrays, list[Arrays]]:
    """Return the output, the last states, and the kept values of each layer and direction."""
    value, last, kept = _timed(x, form), [], []
    for layer in range(form.layers):
        found = []
        for at in range(layer * form.directions, (layer + 1) * form.directions):
            given = weights[at * form.per_layer : (at + 1) * form.per_layer]
            state, each = _run(cell, value, tuple(s[at] for s in states), given, lasts, at % form.directions == 1)
            last.append(state)
            kept.append(each)
            found.append(np.where(lasts, each[cell.states[0]], 0))
        value = np.concatenate(found, -1)
    return _timed(value, form), tuple(np.stack(each) for each in zip(*last, strict=True)), kept


def _backward(
    cell: Cell,
    form: Form,
    x: Any,
    states: Arrays,
    weights: Sequence[Any],
    dy: Any,
    gradients: Arrays,
    kept: list[Arrays],
    lasts: Any,
) -> tuple[Any, Arrays, list[Any]]:
    """Return the gradients of the input, of the initial states and of the weights."""
    value = _timed(dy, form)
    found: dict[int, list[Any]] = {}
    firsts: dict[int, Arrays] = {}
    for layer in reversed(range(form.layers)):
        begin = layer * form.directions
        below = [each[cell.states[0]] for each in kept[begin - form.directions : begin]] if layer else []
        given = np.concatenate(below, -1) if layer else _timed(x, form)
        total: Any = 0
        for at, part in enumerate(np.split(value, form.directions, -1), begin):
            weight = weights[at * form.per_layer : (at + 1) * form.per_layer]
            first, arriving = tuple(s[at] for s in states), tuple(each[at] for each in gradients)
            dx, firsts[at], found[at] = _run_back(
                cell, given, first, weight, kept[at], part, arriving, lasts, at % form.directions == 1
            )
            total = total + dx
        value = total
    flat = [each for at in sorted(found) for each in found[at]]
    starts = (firsts[at] for at in sorted(firsts))
    return _timed(value, form), tuple(np.stack(each) for each in zip(*starts, strict=True)), flat


def _wide(arrays: Sequence[Any]) -> list[Any]:
    return [each.astype(np.float64) for each in arrays]


def _lists(call: Call, names: Sequence[str]) -> list[str]:
    return [f"{name}[{at}]" for name in names for at in range(len(call[name] or ()))]


def _hidden_names(cell: Cell, call: Call) -> list[str]:
    if call["hx"] is None:
        return []
    return ["hx"] if cell is GRU else _lists(call, ("hx",))


def _forward_work(cell: Cell) -> Callable[[Call], Library | None]:
    last = ("hy", "cy")[: len(cell.states)]

    def work(call: Call) -> Library | None:
        if call["output"].size == 0:
            return None
        form, hidden, count = _form(call), _hidden_names(cell, call), len(call["params"])
        sizes = (_sizes_name(call),) if form.packed else ()
        lists = [name for name in cell.kept if call["train"] and call[name]]
        chosen = [cell.kept.index(name) for name in lists]
        zeros = np.zeros((form.layers * form.directions, form.batch, form.hidden))

        def compute(x: Any, *arrays: Any) -> Arrays:
            states = tuple(_wide(arrays[count : count + len(hidden)])) or (zeros,) * len(cell.states)
            lasts = _lasting(form, *arrays[count + len(hidden) :])
            y, ends, kept = _forward(cell, form, x, states, _wide(arrays[:count]), lasts)
            return (y, *ends, *(each[place] for place in chosen for each in kept))

        inputs = ("input", *_lists(call, ("params",)), *hidden, *sizes)
        return Library(compute, inputs, ("output", *last, *_lists(call, lists)))

    return work


def _backward_work(cell: Cell, kept_names: tuple[str, ...]) -> Callable[[Call], Library | None]:
    arriving = ("dh", "dc")[: len(cell.states)]
    firsts = ("dhPrevOut", "dcPrevOut")[: len(cell.states)]

    def work(call: Call) -> Library | None:
        if call["input"].size == 0:
            return None
        form, hidden, count = _form(call), _hidden_names(cell, call), len(call["params"])
        parts, cells = len(cell.states), form.layers * form.directions
        sizes = (_sizes_name(call),) if form.packed else ()
        # Without an incoming gradient there is nothing to propagate.
        present = tuple(name for name in ("dy", *arriving) if call[name] is not None)
        zeros = np.zeros((cells, form.batch, form.hidden))
        nothing = {"dy": np.zeros(form.sequence(form.directions * form.hidden))} | dict.fromkeys(arriving, zeros)

        def compute(x: Any, *arrays: Any) -> Arrays:
            lasts, arrays = _lasting(form, *arrays[: len(sizes)]), arrays[len(sizes) :]
            given, rest = _wide(arrays[:count]), _wide(arrays[count:])
            dy, *gradients = (nothing | dict(zip(present, rest, strict=False))).values()
            states, kept = tuple(rest[len(present) :][:parts]), rest[len(present) + parts :]
            by_cell = [tuple(kept[at::cells]) for at in range(cells)]
            dx, starts, weights = _backward(cell, form, x, states, given, dy, tuple(gradients), by_cell, lasts)
            return (dx.reshape(x.shape), *starts, *weights)

        inputs = ("input", *sizes, *_lists(call, ("params",)), *present, *hidden, *_lists(call, kept_names))
        return Library(compute, inputs, ("dxOut", *firsts, *_lists(call, ("dparamsOut",))))

    return work


def _shapes(cell: Cell, names: Sequence[str]) -> Callable[[Call], str | None]:
    """Return an error text for the first tensor whose shape does not match the layers; ``names`` are the kept lists."""

    def expected(call: Call) -> Iterator[tuple[str, Any, Shape]]:
        form = _form(call)
        cells, width = form.layers * form.directions, form.directions * form.hidden
        for at in range(cells):
            taken = call["input"].shape[-1] if at < form.directions else width
            weights = ((taken,), (form.hidden,), (), ())[: form.per_layer]
            for place, columns in enumerate(weights):
                for name in ("params", "dparamsOut"):
                    if name in call.arguments:
                        index = at * form.per_layer + place
                        yield f"{name}[{index}]", call[name][index], (cell.gates * form.hidden, *columns)
        state = (cells, form.batch, form.hidden)
        if call["hx"] is not None:
            for name, tensor in zip(
                _hidden_names(cell, call), [call["hx"]] if cell is GRU else call["hx"], strict=True
            ):
                yield name, tensor, state
        for name in ("hy", "cy", "dh", "dc", "dhPrevOut", "dcPrevOut"):
            if name in call.arguments and call[name] is not None:
                yield name, call[name], state
        sequences = {"output": form.output(), "dy": form.sequence(width), "dxOut": call["input"].shape}
        if form.packed and call.arguments.get("dy") is not None and len(call["dy"].shape) == 3:
            sequences["dy"] = form.output()  # the shape that torch_npu passes
        for name, shape in sequences.items():
            if name in call.arguments and call[name] is not None:
                yield name, call[name], shape
        for name in names if call.arguments.get("train", True) else ():
            for at, tensor in enumerate(call[name] or ()):
                yield f"{name}[{at}]", tensor, (form.time, form.batch, form.hidden)

    def violation(call: Call) -> str | None:
        for name, tensor, shape in expected(call):
            if tensor.shape != shape:
                return f"{name}: expected shape {extents(shape)} (of the layers), got {extents(tensor.shape)}"
        return None

    return violation


def _counts(cell: Cell, names: Sequence[str]) -> Callable[[Call], str | None]:
    def violation(call: Call) -> str | None:
        shape, sizes = call["input"].shape, call[_sizes_name(call)]
        wanted_dims = 3 if sizes is None else 2
        if len(shape) != wanted_dims:
            return f"input: expected {wanted_dims} dimensions, got {len(shape)}: {extents(shape)}"
        if sizes is not None and shape[0] % sizes.shape[0]:
            return f"input: expected a multiple of {sizes.shape[0]} rows (a row for each step), got {shape[0]}"
        form = _form(call)
        cells = form.layers * form.directions
        wanted = {"params": cells * form.per_layer, "dparamsOut": cells * form.per_layer}
        wanted |= dict.fromkeys(names, cells)
        for name, count in wanted.items():
            got = len(call[name] or ()) if name in call.arguments else count
            if got != count and not (got == 0 and name.endswith("Out") and name in cell.kept):
                return f"{name}: expected {count} tensors, got {got}"
        if cell is LSTM and call["hx"] is not None and len(call["hx"]) != 2:
            return f"hx: expected 2 tensors, got {len(call['hx'])}"
        return None

    return violation


def _unpacked(name: str) -> Callable[[Call], str | None]:
    def violation(call: Call) -> str | None:
        given = call[name]
        return None if given is None else f"{name}: expected null (sequences of one length), got {extents(given.shape)}"

    return violation


def _list(name: str, meaning: str, kind: Kind = Kind.INPUT_LIST, optional: bool = False) -> Parameter:
    return Parameter(name, name, kind, meaning, optional=optional)


def _numbers(both: str, trained: bool) -> tuple[Parameter, ...]:
    training = (
        (
            Parameter("dropout", "dropout", Kind.DOUBLE, "is not applied"),
            Parameter("train", "train", Kind.BOOL, "whether to keep values for the gradient"),
        )
        if trained
        else ()
    )
    return (
        Parameter("hasBias", "has_bias", Kind.BOOL, "whether params contain biases"),
        Parameter("numLayers", "num_layers", Kind.INT64, "the number of layers"),
        *training,
        Parameter(both, both, Kind.BOOL, "whether the layers are bidirectional"),
        Parameter("batchFirst", "batch_first", Kind.BOOL, "whether the batch dimension comes first instead of time"),
    )


_INPUT = tensor_in("input", "the input sequences")
_PARAMS = _list("params", "the input and state weights, then their biases, by layer and direction")
_DX = tensor_out("dxOut", "the gradient with respect to input")
_DPARAMS = _list("dparamsOut", "the gradients with respect to params", Kind.OUTPUT_LIST)


def _recurrent(
    name: str, function: str, cell: Cell, parameters: tuple[Parameter, ...], kept: tuple[str, ...], sizes: str
) -> Operator:
    backward = name.endswith("backward")
    tensors = [p.name for p in parameters if p.is_tensor and not p.optional]
    optional = [p.name for p in parameters if p.kind in (Kind.INPUT, Kind.OUTPUT) and p.optional and p.name != sizes]
    lists = [p.name for p in parameters if p.kind in LISTS]
    required = [p.name for p in parameters if p.kind in LISTS and not p.optional]
    words = "long short-term memory (LSTM)" if cell is LSTM else "gated recurrent units (GRU)"
    return Operator(
        name=name,
        function=function,
        summary=f"{'Gradients of l' if backward else 'L'}ayers of {words} along time.",
        formula="the gradients of input, states and params" if backward else "output = the states of the last layer",
        parameters=parameters,
        support=support(_TYPES, MODERN),
        checks=(
            present(*tensors, *required),
            each_of("no null among them", tuple(lists), not_null, ACLNN_ERR_PARAM_NULLPTR),
            dtype_in(_TYPES, *tensors, *optional),
            each_of("data type of each", tuple(lists), of_types(_TYPES)),
            *_of_sizes(cell, sizes, backward),
            rule("lists of the layers: input, params", _counts(cell, kept)),
            rule("shapes of the layers: params", _shapes(cell, kept)),
        ),
        work=_backward_work(cell, kept) if backward else _forward_work(cell),
    )


def _of_sizes(cell: Cell, name: str, backward: bool) -> tuple[Check, ...]:
    """Check sequences of several lengths; Ascend 950 has no gradients for them."""
    unpacked = rule(f"null: {name}", _unpacked(name))
    if cell is GRU:
        return (unpacked,)
    steps = (
        dtype_in((D.INT64,), name),
        value_is("1 dimension that is not empty", lambda got: len(got) == 1 and got[0], name),
    )
    return (*steps, *on(CLASS_950, unpacked)) if backward else steps


_HX_LIST = Parameter("hx", "hx", Kind.INPUT_LIST, "the initial states h and c; null: zeros", optional=True)
_HX = Parameter("hx", "hx", Kind.INPUT, "the initial states; null: zeros", optional=True)


def _kept_parameters(cell: Cell) -> tuple[Parameter, ...]:
    return tuple(_list(name, "kept for the gradient", Kind.OUTPUT_LIST, optional=True) for name in cell.kept)


_SIZES = Parameter("batchSizes", "batch_sizes", Kind.INPUT, "must be null", optional=True)
_LSTM_SIZES = "the number of samples of each step, for an input of (steps * samples) rows; null: all"
_HY = tensor_out("hy", "the last states")
_DHY = Parameter("dh", "dh", Kind.INPUT, "the gradient with respect to the last states; null: zeros", optional=True)
_DY = Parameter("dy", "dy", Kind.INPUT, "the gradient with respect to output; null: zeros", optional=True)
_DHX = tensor_out("dhPrevOut", "the gradient with respect to the initial states")
_LSTM_KEPT, _GRU_KEPT = ("i", "g", "f", "o", "h", "c", "tanhc"), ("r", "z", "n", "hn", "h")

OPERATORS = (
    _recurrent(
        "lstm",
        "aclnnLSTM",
        LSTM,
        (
            *(_INPUT, _PARAMS, _HX_LIST, replace(_SIZES, meaning=_LSTM_SIZES), *_numbers("bidirectional", True)),
            *(tensor_out("output", "the states h of the last layer"), _HY, tensor_out("cy", "the last states c")),
            *_kept_parameters(LSTM),
        ),
        LSTM.kept,
        "batchSizes",
    ),
    _recurrent(
        "lstm_backward",
        "aclnnLstmBackward",
        LSTM,
        (
            *(_INPUT, _list("hx", "the initial states h and c"), _PARAMS, _DY, _DHY),
            Parameter(
                "dc", "dc", Kind.INPUT, "the gradient with respect to the last states c; null: zeros", optional=True
            ),
            *(_list(name, "the values that the forward function kept") for name in _LSTM_KEPT),
            Parameter("batchSizesOptional", "batch_sizes", Kind.INPUT, _LSTM_SIZES, optional=True),
            *_numbers("bidirectional", True),
            Parameter("outputMask", "output_mask", Kind.BOOL_ARRAY, "ignored", optional=True),
            *(_DX, _DHX, tensor_out("dcPrevOut", "the gradient with respect to the initial states c"), _DPARAMS),
        ),
        _LSTM_KEPT,
        "batchSizesOptional",
    ),
    _recurrent(
        "gru",
        "aclnnGRU",
        GRU,
        (
            *(_INPUT, _PARAMS, _HX, _SIZES, *_numbers("bidirection", True)),
            *(tensor_out("output", "the states of the last layer"), _HY),
            *_kept_parameters(GRU),
        ),
        GRU.kept,
        "batchSizes",
    ),
    _recurrent(
        "gru_backward",
        "aclnnGRUBackward",
        GRU,
        (
            *(_INPUT, _PARAMS, tensor_in("hx", "the initial states"), _DY, _DHY),
            *(_list(name, "the values that the forward function kept") for name in _GRU_KEPT),
            *(_SIZES, *_numbers("bidirection", False), _DX, _DHX, _DPARAMS),
        ),
        _GRU_KEPT,
        "batchSizes",
    ),
)


_ORDERS = ("ifjo", "ijfo", "ifco", "icfo")
"""Orders of an LSTM's gates, PyTorch's first. The candidate is j or c."""

_DIRECTIONS = ("UNIDIRECTIONAL", "REDIRECTIONAL")


def _from_columns(matrices: Sequence[Any], order: str) -> list[Any]:
    """Convert weights with a column per gate element, in another gate order, to PyTorch's order and rows."""
    places = [order.replace("c", "j").index(gate) for gate in _ORDERS[0]]
    return [np.concatenate([np.split(each, 4, -1)[at] for at in places], -1).T for each in matrices]


def _to_columns(weights: Sequence[Any], order: str) -> list[Any]:
    """Undo ``_from_columns``."""
    places = [_ORDERS[0].index(gate) for gate in order.replace("c", "j")]
    return [np.concatenate([np.split(each.T, 4, -1)[at] for at in places], -1) for each in weights]


def _dynamic(
    x: Any, of_input: Any, of_state: Any, b: Any, h: Any, c: Any, lasts: Any, order: str, reverse: bool
) -> Arrays:
    b = np.zeros(of_input.shape[-1]) if b is None else b
    x, of_input, of_state, b, h, c = _wide((x, of_input, of_state, b, h, c))
    weights = [*_from_columns((of_input, of_state, b), order), np.zeros_like(b)]
    state = h.reshape(h.shape[-2:]), c.reshape(c.shape[-2:])
    _, (i, g, f, o, h, c, tanh) = _run(LSTM, x, state, weights, lasts, reverse)
    return np.where(lasts, h, 0), h, c, i, g, f, o, tanh


def _dynamic_back(x: Any, of_input: Any, of_state: Any, *given: Any) -> Arrays:
    """Return the gradients of both matrices, of the bias, the input and the initial states."""
    *tensors, lasts, order, reverse = given
    x, of_input, of_state, _, h0, c0, h, c, dy, dh, dc, i, g, f, o, tanh = _wide((x, of_input, of_state, *tensors))
    state = h.shape[1:]
    weights = [*_from_columns((of_input, of_state), order), *np.zeros((2, 4 * state[-1]))]
    first, arriving = ((each.reshape(state), other.reshape(state)) for each, other in ((h0, c0), (dh, dc)))
    kept = (i, g, f, o, h, c, tanh)
    dx, before, found = _run_back(LSTM, x, first, weights, kept, dy, arriving, lasts, reverse)
    return (*_to_columns(found[:3], order), dx, *(each.reshape(h0.shape) for each in before))


def _parts(x: Any, w: Any) -> tuple[Any, Any]:
    """Split the stacked weight into the matrices of the input and of the state."""
    return w[: x.shape[-1]], w[x.shape[-1] :]


def _dynamic_of_one(x: Any, w: Any, *given: Any) -> Arrays:
    return _dynamic(x, *_parts(x, w), *given)


def _dynamic_back_of_one(x: Any, w: Any, b: Any, *given: Any) -> Arrays:
    of_input, of_state, *others = _dynamic_back(x, *_parts(x, w), *given)
    return (np.concatenate((of_input, of_state)), *others)


_MATRICES = "weight_input weight_hidden"
_STATES = "y output_h output_c i j f o tanhc"
_KEPT_BY_TYPE = "y init_h init_c h c dy dh dc i j f o tanhct"


def _dynamic_shapes(call: Call) -> dict[str, Shape]:
    """Return the shape of every tensor, including those of the other forms."""
    (time, batch, taken), hidden = call["x"].shape, call["init_h"].shape[-1]
    state = (*call["init_h"].shape[:-2], batch, hidden)
    of_input, of_state = (taken, 4 * hidden), (hidden, 4 * hidden)
    found = {"w": (taken + hidden, 4 * hidden), "b": (4 * hidden,), "x": call["x"].shape}
    found |= {f"d{name}": shape for name, shape in found.items()}
    found |= {"weight_input": of_input, "weight_hidden": of_state, "dw_x": of_input, "dw_h": of_state}
    found |= dict.fromkeys(("init_h", "init_c", "dh_prev", "dc_prev"), state)
    return found | dict.fromkeys((*_STATES.split(), "tanhct", "h", "c", "dy", "seq_length"), (time, batch, hidden))


def _dynamic_violation(call: Call) -> str | None:
    if len(call["x"].shape) != 3 or len(call["init_h"].shape) not in (2, 3):
        got = f"{extents(call['x'].shape)} and {extents(call['init_h'].shape)}"
        return f"x: expected 3 dimensions, and 2 or 3 of init_h, got {got}"
    for name, shape in _dynamic_shapes(call).items():
        if name in call.arguments and call[name] is not None and call[name].shape != shape:
            return f"{name}: expected shape {extents(shape)} (of the layer), got {extents(call[name].shape)}"
    return None


def _dynamic_operator(
    name: str, inputs: str, outputs: str, function: Callable[..., Arrays], optional: str = ""
) -> Operator:
    taken, written = inputs.split(), outputs.split()

    def work(call: Call) -> Library | None:
        if all(call[each].size == 0 for each in written):
            return None
        masks = ("seq_length",) if call["seq_length"] is not None else ()
        given = [each for each in taken if call[each] is not None]
        form = call["gate_order"], call["direction"] == _DIRECTIONS[1]

        shape = (*call["x"].shape[:2], call["init_h"].shape[-1])

        def compute(*arrays: Any) -> Arrays:
            lasts = np.broadcast_to(arrays[-1] != 0 if masks else True, shape)
            found = dict(zip(given, arrays, strict=False))
            return function(*map(found.get, taken), lasts, *form)

        return Library(compute, (*given, *masks), tuple(written))

    return replace(
        declared(
            name,
            "y = the states of an LSTM along time",
            "An LSTM of one layer by its type, or its gradients.",
            (
                *(replace(tensor_in(each, "an input"), optional=each == optional) for each in taken),
                Parameter("seq_length", "seq_length", Kind.INPUT, "1 where a step changes the state", optional=True),
                Parameter("gate_order", "gate_order", Kind.STRING, "the order of the gates in w and b"),
                Parameter("direction", "direction", Kind.STRING, "along time, or against it"),
                *(tensor_out(each, "a result") for each in written),
            ),
            (
                present(*(each for each in taken if each != optional), *written),
                dtype_in(where_supported((*_TYPES, D.BF16)), *taken, "seq_length", *written),
                one_of("gate_order", *_ORDERS),
                one_of("direction", *_DIRECTIONS),
                rule("shapes of the layer", _dynamic_violation),
            ),
            work,
            (*_TYPES, D.BF16),
        ),
        function=name,
    )


DYNAMIC_RNN = _dynamic_operator("DynamicRNN", "x w b init_h init_c", _STATES, _dynamic_of_one)
DYNAMIC_RNN_V2 = _dynamic_operator("DynamicRNNV2", f"x {_MATRICES} b init_h init_c", _STATES, _dynamic, optional="b")
DYNAMIC_RNN_GRAD = _dynamic_operator(
    "DynamicRNNGrad", f"x w b {_KEPT_BY_TYPE}", "dw db dx dh_prev dc_prev", _dynamic_back_of_one
)
DYNAMIC_RNN_V2_GRAD = _dynamic_operator(
    "DynamicRNNV2Grad", f"x {_MATRICES} {_KEPT_BY_TYPE}", "dw_x dw_h db dx dh_prev dc_prev", _dynamic_back
)
