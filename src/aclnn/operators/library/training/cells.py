"""A step of an LSTM or GRU with its gradients, given the matrix products.

aclnnThnnFusedLstmCell and aclnnThnnFusedGruCell compute PyTorch's functions of those names, with its order of gates;
the data saved for the gradient are rows of one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    format_is,
    no_zero_dims,
    restricted,
    rule,
    same_dtype,
    unless_empty,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, declared, on_950, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given
from aclnn.operators.library.training.recurrent import GRU, LSTM

_SINGLE, _ALL = (D.FLOAT, D.FLOAT16), (D.FLOAT, D.FLOAT16, D.BF16)
_BIASES = ("inputBiasOptional", "hiddenBiasOptional")
_GRADIENTS_OF_BIASES = ("gradInputBiasOutOptional", "gradHiddenBiasOutOptional")


def _wide(arrays: Sequence[Any]) -> list[Any]:
    return [array.astype(np.float64) for array in arrays]


def _rows(state: str, widths: Mapping[str, int]) -> Check:
    """Require shapes of rows with multiples of ``state``'s width, as many as ``state`` has; biases are one row."""

    def violation(call: Call, name: str) -> str | None:
        batch, width = call[state].shape
        row, got = widths[name] * width, call[name].shape
        expected: Shape = (row,) if "Bias" in name else (batch, row)
        return None if got == expected else f"expected shape {extents(expected)} (by {state}), got {extents(got)}"

    return each(f"rows by {state}", tuple(widths), violation)


def _both(call: Call) -> str | None:
    missing = [name for name in _BIASES if call[name] is None]
    return f"{missing[0]}: expected an object (both biases or none), got null" if len(missing) == 1 else None


def _products(call: Call, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """Return both products plus their biases, if given."""
    mine, theirs, _, *biases = _wide(arrays)
    found = dict(zip(given(call, *_BIASES), biases, strict=True))
    return mine + found.get(_BIASES[0], 0.0), theirs + found.get(_BIASES[1], 0.0)


def _step(call: Call, state: str, outputs: tuple[str, ...], function: Callable[..., tuple[Any, ...]]) -> Library | None:
    if call["inputGates"].size == 0:
        return None

    def compute(*arrays: Any) -> tuple[Any, ...]:
        return function(*_products(call, arrays), arrays[2].astype(np.float64))

    return Library(compute, ("inputGates", "hiddenGates", state, *given(call, *_BIASES)), outputs)


def _lstm(mine: Any, theirs: Any, cx: Any) -> tuple[Any, ...]:
    i, g, f, o, h, c, _ = LSTM.step(mine, theirs, (0.0, cx), True)
    return h, c, np.concatenate((i, f, g, o), 1)


def _gru(mine: Any, theirs: Any, hx: Any) -> tuple[Any, ...]:
    r, z, n, hidden, h = GRU.step(mine, theirs, (hx,), True)
    return h, np.concatenate((r, z, n, hx, hidden), 1)


def _lstm_back_work(call: Call) -> Library:
    biased = call["hasBias"]

    def compute(*arrays: Any) -> tuple[Any, ...]:
        dh, dc, cx, cy, storage = _wide(arrays)
        i, f, g, o = np.split(storage, 4, 1)
        gates, _, (_, before) = LSTM.back((dh, dc), (i, g, f, o, None, None, np.tanh(cy)), (None, cx))
        return (gates, before, *([gates.sum(0)] if biased else []))

    outputs = ("gradGatesOut", "gradCxOut", *(["gradBiasOut"] if biased else []))
    return Library(compute, ("gradHyOptional", "gradCOptional", "cx", "cy", "storage"), outputs)


def _gru_back_work(call: Call) -> Library | None:
    outputs = ("gradInputGatesOut", "gradHiddenGatesOut", "gradHxOut")
    biases = _GRADIENTS_OF_BIASES if call["hasBias"] else ()
    if all(call[name].size == 0 for name in (*outputs, *biases)):
        return None

    def compute(*arrays: Any) -> tuple[Any, ...]:
        dh, storage = _wide(arrays)
        r, z, n, hx, hidden = np.split(storage, 5, 1)
        mine, theirs, (before,) = GRU.back((dh,), (r, z, n, hidden, None), (hx,))
        return (mine, theirs, before, *([mine.sum(0), theirs.sum(0)] if biases else []))

    return Library(compute, ("gradHy", "storage"), (*outputs, *biases))


def _with_bias(*checks: Check) -> tuple[Check, ...]:
    return restricted("hasBias", lambda call: bool(call["hasBias"]), *checks)


def _alike(first: str, *names: str) -> tuple[Check, ...]:
    return tuple(same_dtype(name, first) for name in names)


_STEP = (
    tensor_in("inputGates", "the products of the input, gate by gate in each row"),
    tensor_in("hiddenGates", "the products of the hidden state"),
)
_ADDED = (optional_in(_BIASES[0], "the bias of inputGates"), optional_in(_BIASES[1], "the bias of hiddenGates"))
_HAS_BIAS = attribute("hasBias", Kind.BOOL, "whether to compute the gradient of the bias")
_LSTM_OUTPUTS = ("hyOut", "cyOut", "storageOut")
_LSTM_ROWS = ("inputGates", "hiddenGates", *_BIASES, *_LSTM_OUTPUTS)
_GRU_ROWS = ("inputGates", "hiddenGates", *_BIASES, "hyOut", "storageOut")
_LSTM_GIVEN = ("gradHyOptional", "gradCOptional", "cx", "cy", "storage")
_LSTM_FOUND = ("gradGatesOut", "gradCxOut", "gradBiasOut")
_GRU_FOUND = ("gradInputGatesOut", "gradHiddenGatesOut", "gradHxOut")


def _pointer(name: str, meaning: str, optional: bool = False) -> Parameter:
    return tensor_out(name, meaning, const=True, optional=optional)


OPERATORS: tuple[Operator, ...] = (
    replace(
        declared(
            "thnn_fused_lstm_cell",
            "cyOut = f * cx + i * g, hyOut = o * tanh(cyOut)",
            "LSTM cell, given the products with its weights.",
            (
                *_STEP,
                tensor_in("cx", "the previous cell state"),
                *_ADDED,
                tensor_out("hyOut", "the hidden state"),
                tensor_out("cyOut", "the cell state"),
                tensor_out("storageOut", "the gates i, f, g and o, for the gradient"),
            ),
            (
                present("inputGates", "hiddenGates", "cx"),
                rule(f"both or none: {', '.join(_BIASES)}", _both, ACLNN_ERR_PARAM_NULLPTR),
                present(*_LSTM_OUTPUTS),
                *unless_empty(
                    ("inputGates",),
                    dims_between(2, 2, "inputGates", "hiddenGates", "cx", *_LSTM_OUTPUTS),
                    _rows("cx", {name: 1 if name in ("hyOut", "cyOut") else 4 for name in _LSTM_ROWS}),
                    dtype_in(on_950({D.BF16}, _SINGLE), "inputGates"),
                    *_alike("inputGates", "cx", *_LSTM_ROWS[1:]),
                ),
            ),
            lambda call: _step(call, "cx", _LSTM_OUTPUTS, _lstm),
        ),
        support={**support(_SINGLE, A2_CLASS), **support(_ALL, CLASS_950)},
    ),
    declared(
        "thnn_fused_lstm_cell_backward",
        "gradients of the gates before activation, of cx and of the bias",
        "Gradients of an LSTM cell.",
        (
            tensor_in("gradHyOptional", "the gradient with respect to the hidden state"),
            tensor_in("gradCOptional", "the gradient with respect to the cell state"),
            tensor_in("cx", "the previous cell state"),
            tensor_in("cy", "the cell state"),
            tensor_in("storage", "the gates i, f, g and o"),
            _HAS_BIAS,
            tensor_out("gradGatesOut", "the gradient with respect to the products"),
            tensor_out("gradCxOut", "the gradient with respect to cx"),
            tensor_out("gradBiasOut", "the gradient with respect to the bias, with hasBias"),
        ),
        (
            dtype_in(_SINGLE, "gradHyOptional"),
            *_alike("gradHyOptional", *_LSTM_GIVEN[1:], *_LSTM_FOUND),
            dims_between(2, 2, "gradHyOptional"),
            no_zero_dims("gradHyOptional"),
            _rows(
                "gradHyOptional",
                {"gradCOptional": 1, "cx": 1, "cy": 1, "storage": 4, "gradGatesOut": 4, "gradCxOut": 1},
            ),
            *_with_bias(_rows("gradHyOptional", {"gradBiasOut": 4})),
            format_is(Format.FORMAT_ND, *_LSTM_GIVEN, *_LSTM_FOUND),
        ),
        _lstm_back_work,
        _SINGLE,
        A2_CLASS,
    ),
    declared(
        "thnn_fused_gru_cell",
        "hyOut = n + z * (hx - n), n = tanh(in + r * hn)",
        "GRU cell, given the products with its weights.",
        (
            *_STEP,
            tensor_in("hx", "the previous hidden state"),
            *_ADDED,
            tensor_out("hyOut", "the hidden state"),
            tensor_out("storageOut", "r, z, n, hx and hn, for the gradient"),
        ),
        (
            dtype_in(_ALL, "inputGates"),
            *_alike("inputGates", "hx", *_GRU_ROWS[1:]),
            dims_between(2, 2, "inputGates", "hiddenGates", "hx", "hyOut", "storageOut"),
            _rows("hx", {name: {"hyOut": 1, "storageOut": 5}.get(name, 3) for name in _GRU_ROWS}),
        ),
        lambda call: _step(call, "hx", ("hyOut", "storageOut"), _gru),
        _ALL,
        CLASS_950,
    ),
    declared(
        "thnn_fused_gru_cell_backward",
        "gradients of both products, of hx and of both biases",
        "Gradients of a GRU cell.",
        (
            tensor_in("gradHy", "the gradient with respect to the hidden state"),
            tensor_in("storage", "r, z, n, hx and hn"),
            _HAS_BIAS,
            _pointer("gradInputGatesOut", "the gradient with respect to inputGates"),
            _pointer("gradHiddenGatesOut", "the gradient with respect to hiddenGates"),
            _pointer("gradHxOut", "the gradient with respect to hx"),
            _pointer(
                _GRADIENTS_OF_BIASES[0], "the gradient with respect to the first bias, with hasBias", optional=True
            ),
            _pointer(
                _GRADIENTS_OF_BIASES[1], "the gradient with respect to the second bias, with hasBias", optional=True
            ),
        ),
        (
            present("gradHy", "storage", *_GRU_FOUND),
            *_with_bias(present(*_GRADIENTS_OF_BIASES)),
            dtype_in(_ALL, "gradHy"),
            *_alike("gradHy", "storage", *_GRU_FOUND),
            *_with_bias(*_alike("gradHy", *_GRADIENTS_OF_BIASES)),
            dims_between(2, 2, "gradHy", "storage"),
            _rows("gradHy", {"storage": 5, "gradInputGatesOut": 3, "gradHiddenGatesOut": 3, "gradHxOut": 1}),
            *_with_bias(_rows("gradHy", dict.fromkeys(_GRADIENTS_OF_BIASES, 3))),
        ),
        _gru_back_work,
        _ALL,
        CLASS_950,
    ),
)
