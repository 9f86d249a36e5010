"""Matrix products, also grouped ones, and linear systems."""
