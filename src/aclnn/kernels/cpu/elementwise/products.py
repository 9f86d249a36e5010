"""dy times a slope for sixteen x at an address: by a gradient, or by the table of all 16-bit x."""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import again
from aclnn.kernels.cpu.elementwise.slopes import Gradient
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import load_entries
from aclnn.kernels.cpu.vector import absolute, any_lane, select

SECOND_TABLE = 4 * 65536
"""Bytes from the first table of slopes to the second (see ``entries``)."""

_TINY = 2.0**-100
"""Entries below this are also in the second table, times 2^150."""
_TINY_STEP = 2.0**-75
_LARGEST = (2.0 - 2.0**-23) * 2.0**127


@register_jitable(forceinline=True)
def by_entries(table: int, x: int, dy: Any) -> Any:
    """dy times the entries for the sixteen 16-bit x at an address.

    Where a tiny slope meets a dy above 1 the product is taken from the second table, because the slope's own digits do
    not fit into a float32. An infinite dy is multiplied with the slope that does.
    """
    entry = load_entries(table, x)
    product = entry * dy
    size = absolute(dy)
    tiny = (absolute(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
    if any_lane(tiny):
        lifted = load_entries(table + SECOND_TABLE, again(x))
        finite = ((dy * _TINY_STEP) * lifted) * _TINY_STEP
        infinite = dy * ((lifted * _TINY_STEP) * _TINY_STEP)
        product = select(tiny, select(size <= _LARGEST, finite, infinite), product)
    return product


def by_gradient(gradient: Gradient, load: Any) -> Any:
    """The same by a gradient, for the sixteen x that ``load`` reads."""
    gradient = register_jitable(forceinline=True)(gradient)

    @register_jitable(forceinline=True)
    def product(table: int, x: int, dy: Any) -> Any:
        return gradient(load(x), dy)

    return product


def times(slope: Any) -> Gradient:
    """dy times a slope, or a value, which compiled code can call."""

    def gradient(x: Any, dy: Any) -> Any:
        return dy * slope(x)

    return gradient
