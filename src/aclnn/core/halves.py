"""Tensors of two halves along the dimension given by the attribute ``dim``: shapes, parts, checks."""

from __future__ import annotations

from aclnn.core.checks import each, extents, rule
from aclnn.core.operator import Call, Check, Part, Shape
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID


def half_shape(call: Call, whole: str) -> Shape:
    """Return the shape of half a tensor; the whole tensor's if ``dim`` is out of range.

    A 0-dim tensor counts as an empty one of one dimension.
    """
    shape, dim = call[whole].shape or (0,), call["dim"]
    if not -len(shape) <= dim < len(shape):
        return tuple(shape)
    dim %= len(shape)
    return (*shape[:dim], shape[dim] // 2, *shape[dim + 1 :])


def halves(call: Call, tensor: str) -> tuple[Part, Part]:
    """Return the first and the second half of a tensor."""
    shape = call[tensor].shape
    dim = call["dim"] % len(shape)
    half = shape[dim] // 2
    return Part(tensor, dim, 0, half), Part(tensor, dim, half, shape[dim])


def even_size(whole: str, code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Require an even size along dim."""

    def violation(call: Call) -> str | None:
        size = (call[whole].shape or (0,))[call["dim"]]
        return None if size % 2 == 0 else f"{whole}: expected an even size along dimension {call['dim']}, got {size}"

    return rule(f"even size along dim: {whole}", violation, code)


def half_of(whole: str, name: str, code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Require the shape of a half of another tensor."""

    def violation(call: Call, name: str) -> str | None:
        expected, got = half_shape(call, whole), call[name].shape
        return None if got == expected else f"expected shape {extents(expected)} (half of {whole}), got {extents(got)}"

    return each(f"half of {whole}", (name,), violation, code)
