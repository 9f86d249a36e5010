"""Products of factors of few bits that all ranks add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR as TILING
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.distributed import quantized_products_with_ranks
from tests.cases.table import NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, described, to_torch
from tests.helpers.ranks import GROUP, a_group, computed_by_ranks  # noqa: F401  (fixture)

SIZE, M, K, N = 2, 4, 64, 128
HALVES = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}
QUANTIZED = tuple(f"quant_matmul_all_reduce{version}" for version in ("", "_v2", "_v3", "_v4", "_v5"))
WEIGHTED = ("weight_quant_matmul_all_reduce", "weight_quant_matmul_all_reduce_v2")
SCALE, ROWS, SENT = "dequantScale", "pertokenScaleOptional", ("commQuantScale1Optional", "commQuantScale2Optional")
FACTORS, OFFSET, GROUP_SIZE = "antiquantScale", "antiquantOffset", "antiquantGroupSize"
COMMON: Arguments = {"group": GROUP, "reduceOp": "sum", "commTurn": 0, "streamMode": 1}


#: What the fourth version and later ones call these.
LATER = {SCALE: "x2Scale", ROWS: "x1ScaleOptional"}


def _named(name: str, given: Arguments) -> Arguments:
    """Rename arguments to those of a version."""
    return {LATER.get(key, key): value for key, value in given.items()} if name in QUANTIZED[3:] else given


def _quantized(version: int) -> Callable[[D], Arguments]:
    ending = "Optional" if version > 1 else ""

    def call(d: D) -> Arguments:
        usual = (
            {"x1": T(d, (M, K)), "x2": T(d, (K, N)), f"bias{ending}": T(D.INT32, (N,))}
            | {f"x3{ending}": T(D.FLOAT16, (M, N)), SCALE: T(D.FLOAT if version > 1 else D.UINT64, (N,))}
            | ({ROWS: T(D.FLOAT, (M,))} if version > 1 else {})
            | (dict.fromkeys(SENT) if version > 2 else {})
            | ({"groupSize": 0, "commQuantMode": 0} if version > 3 else {})
            | ({"commMode": "ai_cpu"} if version > 4 else {})
            | {"output": T(D.FLOAT16, (M, N))}
            | COMMON
        )
        return _named(QUANTIZED[version - 1], usual)

    return call


def _weighted(**others: Any) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        sizes = {"x1": (M, K), "bias": (N,), FACTORS: (1, N), OFFSET: (1, N), "x3": (M, N), "output": (M, N)}
        tensors: Arguments = {name: T(d, size) for name, size in sizes.items()}
        return tensors | {"x2": T(D.INT8, (K, N))} | COMMON | {GROUP_SIZE: 0} | others

    return call


CALLS = {name: _quantized(version) for version, name in enumerate(QUANTIZED, 1)} | {
    WEIGHTED[0]: _weighted(),
    WEIGHTED[1]: _weighted(commMode="ai_cpu"),
}


def _empty(name: str) -> Arguments:
    """Arguments without elements where some may lack them."""
    call = CALLS[name](D.FLOAT16)
    shapes = {"x1": (M, 0), "x2": (0, N)} if name in WEIGHTED else {}
    return {
        key: {"shape": shapes[key]} if key in shapes else {} if isinstance(value, T) else None
        for key, value in call.items()
        if value is None or isinstance(value, T)
    }


def _value(o: Any, name: str) -> Break:
    is_text = o.parameter(name).kind.name == "STRING"
    return Break({name: "other" if is_text else 7}, "'" if is_text else "expected ")


def _turned(name: str, *size: int) -> Arguments:
    return {name: Tensor(D.FLOAT16, size, (1, size[0]))}


def _of_another_type(o: Any, name: str) -> Break:
    change = {name: T(D.BF16, (N,))} if name in SENT else dtype(D.BF16, name)
    return Break(change, "ACL_FLOAT16")


def _of_columns(o: Any, name: str) -> Break:
    sent = {each: T(D.FLOAT16, (N + (each == name),)) for each in SENT} if name in SENT else {}
    return Break(sent or shape((N + 1,), name), f"[1, {N}]")


BREAKS: dict[str, Callable[[Any, str], Break]] = {
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "same data type as x1": _of_another_type,
    "same data type as output": _of_another_type,
    "type with output": lambda o, name: Break(
        dtype(D.FLOAT if o.name == QUANTIZED[0] else D.INT64, name), "ACL_FLOAT16"
    ),
    "allowed value": _value,
    "a text": lambda o, name: Break({name: None}, "a text"),
    "no private format": lambda o, name: Break(
        {name: T(D.FLOAT16, (N,), Format.FORMAT_FRACTAL_NZ) if name in SENT else {"format": Format.FORMAT_FRACTAL_NZ}},
        "ACL_FORMAT_ND",
    ),
    "format of the weight": lambda o, name: Break(
        {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND", product=Product.ASCEND_950
    ),
    "2 dimensions": lambda o, name: Break(shape((2, 2, 2), name), "2 dimensions"),
    "2 to 3 dimensions": lambda o, name: Break(shape((M,), name), "2 to 3 dimensions"),
    "… rows (the columns of x1)": lambda o, name: Break(shape((K - 1, N), name), f"{K} rows"),
    "shape is the product": lambda o, name: Break(shape((M, N + 1), name), f"[{M}, {N}]"),
    "not empty": lambda o, name: Break(shape((0, K), "x1") | shape((0, N), name), "elements"),
    "same shape as output": lambda o, name: Break(shape((M, 1), name), f"[{M}, {N}]"),
    f"same shape as {FACTORS}": lambda o, name: Break(shape((N,), name), f"[1, {N}]"),
    "shape is one for each column": lambda o, name: Break(shape((N + 1,), name), f"[{N}]"),
    "shape is one for each row": lambda o, name: Break(shape((M, 1), name), f"[{M}]"),
    "factors of columns": _of_columns,
    "factors of the weight": lambda o, name: Break({GROUP_SIZE: 32}, f"[2, {N}]"),
    "both or none": lambda o, name: Break(
        {other: T(D.FLOAT16, (N,)) for other in SENT if other != name}, "factors with"
    ),
    "contiguous or transposed": lambda o, name: Break(
        {name: Tensor(D.INT8, (K, N), (2 * N, 1))}
        if name == "x2"
        else {name: Tensor(D.FLOAT16, (2, N), (2 * N, 1)), GROUP_SIZE: 32}
        | {other: T(D.FLOAT16, (2, N)) for other in (FACTORS, OFFSET) if other != name},
        "contiguous",
    ),
    "laid as x2": lambda o, name: Break(
        {other: T(D.FLOAT16, (2, N)) for other in (FACTORS, OFFSET)} | _turned(name, 2, N) | {GROUP_SIZE: 32},
        "a contiguous matrix",
    ),
    **dict.fromkeys(
        ("computed", "ACL_INT8 or ACL_INT4 (others are not supported here)"),
        lambda o, name: Break(dtype(D.FLOAT8_E4M3FN, name), "supported here", product=Product.ASCEND_950),
    ),
    "group size": lambda o, name: Break({name: 33}, "multiple of 32 from 32 to 63"),
    "even": lambda o, name: Break({name: Tensor(D.INT4, (K, 3), (3, 1))} | _columns(3), "even number"),
    "aligned": lambda o, name: Break(
        shape((K, N - 1), name) | _columns(N - 1), "multiples of 32", product=Product.ASCEND_950
    ),
    "rows": lambda o, name: Break(shape((M, 0), "x1") | shape((0, N), name), "rows"),
    "communicator of this device": lambda o, name: Break({name: "nobody"}, "a communicator with a rank"),
}


def _columns(count: int) -> Arguments:
    sizes = {"bias": (count,), FACTORS: (1, count), OFFSET: (1, count), "x3": (M, count), "output": (M, count)}
    return {name: {"shape": size} for name, size in sizes.items()}


TILED = "in tiling, "


@pytest.mark.usefixtures("a_group")
class TestQuantizedProductsWithRanks(LibraryTests):
    subject = Subject(
        quantized_products_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=tuple(CALLS),
        dtypes=dict.fromkeys(QUANTIZED, (D.INT8,)),
        default=(D.FLOAT16, D.BF16),
        empty={name: _empty(name) for name in CALLS},
        breaks={prefix + title: breaking for prefix in ("", TILED) for title, breaking in BREAKS.items()},
        codes=dict.fromkeys((*(TILED + title for title in BREAKS), "communicator of this device"), TILING)
        | {"a text": NULL}
        | dict.fromkeys(("computed", "ACL_INT8 or ACL_INT4 (others are not supported here)"), NO_KERNEL),
    )


def _wide(array: Any) -> Any:
    return to_torch(array).double()


def _expect(got: Any, wanted: Any, unit: float) -> None:
    np.testing.assert_allclose(_wide(got), wanted, rtol=unit, atol=16 * unit)


def _run(name: str, given: list[Arguments], product: Product = Product.ATLAS_A2) -> Any:
    """Run on two ranks; return each one's arguments in float64, and its output."""
    usual = CALLS[name](D.FLOAT16)
    after = computed_by_ranks(name, [usual | _named(name, each) for each in given], product)
    wide = [{key: _wide(value) for key, value in each.items() if isinstance(value, np.ndarray)} for each in given]
    assert len({each["output"].tobytes() for each in after}) == 1
    return wide, after[0]["output"]


def _integers(version: int, kind: Any, rank: int, batch: tuple[int, ...] = (M,), turned: bool = False) -> Arguments:
    random, ending = np.random.default_rng(rank), "Optional" if version > 1 else ""
    x2 = random.integers(-128, 128, (N, K) if turned else (K, N)).astype(np.int8)
    return {
        "x1": random.integers(-128, 128, (*batch, K)).astype(np.int8),
        "x2": x2.T if turned else x2,
        f"bias{ending}": random.integers(-(2**16), 2**16, N).astype(np.int32),
        f"x3{ending}": random.normal(size=(*batch, N)).astype(kind),
        SCALE: np.ldexp(random.uniform(0.5, 1, N), -14).astype(np.float32),
        "output": np.zeros((*batch, N), kind),
    } | ({ROWS: random.uniform(0.5, 2, int(np.prod(batch))).astype(np.float32)} if version > 1 else {})


def _product(own: dict[str, Any], scale: Any) -> Any:
    bias, x3 = (own.get(name, own.get(f"{name}Optional", 0)) for name in ("bias", "x3"))
    rows = own[ROWS].reshape(*own["x1"].shape[:-1], 1) if ROWS in own else 1
    return (own["x1"] @ own["x2"] + bias) * scale * rows + x3


@pytest.mark.parametrize("stored", [np.int64, np.uint64])
@pytest.mark.parametrize("name", QUANTIZED)
def test_integer_columns_are_scaled_by_the_bits_of_a_scale(fresh: None, name: str, stored: Any) -> None:
    version = QUANTIZED.index(name) + 1
    given = [_integers(version, np.float16, rank, turned=rank == 1) for rank in range(SIZE)]
    scales = []
    for each in given:
        bits = each[SCALE].view(np.uint32) & 0xFFFFE000
        scales.append(_wide(bits.view(np.float32)))
        each |= {SCALE: bits.astype(stored).reshape(1, N)} | ({ROWS: None} if version > 1 else {})
    wide, output = _run(name, given)
    _expect(output, sum(map(_product, wide, scales)), HALVES[np.dtype(np.float16)])


@pytest.mark.parametrize("batch", [(M,), (2, 3)])
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", QUANTIZED[1:])
def test_integer_rows_are_scaled(fresh: None, name: str, kind: Any, batch: tuple[int, ...]) -> None:
    given = [_integers(2, kind, rank, batch) for rank in range(SIZE)]
    if kind == ml_dtypes.bfloat16:
        given = [each | {SCALE: each[SCALE].astype(kind)} for each in given]
    if batch != (M,):
        given = [each | {SCALE: each[SCALE][:1], "biasOptional": None, "x3Optional": None} for each in given]
    sent: Arguments = {} if name == QUANTIZED[1] else dict.fromkeys(SENT)
    wide, output = _run(name, [each | sent for each in given], Product.ASCEND_950)
    _expect(output, sum(_product(each, each[SCALE]) for each in wide), HALVES[kind])


@pytest.mark.parametrize("name", QUANTIZED[2:])
@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_ranks_exchange_int8(fresh: None, kind: Any, name: str) -> None:
    """With these factors most results are within the range, and some are not."""
    first, second = np.full(N, 0.25, kind), np.full(N, 0.5, kind)
    first[0], second[1] = 2.0**-6, 2.0**-6
    given = [_integers(3, kind, rank) | {SENT[0]: first, SENT[1]: second} for rank in range(SIZE)]
    if kind == ml_dtypes.bfloat16:
        given = [each | {SCALE: each[SCALE].astype(kind)} for each in given]
    wide, output = _run(name, given)
    one, two = _wide(first), _wide(second)
    sent = [(_product(each, each[SCALE]) / one).round().clamp(-128, 127) for each in wide]
    assert any((each.abs() >= 127).any() for each in sent)
    expected = (sum(sent) * one / two).round().clamp(-128, 127) * two
    assert ((expected / two).abs() >= 127).any()
    # A number between two integers may come to either, once for each rank and once for the sum.
    np.testing.assert_allclose(_wide(output), expected, rtol=0, atol=float(2 * one.max() + two.max()))
    assert (_wide(output) == expected).double().mean() > 0.9
    np.testing.assert_array_equal(_wide(output) / two, (_wide(output) / two).round())


def _weights(kind: Any, rank: int, groups: int = 1) -> Arguments:
    random = np.random.default_rng(rank)
    sizes = {"x1": (M, K), "bias": (N,), "x3": (M, N), FACTORS: (groups, N), OFFSET: (groups, N)}
    found: Arguments = {name: random.normal(size=size).astype(kind) for name, size in sizes.items()}
    found[FACTORS] = (found[FACTORS].astype(np.float32) / 64).astype(kind)
    return found | {"x2": random.integers(-128, 128, (K, N)).astype(np.int8), "output": np.zeros((M, N), kind)}


@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_scaled_as_a_whole_by_columns_or_by_groups(fresh: None, name: str, kind: Any, groups: int) -> None:
    given = [_weights(kind, rank, max(groups, 1)) | {GROUP_SIZE: 32 if groups > 1 else 0} for rank in range(SIZE)]
    if not groups:
        given = [each | {FACTORS: each[FACTORS][0, :1], OFFSET: None, "x3": None} for each in given]
    wide, output = _run(name, given)
    total = 0
    for own in wide:
        parts = [own.get(part) for part in (FACTORS, OFFSET)]
        scale, offset = (part if part is None or len(part) == 1 else part.repeat_interleave(32, 0) for part in parts)
        weight = (own["x2"] + (0 if offset is None else offset)) * scale
        total += own["x1"] @ weight + own["bias"] + own.get("x3", 0)
    _expect(output, total, HALVES[kind])


def test_transposed_weights_have_transposed_scales(fresh: None) -> None:
    given = [_weights(np.float16, rank, 2) | {GROUP_SIZE: 32} for rank in range(SIZE)]
    _, straight = _run(WEIGHTED[0], given)
    turned = [each | {name: np.ascontiguousarray(each[name].T).T for name in ("x2", FACTORS, OFFSET)} for each in given]
    _, output = _run(WEIGHTED[0], turned)
    np.testing.assert_array_equal(output, straight)


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize("name", CALLS)
def test_fractal_nz_weights_are_accepted_on_atlas_a2(name: str) -> None:
    call = CALLS[name](D.INT8 if name in QUANTIZED else D.FLOAT16)
    weight = Tensor(D.INT8, (K, N), (1, K), format=Format.FORMAT_FRACTAL_NZ)
    others: Arguments = {FACTORS: T(D.FLOAT16, (N,)), OFFSET: T(D.FLOAT16, (N,))} if name in WEIGHTED else {}
    prepare(BY_NAME[name], described(call | others) | {"x2": weight}, Product.ATLAS_A2)


def test_products_without_columns_leave_the_addend(fresh: None) -> None:
    none = {"x1": np.zeros((M, 0), np.float16), "x2": np.zeros((0, N), np.int8)}
    wide, output = _run(WEIGHTED[0], [_weights(np.float16, rank) | none for rank in range(SIZE)])
    _expect(output, sum(each["bias"] + each["x3"] for each in wide), HALVES[np.dtype(np.float16)])


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (QUANTIZED[1], {"output": T(D.BF16, (M, N)), "x3Optional": None}, "dequantScale: expected ACL_BF16"),
        (QUANTIZED[1], {SCALE: T(D.UINT64, (N,))}, "expected ACL_FLOAT for ACL_FLOAT16 with pertokenScaleOptional"),
        (QUANTIZED[1], {ROWS: None}, "expected ACL_INT64 or ACL_UINT64 for ACL_FLOAT16, got ACL_FLOAT"),
        (QUANTIZED[2], {SENT[0]: T(D.FLOAT16, (N,)), SENT[1]: T(D.FLOAT16, (1, N))}, "expected 1 dimensions"),
        (WEIGHTED[0], {GROUP_SIZE: 64}, "multiple of 32 from 32 to 63"),
    ],
)
def test_inconsistent_scales_are_rejected(name: str, change: Arguments, expected: str) -> None:
    with pytest.raises(AclnnError, match=expected):
        prepare(BY_NAME[name], described(CALLS[name](D.INT8 if name in QUANTIZED else D.FLOAT16) | change))
