"""Weights of few bits, and weights laid out for a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.capi.prototype import call_of
from aclnn.core import products
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import weights
from tests.cases.table import INVALID, NO_KERNEL, NULL, SOC_NAMES, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, torch, wide

MULTIPLY, PRECISE, BLOCKS, PACK, LAY_OUT, CAST = weights.OPERATORS
OFFSET, BIAS = "antiquantOffsetOptional", "biasOptional"
QUANTIZATION = ("quantScaleOptional", "quantOffsetOptional")
PACKED = "weightInt4Pack"
NZ = {"format": Format.FORMAT_FRACTAL_NZ}


def call(d: D) -> Arguments:
    return {
        "x": T(d, (3, 80)),
        "weight": T(D.INT8, (80, 6)),
        "antiquantScale": T(d, (3, 6)),
        OFFSET: T(d, (3, 6)),
        **dict.fromkeys(QUANTIZATION),
        BIAS: T(D.FLOAT if d == D.BF16 else d, (1, 6)),
        "antiquantGroupSize": 32,
        "y": T(d, (3, 6)),
    }


def blocks_call(d: D) -> Arguments:
    scales = dict.fromkeys(("antiquantScale", OFFSET), T(d, (6,)))
    return call(d) | scales | {"weight": T(D.INT8, (80, 6), Format.FORMAT_FRACTAL_NZ), "antiquantGroupSize": 0}


def by_columns(a: Mapping[str, Any]) -> Any:
    return wide(a["x"]) @ ((wide(a["weight"]) + wide(a[OFFSET])) * wide(a["antiquantScale"])) + wide(a[BIAS])


def words(a: Mapping[str, Any]) -> Any:
    """Eight numbers in each INT32, the first in its lowest bits."""
    fours = (a["weight"].long() & 15).unflatten(-1, (-1, 8)) << 4 * torch.arange(8)
    return fours.sum(-1).to(torch.int32)


def product(a: Mapping[str, Any]) -> Any:
    scale, offset = (wide(a[name]).repeat_interleave(32, 0)[:80] for name in ("antiquantScale", OFFSET))
    return wide(a["x"]) @ ((wide(a["weight"]) + offset) * scale) + wide(a[BIAS])


class TestWeights(LibraryTests):
    subject = Subject(
        weights.OPERATORS,
        calls={
            MULTIPLY.name: call,
            PRECISE.name: lambda d: call(d) | {"innerPrecise": 1},
            BLOCKS.name: blocks_call,
            PACK.name: lambda d: {"weight": T(d, (3, 16)), PACKED: T(d, (3, 2))},
        },
        references={
            **dict.fromkeys((MULTIPLY.name, PRECISE.name), product),
            BLOCKS.name: by_columns,
            PACK.name: words,
            LAY_OUT.name: lambda a: a["mmWeightRef"],
            CAST.name: lambda a: a["srcTensor"],
        },
        dtypes={
            **dict.fromkeys((MULTIPLY.name, PRECISE.name, BLOCKS.name), (D.FLOAT16, D.BF16)),
            PACK.name: (D.INT32,),
            LAY_OUT.name: (D.FLOAT16, D.BF16, D.INT8),
            CAST.name: (D.FLOAT16, D.FLOAT, D.BF16, D.INT8, D.INT32),
        },
        plain=(MULTIPLY.name, PRECISE.name, BLOCKS.name, PACK.name, CAST.name),
        # Neither takes an empty tensor.
        empty={
            name: {
                of: None if value is None else {"shape": value.shape}
                for of, value in found(D.FLOAT16).items()
                if of != "antiquantGroupSize"
            }
            for name, found in ((MULTIPLY.name, call), (PRECISE.name, call), (BLOCKS.name, blocks_call))
        }
        | {
            PACK.name: {"weight": {"shape": (3, 16)}, PACKED: {"shape": (3, 2)}},
            LAY_OUT.name: {"mmWeightRef": {"shape": (2, 3)}},
        },
        breaks={
            "same data type as x": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
            "data type with x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT", D.BF16),
            "null": lambda o, name: Break({name: T(D.UINT64, (6,))}, "null", product=Product.ASCEND_950),
            "not computed": lambda o, name: Break({name: T(D.UINT64, (6,))}, "null"),
            "no private format": lambda o, name: Break({name: NZ}, "ACL_FORMAT_ND"),
            "format of the weight": lambda o, name: Break({name: NZ}, "ACL_FORMAT_ND"),
            "2 dimensions": lambda o, name: Break(shape((2, 80, 6), name), "2 dimensions"),
            "… rows (the columns of x)": lambda o, name: Break(shape((64, 6), name), "80 rows"),
            "few enough": lambda o, name: Break(
                shape((80, 0 if o is BLOCKS else 1 << 16), name) if name == "weight" else shape((0, 80), name),
                "expected 1 to",
            ),
            "shape is that of the product": lambda o, name: Break(shape((6, 3), name), "[3, 6]"),
            "group size": lambda o, name: Break({name: 96}, "from 32 to 79"),
            "shape of scales": lambda o, name: Break(shape((2, 6), name), "[6] or [1, 6]" if o is BLOCKS else "[3, 6]"),
            "same shape as antiquantScale": lambda o, name: Break(
                shape((1, 6), name), "[6]" if o is BLOCKS else "[3, 6]"
            ),
            "a row": lambda o, name: Break(shape((6, 1), name), "[6] or [1, 6]"),
            "contiguous": lambda o, name: Break(
                {name: Tensor(D.FLOAT16, (3, 80), (1, 3))}, "a contiguous matrix", product=Product.ASCEND_950
            ),
            "same data type as srcTensor": lambda o, name: Break(dtype(D.INT8, name), "ACL_FLOAT"),
            "2 to 6 dimensions": lambda o, name: Break(shape((3,), "srcTensor", "dstTensor"), "2 to 6 dimensions"),
            "same shape as srcTensor": lambda o, name: Break(shape((3, 2), name), "[2, 3]"),
            "format": lambda o, name: Break({name: {"format": Format.FORMAT_NC1HWC0}}, "ACL_FORMAT_FRACTAL_NZ"),
            "contiguous or transposed": lambda o, name: Break(
                {name: gaps(blocks_call if o is BLOCKS else call, name)}, "a contiguous or a transposed matrix"
            ),
            "even": lambda o, name: Break(
                {name: T(D.INT4, (80, 5), Format.FORMAT_FRACTAL_NZ if o is BLOCKS else Format.FORMAT_ND)}
                | dict.fromkeys(("antiquantScale", OFFSET), T(D.FLOAT16, (5,) if o is BLOCKS else (3, 5)))
                | {BIAS: T(D.FLOAT16, (5,)), "y": T(D.FLOAT16, (3, 5))},
                "even",
            ),
            "data type of scales": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16 with x"),
            "of integers alone": lambda o, name: Break(
                {"weight": T(D.FLOAT4_E2M1, (80, 6), Format.FORMAT_FRACTAL_NZ)}, "null with"
            ),
            "data type with both": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT with", D.BF16),
            "groups of the data type": lambda o, name: Break({name: 32}, "expected 0 with"),
            "transposed where it may be": lambda o, name: Break(
                {name: Tensor(D.INT4, (80, 6), (1, 80), format=Format.FORMAT_FRACTAL_NZ)}, "no transposition"
            ),
            "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "FRACTAL_NZ"),
            "data type of four bits": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_INT4 or ACL_INT32"),
            "format of a weight": lambda o, name: Break({name: {"format": Format.FORMAT_NC1HWC0}}, "ACL_FORMAT_ND or"),
            "2 to 3 dimensions": lambda o, name: Break(shape((16,), name), "2 to 3"),
            "not empty": lambda o, name: Break(shape((0, 16), name), "elements"),
            "whole elements": lambda o, name: Break(shape((3, 12), name), "a multiple of 8"),
            "shape is that of the weight": lambda o, name: Break(shape((3, 3), name), "[3, 2]"),
            "format ACL_FORMAT_ND": lambda o, name: Break({name: NZ}, "ACL_FORMAT_ND"),
            "dimensions of a weight": lambda o, name: Break(shape((2, 2, 2, 3), name), "2 to 3", D.FLOAT16),
            "no dimension of 0": lambda o, name: Break(shape((0, 3), name), "no dimension of 0"),
            "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
        },
        codes={"not computed": NO_KERNEL},
    )


def gaps(found: Any, name: str) -> Tensor:
    value = found(D.FLOAT16)[name]
    return Tensor(*value[:2], (200, 2)[-len(value.shape) :], format=value.format)


def packed(numbers: Any, transposed: bool) -> Any:
    """Two numbers of four bits to a byte, the first in its lower half."""
    flat = (numbers.T if transposed else numbers).reshape(-1) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8)


def strided(array: Any, transposed: bool) -> Tensor:
    """A matrix in memory, by columns if it is transposed."""
    held = np.array(array.T if transposed else array, order="C")
    strides = (1, array.shape[0]) if transposed else None
    return Tensor(D.of_numpy(held.dtype), array.shape, strides, address=held.ctypes.data, owner=held)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("group", [0, 32, 64])
@pytest.mark.parametrize("of", [D.INT8, D.INT4, D.INT32])
def test_a_weight_is_scaled_by_groups_channels_or_as_a_whole(of: D, group: int, transposed: bool) -> None:
    random = np.random.default_rng(7)
    # Several blocks of columns, the last one narrower; the last of the groups of 64 is shorter.
    m, k, n = 3, 96, 5000 if of == D.INT32 else 5002
    x = random.normal(size=(m, k)).astype(np.float16)
    numbers = random.integers(*((-128, 128) if of == D.INT8 else (-8, 8)), (k, n)).astype(np.int8)
    y = np.empty((m, n), np.float16)
    if of == D.INT4:
        stored = packed(numbers, transposed)
        weight = Tensor(of, (k, n), (1, k) if transposed else None, address=stored.ctypes.data, owner=stored)
    elif of == D.INT32:
        words = packed(numbers, transposed).view(np.int32)
        weight = strided(words.reshape(n, -1).T if transposed else words.reshape(k, -1), transposed)
    else:
        weight = strided(numbers, transposed)
    shapes = [(-(-k // group), n)] if group else [(1,), (1, 1), (n,), (1, n)]
    for scales in shapes:
        scale, offset = (random.uniform(*ends, scales).astype(np.float16) for ends in ((0.01, 0.02), (-1, 1)))
        arguments = {
            "x": strided(x, transposed),
            "weight": weight,
            "antiquantScale": strided(scale, transposed and len(scales) == 2),
            OFFSET: strided(offset, False),
            BIAS: None,
            **dict.fromkeys(QUANTIZATION),
            "antiquantGroupSize": group,
            "y": strided(y, False),
        }
        prepare(MULTIPLY, arguments, Product.ATLAS_A2).run()
        result = arguments["y"].owner
        factors, terms = (
            np.repeat(np.broadcast_to(each, (shapes[0][0] if group else 1, n)), group or k, axis=0)[:k].astype(float)
            for each in (scale, offset)
        )
        np.testing.assert_allclose(result, x.astype(float) @ ((numbers + terms) * factors), rtol=1e-3, atol=2e-3)


def test_int4_weights_range_from_minus_8_to_7() -> None:
    stored = np.arange(0, 256, 17, np.uint8)  # 0x00, 0x11 … 0xFF
    weight = Tensor(D.INT4, (1, 32), address=stored.ctypes.data, owner=stored)
    one, y = np.ones((1, 1), np.float16), np.empty((1, 32), np.float16)
    arguments = call(D.FLOAT16) | {
        "x": strided(one, False),
        "weight": weight,
        "antiquantScale": strided(one, False),
        OFFSET: None,
        BIAS: None,
        "antiquantGroupSize": 0,
        "y": strided(y, False),
    }
    prepare(MULTIPLY, arguments, Product.ATLAS_A2).run()
    assert arguments["y"].owner[0].tolist() == [number for number in (*range(8), *range(-8, 0)) for _ in range(2)]


def test_a_weight_by_channels_may_be_laid_out() -> None:
    """On the products that lay weights of INT8 out for this."""
    arguments = call(D.FLOAT16) | {"antiquantScale": T(D.FLOAT16, (6,)), OFFSET: None, "antiquantGroupSize": 0}
    tensors = {key: Tensor(*value[:2]) if isinstance(value, T) else value for key, value in arguments.items()}
    tensors["weight"].format = Format.FORMAT_FRACTAL_NZ
    prepare(MULTIPLY, tensors, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="weight: expected format ACL_FORMAT_ND, got ACL_FORMAT_FRACTAL_NZ"):
        prepare(MULTIPLY, tensors, Product.ASCEND_950)


@pytest.mark.parametrize("of", [D.INT4, D.INT32])
def test_a_transposed_weight_of_four_bits_is_packed_into_blocks(of: D) -> None:
    """The example of aclnnConvertWeightToINT4Pack does this before Ascend 950."""
    random = np.random.default_rng(1)
    m, k, n = 3, 72, 17
    numbers, x = random.integers(-8, 8, (n, k)).astype(np.int32), random.normal(size=(m, k)).astype(np.float16)
    in_one = 8 if of == D.INT32 else 1
    stored, y = np.zeros(n * k // 2, np.uint8), np.zeros((m, n), np.float16)
    blocks = {"format": Format.FORMAT_FRACTAL_NZ, "address": stored.ctypes.data, "owner": stored}
    target = Tensor(of, (n, k // in_one), **blocks)
    prepare(PACK, {"weight": strided(numbers, False), PACKED: target}, Product.ATLAS_A2).run()
    arguments = call(D.FLOAT16) | {
        "x": strided(x, False),
        "weight": Tensor(of, (k // in_one, n), (1, k // in_one), **blocks),
        "antiquantScale": strided(np.full(n, 0.5, np.float16), False),
        **dict.fromkeys((OFFSET, BIAS)),
        "antiquantGroupSize": 0,
        "y": strided(y, False),
    }
    prepare(MULTIPLY, arguments, Product.ATLAS_A2).run()
    np.testing.assert_allclose(arguments["y"].owner, x.astype(float) @ numbers.T / 2, rtol=1e-3, atol=2e-3)
    one = arguments | {"antiquantScale": strided(np.ones(1, np.float16), False)}
    with pytest.raises(AclnnError, match="expected format ACL_FORMAT_ND, got"):
        prepare(MULTIPLY, one, Product.ATLAS_A2)


@pytest.mark.parametrize(("group", "columns", "taken"), [(64, 64, True), (32, 64, False), (64, 32, False)])
def test_weights_in_blocks_accept_groups_of_64_or_128_rows(group: int, columns: int, taken: bool) -> None:
    """64 or 128 rows, of whole blocks of columns, before Ascend 950."""
    arguments = call(D.FLOAT16) | {
        "x": Tensor(D.FLOAT16, (3, 128)),
        "weight": Tensor(D.INT4, (128, columns), format=Format.FORMAT_FRACTAL_NZ),
        "antiquantScale": Tensor(D.FLOAT16, (128 // group, columns)),
        **dict.fromkeys((OFFSET, BIAS)),
        "antiquantGroupSize": group,
        "y": Tensor(D.FLOAT16, (3, columns)),
    }
    if taken:
        prepare(MULTIPLY, arguments, Product.ATLAS_A2)
        return
    with pytest.raises(AclnnError, match="expected format ACL_FORMAT_ND, got"):
        prepare(MULTIPLY, arguments, Product.ATLAS_A2)


@pytest.mark.parametrize("of", [D.FLOAT4_E2M1, D.FLOAT])
@pytest.mark.parametrize("powers", [False, True])
def test_float4_weights_are_truncated_and_multiplied(of: D, powers: bool) -> None:
    """Numbers that FLOAT4_E2M1 has not lose what is less, and from 8 on all; scales may be powers of two."""
    given = np.array([0.0, 0.5, -0.75, 1.2, -1.5, 2.9, 3.0, -4.5, 5.9, 7.9, 8.0, np.inf, np.nan, 0.4, -6, -0.0])
    kept = np.array([0.0, 0.5, -0.5, 1.0, -1.5, 2.0, 3.0, -4.0, 4.0, 6.0, 0.0, 0.0, 0.0, 0.0, -6.0, 0.0])
    weight = np.resize(given, (64, 16)).astype(np.float32)
    stored, y = np.zeros(64 * 8, np.uint8), np.zeros((64, 16), np.float16)
    blocks = {"format": Format.FORMAT_FRACTAL_NZ, "address": stored.ctypes.data, "owner": stored}
    target = Tensor(of, (64, 2 if of == D.FLOAT else 16), **blocks)
    prepare(PACK, {"weight": strided(weight, False), PACKED: target}, Product.ASCEND_950).run()
    scale = np.array([[0.5], [2.0]]).repeat(16, 1)
    bits = (np.log2(scale) + 127).astype(np.uint8)
    arguments = blocks_call(D.FLOAT16) | {
        "x": strided(np.eye(64, dtype=np.float16), False),
        "weight": target,
        "antiquantScale": Tensor(D.FLOAT8_E8M0, (2, 16), address=bits.ctypes.data, owner=bits)
        if powers
        else strided(scale.astype(np.float16), False),
        **dict.fromkeys((OFFSET, BIAS)),
        "antiquantGroupSize": 32,
        "y": strided(y, False),
    }
    prepare(BLOCKS, arguments, Product.ASCEND_950).run()
    expected = np.resize(kept, (64, 16)) * scale.repeat(32, 0)
    np.testing.assert_array_equal(arguments["y"].owner, expected)


def on_device(array: Any) -> int:
    _, memory = cann.aclrtMalloc(array.nbytes, 0)
    assert cann.aclrtMemcpy(memory, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
    return memory


def matrix(
    of: D, dims: tuple[int, int], strides: tuple[int, int], memory: int, offset: int = 0, format: int = 2
) -> int:
    return cann.aclCreateTensor(dims, 2, of, strides, offset, format, [1], 1, memory)


def finish(name: str, *arguments: int | None) -> int:
    status, size, executor = call_of(f"{name}GetWorkspaceSize")(*arguments)
    return status or call_of(name)(0, size, executor, 0) or cann.aclrtSynchronizeStream(0)


@pytest.mark.usefixtures("device")
def test_a_program_multiplies_by_four_bits_to_the_last_byte() -> None:
    """The second half of a weight, by its offset in elements; the first byte beyond it belongs to nobody."""
    k, n = 64, 32
    numbers = np.random.default_rng(7).integers(-8, 8, (2 * n, k))
    stored = on_device(packed(numbers, transposed=False))
    x = np.ones((1, k), np.float16)
    scale = np.full((n, 2), 0.5, np.float16)
    y = np.empty((1, n), np.float16)
    out = on_device(y)
    tensors = [
        matrix(D.FLOAT16, (1, k), (k, 1), on_device(x)),
        matrix(D.INT4, (k, n), (1, k), stored, n * k),
        matrix(D.FLOAT16, (2, n), (1, 2), on_device(scale)),
    ]
    result = matrix(D.FLOAT16, (1, n), (n, 1), out)
    name = MULTIPLY.function
    assert finish(name, *tensors, None, None, None, None, 32, result) == 0
    assert cann.aclrtMemcpy(y.ctypes.data, y.nbytes, out, y.nbytes, 2) == 0
    assert y[0].tolist() == (numbers[n:].sum(1) / 2).tolist()
    for offset, status, text in (
        (n * k + 1, INVALID, "offset: expected an even number of ACL_INT4"),
        (n * k + 2, 107000, "weight: expected live memory"),
    ):
        tensors[1] = matrix(D.INT4, (k, n), (1, k), stored, offset)
        assert finish(name, *tensors, None, None, None, None, 32, result) == status
        assert text in (cann.aclGetRecentErrMsg() or "")


@pytest.mark.usefixtures("device")
def test_a_program_lays_a_weight_out_and_multiplies_by_its_transpose() -> None:
    n, k = 5, 3
    array = np.random.default_rng(7).normal(size=(n, k)).astype(np.float16)
    sizes = cann.aclCreateIntArray([n, k], 2)
    assert call_of("aclnnCalculateMatmulWeightSizeV2")(sizes, D.FLOAT16) == (0, 256)
    weight, x, y = on_device(array), np.ones((2, k), np.float16), np.empty((2, n), np.float16)
    out = on_device(y)
    assert finish(LAY_OUT.function, matrix(D.FLOAT16, (n, k), (k, 1), weight)) == 0
    laid_out = matrix(D.FLOAT16, (k, n), (1, k), weight, format=Format.FORMAT_FRACTAL_NZ)
    left, result = matrix(D.FLOAT16, (2, k), (k, 1), on_device(x)), matrix(D.FLOAT16, (2, n), (n, 1), out)
    assert finish("aclnnMm", left, laid_out, result, 2) == 0
    assert cann.aclrtMemcpy(y.ctypes.data, y.nbytes, out, y.nbytes, 2) == 0
    np.testing.assert_allclose(y, x.astype(float) @ array.T.astype(float), rtol=1e-3, atol=1e-3)
    assert finish(LAY_OUT.function, matrix(D.FLOAT16, (n, k), (k, 1), weight + 2)) == 107000


@pytest.mark.parametrize(
    ("name", "dims", "of", "expected"),
    [
        ("V2", [510, 510], D.FLOAT16, 262144),
        ("V2", [510, 510], D.BF16, 262144),
        ("V2", [510, 270], D.INT8, 147456),
        ("V2", [510, 270], D.FLOAT, 147456),
        ("V2", [3, 1, 2, 1, 16, 32], D.INT8, 3072),
        ("", [2, 17, 16], None, 1024),
    ],
)
def test_calculate_matmul_weight_size_returns_the_elements(
    name: str, dims: list[int], of: D | None, expected: int
) -> None:
    array = cann.aclCreateIntArray(dims, len(dims))
    assert call_of(f"aclnnCalculateMatmulWeightSize{name}")(array, *[] if of is None else [of]) == (0, expected)


@pytest.mark.parametrize(
    ("dims", "of", "product", "status", "text"),
    [
        (None, D.INT8, Product.ATLAS_A2, NULL, "tensorShape: expected a live IntArray, got"),
        ([8], D.INT8, Product.ATLAS_A2, INVALID, "tensorShape: expected 2 to 6 dimensions, got 1"),
        ([2] * 7, D.INT8, Product.ATLAS_A2, INVALID, "tensorShape: expected 2 to 6 dimensions, got 7"),
        ([0, 8], D.INT8, Product.ATLAS_A2, INVALID, "tensorShape: expected dimensions of at least 1"),
        ([1 << 40, 1 << 40], D.INT8, Product.ATLAS_A2, INVALID, "tensorShape: expected dimensions of at least 1"),
        ([8, 8], D.INT8, Product.ATLAS_TRAINING, 361001, "product: expected Ascend 950PR / 950DT, Atlas A3"),
    ],
)
def test_calculate_matmul_weight_size_rejects_invalid_arguments(
    dims: list[int] | None, of: D, product: Product, status: int, text: str
) -> None:
    products.set_soc_name(SOC_NAMES[product])
    array = 0 if dims is None else cann.aclCreateIntArray(dims, len(dims))
    assert call_of("aclnnCalculateMatmulWeightSizeV2")(array, of) == (status, 0)
    assert text in (cann.aclGetRecentErrMsg() or "")


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_a_program_casts_a_weight_to_fractals_and_back(product: Product) -> None:
    products.set_soc_name(SOC_NAMES[product])
    array = np.random.default_rng(7).normal(size=(20, 5)).astype(np.float16)
    there, back = np.zeros(32 * 16, np.float16), np.zeros_like(array)
    blocks, public = on_device(there), on_device(back)
    strides = (5, 1)
    source = matrix(D.FLOAT16, array.shape, strides, on_device(array))
    size = call_of("aclnnNpuFormatCastCalculateSizeAndFormat")
    assert size(source, Format.FORMAT_FRACTAL_NZ, D.FLOAT16) == (0, [1, 2, 16, 16], 4, 29)
    laid_out = matrix(D.FLOAT16, array.shape, strides, blocks, format=Format.FORMAT_FRACTAL_NZ)
    assert finish(CAST.function, source, laid_out) == 0
    assert size(laid_out, Format.FORMAT_ND, D.FLOAT16) == (0, [20, 5], 2, 2)
    assert finish(CAST.function, laid_out, matrix(D.FLOAT16, array.shape, strides, public)) == 0
    assert cann.aclrtMemcpy(back.ctypes.data, back.nbytes, public, back.nbytes, 2) == 0
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("of", "additional", "product", "expected"),
    [
        (D.INT32, D.FLOAT16, Product.ASCEND_950, ([2, 1, 16, 16], 4, Format.FORMAT_FRACTAL_NZ_C0_16)),
        (D.FLOAT, D.FLOAT8_E4M3FN, Product.ASCEND_950, ([1, 1, 16, 32], 4, Format.FORMAT_FRACTAL_NZ_C0_32)),
        (D.FLOAT, D.FLOAT, Product.ASCEND_950, ([3, 1, 16, 8], 4, Format.FORMAT_FRACTAL_NZ)),
        (D.FLOAT, D.FLOAT16, Product.ATLAS_A2, ([3, 1, 16, 8], 4, Format.FORMAT_FRACTAL_NZ)),
        (D.INT8, -1, Product.ATLAS_A2, ([1, 1, 16, 32], 4, Format.FORMAT_FRACTAL_NZ)),
    ],
)
def test_npu_format_cast_chooses_blocks_by_data_type(of: D, additional: int, product: Product, expected: Any) -> None:
    products.set_soc_name(SOC_NAMES[product])
    source = cann.aclCreateTensor((5, 20), 2, of, (20, 1), 0, Format.FORMAT_ND, (5, 20), 2, 0)
    found = call_of("aclnnNpuFormatCastCalculateSizeAndFormat")(source, Format.FORMAT_FRACTAL_NZ, additional)
    assert found == (0, *expected)


@pytest.mark.parametrize(
    ("dims", "of", "to", "additional", "product", "status", "text"),
    [
        (None, D.INT8, 29, -1, Product.ATLAS_A2, NULL, "srcTensor: expected a live Tensor"),
        ((2, 3), D.INT8, 29, -1, Product.ATLAS_TRAINING, INVALID, "product: expected Ascend 950PR / 950DT, Atlas A3"),
        ((2, 3), D.INT64, 29, -1, Product.ATLAS_A2, INVALID, "srcTensor: expected data type ACL_FLOAT"),
        ((2, 3), D.UINT8, 29, D.UINT8, Product.ASCEND_950, INVALID, "srcTensor: expected data type ACL_FLOAT"),
        ((2, 3), D.INT8, 29, -1, Product.ASCEND_950, INVALID, "additionalDtype: expected 2 for"),
        ((2, 3), D.INT32, 29, D.FLOAT, Product.ASCEND_950, INVALID, "additionalDtype: expected 1, 2, 3 or 27 for"),
        ((2, 2, 2, 3), D.INT32, 29, D.INT8, Product.ASCEND_950, INVALID, "srcTensor: expected 2 to 3 dimensions"),
        ((3,), D.INT8, 29, -1, Product.ATLAS_A2, INVALID, "srcTensor: expected 2 to 6 dimensions, got 1"),
        ((0, 3), D.INT8, 29, D.INT8, Product.ASCEND_950, INVALID, "srcTensor: expected dimensions of at least 1"),
        ((2, 3), D.INT8, 3, -1, Product.ATLAS_A2, 361001, "dstFormat: expected format ACL_FORMAT_ND"),
    ],
)
def test_npu_format_cast_size_rejects_invalid_arguments(
    dims: tuple[int, ...] | None, of: D, to: int, additional: int, product: Product, status: int, text: str
) -> None:
    products.set_soc_name(SOC_NAMES[product])
    strides = None if dims is None else [1] * len(dims)
    source = 0 if dims is None else cann.aclCreateTensor(dims, len(dims), of, strides, 0, 2, dims, len(dims), 0)
    assert call_of("aclnnNpuFormatCastCalculateSizeAndFormat")(source, to, additional) == (status, [], 0, 0)
    assert text in (cann.aclGetRecentErrMsg() or "")
