"""Bits of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import bitwise
from tests.helpers.library import INTEGERS, Array, LibraryTests, Subject, first, torch

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


class TestBitwise(LibraryTests):
    subject = Subject(bitwise.OPERATORS, numbers=numbers, references=REFERENCES, dtypes=DTYPES)
