"""Elements elsewhere: slices, joins, splits, permutations, gathers and scatters."""
