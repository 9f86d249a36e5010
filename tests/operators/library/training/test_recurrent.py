"""LSTM and GRU with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import recurrent
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import BREAKS as ANY_BREAKS
from tests.helpers.library import BY_NAME, Break, Breaking, LibraryTests, Placed, Subject, described, torch, wide

KEPT = {
    "lstm": ("iOut", "jOut", "fOut", "oOut", "hOut", "cOut", "tanhCOut"),
    "gru": ("rOut", "zOut", "nOut", "hnOut", "hOut"),
}
READ = {"lstm": ("i", "g", "f", "o", "h", "c", "tanhc"), "gru": ("r", "z", "n", "hn", "h")}
GATES = {"lstm": 4, "gru": 3}
FLAGS = {"hasBias": True, "numLayers": 2, "dropout": 0.0, "train": True, "batchFirst": True}
BOTH = {"bidirectional": True, "bidirection": True}
NULLS: Arguments = {"batchSizes": None, "batchSizesOptional": None, "outputMask": None}


def _call(name: str, d: D, batch: int = 2) -> Arguments:
    """Two layers of four, in both directions, over three steps of five numbers."""
    kind = name.removesuffix("_backward")
    rows, states, steps = GATES[kind] * 4, T(d, (4, batch, 4)), T(d, (3, batch, 4))
    weights = tuple(T(d, each) for width in (5, 5, 8, 8) for each in ((rows, width), (rows, 4), (rows,), (rows,)))
    x, y = T(d, (batch, 3, 5)), T(d, (batch, 3, 8))
    call = FLAGS | BOTH | NULLS | {"input": x, "params": weights, "hx": (states, states) if kind == "lstm" else states}
    call |= dict.fromkeys(("hy", "cy", "dh", "dc", "dhPrevOut", "dcPrevOut"), states)
    call |= {"output": y, "dy": y, "dxOut": x, "dparamsOut": weights}
    call |= dict.fromkeys((*KEPT[kind], *READ[kind]), (steps,) * 4)
    return {p.name: call[p.name] for p in BY_NAME[name].parameters}


def _network(kind: str, weights: Any, **form: Any) -> Any:
    network = getattr(torch.nn, kind.upper())(5, 4, **form).double()
    for parameter, given in zip(network.parameters(), weights, strict=True):
        parameter.data = wide(given)
    return network


def _reference(kind: str, a: Mapping[str, Any]) -> Any:
    states = a["hx"]
    given = tuple(map(wide, states)) if kind == "lstm" else wide(states)
    network = _network(kind, a["params"], num_layers=2, bidirectional=True, batch_first=True)
    y, last = network(wide(a["input"]), given)
    return [each.detach() for each in (y, *(last if kind == "lstm" else (last,)))]


SIZES = T(D.INT64, (3,))
BREAKS: Mapping[str, Breaking] = {
    "null": lambda o, name: Break({name: SIZES}, "null", product=Product.ASCEND_950),
    "data type": lambda o, name: (
        Break({name: T(D.INT32, (3,))}, "ACL_INT64") if name.startswith("batch") else ANY_BREAKS["data type"](o, name)
    ),
    "1 dimension that is not empty": lambda o, name: Break({name: T(D.INT64, (0,))}, "1 dimension that is not empty"),
    "lists of the layers": lambda o, name: Break(
        shape((3, 5), name) if name == "input" else {name: (T(D.FLOAT, (4,)),)},
        "3 dimensions" if name == "input" else "16 tensors",
    ),
    "shapes of the layers": lambda o, name: Break({name: (T(D.FLOAT, (4,)),) * 16}, "shape ["),
}


class TestRecurrent(LibraryTests):
    subject = Subject(
        recurrent.OPERATORS,
        calls={name: lambda d, name=name: _call(name, d) for name in (*KEPT, "lstm_backward", "gru_backward")},
        references={kind: lambda a, kind=kind: _reference(kind, a) for kind in KEPT},
        default=(D.FLOAT, D.FLOAT16),
        empty={operator.name: _call(operator.name, D.FLOAT, 0) for operator in recurrent.OPERATORS},
        breaks=BREAKS,
        elsewhere=("lstm_backward", "gru_backward"),
        left=KEPT["lstm"] + KEPT["gru"],
    )


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("form", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}], ids=["plain", "both"])
def test_gradients_from_the_forward_states_match_pytorch(kind: str, form: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    network = _network(
        kind,
        [
            torch.tensor(random.normal(size=p.shape) / 2)
            for p in getattr(torch.nn, kind.upper())(5, 4, **form).parameters()
        ],
        **form,
    )
    layers, directions = form.get("num_layers", 1), 1 + form.get("bidirectional", False)

    def filled(*extents: int) -> Placed:
        return Placed(random.normal(size=extents).astype(np.float32), "transposed")

    x, y, state = filled(3, 2, 5), filled(3, 2, 4 * directions), (layers * directions, 2, 4)
    weights = [Placed(p.detach().float().numpy(), "transposed") for p in network.parameters()]
    first, last, arriving = ([filled(*state) for _ in range(2 if kind == "lstm" else 1)] for _ in range(3))
    kept = {name: [filled(3, 2, 4) for _ in range(state[0])] for name in KEPT[kind]}
    dx, starts = filled(3, 2, 5), [filled(*state) for _ in first]
    gradients = [filled(*w.view.shape) for w in weights]
    dy = filled(*y.view.shape)

    def of(placed: list[Placed]) -> Any:
        return tuple(each.tensor for each in placed)

    hx = of(first) if kind == "lstm" else first[0].tensor
    call = NULLS | {"input": x.tensor, "params": of(weights), "hx": hx, "output": y.tensor, "dy": dy.tensor}
    call |= {"hasBias": "bias" not in form, "numLayers": layers, "dropout": 0.0, "train": True, "batchFirst": False}
    call |= dict.fromkeys(BOTH, directions == 2) | {"dxOut": dx.tensor, "dparamsOut": of(gradients)}
    call |= dict(zip(("hy", "cy"), of(last), strict=False)) | dict(zip(("dh", "dc"), of(arriving), strict=False))
    call |= dict(zip(("dhPrevOut", "dcPrevOut"), of(starts), strict=False))
    call |= {name: of(each) for name, each in kept.items()}
    call |= {read: call[name] for read, name in zip(READ[kind], KEPT[kind], strict=True)}
    for operator in (BY_NAME[kind], BY_NAME[f"{kind}_backward"]):
        prepare(operator, {p.name: call[p.name] for p in operator.parameters}, Product.ASCEND_950).run()

    leaves = [torch.tensor(each.view.astype(np.float64), requires_grad=True) for each in (x, *first)]
    for parameter, weight in zip(network.parameters(), weights, strict=True):
        parameter.data = torch.tensor(weight.view.astype(np.float64))
    found, ends = network(leaves[0], tuple(leaves[1:]) if kind == "lstm" else leaves[1])
    results = (found, *(ends if kind == "lstm" else (ends,)))
    torch.autograd.backward(results, [torch.tensor(each.view.astype(np.float64)) for each in (dy, *arriving)])
    expected = [*results, *(each.grad for each in (*leaves, *network.parameters()))]
    for got, want in zip((y, *last, dx, *starts, *gradients), expected, strict=True):
        np.testing.assert_allclose(got.view, want.detach().numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["hx", "iOut", "tanhCOut"])
def test_a_null_in_an_optional_list_is_rejected(name: str) -> None:
    """Null in an optional list raised an internal error."""
    call = _call("lstm", D.FLOAT)
    call |= {name: (None, *call[name][1:])}
    with pytest.raises(AclnnError, match=rf"^aclnnLSTM: {name}\[0\]: expected an object, got null"):
        prepare(BY_NAME["lstm"], described(call), Product.ATLAS_A2)


@pytest.mark.parametrize("both", [False, True], ids=["forwards", "both"])
def test_sequences_of_several_lengths_match_pytorch(both: bool) -> None:
    """They were rejected. A sample's state keeps its value after the end of its sequence; its output is 0."""
    random, directions = np.random.default_rng(4), 1 + both
    network = torch.nn.LSTM(5, 4, 2, bidirectional=both).double()
    lengths, cells = (3, 3, 1), 2 * directions

    def filled(*extents: int) -> Placed:
        return Placed(random.normal(size=extents).astype(np.float32), "transposed")

    weights = [Placed(p.detach().float().numpy(), "transposed") for p in network.parameters()]
    for parameter, weight in zip(network.parameters(), weights, strict=True):
        parameter.data = torch.tensor(weight.view.astype(np.float64))
    x, y, dy, dx = filled(9, 5), filled(3, 3, 4 * directions), filled(9, 4 * directions), filled(9, 5)
    first, last, arriving, starts = ([filled(cells, 3, 4) for _ in range(2)] for _ in range(4))
    kept = {name: [filled(3, 3, 4) for _ in range(cells)] for name in KEPT["lstm"]}
    gradients = [filled(*w.view.shape) for w in weights]

    def of(placed: list[Placed]) -> Any:
        return tuple(each.tensor for each in placed)

    sizes = Placed(np.array([3, 2, 2]), "contiguous").tensor
    call = FLAGS | {"bidirectional": both, "outputMask": None, "batchSizes": sizes, "batchSizesOptional": sizes}
    call |= {"input": x.tensor, "params": of(weights), "hx": of(first), "output": y.tensor, "dy": dy.tensor}
    call |= {"dxOut": dx.tensor, "dparamsOut": of(gradients)} | {name: of(each) for name, each in kept.items()}
    call |= dict(zip(("hy", "cy", "dh", "dc", "dhPrevOut", "dcPrevOut"), of([*last, *arriving, *starts]), strict=True))
    call |= {read: call[name] for read, name in zip(READ["lstm"], KEPT["lstm"], strict=True)}
    for name in ("lstm", "lstm_backward"):
        operator = BY_NAME[name]
        prepare(operator, {p.name: call[p.name] for p in operator.parameters}, Product.ATLAS_A2).run()

    def steps(placed: Placed) -> Any:
        return torch.tensor(placed.view.astype(np.float64).reshape(3, 3, -1), requires_grad=True)

    value, leaves = steps(x), [torch.tensor(each.view.astype(np.float64), requires_grad=True) for each in first]
    packed = torch.nn.utils.rnn.pack_padded_sequence(value, lengths, enforce_sorted=True)
    found, ends = network(packed, tuple(leaves))
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(found)
    arrived = [steps(dy).detach(), *(torch.tensor(each.view.astype(np.float64)) for each in arriving)]
    torch.autograd.backward((wanted, *ends), arrived)
    expected = [wanted, *ends, value.grad.reshape(9, 5), *(each.grad for each in (*leaves, *network.parameters()))]
    for got, want in zip((y, *last, dx, *starts, *gradients), expected, strict=True):
        np.testing.assert_allclose(got.view, want.detach().numpy(), rtol=1e-5, atol=2e-6)
    assert all(each.untouched_outside() for each in (y, dx, *gradients))


def test_row_counts_that_are_not_multiples_of_the_steps_are_rejected() -> None:
    call = _call("lstm", D.FLOAT) | {"input": T(D.FLOAT, (7, 5)), "batchSizes": SIZES}
    with pytest.raises(AclnnError, match=r"input: expected a multiple of 3 rows \(a row for each step\), got 7"):
        prepare(BY_NAME["lstm"], described(call), Product.ATLAS_A2)
