"""``aclnn warm``: make typical calls, so that later programs find their kernels in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from aclnn import operators
from aclnn.cli import console
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Kind, Operator, Parameter
from aclnn.core.products import current_product
from aclnn.core.status import AclnnError
from aclnn.kernels.cpu import cache
from aclnn.kernels.cpu.jit import notice
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.operators import OPERATORS

_SHAPES = ((300, 8), (300, 50), (300, 300), (300, 1000), (40, 1000))
"""Rows and columns: LayerNorm has kernels for short, medium and long rows, and for many and few rows."""

_LAYOUTS = ("contiguous", "gaps between rows", "gaps between elements")

_CHOICES: Mapping[Kind, tuple[Any, ...]] = {
    Kind.STRING: ("none", "tanh"),
    Kind.INT64: (0, 1),
    Kind.BOOL: (False, True),
    Kind.SCALAR: (1.0,),
    Kind.BOOL_ARRAY: ((True, True, True), (False, True, True), (True, False, False)),
}
"""Attribute values that select a computation; operators reject those that they do not have."""

_EXTENTS: Mapping[str, Callable[[int, int], int]] = {
    "n": lambda rows, columns: rows,
    "c": lambda rows, columns: columns,
    **dict.fromkeys(("hxw", "group", "num_groups"), lambda rows, columns: 1),
}
"""Attributes that repeat a tensor's extents."""

_OF_COLUMNS = ("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd")


def warm() -> bool:
    """Compile for every operator and data type of the product; return True if all kernels were stored."""
    notice.wanted = False
    pairs = [(op, dtype) for op in OPERATORS for dtype in sorted(op.support.get(current_product(), ()))]
    with console.progress(len(pairs)) as bar:
        for i, (operator, dtype) in enumerate(pairs):
            bar.step("", advance=int(i > 0))
            for arguments in _calls(operator, dtype):
                bar.step(f"{operator.name} {dtype.numpy_name}, {_kernels()}", advance=0)
                try:
                    operators.function_of(operator)(**arguments)
                except AclnnError:  # not a choice of this operator
                    continue
    kept = f"kept in {cache.directory()}"
    if notice.lost:
        kept = f"{len(notice.lost)} of them not kept: {notice.lost[0]}"
    console.out.print(f"{_kernels()}, {kept}", soft_wrap=True)
    return not notice.lost


def _kernels() -> str:
    return f"{notice.found + notice.compiled} kernels, {notice.compiled} compiled now"


def _calls(operator: Operator, dtype: DataType) -> Iterator[dict[str, Any]]:
    taken = [operator.parameter(name) for name in operators.signature_of(operator).parameters if name != "out"]
    given = [p for p in taken if p.is_tensor]
    attributes = [p for p in taken if p.kind in _CHOICES and p.python_name not in _EXTENTS]
    large = -(-STREAM_BYTES // (1024 * dtype.itemsize)), 1024  # uses non-temporal stores
    layouts = *product(_SHAPES, _LAYOUTS), (large, "contiguous")
    weights = (dtype, DataType.FLOAT) if any(map(_is_of_columns, given)) else (dtype,)
    for (shape, layout), weight, *values in product(layouts, weights, *(_CHOICES[p.kind] for p in attributes)):
        yield (
            {p.python_name: _tensor(p, shape, layout, dtype, weight) for p in given}
            | {p.python_name: shape[1:] for p in taken if p.kind is Kind.INT_ARRAY}
            | {p.python_name: _EXTENTS[p.python_name](*shape) for p in taken if p.python_name in _EXTENTS}
            | {p.python_name: value for p, value in zip(attributes, values, strict=True)}
        )


def _is_of_columns(parameter: Parameter) -> bool:
    return parameter.python_name in _OF_COLUMNS


def _tensor(parameter: Parameter, shape: tuple[int, int], layout: str, dtype: DataType, weight: DataType) -> Any:
    rows, columns = shape
    if parameter.python_name == "y_grad":
        columns //= 2
    if parameter.python_name in ("mean", "rstd"):
        return np.ones((rows, 1), np.float32)
    if _is_of_columns(parameter):
        return np.ones(columns, weight.numpy)
    if layout == "contiguous":
        return np.ones((rows, columns), dtype.numpy)
    array = np.ones((rows, 2 * columns), dtype.numpy)
    return array[:, :columns] if layout == "gaps between rows" else array[:, ::2]
