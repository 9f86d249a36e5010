"""Products of rows quantised on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import dequantized_products
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Placed, Subject, computed, torch, wide

ONE, GROUPED = "quant_matmul_dequant", "quant_grouped_matmul_dequant"
M, N, K, ENDS = 6, 32, 48, np.array([1, 1, 6])
ON_310P = Product.ATLAS_INFERENCE


def _call(d: D) -> Arguments:
    return {
        "x": T(d, (M, K)),
        "weight": T(D.INT8, (N, K)),
        "weightScale": T(D.FLOAT, (N,)),
        "biasOptional": None,
        "xScaleOptional": T(D.FLOAT, (M,)),
        "xOffsetOptional": None,
        "smoothScaleOptional": T(D.FLOAT16, (K,)),
        "xQuantMode": "pertoken",
        "transposeWeight": True,
        "out": T(d, (M, N)),
    }


def _grouped(d: D) -> Arguments:
    groups = {"weight": T(D.INT8, (3, N, K)), "weightScale": T(D.FLOAT, (3, N)), "groupList": T(D.INT64, (3,))}
    return _call(d) | groups


def _product(a: Mapping[str, Any]) -> Any:
    rows = wide(a["x"]) * wide(a["smoothScaleOptional"])
    scales = wide(a["xScaleOptional"])[:, None]
    integers = (rows / scales).round().clamp(-128, 127)
    if a["weight"].dim() == 2:
        return integers @ wide(a["weight"]).T * wide(a["weightScale"]) * scales
    of_group = [0, 2, 2, 2, 2, 2]
    found = [
        row @ wide(a["weight"])[g].T * wide(a["weightScale"])[g] for row, g in zip(integers, of_group, strict=True)
    ]
    return torch.stack(found) * scales


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "groupList":
        return ENDS
    return np.abs(array) / 8 + 0.125 if "cale" in name else array


def _turned(o: Operator, name: str) -> Break:
    of = tuple(value for value in _shapes(o)[name])
    return Break(
        {name: Tensor(D.FLOAT16 if name == "out" else D.INT8, of, (*[0] * (len(of) - 2), 1, of[-2]))}, "a contiguous"
    )


def _shapes(o: Operator) -> Mapping[str, tuple[int, ...]]:
    call = (_grouped if o.name == GROUPED else _call)(D.FLOAT16)
    return {name: value.shape for name, value in call.items() if isinstance(value, T)}


BREAKS: Mapping[str, Breaking] = {
    "allowed value": lambda o, name: Break({name: False}, "True"),
    "null": lambda o, name: Break({name: T(D.INT32, (N,))}, "null"),
    "same data type as x": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "kernel of the product": lambda o, name: Break({}, "with a kernel", product=Product.ATLAS_A2),
    "data types that go together": lambda o, name: Break(
        dtype(D.BF16, *([name, "out"] if name == "x" else [name])), "data type ACL_"
    ),
    "contiguous": _turned,
    "rows and columns of the weight": lambda o, name: Break(
        shape((*_shapes(o)[name][:-1], 40), name), "multiples of 16"
    ),
    "2 dimensions": lambda o, name: Break(shape((M, K, 1), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((3, 1), name), "1 dimension"),
    "as many columns as x": lambda o, name: Break(shape((*_shapes(o)[name][:-1], 64), name), "48 columns"),
    "shape is a factor for each row of the weight": lambda o, name: Break(shape((16,), name), f"{N}]"),
    "shape is an end for each group": lambda o, name: Break(shape((2,), name), "[3]"),
    "scales for the mode": lambda o, name: Break({name: "pertensor", "xScaleOptional": None}, "'pertoken' without"),
    "shape for x": lambda o, name: Break(shape((7,), name), f"[{M if name[0] == 'x' else K}]"),
    "shape is rows of x, columns of the product": lambda o, name: Break(shape((M, K), name), f"[{M}, {N}]"),
}
TILED = (
    "2 dimensions",
    "1 dimension",
    "as many columns as x",
    "shape is a factor for each row of the weight",
    "shape is an end for each group",
    "scales for the mode",
    "shape for x",
    "shape is rows of x, columns of the product",
)


EMPTY: Mapping[str, Any] = {**dict.fromkeys(("biasOptional", "xOffsetOptional")), **shape((0, K), "x")}


def _on_310p(change: Breaking) -> Breaking:
    return lambda o, name: change(o, name)._replace(product=ON_310P)


class TestDequantizedProducts(LibraryTests):
    subject = Subject(
        dequantized_products.OPERATORS,
        calls={ONE: _call, GROUPED: _grouped},
        references={ONE: _product, GROUPED: _product},
        default=(D.FLOAT16,),
        numbers=numbers,
        plain=(ONE, GROUPED),
        empty={ONE: EMPTY, GROUPED: EMPTY},
        codes={"null": NULL, **dict.fromkeys(TILED, ACLNN_ERR_INNER_TILING_ERROR)},
        breaks={name: change if name.startswith("kernel") else _on_310p(change) for name, change in BREAKS.items()},
    )


def _given() -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {
        "x": random.normal(size=(M, K)).astype(np.float16),
        "weight": random.integers(-128, 128, (N, K)).astype(np.int8),
        "weightScale": random.uniform(0.01, 0.1, N).astype(np.float32),
        **dict.fromkeys(("biasOptional", "xScaleOptional", "xOffsetOptional", "smoothScaleOptional")),
        "xQuantMode": "pertoken",
        "transposeWeight": True,
        "out": np.zeros((M, N), np.float16),
    }


def test_rows_without_scales_are_quantised_by_their_largest_magnitude() -> None:
    """As fastllm calls it; a row of zeros stays one."""
    given = _given()
    given["x"][2] = 0
    found = computed(ONE, given, ON_310P)["out"]
    rows = given["x"].astype(np.float64)
    scales = np.abs(rows).max(1, keepdims=True) / 127
    integers = np.rint(np.divide(rows, scales, where=scales > 0, out=np.zeros_like(rows)))
    expected = integers @ given["weight"].T.astype(np.float64) * given["weightScale"] * scales
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)
    assert not found[2].any()


def test_blocks_hold_the_rows_of_the_matrix() -> None:
    given = _given() | {"weight": np.random.default_rng(8).integers(-128, 128, (N, 64)).astype(np.int8)}
    given["x"] = np.concatenate((given["x"], given["x"][:, :16]), 1)
    expected = computed(ONE, given, ON_310P)["out"]
    placed = {name: Placed(value, "contiguous") for name, value in given.items() if isinstance(value, np.ndarray)}
    blocks = given["weight"].reshape(N // 16, 16, 2, 32).transpose(2, 0, 1, 3)
    placed["weight"] = Placed(np.ascontiguousarray(blocks), "contiguous")
    placed["weight"].tensor.format = Format.FORMAT_FRACTAL_NZ
    prepare(BY_NAME[ONE], given | {name: each.tensor for name, each in placed.items()}, ON_310P).run()
    np.testing.assert_array_equal(placed["out"].view, expected)


def test_scales_of_integers_are_bits_that_include_the_scale_of_x() -> None:
    given = _given() | {"xQuantMode": "pertensor", "xScaleOptional": np.array([0.0625], np.float32)}
    expected = computed(ONE, given, ON_310P)["out"]
    together = (given["weightScale"] * np.float32(0.0625)).view(np.int32).astype(np.int64)
    given |= {"weightScale": together, "xScaleOptional": np.array([0.0625], np.float16)}
    np.testing.assert_allclose(computed(ONE, given, ON_310P)["out"], expected, rtol=2e-3)


def test_scales_of_integers_demand_one_scale_of_x() -> None:
    given = _given() | {"weightScale": np.ones(N, np.int64), "xScaleOptional": np.ones(M, np.float16)}
    with pytest.raises(AclnnError, match="expected 'pertensor' with weightScale of ACL_INT64") as caught:
        computed(ONE, given, ON_310P)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_the_published_groups() -> None:
    """With the sizes and the intended ends of aclnnQuantGroupedMatmulDequant's example; rows behind them are 0."""
    random = np.random.default_rng(7)
    given = _given() | {
        "x": random.normal(size=(70, 256)).astype(np.float16),
        "weight": random.integers(-128, 128, (4, 512, 256)).astype(np.int8),
        "weightScale": random.uniform(0.01, 0.1, (4, 512)).astype(np.float32),
        "groupList": np.array([7, 32, 40, 64]),
        "out": np.zeros((70, 512), np.float16),
    }
    found = computed(GROUPED, given, ON_310P)["out"]
    for at, (begin, end) in enumerate(((0, 7), (7, 32), (32, 40), (40, 64))):
        alone = {name: given[name][at] for name in ("weight", "weightScale")}
        out = {"x": given["x"][begin:end], "out": np.zeros((end - begin, 512), np.float16)}
        alone = {name: value for name, value in (given | alone | out).items() if name != "groupList"}
        np.testing.assert_array_equal(found[begin:end], computed(ONE, alone, ON_310P)["out"])
    assert not found[64:].any()
