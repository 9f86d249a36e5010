"""Every C name, typed: see ``aclnn.capi``."""

from aclnn.capi import *  # noqa: F403
