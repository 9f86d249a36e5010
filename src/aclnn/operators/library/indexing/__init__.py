"""Indexing and rearrangement: slices, joins, splits, permutations, gathers and scatters."""
