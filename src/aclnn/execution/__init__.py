"""From a call to its results: checks, plans, executors, and arrays as tensors."""
