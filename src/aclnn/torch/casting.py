"""Autocast, as for PyTorch's own operators: LayerNorm runs in float32 on CUDA; everything else as its inputs come."""

from aclnn.torch.registration import LIBRARY, torch

for _name in ("layer_norm", "layer_norm_with_impl_mode", "fast_layer_norm"):
    torch.library.register_autocast(f"aclnn::{_name}", "cuda", torch.float32, lib=LIBRARY)
