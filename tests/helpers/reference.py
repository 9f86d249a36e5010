"""Expected outputs of operators and their error bounds, in float64 or better: from the forward functions of the cases
and the documents' formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Scalar
from tests.cases.table import Case, Curve, T
from tests.helpers.exact import derivatives, ulp_of, values

Array = np.ndarray[Any, Any]
#: Exact values and the allowed error of each.
Expected = tuple[Array, Array]

#: Allowed errors in ULP. In float32, derivative and product are each rounded; 16-bit results are rounded once, from
#: derivatives within 0.01 ULP. Formulas are computed in float64, whose functions are within 2e-13.
ULPS = {D.FLOAT: 2.0, D.FLOAT16: 0.51, D.BF16: 0.51, D.DOUBLE: 1024.0}


def expected(case: Case, arrays: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Expected]:
    """Return the expected outputs for input arrays and attributes, all by C name."""
    if case.curves:
        (name,) = outputs
        inputs = case.operands or (name,)  # without operands, in place
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
    """Return the exact forward of (x,) or gradient of (dy, x); infinite x as the document defines."""
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
