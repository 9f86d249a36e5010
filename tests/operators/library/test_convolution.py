"""Convolutions of every rank with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import convolution
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    FOUND,
    IMAGES,
    KERNELS,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    to_torch,
    torch,
    wide,
)

CONVOLUTION = {"stride": (2, 1), "padding": (1, 1), "dilation": (2, 1), "transposed": False, "outputPadding": (0, 0)}


def convolved(d: D) -> Arguments:
    return {"input": T(d, IMAGES), "weight": T(d, KERNELS), "groups": 2, "cubeMathType": 0} | CONVOLUTION


#: Windows of 3 × 2.
SLID = {"kernelSize": (3, 2), "dilation": (2, 1), "padding": (1, 1), "stride": (2, 1)}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "im2col": lambda d: SLID | {"self": T(d, IMAGES), "out": T(d, (2, 24, 10))},
    "im2col_backward": lambda d: SLID | {"gradOutput": T(d, (2, 24, 10)), "inputSize": (5, 4), "out": T(d, IMAGES)},
    "convolution": lambda d: convolved(d) | {"bias": T(d, (6,)), "output": T(d, FOUND)},
    "convolution_backward": lambda d: (
        convolved(d)
        | {
            "gradOutput": T(d, FOUND),
            "biasSizes": (6,),
            "outputMask": (True, True, True),
            "gradInput": T(d, IMAGES),
            "gradWeight": T(d, KERNELS),
            "gradBias": T(d, (6,)),
        }
    ),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "im2col": lambda a: torch.nn.functional.unfold(wide(a["self"]), (3, 2), (2, 1), (1, 1), (2, 1)),
    "im2col_backward": lambda a: torch.nn.functional.fold(
        wide(a["gradOutput"]), (5, 4), (3, 2), (2, 1), (1, 1), (2, 1)
    ),
    "convolution": lambda a: torch.ops.aten.convolution(
        wide(a["input"]), wide(a["weight"]), wide(a["bias"]), (2, 1), (1, 1), (2, 1), False, (0, 0), 2
    ),
    "convolution_backward": lambda a: torch.ops.aten.convolution_backward(
        *(wide(a[name]) for name in ("gradOutput", "input", "weight")),
        *((6,), (2, 1), (1, 1), (2, 1), False, (0, 0), 2, (True, True, True)),
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "im2col": {"self": {"shape": (0, *IMAGES[1:])}, "out": {"shape": (0, 24, 10)}},
    "im2col_backward": {"gradOutput": {"shape": (0, 24, 10)}, "out": {"shape": (0, *IMAGES[1:])}},
    "convolution": {
        "input": {"shape": (0, *IMAGES[1:])},
        "output": {"shape": (0, *FOUND[1:])},
        "weight": {"shape": KERNELS},
        "bias": {"shape": (6,)},
    },
    "convolution_backward": {
        "gradOutput": {"shape": (0, *FOUND[1:])},
        "input": {"shape": (0, *IMAGES[1:])},
        "weight": {"shape": KERNELS},
        "gradInput": {"shape": (0, *IMAGES[1:])},
        "gradWeight": {"shape": KERNELS},
        "gradBias": {"shape": (6,)},
    },
}

BREAKS: Mapping[str, Breaking] = {
    "pairs of numbers": lambda o, name: Break({name: (2, -1)}, "2 numbers"),
    "columns and planes": lambda o, name: Break(shape((2, 3), name), "or without N" if name != "out" else "shape ["),
    "3 to 5 dimensions": lambda o, name: Break(shape((2, 4), name), "3 to 5" if name == "input" else "4 dimensions"),
    "as many as dimensions": lambda o, name: Break({name: (1, 1, 1)}, "2"),
    "at least": lambda o, name: Break({name: (-1, 1)}, "of at least"),
    "channels": lambda o, name: Break(
        {"groups": 0} if name == "groups" else shape((2, 3, 5, 4) if name == "input" else (5, 2, 3, 2), name),
        {"groups": "at least 1", "input": "4 channels", "weight": "a multiple of 2"}[name],
    ),
    "shape of the convolution": lambda o, name: Break(shape((2, 6, 2, 4), name), "[2, 6, 2, 5]"),
    "one a channel": lambda o, name: Break(shape((4,), name), "[6]"),
    "0 to 3": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "wanted": lambda o, name: Break(
        {name: None} if name == "gradBias" else shape((2, 4, 5, 5), name), "a tensor" if name == "gradBias" else "shape"
    ),
}


class TestConvolution(LibraryTests):
    subject = Subject(
        convolution.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        default=TRAINED,
        terms=8,  # sums of up to 60, to 100
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank_with_their_gradients(rank: int, transposed: bool) -> None:
    random = np.random.default_rng(rank)
    stride, pads, dilation = ((2, 1, 2)[:rank], (1, 0, 2)[:rank], (1, 2, 1)[:rank])
    more = (1, 0, 0)[:rank] if transposed else (0,) * rank
    x = random.normal(size=(2, 4, *(7, 6, 5)[:rank])).astype(np.float32)
    w = random.normal(size=(4, 3, *(3, 2, 3)[:rank]) if transposed else (6, 2, *(3, 2, 3)[:rank])).astype(np.float32)
    attributes = (stride, pads, dilation, transposed, more, 2)
    y = torch.ops.aten.convolution(wide(to_torch(x)), wide(to_torch(w)), None, *attributes)
    dy = random.normal(size=tuple(y.shape)).astype(np.float32)
    wanted = torch.ops.aten.convolution_backward(
        *(wide(to_torch(each)) for each in (dy, x, w)), [6], *attributes, (True, True, True)
    )
    given = {name: Placed(array, "transposed") for name, array in (("gradOutput", dy), ("input", x), ("weight", w))}
    outs = {
        name: Placed(np.zeros(tuple(result.shape), np.float32), "contiguous")
        for name, result in zip(("output", "gradInput", "gradWeight", "gradBias"), (y, *wanted), strict=True)
    }
    call = dict(
        zip(("stride", "padding", "dilation", "transposed", "outputPadding", "groups"), attributes, strict=True)
    )
    call |= {name: each.tensor for name, each in {**given, **outs}.items()}
    call |= {"bias": None, "cubeMathType": 0, "biasSizes": (6,), "outputMask": (True, True, True)}
    for operator in ("convolution", "convolution_backward"):
        chosen = {p.name: call[p.name] for p in BY_NAME[operator].parameters}
        prepare(BY_NAME[operator], chosen, Product.ATLAS_A2).run()
    for out, result in zip(outs.values(), (y, *wanted), strict=True):
        np.testing.assert_allclose(out.view, result.numpy(), rtol=1e-5, atol=1e-5)


def test_a_convolution_of_no_channels_is_the_bias() -> None:
    """It was an internal error, as were its gradients."""
    form = {"stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False, "outputPadding": (0,), "groups": 1}
    x, w, y = np.zeros((1, 0, 3), np.float32), np.zeros((2, 0, 2), np.float32), np.ones((1, 2, 2), np.float32)
    call = form | {"input": x, "weight": w, "cubeMathType": 0}
    bias = np.array([2, 3], np.float32)
    assert computed("convolution", call | {"bias": bias, "output": y})["output"].tolist() == [[[2, 2], [3, 3]]]
    gradients = {"gradOutput": y, "biasSizes": (2,), "outputMask": (True, True, True)}
    outputs = {"gradInput": x, "gradWeight": w, "gradBias": np.zeros(2, np.float32)}
    assert computed("convolution_backward", call | gradients | outputs)["gradBias"].tolist() == [2, 2]


def test_a_mask_has_three_values() -> None:
    call = described(CALLS["convolution_backward"](D.FLOAT) | {"outputMask": (True, True)})
    with pytest.raises(AclnnError, match="outputMask: expected 3 values, got 2"):
        prepare(BY_NAME["convolution_backward"], call, Product.ATLAS_A2)
