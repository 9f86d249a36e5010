"""The two phases. ``prepare`` judges the arguments and plans; ``Executor.run`` judges the addresses and computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import count
from operator import add, itemgetter
from typing import Any, Protocol

from aclnn import kernels
from aclnn.core.checks import FLOATING, view_violation
from aclnn.core.dtypes import DataType
from aclnn.core.operator import (
    Call,
    Columns,
    Elementwise,
    LayerNorm,
    Library,
    Operator,
    Part,
    PerChannel,
    Reduction,
    Sums,
    View,
    Work,
)
from aclnn.core.products import Product, current_product
from aclnn.core.promotion import castable, promote
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    ACLNN_ERR_RUNTIME_ERROR,
    AclnnError,
)
from aclnn.core.tensor import ColumnsLayout, Layout, Scalar, Tensor, contiguous_strides
from aclnn.support.bounded import BoundedCache, as_key
from aclnn.support.env import integer

Task = Callable[[], Sequence[tuple[int, ...]] | None]
Selector = Callable[[Sequence[int]], Sequence[int]]


class Stream(Protocol):
    """A queue for an executor's work (see aclnn.runtime)."""

    def enqueue(self, task: Task, short: bool = False) -> object:
        """Queue a task; it runs after those before it."""

    def synchronize(self) -> object:
        """Wait for every task queued so far."""


class Allocation(Protocol):
    """A live range of addresses; whoever holds it keeps its memory."""

    address: int
    end: int


class Memory(Protocol):
    """A table of a device's live allocations (see aclnn.runtime)."""

    def resolve(self, address: int, nbytes: int, base: int) -> Allocation:
        """The live allocation that holds ``base``, a tensor's address, and its view's whole range, or an AclnnError."""


def _nothing() -> None:
    """Do the work of a call that has none."""


class Prepared:
    """Decisions of phase one about one set of argument descriptors, shared by every executor prepared from them."""

    __slots__ = (
        "_ranges",
        "asked_bytes",
        "inputs",
        "leaves",
        "names",
        "operands",
        "operator",
        "outputs",
        "plan",
        "short",
        "sizes_outputs",
        "workspace_bytes",
    )

    def __init__(
        self,
        call: Call,
        plan: kernels.Plan | None = None,
        inputs: Sequence[str | None] = (),
        outputs: Sequence[str | None] = (),
        sizes_outputs: bool = False,
    ) -> None:
        self.operator = call.operator
        self.plan = plan
        self.leaves = plan is None or call.operator.leaves
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.workspace_bytes = 0 if plan is None else plan.workspace_bytes
        self.asked_bytes = 0 if plan is None else max(plan.workspace_bytes, _least_workspace())
        self.sizes_outputs = sizes_outputs
        given = {name: _bindable(operand) for name, operand in call.operator.operands(call.arguments)}
        self.names = tuple(given)
        names = (*self.inputs, *self.outputs)
        self.operands = [_Operand(name or "", _ABSENT if name is None else given[name]) for name in names]
        self._ranges = [(operand.name, operand.begin, operand.nbytes) for operand in self.operands]
        self.short = sum(operand.size for operand in self.operands) <= _SHORT_ELEMENTS

    def address_selectors(self, names: Sequence[str]) -> tuple[Selector, Selector]:
        """Return selectors of the plan's inputs and of its outputs among a call's addresses.

        Those are a 0, the address of an absent tensor, followed by the addresses of ``names``, the call's arguments.
        """
        places = {name: place for place, name in enumerate(names, 1)} | {None: 0}
        return _selector([places[name] for name in self.inputs]), _selector([places[name] for name in self.outputs])

    def task(
        self,
        addresses: Sequence[int],
        firsts: Sequence[int],
        workspace: int,
        workspace_size: int,
        memory: Memory | None,
    ) -> Task:
        """Return the work on these operands, which may be done any number of times; it keeps their memory.

        Args:
            addresses: of the operands.
            firsts: the addresses of their first elements.
            workspace: address of at least ``asked_bytes`` bytes.
            workspace_size: bytes that the caller put there.
            memory: judges every address; None for tensors over arrays.

        Raises:
            AclnnError: see ``Executor.run``.
        """
        if workspace_size or self.asked_bytes:
            self.check_workspace(workspace, workspace_size)
        if self.plan is None:
            return _nothing
        held = [] if memory is None else self.resolve(addresses, firsts, workspace, workspace_size, memory)
        compute = self.bind(firsts, workspace)

        def task(held: object = held) -> Sequence[tuple[int, ...]] | None:
            return compute()

        return task

    def bind(self, firsts: Sequence[int], workspace: int) -> Callable[[], Sequence[tuple[int, ...]] | None]:
        """Return the plan's work on operands whose first elements are there.

        Raises:
            AclnnError: 161002, the workspace overlaps an operand.
        """
        assert self.plan is not None
        if self.workspace_bytes:
            self._check_apart(firsts, workspace)
        arity = len(self.inputs)
        return kernels.bind(self.plan, firsts[:arity], firsts[arity:], workspace)

    def check_workspace(self, workspace: int, workspace_size: int) -> None:
        """Judge the workspace that a run is given.

        Raises:
            AclnnError: 161001, its bytes have no address; 161002, they are fewer than phase one asked for.
        """
        if workspace_size > 0 and not workspace:
            raise self.error(
                ACLNN_ERR_PARAM_NULLPTR, f"workspace: expected the address of {workspace_size} bytes, got null"
            )
        if workspace_size < self.asked_bytes:
            raise self.error(
                ACLNN_ERR_PARAM_INVALID,
                f"workspaceSize: expected at least the {self.asked_bytes} bytes that phase one asked for, "
                f"got {workspace_size}",
            )

    def _check_apart(self, firsts: Sequence[int], workspace: int) -> None:
        """Refuse a workspace whose use would overwrite a tensor, or be overwritten with one."""
        end = workspace + self.workspace_bytes
        for operand, first in zip(self.operands, firsts, strict=True):
            begin = first + operand.begin
            if begin < end and workspace < begin + operand.nbytes and operand.nbytes:
                raise self.error(
                    ACLNN_ERR_PARAM_INVALID,
                    f"workspace: expected memory apart from the tensors, got [{workspace:#x}, {end:#x}), "
                    f"which overlaps {operand.name}'s [{begin:#x}, {begin + operand.nbytes:#x})",
                )

    def resolve(
        self, addresses: Sequence[int], firsts: Sequence[int], workspace: int, workspace_size: int, memory: Memory
    ) -> list[Allocation]:
        """Return the allocations that hold the operands and the workspace.

        Raises:
            AclnnError: the runtime's code, an address is outside live memory.
        """
        held: list[Allocation] = []
        name = ""
        try:
            for operand, address, first in zip(self._ranges, addresses, firsts, strict=True):
                name, offset, nbytes = operand
                begin = first + offset
                end = begin + nbytes
                for one in held:
                    # Most tensors of a program that divides its memory itself lie in one allocation.
                    if one.address <= begin and end <= one.end and one.address <= address < one.end:
                        break
                else:
                    if nbytes:
                        held.append(memory.resolve(begin, nbytes, address))
            if workspace_size > 0:
                name = "workspace"
                held.append(memory.resolve(workspace, workspace_size, workspace))
        except AclnnError as error:
            raise self.error(error.code, f"{name}: {error.message}") from None
        return held

    def error(self, code: int, text: str) -> AclnnError:
        """A refusal by the operator's second phase."""
        return AclnnError(code, text, self.operator.function)


def _selector(places: Sequence[int]) -> Selector:
    """Return a function that selects the items at these places of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Executor:
    """``aclOpExecutor``: a prepared call bound to its tensors. Single use unless ``repeatable`` is set.

    The tensors' descriptions are taken in phase one; their addresses are read when it runs, so they may be replaced in
    between or, on a repeatable executor, between runs.
    """

    GONE = "has run, was destroyed or never existed"

    __slots__ = ("_bound", "_offsets", "_runs", "prepared", "repeatable", "tensors")

    def __init__(self, prepared: Prepared, operands: Mapping[str, Tensor | Scalar]) -> None:
        self.prepared = prepared
        self.repeatable = False
        self._runs = count()
        self.tensors = {name: given for name, given in operands.items() if isinstance(given, Tensor)}
        bindable = {name: _bindable(given) for name, given in operands.items()}
        self._bound = [bindable.get(operand.name, _ABSENT) for operand in prepared.operands]
        self._offsets = [tensor.offset and tensor.offset_bytes for tensor in self._bound]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that a run needs."""
        return self.prepared.asked_bytes

    def run(
        self, workspace: int = 0, workspace_size: int = 0, stream: Stream | None = None, memory: Memory | None = None
    ) -> None:
        """Queue the work on the stream, or do it at once when there is none.

        Args:
            workspace: address of at least ``workspace_bytes`` bytes.
            workspace_size: bytes that the caller put there.
            stream: the queue; None computes before returning.
            memory: of the stream's device, which judges every address; None for tensors over arrays.

        Raises:
            AclnnError: 161001 for a second use of a single-use executor or a missing workspace, 161002 for a workspace
                that is too small or overlaps a tensor, the runtime's code for an address outside live memory. Nothing
                has been touched then.
        """
        prepared = self.prepared
        # Counted in one step: of two threads with one single-use executor, one is refused.
        if next(self._runs) and not self.repeatable:
            raise prepared.error(
                ACLNN_ERR_PARAM_NULLPTR, "executor: already used; call aclSetAclOpExecutorRepeatable to run it again"
            )
        addresses = [tensor.address for tensor in self._bound]
        firsts = list(map(add, addresses, self._offsets))
        compute = prepared.task(addresses, firsts, workspace, workspace_size, memory)

        def size_outputs() -> None:
            for tensor, shape in zip(self._bound[len(prepared.inputs) :], compute() or (), strict=True):
                tensor.shape, tensor.strides = shape, contiguous_strides(shape)

        task = size_outputs if prepared.sizes_outputs else compute
        if stream is None:
            task()
            return
        stream.enqueue(task, prepared.short)
        if prepared.sizes_outputs:
            stream.synchronize()  # callers look at the shapes next


# A task of this many elements takes 0.1 to 0.2 ms. Where others use the processors too, waking a stream's thread, which
# then takes the interpreter's lock, takes as long, so that such a task may run in place.
_SHORT_ELEMENTS = 1 << 19


class _Operand:
    """A tensor of a plan, as phase one saw it; without a name and empty where it is absent."""

    __slots__ = ("begin", "name", "nbytes", "size")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.size = tensor.size
        self.begin, end = tensor.layout.span
        self.nbytes = end - self.begin


_ABSENT = Tensor(DataType.DT_UNDEFINED, (0,))


def _bindable(operand: Tensor | Scalar) -> Tensor:
    """A tensor, or an empty one that has a number's bytes for its address (``kernels.library``)."""
    if isinstance(operand, Tensor):
        return operand
    return Tensor(DataType.DT_UNDEFINED, (0,), address=int.from_bytes(operand.data, sys.byteorder))


def prepare(operator: Operator, arguments: Mapping[str, Any], product: Product | None = None) -> Executor:
    """Phase one: run the operator's checks in order, choose the kernel, size the workspace.

    Args:
        operator: what to compute.
        arguments: by C name; every parameter of the operator must be there, absent ones as None.
        product: whose checks to run; None for the one in force.

    Raises:
        AclnnError: the first check that fails, with its code; 561103 when the product has no kernel.
    """
    prepared = prepare_layouts(operator, arguments, product or current_product())
    return Executor(prepared, dict(operator.operands(arguments)))


def prepare_layouts(
    operator: Operator, arguments: Mapping[str, Any], product: Product, device: str = "cpu"
) -> Prepared:
    """Prepare from the arguments' descriptions alone, and keep the result for the next call with equal ones."""
    descriptions = (
        _description(arguments[parameter.name], parameter.name in operator.numbers) for parameter in operator.parameters
    )
    key = (operator.name, product, device, *descriptions)
    found = _prepared.get(key)
    if found is None:
        found = _prepare(Call(operator, arguments, product), device)
        _prepared[key] = found
    return found


_prepared: BoundedCache[tuple[Any, ...], Prepared] = BoundedCache()


def _least_workspace() -> int:
    """Return the bytes to ask for even where none are needed, by which tests have programs allocate them."""
    return integer("ACLNN_TEST_WORKSPACE_BYTES", 0, least=0)


def _description(argument: Any, is_number: bool) -> Any:
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape, argument.strides, argument.format
    if is_number and isinstance(argument, Scalar):
        return argument.dtype
    if type(argument) is tuple:  # a list of tensors or scalars
        return tuple(_description(item, is_number) for item in argument)
    return as_key(argument)


def _prepare(call: Call, device: str) -> Prepared:
    check_arguments(call)
    on_gpu = None if device == "cpu" else call.operator.gpu_work
    work = (on_gpu or call.operator.work)(call)
    if work is None:
        return Prepared(call)
    if call.product not in call.operator.support and not work.on_every_product:
        raise AclnnError(
            ACLNN_ERR_INNER_NULLPTR,
            f"expected a product with a kernel for it, got {call.product.title}",
            call.operator.function,
        )
    return _plan(call, work, device)


def run_checks(call: Call) -> None:
    """Run the operator's checks in order.

    Raises:
        AclnnError: the first that fails.
    """
    for check in call.operator.checks:
        if (text := check.complaint(call)) is not None:
            raise AclnnError(check.code, text, call.operator.function)


def check_arguments(call: Call) -> None:
    """Run the operator's checks in order, then check every view, whose extents must be numbers.

    Raises:
        AclnnError: the first that fails.
    """
    run_checks(call)
    for name, tensor in call.tensors():
        if (text := view_violation(name, tensor)) is not None:
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, text, call.operator.function)


def _plan(call: Call, work: Work, device: str) -> Prepared:
    if isinstance(work, Elementwise):
        matrices = isinstance(work.outputs[0], Columns)
        plan = _matrices(call, work, device) if matrices else _elementwise(call, work, device)
        names = [*map(_tensor_of, work.inputs), *([] if work.groups is None else [work.groups])]
        return Prepared(call, plan, names, [*map(_tensor_of, work.outputs)])
    if isinstance(work, Library):
        return _library(call, work)
    if isinstance(work, Reduction):
        return _reduction(call, work, device)
    read, written = _layouts(call, work.inputs), _layouts(call, work.outputs)
    if isinstance(work, LayerNorm):
        plan = kernels.layer_norm(read, written, work.normalized_dims, work.eps, work.centred)
    else:
        plan = kernels.layer_norm_backward(read, written, work.normalized_dims, device, work.centred)
    return Prepared(call, plan, work.inputs, work.outputs)


def _library(call: Call, work: Library) -> Prepared:
    operands = dict(call.operator.operands(call.arguments))
    for name in (*work.inputs, *work.outputs):
        dtype = (operands.get(name) or call[name]).dtype
        if not dtype.has_numpy:
            raise AclnnError(
                ACLNN_ERR_INNER_NULLPTR,
                f"{name}: expected a data type that NumPy computes, got {dtype.c_name}",
                call.operator.function,
            )
    given = [_planned(operands[name]) if name in operands else call[name].value for name in work.inputs]
    tensors = dict(call.tensors())
    written = [tensors[name].layout.stored for name in work.outputs]
    function = _naming(work.function, call.operator.function)
    plan = kernels.library(function, given, written, work.dtype, work.sized_by_result, work.fills)
    names = [name for name in work.inputs if name in operands]
    return Prepared(call, plan, names, work.outputs, work.sized_by_result)


def _naming(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function, with numbers that it cannot compute with reported under the C function's name."""

    def computed(*given: Any, **further: Any) -> Any:
        try:
            return function(*given, **further)
        except (IndexError, ValueError) as error:
            raise AclnnError(ACLNN_ERR_RUNTIME_ERROR, str(error), name) from error

    return computed


def _planned(operand: Tensor | Scalar) -> Layout | DataType:
    """The description of an operand before it is bound."""
    return operand.layout.stored if isinstance(operand, Tensor) else operand.dtype


def _reduction(call: Call, work: Reduction, device: str) -> Prepared:
    """Plan a formula over rows."""
    _expect_cpu(call, device, "which alone has a kernel for this")
    inputs = [given if isinstance(given, float) else _viewed(call, given) for given in work.inputs]
    outputs = [None if output is None else _viewed(call, output) for output in work.outputs]
    read = [_tensor_of(given) for given in work.inputs if not isinstance(given, float)]
    written = [_tensor_of(output) for output in work.outputs if output is not None]
    for name in read:
        _expect_kernel(call, name, call[name].dtype, castable(call[name].dtype, DataType.DOUBLE))
    plan = kernels.reduction(work.formula, inputs, outputs, work.dims, work.numbers)
    return Prepared(call, plan, read, written)


def _viewed(call: Call, operand: str | View | Sums) -> kernels.Operand:
    of = operand.of if isinstance(operand, Sums) else operand
    tensor: Tensor = call[_tensor_of(of)]
    return kernels.Operand(tensor.layout, of.shape if isinstance(of, View) else tensor.shape, isinstance(operand, Sums))


def _tensor_of(operand: str | Part | PerChannel | Sums | View | Columns) -> str:
    return operand if isinstance(operand, str) else operand.tensor


def _in_channels(call: Call, work: Elementwise, layouts: Sequence[Layout]) -> list[Layout]:
    """The layouts, with dimension 1 split into the dimensions of the per-channel tensor."""
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
    """The layout of a tensor with one element for all, or one for each index along dimension 1."""
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
    """Plan a formula of columns of matrices."""
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
    """Plan a formula, whose inputs of other than floating types are converted first."""
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
    plan = kernels.elementwise(work.formula, converted, outputs, work.numbers, device)
    return kernels.converting(plan, inputs, (promoted,) * len(inputs))


def _expect_cpu(call: Call, device: str, why: str = "where NumPy computes this") -> None:
    if device != "cpu":
        text = f"expected the CPU as the device, {why}, got {device}"
        raise AclnnError(ACLNN_ERR_INNER_NULLPTR, text, call.operator.function)


_COMPUTED = (*FLOATING, DataType.DOUBLE)


def _expect_kernel(call: Call, name: str, dtype: DataType, found: bool) -> None:
    """Refuse a data type that the operator's checks take and no kernel does."""
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
