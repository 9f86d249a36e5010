"""Elementwise operators on the CPU: any formula of any number of elements, over any layouts and data types.

``plans`` chooses. Contiguous elements are computed by ``general``, any formula over sixteen float64 lanes, whose words
``functions`` gives a meaning, or in float32 by other operations: a function's ``fitted`` version, or products of such,
or of tables (``separable``). A function of one 16-bit x is a table of all its values (``lut16``). Other layouts come
through ``strided``.
"""
