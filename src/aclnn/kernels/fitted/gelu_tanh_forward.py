"""Fitted versions of gelu_tanh_forward, found by ``tools.fit``.

FLOAT: at most 0.9189 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "cb8cdad1f05475f6148b1180e70199828778903520f8c3e4e4d7c84aae52cede"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.ap+1"),
    bound=float.fromhex("0x1.31374cp+2"),
    centre=row(
        "0x0p+0 0x1.18ep-2 0x1.26cp-1 0x1.e5dp-1 0x1.245p+0 0x1.807p+0 0x1.e3dp+0 0x1.16ep+1 0x1.40d8p+1 0x1.68c4p+1 "
        "0x1.8d88p+1 0x1.b5dcp+1 0x1.de2cp+1 0x1.0372p+2 0x1.181ep+2 0x1.2b74p+2"
    ),
    c0=row(
        "0x0p+0 0x1.b8573ap-4 0x1.4d066ep-3 0x1.4d3f54p-3 0x1.28d548p-3 0x1.9a7606p-4 0x1.c6ebbep-5 0x1.03e7acp-5 "
        "0x1.e62348p-7 0x1.9f526p-8 0x1.51c8ecp-9 0x1.b6f3fcp-11 0x1.e91e3p-13 0x1.c69ff6p-15 0x1.57077cp-17 "
        "0x1.e0ce22p-20"
    ),
    p=(
        row(
            "0x1p-1 0x1.257236p-2 0x1.686d04p-4 -0x1.1d2e7cp-4 -0x1.c3d888p-4 -0x1.0571a2p-3 -0x1.90c09cp-4 "
            "-0x1.12d4f8p-4 -0x1.32ccaep-5 -0x1.30a4c8p-6 -0x1.19ab74p-7 -0x1.a1cffep-9 -0x1.07d468p-10 "
            "-0x1.149316p-12 -0x1.d4ec98p-15 -0x1.6cb826p-17"
        ),
        row(
            "-0x1.988454p-2 -0x1.7a8066p-2 -0x1.206fb6p-2 -0x1.1e5f34p-3 -0x1.2a08eep-4 0x1.fd7f5ap-7 0x1.ab9b5ap-5 "
            "0x1.a5aed8p-5 0x1.35a67p-5 0x1.789d84p-6 0x1.98cfd2p-7 0x1.631048p-8 0x1.030f16p-9 0x1.36fc7ap-11 "
            "0x1.2bdd54p-13 0x1.0544dp-15"
        ),
        row(
            "0x1.47663cp-20 0x1.1b7a76p-4 0x1.e7a826p-4 0x1.fc0eeep-4 0x1.b1ce2p-4 0x1.cdb888p-5 0x1.4523cap-7 "
            "-0x1.30068ep-7 -0x1.0c539ap-6 -0x1.d77e7p-7 -0x1.43b236p-7 -0x1.59c42cp-8 -0x1.2d0f84p-9 -0x1.a79098p-11 "
            "-0x1.d8bbeep-13 -0x1.d340c4p-15"
        ),
        row(
            "0x1.1187fep-4 0x1.c90eb4p-5 0x1.969c2cp-6 -0x1.08d754p-6 -0x1.e507d4p-6 -0x1.212dbp-5 -0x1.73f832p-6 "
            "-0x1.60e20cp-7 -0x1.f2a16ep-11 0x1.baf04cp-9 0x1.0b548p-8 0x1.91231cp-9 0x1.bd8c88p-10 0x1.7e7c8p-11 "
            "0x1.fbbc34p-13 0x1.21dbfep-14"
        ),
        row(
            "0x1.19ca3p-11 -0x1.f9ff7ep-7 -0x1.84fbe8p-6 -0x1.20c51p-6 -0x1.511d5ep-7 0x1.762648p-9 0x1.14d9eep-7 "
            "0x1.ee5ddap-8 0x1.1a4e66p-8 0x1.723988p-10 -0x1.f78c32p-13 -0x1.cc921cp-11 -0x1.956c86p-11 "
            "-0x1.d0bea6p-12 -0x1.811cc6p-13 -0x1.053ac6p-14"
        ),
        row(
            "-0x1.ba48dap-7 -0x1.014ad2p-7 -0x1.b558d4p-10 0x1.80e86ap-8 0x1.0d08e2p-7 0x1.170a24p-8 0x1.883cbcp-13 "
            "-0x1.5e3b9ep-10 -0x1.c5a8c8p-10 -0x1.41a0d2p-10 -0x1.56974p-11 -0x1.927174p-14 0x1.3e00cp-13 "
            "0x1.5f2c48p-13 0x1.989df2p-14 0x1.595694p-15"
        ),
        row(
            "0x1.f76f42p-8 0x1.def85ep-9 0x1.5ab9c8p-8 0x1.722a38p-9 -0x1.664dd2p-9 -0x1.a8d574p-12 -0x1.889c7p-10 "
            "-0x1.911db8p-11 0x1.b3514ap-15 0x1.38a13ep-12 0x1.f9efbep-13 0x1.492a08p-13 0x1.de5968p-15 "
            "-0x1.06f5a2p-16 -0x1.109092p-15 -0x1.6fc8dap-16"
        ),
    ),
)
