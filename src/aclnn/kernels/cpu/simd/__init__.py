"""Sixteen lanes as one value of compiled code: arithmetic, loads and stores, conversions, look-ups, prefetching."""
