"""aclInit and aclFinalize: their reference count and configuration."""

from __future__ import annotations

import json
import os
import stat
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


class _State:
    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.finalized = False
        self.configured = False
        self.configuration: Any = None


_state = PerProcess(_State)


def initialize(config_path: str | None) -> None:
    """Increment the count of users.

    Args:
        config_path: a JSON file, or None or "". Its settings have no effect, but it must be valid.

    Raises:
        AclnnError: 100003, the file cannot be read; 100006, it is not a JSON object; 100002, initialised already (the
            call still counts); 100000, the configuration differs from that of the process's first initialisation.
    """
    configuration = _read(config_path) if config_path else {}
    state = _state.current
    with state.lock:
        if state.count:
            state.count += 1
            raise AclnnError(
                ACL_ERROR_REPEAT_INITIALIZE,
                f"expected to be called once, got called again (now {state.count} users)",
                "aclInit",
            )
        if state.configured and configuration != state.configuration:
            raise AclnnError(
                ACL_ERROR_INVALID_PARAM,
                f"configPath: expected the content of the process's first aclInit, got another in {config_path!r}",
            )
        state.configured, state.configuration = True, configuration
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


def _read(path: str) -> Any:
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
    return configuration


def finalize() -> None:
    """Reset the count of users to zero.

    Raises:
        AclnnError: 100037, finalised already.
    """
    state = _state.current
    with state.lock:
        if state.finalized:
            raise AclnnError(
                ACL_ERROR_REPEAT_FINALIZE, "expected an initialised process, got a finalised one", "aclFinalize"
            )
        state.finalized = state.count > 0
        state.count = 0


def finalize_reference() -> int:
    """Decrement the count of users and return it.

    Raises:
        AclnnError: 100037, the count is zero.
    """
    state = _state.current
    with state.lock:
        if not state.count:
            raise AclnnError(
                ACL_ERROR_REPEAT_FINALIZE,
                "expected an initialised process, got one without users",
                "aclFinalizeReference",
            )
        state.count -= 1
        state.finalized = state.count == 0
        return state.count
