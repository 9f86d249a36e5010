"""Exponential random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.operators.library.creation import exponential
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, computed, torch

NAME, ON_950 = "stateless_exponential_tensor", Product.ASCEND_950
LOW = 2**32 - 1


def _call(d: D) -> Arguments:
    return {
        "self": T(d, (2, 3, 5)),
        "seedTensor": T(D.INT64, (1,)),
        "offsetTensor": T(D.INT64, (1,)),
        "offset": 4,
        "lambd": 2.5,
    }


def words_of(counter: int, key: int) -> list[int]:
    """Return the four words of one counter of a Philox-4x32-10 generator, with integers of Python."""
    words = [counter >> 32 * at & LOW for at in range(4)]
    low, high = key & LOW, key >> 32 & LOW
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [second >> 32 ^ words[1] ^ low, second & LOW, first >> 32 ^ words[3] ^ high, first & LOW]
        low, high = (low + 0x9E3779B9) & LOW, (high + 0xBB67AE85) & LOW
    return words


def _drawn(size: int, seed: int, offset: int) -> list[float]:
    """Return the uniform numbers of the threads' elements."""
    threads, found = min(-(-size // 256), 624) * 256, []
    for at in range(size):
        turn, thread = divmod(at, threads)
        counter = -(-(offset % 2**64) // 4) + turn // 4 | thread << 64
        word = np.float32(words_of(counter, seed)[turn % 4])
        found.append(float(word * np.float32(2.0**-32) + np.float32(2.0**-33)))
    return found


def _expected(a: Mapping[str, Any]) -> Any:
    drawn = _drawn(a["self"].numel(), int(a["seedTensor"][0]), int(a["offsetTensor"][0]) + a["offset"])
    return -torch.tensor(drawn, dtype=torch.float64).log().reshape(a["self"].shape) / a["lambd"]


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.INT32, name), "ACL_"),
    "positive": lambda o, name: Break({name: 0.0}, "a positive number"),
    "1 dimension": lambda o, name: Break(shape((), name), "1 dimension"),
}


class TestExponential(LibraryTests):
    subject = Subject(
        exponential.OPERATORS,
        calls={NAME: _call},
        references={NAME: _expected},
        default=TRAINED,
        empty={NAME: {**shape((1,), "seedTensor", "offsetTensor"), **shape((0, 3), "self")}},
        breaks=BREAKS,
        terms=2,
    )


def test_philox_words_are_the_published_ones() -> None:
    """From the known answers of Random123, whose generator PyTorch uses on GPUs too."""
    assert exponential.philox([[0]] * 4, 0)[:, 0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert exponential.philox([[7], [0], [9], [0]], 2**63 + 5)[:, 0].tolist() == words_of(7 | 9 << 64, 2**63 + 5)


def _filled(size: int, seed: int, offset: int, rate: float = 1.0) -> Any:
    given = {"seedTensor": np.array([seed]), "offsetTensor": np.array([offset]), "offset": 0, "lambd": rate}
    return computed(NAME, {"self": np.zeros(size, np.float32), **given}, ON_950)["self"]


def test_each_thread_draws_four_words_at_a_time() -> None:
    """With more elements than threads, of which there are 159744 at most."""
    found = _filled(159744 * 5 + 3, 42, 6)
    places = [0, 159743, 159744, 159744 * 3 + 7, 159744 * 4, 159744 * 5 + 2]
    for place in places:
        turn, thread = divmod(place, 159744)
        word = words_of(2 + turn // 4 | thread << 64, 42)[turn % 4]
        assert found[place] == pytest.approx(-np.log((word + 0.5) / 2**32), rel=1e-6), place


def test_numbers_have_the_mean_and_the_spread_of_their_rate() -> None:
    found = _filled(100_000, 3, 0, 4.0)
    assert (found > 0).all()
    assert found.mean() == pytest.approx(0.25, abs=0.003)
    assert found.std() == pytest.approx(0.25, abs=0.005)


def test_exponential_numbers_require_a_seed() -> None:
    given = {"seedTensor": np.zeros(0, np.int64), "offsetTensor": np.zeros(1, np.int64), "offset": 0, "lambd": 1.0}
    with pytest.raises(AclnnError, match="seedTensor: expected an element, got none"):
        computed(NAME, {"self": np.zeros(3, np.float32), **given}, ON_950)
