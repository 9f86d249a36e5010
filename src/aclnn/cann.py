"""Every C name in Python: an alias of ``aclnn.capi``."""

from aclnn.capi import *  # noqa: F403
from aclnn.capi import __all__ as __all__
