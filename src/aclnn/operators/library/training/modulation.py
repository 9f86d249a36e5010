"""aclnnModulate: scale and shift of sequences, with vectors per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dims_between, dtype_in, each, extents, floating, same_dtype, same_shape
from aclnn.core.operator import Call, Library
from aclnn.operators.library.common import declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given

_FACTORS = ("scaleOptional", "shiftOptional")


def _of_samples(call: Call, name: str) -> str | None:
    (batch, _, width), got = call["self"].shape, call[name].shape
    if call["self"].size == 0 and call[name].size:
        return f"expected no elements (as self has none), got {extents(got)}"
    if got in ((batch, width), (batch, 1, width)):
        return None
    return f"expected shape {extents((batch, width))} or {extents((batch, 1, width))}, got {extents(got)}"


def _work(call: Call) -> Library | None:
    names = given(call, *_FACTORS)
    if any(call[name].size == 0 for name in ("out", *names)):
        return None

    def modulate(x: Any, *factors: Any) -> Any:
        numbers = x.astype(np.float64)
        rows = {name: array.reshape(len(x), 1, -1) for name, array in zip(names, factors, strict=True)}
        if _FACTORS[0] in rows:
            numbers *= 1 + rows[_FACTORS[0]].astype(np.float64)
        return numbers + rows.get(_FACTORS[1], 0.0)

    return Library(modulate, ("self", *names), ("out",))


OPERATORS = (
    declared(
        "modulate",
        "out = self * (1 + scaleOptional) + shiftOptional",
        "Scale and shift sequences by vectors per sample.",
        (
            tensor_in("self", "samples, steps, features"),
            optional_in(_FACTORS[0], "the scale of each feature of a sample"),
            optional_in(_FACTORS[1], "the shift of each feature of a sample"),
            tensor_out("out", "the result"),
        ),
        (
            dtype_in(floating, "self"),
            *(same_dtype(name, "self") for name in (*_FACTORS, "out")),
            dims_between(3, 3, "self"),
            same_shape("out", "self"),
            each("one for each sample", _FACTORS, _of_samples),
        ),
        _work,
        FLOATING,
    ),
)
