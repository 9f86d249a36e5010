"""The operators in PyTorch: importing this registers ``torch.ops.aclnn.*`` with gradients, batching and sharding.

``nn`` has modules, ``functional`` functions, ``patch`` swaps a model's PyTorch modules for ours.

Raises:
    MissingExtraError: torch is not installed, or older than 2.8.
"""

from aclnn.torch import (
    batching,
    casting,
    functional,
    gradients,
    nn,
    registration,
    sharding,
)
from aclnn.torch.patching import patch, unpatch

__all__ = ["batching", "casting", "functional", "gradients", "nn", "patch", "registration", "sharding", "unpatch"]
