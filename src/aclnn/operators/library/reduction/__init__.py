"""Reductions, running sums and extremes, sorting, distances between rows."""
