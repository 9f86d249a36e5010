"""Fitted versions of sigmoid_derivative, found by ``tools.fit``.

FLOAT: at most 0.7467 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "1e135a7f3af18b5d2315fcf0e16fcbc4d888d14cd1792608ee6cd7d599d42aac"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.8p+0"),
    bound=float.fromhex("0x1.4a8f5cp+3"),
    centre=row(
        "0x0p+0 0x1.61cp-1 0x1.5378p+0 0x1.07dcp+1 0x1.61e4p+1 0x1.abccp+1 0x1.0092p+2 0x1.2e28p+2 0x1.5ab6p+2 "
        "0x1.8678p+2 0x1.b15cp+2 0x1.dcb6p+2 0x1.0329p+3 0x1.14ebp+3 0x1.2ab8p+3 0x1.40cep+3"
    ),
    c0=row(
        "0x1p-2 0x1.c772ecp-3 0x1.538aa8p-3 0x1.9a3f08p-4 0x1.c8ac9ep-5 0x1.0e3956p-5 0x1.1ee8f8p-6 0x1.1ea82ap-7 "
        "0x1.2056e6p-8 0x1.24599ep-9 0x1.2bccf8p-10 0x1.30e986p-11 0x1.3e7c9ep-12 0x1.6dc9dcp-13 0x1.72389cp-14 "
        "0x1.735a16p-15"
    ),
    p=(
        row(
            "0x1.e18634p-33 -0x1.2ebad4p-4 -0x1.8a1f1ep-4 -0x1.3d9bb2p-4 -0x1.928d1cp-5 -0x1.f7884ap-6 -0x1.14addap-6 "
            "-0x1.1998cap-7 -0x1.1dca7cp-8 -0x1.230b02p-9 -0x1.2b1d38p-10 -0x1.308eaep-11 -0x1.3e4b12p-12 "
            "-0x1.6da93p-13 -0x1.7227ep-14 -0x1.7351aap-15"
        ),
        row(
            "-0x1.000006p-4 -0x1.3088c8p-5 0x1.c84038p-12 0x1.476ba8p-6 0x1.2fed38p-6 0x1.b17bcep-7 0x1.00c3bp-7 "
            "0x1.0f9c5cp-8 0x1.18ba52p-9 0x1.207004p-10 0x1.29be52p-11 0x1.2fd91ep-12 0x1.3de808p-13 0x1.6d67e2p-14 "
            "0x1.720668p-15 0x1.7340d2p-16"
        ),
        row(
            "0x1.4530a2p-21 0x1.50c46ap-6 0x1.03fd2ap-6 0x1.55f8a6p-9 -0x1.635baap-9 -0x1.95a04p-9 -0x1.236312p-9 "
            "-0x1.500cecp-10 -0x1.68f0b6p-11 -0x1.79ab9ap-12 -0x1.8958e4p-13 -0x1.933d32p-14 -0x1.a6d994p-15 "
            "-0x1.e6870cp-16 -0x1.ed0554p-17 -0x1.eed68ap-18"
        ),
        row(
            "0x1.5518bp-7 0x1.3fb786p-9 -0x1.31ae8cp-8 -0x1.b62cbp-9 -0x1.6c9bfcp-11 0x1.965cdap-13 0x1.876652p-12 "
            "0x1.1d637cp-12 0x1.4e967ap-13 0x1.6bfbacp-14 0x1.82169ep-15 0x1.8f8deep-16 0x1.a4c636p-17 0x1.e52168p-18 "
            "0x1.ec5516p-19 0x1.ee83p-20"
        ),
        row(
            "0x1.77a1d4p-15 -0x1.b90812p-9 -0x1.8e280ap-11 0x1.dadebap-11 0x1.07242ep-11 0x1.3c99ap-13 -0x1.0eb2eap-17 "
            "-0x1.2d12ecp-15 -0x1.c38b72p-16 -0x1.0d7518p-16 -0x1.28f446p-17 -0x1.3a16eap-18 -0x1.4c3b96p-19 "
            "-0x1.81d57ap-20 -0x1.8822a2p-21 -0x1.88add6p-22"
        ),
        row(
            "-0x1.aa5ab4p-10 0x1.74b9bep-13 0x1.8aa2cap-11 0x1.f28ad2p-16 -0x1.14d318p-13 -0x1.22bea4p-14 "
            "-0x1.30ff5ep-16 0x1.b16948p-22 0x1.930e9ep-19 0x1.2459c8p-19 0x1.6f0012p-20 0x1.6f3096p-21 0x1.beb374p-22 "
            "0x1.029fcep-22 0x1.03dbf2p-23 0x1.02e57p-24"
        ),
        row(
            "0x1.149128p-12 0x1.aac01ep-12 -0x1.d8b6eap-14 -0x1.b8ee14p-14 0x1.7feebap-20 0x1.bbacc6p-17 "
            "0x1.592a2ap-18 0x1.71f712p-20 -0x1.78b85p-24 -0x1.461d5ap-22 -0x1.94ac56p-23 -0x1.82dbf8p-23 "
            "-0x1.191f0ep-24 -0x1.3d856cp-25 -0x1.7c5b7ap-26 -0x1.4afbe8p-26"
        ),
    ),
)
