"""aclnnApplyTopKTopP: which of a row's logits a sampler may choose from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    floating,
    present,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, library_operator, optional_in, tensor_in, tensor_out


def _apply(logits: Any, p: Any = None, k: Any = None) -> Any:
    """Logits without those below the k-th, and without the least whose probabilities add up to 1 - p at most."""
    columns = logits.shape[1]
    if columns == 1:
        return logits
    order = np.argsort(logits, axis=1, kind="stable")
    rising = np.take_along_axis(logits, order, 1).astype(np.float64)
    if k is not None:
        kept = np.where((k > 0) & (k <= columns), k, columns)[:, None]
        rising[rising < np.take_along_axis(rising, columns - kept, 1)] = -np.inf
    if p is not None:
        shares = np.exp(rising - rising[:, -1:])
        below = np.cumsum(shares / shares.sum(1, keepdims=True), axis=1) <= 1 - p[:, None].astype(np.float64)
        below[:, -1] = False
        rising[below] = -np.inf
    found = np.empty_like(rising)
    np.put_along_axis(found, order, rising, 1)
    return found


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    given = tuple(name for name in ("p", "k") if call[name] is not None)

    def apply(logits: Any, *thresholds: Any) -> Any:
        return _apply(logits, **dict(zip(given, thresholds, strict=True)))

    return Library(apply, ("logits", *given), ("out",))


def _neither(call: Call) -> str | None:
    return "p, k: expected one of them, got null twice" if call["p"] is None and call["k"] is None else None


def _a_row(call: Call) -> tuple[int, ...]:
    return call["logits"].shape[:1]


OPERATORS = (
    replace(
        library_operator(
            "apply_top_k_top_p",
            "out = logits, -inf below the k-th greatest, and where the probabilities of those not greater add up to "
            "1 - p at most",
            "Leave the most probable of each row's logits.",
            (
                tensor_in("logits", "(rows, words)"),
                optional_in("p", "of each row, the probability that remains; null: all"),
                optional_in("k", "of each row, how many remain at most; INT32; null: all"),
                tensor_out(),
            ),
            (
                present("logits"),
                rule("p or k", _neither, ACLNN_ERR_PARAM_NULLPTR),
                present("out"),
                dtype_in(floating, "logits", "p"),
                dtype_in((D.INT32,), "k"),
                dtype_in(floating, "out"),
                same_dtype("p", "logits"),
                same_dtype("out", "logits"),
                dims_between(2, 2, "logits"),
                same_shape("out", "logits"),
                dims_between(1, 1, "p", "k"),
                shape_is("one for each row", _a_row, "p", "k"),
                public_format("logits", "p", "k", "out"),
            ),
            _apply,
            header="apply_top_k_top_p",
            dtypes=FLOATING,
            products=MODERN,
        ),
        work=_work,
    ),
)
