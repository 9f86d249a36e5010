"""Reductions, cumulative sums and extremes, sorting, distances between rows."""
