"""LayerNorm and its gradients on the GPU.

``backward`` and ``forward`` plan and have the kernels, ``places`` says where elements are, ``exact`` does the rows that
float32 will not do for.
"""
