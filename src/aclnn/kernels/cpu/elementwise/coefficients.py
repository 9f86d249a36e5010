"""Every constant of the float32 derivatives: hexadecimal floats, each exactly a float32.

A derivative f satisfies f(x) + f(-x) = 1, so only g(a) = f(-a) for a = abs(x) is approximated: up to ``bound`` by one
polynomial around ``centre`` for each of eight or sixteen segments of equal width, beyond it by an exponential.
docs/numerics.md explains the choices; tests/test_coefficients.py recomputes the entries in high precision and checks
each segment.
"""

from __future__ import annotations

from typing import NamedTuple

Row = tuple[float, ...]


def hex_row(text: str) -> Row:
    """Numbers from their hexadecimal texts, separated by blanks."""
    return tuple(float.fromhex(word) for word in text.split())


class Segments(NamedTuple):
    """For 0 ≤ a ≤ bound: g(a) = c0[i] + r·(p[0][i] + r·(p[1][i] + …)) with i = round(a·per_unit), r = a - centre[i]."""

    per_unit: float
    """Segments per unit of a: the reciprocal of their width."""
    bound: float
    centre: Row
    c0: Row
    p: tuple[Row, ...]


class Exponential(NamedTuple):
    """e^(-κt) = 2^(n/8)·e^(-κr) with n = -round(t·per_unit) and r = t + n·(step + step_low)."""

    per_unit: float
    step: float
    step_low: float
    q: Row
    """e^(-κr) - 1 = r·(q[0] + r·(q[1] + r·(q[2] + r·q[3])))."""
    power: Row
    """2^(i/8), times a constant factor of g where there is one; i = 0 … 7."""
    power_low: Row
    """What ``power`` lacks."""


SILU = Segments(
    # One step below 1.5: a = 1, a boundary, goes to the lower segment, which rounds it correctly (a worked example).
    per_unit=float.fromhex("0x1.7ffffep+0"),
    bound=float.fromhex("0x1.4aaa5ap+3"),
    centre=hex_row(
        "0x0p+0 0x1.9a6p-1 0x1.474974p+0 0x1.dca8p+0 "
        "0x1.5498p+1 0x1.aa74p+1 0x1.0024p+2 0x1.2aa4p+2 "
        "0x1.5514p+2 0x1.7f66p+2 0x1.aaap+2 0x1.d57ap+2 "
        "0x1.0006p+3 0x1.1588p+3 0x1.2a99p+3 0x1.400ep+3"
    ),
    c0=hex_row(
        "0x1p-1 0x1.1b56bp-3 -0x1.848b9ep-29 -0x1.50da74p-4 "
        "-0x1.8ddff6p-4 -0x1.394178p-4 -0x1.aed6b2p-5 -0x1.14969p-5 "
        "-0x1.542254p-6 -0x1.96f07p-7 -0x1.d79072p-8 -0x1.0e4e84p-8 "
        "-0x1.335fd2p-9 -0x1.582a42p-10 -0x1.83012cp-11 -0x1.abc196p-12"
    ),
    p=(
        hex_row(
            "-0x1p-1 -0x1.730db2p-2 -0x1.be141p-3 -0x1.309054p-4 "
            "0x1.395cc4p-6 0x1.2ca6bep-5 0x1.0c592ap-5 0x1.862bd2p-6 "
            "0x1.01d188p-6 0x1.431f26p-7 0x1.830362p-8 0x1.c683c4p-9 "
            "0x1.073ed6p-9 0x1.2b2f06p-10 0x1.547a94p-11 0x1.7c3212p-12"
        ),
        hex_row(
            "0x1.a4b49ap-29 0x1.2b90bp-3 0x1.2c5636p-3 0x1.84e7cep-4 "
            "0x1.cd1c9ep-6 0x1.15b19ap-9 -0x1.8c9154p-8 -0x1.bad346p-8 "
            "-0x1.5ad34p-8 -0x1.dbccfep-9 -0x1.2d95d6p-9 -0x1.6fe13ep-10 "
            "-0x1.b5e8f2p-11 -0x1.fc3716p-12 -0x1.25e598p-12 -0x1.4c9a48p-13"
        ),
        hex_row(
            "0x1.555528p-4 0x1.7d6a7ap-6 -0x1.353d64p-6 -0x1.158e32p-5 "
            "-0x1.3f794p-6 -0x1.e70ac8p-8 -0x1.9b9adap-10 0x1.d98aep-12 "
            "0x1.c8dddcp-11 0x1.90cf7p-11 0x1.1e2be6p-11 0x1.75b5f6p-12 "
            "0x1.d0fcf6p-13 0x1.16792p-13 0x1.499c04p-14 0x1.7beecp-15"
        ),
        hex_row(
            "0x1.9fa828p-19 -0x1.bb2156p-6 -0x1.f2d968p-7 0x1.9dd4a4p-11 "
            "0x1.6c40cep-8 0x1.ab3c04p-9 0x1.53f0dcp-10 0x1.7bd8d8p-12 "
            "0x1.2dc8fep-16 -0x1.39cc8ap-14 -0x1.4d74c2p-14 -0x1.fd58bcp-15 "
            "-0x1.58af82p-15 -0x1.b36e24p-16 -0x1.0b18b6p-16 -0x1.3c4054p-17"
        ),
        hex_row(
            "-0x1.9a70d4p-7 0x1.c632eep-10 0x1.b053e6p-8 0x1.d4c0f2p-9 "
            "-0x1.9171a8p-12 -0x1.83eccep-11 -0x1.b7ec78p-12 -0x1.63850ap-13 "
            "-0x1.c8283cp-15 -0x1.4904f2p-17 0x1.f3a0a6p-19 0x1.aa570ep-18 "
            "0x1.639f2ep-18 0x1.f7c90ap-19 0x1.491158p-19 0x1.93ab7ap-20"
        ),
        hex_row(
            "0x1.ad5758p-14 0x1.b386c2p-9 0x1.3cbe3ap-13 -0x1.4e3754p-10 "
            "-0x1.5b3f04p-12 0x1.aac0a2p-15 0x1.4f2a7p-14 0x1.6d532ap-15 "
            "0x1.2daf5cp-16 0x1.9c2278p-18 0x1.9d2c8cp-20 -0x1.db51a6p-27 "
            "-0x1.994b2cp-22 -0x1.93f36p-22 -0x1.321142p-22 -0x1.8ea9aap-23"
        ),
        hex_row(
            "0x1.8d79ecp-10 -0x1.00ec52p-11 -0x1.784498p-11 0x1.02048p-13 "
            "0x1.3e64bp-13 0x1.1ec66p-15 0x1.4aa948p-18 -0x1.a2f26cp-17 "
            "-0x1.1c5c0ap-19 -0x1.a2bf4cp-20 0x1.2ff26ep-21 -0x1.11afb6p-21 "
            "-0x1.0590c6p-24 -0x1.16faap-23 -0x1.0c9ceap-24 0x1.220506p-26"
        ),
    ),
)

FAST_GELU = Segments(
    per_unit=float.fromhex("0x1.4cp+1"),
    bound=float.fromhex("0x1.7e74d4p+2"),
    centre=hex_row(
        "0x0p+0 0x1.c16p-2 0x1.80974ap-1 0x1.13cp+0 "
        "0x1.8b4p+0 0x1.ed88p+0 0x1.27bcp+1 0x1.5958p+1 "
        "0x1.8abp+1 0x1.bbe4p+1 0x1.ed94p+1 0x1.0f6ap+2 "
        "0x1.288ep+2 0x1.40fep+2 0x1.59cp+2 0x1.7214p+2"
    ),
    c0=hex_row(
        "0x1p-1 0x1.44beb8p-3 0x1.24d84cp-28 -0x1.47cfap-4 "
        "-0x1.905698p-4 -0x1.40d068p-4 -0x1.c1d238p-5 -0x1.23622p-5 "
        "-0x1.69a86cp-6 -0x1.b46556p-7 -0x1.0086cap-7 -0x1.2a5b32p-8 "
        "-0x1.52eafep-9 -0x1.837348p-10 -0x1.b4485cp-11 -0x1.ed057cp-12"
    ),
    p=(
        hex_row(
            "-0x1.b3b646p-1 -0x1.497d5cp-1 -0x1.7b9cdap-2 -0x1.166d26p-3 "
            "0x1.df96c6p-6 0x1.fbe9bp-5 0x1.d42b8ep-5 0x1.5a1ff2p-5 "
            "0x1.cf436p-6 0x1.25585cp-6 0x1.64c34cp-7 0x1.a9522cp-8 "
            "0x1.ec9af4p-9 0x1.1dd4a8p-9 0x1.45e3bap-10 0x1.740fc4p-11"
        ),
        hex_row(
            "0x1.ade1bp-20 0x1.a5230cp-2 0x1.b30226p-2 0x1.224998p-2 "
            "0x1.6557b6p-4 0x1.38b28p-7 -0x1.0db4b4p-6 -0x1.44de12p-6 "
            "-0x1.0533b4p-6 -0x1.6c1c54p-7 -0x1.d5cb24p-8 -0x1.23470cp-8 "
            "-0x1.5b3c9cp-9 -0x1.9b9b9p-10 -0x1.dd4f8p-11 -0x1.142bb2p-11"
        ),
        hex_row(
            "0x1.a4a7d4p-2 0x1.272168p-3 -0x1.7d2c3cp-4 -0x1.56b7d6p-3 "
            "-0x1.98b808p-4 -0x1.477eb2p-5 -0x1.3b9a1ap-7 0x1.affdd8p-10 "
            "0x1.16737ep-8 0x1.fe8ad6p-9 0x1.7623ccp-9 0x1.f2aeaep-10 "
            "0x1.37be3p-10 0x1.7db872p-11 0x1.c596aap-12 0x1.0b65bep-12"
        ),
        hex_row(
            "0x1.3ac262p-10 -0x1.d666acp-3 -0x1.05a3b8p-3 0x1.1eabdcp-9 "
            "0x1.8209a8p-5 0x1.da0728p-6 0x1.8e4cbep-7 0x1.d8244cp-9 "
            "0x1.6f96b8p-12 -0x1.32cc2ap-11 -0x1.659ccap-11 -0x1.1b581ap-11 "
            "-0x1.84c9d4p-12 -0x1.f7552ap-13 -0x1.36c748p-13 -0x1.78ab82p-14"
        ),
        hex_row(
            "-0x1.832b8p-3 0x1.196ef6p-7 0x1.82566p-4 0x1.bb2dbp-5 "
            "-0x1.25252p-8 -0x1.60ffb4p-7 -0x1.a7488ep-8 -0x1.63c026p-9 "
            "-0x1.d921acp-11 -0x1.88440ap-13 0x1.415ea6p-15 0x1.7e57d8p-14 "
            "0x1.4c90e8p-14 0x1.dbc824p-15 0x1.43e222p-15 0x1.927e62p-16"
        ),
        hex_row(
            "0x1.6d6a1cp-5 0x1.60486cp-4 0x1.f69dep-9 -0x1.f5f64p-6 "
            "-0x1.2358bcp-7 0x1.fb542ap-11 0x1.06e518p-9 0x1.2ec428p-10 "
            "0x1.02baa6p-11 0x1.6ca5a4p-13 0x1.951f88p-15 0x1.2709fap-19 "
            "-0x1.1de6e2p-17 -0x1.31da92p-17 -0x1.f03c4ep-18 -0x1.4bfb9ap-18"
        ),
        hex_row(
            "-0x1.24da1ep-8 -0x1.16fcaap-6 -0x1.030704p-5 0x1.c1358ap-9 "
            "0x1.9b23fep-8 0x1.a4dc2cp-10 -0x1.305c56p-14 -0x1.f01a16p-12 "
            "-0x1.a33c4cp-13 -0x1.e5c0f4p-14 0x1.59fc5ap-16 -0x1.2ab11ap-15 "
            "-0x1.f46412p-19 0x1.d3f832p-17 -0x1.ac841p-18 0x1.b9189ep-19"
        ),
    ),
)

GELU_ERF = Segments(
    per_unit=float.fromhex("0x1.c8p+0"),
    bound=float.fromhex("0x1.0d7836p+2"),
    centre=hex_row("0x0p+0 0x1.80ead4p-1 0x1.d67p-1 0x1.af48p+0 0x1.233p+1 0x1.754p+1 0x1.c774p+1 0x1.0acap+2"),
    c0=hex_row(
        "0x1p-1 -0x1.09d3c2p-25 -0x1.f5b15ap-5 -0x1.dd80eep-4 "
        "-0x1.d13fe2p-5 -0x1.e4cea4p-7 -0x1.32ef12p-9 -0x1.15c6a4p-12"
    ),
    p=(
        hex_row(
            "-0x1.988454p-1 -0x1.b9d98cp-2 -0x1.359152p-2 0x1.4b5d7ep-4 "
            "0x1.862d72p-4 0x1.2eaef6p-5 0x1.f07758p-8 0x1.0efbfep-10"
        ),
        hex_row(
            "0x1.94d4bp-19 0x1.8d9a94p-2 0x1.8452a6p-2 0x1.82e4c2p-4 "
            "-0x1.488504p-5 -0x1.319764p-5 -0x1.66c8c2p-7 -0x1.eb593ep-10"
        ),
        hex_row(
            "0x1.1039cap-2 0x1.2a302p-6 -0x1.ab7322p-5 -0x1.015d28p-3 "
            "-0x1.bdf6bcp-6 0x1.045b94p-6 0x1.25ab26p-7 0x1.0eb0f2p-9"
        ),
        hex_row(
            "0x1.021b08p-9 -0x1.d2f852p-4 -0x1.82a46cp-4 0x1.1ea754p-5 "
            "0x1.1aeb9p-5 0x1.245caep-9 -0x1.0d770ap-8 -0x1.8a255p-10"
        ),
        hex_row(
            "-0x1.3b572cp-4 0x1.e3abc2p-7 0x1.fc79d8p-6 0x1.11451cp-6 "
            "-0x1.687404p-7 -0x1.87d966p-8 0x1.1dd348p-11 0x1.7b49f6p-11"
        ),
        hex_row(
            "0x1.4762e2p-4 0x1.3c00e4p-6 0x1.a996f8p-7 -0x1.8138a4p-7 "
            "-0x1.33d9bcp-9 0x1.64e80ap-9 0x1.1f798cp-11 -0x1.67e57ep-13"
        ),
        hex_row(
            "-0x1.70e0f2p-3 -0x1.4a05p-8 -0x1.f92a1ep-8 0x1.6eb10ap-13 "
            "0x1.5828b2p-9 -0x1.fb734ap-13 -0x1.d8a4acp-12 0x1.645a46p-16"
        ),
        hex_row(
            "0x1.6f7f9p-3 -0x1.98eb3p-9 0x1.2d7a6ap-11 0x1.a122c4p-10 "
            "-0x1.dbfce6p-13 -0x1.fc4d6cp-12 0x1.afa5d4p-15 0x1.361bbp-14"
        ),
    ),
)

GELU_TANH = Segments(
    per_unit=float.fromhex("0x1.ccp+0"),
    bound=float.fromhex("0x1.0b205ap+2"),
    centre=hex_row("0x0p+0 0x1.8142ap-1 0x1.d39p-1 0x1.abf8p+0 0x1.1fbcp+1 0x1.6eccp+1 0x1.be08p+1 0x1.060ap+2"),
    c0=hex_row(
        "0x1p-1 -0x1.4f6404p-28 -0x1.e4ce7cp-5 -0x1.e3fb96p-4 "
        "-0x1.ec7e5ap-5 -0x1.0eb2d8p-6 -0x1.4f2ffcp-9 -0x1.cc4658p-13"
    ),
    p=(
        hex_row(
            "-0x1.988454p-1 -0x1.b8baccp-2 -0x1.39c592p-2 0x1.3a51e8p-4 "
            "0x1.9390e4p-4 0x1.580d26p-5 0x1.2597e6p-7 0x1.071b46p-10"
        ),
        hex_row(
            "0x1.985356p-19 0x1.8cd1ap-2 0x1.836b2cp-2 0x1.9c9f8ep-4 "
            "-0x1.24a5fp-5 -0x1.51427cp-5 -0x1.bd61f2p-7 -0x1.11f1ep-9"
        ),
        hex_row(
            "0x1.119258p-2 0x1.028dap-6 -0x1.a773b6p-5 -0x1.fe9c66p-4 "
            "-0x1.0ebb66p-5 0x1.e0d336p-7 0x1.6bcf96p-7 0x1.518caep-9"
        ),
        hex_row(
            "0x1.08df4p-9 -0x1.d2b878p-4 -0x1.8049bap-4 0x1.0bccd4p-5 "
            "0x1.1c731ep-5 0x1.5983aep-8 -0x1.26965ep-8 -0x1.084878p-9"
        ),
        hex_row(
            "-0x1.4369b2p-4 0x1.1237dap-6 0x1.09134ep-5 0x1.0299fep-6 "
            "-0x1.2af23p-7 -0x1.cc4baap-8 -0x1.865a68p-14 0x1.f7d99ep-11"
        ),
        hex_row(
            "0x1.55db12p-4 0x1.4c7bfcp-6 0x1.88c554p-7 -0x1.6b71c2p-7 "
            "-0x1.4a2eap-9 0x1.24587ep-9 0x1.118d26p-10 -0x1.7ed122p-13"
        ),
        hex_row(
            "-0x1.84af84p-3 -0x1.1558bep-8 -0x1.d3cfaep-8 0x1.880602p-11 "
            "0x1.0a7928p-9 0x1.7c05acp-13 -0x1.faaf9cp-12 -0x1.4115a6p-14"
        ),
        hex_row(
            "0x1.868d1ep-3 -0x1.2cc956p-9 -0x1.3db97ap-15 0x1.65b3cep-10 "
            "-0x1.1dd0ep-11 -0x1.453db8p-12 -0x1.37d1cap-15 0x1.7542f6p-14"
        ),
    ),
)

_POWERS = hex_row(
    "0x1p+0 0x1.172b84p+0 0x1.306fep+0 0x1.4bfdaep+0 0x1.6a09e6p+0 0x1.8ace54p+0 0x1.ae89fap+0 0x1.d5818ep+0"
)
_POWERS_LOW = hex_row(
    "0x0p+0 -0x1.c15742p-27 0x1.4636e2p-25 -0x1.593abcp-25 "
    "0x1.9fcef4p-26 0x1.15506ep-27 -0x1.a94b14p-26 -0x1.822dbcp-27"
)

SILU_EXPONENTIAL = Exponential(  # κ = 1, t = a
    per_unit=float.fromhex("0x1.715476p+3"),
    step=float.fromhex("0x1.62e43p-4"),
    step_low=float.fromhex("-0x1.05c61p-32"),
    q=hex_row("-0x1p+0 0x1p-1 -0x1.555c32p-3 0x1.5558dcp-5"),
    power=_POWERS,
    power_low=_POWERS_LOW,
)

FAST_GELU_EXPONENTIAL = Exponential(  # κ = 1.702, t = a
    per_unit=float.fromhex("0x1.3a4cbep+4"),
    step=float.fromhex("0x1.a10754p-5"),
    step_low=float.fromhex("-0x1.2f1edp-31"),
    q=hex_row("-0x1.b3b646p+0 0x1.72ca7ap+0 -0x1.a4bbeep-1 0x1.65f3fcp-2"),
    power=_POWERS,
    power_low=_POWERS_LOW,
)

GELU_ERF_EXPONENTIAL = Exponential(  # κ = 1/2, t = a²; the powers include 1/sqrt(2π)
    per_unit=float.fromhex("0x1.715476p+2"),
    step=float.fromhex("0x1.62e43p-3"),
    step_low=float.fromhex("-0x1.05c61p-31"),
    q=hex_row("-0x1p-1 0x1p-3 -0x1.555c32p-6 0x1.5558dcp-9"),
    power=hex_row(
        "0x1.988454p-2 0x1.bd7da8p-2 0x1.e5cfaap-2 0x1.08e3f4p-1 "
        "0x1.20dd76p-1 0x1.3b0274p-1 0x1.578538p-1 0x1.769c94p-1"
    ),
    power_low=hex_row(
        "-0x1.857936p-27 -0x1.874d84p-27 0x1.61d0f4p-27 -0x1.0309c4p-26 "
        "-0x1.f7ac92p-26 0x1.b4028ep-27 0x1.d202cep-27 0x1.798c72p-26"
    ),
)

GELU_TANH_EXPONENTIAL = SILU_EXPONENTIAL  # κ = 1, t = w(a)

#: 1.702 as the sum of two float32.
FAST_GELU_SCALE = float.fromhex("0x1.b3b646p+0")
FAST_GELU_SCALE_LOW = float.fromhex("-0x1.78d4fep-26")

#: GELU: the Mills ratio Φ(-a)/φ(a) = y + y·z·(v[0] + z·(v[1] + … + z·v[8])) with y = 1/a, z = y², for 2.75 ≤ a ≤ 15.1.
GELU_ERF_MILLS = hex_row(
    "-0x1.ffffdep-1 0x1.7ff294p+1 -0x1.de19eep+3 0x1.92da4ep+6 -0x1.7d5178p+9 "
    "0x1.482bdp+12 -0x1.a6bd96p+14 0x1.51990ep+16 -0x1.e6b132p+16"
)

#: GELU by tanh: w(a) = k1·a + k3·a³ with k1 = 2·sqrt(2/π) and k3 = 0.044715·k1, each the sum of two float32.
GELU_TANH_K1 = float.fromhex("0x1.988454p+0")
GELU_TANH_K1_LOW = float.fromhex("-0x1.857936p-25")
GELU_TANH_K3 = float.fromhex("0x1.2444f2p-4")
GELU_TANH_K3_LOW = float.fromhex("0x1.49b16ap-29")
