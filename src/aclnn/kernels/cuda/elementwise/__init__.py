"""Elementwise operators on an NVIDIA GPU.

``plans`` deals with tensors that share memory, ``walk`` chooses and launches the kernel, ``formulas`` makes Triton
functions.
"""
