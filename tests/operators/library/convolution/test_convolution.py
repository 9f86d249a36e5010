"""Convolutions of every rank with their gradients."""

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
from aclnn.operators.library.convolution import convolution
from tests.cases.table import NULL, Arguments, T, changed, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    FOUND,
    IMAGES,
    KERNELS,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    label_by_rank,
    labelled,
    to_torch,
    torch,
    wide,
)

CONVOLUTION = {"stride": (2, 1), "padding": (1, 1), "dilation": (2, 1), "transposed": False, "outputPadding": (0, 0)}


def convolved(d: D) -> Arguments:
    return {"input": T(d, IMAGES), "weight": T(d, KERNELS), "groups": 2, "cubeMathType": 1} | CONVOLUTION


#: Windows of 3 × 2.
SLID = {"kernelSize": (3, 2), "dilation": (2, 1), "padding": (1, 1), "stride": (2, 1)}

_CALLS: Mapping[str, Callable[[D], Arguments]] = {
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

CALLS = {name: labelled(call) for name, call in _CALLS.items()}

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

#: Of kernels that reach 260 elements, with a margin of 1.
WIDE = {"transposed": True, "dilation": (130, 1)} | shape((4, 3, 3, 2), "weight") | shape((2, 6, 267, 3), "output")


def _looked_at(name: str) -> Mapping[str, Any]:
    """Return the argument with which a forward function checks the named array."""
    return {"transposed": True} if name == "outputPadding" else {}


BREAKS: Mapping[str, Breaking] = {
    "present": lambda o, name: Break({name: None} | _looked_at(name), "an object"),
    "format of the dimensions": lambda o, name: Break({name: {"format": Format.FORMAT_NHWC}}, "format ACL_FORMAT_N"),
    "format of a bias": lambda o, name: Break({name: {"format": Format.FORMAT_NHWC}}, "ACL_FORMAT_ND"),
    "nothing of nothing": lambda o, name: Break(
        shape((2, 0, 5, 4), "input") | shape((6, 0, 3, 2), "weight"), "no elements"
    ),
    "within the kernels' reach": lambda o, name: Break(WIDE, "0 to 255 elements"),
    **{
        f"same data type as {given}": lambda o, name: Break(
            dtype(D.FLOAT16, name),
            "ACL_FLOAT",
            product=Product.ASCEND_950 if "backward" in o.name else Product.ATLAS_A2,
        )
        for given in ("input", "weight", "gradOutput")
    },
    "pairs of numbers": lambda o, name: Break({name: (2, -1)}, "2 numbers"),
    "columns and planes": lambda o, name: Break(shape((2, 3), name), "or without N" if name != "out" else "shape ["),
    "3 to 5 dimensions": lambda o, name: Break(
        {name: {"shape": (2, 4), "format": Format.FORMAT_ND}}, "3 to 5" if name == "input" else "4 dimensions"
    ),
    "as many as dimensions": lambda o, name: Break({name: (1, 1, 1)} | _looked_at(name), "2"),
    "at least": lambda o, name: Break({name: (-1, 1)} | _looked_at(name), "of at least"),
    "channels": lambda o, name: Break(
        {"groups": 0} if name == "groups" else shape((2, 3, 5, 4) if name == "input" else (5, 2, 3, 2), name),
        {"groups": "at least 1", "input": "4 channels", "weight": "a multiple of 2"}[name],
    ),
    "shape of the convolution": lambda o, name: Break(shape((2, 6, 2, 4), name), "[2, 6, 2, 5]"),
    "shape … (of the channels)": lambda o, name: Break(shape((4,), name), "[6]"),
    "allowed value": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "wanted": lambda o, name: Break({name: None}, "a tensor"),
    "shape of what it is the gradient of": lambda o, name: Break(
        shape((4,) if name == "gradBias" else (2, 4, 5, 5), name), "shape ["
    ),
}


class TestConvolution(LibraryTests):
    subject = Subject(
        convolution.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        codes={"wanted": NULL},
        default=TRAINED,
        terms=8,  # sums of up to 60, to 100
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank_and_their_gradients_match_pytorch(rank: int, transposed: bool) -> None:
    random = np.random.default_rng(rank)
    stride, pads, dilation = ((2, 1, 2)[:rank], (1, 0, 2)[:rank], (1, 2, 1)[:rank])
    more = (1, 0, 0)[:rank] if transposed else (0,) * rank
    x = random.normal(size=(2, 4, *(7, 6, 5)[:rank])).astype(np.float32)
    w = random.normal(size=(4, 3, *(3, 2, 3)[:rank]) if transposed else (6, 2, *(3, 2, 3)[:rank])).astype(np.float32)
    attributes = (stride, pads, dilation, transposed, more, 2)
    y = torch.ops.aten.convolution(wide(to_torch(x)), wide(to_torch(w)), None, *attributes)
    dy = random.normal(size=tuple(y.shape)).astype(np.float32)
    expected = torch.ops.aten.convolution_backward(
        *(wide(to_torch(each)) for each in (dy, x, w)), [6], *attributes, (True, True, True)
    )
    given = {name: Placed(array, "transposed") for name, array in (("gradOutput", dy), ("input", x), ("weight", w))}
    outs = {
        name: Placed(np.zeros(tuple(result.shape), np.float32), "contiguous")
        for name, result in zip(("output", "gradInput", "gradWeight", "gradBias"), (y, *expected), strict=True)
    }
    call = dict(
        zip(("stride", "padding", "dilation", "transposed", "outputPadding", "groups"), attributes, strict=True)
    )
    label_by_rank({**given, **outs})
    call |= {name: each.tensor for name, each in {**given, **outs}.items()}
    call |= {"bias": None, "cubeMathType": 0, "biasSizes": (6,), "outputMask": (True, True, True)}
    for operator in ("convolution", "convolution_backward"):
        chosen = {p.name: call[p.name] for p in BY_NAME[operator].parameters}
        prepare(BY_NAME[operator], chosen, Product.ATLAS_A2).run()
    for out, result in zip(outs.values(), (y, *expected), strict=True):
        np.testing.assert_allclose(out.view, result.numpy(), rtol=1e-5, atol=1e-5)


def test_gradients_without_channels_keep_the_bias_gradient() -> None:
    """These gradients raised an internal error."""
    form = {"stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False, "outputPadding": (0,), "groups": 1}
    x, w, dy = np.zeros((1, 0, 3), np.float32), np.zeros((2, 0, 2), np.float32), np.ones((1, 2, 2), np.float32)
    gradients = {"gradOutput": dy, "biasSizes": (2,), "outputMask": (True, True, True)}
    outputs = {"gradInput": x, "gradWeight": w, "gradBias": np.zeros(2, np.float32)}
    call = form | {"input": x, "weight": w, "cubeMathType": 0}
    assert _computed("convolution_backward", call | gradients | outputs)["gradBias"].tolist() == [2, 2]


def test_convolution_of_an_empty_line_is_empty() -> None:
    """Empty lines were rejected."""
    form = {"stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False, "outputPadding": None, "groups": 1}
    x, w, y = (np.zeros(shape, np.float32) for shape in ((1, 2, 0), (3, 2, 1), (1, 3, 0)))
    _computed("convolution", form | {"input": x, "weight": w, "bias": None, "output": y, "cubeMathType": 0})


def _computed(name: str, arguments: Mapping[str, Any]) -> dict[str, Array]:
    placed = {key: Placed(each, "contiguous") for key, each in arguments.items() if isinstance(each, np.ndarray)}
    label_by_rank(placed)
    prepare(BY_NAME[name], {**arguments, **{key: each.tensor for key, each in placed.items()}}, Product.ATLAS_A2).run()
    return {key: each.view for key, each in placed.items()}


def test_output_mask_has_three_values() -> None:
    call = described(CALLS["convolution_backward"](D.FLOAT) | {"outputMask": (True, True)})
    with pytest.raises(AclnnError, match="outputMask: expected 3 values, got 2") as caught:
        prepare(BY_NAME["convolution_backward"], call, Product.ATLAS_A2)
    assert caught.value.code == NULL


def test_conv1d_takes_padding_of_two_ends_and_output_padding_only_if_transposed() -> None:
    random = np.random.default_rng(5)
    x, w = random.normal(size=(2, 4, 7)).astype(np.float32), random.normal(size=(3, 4, 3)).astype(np.float32)
    call = {"stride": (2,), "padding": (2, 1), "dilation": (1,), "transposed": False, "outputPadding": None}
    call |= {"input": x, "weight": w, "bias": None, "groups": 1, "cubeMathType": 0}
    got = _computed("convolution", call | {"output": np.zeros((2, 3, 4), np.float32)})["output"]
    padded = torch.nn.functional.pad(wide(to_torch(x)), (2, 1))
    np.testing.assert_allclose(got, torch.nn.functional.conv1d(padded, wide(to_torch(w)), stride=2), 1e-5, 1e-5)


@pytest.mark.parametrize(("number", "is_taken"), [(0, False), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("product", [Product.ATLAS_TRAINING, Product.ATLAS_INFERENCE])
def test_older_products_multiply_float32_only_with_cube_math_type_1_or_2(
    product: Product, number: int, is_taken: bool
) -> None:
    call = CALLS["convolution"]
    prepare(BY_NAME["convolution"], described(call(D.FLOAT16) | {"cubeMathType": number}), product)
    single = described(call(D.FLOAT) | {"cubeMathType": number})
    if is_taken:
        prepare(BY_NAME["convolution"], single, product)
    else:
        with pytest.raises(AclnnError, match="cubeMathType: expected 1 or 2 on"):
            prepare(BY_NAME["convolution"], single, product)


def test_unrequested_gradients_must_have_the_right_shapes() -> None:
    call = CALLS["convolution_backward"](D.FLOAT) | {"outputMask": (False, True, True)}
    operator = BY_NAME["convolution_backward"]
    prepare(operator, described(call | {"gradInput": None}), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="gradInput: expected shape"):
        prepare(operator, described(changed(call, shape((2, 4, 5, 5), "gradInput"))), Product.ATLAS_A2)


def test_im2col_needs_channels() -> None:
    call = {"self": Tensor(D.FLOAT, (1, 0, 4, 4)), "out": Tensor(D.FLOAT, (1, 0, 9))}
    call |= {"kernelSize": (2, 2), "dilation": (1, 1), "padding": (0, 0), "stride": (1, 1)}
    with pytest.raises(AclnnError, match="self: expected channels"):
        prepare(BY_NAME["im2col"], call, Product.ATLAS_A2)
