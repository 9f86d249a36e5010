"""The constants of the float32 activations: h(a) = a·s(-a) on sixteen segments of equal width, a = abs(x).

``python -m benchmarks.fit_values`` finds and prints them; tests/test_values_coefficients.py recomputes the
entries in high precision and checks each segment.
"""

from __future__ import annotations

from aclnn.kernels.cpu.elementwise.coefficients import Segments, hex_row

SILU = Segments(
    per_unit=float.fromhex("0x1.ap+0"),
    bound=float.fromhex("0x1.3139e2p+3"),
    centre=hex_row(
        "0x0p+0 0x1.0acp-1 0x1.235p+0 0x1.09c8p+1 "
        "0x1.3aa4p+1 0x1.95d8p+1 0x1.cd14p+1 0x1.19a4p+2 "
        "0x1.40f2p+2 0x1.62ccp+2 0x1.8988p+2 0x1.b72ap+2 "
        "0x1.d89ap+2 0x1.0005p+3 0x1.13e1p+3 0x1.2a52p+3"
    ),
    c0=hex_row(
        "0x0p+0 0x1.8d95b8p-3 0x1.1ace0cp-2 0x1.d9c5bp-3 "
        "0x1.8cee46p-3 0x1.059764p-3 0x1.8798ap-4 0x1.b4f4bcp-5 "
        "0x1.0ef1bep-5 0x1.61efbap-6 0x1.ad6a76p-7 0x1.d64b82p-8 "
        "0x1.2c46d6p-8 0x1.5f73d2p-9 0x1.97456ep-10 0x1.b4ddfep-11"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.00d7fcp-2 0x1.12d776p-5 -0x1.81a44ep-4 "
            "-0x1.9850b4p-4 -0x1.511934p-4 -0x1.107de8p-4 -0x1.4c5daap-5 "
            "-0x1.ae4194p-6 -0x1.20b662p-6 -0x1.66aa2ep-7 -0x1.914432p-8 "
            "-0x1.036d3ep-8 -0x1.33680cp-9 -0x1.67f50ep-10 -0x1.85f772p-11"
        ),
        hex_row(
            "-0x1.fffffep-3 -0x1.befebcp-3 -0x1.0a33e8p-3 -0x1.39401p-6 "
            "0x1.4f94p-9 0x1.21dc7ap-6 0x1.2aa21p-6 0x1.c20792p-7 "
            "0x1.3c85aep-7 0x1.bd3c32p-8 0x1.1f4cdp-8 0x1.4be3ecp-9 "
            "0x1.b4e1d6p-10 0x1.0745bp-10 0x1.38964p-11 0x1.57090ep-12"
        ),
        hex_row(
            "-0x1.558f34p-21 0x1.36e788p-5 0x1.a0c1d4p-5 0x1.926f48p-6 "
            "0x1.c43328p-7 0x1.10ec56p-9 -0x1.ca432p-11 -0x1.2eafcep-9 "
            "-0x1.09cf8ep-9 -0x1.9d74a4p-10 -0x1.1e7c2ep-10 -0x1.5d2f4ap-11 "
            "-0x1.d88f62p-12 -0x1.23f7e6p-12 -0x1.617b2ep-13 -0x1.8ab948p-14"
        ),
        hex_row(
            "0x1.5579f2p-6 0x1.b4c37cp-7 -0x1.287966p-9 -0x1.0336dap-7 "
            "-0x1.8ad8ep-8 -0x1.3ebc52p-9 -0x1.21ddc2p-10 -0x1.2324e8p-16 "
            "0x1.9acffep-13 0x1.c59b16p-13 0x1.76ebbp-13 0x1.fcdfaep-14 "
            "0x1.69783cp-14 0x1.d102acp-15 0x1.21eebap-15 0x1.4bec84p-16"
        ),
        hex_row(
            "-0x1.a2d718p-15 -0x1.4900b4p-8 -0x1.0272f4p-8 0x1.e14ec8p-11 "
            "0x1.2744acp-10 0x1.95cbbp-11 0x1.e8494p-12 0x1.0b4db6p-13 "
            "0x1.b84cacp-16 -0x1.72674ap-18 -0x1.0c4a78p-16 -0x1.fafd8cp-17 "
            "-0x1.8d21fep-17 -0x1.13f6ap-17 -0x1.6a5cb6p-18 -0x1.b0a8e6p-19"
        ),
        hex_row(
            "-0x1.02a6a6p-9 -0x1.d615dcp-12 0x1.184586p-10 0x1.41774ep-11 "
            "0x1.c0cd9cp-16 -0x1.0acd1p-13 -0x1.894c72p-14 -0x1.93ee0cp-15 "
            "-0x1.4b6a9p-16 -0x1.7e9392p-18 -0x1.b21e02p-21 0x1.24bd0cp-21 "
            "0x1.0ae13cp-20 0x1.e08f0ep-21 0x1.56ae3cp-21 0x1.ad2e38p-22"
        ),
    ),
)

FAST_GELU = Segments(
    per_unit=float.fromhex("0x1.6p+1"),
    bound=float.fromhex("0x1.68b8c6p+2"),
    centre=hex_row(
        "0x0p+0 0x1.fa4p-3 0x1.54ap-1 0x1.16dp+0 "
        "0x1.74ep+0 0x1.d178p+0 0x1.1048p+1 0x1.4cacp+1 "
        "0x1.7b54p+1 0x1.a2acp+1 0x1.d844p+1 0x1.0398p+2 "
        "0x1.141p+2 0x1.2ec6p+2 0x1.492ap+2 0x1.60c8p+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.914c66p-4 0x1.4c16a8p-3 0x1.2e1af6p-3 "
        "0x1.cd6a88p-4 0x1.42b124p-4 0x1.c65308p-5 0x1.f89a12p-6 "
        "0x1.371a76p-6 0x1.981042p-7 0x1.c44bcap-8 0x1.0aabb6p-8 "
        "0x1.6e281cp-9 0x1.8ade32p-10 0x1.a9a50cp-11 0x1.e6e512p-12"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.2ec7d8p-2 0x1.1edd96p-5 -0x1.4e4ec4p-4 "
            "-0x1.97cdb6p-4 -0x1.5bf30ap-4 -0x1.0dc2b2p-4 -0x1.474058p-5 "
            "-0x1.a5207ep-6 -0x1.1b8fc2p-6 -0x1.42e3e2p-7 -0x1.83ac6cp-8 "
            "-0x1.0cf446p-8 -0x1.263134p-9 -0x1.40c97ap-10 -0x1.7225bep-11"
        ),
        hex_row(
            "-0x1.b3b644p-2 -0x1.8ecd5cp-2 -0x1.c81286p-3 -0x1.08aed2p-4 "
            "0x1.7c5d98p-8 0x1.dda7bep-6 0x1.fadf56p-6 0x1.7a8eaap-6 "
            "0x1.087328p-6 0x1.74c75ep-7 0x1.bb2e58p-8 0x1.114cacp-8 "
            "0x1.80edb8p-9 0x1.ad5dbp-10 0x1.db611cp-11 0x1.155b9ep-11"
        ),
        hex_row(
            "-0x1.e694d8p-20 0x1.7cff6ep-4 0x1.2e1c6ep-3 0x1.7adf12p-4 "
            "0x1.3ba592p-5 0x1.102d94p-7 -0x1.69fdaap-9 -0x1.b69abp-8 "
            "-0x1.7ca30ap-8 -0x1.279aap-8 -0x1.7c8298p-9 -0x1.eaa148p-10 "
            "-0x1.619d4p-10 -0x1.95f214p-11 -0x1.cb216cp-12 -0x1.0ff46p-12"
        ),
        hex_row(
            "0x1.a4e642p-4 0x1.3eb478p-4 -0x1.5b61b2p-7 -0x1.56526ap-5 "
            "-0x1.dd16bep-6 -0x1.ba317p-7 -0x1.579e28p-8 -0x1.fe6842p-17 "
            "0x1.01f694p-10 0x1.16b27ep-10 0x1.b28d8ep-11 0x1.318c46p-11 "
            "0x1.cac32ep-12 0x1.13e2bp-12 0x1.4225fcp-13 0x1.85e5f4p-14"
        ),
        hex_row(
            "-0x1.b74426p-12 -0x1.4788dp-5 -0x1.11b926p-5 0x1.ad3b04p-11 "
            "0x1.365f96p-7 0x1.c9fe0ep-8 0x1.f24806p-9 0x1.0d41f2p-10 "
            "0x1.a15baap-13 -0x1.af9fe2p-15 -0x1.1e7b9ep-13 -0x1.01e34p-13 "
            "-0x1.a9dcp-14 -0x1.17fad2p-14 -0x1.592e5ap-15 -0x1.ae87ap-16"
        ),
        hex_row(
            "-0x1.cdb966p-6 -0x1.9517bep-8 0x1.f5c622p-7 0x1.19abb2p-7 "
            "0x1.1f55e2p-12 -0x1.da553cp-10 -0x1.51c408p-10 -0x1.55f3cap-11 "
            "-0x1.1543e8p-12 -0x1.585028p-14 -0x1.8aa168p-19 0x1.f5e788p-17 "
            "0x1.ef4104p-17 0x1.9b2b08p-17 0x1.24b912p-17 0x1.977cbcp-18"
        ),
    ),
)

GELU_ERF = Segments(
    per_unit=float.fromhex("0x1.8p+1"),
    bound=float.fromhex("0x1.4aa96p+2"),
    centre=hex_row(
        "0x0p+0 0x1.e54p-3 0x1.3fdp-1 0x1.ffcp-1 "
        "0x1.6ea8p+0 0x1.b808p+0 0x1.008cp+1 0x1.307p+1 "
        "0x1.5c74p+1 0x1.861cp+1 0x1.b0b8p+1 0x1.e53cp+1 "
        "0x1.06a4p+2 0x1.18a6p+2 0x1.33ap+2 0x1.4664p+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.8a5d68p-4 0x1.546a6ep-3 0x1.45025cp-3 "
        "0x1.be10b2p-4 0x1.2d774cp-4 0x1.71c35cp-5 0x1.52c536p-6 "
        "0x1.212902p-7 0x1.cc8bcap-9 0x1.40782ap-10 0x1.2a56d8p-12 "
        "0x1.5dd558p-14 0x1.aa65aap-16 0x1.ef1a1ap-19 0x1.d156dep-21"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.41fd94p-2 0x1.f45aa6p-5 -0x1.54c6ap-4 "
            "-0x1.07dbf2p-3 -0x1.d1befcp-4 -0x1.5b3844p-4 -0x1.8434fp-5 "
            "-0x1.806daep-6 -0x1.5956a6p-7 -0x1.0bd892p-8 -0x1.18a742p-10 "
            "-0x1.64e986p-12 -0x1.d1687ep-14 -0x1.288b0cp-16 -0x1.27e6bap-18"
        ),
        hex_row(
            "-0x1.988454p-2 -0x1.820f48p-2 -0x1.0e8b1ep-2 -0x1.f04832p-4 "
            "0x1.e14ff4p-9 0x1.640852p-5 0x1.ba472p-5 0x1.61301p-5 "
            "0x1.b2d418p-6 0x1.ca1ca6p-7 0x1.968f8p-8 0x1.ea0844p-10 "
            "0x1.55f3d2p-11 0x1.e107ccp-13 0x1.53a12cp-15 0x1.69ad14p-17"
        ),
        hex_row(
            "0x1.a1ccbep-21 0x1.eee9fep-5 0x1.f94088p-4 0x1.efb7fep-4 "
            "0x1.108aacp-4 0x1.bedb06p-6 -0x1.41428ap-12 -0x1.fb79a6p-7 "
            "-0x1.f174e6p-7 -0x1.51b218p-7 -0x1.68f4fep-8 -0x1.038ea6p-9 "
            "-0x1.94ba7ap-11 -0x1.36c0e6p-12 -0x1.ec99a8p-15 -0x1.19cd18p-16"
        ),
        hex_row(
            "0x1.10446ep-4 0x1.ddf968p-5 0x1.3e6b18p-6 -0x1.49bc58p-6 "
            "-0x1.2c54c4p-5 -0x1.ee6b1cp-6 -0x1.23b462p-6 -0x1.cf5a9p-9 "
            "0x1.79934cp-9 0x1.0897ecp-8 0x1.887ae4p-9 0x1.6ad7a4p-10 "
            "0x1.45e51p-11 0x1.16387p-12 0x1.f809b4p-15 0x1.38dc76p-16"
        ),
        hex_row(
            "0x1.ba6fc4p-13 -0x1.b8e75cp-7 -0x1.84124ap-6 -0x1.08f37ap-6 "
            "0x1.37127ep-11 0x1.edd86ap-8 0x1.2762a6p-7 0x1.76d778p-8 "
            "0x1.f479dcp-10 -0x1.ac725p-13 -0x1.be4c66p-11 -0x1.4c365ep-11 "
            "-0x1.6e529ep-12 -0x1.67a064p-13 -0x1.82bdaep-15 -0x1.061484p-16"
        ),
        hex_row(
            "-0x1.6be6dp-7 -0x1.e584a8p-8 -0x1.8fc7dap-13 0x1.8b066ep-8 "
            "0x1.674a82p-8 0x1.497dbp-9 -0x1.ff06d2p-12 -0x1.010776p-9 "
            "-0x1.9f757ap-10 -0x1.5798d2p-11 -0x1.076d98p-14 0x1.5e7ea2p-13 "
            "0x1.1ad6e8p-13 0x1.4e3dbap-14 0x1.9d707cp-16 0x1.42c3ccp-17"
        ),
        hex_row(
            "0x1.4e2d68p-9 0x1.2cbc28p-10 0x1.937ddcp-9 0x1.b23112p-10 "
            "-0x1.39a3f6p-10 -0x1.65493ep-10 -0x1.a9fedap-10 -0x1.541d9ep-13 "
            "0x1.ad41a4p-13 0x1.74803ep-12 0x1.99fd5ep-13 0x1.377444p-15 "
            "-0x1.25dbcap-16 -0x1.aeb1d8p-16 -0x1.0481cp-16 -0x1.c5daaap-18"
        ),
    ),
)

GELU_TANH = Segments(
    per_unit=float.fromhex("0x1.ap+1"),
    bound=float.fromhex("0x1.3139e2p+2"),
    centre=hex_row(
        "0x0p+0 0x1.064p-2 0x1.38ep-1 0x1.d7fp-1 "
        "0x1.535p+0 0x1.7dfp+0 0x1.e2e8p+0 0x1.1a1p+1 "
        "0x1.40d8p+1 0x1.68c4p+1 0x1.9a18p+1 0x1.b6f8p+1 "
        "0x1.de34p+1 0x1.02d6p+2 0x1.19bep+2 0x1.2e1p+2"
    ),
    c0=hex_row(
        "0x0p+0 0x1.a27d24p-4 0x1.52b154p-3 0x1.50e56ap-3 "
        "0x1.f7342p-4 0x1.9f92bep-4 0x1.c9c37ap-5 0x1.ecf466p-6 "
        "0x1.e62348p-7 0x1.9f526p-8 0x1.e39162p-10 0x1.a8ae1p-11 "
        "0x1.e89a56p-13 0x1.dc2628p-15 0x1.2a607p-17 0x1.76c72cp-20"
    ),
    p=(
        hex_row(
            "0x1p-1 0x1.3348a8p-2 0x1.189726p-4 -0x1.fa07ap-5 "
            "-0x1.044ed8p-3 -0x1.060854p-3 -0x1.9243bap-4 -0x1.086786p-4 "
            "-0x1.32ccaep-5 -0x1.30a4c8p-6 -0x1.a48e28p-8 -0x1.95a86ep-9 "
            "-0x1.0793acp-10 -0x1.20a6dep-12 -0x1.9b8aa4p-15 -0x1.203884p-17"
        ),
        hex_row(
            "-0x1.988454p-2 -0x1.7e4112p-2 -0x1.134f02p-2 -0x1.3329a2p-3 "
            "-0x1.56d79p-6 0x1.c6bad2p-7 0x1.aabae4p-5 0x1.9faf9ep-5 "
            "0x1.35a67p-5 0x1.789d86p-6 0x1.41209p-7 0x1.5a29d8p-8 "
            "0x1.02d6aap-9 0x1.434b94p-11 0x1.09c1fep-13 0x1.a31e1cp-16"
        ),
        hex_row(
            "0x1.c2f186p-21 0x1.0aa75cp-4 0x1.f4d2bp-4 0x1.0158a8p-3 "
            "0x1.4e4524p-4 0x1.d90a84p-5 0x1.4faaaep-7 -0x1.51a492p-7 "
            "-0x1.0c5394p-6 -0x1.d77e54p-7 -0x1.105994p-7 -0x1.52db4cp-8 "
            "-0x1.2cd78ap-9 -0x1.b657fp-11 -0x1.a794fep-13 -0x1.7cf19p-15"
        ),
        hex_row(
            "0x1.119a4ep-4 0x1.d41bf6p-5 0x1.514b2ep-6 -0x1.c19186p-7 "
            "-0x1.22728cp-5 -0x1.226104p-5 -0x1.768e48p-6 -0x1.427a56p-7 "
            "-0x1.f2a7f2p-11 0x1.badab2p-9 0x1.fc7d6p-9 0x1.8c1a5ep-9 "
            "0x1.bd4bb4p-10 0x1.89aaap-11 0x1.ccc60ep-13 0x1.e16158p-15"
        ),
        hex_row(
            "0x1.13a232p-12 -0x1.df69eep-7 -0x1.87165ep-6 -0x1.2eb362p-6 "
            "-0x1.76af56p-9 0x1.56300cp-9 0x1.1689c2p-7 0x1.df327ap-8 "
            "0x1.1a4488p-8 0x1.71b8bp-10 -0x1.1eb0cp-11 -0x1.cf250ap-11 "
            "-0x1.95954ep-11 -0x1.dae6a6p-12 -0x1.6331cap-13 -0x1.bc863cp-15"
        ),
        hex_row(
            "-0x1.7f5c48p-7 -0x1.e03052p-8 -0x1.ba0e52p-13 0x1.684a5ep-8 "
            "0x1.7c4718p-8 0x1.3e4418p-8 0x1.46fefp-11 -0x1.a7ce7ep-10 "
            "-0x1.c4d59ap-10 -0x1.37c77cp-10 -0x1.a870acp-12 -0x1.3e72c2p-14 "
            "0x1.3e9ef2p-13 0x1.61695p-13 0x1.7d4cb6p-14 0x1.242ad4p-15"
        ),
        hex_row(
            "0x1.c78022p-9 0x1.4e17p-10 0x1.ae92p-9 0x1.7ad6f8p-10 "
            "-0x1.751da6p-10 -0x1.219278p-9 -0x1.1a658ep-10 -0x1.08987ap-10 "
            "0x1.328694p-14 0x1.d8df7cp-12 0x1.58280ap-12 0x1.916666p-13 "
            "0x1.0d5d0ap-14 -0x1.e8a6b8p-17 -0x1.1ab14p-15 -0x1.721866p-16"
        ),
    ),
)
