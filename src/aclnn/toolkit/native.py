"""Python's side of the objects that live in C (objects.c): adoption of objects, runs of executors, cached plans.

Each object lives in one place. Python adopts the objects it has to look up; with a tensor, it adopts the executors that
refer to it, and with an executor, the executor's tensors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from aclnn.capi.objects import BoolArray, IntArray, ScalarList, TensorList
from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.core import products
from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import Executor, Prepared, Task
from aclnn.runtime import devices, handles, memory
from aclnn.runtime.locks import Lock
from aclnn.runtime.streams import Stream
from aclnn.support.process import PerProcess

# A concurrent call may be about to run a plan that has just been evicted.
_LINGERING = 64

#: Bytes of a uintptr_t.
_WORD_BYTES = 8


class Native:
    """Objects in C, accessed through cffi's ffi and lib."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self._ffi, self._lib = ffi, lib
        self._lock = PerProcess(Lock)
        self._kept: dict[int, Prepared] = {}
        self._gone: deque[int] = deque()
        self._number = 0

    def attach(self) -> None:
        """Let new objects live in C from now on."""
        handles.adopt = self.adopt
        products.when_chosen.append(self._lib.aclnn_forget_answers)
        self._lib.aclnn_live_here(True)

    def keep(self, executor: int, gone: int, operands: Any, count: Any) -> int:
        """Cache an executor's ``Prepared``: write its operands' argument indices, return its number or 0."""
        self._lib.aclnn_begun()
        if gone:
            self._gone.append(gone)
        if len(self._gone) > _LINGERING:
            self._kept.pop(self._gone.popleft(), None)
        found = handles.get(executor, Executor)
        if found is None or not found.prepared.may_be_kept or len(found.prepared.operands) > count[0]:
            return 0
        places = {name: place for place, name in enumerate(found.prepared.names)}
        for at, operand in enumerate(found.prepared.operands):
            operands[at] = places.get(operand.name, -1)
        count[0] = len(found.prepared.operands)
        with self._lock.current:
            self._number += 1
            self._kept[self._number] = found.prepared
            return self._number

    def run(self, answer: int, words: Any, operands: int, workspace: int, workspace_size: int, stream: int) -> int:
        """Queue the computation of an executor that C has removed, and return the status.

        Args:
            answer: number of its ``Prepared``.
            words: two words per operand: the tensor's address and that of its first element.
            operands: number of operands.
            workspace: address of the workspace.
            workspace_size: bytes of the workspace.
            stream: handle of the stream; 0 is the current context's default one.
        """
        self._lib.aclnn_begun()
        key = answer, workspace, workspace_size, stream, self._ffi.buffer(words, _WORD_BYTES * 2 * operands)[:]
        tasks = memory.tasks()  # before addresses are checked: memory freed meanwhile replaces the cache
        try:
            if (found := tasks.get(key)) is None:
                found = self._task(answer, self._ffi.unpack(words, 2 * operands), workspace, workspace_size, stream)
                if stream:  # else it depends on the calling thread
                    tasks[key] = found
            queue, task, short = found
            queue.enqueue(task, short)
        except AclnnError as error:
            return self.function_of(answer).record_error(error)
        return 0

    def _task(
        self, answer: int, words: Sequence[int], workspace: int, workspace_size: int, stream: int
    ) -> tuple[Stream, Task, bool]:
        """Check a call; return its stream, its task and whether the task is short."""
        prepared = self._kept[answer]
        if workspace_size and not workspace:
            prepared.check_workspace(workspace, workspace_size)  # fails, before the stream is looked at
        queue = devices.stream_of(stream)
        task = prepared.task(words[::2], words[1::2], workspace, workspace_size, queue.context.device)
        return queue, task, prepared.short

    def function_of(self, answer: int) -> CFunction:
        """Return the C function of a cached ``Prepared``."""
        return FUNCTIONS[self._kept[answer].operator.function]

    def adopt(self, handle: int) -> Any:
        """Move a live object from C to Python; return None if C has none of this handle."""
        with self._lock.current:
            return self._adopt(handle, even_destroyed=False)

    def _adopt(self, handle: int, even_destroyed: bool) -> Any:
        if (found := handles.here(handle)) is not None:  # another thread has adopted it first
            return found
        taken = self._ffi.new("struct aclnn_taken *")
        if not self._lib.aclnn_take(handle, even_destroyed, taken):
            return None
        item = self._item(handle, taken)
        self._lib.free(taken.values)
        if not taken.destroyed:
            handles.enter(handle, item)
            while taken.kind == self._lib.ACLNN_TENSOR and (user := self._lib.aclnn_user_of(handle)):
                self._adopt(user, even_destroyed=False)
        return item

    def _item(self, handle: int, taken: Any) -> Any:
        lib, values = self._lib, tuple(self._ffi.unpack(taken.values, self._length(taken)))
        match taken.kind:
            case lib.ACLNN_TENSOR:
                rank = taken.count
                shape, strides, storage = values[:rank], values[rank : 2 * rank], values[2 * rank :]
                dtype, label = DataType(taken.dtype), Format(taken.format)
                return Tensor(dtype, shape, strides, taken.offset, label, storage, taken.address)
            case lib.ACLNN_SCALAR:
                dtype = DataType(taken.dtype)
                return Scalar(dtype, bytes(self._ffi.buffer(taken.values, dtype.itemsize)))
            case lib.ACLNN_INTS:
                return IntArray(values)
            case lib.ACLNN_BOOLS:
                return BoolArray(map(bool, values))
            case lib.ACLNN_TENSORS:
                return TensorList(map(_handle, values))
            case lib.ACLNN_SCALARS:
                return ScalarList(map(_handle, values))
        prepared = self._kept[taken.answer]
        tensors = [self._adopt(tensor, even_destroyed=True) for tensor in values]
        lib.aclnn_drop(handle)
        return Executor(prepared, dict(zip(prepared.names, tensors, strict=True)))

    def _length(self, taken: Any) -> int:
        twice = taken.kind == self._lib.ACLNN_TENSOR
        return int(taken.count * (1 + twice) + taken.storage_count)


def _handle(value: int) -> int:
    """Return a handle from a list, which C stores as a signed number."""
    return value % (1 << 64)
