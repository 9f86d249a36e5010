"""The polynomials of the float32 activations: h(a) = a·s(-a) on segments of equal width, a = abs(x).

``python -m benchmarks.fit_segments values`` finds and prints them; docs/numerics.md explains them, and
tests/test_values_coefficients.py recomputes the entries in high precision and checks each segment.
"""

from __future__ import annotations

from aclnn.kernels.cpu.elementwise.coefficients import Segments, hex_row

SILU = Segments(
    per_unit=float.fromhex("0x1.ap+0"),
    bound=float.fromhex("0x1.31374cp+3"),
    centre=hex_row(
        "0x0p+0 0x1.28fp-1 0x1.0ddp+0 0x1.d0cp+0 "
        "0x1.397cp+1 0x1.96fp+1 0x1.cd1p+1 0x1.1958p+2 "
        "0x1.419ap+2 0x1.61d4p+2 0x1.8cd8p+2 0x1.b75p+2 "
        "0x1.d948p+2 0x1.ff9ap+2 0x1.1413p+3 0x1.2a52p+3"
    ),
    c0=hex_row(
        "0x0p+0 0x1.aa558ep-3 0x1.16f326p-2 0x1.043a8ep-2 "
        "0x1.8ec67ep-3 0x1.04275ep-3 0x1.87a124p-4 0x1.b6800ap-5 "
        "0x1.0cbf28p-5 0x1.66550ap-6 0x1.9b3b68p-7 0x1.d55d7cp-8 "
        "0x1.2988aap-8 0x1.618f5cp-9 0x1.95147cp-10 0x1.b4ddfep-11"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.cdcf64p-3 0x1.ce8d08p-5 -0x1.41d554p-4 "
            "-0x1.987da6p-4 -0x1.4fdbb2p-4 -0x1.108292p-4 -0x1.4d692ep-5 "
            "-0x1.ab0562p-6 -0x1.241996p-6 -0x1.58144ep-7 -0x1.907f5p-8 "
            "-0x1.011de8p-8 -0x1.353616p-9 -0x1.660de6p-10 -0x1.85f772p-11"
        ),
        hex_row(
            "-0x1.fffffep-3 -0x1.b0b2dap-3 -0x1.2499a2p-3 -0x1.55a42cp-5 "
            "0x1.1e2bep-9 0x1.22b7ep-6 0x1.2aa36cp-6 0x1.c3152p-7 "
            "0x1.3a7b6ap-7 0x1.c1f2c8p-8 0x1.145db8p-8 0x1.4b4888p-9 "
            "0x1.b12228p-10 0x1.08c5eep-10 0x1.36f91p-11 0x1.57090ep-12"
        ),
        hex_row(
            "-0x1.8e49c2p-21 0x1.4f3524p-5 0x1.a4996cp-5 0x1.103556p-5 "
            "0x1.cb5e96p-7 0x1.061994p-9 -0x1.ca091ap-11 -0x1.2ea5d4p-9 "
            "-0x1.08c2b8p-9 -0x1.a0e42ep-10 -0x1.14e4c6p-10 -0x1.5c99b2p-11 "
            "-0x1.d4bc9ap-12 -0x1.258fa8p-12 -0x1.5fb784p-13 -0x1.8ab928p-14"
        ),
        hex_row(
            "0x1.5580fp-6 0x1.838274p-7 -0x1.028018p-11 -0x1.15f88cp-7 "
            "-0x1.8e2c58p-8 -0x1.3a6758p-9 -0x1.21ef32p-10 -0x1.557b9ap-16 "
            "0x1.9d7572p-13 0x1.c6785ep-13 0x1.6e244ep-13 0x1.fc292ep-14 "
            "0x1.66d7bep-14 0x1.d36634p-15 0x1.2088b6p-15 0x1.4bec92p-16"
        ),
        hex_row(
            "-0x1.e6def2p-15 -0x1.5313e4p-8 -0x1.25ac52p-8 -0x1.7ee982p-15 "
            "0x1.267ae6p-10 0x1.92a40ap-11 0x1.e9d30ep-12 0x1.0f8446p-13 "
            "0x1.ae3ff2p-16 -0x1.506088p-18 -0x1.1168aap-16 -0x1.f607b2p-17 "
            "-0x1.8a9db8p-17 -0x1.155c4p-17 -0x1.688efep-18 -0x1.b0efd6p-19"
        ),
        hex_row(
            "-0x1.01059ap-9 -0x1.dfabd4p-12 0x1.17e722p-10 0x1.45f10ep-11 "
            "0x1.c667a2p-16 -0x1.09c67cp-13 -0x1.9309c4p-14 -0x1.8a3402p-15 "
            "-0x1.384442p-16 -0x1.848682p-18 -0x1.a01f88p-21 0x1.92cf52p-21 "
            "0x1.0c1b0ap-20 0x1.d8659p-21 0x1.5eac6p-21 0x1.a99242p-22"
        ),
    ),
)

FAST_GELU = Segments(
    per_unit=float.fromhex("0x1.6p+1"),
    bound=float.fromhex("0x1.68b43ap+2"),
    centre=hex_row(
        "0x0p+0 0x1.182p-2 0x1.2c8p-1 0x1.02ep+0 "
        "0x1.7638p+0 0x1.d22p+0 0x1.1014p+1 0x1.4cacp+1 "
        "0x1.74ap+1 0x1.a244p+1 0x1.d8b4p+1 0x1.035ap+2 "
        "0x1.141p+2 0x1.2eap+2 0x1.492ap+2 0x1.615ap+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.b02164p-4 0x1.438564p-3 0x1.3a3a62p-3 "
        "0x1.cb46b8p-4 0x1.41cdp-4 0x1.c72e6p-5 0x1.f89a12p-6 "
        "0x1.4de562p-6 0x1.99de02p-7 0x1.c2180ep-8 0x1.0c2446p-8 "
        "0x1.6e281cp-9 0x1.8c3c24p-10 0x1.a9a50cp-11 0x1.e0578p-12"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.19f456p-2 0x1.29972p-4 -0x1.1ddcdcp-4 "
            "-0x1.978a8p-4 -0x1.5b5624p-4 -0x1.0e29acp-4 -0x1.474058p-5 "
            "-0x1.c19ddp-6 -0x1.1cbf38p-6 -0x1.4160f4p-7 -0x1.85bf4ap-8 "
            "-0x1.0cf446p-8 -0x1.27309p-9 -0x1.40c97ap-10 -0x1.6d3c8ep-11"
        ),
        hex_row(
            "-0x1.b3b642p-2 -0x1.86f16cp-2 -0x1.07c6e4p-2 -0x1.676db4p-4 "
            "0x1.a3d066p-8 0x1.deb14ep-6 0x1.fb1636p-6 0x1.7a8ea8p-6 "
            "0x1.17a8f6p-6 0x1.76303p-7 0x1.b93beep-8 0x1.12b1eep-8 "
            "0x1.80edbcp-9 0x1.aec7c4p-10 0x1.db611cp-11 0x1.11bef6p-11"
        ),
        hex_row(
            "-0x1.f8f776p-19 0x1.9d7ac4p-4 0x1.306a76p-3 0x1.b0101ep-4 "
            "0x1.36a91ap-5 0x1.0bab26p-7 -0x1.65af3cp-9 -0x1.b69aa8p-8 "
            "-0x1.89bd48p-8 -0x1.287aeap-8 -0x1.7b05e4p-9 -0x1.ecf336p-10 "
            "-0x1.619d4ep-10 -0x1.9738a4p-11 -0x1.cb214ep-12 -0x1.0c802cp-12"
        ),
        hex_row(
            "0x1.a50baap-4 0x1.28d044p-4 0x1.fd0e9ep-9 -0x1.528bc4p-5 "
            "-0x1.d8fdc8p-6 -0x1.b73298p-7 -0x1.599884p-8 -0x1.f9214p-17 "
            "0x1.e2a1a2p-11 0x1.16dc9ap-10 0x1.b14ceep-11 0x1.32dba8p-11 "
            "0x1.cabc3ep-12 0x1.14ba04p-12 0x1.422656p-13 0x1.811a92p-14"
        ),
        hex_row(
            "-0x1.5cbcf8p-11 -0x1.5057cep-5 -0x1.4c28f2p-5 -0x1.a3c07ep-9 "
            "0x1.368bcap-7 0x1.c7ba5p-8 0x1.f67c72p-9 0x1.0d4262p-10 "
            "0x1.282eb2p-12 -0x1.ba945p-15 -0x1.219346p-13 -0x1.01a508p-13 "
            "-0x1.a986f2p-14 -0x1.19c57ap-14 -0x1.595f4cp-15 -0x1.a9ec56p-16"
        ),
        hex_row(
            "-0x1.c4539ap-6 -0x1.80e25ep-8 0x1.f323dp-7 0x1.1acf3ap-7 "
            "0x1.ff8572p-13 -0x1.e38a0ap-10 -0x1.5fec16p-10 -0x1.5717aep-11 "
            "-0x1.0afad4p-12 -0x1.45303p-14 -0x1.b48c12p-18 0x1.d90384p-17 "
            "0x1.f0cab8p-17 0x1.8ef486p-17 0x1.2234cep-17 0x1.9250f6p-18"
        ),
    ),
)

GELU_ERF = Segments(
    per_unit=float.fromhex("0x1.8p+1"),
    bound=float.fromhex("0x1.4a9fbep+2"),
    centre=hex_row(
        "0x0p+0 0x1.1e4p-2 0x1.2b8p-1 0x1.f96p-1 "
        "0x1.6688p+0 0x1.b808p+0 0x1.0118p+1 0x1.3288p+1 "
        "0x1.5b9cp+1 0x1.8598p+1 0x1.b04cp+1 0x1.e02cp+1 "
        "0x1.012cp+2 0x1.174cp+2 0x1.2ee4p+2 0x1.46a4p+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.be73d6p-4 0x1.4e95f8p-3 0x1.47178p-3 "
        "0x1.ced204p-4 0x1.2d774cp-4 0x1.6ecde2p-5 0x1.464214p-6 "
        "0x1.26442ap-7 0x1.d223f2p-9 0x1.4404aep-10 0x1.59f00ep-12 "
        "0x1.edf716p-14 0x1.d379bp-16 0x1.5fe39ap-18 0x1.c82e2p-21"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.21738ep-2 0x1.526852p-4 -0x1.482fa4p-4 "
            "-0x1.07ea46p-3 -0x1.d1befcp-4 -0x1.59548cp-4 -0x1.78c13p-5 "
            "-0x1.86318ap-6 -0x1.5d0bb8p-7 -0x1.0e89a8p-8 -0x1.41f19p-10 "
            "-0x1.ed3fe4p-12 -0x1.fbbf7p-14 -0x1.9ef778p-16 -0x1.224d28p-18"
        ),
        hex_row(
            "-0x1.988452p-2 -0x1.798378p-2 -0x1.1d5fb8p-2 -0x1.016fecp-3 "
            "-0x1.7a22c2p-9 0x1.640852p-5 0x1.ba3ac6p-5 0x1.5aeae6p-5 "
            "0x1.b7c26cp-6 0x1.ce34aep-7 0x1.9a248p-8 0x1.15916ep-9 "
            "0x1.cd2e58p-11 0x1.04f6eep-12 0x1.d329c8p-15 0x1.6320dcp-17"
        ),
        hex_row(
            "-0x1.b95cdcp-20 0x1.1f2314p-4 0x1.eb179cp-4 0x1.f3b7e4p-4 "
            "0x1.239e1ep-4 0x1.bedadep-6 -0x1.3f69fep-11 -0x1.0146ccp-6 "
            "-0x1.f3eb44p-7 -0x1.53d4bcp-7 -0x1.6b8d8ap-8 -0x1.21968p-9 "
            "-0x1.09325ap-10 -0x1.4f12d2p-12 -0x1.4c5c24p-14 -0x1.14f3bap-16"
        ),
        hex_row(
            "0x1.108818p-4 0x1.c5098cp-5 0x1.8b2b58p-6 -0x1.38f7a4p-6 "
            "-0x1.2c769cp-5 -0x1.ee6974p-6 -0x1.20836ep-6 -0x1.930d0cp-9 "
            "0x1.71190cp-9 0x1.08dc2ep-8 0x1.8a446cp-9 0x1.8cafcap-10 "
            "0x1.9c1928p-11 0x1.29c52p-12 0x1.4cf022p-14 0x1.33c6c6p-16"
        ),
        hex_row(
            "-0x1.1d0262p-11 -0x1.f712d8p-7 -0x1.808b5p-6 -0x1.0fc4e6p-6 "
            "-0x1.0f8b14p-11 0x1.ee0e3ap-8 0x1.27823cp-7 0x1.699688p-8 "
            "0x1.0277dep-9 -0x1.82a4aap-13 -0x1.bceb16p-11 -0x1.5f136ep-11 "
            "-0x1.b96728p-12 -0x1.7d510ep-13 -0x1.ed6094p-15 -0x1.0269bep-16"
        ),
        hex_row(
            "-0x1.d035p-8 -0x1.f90fdep-8 -0x1.6729p-10 0x1.7d995p-8 "
            "0x1.7b5c3ap-8 0x1.46abfep-9 -0x1.3a24fp-11 -0x1.08a02cp-9 "
            "-0x1.991c7cp-10 -0x1.5be5a6p-11 -0x1.b6c218p-15 0x1.6b3192p-13 "
            "0x1.30669ap-13 0x1.5ec254p-14 0x1.134076p-15 0x1.3bbe86p-17"
        ),
        hex_row(
            "-0x1.65481cp-8 0x1.b812f4p-9 0x1.d27408p-9 0x1.47ba22p-10 "
            "-0x1.a0ec58p-11 -0x1.82cae2p-10 -0x1.05121ep-9 -0x1.a67e8ep-13 "
            "0x1.44b444p-12 0x1.4d0074p-12 0x1.ce0888p-13 0x1.17079ap-14 "
            "-0x1.6b3ac4p-16 -0x1.a775bap-16 -0x1.ffd6aap-17 -0x1.c869b8p-18"
        ),
    ),
)

GELU_TANH = Segments(
    per_unit=float.fromhex("0x1.ap+1"),
    bound=float.fromhex("0x1.31374cp+2"),
    centre=hex_row(
        "0x0p+0 0x1.18ep-2 0x1.26cp-1 0x1.e5dp-1 "
        "0x1.245p+0 0x1.807p+0 0x1.e3dp+0 0x1.16ep+1 "
        "0x1.40d8p+1 0x1.68c4p+1 0x1.8d88p+1 0x1.b5dcp+1 "
        "0x1.de2cp+1 0x1.0372p+2 0x1.181ep+2 0x1.2b74p+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.b8573ap-4 0x1.4d066ep-3 0x1.4d3f54p-3 "
        "0x1.28d548p-3 0x1.9a7606p-4 0x1.c6ebbep-5 0x1.03e7acp-5 "
        "0x1.e62348p-7 0x1.9f526p-8 0x1.51c8ecp-9 0x1.b6f3fcp-11 "
        "0x1.e91e3p-13 0x1.c69ff6p-15 0x1.57077cp-17 0x1.e0ce22p-20"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.257236p-2 0x1.686d04p-4 -0x1.1d2e7cp-4 "
            "-0x1.c3d888p-4 -0x1.0571a2p-3 -0x1.90c09cp-4 -0x1.12d4f8p-4 "
            "-0x1.32ccaep-5 -0x1.30a4c8p-6 -0x1.19ab74p-7 -0x1.a1cffep-9 "
            "-0x1.07d468p-10 -0x1.149316p-12 -0x1.d4ec98p-15 -0x1.6cb826p-17"
        ),
        hex_row(
            "-0x1.988454p-2 -0x1.7a8066p-2 -0x1.206fb6p-2 -0x1.1e5f34p-3 "
            "-0x1.2a08eep-4 0x1.fd7f5ap-7 0x1.ab9b5ap-5 0x1.a5aed8p-5 "
            "0x1.35a67p-5 0x1.789d84p-6 0x1.98cfd2p-7 0x1.631048p-8 "
            "0x1.030f16p-9 0x1.36fc7ap-11 0x1.2bdd54p-13 0x1.0544dp-15"
        ),
        hex_row(
            "0x1.47663cp-20 0x1.1b7a76p-4 0x1.e7a826p-4 0x1.fc0eeep-4 "
            "0x1.b1ce2p-4 0x1.cdb888p-5 0x1.4523cap-7 -0x1.30068ep-7 "
            "-0x1.0c539ap-6 -0x1.d77e7p-7 -0x1.43b236p-7 -0x1.59c42cp-8 "
            "-0x1.2d0f84p-9 -0x1.a79098p-11 -0x1.d8bbeep-13 -0x1.d340c4p-15"
        ),
        hex_row(
            "0x1.1187fep-4 0x1.c90eb4p-5 0x1.969c2cp-6 -0x1.08d754p-6 "
            "-0x1.e507d4p-6 -0x1.212dbp-5 -0x1.73f832p-6 -0x1.60e20cp-7 "
            "-0x1.f2a16ep-11 0x1.baf04cp-9 0x1.0b548p-8 0x1.91231cp-9 "
            "0x1.bd8c88p-10 0x1.7e7c8p-11 0x1.fbbc34p-13 0x1.21dbfep-14"
        ),
        hex_row(
            "0x1.19ca3p-11 -0x1.f9ff7ep-7 -0x1.84fbe8p-6 -0x1.20c51p-6 "
            "-0x1.511d5ep-7 0x1.762648p-9 0x1.14d9eep-7 0x1.ee5ddap-8 "
            "0x1.1a4e66p-8 0x1.723988p-10 -0x1.f78c32p-13 -0x1.cc921cp-11 "
            "-0x1.956c86p-11 -0x1.d0bea6p-12 -0x1.811cc6p-13 -0x1.053ac6p-14"
        ),
        hex_row(
            "-0x1.ba48dap-7 -0x1.014ad2p-7 -0x1.b558d4p-10 0x1.80e86ap-8 "
            "0x1.0d08e2p-7 0x1.170a24p-8 0x1.883cbcp-13 -0x1.5e3b9ep-10 "
            "-0x1.c5a8c8p-10 -0x1.41a0d2p-10 -0x1.56974p-11 -0x1.927174p-14 "
            "0x1.3e00cp-13 0x1.5f2c48p-13 0x1.989df2p-14 0x1.595694p-15"
        ),
        hex_row(
            "0x1.f76f42p-8 0x1.def85ep-9 0x1.5ab9c8p-8 0x1.722a38p-9 "
            "-0x1.664dd2p-9 -0x1.a8d574p-12 -0x1.889c7p-10 -0x1.911db8p-11 "
            "0x1.b3514ap-15 0x1.38a13ep-12 0x1.f9efbep-13 0x1.492a08p-13 "
            "0x1.de5968p-15 -0x1.06f5a2p-16 -0x1.109092p-15 -0x1.6fc8dap-16"
        ),
    ),
)
