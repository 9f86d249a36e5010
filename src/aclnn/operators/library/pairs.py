"""Functions of two numbers beyond arithmetic: angles, sums of logarithms, x ln y, shifts of bits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    present,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Operator
from aclnn.core.promotion import is_floating
from aclnn.operators.library.common import (
    INTEGERS,
    REAL,
    library_operator,
    promoted,
    scalar,
    tensor_in,
    tensor_out,
)


def _floating(dtype: D) -> D:
    """Integers and BOOL are computed as FLOAT."""
    return dtype if is_floating(dtype) else D.FLOAT


def _wide(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Compute floating numbers in float64: NumPy's functions of float32 are off by several units."""
    return lambda x, y: function(np.asarray(x, np.float64), np.asarray(y, np.float64))


def _of_tensors(
    name: str,
    formula: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    header: str,
    second: str = "other",
    dtypes: Collection[D] = REAL,
    dtype: Callable[[D], D] = _floating,
) -> Operator:
    def computed(call: Call) -> D:
        return dtype(promoted(call, "self", second))

    return library_operator(
        name,
        f"out = {formula}",
        summary,
        (tensor_in("self", "the first operand"), tensor_in(second, "the second operand"), tensor_out()),
        (
            present("self", second, "out"),
            dtype_in(where_supported(dtypes), "self", second),
            castable_from(computed, "out"),
            limited_dims("self", second),
            broadcastable(second, "self"),
            broadcast_shape_of("out", "self", second),
        ),
        function,
        header=header,
        dtype=computed,
        dtypes=dtypes,
        empty=("self", second),
    )


def _with_scalar(
    name: str,
    formula: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    header: str,
    tensor: str,
    number: str,
    dtypes: Collection[D] = REAL,
    dtype: Callable[[D], D] = _floating,
) -> Operator:
    """A function of a tensor and a number, in the order of its formula."""
    given = [tensor_in(tensor, "the tensor"), scalar(number, "the number")]

    def computed(call: Call) -> D:
        return dtype(call[tensor].dtype)

    return library_operator(
        name,
        f"out = {formula}",
        summary,
        (*sorted(given, key=lambda each: each.name != "self"), tensor_out()),
        (
            present(tensor, number, "out"),
            dtype_in(where_supported(dtypes), tensor),
            castable_from(computed, "out"),
            limited_dims(tensor),
            same_shape("out", tensor),
        ),
        function,
        header=header,
        dtype=computed,
        dtypes=dtypes,
    )


def _x_log_y(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y), np.nan, np.where(x == 0, 0, x * np.log(y)))


OPERATORS = (
    _of_tensors("atan2", "the angle of (other, self)", "Angles of points.", _wide(np.arctan2), "atan2"),
    _of_tensors("log_add_exp", "ln(e^self + e^other)", "Logarithms of sums.", _wide(np.logaddexp), "logaddexp"),
    _of_tensors(
        "log_add_exp2", "ln(2^self + 2^other) / ln 2", "The same to base 2.", _wide(np.logaddexp2), "logaddexp2"
    ),
    _of_tensors(
        "x_log_y_tensor",
        "self * ln other, 0 where self is 0",
        "Products with logarithms.",
        _wide(_x_log_y),
        "x_log_y_tensor",
    ),
    _with_scalar(
        "x_log_y_scalar_other",
        "self * ln other, 0 where self is 0",
        "Products with the logarithm of a number.",
        _wide(_x_log_y),
        "x_log_y_scalar_other",
        "self",
        "other",
    ),
    _with_scalar(
        "x_log_y_scalar_self",
        "self * ln other, 0 where self is 0",
        "Products of a number with logarithms.",
        _wide(_x_log_y),
        "x_log_y_scalar_self",
        "other",
        "self",
    ),
    _of_tensors(
        "left_shift",
        "self * 2^shiftBits",
        "Shift bits to the left.",
        np.left_shift,
        "left_shift",
        "shiftBits",
        INTEGERS,
        lambda dtype: dtype,
    ),
    _with_scalar(
        "left_shifts",
        "self * 2^shiftBits",
        "Shift bits to the left by a number.",
        np.left_shift,
        "left_shift",
        "self",
        "shiftBits",
        INTEGERS,
        lambda dtype: dtype,
    ),
    _of_tensors(
        "right_shift",
        "self / 2^shiftBits, rounded down",
        "Shift bits to the right; the sign stays.",
        np.right_shift,
        "right_shift",
        "shiftBits",
        INTEGERS,
        lambda dtype: dtype,
    ),
)
