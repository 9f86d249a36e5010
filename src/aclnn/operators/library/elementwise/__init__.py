"""Elementwise functions, with broadcasting, and functions of lists of tensors."""
