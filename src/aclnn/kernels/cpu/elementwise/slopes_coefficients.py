"""The polynomials of the float32 derivatives: g(a) = f(-a) of a derivative f on segments of equal width, a = abs(x).

``python -m benchmarks.fit_segments slopes`` finds and prints them; docs/numerics.md explains them, and
tests/test_slopes_coefficients.py recomputes the entries in high precision and checks each segment.
"""

from __future__ import annotations

from aclnn.kernels.cpu.elementwise.coefficients import Segments, hex_row

SILU = Segments(
    per_unit=float.fromhex("0x1.7ffffep+0"),
    bound=float.fromhex("0x1.4aa7fp+3"),
    centre=hex_row(
        "0x0p+0 0x1.9fep-1 0x1.474974p+0 0x1.d208p+0 "
        "0x1.618p+1 0x1.caacp+1 0x1.f2ccp+1 0x1.313cp+2 "
        "0x1.5b3ep+2 0x1.7d86p+2 0x1.aa32p+2 0x1.d9a8p+2 "
        "0x1.01aep+3 0x1.183cp+3 0x1.2b8bp+3 0x1.3fffp+3"
    ),
    c0=hex_row(
        "0x1p-1 0x1.1366c2p-3 -0x1.848b9ep-29 -0x1.43886cp-4 "
        "-0x1.84e22p-4 -0x1.134d6ep-4 -0x1.cba45ap-5 -0x1.01127ap-5 "
        "-0x1.3c182p-6 -0x1.a08226p-7 -0x1.da2b5ep-8 -0x1.ffb3a8p-9 "
        "-0x1.2609ep-9 -0x1.3fc738p-10 -0x1.7912dcp-11 -0x1.ac73f2p-12"
    ),
    p=(
        hex_row(
            "-0x1p-1 -0x1.6fd3dp-2 -0x1.be141p-3 -0x1.519058p-4 "
            "0x1.8cf9ep-6 0x1.2b66d4p-5 0x1.164ffep-5 0x1.6f9ea4p-6 "
            "0x1.e3076ep-7 0x1.4a27fap-7 0x1.850afap-8 0x1.af140ap-9 "
            "0x1.f8497p-10 0x1.167292p-10 0x1.4be76p-11 0x1.7cce1ap-12"
        ),
        hex_row(
            "0x1.03d264p-27 0x1.2d103ap-3 0x1.2c5634p-3 0x1.963528p-4 "
            "0x1.71f4fp-6 -0x1.366b92p-9 -0x1.660e7p-8 -0x1.b04834p-8 "
            "-0x1.4a4a14p-8 -0x1.e4a854p-9 -0x1.2f0776p-9 -0x1.5dfa5p-10 "
            "-0x1.a433dp-11 -0x1.da1256p-12 -0x1.1eae4ap-12 -0x1.4d1ffcp-13"
        ),
        hex_row(
            "0x1.5554fcp-4 0x1.6a67cep-6 -0x1.353d2cp-6 -0x1.161becp-5 "
            "-0x1.1b7c14p-6 -0x1.2d5372p-8 -0x1.1bc34p-9 0x1.320ebcp-11 "
            "0x1.ca04eep-11 0x1.955c8cp-11 0x1.1f48a8p-11 0x1.655cd4p-12 "
            "0x1.bf6e2cp-13 0x1.04a266p-13 0x1.41d034p-14 0x1.7c8284p-15"
        ),
        hex_row(
            "0x1.57fba6p-18 -0x1.b989b4p-6 -0x1.f2d3bcp-7 0x1.d8dd8ap-17 "
            "0x1.5caa94p-8 0x1.39a862p-9 0x1.91335ep-10 0x1.26bb46p-12 "
            "-0x1.771fb4p-18 -0x1.33a486p-14 -0x1.4df0f2p-14 -0x1.ec24fap-15 "
            "-0x1.4d454ep-15 -0x1.99b38cp-16 -0x1.051c5ep-16 -0x1.3cabap-17"
        ),
        hex_row(
            "-0x1.9acf4cp-7 0x1.fe9006p-10 0x1.b032f2p-8 0x1.fec95p-9 "
            "-0x1.212c92p-11 -0x1.48bd3p-11 -0x1.ec37b6p-12 -0x1.303d96p-13 "
            "-0x1.72f82p-15 -0x1.6cf47ap-17 0x1.0605cp-18 0x1.a559a6p-18 "
            "0x1.616ffap-18 0x1.da291ap-19 0x1.3f832cp-19 0x1.95411cp-20"
        ),
        hex_row(
            "0x1.134044p-13 0x1.b1cad4p-9 0x1.2f4aeep-13 -0x1.570302p-10 "
            "-0x1.dce5bep-13 0x1.97849p-14 0x1.58104ep-14 0x1.4116d4p-15 "
            "0x1.f79ceap-17 0x1.c76aeap-18 0x1.879504p-20 -0x1.857e6p-24 "
            "-0x1.cd8304p-22 -0x1.8bef4p-22 -0x1.318dc6p-22 -0x1.9efef6p-23"
        ),
        hex_row(
            "0x1.8628dp-10 -0x1.e16f2cp-12 -0x1.6f0c38p-11 0x1.ffb7a2p-14 "
            "0x1.38153cp-13 0x1.be31c2p-16 -0x1.69934cp-19 -0x1.02d2aap-17 "
            "-0x1.4186f8p-18 -0x1.0ed76ep-19 -0x1.2ef0f6p-21 -0x1.cc3112p-23 "
            "-0x1.c050a6p-22 0x1.8ce066p-26 0x1.1f4efap-25 0x1.ec3e3ep-32"
        ),
    ),
)

FAST_GELU = Segments(
    per_unit=float.fromhex("0x1.68p+1"),
    bound=float.fromhex("0x1.6p+2"),
    centre=hex_row(
        "0x0p+0 0x1.b04p-2 0x1.80974ap-1 0x1.0218p+0 "
        "0x1.67dp+0 0x1.d7d8p+0 0x1.1814p+1 0x1.43e8p+1 "
        "0x1.6b44p+1 0x1.aa74p+1 0x1.c4ap+1 0x1.f4f8p+1 "
        "0x1.169cp+2 0x1.29d8p+2 0x1.3dfap+2 0x1.54bep+2"
    ),
    c0=hex_row(
        "0x1p-1 0x1.5b052cp-3 0x1.24d84cp-28 -0x1.1ba82ep-4 "
        "-0x1.98eea4p-4 -0x1.55f12cp-4 -0x1.fcef3ap-5 -0x1.61f21ap-5 "
        "-0x1.ec1dap-6 -0x1.05b424p-6 -0x1.8e0458p-7 -0x1.d962a2p-8 "
        "-0x1.fc1902p-9 -0x1.4922bcp-9 -0x1.9f5216p-10 -0x1.ea5104p-11"
    ),
    p=(
        hex_row(
            "-0x1.b3b644p-1 -0x1.5077fp-1 -0x1.7b9cdap-2 -0x1.6b64e2p-3 "
            "-0x1.266976p-10 0x1.e70454p-5 0x1.f0d3b8p-5 0x1.91050ap-5 "
            "0x1.2db776p-5 0x1.5a979p-6 0x1.0d60d2p-6 0x1.4a8e42p-7 "
            "0x1.6c5b68p-8 0x1.dece3cp-9 0x1.31dfdp-9 0x1.6d659ep-10"
        ),
        hex_row(
            "-0x1.6287fep-18 0x1.9d56b4p-2 0x1.b30222p-2 0x1.459d5ap-2 "
            "0x1.12c378p-3 0x1.584f3ap-6 -0x1.7fc178p-7 -0x1.462b02p-6 "
            "-0x1.33b494p-6 -0x1.a23848p-7 -0x1.52890cp-7 -0x1.b6476ep-8 "
            "-0x1.f7a938p-9 -0x1.51ef92p-9 -0x1.b770ccp-10 -0x1.0ac042p-10"
        ),
        hex_row(
            "0x1.a4eaacp-2 0x1.469fa2p-3 -0x1.7d2e1cp-4 -0x1.524194p-3 "
            "-0x1.026c0ep-3 -0x1.9e3632p-5 -0x1.10475cp-6 -0x1.afa7d8p-10 "
            "0x1.a22e96p-9 0x1.113c98p-8 0x1.e897c6p-9 0x1.61b0d4p-9 "
            "0x1.b5f6c2p-10 0x1.2ffeb6p-10 0x1.961a86p-11 0x1.f8c3dp-12"
        ),
        hex_row(
            "-0x1.916b56p-9 -0x1.d738c4p-3 -0x1.059ccap-3 -0x1.329958p-6 "
            "0x1.8182eap-5 0x1.130046p-5 0x1.0f5a7ep-6 0x1.a4fc1p-8 "
            "0x1.06c2c2p-9 -0x1.aa44e8p-12 -0x1.4f068ep-11 -0x1.5e083ap-11 "
            "-0x1.00e8ccp-11 -0x1.7c5f26p-12 -0x1.0a398cp-12 -0x1.576c7p-13"
        ),
        hex_row(
            "-0x1.3a211ep-3 -0x1.419fdcp-14 0x1.832948p-4 0x1.116a3ap-4 "
            "0x1.737422p-8 -0x1.6aab02p-7 -0x1.05b918p-7 -0x1.0a3efep-8 "
            "-0x1.ec84aep-10 -0x1.c7b782p-12 -0x1.07b6ecp-13 0x1.ce9bdep-15 "
            "0x1.5f8a9p-14 0x1.499384p-14 0x1.fd5e2p-15 0x1.5959ecp-15"
        ),
        hex_row(
            "-0x1.9e9b5ap-4 0x1.71082ap-4 0x1.b708a8p-9 -0x1.e3db22p-6 "
            "-0x1.0467b8p-6 -0x1.484968p-13 0x1.18b384p-9 0x1.895cd2p-10 "
            "0x1.beef7ap-11 -0x1.44a7ap-18 0x1.388748p-13 0x1.0ddf08p-15 "
            "-0x1.2c5db2p-15 -0x1.82ac2ep-17 -0x1.39b4e8p-17 -0x1.23ac38p-17"
        ),
        hex_row(
            "0x1.d2692ap-3 -0x1.77657ap-7 -0x1.2f29b6p-5 -0x1.c770bcp-10 "
            "0x1.f3052ep-8 0x1.48e83ep-9 0x1.27250ap-12 -0x1.3331eap-11 "
            "-0x1.37fe36p-12 -0x1.c88d64p-12 -0x1.322c0ep-14 -0x1.8bb4dap-17 "
            "-0x1.02d0c6p-14 -0x1.c41dd6p-17 -0x1.ae1efap-18 0x1.538574p-17"
        ),
    ),
)

GELU_ERF = Segments(
    per_unit=float.fromhex("0x1.a4p+0"),
    bound=float.fromhex("0x1.1p+2"),
    centre=hex_row("0x0p+0 0x1.80eadp-1 0x1.18fp+0 0x1.d048p+0 0x1.4dbp+1 0x1.9c9cp+1 0x1.f248p+1 0x1.098p+2"),
    c0=hex_row(
        "0x1p-1 0x1.600b9ap-26 -0x1.a8087ap-4 -0x1.ad6bap-4 "
        "-0x1.eeeffap-6 -0x1.a98736p-8 -0x1.86f908p-11 -0x1.2c6c68p-12"
    ),
    p=(
        hex_row(
            "-0x1.988452p-1 -0x1.b9d992p-2 -0x1.6403fp-3 0x1.96c39p-4 "
            "0x1.060fcap-4 0x1.2fec38p-6 0x1.6038d8p-9 0x1.23730ap-10"
        ),
        hex_row(
            "-0x1.f543f8p-19 0x1.8d9a94p-2 0x1.572eb2p-2 0x1.96c99cp-5 "
            "-0x1.8e49fp-5 -0x1.7517f4p-6 -0x1.22aa82p-8 -0x1.06849ep-9"
        ),
        hex_row(
            "0x1.10763cp-2 0x1.2a2d3ep-6 -0x1.bc6cfap-4 -0x1.af847cp-4 "
            "0x1.7cf126p-8 0x1.d9b656p-7 0x1.1ca6eep-8 0x1.1ef54p-9"
        ),
        hex_row(
            "-0x1.a07832p-10 -0x1.d2fa94p-4 -0x1.fba392p-5 0x1.5f133p-5 "
            "0x1.f5e474p-7 -0x1.c63904p-9 -0x1.5f95d6p-9 -0x1.9d9ad4p-10"
        ),
        hex_row(
            "-0x1.8bcae8p-5 0x1.e49f54p-7 0x1.47c7bep-5 0x1.0181a6p-7 "
            "-0x1.5fc77cp-7 -0x1.c451a6p-10 0x1.f4972p-11 0x1.847d7ap-11"
        ),
        hex_row(
            "-0x1.744662p-5 0x1.3ece7p-6 0x1.facec6p-9 -0x1.62ae98p-7 "
            "0x1.fb9ffp-10 0x1.cbf8cp-10 -0x1.b6017p-15 -0x1.7bb67cp-13"
        ),
        hex_row(
            "0x1.a162a4p-4 -0x1.350ea2p-8 -0x1.e3927p-8 0x1.a2ec64p-10 "
            "0x1.026f56p-10 -0x1.4de444p-11 -0x1.09096p-13 0x1.f7a03ep-16"
        ),
        hex_row(
            "-0x1.38cff4p-4 -0x1.7f23fap-9 0x1.6e641ep-10 0x1.14863cp-10 "
            "-0x1.4d5bfp-11 -0x1.3c50fp-13 0x1.ae215ep-14 0x1.29c84ap-13"
        ),
    ),
)

GELU_TANH = Segments(
    per_unit=float.fromhex("0x1.9ap+0"),
    bound=float.fromhex("0x1.1p+2"),
    centre=hex_row("0x0p+0 0x1.8142ap-1 0x1.2418p+0 0x1.e8fp+0 0x1.4d7cp+1 0x1.ae5cp+1 0x1.f8f4p+1 0x1.0b44p+2"),
    c0=hex_row(
        "0x1p-1 -0x1.4f6404p-28 -0x1.c355e4p-4 -0x1.88255ep-4 "
        "-0x1.f328ecp-6 -0x1.fc7b8ap-9 -0x1.be72ccp-12 -0x1.3ada66p-13"
    ),
    p=(
        hex_row(
            "-0x1.988452p-1 -0x1.b8baccp-2 -0x1.2b25b8p-3 0x1.b00bfap-4 "
            "0x1.0dc41ap-4 0x1.a416bcp-7 0x1.dfbebp-10 0x1.740f74p-11"
        ),
        hex_row(
            "-0x1.b82abap-19 0x1.8cd1a2p-2 0x1.45a82ep-2 0x1.8ff5e6p-6 "
            "-0x1.923848p-5 -0x1.280a74p-6 -0x1.d1028cp-9 -0x1.924e5ap-10"
        ),
        hex_row(
            "0x1.11c9e2p-2 0x1.028ef8p-6 -0x1.e43efcp-4 -0x1.661696p-4 "
            "0x1.e3d81ap-9 0x1.b21df8p-7 0x1.067f2ep-8 0x1.035658p-9"
        ),
        hex_row(
            "-0x1.4552dap-10 -0x1.d2b674p-4 -0x1.9e7452p-5 0x1.5d95d8p-5 "
            "0x1.0dc608p-6 -0x1.11774ap-8 -0x1.6cd10ep-9 -0x1.aed58ap-10"
        ),
        hex_row(
            "-0x1.ae5376p-5 0x1.11496ep-6 0x1.4f20dep-5 0x1.b823bep-10 "
            "-0x1.458954p-7 -0x1.0a3f86p-10 0x1.19045p-10 0x1.c75616p-11"
        ),
        hex_row(
            "-0x1.0fccaep-5 0x1.435c4p-6 0x1.7f295ap-12 -0x1.0dfd5ep-7 "
            "0x1.4fa6d4p-10 0x1.6c96fcp-10 -0x1.946924p-15 -0x1.dfd7bcp-13"
        ),
        hex_row(
            "0x1.35ce2p-4 -0x1.80450ep-8 -0x1.cf63fcp-8 0x1.2a8b8ap-9 "
            "0x1.de51aap-11 -0x1.2f5716p-11 -0x1.858c64p-13 -0x1.65ba7ap-11"
        ),
        hex_row(
            "-0x1.b39f32p-5 -0x1.f60d1ep-9 0x1.d1dcbcp-10 0x1.e5620ep-12 "
            "-0x1.c54fa6p-12 -0x1.5a8a54p-13 0x1.6fb5c4p-14 -0x1.3235dap-9"
        ),
    ),
)
