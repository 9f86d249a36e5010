"""Search for infinities and NaN: aclnnAllFinite, of MindSpore's own operator package, which scales losses by it."""

from __future__ import annotations

import numpy as np

from aclnn.core.checks import FLOATING, generated
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library
from aclnn.core.products import Product
from aclnn.operators.library.common import MODERN, declared, support, tensor_in, tensor_out

_TAKEN = support(FLOATING, MODERN | {Product.ATLAS_INFERENCE})


def _work(call: Call) -> Library | None:
    if call["gradient"].size == 0 or call["out"].size == 0:
        return None
    return Library(lambda x, found: found | ~np.isfinite(x).all(), ("gradient", "out"), ("out",))


OPERATORS = (
    declared(
        "all_finite",
        "out = true if gradient has an infinity or NaN, else as it was",
        "Add to a flag whether a tensor has an element that is not finite.",
        (
            tensor_in("gradient", "the elements"),
            tensor_out("out", "the flag, which the caller clears", const=True, updated=True),
        ),
        generated(("gradient",), ("out",), lambda product: [(dtype, D.BOOL) for dtype in _TAKEN[product]]),
        _work,
        products=_TAKEN,
    ),
)
