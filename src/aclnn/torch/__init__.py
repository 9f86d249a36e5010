"""The operators in PyTorch: importing this module registers ``torch.ops.aclnn.*`` with gradients, vmap and sharding.

``nn`` has modules, ``functional`` has functions, and ``patch`` replaces a model's PyTorch modules by these.

Raises:
    MissingExtraError: torch is not installed, or older than 2.8.
"""

from aclnn.torch import autocast, autograd, batching, functional, gradients, nn, second_derivatives, sharding  # noqa: F401  # most for what they register
from aclnn.torch.patching import patch, unpatch

autograd.reject_other_gradients()

__all__ = ["functional", "nn", "patch", "unpatch"]
