"""Splits of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import splitting
from tests.cases.table import Arguments, T, shape
from tests.helpers.library import BY_NAME, Break, Breaking, LibraryTests, Placed, Subject, described, torch

PARTS = ((2, 2), (2, 2), (2, 1))
CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "split_tensor": lambda d: {"self": T(d, (2, 5)), "splitSections": 2, "dim": -1, "out": _parts(d)},
    "split_with_size": lambda d: {"self": T(d, (2, 5)), "splitSize": (2, 2, 1), "dim": 1, "out": _parts(d)},
}
REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "split_tensor": lambda a: torch.split(a["self"], 2, -1),
    "split_with_size": lambda a: torch.split(a["self"], (2, 2, 1), 1),
}
EMPTY: Mapping[str, Mapping[str, Any]] = {
    name: {"self": {"shape": (0, 5)}, "out": tuple(T(D.FLOAT, (0, n)) for _, n in PARTS)} for name in CALLS
}


def _parts(dtype: D, *first: T) -> tuple[T, ...]:
    return (*first, *(T(dtype, shape) for shape in PARTS[len(first) :]))


def _sizes(operator: Operator, name: str) -> Break:
    if operator.name == "split_tensor":
        return Break({name: 0}, "more than 0")
    return Break({name: (2, 2, 2)}, "add up to self's 5")


BREAKS: Mapping[str, Breaking] = {
    "same data type as self": lambda o, name: Break({name: _parts(D.FLOAT, T(D.INT32, (2, 2)))}, "that of self"),
    "at least 1 dimension": lambda o, name: Break(shape((), name), "at least 1"),
    "sizes": _sizes,
    "… tensors": lambda o, name: Break({name: _parts(D.FLOAT)[:2]}, "3 tensors"),
    "shape of each part": lambda o, name: Break({name: _parts(D.FLOAT, T(D.FLOAT, (2, 3)))}, "[2, 2]"),
    "at most 32 of wide elements": lambda o, name: Break(
        {
            "self": T(D.DOUBLE, (1, 33)),
            **({"splitSections": 1} if o.name == "split_tensor" else {"splitSize": (1,) * 33}),
            name: tuple(T(D.DOUBLE, (1, 1)) for _ in range(33)),
        },
        "at most 32 tensors",
    ),
}


class TestSplitting(LibraryTests):
    subject = Subject(splitting.OPERATORS, calls=CALLS, references=REFERENCES, empty=EMPTY, breaks=BREAKS)


def test_even_parts_were_rejected_on_ascend_950() -> None:
    prepare(BY_NAME["split_tensor"], described(CALLS["split_tensor"](D.FLOAT)), Product.ASCEND_950)


def test_sizes_may_be_none_but_not_negative() -> None:
    arguments = {"self": T(D.FLOAT, (2,)), "splitSize": (2, 0), "dim": 0, "out": (T(D.FLOAT, (2,)), T(D.FLOAT, (0,)))}
    prepare(BY_NAME["split_with_size"], described(arguments), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="expected sizes of at least 0, got -1"):
        prepare(BY_NAME["split_with_size"], described(arguments | {"splitSize": (3, -1)}), Product.ATLAS_A2)


def test_parts_of_a_huge_extent_took_all_memory_to_be_counted() -> None:
    """An extent without elements, split into 2^40 parts of one, would have 2^40 sizes."""
    whole, part = (Tensor(D.FLOAT, shape, (0,) * len(shape)) for shape in ((0, 1 << 40), (0, 1)))
    arguments = {"self": whole, "splitSections": 1, "dim": 1, "out": (part, part)}
    with pytest.raises(AclnnError, match=f"out: expected {1 << 40} tensors, got 2"):
        prepare(BY_NAME["split_tensor"], arguments, Product.ATLAS_A2)


def test_parts_written_where_others_are_read_are_right() -> None:
    """The first was written over the second before that was read."""
    memory = np.arange(1, 5, dtype=np.float32)
    whole, half = (
        Tensor(D.FLOAT, (n,), address=memory.ctypes.data + at * memory.itemsize, owner=memory)
        for n, at in ((4, 0), (2, 2))
    )
    second = Placed(np.zeros(2, np.float32), "contiguous")
    call = {"self": whole, "splitSections": 2, "dim": 0, "out": (half, second.tensor)}
    prepare(BY_NAME["split_tensor"], call, Product.ATLAS_A2).run()
    assert (memory.tolist(), second.view.tolist()) == ([1, 2, 1, 2], [3, 4])
