"""The two phases: ``prepare`` checks arguments and plans; ``Executor.run`` checks addresses and computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from operator import add, itemgetter
from typing import Any, Protocol

from aclnn import kernels
from aclnn.core.checks import view_violation
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Operator
from aclnn.core.products import Product, current_product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    ACLNN_ERR_RUNTIME_ERROR,
    AclnnError,
    HcclResult,
)
from aclnn.core.tensor import Scalar, Tensor, contiguous_strides
from aclnn.execution import planning
from aclnn.support.bounded import BoundedCache, as_key
from aclnn.support.env import integer

Task = Callable[[], Sequence[tuple[int, ...]] | None]
Selector = Callable[[Sequence[int]], Sequence[int]]


class Stream(Protocol):
    """A queue of tasks (see aclnn.runtime)."""

    def enqueue(self, task: Task, short: bool = False) -> object:
        """Queue a task; it runs after those before it."""

    def expect_no_capture(self) -> None:
        """Raise an error if the stream is capturing (see aclnn.runtime)."""

    def synchronize(self) -> object:
        """Wait for every task queued so far."""


class Communicator(Protocol):
    """A group of ranks that run collective work in the same order (see aclnn.runtime)."""

    def enqueue(self, stream: Any, function: str, work: Task) -> None:
        """Queue work on a stream, after this communicator's work on other streams."""


class Allocation(Protocol):
    """A live range of addresses; a reference keeps its memory alive."""

    address: int
    end: int


class Memory(Protocol):
    """A table of a device's live allocations (see aclnn.runtime)."""

    @property
    def tasks(self) -> BoundedCache[object, Any]:
        """The cache of tasks; every release of memory replaces it by an empty one."""

    def resolve(self, address: int, nbytes: int, base: int) -> Allocation:
        """Return the live allocation that holds ``base``, a tensor's address, and the whole range of the tensor's view.

        Raises:
            AclnnError: there is none.
        """


def _nothing() -> None:
    """Do nothing, as the task of a call without work."""


class Prepared:
    """Decisions of phase one about one set of argument descriptors, shared by every executor prepared from them."""

    __slots__ = (
        "_ranges",
        "asked_bytes",
        "communicator",
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
        communicator: Communicator | None = None,
    ) -> None:
        self.operator = call.operator
        self.plan = plan
        self.communicator = communicator
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
        """Return functions that select the addresses of the plan's inputs and outputs.

        They select from a sequence of 0, for absent tensors, followed by the addresses of the arguments ``names``.
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
        """Return the task for these operands, which may run any number of times and keeps their memory alive.

        Args:
            addresses: addresses of the operands.
            firsts: addresses of the operands' first elements.
            workspace: address of at least ``asked_bytes`` bytes.
            workspace_size: size of the workspace as given by the caller.
            memory: checks every address; None for tensors over arrays.

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
        """Bind the plan to the addresses of the operands' first elements.

        Raises:
            AclnnError: 161002 for a workspace that overlaps an operand.
        """
        assert self.plan is not None
        if self.workspace_bytes:
            self._check_apart(firsts, workspace)
        arity = len(self.inputs)
        return kernels.bind(self.plan, firsts[:arity], firsts[arity:], workspace)

    def check_workspace(self, workspace: int, workspace_size: int) -> None:
        """Check the address and the size of a workspace.

        Raises:
            AclnnError: 161001 for a size without an address, 161002 for fewer bytes than phase one asked for.
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
        """Raise an error if the workspace overlaps a tensor."""
        end = workspace + self.workspace_bytes
        for operand, first in zip(self.operands, firsts, strict=True):
            begin = first + operand.begin
            if begin < end and workspace < begin + operand.nbytes and operand.nbytes:
                raise self.error(
                    ACLNN_ERR_PARAM_INVALID,
                    f"workspace: expected memory that does not overlap the tensors, got [{workspace:#x}, {end:#x}), "
                    f"which overlaps {operand.name}'s [{begin:#x}, {begin + operand.nbytes:#x})",
                )

    def resolve(
        self, addresses: Sequence[int], firsts: Sequence[int], workspace: int, workspace_size: int, memory: Memory
    ) -> list[Allocation]:
        """Return the allocations that hold the operands and the workspace.

        Raises:
            AclnnError: the runtime's code for an address outside live memory.
        """
        held: list[Allocation] = []
        name = ""
        try:
            for operand, address, first in zip(self._ranges, addresses, firsts, strict=True):
                name, offset, nbytes = operand
                begin = first + offset
                end = begin + nbytes
                for one in held:
                    # Programs with a memory pool of their own have most tensors in one allocation.
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

    @property
    def may_be_kept(self) -> bool:
        """True if later calls with equal descriptions may share this object, on any thread."""
        return not self.sizes_outputs and self.communicator is None

    def enqueue(self, stream: Stream, task: Task) -> None:
        """Queue the task on a stream.

        Raises:
            AclnnError: 361001 for a communicator that has ended.
        """
        if self.communicator is None:
            stream.enqueue(task, self.short)
            return
        try:
            self.communicator.enqueue(stream, self.operator.function, task)
        except AclnnError as error:
            if not isinstance(error.code, HcclResult):
                raise
            raise self.error(ACLNN_ERR_RUNTIME_ERROR, f"group: {error.message}") from None

    def error(self, code: int, text: str) -> AclnnError:
        """Return an error of the operator's second phase."""
        return AclnnError(code, text, self.operator.function)


def _selector(places: Sequence[int]) -> Selector:
    """Return a function that selects the items at these indices of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Executor:
    """``aclOpExecutor``: a prepared call bound to its tensors. Single use unless ``repeatable`` is set.

    Phase one reads the tensors' descriptions, each run their addresses. A program may therefore replace addresses
    before a run and, if the executor is repeatable, between runs.
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
    def asked_bytes(self) -> int:
        """Bytes of workspace that phase one asks for."""
        return self.prepared.asked_bytes

    def run(
        self, workspace: int = 0, workspace_size: int = 0, stream: Stream | None = None, memory: Memory | None = None
    ) -> None:
        """Queue the work on the stream, or compute at once without a stream.

        Args:
            workspace: address of at least ``asked_bytes`` bytes.
            workspace_size: size of the workspace as given by the caller.
            stream: the queue; None computes before returning.
            memory: memory of the stream's device, to check every address; None for tensors over arrays.

        Raises:
            AclnnError: 161001 for a second use of a single-use executor or a missing workspace, 161002 for a workspace
                that is too small or overlaps a tensor, the runtime's code for an address outside live memory. Nothing
                has been written then.
        """
        prepared = self.prepared
        # The counter is atomic: of two threads with the same single-use executor, one gets an error.
        if next(self._runs) and not self.repeatable:
            raise prepared.error(
                ACLNN_ERR_PARAM_NULLPTR, "executor: already used; call aclSetAclOpExecutorRepeatable to run it again"
            )
        compute = self._task(workspace, workspace_size, memory)

        def size_outputs() -> None:
            for tensor, shape in zip(self._bound[len(prepared.inputs) :], compute() or (), strict=True):
                tensor.shape, tensor.strides = shape, contiguous_strides(shape)

        task = size_outputs if prepared.sizes_outputs else compute
        if stream is None:
            task()
            return
        if prepared.sizes_outputs:
            stream.expect_no_capture()
        prepared.enqueue(stream, task)
        if prepared.sizes_outputs:
            stream.synchronize()  # callers read the shapes next

    def _task(self, workspace: int, workspace_size: int, memory: Memory | None) -> Task:
        """Return the task for the tensors' addresses; a cached one stays valid until memory is released."""
        addresses = [tensor.address for tensor in self._bound]
        if memory is None:
            return self.prepared.task(addresses, self._firsts(addresses), workspace, workspace_size, None)
        tasks = memory.tasks  # read before the checks: a release of memory during them replaces the cache
        key = self, memory, workspace, workspace_size, *addresses
        task: Task | None = tasks.get(key)
        if task is None:
            task = self.prepared.task(addresses, self._firsts(addresses), workspace, workspace_size, memory)
            if self.repeatable:
                tasks[key] = task
        return task

    def _firsts(self, addresses: Sequence[int]) -> list[int]:
        return list(map(add, addresses, self._offsets))


# A task of this many elements takes 0.1 to 0.2 ms. On a loaded machine, waking a stream's thread and passing it the
# interpreter's lock takes as long, so that such a task may run on the calling thread.
_SHORT_ELEMENTS = 1 << 19


class _Operand:
    """A tensor of a plan as described in phase one; an absent tensor has no name and no elements."""

    __slots__ = ("begin", "name", "nbytes", "size")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.size = tensor.size
        self.begin, end = tensor.layout.span
        self.nbytes = end - self.begin


_ABSENT = Tensor(DataType.DT_UNDEFINED, (0,))


def _bindable(operand: Tensor | Scalar) -> Tensor:
    """Return a tensor as it is, a scalar as an empty tensor with its bytes as the address (``kernels.library``)."""
    if isinstance(operand, Tensor):
        return operand
    return Tensor(DataType.DT_UNDEFINED, (0,), address=int.from_bytes(operand.data, sys.byteorder))


def prepare(operator: Operator, arguments: Mapping[str, Any], product: Product | None = None) -> Executor:
    """Phase one: run the operator's checks in order, choose the kernel, size the workspace.

    Args:
        operator: the operator.
        arguments: all arguments by C name; None for an absent one.
        product: the product whose checks apply; None for the current one.

    Raises:
        AclnnError: the first check that fails, with its code; 561103 when the product has no kernel.
    """
    prepared = prepare_layouts(operator, arguments, product or current_product())
    return Executor(prepared, dict(operator.operands(arguments)))


def prepare_layouts(
    operator: Operator, arguments: Mapping[str, Any], product: Product, device: str = "cpu"
) -> Prepared:
    """Prepare from the arguments' descriptions alone, and cache the result for calls with equal descriptions.

    Calls with a communicator are not cached, because each thread needs a result of its own.
    """
    descriptions = (
        _description(arguments[parameter.name], parameter.name in operator.numbers) for parameter in operator.parameters
    )
    key = (operator.name, product, device, *descriptions)
    found = _prepared.get(key)
    if found is None:
        found = _prepare(Call(operator, arguments, product), device)
        if found.communicator is None:
            _prepared[key] = found
    return found


_prepared: BoundedCache[tuple[Any, ...], Prepared] = BoundedCache()


def _least_workspace() -> int:
    """Return the minimum workspace size, which a test can raise to make programs allocate a workspace."""
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
    return Prepared(call, *planning.plan(call, work, device))


def run_checks(call: Call) -> None:
    """Run the operator's checks in order.

    Raises:
        AclnnError: the first that fails.
    """
    for check in call.operator.checks:
        if (text := check.violation(call)) is not None:
            raise AclnnError(check.code, text, call.operator.function)


def check_arguments(call: Call) -> None:
    """Run the operator's checks in order, then check every view.

    Raises:
        AclnnError: the first that fails.
    """
    run_checks(call)
    for name, tensor in call.tensors():
        if (text := view_violation(name, tensor)) is not None:
            raise AclnnError(ACLNN_ERR_PARAM_INVALID, text, call.operator.function)
