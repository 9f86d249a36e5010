"""Fitted versions of sigmoid_forward, found by ``tools.fit``.

FLOAT: at most 0.7926 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "43b0fca35a0f5359dda9c85128659e6d92ef4ce4897617d55c7c474c022e0c7b"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.7ffffcp+0"),
    bound=float.fromhex("0x1.4a8f5cp+3"),
    centre=row(
        "0x0p+0 0x1.4ecp-1 0x1.32cp+0 0x1.028cp+1 0x1.57e8p+1 0x1.afa4p+1 0x1.03bcp+2 0x1.2f34p+2 0x1.5c14p+2 "
        "0x1.869ep+2 0x1.b18cp+2 0x1.ddeap+2 0x1.043dp+3 0x1.19e5p+3 0x1.2db1p+3 0x1.41f8p+3"
    ),
    c0=row(
        "0x1p-1 0x1.5e57ccp-2 0x1.dab3b4p-3 0x1.dfc348p-4 0x1.0527d8p-4 0x1.0fc6fp-5 0x1.164458p-6 0x1.1c8ed6p-7 "
        "0x1.1b8646p-8 0x1.2453eap-9 0x1.2b446cp-10 0x1.2b6946p-11 0x1.34082ep-12 0x1.392adp-13 0x1.516928p-14 "
        "0x1.661a38p-15"
    ),
    p=(
        row(
            "-0x1p-2 -0x1.ccf58p-3 -0x1.6cabf6p-3 -0x1.a79182p-4 -0x1.e90268p-5 -0x1.06c2bap-5 -0x1.118a76p-6 "
            "-0x1.1a163cp-7 -0x1.1a4c44p-8 -0x1.23ad02p-9 -0x1.2aecf6p-10 -0x1.2b3d8p-11 -0x1.33f104p-12 "
            "-0x1.391ed8p-13 -0x1.516234p-14 -0x1.66164ep-15"
        ),
        row(
            "0x1.05bbcep-30 0x1.231534p-5 0x1.873ccap-5 0x1.4457f6p-5 0x1.aaa6fep-6 0x1.eaa7p-7 0x1.083fc2p-7 "
            "0x1.15300ep-8 0x1.17dafcp-9 0x1.225ffcp-10 0x1.2a3e3p-11 0x1.2ae5f8p-12 0x1.33c2acp-13 0x1.3906e8p-14 "
            "0x1.515444p-15 0x1.660e72p-16"
        ),
        row(
            "0x1.55552cp-6 0x1.aeccf8p-7 0x1.09fe4p-9 -0x1.acb2a2p-8 -0x1.a27bb4p-8 -0x1.1aeb96p-8 -0x1.482f76p-9 "
            "-0x1.64af72p-10 -0x1.6eaafap-11 -0x1.7fb5ep-12 -0x1.8bd6a8p-13 -0x1.8d9fp-14 -0x1.99dcf2p-15 "
            "-0x1.a11cc4p-16 -0x1.c1a274p-17 -0x1.dd53fap-18"
        ),
        row(
            "0x1.2ea2b6p-21 -0x1.49ffeep-8 -0x1.288f44p-8 -0x1.a0cc98p-11 0x1.42a62ap-11 0x1.924146p-11 0x1.19cd2ap-11 "
            "0x1.4b5394p-12 0x1.61d2a2p-13 0x1.78bb6p-14 0x1.885474p-15 0x1.8bdc6cp-16 0x1.98f896p-17 0x1.a0a99ep-18 "
            "0x1.c1683cp-19 0x1.dd37aap-20"
        ),
        row(
            "-0x1.1194fp-9 -0x1.417008p-11 0x1.a0b8acp-11 0x1.727b7ep-11 0x1.7918ap-13 -0x1.6f965p-15 -0x1.36ae4ep-14 "
            "-0x1.c5daap-15 -0x1.074584p-15 -0x1.226cc2p-16 -0x1.34108p-17 -0x1.396944p-18 -0x1.45d4dp-19 "
            "-0x1.4e72aap-20 -0x1.6572a6p-21 -0x1.7d1d2cp-22"
        ),
        row(
            "0x1.ca7eaap-17 0x1.21624ap-11 0x1.f8527ep-13 -0x1.33f4acp-13 -0x1.853bb2p-14 -0x1.67559p-16 "
            "0x1.6c43bap-20 0x1.b648e2p-18 0x1.2ed0cep-18 0x1.86a82ep-19 0x1.63d90cp-20 0x1.8e1e74p-21 0x1.9215a8p-22 "
            "0x1.8551d6p-23 0x1.d3d184p-24 0x1.f0a8a2p-25"
        ),
        row(
            "0x1.8f8844p-13 -0x1.720578p-17 -0x1.03eb1cp-13 -0x1.930422p-17 0x1.825ee4p-16 0x1.e024a6p-17 "
            "0x1.8fbedp-20 0x1.a255dep-20 -0x1.a6a07ap-23 -0x1.343134p-27 -0x1.bc3c36p-22 -0x1.46c9a6p-23 "
            "-0x1.9043d6p-24 -0x1.be64dp-25 -0x1.d4e26p-26 -0x1.87b8e2p-27"
        ),
    ),
)
