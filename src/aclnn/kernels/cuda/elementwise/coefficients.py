"""Constants of the tails of derivatives and activations in float32: exponentials.

Hexadecimal floats, each exactly a float32. docs/numerics.md explains the choices; tests/test_coefficients.py recomputes
the entries in high precision.
"""

from __future__ import annotations

from typing import NamedTuple

from aclnn.kernels.fitted import Row, fast_gelu_slope, gelu_erf_slope, gelu_tanh_slope, row, silu_slope

SILU, FAST_GELU, GELU_ERF, GELU_TANH = (
    module.FLOAT for module in (silu_slope, fast_gelu_slope, gelu_erf_slope, gelu_tanh_slope)
)


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


_POWERS = row("0x1p+0 0x1.172b84p+0 0x1.306fep+0 0x1.4bfdaep+0 0x1.6a09e6p+0 0x1.8ace54p+0 0x1.ae89fap+0 0x1.d5818ep+0")
_POWERS_LOW = row(
    "0x0p+0 -0x1.c15742p-27 0x1.4636e2p-25 -0x1.593abcp-25 "
    "0x1.9fcef4p-26 0x1.15506ep-27 -0x1.a94b14p-26 -0x1.822dbcp-27"
)

SILU_EXPONENTIAL = Exponential(  # κ = 1, t = a
    per_unit=float.fromhex("0x1.715476p+3"),
    step=float.fromhex("0x1.62e43p-4"),
    step_low=float.fromhex("-0x1.05c61p-32"),
    q=row("-0x1p+0 0x1p-1 -0x1.555c32p-3 0x1.5558dcp-5"),
    power=_POWERS,
    power_low=_POWERS_LOW,
)

FAST_GELU_EXPONENTIAL = Exponential(  # κ = 1.702, t = a
    per_unit=float.fromhex("0x1.3a4cbep+4"),
    step=float.fromhex("0x1.a10754p-5"),
    step_low=float.fromhex("-0x1.2f1edp-31"),
    q=row("-0x1.b3b646p+0 0x1.72ca7ap+0 -0x1.a4bbeep-1 0x1.65f3fcp-2"),
    power=_POWERS,
    power_low=_POWERS_LOW,
)

GELU_ERF_EXPONENTIAL = Exponential(  # κ = 1/2, t = a²; the powers include 1/sqrt(2π)
    per_unit=float.fromhex("0x1.715476p+2"),
    step=float.fromhex("0x1.62e43p-3"),
    step_low=float.fromhex("-0x1.05c61p-31"),
    q=row("-0x1p-1 0x1p-3 -0x1.555c32p-6 0x1.5558dcp-9"),
    power=row(
        "0x1.988454p-2 0x1.bd7da8p-2 0x1.e5cfaap-2 0x1.08e3f4p-1 "
        "0x1.20dd76p-1 0x1.3b0274p-1 0x1.578538p-1 0x1.769c94p-1"
    ),
    power_low=row(
        "-0x1.857936p-27 -0x1.874d84p-27 0x1.61d0f4p-27 -0x1.0309c4p-26 "
        "-0x1.f7ac92p-26 0x1.b4028ep-27 0x1.d202cep-27 0x1.798c72p-26"
    ),
)

GELU_TANH_EXPONENTIAL = SILU_EXPONENTIAL  # κ = 1, t = w(a)

#: 1.702 as the sum of two float32.
FAST_GELU_SCALE = float.fromhex("0x1.b3b646p+0")
FAST_GELU_SCALE_LOW = float.fromhex("-0x1.78d4fep-26")

#: GELU: the Mills ratio Φ(-a)/φ(a) = y + y·z·(v[0] + z·(v[1] + … + z·v[8])) with y = 1/a, z = y², for 2.75 ≤ a ≤ 15.1.
GELU_ERF_MILLS = row(
    "-0x1.ffffdep-1 0x1.7ff294p+1 -0x1.de19eep+3 0x1.92da4ep+6 -0x1.7d5178p+9 "
    "0x1.482bdp+12 -0x1.a6bd96p+14 0x1.51990ep+16 -0x1.e6b132p+16"
)

#: GELU by tanh: w(a) = k1·a + k3·a³ with k1 = 2·sqrt(2/π) and k3 = 0.044715·k1, each the sum of two float32.
GELU_TANH_K1 = float.fromhex("0x1.988454p+0")
GELU_TANH_K1_LOW = float.fromhex("-0x1.857936p-25")
GELU_TANH_K3 = float.fromhex("0x1.2444f2p-4")
GELU_TANH_K3_LOW = float.fromhex("0x1.49b16ap-29")
