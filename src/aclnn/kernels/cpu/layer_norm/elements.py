"""How elements of each data type are read and written, sixteen at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd import memory


class Element(NamedTuple):
    """The ways of one data type (see ``memory`` and ``masked``).

    ``most`` is the largest finite magnitude, infinite where that bounds nothing. ``stream`` needs an address aligned to
    the sixteen elements, ``trickle`` one aligned to 16 bytes. ``lines``: ways to write 64 bytes, of one vector or two.
    """

    size: int
    load: Any
    load_part: Any
    store: Any
    store_part: Any
    stream: Any
    trickle: Any
    lines: dict[str, Any]
    most: float = math.inf


WAYS = ("store", "stream", "trickle")


def _one_after_the_other(write: Any) -> Any:
    @register_jitable
    def both(address: int, low: Any, high: Any) -> None:
        write(address, low)
        write(address + 32, high)

    return both


def _element(size: int, name: str) -> Element:
    ways = {way: getattr(memory, f"{way}_{name}") for way in WAYS}
    return Element(
        size=size,
        load=getattr(memory, f"load_{name}"),
        load_part=getattr(memory, f"load_{name}_part"),
        store_part=getattr(memory, f"store_{name}_part"),
        **ways,
        lines=ways,
    )


def _float16() -> Element:
    element = _element(2, "float16")._replace(stream=memory.stream_float16_apart, most=65504.0)
    return element._replace(lines={way: _one_after_the_other(getattr(element, way)) for way in WAYS})


def _bfloat16() -> Element:
    return _element(2, "bfloat16")._replace(lines={way: getattr(memory, f"{way}_two_bfloat16") for way in WAYS})


ELEMENTS = {DataType.FLOAT: _element(4, "float32"), DataType.FLOAT16: _float16(), DataType.BF16: _bfloat16()}
