"""Convolutions over time with samples and channels behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators.library.convolution import time_convolution
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, computed, labelled, torch

CONV, BACK = "conv_tbc", "conv_tbc_backward"
X, WEIGHT, OUT = (6, 2, 3), (4, 3, 5), (5, 2, 5)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    CONV: labelled(
        lambda d: {
            "self": T(d, X),
            "weight": T(d, WEIGHT),
            "bias": T(d, (5,)),
            "pad": 1,
            "out": T(d, OUT),
            "cubeMathType": 1,
        }
    ),
    BACK: labelled(
        lambda d: {
            "self": T(d, OUT),
            **dict.fromkeys(("input", "gradInput"), T(d, X)),
            **dict.fromkeys(("weight", "gradWeight"), T(d, WEIGHT)),
            **dict.fromkeys(("bias", "gradBias"), T(d, (5,))),
            "pad": 1,
            "cubeMathType": 1,
        }
    ),
}


def _convolved(x: Any, weight: Any, bias: Any) -> Any:
    return torch.conv_tbc(x, weight, bias, 1)


def _gradients(a: Mapping[str, Any]) -> Any:
    given = [a[name].double().requires_grad_() for name in ("input", "weight", "bias")]
    return torch.autograd.grad(_convolved(*given), given, a["self"].double())


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.INT8, name), "ACL_FLOAT"),
    "3 dimensions": lambda o, name: Break(shape((6, 2), name), "3 dimensions"),
    "1 dimension": lambda o, name: Break(shape((5, 1), name), "1 dimension"),
    "format of sequences": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_NCL"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCL}}, "ACL_FORMAT_ND"),
    "0 or more": lambda o, name: Break({name: -1}, "0 or more"),
    "shape is kernels of these channels": lambda o, name: Break(shape((4, 2, 5), name), "[4, 3, 5]"),
    "shape is one for each output channel": lambda o, name: Break(shape((4,), name), "[5]"),
    "within the padded steps": lambda o, name: Break(shape((10, 3, 5), name), "at most 9"),
    "shape is of the convolution": lambda o, name: Break(shape((6, 2, 5), name), "[5, 2, 5]"),
    "same shape as input": lambda o, name: Break(shape((6, 2, 4), name), "[6, 2, 3]"),
    "same shape as weight": lambda o, name: Break(shape((4, 3, 4), name), "[4, 3, 5]"),
    "same shape as bias": lambda o, name: Break(shape((4,), name), "[5]"),
    "allowed value": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
}


class TestTimeConvolution(LibraryTests):
    subject = Subject(
        time_convolution.OPERATORS,
        calls=CALLS,
        references={
            CONV: lambda a: _convolved(*(a[name].double() for name in ("self", "weight", "bias"))),
            BACK: _gradients,
        },
        default=TRAINED,
        empty={
            CONV: {name: {"shape": of} for name, of in (("self", (6, 0, 3)), ("weight", WEIGHT), ("out", (5, 0, 5)))}
            | {"bias": {"shape": (5,)}},
            BACK: {
                name: {"shape": of}
                for name, of in (
                    *(("self", (5, 0, 5)), ("input", (6, 0, 3)), ("gradInput", (6, 0, 3))),
                    *(("weight", WEIGHT), ("gradWeight", WEIGHT), ("bias", (5,)), ("gradBias", (5,))),
                )
            },
        },
        breaks=BREAKS,
        terms=8,
    )


def test_conv_tbc_reproduces_the_documents_example() -> None:
    """Two steps, of which a kernel of three meets both, and one more for the bias."""
    ones = {"self": (2, 2, 3), "weight": (3, 3, 4), "bias": (4,), "out": (2, 2, 4)}
    call = {name: np.ones(of, np.float32) for name, of in ones.items()}
    found = computed(CONV, call | {"pad": 1, "cubeMathType": 1})["out"]
    assert np.unique(found).tolist() == [7]
