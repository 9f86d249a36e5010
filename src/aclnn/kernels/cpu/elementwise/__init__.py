"""Elementwise operators on the CPU: a function of x, or dy times a derivative at x.

``plans`` chooses the loop: ``contiguous`` for elements side by side, ``rows`` for rows of them with gaps between, and
``tiles`` for any other layout, cut by ``tiling`` and brought into buffers by ``movers``. ``formulas`` finds what a loop
evaluates: a slope (``slopes``, of ``pieces`` with ``slopes_coefficients`` and, in the tails, ``coefficients``), a value
(``values``, ``values_coefficients``), a slope of 16-bit x (``sixteen_bit_slopes``, ``sixteen_bit_coefficients``), or
the plain formula, lane by lane.
``entries`` are tables of all 65,536 slopes of 16-bit x; ``products`` and ``tails`` are parts of the loops.
"""
