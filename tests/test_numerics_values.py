"""The float32 activations against exact values: one input in 4,096, and every input where it is hard.

``make exhaustive`` does this for all 2^32 inputs; the bounds here are the worst errors it found, as docs/numerics.md
prints them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.exhaustive import FORWARDS, Tally, forward_reference, inputs_of, ours, score

import exact
from aclnn.kernels.cpu import values_coefficients
from cases import CASE_BY_NAME

Array = np.ndarray[Any, Any]

WORST = {
    "silu_forward": 0.91,
    "fast_gelu_forward": 0.924,
    "gelu_erf_forward": 1.075,
    "gelu_tanh_forward": 1.038,
    "hardswish_forward": 0.501,
}
BOUNDS = {
    "silu_forward": values_coefficients.SILU.bound,
    "fast_gelu_forward": values_coefficients.FAST_GELU.bound,
    "gelu_erf_forward": values_coefficients.GELU_ERF.bound,
    "gelu_tanh_forward": values_coefficients.GELU_TANH.bound,
    "hardswish_forward": 3.0,
}
"""Where the segments end and the tail begins."""
SUBNORMAL = {
    "silu_forward": (-110.0, -91.0),
    "fast_gelu_forward": (-65.0, -53.0),
    "gelu_erf_forward": (-14.6, -13.0),
    "gelu_tanh_forward": (-10.95, -10.1),
}
"""From results that round to -0 to normal ones."""
FAMILY = pytest.mark.parametrize("name", FORWARDS)


def tally(name: str, x: Array) -> Tally:
    found, wide = Tally(), np.where(np.isfinite(x), x, 0.0).astype(np.float64)
    low = np.zeros_like(wide)
    found.broken = score(
        x, ours(name)(x), forward_reference(name, wide), low, found.counts, found.worst, found.profile, 0
    )
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
def test_both_sides_of_the_segments_end(name: str) -> None:
    assert tally(name, around(BOUNDS[name], 20_000)).worst[:, 0].max() <= WORST[name]


@pytest.mark.parametrize("name", SUBNORMAL)
def test_subnormal_results(name: str) -> None:
    """None is flushed to zero, and the last one before -0 is the smallest there is."""
    x = np.linspace(*SUBNORMAL[name], 50_001, dtype=np.float32)
    values = ours(name)(x)
    assert tally(name, x).worst[:, 0].max() <= WORST[name]
    assert np.abs(forward_reference(name, x.astype(np.float64))[values == 0]).max() < 2.0**-149
    assert np.abs(values[values != 0]).min() == np.float32(2.0**-149)
    assert np.signbit(values).all()


@FAMILY
def test_tiny_and_huge_inputs(name: str) -> None:
    x = np.concatenate([around(2.0**exponent, 50) for exponent in range(-149, 127)])
    x = np.concatenate([x, [2.0**-149, -(2.0**-149), np.finfo(np.float32).max, np.finfo(np.float32).min]])
    found = tally(name, x.astype(np.float32))
    assert found.broken == 0
    assert found.worst[:, 0].max() <= WORST[name]


@FAMILY
def test_zeros_keep_their_sign(name: str) -> None:
    got = ours(name)(np.array([0.0, -0.0], np.float32))
    assert (got == 0).all()
    assert np.signbit(got).tolist() == [False, True]


@FAMILY
def test_infinities_and_nans(name: str) -> None:
    patterns = np.concatenate([np.arange(0x7F800001, 0x7FFFFFFF, 9973), np.arange(0xFF800001, 0xFFFFFFFF, 9973)])
    assert np.isnan(ours(name)(patterns.astype(np.uint32).view(np.float32))).all()
    low, high = ours(name)(np.array([-np.inf, np.inf], np.float32))
    assert high == np.inf
    assert low == 0.0 if name == "hardswish_forward" else np.isnan(low)


CURVES = {
    "silu_forward": ("silu", "silu"),
    "fast_gelu_forward": ("fast_gelu", "fast_gelu"),
    "gelu_erf_forward": ("gelu_v2", "gelu_v2_erf"),
    "gelu_tanh_forward": ("gelu_v2", "gelu_v2_tanh"),
    "hardswish_forward": ("hardswish", "hardswish"),
}


@FAMILY
def test_the_reference_is_within_2_16_of_a_unit(name: str) -> None:
    """Against ball arithmetic, over the whole range."""
    operator, curve = CURVES[name]
    forward = CASE_BY_NAME[operator].curves[curve].forward
    rng = np.random.default_rng(5)
    normal, wide = rng.normal(size=500), rng.normal(size=500) * 2.0 ** rng.integers(-20, 8, 500)
    x = np.concatenate([normal * 4, wide]).astype(np.float32).astype(np.float64)
    certain = exact.values(forward, x)
    got = forward_reference(name, x)
    error = np.abs(got - certain) / np.maximum(np.abs(certain) * 2.0**-24, 2.0**-149)
    assert error.max() <= 2.0**-16


PROGRAM = """
import hashlib, sys
import numpy as np
from benchmarks.exhaustive import FORWARDS, ours
x = np.arange(0, 1 << 32, int(sys.argv[1]), dtype=np.uint32).view(np.float32)
digest = hashlib.sha256()
for name in FORWARDS:
    got = ours(name)(x)
    digest.update(np.where(np.isnan(got), np.float32(np.nan), got).tobytes())
print(digest.hexdigest())
"""


def digest(stride: int, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(stride)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_instruction_set_gives_the_same_bits() -> None:
    machine = digest(99_991)
    assert digest(99_991, ACLNN_VECTOR="generic") == machine
    if sys.platform != "darwin":  # the plainest processor there has these instructions
        assert digest(99_991, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == machine
