"""Every constant of the derivatives of 16-bit x: hexadecimal floats, each exactly a float32.

``python -m benchmarks.fit_sixteen_bit`` finds them and says how; tests/test_sixteen_bit_slopes.py checks them all.
"""

from __future__ import annotations

from typing import NamedTuple

from aclnn.dtypes import DataType
from aclnn.kernels.cpu.coefficients import Row, _row

SEGMENTS = 32


class ShortSegments(NamedTuple):
    """f(x) = c[0][i] + r·(c[1][i] + …) with i = round((x + shift)·per_unit) modulo 32 and r = x - centre[i]."""

    per_unit: float
    """Segments per unit of x: the reciprocal of their width."""
    zero: float
    """Where f is zero, rounded to float32."""
    c: tuple[Row, ...]
    shift: float = 0.0

    @property
    def bound(self) -> float:
        """Largest magnitude of x, a little inside the last segment: its upper edge has the first one's number."""
        return (SEGMENTS / 2 - 0.6) / self.per_unit - self.shift

    @property
    def centre(self) -> Row:
        """The middles of the segments, but the zero in the segment where that lies."""
        numbers = (*range(SEGMENTS // 2), *range(-SEGMENTS // 2, 0))
        middles = [number / self.per_unit - self.shift for number in numbers]
        return tuple(self.zero if abs(middle - self.zero) < 0.5 / self.per_unit else middle for middle in middles)


SILU_FLOAT16 = ShortSegments(
    per_unit=2.75,
    zero=float.fromhex("-0x1.474974p+0"),
    # Near 0 a float32 cannot tell f from 1/2 + x/2, often a tie of float16. The true value is below it for positive x,
    # above it for negative x: segments that meet at 0 can have that.
    shift=float.fromhex("0x1.745d16p-3"),  # a little less than half a segment: zeros belong to the lower one
    c=(
        _row(
            "0x1.a36b66p-2 0x1.2e4a4ep-1 0x1.850262p-1 0x1.cc3e7ep-1 0x1.ff5b92p-1 0x1.0f6c54p+0 "
            "0x1.173da4p+0 0x1.198b2ap+0 0x1.188306p+0 0x1.15c78ep+0 0x1.126b4cp+0 0x1.0f0e7p+0 "
            "0x1.0c0268p+0 0x1.0967cp+0 0x1.074356p+0 0x1.058c0cp+0 -0x1.93e99cp-7 -0x1.0cbd12p-6 "
            "-0x1.63030ap-6 -0x1.d0d58cp-6 -0x1.2cf81cp-5 -0x1.804d1ap-5 -0x1.e1cdecp-5 -0x1.26b4c6p-4 "
            "-0x1.5c78fp-4 -0x1.88307p-4 -0x1.98b2a8p-4 -0x1.73da3p-4 -0x1.ed8a7cp-5 -0x1.848c52p-29 "
            "0x1.9e0c1ap-4 0x1.ebf678p-3"
        ),
        _row(
            "0x1.f79a54p-2 0x1.f79a3ap-2 0x1.b931ecp-2 0x1.52230cp-2 0x1.c18854p-3 0x1.f5260cp-4 "
            "0x1.9a1c32p-5 0x1.b9710cp-9 -0x1.72773ap-6 -0x1.181d2p-5 -0x1.2e59aap-5 -0x1.1d0006p-5 "
            "-0x1.f30c8p-6 -0x1.a132a2p-6 -0x1.520252p-6 -0x1.0bc616p-6 -0x1.40e468p-7 -0x1.a13a7ap-7 "
            "-0x1.0bc62cp-6 -0x1.52027ep-6 -0x1.a132f6p-6 -0x1.f30dp-6 -0x1.1d005ap-5 -0x1.2e5a1cp-5 "
            "-0x1.181daap-5 -0x1.7277bcp-6 0x1.b9766cp-9 0x1.9a1dc4p-5 0x1.f5269ep-4 0x1.be1486p-3 "
            "0x1.52231ep-2 0x1.b931e8p-2"
        ),
        _row(
            "0x1.6e34b2p-5 -0x1.6e1fbep-5 -0x1.e2048p-4 -0x1.372a4ap-3 -0x1.2cfe4cp-3 -0x1.e1f15ap-4 "
            "-0x1.4c2dbep-4 -0x1.8d8aeap-5 -0x1.8fae6ap-6 -0x1.1d839cp-7 0x1.66121ap-12 0x1.4034acp-8 "
            "0x1.b5c568p-8 0x1.c40beep-8 0x1.9e79f4p-8 0x1.649d02p-8 -0x1.d8fbaap-9 -0x1.2671a4p-8 "
            "-0x1.647af6p-8 -0x1.9e5242p-8 -0x1.c342eap-8 -0x1.b5126cp-8 -0x1.40b164p-8 -0x1.63748cp-12 "
            "0x1.1de904p-7 0x1.8fe288p-6 0x1.8d96e4p-5 0x1.4c28e8p-4 0x1.e1f7a6p-4 0x1.2c567ap-3 "
            "0x1.37289cp-3 0x1.e20822p-4"
        ),
        _row(
            "-0x1.42b632p-4 -0x1.42ac06p-4 -0x1.9fde0ep-5 -0x1.8b4d96p-7 0x1.2b2ef4p-6 0x1.08794ap-5 "
            "0x1.0c4d1p-5 0x1.ad90d6p-6 0x1.27c1b4p-6 0x1.6944bep-7 0x1.8678d2p-8 0x1.603edp-9 "
            "0x1.93a5c2p-11 -0x1.03787ep-12 -0x1.759472p-11 -0x1.c54f3ep-11 -0x1.8f2c8cp-11 -0x1.be1ad2p-11 "
            "-0x1.c49d2ap-11 -0x1.74335cp-11 -0x1.fb7caap-13 0x1.97e582p-11 0x1.61835ep-9 0x1.870618p-8 "
            "0x1.69cb04p-7 0x1.27e8a2p-6 0x1.ad6acep-6 0x1.0c12eap-5 0x1.084baep-5 0x1.31b686p-6 "
            "-0x1.8b68e6p-7 -0x1.9fd93p-5"
        ),
        _row(
            "-0x1.5e861cp-7 0x1.527f3cp-7 0x1.a102acp-6 0x1.a18bbep-6 0x1.f835e2p-7 0x1.1d78eap-8 "
            "-0x1.66817cp-9 -0x1.72b2c6p-8 -0x1.774efcp-8 -0x1.263a96p-8 -0x1.78841cp-9 -0x1.91b62ap-10 "
            "-0x1.491ff6p-10 -0x1.ad7c34p-11 -0x1.0a3fp-12 -0x1.629f26p-14 -0x1.392eb2p-14 -0x1.62e8d6p-15 "
            "0x1.dbec24p-16 0x1.8f1c18p-13 0x1.f0acbp-12 0x1.f7669p-11 0x1.c43b1p-10 0x1.71215p-9 "
            "0x1.1175d6p-8 0x1.6124a8p-8 0x1.69091p-8 0x1.715032p-9 -0x1.2d168ep-8 -0x1.f4f85p-7 "
            "-0x1.9f7bbp-6 -0x1.a3123ap-6"
        ),
    ),
)

SILU_BFLOAT16 = ShortSegments(
    per_unit=2.0,
    zero=float.fromhex("-0x1.474974p+0"),
    c=(
        _row(
            "0x1p-1 0x1.7adc2ep-1 0x1.daf7ap-1 0x1.0a9242p+0 0x1.173da4p+0 0x1.19725ap+0 "
            "0x1.168dfep+0 0x1.11fd7p+0 0x1.0d7b6ep+0 0x1.09b48ap+0 0x1.06cbdp+0 0x1.04aa5cp+0 "
            "0x1.0327d4p+0 0x1.021c24p+0 0x1.0165dcp+0 0x1.00eb54p+0 -0x1.339132p-9 -0x1.d6a63ap-9 "
            "-0x1.65dbfp-8 -0x1.0e11bp-7 -0x1.93e99cp-7 -0x1.2a972p-6 -0x1.b2f402p-6 -0x1.369152p-5 "
            "-0x1.af6db4p-5 -0x1.1fd6f4p-4 -0x1.68dfdcp-4 -0x1.9725ap-4 -0x1.73da3ap-4 -0x1.0d5d1cp-26 "
            "0x1.284368p-4 0x1.0a4798p-2"
        ),
        _row(
            "0x1.fffb14p-2 0x1.c3cffp-2 0x1.35a0f6p-2 0x1.3fe84p-3 0x1.9a21e4p-5 -0x1.15497ap-7 "
            "-0x1.08c876p-5 -0x1.2dcefp-5 -0x1.0c919ap-5 -0x1.ab7a4ap-6 -0x1.3f7a2ep-6 -0x1.caf324p-7 "
            "-0x1.40e5d6p-7 -0x1.b824dap-8 -0x1.297fdep-8 -0x1.8da69ap-9 -0x1.0767b6p-9 -0x1.8dac9cp-9 "
            "-0x1.297ffep-8 -0x1.b8228ep-8 -0x1.40e47cp-7 -0x1.caf352p-7 -0x1.3f7a28p-6 -0x1.ab7b0ep-6 "
            "-0x1.0c91fp-5 -0x1.2dcfaap-5 -0x1.08c8c4p-5 -0x1.154978p-7 0x1.9a2298p-5 0x1.be139ap-3 "
            "0x1.35a062p-2 0x1.c3cffp-2"
        ),
        _row(
            "-0x1.0dfd0cp-17 -0x1.c43938p-4 -0x1.3b4796p-3 -0x1.0af0f2p-3 -0x1.4c2d3p-4 -0x1.3ad6a2p-5 "
            "-0x1.874fbap-7 0x1.23baccp-10 0x1.8bd57p-8 0x1.c53b34p-8 0x1.90fe68p-8 0x1.3d937cp-8 "
            "0x1.d845dep-9 0x1.526588p-9 0x1.d930aap-10 0x1.42bdd6p-10 -0x1.b62aa8p-11 -0x1.444dbap-10 "
            "-0x1.d94fdcp-10 -0x1.52f5bap-9 -0x1.d8fb88p-9 -0x1.3d8a86p-8 -0x1.90fb86p-8 -0x1.c51a24p-8 "
            "-0x1.8be272p-8 -0x1.2424aep-10 0x1.874d82p-7 0x1.3ad6a2p-5 0x1.4c2e4p-4 0x1.2c94a2p-3 "
            "0x1.3b2aa6p-3 0x1.c45166p-4"
        ),
        _row(
            "-0x1.50df52p-4 -0x1.c37554p-5 -0x1.b5f0f2p-9 0x1.d60722p-6 0x1.0b5696p-5 0x1.7b288cp-6 "
            "0x1.9e6dd8p-7 0x1.6787fap-8 0x1.a659aap-10 -0x1.2f2228p-13 -0x1.920a18p-11 -0x1.c59af6p-11 "
            "-0x1.8c95d4p-11 -0x1.3858b2p-11 -0x1.d3263p-12 -0x1.5129fcp-12 -0x1.d21468p-13 -0x1.4e1d8p-12 "
            "-0x1.d30094p-12 -0x1.3a6546p-11 -0x1.8ef43cp-11 -0x1.c66ab4p-11 -0x1.92191ep-11 -0x1.2ad21p-13 "
            "0x1.a72c1p-10 0x1.67f7ap-8 0x1.9e84eep-7 0x1.7b286cp-6 0x1.0b4914p-5 0x1.4f4f6ap-6 "
            "-0x1.afb242p-9 -0x1.c37568p-5"
        ),
        _row(
            "0x1.f7f1f2p-13 0x1.8b3aeep-6 0x1.7fd3a8p-6 0x1.0d345cp-7 -0x1.695fe8p-9 -0x1.732c28p-8 "
            "-0x1.276b8ap-8 -0x1.5b586p-9 -0x1.548ef8p-10 -0x1.22041ep-11 -0x1.2edc2ep-13 0x1.51af5ap-16 "
            "0x1.423458p-13 0x1.2d9b1ep-13 0x1.485688p-14 0x1.3c294p-13 -0x1.587efp-15 -0x1.d15238p-15 "
            "-0x1.29298cp-14 -0x1.57a70cp-14 -0x1.396202p-14 -0x1.5be02p-16 0x1.29803ep-13 0x1.1378ecp-11 "
            "0x1.5611eep-10 0x1.5cfd4cp-9 0x1.276222p-8 0x1.732ce8p-8 0x1.65c6b2p-9 -0x1.32403cp-7 "
            "-0x1.70f7f4p-6 -0x1.9148e8p-6"
        ),
    ),
)

FAST_GELU_FLOAT16 = ShortSegments(
    per_unit=3.5,
    zero=float.fromhex("-0x1.80974ap-1"),
    c=(
        _row(
            "0x1p-1 0x1.77c05ap-1 0x1.d6a96ap-1 0x1.08de8p+0 0x1.16795p+0 0x1.198c0ap+0 "
            "0x1.173684p+0 0x1.12e59p+0 0x1.0e6bc4p+0 0x1.0a8e82p+0 0x1.0782bcp+0 0x1.053c42p+0 "
            "0x1.039814p+0 0x1.02703ap+0 0x1.01a38ep+0 0x1.0117d8p+0 -0x1.72f5cep-9 -0x1.17d8fep-8 "
            "-0x1.a38dd6p-8 -0x1.381c92p-7 -0x1.cc09aap-7 -0x1.4f105ep-6 -0x1.e0af24p-6 -0x1.51d038p-5 "
            "-0x1.cd789p-5 -0x1.2e5902p-4 -0x1.736848p-4 -0x1.98c0a2p-4 -0x1.6794fp-4 0x1.24e318p-28 "
            "0x1.4ab4aap-4 0x1.107f4cp-2"
        ),
        _row(
            "0x1.b3b644p-1 0x1.831c02p-1 0x1.0ed744p-1 0x1.232ca2p-2 0x1.9d1b24p-4 -0x1.3ec35ap-8 "
            "-0x1.a38abcp-5 -0x1.013626p-4 -0x1.daaf22p-5 -0x1.839f42p-5 -0x1.27dbf2p-5 -0x1.b0fe08p-6 "
            "-0x1.33f636p-6 -0x1.ad4694p-7 -0x1.26b2ccp-7 -0x1.8fecfp-8 -0x1.0cd7f2p-8 -0x1.8fec22p-8 "
            "-0x1.26b2e6p-7 -0x1.ad466ep-7 -0x1.33f63ap-6 -0x1.b0fe1ap-6 -0x1.27dbfcp-5 -0x1.839f4p-5 "
            "-0x1.daaf1ep-5 -0x1.013624p-4 -0x1.a38ac2p-5 -0x1.3ec37p-8 0x1.9d1b1cp-4 0x1.7b9cd6p-2 "
            "0x1.0ed738p-1 0x1.831c02p-1"
        ),
        _row(
            "0x1.5d1fcep-24 -0x1.40ac2ep-2 -0x1.c79972p-2 -0x1.8d08p-2 -0x1.00bfb8p-2 -0x1.0133ecp-3 "
            "-0x1.698196p-5 -0x1.cad09ap-10 0x1.017936p-6 0x1.485dap-6 0x1.30dadcp-6 0x1.f10314p-7 "
            "0x1.7ad0dcp-7 0x1.14bdfcp-7 0x1.8a38e2p-8 0x1.140ae6p-8 -0x1.797fb6p-9 -0x1.12eaep-8 "
            "-0x1.8a7a68p-8 -0x1.156968p-7 -0x1.7b56e6p-7 -0x1.f16bacp-7 -0x1.30a34ep-6 -0x1.4876b4p-6 "
            "-0x1.014716p-6 0x1.cb9bp-10 0x1.699a32p-5 0x1.0134cap-3 0x1.00b932p-2 0x1.b301eap-2 "
            "0x1.c79c58p-2 0x1.40ad5cp-2"
        ),
        _row(
            "-0x1.a4b32cp-2 -0x1.1f032ap-2 -0x1.c387aap-6 0x1.17ea06p-3 0x1.511648p-3 0x1.f2f89cp-4 "
            "0x1.1d5f5cp-4 0x1.07a068p-5 0x1.644beap-7 0x1.5b31b8p-11 -0x1.b5db88p-9 -0x1.1a200cp-8 "
            "-0x1.051a9ap-8 -0x1.a9476ep-9 -0x1.446624p-9 -0x1.c5d05ep-10 -0x1.50c392p-10 -0x1.d9ba7p-10 "
            "-0x1.441b2ap-9 -0x1.a98baep-9 -0x1.05165ep-8 -0x1.19f0c4p-8 -0x1.b5656ap-9 0x1.5b0fbap-11 "
            "0x1.644748p-7 0x1.079e36p-5 0x1.1d61dp-4 0x1.f2f95cp-4 0x1.5116dap-3 0x1.7d764ap-4 "
            "-0x1.c2693p-6 -0x1.1efc18p-2"
        ),
        _row(
            "-0x1.a32ab8p-18 0x1.9afd4cp-3 0x1.9c7dp-3 0x1.413ed2p-4 -0x1.026d98p-6 -0x1.82c13p-5 "
            "-0x1.4f2fbp-5 -0x1.9f80bap-6 -0x1.bf7604p-7 -0x1.5e843cp-8 -0x1.485e16p-9 0x1.096de6p-11 "
            "0x1.5f8164p-10 0x1.bf778p-10 0x1.b710dp-11 -0x1.704beep-12 -0x1.9dbe78p-12 -0x1.110e3cp-11 "
            "-0x1.50debp-11 -0x1.6896eep-11 -0x1.1d370ap-11 0x1.c13f2ep-14 0x1.e5ae3ep-10 0x1.720e96p-8 "
            "0x1.abee2ap-7 0x1.9d0608p-6 0x1.4a6d2ep-5 0x1.82322ap-5 0x1.16c3d8p-6 -0x1.03495ap-3 "
            "-0x1.9dbc12p-3 -0x1.9b94e8p-3"
        ),
        _row(
            "0x1.689d24p-3 0x1.3d4e6ap-4 -0x1.09d3b8p-4 -0x1.6c4e0cp-4 -0x1.57e158p-5 -0x1.f3f89cp-9 "
            "0x1.48ef2p-7 0x1.4bd4c4p-7 0x1.bceeecp-8 0x1.e4e86p-9 0x1.fb54a8p-10 0x1.bd9e9cp-11 "
            "0x1.c71f6p-13 0x1.2c7caep-23 0x1.c90c8p-16 -0x1.f90944p-9 -0x1.51db86p-14 -0x1.7c5ccp-14 "
            "-0x1.33badp-14 0x1.24e87ep-16 0x1.d91944p-13 0x1.8159b4p-11 0x1.d4192ep-10 0x1.e49466p-9 "
            "0x1.bbdee4p-8 0x1.4c4816p-7 0x1.45a582p-7 -0x1.f73454p-9 -0x1.572e02p-5 -0x1.704a52p-4 "
            "-0x1.14d02p-4 0x1.37c8f2p-4"
        ),
    ),
)

FAST_GELU_BFLOAT16 = ShortSegments(
    per_unit=3.5,
    zero=float.fromhex("-0x1.80974ap-1"),
    c=(
        _row(
            "0x1p-1 0x1.77c058p-1 0x1.d6a96cp-1 0x1.08de8p+0 0x1.16795p+0 0x1.198c0ap+0 "
            "0x1.173684p+0 0x1.12e59p+0 0x1.0e6bc4p+0 0x1.0a8e82p+0 0x1.0782bcp+0 0x1.053c42p+0 "
            "0x1.039814p+0 0x1.02703ap+0 0x1.01a38ep+0 0x1.0117d8p+0 -0x1.72f5cep-9 -0x1.17d8fep-8 "
            "-0x1.a38dd6p-8 -0x1.381c92p-7 -0x1.cc09aap-7 -0x1.4f105ep-6 -0x1.e0af26p-6 -0x1.51d038p-5 "
            "-0x1.cd7892p-5 -0x1.2e5904p-4 -0x1.736848p-4 -0x1.98c0a2p-4 -0x1.6794fap-4 0x1.03f804p-28 "
            "0x1.4ab4ecp-4 0x1.107f48p-2"
        ),
        _row(
            "0x1.b3b3aap-1 0x1.831abap-1 0x1.0ed842p-1 0x1.232f8p-2 0x1.9d1fd6p-4 -0x1.3ebd64p-8 "
            "-0x1.a38c42p-5 -0x1.01375ap-4 -0x1.daaf74p-5 -0x1.839f7cp-5 -0x1.27dbc4p-5 -0x1.b0fd9ep-6 "
            "-0x1.33f60ep-6 -0x1.ad47c2p-7 -0x1.26b36ap-7 -0x1.8ff52cp-8 -0x1.0cd7dep-8 -0x1.8fec06p-8 "
            "-0x1.26b2dcp-7 -0x1.ad466cp-7 -0x1.33f64ep-6 -0x1.b0fe76p-6 -0x1.27dc6cp-5 -0x1.839ffap-5 "
            "-0x1.dab06ap-5 -0x1.013764p-4 -0x1.a38d02p-5 -0x1.3ebc3p-8 0x1.9d2078p-4 0x1.7b9b7cp-2 "
            "0x1.0ed80cp-1 0x1.831ac6p-1"
        ),
        _row(
            "0x1.daf056p-15 -0x1.40a618p-2 -0x1.c79eeep-2 -0x1.8d0accp-2 -0x1.00bccap-2 -0x1.013476p-3 "
            "-0x1.69905ap-5 -0x1.cb638p-10 0x1.0154f6p-6 0x1.486e72p-6 0x1.30ca58p-6 0x1.f1149ap-7 "
            "0x1.7abf16p-7 0x1.14a46ap-7 0x1.8a2e58p-8 0x1.1476b4p-8 -0x1.797e64p-9 -0x1.12eaccp-8 "
            "-0x1.8a7abp-8 -0x1.15694p-7 -0x1.7b571ap-7 -0x1.f16ce6p-7 -0x1.30a064p-6 -0x1.487702p-6 "
            "-0x1.013bd8p-6 0x1.cc2d3cp-10 0x1.699ad4p-5 0x1.01351p-3 0x1.00bde8p-2 0x1.b31564p-2 "
            "0x1.c781d8p-2 0x1.40b52ep-2"
        ),
        _row(
            "-0x1.a04754p-2 -0x1.1d03b2p-2 -0x1.dd739cp-6 0x1.1359bcp-3 0x1.4f0af6p-3 0x1.f29d16p-4 "
            "0x1.1e3c9p-4 0x1.09a24p-5 0x1.680838p-7 0x1.7cd516p-11 -0x1.b2ddc8p-9 -0x1.19f52ep-8 "
            "-0x1.053b8ap-8 -0x1.a72a76p-9 -0x1.434692p-9 -0x1.cbc3cap-10 -0x1.5123b4p-10 -0x1.da2f8p-10 "
            "-0x1.444b48p-9 -0x1.a986e4p-9 -0x1.04c6fep-8 -0x1.18c3e2p-8 -0x1.afb346p-9 0x1.856a22p-11 "
            "0x1.69115ep-7 0x1.09a71ep-5 0x1.1e54ap-4 0x1.f2985ep-4 0x1.4ef906p-3 0x1.90921cp-4 "
            "-0x1.dbc572p-6 -0x1.1d093ep-2"
        ),
        _row(
            "-0x1.a1a644p-9 0x1.98b41ep-3 0x1.9ed4b8p-3 0x1.43a5dcp-4 -0x1.0b79acp-6 -0x1.825138p-5 "
            "-0x1.4bbf7ap-5 -0x1.9d6334p-6 -0x1.ad2bfp-7 -0x1.6e66e8p-8 -0x1.238d2ep-9 0x1.5db18cp-12 "
            "0x1.981aeap-10 0x1.089754p-9 0x1.da883cp-11 -0x1.6ff09cp-11 -0x1.a17b5p-12 -0x1.117f78p-11 "
            "-0x1.50cb6ep-11 -0x1.693b8p-11 -0x1.1cf0e8p-11 0x1.eb9288p-14 0x1.db6ebep-10 0x1.7268f4p-8 "
            "0x1.a5cde4p-7 0x1.9b5b5cp-6 0x1.4a38c8p-5 0x1.81fe6cp-5 0x1.062522p-6 -0x1.6582bp-4 "
            "-0x1.935fdcp-3 -0x1.9ebe44p-3"
        ),
    ),
)

GELU_ERF_FLOAT16 = ShortSegments(
    per_unit=3.5,
    zero=float.fromhex("-0x1.80ead2p-1"),
    c=(
        _row(
            "0x1p-1 0x1.7199c6p-1 0x1.d1cdbep-1 0x1.0a884p+0 0x1.1c5996p+0 0x1.20fd16p+0 "
            "0x1.1d35ecp+0 0x1.15d1cp+0 0x1.0e46cep+0 0x1.0854a8p+0 0x1.0460dcp+0 0x1.0215cap+0 "
            "0x1.00e742p+0 0x1.005b64p+0 0x1.002102p+0 0x1.000aeap+0 -0x1.a700acp-15 -0x1.5d26dp-13 "
            "-0x1.080eb6p-11 -0x1.6d8e3ap-10 -0x1.ce839ap-9 -0x1.0ae568p-7 -0x1.1836d2p-6 -0x1.0a94eep-5 "
            "-0x1.c8d9dap-5 -0x1.5d1c06p-4 -0x1.d35f3p-4 -0x1.07e8bp-3 -0x1.c5996p-4 -0x1.674f9ep-28 "
            "0x1.71920ep-4 0x1.1ccc74p-2"
        ),
        _row(
            "0x1.98843cp-1 0x1.782bd2p-1 0x1.225496p-1 0x1.65fd06p-2 0x1.270de2p-3 -0x1.80a6bap-8 "
            "-0x1.60f044p-4 -0x1.ba4b44p-4 -0x1.829654p-4 -0x1.14480cp-4 -0x1.540052p-5 -0x1.70d73ap-6 "
            "-0x1.6546a4p-7 -0x1.377122p-8 -0x1.eb27eap-10 -0x1.5f9096p-11 -0x1.ca2988p-13 -0x1.5f979cp-11 "
            "-0x1.eb28aep-10 -0x1.3770fcp-8 -0x1.6546a4p-7 -0x1.70d71ep-6 -0x1.54004ap-5 -0x1.14480ap-4 "
            "-0x1.82965p-4 -0x1.ba4b44p-4 -0x1.60ed48p-4 -0x1.80a5dcp-8 0x1.270de2p-3 0x1.b9d992p-2 "
            "0x1.22549p-1 0x1.782bb2p-1"
        ),
        _row(
            "-0x1.d93feep-21 -0x1.b70de8p-3 -0x1.6c2b86p-2 -0x1.8bf0ep-2 -0x1.47490ep-2 -0x1.9c1facp-3 "
            "-0x1.554abp-4 0x1.5681c4p-19 0x1.4fb68ap-5 0x1.9242ecp-5 0x1.47f7aep-5 0x1.b0c68ap-6 "
            "0x1.e6c22cp-7 0x1.dfa36ap-8 0x1.a48aa6p-9 0x1.45af5ep-10 -0x1.d42bf2p-12 -0x1.4aaa2ep-10 "
            "-0x1.a4fdbcp-9 -0x1.e05418p-8 -0x1.e6e904p-7 -0x1.b075cp-6 -0x1.481aaap-5 -0x1.925f0ep-5 "
            "-0x1.4f8dep-5 0x1.e1f572p-20 0x1.55f98cp-4 0x1.9c206cp-3 0x1.47491p-2 0x1.8d9b06p-2 "
            "0x1.6c2c5cp-2 0x1.b70e1ap-3"
        ),
        _row(
            "-0x1.10377p-2 -0x1.c115dap-3 -0x1.a52b58p-4 0x1.c6db6ap-6 0x1.e72758p-4 0x1.2c6c86p-3 "
            "0x1.f2dff8p-4 0x1.26d2ap-4 0x1.a5b64ep-6 -0x1.ca94b8p-9 -0x1.f03504p-7 -0x1.f9e5fap-7 "
            "-0x1.6d9e58p-7 -0x1.ae1c9ep-8 -0x1.b16016p-9 -0x1.7f5114p-10 -0x1.297caap-11 -0x1.7cf4cep-10 "
            "-0x1.b0b544p-9 -0x1.ae2cdcp-8 -0x1.6d9cfcp-7 -0x1.fa0562p-7 -0x1.f04a5p-7 -0x1.caab2ep-9 "
            "0x1.a5b378p-6 0x1.26dc6ep-4 0x1.f12ddp-4 0x1.2c6184p-3 0x1.e7286ep-4 -0x1.2b2a36p-6 "
            "-0x1.a507fep-4 -0x1.c0afa6p-3"
        ),
        _row(
            "0x1.49eecep-14 0x1.3dde3ep-4 0x1.dc4dbap-4 0x1.a731a8p-4 0x1.af6e48p-5 -0x1.2c53c8p-9 "
            "-0x1.72bc76p-5 -0x1.6fa282p-5 -0x1.1d8be2p-5 -0x1.10418cp-6 -0x1.bd5b4ep-9 0x1.9c9cd2p-10 "
            "0x1.2665p-8 0x1.0921dcp-8 0x1.3335bcp-9 0x1.11b49p-9 -0x1.0597b4p-11 -0x1.277c4p-10 "
            "-0x1.1ef8bp-9 -0x1.cd6fd2p-9 -0x1.175c98p-8 -0x1.4aea16p-9 0x1.14429ep-8 0x1.1b3716p-6 "
            "0x1.159ff8p-5 0x1.6ea42ap-5 0x1.2eeadap-5 0x1.216004p-9 -0x1.af725p-5 -0x1.d8e70cp-4 "
            "-0x1.dd0548p-4 -0x1.3df5ecp-4"
        ),
        _row(
            "0x1.c3e294p-5 0x1.6d01e8p-5 0x1.07c1p-7 -0x1.9f4c2p-6 -0x1.4c90cp-5 -0x1.113da6p-5 "
            "-0x1.c94ef2p-6 0x1.a6ee36p-9 0x1.6d8ca2p-7 0x1.6997a4p-7 0x1.bbd696p-8 0x1.48597p-9 "
            "0x1.e0dbe8p-15 -0x1.d09656p-11 -0x1.0faeeep-11 -0x1.ae1754p-13 -0x1.3e692cp-12 -0x1.303df6p-11 "
            "-0x1.ce65b6p-11 -0x1.cd91ccp-11 0x1.a6a09p-15 0x1.5ac06p-9 0x1.c31988p-8 0x1.69c31p-7 "
            "0x1.6be8ecp-7 0x1.5f45c8p-9 -0x1.dbab34p-7 -0x1.08e21ep-5 -0x1.4d113p-5 -0x1.89986ep-6 "
            "0x1.bb9a68p-8 0x1.2d54e2p-5"
        ),
    ),
)

GELU_ERF_BFLOAT16 = ShortSegments(
    per_unit=3.5,
    zero=float.fromhex("-0x1.80ead2p-1"),
    c=(
        _row(
            "0x1p-1 0x1.7199c4p-1 0x1.d1cdbep-1 0x1.0a884p+0 0x1.1c5996p+0 0x1.20fd16p+0 "
            "0x1.1d35f4p+0 0x1.15d1cp+0 0x1.0e46cep+0 0x1.0854a8p+0 0x1.0460dcp+0 0x1.0215cap+0 "
            "0x1.00e742p+0 0x1.005b64p+0 0x1.002102p+0 0x1.000aeap+0 -0x1.a7011ep-15 -0x1.5d26bep-13 "
            "-0x1.080ebp-11 -0x1.6d8e2ep-10 -0x1.ce839cp-9 -0x1.0ae56cp-7 -0x1.1836dcp-6 -0x1.0a94fp-5 "
            "-0x1.c8d9ep-5 -0x1.5d1c06p-4 -0x1.d35f3p-4 -0x1.07e8bp-3 -0x1.c5996cp-4 -0x1.745ef6p-28 "
            "0x1.71920ap-4 0x1.1ccc7p-2"
        ),
        _row(
            "0x1.98837ep-1 0x1.782b1ep-1 0x1.225476p-1 0x1.65fdc6p-2 0x1.27106p-3 -0x1.8064p-8 "
            "-0x1.60ec88p-4 -0x1.ba4b48p-4 -0x1.8296a6p-4 -0x1.1448a2p-4 -0x1.5400aap-5 -0x1.70d804p-6 "
            "-0x1.65468ep-7 -0x1.377236p-8 -0x1.eb2432p-10 -0x1.5f5b28p-11 -0x1.ca1faap-13 -0x1.5f91cep-11 "
            "-0x1.eb22fep-10 -0x1.376f98p-8 -0x1.6546aep-7 -0x1.70d87p-6 -0x1.5401f2p-5 -0x1.144926p-4 "
            "-0x1.829762p-4 -0x1.ba4b8ep-4 -0x1.60eba2p-4 -0x1.806362p-8 0x1.271074p-3 0x1.b9d936p-2 "
            "0x1.225478p-1 0x1.782b1ep-1"
        ),
        _row(
            "0x1.8c0354p-16 -0x1.b7054p-3 -0x1.6c2b58p-2 -0x1.8beecp-2 -0x1.474ad2p-2 -0x1.9c1facp-3 "
            "-0x1.56025p-4 0x1.a48d68p-20 0x1.4f99f6p-5 0x1.9255acp-5 0x1.480c04p-5 0x1.b0c31ap-6 "
            "0x1.e6bcc2p-7 0x1.df9b3p-8 0x1.a479aep-9 0x1.45903p-10 -0x1.d41c3p-12 -0x1.4aade6p-10 "
            "-0x1.a4fbeep-9 -0x1.e0580cp-8 -0x1.e6e878p-7 -0x1.b072f6p-6 -0x1.48126p-5 -0x1.925b7ap-5 "
            "-0x1.4f8298p-5 0x1.57f762p-19 0x1.55f85ap-4 0x1.9c1fa6p-3 0x1.474e32p-2 0x1.8d9f6p-2 "
            "0x1.6c2e46p-2 0x1.b71948p-3"
        ),
        _row(
            "-0x1.0edbfep-2 -0x1.bed1fcp-3 -0x1.a45cf6p-4 0x1.bcb252p-6 0x1.e3186cp-4 0x1.2abf2ap-3 "
            "0x1.f004fcp-4 0x1.270cfap-4 0x1.a8d846p-6 -0x1.af4ed6p-9 -0x1.ec1176p-7 -0x1.f86e9ap-7 "
            "-0x1.6da308p-7 -0x1.ae43e8p-8 -0x1.b280b4p-9 -0x1.8af80cp-10 -0x1.2c6696p-11 -0x1.7febdcp-10 "
            "-0x1.b34034p-9 -0x1.af7096p-8 -0x1.6d9454p-7 -0x1.f7e384p-7 -0x1.ead73p-7 -0x1.aad2fcp-9 "
            "0x1.a9a1cp-6 0x1.271eap-4 0x1.efcb04p-4 0x1.2abdep-3 0x1.e3113ep-4 -0x1.1700aep-6 "
            "-0x1.a45fa8p-4 -0x1.bed23cp-3"
        ),
        _row(
            "-0x1.4f701p-10 0x1.3ac7f2p-4 0x1.dc2698p-4 0x1.a54358p-4 0x1.b3831ap-5 -0x1.325102p-9 "
            "-0x1.2ccde8p-5 -0x1.6f89fp-5 -0x1.165c5p-5 -0x1.193034p-6 -0x1.02188ap-8 0x1.b2c088p-10 "
            "0x1.2ab30ap-8 0x1.0d1be4p-8 0x1.3b61e6p-9 0x1.19be08p-9 -0x1.08c268p-11 -0x1.2728e6p-10 "
            "-0x1.206762p-9 -0x1.cc300cp-9 -0x1.179b02p-8 -0x1.4e8552p-9 0x1.05d05ep-8 0x1.19bb6ep-6 "
            "0x1.12c71ap-5 0x1.6e43e8p-5 0x1.2fa08ep-5 0x1.32b24cp-9 -0x1.b869acp-5 -0x1.ade6f8p-4 "
            "-0x1.de8f5ep-4 -0x1.4235e2p-4"
        ),
    ),
)

GELU_TANH_FLOAT16 = ShortSegments(
    per_unit=3.75,
    zero=float.fromhex("-0x1.8142ap-1"),
    c=(
        _row(
            "0x1p-1 0x1.6a6276p-1 0x1.c66852p-1 0x1.05037p+0 0x1.18f7acp+0 0x1.209e82p+0 "
            "0x1.1f8384p+0 0x1.19a9dp+0 0x1.1262f4p+0 0x1.0bca96p+0 0x1.06cffep+0 0x1.038c7p+0 "
            "0x1.01a988p+0 0x1.00b26ep+0 0x1.004294p+0 0x1.0015f6p+0 -0x1.970fd6p-14 -0x1.5f66f4p-12 "
            "-0x1.0a4f92p-10 -0x1.64da5ap-9 -0x1.a988d4p-8 -0x1.c6382p-7 -0x1.b3ffaep-6 -0x1.7952b8p-5 "
            "-0x1.262f38p-4 -0x1.9a9d0cp-4 -0x1.f8383ep-4 -0x1.04f416p-3 -0x1.8f7ac4p-4 -0x1.4f64f4p-28 "
            "0x1.ccbd76p-4 0x1.2b3b14p-2"
        ),
        _row(
            "0x1.98844ep-1 0x1.7c1a4cp-1 0x1.2fa276p-1 0x1.92f0fcp-2 0x1.8fcb48p-3 0x1.376552p-5 "
            "-0x1.ee0fb8p-5 -0x1.a5554ap-4 -0x1.aee1a8p-4 -0x1.5f90f4p-4 -0x1.eaa9e6p-5 -0x1.2c10fep-5 "
            "-0x1.444a56p-6 -0x1.35f0fp-7 -0x1.053858p-8 -0x1.826a78p-10 -0x1.f2b1a2p-12 -0x1.826a72p-10 "
            "-0x1.05385cp-8 -0x1.35f0a2p-7 -0x1.444a52p-6 -0x1.2c1104p-5 -0x1.eaa9ep-5 -0x1.5f90f2p-4 "
            "-0x1.aee1aap-4 -0x1.a55548p-4 -0x1.ee0fbap-5 0x1.376556p-5 0x1.8fcb4ap-3 0x1.b8bacap-2 "
            "0x1.2fa242p-1 0x1.7c1a4cp-1"
        ),
        _row(
            "0x1.cb3a3cp-18 -0x1.9eb4d6p-3 -0x1.5f8a48p-2 -0x1.8d8b1p-2 -0x1.5ec0dcp-2 -0x1.ee76fap-3 "
            "-0x1.0737dcp-3 -0x1.28aa26p-5 0x1.5ff474p-6 0x1.7b66bcp-5 0x1.89f754p-5 0x1.37e0e4p-5 "
            "0x1.9bd9dcp-6 0x1.d08a12p-7 0x1.c6992ep-8 0x1.80b3dcp-9 -0x1.18dfe6p-10 -0x1.80b348p-9 "
            "-0x1.c6ca6ap-8 -0x1.d14458p-7 -0x1.9b7a3p-6 -0x1.37d284p-5 -0x1.89cdeap-5 -0x1.7b74ecp-5 "
            "-0x1.602d86p-6 0x1.28d3cap-5 0x1.073612p-3 0x1.ee81a4p-3 0x1.5ec2a8p-2 0x1.8cd1cap-2 "
            "0x1.5f87bep-2 0x1.9eb4e6p-3"
        ),
        _row(
            "-0x1.11a54ap-2 -0x1.cdc7eap-3 -0x1.e9485p-4 0x1.66db2p-8 0x1.9d717cp-4 0x1.2361f6p-3 "
            "0x1.10af5ep-3 0x1.84258cp-4 0x1.9a31f2p-5 0x1.d0ab42p-7 -0x1.e2818ap-8 -0x1.02cde4p-6 "
            "-0x1.fdbd22p-7 -0x1.7626bap-7 -0x1.bff884p-8 -0x1.c0b8c6p-9 -0x1.7c2cdep-10 -0x1.c0e6ep-9 "
            "-0x1.bff64ap-8 -0x1.765c7ep-7 -0x1.fdb91ep-7 -0x1.02c694p-6 -0x1.e2944cp-8 0x1.d09df2p-7 "
            "0x1.9a361ap-5 0x1.842702p-4 0x1.10afc2p-3 0x1.2360aep-3 0x1.9d6f52p-4 -0x1.01f994p-6 "
            "-0x1.e7efdcp-4 -0x1.cdc26ep-3"
        ),
        _row(
            "-0x1.ec299ep-12 0x1.32f946p-4 0x1.dd282cp-4 0x1.ba79c2p-4 0x1.0ab402p-4 0x1.7d877ap-7 "
            "-0x1.a4cfc4p-6 -0x1.5f1daap-5 -0x1.3a8cdep-5 -0x1.b5e7f2p-6 -0x1.e1ba6p-7 -0x1.cb951ep-9 "
            "0x1.64523p-10 0x1.76438cp-8 0x1.087d86p-8 0x1.4fa92ep-9 -0x1.517158p-10 -0x1.46e798p-9 "
            "-0x1.fae69p-9 -0x1.23d90ap-8 -0x1.5e6d8ep-9 0x1.987eaep-9 0x1.bc7f42p-7 0x1.bc30b6p-6 "
            "0x1.40deb4p-5 0x1.55f6bp-5 0x1.a81a66p-6 -0x1.a33f5ap-7 -0x1.0c4c7p-4 -0x1.d2cap-4 "
            "-0x1.daa87cp-4 -0x1.3301f8p-4"
        ),
        _row(
            "0x1.e1d528p-5 0x1.821c6ep-5 0x1.a41274p-6 -0x1.6cee28p-6 -0x1.47160cp-5 -0x1.2bee86p-5 "
            "-0x1.50cc64p-6 -0x1.046ea6p-8 0x1.bd9392p-8 0x1.53113p-7 0x1.3576fep-7 0x1.975ca2p-8 "
            "0x1.603614p-9 -0x1.1b567cp-14 -0x1.d9b0cap-11 -0x1.a9996p-10 -0x1.7c3824p-11 -0x1.0fe6eap-10 "
            "-0x1.dbdb1cp-11 0x1.9c40dp-13 0x1.56381ap-9 0x1.93373p-8 0x1.34ec92p-7 0x1.55c5dp-7 "
            "0x1.b4bc68p-8 -0x1.0d0ebcp-8 -0x1.51667cp-6 -0x1.2a9eap-5 -0x1.467fe6p-5 -0x1.58f7fp-6 "
            "0x1.83b76ap-7 0x1.7c8388p-5"
        ),
    ),
)

GELU_TANH_BFLOAT16 = ShortSegments(
    per_unit=3.75,
    zero=float.fromhex("-0x1.8142ap-1"),
    c=(
        _row(
            "0x1p-1 0x1.6a6274p-1 0x1.c6685p-1 0x1.05037p+0 0x1.18f7acp+0 0x1.209e82p+0 "
            "0x1.1f8384p+0 0x1.19a9dp+0 0x1.1262f4p+0 0x1.0bca96p+0 0x1.06cffep+0 0x1.038c7p+0 "
            "0x1.01a988p+0 0x1.00b26ep+0 0x1.004294p+0 0x1.0015f6p+0 -0x1.970f8cp-14 -0x1.5f671p-12 "
            "-0x1.0a4f82p-10 -0x1.64da5cp-9 -0x1.a988dcp-8 -0x1.c6382cp-7 -0x1.b3ffb8p-6 -0x1.7952bcp-5 "
            "-0x1.262f38p-4 -0x1.9a9d0cp-4 -0x1.f8384p-4 -0x1.04f418p-3 -0x1.8f7acep-4 -0x1.04be4ep-28 "
            "0x1.ccbd72p-4 0x1.2b3b12p-2"
        ),
        _row(
            "0x1.9883ap-1 0x1.7c19c2p-1 0x1.2fa22ep-1 0x1.92f166p-2 0x1.8fcd06p-3 0x1.376a78p-5 "
            "-0x1.ee0c04p-5 -0x1.a5552ep-4 -0x1.aee1cap-4 -0x1.5f918ap-4 -0x1.eaa9dp-5 -0x1.2c117ap-5 "
            "-0x1.444988p-6 -0x1.35f2dp-7 -0x1.0538bap-8 -0x1.826a72p-10 -0x1.f2a9bap-12 -0x1.82668cp-10 "
            "-0x1.05374cp-8 -0x1.35f0bep-7 -0x1.444b14p-6 -0x1.2c11e6p-5 -0x1.eaab36p-5 -0x1.5f91b2p-4 "
            "-0x1.aee252p-4 -0x1.a554eap-4 -0x1.ee0c0ep-5 0x1.376be2p-5 0x1.8fcd2ap-3 0x1.b8bac6p-2 "
            "0x1.2fa21ep-1 0x1.7c19bap-1"
        ),
        _row(
            "0x1.06fc22p-16 -0x1.9eab1ep-3 -0x1.5f856cp-2 -0x1.8d8e12p-2 -0x1.5ec38cp-2 -0x1.ee7f6ep-3 "
            "-0x1.073826p-3 -0x1.28b34ep-5 0x1.601bfap-6 0x1.7b69acp-5 0x1.89db9p-5 0x1.37d596p-5 "
            "0x1.9bccp-6 0x1.d08572p-7 0x1.c6ab7p-8 0x1.80b224p-9 -0x1.18eaaep-10 -0x1.80bc88p-9 "
            "-0x1.c6d298p-8 -0x1.d14378p-7 -0x1.9b74f4p-6 -0x1.37cb78p-5 -0x1.89c236p-5 -0x1.7b6998p-5 "
            "-0x1.602cc2p-6 0x1.28d142p-5 0x1.0737aep-3 0x1.ee84fap-3 0x1.5ec7acp-2 0x1.8ccab6p-2 "
            "0x1.5f89a6p-2 0x1.9ebba4p-3"
        ),
        _row(
            "-0x1.10596cp-2 -0x1.cbb9e4p-3 -0x1.e7087p-4 0x1.49b90ap-8 0x1.9a0aaep-4 0x1.21edfap-3 "
            "0x1.0fd00ep-3 0x1.83e85p-4 0x1.9b1dfcp-5 0x1.d6a50ep-7 -0x1.da8128p-8 -0x1.012202p-6 "
            "-0x1.fd6fc2p-7 -0x1.7557dap-7 -0x1.c09866p-8 -0x1.c149fcp-9 -0x1.7ef55ep-10 -0x1.c357e2p-9 "
            "-0x1.c1169ap-8 -0x1.763e0ep-7 -0x1.fc1cf4p-7 -0x1.00e376p-6 -0x1.d71354p-8 0x1.d6fc82p-7 "
            "0x1.9b67ecp-5 0x1.83cb94p-4 0x1.0fd08ep-3 0x1.21d4b8p-3 0x1.99f978p-4 -0x1.02c642p-6 "
            "-0x1.e6e512p-4 -0x1.cbb0bcp-3"
        ),
        _row(
            "-0x1.05144ep-10 0x1.2eee16p-4 0x1.d8d946p-4 0x1.bdcf22p-4 0x1.0df66ep-4 0x1.a30e9p-7 "
            "-0x1.a36432p-6 -0x1.5c2582p-5 -0x1.3fd3d8p-5 -0x1.b5aa3ap-6 -0x1.c04236p-7 -0x1.95c51p-9 "
            "0x1.b45cc4p-10 0x1.79e4b8p-8 0x1.034c0ep-8 0x1.5516e6p-9 -0x1.4e0a58p-10 -0x1.43af06p-9 "
            "-0x1.f6a43ap-9 -0x1.24578cp-8 -0x1.6aba74p-9 0x1.779958p-9 0x1.aeaa6ap-7 0x1.b4fcfcp-6 "
            "0x1.40ce4p-5 0x1.56b32ep-5 0x1.a46b56p-6 -0x1.b0ede4p-7 -0x1.11500ep-4 -0x1.c1a64ap-4 "
            "-0x1.dc5748p-4 -0x1.35e74ep-4"
        ),
    ),
)

#: By the name of the formula that f is, and the type of x.
SHORT_SEGMENTS: dict[tuple[str, DataType], ShortSegments] = {
    ("silu_slope", DataType.FLOAT16): SILU_FLOAT16,
    ("silu_slope", DataType.BF16): SILU_BFLOAT16,
    ("fast_gelu_slope", DataType.FLOAT16): FAST_GELU_FLOAT16,
    ("fast_gelu_slope", DataType.BF16): FAST_GELU_BFLOAT16,
    ("gelu_erf_slope", DataType.FLOAT16): GELU_ERF_FLOAT16,
    ("gelu_erf_slope", DataType.BF16): GELU_ERF_BFLOAT16,
    ("gelu_tanh_slope", DataType.FLOAT16): GELU_TANH_FLOAT16,
    ("gelu_tanh_slope", DataType.BF16): GELU_TANH_BFLOAT16,
}
