"""Within which limits float32 will do for a row of LayerNorm's dx, on every device.

No float32 intermediate overflows there, and none that vanishes matters; ``docs/numerics-layer-norm.md`` says why.
"""

MOST_XHAT, MOST_C = 2.0**30, 2.0**70
"""Limits of |x̂| for every column, and of |c1| and |c2|, in which a g that overflows shows."""
LEAST_C1, LEAST_C2 = 2.0**-64, 2.0**-60
"""Limits of |c1| and |c2|, one of which is reached unless every g is 0 because every dy or every w is."""
