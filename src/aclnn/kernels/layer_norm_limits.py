"""Limits within which float32 suffices for a row of LayerNorm's dx, on every device.

Within them no float32 intermediate overflows, and underflow is harmless; see ``docs/numerics-layer-norm.md``.
"""

MOST_XHAT, MOST_C = 2.0**30, 2.0**70
"""Limits of |x̂| for every column, and of |c1| and |c2|, which exceed it if a g overflows."""
LEAST_C1, LEAST_C2 = 2.0**-64, 2.0**-60
"""Lower limits of |c1| and |c2|, one of which is exceeded unless every g is 0 because every dy or every w is."""
