"""Casts, copies, fills, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library import conversion
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import BY_NAME, REAL, Break, Breaking, LibraryTests, Placed, Subject, tensors_of, torch

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "cast": lambda d: {"dtype": D.FLOAT, "out": T(D.FLOAT, GRID)},
    **{f"{where}{name}": lambda d: {"diagonal": 1} for name in ("triu", "tril") for where in ("", "inplace_")},
    "inplace_fill_tensor": lambda d: {"value": T(d, (1,))},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "inplace_one": (*REAL, D.BOOL),
    **{f"{where}{name}": (*REAL, D.BOOL) for name in ("triu", "tril") for where in ("", "inplace_")},
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "cast": lambda a: a["self"].real.to(torch.float32),
    "inplace_copy": lambda a: a["src"],
    "inplace_fill_scalar": lambda a: torch.full_like(a["selfRef"], a["value"]),
    "inplace_one": lambda a: torch.ones_like(a["selfRef"]),
    "inplace_zero": lambda a: torch.zeros_like(a["selfRef"]),
    "inplace_fill_tensor": lambda a: a["value"].expand(GRID),
    "triu": lambda a: a["self"].triu(1),
    "inplace_triu": lambda a: a["selfRef"].triu(1),
    "tril": lambda a: a["self"].tril(1),
    "inplace_tril": lambda a: a["selfRef"].tril(1),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "inplace_fill_tensor": {"value": {"shape": (1,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "broadcast shape of selfRef and src": lambda o, name: Break(shape((4, 2, 3), "src"), "shape [4, 2, 3]"),
    "0 to 1 dimensions": lambda o, name: Break(shape((1, 1), name), "0 to 1 dimensions"),
    "at least 2 dimensions": lambda o, name: Break(shape((3,), *tensors_of(o)), "at least 2"),
}


class TestConversion(LibraryTests):
    subject = Subject(
        conversion.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS
    )


@given(
    st.lists(st.one_of(st.floats(width=32), st.sampled_from([2.0**31, -(2.0**31), 2.0**63, -(2.0**63)])), min_size=1),
    st.sampled_from([D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64, D.UINT16, D.UINT32, D.UINT64]),
)
def test_floating_numbers_become_integers_by_truncation_within_the_range(numbers: list[float], target: D) -> None:
    limits = np.iinfo(target.numpy)
    expected = [
        0
        if math.isnan(x)
        else min(max(math.trunc(x) if math.isfinite(x) else math.copysign(2**70, x), limits.min), limits.max)
        for x in numbers
    ]
    got = convert(np.array(numbers, np.float32), target.numpy)
    assert got.dtype == target.numpy
    assert got.tolist() == expected


@pytest.mark.parametrize("dims", [(1, 1), (3, 5), (5, 3), (2, 4, 4), (0, 3), (3, 0)])
@pytest.mark.parametrize("name", ["triu", "tril"])
def test_triangles_begin_at_any_diagonal(name: str, dims: tuple[int, ...]) -> None:
    matrices = np.arange(1, 1 + math.prod(dims), dtype=np.int64).reshape(dims)
    for diagonal in (-(2**63), *range(-7, 8), 2**63 - 1):
        placed, out = Placed(matrices, "contiguous"), Placed(np.full_like(matrices, -1), "contiguous")
        arguments = {"self": placed.tensor, "diagonal": diagonal, "out": out.tensor}
        prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
        np.testing.assert_array_equal(out.view, getattr(np, name)(matrices, max(-9, min(diagonal, 9))))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed with holes"])
@pytest.mark.parametrize("target", [D.FLOAT16, D.BF16, D.FLOAT, D.DOUBLE])
@pytest.mark.parametrize("source", [D.FLOAT16, D.BF16, D.FLOAT, D.DOUBLE])
def test_large_tensors_are_converted_as_small_ones_are(source: D, target: D, layout: str) -> None:
    """By a kernel: every number of 16 bits, and numbers in the middle of two, subnormal ones and none."""
    numbers = np.arange(1 << 16, dtype=np.uint16)
    given = np.concatenate([numbers.view(each.numpy).astype(np.float64) for each in (D.FLOAT16, D.BF16)])
    given = np.concatenate([given, given * (1 + 2.0**-9), given * (1 + 2.0**-12)]).reshape(-1, 384)
    with np.errstate(all="ignore"):
        given = given.astype(source.numpy)
        expected = given.astype(target.numpy)
    placed, out = Placed(given, layout), Placed(np.full_like(expected, 7), layout)
    arguments = {"selfRef": out.tensor, "src": placed.tensor}
    prepare(BY_NAME["inplace_copy"], arguments, Product.ATLAS_A2).run()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out.view.astype(np.float64), expected.astype(np.float64))
    assert out.untouched_outside()
    assert placed.untouched_outside()
