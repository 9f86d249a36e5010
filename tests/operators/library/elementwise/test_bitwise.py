"""Bits of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import bitwise
from tests.helpers.library import BREAKS as SHARED
from tests.helpers.library import (
    BY_NAME,
    INTEGERS,
    Array,
    Breaking,
    LibraryTests,
    Subject,
    first,
    scalar,
    torch,
)

BITWISE = {
    f"{where}bitwise_{name}_{kind}": name
    for where in ("", "inplace_")
    for name in ("and", "or", "xor")
    for kind in ("tensor", "scalar")
}


DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(BITWISE, (*INTEGERS, D.BOOL)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **{
        name: lambda a, word=word: getattr(torch, f"bitwise_{word}")(first(a), a["other"])
        for name, word in BITWISE.items()
    },
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return array[:1] if name == "other" and operator in BITWISE else array  # broadcast


BREAKS: Mapping[str, Breaking] = {
    "promotable": lambda o, name: SHARED["promotable"](o, name)._replace(
        product=Product.ASCEND_950 if o.name.endswith("tensor") else Product.ATLAS_A2
    ),
}


class TestBitwise(LibraryTests):
    subject = Subject(bitwise.OPERATORS, numbers=numbers, references=REFERENCES, dtypes=DTYPES, breaks=BREAKS)


@pytest.mark.parametrize(
    ("name", "dtype", "taken"),
    [
        ("bitwise_or_scalar", D.UINT64, {Product.ASCEND_950}),
        ("bitwise_xor_scalar", D.UINT16, {Product.ASCEND_950}),
        ("bitwise_xor_tensor", D.UINT32, {Product.ASCEND_950}),
        ("bitwise_not", D.UINT32, {Product.ASCEND_950}),
        ("bitwise_and_scalar", D.UINT32, set()),
        ("bitwise_and_tensor", D.UINT32, {Product.ASCEND_950, Product.ATLAS_A2}),
    ],
)
def test_unsigned_integers_are_accepted_depending_on_the_product(name: str, dtype: D, taken: set[Product]) -> None:
    x = Tensor(dtype, (2,))
    others = {} if name == "bitwise_not" else {"other": scalar(dtype, 1) if name.endswith("scalar") else x}
    for product in (Product.ASCEND_950, Product.ATLAS_A2):
        if product in taken:
            assert prepare(BY_NAME[name], {"self": x, **others, "out": x}, product).prepared.plan
        else:
            with pytest.raises(AclnnError, match="self: expected data type"):
                prepare(BY_NAME[name], {"self": x, **others, "out": x}, product)
