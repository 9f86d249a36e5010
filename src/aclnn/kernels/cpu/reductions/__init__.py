"""Formulas over rows on the CPU: any norm or softmax, of any layouts and data types.

``passes`` cuts a program into the passes over a row that its reductions take, ``rows`` makes a kernel of them, and
``plans`` reduces layouts to rows and runs of elements and chooses which way lanes run.
"""
