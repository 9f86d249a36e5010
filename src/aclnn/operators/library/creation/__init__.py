"""Creation of tensors: ranges and random numbers."""
