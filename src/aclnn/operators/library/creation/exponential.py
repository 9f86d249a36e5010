"""Exponential random numbers: aclnnStatelessExponentialTensor, with the numbers that a device of the 950 class draws.

Its elements are dealt to threads, each of which draws four 32-bit words at a time from a Philox-4x32-10 generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dims_between, dtype_in, limited_dims, rule
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import attribute, declared, tensor_in, tensor_out

_MULTIPLIERS, _KEY_STEPS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_LOW, _WORDS = 0xFFFFFFFF, 4
_GROUP, _MOST_GROUPS = 256, 78 * 8
"""Threads of a group, and the most groups that run."""
_STEP = np.float32(2.0**-32)
"""Distance of neighbouring draws, which are centred between multiples of it."""
_LEAST = 2.0**-24
"""The least exponential number of rate 1, that of a uniform number of 1."""


def philox(counter: Any, key: int) -> Any:
    """Return the four words of each 128-bit counter.

    Args:
        counter: four rows of 32-bit words, the lowest word first.
        key: 64 bits.
    """
    words, keys = [np.asarray(word, np.uint64) for word in counter], [key & _LOW, key >> 32 & _LOW]
    for _ in range(_ROUNDS):
        products = [words[at] * np.uint64(factor) for at, factor in zip((0, 2), _MULTIPLIERS, strict=True)]
        low, high = [product & _LOW for product in products], [product >> np.uint64(32) for product in products]
        first, second = (np.uint64(part) for part in keys)
        words = [high[1] ^ words[1] ^ first, low[1], high[0] ^ words[3] ^ second, low[0]]
        keys = [(part + step) & _LOW for part, step in zip(keys, _KEY_STEPS, strict=True)]
    return np.stack(words)


def _uniform(size: int, seed: int, offset: int) -> Any:
    """Draw numbers above 0 up to 1."""
    threads = min(-(-size // _GROUP), _MOST_GROUPS) * _GROUP
    turn, thread = np.divmod(np.arange(size), threads)
    draw, word = np.divmod(turn, _WORDS)
    first = (offset % 2**64 + _WORDS - 1) % 2**64 // _WORDS
    low = np.uint64(first) + draw.astype(np.uint64)
    words = philox((low & _LOW, low >> np.uint64(32), thread, np.zeros(size)), seed)
    return words[word, np.arange(size)].astype(np.float32) * _STEP + _STEP / 2


def _rate(call: Call) -> str | None:
    return f"lambd: expected a positive number, got {call['lambd']}" if call["lambd"] <= 0 else None


def _work(call: Call) -> Library | None:
    shape, size, rate, more = call["self"].shape, call["self"].size, call["lambd"], call["offset"]
    if size == 0:
        return None

    def draw(seed: Any, offset: Any) -> Any:
        for name, given in (("seedTensor", seed), ("offsetTensor", offset)):
            if not given.size:
                raise IndexError(f"{name}: expected an element, got none")
        uniform = _uniform(size, int(seed[0]), int(offset[0]) + more).astype(np.float64)
        return (np.where(uniform >= 1 - _LEAST, _LEAST, -np.log(uniform)) / rate).reshape(shape)

    return Library(draw, ("seedTensor", "offsetTensor"), ("self",))


OPERATORS = (
    declared(
        "stateless_exponential_tensor",
        "self = -log(u) / lambd, u uniform above 0 up to 1",
        "Fill with random numbers of the exponential distribution.",
        (
            tensor_out("self", "the tensor to fill"),
            tensor_in("seedTensor", "the generator's seed, its first element; INT64"),
            tensor_in("offsetTensor", "the offset of the random stream, its first element; INT64"),
            attribute("offset", Kind.INT64, "the offset added to offsetTensor"),
            attribute("lambd", Kind.DOUBLE, "the rate of the distribution"),
        ),
        (
            dtype_in(FLOATING, "self"),
            dtype_in({D.INT64}, "seedTensor", "offsetTensor"),
            rule("positive: lambd", _rate),
            limited_dims("self"),
            dims_between(1, 1, "seedTensor", "offsetTensor"),
        ),
        _work,
        products=CLASS_950,
    ),
)
