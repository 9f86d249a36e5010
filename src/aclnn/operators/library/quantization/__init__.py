"""Quantisation, and products, norms and gates of quantised numbers."""
