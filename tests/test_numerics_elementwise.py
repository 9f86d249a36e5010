"""The float32 derivatives against certified values: one input in 4,096, and every input where it is hard.

``make exhaustive`` does this for all 2^32 inputs; the bounds here are the worst errors it found, as docs/numerics.md
prints them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.exhaustive import BLOCK, FORMULAS, Tally, inputs_of, ours, reference, score

Array = np.ndarray[Any, Any]

WORST = {"silu": 0.932, "fast_gelu": 1.091, "gelu_erf": 1.033, "gelu_tanh": 1.064, "hardswish": 0.501}
ZEROS = {
    "silu": -1.278464543,
    "fast_gelu": -0.7511542554,
    "gelu_erf": -0.7517915247,
    "gelu_tanh": -0.7524614221,
    "hardswish": -1.5,
}
BOUNDS = {"silu": 5.0, "fast_gelu": 2.891522, "gelu_erf": 4.210462, "gelu_tanh": 4.17385, "hardswish": 3.0}
"""Where the segments end and the tail begins."""
SUBNORMAL = {
    "silu": (-109.5, -92.0),
    "fast_gelu": (-64.0, -53.5),
    "gelu_erf": (-14.6, -13.1),
    "gelu_tanh": (-10.95, -10.2),
}
"""From the first result that rounds to -0 to the first normal one."""
FAMILY = pytest.mark.parametrize("name", FORMULAS)


def tally(name: str, x: Array) -> Tally:
    found = Tally()
    exact, low = reference(name, x)
    found.broken = score(x, ours(name)(x), exact, low, found.counts, found.worst, found.profile, 0)
    return found


def around(value: float, count: int) -> Array:
    """As many neighbours of a float32 on either side."""
    bits = int(np.float32(abs(value)).view(np.int32))
    magnitudes = np.arange(bits - count, bits + count, dtype=np.int32).view(np.float32)
    return np.concatenate([magnitudes, -magnitudes])


@FAMILY
def test_one_input_in_4096(name: str) -> None:
    found = tally(name, np.concatenate([inputs_of(row, 4096) for row in range(4096)]))
    assert found.broken == 0
    assert found.counts.sum() > 1_000_000
    assert found.worst[:, 0].max() <= WORST[name]


@FAMILY
def test_the_neighbours_of_the_zero(name: str) -> None:
    assert tally(name, around(ZEROS[name], 20_000)).worst[:, 0].max() <= WORST[name]


@FAMILY
def test_both_sides_of_the_segments_end(name: str) -> None:
    assert tally(name, around(BOUNDS[name], 20_000)).worst[:, 0].max() <= WORST[name]


@pytest.mark.parametrize("name", SUBNORMAL)
def test_subnormal_results(name: str) -> None:
    """None is flushed to zero, and the last one before -0 is the smallest there is."""
    x = np.linspace(*SUBNORMAL[name], 50_001, dtype=np.float32)
    slopes = ours(name)(x)
    assert tally(name, x).worst[:, 0].max() <= WORST[name]
    exact, _ = reference(name, x)
    assert ((slopes == 0) == (np.abs(exact) <= 2.0**-150)).all() or np.abs(exact[slopes == 0]).max() < 2.0**-149
    assert np.abs(slopes[slopes != 0]).min() == np.float32(2.0**-149)
    assert np.signbit(slopes).all()


@FAMILY
def test_tiny_and_huge_inputs(name: str) -> None:
    x = np.concatenate([around(2.0**exponent, 50) for exponent in range(-125, 127)])
    assert tally(name, np.concatenate([x, [0.0, -0.0, 2.0**-149, -(2.0**-149)]]).astype(np.float32)).broken == 0
    assert tally(name, x).worst[:, 0].max() <= WORST[name]


@FAMILY
def test_infinities_and_nans(name: str) -> None:
    patterns = np.concatenate([np.arange(0x7F800001, 0x7FFFFFFF, 9973), np.arange(0xFF800001, 0xFFFFFFFF, 9973)])
    assert np.isnan(ours(name)(patterns.astype(np.uint32).view(np.float32))).all()
    low, high = ours(name)(np.array([-np.inf, np.inf], np.float32))
    if name in ("gelu_tanh", "hardswish"):
        assert (low, high) == (0.0, 1.0)
    else:
        assert np.isnan([low, high]).all()


@FAMILY
def test_random_gradients(name: str) -> None:
    """The product rounds once more: at most 2 units of the last place, subnormal products apart."""
    from aclnn import kernels
    from aclnn.dtypes import DataType
    from aclnn.tensor import Layout

    rng = np.random.default_rng(11)
    x = (rng.normal(size=BLOCK) * 3).astype(np.float32)
    dy = (rng.normal(size=BLOCK) * 2.0 ** rng.integers(-30, 30, BLOCK)).astype(np.float32)
    out = np.empty_like(x)
    layout = Layout(DataType.FLOAT, x.shape, (1,))
    plan = kernels.elementwise(FORMULAS[name], (layout, layout), layout)
    plan.run([dy.ctypes.data, x.ctypes.data], [out.ctypes.data], 0)
    exact, low = reference(name, x)
    found = Tally()
    score(x, out, exact * dy, low * dy, found.counts, found.worst, found.profile, 0)
    assert found.worst[:, 0].max() <= 2.0
