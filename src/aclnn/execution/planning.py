"""Plans: from an operator's work on described arguments to the operands' layouts and their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from aclnn import kernels
from aclnn.core.checks import FLOATING
from aclnn.core.dtypes import DataType
from aclnn.core.operator import (
    Call,
    Columns,
    Elementwise,
    LayerNorm,
    Library,
    Part,
    PerChannel,
    Reduction,
    Sums,
    View,
    Work,
)
from aclnn.core.promotion import castable, promote
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.core.tensor import ColumnsLayout, Layout, Scalar, Tensor, contiguous_strides


class Planned(NamedTuple):
    """A plan and the names of its operands in order, None for an absent operand."""

    plan: kernels.Plan
    inputs: Sequence[str | None]
    outputs: Sequence[str | None]
    sizes_outputs: bool = False
    """True if running the plan determines the outputs' shapes."""
    communicator: Any = None
    """The communicator that queues the work, if any (see ``Library``)."""


def plan(call: Call, work: Work, device: str) -> Planned:
    """Choose the kernels for work on validated arguments.

    Raises:
        AclnnError: 561103, no kernel supports a data type, or the device has no kernel for the work.
    """
    if isinstance(work, Elementwise):
        matrices = isinstance(work.outputs[0], Columns)
        found = _matrices(call, work, device) if matrices else _elementwise(call, work, device)
        names = [*map(_tensor_of, work.inputs), *([] if work.groups is None else [work.groups])]
        return Planned(found, names, [*map(_tensor_of, work.outputs)])
    if isinstance(work, Library):
        return _library(call, work)
    if isinstance(work, Reduction):
        return _reduction(call, work, device)
    read, written = _layouts(call, work.inputs), _layouts(call, work.outputs)
    if isinstance(work, LayerNorm):
        found = kernels.layer_norm(read, written, work.normalized_dims, work.eps, work.centred)
    else:
        found = kernels.layer_norm_backward(read, written, work.normalized_dims, device, work.centred)
    return Planned(found, work.inputs, work.outputs)


def _library(call: Call, work: Library) -> Planned:
    operands = dict(call.operator.operands(call.arguments))
    for name in (*work.inputs, *work.outputs):
        given = operands.get(name) or call[name]
        dtype = given.layout.stored.dtype if isinstance(given, Tensor) else given.dtype
        if not dtype.has_numpy:
            raise AclnnError(
                ACLNN_ERR_INNER_NULLPTR,
                f"{name}: expected a data type that NumPy computes, got {dtype.c_name}",
                call.operator.function,
            )
    read = [_planned(operands[name]) if name in operands else call[name].value for name in work.inputs]
    tensors = dict(call.tensors())
    written = [tensors[name].layout.stored for name in work.outputs]
    function = _naming(work.function, call.operator.function)
    found = kernels.library(function, read, written, work.dtype, work.sized_by_result, work.fills)
    names = [name for name in work.inputs if name in operands]
    return Planned(found, names, work.outputs, work.sized_by_result, work.communicator)


def _naming(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a function so that its errors about unusable values name the C function."""

    def computed(*given: Any, **further: Any) -> Any:
        try:
            return function(*given, **further)
        except (IndexError, ValueError) as error:
            raise AclnnError(ACLNN_ERR_RUNTIME_ERROR, str(error), name) from error

    return computed


def _planned(operand: Tensor | Scalar) -> Layout | DataType:
    """Return the description of an operand before it is bound."""
    return operand.layout.stored if isinstance(operand, Tensor) else operand.dtype


def _reduction(call: Call, work: Reduction, device: str) -> Planned:
    """Plan a formula over rows."""
    _expect_cpu(call, device, "which alone has a kernel for this")
    inputs = [given if isinstance(given, float) else _viewed(call, given) for given in work.inputs]
    outputs = [None if output is None else _viewed(call, output) for output in work.outputs]
    read = [_tensor_of(given) for given in work.inputs if not isinstance(given, float)]
    written = [_tensor_of(output) for output in work.outputs if output is not None]
    for name in read:
        _expect_kernel(call, name, call[name].dtype, castable(call[name].dtype, DataType.DOUBLE))
    found = kernels.reduction(work.formula, inputs, outputs, work.dims, work.numbers)
    return Planned(found, read, written)


def _viewed(call: Call, operand: str | View | Sums) -> kernels.Operand:
    of = operand.of if isinstance(operand, Sums) else operand
    tensor: Tensor = call[_tensor_of(of)]
    return kernels.Operand(tensor.layout, of.shape if isinstance(of, View) else tensor.shape, isinstance(operand, Sums))


def _tensor_of(operand: str | Part | PerChannel | Sums | View | Columns) -> str:
    return operand if isinstance(operand, str) else operand.tensor


def _in_channels(call: Call, work: Elementwise, layouts: Sequence[Layout]) -> list[Layout]:
    """Split dimension 1 of the layouts into the dimensions of the per-channel tensor."""
    several = [call[of.tensor].shape for of in work.inputs if isinstance(of, PerChannel) and call[of.tensor].size > 1]
    if not several:
        return list(layouts)
    (extents,) = several
    inner = contiguous_strides(extents)
    return [
        layout._replace(
            shape=(*layout.shape[:1], *extents, *layout.shape[2:]),
            strides=(*layout.strides[:1], *(layout.strides[1] * step for step in inner), *layout.strides[2:]),
        )
        for layout in layouts
    ]


def _per_channel(layout: Layout, rank: int) -> Layout:
    """Return the layout of a tensor with a single element, or with one element for each index along dimension 1."""
    if layout.size == 1:
        return Layout(layout.dtype, (), (), layout.offset)
    return layout._replace(shape=layout.shape + (1,) * (rank - 2), strides=layout.strides + (0,) * (rank - 2))


def _operand_layout(call: Call, operand: str | Part | PerChannel | Columns) -> Layout:
    layout: Layout = call[_tensor_of(operand)].layout
    if not isinstance(operand, Part):
        return layout
    shape = (*layout.shape[: operand.dim], operand.end - operand.begin, *layout.shape[operand.dim + 1 :])
    return layout._replace(shape=shape, offset=operand.begin * layout.strides[operand.dim])


def _elementwise(call: Call, work: Elementwise, device: str) -> kernels.Plan:
    """Plan a formula."""
    shape = _operand_layout(call, work.outputs[0]).shape
    outputs = _in_channels(call, work, [_operand_layout(call, operand) for operand in work.outputs])
    given = [operand for operand in work.inputs if not isinstance(operand, PerChannel)]
    others = iter(_in_channels(call, work, [_broadcast(_operand_layout(call, operand), shape) for operand in given]))
    inputs = tuple(
        _broadcast(_per_channel(call[operand.tensor].layout, len(shape)), outputs[0].shape)
        if isinstance(operand, PerChannel)
        else next(others)
        for operand in work.inputs
    )
    return _formula(call, work, inputs, tuple(outputs), device)


def _matrices(call: Call, work: Elementwise, device: str) -> kernels.Plan:
    """Plan a formula over columns of matrices."""
    inputs, outputs = (
        [
            ColumnsLayout(call[o.tensor].layout, o.dim, range(o.begin, o.end, o.step))
            for o in operands
            if isinstance(o, Columns)
        ]
        for operands in (work.inputs, work.outputs)
    )

    def make(read: tuple[Layout, ...], written: tuple[Layout, ...]) -> kernels.Plan:
        return _formula(call, work, read, written, device)

    found = [of.layout for of in (*inputs, *outputs)]
    views = tuple(layout for layout in found if layout is not None)
    if work.groups is None and len(views) == len(found):
        return make(views[: len(inputs)], views[len(inputs) :])
    _expect_cpu(call, device)
    groups = None if work.groups is None else call[work.groups].layout
    return kernels.matrices(make, inputs, outputs, groups, work.clears)


def _formula(
    call: Call, work: Elementwise, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], device: str
) -> kernels.Plan:
    """Plan a formula; inputs of other types than floating-point are converted first."""
    dtypes = [operand.dtype for operand in inputs]
    for name, dtype in zip(map(_tensor_of, work.outputs), (output.dtype for output in outputs), strict=True):
        _expect_kernel(call, name, dtype, dtype in _COMPUTED)
    for name, dtype in zip(map(_tensor_of, work.inputs), dtypes, strict=True):
        _expect_kernel(call, name, dtype, castable(dtype, DataType.DOUBLE))
    computed = work.dtype is None and {*dtypes, *(output.dtype for output in outputs)} <= set(
        _COMPUTED if device == "cpu" else FLOATING
    )
    if computed or set(dtypes) == {work.dtype}:
        return kernels.elementwise(work.formula, inputs, outputs, work.numbers, device)
    _expect_cpu(call, device)
    promoted = reduce(_promoted, dtypes) if work.dtype is None else work.dtype
    shape = outputs[0].shape
    converted = (Layout(promoted, shape, contiguous_strides(shape)),) * len(inputs)
    computed_plan = kernels.elementwise(work.formula, converted, outputs, work.numbers, device)
    return kernels.converting(computed_plan, inputs, (promoted,) * len(inputs))


def _expect_cpu(call: Call, device: str, why: str = "where NumPy computes this") -> None:
    if device != "cpu":
        text = f"expected the CPU as the device, {why}, got {device}"
        raise AclnnError(ACLNN_ERR_INNER_NULLPTR, text, call.operator.function)


_COMPUTED = (*FLOATING, DataType.DOUBLE)


def _expect_kernel(call: Call, name: str, dtype: DataType, found: bool) -> None:
    """Raise an error for a data type that the operator's checks accept but no kernel supports."""
    if not found:
        text = f"{name}: expected a data type with a kernel for it, got {dtype.c_name}"
        raise AclnnError(ACLNN_ERR_INNER_NULLPTR, text, call.operator.function)


def _promoted(first: DataType, second: DataType) -> DataType:
    found = promote(first, second)
    assert found is not None, "the operator's checks have found one"
    return found


def _layouts(call: Call, names: tuple[str | None, ...]) -> tuple[Layout | None, ...]:
    return tuple(None if name is None else call[name].layout for name in names)


def _broadcast(layout: Layout, shape: tuple[int, ...]) -> Layout:
    missing = len(shape) - len(layout.shape)
    strides = tuple(
        0 if axis < missing or layout.shape[axis - missing] == 1 else layout.strides[axis - missing]
        for axis in range(len(shape))
    )
    return Layout(layout.dtype, shape, strides, layout.offset)
