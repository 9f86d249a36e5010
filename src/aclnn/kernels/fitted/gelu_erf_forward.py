"""Fitted versions of gelu_erf_forward, found by ``tools.fit``.

FLOAT: at most 0.9504 ULP for every float32 up to the bound.
"""

from __future__ import annotations

from aclnn.kernels.fitted import Segments, row

DIGEST = "37ec31a2c05eb128467b0ad451ec7ad7963c8d4f28feefc672daa87d57204f0f"

FLOAT = Segments(
    per_unit=float.fromhex("0x1.8p+1"),
    bound=float.fromhex("0x1.4a9fbep+2"),
    centre=row(
        "0x0p+0 0x1.1e4p-2 0x1.2b8p-1 0x1.f96p-1 0x1.6688p+0 0x1.b808p+0 0x1.0118p+1 0x1.3288p+1 0x1.5b9cp+1 "
        "0x1.8598p+1 0x1.b04cp+1 0x1.e02cp+1 0x1.012cp+2 0x1.174cp+2 0x1.2ee4p+2 0x1.46a4p+2"
    ),
    c0=row(
        "0x0p+0 0x1.be73d6p-4 0x1.4e95f8p-3 0x1.47178p-3 0x1.ced204p-4 0x1.2d774cp-4 0x1.6ecde2p-5 0x1.464214p-6 "
        "0x1.26442ap-7 0x1.d223f2p-9 0x1.4404aep-10 0x1.59f00ep-12 0x1.edf716p-14 0x1.d379bp-16 0x1.5fe39ap-18 "
        "0x1.c82e2p-21"
    ),
    p=(
        row(
            "0x1p-1 0x1.21738ep-2 0x1.526852p-4 -0x1.482fa4p-4 -0x1.07ea46p-3 -0x1.d1befcp-4 -0x1.59548cp-4 "
            "-0x1.78c13p-5 -0x1.86318ap-6 -0x1.5d0bb8p-7 -0x1.0e89a8p-8 -0x1.41f19p-10 -0x1.ed3fe4p-12 -0x1.fbbf7p-14 "
            "-0x1.9ef778p-16 -0x1.224d28p-18"
        ),
        row(
            "-0x1.988452p-2 -0x1.798378p-2 -0x1.1d5fb8p-2 -0x1.016fecp-3 -0x1.7a22c2p-9 0x1.640852p-5 0x1.ba3ac6p-5 "
            "0x1.5aeae6p-5 0x1.b7c26cp-6 0x1.ce34aep-7 0x1.9a248p-8 0x1.15916ep-9 0x1.cd2e58p-11 0x1.04f6eep-12 "
            "0x1.d329c8p-15 0x1.6320dcp-17"
        ),
        row(
            "-0x1.b95cdcp-20 0x1.1f2314p-4 0x1.eb179cp-4 0x1.f3b7e4p-4 0x1.239e1ep-4 0x1.bedadep-6 -0x1.3f69fep-11 "
            "-0x1.0146ccp-6 -0x1.f3eb44p-7 -0x1.53d4bcp-7 -0x1.6b8d8ap-8 -0x1.21968p-9 -0x1.09325ap-10 -0x1.4f12d2p-12 "
            "-0x1.4c5c24p-14 -0x1.14f3bap-16"
        ),
        row(
            "0x1.108818p-4 0x1.c5098cp-5 0x1.8b2b58p-6 -0x1.38f7a4p-6 -0x1.2c769cp-5 -0x1.ee6974p-6 -0x1.20836ep-6 "
            "-0x1.930d0cp-9 0x1.71190cp-9 0x1.08dc2ep-8 0x1.8a446cp-9 0x1.8cafcap-10 0x1.9c1928p-11 0x1.29c52p-12 "
            "0x1.4cf022p-14 0x1.33c6c6p-16"
        ),
        row(
            "-0x1.1d0262p-11 -0x1.f712d8p-7 -0x1.808b5p-6 -0x1.0fc4e6p-6 -0x1.0f8b14p-11 0x1.ee0e3ap-8 0x1.27823cp-7 "
            "0x1.699688p-8 0x1.0277dep-9 -0x1.82a4aap-13 -0x1.bceb16p-11 -0x1.5f136ep-11 -0x1.b96728p-12 "
            "-0x1.7d510ep-13 -0x1.ed6094p-15 -0x1.0269bep-16"
        ),
        row(
            "-0x1.d035p-8 -0x1.f90fdep-8 -0x1.6729p-10 0x1.7d995p-8 0x1.7b5c3ap-8 0x1.46abfep-9 -0x1.3a24fp-11 "
            "-0x1.08a02cp-9 -0x1.991c7cp-10 -0x1.5be5a6p-11 -0x1.b6c218p-15 0x1.6b3192p-13 0x1.30669ap-13 "
            "0x1.5ec254p-14 0x1.134076p-15 0x1.3bbe86p-17"
        ),
        row(
            "-0x1.65481cp-8 0x1.b812f4p-9 0x1.d27408p-9 0x1.47ba22p-10 -0x1.a0ec58p-11 -0x1.82cae2p-10 -0x1.05121ep-9 "
            "-0x1.a67e8ep-13 0x1.44b444p-12 0x1.4d0074p-12 0x1.ce0888p-13 0x1.17079ap-14 -0x1.6b3ac4p-16 "
            "-0x1.a775bap-16 -0x1.ffd6aap-17 -0x1.c869b8p-18"
        ),
    ),
)
