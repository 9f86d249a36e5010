"""Quantization, and quantized matrix products, norms and gates."""
