"""Casts, copies, fills, triangles."""

from __future__ import annotations

import itertools
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
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import conversion
from tests.cases.table import GRID, TILING, Arguments, T, dtype, shape
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
    "data types together": lambda o, name: (
        Break({"dtype": D.INT4, **dtype(D.INT4, "out")}, "ACL_INT32 with ACL_INT4", D.FLOAT)
        if name == "self"
        else Break(
            {"dtype": D.INT32, **dtype(D.FLOAT4_E2M1, "self"), **dtype(D.INT32, "out")},
            "floating data type with ACL_FLOAT4_E2M1",
            product=Product.ASCEND_950,
        )
    ),
    "contiguous": lambda o, name: Break(
        {"dtype": D.INT4, "self": T(D.INT32, (2, 4)), "out": T(D.INT4, (2, 4))}
        | {name: Tensor(D.INT32 if name == "self" else D.INT4, (2, 4), (1, 2))},
        "a contiguous tensor",
    ),
    "even last dimension": lambda o, name: Break(
        {"dtype": D.INT4, "self": T(D.INT32, GRID), "out": T(D.INT4, GRID)},
        "an even last dimension with four-bit types",
    ),
    "at least 2 dimensions": lambda o, name: Break(shape((3,), *tensors_of(o)), "at least 2"),
}


class TestConversion(LibraryTests):
    subject = Subject(
        conversion.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        codes={"even last dimension": TILING},
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
def test_triu_and_tril_begin_at_any_diagonal(name: str, dims: tuple[int, ...]) -> None:
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


#: The numbers of four bits, in the order of their codes.
MAGNITUDES = {D.FLOAT4_E2M1: (0, 0.5, 1, 1.5, 2, 3, 4, 6), D.FLOAT4_E1M2: (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75)}
ALL_CODES = np.arange(16, dtype=np.uint8)


def cast(given: Any, source: D, target: D, dims: tuple[int, ...], result: Any) -> Any:
    """Cast what lies in one array to another."""
    arguments = {
        "self": Tensor(source, dims, address=given.ctypes.data, owner=given),
        "dtype": target,
        "out": Tensor(target, dims, address=result.ctypes.data, owner=result),
    }
    prepare(BY_NAME["cast"], arguments, Product.ASCEND_950).run()
    return result


@pytest.mark.parametrize("of", MAGNITUDES)
@pytest.mark.parametrize("source", [D.FLOAT, D.FLOAT16, D.BF16, D.FLOAT8_E5M2, D.FLOAT8_E4M3FN])
def test_numbers_become_the_nearest_of_four_bits_by_way_of_bf16(source: D, of: D) -> None:
    """The examples of aclnnQuantMatmulWeightNz convert their weights from FLOAT in this way."""
    magnitudes = MAGNITUDES[of]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(magnitudes)]
    some = [*magnitudes, *middles, *(each + step for each in middles for step in (1e-4, 0.05, -0.05)), 100]
    some.append(448 if source == D.FLOAT8_E4M3FN else math.inf)
    given = np.array([*some, *(-each for each in some)], np.float64).astype(source.numpy)
    short = given.astype(D.BF16.numpy).astype(np.float64)
    distances = np.abs(np.abs(short)[:, None] - np.array(magnitudes))
    distances[~np.isfinite(short)] = np.arange(8, 0, -1)
    # In the middle of two, the one with an even code.
    nearest = [min(range(8), key=lambda code, row=row: (row[code], code % 2)) for row in distances.tolist()]
    codes = np.array(nearest, np.uint8) | np.where(np.signbit(short), 8, 0).astype(np.uint8)
    got = cast(given.reshape(2, -1), source, of, (2, given.size // 2), np.zeros(given.size // 2, np.uint8))
    assert got.tolist() == (codes[::2] | codes[1::2] << 4).tolist()


@pytest.mark.parametrize("of", MAGNITUDES)
@pytest.mark.parametrize("target", [D.FLOAT, D.FLOAT16, D.BF16, D.FLOAT8_E5M2, D.FLOAT8_E4M3FN])
def test_casts_from_four_bits_are_exact(target: D, of: D) -> None:
    given = ALL_CODES[::2] | ALL_CODES[1::2] << 4
    got = cast(given, of, target, (4, 4), np.zeros((4, 4), target.numpy))
    assert got.reshape(-1).astype(np.float64).tolist() == [*MAGNITUDES[of], *(-each for each in MAGNITUDES[of])]


def test_int32_keeps_four_bits_in_int4() -> None:
    given = np.array([[-8, 7, 0, -1], [1, 2, 3, 17]], np.int32)
    got = cast(given, D.INT32, D.INT4, (2, 4), np.zeros(4, np.uint8))
    assert got.tolist() == [0x78, 0xF0, 0x21, 0x13]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"self": Tensor(D.INT32, (2, 4), (1, 2))}, 161002),
        ({"out": Tensor(D.INT4, (2, 4), (1, 2))}, 161002),
        ({"self": Tensor(D.INT32, (2, 3)), "out": Tensor(D.INT4, (2, 3))}, 561002),
        ({"self": Tensor(D.INT32, ()), "out": Tensor(D.INT4, ())}, 561002),
        ({"self": Tensor(D.FLOAT, (2, 4))}, 161002),
        ({"self": Tensor(D.FLOAT, (2, 4)), "dtype": D.FLOAT4_E2M1, "out": Tensor(D.FLOAT4_E2M1, (2, 4))}, 161002),
    ],
)
def test_tensors_of_four_bits_are_pairs_that_lie_together(change: Mapping[str, Any], code: int) -> None:
    arguments = {"self": Tensor(D.INT32, (2, 4)), "dtype": D.INT4, "out": Tensor(D.INT4, (2, 4))}
    with pytest.raises(AclnnError) as caught:
        prepare(BY_NAME["cast"], {**arguments, **change}, Product.ATLAS_A2)
    assert caught.value.code == code
