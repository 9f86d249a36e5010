"""Fitted versions of quick_swish_derivative, found by ``tools.fit`` on a 37th of x.

FLOAT: at most 0.9489 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "d6e973f83615dadb0ba3845e2cbac26453b0c503cb5eafa00cdf4c01e6274747"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.68p+1"),
    bound=float.fromhex("0x1.6p+2"),
    centre=row(
        "0x0p+0 0x1.b3ap-2 0x1.80974ap-1 0x1.038p+0 0x1.6958p+0 0x1.d938p+0 0x1.17f4p+1 0x1.44acp+1 0x1.6c14p+1 "
        "0x1.a9fp+1 0x1.c478p+1 0x1.f3fcp+1 0x1.16c6p+2 0x1.2af2p+2 0x1.3da8p+2 0x1.54fep+2"
    ),
    c0=row(
        "0x1p-1 0x1.5697e4p-3 0x1.71d86ep-31 -0x1.1f9c32p-4 -0x1.98f0aep-4 -0x1.54a1b8p-4 -0x1.fd6b74p-5 "
        "-0x1.5f8d88p-5 -0x1.e84c36p-6 -0x1.071a6ep-6 -0x1.8eacd4p-7 -0x1.de7ed8p-8 -0x1.fa3bap-9 -0x1.40fe6cp-9 "
        "-0x1.a264b4p-10 -0x1.e7784ap-11"
    ),
    p=(
        row(
            "-0x1.b3b648p-1 -0x1.4f1a82p-1 -0x1.7b9cdap-2 -0x1.644524p-3 0x1.eb1f98p-12 0x1.e8d4ap-5 0x1.f10396p-5 "
            "0x1.8f113cp-5 0x1.2bc44p-5 0x1.5c47b4p-6 0x1.0dcaaep-6 0x1.4df124p-7 0x1.6b116ep-8 0x1.d34e82p-9 "
            "0x1.3414ccp-9 0x1.6b5196p-10"
        ),
        row(
            "0x1.0e7fe6p-17 0x1.9ef02cp-2 0x1.b30222p-2 0x1.42d2f4p-2 0x1.0e25a2p-3 0x1.4b0e42p-6 -0x1.7e2848p-7 "
            "-0x1.46a132p-6 -0x1.32b3aap-6 -0x1.a3df72p-7 -0x1.52fb92p-7 -0x1.ba5fdcp-8 -0x1.f5fad6p-9 -0x1.4a2bcp-9 "
            "-0x1.ba7fd2p-10 -0x1.0946aep-10"
        ),
        row(
            "0x1.a465b6p-2 0x1.4069eap-3 -0x1.7d2ceap-4 -0x1.530f28p-3 -0x1.001c9cp-3 -0x1.9854bp-5 -0x1.115614p-6 "
            "-0x1.87c16p-10 0x1.a8c37ep-9 0x1.11a37cp-8 0x1.e8fffp-9 0x1.6463aep-9 0x1.b49eep-10 0x1.298012p-10 "
            "0x1.98c6aep-11 0x1.f613cp-12"
        ),
        row(
            "0x1.6c8194p-8 -0x1.d73322p-3 -0x1.059cbep-3 -0x1.148ed8p-6 0x1.82d7bap-5 0x1.1090cap-5 0x1.1000a2p-6 "
            "0x1.9d1214p-8 0x1.fda83cp-10 -0x1.9f00fcp-12 -0x1.4ecd1p-11 -0x1.5f36bap-11 -0x1.005a3ap-11 "
            "-0x1.75ad1cp-12 -0x1.0bd8f2p-12 -0x1.55c214p-13"
        ),
        row(
            "-0x1.d023d6p-3 0x1.b36f2ap-10 0x1.82e6ap-4 0x1.0d88e4p-4 0x1.4dc84ap-8 -0x1.6a8b06p-7 -0x1.0668ep-7 "
            "-0x1.06a964p-8 -0x1.e4d148p-10 -0x1.9c3c1p-12 -0x1.079deap-13 0x1.ba7658p-15 0x1.810846p-14 "
            "0x1.47ee84p-14 0x1.004c1ep-14 0x1.5d38bap-15"
        ),
        row(
            "0x1.9fa7b8p-3 0x1.6ff2bep-4 0x1.b3865ap-9 -0x1.ecf07p-6 -0x1.ff5638p-7 -0x1.3c378cp-15 0x1.13a98p-9 "
            "0x1.83c20cp-10 0x1.c709e4p-11 0x1.7fda6cp-13 0x1.498776p-13 0x1.2cc806p-15 0x1.59d17cp-17 -0x1.3128c6p-19 "
            "-0x1.1ce1fep-17 -0x1.140b5p-17"
        ),
        row(
            "-0x1.0ef72ap-2 -0x1.6e6406p-7 -0x1.290898p-5 -0x1.8a478cp-11 0x1.fe3336p-8 0x1.4a6028p-9 0x1.0b980ep-12 "
            "-0x1.351f1cp-11 -0x1.11a458p-12 -0x1.ac402ap-13 -0x1.a6c9d2p-14 0x1.3d999ep-21 0x1.a92fc8p-17 "
            "0x1.57bae6p-18 -0x1.402fb4p-17 -0x1.96989cp-20"
        ),
    ),
)
