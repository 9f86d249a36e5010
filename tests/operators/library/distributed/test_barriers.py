"""Ranks that wait for one another."""

from __future__ import annotations

from functools import partial
from threading import Barrier, Event
from time import sleep
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.distributed import barriers
from tests.cases.table import INVALID, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject
from tests.helpers.ranks import Rank, called, on_devices, only_group

SIZE = 2
READY = 0


def call(later: bool, d: D) -> Arguments:
    beside = {"timeOut": T(D.INT32, (1,)), "elasticInfo": None} if later else {}
    return {"xRef": T(d, (3, 4)), **beside, "group": "all", "worldSize": 8}


def on_950(change: Any, expected: str) -> Any:
    return lambda operator, name: Break(change(name), expected, product=Product.ASCEND_950)


CALLS = {each.name: partial(call, at > 0) for at, each in enumerate(barriers.OPERATORS)}


class TestBarriers(LibraryTests):
    subject = Subject(
        barriers.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=[*CALLS],
        default=(D.FLOAT16, D.BF16, D.FLOAT, D.BOOL, D.INT8, D.UINT64),
        empty={name: {"elasticInfo": None} for name in CALLS if name.endswith("v2")},
        breaks={
            "data types that go together": on_950(partial(dtype, D.DOUBLE), "ACL_FLOAT"),
            "data type": on_950(partial(dtype, D.INT64), "ACL_INT32"),
            "format that counts as ND": on_950(lambda name: {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_"),
            "a name": on_950(lambda name: {name: ""}, "the name of a communicator"),
            "a short name": on_950(lambda name: {name: "x" * 128}, "at most 127 characters"),
            "1 dimension": on_950(partial(shape, (1, 1)), "1 dimension"),
            "shape is one number": on_950(partial(shape, (2,)), "[1]"),
            "null": on_950(lambda name: {name: T(D.INT32, (20,))}, "null"),
            "from 2 to 384": on_950(lambda name: {name: 1}, "from 2 to 384"),
            "communicator of this device": on_950(lambda name: {name: "none"}, "the name of a communicator"),
            "… (that of group)": on_950(lambda name: {name: 2}, "8 (that of group)"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={
            **dict.fromkeys(("data types that go together", "data type", "format that counts as ND"), INVALID),
            **dict.fromkeys(("a name", "a short name"), NULL),
        },
    )

    @pytest.fixture(autouse=True)
    def _others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only_group(monkeypatch, "all")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("product", [Product.ATLAS_A3, Product.ASCEND_950], ids=["A3", "950"])
def test_later_tasks_wait_for_every_rank(product: Product, name: str, fresh: None) -> None:
    waiting, both = Event(), Barrier(SIZE)

    def work(rank: Rank) -> None:
        x = np.arange(6, dtype=np.float16)
        both.wait(60)
        if rank.number == 1:
            assert waiting.wait(60)
        arguments = {"xRef": x, "timeOut": None, "elasticInfo": None, "group": rank.name, "worldSize": SIZE}
        if not name.endswith("v2"):
            del arguments["timeOut"], arguments["elasticInfo"]
        if rank.number == 0:
            found = called(rank, name, arguments, product, lambda: stays_behind(rank))
        else:
            found = called(rank, name, arguments, product)
        np.testing.assert_array_equal(found["xRef"], x)

    def stays_behind(rank: Rank) -> None:
        sleep(0.2)  # a stream that need not wait is done by then
        status, done = cann.aclrtStreamQuery(rank.stream)
        waiting.set()
        assert (status, done) != (0, READY)

    on_devices(work, SIZE)


def test_the_group_has_as_many_ranks(fresh: None) -> None:
    def work(rank: Rank) -> None:
        arguments = {"xRef": np.zeros(3, np.int8), "group": rank.name, "worldSize": 3}
        with pytest.raises(AclnnError, match=r"worldSize: expected 2 \(that of group\), got 3"):
            called(rank, "distribute_barrier", arguments, Product.ATLAS_A3)

    on_devices(work, SIZE)
