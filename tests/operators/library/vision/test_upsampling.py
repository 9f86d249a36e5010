"""Planes of another size, with gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.vision import upsampling
from tests.cases.table import INVALID, Arguments, T, changed, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    no_samples,
    torch,
    wide,
)

#: Of two samples with three channels: the extents before and after, by their number.
BEFORE, AFTER = {1: (4,), 2: (4, 3), 3: (2, 3, 2)}, {1: (7,), 2: (7, 5), 3: (3, 5, 3)}
#: Which make these extents of those, rounded down, except in volumes.
SCALES = {"scales": 1.75, "scaleL": 1.75, "scalesD": 1.5, "scalesH": 1.75, "scalesW": 1.7}
FIRST = {1: Format.FORMAT_NCL, 2: Format.FORMAT_NCHW, 3: Format.FORMAT_NCDHW}
LAST = {2: Format.FORMAT_NHWC, 3: Format.FORMAT_NDHWC}


def _rank(operator: Operator) -> int:
    found = re.search(r"(\d)d", operator.name)
    assert found
    return int(found[1])


def _is_gradient(operator: Operator) -> bool:
    return "inputSize" in {p.name for p in operator.parameters}


def _call(operator: Operator) -> Callable[[D], Arguments]:
    """Without alignment only float32 and float16; elements half as far from one another again as the extents say."""
    small, large = (2, 3, *BEFORE[_rank(operator)]), (2, 3, *AFTER[_rank(operator)])

    def call(d: D) -> Arguments:
        tensors = {
            "self": small,
            "x": small,
            "input": small,
            "out": large,
            "gradOut": large,
            "gradOutput": large,
            "gradInput": small,
        }
        if _is_gradient(operator):
            tensors["out"] = small
        numbers: Arguments = {"alignCorners": d == D.BF16, "outputSize": large[2:], "inputSize": small}
        given = {name: T(d, of, FIRST[_rank(operator)]) for name, of in tensors.items()} | SCALES | numbers
        return {p.name: given[p.name] for p in operator.parameters}

    return call


def _reference(operator: Operator) -> Callable[[Mapping[str, Any]], Any]:
    name = operator.name.removesuffix("_v2").replace("upsample_nearest_exact", "_upsample_nearest_exact")
    if "_aa" in name:
        name = f"_{name.replace('_grad', '_backward')}"

    def interpolate(a: Mapping[str, Any]) -> Any:
        align = [a["alignCorners"]] if "alignCorners" in a else []
        scales = [a[p.name] for p in operator.parameters if p.kind in (Kind.DOUBLE, Kind.FLOAT)]
        shapes = [a["outputSize"], *([a["inputSize"]] if "inputSize" in a else [])]
        given = next(p.name for p in operator.parameters if p.kind is Kind.INPUT)
        return getattr(torch.ops.aten, name)(wide(a[given]), *shapes, *align, *scales)

    return interpolate


CALLS = {operator.name: _call(operator) for operator in upsampling.OPERATORS}

BREAKS: Mapping[str, Breaking] = {
    "format that is taken": lambda o, name: Break({name: {"format": Format.FORMAT_HWCN}}, "format ACL_FORMAT_N"),
    "with channels last": lambda o, name: Break(dtype(D.DOUBLE, "self", "out"), "ACL_FORMAT_NHWC"),
    "not negative": lambda o, name: Break({name: -1.0}, "0 or more"),
    "goes with outputSize": lambda o, name: Break({name: 1.5}, "a scale that turns"),
    "elements to one": lambda o, name: Break({name: 0.01}, "at most 50"),
    "elements from one": lambda o, name: Break({name: 51.0}, "at most 50"),
    "extents after": lambda o, name: Break({name: (0,)}, "of at least 1"),
    "shape before": lambda o, name: Break({name: (2, 3)}, "of at least 1"),
    "planes": lambda o, name: Break(shape((2, 3), name), "(N, C"),
    "shape is the requested extents": lambda o, name: Break(shape((2, 3, 1), name), "requested"),
    "room for the requested extents": lambda o, name: Break(shape((2, 3, 3), name), "or a longer one"),
    **dict.fromkeys(
        ("same format as self", "same format as gradOut"),
        lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "format ACL_FORMAT_N"),
    ),
    **dict.fromkeys(
        (f"same data type as {given}" for given in ("gradOutput", "gradOut", "input", "x")),
        lambda o, name: Break({name: {"dtype": D.FLOAT16}}, "ACL_FLOAT"),
    ),
}


class TestUpsampling(LibraryTests):
    subject = Subject(
        upsampling.OPERATORS,
        calls=CALLS,
        references={operator.name: _reference(operator) for operator in upsampling.OPERATORS},
        default=TRAINED,
        empty={
            operator.name: no_samples(operator, CALLS[operator.name](D.FLOAT))
            | ({"inputSize": (1, 3, *BEFORE[_rank(operator)])} if _is_gradient(operator) else {})
            for operator in upsampling.OPERATORS
        },
        breaks=BREAKS,
        terms=4,  # a gradient takes up to eight shares
    )


@pytest.mark.parametrize("word", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_downsampling_is_antialiased(word: str, align: bool) -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 23, 40))
    planes = Placed(x.astype(np.float32), "contiguous")
    out = Placed(np.zeros((2, 3, 5, 7), np.float32), "contiguous")
    arguments = {"x": planes.tensor, "input": planes.tensor, "out": out.tensor, "outputSize": (5, 7)}
    operator = BY_NAME[f"upsample_{word}2d_aa"]
    arguments |= {"alignCorners": align, "scalesH": 0.0, "scalesW": 0.0}
    prepare(operator, {p.name: arguments[p.name] for p in operator.parameters}, Product.ASCEND_950).run()
    resize = getattr(torch.ops.aten, f"_upsample_{word}2d_aa")
    expected = resize(torch.from_numpy(planes.view.astype(np.float64)), (5, 7), align, None, None).numpy()
    np.testing.assert_allclose(out.view, expected, 1e-6, 1e-6)


def _channels_last(tensor: Any, rank: int) -> T:
    n, c, *places = tensor.shape
    return T(tensor.dtype, (n, *places, c), LAST[rank])


def _first(x: Any) -> Any:
    return np.moveaxis(x, -1, 1)


@pytest.mark.parametrize(
    "operator",
    [o for o in upsampling.OPERATORS if _rank(o) > 1 and o.name != "upsample_nearest_exact2d_backward"],
    ids=lambda operator: str(operator.name),
)
def test_channels_are_last_if_the_format_is_channels_last(operator: Operator) -> None:
    rank, call = _rank(operator), CALLS[operator.name](D.FLOAT)
    given, out = (next(p.name for p in operator.parameters if p.kind is kind) for kind in (Kind.INPUT, Kind.OUTPUT))
    product = next(each for each in (Product.ASCEND_950, Product.ATLAS_A2) if each in operator.support)
    lies = {name: _channels_last(call[name], rank) for name in (given, out)}
    x = np.random.default_rng(4).normal(size=lies[given].shape).astype(np.float32)
    placed = {given: Placed(x, "contiguous"), out: Placed(np.zeros(lies[out].shape, np.float32), "contiguous")}
    for name, each in placed.items():
        each.tensor.format = lies[name].format
    arguments = call | {name: each.tensor for name, each in placed.items()}
    if _is_gradient(operator) and rank == 2:
        arguments["inputSize"] = lies[out].shape
    prepare(operator, arguments, product).run()
    expected = _reference(operator)(call | {given: torch.from_numpy(np.ascontiguousarray(_first(x)))})
    np.testing.assert_allclose(_first(placed[out].view), expected.numpy(), 1e-6, 1e-6)


@pytest.mark.parametrize("name", ["upsample_nearest1d", "upsample_nearest2d", "upsample_nearest2d_v2"])
def test_the_nearest_elements_may_be_bytes_and_doubles(name: str) -> None:
    operator = BY_NAME[name]
    for d, values in ((np.uint8, np.arange(256)), (np.float64, np.array([1 / 3, -np.inf, 1e300, np.nan]))):
        size = BEFORE[_rank(operator)]
        x = np.resize(values, (2, 3, *size)).astype(d)
        out = Placed(np.zeros((2, 3, *AFTER[_rank(operator)]), d), "contiguous")
        x_placed = Placed(x, "contiguous")
        for each in (x_placed, out):
            each.tensor.format = FIRST[_rank(operator)]
        arguments = {"self": x_placed.tensor, "out": out.tensor, "outputSize": AFTER[_rank(operator)]} | SCALES
        prepare(operator, {p.name: arguments[p.name] for p in operator.parameters}, Product.ATLAS_A2).run()
        with_scales = [] if name != "upsample_nearest2d_v2" else [SCALES["scalesH"], SCALES["scalesW"]]
        resize = getattr(torch.ops.aten, name.removesuffix("_v2"))
        expected = resize(torch.from_numpy(x), AFTER[_rank(operator)], *with_scales)
        np.testing.assert_array_equal(out.view, expected.numpy())


def _run(name: str, given: Any, out: Any, product: Product = Product.ATLAS_A2, **numbers: Any) -> Any:
    operator = BY_NAME[name]
    placed = [Placed(np.asarray(array), "contiguous") for array in (given, out)]
    for each in placed:
        each.tensor.format = FIRST[_rank(operator)]
    tensors = {p.name: placed[p.kind is Kind.OUTPUT].tensor for p in operator.parameters if "PUT" in p.kind.name}
    arguments = tensors | numbers
    prepare(operator, {p.name: arguments[p.name] for p in operator.parameters}, product).run()
    return placed[1].view


@pytest.mark.parametrize("name", ["upsample_nearest_exact1d", "upsample_nearest_exact2d"])
def test_bytes_were_rejected_by_the_nearest_centres(name: str) -> None:
    size, after = BEFORE[_rank(BY_NAME[name])], AFTER[_rank(BY_NAME[name])]
    x = np.resize(np.arange(256), (2, 3, *size)).astype(np.uint8)
    none = {"scales": 0.0, "scalesH": 0.0, "scalesW": 0.0}
    got = _run(name, x, np.zeros((2, 3, *after), np.uint8), outputSize=after, **none)
    np.testing.assert_array_equal(got, getattr(torch.ops.aten, f"_{name}")(torch.from_numpy(x), after).numpy())


def test_lines_of_the_nearest_centres_were_rejected_on_ascend_950() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    out = np.zeros((1, 3, 5), np.float32)
    got = _run("upsample_nearest_exact1d", x, out, Product.ASCEND_950, outputSize=(5,), scales=0.0)
    np.testing.assert_array_equal(got, x[:, :, [0, 0, 1, 2, 2]])


def test_a_longer_gradient_of_the_nearest_centres_was_rejected() -> None:
    """The document's own sample has one, twice as long as ``inputSize`` says."""
    gradient = np.array([[[0, 1]], [[2, 5]]], np.float32)
    numbers = {"outputSize": (2,), "inputSize": (2, 1, 2), "scales": 2.0}
    got = _run("upsample_nearest_exact1d_backward", gradient, np.full((2, 1, 4), 9, np.float32), **numbers)
    np.testing.assert_array_equal(got, [[[1, 0, 0, 0]], [[7, 0, 0, 0]]])


def test_further_numbers_in_the_extents_of_planes_were_rejected() -> None:
    """CANN's sample makes an array of four numbers of two; what lies beyond is anything."""
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 4, 2)
    numbers = {"outputSize": (8, 4, 0, -7), "alignCorners": True, "scalesH": 0.5, "scalesW": 0.5}
    got = _run("upsample_bilinear2d", x, np.zeros((1, 1, 8, 4), np.float32), **numbers)
    expected = torch.ops.aten.upsample_bilinear2d(torch.from_numpy(x).double(), (8, 4), True)
    np.testing.assert_allclose(got, expected.numpy(), 1e-6)


@pytest.mark.parametrize(
    ("name", "change", "product", "text"),
    [
        ("upsample_nearest2d", {"self": {"format": Format.FORMAT_ND}}, Product.ATLAS_A2, "ACL_FORMAT_NCHW"),
        ("upsample_nearest1d", {"out": {"format": Format.FORMAT_ND}}, Product.ATLAS_A2, "format ACL_FORMAT_NCL"),
        ("upsample_bicubic2d_backward", {"gradOut": {"format": Format.FORMAT_NHWC}}, Product.ATLAS_A2, "ACL_FORMAT_ND"),
        ("upsample_trilinear3d", dtype(D.DOUBLE, "self", "out"), Product.ASCEND_950, "ACL_BF16"),
        ("upsample_nearest3d", dtype(D.UINT8, "self", "out"), Product.ATLAS_A2, "ACL_DOUBLE"),
        ("upsample_linear1d", {"scales": 0.0}, Product.ATLAS_A2, "turns 4 elements into 7"),
        ("upsample_bicubic2d", {"scalesW": 2.4}, Product.ATLAS_A2, "turns 3 elements into 5"),
    ],
)
def test_unsupported_formats_types_and_scales_are_rejected(
    name: str, change: Mapping[str, Any], product: Product, text: str
) -> None:
    arguments = described(changed(CALLS[name](D.FLOAT), change))
    with pytest.raises(AclnnError, match=text) as caught:
        prepare(BY_NAME[name], arguments, product)
    assert caught.value.code == INVALID


@pytest.mark.parametrize(
    ("name", "scales"), [("upsample_linear1d", {"scales": -1.0}), ("upsample_bicubic2d", {"scalesH": 0.0})]
)
def test_accepted_scales_by_product(name: str, scales: Mapping[str, float]) -> None:
    arguments = described(CALLS[name](D.FLOAT))
    prepare(BY_NAME[name], arguments | scales, Product.ATLAS_A2)
    prepare(BY_NAME[name], arguments | dict.fromkeys(scales, 0.3), Product.ASCEND_950)
