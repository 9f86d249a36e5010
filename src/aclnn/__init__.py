"""The aclnn operators of Ascend CANN, on any machine.

``aclnn.<operator>`` are Python functions over arrays; ``aclnn.cann`` has every C name; ``aclnn.acl`` is the runtime
under pyACL's names.
"""

from aclnn.operators import *  # noqa: F403  (the operators' own list of names)
from aclnn.products import set_soc_name, soc_name
from aclnn.status import AclnnError
from aclnn.version import __version__

__all__ = ["AclnnError", "__version__", "set_soc_name", "soc_name"]
