"""Attention, rotary embeddings, sparse attention and its indexers."""
