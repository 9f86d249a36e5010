"""Fitted versions of unit_elu_forward, found by ``tools.fit``.

FLOAT: at most 0.7395 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "d30dbf38986e8c7fd58f6123d048979153baf2414d8a3f259600d4d0e3bc7b8d"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.c7ae14p-1"),
    bound=float.fromhex("0x1.15c29p+4"),
    centre=row(
        "0x0p+0 0x1.ef6p-1 0x1.0a28p+1 0x1.a28p+1 0x1.1acap+2 0x1.5dccp+2 0x1.bd2ap+2 0x1.db02p+2 0x1.2377p+3 "
        "0x1.3f09p+3 0x1.6854p+3 0x1.90cap+3 0x1.a56fp+3 0x1.dbp+3 0x1.fe28p+3 0x1.0a2bp+4"
    ),
    c0=row(
        "0x0p+0 0x1.3d6deap-1 0x1.bffe6ep-1 0x1.ec8816p-1 0x1.f9d468p-1 0x1.fdd594p-1 0x1.ff831p-1 0x1.ffb1ap-1 "
        "0x1.fff17cp-1 0x1.fff9dep-1 0x1.fffe5p-1 0x1.ffff86p-1 0x1.ffffcp-1 0x1.fffff4p-1 0x1.fffffcp-1 0x1.fffffep-1"
    ),
    p=(
        row(
            "0x1p+0 0x1.85242cp-2 0x1.000648p-3 0x1.377eap-5 0x1.8ae6p-7 0x1.1536p-8 0x1.f3bffep-11 0x1.398p-11 "
            "0x1.d08p-14 0x1.888p-15 0x1.bp-17 0x1.e7ffeap-19 0x1.fffe26p-20 0x1.7ffc08p-22 0x1.00015ep-23 "
            "0x1.ff9ceep-25"
        ),
        row(
            "-0x1p-1 -0x1.85242cp-3 -0x1.000644p-4 -0x1.377ea4p-6 -0x1.8ae5fcp-8 -0x1.1535eep-9 -0x1.f3bfaap-12 "
            "-0x1.39800ap-12 -0x1.d080cap-15 -0x1.887fbcp-16 -0x1.b00036p-18 -0x1.e804f4p-20 -0x1.ffc7cp-21 "
            "-0x1.80ee94p-23 -0x1.000ff6p-24 -0x1.0127a2p-25"
        ),
        row(
            "0x1.555548p-3 0x1.036d3ep-4 0x1.555d6ep-6 0x1.9f5332p-8 0x1.0743dp-9 0x1.719d0cp-11 0x1.4d2b8p-13 "
            "0x1.a2000cp-14 0x1.35aabp-16 0x1.05aa3ap-17 0x1.20003p-19 0x1.455d0ap-21 0x1.55787p-22 0x1.01e4aap-24 "
            "0x1.5497e2p-26 0x1.7983bep-27"
        ),
        row(
            "-0x1.5551d4p-5 -0x1.036ddp-6 -0x1.556162p-8 -0x1.9f4fcep-10 -0x1.0742e8p-11 -0x1.71aa8p-13 "
            "-0x1.4d4534p-15 -0x1.a1e4bp-16 -0x1.3565dcp-18 -0x1.05c2e2p-19 -0x1.1ff0acp-21 -0x1.437f1ep-23 "
            "-0x1.68a93ep-24 -0x1.6a1d06p-27 -0x1.4eb8b8p-28 -0x1.1c2462p-29"
        ),
        row(
            "0x1.10baaap-7 0x1.9f6f06p-9 0x1.1158aep-10 0x1.4c7c3cp-12 0x1.a579dcp-14 0x1.28066ep-15 0x1.09de82p-17 "
            "0x1.4c8b4p-18 0x1.f07904p-21 0x1.a38ef2p-22 0x1.ccae66p-24 0x1.05f9e8p-25 0x1.8a0354p-26 0x1.c79c9p-29 "
            "0x1.568a04p-30 -0x1.6c1dbcp-28"
        ),
        row(
            "-0x1.643f4ep-10 -0x1.15526p-11 -0x1.6b6e66p-13 -0x1.be2b7cp-15 -0x1.1abf1cp-16 -0x1.86104p-18 "
            "-0x1.5cc31ep-20 -0x1.a3b69ep-21 -0x1.64638cp-23 -0x1.0eb37cp-24 -0x1.391918p-26 -0x1.0dba58p-27 "
            "-0x1.3c467cp-28 -0x1.ba0d1cp-27 -0x1.6d9b8ap-33 0x1.74b4b2p-28"
        ),
        row(
            "0x1.47b488p-13 0x1.170e18p-14 0x1.6330d2p-16 0x1.d43cc4p-18 0x1.2cdec6p-19 0x1.6728cap-21 0x1.09da62p-22 "
            "0x1.4efb54p-24 0x1.aaab14p-27 0x1.9848f6p-28 0x1.6581b4p-29 -0x1.dce264p-30 -0x1.d7f3fp-31 "
            "-0x1.4bc942p-27 -0x1.1ddf22p-33 -0x1.026852p-31"
        ),
    ),
)
