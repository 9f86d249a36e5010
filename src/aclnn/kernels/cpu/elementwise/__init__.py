"""Elementwise operators on the CPU: any formula of any number of elements, over any layouts and data types.

``plans`` chooses. Contiguous elements are computed by ``general``, any formula over sixteen float64 lanes, whose words
``functions`` gives a meaning, or by ``contiguous``: a function's ``fitted`` version in float32 with its ``outliers`` in
float64, or a table of its values at all 16-bit x (``lut16``). Products of functions of one operand each are made of
fitted versions, or of tables (``separable``). Other layouts come through ``strided``.
"""
