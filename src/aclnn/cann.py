"""Every C name in Python: an alias of ``aclnn.capi``."""

from typing import Any

from aclnn import capi

__all__ = capi.__all__


def __getattr__(name: str) -> Any:
    return getattr(capi, name)


def __dir__() -> list[str]:
    return dir(capi)
