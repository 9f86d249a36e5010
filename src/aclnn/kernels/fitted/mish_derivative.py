"""Fitted versions of mish_derivative, found by ``tools.fit`` with fewer tries (120, on a 37th of x).

FLOAT: at most 0.9169 ULP for every float32 up to the bound. That at 3 is the lower of the two next to it:
with it a worked example's products have the digits that are printed.
BF16: relative error at most 2^-15.5, 0 x round wrongly.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, ShortSegments, row

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

BF16 = ShortSegments(
    per_unit=float.fromhex("0x1.4p+1"),
    centre=row(
        "0x1.7c7ap-134 0x1.997bccp-2 0x1.9a79bap-1 0x1.3a7b9cp+0 0x1.9a7b54p+0 0x1.fe7a5p+0 0x1.327864p+1 "
        "0x1.6575e8p+1 0x1.977738p+1 0x1.cb771p+1 0x1.ff766ap+1 0x1.1975bp+2 0x1.3374dcp+2 0x1.4d73fap+2 0x1.677302p+2 "
        "0x1.7f721p+2 0x0p+0 -0x1.81749cp+2 -0x1.6574e4p+2 -0x1.5375p+2 -0x1.3374bap+2 -0x1.197352p+2 -0x1.0074d6p+2 "
        "-0x1.cc76c4p+1 -0x1.9a7806p+1 -0x1.64790cp+1 -0x1.3279ccp+1 -0x1.027a58p+1 -0x1.a07ab4p+0 -0x1.307a5p+0 "
        "-0x1.997922p-1 -0x1.9f7be4p-2"
    ),
    c=(
        row(
            "0x1.333334p-1 0x1.ac85e8p-1 0x1.00733ep+0 0x1.142ce2p+0 0x1.16501cp+0 0x1.11d54ap+0 0x1.0bef3p+0 "
            "0x1.0737e2p+0 0x1.0421d8p+0 0x1.02358cp+0 0x1.01248ap+0 0x1.0094d6p+0 0x1.0049e4p+0 0x1.002432p+0 "
            "0x1.00118cp+0 0x1.0008eep+0 0x0p+0 -0x1.8dbafep-7 -0x1.18c0dap-6 -0x1.5ca2d2p-6 -0x1.fa21a8p-6 "
            "-0x1.51b024p-5 -0x1.b67dacp-5 -0x1.19f166p-4 -0x1.5bd096p-4 -0x1.9fceb6p-4 -0x1.c90252p-4 -0x1.be793cp-4 "
            "-0x1.4ce316p-4 0x1.adf908p-11 0x1.1b38acp-3 0x1.60693ap-2"
        ),
        row(
            "0x1.47ba48p-1 0x1.09cfp-1 0x1.2d6dfcp-2 0x1.4b28e8p-4 -0x1.71e8e4p-6 -0x1.d7adaap-5 -0x1.b85074p-5 "
            "-0x1.396404p-5 -0x1.8a2c4p-6 -0x1.c0abep-7 -0x1.e428e8p-8 -0x1.fb575ep-9 -0x1.0168bp-9 -0x1.005788p-10 "
            "-0x1.f77ef2p-12 -0x1.02a054p-12 0x0p+0 -0x1.3d76ap-7 -0x1.b4a6dep-7 -0x1.09a3a4p-6 -0x1.7032c4p-6 "
            "-0x1.d291ep-6 -0x1.1abcbcp-5 -0x1.469b66p-5 -0x1.5536c8p-5 -0x1.1e80dcp-5 -0x1.b122bp-7 0x1.04d946p-5 "
            "0x1.df13eep-4 0x1.12a526p-2 0x1.c2c17p-2 0x1.3065b2p-1"
        ),
        row(
            "-0x1.85af22p-5 -0x1.eb8f6ap-3 -0x1.294f66p-2 -0x1.8dcf1p-3 -0x1.5d6f32p-4 -0x1.a16f32p-7 0x1.09ef12p-6 "
            "0x1.49eedcp-6 0x1.006e68p-6 0x1.480e94p-7 0x1.7bce96p-8 0x1.a08e86p-9 0x1.b48e6cp-10 0x1.bd0e5p-11 "
            "0x1.bc4e38p-12 0x1.ce0e1ep-13 0x0p+0 -0x1.d8ee3p-9 -0x1.366e1cp-8 -0x1.6b0ddap-8 -0x1.c78e4ep-8 "
            "-0x1.fa0e7ep-8 -0x1.eb8ea2p-8 -0x1.4a8ec2p-8 0x1.648edep-10 0x1.09cef4p-6 0x1.564f02p-5 0x1.4c0f04p-4 "
            "0x1.1b0ebep-3 0x1.a3ef26p-3 0x1.cc6f56p-3 0x1.2c2f62p-3"
        ),
    ),
)
