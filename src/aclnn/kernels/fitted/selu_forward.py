"""Fitted versions of selu_forward, found by ``tools.fit``.

FLOAT: at most 0.7810 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "5ed4cf82cca4a04f61e30a61d125ff22369eacf15214091cd86a628ed1975164"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.ccccccp-1"),
    bound=float.fromhex("0x1.133334p+4"),
    centre=row(
        "0x0p+0 0x1.ep-1 0x1.231cp+1 0x1.950cp+1 0x1.1b8cp+2 0x1.60cap+2 0x1.b328p+2 0x1.e276p+2 0x1.224bp+3 "
        "0x1.4259p+3 0x1.6272p+3 0x1.8521p+3 0x1.a11dp+3 0x1.c5e9p+3 0x1.f70cp+3 0x1.050ep+4"
    ),
    c0=row(
        "0x0p+0 0x1.11d278p+0 0x1.93c646p+0 0x1.af1028p+0 0x1.bcb69ap+0 0x1.c041b2p+0 0x1.c19262p+0 0x1.c1d57ap+0 "
        "0x1.c2059p+0 0x1.c20dfp+0 0x1.c21104p+0 0x1.c21232p+0 0x1.c2128cp+0 0x1.c212b8p+0 0x1.c212c8p+0 0x1.c212cap+0"
    ),
    p=(
        row(
            "0x1.c212ccp+0 0x1.6080aap-1 0x1.726432p-3 0x1.302a46p-4 0x1.570c9ap-6 0x1.d11a64p-8 0x1.00d4c8p-9 "
            "0x1.ea9324p-11 0x1.a78c8p-13 0x1.3718fep-14 0x1.c86414p-16 0x1.34c828p-17 0x1.01902p-18 0x1.4645a6p-20 "
            "0x1.18e75p-22 0x1.864d8ep-23"
        ),
        row(
            "-0x1.c21274p-1 -0x1.6080acp-2 -0x1.726438p-4 -0x1.302a46p-5 -0x1.570cacp-7 -0x1.d11a96p-9 -0x1.00d4cp-10 "
            "-0x1.ea9318p-12 -0x1.a78bdcp-14 -0x1.3718aep-15 -0x1.c864a2p-17 -0x1.34c772p-18 -0x1.01b78p-19 "
            "-0x1.45b538p-21 -0x1.1a18a8p-23 -0x1.4a11d6p-23"
        ),
        row(
            "0x1.2bff02p-2 0x1.d5ffdcp-4 0x1.eddbc8p-6 0x1.958d98p-7 0x1.c96582p-9 0x1.3611bp-10 0x1.567164p-12 "
            "0x1.470b2p-13 0x1.1a5e36p-15 0x1.9ecfcap-17 0x1.3041aap-18 0x1.9bae84p-20 0x1.585b46p-21 0x1.ad483cp-23 "
            "0x1.88ffcap-25 -0x1.06de1ap-20"
        ),
        row(
            "-0x1.2a826cp-4 -0x1.d5fe4p-6 -0x1.edd4fp-8 -0x1.959066p-9 -0x1.c95806p-11 -0x1.36023ep-12 -0x1.567524p-14 "
            "-0x1.470ae8p-15 -0x1.1a924cp-17 -0x1.9efd3ep-19 -0x1.301bd2p-20 -0x1.9c0f64p-22 -0x1.3f9fb6p-23 "
            "-0x1.f1ac6ap-25 -0x1.1a75bap-28 0x1.219e3p-19"
        ),
        row(
            "0x1.b7127cp-7 0x1.78772ap-8 0x1.8ab96p-10 0x1.44aa2cp-11 0x1.6e229cp-13 0x1.f008aap-15 0x1.11a5c2p-16 "
            "0x1.0657c8p-17 0x1.c251a8p-20 0x1.4a164ap-21 0x1.e75c18p-23 0x1.4c1cfcp-24 0x1.684492p-31 0x1.2704a2p-25 "
            "-0x1.11638p-28 0x1.716454p-19"
        ),
        row(
            "-0x1.04ff5p-11 -0x1.f8639cp-11 -0x1.09c756p-12 -0x1.afc7ccp-14 -0x1.eed9ep-16 -0x1.50f5bp-17 "
            "-0x1.6d1614p-19 -0x1.63a5bcp-20 -0x1.1bdadap-22 -0x1.ad37ecp-24 -0x1.50b4bep-25 -0x1.9fca5ep-27 "
            "0x1.61dc3ep-26 -0x1.46a0bep-26 -0x1.da01e6p-26 -0x1.2804fcp-17"
        ),
        row(
            "-0x1.acf794p-11 0x1.fe05dp-14 0x1.45c8fcp-15 0x1.a9c0a4p-17 0x1.0d0a22p-18 0x1.8246b4p-20 0x1.e3ec6ap-22 "
            "0x1.727326p-23 0x1.0ce778p-24 0x1.7fbaf6p-26 0x1.66241p-28 0x1.157a5cp-31 -0x1.68dbep-28 0x1.940556p-30 "
            "-0x1.291d74p-26 0x1.5269fap-18"
        ),
    ),
)
