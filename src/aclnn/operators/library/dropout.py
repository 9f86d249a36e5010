"""aclnnDropoutGenMaskV2 and aclnnDropoutDoMask: a mask of one bit an element, and what it leaves.

The documents do not say which bits a seed gives: here they are those of NumPy's Philox generator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import castable_from, dtype_in, extents, floating, limited_dims, present, rule, same_shape
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import WITH_INFERENCE, camel, library_operator, support, tensor_in, tensor_out

# Masks are whole vectors of 128 bits.
_VECTOR_BYTES = 16
_PROBABILITY = Parameter("prob", "prob", Kind.DOUBLE, "of an element to become 0")


def _mask_bytes(elements: int) -> int:
    return -(-elements // (8 * _VECTOR_BYTES)) * _VECTOR_BYTES


def _probability(call: Call) -> str | None:
    return None if 0 <= call["prob"] <= 1 else f"prob: expected a number from 0 to 1, got {call['prob']}"


_between = rule("from 0 to 1: prob", _probability)


def _uint8(name: str) -> Check:
    return dtype_in(lambda product: {D.UINT8}, name)


def _whole_mask(call: Call) -> str | None:
    expected = _mask_bytes(math.prod(call["shape"]))
    if call["out"].size == expected:
        return None
    return f"out: expected {expected} elements (a bit for each element of shape), got {extents(call['out'].shape)}"


def _large_mask(call: Call) -> str | None:
    expected = _mask_bytes(call["self"].size)
    if call["mask"].size >= expected:
        return None
    return f"mask: expected at least {expected} elements, got shape {extents(call['mask'].shape)}"


def _drawing(call: Call) -> Library | None:
    shape, prob, key, counter = call["out"].shape, call["prob"], call["seed"] % 2**64, call["offset"] % 2**64

    def draw() -> Any:
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        kept = generator.random(8 * math.prod(shape), np.float32) >= np.float32(prob)
        return np.packbits(kept, bitorder="little").reshape(shape)

    return Library(draw, (), ("out",)) if call["out"].size else None


def _apply(self: Any, mask: Any, prob: float) -> Any:
    if prob == 0:
        return self
    if prob == 1:
        return np.zeros_like(self)
    kept = np.unpackbits(np.ravel(mask), count=self.size, bitorder="little").reshape(self.shape)
    return np.where(kept, self / np.float32(1 - prob), np.float32(0))


OPERATORS = (
    Operator(
        name="dropout_gen_mask_v2",
        function=camel("dropout_gen_mask_v2"),
        summary="Draw the mask of a dropout.",
        formula="out = bits, each 1 with probability 1 - prob",
        parameters=(
            Parameter("shape", "shape", Kind.INT_ARRAY, "of what is to be masked"),
            _PROBABILITY,
            Parameter("seed", "seed", Kind.INT64, "the generator's seed"),
            Parameter("offset", "offset", Kind.INT64, "where in its stream to begin"),
            Parameter("probDataType", "prob_data_type", Kind.DTYPE, "that of what is to be masked"),
            tensor_out("out", "the bits; UINT8"),
        ),
        support=support((D.UINT8,), WITH_INFERENCE),
        checks=(present("shape", "out"), _uint8("out"), _between, rule("a bit for each element: out", _whole_mask)),
        work=_drawing,
        in_header_of="dropout_gen_mask",
    ),
    library_operator(
        "dropout_do_mask",
        "out = self / (1 - prob) where mask, 0 elsewhere",
        "Apply the mask of a dropout.",
        (tensor_in("self", "x"), tensor_in("mask", "a bit for each element; UINT8"), _PROBABILITY, tensor_out()),
        (
            present("self", "mask", "out"),
            dtype_in(floating, "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            _uint8("mask"),
            _between,
            limited_dims("self"),
            same_shape("out", "self"),
            rule("a bit for each element: mask", _large_mask),
        ),
        _apply,
        header="dropout_do_mask",
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16),
        products=WITH_INFERENCE,
        attributes=("prob",),
    ),
)
