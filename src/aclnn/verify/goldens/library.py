"""Golden values of library operators: the operator's own computation on float64 operands.

Errors are not bounded; they are those of float64: 2^-53 of the largest intermediate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Library
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.arrays import view
from aclnn.typing import Array
from aclnn.verify.goldens.values import Elementwise, Golden, Places
from aclnn.verify.number_formats import format_of, quiet

_WIDE = dict.fromkeys((DataType.FLOAT, DataType.FLOAT16, DataType.BF16), DataType.DOUBLE) | {
    DataType.COMPLEX64: DataType.COMPLEX128
}


class Computed(Elementwise):
    """Golden values of an output computed by ``computed``.

    Args:
        values: the output in float64.
        dtype: data type of the output.
    """

    def __init__(self, values: Array, dtype: np.dtype[Any]) -> None:
        self.target, self.shape, self.size = format_of(dtype), values.shape, values.size
        self._pieces = []
        self._value = values.reshape(-1)

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        value = self._value[at]
        return Golden(value, self.target.round(value))


@quiet
def computed(call: Call, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the outputs of a library operator in float64, by C name; empty if there is nothing to compute.

    Args:
        call: valid call of an operator of ``aclnn.operators.library``.
        inputs: input tensors by Python name.

    Raises:
        ValueError: a result does not fit an output's shape.
    """
    operands: dict[str, Any] = {}
    arguments = dict(call.arguments)
    for parameter in call.operator.parameters:
        given = call[parameter.name]
        if isinstance(given, DataType):
            arguments[parameter.name] = _WIDE.get(given, given)
        elif isinstance(given, Tensor):
            arguments[parameter.name] = Tensor(_WIDE.get(given.dtype, given.dtype), given.shape, format=given.format)
        if parameter.python_name in inputs:
            array = inputs[parameter.python_name]
            wide = _WIDE.get(DataType.of_numpy(array.dtype))
            operands[parameter.name] = np.ascontiguousarray(array if wide is None else array.astype(wide.numpy))
            arguments[parameter.name] = view(operands[parameter.name])
        elif isinstance(given, Scalar):
            operands[parameter.name] = np.asarray(given.value)
    work = call.operator.work(replace(call, arguments=arguments))
    if work is None:
        return {}
    assert isinstance(work, Library)
    for name in work.inputs:
        if name not in operands:  # an output with unwritten elements: a new one is zeroed
            operands[name] = np.zeros(call[name].shape, arguments[name].dtype.numpy)
    given = [operands[name] for name in work.inputs]
    if work.dtype is not None:
        given = [operand.astype(work.dtype.numpy) for operand in given]
    results = work.function(*given)
    found = {}
    for output, result in zip(work.outputs, results if isinstance(results, tuple) else (results,), strict=True):
        values, shape = np.asarray(result, np.float64), call[output].shape
        if work.sized_by_result and values.shape != shape:
            raise ValueError(f"{call.operator.name}: {output}: expected shape {list(values.shape)}, got {list(shape)}")
        found[output] = values.reshape(shape) if values.size == call[output].size else np.broadcast_to(values, shape)
    return found
