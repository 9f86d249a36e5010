"""Plans computed by NumPy over strided views of memory."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout, contiguous_strides
from aclnn.kernels import Formula, Operand, Plan, elementwise, identity
from aclnn.kernels.trace import COLUMNS, trace

Array = np.ndarray[Any, Any]

_SIXTEEN_BITS = (DataType.FLOAT16.numpy, DataType.BF16.numpy)
_WIDE = (DataType.FLOAT, DataType.DOUBLE)
_WIDE_TYPES = {dtype.numpy for dtype in _WIDE}
_FEW = 1 << 12
"""Number of elements up to which NumPy converts numbers as fast as a kernel does."""


# One buffer over all possible addresses: making a buffer per array would take three times as long.
_LOWEST = 4096
_MEMORY = memoryview((ctypes.c_char * ((1 << 56) - _LOWEST)).from_address(_LOWEST))


_MOST_KEPT = 64


class Views(dict[int, Array]):
    """Arrays over memory in a tensor's layout, by address.

    Created on demand and cached: a program's tensors tend to reuse addresses, and a small array takes as long to create
    as to compute with.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        dtype = layout.dtype.numpy
        self._shape, self._dtype = layout.shape, dtype
        self._start = layout.offset * dtype.itemsize - _LOWEST
        # The stride of a single element is arbitrary, and may overflow NumPy's count of bytes.
        laid = zip(layout.shape, layout.strides, strict=True)
        self._strides = tuple(stride * dtype.itemsize if extent > 1 else 0 for extent, stride in laid)

    def __missing__(self, address: int) -> Array:
        """Create the array at an address."""
        if 0 in self._shape:
            return np.empty(self._shape, self._dtype)
        if len(self) >= _MOST_KEPT:
            self.clear()
        made = np.ndarray(self._shape, self._dtype, _MEMORY, address + self._start, self._strides)
        return self.setdefault(address, made)


class Numbers(dict[int, Array]):
    """Numbers as 0-dimensional arrays, by the integer value of their bytes, cached like views.

    Args:
        dtype: data type of the numbers.
        convert: conversion before the computation.
    """

    def __init__(self, dtype: DataType, convert: Callable[[Array], Array]) -> None:
        super().__init__()
        self._dtype, self._convert = dtype, convert

    def __missing__(self, number: int) -> Array:
        """Create the array of a number."""
        if len(self) >= _MOST_KEPT:
            self.clear()
        value = self._dtype.decode(number.to_bytes(self._dtype.itemsize, sys.byteorder))
        with np.errstate(all="ignore"):
            return self.setdefault(number, self._convert(np.asarray(value)))


def view(layout: Layout, address: int) -> Array:
    """Return an array over memory at an address in a tensor's layout."""
    return Views(layout)[address]


def write(layout: Layout, address: int, values: Array) -> None:
    """Convert values to a tensor's data type and write them to its first elements."""
    target = view(layout, address)
    if values.size == target.size:
        np.copyto(target, convert(values.reshape(target.shape), target.dtype))
    else:
        target.flat[: values.size] = convert(values.ravel(), target.dtype)


@lru_cache(maxsize=512)
def _conversion(source: Layout, target: Layout) -> Plan:
    return elementwise(identity, (source,), (target,))


def _layout(values: Array) -> Layout:
    strides = tuple(stride // values.itemsize for stride in values.strides)
    return Layout(DataType.of_numpy(values.dtype), values.shape, strides)


def _copy(values: Array, target: Array) -> None:
    """Copy numbers to an array of another type; for float16 NumPy takes up to fifty times as long as a kernel."""
    kinds = {values.dtype, target.dtype}
    wide = kinds.difference(_SIXTEEN_BITS)
    by_kernel = len(kinds) == 2 and len(wide) < 2 and wide <= _WIDE_TYPES
    if not by_kernel or values.size <= _FEW or values.shape != target.shape:
        np.copyto(target, convert(values, target.dtype))
        return
    _conversion(_layout(values), _layout(target)).run((values.ctypes.data,), (target.ctypes.data,), 0)


class LibraryPlan:
    """See ``aclnn.kernels.library``."""

    workspace_bytes = 0

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Sequence[Layout],
        dtype: DataType | None,
        sized_by_result: bool,
        fills: bool,
    ) -> None:
        self._function = function
        self._dtype = None if dtype is None else dtype.numpy
        with np.errstate(all="ignore"):
            self._inputs = [*map(self._bindable, inputs)]
        # Nothing is computed without results.
        self._as_they_are = not outputs or all(
            given.dtype.numpy not in _SIXTEEN_BITS and (dtype is None or given.dtype == dtype)
            for given in inputs
            if isinstance(given, Layout)
        )
        types = [given.dtype if isinstance(given, Layout) else given for given in inputs]
        kinds = {each.numpy.kind if isinstance(each, DataType) else np.asarray(each).dtype.kind for each in types}
        # NumPy's own conversion equals ``convert``.
        self._copies = (
            self._as_they_are
            and all(output.dtype in _WIDE and dtype in (None, output.dtype) for output in outputs)
            and "c" not in kinds
        )
        # The result has the output's type without conversion.
        self._fills = (
            fills
            and self._copies
            and all(given.dtype == outputs[0].dtype for given in inputs if isinstance(given, Layout))
        )
        self._outputs = outputs
        self._views = [*map(Views, outputs)]
        self._sized_by_result = sized_by_result

    def _bindable(self, given: Any) -> Views | Numbers | Array:
        if isinstance(given, Layout):
            return Views(given)
        if isinstance(given, DataType):
            return Numbers(given, self._operand)
        return self._operand(np.asarray(given))

    def _operand(self, values: Array) -> Array:
        if self._dtype is not None:
            values = convert(values, self._dtype)
        if values.dtype not in _SIXTEEN_BITS:
            return values
        single = np.empty_like(values, np.float32)
        _copy(values, single)
        return single

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> Sequence[tuple[int, ...]] | None:
        """See ``aclnn.kernels.Plan``; all results are computed before anything is written."""
        return self.bind(inputs, outputs)()

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[[], Sequence[tuple[int, ...]] | None]:
        """See ``aclnn.kernels.bind``: creating arrays takes longer than a small computation."""
        addresses = iter(inputs)
        operands = [given[next(addresses)] if isinstance(given, dict) else given for given in self._inputs]
        if self._sized_by_result:
            return lambda: self._compute_sized(operands, outputs)
        written = [views[address] for views, address in zip(self._views, outputs, strict=True)]
        named = {"out": written[0]} if self._fills else {}

        def copy() -> None:
            with np.errstate(all="ignore"):
                found = self._function(*operands, **named)
                for result, array in _apart(found if isinstance(found, tuple) else (found,), written):
                    if result is not array:
                        array[...] = result

        def compute() -> None:
            with np.errstate(all="ignore"):
                for result, array in _apart(self._results(operands), written):
                    _copy(result, array)

        return copy if self._copies else compute

    def _compute_sized(self, operands: Sequence[Array], outputs: Sequence[int]) -> Sequence[tuple[int, ...]]:
        with np.errstate(all="ignore"):
            results = self._results(operands)
            for result, layout, address in zip(results, self._outputs, outputs, strict=True):
                array = view(Layout(layout.dtype, result.shape, contiguous_strides(result.shape)), address)
                np.copyto(array, convert(result, array.dtype))
        return [result.shape for result in results]

    def _results(self, operands: Sequence[Array]) -> list[Array]:
        given = operands if self._as_they_are else map(self._operand, operands)
        found = self._function(*given)
        results = [np.asarray(result) for result in (found if isinstance(found, tuple) else (found,))]
        return results if self._dtype is None else [convert(result, self._dtype) for result in results]


def _apart(results: Sequence[Any], written: Sequence[Array]) -> Iterable[tuple[Any, Array]]:
    """Pair results with their targets; copy a result first if it is a view of memory that is written before."""
    if len(written) == 1:
        return zip(results, written, strict=True)

    def lies_in(result: Any, targets: Sequence[Array]) -> bool:
        is_view = isinstance(result, np.ndarray) and result.base is not None
        return is_view and any(np.may_share_memory(result, target) for target in targets)

    pairs = enumerate(zip(results, written, strict=True))
    return [(result.copy() if lies_in(result, written[:at]) else result, target) for at, (result, target) in pairs]


def _times(dy: Any, factor: Any) -> Any:
    """See ``aclnn.formula.times``."""
    return np.where((np.abs(dy) < math.inf) | (np.abs(factor) > 2.0**-150), factor, 0.0) * dy


_WORDS: dict[str, Any] = (
    {word: getattr(np, word) for word in ("exp", "expm1", "log", "log1p", "tanh", "sqrt", "absolute", "where")}
    | {word: np.vectorize(getattr(math, word), otypes=[np.float64]) for word in ("erf", "erfc")}
    | {"times": _times, "log1pexp": lambda x: np.logaddexp(0.0, x)}
)


class ReductionPlan:
    """See ``aclnn.kernels.reduction``."""

    workspace_bytes = 0

    def __init__(
        self,
        formula: Formula,
        inputs: Sequence[Operand | float],
        outputs: Sequence[Operand | None],
        dims: tuple[int, ...],
        numbers: tuple[float, ...],
    ) -> None:
        self._inputs = [given if isinstance(given, Operand) else np.float64(given) for given in inputs]
        self._outputs, self._numbers = outputs, numbers
        operands = [operand for operand in (*inputs, *outputs) if isinstance(operand, Operand)]
        self._shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        words = _WORDS | {
            "row_sum": lambda term: self._each(term).sum(dims, keepdims=True),
            "row_max": lambda term: self._each(term).max(dims, keepdims=True, initial=-math.inf),
            COLUMNS: np.float64(math.prod(self._shape[dim] for dim in dims)),
        }
        self._function = trace(formula, len(inputs) + len(numbers)).function(words)

    def _each(self, term: Any) -> Array:
        return np.broadcast_to(term, self._shape)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``; all results are computed before anything is written."""
        read, written = iter(inputs), iter(outputs)
        with np.errstate(all="ignore"):
            operands = [
                view(given.layout, next(read)).astype(np.float64).reshape(given.shape)
                if isinstance(given, Operand)
                else given
                for given in self._inputs
            ]
            found = self._function(*operands, *self._numbers)
            results = found if isinstance(found, tuple) else (found,)
            for result, output in zip(results, self._outputs, strict=True):
                if output is not None:
                    self._write(result, output, next(written))

    def _write(self, result: Any, output: Operand, address: int) -> None:
        if output.summed:
            shape = (1,) * (len(self._shape) - len(output.shape)) + output.shape
            result = self._each(result).sum(tuple(dim for dim, extent in enumerate(shape) if extent == 1))
        else:
            result = np.broadcast_to(result, output.shape)
        write(output.layout, address, result)


class ConvertingPlan:
    """See ``aclnn.kernels.converting``."""

    def __init__(self, plan: Plan, inputs: Sequence[Layout], dtypes: Sequence[DataType]) -> None:
        self.workspace_bytes = plan.workspace_bytes
        self._plan = plan
        self._inputs = inputs
        self._dtypes = [dtype.numpy for dtype in dtypes]

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        with np.errstate(all="ignore"):
            converted = [
                np.ascontiguousarray(convert(view(layout, address), dtype))
                for layout, address, dtype in zip(self._inputs, inputs, self._dtypes, strict=True)
            ]
        self._plan.run([values.ctypes.data for values in converted], outputs, workspace)
