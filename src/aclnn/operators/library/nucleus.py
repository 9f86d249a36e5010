"""aclnnApplyTopKTopP: which of a row's logits a sampler may choose from."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dims_between, dtype_in, floating, present, same_dtype, same_shape, shape_is
from aclnn.core.operator import Call
from aclnn.operators.library.common import (
    INDEX_TYPES,
    MODERN,
    library_operator,
    tensor_in,
    tensor_out,
)


def _apply(logits: Any, p: Any, k: Any) -> Any:
    """Logits without those below the k-th, and without the least whose probabilities add up to 1 - p at most."""
    columns = logits.shape[1]
    if columns == 1:
        return logits
    order = np.argsort(logits, axis=1, kind="stable")
    rising = np.take_along_axis(logits, order, 1).astype(np.float64)
    kept = np.where((k > 0) & (k <= columns), k, columns)[:, None]
    rising[rising < np.take_along_axis(rising, columns - kept, 1)] = -np.inf
    shares = np.exp(rising - rising[:, -1:])
    below = np.cumsum(shares / shares.sum(1, keepdims=True), axis=1) <= 1 - p[:, None].astype(np.float64)
    below[:, -1] = False
    rising[below] = -np.inf
    found = np.empty_like(rising)
    np.put_along_axis(found, order, rising, 1)
    return found


def _a_row(call: Call) -> tuple[int, ...]:
    return call["logits"].shape[:1]


OPERATORS = (
    library_operator(
        "apply_top_k_top_p",
        "out = logits, -inf below the k-th greatest, and where the probabilities of those not greater add up to "
        "1 - p at most",
        "Leave the most probable of each row's logits.",
        (
            tensor_in("logits", "(rows, words)"),
            tensor_in("p", "of each row, the probability that remains"),
            tensor_in("k", "of each row, how many remain at most; INT32 or INT64"),
            tensor_out(),
        ),
        (
            present("logits", "p", "k", "out"),
            dtype_in(floating, "logits", "p"),
            dtype_in(INDEX_TYPES, "k"),
            dtype_in(floating, "out"),
            same_dtype("p", "logits"),
            same_dtype("out", "logits"),
            dims_between(2, 2, "logits"),
            same_shape("out", "logits"),
            shape_is("one for each row", _a_row, "p", "k"),
        ),
        _apply,
        header="apply_top_k_top_p",
        dtypes=FLOATING,
        products=MODERN,
    ),
)
