"""``aclnn demo``: the examples of CANN's documents, and a training run whose backward pass uses the five gradients."""
