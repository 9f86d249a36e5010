"""Fourier transforms of sequences and of overlapping parts of them."""

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
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
)

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


def _whole(d: D) -> Arguments:
    return {"self": T(d, (2, 5, 3)), "n": 7, "dim": -2, "norm": 2, "out": T(d, (2, 4, 3, 2))}


def _spectrum(a: Mapping[str, Any]) -> Any:
    norm = {1: "backward", 2: "forward", 3: "ortho"}[a["norm"]]
    points = None if a["n"] == -1 else a["n"]
    return torch.view_as_real(torch.fft.rfft(a["self"].double(), points, a["dim"], norm))


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
    "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT" if o.name == "rfft1_d" else "ACL_COMPLEX64"),
    "kernel of the product": lambda o, name: Break({}, "with a kernel", product=Product.ATLAS_TRAINING),
    "1 to 7 dimensions": lambda o, name: Break(shape((1,) * 8, name), "1 to 7 dimensions"),
    "a number of steps": lambda o, name: Break({name: 0}, "a number from 1 to 262144, or -1"),
    "allowed value": lambda o, name: Break({name: 4}, "1, 2 or 3"),
    "dimension of self": lambda o, name: Break({name: 3}, "from -3 to 2"),
    "shape is of the frequencies": lambda o, name: Break(shape((2, 4, 3), name), "[2, 4, 3, 2]"),
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
        calls={"stft": _call, "rfft1_d": _whole},
        references={"stft": _transformed, "rfft1_d": _spectrum},
        dtypes={"rfft1_d": (D.FLOAT,)},
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
def test_stft_parts_match_pytorch(length: int, onesided: bool, normalized: bool, windowed: bool) -> None:
    random = np.random.default_rng(0)
    x, window = (random.normal(size=size).astype(np.float32) for size in (50, length))
    expected = torch.view_as_real(
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
    out = _run(x, window if windowed else None, tuple(expected.shape), (8, 4, length, normalized, onesided, False))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_stft_reproduces_the_documents_example() -> None:
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


def _whole_run(x: Array, n: int, dim: int, norm: int, shape: tuple[int, ...]) -> Array:
    given = {"self": x, "n": n, "dim": dim, "norm": norm, "out": np.zeros(shape, np.float32)}
    return computed("rfft1_d", given)["out"]


def test_rfft1d_reproduces_the_documents_sequences() -> None:
    """From the example and the text of the document of aclRfft1D."""
    eight = _whole_run(np.arange(1, 9, dtype=np.float32).reshape(1, 1, 8), 8, -1, 1, (1, 1, 5, 2))
    root = np.sqrt(2)
    expected = [[36, 0], [-4, 4 + 4 * root], [-4, 4], [-4, 4 * root - 4], [-4, 0]]
    np.testing.assert_allclose(eight[0, 0], expected, atol=1e-5)
    four = _whole_run(np.arange(1, 5, dtype=np.float32), 4, 0, 1, (3, 2))
    np.testing.assert_allclose(four, [[10, 0], [-2, 2], [-2, 0]], atol=1e-6)


@pytest.mark.parametrize("norm", [1, 2, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("n", [-1, 1, 4, 9])
def test_rfft1d_cuts_or_pads_sequences(n: int, dim: int, norm: int) -> None:
    x = np.random.default_rng(0).normal(size=(5, 7, 6)).astype(np.float32)
    expected = _spectrum({"self": torch.from_numpy(x), "n": n, "dim": dim, "norm": norm})
    np.testing.assert_allclose(_whole_run(x, n, dim, norm, tuple(expected.shape)), expected, atol=1e-5)
