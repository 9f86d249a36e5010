"""A step of an LSTM or of gated recurrent units, of products that are already taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import cells
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    product_of,
    torch,
    wide,
)

LSTM, LSTM_BACKWARD, GRU, GRU_BACKWARD = (
    f"thnn_fused_{kind}" for kind in ("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward")
)
BATCH, WIDTH = 2, 3
AT_950 = Product.ASCEND_950


def _call(d: D, widths: Mapping[str, int]) -> Arguments:
    """Rows of so many states; vectors for biases."""
    return {
        name: T(d, (width * WIDTH,) if "Bias" in name else (BATCH, width * WIDTH)) for name, width in widths.items()
    }


LSTM_ROWS = {"inputGates": 4, "hiddenGates": 4, "cx": 1, "inputBiasOptional": 4, "hiddenBiasOptional": 4}
LSTM_ROWS |= {"hyOut": 1, "cyOut": 1, "storageOut": 4}
LSTM_BACK_ROWS = {"gradHyOptional": 1, "gradCOptional": 1, "cx": 1, "cy": 1, "storage": 4}
LSTM_GRADIENTS = ("gradHyOptional", "gradCOptional")
LSTM_BACK_ROWS |= {"gradGatesOut": 4, "gradCxOut": 1, "gradBiasOut": 4}
GRU_ROWS = {"inputGates": 3, "hiddenGates": 3, "hx": 1, "inputBiasOptional": 3, "hiddenBiasOptional": 3}
GRU_ROWS |= {"hyOut": 1, "storageOut": 5}
GRU_BACK_ROWS = {"gradHy": 1, "storage": 5, "gradInputGatesOut": 3, "gradHiddenGatesOut": 3, "gradHxOut": 1}
GRU_BACK_ROWS |= {"gradInputBiasOutOptional": 3, "gradHiddenBiasOutOptional": 3}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    LSTM: lambda d: _call(d, LSTM_ROWS),
    LSTM_BACKWARD: lambda d: _call(d, LSTM_BACK_ROWS) | {"hasBias": True},
    GRU: lambda d: _call(d, GRU_ROWS),
    GRU_BACKWARD: lambda d: _call(d, GRU_BACK_ROWS) | {"hasBias": True},
}


def _lstm_states(gates: Any, cx: Any) -> Any:
    """PyTorch's cell, whose weights leave the products as they are."""
    weight = torch.eye(4 * WIDTH).double()
    return torch.lstm_cell(gates, (torch.zeros_like(cx), cx), weight, weight[:, :WIDTH] * 0)


def _lstm_storage(gates: Any) -> Any:
    i, f, g, o = gates.chunk(4, 1)
    return torch.cat((i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()), 1)


def _lstm(a: Mapping[str, Any]) -> Any:
    gates = sum(wide(a[name]) for name in LSTM_ROWS if name.startswith(("input", "hidden")))
    return *_lstm_states(gates, wide(a["cx"])), _lstm_storage(gates)


def _gru_states(input_gates: Any, hidden_gates: Any, hx: Any) -> Any:
    (of_r, of_z, of_n), (r, z, hidden) = input_gates.chunk(3, 1), hidden_gates.chunk(3, 1)
    r, z = torch.sigmoid(of_r + r), torch.sigmoid(of_z + z)
    n = torch.tanh(of_n + r * hidden)
    return torch.lerp(n, hx, z), torch.cat((r, z, n, hx, hidden), 1)


def _gru(a: Mapping[str, Any]) -> Any:
    input_gates, hidden_gates = (
        wide(a[f"{side}Gates"]) + wide(a[f"{side}BiasOptional"]) for side in ("input", "hidden")
    )
    return _gru_states(input_gates, hidden_gates, wide(a["hx"]))


BREAKS: Mapping[str, Breaking] = {
    "both or none": lambda o, name: Break({name: None}, "both biases or none"),
    "2 dimensions": lambda o, name: Break(shape((6,), name), "2 dimensions", product=product_of(o)),
    **{
        f"rows by {state}": lambda o, name: Break(shape((2, 5), name), "shape [", product=product_of(o))
        for state in ("cx", "hx", "gradHyOptional", "gradHy")
    },
    **{
        f"same data type as {first}": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT", product=product_of(o))
        for first in ("inputGates", "gradHyOptional", "gradHy")
    },
    "no dimension of 0": lambda o, name: Break(shape((0, 3), name), "no dimension of 0"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
}


def _empty(rows: Mapping[str, int], batch: int) -> Mapping[str, Any]:
    shapes = {name: given.shape for name, given in _call(D.FLOAT, rows).items()}
    return {name: {"shape": (batch, *of[1:]) if of[1:] else of} for name, of in shapes.items()}


class TestCells(LibraryTests):
    subject = Subject(
        cells.OPERATORS,
        calls=CALLS,
        references={LSTM: _lstm, GRU: _gru},
        default=(D.FLOAT, D.FLOAT16),
        empty={
            LSTM: _empty(LSTM_ROWS, 0),
            LSTM_BACKWARD: _empty(LSTM_BACK_ROWS, BATCH),
            GRU: _empty(GRU_ROWS, 0),
            GRU_BACKWARD: _empty(GRU_BACK_ROWS, 0),
        },
        breaks=BREAKS,
        codes={"both or none": NULL},
        elsewhere=(LSTM_BACKWARD, GRU_BACKWARD),
    )


def _arrays(random: np.random.Generator, rows: Mapping[str, int]) -> dict[str, Array]:
    return {name: random.normal(size=each.shape).astype(np.float32) for name, each in _call(D.FLOAT, rows).items()}


def _leaf(array: Array) -> Any:
    return torch.tensor(array.astype(np.float64), requires_grad=True)


def _compare(found: Mapping[str, Array], wanted: Mapping[str, Any]) -> None:
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values.detach(), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("biased", [False, True])
def test_lstm_cell_gradients_match_pytorch(biased: bool) -> None:
    random = np.random.default_rng(6)
    call = _arrays(random, LSTM_BACK_ROWS)
    gates, cx = _leaf(random.normal(size=(BATCH, 4 * WIDTH))), _leaf(call["cx"])
    h, c = _lstm_states(gates, cx)
    torch.autograd.backward((h, c), [torch.tensor(call[name].astype(np.float64)) for name in LSTM_GRADIENTS])
    call |= {"cy": c.detach().float().numpy(), "storage": _lstm_storage(gates).detach().float().numpy()}
    before = call["gradBiasOut"].copy()
    found = computed(LSTM_BACKWARD, call | {"hasBias": biased})
    bias = gates.grad.sum(0) if biased else torch.tensor(before)
    _compare(found, {"gradGatesOut": gates.grad, "gradCxOut": cx.grad, "gradBiasOut": bias})


@pytest.mark.parametrize("biased", [False, True])
def test_gru_cell_gradients_match_pytorch(biased: bool) -> None:
    random = np.random.default_rng(7)
    call = _arrays(random, GRU_BACK_ROWS)
    input_gates, hidden_gates, hx = (_leaf(random.normal(size=(BATCH, width * WIDTH))) for width in (3, 3, 1))
    h, storage = _gru_states(input_gates, hidden_gates, hx)
    h.backward(torch.tensor(call["gradHy"].astype(np.float64)))
    call |= {"storage": storage.detach().float().numpy(), "hasBias": biased}
    nulls = {} if biased else dict.fromkeys(("gradInputBiasOutOptional", "gradHiddenBiasOutOptional"))
    found = computed(GRU_BACKWARD, call | nulls, AT_950)
    _compare(
        found, {"gradInputGatesOut": input_gates.grad, "gradHiddenGatesOut": hidden_gates.grad, "gradHxOut": hx.grad}
    )
    if biased:
        of_biases = {"gradInputBiasOutOptional": input_gates, "gradHiddenBiasOutOptional": hidden_gates}
        _compare(found, {name: each.grad.sum(0) for name, each in of_biases.items()})


def test_gru_cell_matches_pytorch() -> None:
    random = np.random.default_rng(8)
    x, hx, weight = (torch.tensor(random.normal(size=of)) for of in ((BATCH, 9), (BATCH, WIDTH), (9, WIDTH)))
    expected = torch.gru_cell(x, hx, torch.eye(9).double(), weight)
    np.testing.assert_allclose(_gru_states(x, hx @ weight.T, hx)[0], expected)


def test_gradients_of_biases_without_samples_are_zero() -> None:
    call = {
        name: array[:0] if array.ndim > 1 else array
        for name, array in _arrays(np.random.default_rng(9), GRU_BACK_ROWS).items()
    }
    found = computed(GRU_BACKWARD, call | {"hasBias": True}, AT_950)
    assert not found["gradInputBiasOutOptional"].any()


def test_gru_cell_accepts_one_bias() -> None:
    call = CALLS[GRU](D.FLOAT) | {"hiddenBiasOptional": None}
    prepare(BY_NAME[GRU], described(call), AT_950)
    with pytest.raises(AclnnError, match="with a kernel"):
        prepare(BY_NAME[GRU], described(call), Product.ATLAS_A2)
