"""Pooling, resampling and boxes."""
