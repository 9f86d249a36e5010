"""Fitted versions of fast_gelu_forward, found by ``tools.fit``.

FLOAT: at most 0.8836 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "41df27d0e12325d91583348f1e5e4e60919360d8d637b5f33c45ae262578f82c"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.6p+1"),
    bound=float.fromhex("0x1.68b43ap+2"),
    centre=row(
        "0x0p+0 0x1.182p-2 0x1.2c8p-1 0x1.02ep+0 0x1.7638p+0 0x1.d22p+0 0x1.1014p+1 0x1.4cacp+1 0x1.74ap+1 0x1.a244p+1 "
        "0x1.d8b4p+1 0x1.035ap+2 0x1.141p+2 0x1.2eap+2 0x1.492ap+2 0x1.615ap+2"
    ),
    c0=row(
        "0x0p+0 0x1.b02164p-4 0x1.438564p-3 0x1.3a3a62p-3 0x1.cb46b8p-4 0x1.41cdp-4 0x1.c72e6p-5 0x1.f89a12p-6 "
        "0x1.4de562p-6 0x1.99de02p-7 0x1.c2180ep-8 0x1.0c2446p-8 0x1.6e281cp-9 0x1.8c3c24p-10 0x1.a9a50cp-11 "
        "0x1.e0578p-12"
    ),
    p=(
        row(
            "0x1p-1 0x1.19f456p-2 0x1.29972p-4 -0x1.1ddcdcp-4 -0x1.978a8p-4 -0x1.5b5624p-4 -0x1.0e29acp-4 "
            "-0x1.474058p-5 -0x1.c19ddp-6 -0x1.1cbf38p-6 -0x1.4160f4p-7 -0x1.85bf4ap-8 -0x1.0cf446p-8 -0x1.27309p-9 "
            "-0x1.40c97ap-10 -0x1.6d3c8ep-11"
        ),
        row(
            "-0x1.b3b642p-2 -0x1.86f16cp-2 -0x1.07c6e4p-2 -0x1.676db4p-4 0x1.a3d066p-8 0x1.deb14ep-6 0x1.fb1636p-6 "
            "0x1.7a8ea8p-6 0x1.17a8f6p-6 0x1.76303p-7 0x1.b93beep-8 0x1.12b1eep-8 0x1.80edbcp-9 0x1.aec7c4p-10 "
            "0x1.db611cp-11 0x1.11bef6p-11"
        ),
        row(
            "-0x1.f8f776p-19 0x1.9d7ac4p-4 0x1.306a76p-3 0x1.b0101ep-4 0x1.36a91ap-5 0x1.0bab26p-7 -0x1.65af3cp-9 "
            "-0x1.b69aa8p-8 -0x1.89bd48p-8 -0x1.287aeap-8 -0x1.7b05e4p-9 -0x1.ecf336p-10 -0x1.619d4ep-10 "
            "-0x1.9738a4p-11 -0x1.cb214ep-12 -0x1.0c802cp-12"
        ),
        row(
            "0x1.a50baap-4 0x1.28d044p-4 0x1.fd0e9ep-9 -0x1.528bc4p-5 -0x1.d8fdc8p-6 -0x1.b73298p-7 -0x1.599884p-8 "
            "-0x1.f9214p-17 0x1.e2a1a2p-11 0x1.16dc9ap-10 0x1.b14ceep-11 0x1.32dba8p-11 0x1.cabc3ep-12 0x1.14ba04p-12 "
            "0x1.422656p-13 0x1.811a92p-14"
        ),
        row(
            "-0x1.5cbcf8p-11 -0x1.5057cep-5 -0x1.4c28f2p-5 -0x1.a3c07ep-9 0x1.368bcap-7 0x1.c7ba5p-8 0x1.f67c72p-9 "
            "0x1.0d4262p-10 0x1.282eb2p-12 -0x1.ba945p-15 -0x1.219346p-13 -0x1.01a508p-13 -0x1.a986f2p-14 "
            "-0x1.19c57ap-14 -0x1.595f4cp-15 -0x1.a9ec56p-16"
        ),
        row(
            "-0x1.c4539ap-6 -0x1.80e25ep-8 0x1.f323dp-7 0x1.1acf3ap-7 0x1.ff8572p-13 -0x1.e38a0ap-10 -0x1.5fec16p-10 "
            "-0x1.5717aep-11 -0x1.0afad4p-12 -0x1.45303p-14 -0x1.b48c12p-18 0x1.d90384p-17 0x1.f0cab8p-17 "
            "0x1.8ef486p-17 0x1.2234cep-17 0x1.9250f6p-18"
        ),
    ),
)
