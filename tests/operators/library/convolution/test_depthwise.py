"""Convolutions of planes by kernels of each channel's own."""

from __future__ import annotations

from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators.library.convolution import depthwise
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import IMAGES, TRAINED, Break, LibraryTests, Subject, labelled, torch, wide

NAME = "conv_depthwise2d"
FORM: Arguments = {"kernelSize": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "cubeMathType": 1}
KERNELS, FOUND = (8, 1, 3, 2), (2, 8, 3, 2)


def _call(d: D) -> Arguments:
    return FORM | {"self": T(d, IMAGES), "weight": T(d, KERNELS), "bias": T(d, (8,)), "out": T(d, FOUND)}


def _reference(a: Any) -> Any:
    form = (a["stride"], a["padding"], a["dilation"])
    return torch.nn.functional.conv2d(wide(a["self"]), wide(a["weight"]), wide(a["bias"]), *form, groups=4)


class TestDepthwise(LibraryTests):
    subject = Subject(
        depthwise.OPERATORS,
        calls={NAME: labelled(_call)},
        references={NAME: _reference},
        empty={
            NAME: {
                "self": {"shape": (0, *IMAGES[1:])},
                "weight": {"shape": KERNELS},
                "bias": {"shape": (8,)},
                "out": {"shape": (0, *FOUND[1:])},
            }
        },
        breaks={
            "same data type as self": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "4 dimensions": lambda o, name: Break(shape((4, 5, 4), name), "4 dimensions"),
            "two numbers": lambda o, name: Break({name: (1, -1)}, "2 numbers"),
            "format of the dimensions": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "FORMAT_NCHW"),
            "kernels of the channels": lambda o, name: Break(shape((6, 1, 3, 2), name), "[4 or a multiple, 1"),
            "… (of weight)": lambda o, name: Break({name: (2, 3)}, "[3, 2]"),
            "shape is one for each kernel": lambda o, name: Break(shape((4,), name), "[8]"),
            "shape is of the windows": lambda o, name: Break(shape((2, 8, 2, 2), name), "[2, 8, 3, 2]"),
            "windows": lambda o, name: Break(shape((2, 0, 5, 4), "self"), "no elements"),
            "allowed value": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
        },
        default=TRAINED,
        terms=4,  # sums of 6
    )
