"""Fourier transforms: of sequences (aclRfft1D), and of overlapping parts of them (aclStft)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    axis,
    dims_between,
    dtype_in,
    each,
    format_is,
    one_of,
    rule,
    same_dtype,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, present
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import COMPLEX, attribute, declared, optional_in, tensor_in, tensor_out

_COMPLEX_OF = {D.FLOAT: D.COMPLEX64, D.DOUBLE: D.COMPLEX128}
_REAL_OF = {whole: part for part, whole in _COMPLEX_OF.items()}
_TAKEN = (*_COMPLEX_OF, *COMPLEX)


def _result_dtype(call: Call, name: str) -> str | None:
    given = call["self"].dtype
    expected = (_COMPLEX_OF if call["returnComplex"] else _REAL_OF).get(given, given)
    got = call[name].dtype
    if got == expected:
        return None
    what = f"self of {given.c_name} and returnComplex {str(call['returnComplex']).lower()}"
    return f"expected data type {expected.c_name} ({what}), got {got.c_name}"


def _between(name: str, most: str = "") -> Check:
    def violation(call: Call) -> str | None:
        got, limit = call[name], None
        if most:
            limit = call["self"].shape[-1] if most == "self" else call[most]
        if got > 0 and (limit is None or got <= limit):
            return None
        room = "a positive number" if limit is None else f"a number from 1 to {limit} (of {most})"
        return f"{name}: expected {room}, got {got}"

    return rule(f"between bounds: {name}", violation)


def _one_side(call: Call) -> str | None:
    if call["onesided"] and call["self"].dtype in COMPLEX:
        return f"onesided: expected false with self of {call['self'].dtype.c_name}, got true"
    return None


def _shape(call: Call) -> tuple[int, ...]:
    *batch, length = call["self"].shape
    points = call["nFft"]
    frequencies = points // 2 + 1 if call["onesided"] else points
    times = (length - points) // call["hopLength"] + 1
    return (*batch, frequencies, times, *(() if call["returnComplex"] else (2,)))


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    points, window = call["nFft"], call["winLength"]
    before = (points - window) // 2
    span = slice(before, before + window)
    wide = np.complex128 if call["self"].dtype in COMPLEX else np.float64
    transform = np.fft.rfft if call["onesided"] else np.fft.fft

    def transformed(x: Any, *given: Any) -> Any:
        weights = np.zeros(points, wide)
        weights[span] = given[0] if given else 1
        frames = np.lib.stride_tricks.sliding_window_view(x, points, -1)[..., :: call["hopLength"], :]
        found = transform(frames * weights, norm="ortho" if call["normalized"] else None)
        found = np.ascontiguousarray(found.swapaxes(-2, -1))
        return found if call["returnComplex"] else found.view(np.float64).reshape(*found.shape, 2)

    inputs = ("self",) if call["windowOptional"] is None else ("self", "windowOptional")
    return Library(transformed, inputs, ("out",))


_NORMS: Mapping[int, Literal["backward", "forward", "ortho"]] = {1: "backward", 2: "forward", 3: "ortho"}
_MOST_STEPS = 262144


def _steps(call: Call) -> str | None:
    got = call["n"]
    if got == -1 or 1 <= got <= _MOST_STEPS:
        return None
    return f"n: expected a number from 1 to {_MOST_STEPS}, or -1, got {got}"


def _frequencies(call: Call) -> tuple[int, ...]:
    shape, dim = list(call["self"].shape), call["dim"]
    shape[dim] = (shape[dim] if call["n"] == -1 else call["n"]) // 2 + 1
    return (*shape, 2)


def _rfft_work(call: Call) -> Library | None:
    if call["self"].size == 0 or call["out"].size == 0:
        return None
    points, dim, norm = call["n"], call["dim"], _NORMS[call["norm"]]

    def transformed(x: Any) -> Any:
        found = np.fft.rfft(x.astype(np.float64), None if points == -1 else points, dim, norm)
        return np.stack((found.real, found.imag), -1)

    return Library(transformed, ("self",), ("out",))


OPERATORS = (
    replace(
        declared(
            "rfft1_d",
            "out[k] = sum over t of self[t] * exp(-2 * pi * i * k * t / n), k <= n / 2; "
            "divided by n if norm is 2, by sqrt(n) if it is 3",
            "Fourier transforms of real sequences, without negative frequencies.",
            (
                tensor_in("self", "the sequences along a dimension"),
                attribute("n", Kind.INT64, "steps; longer sequences are cut, shorter ones padded by 0; -1: all"),
                attribute("dim", Kind.INT64, "the dimension"),
                attribute("norm", Kind.INT64, "1: sums, 2: divided by n, 3: divided by its root"),
                tensor_out("out", "real and imaginary parts along the last dimension"),
            ),
            (
                *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
                present("self", "out"),
                *unless_empty(
                    ("self",),
                    dtype_in((D.FLOAT,), "self"),
                    dims_between(1, 7, "self"),
                    rule("a number of steps: n", _steps),
                    one_of("norm", *_NORMS),
                    axis("dim", "self"),
                    shape_is("of the frequencies", _frequencies, "out"),
                    same_dtype("out", "self"),
                ),
            ),
            _rfft_work,
            dtypes=(D.FLOAT,),
        ),
        function="aclRfft1D",
    ),
    replace(
        declared(
            "stft",
            "out[w, m] = sum over k of window[k] * self[m * hopLength + k] * exp(-2 * pi * i * w * k / nFft), "
            "divided by sqrt(nFft) if normalized; a shorter window lies in the middle of nFft steps",
            "Fourier transforms of overlapping parts of sequences.",
            (
                tensor_in("self", "a sequence, or several as rows"),
                optional_in("windowOptional", "factors of a part's steps; ones if it is null"),
                tensor_out("out", "(sequences, frequencies, parts), of real numbers with 2 behind it"),
                attribute("nFft", Kind.INT64, "steps of a part"),
                attribute("hopLength", Kind.INT64, "steps from one part to the next"),
                attribute("winLength", Kind.INT64, "steps of the window"),
                attribute("normalized", Kind.BOOL, "whether to divide by the square root of nFft"),
                attribute("onesided", Kind.BOOL, "whether to leave out the negative frequencies"),
                attribute("returnComplex", Kind.BOOL, "whether out is complex"),
            ),
            (
                dtype_in(_TAKEN, "self"),
                same_dtype("windowOptional", "self"),
                each("data type of this result", ("out",), _result_dtype),
                format_is(Format.FORMAT_ND, "self"),
                dims_between(1, 2, "self"),
                dims_between(1, 1, "windowOptional"),
                _between("nFft", "self"),
                _between("hopLength"),
                _between("winLength", "nFft"),
                shape_is("winLength", lambda call: (call["winLength"],), "windowOptional"),
                rule("one side of real numbers: onesided", _one_side),
                shape_is("of the parts", _shape, "out"),
            ),
            _work,
            dtypes=_TAKEN,
        ),
        function="aclStft",
    ),
)
