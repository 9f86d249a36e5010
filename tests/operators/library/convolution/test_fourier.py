"""Fourier transforms of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.convolution import fourier
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, COMPLEX, Array, Break, Breaking, LibraryTests, Placed, Subject, torch

WHOLE = {D.FLOAT: D.COMPLEX64, D.DOUBLE: D.COMPLEX128}


def _call(d: D) -> Arguments:
    return {
        "self": T(d, (2, 20)),
        "windowOptional": T(d, (5,)),
        "out": T(WHOLE.get(d, d), (2, 8, 5) if d in COMPLEX else (2, 5, 5)),
        "nFft": 8,
        "hopLength": 3,
        "winLength": 5,
        "normalized": True,
        "onesided": d not in COMPLEX,
        "returnComplex": True,
    }


def _transformed(a: Mapping[str, Any]) -> Any:
    wide = torch.complex128 if a["self"].is_complex() else torch.float64
    return torch.stft(
        a["self"].to(wide),
        a["nFft"],
        a["hopLength"],
        a["winLength"],
        None if a["windowOptional"] is None else a["windowOptional"].to(wide),
        center=False,
        normalized=a["normalized"],
        onesided=a["onesided"],
        return_complex=True,
    )


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_COMPLEX64"),
    "same data type as self": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT (that of self)"),
    "data type of this result": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_COMPLEX64 (self of ACL_FLOAT"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCL}}, "ACL_FORMAT_ND"),
    "1 to 2 dimensions": lambda o, name: Break(shape((1, 2, 20), name), "1 to 2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((1, 5), name), "1 dimension"),
    "between bounds": lambda o, name: Break(
        {name: 0}, "a positive number" if name == "hopLength" else "a number from 1"
    ),
    "shape is winLength": lambda o, name: Break(shape((8,), name), "[5]"),
    "one side of real numbers": lambda o, name: Break(
        dtype(D.COMPLEX64, "self", "windowOptional"), "expected false with self of ACL_COMPLEX64"
    ),
    "shape is of the parts": lambda o, name: Break(shape((2, 8, 5), name), "[2, 5, 5]"),
}


class TestFourier(LibraryTests):
    subject = Subject(
        fourier.OPERATORS,
        calls={"stft": _call},
        references={"stft": _transformed},
        default=(D.FLOAT, D.DOUBLE, *COMPLEX),
        empty={
            "stft": {
                name: {"shape": of} for name, of in (("self", (0, 20)), ("windowOptional", (5,)), ("out", (0, 5, 5)))
            }
        },
        breaks=BREAKS,
    )


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("length", [7, 8])
def test_parts_are_those_of_pytorch(length: int, onesided: bool, normalized: bool, windowed: bool) -> None:
    random = np.random.default_rng(0)
    x, window = (random.normal(size=size).astype(np.float32) for size in (50, length))
    wanted = torch.view_as_real(
        torch.stft(
            torch.from_numpy(x).double(),
            8,
            4,
            length,
            torch.from_numpy(window).double() if windowed else torch.ones(length).double(),
            center=False,
            normalized=normalized,
            onesided=onesided,
            return_complex=True,
        )
    )
    out = _run(x, window if windowed else None, tuple(wanted.shape), (8, 4, length, normalized, onesided, False))
    np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)


def test_the_published_example() -> None:
    x, window = np.array([1, 6, 8, 5, 7], np.float32), np.ones(4, np.float32)
    out = _run(x, window, (3, 1, 2), (4, 2, 4, False, True, False))
    np.testing.assert_array_equal(out[:, 0], [[20, 0], [-7, -1], [-2, 0]])


def _run(x: Array, window: Array | None, shape: tuple[int, ...], given: tuple[int, ...]) -> Array:
    placed = Placed(np.zeros(shape, np.float32), "contiguous")
    arguments = {
        "self": Placed(x, "contiguous").tensor,
        "windowOptional": None if window is None else Placed(window, "contiguous").tensor,
        "out": placed.tensor,
        **dict(zip(("nFft", "hopLength", "winLength", "normalized", "onesided", "returnComplex"), given, strict=True)),
    }
    prepare(BY_NAME["stft"], arguments, Product.ATLAS_A2).run()
    return placed.view
