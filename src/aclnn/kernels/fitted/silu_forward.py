"""Fitted versions of silu_forward, found by ``tools.fit``.

FLOAT: at most 0.8900 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "de0f1eedd679b719a14aa42f8a9e9711ae9052ccb2ae8d98cdf0c607a16551d3"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.ap+0"),
    bound=float.fromhex("0x1.31374cp+3"),
    centre=row(
        "0x0p+0 0x1.28fp-1 0x1.0ddp+0 0x1.d0cp+0 0x1.397cp+1 0x1.96fp+1 0x1.cd1p+1 0x1.1958p+2 0x1.419ap+2 0x1.61d4p+2 "
        "0x1.8cd8p+2 0x1.b75p+2 0x1.d948p+2 0x1.ff9ap+2 0x1.1413p+3 0x1.2a52p+3"
    ),
    c0=row(
        "0x0p+0 0x1.aa558ep-3 0x1.16f326p-2 0x1.043a8ep-2 0x1.8ec67ep-3 0x1.04275ep-3 0x1.87a124p-4 0x1.b6800ap-5 "
        "0x1.0cbf28p-5 0x1.66550ap-6 0x1.9b3b68p-7 0x1.d55d7cp-8 0x1.2988aap-8 0x1.618f5cp-9 0x1.95147cp-10 "
        "0x1.b4ddfep-11"
    ),
    p=(
        row(
            "0x1p-1 0x1.cdcf64p-3 0x1.ce8d08p-5 -0x1.41d554p-4 -0x1.987da6p-4 -0x1.4fdbb2p-4 -0x1.108292p-4 "
            "-0x1.4d692ep-5 -0x1.ab0562p-6 -0x1.241996p-6 -0x1.58144ep-7 -0x1.907f5p-8 -0x1.011de8p-8 -0x1.353616p-9 "
            "-0x1.660de6p-10 -0x1.85f772p-11"
        ),
        row(
            "-0x1.fffffep-3 -0x1.b0b2dap-3 -0x1.2499a2p-3 -0x1.55a42cp-5 0x1.1e2bep-9 0x1.22b7ep-6 0x1.2aa36cp-6 "
            "0x1.c3152p-7 0x1.3a7b6ap-7 0x1.c1f2c8p-8 0x1.145db8p-8 0x1.4b4888p-9 0x1.b12228p-10 0x1.08c5eep-10 "
            "0x1.36f91p-11 0x1.57090ep-12"
        ),
        row(
            "-0x1.8e49c2p-21 0x1.4f3524p-5 0x1.a4996cp-5 0x1.103556p-5 0x1.cb5e96p-7 0x1.061994p-9 -0x1.ca091ap-11 "
            "-0x1.2ea5d4p-9 -0x1.08c2b8p-9 -0x1.a0e42ep-10 -0x1.14e4c6p-10 -0x1.5c99b2p-11 -0x1.d4bc9ap-12 "
            "-0x1.258fa8p-12 -0x1.5fb784p-13 -0x1.8ab928p-14"
        ),
        row(
            "0x1.5580fp-6 0x1.838274p-7 -0x1.028018p-11 -0x1.15f88cp-7 -0x1.8e2c58p-8 -0x1.3a6758p-9 -0x1.21ef32p-10 "
            "-0x1.557b9ap-16 0x1.9d7572p-13 0x1.c6785ep-13 0x1.6e244ep-13 0x1.fc292ep-14 0x1.66d7bep-14 0x1.d36634p-15 "
            "0x1.2088b6p-15 0x1.4bec92p-16"
        ),
        row(
            "-0x1.e6def2p-15 -0x1.5313e4p-8 -0x1.25ac52p-8 -0x1.7ee982p-15 0x1.267ae6p-10 0x1.92a40ap-11 "
            "0x1.e9d30ep-12 0x1.0f8446p-13 0x1.ae3ff2p-16 -0x1.506088p-18 -0x1.1168aap-16 -0x1.f607b2p-17 "
            "-0x1.8a9db8p-17 -0x1.155c4p-17 -0x1.688efep-18 -0x1.b0efd6p-19"
        ),
        row(
            "-0x1.01059ap-9 -0x1.dfabd4p-12 0x1.17e722p-10 0x1.45f10ep-11 0x1.c667a2p-16 -0x1.09c67cp-13 "
            "-0x1.9309c4p-14 -0x1.8a3402p-15 -0x1.384442p-16 -0x1.848682p-18 -0x1.a01f88p-21 0x1.92cf52p-21 "
            "0x1.0c1b0ap-20 0x1.d8659p-21 0x1.5eac6p-21 0x1.a99242p-22"
        ),
    ),
)
