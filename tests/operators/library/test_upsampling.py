"""Planes of another size, with gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind, Operator
from aclnn.operators.library import upsampling
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, no_samples, torch, wide

#: Of two samples with three channels: the extents before and after, by their number.
BEFORE, AFTER = {1: (4,), 2: (4, 3), 3: (2, 3, 2)}, {1: (7,), 2: (7, 5), 3: (3, 5, 3)}


def _rank(operator: Operator) -> int:
    found = re.search(r"(\d)d", operator.name)
    assert found
    return int(found[1])


def _call(operator: Operator) -> Callable[[D], Arguments]:
    """Without alignment only float32 and float16; elements half as far from one another again as the extents say."""
    small, large = (2, 3, *BEFORE[_rank(operator)]), (2, 3, *AFTER[_rank(operator)])

    def call(d: D) -> Arguments:
        tensors = {"self": small, "out": large, "gradOut": large, "gradOutput": large, "gradInput": small}
        if "backward" in operator.name:
            tensors["out"] = small
        numbers: Arguments = {p.name: 1.5 for p in operator.parameters if p.kind in (Kind.DOUBLE, Kind.FLOAT)}
        numbers |= {"alignCorners": d == D.BF16, "outputSize": large[2:], "inputSize": small}
        given = {name: T(d, tensors[name]) for name in tensors} | numbers
        return {p.name: given[p.name] for p in operator.parameters}

    return call


def _reference(operator: Operator) -> Callable[[Mapping[str, Any]], Any]:
    name = operator.name.removesuffix("_v2").replace("upsample_nearest_exact", "_upsample_nearest_exact")

    def interpolate(a: Mapping[str, Any]) -> Any:
        align = [a["alignCorners"]] if "alignCorners" in a else []
        scales = [a[p.name] for p in operator.parameters if p.kind in (Kind.DOUBLE, Kind.FLOAT)]
        shapes = [a["outputSize"], *([a["inputSize"]] if "inputSize" in a else [])]
        given = next(p.name for p in operator.parameters if p.kind is Kind.INPUT)
        return getattr(torch.ops.aten, name)(wide(a[given]), *shapes, *align, *scales)

    return interpolate


CALLS = {operator.name: _call(operator) for operator in upsampling.OPERATORS}

BREAKS: Mapping[str, Breaking] = {
    "extents after": lambda o, name: Break({name: (0,)}, "of at least 1"),
    "shape before": lambda o, name: Break({name: (2, 3)}, "of at least 1"),
    "planes": lambda o, name: Break(shape((2, 3), name), "(N, C"),
    "shape is the extents that are wanted": lambda o, name: Break(shape((2, 3, 1), name), "wanted"),
    "same data type as gradOutput": lambda o, name: Break({name: {"dtype": D.FLOAT16}}, "ACL_FLOAT"),
    "same data type as gradOut": lambda o, name: Break({name: {"dtype": D.FLOAT16}}, "ACL_FLOAT"),
}


class TestUpsampling(LibraryTests):
    subject = Subject(
        upsampling.OPERATORS,
        calls=CALLS,
        references={operator.name: _reference(operator) for operator in upsampling.OPERATORS},
        default=TRAINED,
        empty={
            operator.name: no_samples(operator, CALLS[operator.name](D.FLOAT))
            | ({"inputSize": (1, 3, *BEFORE[_rank(operator)])} if "backward" in operator.name else {})
            for operator in upsampling.OPERATORS
        },
        breaks=BREAKS,
        terms=4,  # a gradient takes up to eight shares
    )
