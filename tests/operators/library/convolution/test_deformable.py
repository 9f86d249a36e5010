"""Convolutions that sample their input at offsets."""

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
from aclnn.operators.library.convolution import deformable
from tests.cases.table import INVALID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    label_by_rank,
    labelled,
    torch,
)

CONV, BACK = "deformable_conv2d", "deformable_conv2d_backward"
#: Two samples of four channels in two groups for three kernels each; offsets for two groups; a kernel of 3 × 2.
X, WEIGHT, OFFSET, OUT, SAMPLES = (2, 4, 5, 4), (6, 2, 3, 2), (2, 36, 3, 3), (2, 6, 3, 3), (2, 4, 9, 6)
OPTIONS: Arguments = {
    "kernelSize": (3, 2),
    "stride": (1, 1, 2, 1),
    "padding": (1, 2, 0, 1),
    "dilation": (1, 1, 1, 2),
    "groups": 2,
    "deformableGroups": 2,
    "modulated": True,
}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    CONV: labelled(
        lambda d: {
            "x": T(d, X),
            "weight": T(d, WEIGHT),
            "offset": T(d, OFFSET),
            "biasOptional": T(d, (6,)),
            **OPTIONS,
            "out": T(d, OUT),
            "deformOutOptional": T(d, SAMPLES),
        }
    ),
    BACK: labelled(
        lambda d: {
            "input": T(d, X),
            "gradOutput": T(d, OUT),
            "offsetOut": T(d, SAMPLES),
            "weight": T(d, WEIGHT),
            "offset": T(d, OFFSET),
            **OPTIONS,
            "gradInput": T(d, X),
            "gradWeight": T(d, WEIGHT),
            "gradOffset": T(d, OFFSET),
            "gradBias": T(d, (6,)),
        }
    ),
}


def _sampled(x: Any, offset: Any) -> Any:
    """PyTorch's grid_sample, a kernel's element and a group at a time."""
    samples = torch.zeros(SAMPLES, dtype=torch.float64)
    right, down, factors = offset.unflatten(1, (3, 2, 3, 2)).unbind(1)
    for group in range(2):
        planes = x[:, 2 * group : 2 * group + 2]
        for row in range(3):
            for column in range(2):
                y = torch.arange(3)[:, None] * 2 - 1 + row + down[:, group, row, column]
                across = torch.arange(3) + column * 2 + right[:, group, row, column]
                grid = torch.stack((across * 2 / 3 - 1, y * 2 / 4 - 1), -1)
                found = torch.nn.functional.grid_sample(planes, grid, align_corners=True)
                found = found * factors[:, group, row, column][:, None]
                places = torch.zeros_like(samples)
                places[:, 2 * group : 2 * group + 2, row::3, column::2] = 1
                spread = torch.zeros_like(samples)
                spread[:, 2 * group : 2 * group + 2, row::3, column::2] = found
                samples = samples + places * spread
    return samples


def _convolved(a: Mapping[str, Any]) -> Any:
    x, weight, offset, bias = (a[name].double() for name in ("x", "weight", "offset", "biasOptional"))
    samples = _sampled(x, offset)
    return torch.nn.functional.conv2d(samples, weight, bias, stride=(3, 2), groups=2), samples


def _gradients(a: Mapping[str, Any]) -> Any:
    """The gradient of the kernels comes from the samples that are given, whatever they are."""
    grad, samples = a["gradOutput"].double(), a["offsetOut"].double()
    x, weight, offset = (a[name].double().requires_grad_() for name in ("input", "weight", "offset"))
    bias = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    convolve = torch.nn.functional.conv2d
    of_x, of_offset = torch.autograd.grad(
        convolve(_sampled(x, offset), weight.detach(), stride=(3, 2), groups=2), (x, offset), grad
    )
    others = torch.autograd.grad(convolve(samples, weight, bias, stride=(3, 2), groups=2), (weight, bias), grad)
    return of_x, others[0], of_offset, others[1]


def _on_950(expected: str, change: Callable[[str], Mapping[str, Any]]) -> Breaking:
    return lambda o, name: Break(change(name), expected, product=Product.ASCEND_950)


NAMED = ("x", "input")
BREAKS: Mapping[str, Breaking] = {
    "present": _on_950("an object", lambda name: {name: None}),
    "kernel of the product": lambda o, name: Break({}, "one with a kernel"),
    "data type": _on_950("ACL_FLOAT", lambda name: dtype(D.INT8, name)),
    **{f"same data type as {x}": _on_950("ACL_FLOAT", lambda name: dtype(D.FLOAT16, name)) for x in NAMED},
    "format ACL_FORMAT_NCHW": _on_950("ACL_FORMAT_NCHW", lambda name: {name: {"format": Format.FORMAT_ND}}),
    "format ACL_FORMAT_ND": _on_950("ACL_FORMAT_ND", lambda name: {name: {"format": Format.FORMAT_NCHW}}),
    "format of planes": lambda o, name: Break({name: {"format": Format.FORMAT_NHWC}}, "ACL_FORMAT_NCHW or"),
    **{
        f"same format as {x}": _on_950("ACL_FORMAT_NCHW", lambda name: {name: {"format": Format.FORMAT_ND}})
        for x in NAMED
    },
    **dict.fromkeys(("2 numbers", "4 numbers"), _on_950("numbers", lambda name: {name: (1,)})),
    "a kernel": _on_950("at most 2048", lambda name: {name: (2049, 1)}),
    "1, 1 and two steps": _on_950("1, 1 and two", lambda name: {name: (1, 1, 0, 1)}),
    "numbers of at least 0": _on_950("at least 0", lambda name: {name: (0, 0, 0, -1)}),
    "some": _on_950("at least 1", lambda name: {name: 0}),
    "allowed value": _on_950("True", lambda name: {name: False}),
    "4 dimensions": _on_950("4 dimensions", lambda name: shape((2, 4, 5), name)),
    "1 dimension": _on_950("1 dimension", lambda name: shape((6, 1), name)),
    "of deformableGroups": _on_950("a multiple of 3", lambda name: {"deformableGroups": 3}),
    "of groups": _on_950(
        "a multiple of", lambda name: {"groups": 3} if name != "weight" else shape((5, 2, 3, 2), "weight")
    ),
    "at most 2147483647 elements": _on_950("a channel", lambda name: shape((2, 4, 65536, 65536), name)),
    "shape is a kernel of these channels": _on_950("[6, 2, 3, 2]", lambda name: shape((6, 4, 3, 2), name)),
    "shape is offsets of all samples": _on_950("[2, 36, 3, 3]", lambda name: shape((2, 24, 3, 3), name)),
    "shape is a number for each kernel": _on_950("[6]", lambda name: shape((4,), name)),
    "shape is an output for each kernel": _on_950("[2, 6, 3, 3]", lambda name: shape((2, 6, 3, 4), name)),
    "shape is all samples": _on_950("[2, 4, 9, 6]", lambda name: shape((2, 4, 3, 3), name)),
    "same shape as input": _on_950("[2, 4, 5, 4]", lambda name: shape((2, 4, 5, 5), name)),
    "same shape as weight": _on_950("[6, 2, 3, 2]", lambda name: shape((6, 2, 3, 3), name)),
    "same shape as offset": _on_950("[2, 36, 3, 3]", lambda name: shape((2, 36, 3, 4), name)),
    "at most 65535 terms": _on_950("65535 terms", lambda name: _many(name)),
}


def _many(x: str) -> Mapping[str, Any]:
    """More channels than a sum may have terms."""
    channels = 21846
    kernels = {"shape": (6, channels // 2, 3, 2)}
    planes, samples = {"shape": (2, channels, 5, 4)}, {"shape": (2, channels, 9, 6)}
    if x == "x":
        return {"x": planes, "weight": kernels, "deformOutOptional": samples}
    return {"input": planes, "gradInput": planes, "weight": kernels, "gradWeight": kernels, "offsetOut": samples}


def _numbers(operator: str, name: str, array: Any) -> Any:
    """Between elements, where gradients are no matter of definition."""
    return array / 4 + 0.13 if name == "offset" else array


class TestDeformable(LibraryTests):
    subject = Subject(
        deformable.OPERATORS,
        calls=CALLS,
        references={CONV: _convolved, BACK: _gradients},
        default=TRAINED,
        empty={
            CONV: {
                name: {"shape": (0, *of[1:])}
                for name, of in (("x", X), ("offset", OFFSET), ("out", OUT), ("deformOutOptional", SAMPLES))
            }
            | {"weight": {"shape": WEIGHT}, "biasOptional": {"shape": (6,)}},
            BACK: {
                name: {"shape": (0, *of[1:])}
                for name, of in (
                    *(("input", X), ("offset", OFFSET), ("gradOutput", OUT), ("offsetOut", SAMPLES)),
                    *(("gradInput", X), ("gradOffset", OFFSET)),
                )
            }
            | {"weight": {"shape": WEIGHT}, "gradWeight": {"shape": WEIGHT}, "gradBias": {"shape": (6,)}},
        },
        breaks=BREAKS,
        numbers=_numbers,
        codes={"kernel of the product": INVALID},
        terms=16,
    )


def test_planes_may_lack_a_format_before_ascend_950() -> None:
    call = described(CALLS[CONV](D.FLOAT))
    for name in ("x", "weight", "offset", "out", "deformOutOptional"):
        call[name].format = Format.FORMAT_ND
    prepare(BY_NAME[CONV], call, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="x: expected format ACL_FORMAT_NCHW, got ACL_FORMAT_ND"):
        prepare(BY_NAME[CONV], call, Product.ASCEND_950)


def test_deformable_convolution_without_offsets_is_a_plain_one() -> None:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=X).astype(np.float32), random.normal(size=WEIGHT).astype(np.float32)
    offset = np.zeros(OFFSET, np.float32)
    offset[:, 24:] = 1
    placed = {"x": x, "weight": weight, "offset": offset, "out": np.zeros(OUT, np.float32)}
    views = {name: Placed(array, "contiguous") for name, array in placed.items()}
    label_by_rank(views)
    call = {name: each.tensor for name, each in views.items()}
    call |= OPTIONS | dict.fromkeys(("biasOptional", "deformOutOptional"))
    prepare(BY_NAME[CONV], call, Product.ASCEND_950).run()
    padded = torch.nn.functional.pad(torch.from_numpy(x), (0, 1, 1, 2))
    expected = torch.nn.functional.conv2d(padded, torch.from_numpy(weight), stride=(2, 1), dilation=(1, 2), groups=2)
    np.testing.assert_allclose(views["out"].view, expected, 1e-4, 1e-5)
