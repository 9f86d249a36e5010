"""Functions of each element, of operands that broadcast, and of lists of tensors."""
