"""Memory shared by inputs and outputs, byte by byte, and by elements of a tensor."""

from __future__ import annotations

import ctypes
import tracemalloc
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels.layouts import Overlaps


def some_layout(rng: np.random.Generator) -> Layout | None:
    if rng.random() < 0.2:
        return None
    dims = rng.integers(0, 3)
    shape, strides = rng.integers(1, 4, dims).tolist(), rng.integers(-6, 7, dims).tolist()
    dtype = (DataType.UINT8, DataType.FLOAT16)[rng.integers(2)]
    return Layout(dtype, tuple(shape), tuple(strides), int(rng.integers(0, 3)))


def bytes_of(address: int, layout: Layout) -> set[int]:
    size = layout.dtype.itemsize
    starts = (layout.offset + sum(map(mul, index, layout.strides)) for index in product(*map(range, layout.shape)))
    return {address + start * size + byte for start in starts for byte in range(size)}


def test_layouts_that_share_a_byte_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        read, written = ([some_layout(rng) for _ in range(3)] for _ in range(2))
        inputs, outputs = rng.integers(100, 112, (2, 3)).tolist()
        in_place = {(i, k) for i, k in product(range(3), repeat=2) if rng.random() < 0.3}
        expected = {
            i
            for i, layout in enumerate(read)
            for k, target in enumerate(written)
            if layout is not None and target is not None
            if bytes_of(inputs[i], layout) & bytes_of(outputs[k], target)
            if not ((i, k) in in_place and inputs[i] == outputs[k])
        }
        assert set(Overlaps(read, written, in_place).among(inputs, outputs)) == expected


def test_a_copy_stands_in_for_what_will_be_overwritten() -> None:
    memory = np.arange(20, dtype=np.uint8)
    begin = memory.ctypes.data
    reversed_bytes, more, one = (
        Layout(DataType.UINT8, *dims) for dims in (((5,), (-1,), 2), ((4,), (1,)), ((1,), (1,)))
    )
    overlaps = Overlaps([reversed_bytes, more, None], [one])
    (first, second, third), copies = overlaps.apart([begin + 5, begin + 10, 7], [begin + 4])
    assert (second, third) == (begin + 10, 7)
    memory[:] = 0
    assert ctypes.string_at(first - 2, 5) == bytes([3, 4, 5, 6, 7])
    assert len(copies) == 1
    assert overlaps.apart([begin, begin + 10, 7], [begin + 9]) == ([begin, begin + 10, 7], [])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=4))
def test_no_two_elements_of_a_layout_that_calls_itself_distinct_coincide(dims: list[tuple[int, int]]) -> None:
    shape, strides = tuple(extent for extent, _ in dims), tuple(stride for _, stride in dims)
    places = [sum(map(mul, index, strides)) for index in product(*map(range, shape))]
    if Layout(DataType.FLOAT, shape, strides).distinct:
        assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("shape", "strides"), [((2, 3, 4), (12, 4, 1)), ((4, 3, 2), (1, 4, 12)), ((2, 3, 4), (-24, 4, 1)), ((1, 5), (0, 2))]
)
def test_permuted_reversed_and_padded_layouts_are_distinct(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert Layout(DataType.FLOAT, shape, strides).distinct


GATED_GRADIENTS = {
    "glu_backward": lambda dy, x, out: aclnn.glu_backward(dy, x, out=out),
    "swi_glu_grad": lambda dy, x, out: aclnn.swi_glu_grad(dy, x, out=out),
    "ge_glu_v3_backward": lambda dy, x, out: aclnn.ge_glu_v3_backward(dy, x, dy, out=out),
    "clipped_swiglu_grad": lambda dy, x, out: aclnn.clipped_swiglu_grad(dy, x, out=out),
}


@pytest.mark.parametrize("layout", ["rows of two halves", "every second", "columns"])
@pytest.mark.parametrize("name", GATED_GRADIENTS)
def test_the_two_parts_of_a_gated_gradient_take_no_memory_of_their_own(name: str, layout: str) -> None:
    """Interleaved halves share no element; computing them elsewhere and copying took forty times as long."""
    x, dy = np.ones((64, 512), np.float32), np.ones((64, 256), np.float32)
    out = np.empty((64, 1024), np.float32)[:, ::2] if layout == "every second" else np.empty_like(x)
    if layout == "columns":
        x, dy, out = (np.asfortranarray(array) for array in (x, dy, out))
    call: Any = GATED_GRADIENTS[name]
    call(dy, x, out)  # compiles
    tracemalloc.start()
    try:
        call(dy, x, out)
        assert tracemalloc.get_traced_memory()[1] < out.nbytes / 2
    finally:
        tracemalloc.stop()
