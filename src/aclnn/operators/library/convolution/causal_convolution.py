"""Causal convolutions over tokens: aclnnMaskedCausalConv1d and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, each, extents, generated, nothing_to_write, rule, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given

_HALVES = (D.FLOAT16, D.BF16)
_MASK = "maskOptional"
_WIDTH, _UNIT = 3, 64
"""Window length in tokens, and divisor of a token's number of elements."""
_FEWEST, _MOST, _MOST_TOKENS, _MOST_SEQUENCES = 384, 24576, 512 * 1024, 32


def _sizes(name: str, most_sequences: int) -> Check:
    limits = f"from 1 to {_MOST_TOKENS} tokens"
    limits += f" of at most {most_sequences} sequences" if most_sequences < _MOST_TOKENS else ""

    def violation(call: Call) -> str | None:
        tokens, sequences, numbers = call[name].shape
        few = 1 <= tokens * sequences <= _MOST_TOKENS and sequences <= most_sequences
        if few and _FEWEST <= numbers <= _MOST and numbers % _UNIT == 0:
            return None
        expected = f"{limits}, which have a multiple of {_UNIT} from {_FEWEST} to {_MOST} numbers"
        return f"{name}: expected {expected}, got {extents(call[name].shape)}"

    return rule(f"sizes with a kernel: {name}", violation)


def _mask_shape(name: str) -> Check:
    def violation(call: Call, mask: str) -> str | None:
        tokens, sequences, _ = call[name].shape
        got = call[mask].shape
        return None if got == (sequences, tokens) else f"expected shape [{sequences}, {tokens}], got {extents(got)}"

    return each("each token", (_MASK,), violation)


def _later(rows: Any, by: int) -> Any:
    """Shift rows later by a number, or earlier if it is negative, filling with zeros."""
    moved = np.zeros_like(rows)
    if by >= 0:
        moved[by:] = rows[: len(rows) - by]
    else:
        moved[:by] = rows[-by:]
    return moved


def _masked(rows: Any, mask: tuple[Any, ...]) -> Any:
    return np.where(mask[0].T[..., None], rows, 0.0) if mask else rows


def _forward(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None

    def convolve(x: Any, weight: Any, *mask: Any) -> Any:
        x, weight = x.astype(np.float64), weight.astype(np.float64)
        return _masked(sum(_later(x, _WIDTH - 1 - at) * weight[at] for at in range(_WIDTH)), mask)

    return Library(convolve, ("x", "weight", *given(call, _MASK)), ("out",))


def _backward(call: Call) -> Library | None:
    outputs = ("gradXOut", "gradWeightOut")
    if nothing_to_write(call, outputs):
        return None

    def differentiate(grad: Any, x: Any, weight: Any, *mask: Any) -> Any:
        grad, x, weight = (of.astype(np.float64) for of in (grad, x, weight))
        earlier = [_later(_masked(grad, mask), at + 1 - _WIDTH) for at in range(_WIDTH)]
        of_x = sum(part * row for part, row in zip(earlier, weight, strict=True))
        return of_x, np.stack([(part * x).sum((0, 1)) for part in earlier])

    return Library(differentiate, ("gradY", "x", "weight", *given(call, _MASK)), outputs)


def _operator(
    name: str,
    formula: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    work: Callable[[Call], Library | None],
    like: dict[str, str],
    most_sequences: int = _MOST_TOKENS,
) -> Operator:
    """Declare a function; ``like`` maps each tensor to the one whose shape it has."""
    inputs = tuple(p.name for p in parameters if p.kind is Kind.INPUT and not p.optional)
    outputs = tuple(p.name for p in parameters if p.kind is Kind.OUTPUT)
    first = inputs[0]

    def alike(call: Call, tensor: str) -> str | None:
        expected, got = call[like[tensor]].shape, call[tensor].shape
        return None if got == expected else f"expected shape {extents(expected)} as {like[tensor]}, got {extents(got)}"

    def window(call: Call) -> Shape:
        return _WIDTH, call[first].shape[2]

    checks = generated(
        inputs,
        outputs,
        lambda product: [(dtype,) * (len(inputs) + len(outputs)) for dtype in _HALVES],
        dims_between(3, 3, first),
        _sizes(first, most_sequences),
        shape_is("a window of rows", window, "weight"),
        _mask_shape(first),
        each("shape of another", tuple(like), alike),
        optional=(dtype_in({D.BOOL}, _MASK),),
    )
    return declared(name, formula, summary, parameters, checks, work, dtypes=_HALVES, products=CLASS_950)


_TOKENS, _WINDOW = "(tokens, sequences, numbers)", "(3, numbers)"
_WHICH = optional_in(_MASK, "the mask (sequences, tokens) of the outputs to keep; BOOL; null: all")
OPERATORS = (
    _operator(
        "masked_causal_conv1d",
        "out[i] = (weight[0] * x[i - 2] + weight[1] * x[i - 1] + weight[2] * x[i]) * maskOptional[:, i], "
        "x[-1] = x[-2] = 0",
        "Depthwise causal convolution over windows of three tokens.",
        (tensor_in("x", _TOKENS), tensor_in("weight", _WINDOW), _WHICH, tensor_out("out", "as x", const=True)),
        _forward,
        {"out": "x"},
    ),
    _operator(
        "masked_causal_conv1d_backward",
        "g = gradY * maskOptional; gradXOut[i] = weight[0] * g[i + 2] + weight[1] * g[i + 1] + weight[2] * g[i]; "
        "gradWeightOut[k] = sum of g[i + 2 - k] * x[i]",
        "Gradients of aclnnMaskedCausalConv1d with respect to x and weight.",
        (
            tensor_in("gradY", _TOKENS),
            tensor_in("x", "as gradY"),
            tensor_in("weight", _WINDOW),
            _WHICH,
            tensor_out("gradXOut", "as gradY", const=True),
            tensor_out("gradWeightOut", "as weight", const=True),
        ),
        _backward,
        {"x": "gradY", "gradXOut": "gradY", "gradWeightOut": "weight"},
        _MOST_SEQUENCES,
    ),
)
"""Convolutions over tokens, on Ascend 950."""
