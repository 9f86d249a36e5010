"""Key-value caches, decoding steps and samplers of language models."""
