"""Kernels for NVIDIA GPUs, in Triton. Addresses belong to the current CUDA device; work uses torch's current stream."""
