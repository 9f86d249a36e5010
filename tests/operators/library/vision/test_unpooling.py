"""Planes and volumes with elements put back where pooling found them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.vision import unpooling
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    INTEGERS,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    described,
    no_samples,
    precise,
    torch,
)

#: Of two samples with two channels: what pooling left, and what it had.
SMALL, LARGE = {2: (2, 3), 3: (2, 1, 3)}, {2: (4, 5), 3: (3, 2, 4)}
NAMES = tuple(operator.name for operator in unpooling.OPERATORS)


def _rank(name: str) -> int:
    return 3 if "3d" in name else 2


def _call(name: str) -> Callable[[D], Arguments]:
    rank = _rank(name)
    small, large = (2, 2, *SMALL[rank]), (2, 2, *LARGE[rank])
    backward = name.endswith("backward")

    def call(d: D) -> Arguments:
        given: Arguments = {"gradOutput": T(d, large)} if backward else {}
        given |= {"self": T(d, small), "indices": T(D.INT64, small), "outputSize": LARGE[rank]}
        given |= {"stride": (2, 2, 2), "padding": (0, 0, 0)} if rank == 3 else {}
        return given | {"out": T(d, small if backward else large)}

    return call


def _reference(a: Mapping[str, Any]) -> Any:
    rank = len(a["outputSize"])
    if "gradOutput" in a:
        return a["gradOutput"].flatten(-rank).gather(-1, a["indices"].flatten(-rank)).reshape(a["self"].shape)
    functions = {2: torch.ops.aten.max_unpool2d, 3: torch.ops.aten.max_unpool3d}
    steps = [a["stride"], a["padding"]] if rank == 3 else []
    return functions[rank](precise(a["self"]), a["indices"], a["outputSize"], *steps)


CALLS = {name: _call(name) for name in NAMES}

BREAKS: Mapping[str, Breaking] = {
    "contiguous": lambda o, name: Break({name: Tensor(D.FLOAT, (2, 3), (1, 2))}, "a contiguous tensor"),
    "holds the result": lambda o, name: Break(dtype(D.INT32, name), "ACL_FLOAT"),
    "same data type as gradOutput": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "3 to 4 dimensions": lambda o, name: Break(shape((2, 3), name), "3 to 4"),
    "4 to 5 dimensions": lambda o, name: Break(shape((2, 3), name), "4 to 5"),
    "same shape as self": lambda o, name: Break(shape((2, 3), name), "that of self"),
    "planes have elements": lambda o, name: Break(
        shape(
            (2, 0, *SMALL[_rank(o.name)]), *({"self", "indices", "out"} if "backward" in o.name else (name, "indices"))
        ),
        "have elements",
    ),
    "2 numbers": lambda o, name: Break({name: (4,)}, "2 numbers"),
    "3 numbers": lambda o, name: Break({name: (4,)}, "3 numbers"),
    "room for all": lambda o, name: Break({name: (1,) * _rank(o.name)}, "room"),
    "shape is planes of outputSize": lambda o, name: Break(shape((2, 2, *SMALL[_rank(o.name)]), name), "planes"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    """A place of its own for each element of a plane."""
    if name != "indices":
        return array
    rank = _rank(operator)
    lines = array.reshape(-1, np.prod(array.shape[-rank:]))
    return (3 * np.arange(lines.shape[1]) + np.arange(len(lines))[:, None]).reshape(array.shape)


class TestUnpooling(LibraryTests):
    subject = Subject(
        unpooling.OPERATORS,
        calls=CALLS,
        references=dict.fromkeys(NAMES, _reference),
        default=(D.FLOAT, D.FLOAT16, D.DOUBLE, *INTEGERS),
        dtypes={"max_unpool2d_backward": (D.FLOAT, D.FLOAT16, *INTEGERS, D.BOOL)},
        empty={name: no_samples(BY_NAME[name], CALLS[name](D.FLOAT)) for name in NAMES},
        breaks=BREAKS,
        numbers=numbers,
        plain=("max_unpool3d", "max_unpool3d_backward"),
    )

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("index", [-1, 24])
    def test_an_index_beyond_a_plane_is_an_error(self, name: str, index: int) -> None:
        with pytest.raises(AclnnError, match=f"indices: expected indices from 0 to [0-9]+, got {index}"):
            self.subject.run_with_index(name, index)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_rejected(name: str) -> None:
    with pytest.raises(AclnnError, match="expected data type"):
        prepare(BY_NAME[name], described(CALLS[name](D.BF16)), Product.ASCEND_950)
