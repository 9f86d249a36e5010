"""The runtime under pyACL's names: an alias of ``aclnn.capi.pyacl``."""

from aclnn.capi.pyacl import *  # noqa: F403
