"""Operations after an attention layer's projections: aclnnTransformBiasRescaleQkv and aclnnAddLora."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    generated,
    nothing_to_write,
    rule,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import Product
from aclnn.operators.library.common import MODERN, attribute, expect_within, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given

Array = np.ndarray[Any, Any]
_PARTS = ("qOut", "kOut", "vOut")
_A = "weightAOptional"
_MOST_GROUPS, _MOST_RANK, _MOST_COLUMNS, _UNIT = 32, 128, 131072, 16
"""Limits on the number of low-rank weights, their rank and y's columns; divisor of rank and columns."""


def _three_parts(call: Call) -> str | None:
    got, heads = call["qkv"].shape[2], call["numHeads"]
    if heads > 0 and got % (3 * heads) == 0:
        return None
    return f"numHeads: expected a positive number of heads that {got} columns hold three times, got {heads}"


def _heads(call: Call) -> tuple[int, ...]:
    samples, tokens, columns = call["qkv"].shape
    return samples, call["numHeads"], tokens, columns // (3 * call["numHeads"])


def _split_work(call: Call) -> Library | None:
    if nothing_to_write(call, _PARTS):
        return None
    heads = call["numHeads"]

    def split(qkv: Array, bias: Array) -> tuple[Array, ...]:
        samples, tokens, _ = qkv.shape
        whole = (qkv + bias).reshape(samples, tokens, 3, heads, -1)
        query, key, value = whole.transpose(2, 0, 3, 1, 4)
        return query / math.sqrt(query.shape[-1]), key, value

    return Library(split, ("qkv", "qkvBias"), _PARTS)


def _units(call: Call, name: str) -> str | None:
    got = call[name].shape
    columns = got[2:] if len(got) == 4 else got[1:]
    if all(0 < number <= _MOST_COLUMNS and number % _UNIT == 0 for number in columns):
        return None
    return f"expected multiples of {_UNIT} up to {_MOST_COLUMNS} after the first dimensions, got {extents(got)}"


def _few_weights(call: Call) -> str | None:
    groups, layers, _, rank = got = call["weightB"].shape
    if min(groups, layers) >= 1 and max(groups, layers) <= _MOST_GROUPS and rank <= _MOST_RANK:
        return None
    limits = f"1 to {_MOST_GROUPS} groups and layers, ranks up to {_MOST_RANK}"
    return f"weightB: expected {limits}, got {extents(got)}"


def _rank(call: Call) -> str | None:
    (_, columns), got = call["x"].shape, call["weightB"].shape
    if call[_A] is not None or columns == got[3]:
        return None
    return f"x: expected {got[3]} columns (those of weightB) without {_A}, got {columns}"


def _of_layers(call: Call) -> tuple[int, ...]:
    groups, layers, _, rank = call["weightB"].shape
    return groups, layers, rank, call["x"].shape[1]


def _layer(call: Call) -> str | None:
    most, got = call["weightB"].shape[1] - 1, call["layerIdx"]
    return None if 0 <= got <= most else f"layerIdx: expected from 0 to {most}, got {got}"


def _place(call: Call) -> str | None:
    most, got = call["y"].shape[1] - call["ySliceSize"], call["yOffset"]
    return None if 0 <= got <= most else f"yOffset: expected from 0 to {most}, got {got}"


def _lora_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("y", "out")):
        return None
    layer, scale, begin = call["layerIdx"], float32(call["scale"]), call["yOffset"]

    def add(y: Array, x: Array, up: Array, indices: Array, *down: Array) -> tuple[Array, Array]:
        expect_within("indices", indices, -1, len(up))
        result = y.astype(np.float64)
        for group in range(len(up)):
            rows = np.flatnonzero(indices == group)
            part = x[rows].astype(np.float64)
            for weight in (*(matrix[group, layer] for matrix in down), up[group, layer]):
                part = part @ weight.astype(np.float64).T
            result[rows, begin : begin + part.shape[1]] += part * scale
        return result, result

    return Library(add, ("y", "x", "weightB", "indices", *given(call, _A)), ("y", "out"))


OPERATORS = (
    Operator(
        name="transform_bias_rescale_qkv",
        summary="Add a bias to queries, keys and values, rescale the queries, and move heads first.",
        formula="qOut, kOut, vOut = (qkv + qkvBias) in heads, qOut / sqrt(columns of a head)",
        parameters=(
            tensor_in("qkv", "(B, T, 3 * heads * columns)"),
            tensor_in("qkvBias", "(3 * heads * columns)"),
            attribute("numHeads", Kind.INT64, "the number of heads"),
            *(tensor_out(name, "(B, heads, T, columns)", const=True) for name in _PARTS),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("qkv", "qkvBias"),
            _PARTS,
            lambda product: [(d,) * 5 for d in FLOATING],
            dims_between(3, 3, "qkv"),
            rule("three times heads: numHeads", _three_parts),
            shape_is("that of a row", lambda call: call["qkv"].shape[2:], "qkvBias"),
            shape_is("heads", _heads, *_PARTS),
        ),
        work=_split_work,
    ),
    Operator(
        name="add_lora",
        summary="Add LoRA updates, with the low-rank weights selected by indices.",
        formula="out = y, out[i, yOffset : yOffset + ySliceSize] += x[i] @ weightA[g, layerIdx]^T @ "
        "weightB[g, layerIdx]^T * scale, g = indices[i]; nothing for g = -1 or the number of weights",
        parameters=(
            tensor_out("y", "(B, H3), replaced by the result too; FLOAT16", const=True, updated=True),
            tensor_in("x", "(B, H1); FLOAT16"),
            tensor_in("weightB", "(W, L, H2, R); FLOAT16"),
            tensor_in("indices", "the weight index of each row; INT32"),
            optional_in(_A, "(W, L, R, H1); FLOAT16; null: x has R columns"),
            attribute("layerIdx", Kind.INT64, "the index of the layer"),
            attribute("scale", Kind.DOUBLE, "the factor of the product; rounded to float32"),
            attribute("yOffset", Kind.INT64, "the first column of y to which the product is added"),
            attribute("ySliceSize", Kind.INT64, "the number of columns of the product, H2"),
            tensor_out("out", "(B, H3)", const=True),
        ),
        support=support((D.FLOAT16,), {Product.ATLAS_A2}),
        checks=generated(
            ("y", "x", "weightB", "indices"),
            ("out",),
            lambda product: [(D.FLOAT16, D.FLOAT16, D.FLOAT16, D.INT32, D.FLOAT16)],
            dims_between(2, 2, "y", "x"),
            dims_between(4, 4, "weightB"),
            each("units", ("y", "x", "weightB"), _units),
            rule("few weights: weightB", _few_weights),
            shape_is("of each layer", _of_layers, _A),
            rule("columns: x", _rank),
            shape_is("one for each row", lambda call: call["y"].shape[:1], "indices"),
            shape_is("a row for each of y", lambda call: (call["y"].shape[0], call["x"].shape[1]), "x"),
            rule("a layer: layerIdx", _layer),
            fits("{} (the rows of weightB)", lambda call, got: (call["weightB"].shape[2], got), "ySliceSize"),
            rule("within y: yOffset", _place),
            same_shape("out", "y"),
            written=("y", "out"),
            optional=(dtype_in((D.FLOAT16,), _A),),
        ),
        work=_lora_work,
    ),
)
