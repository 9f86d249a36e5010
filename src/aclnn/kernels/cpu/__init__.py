"""Kernels in Python, compiled by Numba, over vectors of sixteen float32 or float64.

``elementwise`` and ``layer_norm`` plan and compute. They are written over ``vector`` (arithmetic on lanes), ``wide``
(several vectors at once), ``tables`` (look-ups in registers), ``memory``, ``masked`` and ``ends`` (loads and stores:
whole vectors, some lanes, what is left of a row), ``conversions`` (16-bit types), ``doubles`` (float64), ``addresses``,
``atomics`` and ``prefetching``. ``compiler`` compiles and ``cache`` keeps kernels for what ``target`` finds the machine
to be. ``threads`` shares loops among threads, and
``strided`` brings any layout to contiguous tiles. ``geometry`` and ``overlaps`` look at layouts before a plan;
``headers`` recognises arrays that were seen before. ``structs`` declares what compiled loops are given.
"""
