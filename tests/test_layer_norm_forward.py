"""LayerNorm's forward on the CPU: the same bits wherever the result lies, in place, and from every instruction set."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aclnn
from aclnn.dtypes import DataType
from exact import ulps
from instruction_sets import digests_elsewhere

Array = np.ndarray[Any, Any]

DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def call(dtype: np.dtype[Any], rows: int, columns: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(rows, columns)) * 3 + 1).astype(dtype)
    return x, rng.normal(size=columns).astype(dtype), rng.normal(size=columns).astype(dtype)


@EVERY_DTYPE
def test_statistics_are_float64_sums_rounded_once(dtype: np.dtype[Any]) -> None:
    x, weight, bias = call(dtype, 300, 1000)
    x += np.asarray(50, dtype)  # a mean far from zero: nothing of the spread may be lost
    out, mean, rstd = aclnn.layer_norm(x, (1000,), weight, bias)
    wide, w, b = (array.astype(np.float64) for array in (x, weight, bias))
    exact_mean = wide.mean(1, keepdims=True)
    exact_rstd = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_array_max_ulp(mean, exact_mean.astype(np.float32), 1)
    np.testing.assert_array_max_ulp(rstd, exact_rstd.astype(np.float32), 1)
    expected = (wide - exact_mean) * exact_rstd * w + b
    assert ulps(out, expected, DataType.of_numpy(dtype)).max() <= 0.51


@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_without_spread_divide_by_zero(rows: int) -> None:
    out, _, rstd = aclnn.layer_norm(np.full((rows, 64), 2.5, np.float32), (64,), eps=0.0)
    assert np.isnan(out).all()
    assert np.isposinf(rstd).all()


@EVERY_DTYPE
def test_a_large_result_is_the_same_at_any_address(dtype: np.dtype[Any]) -> None:
    """It is streamed in whole vectors, 16 bytes at a time or not at all."""
    x, weight, bias = call(dtype, 2304, 1024)
    small = np.concatenate([aclnn.layer_norm(part, (1024,), weight, bias)[0] for part in np.split(x, 9)])
    room = np.empty(x.size + 128, dtype)
    first = -room.ctypes.data % 64 // dtype.itemsize
    for shift in (0, 1, 16 // dtype.itemsize, 32 // dtype.itemsize):
        out = room[first + shift : first + shift + x.size].reshape(x.shape)
        aclnn.layer_norm(x, (1024,), weight, bias, out=(out, None, None))
        assert out.tobytes() == small.tobytes()


@pytest.mark.parametrize("columns", [256, 1000, 4096])
def test_large_results_in_place(columns: int) -> None:
    x, weight, bias = call(np.dtype(np.float32), (5 << 20) // 4 // columns, columns)
    expected, _, _ = aclnn.layer_norm(x, (columns,), weight, bias)
    aclnn.layer_norm(x, (columns,), weight, bias, out=(x, None, None))
    assert x.tobytes() == expected.tobytes()


def digest() -> str:
    found = hashlib.sha256()
    for dtype in DTYPES:
        for columns in (1, 15, 16, 50, 512):
            x, weight, bias = call(dtype, 20, columns)
            for result in (*aclnn.layer_norm(x, (columns,)), *aclnn.layer_norm(x, (columns,), weight, bias)):
                found.update(result.tobytes())
    return found.hexdigest()


def test_every_instruction_set_gives_the_same_bits() -> None:
    assert digests_elsewhere(__name__) == {digest()}


@pytest.mark.parametrize("rows", [30, 4000])
def test_where_results_coincide_the_last_one_stays(rows: int) -> None:
    x, weight, bias = call(np.dtype(np.float32), rows, 200)
    expected = aclnn.layer_norm(x, (200,), weight, bias)
    storage = np.zeros(202, np.float32)
    whole = np.lib.stride_tricks.as_strided(storage, (rows, 200), (0, 4))
    single = [np.lib.stride_tricks.as_strided(storage[i:], (rows, 1), (0, 4)) for i in (200, 201)]
    for _ in range(20):
        storage[:] = 0
        aclnn.layer_norm(x, (200,), weight, bias, out=(whole, *single))
        assert storage.tobytes() == b"".join(result[-1].tobytes() for result in expected)


def test_a_result_in_place_of_rows_that_overlap_is_that_of_the_rows_before() -> None:
    _, weight, bias = call(np.dtype(np.float32), 1, 64)
    storage = np.random.default_rng(4).normal(size=67).astype(np.float32)
    x = np.lib.stride_tricks.as_strided(storage, (4, 64), (4, 4))
    out = aclnn.layer_norm(x.copy(), (64,), weight, bias)[0]
    aclnn.layer_norm(x, (64,), weight, bias, out=(x, None, None))
    assert storage.tobytes() == out[:, 0][:3].tobytes() + out[3].tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is read from /proc")
def test_memory_that_cannot_be_had_is_an_error() -> None:
    """It was allocated by the threads, whose failure nobody heard of: the results stayed as they were."""
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "MemoryError\nuntouched\n"), done.stderr


_LIMITED = """
import resource
import numpy as np, aclnn
from aclnn.kernels.cpu import pool
pool.set_threads(2)
aclnn.layer_norm(np.ones((64, 4096), np.float32), (4096,))
x = np.ones((2, 20_000_000), np.float32)
out = [np.full(shape, 7, np.float32) for shape in ((2, 20_000_000), (2, 1), (2, 1))]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20),) * 2)
try:
    aclnn.layer_norm(x, (20_000_000,), out=tuple(out))
except MemoryError:
    print("MemoryError")
print("untouched" if all((array == 7).all() for array in out) else "written")
"""
