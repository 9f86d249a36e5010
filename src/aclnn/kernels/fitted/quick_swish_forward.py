"""Fitted versions of quick_swish_forward, found by ``tools.fit`` on a 37th of x.

FLOAT: at most 0.8972 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "f3a17e995ccc745c11909c4e067d8cbf60c1b73bcf32683d76c1266ba04842a6"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.6p+1"),
    bound=float.fromhex("0x1.68b43ap+2"),
    centre=row(
        "0x0p+0 0x1.208p-2 0x1.33cp-1 0x1.02bp+0 0x1.7558p+0 0x1.d3f8p+0 0x1.1238p+1 0x1.4c38p+1 0x1.73d4p+1 "
        "0x1.a514p+1 0x1.d8b8p+1 0x1.03p+2 0x1.134cp+2 0x1.2ed2p+2 0x1.4a34p+2 0x1.607ap+2"
    ),
    c0=row(
        "0x0p+0 0x1.b9400ap-4 0x1.4585eap-3 0x1.3a5528p-3 0x1.ccab64p-4 0x1.3f4e3p-4 0x1.be373ap-5 0x1.faec6cp-6 "
        "0x1.50b4bcp-6 0x1.8d8872p-7 0x1.c203f6p-8 0x1.0e4a7ap-8 0x1.74a5ap-9 0x1.8a6fecp-10 0x1.9f5a52p-11 "
        "0x1.ea6e84p-12"
    ),
    p=(
        row(
            "0x1p-1 0x1.13949ep-2 0x1.0c1362p-4 -0x1.1d55e6p-4 -0x1.97b704p-4 -0x1.599b88p-4 -0x1.09eebp-4 "
            "-0x1.4897fp-5 -0x1.c51c28p-6 -0x1.14a1b2p-6 -0x1.41532ap-7 -0x1.88c6bcp-8 -0x1.1198ep-8 -0x1.25e0bcp-9 "
            "-0x1.3928bcp-10 -0x1.74cc2ap-11"
        ),
        row(
            "-0x1.b3b644p-2 -0x1.8460a2p-2 -0x1.014eb6p-2 -0x1.6860e4p-4 0x1.8a3258p-8 0x1.e18432p-6 0x1.f8b384p-6 "
            "0x1.7bb8c4p-6 0x1.198086p-6 0x1.6c8458p-7 0x1.b92a26p-8 0x1.14bb98p-8 0x1.8752d2p-9 0x1.aceb84p-10 "
            "0x1.d0532p-11 0x1.174e78p-11"
        ),
        row(
            "-0x1.34565p-19 0x1.a7119p-4 0x1.30b3e4p-3 0x1.b08ebep-4 0x1.39e6b4p-5 0x1.fe41e2p-8 -0x1.92932p-9 "
            "-0x1.b69352p-8 -0x1.8b3c34p-8 -0x1.226084p-8 -0x1.7af5f8p-9 -0x1.f04ebap-10 -0x1.672646p-10 "
            "-0x1.9589bp-11 -0x1.c0c7dcp-12 -0x1.11d11ap-12"
        ),
        row(
            "0x1.a4f0b8p-4 0x1.21ff16p-4 0x1.14722cp-10 -0x1.5272d6p-5 -0x1.dba2b4p-6 -0x1.af0a78p-7 -0x1.44d8f4p-8 "
            "-0x1.179c16p-15 0x1.ddbffap-11 0x1.155778p-10 0x1.b1538ep-11 0x1.34bf4p-11 0x1.d1272p-12 0x1.13ac0ap-12 "
            "0x1.3b2d8ap-13 0x1.887cc2p-14"
        ),
        row(
            "-0x1.022ac2p-11 -0x1.52c8a6p-5 -0x1.416d82p-5 -0x1.a5f4a8p-9 0x1.3683cap-7 0x1.c2c044p-8 0x1.e5fa08p-9 "
            "0x1.1021fep-10 0x1.3247f8p-12 -0x1.fe4b58p-15 -0x1.26f006p-13 -0x1.08a73p-13 -0x1.a84e22p-14 "
            "-0x1.18729ep-14 -0x1.53457ep-15 -0x1.b18422p-16"
        ),
        row(
            "-0x1.cacb7p-6 -0x1.880698p-8 0x1.f2765ap-7 0x1.18c42p-7 0x1.f1b2b2p-13 -0x1.e2d7bep-10 -0x1.6ae282p-10 "
            "-0x1.5ae27cp-11 -0x1.0510fcp-12 -0x1.603ec4p-14 -0x1.efb36ap-17 0x1.19b764p-18 0x1.6e8e44p-17 "
            "0x1.84e854p-17 0x1.1cb2eep-17 0x1.92a98ap-18"
        ),
    ),
)
