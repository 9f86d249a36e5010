"""What the runtime asks of the machine behind its devices: memory and queues. ``host`` is the CPU, ``cuda`` a GPU."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from aclnn.extras import MissingExtraError
from aclnn.status import CODES, AclnnError

if TYPE_CHECKING:
    from aclnn.runtime.streams import Stream


class Block(Protocol):
    """Memory that is given back when the last reference to this object goes."""

    address: int
    """A multiple of 64."""


class Backend(Protocol):
    """A kind of device."""

    kernels: str
    """Whose kernels compute on its memory (see ``aclnn.kernels``)."""

    def memory_bytes(self) -> int:
        """Size of one device's memory."""

    def allocate(self, nbytes: int, huge: bool) -> Block | None:
        """Device memory, in huge pages if wanted and possible; None when there is no more."""

    def allocate_host(self, nbytes: int) -> Block | None:
        """Host memory that the device copies from and to without a detour."""

    def reclaim(self) -> None:
        """Hand back to the system what blocks held that have ended, as far as that does not happen by itself."""

    def owns(self, address: int) -> bool:
        """Whether the address belongs to the range that blocks come from, be it allocated or not."""

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """Copy between any two addresses, as if through a temporary; in a stream's task, in the stream's order."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set every byte; in a stream's task, in the stream's order."""

    def stream(self, priority: int, flags: int) -> Stream:
        """A new queue."""


NO_DEVICE = CODES["ACL_ERROR_RT_NO_DEVICE"]

#: Module of each kind of device.
_MODULES = {"cpu": "aclnn.runtime.host", "cuda": "aclnn.runtime.cuda"}


def create(device: str | None = None) -> Backend:
    """The backend of a kind of device, ACLNN_DEVICE by default (cpu); its module is imported on first use.

    Raises:
        AclnnError: 207004, there is no such backend, or a package that it needs is not installed.
    """
    wanted = device or os.environ.get("ACLNN_DEVICE") or "cpu"
    if wanted not in _MODULES:
        raise AclnnError(NO_DEVICE, f"ACLNN_DEVICE: expected {' or '.join(_MODULES)}, got {wanted!r}")
    try:
        module = import_module(_MODULES[wanted])
    except MissingExtraError as error:
        raise AclnnError(NO_DEVICE, f"ACLNN_DEVICE: expected a device whose packages are there: {error}") from None
    return cast(Backend, module.Backend())
