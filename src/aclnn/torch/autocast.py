"""Autocast as for PyTorch's operators of the same names; all other operators compute in their inputs' type."""

from __future__ import annotations

from typing import Any

from aclnn.torch.registration import LIBRARY, torch

Tensor = Any

_IN_FLOAT32_ON_CUDA = (
    "fast_layer_norm",
    "group_norm",
    "layer_norm",
    "layer_norm_with_impl_mode",
    "log_softmax",
    "rms_norm",
    "softmax",
    "softplus",
)

for _name in _IN_FLOAT32_ON_CUDA:
    torch.library.register_autocast(f"aclnn::{_name}", "cuda", torch.float32, lib=LIBRARY)


def _narrow_prelu(device: str) -> None:
    """Register autocast of PReLU to the lower-precision type."""
    key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")

    def prelu(x: Tensor, weight: Tensor) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.aclnn.prelu(x.to(dtype), weight.to(dtype))

    LIBRARY.impl("prelu", prelu, key.name)


for _device in ("cpu", "cuda"):
    _narrow_prelu(_device)
