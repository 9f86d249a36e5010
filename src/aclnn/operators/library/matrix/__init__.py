"""Products of matrices, grouped ones among them, and linear systems."""
