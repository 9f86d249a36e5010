"""Formulas over rows on the CPU: any norm or softmax, of any layouts and data types.

A row is what one reduction covers. It consists of runs of evenly spaced elements, and a task is a block of neighbouring
rows. ``plans`` traces the formula, reduces layouts to rows and runs, and chooses the direction of lanes. ``rewrites``
replaces operations by others that take fewer passes or roundings, and ``passes`` divides them into passes over a row.
``rows`` generates the kernel's source, ``along`` with lanes along a row and ``across`` with a row in each lane.
``walk`` declares the kernel's arguments, ``kinds`` lists the reductions, ``words`` has softmax's functions in float32
lanes, and ``narrowing`` converts passes to float32 lanes for 16-bit results.
"""
