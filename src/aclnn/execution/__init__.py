"""Execution of a call: checks, plans, executors, and arrays as tensors."""
