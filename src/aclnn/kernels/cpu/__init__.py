"""Kernels in Python, compiled by Numba, over vectors of sixteen float32 or float64.

``elementwise``, ``reductions`` (formulas over rows) and ``norm`` (gradients of LayerNorm and RMSNorm) plan and compute;
``strided`` gathers any layout into contiguous tiles for them. They are based on ``simd``: vectors, loads and stores,
conversions, table look-ups in registers. ``structs`` declares the arguments of compiled code, ``threads`` distributes
work among threads, which synchronize with ``atomics``. ``jit`` compiles kernels for the machine found by ``target``,
``cache`` stores them; ``array_headers`` recognises NumPy arrays seen before.
"""
