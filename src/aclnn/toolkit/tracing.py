"""Recording of traces (``trace``): the calls of a C program at each entry point."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from aclnn.capi.prototype import CFunction, CParameter
from aclnn.toolkit.abi import number_type, returns_text
from aclnn.toolkit.trace import ABSENT, REJECTED

_SHOWN_ELEMENTS = 16


class Trace:
    """Appends lines to a file, atomically between threads and processes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def wrap(
        self,
        function: CFunction,
        entry: Callable[..., Any],
        elements: Callable[[Any, int], tuple[Any, ...] | None],
        string: Callable[[Any], str | None],
    ) -> Callable[..., Any]:
        """Return the entry point, wrapped to record each call.

        Args:
            function: its C function.
            entry: implementation that takes C's arguments.
            elements: reads an array parameter.
            string: reads a string parameter.
        """
        describe = _description(function, elements, string)
        is_status, gives_text = function.returns_status, returns_text(function)

        def traced(*values: Any) -> Any:
            begin = time.perf_counter_ns()
            result = entry(*values)
            spent_us = (time.perf_counter_ns() - begin) / 1000
            status = repr(string(result)) if gives_text else _shown(result, number_type(function.returns))
            line = f"{function.name}\t{describe(values, not (is_status and result))}\t{status}\t{spent_us:.1f}\n"
            self._append(line)
            return result

        return traced

    def record_missing(self, name: str, code: int) -> None:
        """Record a call of a function without implementation, or with code 0 a function that was not found."""
        self._append(f"{name}\t{REJECTED if code else ABSENT}\t{code}\t0.0\n")

    def _append(self, line: str) -> None:
        if self._file is None:
            return
        try:
            os.write(self._file, line.encode("utf-8", "replace"))
        except OSError as error:
            file, self._file = self._file, None  # one step, so that only one thread reports the error
            if file is not None:
                why = f"ACLNN_TRACE: {self._path}: {error.strerror}; from here on no call is traced"
                print(f"aclnn: {why}", file=sys.stderr, flush=True)  # noqa: T201  (a C call has no other way to report)


def _description(
    function: CFunction, elements: Callable[[Any, int], tuple[Any, ...] | None], string: Callable[[Any], str | None]
) -> Callable[[tuple[Any, ...], bool], str]:
    parameters = function.parameters
    positions = {parameter.name: at for at, parameter in enumerate(parameters)}

    def array(pointer: Any, count: int) -> str:
        shown = elements(pointer, max(0, min(count, _SHOWN_ELEMENTS)))
        return "null" if shown is None else f"{list(shown)}{' …' if count > _SHOWN_ELEMENTS else ''}"

    def given(parameter: CParameter, values: tuple[Any, ...]) -> str:
        value = values[positions[parameter.name]]
        if parameter.counted_by is not None:
            return array(value, values[positions[parameter.counted_by]])
        return repr(string(value)) if parameter.is_text else _shown(value, number_type(parameter.c_type))

    def got(parameter: CParameter, values: tuple[Any, ...], written: bool) -> str:
        pointer = values[positions[parameter.name]]
        if not pointer:
            return "null"
        if not written:
            return "-"
        if parameter.counted_by is not None:
            counter = values[positions[parameter.counted_by]]
            return array(pointer[0], counter[0]) if counter else "?"
        return _shown(pointer[0], number_type(parameter.element))

    def describe(values: tuple[Any, ...], written: bool) -> str:
        inputs = [f"{parameter.name}={given(parameter, values)}" for parameter in function.inputs]
        outputs = [f"{parameter.name} -> {got(parameter, values, written)}" for parameter in function.outputs]
        return ", ".join(inputs + outputs)

    return describe


def _shown(value: Any, c_type: str) -> str:
    if c_type == "uintptr_t":
        return f"{value:#x}" if value else "null"
    return str(value)
