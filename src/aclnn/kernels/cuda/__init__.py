"""Kernels for NVIDIA GPUs, in Triton. Addresses are the current CUDA device's; work goes to torch's current stream."""
