"""Planes of another size, with gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind, Operator
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library import upsampling
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    no_samples,
    torch,
    wide,
)

#: Of two samples with three channels: the extents before and after, by their number.
BEFORE, AFTER = {1: (4,), 2: (4, 3), 3: (2, 3, 2)}, {1: (7,), 2: (7, 5), 3: (3, 5, 3)}


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
        numbers: Arguments = {p.name: 1.5 for p in operator.parameters if p.kind in (Kind.DOUBLE, Kind.FLOAT)}
        numbers |= {"alignCorners": d == D.BF16, "outputSize": large[2:], "inputSize": small}
        given = {name: T(d, tensors[name]) for name in tensors} | numbers
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
    "elements to one": lambda o, name: Break({name: 0.01}, "at most 50"),
    "extents after": lambda o, name: Break({name: (0,)}, "of at least 1"),
    "shape before": lambda o, name: Break({name: (2, 3)}, "of at least 1"),
    "planes": lambda o, name: Break(shape((2, 3), name), "(N, C"),
    "shape is the extents that are wanted": lambda o, name: Break(shape((2, 3, 1), name), "wanted"),
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
def test_fewer_elements_are_antialiased(word: str, align: bool) -> None:
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
