"""The Python side of the C libraries: each entry point calls the function of the same name in ``aclnn.capi``."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from _thread import interrupt_main
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from aclnn import capi, kernels
from aclnn.capi.prototype import FUNCTIONS, CFunction
from aclnn.core.status import ACLNN_ERR_INNER, ACLNN_ERR_PARAM_INVALID, CODES, AclnnError
from aclnn.runtime import errors, streams
from aclnn.support.env import SettingError
from aclnn.toolkit import stubs, task_queue
from aclnn.toolkit.abi import is_text, result_type
from aclnn.toolkit.trace import Trace

Entry = Callable[..., Any]

#: More elements than any array that a program can mean; C cannot say how long it really is.
_LONGEST_ARRAY = 1 << 28
# Its text lives until the thread's next call; every other text as long as the process.
_SHORT_LIVED = "aclGetRecentErrMsg"

__all__ = ["attach", "capi"]


class _Marshaller:
    """cffi's two objects, and what is built from them."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi = ffi
        self.lib = lib
        self.null = ffi.NULL
        self.texts: dict[str, Any] = {}
        self.recent = threading.local()

    def text(self, function: CFunction, value: str | None) -> Any:
        """A C string that outlives the call."""
        if value is None:
            return self.null
        if function.name == _SHORT_LIVED:
            self.recent.text = self.ffi.new("char[]", value.encode("utf-8", "replace"))
            return self.recent.text
        # One step: of two threads that ask first, neither may get a text that the other's replaces.
        return self.texts.setdefault(value, self.ffi.new("char[]", value.encode("utf-8", "replace")))

    def array(self, values: Sequence[int]) -> Any:
        """A new array of int64_t that C++ releases with ``delete[]``."""
        array = self.ffi.cast("int64_t *", self.lib.aclnn_new_array(8 * len(values)))
        array[0 : len(values)] = list(values)
        return array

    def elements(self, pointer: Any, count: int) -> tuple[Any, ...] | None:
        """Return the elements of an array parameter; None for null."""
        return tuple(self.ffi.unpack(pointer, count)) if pointer else None

    def string(self, pointer: Any) -> str | None:
        """Return the text of a string parameter; None for null."""
        return os.fsdecode(self.ffi.string(pointer)) if pointer else None


def attach(ffi: Any, lib: Any) -> None:
    """Give every C entry point its Python function; cffi calls this once."""
    marshaller = _Marshaller(ffi, lib)
    wrap = _tracing(marshaller)
    is_queued = task_queue.is_used()
    if is_queued:
        lib.aclnn_watch()
    for function in FUNCTIONS.values():
        error = _fallback(function, marshaller)
        entry = wrap(function, _entry(function, marshaller))
        if is_queued:
            entry = task_queue.noted(function, entry, lib.aclnn_begun)
        ffi.def_extern(name=f"py_{function.name}", error=error, onerror=_onerror(function))(entry)
    ffi.def_extern(name="py_leave")(_leave)
    ffi.def_extern(name="py_note_refusal")(_refusals(marshaller))
    kernels.when_compiler_is_up.append(lib.aclnn_leave_first)
    lib.aclnn_leave_first()


def _refusals(marshaller: _Marshaller) -> Entry:
    def note(function: Any, code: int) -> None:
        marshaller.lib.aclnn_begun()
        errors.record(code, stubs.refusal(marshaller.string(function) or ""))

    return note


def _leave() -> None:
    """The process ends: nothing may be in LLVM, or come to it, once its destructors have run."""
    streams.drain_at_exit(run_pending=True)
    kernels.compile_no_more()
    gc.freeze()  # what LLVM owns is not to be released later


def _opened_trace() -> Trace | None:
    path = os.environ.get("ACLNN_TRACE")
    try:
        return Trace(path) if path else None
    except OSError as error:
        raise SettingError(
            f"ACLNN_TRACE: expected a file that can be written, got {path!r} ({error.strerror})"
        ) from None


# At import, whose failure is told in one line: cffi prints a traceback for what fails in ``attach``.
_trace = _opened_trace()


def _tracing(marshaller: _Marshaller) -> Callable[[CFunction, Entry], Entry]:
    trace = _trace
    if trace is None:
        return lambda function, entry: entry
    return lambda function, entry: trace.wrap(function, entry, marshaller.elements, marshaller.string)


def _fallback(function: CFunction, marshaller: _Marshaller) -> Any:
    """Return C's result when Python itself fails: an error status, null or 0."""
    if function.returns_status:
        return _failure(function)
    return marshaller.null if result_type(function) == "const char *" else 0


def _failure(function: CFunction) -> int:
    return CODES["ACL_ERROR_INTERNAL_ERROR"] if function.returns == "aclError" else ACLNN_ERR_INNER


def _onerror(function: CFunction) -> Callable[..., None]:
    def note(kind: type[BaseException], value: BaseException, traceback: object) -> None:
        cause = str(value) if isinstance(value, SettingError) else f"internal error: {kind.__name__}: {value}"
        function.refuse(AclnnError(_failure(function), cause))
        text = f"{function.name}: {cause}"
        if kind not in (MemoryError, KeyboardInterrupt):
            print(f"aclnn: {text}", file=sys.stderr, flush=True)  # noqa: T201  (the only way out of a C call)
        interrupting = map(interrupt_main, (signal.SIGINT,))
        if kind is KeyboardInterrupt:
            # For the Python program that made the C call, once that has returned: interrupts come after calls, and
            # unpacking is the last that happens here and none.
            (_,) = interrupting

    return note


def _entry(function: CFunction, marshaller: _Marshaller) -> Entry:
    compute = _with_inputs(function, marshaller)
    if not function.returns_status:
        return _value_entry(function, marshaller, compute)
    return _status_entry(function, compute) if not function.outputs else _result_entry(function, marshaller, compute)


def _with_inputs(function: CFunction, marshaller: _Marshaller) -> Entry:
    """The implementation, taking all of C's arguments as they come, out-parameters too."""
    implementation = function.implementation
    names = [parameter.name for parameter in function.parameters]
    inputs = [names.index(parameter.name) for parameter in function.inputs]
    arrays = [(names.index(p.name), names.index(p.counted_by)) for p in function.inputs if p.counted_by is not None]
    texts = [names.index(parameter.name) for parameter in function.inputs if is_text(parameter)]
    if len(inputs) == len(names):
        pick: Entry = lambda values: values  # noqa: E731  (one of three ways to say the same)
    else:
        pick = itemgetter(*inputs) if len(inputs) > 1 else lambda values: [values[at] for at in inputs]
    if not arrays and not texts:
        return lambda *values: implementation(*pick(values))

    def converted(*values: Any) -> Any:
        given = list(values)
        for at, counter in arrays:
            if values[at] and values[counter] > _LONGEST_ARRAY:
                raise AclnnError(
                    ACLNN_ERR_PARAM_INVALID,
                    f"{names[counter]}: expected at most {_LONGEST_ARRAY} elements, got {values[counter]}",
                )
            given[at] = marshaller.elements(values[at], values[counter])
        for at in texts:
            given[at] = marshaller.string(values[at])
        return implementation(*pick(given))

    return converted


def _value_entry(function: CFunction, marshaller: _Marshaller, compute: Entry) -> Entry:
    is_string = result_type(function) == "const char *"
    refused = _fallback(function, marshaller)

    def value(*values: Any) -> Any:
        try:
            result = compute(*values)
        except AclnnError as error:
            function.refuse(error)
            return refused
        return marshaller.text(function, result) if is_string else result

    return value


def _status_entry(function: CFunction, compute: Entry) -> Entry:
    def status(*values: Any) -> Any:
        try:
            result = compute(*values)
        except AclnnError as error:
            return function.refuse(error)
        # Two functions answer with a status that is not about the call itself.
        return 0 if result is None else result

    return status


def _result_entry(function: CFunction, marshaller: _Marshaller, compute: Entry) -> Entry:
    names = [parameter.name for parameter in function.parameters]
    required = [names.index(parameter.name) for parameter in function.outputs if not parameter.nullable]
    store = _store(function, marshaller)

    def results(*values: Any) -> int:
        for at in required:
            if not values[at]:
                return _null(function, names[at])
        try:
            store(values, compute(*values))
        except AclnnError as error:
            return function.refuse(error)
        return 0

    return results


def _null(function: CFunction, name: str) -> int:
    return function.refuse(AclnnError(function.null_status, f"{name}: expected an address for the result, got null"))


def _store(function: CFunction, marshaller: _Marshaller) -> Entry:
    """Return a function that writes results where C's out-parameters point."""
    names = [parameter.name for parameter in function.parameters]
    outputs = [names.index(parameter.name) for parameter in function.outputs]
    lists = [parameter.counted_by is not None for parameter in function.outputs]
    if len(outputs) == 1 and not lists[0]:
        only = outputs[0]

        def store_one(values: Sequence[Any], result: Any) -> None:
            if values[only]:
                values[only][0] = result

        return store_one

    def store(values: Sequence[Any], results: Sequence[Any]) -> None:
        for at, is_list, result in zip(outputs, lists, results, strict=True):
            if values[at]:
                values[at][0] = marshaller.array(result) if is_list else result

    return store
