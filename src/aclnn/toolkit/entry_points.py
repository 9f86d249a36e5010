"""Python entry points of the C libraries: each calls the function of the same name in ``aclnn.capi``."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from _thread import interrupt_main
from collections.abc import Callable, Sequence
from typing import Any

from aclnn import capi, kernels
from aclnn.capi.prototype import FUNCTIONS, CFunction, CParameter
from aclnn.core.status import ACLNN_ERR_INNER, AclnnError
from aclnn.runtime import errors, streams
from aclnn.support.env import SettingError
from aclnn.toolkit import stubs, task_queue
from aclnn.toolkit.abi import returns_text
from aclnn.toolkit.native import Native
from aclnn.toolkit.tracing import Trace

Entry = Callable[..., Any]

#: Limit on an array's element count, to catch absurd values; C does not pass the array's real length.
_LONGEST_ARRAY = 1 << 28
# Its text is valid until the thread's next call; other texts are valid as long as the process.
_SHORT_LIVED = "aclGetRecentErrMsg"

__all__ = ["attach", "capi"]


class _Marshaller:
    """cffi's ffi and lib objects, and functions based on them."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi = ffi
        self.lib = lib
        self.null = ffi.NULL
        self.texts: dict[str, Any] = {}
        self.recent = threading.local()

    def text(self, function: CFunction, value: str | None) -> Any:
        """Return a C string that outlives the call."""
        if value is None:
            return self.null
        if function.name == _SHORT_LIVED:
            self.recent.text = self.ffi.new("char[]", value.encode("utf-8", "replace"))
            return self.recent.text
        # In one step: concurrent first calls must not replace each other's string.
        return self.texts.setdefault(value, self.ffi.new("char[]", value.encode("utf-8", "replace")))

    def array(self, values: Sequence[int], c_type: str) -> Any:
        """A new array of 64-bit integers that C++ releases with ``delete[]``."""
        array = self.ffi.cast(c_type, self.lib.aclnn_new_array(8 * len(values)))
        array[0 : len(values)] = list(values)
        return array

    def elements(self, pointer: Any, count: int) -> tuple[Any, ...] | None:
        """Return the elements of an array parameter; None for null."""
        return tuple(self.ffi.unpack(pointer, count)) if pointer else None

    def string(self, pointer: Any) -> str | None:
        """Return the text of a string parameter; None for null."""
        return os.fsdecode(self.ffi.string(pointer)) if pointer else None


def attach(ffi: Any, lib: Any) -> None:
    """Connect every C entry point to its Python function; cffi calls this once."""
    marshaller = _Marshaller(ffi, lib)
    wrap = _tracing(marshaller)
    is_queued = task_queue.is_used()
    if is_queued:
        lib.aclnn_watch()

    def serve(function: CFunction) -> None:
        define = ffi.def_extern(
            name=f"py_{function.name}", error=_fallback(function, marshaller), onerror=_onerror(function)
        )

        def first(*values: Any) -> Any:
            """Build the entry point on its first call, as few are ever called, and install it in place of this one."""
            entry = wrap(function, _entry(function, marshaller))
            if is_queued:
                entry = task_queue.noted(function, entry, lib.aclnn_begun)
            return define(entry)(*values)

        define(first)

    for function in FUNCTIONS.values():
        serve(function)
    ffi.def_extern(name="py_leave")(_leave)
    ffi.def_extern(name="py_note_error")(_error_notes(marshaller))
    objects = Native(ffi, lib)
    ffi.def_extern(name="py_keep", error=0)(objects.keep)
    ffi.def_extern(name="py_run", error=ACLNN_ERR_INNER, onerror=_onerror_of_run(objects))(objects.run)
    if _trace is None:  # a trace has to see every call
        objects.attach()
    kernels.when_compiler_is_up.append(lib.aclnn_leave_first)
    lib.aclnn_leave_first()


def _error_notes(marshaller: _Marshaller) -> Entry:
    def note(function: Any, code: int) -> None:
        marshaller.lib.aclnn_begun()
        name = marshaller.string(function) or ""
        if code:
            errors.record(code, stubs.error_text(name))
        if _trace is not None:
            _trace.record_missing(name, code)

    return note


def _leave() -> None:
    """End the process: no thread may be in LLVM, or enter it, once LLVM's destructors have run."""
    streams.drain_at_exit(run_pending=True)
    kernels.compile_no_more()
    gc.freeze()  # do not release LLVM's objects later


def _opened_trace() -> Trace | None:
    path = os.environ.get("ACLNN_TRACE")
    try:
        return Trace(path) if path else None
    except OSError as error:
        raise SettingError(
            f"ACLNN_TRACE: expected a file that can be written, got {path!r} ({error.strerror})"
        ) from None


# At import, so that an error is reported in one line: cffi prints a traceback for errors in ``attach``.
_trace = _opened_trace()


def _tracing(marshaller: _Marshaller) -> Callable[[CFunction, Entry], Entry]:
    trace = _trace
    if trace is None:
        return lambda function, entry: entry
    return lambda function, entry: trace.wrap(function, entry, marshaller.elements, marshaller.string)


def _fallback(function: CFunction, marshaller: _Marshaller) -> Any:
    """Return C's result if Python itself fails: an error status, or the function's null."""
    if function.returns_status:
        return function.statuses.internal
    return marshaller.text(function, function.null) if returns_text(function) else function.null


def _onerror(function: CFunction) -> Callable[..., None]:
    def note(kind: type[BaseException], value: BaseException, traceback: object) -> None:
        cause = str(value) if isinstance(value, SettingError) else f"internal error: {kind.__name__}: {value}"
        function.record_error(AclnnError(function.statuses.internal, cause))
        text = f"{function.name}: {cause}"
        if kind not in (MemoryError, KeyboardInterrupt):
            print(f"aclnn: {text}", file=sys.stderr, flush=True)  # noqa: T201  (a C call has no other way to report)
        interrupting = map(interrupt_main, (signal.SIGINT,))
        if kind is KeyboardInterrupt:
            # For the Python program that made the C call, after the call returns: interrupts are delivered after calls,
            # and unpacking, the last operation here, is not a call.
            (_,) = interrupting

    return note


def _onerror_of_run(objects: Native) -> Callable[..., None]:
    def note(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        _onerror(objects.function_of(traceback.tb_frame.f_locals["answer"]))(kind, value, traceback)

    return note


def _entry(function: CFunction, marshaller: _Marshaller) -> Entry:
    """Return the implementation, which takes C's arguments including out-parameters.

    It is generated and compiled as source code, as in ``dataclasses``: calls take half the time of nested functions.
    """
    names = [parameter.name for parameter in function.parameters]
    lines = [f"def {function.name}({', '.join(names)}):"]
    lines += [
        f"    if not {p.name}: return _null(_function, {p.name!r})"
        for p in (function.outputs if function.returns_status else ())
        if not p.nullable
    ]
    optional = [p.name for p in function.outputs if p.nullable]
    if len(optional) > 1:  # a call with all of them null is an error
        lines += [f"    if not ({' or '.join(optional)}): return _null(_function, {optional[0]!r})"]
    lines += ["    try:"]
    lines += [
        f"        if {p.name} and not 0 <= {p.counted_by} <= _most: "
        f"raise _miscounted(_function, {p.counted_by!r}, {p.counted_by})"
        for p in function.inputs
        if p.counted_by is not None
    ]
    result = f"_implementation({', '.join(map(_input, function.inputs))})"
    if not function.returns_status:
        text = f"_text(_function, {result})" if returns_text(function) else result
        lines += [f"        return {text}"]
    else:
        found = [f"_{parameter.name}" for parameter in function.outputs]
        lines += [f"        {', '.join(found) or '_status'} = {result}"]
        lines += [f"        {_output(parameter)}" for parameter in function.outputs]
    handler = "_record_error(error)" if function.returns_status else "_record_error(error) and _fallback_value"
    lines += ["    except _AclnnError as error:", f"        return {handler}"]
    if function.returns_status:
        # Two functions return a status that is their result, not the call's.
        lines += ["    return 0" if function.outputs else "    return _status or 0"]
    scope: dict[str, Any] = {
        "_AclnnError": AclnnError,
        "_array": marshaller.array,
        "_function": function,
        "_implementation": function.implementation,
        "_most": _LONGEST_ARRAY,
        "_null": _null,
        "_record_error": function.record_error,
        "_fallback_value": _fallback(function, marshaller),
        "_string": marshaller.string,
        "_text": marshaller.text,
        "_miscounted": _miscounted,
        "_unpack": marshaller.ffi.unpack,
    }
    exec("\n".join(lines), scope)
    entry: Entry = scope[function.name]
    return entry


def _input(parameter: CParameter) -> str:
    if parameter.counted_by is not None:
        return f"tuple(_unpack({parameter.name}, {parameter.counted_by})) if {parameter.name} else None"
    return f"_string({parameter.name})" if parameter.is_text else parameter.name


def _output(parameter: CParameter) -> str:
    found = (
        f"_array(_{parameter.name}, {parameter.element!r})"
        if parameter.counted_by is not None
        else f"_{parameter.name}"
    )
    unless_null = f"if {parameter.name}: " if parameter.nullable else ""
    return f"{unless_null}{parameter.name}[0] = {found}"


def _miscounted(function: CFunction, counter: str, count: int) -> AclnnError:
    text = f"{counter}: expected at most {_LONGEST_ARRAY} elements, got {count}"
    return AclnnError(function.statuses.miscounted, text)


def _null(function: CFunction, name: str) -> int:
    return function.record_error(
        AclnnError(function.statuses.null, f"{name}: expected an address for the result, got null")
    )
