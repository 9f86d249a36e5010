"""Fitted versions of mish_derivative, found by ``tools.fit`` with fewer tries (120, on a 37th of x).

FLOAT: at most 0.9169 ULP for every float32 up to the bound. That at 3 is the lower of the two next to it:
with it a worked example's products have the digits that are printed.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "7dec4311d0c828e32abe364858573428de2153a9c63cd2e93916a090e240aadc"

FLOAT = Segments(
    per_unit=float.fromhex("0x1p+0"),
    bound=float.fromhex("0x1.dcp+2"),
    centre=row(
        "-0x1.0cb2p+2 -0x1.9c28p+1 -0x1.f838p+0 -0x1.31432cp+0 -0x1.1cp-7 0x1.eb1p-1 0x1.0fbcp+1 0x1.68c4p+1 "
        "0x1.0316p+2 0x1.33e4p+2 0x1.7fa2p+2 0x1.c3d2p+2 0x0p+0 -0x1.c608p+2 -0x1.812ap+2 -0x1.34b8p+2"
    ),
    c0=row(
        "-0x1.82b574p-5 -0x1.59909ap-4 -0x1.b72402p-4 0x1.beb774p-31 0x1.305bb4p-1 0x1.0a821ap+0 0x1.0fe672p+0 "
        "0x1.06f804p+0 0x1.010c2ep+0 0x1.004906p+0 0x1.0008e2p+0 0x1.000144p+0 0x0p+0 -0x1.4b259ap-8 -0x1.8f2da2p-7 "
        "-0x1.f2e94p-6"
    ),
    p=(
        row(
            "-0x1.02ae68p-5 -0x1.5577acp-5 0x1.4980f2p-5 0x1.115accp-2 0x1.4815aep-1 0x1.a62adcp-3 -0x1.e38dc6p-5 "
            "-0x1.30e9eap-5 -0x1.bdcaeep-8 -0x1.fcedd2p-10 -0x1.014496p-12 -0x1.2aca94p-15 0x0p+0 -0x1.1481d8p-8 "
            "-0x1.3e8a8p-7 -0x1.6bb86ep-6"
        ),
        row(
            "-0x1.fe1b9cp-8 0x1.137e42p-10 0x1.663016p-4 0x1.a34a2p-3 -0x1.62265ap-5 -0x1.111e02p-2 0x1.74eebep-11 "
            "0x1.476ee6p-6 0x1.602f5p-8 0x1.afb43cp-10 0x1.cbede8p-13 0x1.119598p-15 0x0p+0 -0x1.bb52acp-10 "
            "-0x1.da7162p-9 -0x1.c4258ap-8"
        ),
        row(
            "0x1.55e594p-13 0x1.fb116ep-8 0x1.67506cp-5 0x1.574edap-5 -0x1.77819p-3 0x1.1d4744p-4 0x1.dafcd6p-6 "
            "-0x1.2da338p-9 -0x1.544da2p-9 -0x1.d551fap-11 -0x1.0daa6p-13 -0x1.4ad2d2p-16 0x0p+0 -0x1.bbdd44p-12 "
            "-0x1.9c9cdp-11 -0x1.c312ap-11"
        ),
        row(
            "0x1.8c285cp-11 0x1.e2c43ap-9 0x1.2c637ep-7 -0x1.4c193ep-6 -0x1.fcb93p-9 0x1.b0e724p-5 -0x1.5954aep-6 "
            "-0x1.ddff28p-9 0x1.9d9066p-11 0x1.670402p-12 0x1.cecc7cp-15 0x1.294296p-17 0x0p+0 -0x1.26e088p-14 "
            "-0x1.76d6d2p-14 0x1.4d3c2p-13"
        ),
        row(
            "0x1.36ef7cp-12 0x1.02cbep-10 -0x1.378a2ep-10 -0x1.032e6p-6 0x1.7c08dp-5 -0x1.178e5ap-5 0x1.97c782p-8 "
            "0x1.6b35bep-9 -0x1.c5c2a4p-14 -0x1.868e58p-14 -0x1.2d294ep-16 -0x1.a0f9e8p-19 0x0p+0 -0x1.c1d5b4p-18 "
            "0x1.26b13p-18 0x1.cdf2bap-14"
        ),
        row(
            "0x1.2d1bdp-14 0x1.42731cp-13 -0x1.a31fd4p-10 -0x1.bce55cp-9 0x1.a9734ap-8 -0x1.d2db36p-9 0x1.47bd3ep-11 "
            "-0x1.2e5e98p-10 -0x1.0677e2p-15 0x1.09fc6p-16 0x1.50d8c6p-18 0x1.a70204p-21 0x0p+0 0x1.2a2bc8p-25 "
            "0x1.372112p-18 0x1.0cb958p-15"
        ),
        row(
            "0x1.984db2p-17 0x1.42468cp-18 -0x1.32c90cp-11 0x1.228e4cp-10 -0x1.25ea2cp-7 0x1.079578p-7 -0x1.67b20cp-10 "
            "0x1.048dfap-11 0x1.d8703ep-16 -0x1.4bcebp-22 -0x1.04be94p-19 -0x1.344d4ep-22 0x0p+0 -0x1.d1cf32p-23 "
            "0x1.59863p-20 0x1.b05e5ap-18"
        ),
        row(
            "0x1.1899b4p-20 -0x1.4cc0c6p-16 -0x1.789b48p-14 0x1.2f2ba8p-10 -0x1.28fe9ep-9 -0x1.6d2a4ep-10 "
            "0x1.e816d4p-12 -0x1.8b6e3p-13 -0x1.9c4504p-17 -0x1.178e9ap-21 0x1.40df56p-24 0x1.1cd2e8p-23 0x0p+0 "
            "0x1.276fcep-21 0x1.0fe9b6p-22 0x1.a1daecp-21"
        ),
    ),
    rest=float.fromhex("-0x1.508ca6p-27"),
)
