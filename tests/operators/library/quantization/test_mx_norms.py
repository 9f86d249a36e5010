"""RMSNorm in MX formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import mx_norms
from tests.cases.table import INVALID, NINE, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, torch
from tests.helpers.microscaling import codes, paired, quantized

AT_950 = Product.ASCEND_950
PLAIN, ADDED, THIRD = "rms_norm_dynamic_mx_quant", "add_rms_norm_dynamic_mx_quant", "add_rms_norm_dynamic_mx_quant_v2"
X = (2, 3, 70)
E4M3, E8M0 = D.FLOAT8_E4M3FN, D.FLOAT8_E8M0


def call(name: str) -> Any:
    def arguments(d: D) -> Arguments:
        summands = {"x": T(d, X)} if name == PLAIN else {"x1": T(d, X), "x2": T(d, X), "xOut": T(d, X)}
        third = {"x3Optional": T(d, X)} if name == THIRD else {}
        how = {"epsilon": 1e-6, "scaleAlg": 1, "roundMode": "rint", "dstType": 36, "outputRstd": True}
        rows = {"gamma": T(D.FLOAT, X[-1:]), "beta": T(D.FLOAT, X[-1:])}
        results = {"yOut": T(E4M3, X), "mxscaleOut": T(E8M0, (2, 3, 2, 2)), "rstdOut": T(D.FLOAT, (2, 3, 1))}
        return {**summands, **rows, **third, **how, **results}

    return arguments


def norm(a: Mapping[str, Any], of: D = E4M3, algorithm: int = 1) -> Any:
    summands = [a[name].double() for name in ("x", "x1", "x2", "x3Optional") if name in a]
    x = sum(summands)
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    first = a.get("x1", a.get("x"))
    z = (x * rstd * a["gamma"].double() + a["beta"].double()).to(first.dtype).double()
    y, scales = quantized(z.numpy(), -1, of, algorithm=algorithm)
    powers = torch.from_numpy(np.ldexp(1.0, paired(scales, -1).astype(int) - 127))
    found = {"yOut": torch.from_numpy(y), "xOut": x, "mxscaleOut": powers, "rstdOut": rstd}
    return [found[name] for name in ("yOut", "xOut", "mxscaleOut", "rstdOut") if name in a]


def broken(change: Any, expected: str) -> Any:
    return lambda o, name: Break(change(o, name) if callable(change) else change, expected, product=AT_950)


def strided(o: Operator, name: str) -> Any:
    return {name: Tensor(D.FLOAT4_E2M1, X, (420, 140, 1)), "dstType": 40, "scaleAlg": 0}


def odd(o: Operator, name: str) -> Any:
    tensors = [p.name for p in o.parameters if p.name in ("x", "x1", "x2", "xOut", "x3Optional")]
    rows = shape((69,), "gamma", "beta")
    results = {"yOut": T(D.FLOAT4_E2M1, (2, 3, 69)), "dstType": 40, "scaleAlg": 0}
    return {**shape((2, 3, 69), *tensors), **rows, **results}


class TestNorms(LibraryTests):
    subject = Subject(
        mx_norms.OPERATORS,
        calls={name: call(name) for name in (PLAIN, ADDED, THIRD)},
        references=dict.fromkeys((PLAIN, ADDED, THIRD), norm),
        default=(D.FLOAT16, D.BF16),
        empty={name: {"mxscaleOut": {"shape": (0, 1, 2)}} for name in (PLAIN, ADDED, THIRD)},
        breaks={
            "as x1": broken(lambda o, name: shape((2, 70), name), "[2, 3, 70]"),
            "data type": broken(
                lambda o, name: dtype(D.DOUBLE, name, *["x3Optional"] * ((o.name, name) == (THIRD, "x1"))),
                "data type",
            ),
            "same data type as x1": broken(lambda o, name: dtype(D.FLOAT, name), "ACL_FLOAT16"),
            "x's type or FLOAT": broken(lambda o, name: dtype(D.BF16, name), "ACL_FLOAT16 or ACL_FLOAT"),
            "same data type as gamma": broken(lambda o, name: dtype(D.BF16, name), "ACL_FLOAT"),
            "1 to 7 dimensions": broken(
                lambda o, name: (
                    {**shape(NINE, name), **shape(NINE, "x3Optional")} if o.name == THIRD else shape(NINE, name)
                ),
                "1 to 7",
            ),
            "same shape as x": broken(lambda o, name: shape((2, 70), name), "[2, 3, 70]"),
            "same shape as x1": broken(lambda o, name: shape((2, 70), name), "[2, 3, 70]"),
            "shape is a row": broken(lambda o, name: shape((1, 70), name), "[70]"),
            "allowed value": broken(lambda o, name: {name: "ceil" if name == "roundMode" else 2}, ""),
            "scales of the format": broken(
                {"yOut": {"dtype": D.FLOAT4_E2M1}, "dstType": 40}, "expected 0 with ACL_FLOAT4_E2M1"
            ),
            "rint of eight bits": broken({"roundMode": "floor"}, "rint with"),
            "data type of yOut": broken({"dstType": 35}, "36"),
            "even": broken(odd, "an even last"),
            "whole bytes": broken(strided, "contiguous"),
            "shape is two for two blocks": broken(lambda o, name: shape((2, 3, 3), name), "[2, 3, 2, 2]"),
            "shape is one for each row": broken(lambda o, name: shape((2, 3), name), "[2, 3, 1]"),
        },
        code=NO_KERNEL,
        codes={"present": NULL, "as x1": INVALID},
    )


@pytest.mark.parametrize("change", [{"dtype": D.FLOAT}, {"shape": (3, 70)}])
def test_the_third_addend_is_checked_first(change: Any) -> None:
    arguments = {
        name: Tensor(value.dtype, value.shape) if isinstance(value, T) else value
        for name, value in (call(THIRD)(D.FLOAT16) | {"scaleAlg": 7}).items()
    }
    third = T(D.FLOAT16, X)._replace(**change)
    with pytest.raises(AclnnError, match="x3Optional") as caught:
        prepare(BY_NAME[THIRD], arguments | {"x3Optional": Tensor(third.dtype, third.shape)}, AT_950)
    assert caught.value.code == INVALID


@pytest.mark.parametrize("mode", ["rint", "round", "floor"])
def test_four_bits_without_beta_and_rstd(mode: str) -> None:
    random = np.random.default_rng(1)
    x, gamma = random.normal(size=(3, 64)).astype(np.float16), random.normal(size=64).astype(np.float16)
    y, scales = np.empty(96, np.uint8), np.empty((3, 1, 2), np.uint8)
    given = {"epsilon": 1e-6, "scaleAlg": 0, "roundMode": mode, "dstType": 40, "outputRstd": False, "rstdOut": None}
    given |= {
        "x": Tensor(D.FLOAT16, x.shape, address=x.ctypes.data),
        "gamma": Tensor(D.FLOAT16, gamma.shape, address=gamma.ctypes.data),
        "beta": None,
        "yOut": Tensor(D.FLOAT4_E2M1, x.shape, address=y.ctypes.data),
        "mxscaleOut": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
    }
    prepare(BY_NAME[PLAIN], given, AT_950).run()
    wide = x.astype(float)
    z = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-6)) * gamma
    numbers, exponents = quantized(z.astype(np.float16), -1, D.FLOAT4_E2M1, mode)
    assert np.array_equal(y, codes(numbers, D.FLOAT4_E2M1))
    assert np.array_equal(scales, paired(exponents, -1))
