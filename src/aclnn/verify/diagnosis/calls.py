"""Results of a library operator for other arguments, or with another rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from aclnn.core.operator import Kind
from aclnn.core.tensor import Scalar
from aclnn.execution.executor import check_arguments
from aclnn.operators.library.quantization.rounding import shifted
from aclnn.typing import Array
from aclnn.verify.diagnosis.evidence import Hypothesis
from aclnn.verify.goldens.library import NOT_VALID, computed
from aclnn.verify.standards.evaluate import Source

_MOST = 1 << 20
"""Size of the largest tensor up to which the operator is computed again for each change."""
_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "toward zero": np.trunc,
    "down": np.floor,
    "up": np.ceil,
    "to nearest, ties away from zero": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def otherwise_called(source: Source) -> Iterator[Hypothesis]:
    """Yield an operand left out, swapped or transposed, an ignored factor, the opposite of a flag, another rounding."""
    case = source.case
    if max([source.size, *(array.size for array in case.inputs.values())]) > _MOST:
        return
    for name, text, arguments, inputs in _changes(source):
        yield from _hypothesis(source, name, text, arguments, inputs)
    for text, function in _ROUNDINGS.items() if source.target.is_integer else ():
        with shifted(0.0, function):
            yield from _hypothesis(source, "rounding", f"numbers are rounded {text}", {}, {})


def _hypothesis(
    source: Source, name: str, text: str, arguments: dict[str, Any], inputs: dict[str, Array | None]
) -> Iterator[Hypothesis]:
    case = source.case
    assert case.call is not None
    call = replace(case.call, arguments={**case.call.arguments, **arguments})
    given = {key: array for key, array in {**case.inputs, **inputs}.items() if array is not None}
    output = case.operator.parameter(source.name, (Kind.OUTPUT,)).name
    try:
        check_arguments(call)
        values = computed(call, given)[output].reshape(-1).astype(np.float64)
    except NOT_VALID:
        return
    yield Hypothesis(name, text, lambda e: values[e.places], exact=source.target.is_integer)


def _changes(source: Source) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Array | None]]]:
    """Yield faults with the changed arguments by C name, and the changed inputs by Python name."""
    case = source.case
    assert case.call is not None
    for parameter in case.operator.attributes:
        given, name = case.call[parameter.name], parameter.python_name
        if parameter.kind is Kind.BOOL:
            yield "wrong-mode", f"computed with {name} = {not given}", {parameter.name: not given}, {}
        elif parameter.kind in (Kind.SCALAR, Kind.DOUBLE, Kind.FLOAT) and given is not None:
            number = given.value.item() if isinstance(given, Scalar) else given
            for other in (1, 0):
                value = Scalar(given.dtype, given.dtype.encode(other)) if isinstance(given, Scalar) else float(other)
                if number != other:
                    yield "wrong-attribute", f"{name} is {other} instead of {number:g}", {parameter.name: value}, {}
    for parameter in case.operator.inputs:
        name = parameter.python_name
        if parameter.optional and name in case.inputs:
            yield "wrong-input", f"{name} is left out", {parameter.name: None}, {name: None}
    for (one, first), (two, second) in combinations(case.inputs.items(), 2):
        if (first.shape, first.dtype) == (second.shape, second.dtype):
            yield "wrong-input", f"{one} and {two} are swapped", {}, {one: second, two: first}
    for name, array in case.inputs.items():
        if array.ndim > 1 and min(array.shape[-2:]) > 1:
            *before, rows, columns = array.shape
            turned = array.reshape(*before, columns, rows).swapaxes(-1, -2)
            yield "moved-data", f"{name} is read as if it were transposed (its last two dimensions)", {}, {name: turned}
