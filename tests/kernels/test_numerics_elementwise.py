"""The float32 activations and their derivatives against exact values: one input in 4,096, and all where it is hard.

``make exhaustive`` does this for all 2^32 inputs; the bounds here are the worst errors it found, as docs/numerics.md
prints them.
"""

from __future__ import annotations

import csv

import numpy as np
import pytest

from aclnn.core.dtypes import DataType
from aclnn.kernels.fitted import version
from benchmarks.candidates import ours
from benchmarks.exhaustive import HERE, Tally, bits_of, inputs_of, score
from benchmarks.references import EVERY, FORMULAS, FORWARDS, Array, reference

pytestmark = pytest.mark.slow

WORST = {
    "silu": 0.899,
    "fast_gelu": 0.949,
    "gelu_erf": 0.972,
    "gelu_tanh": 0.969,
    "hardswish": 0.501,
    "silu_forward": 0.89,
    "fast_gelu_forward": 0.884,
    "gelu_erf_forward": 0.951,
    "gelu_tanh_forward": 0.919,
    "hardswish_forward": 0.501,
}
ZEROS = {
    "silu": -1.278464543,
    "fast_gelu": -0.7511542554,
    "gelu_erf": -0.7517915247,
    "gelu_tanh": -0.7524614221,
    "hardswish": -1.5,
}
BOUNDS = {name: getattr(version(function, DataType.FLOAT), "bound", 3.0) for name, function in EVERY.items()}
"""Ends of the fitted versions, and Hardswish's kinks."""
SUBNORMAL = {
    "silu": (-109.5, -92.0),
    "fast_gelu": (-64.0, -53.5),
    "gelu_erf": (-14.6, -13.1),
    "gelu_tanh": (-10.95, -10.2),
    "silu_forward": (-110.0, -91.0),
    "fast_gelu_forward": (-65.0, -53.0),
    "gelu_erf_forward": (-14.6, -13.0),
    "gelu_tanh_forward": (-10.95, -10.1),
}
"""From results that round to -0 to normal ones."""
ALL = pytest.mark.parametrize("name", EVERY)


def tally(name: str, x: Array) -> Tally:
    found = Tally()
    found.broken = score(x, ours(name)(x), reference(name, x), found.counts, found.worst, found.profile, 0)
    return found


def around(value: float, count: int) -> Array:
    """Return a number of neighbours of a float32 on each side, with both signs."""
    bits = int(np.float32(abs(value)).view(np.int32))
    magnitudes = np.arange(max(bits - count, 0), bits + count, dtype=np.int32).view(np.float32)
    return np.concatenate([magnitudes, -magnitudes])


@pytest.mark.long
@ALL
def test_results_have_the_bits_of_the_exhaustive_walk(name: str) -> None:
    """The exhaustive walk must be repeated when bits change."""
    with open(HERE / "exhaustive_bits.csv", newline="") as file:
        walked = {row["operator"]: row["sha256"] for row in csv.DictReader(file)}
    assert bits_of(name) == walked[name]


@ALL
def test_one_input_in_4096_is_within_the_bound(name: str) -> None:
    found = tally(name, np.concatenate([inputs_of(row, 4096) for row in range(4096)]))
    assert found.broken == 0
    assert found.counts.sum() > 1_000_000
    assert found.worst[:, 0].max() <= WORST[name]


@pytest.mark.parametrize("name", FORMULAS)
def test_neighbours_of_the_derivatives_zero_are_within_the_bound(name: str) -> None:
    assert tally(name, around(ZEROS[name], 20_000)).worst[:, 0].max() <= WORST[name]


@ALL
def test_both_sides_of_segment_ends_are_within_the_bound(name: str) -> None:
    assert tally(name, around(BOUNDS[name], 20_000)).worst[:, 0].max() <= WORST[name]


@pytest.mark.parametrize("name", SUBNORMAL)
def test_subnormal_results_are_kept(name: str) -> None:
    """No result is flushed to zero, and the last one before -0 is the smallest subnormal number."""
    x = np.linspace(*SUBNORMAL[name], 50_001, dtype=np.float32)
    got = ours(name)(x)
    assert tally(name, x).worst[:, 0].max() <= WORST[name]
    assert np.abs(reference(name, x)[got == 0]).max() < 2.0**-149
    assert np.abs(got[got != 0]).min() == np.float32(2.0**-149)
    assert np.signbit(got).all()


@ALL
def test_tiny_and_huge_inputs_are_within_the_bound(name: str) -> None:
    x = np.concatenate([around(2.0**exponent, 50) for exponent in range(-149, 127)])
    largest = np.finfo(np.float32).max
    found = tally(name, np.concatenate([x, [0.0, -0.0, largest, -largest]]).astype(np.float32))
    assert found.broken == 0
    assert found.worst[:, 0].max() <= WORST[name]


@pytest.mark.parametrize("name", FORWARDS)
def test_zeros_keep_their_sign(name: str) -> None:
    got = ours(name)(np.array([0.0, -0.0], np.float32))
    assert (got == 0).all()
    assert np.signbit(got).tolist() == [False, True]


LIMITS = dict.fromkeys(FORMULAS, (np.nan, np.nan)) | dict.fromkeys(FORWARDS, (np.nan, np.inf))
LIMITS |= {"gelu_tanh": (0.0, 1.0), "hardswish": (0.0, 1.0), "hardswish_forward": (0.0, np.inf)}
"""At -inf and inf."""


@ALL
def test_infinities_and_nans_follow_the_table(name: str) -> None:
    patterns = np.concatenate([np.arange(0x7F800001, 0x7FFFFFFF, 9973), np.arange(0xFF800001, 0xFFFFFFFF, 9973)])
    assert np.isnan(ours(name)(patterns.astype(np.uint32).view(np.float32))).all()
    np.testing.assert_array_equal(ours(name)(np.array([-np.inf, np.inf], np.float32)), LIMITS[name])
