"""SwiGLU in MX formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import mx_gates
from tests.cases.table import INVALID, NINE, Arguments, Change, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, torch
from tests.helpers.microscaling import codes, paired, quantized

AT_950 = Product.ASCEND_950
ONE, DUAL, GROUPS = "swiglu_mx_quant", "swiglu_mx_quant_with_dual_axis", "groupIndexOptional"
ROWS, COLUMNS = 70, 6
ENDS = (33, ROWS)
E4M3, E8M0, E2M1 = D.FLOAT8_E4M3FN, D.FLOAT8_E8M0, D.FLOAT4_E2M1
HOW: Mapping[str, Any] = {
    "activateDim": -1,
    "activateLeft": True,
    "swigluMode": 0,
    "clampLimit": 1.5,
    "gluAlpha": 1.25,
    "gluBias": 0.5,
    "groupMode": 1,
    "axis": -2,
    "dstType": 36,
    "roundModeOptional": None,
    "scaleAlg": 1,
    "maxDtypeValue": 0.0,
}
FORMAT_NZ: Change = {"format": Format.FORMAT_FRACTAL_NZ}


def one(d: D) -> Arguments:
    results = {"yOut": T(E4M3, (ROWS, COLUMNS)), "mxscaleOut": T(E8M0, (3, COLUMNS, 2))}
    return {"x": T(d, (ROWS, 2 * COLUMNS)), GROUPS: T(D.INT64, (2,)), **HOW, **results}


def dual(d: D) -> Arguments:
    how = {name: HOW[name] for name in ("activateLeft", "roundModeOptional", "scaleAlg", "dstType", "maxDtypeValue")}
    results = {"y1Out": T(E4M3, (ROWS, COLUMNS)), "mxScale1Out": T(E8M0, (ROWS, 1, 2))}
    results |= {"y2Out": T(E4M3, (ROWS, COLUMNS)), "mxScale2Out": T(E8M0, (3, COLUMNS, 2))}
    return {"x": T(d, (ROWS, 2 * COLUMNS)), GROUPS: T(D.INT64, (2,)), **how, **results}


def by_groups(z: Array, ends: Sequence[int], of: D = E4M3, **how: Any) -> tuple[Array, Array]:
    """Quantise columns of groups; the last rows are zeros if no group has them."""
    y, scales = np.zeros(z.shape), np.zeros((len(z) // 64 + len(ends), z.shape[1], 2), np.uint8)
    for group, (begin, end) in enumerate(pairwise((0, *ends))):
        y[begin:end], exponents = quantized(z[begin:end], 0, of, **how)
        pairs = paired(exponents, 0)
        scales[begin // 64 + group :][: len(pairs)] = pairs
    return y, scales


def results(*found: tuple[Array, Array]) -> list[Any]:
    return [
        torch.from_numpy(np.ascontiguousarray(part))
        for y, scales in found
        for part in (y, np.ldexp(1.0, scales.astype(int) - 127))
    ]


def product(x: Any) -> Array:
    gate, up = x.double().chunk(2, -1)
    found: Array = (torch.nn.functional.silu(gate) * up).to(x.dtype).double().numpy()
    return found


def of_columns(a: Mapping[str, Any]) -> Any:
    return results(by_groups(product(a["x"]), ENDS, algorithm=1))


def of_both(a: Mapping[str, Any]) -> Any:
    z = product(a["x"])
    y, exponents = quantized(z, -1, E4M3, algorithm=1)
    return results((y, paired(exponents, -1)), by_groups(z, ENDS, algorithm=1))


def at_950(change: Any, expected: str) -> Any:
    return lambda o, name: Break(change(o, name) if callable(change) else change, expected, product=AT_950)


def four(o: Any, change: Any = None) -> Any:
    names = ("yOut",) if o.name == ONE else ("y1Out", "y2Out")
    return {**dtype(E2M1, *names), "dstType": 40, "scaleAlg": 0, **(change or {})}


class TestGates(LibraryTests):
    subject = Subject(
        mx_gates.OPERATORS,
        calls={ONE: one, DUAL: dual},
        references={ONE: of_columns, DUAL: of_both},
        default=(D.FLOAT16, D.BF16),
        numbers=lambda name, argument, array: np.array(ENDS) if argument == GROUPS else array,
        breaks={
            "data types that go together": at_950(lambda o, name: dtype(D.DOUBLE, name), "data type"),
            "format that counts as ND": at_950(lambda o, name: {name: FORMAT_NZ}, "ACL_FORMAT"),
            "data type": at_950(lambda o, name: dtype(D.FLOAT, name), "ACL_INT64"),
            "2 to 7 dimensions": at_950(lambda o, name: shape(NINE, name), "2 to 7"),
            "2 dimensions": at_950(lambda o, name: shape((3,), name), "2 dimensions"),
            "1 dimension": at_950(lambda o, name: shape((2, 1), name), "1 dimension"),
            "no dimension of 0": at_950(lambda o, name: shape((0, 2 * COLUMNS), name), "no dimension of 0"),
            "1 to 256 elements": at_950(lambda o, name: shape((257,), name), "1 to 256"),
            "allowed value": at_950(lambda o, name: {name: "ceil" if name == "roundModeOptional" else 4}, ""),
            "a finite positive number": at_950({"swigluMode": 1, "clampLimit": 0.0}, "positive"),
            "data type of yOut": at_950({"dstType": 35}, "36"),
            "data type of y1Out": at_950({"dstType": 35}, "36"),
            "rint of eight bits": at_950({"roundModeOptional": "floor"}, "rint with"),
            "scales of the format": at_950(lambda o, name: four(o, {"scaleAlg": 1}), "expected 0 with"),
            "one of the last two dimensions": at_950(lambda o, name: {name: 2}, "-1, -2, 0 or 1"),
            "dimensions of the way": at_950({"swigluMode": 2}, "axis"),
            "rows of groups": at_950({"activateDim": 0}, "with groups"),
            "halves": at_950({"x": {"shape": (ROWS, 11)}}, "even dimension 1"),
            "whole bytes of a row": at_950(
                lambda o, name: four(o, {"x": {"shape": (ROWS, 2)}}), "an even last dimension of y"
            ),
            "shape is half of x": at_950(lambda o, name: shape((ROWS, 5), name), f"[{ROWS}, {COLUMNS}]"),
            "whole bytes": at_950(
                lambda o, name: four(o, {name: Tensor(E2M1, (ROWS, COLUMNS), (2 * COLUMNS, 1))}), "contiguous"
            ),
            "shape is two for two blocks": at_950(lambda o, name: shape((2, 2, 2), name), "2]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={"data types that go together": INVALID, "format that counts as ND": INVALID, "data type": INVALID},
    )


def run(name: str, x: Array, outputs: Mapping[str, tuple[D, tuple[int, ...]]], index: Any, **how: Any) -> list[Array]:
    """Call a function and return the bytes of its outputs."""
    base = {key: value for key, value in HOW.items() if any(p.name == key for p in BY_NAME[name].parameters)}
    given: dict[str, Any] = {"x": Tensor(D.FLOAT16, x.shape, address=x.ctypes.data), **base, **how}
    ends = None if index is None else np.array(index, np.int64)
    given[GROUPS] = None if ends is None else Tensor(D.INT64, ends.shape, address=ends.ctypes.data)
    found = []
    for output, (of, extents) in outputs.items():
        found.append(np.full(int(np.prod(extents)) // (2 if of == E2M1 else 1), 0x77, np.uint8))
        given[output] = Tensor(of, extents, address=found[-1].ctypes.data)
    prepare(BY_NAME[name], given, AT_950).run()
    return found


def numbers_of(*extents: int) -> Array:
    return (np.random.default_rng(3).normal(size=extents) * 2).astype(np.float16)


def expected(x: Array, mode: int, left: bool) -> Array:
    """The product of rows, as the document has it."""
    x = x.astype(np.float64)
    half = x.shape[-1] // 2
    first, second = (x[..., ::2], x[..., 1::2]) if mode == 1 else (x[..., :half], x[..., half:])
    gate, up = (first, second) if left or mode == 1 else (second, first)

    def sigmoid(t: Array) -> Array:
        found: Array = 1 / (1 + np.exp(-t))
        return found

    if mode == 0:
        z = gate * sigmoid(gate) * up
    elif mode == 3:
        z = np.minimum(gate * sigmoid(gate), 1.5) * np.clip(up, -1.5, 1.5)
    else:
        gate = np.minimum(gate, 1.5)
        z = gate * sigmoid(1.25 * gate) * (np.clip(up, -1.5, 1.5) + 0.5)
    found: Array = z.astype(np.float16).astype(np.float64)
    return found


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("mode", range(4))
def test_swiglu_mode_and_activate_left_select_the_halves(mode: int, left: bool) -> None:
    x = numbers_of(2, 3, 140)
    outputs = {"yOut": (E2M1, (2, 3, 70)), "mxscaleOut": (E8M0, (2, 3, 2, 2))}
    how = {"swigluMode": mode, "activateLeft": left, "axis": 2, "dstType": 40, "scaleAlg": 0}
    y, scales = run(ONE, x, outputs, None, **how, roundModeOptional="round")
    numbers, exponents = quantized(expected(x, mode, left), -1, E2M1, "round")
    assert np.array_equal(y, codes(numbers, E2M1))
    assert np.array_equal(scales, paired(exponents, -1).reshape(-1))


@pytest.mark.parametrize("axis", [-1, -2])
def test_halves_may_lie_along_the_dimension_before_the_last(axis: int) -> None:
    x = numbers_of(2, 140, 6)
    pairs = (2, 2, 6, 2) if axis == -2 else (2, 70, 1, 2)
    outputs = {"yOut": (E4M3, (2, 70, 6)), "mxscaleOut": (E8M0, pairs)}
    y, scales = run(ONE, x, outputs, None, activateDim=1, axis=axis)
    z = expected(np.swapaxes(x, -1, -2), 0, True).swapaxes(-1, -2)
    numbers, exponents = quantized(z, axis, E4M3, algorithm=1)
    assert np.array_equal(y, numbers.astype(E4M3.numpy).view(np.uint8).reshape(-1))
    assert np.array_equal(scales, paired(exponents, axis).reshape(-1))


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("mode", [0, 1])
def test_rows_after_the_last_group_are_zeros(axis: int, mode: int) -> None:
    x, ends = numbers_of(140, 8), (70, 70, 100)
    index = ends if mode else np.diff((0, *ends))
    pairs = (140 // 64 + 3, 4, 2) if axis == -2 else (140, 1, 2)
    outputs = {"yOut": (E2M1, (140, 4)), "mxscaleOut": (E8M0, pairs)}
    y, scales = run(ONE, x, outputs, index, groupMode=mode, axis=axis, dstType=40, scaleAlg=0)
    z = expected(x, 0, True)
    z[100:] = 0
    if axis == -2:
        numbers, wanted = by_groups(z, ends, E2M1)
    else:
        numbers, exponents = quantized(z, -1, E2M1)
        wanted = paired(exponents, -1)
    assert np.array_equal(y, codes(numbers, E2M1))
    assert np.array_equal(scales, wanted.reshape(-1))


def test_dual_axis_results_without_groups_match_both_axes() -> None:
    x = numbers_of(70, 136)
    outputs = {"y1Out": (E2M1, (70, 68)), "mxScale1Out": (E8M0, (70, 2, 2))}
    outputs |= {"y2Out": (E2M1, (70, 68)), "mxScale2Out": (E8M0, (2, 68, 2))}
    found = run(DUAL, x, outputs, None, activateLeft=False, dstType=40, scaleAlg=0, roundModeOptional="floor")
    z = expected(x, 0, False)
    for axis in (-1, -2):
        numbers, exponents = quantized(z, axis, E2M1, "floor")
        assert np.array_equal(found.pop(0), codes(numbers, E2M1))
        assert np.array_equal(found.pop(0), paired(exponents, axis).reshape(-1))


@pytest.mark.parametrize("ends", [(33, 71), (40, 33), (33, 69)])
def test_groups_beyond_the_rows_are_rejected(ends: tuple[int, int]) -> None:
    outputs = {"y1Out": (E4M3, (70, 4)), "mxScale1Out": (E8M0, (70, 1, 2))}
    outputs |= {"y2Out": (E4M3, (70, 4)), "mxScale2Out": (E8M0, (3, 4, 2))}
    with pytest.raises(AclnnError, match=GROUPS) as caught:
        run(DUAL, numbers_of(70, 8), outputs, ends)
    assert caught.value.code == ACLNN_ERR_RUNTIME_ERROR
