"""Formulas over rows on the CPU: any norm or softmax, of any layouts and data types.

``rewrites`` saves a program passes and roundings, ``passes`` cuts it into the passes over a row that its reductions
take, ``rows`` makes a kernel of them, and ``plans`` reduces layouts to rows and runs of elements and chooses which way
lanes run. ``words`` has softmax's functions in float32 lanes, ``narrowing`` the last pass to results of 16 bits.
"""
