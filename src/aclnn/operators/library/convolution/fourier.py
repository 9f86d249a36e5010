"""Fourier transforms of windows: aclStft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, each, format_is, present, rule, same_dtype, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library
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
    def complain(call: Call) -> str | None:
        got, limit = call[name], None
        if most:
            limit = call["self"].shape[-1] if most == "self" else call[most]
        if got > 0 and (limit is None or got <= limit):
            return None
        room = "a positive number" if limit is None else f"a number from 1 to {limit} (of {most})"
        return f"{name}: expected {room}, got {got}"

    return rule(f"between bounds: {name}", complain)


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


OPERATORS = (
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
                present("self", "out"),
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
