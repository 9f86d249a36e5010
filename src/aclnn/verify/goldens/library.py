"""Golden values of library operators: the operator's own computation on float64 operands.

Errors are not bounded; they are those of float64: 2^-53 of the largest intermediate. Where several results are right,
the golden value is the one under test if it is among them: both neighbours of a number that is about as near to either,
and the indices of equal elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Library
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.arrays import view
from aclnn.operators.library.quantization.rounding import shifted, unrounded
from aclnn.runtime.arena import memory_bytes
from aclnn.typing import Array
from aclnn.verify.goldens.values import Elementwise, Flat, Golden, Places, count_of
from aclnn.verify.number_formats import ALL_FORMATS, format_of, quiet

_WIDE = dict.fromkeys((DataType.FLOAT, DataType.FLOAT16, DataType.BF16), DataType.DOUBLE) | {
    DataType.COMPLEX64: DataType.COMPLEX128
}


_NEAR_A_TIE = 2.0**-16
"""Error of float32 arithmetic, relative to numbers before they are rounded to integers or 8-bit floats."""


_WHOLE = 1 << 20
"""Size of an output up to which an elementwise operator is computed at once."""
_SAMPLE, _PART = 61, 17
NOT_VALID = (AclnnError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of an operator's function for arguments that no valid call has."""

Values = Callable[[Places], Array]
"""Function of places that returns the values of these elements."""


class Computed(Elementwise):
    """Golden values of an output computed by ``values_of``.

    Args:
        values: the output in float64, or in its own type if that is narrower than 16 bits or integer.
        actual: the output under test.
    """

    def __init__(self, values: Values, actual: Array) -> None:
        self.target, self.shape, self.size = format_of(actual.dtype), actual.shape, actual.size
        self._pieces = []
        self._values = values

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        value = self._values(at)
        if value.dtype == self.target.dtype.numpy:
            return Golden(value.astype(np.float64), value)
        return Golden(value, self.target.round(value))


def values_of(call: Call, inputs: Mapping[str, Array], actual: Mapping[str, Array]) -> dict[str, Values]:
    """Return the golden values of the outputs under test by C name; empty if there is nothing to compute.

    Those of a large output of an elementwise operator are computed when they are read.

    Args:
        call: valid call of an operator of ``aclnn.operators.library``.
        inputs: input tensors, and old contents of updated outputs, by Python name.
        actual: outputs under test by Python name.

    Raises:
        ValueError: a result does not fit an output's shape, or the results do not fit in memory.
    """
    if max(array.size for array in actual.values()) > _WHOLE and _is_elementwise(call):
        names = {p.name: p.python_name for p in call.operator.outputs if p.python_name in actual}
        flat = {name: Flat(array) for name, array in inputs.items() if array.size > 1}

        def piece(output: str, at: Places) -> Array:
            name = names[output]
            given = {**inputs, **{name: array[at] for name, array in flat.items()}}
            return goldens(_flat(call, count_of(at)), given, {name: Flat(actual[name])[at]})[output]

        return {output: partial(piece, output) for output in names}
    _expect_memory(call, [*inputs.values(), *actual.values()])
    return {name: values.reshape(-1).__getitem__ for name, values in goldens(call, inputs, actual).items()}


def _flat(call: Call, count: int) -> Call:
    """Return the call for some elements of its tensors."""
    tensors = {n: Tensor(t.dtype, (count,)) for n, t in call.tensors() if t.size > 1}
    return replace(call, arguments={**call.arguments, **tensors})


def _is_elementwise(call: Call) -> bool:
    """Return True if tensors have one shape or one element, and results for some elements depend on these only."""
    if len({tensor.shape for _, tensor in call.tensors() if tensor.size > 1}) != 1:
        return False
    rng = np.random.default_rng(0)
    order = rng.permutation(_SAMPLE)[:_PART]
    whole: dict[str, Array] = {}
    for parameter in call.operator.parameters:
        if parameter.is_read and call[parameter.name] is not None:
            numbers = 4.0 * rng.normal(size=_SAMPLE if call[parameter.name].size > 1 else 1)
            whole[parameter.python_name] = convert(numbers, call[parameter.name].dtype.numpy)
    part = {name: array if array.size == 1 else array[order] for name, array in whole.items()}
    try:
        found, again = (computed(_flat(call, count), of) for count, of in ((_SAMPLE, whole), (_PART, part)))
    except NOT_VALID:
        return False
    return all(
        np.array_equal(found[name][order].astype(np.float64), again[name].astype(np.float64), equal_nan=True)
        for name in found
    )


def _expect_memory(call: Call, arrays: Sequence[Array]) -> None:
    """Require memory for the operands and results in float64.

    Raises:
        ValueError: there is less.
    """
    needed = 8 * sum(array.size for array in arrays if array.dtype.name in ALL_FORMATS)
    if needed > memory_bytes():
        text = f"expected {needed / 2**30:.3g} GiB of memory for golden values, got {memory_bytes() / 2**30:.3g} GiB"
        raise ValueError(f"{call.operator.name}: {text}")


def goldens(call: Call, inputs: Mapping[str, Array], actual: Mapping[str, Array]) -> dict[str, Array]:
    """Return the golden values of a whole call, as ``values_of``."""
    with shifted(0.0) as shift:
        found = computed(call, inputs)
    outputs = [(p, actual[p.python_name]) for p in call.operator.outputs if p.python_name in actual and p.name in found]
    narrow = [(p, array) for p, array in outputs if found[p.name].dtype != np.float64]
    for by in (-_NEAR_A_TIE, _NEAR_A_TIE) if narrow and shift.rounds else ():
        with shifted(by):
            others = computed(call, inputs)
        for parameter, array in narrow:
            found[parameter.name] = _either(array, found[parameter.name], others[parameter.name])
    for parameter, array in narrow:
        if parameter.index_of:
            along = call.arguments.get("dim", -1)
            keys = inputs[call.operator.parameter(parameter.index_of).python_name]
            same = _same_choice(keys, found[parameter.name], array, along)
            found[parameter.name] = np.where(same, array, found[parameter.name])
    return found


def _either(actual: Array, golden: Array, other: Array) -> Array:
    """Return the golden values, or the others where the actual values are these; eight INT4 of an INT32 separately."""
    (a, g, o), masks = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (actual, golden, other)), [0xFF]
    if golden.dtype == np.int32:
        masks = [0x0F, 0xF0]
    chosen = g.copy()
    for mask in masks:
        np.copyto(chosen, chosen & ~np.uint8(mask) | o & mask, where=(a ^ o) & mask == 0)
    found: Array = chosen.view(golden.dtype).reshape(golden.shape)
    return found


def _same_choice(keys: Array, golden: Array, actual: Array, along: int) -> Array:
    """Mark indices of elements equal to those that the golden indices choose, without repetition if these have none."""
    keys = np.atleast_1d(keys)
    kept = golden.ndim == keys.ndim
    rows, g, a = (
        np.moveaxis(x, along, -1).astype(np.int64 if at else x.dtype)
        for at, x in enumerate((keys, *(x if kept else np.expand_dims(x, along) for x in (golden, actual))))
    )
    valid = (np.minimum(a, g) >= 0) & (np.maximum(a, g) < rows.shape[-1])
    chosen, wanted = (np.take_along_axis(rows, np.where(valid, index, 0), -1) for index in (a, g))
    same = valid & ((chosen == wanted) | ((chosen != chosen) & (wanted != wanted)))
    if not _repeats(g).any():
        same &= ~_repeats(a)
    same = np.moveaxis(same, -1, along)
    return np.asarray(same if kept else np.squeeze(same, along))


def _repeats(indices: Array) -> Array:
    """Mark the indices that occur earlier in their rows."""
    order = np.argsort(indices, -1, kind="stable")
    ordered = np.take_along_axis(indices, order, -1)
    again = np.zeros(indices.shape, bool)
    np.put_along_axis(again, order[..., 1:], ordered[..., 1:] == ordered[..., :-1], -1)
    return again


@quiet
def computed(call: Call, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Compute a library operator's outputs by C name: in float64, or in a type narrower than 16 bits or integer.

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
        values, shape, dtype = np.asarray(result), call[output].shape, call[output].dtype
        if dtype.numpy_name not in ALL_FORMATS:
            continue
        values = values.astype(np.float64) if dtype in _WIDE else _converted(values, work.dtype, dtype)
        if work.sized_by_result and values.shape != shape:
            raise ValueError(f"{call.operator.name}: {output}: expected shape {list(values.shape)}, got {list(shape)}")
        found[output] = values.reshape(shape) if values.size == call[output].size else np.broadcast_to(values, shape)
    return found


def _converted(values: Array, computed_in: DataType | None, dtype: DataType) -> Array:
    """Convert results as the operator's plan does."""
    if values.dtype == dtype.numpy:
        return values
    if computed_in is not None:
        values = convert(values, computed_in.numpy)
    floating = values.dtype.kind == "f" and dtype.numpy.itemsize == 1 and dtype.numpy.kind not in "iub"
    return convert(unrounded(values) if floating else values, dtype.numpy)
