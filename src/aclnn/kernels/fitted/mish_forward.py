"""Fitted versions of mish_forward, found by ``tools.fit`` with fewer tries (60, on a 37th of x).

FLOAT: at most 0.8857 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "f007d7c2470b0d3ad9537d7baa6e00b9d4dd565ad63a30cac786456665a16112"

FLOAT = Segments(
    per_unit=float.fromhex("0x1p+0"),
    bound=float.fromhex("0x1.dcp+2"),
    centre=row(
        "-0x1.00eep+2 -0x1.8e64p+1 -0x1.15ep+1 -0x1.d4dp-1 -0x1.e28p-4 0x1.e88p-1 0x1.fd58p+0 0x1.a4fcp+1 0x1.ff14p+1 "
        "0x1.4f74p+2 0x1.802ep+2 0x1.c4c4p+2 0x0p+0 -0x1.be3cp+2 -0x1.85c4p+2 -0x1.4588p+2"
    ),
    c0=row(
        "0x1.25163ap-6 0x1.646276p-5 0x1.b8c162p-4 0x1.4c46aap-2 0x1.1fd318p-1 0x1.b6824p-1 0x1.f1648ep-1 "
        "0x1.fead98p-1 0x1.ffaa04p-1 0x1.fff8bcp-1 0x1.fffe68p-1 0x1.ffffdp-1 0x0p+0 0x1.eb3b44p-11 0x1.2891bep-9 "
        "0x1.93c3fap-8"
    ),
    p=(
        row(
            "0x1.226b2ep-6 0x1.5c4c8p-5 0x1.9e8d1cp-4 0x1.05e2c4p-2 0x1.49985p-2 0x1.89fcc4p-3 0x1.9555a8p-5 "
            "0x1.45d16ap-8 0x1.5198c2p-10 0x1.ce8a2ap-14 0x1.96fd76p-16 0x1.7fb782p-19 0x0p+0 0x1.eb004cp-11 "
            "0x1.283ba8p-9 0x1.92839cp-8"
        ),
        row(
            "0x1.1d15bap-7 0x1.4c2bd4p-6 0x1.6af7d8p-5 0x1.14e40cp-4 0x1.bd29dcp-15 -0x1.79a9acp-4 -0x1.420572p-5 "
            "-0x1.336fbap-8 -0x1.48352p-10 -0x1.cadad8p-14 -0x1.957e1cp-16 -0x1.7f492cp-19 0x0p+0 0x1.ea8a6p-12 "
            "0x1.278f7cp-10 0x1.9002eep-9"
        ),
        row(
            "0x1.6de788p-9 0x1.901c22p-8 0x1.5e8c1p-7 -0x1.1c2026p-7 -0x1.6dc19ap-5 0x1.955138p-9 0x1.1f45a6p-6 "
            "0x1.7688fap-9 0x1.a3264p-11 0x1.2e3778p-14 0x1.0cdbe4p-16 0x1.fbed16p-20 0x0p+0 0x1.4669acp-13 "
            "0x1.88499cp-12 0x1.07562p-10"
        ),
        row(
            "0x1.518ddep-11 0x1.3b76eep-10 0x1.8c6302p-11 -0x1.6e191p-7 -0x1.35bb4cp-8 0x1.e29198p-7 -0x1.db02ep-9 "
            "-0x1.43bd12p-10 -0x1.8805d6p-12 -0x1.292decp-15 -0x1.0a401cp-17 -0x1.fa1e68p-21 0x0p+0 0x1.452c98p-15 "
            "0x1.84b238p-14 0x1.00a72cp-12"
        ),
        row(
            "0x1.c16394p-14 0x1.e3cd66p-14 -0x1.169c82p-11 -0x1.39afecp-9 0x1.c730cap-8 -0x1.10c48p-8 -0x1.68a33ep-11 "
            "0x1.8f5b76p-12 0x1.1a4bd2p-13 0x1.cebabp-17 0x1.a28ab6p-19 0x1.c723f8p-22 0x0p+0 0x1.022eep-17 "
            "0x1.311de2p-16 0x1.859c7p-15"
        ),
        row(
            "0x1.5f3662p-17 -0x1.767682p-16 -0x1.196d5ap-12 0x1.7591f6p-11 0x1.b64aeap-10 -0x1.994804p-10 "
            "0x1.95bb66p-11 -0x1.a1f4fap-14 -0x1.404a52p-15 -0x1.0b10d6p-18 -0x1.1f469cp-20 -0x1.ecd11p-24 0x0p+0 "
            "0x1.55626cp-20 0x1.894514p-19 0x1.d18648p-18"
        ),
        row(
            "-0x1.d75faep-22 -0x1.2ac824p-16 -0x1.10c3p-14 0x1.e6b5c6p-12 -0x1.2ded64p-10 0x1.fd05a8p-11 "
            "-0x1.cdf38ap-13 -0x1.070a1ap-16 0x1.05a87ep-17 0x1.ec5d56p-20 0x1.60befep-22 -0x1.4c6e2ep-27 0x0p+0 "
            "0x1.779e64p-23 0x1.b6e4ccp-22 0x1.610e2ap-21"
        ),
    ),
)
