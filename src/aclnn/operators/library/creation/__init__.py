"""Tensors from nothing: ranges and random numbers."""
