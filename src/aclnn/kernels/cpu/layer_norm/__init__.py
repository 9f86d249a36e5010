"""LayerNorm, RMSNorm and their gradients on the CPU.

``backward`` and ``forward`` plan. Of the gradients, ``calls`` compiles and calls what goes through the rows: ``short``
(sets of short rows), ``down`` (dw and db alone), ``rows`` (groups of four) and ``batches`` (few or long rows, shared
by columns); the arithmetic of the last two is in ``segments``, for rows that float32 will not do for in ``exact``.
``columns`` and ``tiles`` bring other layouts into rows side by side, and finish dw and db. ``job`` is what compiled
code is told, ``segments.NormSpec`` what it is compiled for, ``views`` how a tensor is described, ``elements`` how each
data type is read and written; ``lanes`` adds up lanes.
"""
