"""Signs with one bit each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators.library.training import sign_bits
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import Break, Breaking, LibraryTests, Subject, computed, torch

PACK, UNPACK = "sign_bits_pack", "sign_bits_unpack"


def _pack(d: D) -> Arguments:
    return {"self": T(d, (30,)), "size": 2, "out": T(D.UINT8, (2, 2))}


def _unpack(d: D) -> Arguments:
    return {"self": T(D.UINT8, (6,)), "size": 3, "dtype": d, "out": T(d, (3, 16))}


def _packed(a: Mapping[str, Any]) -> Any:
    found = [0] * 4
    for at, number in enumerate(a["self"].tolist()):
        found[at // 8] |= (number >= 0) << at % 8
    return torch.tensor(found).reshape(2, 2)


def _unpacked(a: Mapping[str, Any]) -> Any:
    signs = [1.0 if byte >> bit & 1 else -1.0 for byte in a["self"].tolist() for bit in range(8)]
    return torch.tensor(signs).reshape(3, 16)


BREAKS: Mapping[str, Breaking] = {
    "kernel of the product": lambda o, name: Break({}, "with a kernel", product=Product.ATLAS_TRAINING),
    "data type": lambda o, name: Break(dtype(D.INT8, name), "ACL_"),
    "data type dtype": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT (dtype)"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCL}}, "ACL_FORMAT_ND"),
    "rows of equal length": lambda o, name: Break({name: 5}, "a positive divisor of"),
    "as many rows as size": lambda o, name: Break(shape((1, 4), name), "rows (size)"),
    "1 dimension": lambda o, name: Break(shape((30, 5), name), "1 dimension"),
    "2 dimensions": lambda o, name: Break(shape((2 if o.name == PACK else 3,), name), "2 dimensions"),
    "shape is rows of equal length": lambda o, name: Break(shape((2 if o.name == PACK else 3, 7), name), "shape ["),
}


class TestSignBits(LibraryTests):
    subject = Subject(
        sign_bits.OPERATORS,
        calls={PACK: _pack, UNPACK: _unpack},
        references={PACK: _packed, UNPACK: _unpacked},
        default=(D.FLOAT, D.FLOAT16),
        empty={
            PACK: {**shape((0,), "self"), **shape((2, 0), "out")},
            UNPACK: {**shape((0,), "self"), **shape((3, 0), "out")},
        },
        breaks=BREAKS,
    )


@pytest.mark.parametrize(
    ("numbers", "size", "expected"),
    [
        ([5, 4, 3, 2, 0, -1, -2, 4, 3, 2, 1, 0, -1, -2], 2, [[159], [15]]),
        ([-1, 2, -3, 4, -5, 6, -7, 8, -9, 10, -11, 12, -13, 14, -15, 16], 2, [[170], [170]]),
        ([-0.0], 1, [[1]]),
    ],
)
def test_published_numbers_are_packed(numbers: list[float], size: int, expected: list[list[int]]) -> None:
    """From the documents of DrivingSDK and aclnnSignBitsPack."""
    given = {"self": np.array(numbers, np.float32), "size": size, "out": np.zeros(np.shape(expected), np.uint8)}
    assert computed(PACK, given)["out"].tolist() == expected


def test_packed_signs_come_back() -> None:
    given = {"self": np.array([159, 15], np.uint8), "size": 2, "dtype": D.FLOAT, "out": np.zeros((2, 8), np.float32)}
    found = computed(UNPACK, given)["out"]
    assert found.tolist() == [[1, 1, 1, 1, 1, -1, -1, 1], [1, 1, 1, 1, -1, -1, -1, -1]]
