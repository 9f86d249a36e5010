"""Which inputs share memory with which outputs, byte by byte."""

from __future__ import annotations

import ctypes

import numpy as np

from aclnn.kernels.cpu.overlaps import Overlaps, Span


def some_span(rng: np.random.Generator) -> Span | None:
    return None if rng.random() < 0.2 else (int(rng.integers(-6, 1)), int(rng.integers(1, 7)))


def bytes_of(address: int, span: Span) -> set[int]:
    return set(range(address + span[0], address + span[1]))


def test_those_that_share_a_byte() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        read, written = ([some_span(rng) for _ in range(3)] for _ in range(2))
        inputs, outputs = rng.integers(100, 112, (2, 3)).tolist()
        alike = set(rng.choice(3, rng.integers(4), replace=False).tolist())
        expected = {
            i
            for i, span in enumerate(read)
            for k, target in enumerate(written)
            if span is not None and target is not None
            if bytes_of(inputs[i], span) & bytes_of(outputs[k], target)
            if not (k == 0 and i in alike and inputs[i] == outputs[0])
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
