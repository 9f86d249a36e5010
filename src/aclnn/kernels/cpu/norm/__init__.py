"""The gradients of LayerNorm and RMSNorm on the CPU, in three passes: row moments, column moments, an affine write.

``backward`` plans. ``arithmetic`` has the passes for each data type and ``NormSpec``. ``blocks`` walks through rows in
groups of four and calls them, ``short_rows`` fuses all passes over short rows into one kernel. ``structs`` declares the
arguments of compiled code, among them tensors as rows and columns. Rows that are not contiguous go through tiles.
"""
