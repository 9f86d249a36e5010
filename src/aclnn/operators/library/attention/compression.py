"""Compression of keys and values: aclnnNsaCompress sums windows of sequences with weights; and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, extents, one_of, rule, same_dtype, same_shape, with_code
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, present
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import attribute, declared, tensor_in, tensor_out

_HALVES = (D.FLOAT16, D.BF16)
_A2 = frozenset({Product.ATLAS_A2})
_UNIT, _MOST_HEADS, _WIDEST, _LONGEST = 16, 128, 256, 128
_BLOCK, _STRIDE, _TYPE = "compressBlockSize", "compressStride", "actSeqLenType"


def _starts(call: Call, ends: str) -> Any:
    """Return the first rows of all windows, each of which lies within one sequence."""
    block, stride, found, begin = call[_BLOCK], call[_STRIDE], [np.zeros(0, np.int64)], 0
    for end in call[ends]:
        found.append(np.arange(begin, end - block + 1, stride))
        begin = end
    return np.concatenate(found)


def _weight_rows(call: Call) -> str | None:
    expected, got = (call[_BLOCK], call["input"].shape[1]), call["weight"].shape
    return None if got == expected else f"weight: expected shape {extents(expected)}, got {extents(got)}"


def _some_elements(call: Call) -> str | None:
    got = call["input"].shape
    return None if got[1] and got[2] else f"input: expected heads with elements, got {extents(got)}"


def _sequences(name: str) -> Check:
    def violation(call: Call) -> str | None:
        return None if call[name] else f"{name}: expected numbers, got {'null' if call[name] is None else 'none'}"

    return rule(f"ends of sequences: {name}", violation)


def _rising(name: str) -> Check:
    def violation(call: Call) -> str | None:
        ends, rows = call[name], call["input"].shape[0]
        if ends[-1] == rows and all(0 <= one <= next_one for one, next_one in zip((0, *ends), ends, strict=False)):
            return None
        return f"{name}: expected rising numbers up to {rows} (rows of input), got {extents(ends)}"

    return rule(f"of all rows: {name}", violation)


def _sizes(apart: bool) -> Check:
    """Check windows and heads against the kernel's limits; with ``apart``, the stride must be below the window."""

    def violation(call: Call) -> str | None:
        block, stride = call[_BLOCK], call[_STRIDE]
        if block % _UNIT or stride % _UNIT or not 0 < stride <= block - apart or block > _LONGEST:
            beside = "more than" if apart else "at least"
            text = f"{_BLOCK}: expected multiples of {_UNIT} up to {_LONGEST}, {beside} {_STRIDE}"
            return f"{text}, got {block} and {stride}"
        _, heads, width = call["input"].shape
        if heads <= _MOST_HEADS and width % _UNIT == 0 and width <= _WIDEST:
            return None
        limits = f"at most {_MOST_HEADS} heads of a multiple of {_UNIT} elements up to {_WIDEST}"
        return f"input: expected {limits}, got {extents(call['input'].shape)}"

    return rule(f"windows and heads with a kernel: {_BLOCK}", violation)


def _compressed(name: str, ends: str) -> Check:
    def violation(call: Call) -> str | None:
        expected, got = (len(_starts(call, ends)), *call["input"].shape[1:]), call[name].shape
        return None if got == expected else f"{name}: expected shape {extents(expected)}, got {extents(got)}"

    return rule(f"a row for each window: {name}", violation)


def _work(call: Call) -> Library | None:
    starts, shape = _starts(call, "actSeqLenOptional"), call["output"].shape
    if call["output"].size == 0:
        return None

    def compress(given: Any, weight: Any) -> Any:
        total = np.zeros(shape, np.float64)
        for at, factors in enumerate(weight):
            total += given[starts + at] * factors[:, None].astype(np.float64)
        return total

    return Library(compress, ("input", "weight"), ("output",))


def _gradient_work(call: Call) -> Library:
    starts = _starts(call, "actSeqLenOptionalOptional")

    def back(grad: Any, given: Any, weight: Any) -> tuple[Any, Any]:
        of_input, of_weight = np.zeros(given.shape, np.float64), np.zeros(weight.shape, np.float64)
        for at, factors in enumerate(weight):
            of_input[starts + at] += grad * factors[:, None].astype(np.float64)
            of_weight[at] = np.einsum("rhd,rhd->h", grad, given[starts + at], dtype=np.float64)
        return of_input, of_weight

    return Library(back, ("outputGrad", "input", "weight"), ("inputGradOut", "weightGradOut"))


def _ends(name: str) -> Parameter:
    return Parameter(name, name, Kind.INT_ARRAY, "the end of each sequence", optional=True)


def _layout(name: str) -> Parameter:
    return Parameter(name, name, Kind.STRING, '"TND"', c_type="char *")


_INPUT, _WEIGHT = tensor_in("input", "(tokens, heads, elements)"), tensor_in("weight", "(rows of a window, heads)")
_WINDOWS = (
    attribute(_BLOCK, Kind.INT64, "the number of rows of a window"),
    attribute(_STRIDE, Kind.INT64, "the stride between windows"),
)
_KIND = attribute(_TYPE, Kind.INT64, "0: actSeqLenOptional contains ends")


def _checks(compressed: str, ends: str, layout: str, apart: bool, *before: Check) -> tuple[Check, ...]:
    return (
        *before,
        dims_between(3, 3, "input", compressed),
        dims_between(2, 2, "weight"),
        rule("some elements: input", _some_elements),
        rule("a row for each of a window: weight", _weight_rows),
        one_of(layout, "TND"),
        _sequences(ends),
        one_of(_TYPE, 0),
        *with_code(ACLNN_ERR_INNER_NULLPTR, _sizes(apart), _rising(ends), _compressed(compressed, ends)),
    )


OPERATORS = (
    declared(
        "nsa_compress",
        "output[i] = sum over j of weight[j] * input[start[i] + j], start: every compressStride-th row of a sequence",
        "Weighted sums over windows of sequences.",
        (_INPUT, _WEIGHT, _ends("actSeqLenOptional"), _layout("layoutOptional"), *_WINDOWS, _KIND)
        + (tensor_out("output", "a row for each window"),),
        _checks(
            *("output", "actSeqLenOptional", "layoutOptional", False),
            present("input", "weight", "output"),
            dtype_in(set(_HALVES), "input"),
            same_dtype("weight", "input"),
            same_dtype("output", "input"),
        ),
        _work,
        dtypes=_HALVES,
        products=_A2,
    ),
    declared(
        "nsa_compress_grad",
        "inputGradOut[start[i] + j] += weight[j] * outputGrad[i]; weightGradOut[j] = sum of outputGrad[i] * "
        "input[start[i] + j]",
        "Gradients of weighted sums over windows.",
        (
            tensor_in("outputGrad", "the gradient with respect to the output"),
            *(_INPUT, _WEIGHT, _ends("actSeqLenOptionalOptional"), *_WINDOWS, _KIND, _layout("layoutOptionalOptional")),
            tensor_out("inputGradOut", "the gradient with respect to input", const=True),
            tensor_out("weightGradOut", "the gradient with respect to weight", const=True),
        ),
        _checks(
            *("outputGrad", "actSeqLenOptionalOptional", "layoutOptionalOptional", True),
            present("outputGrad", "input", "weight", "inputGradOut", "weightGradOut"),
            dtype_in(set(_HALVES), "input"),
            *(same_dtype(name, "input") for name in ("weight", "outputGrad", "inputGradOut", "weightGradOut")),
            same_shape("inputGradOut", "input"),
            same_shape("weightGradOut", "weight"),
        ),
        _gradient_work,
        dtypes=_HALVES,
        products=_A2,
    ),
)
