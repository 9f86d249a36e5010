"""Elementwise operators on the CPU: any formula of any number of operands, over any layouts and data types.

``plans`` chooses the kernel for contiguous elements. ``general`` computes any formula on sixteen float64 lanes, with
the functions of ``functions``; or in float32, by a function's ``fitted`` version, or by products of fitted versions or
tables (``separable``). A function of one 16-bit x is a table of all its values (``lut16``). ``strided`` handles other
layouts.
"""
