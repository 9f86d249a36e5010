"""Fitted versions of softplus_of_one, found by ``tools.fit`` with fewer tries (48, on a 37th of x).

FLOAT: at most 0.8186 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "9504194ced2473c4949eb549cdf25288745193d82e3bfa3c5b9f17752b2c8be8"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.8p+0"),
    bound=float.fromhex("0x1.4a8f5cp+3"),
    centre=row(
        "0x0p+0 0x1.478p-1 0x1.834p+0 0x1.008p+1 0x1.544p+1 0x1.ab6p+1 0x1.031p+2 0x1.2d9p+2 0x1.5d1p+2 0x1.883p+2 "
        "0x1.afep+2 0x1.da1p+2 0x1.01p+3 0x1.17d8p+3 0x1.2a9p+3 0x1.3fp+3"
    ),
    c0=row(
        "-0x1.62e43p-1 -0x1.b1c8e4p-2 -0x1.97c6ap-3 -0x1.02ff2p-3 -0x1.1569c6p-4 -0x1.1d979p-5 -0x1.1b97fp-6 "
        "-0x1.253052p-7 -0x1.17cfdcp-8 -0x1.1d919ap-9 -0x1.335bep-10 -0x1.3e1184p-11 -0x1.54e154p-12 -0x1.4deae2p-13 "
        "-0x1.74151cp-14 -0x1.88ec18p-15"
    ),
    p=(
        row(
            "0x1p-1 0x1.619d26p-2 0x1.71beccp-3 0x1.e693e8p-4 0x1.0c3a38p-4 0x1.18abd2p-5 0x1.19273ap-6 0x1.23e188p-7 "
            "0x1.173728p-8 0x1.1d4206p-9 0x1.332dc4p-10 0x1.3df8d2p-11 0x1.54d324p-12 0x1.4de414p-13 0x1.7410e2p-14 "
            "0x1.88e9bcp-15"
        ),
        row(
            "-0x1p-3 -0x1.cf00fep-4 -0x1.2efddp-4 -0x1.acc68ep-5 -0x1.f5531cp-6 -0x1.0f0e1cp-6 -0x1.14541ap-7 "
            "-0x1.2147f8p-8 -0x1.160694p-9 -0x1.1ca30ep-10 -0x1.32d1ap-11 -0x1.3dc77ap-12 -0x1.54b6dp-13 "
            "-0x1.4dd688p-14 -0x1.740868p-15 -0x1.88e506p-16"
        ),
        row(
            "0x1.7b9b3ap-27 0x1.7dea4cp-7 0x1.021c0cp-6 0x1.b3e0a8p-7 0x1.22724p-7 0x1.50a6aap-8 0x1.63ca44p-9 "
            "0x1.7ad9acp-10 0x1.6f8b48p-11 0x1.79dbfp-12 0x1.9821f2p-13 0x1.a7319ep-14 0x1.c5ff52p-15 0x1.bcf974p-16 "
            "0x1.eff532p-17 0x1.05e86ap-17"
        ),
        row(
            "0x1.55507ap-8 0x1.b8601cp-9 -0x1.6bf96ep-11 -0x1.a93218p-10 -0x1.a71feap-10 -0x1.219a16p-10 "
            "-0x1.4b2ba4p-11 -0x1.6d473ep-12 -0x1.695586p-13 -0x1.76adb6p-14 -0x1.963518p-15 -0x1.a6204p-16 "
            "-0x1.c55e96p-17 -0x1.bc8fe2p-18 -0x1.efd1ep-19 -0x1.05dbeap-19"
        ),
        row(
            "0x1.7cb428p-19 -0x1.03416cp-10 -0x1.3d6a06p-11 -0x1.6b568p-13 0x1.eae90ep-14 0x1.404c12p-13 "
            "0x1.c7408cp-14 0x1.0c0d8p-14 0x1.167e82p-15 0x1.27488p-16 0x1.42033cp-17 0x1.4fb1fep-18 0x1.683206p-19 "
            "0x1.63f50cp-20 0x1.8c0f6ap-21 0x1.a1c60cp-22"
        ),
        row(
            "-0x1.79f544p-12 -0x1.05241ap-13 0x1.9ea4e8p-13 0x1.f27364p-14 0x1.2dbf5cp-15 -0x1.ee50d8p-18 "
            "-0x1.96fe38p-17 -0x1.30e2fp-17 -0x1.4d306p-18 -0x1.48c448p-19 -0x1.a806dep-20 -0x1.c6535cp-21 "
            "-0x1.e5ac7ep-22 -0x1.fd537ep-23 -0x1.04af16p-23 -0x1.16b328p-24"
        ),
        row(
            "0x1.f39846p-16 0x1.f1394ep-15 0x1.4c6fd4p-15 -0x1.bb1d4ep-18 -0x1.985be6p-17 0x1.879c02p-18 "
            "-0x1.512b18p-21 0x1.deb9c8p-19 0x1.193e86p-20 0x1.b7c7d8p-21 0x1.b8ae86p-23 0x1.fca072p-24 0x1.d7edb2p-24 "
            "0x1.8e4992p-30 0x1.408f42p-26 0x1.b01d96p-27"
        ),
    ),
)
