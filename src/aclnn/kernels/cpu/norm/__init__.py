"""The gradients of LayerNorm and RMSNorm on the CPU, as three passes: row moments, column moments, an affine write.

``backward`` plans. ``arithmetic`` has the passes for each data type and ``NormSpec``; ``blocks`` goes through rows in
groups of four, ``short_rows`` has all passes over short rows in one kernel. ``structs`` declares the arguments of
compiled code, tensors among them as rows and columns; rows that are not contiguous are copied through tiles.
"""
