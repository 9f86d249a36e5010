"""SwiGLU with quantised results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import quantized_gates
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, torch, wide

ROWS, COLUMNS, GROUPS = 4, 64, 3
X, Y = (ROWS, COLUMNS), (ROWS, COLUMNS // 2)
ENDS, MODE = "groupIndexOptional", "quantModeOptional"
VERSIONS = ("", "_v2")
PLAIN, PRODUCTS = (
    tuple(f"{name}{version}" for version in VERSIONS) for name in ("swi_glu_quant", "dequant_swiglu_quant")
)
SMOOTH = ("smoothScalesOptional", "offsetsOptional")
QUANT = ("quantScaleOptional", "quantOffsetOptional")
OF_PRODUCTS = ("weightScaleOptional", "activationScaleOptional", "biasOptional")
FACTORS = T(D.FLOAT, (GROUPS, COLUMNS // 2))
SIZES = np.array([2, 0, 2])
AT_950 = Product.ASCEND_950


def results(d: D) -> Arguments:
    return {"x": T(d, X), MODE: "dynamic", "yOut": T(D.INT8, Y), "scaleOut": T(D.FLOAT, (ROWS,))}


def plain(more: bool) -> Any:
    def call(d: D) -> Arguments:
        factors = {SMOOTH[0]: T(D.FLOAT, (GROUPS, Y[1])), SMOOTH[1]: None}
        further = {"groupListType": 1, "dstType": 2} if more else {}
        return results(d) | factors | {ENDS: T(D.INT32, (GROUPS,)), "activateLeft": more} | further

    return call


def variant(mode: int) -> Arguments:
    attributes = {"dstType": 2, "roundModeOptional": "rint", "activateDim": -1, "swigluMode": mode}
    return attributes | {"clampLimit": 7.0, "gluAlpha": 1.5, "gluBias": 1.0}


def product(more: bool) -> Any:
    def call(d: D) -> Arguments:
        columns = T(D.FLOAT, (GROUPS, COLUMNS))
        special: Arguments = dict.fromkeys(OF_PRODUCTS)
        if d == D.INT32:
            special = {OF_PRODUCTS[0]: columns, OF_PRODUCTS[1]: T(D.FLOAT, (ROWS, 1)), OF_PRODUCTS[2]: columns}
        factors = {QUANT[0]: T(D.FLOAT, (GROUPS, Y[1])), QUANT[1]: None}
        groups = {ENDS: T(D.INT64, (GROUPS,)), "activateLeft": True}
        return results(d) | special | factors | groups | (variant(1) if more else {})

    return call


def integers(numbers: Any) -> Any:
    return torch.round(numbers).clamp(-128, 127)


def of_rows(factors: Any) -> Any:
    return wide(factors)[np.repeat(np.arange(GROUPS), SIZES)]


def by_rows(numbers: Any) -> Any:
    scales = (numbers.abs().amax(-1) / 127).float().double()
    return integers(numbers / scales[:, None]), scales


def silu_product(a: Mapping[str, Any]) -> Any:
    first, second = wide(a["x"]).chunk(2, -1)
    gate, up = (first, second) if a["activateLeft"] else (second, first)
    y = torch.nn.functional.silu(gate) * up * of_rows(a[SMOOTH[0]])
    factors = (127 / y.abs().amax(-1)).float().double()
    return integers(y * factors[:, None]), factors


def gated(x: Any, mode: int) -> Any:
    """Mode 0 to 3 with the numbers of ``variant``; the left is the gate."""
    gate, up = (x[..., ::2], x[..., 1::2]) if mode == 1 else x.chunk(2, -1)
    if mode == 0:
        return torch.nn.functional.silu(gate) * up
    up = up.clamp(-7, 7)
    if mode == 3:
        return torch.nn.functional.silu(gate).clamp(max=7) * up
    gate = gate.clamp(max=7)
    return gate * torch.sigmoid(1.5 * gate) * (up + 1)


def dequantized(a: Mapping[str, Any]) -> Any:
    x = wide(a["x"])
    if a[OF_PRODUCTS[0]] is not None:
        x = x * of_rows(a[OF_PRODUCTS[0]]) * wide(a[OF_PRODUCTS[1]]) + of_rows(a[OF_PRODUCTS[2]])
    return by_rows(gated(x, a.get("swigluMode", 0)) * of_rows(a[QUANT[0]]))


def numbers(operator: str, name: str, array: Array) -> Array:
    """Groups of which one is empty."""
    if name == ENDS:
        return (np.cumsum(SIZES) if operator == PLAIN[0] else SIZES).astype(array.dtype)
    return array


def static(name: str) -> Arguments:
    """Changes that give a call an offset."""
    other = {SMOOTH[1]: SMOOTH[0], QUANT[1]: QUANT[0]}.get(name)
    return {other: FACTORS, MODE: "static"} if other else {}


def nothing(operator: Operator, name: str) -> Break:
    integer = D.INT32 if operator.name in PLAIN else D.INT64
    return Break({name: T(integer if name == ENDS else D.FLOAT, (0,))}, "no dimension of 0")


class TestQuantizedGates(LibraryTests):
    subject = Subject(
        quantized_gates.OPERATORS,
        calls={name: plain(name.endswith("v2")) for name in PLAIN}
        | {name: product(name.endswith("v2")) for name in PRODUCTS},
        references=dict.fromkeys(PLAIN, silu_product) | dict.fromkeys(PRODUCTS, dequantized),
        dtypes={PRODUCTS[0]: (D.INT32, D.FLOAT16, D.BF16), PRODUCTS[1]: (D.INT32, D.BF16)},
        default=(D.FLOAT, D.FLOAT16, D.BF16),
        numbers=numbers,
        empty={
            name: {
                key: value and {"shape": value.shape}
                for key, value in call(False)(D.INT32).items()
                if value is None or isinstance(value, T)
            }
            | {"x": {"shape": (0, COLUMNS)}, "yOut": {"shape": (0, Y[1])}, "scaleOut": {"shape": (0,)}}
            | ({OF_PRODUCTS[1]: None} if name in PRODUCTS else {})
            for names, call in ((PLAIN, plain), (PRODUCTS, product))
            for name in names
        },
        breaks={
            "data type": lambda o, name: Break({name: T(D.STRING, (1,))}, "data type"),
            "data type for dstType": lambda o, name: Break(dtype(D.INT4, name), "ACL_INT8"),
            "data type of yOut": lambda o, name: Break({name: 36}, "2 (that of yOut)"),
            "allowed value": lambda o, name: Break({name: "round" if name.endswith("Optional") else 5}, " or "),
            "with INT32": lambda o, name: Break({name: None}, "an object"),
            "with INT32 alone": lambda o, name: Break({name: T(D.FLOAT, (COLUMNS,))}, "null (with ACL_BF16)", D.BF16),
            "in static": lambda o, name: Break({QUANT[1]: FACTORS, name: None, MODE: None}, "an object (static)"),
            "none in dynamic": lambda o, name: Break({name: FACTORS}, "null (dynamic)", product=AT_950),
            "together": lambda o, name: Break({SMOOTH[1]: FACTORS, name: None, MODE: "static"}, "an object"),
            "1 dimension": lambda o, name: Break(shape((GROUPS, 2), name), "1 dimension"),
            "2 to 8 dimensions": lambda o, name: Break(shape((COLUMNS,), name), "2 to 8"),
            "no dimension of 0": nothing,
            "halves": lambda o, name: Break({name: {"shape": (ROWS, 63)}, ENDS: None}, "multiple of 2"),
            "groups": lambda o, name: Break(shape((ROWS, 66), name), "multiple of 64"),
            "at most 8192 columns": lambda o, name: Break(shape((ROWS, 8194), name), "at most 8192"),
            "one, or one of each column": lambda o, name: Break({name: T(D.FLOAT, (2,))} | static(name), "3 or 96"),
            "as many elements as columns of groups": lambda o, name: Break(shape((COLUMNS,), name), "192 elements"),
            "as many elements as rows": lambda o, name: Break(shape((3,), name), "4 elements"),
            "same shape as quantScaleOptional": lambda o, name: Break(
                {name: T(D.FLOAT, (GROUPS,)), MODE: None}, "[3, 32]"
            ),
            "shape is half of x": lambda o, name: Break(shape((ROWS, 31), name), "[4, 32]"),
            "whole bytes": lambda o, name: Break({name: T(D.INT4, (ROWS, 31)), "dstType": 29}, "even last"),
            "the last dimension": lambda o, name: Break({name: 0}, "-1 or 1"),
            "left in mode 1": lambda o, name: Break({name: False}, "true"),
            "a finite positive number": lambda o, name: Break({name: 0.0}, "positive"),
        },
        codes=dict.fromkeys(("with INT32", "in static"), NULL),
    )


def tensor(array: Any) -> Tensor:
    return Tensor(D.of_numpy(array.dtype), array.shape, address=array.ctypes.data, owner=array)


def run(name: str, product: Product = Product.ATLAS_A2, **arguments: Any) -> tuple[Array, Array]:
    """Run an operator with what is given and null for the rest; return its integers and scales."""
    operator = BY_NAME[name]
    x = arguments["x"]
    half = (*x.shape[:-1], x.shape[-1] // 2)
    outputs = {"yOut": np.full(half, 5, np.int8), "scaleOut": np.full(x.shape[:-1], 5, np.float32)}
    absent = {p.name: None for p in operator.parameters if p.optional}
    arguments = absent | {"activateLeft": True} | outputs | arguments
    arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
    prepare(operator, arguments | {key: tensor(value) for key, value in arrays.items()}, product).run()
    return arrays["yOut"], arrays["scaleOut"]


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 3


def expected(numbers: Any) -> Any:
    return integers(torch.as_tensor(numbers)).numpy()


@pytest.mark.parametrize("product", [Product.ATLAS_A2, AT_950])
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("size", [1, 32])
def test_static_results_of_each_mode(mode: int, size: int, product: Product) -> None:
    x = (random(*X) * 100).astype(np.int32)
    weight, scale, offset = np.abs(random(COLUMNS)) / 50, np.abs(random(size)) + 0.1, random(size)
    factors = {OF_PRODUCTS[0]: weight, QUANT[0]: scale, QUANT[1]: offset}
    y, found = run(PRODUCTS[1], product, x=x, **factors, **variant(mode))
    wanted = gated(torch.from_numpy(x).double() * torch.from_numpy(weight).double(), mode)
    assert (y == expected(wanted / torch.from_numpy(scale).double() + torch.from_numpy(offset).double())).all()
    assert (found == 5).all()


def test_a_bias_of_integers_is_added_before_the_factors() -> None:
    x, bias = np.full(X, 3, np.int32), np.full(COLUMNS, -1, np.int32)
    rows = np.array([[1], [2], [3], [4]], np.float32)
    factors = {OF_PRODUCTS[0]: np.full(COLUMNS, 0.5, np.float32), OF_PRODUCTS[1]: rows, OF_PRODUCTS[2]: bias}
    _, found = run(PRODUCTS[0], x=x, **factors, **{MODE: "dynamic"})
    expected = torch.from_numpy(rows[:, 0]).double()
    expected = torch.nn.functional.silu(expected) * expected / 127
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 32])
@pytest.mark.parametrize("name", PLAIN)
def test_static_results_of_groups(name: str, size: int) -> None:
    x, smooth, offset = random(*X), random(GROUPS, size), random(GROUPS, size)
    ends = np.cumsum(SIZES).astype(np.int32)
    further = {"groupListType": 0, "dstType": 2} if name == PLAIN[1] else {}
    y, found = run(name, x=x, **dict(zip(SMOOTH, (smooth, offset), strict=True)), **{ENDS: ends}, **further)
    assert (
        y
        == expected(
            gated(torch.from_numpy(x).double(), 0) * of_rows(torch.from_numpy(smooth))
            + of_rows(torch.from_numpy(offset))
        )
    ).all()
    assert (found == 5).all()


def test_torch_npu_takes_pairs_of_four_bits_as_bytes() -> None:
    x = random(*X)
    y = np.zeros((ROWS, COLUMNS // 4), np.int8)
    further = {"groupListType": 0, "dstType": 29, MODE: "dynamic"}
    y, factors = run(PLAIN[1], x=x, yOut=y, **further)
    expected = gated(torch.from_numpy(x).double(), 0)
    np.testing.assert_allclose(factors, 7 / expected.abs().amax(-1), rtol=1e-6)
    numbers = torch.round(expected * torch.from_numpy(factors).double()[:, None]).numpy().astype(np.int8)
    assert ((y << 4 >> 4) == numbers[:, ::2]).all()
    assert (y >> 4 == numbers[:, 1::2]).all()
