"""Formulas over rows on the CPU: any norm or softmax, of any layouts and data types.

``rewrites`` saves a program passes and roundings, ``passes`` cuts it into the passes over a row that its reductions
take, ``rows`` makes a kernel of them, with lanes ``along`` rows or ``across`` them, and ``plans`` reduces layouts to
rows and runs of elements and chooses which way. ``kinds`` has the ways to reduce, ``words`` softmax's functions in
float32 lanes, ``narrowing`` the passes to results of 16 bits.
"""
