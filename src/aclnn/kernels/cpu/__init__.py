"""Kernels in Python, compiled by Numba, over vectors of sixteen float32 or float64.

``elementwise``, ``reductions`` (formulas over rows) and ``norm`` (gradients of LayerNorm and RMSNorm) plan and compute;
``strided`` brings any layout to contiguous tiles for them. They are written over ``simd``: vectors, loads and stores,
conversions, look-ups in registers. ``structs`` declares what compiled code is given, ``threads`` shares it among
threads, ``atomics`` is what these say to one another. ``jit`` compiles and ``cache`` keeps kernels for what ``target``
finds the machine to be; ``array_headers`` recognises NumPy arrays that were seen before.
"""
