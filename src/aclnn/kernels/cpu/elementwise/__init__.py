"""Elementwise operators on the CPU: any formula of any number of elements, over any layouts and data types.

``plans`` chooses. Contiguous elements are computed by ``general``, any formula over sixteen float64 lanes (``formulas``
makes it of its trace, ``functions`` gives its words their meaning), or by ``contiguous``: a function's ``fitted``
version in float32, its ``outliers`` in float64, or a table of its values at all 16-bit x (``entries``).
Other layouts come through ``strided``.
"""
