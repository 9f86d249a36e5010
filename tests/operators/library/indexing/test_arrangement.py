"""Flips, rolls, repetitions, padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import arrangement
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    FLOATING,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    no_samples,
    precise,
    scalar,
    tensors_of,
    torch,
    wide,
)

CIRCULAR = ("circular_pad2d", "circular_pad3d")
PADS = (*(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)), *CIRCULAR)

#: Five dimensions before padding and after, from the third to the last; those that a padding of rank 1 to 3 has.
UNPADDED, MARGINS = (2, 1, 4, 3, 5), (1, 2, 0, 1, 3, 2)


def padded(name: str, d: D) -> dict[str, Any]:
    rank = int(name[-2])
    before = UNPADDED[-rank - 2 :]
    grown = [n + sum(MARGINS[2 * at : 2 * at + 2]) for at, n in enumerate(before[:1:-1])]
    after = (*before[:2], *grown[::-1])
    return {"self": T(d, before), "padding": MARGINS[: 2 * rank], "out": T(d, after)}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "permute": lambda d: {"dims": (-1, 0), "out": T(d, (3, 2))},
    "slice": lambda d: {"dim": -1, "start": -9, "end": 5, "step": 2, "out": T(d, (2, 2))},
    "diag": lambda d: {"self": T(d, (3, 4)), "diagonal": -1, "out": T(d, (2,))},
    "diag_flat": lambda d: {"diagonal": 2, "out": T(d, (8, 8))},
    "slice_v2": lambda d: {
        "starts": (-9, 1),
        "ends": (5, -1),
        "axes": (-1, 0),
        "steps": (2, 3),
        "self": T(d, (4, 3)),
        "out": T(d, (1, 2)),
    },
    "flip": lambda d: {"dims": (-1, 0)},
    "roll": lambda d: {"shifts": (2, -1), "dims": (1, 0)},
    "expand": lambda d: {"self": T(d, (2, 1)), "size": (4, 2, 3), "out": T(d, (4, 2, 3))},
    "repeat": lambda d: {"repeats": (2, 1, 2), "out": T(d, (2, 2, 6))},
    "repeat_interleave_int_with_dim": lambda d: {"repeats": 2, "dim": -1, "outputSize": 6, "out": T(d, (2, 6))},
    "repeat_interleave_int": lambda d: {"repeats": 2, "outputSize": 12, "out": T(d, (12,))},
    "repeat_interleave": lambda d: {"repeats": T(D.INT32, (6,)), "outputSize": 7, "out": T(d, (7,))},
    "repeat_interleave_with_dim": lambda d: (
        {"repeats": T(D.INT64, (3,)), "dim": -1, "outputSize": 3, "out": T(d, (2, 3))}
        if d != D.BOOL
        else {"repeats": T(D.INT64, ()), "dim": 0, "outputSize": 4, "out": T(d, (4, 3))}
    ),
    "repeat_interleave_tensor": lambda d: {"repeats": T(D.INT64, (6,)), "outputSize": 7, "out": T(D.INT64, (7,))},
    "repeat_interleave_grad": lambda d: (
        {"yGrad": T(d, (2, 7)), "repeats": T(D.INT64, (6,)), "axis": 1, "out": T(d, (2, 6))}
        if d != D.BF16
        else {"yGrad": T(d, (4, 7)), "repeats": T(D.INT32, (1,)), "axis": -2, "out": T(d, (2, 7))}
    ),
    "unfold_grad": lambda d: {
        "gradOut": T(d, (2, 3, 4, 3)),
        "inputSizes": (2, 7, 4),
        "dim": 1,
        "size": 3,
        "step": 2,
        "gradIn": T(d, (2, 7, 4)),
    },
    "channel_shuffle": lambda d: {"self": T(d, (2, 6, 3)), "groups": 3, "out": T(d, (2, 6, 3))},
    "constant_pad_nd": lambda d: {"pad": (-1, 2, 1, 0), "out": T(d, (3, 4))},
    **{name: lambda d, name=name: padded(name, d) for name in PADS},
    **{
        f"{name}_backward": lambda d, name=name: (
            {"gradOutput": padded(name, d)["out"], "gradInput": padded(name, d)["self"]} | padded(name, d)
        )
        for name in PADS
    },
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "repeat_interleave_tensor": (D.INT64,),
    **dict.fromkeys(("repeat_interleave_grad", "unfold_grad"), TRAINED),
    **dict.fromkeys(("diag", "diag_flat"), (*REAL, D.BOOL, D.COMPLEX64)),
    **dict.fromkeys(("slice", "slice_v2"), (*TRAINED, D.INT8, D.INT64, D.BOOL)),
    "expand": (*TRAINED, D.UINT8, D.INT8, D.INT32, D.INT64, D.BOOL),
    "roll": (*TRAINED, D.UINT8, D.INT32, D.BOOL),
    **dict.fromkeys(PADS, (*REAL, *COMPLEX)),
    **{f"{name}_backward": (*FLOATING, *COMPLEX) for name in PADS},
    **dict.fromkeys(CIRCULAR, (*TRAINED, D.INT8, D.INT32)),
    **{f"{name}_backward": TRAINED for name in CIRCULAR},
}


def spread(a: Mapping[str, Any]) -> Any:
    start = torch.zeros(a["out"].shape, dtype=torch.float64, requires_grad=True)
    copies = start.repeat_interleave(a["repeats"], dim=a["axis"])
    return torch.autograd.grad(copies, start, wide(a["yGrad"]))[0]


def around(values: Any, padding: Any) -> Any:
    return torch.nn.functional.pad(values, padding, "circular")


def spread_around(a: Mapping[str, Any]) -> Any:
    start = torch.zeros(a["self"].shape, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(around(start, a["padding"]), start, wide(a["gradOutput"]))[0]


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "permute": lambda a: a["self"].permute(1, 0),
    "slice": lambda a: a["self"][:, ::2],
    "slice_v2": lambda a: a["self"][1:-1:3, ::2],
    "diag": lambda a: a["self"].diagonal(-1),
    "diag_flat": lambda a: a["self"].diagflat(2),
    "flip": lambda a: a["self"].flip((-1, 0)),
    "roll": lambda a: a["self"].roll((2, -1), (1, 0)),
    "expand": lambda a: a["self"].expand(4, 2, 3),
    "repeat": lambda a: a["self"].repeat(2, 1, 2),
    "repeat_interleave_int_with_dim": lambda a: a["self"].repeat_interleave(2, -1),
    "repeat_interleave_int": lambda a: a["self"].repeat_interleave(2),
    "repeat_interleave": lambda a: a["self"].repeat_interleave(a["repeats"]),
    "repeat_interleave_with_dim": lambda a: a["self"].repeat_interleave(a["repeats"], a["dim"]),
    "repeat_interleave_tensor": lambda a: torch.repeat_interleave(a["repeats"]),
    "repeat_interleave_grad": spread,
    "unfold_grad": lambda a: torch.ops.aten.unfold_backward(wide(a["gradOut"]), (2, 7, 4), 1, 3, 2),
    "channel_shuffle": lambda a: torch.channel_shuffle(a["self"], 3),
    "constant_pad_nd": lambda a: torch.constant_pad_nd(a["self"], (-1, 2, 1, 0), a["value"]),
    **{
        name: lambda a, name=name: getattr(torch.ops.aten, name)(a["self"], a["padding"])
        for name in PADS
        if name not in CIRCULAR
    },
    **{
        f"{name}_backward": lambda a, name=name: getattr(torch.ops.aten, f"{name}_backward")(
            precise(a["gradOutput"]), precise(a["self"]), a["padding"]
        )
        for name in PADS
        if name not in CIRCULAR
    },
    **dict.fromkeys(CIRCULAR, lambda a: around(a["self"], a["padding"])),
    **{f"{name}_backward": spread_around for name in CIRCULAR},
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "permute": {"out": {"shape": (3, 0)}},
    **{name: {"out": {"shape": (0, 2)}} for name in ("slice", "slice_v2")},
    "diag": {"diagonal": 0, "out": {"shape": (0,)}},
    "diag_flat": {"diagonal": 0, "out": {"shape": (0, 0)}},
    "expand": {"size": (4, 0, 3), "out": {"shape": (4, 0, 3)}},
    "repeat": {"out": {"shape": (2, 0, 6)}},
    "repeat_interleave_int_with_dim": {"out": {"shape": (0, 6)}},
    "repeat_interleave_int": {"outputSize": 0, "out": {"shape": (0,)}},
    "repeat_interleave": {"repeats": {"shape": (0,)}, "outputSize": 0, "out": {"shape": (0,)}},
    "repeat_interleave_with_dim": {"repeats": {"shape": (3,)}, "outputSize": 5, "out": {"shape": (0, 5)}},
    "repeat_interleave_tensor": {"repeats": {"shape": (0,)}, "outputSize": 0, "out": {"shape": (0,)}},
    "repeat_interleave_grad": {"repeats": {"shape": (3,)}, "out": {"shape": (0, 3)}},
    "unfold_grad": {
        "gradOut": {"shape": (0, 3, 4, 3)},
        "inputSizes": (0, 7, 4),
        "gradIn": {"shape": (0, 7, 4)},
    },
    "channel_shuffle": {name: {"shape": (0, 6, 3)} for name in ("self", "out")},
    "constant_pad_nd": {"out": {"shape": (1, 4)}},
    **{
        f"{name}{what}": no_samples(BY_NAME[f"{name}{what}"], CALLS[f"{name}{what}"](D.FLOAT))
        for name in PADS
        for what in ("", "_backward")
    },
}

BREAKS: Mapping[str, Breaking] = {
    "dimensions to shift along": lambda o, name: Break({name: (2, 0)}, "any of the 2 dimensions"),
    "dimensions of self": lambda o, name: Break({name: (2, 0)}, "from -2 to 1"),
    "each dimension once": lambda o, name: Break({name: (1, -1)}, "once"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "numbers of at least 1": lambda o, name: Break({name: (1, 0)}, "at least 1"),
    "0 to 2 dimensions": lambda o, name: Break(shape((2, 3, 1), name), "0 to 2 dimensions"),
    "0 to 8 dimensions": lambda o, name: Break(shape((1,) * 9, name), "0 to 8 dimensions"),
    "shape of the result": lambda o, name: Break(shape((3,), name), "shape [2]" if o.name == "diag" else "[8, 8]"),
    "as many as starts": lambda o, name: Break({name: (1,)}, "2 numbers"),
    "… (one for each of dims, one for none)": lambda o, name: Break({name: (1,)}, "expected 2"),
    "shape that self can be broadcast to": lambda o, name: Break({name: (4, 3, 3)}, "can be broadcast"),
    "one for each dimension": lambda o, name: Break({name: (2,)}, "2 to 8 numbers"),
    "pairs, no more than dimensions": lambda o, name: Break({name: (1,)}, "even number"),
    "1 dimension": lambda o, name: Break(shape((2, 3), name), "1 dimension"),
    "0 to 1 dimensions": lambda o, name: Break(shape((2, 3), name), "0 to 1 dimensions"),
    "one or one for each": lambda o, name: Break(shape((2,), name), "1 number or"),
    "same data type as yGrad": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "dimension of yGrad": lambda o, name: Break({name: 2}, "from -2 to 1"),
    "yGrad with one slice for each of repeats": lambda o, name: Break(shape((2, 5), name), "shape [2, 6]"),
    "same data type as gradOut": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "1 to 8 dimensions": lambda o, name: Break(shape((), name), "1 to 8 dimensions"),
    "shape is inputSizes": lambda o, name: Break(shape((2, 7, 3), name), "[2, 7, 4]"),
    "from 0 to the last": lambda o, name: Break({name: -1}, "from 0 to 2"),
    "shape is slices of gradIn": lambda o, name: Break(shape((2, 3, 4, 2), name), "[2, 3, 4, 3]"),
    "groups of as many channels": lambda o, name: Break({name: 4}, "a divisor of 6"),
    "3 to 7 dimensions": lambda o, name: Break(shape((2, 6), name), "3 to 7"),
    "fits self": lambda o, name: Break({name: (1,)}, "numbers"),
    "margins of BF16": lambda o, name: Break({name: (-1, 1, 0, 0)}, "from 0 to 7 of ACL_BF16", D.BF16),
    "elements of each sample": lambda o, name: Break(
        {
            each: {"shape": lambda old: (0, *old.shape[2:])}
            if "backward" not in o.name or "replication" in o.name
            else {"shape": lambda old: (old.shape[0], 0, *old.shape[2:])}
            for each in tensors_of(o)
        },
        "expected elements",
    ),
    "same format as gradOutput": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "format ACL_FORMAT_ND"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name != "repeats":
        return array
    return np.array([2, 0, 1, 3, 1, 0])[: array.size] if array.size > 1 else np.full(array.shape, 2)


class TestArrangement(LibraryTests):
    subject = Subject(
        arrangement.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


@pytest.mark.parametrize(("counts", "message"), [((2, -1, 2), "at least 0, got -1"), ((2, 0, 2), "a sum of 3")])
def test_counts_that_do_not_fit_are_reported_before_anything_is_written(counts: tuple[int, ...], message: str) -> None:
    x, repeats = Placed(np.ones((2, 3), np.float32), "contiguous"), Placed(np.array(counts), "contiguous")
    out = Placed(np.zeros((2, 3), np.float32), "contiguous")
    call = {"self": x.tensor, "repeats": repeats.tensor, "dim": 1, "outputSize": 3, "out": out.tensor}
    with pytest.raises(AclnnError, match=message):
        prepare(BY_NAME["repeat_interleave_with_dim"], call, Product.ATLAS_A2).run()
    assert not out.view.any()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gradients_of_slices_are_added(dim: int) -> None:
    """Gradients of more than two dimensions failed the task."""
    shape = [2, 3, 4]
    repeats = [2, 0, 1, 3][: shape[dim]]
    gradient = np.random.default_rng(7).normal(size=[*shape[:dim], sum(repeats), *shape[dim + 1 :]]).astype(np.float32)
    placed = {
        "yGrad": Placed(gradient, "contiguous"),
        "repeats": Placed(np.array(repeats), "contiguous"),
        "out": Placed(np.zeros(shape, np.float32), "contiguous"),
    }
    call = {name: each.tensor for name, each in placed.items()} | {"axis": dim}
    prepare(BY_NAME["repeat_interleave_grad"], call, Product.ATLAS_A2).run()
    expected = spread({name: torch.from_numpy(each.view) for name, each in placed.items()} | {"axis": dim})
    np.testing.assert_allclose(placed["out"].view, expected, rtol=1e-6)


@pytest.mark.parametrize("padding", [(-1, 1, -2, 1), (-4, 5, 0, 0), (3, -5, 0, 2), (1, -1, -1, 1)])
@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_negative_padding_cuts(kind: str, padding: tuple[int, ...]) -> None:
    """Negative margins were rejected, but neither PyTorch nor CANN rejects them."""
    if kind == "reflection" and max(padding) > 3:
        padding = (-4, 3, 0, 0)
    name = f"{kind}_pad2d"
    x = np.random.default_rng(7).normal(size=(1, 3, 4, 4)).astype(np.float32)
    expected = getattr(torch.ops.aten, name)(torch.from_numpy(x), padding)
    placed = {"self": Placed(x, "contiguous"), "out": Placed(np.zeros(expected.shape, np.float32), "contiguous")}
    call: dict[str, Any] = {name: each.tensor for name, each in placed.items()} | {"padding": padding}
    prepare(BY_NAME[name], call, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["out"].view, expected)


def test_diag_and_diag_flat_fill_the_given_diagonal() -> None:
    for name, x in (("diag", np.array([2, 5], np.float32)), ("diag_flat", np.array([[2, 5]], np.float32))):
        call = {"self": x, "diagonal": 1, "out": np.ones((3, 3), np.float32)}
        np.testing.assert_array_equal(computed(name, call)["out"], [[0, 2, 0], [0, 0, 5], [0, 0, 0]])
    call = {"self": np.zeros(0, np.float32), "diagonal": 1, "out": np.ones((1, 1), np.float32)}
    assert computed("diag", call)["out"] == 0


def test_circular_padding_is_computed_on_ascend_950() -> None:
    """There was no kernel on Ascend 950; the newest edition of the document lists one."""
    x, gradient = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), np.arange(16, dtype=np.float32)
    padded = {"self": x, "padding": (1, 1, 1, 1), "out": np.zeros((1, 1, 4, 4), np.float32)}
    expected = [[4, 3, 4, 3], [2, 1, 2, 1], [4, 3, 4, 3], [2, 1, 2, 1]]
    np.testing.assert_array_equal(computed("circular_pad2d", padded, Product.ASCEND_950)["out"][0, 0], expected)
    spread = {"gradOutput": gradient.reshape(1, 1, 4, 4), "self": x, "padding": (1, 1, 1, 1), "gradInput": 0 * x}
    got = computed("circular_pad2d_backward", spread, Product.ASCEND_950)["gradInput"]
    np.testing.assert_array_equal(got[0, 0], [[40, 36], [24, 20]])


@pytest.mark.parametrize(("pad", "left"), [((-5, 3), 2), ((3, -5), 2), ((-4, 3), 3), ((-2, -3), 0)])
def test_padding_that_cuts_more_than_there_is_is_rejected(pad: tuple[int, int], left: int) -> None:
    """PyTorch rejects these margins too; the result and out had different sizes."""
    tensors = {"self": Tensor(D.FLOAT, (4,)), "out": Tensor(D.FLOAT, (left,))}
    call = tensors | {"pad": pad, "value": scalar(D.FLOAT, 1)}
    if pad[0] == -4:
        prepare(BY_NAME["constant_pad_nd"], call, Product.ATLAS_A2)
        return
    with pytest.raises(AclnnError, match=r"pad: expected negative numbers that cut no more than there is of \[4\]"):
        prepare(BY_NAME["constant_pad_nd"], call, Product.ATLAS_A2)


@pytest.mark.parametrize(
    ("name", "call", "text"),
    [
        ("roll", {"self": T(D.FLOAT, (2, 0)), "shifts": (1,), "dims": (7,), "out": T(D.FLOAT, (2, 0))}, None),
        ("roll", {"self": T(D.FLOAT, ()), "shifts": (1,), "dims": (0,), "out": T(D.FLOAT, ())}, "any of the 0"),
        (
            "repeat",
            {"self": T(D.FLOAT, (2,)), "repeats": (1,) * 9, "out": T(D.FLOAT, (1,) * 8 + (2,))},
            "1 to 8 numbers",
        ),
        (
            "constant_pad_nd",
            {
                "self": T(D.FLOAT, (2,), Format.FORMAT_NCHW),
                "pad": (1, 1),
                "value": scalar(D.FLOAT, 0),
                "out": T(D.FLOAT, (4,)),
            },
            "out: expected format",
        ),
    ],
)
def test_movable_data_types_depend_on_the_product(name: str, call: Arguments, text: str | None) -> None:
    if text is None:
        prepare(BY_NAME[name], described(call), Product.ATLAS_A2)
    else:
        with pytest.raises(AclnnError, match=text):
            prepare(BY_NAME[name], described(call), Product.ATLAS_A2)


def test_a_slice_of_negative_extents_is_rejected() -> None:
    call = {"self": T(D.FLOAT, (3, -1)), "dim": 1, "start": 0, "end": 5, "step": 1, "out": T(D.FLOAT, (3, 0))}
    with pytest.raises(AclnnError, match=r"self: expected dimensions of 0 or more, got \[3, -1\]"):
        prepare(BY_NAME["slice"], described(call), Product.ATLAS_A2)


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 3), (3,)), ((2, 3), (2, -1)), ((1,), (1,) * 9), ((2,), (3,)), ((2, 1), (2, 3, 1))]
)
def test_shapes_that_do_not_broadcast_are_rejected(shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    call = {"self": np.zeros(shape, np.float32), "size": size, "out": np.zeros((2, 3), np.float32)}
    with pytest.raises(AclnnError, match="can be broadcast"):
        computed("expand", call)


def test_expand_broadcasts_a_number() -> None:
    call = {"self": np.array(3, np.float32), "size": (2, 2), "out": np.zeros((2, 2), np.float32)}
    np.testing.assert_array_equal(computed("expand", call)["out"], np.full((2, 2), 3))
    call = {"self": np.array(3, np.float32), "size": (), "out": np.array(0, np.float32)}
    assert computed("expand", call)["out"] == 3
