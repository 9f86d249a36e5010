"""aclInit and aclFinalize: their reference count, configuration, and the functions of the program that they call."""

from __future__ import annotations

import ctypes
import json
import os
import stat
from collections.abc import Callable
from typing import Any

from aclnn.core.status import (
    ACL_ERROR_INVALID_FILE,
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_REPEAT_FINALIZE,
    ACL_ERROR_REPEAT_INITIALIZE,
    CODES,
    AclnnError,
)
from aclnn.runtime.locks import Lock
from aclnn.support.process import PerProcess

_MOST_BYTES = 1 << 20
_INITIALIZED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
_FINALIZED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_OTHER = 0xFFFF  # ACL_REG_TYPE_OTHER


class _Functions:
    """Functions of the program, each with its data, by type; each type except ``ACL_REG_TYPE_OTHER`` has one."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []

    def add(self, kind: int, function: int, data: int) -> None:
        """Add a function.

        Raises:
            AclnnError: 100000, no function; 500000, the type has one already.
        """
        _expect_function(function)
        if kind != _OTHER and any(entry[0] == kind for entry in self._entries):
            raise AclnnError(CODES["ACL_ERROR_INTERNAL_ERROR"], f"type: expected one without a function, got {kind}")
        self._entries.append((kind, function, data))

    def remove(self, kind: int, function: int) -> None:
        """Remove a function.

        Raises:
            AclnnError: 100000, no function; 500000, it was not added.
        """
        _expect_function(function)
        for entry in self._entries:
            if entry[:2] == (kind, function):
                self._entries.remove(entry)
                return
        raise AclnnError(
            CODES["ACL_ERROR_INTERNAL_ERROR"],
            f"cbFunc: expected a function registered with type {kind}, got {function:#x}",
        )

    def call(self, call: Callable[[int, int], int]) -> None:
        """Call each function by type, up to the first that fails.

        Args:
            call: calls a function with its data and returns its status.

        Raises:
            AclnnError: the status of the function that failed.
        """
        for kind, function, data in sorted(self._entries, key=lambda entry: entry[0]):
            if status := call(function, data):
                raise AclnnError(status, f"callback {function:#x} of type {kind}: expected to return 0, got {status}")


def _expect_function(function: int) -> None:
    if not function:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "cbFunc: expected a function, got null")


class _State:
    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.finalized = False
        self.configuration: tuple[str, Any] | None = None
        self.initialized_functions = _Functions()
        self.finalized_functions = _Functions()

    def call_initialized(self, function: int, data: int) -> int:
        text = (self.configuration[0] if self.configuration else "").encode()
        return int(_INITIALIZED(function)(text, len(text), data))

    def finalize(self) -> None:
        self.finalized_functions.call(lambda function, data: int(_FINALIZED(function)(data)))
        self.count, self.finalized = 0, True


_state = PerProcess(_State)


def initialize(config_path: str | None) -> None:
    """Increment the count of users; for the first, call the registered functions.

    Args:
        config_path: a JSON file, or None or "". Its settings have no effect, but it must be valid.

    Raises:
        AclnnError: 100003, the file cannot be read; 100006, it is not a JSON object; 100002, initialised already (the
            call still counts); 100000, the configuration differs from that of the process's first initialisation; the
            status of a registered function that failed.
    """
    text, configuration = _read(config_path) if config_path else ("", {})
    state = _state.current
    with state.lock:
        if state.count:
            state.count += 1
            raise AclnnError(
                ACL_ERROR_REPEAT_INITIALIZE,
                f"expected to be called once, got called again (now {state.count} users)",
                "aclInit",
            )
        if state.configuration and configuration != state.configuration[1]:
            raise AclnnError(
                ACL_ERROR_INVALID_PARAM,
                f"configPath: expected the content of the process's first aclInit, got another in {config_path!r}",
            )
        state.configuration = text, configuration
        state.initialized_functions.call(state.call_initialized)
        state.count, state.finalized = 1, False


def _content(path: str) -> str:
    # Without O_NONBLOCK a pipe without a writer would block; a device file may be endless.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(f"longer than {_MOST_BYTES} bytes")
    return content.decode("utf-8")


def _read(path: str) -> tuple[str, Any]:
    try:
        text = _content(path)
    except (OSError, ValueError) as error:
        raise AclnnError(
            ACL_ERROR_INVALID_FILE, f"configPath: expected a readable file, got {path!r} ({error})"
        ) from None
    try:
        configuration = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AclnnError(
            CODES["ACL_ERROR_PARSE_FILE"], f"configPath: expected a JSON object, got {path!r} ({error})"
        ) from None
    if not isinstance(configuration, dict):
        raise AclnnError(
            CODES["ACL_ERROR_PARSE_FILE"],
            f"configPath: expected a JSON object, got {path!r} with {text.strip()[:40]!r}",
        )
    return text, configuration


def finalize() -> None:
    """Reset the count of users to zero, and call the registered functions.

    Raises:
        AclnnError: 100037, finalised already; the status of a registered function that failed, which leaves the count.
    """
    state = _state.current
    with state.lock:
        if state.finalized:
            raise AclnnError(
                ACL_ERROR_REPEAT_FINALIZE, "expected an initialised process, got a finalised one", "aclFinalize"
            )
        if state.count:
            state.finalize()


def finalize_reference() -> int:
    """Decrement the count of users and return it; for the last, call the registered functions.

    Raises:
        AclnnError: 100037, the count is zero; the status of a registered function that failed, which leaves the count.
    """
    state = _state.current
    with state.lock:
        if not state.count:
            raise AclnnError(
                ACL_ERROR_REPEAT_FINALIZE,
                "expected an initialised process, got one without users",
                "aclFinalizeReference",
            )
        if state.count == 1:
            state.finalize()
        else:
            state.count -= 1
        return state.count


def register_initialized(kind: int, function: int, data: int) -> None:
    """Register a function that ``initialize`` calls; in an initialised process call it at once, whatever it returns.

    Raises:
        AclnnError: 100000, no function; 500000, the type has one already.
    """
    state = _state.current
    with state.lock:
        state.initialized_functions.add(kind, function, data)
        if state.count:
            state.call_initialized(function, data)


def unregister_initialized(kind: int, function: int) -> None:
    """Undo ``register_initialized``.

    Raises:
        AclnnError: 100000, no function; 500000, it was not registered.
    """
    state = _state.current
    with state.lock:
        state.initialized_functions.remove(kind, function)


def register_finalized(kind: int, function: int, data: int) -> None:
    """Register a function that finalisation calls.

    Raises:
        AclnnError: 100000, no function; 500000, the type has one already.
    """
    state = _state.current
    with state.lock:
        state.finalized_functions.add(kind, function, data)


def unregister_finalized(kind: int, function: int) -> None:
    """Undo ``register_finalized``.

    Raises:
        AclnnError: 100000, no function; 500000, it was not registered.
    """
    state = _state.current
    with state.lock:
        state.finalized_functions.remove(kind, function)
