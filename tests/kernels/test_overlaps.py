"""Which inputs share memory with which outputs, byte by byte, and which elements of a tensor with one another."""

from __future__ import annotations

import ctypes
from itertools import product
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels.layouts import Overlaps, Span


def some_span(rng: np.random.Generator) -> Span | None:
    return None if rng.random() < 0.2 else (int(rng.integers(-6, 1)), int(rng.integers(1, 7)))


def bytes_of(address: int, span: Span) -> set[int]:
    return set(range(address + span[0], address + span[1]))


def test_those_that_share_a_byte() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        read, written = ([some_span(rng) for _ in range(3)] for _ in range(2))
        inputs, outputs = rng.integers(100, 112, (2, 3)).tolist()
        alike = {(i, k) for i, k in product(range(3), repeat=2) if rng.random() < 0.3}
        expected = {
            i
            for i, span in enumerate(read)
            for k, target in enumerate(written)
            if span is not None and target is not None
            if bytes_of(inputs[i], span) & bytes_of(outputs[k], target)
            if not ((i, k) in alike and inputs[i] == outputs[k])
        }
        assert set(Overlaps(read, written, alike).among(inputs, outputs)) == expected


def test_a_copy_stands_in_for_what_will_be_overwritten() -> None:
    memory = np.arange(20, dtype=np.uint8)
    begin = memory.ctypes.data
    overlaps = Overlaps([(-2, 3), (0, 4), None], [(0, 1)])
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
