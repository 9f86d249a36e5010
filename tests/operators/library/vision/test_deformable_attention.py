"""Attention to points of feature maps, compared with PyTorch's sampling of grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.status import AclnnError
from aclnn.operators.library.vision import deformable_attention
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, computed, torch, wide

FORWARD, BACKWARD = "multi_scale_deformable_attn_function", "multi_scale_deformable_attention_grad"
SAMPLES, QUERIES, HEADS, CHANNELS, POINTS = 2, 32, 3, 8, 4
MAPS, STARTS, KEYS = np.array([[4, 5], [2, 3]]), np.array([0, 20]), 26
INPUTS = ("value", "location", "attnWeight")


def _forward(d: D) -> Arguments:
    index = D.INT32 if d == D.FLOAT16 else D.INT64
    return {
        "value": T(d, (SAMPLES, KEYS, HEADS, CHANNELS)),
        "spatialShape": T(index, (2, 2)),
        "levelStartIndex": T(index, (2,)),
        "location": T(d, (SAMPLES, QUERIES, HEADS, 2, POINTS, 2)),
        "attnWeight": T(d, (SAMPLES, QUERIES, HEADS, 2, POINTS)),
        "output": T(d, (SAMPLES, QUERIES, HEADS * CHANNELS)),
    }


def _backward(d: D) -> Arguments:
    call = dict(_forward(d))
    call["gradOutput"] = call.pop("output")
    return call | {"gradValue": call["value"], "gradLocation": call["location"], "gradAttnWeight": call["attnWeight"]}


def attended(value: Any, location: Any, weight: Any) -> Any:
    found = 0
    for level, ((rows, columns), start) in enumerate(zip(MAPS.tolist(), STARTS.tolist(), strict=True)):
        plane = value[:, start : start + rows * columns].permute(0, 2, 3, 1).reshape(-1, CHANNELS, rows, columns)
        grid = 2 * location[:, :, :, level].transpose(1, 2).reshape(-1, QUERIES, POINTS, 2) - 1
        sampled = torch.nn.functional.grid_sample(plane, grid, align_corners=False)
        shares = weight[:, :, :, level].transpose(1, 2).reshape(-1, 1, QUERIES, POINTS)
        found = found + (sampled * shares).sum(-1)
    return found.reshape(SAMPLES, HEADS * CHANNELS, QUERIES).transpose(1, 2)


def _differentiated(a: Mapping[str, Any]) -> Any:
    leaves = [wide(a[name]).requires_grad_() for name in INPUTS]
    attended(*leaves).backward(wide(a["gradOutput"]))
    return [leaf.grad for leaf in leaves]


def numbers(operator: str, name: str, array: Any) -> Any:
    if name in ("spatialShape", "levelStartIndex"):
        return MAPS if name == "spatialShape" else STARTS
    # Some points lie outside, and none where rounding decides which map's cell it lies in.
    return array / 8 + 0.5 if name == "location" else array / 4


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.INT8, name), "ACL_"),
    "same data type as value": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    **{
        f"{dims} dimension{'s' * (dims > 1)}": lambda o, name: Break(shape((2,) * 7, name), "dimension")
        for dims in (1, 2, 4, 5, 6)
    },
    "pairs": lambda o, name: Break(shape((*_forward(D.FLOAT)[name].shape[:-1], 3), name), "2 in the last"),
    "sizes with a kernel": lambda o, name: Break(shape((SAMPLES, QUERIES, 17, 2, POINTS, 2), name), "at most 16"),
    "channels with a kernel": lambda o, name: Break(shape((SAMPLES, KEYS, HEADS, 12), name), "a multiple of 8"),
    "shapes that go together": lambda o, name: _misfit(o, name),
}


def _misfit(operator: Operator, name: str) -> Break:
    other = {"spatialShape": (3, 2), "levelStartIndex": (3,), "value": (SAMPLES, KEYS, 2, CHANNELS)}
    call = _forward(D.FLOAT) | _backward(D.FLOAT)
    return Break(shape(other.get(name, (SAMPLES + 1, *call[name].shape[1:])), name), "shape [")


def _empty(call: Arguments) -> Arguments:
    """Return the call without samples."""
    maps = ("spatialShape", "levelStartIndex")
    return {
        name: value if name in maps else value._replace(shape=(0, *value.shape[1:])) for name, value in call.items()
    }


class TestDeformableAttention(LibraryTests):
    subject = Subject(
        deformable_attention.OPERATORS,
        calls={FORWARD: _forward, BACKWARD: _backward},
        references={FORWARD: lambda a: attended(*(wide(a[name]) for name in INPUTS)), BACKWARD: _differentiated},
        default=TRAINED,
        numbers=numbers,
        terms=64,
        empty={FORWARD: _empty(_forward(D.FLOAT)), BACKWARD: _empty(_backward(D.FLOAT))},
        breaks=BREAKS,
    )


def _one_map(location: float) -> dict[str, Any]:
    """Return the arguments of the published example of the gradients, with points at one place."""
    return {
        "value": np.ones((1, 1, 1, 8), np.float32),
        "spatialShape": np.array([[1, 1]], np.int32),
        "levelStartIndex": np.array([0], np.int32),
        "location": np.full((1, 32, 1, 1, 1, 2), location, np.float32),
        "attnWeight": np.ones((1, 32, 1, 1, 1), np.float32),
    }


def test_the_published_gradients() -> None:
    """Each corner point has a quarter of the map's only cell, from which it moves away with x and y."""
    given = _one_map(0.0) | {
        "gradOutput": np.ones((1, 32, 8), np.float32),
        "gradValue": np.zeros((1, 1, 1, 8), np.float32),
        "gradLocation": np.zeros((1, 32, 1, 1, 1, 2), np.float32),
        "gradAttnWeight": np.zeros((1, 32, 1, 1, 1), np.float32),
    }
    found = computed(BACKWARD, given)
    assert (found["gradValue"] == 32 / 4).all()
    assert (found["gradLocation"] == 8 / 2).all()
    assert (found["gradAttnWeight"] == 8 / 4).all()


def test_points_far_outside_or_nowhere_add_nothing() -> None:
    for place in (1e30, -np.inf, np.nan, 1.6):
        assert not computed(FORWARD, _one_map(place) | {"output": np.ones((1, 32, 8), np.float32)})["output"].any()
    assert (computed(FORWARD, _one_map(0.5) | {"output": np.zeros((1, 32, 8), np.float32)})["output"] == 1).all()


def test_few_queries_are_rejected_forwards_only() -> None:
    few = {
        name: value[:, :31] if name in ("location", "attnWeight") else value for name, value in _one_map(0.5).items()
    }
    with pytest.raises(AclnnError, match="at least 32 queries, got 31"):
        computed(FORWARD, few | {"output": np.zeros((1, 31, 8), np.float32)})
    given = few | {"gradOutput": np.ones((1, 31, 8), np.float32), "gradValue": np.zeros((1, 1, 1, 8), np.float32)}
    given |= {"gradLocation": np.zeros_like(few["location"]), "gradAttnWeight": np.zeros_like(few["attnWeight"])}
    assert (computed(BACKWARD, given)["gradAttnWeight"] == 8).all()


def test_a_map_beyond_the_keys_is_reported() -> None:
    given = _one_map(0.5) | {"spatialShape": np.array([[1, 2]], np.int32), "output": np.zeros((1, 32, 8), np.float32)}
    with pytest.raises(AclnnError, match="spatialShape: expected numbers from 0 to 1, got 2"):
        computed(FORWARD, given)
    given |= {"spatialShape": np.array([[1, 1]], np.int32), "levelStartIndex": np.array([1], np.int32)}
    with pytest.raises(AclnnError, match="levelStartIndex: expected ends of maps from 0 to 1, got 2"):
        computed(FORWARD, given)
