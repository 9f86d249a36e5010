"""Products of quantised matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, torch, wide
from tests.helpers.microscaling import codes, paired, quantized

M, K, N = 3, 20, 8
OLD, NEW = ("quant_matmul_v3", "quant_matmul_v4"), ("quant_matmul_v5", "quant_matmul_weight_nz")
NZ = {"format": Format.FORMAT_FRACTAL_NZ}
RESERVED = ("yScale", "x1Offset", "yOffset")
AT_950 = Product.ASCEND_950
E4M3, E5M2 = D.FLOAT8_E4M3FN, D.FLOAT8_E5M2


def call(name: str) -> Any:
    """V3 scales columns as a device does and adds an offset; the others scale rows too."""
    scale, offset, rows = (
        ("scale", "offset", "pertokenScaleOptional") if name in OLD else ("x2Scale", "x2Offset", "x1Scale")
    )

    def arguments(d: D) -> Arguments:
        weight = T(d, (N, K), Format.FORMAT_FRACTAL_NZ if name == NEW[1] else Format.FORMAT_ND)
        common = {"x1": T(d, (K, M)), "x2": weight, "transposeX1": True, "transposeX2": True}
        if name == "quant_matmul_v3":
            special = {
                scale: T(D.UINT64, (N,)),
                offset: T(D.FLOAT, (1,)),
                "bias": T(D.INT32, (N,)),
                "out": T(D.INT8, (M, N)),
            }
        else:
            special = {scale: T(D.FLOAT, (N,)), offset: None, rows: T(D.FLOAT, (M,))}
            special |= {"bias": T(D.BF16, (N,)), "out": T(D.BF16, (M, N))}
        if name in NEW:
            special |= {**dict.fromkeys(RESERVED, T(D.INT8, (0,))), "groupSize": 0}
        return common | special

    return arguments


def product(a: Mapping[str, Any]) -> Any:
    total = wide(a["x1"]).T @ wide(a["x2"]).T
    if "pertokenScaleOptional" not in a and "x1Scale" not in a:
        # Half, with an offset of -3 among the bits: see ``numbers``.
        return torch.round((total + wide(a["bias"])) / 2 - 3).clamp(-128, 127)
    rows = a.get("pertokenScaleOptional", a.get("x1Scale"))
    return total * wide(a.get("scale", a.get("x2Scale"))) * wide(rows)[:, None] + wide(a["bias"])


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.full_like(array, 0x3F000000 | 1 << 46 | (-3 & 0x1FF) << 37) if array.dtype == np.uint64 else array


def scale_of(operator: Operator) -> str:
    return "scale" if operator.name in OLD else "x2Scale"


def static(operator: Operator) -> dict[str, Any]:
    """Changes that give a call an offset."""
    rows = "pertokenScaleOptional" if operator.name in OLD else "x1Scale"
    changed = {scale_of(operator): T(D.UINT64, (N,)), "bias": None, "out": T(D.INT8, (M, N))}
    return changed | ({} if operator.name == "quant_matmul_v3" else {rows: None})


def breaking(change: Any, expected: str, with_offset: Any = None) -> Any:
    """Change an argument; the offset with the call that has one."""

    def breaks(operator: Operator, name: str) -> Break:
        if name.lower().endswith("offset"):
            return Break(static(operator) | {name: with_offset}, expected)
        return Break(change(name), expected)

    return breaks


def four_bits(operator: Operator, name: str) -> Break:
    """A left operand that is transposed, a right one of several matrices."""
    change: dict[str, Any] = {"x1": T(D.INT4, (K, M)), "x2": T(D.INT4, (N, K))}
    if name == "x2":
        change = {"x1": T(D.INT4, (M, K)), "transposeX1": False, "x2": T(D.INT4, (1, N, K))}
    if operator.name == "quant_matmul_v3":
        change |= {"out": T(D.FLOAT16, (M, N)), "offset": None}
    return Break(change, "not transposed" if name == "x1" else "2 dimensions")


def nothing(operator: Operator, name: str) -> Break:
    rows = [p.name for p in operator.parameters if p.name in ("pertokenScaleOptional", "x1Scale")]
    if name == "x1":
        return Break(shape((K, 0), "x1") | shape((0, N), "out") | shape((0,), *rows), "no dimension of 0")
    return Break(
        shape((0, K), "x2") | shape((M, 0), "out") | shape((0,), scale_of(operator), "bias"), "no dimension of 0"
    )


def mx(change: Mapping[str, Any], expected: str) -> Any:
    """Change a call of MX formats."""

    def breaks(operator: Operator, name: str) -> Break:
        nz = operator.name == NEW[1] and "format" not in change
        weight = T(D.FLOAT8_E4M3FN, (N, 64), Format.FORMAT_FRACTAL_NZ if nz else Format.FORMAT_ND)
        scales = {"x1Scale": T(D.FLOAT8_E8M0, (1, M, 2)), "x2Scale": T(D.FLOAT8_E8M0, (N, 1, 2)), "bias": None}
        call: dict[str, Any] = {"x1": T(D.FLOAT8_E4M3FN, (64, M)), "x2": weight, **scales, "groupSize": 1 << 32 | 65568}
        for key, new in change.items():
            if key != "format":
                at = name if key == "" else key
                old = call.get(at) or T(D.FLOAT, (N,))
                call[at] = old._replace(**new) if isinstance(new, dict) else new
        return Break(call, expected, product=AT_950)

    return breaks


MX = " of MX formats"
MX_BREAKS = {
    f"format ACL_FORMAT_FRACTAL_NZ{MX}": mx({"format": None}, "FRACTAL_NZ"),
    f"2 to 6 dimensions{MX}": mx({"": {"shape": (K,)}}, "2 to 6"),
    f"data type{MX}": mx({"": {"dtype": D.INT8}}, "data type"),
    f"formats together{MX}": mx({"x1": {"dtype": D.FLOAT4_E2M1}}, "ACL_FLOAT4_E2M1 with ACL_FLOAT4_E2M1"),
    f"data type with scales{MX}": mx({"": {"dtype": D.BF16}}, "ACL_FLOAT with"),
    f"data type of products{MX}": mx({"out": T(D.INT32, (M, N))}, "ACL_FLOAT, ACL_FLOAT16 or ACL_BF16"),
    f"null{MX}": mx({"": {}}, "null"),
    f"3 dimensions{MX}": mx({"": {"shape": (3, 2)}}, "3 dimensions"),
    f"no transposition in blocks{MX}": mx(
        {
            "x1": {"dtype": D.FLOAT4_E2M1},
            "x2": {"dtype": D.FLOAT4_E2M1, "format": Format.FORMAT_FRACTAL_NZ},
        },
        "false",
    ),
    f"groups of 32{MX}": mx({"groupSize": 64}, "1, 1 and 32"),
    f"whole bytes{MX}": lambda o, name: mx(
        {
            "x1": {"dtype": D.FLOAT4_E2M1, "shape": (M, 63 if name == "x1" else 64)},
            "x2": {"dtype": D.FLOAT4_E2M1, "shape": (N, 63 if name == "x2" else 64)},
            "transposeX1": False,
        },
        "an even number",
    )(o, name),
    f"as many rows as x1 has columns{MX}": mx({"": {"shape": (N, 65)}}, "64 rows"),
    f"matrices with four-bit types{MX}": mx(
        {"x2": {"dtype": D.FLOAT4_E2M1}, "groupSize": 32, "out": T(D.BF16, (M, N))}, "multiple of 64 columns"
    ),
    f"shape is two for two blocks{MX}": mx({"": {"shape": (2, 2, 2)}}, "2]"),
    f"leading dimensions that broadcast{MX}": mx(
        {"x1": {"shape": (2, 64, M)}, "x2": {"shape": (3, N, 64)}}, "broadcast with"
    ),
    f"a row of a product{MX}": mx({"": {"shape": (1, N)}}, "[8]"),
    f"shape of the product{MX}": mx({"": T(D.BF16, (N, M))}, "[3, 8]"),
    f"no private format{MX}": mx({"": {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    f"format of the weight{MX}": mx({"": {"format": Format.FORMAT_NC1HWC0}}, "ACL_FORMAT_ND or"),
    f"not empty{MX}": lambda o, name: mx(
        {"x1": {"shape": (64, 0)}, "x1Scale": {"shape": (1, 0, 2)}, "out": T(D.BF16, (0, N))}
        if name == "x1"
        else {"x2": {"shape": (0, 64)}, "x2Scale": {"shape": (0, 1, 2)}, "out": T(D.BF16, (M, 0))},
        "elements",
    )(o, name),
}


def subject(*names: str, reserved: int = INVALID) -> Subject:
    return Subject(
        tuple(BY_NAME[name] for name in names),
        calls={name: call(name) for name in names},
        references=dict.fromkeys(names, product),
        default=(D.INT8,),
        numbers=numbers,
        # They take no empty tensor on this product.
        empty={
            name: {key: {"shape": value.shape} for key, value in call(name)(D.INT8).items() if isinstance(value, T)}
            | dict.fromkeys(key for key, value in call(name)(D.INT8).items() if value is None)
            for name in names
        },
        breaks={
            "null or empty": lambda o, name: Break({name: T(D.FLOAT, (1,))}, "null or an empty tensor"),
            "allowed value": lambda o, name: Break({name: 1}, "expected 0", product=AT_950),
            "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break(
                {name: {"format": Format.FORMAT_ND}}, "FRACTAL_NZ", product=AT_950
            ),
            "2 to 6 dimensions": lambda o, name: Break(shape((K,), name), "2 to 6"),
            "data type": breaking(lambda name: dtype(D.STRING, name), "data type", T(D.FLOAT16, (1,))),
            "not computed": lambda o, name: Break(
                dtype(D.INT4, name)
                if name == "x2"
                else {
                    key: T(D.FLOAT, (1, 1)) for key in (name, "pertokenScaleOptional" if o.name in OLD else "x1Scale")
                },
                "not supported here",
            ),
            "four bits together": lambda o, name: Break(dtype(D.INT4, "x1"), "ACL_INT4 or ACL_INT32"),
            "data type of products": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
            "data type of scales": lambda o, name: Break(dtype(D.INT8, name), "data type"),
            "data type with scales": lambda o, name: Break(dtype(D.INT8, name), "ACL_INT32"),
            "of INT8 alone": lambda o, name: Break(
                {name: T(D.FLOAT, (1,)), "out": T(D.BF16 if o.name != OLD[0] else D.FLOAT16, (M, N))}, "null with"
            ),
            "1 dimension": breaking(lambda name: shape((1, 1), name), "1 dimension", T(D.FLOAT, (1, 1))),
            "whole bytes": four_bits,
            "as many rows as x1 has columns": lambda o, name: Break(shape((N, 21), name), "20 rows"),
            "one for each row": lambda o, name: Break(shape((4,), name), "[3]"),
            "no dimension of 1 in blocks": lambda o, name: Break(
                {name: T(D.INT8, (1, K), Format.FORMAT_FRACTAL_NZ)}, "no dimension of 1"
            ),
            "one for each column": breaking(lambda name: shape((3,), name), "[1] or [8]", T(D.FLOAT, (3,))),
            "leading dimensions that broadcast": lambda o, name: Break(
                shape((2, K, M), "x1") | shape((3, N, K), "x2"), "broadcast with"
            ),
            "a row of a product": lambda o, name: Break(shape((1, N), name), "[8]"),
            "shape of the product": lambda o, name: Break(shape((N, M), name), "[3, 8]"),
            "no private format": breaking(
                lambda name: {name: NZ}, "ACL_FORMAT_ND", T(D.FLOAT, (1,), Format.FORMAT_FRACTAL_NZ)
            ),
            "format of the weight": lambda o, name: Break(
                {name: {"format": Format.FORMAT_NC1HWC0}}, "ACL_FORMAT_ND or ACL_FORMAT_FRACTAL_NZ"
            ),
            "no dimension of 0": nothing,
            **MX_BREAKS,
        },
        codes={"not computed": NO_KERNEL, "null or empty": reserved},
    )


class TestProducts(LibraryTests):
    subject = subject(*OLD)


class TestProductsV5(LibraryTests):
    subject = subject("quant_matmul_v5", reserved=NULL)


class TestProductsOfBlocks(LibraryTests):
    subject = subject("quant_matmul_weight_nz")


FIRST, SECOND = "quant_matmul", "quant_matmul_v2"


def oldest_call(name: str) -> Any:
    def arguments(d: D) -> Arguments:
        common = {"bias": T(D.INT32, (N,)), "out": T(D.FLOAT16, (M, N))}
        if name == FIRST:
            return {"x1": T(d, (M, K)), "x2": T(d, (K, N)), "deqScale": 0.5} | common
        matrices = {"x1": T(d, (K, M)), "x2": T(d, (N, K)), "adjX1": True, "adjX2": True}
        return matrices | {"deqScale": T(D.UINT64, (16,))} | common

    return arguments


class TestOldestProducts(LibraryTests):
    subject = Subject(
        tuple(BY_NAME[name] for name in (FIRST, SECOND)),
        calls={name: oldest_call(name) for name in (FIRST, SECOND)},
        references={
            FIRST: lambda a: (wide(a["x1"]) @ wide(a["x2"]) + wide(a["bias"])) / 2,
            SECOND: lambda a: (wide(a["x1"]).T @ wide(a["x2"]).T + wide(a["bias"])) / 2,
        },
        default=(D.INT8,),
        numbers=numbers,
        empty={
            FIRST: shape((0, K), "x1") | shape((K, N), "x2") | shape((N,), "bias") | shape((0, N), "out"),
            SECOND: shape((K, 0), "x1")
            | shape((N, K), "x2")
            | shape((N,), "bias")
            | shape((0, N), "out")
            | shape((16,), "deqScale"),
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.STRING, name), "data type"),
            "2 to 3 dimensions": lambda o, name: Break(shape((K,), name), "2 to 3"),
            "as many rows as x1 has columns": lambda o, name: Break(shape((21, 21), name), "20 rows"),
            "leading dimensions that broadcast": lambda o, name: Break(
                (shape((2, K, M), "x1") | shape((3, N, K), "x2"))
                if o.name == SECOND
                else (shape((2, M, K), "x1") | shape((3, K, N), "x2")),
                "broadcast with",
            ),
            "shape is a row of the product": lambda o, name: Break(shape((1, N), name), "[8]"),
            "shape is that of the product": lambda o, name: Break(shape((N, M), name), "[3, 8]"),
            "shape is room for whole blocks": lambda o, name: Break(shape((N,), name), "[16]"),
            "terms with a bias": lambda o, name: Break(
                (shape((0, M), "x1") | shape((N, 0), "x2"))
                if o.name == SECOND
                else (shape((M, 0), "x1") | shape((0, N), "x2")),
                "sums of no terms",
            ),
        },
    )


def test_sums_of_nothing_are_zeros_and_the_first_scale_has_19_bits() -> None:
    """The second function's batches share a weight."""
    out = np.ones((2, 3), np.float16)
    operator, scale = BY_NAME[FIRST], float(np.uint32(0x3F803FFF).view(np.float32))
    nothing = {"x1": tensor(np.zeros((2, 0), np.int8)), "x2": tensor(np.zeros((0, 3), np.int8)), "bias": None}
    prepare(operator, nothing | {"deqScale": 1.0, "out": tensor(out)}, Product.ATLAS_A2).run()
    assert not out.any()
    ones = {"x1": tensor(np.ones((2, 1), np.int8)), "x2": tensor(np.ones((1, 3), np.int8)), "bias": None}
    prepare(operator, ones | {"deqScale": scale, "out": tensor(out)}, Product.ATLAS_A2).run()
    assert (out == np.float16(np.uint32(0x3F802000).view(np.float32))).all()
    batches, result = np.arange(12, dtype=np.int8).reshape(2, 2, 3), np.zeros((2, 2, 16), np.float16)
    weight, scales = np.full((3, 16), 2, np.int8), np.full(16, 0x40000000, np.uint64)
    given = {"x1": tensor(batches), "x2": tensor(weight), "bias": None, "deqScale": tensor(scales)}
    prepare(BY_NAME[SECOND], given | {"adjX1": False, "adjX2": False, "out": tensor(result)}, Product.ATLAS_A3).run()
    np.testing.assert_array_equal(result, np.broadcast_to(batches.sum(-1, keepdims=True) * 4, result.shape))


def tensor(array: Any, of: D | None = None, dims: tuple[int, ...] | None = None, strides: Any = None) -> Tensor:
    array = np.ascontiguousarray(array)
    return Tensor(of or D.of_numpy(array.dtype), dims or array.shape, strides, address=array.ctypes.data, owner=array)


def multiply(out: Array, product: Product = Product.ATLAS_A2, name: str = NEW[0], **arguments: Any) -> Array:
    operator = BY_NAME[name]
    absent = {p.name: None for p in operator.parameters if p.optional}
    attributes = {"transposeX1": False, "transposeX2": False, "groupSize": 0}
    prepare(operator, absent | attributes | arguments | {"out": tensor(out)}, product).run()
    return out


@pytest.mark.parametrize("of", [D.INT4, D.INT32])
@pytest.mark.parametrize("transposed", ["no", "by strides", "by the attribute"])
def test_int4_products_match_the_definition(of: D, transposed: str) -> None:
    random = np.random.default_rng(7)
    left, right = random.integers(-8, 8, (2, 3, 16)), random.integers(-8, 8, (16, 24))

    def packed(matrix: Any) -> Array:
        flat = matrix.reshape(-1) & 15
        return (flat[::2] | flat[1::2] << 4).astype(np.uint8)

    def operand(matrix: Any, by_strides: bool = False) -> Tensor:
        shape = matrix.shape if of == D.INT4 else (*matrix.shape[:-1], matrix.shape[-1] // 8)
        stored = packed(matrix) if of == D.INT4 else packed(matrix).view(np.int32)
        return tensor(stored, of, shape[::-1] if by_strides else shape, (1, shape[-1]) if by_strides else None)

    weight = operand(right if transposed == "no" else right.T, transposed == "by strides")
    scale = np.full(24, 0x3F000000 | 1 << 46, np.int64)
    out = multiply(
        np.zeros((2, 3, 24), np.float16),
        x1=operand(left),
        x2=weight,
        x2Scale=tensor(scale),
        transposeX2=transposed == "by the attribute",
    )
    assert (out == left @ right / 2).all()


def test_four_bits_may_be_called_blocks_in_the_function_of_blocks_alone() -> None:
    """The document's example for Atlas A2 does this, with scales per row and column."""
    random = np.random.default_rng(8)
    left, right = random.integers(-8, 8, (5, 64)), random.integers(-8, 8, (48, 64))
    rows, columns = random.uniform(1, 2, 5).astype(np.float32), random.uniform(1, 2, 48).astype(np.float32)
    x1, x2 = (each.reshape(-1)[::2] & 15 | (each.reshape(-1)[1::2] & 15) << 4 for each in (left, right))
    weight = tensor(x2.astype(np.uint8), D.INT4, (48, 64))
    weight.format, weight.storage_shape = Format.FORMAT_FRACTAL_NZ, (1, 3, 16, 64)
    given = {"x1": tensor(x1.astype(np.uint8), D.INT4, (5, 64)), "x2": weight, "transposeX2": True}
    given |= {"x1Scale": tensor(rows), "x2Scale": tensor(columns)}
    out = multiply(np.zeros((5, 48), D.BF16.numpy), name=NEW[1], **given)
    expected = left @ right.T * columns.astype(float) * rows.astype(float)[:, None]
    np.testing.assert_allclose(out.astype(float), expected, rtol=2.0**-8)
    with pytest.raises(AclnnError, match="x2: expected format ACL_FORMAT_ND, got"):
        multiply(out, **given)


@pytest.mark.parametrize("value", [-128, 127])
def test_long_sums_are_exact(value: int) -> None:
    x = np.full((1, 65535), value, np.int8)
    x[0, -1] = 1
    out = np.zeros((1, 300), np.int32)
    scale = tensor(np.ones(1, np.float32))
    multiply(out, x1=tensor(x), x2=tensor(np.repeat(x.T, 300, 1)), x2Scale=scale)
    assert (out == 65534 * value * value + 1).all()


@pytest.mark.parametrize("product", [Product.ATLAS_A2, AT_950])
def test_batches_biases_and_output_types_match_the_definition(product: Product) -> None:
    random = np.random.default_rng(7)
    left, right = (random.integers(-128, 128, dims).astype(np.int8) for dims in ((2, 1, 3, 40), (5, 40, 6)))
    total = left.astype(np.int64) @ right.astype(np.int64)
    scale, rows = random.uniform(0.1, 1, 6).astype(np.float32), random.uniform(0.1, 1, 3).astype(np.float32)
    given = {"x1": tensor(left), "x2": tensor(right), "x2Scale": tensor(scale)}
    bias, integers = random.normal(size=6).astype(np.float16), random.integers(-999, 999, 6).astype(np.int32)
    shape = (2, 5, 3, 6)
    result = multiply(np.zeros(shape, np.int32), product, **given, bias=tensor(integers))
    assert (result == total + integers).all()
    by_rows = given | {"x1Scale": tensor(rows)}
    result = multiply(np.zeros(shape, np.float16), product, **by_rows, bias=tensor(bias))
    expected = total * scale.astype(float) * rows.astype(float)[:, None] + bias.astype(float)
    assert (result == expected.astype(np.float16)).all()
    result = multiply(np.zeros(shape, np.float16), product, **by_rows, bias=tensor(integers))
    expected = (total + integers) * scale.astype(float) * rows.astype(float)[:, None]
    assert (result == expected.astype(np.float16)).all()


def test_outputs_may_have_one_more_dimension_and_biases_a_batch() -> None:
    one = tensor(np.ones(1, np.float32))
    x = tensor(np.ones((2, 4), np.int8)), tensor(np.ones((4, 3), np.int8))
    assert (multiply(np.zeros((2, 1, 3), np.int32), x1=x[0], x2=x[1], x2Scale=one) == 4).all()
    many = tensor(np.ones((2, 2, 4), np.int8))
    bias = np.array([1, 2], np.int32).reshape(2, 1, 1) * np.ones((1, 1, 3), np.int32)
    out = multiply(np.zeros((2, 2, 3), np.int32), x1=many, x2=x[1], x2Scale=one, bias=tensor(bias))
    assert out[:, 0, 0].tolist() == [5, 6]


def test_empty_inputs_are_not_computed_on_950() -> None:
    one, x1, x2 = tensor(np.ones(1, np.float32)), tensor(np.ones((0, 4), np.int8)), tensor(np.ones((4, 3), np.int8))
    multiply(np.zeros((0, 3), np.int32), AT_950, x1=x1, x2=x2, x2Scale=one)
    with pytest.raises(AclnnError, match="x1: expected no dimension of 0"):
        multiply(np.zeros((0, 3), np.int32), x1=x1, x2=x2, x2Scale=one)


MX_GROUP = 1 << 32 | 1 << 16 | 32


def blocks(matrix: Array, of: D, axis: int) -> tuple[Array, Array, Array]:
    """Bytes, scales in twos, and the numbers that they stand for."""
    numbers, exponents = quantized(matrix, axis, of)
    whole = np.ldexp(1.0, exponents.astype(int) - 127).repeat(32, axis).take(range(matrix.shape[axis]), axis)
    stored = codes(numbers, of) if of == D.FLOAT4_E2M1 else numbers.astype(of.numpy)
    return stored, paired(exponents, axis).view(D.FLOAT8_E8M0.numpy), numbers * whole


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("formats", [(E4M3, E4M3), (E5M2, E4M3), (D.FLOAT4_E2M1,) * 2])
@pytest.mark.parametrize("of", [D.FLOAT, D.FLOAT16, D.BF16])
def test_mx_products_match_the_definition(of: D, formats: tuple[D, D], transposed: tuple[bool, bool]) -> None:
    random = np.random.default_rng(3)
    left, right = random.normal(size=(4, 70)), random.normal(size=(70, 6))
    left_axis, right_axis = -1, 0
    if transposed[0]:
        left, left_axis = np.ascontiguousarray(left.T), 0
    if transposed[1]:
        right, right_axis = np.ascontiguousarray(right.T), 1
    bias = random.normal(size=6).astype(np.float32)
    x1, rows, wide_left = blocks(left, formats[0], left_axis)
    x2, columns, wide_right = blocks(right, formats[1], right_axis)
    out = multiply(
        np.zeros((4, 6), of.numpy),
        AT_950,
        x1=tensor(x1, formats[0], left.shape),
        x2=tensor(x2, formats[1], right.shape),
        x1Scale=tensor(rows),
        x2Scale=tensor(columns),
        bias=tensor(bias),
        transposeX1=transposed[0],
        transposeX2=transposed[1],
        groupSize=MX_GROUP,
    )
    wide_left, wide_right = (
        each.T if turned else each for each, turned in zip((wide_left, wide_right), transposed, strict=True)
    )
    expected = wide_left @ wide_right + bias
    np.testing.assert_allclose(out.astype(float), expected, rtol=2.0**-7 if of == D.BF16 else 2.0**-10, atol=1e-3)


def test_mx_batches_share_scales_and_groups_are_found() -> None:
    random = np.random.default_rng(4)
    left, right = random.normal(size=(1, 3, 64)), random.normal(size=(64, 5))
    x1, rows, wide_left = blocks(left, E4M3, -1)
    x2, columns, wide_right = blocks(right, E5M2, 0)
    out = multiply(
        np.zeros((2, 3, 5), np.float32),
        AT_950,
        x1=tensor(np.repeat(x1, 2, 0)),
        x2=tensor(x2),
        x1Scale=tensor(rows[0]),
        x2Scale=tensor(columns),
        groupSize=0,
    )
    np.testing.assert_allclose(out, np.repeat(wide_left @ wide_right, 2, 0), rtol=1e-6, atol=1e-6)


def test_float8_by_float4_products_match_the_definition() -> None:
    random = np.random.default_rng(5)
    left, right = random.normal(size=(3, 128)), random.normal(size=(6, 128))
    x1, rows, wide_left = blocks(left, E4M3, -1)
    x2, columns, wide_right = blocks(right, D.FLOAT4_E2M1, -1)
    bias = random.normal(size=(1, 6)).astype(D.BF16.numpy)
    given = {"x1": tensor(x1), "x2": tensor(x2, D.FLOAT4_E2M1, right.shape), "bias": tensor(bias)}
    given |= {"x1Scale": tensor(rows), "x2Scale": tensor(columns), "transposeX2": True, "groupSize": 32}
    out = multiply(np.zeros((3, 6), D.BF16.numpy), AT_950, **given)
    expected = wide_left @ wide_right.T + bias.astype(float)
    np.testing.assert_allclose(out.astype(float), expected, rtol=2.0**-8)
    with pytest.raises(AclnnError, match="ACL_BF16"):
        multiply(np.zeros((3, 6), np.float32), AT_950, **given)
    with pytest.raises(AclnnError, match="32 in the lowest"):
        multiply(out, AT_950, **given | {"groupSize": 64})
