"""Pooling, resampling and bounding boxes."""
