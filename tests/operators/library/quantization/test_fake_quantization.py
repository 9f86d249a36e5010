"""Numbers rounded to those that integers of few bits stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library.quantization import fake_quantization
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import Array, Break, Breaking, LibraryTests, Subject, computed, torch, wide

TENSOR, CHANNEL = (f"fake_quant_per_{kind}_affine_cachemask" for kind in ("tensor", "channel"))
LIMITS = {"quantMin": -3, "quantMax": 4, "mask": T(D.BOOL, (2, 3))}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    TENSOR: lambda d: LIMITS | {"scale": T(d, (1,)), "zeroPoint": T(D.INT32, (1,)), "fakeQuantEnabled": 1.0},
    CHANNEL: lambda d: LIMITS | {"scale": T(d, (3,)), "zeroPoint": T(D.INT32, (3,)), "axis": -1},
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    TENSOR: lambda a: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(
        wide(a["self"]).float(), a["scale"].item(), a["zeroPoint"].item(), a["quantMin"], a["quantMax"]
    ),
    CHANNEL: lambda a: torch.ops.aten.fake_quantize_per_channel_affine_cachemask(
        wide(a["self"]).float(), a["scale"].float(), a["zeroPoint"], 1, a["quantMin"], a["quantMax"]
    ),
}

BREAKS: Mapping[str, Breaking] = {
    "shape is one for each along the axis": lambda o, name: Break(shape((2,), name), "[3]"),
    "at most quantMax": lambda o, name: Break({name: 5}, "at most 4"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    """Scales by which division and multiplication are exact, and zeros that they have."""
    if name == "zeroPoint":
        return array % 3
    return np.array([0.5, 2, 1], array.dtype)[: array.size] if name == "scale" else array


class TestFakeQuantization(LibraryTests):
    subject = Subject(
        fake_quantization.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty={
            TENSOR: {"scale": {"shape": (1,)}, "zeroPoint": {"shape": (1,)}},
            CHANNEL: {"scale": {"shape": (3,)}, "zeroPoint": {"shape": (3,)}},
        },
        breaks=BREAKS,
        default=(D.FLOAT, D.FLOAT16),
        numbers=numbers,
    )


def test_numbers_stay_where_rounding_is_not_enabled() -> None:
    x, out, mask = np.array([-9, 0.3], np.float32), np.zeros(2, np.float32), np.zeros(2, bool)
    given = {"self": x, "scale": np.ones(1, np.float32), "zeroPoint": np.zeros(1, np.int32), "out": out, "mask": mask}
    found = computed(TENSOR, given | {"fakeQuantEnabled": 0.5, "quantMin": -3, "quantMax": 4})
    np.testing.assert_array_equal(found["out"], x)
    assert found["mask"].all()


def test_fractional_zero_points_of_channels_are_added_before_rounding() -> None:
    x, scale, zero = (np.array(of, np.float32) for of in ([[0.4, 1.0], [2.6, -7.0]], [1.0, 2.0], [0.25, 0.5]))
    out = {"out": np.zeros_like(x), "mask": np.zeros(x.shape, bool)}
    given = {"self": x, "scale": scale, "zeroPoint": zero, "axis": 0, "quantMin": -3, "quantMax": 1}
    found = computed(CHANNEL, given | out)
    assert found["out"].tolist() == [[0.75, 0.75], [1.0, -7.0]]
    assert found["mask"].tolist() == [[True, True], [False, True]]
