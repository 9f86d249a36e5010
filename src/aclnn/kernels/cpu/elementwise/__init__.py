"""Elementwise operators on the CPU: any formula of any number of elements, over any layouts and data types.

``plans`` chooses. Contiguous elements are computed by ``general``, any formula over sixteen float64 lanes (``formulas``
translates it, ``functions`` gives its words their meaning), or by ``contiguous``: a formula's ``fitted`` version in
float32, or a table of its values at all 16-bit x (``entries``). ``strided`` brings any layout to contiguous tiles, by
``movers``.

A fitted version is a slope (``slopes``, of ``pieces`` with ``slopes_coefficients`` and, in the tails,
``coefficients``), a value (``values``, ``values_coefficients``) or a slope of 16-bit x (``sixteen_bit_slopes``,
``sixteen_bit_coefficients``); ``products`` and ``tails`` are parts of its loop.
"""
