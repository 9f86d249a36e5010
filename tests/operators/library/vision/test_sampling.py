"""Planes and volumes sampled at the places of a grid, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.vision import sampling
from tests.cases.table import INVALID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    FLOATING,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    no_samples,
    to_torch,
    torch,
    wide,
)

SIZES, PLACES = {2: (4, 5), 3: (3, 4, 2)}, {2: (3, 2), 3: (2, 3, 2)}
NAMES = tuple(operator.name for operator in sampling.OPERATORS if operator.name.startswith("grid_sampler"))


def _rank(name: str) -> int:
    return 3 if "3d" in name else 2


def _call(name: str) -> Callable[[D], Arguments]:
    rank = _rank(name)
    images, found = (2, 3, *SIZES[rank]), (2, 3, *PLACES[rank])
    grid = (2, *PLACES[rank], rank)

    def call(d: D) -> Arguments:
        shapes = {"input": images, "grid": grid}
        if name.endswith("backward"):
            shapes |= {"gradOutput": found, "inputGrad": images, "gridGrad": grid}
        else:
            shapes |= {"out": found}
        given: Arguments = {each: T(d, of) for each, of in shapes.items()}
        given |= {"interpolationMode": 0, "paddingMode": 2, "alignCorners": d == D.FLOAT}
        return given | ({"outputMask": (True, True)} if name.endswith("backward") else {})

    return call


def _reference(a: Mapping[str, Any]) -> Any:
    attributes = (a["interpolationMode"], a["paddingMode"], a["alignCorners"])
    function = torch.grid_sampler_2d if a["grid"].shape[-1] == 2 else torch.grid_sampler_3d
    leaves = wide(a["input"]).requires_grad_(), wide(a["grid"]).requires_grad_()
    found = function(*leaves, *attributes)
    return torch.autograd.grad(found, leaves, wide(a["gradOutput"])) if "gradOutput" in a else found.detach()


def _affine_call(d: D) -> Arguments:
    return {
        "theta": T(d, (2, 3, 4)),
        "size": (2, 1, 2, 3, 2),
        "alignCorners": d == D.FLOAT,
        "out": T(d, (2, 2, 3, 2, 3)),
    }


def _affine_reference(a: Mapping[str, Any]) -> Any:
    return torch.nn.functional.affine_grid(wide(a["theta"]), a["size"], a["alignCorners"])


CALLS = {name: _call(name) for name in NAMES} | {"affine_grid": _affine_call}

BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.INT32, *_tensors(o)), "data type"),
    "same data type as input": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "allowed value": lambda o, name: Break({name: 5}, "0, 1 or 2" if name == "paddingMode" else "0"),
    "format of volumes": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_NDHWC"),
    "4 dimensions": lambda o, name: Break(shape((2, 3, 4), name), "4 dimensions"),
    "5 dimensions": lambda o, name: Break(shape((2, 3, 4), name), "5 dimensions"),
    "samples, coordinates": lambda o, name: Break(shape((1, *PLACES[_rank(o.name)], _rank(o.name)), name), "2 samples"),
    "shape is channels of input at places of grid": lambda o, name: Break(
        shape((2, 2, *PLACES[_rank(o.name)]), name), "channels of input"
    ),
    "planes that have elements": lambda o, name: Break(
        shape((2, 3, *SIZES[_rank(o.name)][:-1], 0), name), "have elements"
    ),
    "cubic curves are computed": lambda o, name: Break({name: 2}, "0 or 1", D.DOUBLE),
    "same shape as input": lambda o, name: Break(shape((2, 3, *SIZES[_rank(o.name)][:-1], 1), name), "that of input"),
    "same data type as theta": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "3 dimensions": lambda o, name: Break(shape((3, 4), name), "3 dimensions"),
    "extents": lambda o, name: Break({name: (2, 1, 0, 3)}, "of at least 1"),
    "shape is a matrix for each sample of size": lambda o, name: Break(shape((2, 2, 3), name), "[2, 3, 4]"),
    "shape is places of size": lambda o, name: Break(shape((2, 2, 3, 1, 3), name), "places of size"),
    "same shape as grid": lambda o, name: Break(shape((2, 3), name), "that of grid"),
}


def _tensors(operator: Operator) -> list[str]:
    return [p.name for p in operator.parameters if p.is_tensor]


def numbers(operator: str, name: str, array: Array) -> Array:
    """Places within and around the planes."""
    return array / 4 if name == "grid" else array


class TestSampling(LibraryTests):
    subject = Subject(
        sampling.OPERATORS,
        calls=CALLS,
        references=dict.fromkeys(NAMES, _reference) | {"affine_grid": _affine_reference},
        default=FLOATING,
        dtypes={"grid_sampler2d": (D.FLOAT, D.FLOAT16, D.DOUBLE), "affine_grid": (D.FLOAT, D.FLOAT16)},
        empty={name: no_samples(BY_NAME[name], CALLS[name](D.FLOAT)) for name in NAMES}
        | {
            "affine_grid": {
                "theta": {"shape": (0, 2, 3)},
                "size": (0, 1, 4, 5),
                "out": {"shape": (0, 4, 5, 2)},
            }
        },
        breaks=BREAKS,
        numbers=numbers,
        terms=8,  # a gradient takes shares of many places
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_every_mode_and_padding_is_pytorchs(rank: int) -> None:
    random = np.random.default_rng(3)
    name = f"grid_sampler{rank}d"
    x, grid = random.normal(size=(2, 2, *SIZES[rank])), random.normal(size=(2, *PLACES[rank], rank)) * 1.2
    # Corners, the middle, and a place that is one after several reflections.
    grid.reshape(-1, rank)[:4] = [[-1] * rank, [1] * rank, [0] * rank, [7.3] * rank]
    for mode, padding, align in product(range(4 - rank + 1), range(3), (False, True)):
        given = {"input": x, "grid": grid, "gradOutput": random.normal(size=(2, 2, *PLACES[rank]))}
        given = {key: value.astype(np.float32) for key, value in given.items()}
        outs = {"out": given["gradOutput"].shape, "inputGrad": x.shape, "gridGrad": grid.shape}
        placed = {key: Placed(value, "contiguous") for key, value in given.items()}
        placed |= {key: Placed(np.zeros(of, np.float32), "contiguous") for key, of in outs.items()}
        call = {key: each.tensor for key, each in placed.items()}
        call |= {"interpolationMode": mode, "paddingMode": padding, "alignCorners": align, "outputMask": (True, True)}
        torch_call = {key: to_torch(value) for key, value in given.items()} | {
            key: value for key, value in call.items() if key not in placed
        }
        for operator in (BY_NAME[name], BY_NAME[f"{name}_backward"]):
            arguments = {p.name: call[p.name] for p in operator.parameters}
            prepare(operator, arguments, Product.ASCEND_950).run()
        where = f"{mode} {padding} {align}"
        forward = _reference({key: torch_call[key] for key in torch_call if key != "gradOutput"})
        np.testing.assert_allclose(placed["out"].view, forward.numpy(), 1e-5, 1e-5, err_msg=where)
        for key, expected in zip(("inputGrad", "gridGrad"), _reference(torch_call), strict=True):
            np.testing.assert_allclose(placed[key].view, expected.numpy(), 1e-5, 1e-5, err_msg=f"{where} {key}")


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("backward")])
def test_unrequested_outputs_are_neither_checked_nor_written(name: str) -> None:
    operator, call = BY_NAME[name], CALLS[name](D.FLOAT)
    for mask in (None, (False, False)):
        prepare(operator, described(call | {"gridGrad": None, "outputMask": mask}), Product.ASCEND_950)
    with pytest.raises(AclnnError, match="gridGrad: expected an object"):
        prepare(operator, described(call | {"gridGrad": None, "outputMask": (True, False)}), Product.ASCEND_950)


@pytest.mark.parametrize(
    ("product", "of", "taken"),
    [
        (Product.ASCEND_950, D.BF16, True),
        (Product.ATLAS_A2, D.FLOAT16, True),
        (Product.ATLAS_A2, D.BF16, False),
        (Product.ATLAS_TRAINING, D.FLOAT, False),
    ],
)
def test_cubic_curves_are_computed_for_some_types_on_some_products(product: Product, of: D, taken: bool) -> None:
    call = described(CALLS["grid_sampler2d"](of) | {"interpolationMode": 2})
    if taken:
        prepare(BY_NAME["grid_sampler2d"], call, product)
        return
    with pytest.raises(AclnnError) as caught:
        prepare(BY_NAME["grid_sampler2d"], call, product)
    assert caught.value.code == INVALID


def test_coordinates_that_are_nan_or_far_away_sample_nothing() -> None:
    x = Placed(np.ones((1, 1, 2, 2), np.float32), "contiguous")
    grid = Placed(np.array([[np.nan, 0], [np.inf, 0], [3e38, 0], [0, 0]], np.float32).reshape(1, 1, 4, 2), "contiguous")
    out = Placed(np.full((1, 1, 1, 4), 7, np.float32), "contiguous")
    call = {"input": x.tensor, "grid": grid.tensor, "interpolationMode": 0, "paddingMode": 0, "alignCorners": True}
    prepare(BY_NAME["grid_sampler2d"], call | {"out": out.tensor}, Product.ASCEND_950).run()
    assert out.view.tolist() == [[[[0, 0, 0, 1]]]]


@pytest.mark.parametrize("name", ["grid_sampler2d", "grid_sampler2d_backward"])
def test_elements_outside_are_not_read(name: str) -> None:
    """The first element stood for it, times 0: one that is NaN made every sample at a border NaN."""
    x = np.array([[[[np.nan, 1], [1, 1]]]], np.float32)
    given = {
        "input": x,
        "grid": np.full((1, 1, 1, 2), 1.5, np.float32),
        "gradOutput": np.ones((1, 1, 1, 1), np.float32),
    }
    given |= {"out": given["gradOutput"], "inputGrad": x, "gridGrad": given["grid"]}
    placed = {key: Placed(value, "contiguous") for key, value in given.items()}
    call = {key: each.tensor for key, each in placed.items()} | {"outputMask": (True, True)}
    call |= {"interpolationMode": 0, "paddingMode": 0, "alignCorners": True}
    prepare(BY_NAME[name], {p.name: call[p.name] for p in BY_NAME[name].parameters}, Product.ASCEND_950).run()
    for key in ("out",) if name == "grid_sampler2d" else ("inputGrad", "gridGrad"):
        assert np.isfinite(placed[key].view).all(), key


@pytest.mark.parametrize("name", ["grid_sampler3d", "grid_sampler3d_backward"])
def test_channels_of_volumes_come_last_in_ndhwc(name: str) -> None:
    random, operator = np.random.default_rng(5), BY_NAME[name]
    given = {
        key: random.normal(size=value.shape).astype(np.float32) / (3 if key == "grid" else 1)
        for key, value in CALLS[name](D.FLOAT).items()
        if isinstance(value, T)
    }
    volumes = {key for key in given if not key.startswith("grid")}
    placed = {
        key: Placed(np.moveaxis(value, 1, -1) if key in volumes else value, "contiguous")
        for key, value in given.items()
    }
    for key in volumes:
        placed[key].tensor.format = Format.FORMAT_NDHWC
    call = CALLS[name](D.FLOAT) | {key: each.tensor for key, each in placed.items()}
    prepare(operator, call, Product.ATLAS_A2).run()
    expected = _reference(call | {key: to_torch(value) for key, value in given.items() if key != "out"})
    outs = [p.name for p in operator.parameters if p.kind is Kind.OUTPUT]
    for key, wanted in zip(outs, expected if len(outs) > 1 else [expected], strict=True):
        got = placed[key].view
        np.testing.assert_allclose(np.moveaxis(got, -1, 1) if key in volumes else got, wanted.numpy(), 1e-5, 1e-5)
