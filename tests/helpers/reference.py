"""What an operator's outputs must be, exactly, and how far they may be off: from the table's forward functions and the
documents' formulas, in float64 or better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Scalar
from tests.cases.table import Case, Curve, T
from tests.helpers.exact import derivatives, ulp_of, values

Array = np.ndarray[Any, Any]
#: Exact values and the largest error allowed, elementwise.
Expected = tuple[Array, Array]

#: Errors in units of the last place: float32 slope and product, each rounded; 16-bit results are rounded once, from
#: slopes within 0.01 units; float64 is what they are computed in.
# Float64 is what formulas are computed in: their words are within 2e-13, of large arguments not much better.
ULPS = {D.FLOAT: 2.0, D.FLOAT16: 0.51, D.BF16: 0.51, D.DOUBLE: 1024.0}


def expected(case: Case, arrays: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Expected]:
    """For the input arrays and attributes by C name, the outputs that are written."""
    if case.curves:
        (name,) = outputs
        inputs = case.operands or (name,)  # none: in place
        exact = elementwise(curve_of(case, arrays), [arrays[of].astype(np.float64) for of in inputs])
        return {name: (exact, ULPS[outputs[name].dtype] * ulp_of(exact, outputs[name].dtype))}
    assert case.reference is not None
    return case.reference(arrays, outputs)


def curve_of(case: Case, arguments: Mapping[str, Any]) -> Curve:
    (curve,) = (
        curve
        for curve in case.curves.values()
        if all(_number(arguments[name]) == _number(value) for name, value in curve.attributes.items())
    )
    return curve


def _number(attribute: Any) -> Any:
    return attribute.value if isinstance(attribute, Scalar) else attribute


def elementwise(curve: Curve, inputs: list[Array]) -> Array:
    """The exact forward of (x,) or gradient of (dy, x), with what the document says of infinities."""
    x = inputs[-1]
    finite = np.isfinite(x)
    result = np.full(x.shape, np.nan)
    function = values if len(inputs) == 1 else derivatives
    result[finite] = function(curve.forward, x[finite])
    result[np.isneginf(x)], result[np.isposinf(x)] = curve.at_infinity
    if len(inputs) == 1:
        return result
    dy, slope = np.broadcast_arrays(inputs[0], result)
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        product = np.where(np.isinf(dy), dy * slope.astype(np.float32), dy * slope)
    return np.where(slope == 0.0, 0.0, product) if curve.selects else product
