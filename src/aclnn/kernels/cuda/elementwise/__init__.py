"""Elementwise operators on an NVIDIA GPU.

``plans`` chooses and launches; ``formulas`` has the float32 derivatives and activations (``logistic``, ``erf``,
``hardswish``, made of ``pieces``), ``estimates`` those of 16-bit x, of which the few doubtful ones are looked up in
``entries``.
"""
