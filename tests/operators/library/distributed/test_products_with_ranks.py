"""Products of matrices whose factors or results ranks exchange."""

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
from aclnn.operators.library.distributed import products_with_ranks
from aclnn.runtime import communicators
from tests.cases.table import NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, described, to_torch, torch
from tests.helpers.ranks import GROUP, a_group, computed_by_ranks  # noqa: F401  (fixture)

SIZE, M, K, N = 2, 4, 256, 6
HALVES = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}
REDUCING = ("matmul_all_reduce", "matmul_all_reduce_v2", "matmul_all_reduce_v3")


SCALED = ("all_gather_matmul_v2", "matmul_reduce_scatter_v2")
CROSSED, BIAS = "alltoAllOutOptional", "biasOptional"
BEFORE, AFTER = ("allto_all_matmul", "allto_all_matmul_v2"), ("matmul_allto_all", "matmul_allto_all_v2")


def _call(rows: int, x3: bool = False, gather_out: bool = False, **others: Any) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        optional = {"x3": T(d, (M, N))} if x3 else {"gatherOut": T(d, (SIZE * M, K))} if gather_out else {}
        factors = {"x1": T(d, (M, K)), "x2": T(d, (K, N)), "bias": T(d, (N,)), "output": T(d, (rows, N))}
        return factors | optional | {"group": GROUP, "commTurn": 0, "streamMode": 1} | others

    return call


def _exchange(before: bool, **others: Any) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        inner, output = (SIZE * K, (M // SIZE, N)) if before else (K, (SIZE * M, N // SIZE))
        return (
            {"x1": T(d, (M, K)), "x2": T(d, (inner, N)), BIAS: T(D.FLOAT if d == D.BF16 else d, (N,))}
            | {"output": T(d, output)}
            | ({CROSSED: T(d, (M // SIZE, SIZE * K))} if before else {})
            | {"alltoAllAxesOptional": None, "group": GROUP, "transposeX1": False, "transposeX2": False}
            | others
        )

    return call


NO_SCALES: Any = dict.fromkeys(("x1Scale", "x2Scale", "quantScale"))
FURTHER = NO_SCALES | {"blockSize": 0, "groupSize": 0, "commMode": "aiv"}
CALLS = {
    "matmul_all_reduce": _call(M, reduceOp="sum"),
    "matmul_all_reduce_v2": _call(M, x3=True, reduceOp="sum"),
    "matmul_all_reduce_v3": _call(M, x3=True, reduceOp="sum", commMode="ai_cpu"),
    "all_gather_matmul": _call(SIZE * M, gather_out=True, gatherIndex=0),
    "matmul_reduce_scatter": _call(M // SIZE, reduceOp="sum"),
    SCALED[0]: _call(SIZE * M, gather_out=True, gatherIndex=0, amaxOut=None, **FURTHER | {"bias": None}),
    SCALED[1]: _call(M // SIZE, reduceOp="sum", amaxOutOptional=None, **FURTHER),
    BEFORE[0]: _exchange(before=True),
    BEFORE[1]: _exchange(before=True, commMode="aiv"),
    AFTER[0]: _exchange(before=False),
    AFTER[1]: _exchange(before=False, commMode="aiv"),
}
SHAPES = {
    "bias": (N,),
    "x1Scale": (M, 1),
    "x2Scale": (1, N),
    "quantScale": (1,),
    "amaxOut": (1,),
    "amaxOutOptional": (1,),
}


def _engine(name: str, product: Product) -> Arguments:
    """The engine that a product takes."""
    if name not in (*SCALED, BEFORE[1], AFTER[1]):
        return {}
    on_a3 = {"commMode": "aiv" if name in SCALED else "ai_cpu"}
    return (
        {"commMode": "aiv"}
        if product is Product.ATLAS_A2
        else on_a3
        if product is Product.ATLAS_A3
        else {"commMode": "ccu"}
    )


def _without_rows(name: str) -> Arguments:
    """Of the functions that take none on Atlas A2; of others what they take there."""
    call = CALLS[name](D.FLOAT16)
    if name in (*SCALED, *BEFORE, *AFTER):
        return {key: {} for key, value in call.items() if isinstance(value, T)} | {
            key: None for key, value in call.items() if value is None
        }
    rowless = {"x1": (0, K), "x3": (0, N), "output": (0, N), "gatherOut": (0, K)}
    return {
        key: {"shape": rowless[key]} if key in rowless else {} for key, value in call.items() if isinstance(value, T)
    }


def _other_value(o: Any, name: str) -> Break:
    is_text = o.parameter(name).kind.name == "STRING"
    return Break({name: "other" if is_text else 7}, "'" if is_text else "expected ")


def _given(name: str, dtype: D, size: tuple[int, ...] | None = None) -> Arguments:
    """A tensor that a valid call may lack."""
    return {name: T(dtype, size or SHAPES[name])}


def _of_another_type(o: Any, name: str) -> Break:
    change = _given(name, D.BF16) if name in SHAPES else dtype(D.BF16, name)
    return Break(change, "ACL_FLOAT16")


def _shape_of_ranks(o: Any, name: str) -> Break:
    if o.name in AFTER:
        return (
            Break(shape((K, N + 1), "x2") | {BIAS: None}, "2 columns")
            if name == "x2"
            else Break(shape((M, N), name), "[8, 3]")
        )
    shapes = {"x1": (M + 1, K), "x2": (SIZE * K + 1, N), "output": (M, N), CROSSED: (M, SIZE * K)}
    expected = {"x1": "2 rows", "x2": "512 rows", "output": "[2, 6]", CROSSED: "[2, 512]"}
    return Break(shape(shapes[name], name), expected[name])


BREAKS: dict[str, Callable[[Any, str], Break]] = {
    "data type": lambda o, name: Break(
        _given(name, D.DOUBLE) if name in SHAPES else dtype(D.DOUBLE, name), "ACL_FLOAT16"
    ),
    "same data type as x1": _of_another_type,
    "type with x1": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "type of what is added": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "computed": lambda o, name: Break(dtype(D.FLOAT8_E5M2, "x1", "x2"), "supported here"),
    "allowed value": _other_value,
    **dict.fromkeys(("a text", "an engine"), lambda o, name: Break({name: None}, "a text")),
    **dict.fromkeys(("null or [-1, -2]", "null or [-2, -1]"), lambda o, name: Break({name: (0, 1)}, "null or [-")),
    "length of a name": lambda o, name: Break({name: ""}, "1 to 127 characters"),
    "null": lambda o, name: Break(_given(name, D.FLOAT16), "null"),
    "null or empty": lambda o, name: Break(_given(name, D.FLOAT), "null or an empty tensor"),
    "scales": lambda o, name: Break(_given(name, D.FLOAT), "null with ACL_FLOAT16"),
    "scales of integers": lambda o, name: Break(
        dtype(D.INT8, "x1", "x2", *(("gatherOut",) if o.name == SCALED[0] else ())), "factors with ACL_INT8"
    ),
    "not empty": lambda o, name: Break(shape((0, K if name == "x1" else N), name), "elements"),
    "no private format": lambda o, name: Break(
        {
            name: T(D.FLOAT16, SHAPES[name], Format.FORMAT_FRACTAL_NZ)
            if CALLS[o.name](D.FLOAT16)[name] is None
            else {"format": Format.FORMAT_FRACTAL_NZ}
        },
        "ACL_FORMAT_ND",
    ),
    "2 dimensions": lambda o, name: Break(shape((2, 2, 2), name), "2 dimensions"),
    "2 to 3 dimensions": lambda o, name: Break(shape((M,), name), "2 to 3 dimensions"),
    "… rows (the columns of x1)": lambda o, name: Break(shape((K - 1, N), name), "256 rows"),
    "factors that fit": lambda o, name: Break(shape((K - 1, N), name), "256 rows"),
    "shape is the product": lambda o, name: Break(shape((M, N + 1), name), "[4, 6]"),
    "same shape as output": lambda o, name: Break(shape((M, 1), name), "[4, 6]"),
    "shape is one for each column": lambda o, name: Break(
        _given(name, D.FLOAT16, (N + 1,)) if name in SHAPES else shape((N + 1,), name), "[6]"
    ),
    "contiguous or transposed": lambda o, name: Break({name: Tensor(D.FLOAT16, (K, N), (2 * N, 1))}, "contiguous"),
    "contiguous": lambda o, name: Break({name: Tensor(D.FLOAT16, (K, N), (1, K))}, "contiguous"),
    "transposed once": lambda o, name: Break({name: True, "x2": Tensor(D.FLOAT16, (K, N), (1, K))}, "false"),
    "communicator of this device": lambda o, name: Break({name: "nobody"}, "a communicator with a rank"),
    "columns": lambda o, name: Break(shape((M, 0), name), "columns"),
    "not transposed": lambda o, name: Break({name: Tensor(D.FLOAT16, (M, K), (1, M))}, "not transposed"),
    "256 to 65534 columns": lambda o, name: Break(shape((M, 255), "x1") | shape((255, N), "x2"), "256 to 65534"),
    "… columns (those of x2)": lambda o, name: Break(shape((SIZE * M, N + 1), name), "6 columns"),
    "as many columns as x1": lambda o, name: Break(shape((SIZE * M, K + 1), name), "256 columns"),
    "rows of all ranks": lambda o, name: Break(shape((M, N if name == "output" else K), name), "[8, "),
    "rows for each rank": lambda o, name: Break(
        *((shape((M + 1, K), "x1"), "2 rows") if name == "x1" else (shape((M, N), name), "[2, 6]"))
    ),
    "shapes of all ranks": _shape_of_ranks,
}
TILED = "in tiling, "
ON_950 = {
    *((name, title) for name in SCALED for title in BREAKS if title != "contiguous or transposed"),
    *((name, f"{TILED}shape is one for each column") for name in SCALED),
    *((name, "transposed once") for name in (*BEFORE, *AFTER)),
    *((name, "type of what is added") for name in BEFORE),
}


def _on_its_product(title: str, breaking: Callable[[Any, str], Break]) -> Callable[[Any, str], Break]:
    def find(o: Any, name: str) -> Break:
        found = breaking(o, name)
        return found._replace(product=Product.ASCEND_950) if (o.name, title) in ON_950 else found

    return find


@pytest.mark.usefixtures("a_group")
class TestProductsWithRanks(LibraryTests):
    subject = Subject(
        products_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=tuple(CALLS),
        default=(D.FLOAT16, D.BF16),
        empty={name: _without_rows(name) for name in CALLS},
        breaks={
            prefix + title: _on_its_product(prefix + title, breaking)
            for prefix in ("", TILED)
            for title, breaking in BREAKS.items()
        },
        codes=dict.fromkeys((*(TILED + title for title in BREAKS), "communicator of this device"), TILING)
        | {"a text": NULL, **dict.fromkeys(("an engine", "computed"), NO_KERNEL)},
        otherwise=_engine,
    )


def _factors(kind: Any, rank: int, turned: bool = False) -> dict[str, Any]:
    random = np.random.default_rng(rank)
    sizes = {"x1": (M, K), "x2": (N, K) if turned else (K, N), "bias": (N,), "x3": (M, N)}
    found = {name: random.normal(size=size).astype(kind) for name, size in sizes.items()}
    return found | ({"x2": found["x2"].T} if turned else {})


def _wide(array: Any) -> Any:
    return to_torch(array).double()


def _run(name: str, kind: Any, shapes: dict[str, tuple[int, ...]], *left: str, **others: Any) -> Any:
    """Run on two ranks; return each one's arguments before, in float64, and after."""
    turned = others.pop("turned", False)
    product = others.pop("product", Product.ATLAS_A2)
    call = CALLS[name](D.FLOAT16)
    calls = []
    for rank in range(SIZE):
        arrays = {key: value for key, value in _factors(kind, rank, turned).items() if key in call}
        outputs = {key: np.zeros(size, kind) for key, size in shapes.items()}
        calls.append(call | arrays | outputs | dict.fromkeys(left) | others)
    before = [{key: _wide(value) for key, value in each.items() if isinstance(value, np.ndarray)} for each in calls]
    return before, computed_by_ranks(name, calls, product)


def _expect(got: Any, wanted: Any, unit: float) -> None:
    np.testing.assert_allclose(_wide(got), wanted, rtol=unit, atol=16 * unit)


@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", REDUCING)
def test_every_rank_gets_the_sum_of_all_products(fresh: None, name: str, kind: Any) -> None:
    for turned, left in ((False, ()), (True, ("bias",))):
        before, after = _run(name, kind, {"output": (M, N)}, *left, turned=turned)
        terms = (each["x1"] @ each["x2"] + each.get("bias", 0) + each.get("x3", 0) for each in before)
        for each in after:
            _expect(each["output"], sum(terms) if each is after[0] else _wide(after[0]["output"]), HALVES[kind])
        assert after[0]["output"].tobytes() == after[1]["output"].tobytes()


def test_matrices_of_a_batch_and_sums_without_products(fresh: None) -> None:
    kind = np.dtype(np.float16)
    ones = {name: np.ones(size, kind) for name, size in {"x1": (2, 2, 3), "x2": (3, N), "x3": (2, 2, N)}.items()}
    _, after = _run(REDUCING[1], kind, {"output": (2, 2, N)}, "bias", **ones)
    assert (after[0]["output"] == 2 * (3 + 1)).all()
    before, after = _run(REDUCING[1], kind, {"output": (M, N)}, x1=np.ones((M, 0), kind), x2=np.ones((0, N), kind))
    _expect(after[1]["output"], sum(each["bias"] + each["x3"] for each in before), HALVES[kind])


@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_rows_of_all_ranks_are_gathered_and_multiplied(fresh: None, kind: Any) -> None:
    for turned, left in ((False, ()), (True, ("bias", "gatherOut"))):
        shapes = {"output": (SIZE * M, N)} | ({} if left else {"gatherOut": (SIZE * M, K)})
        before, after = _run("all_gather_matmul", kind, shapes, *left, turned=turned)
        whole = torch.cat([each["x1"] for each in before])
        for own, each in zip(before, after, strict=True):
            _expect(each["output"], whole @ own["x2"] + own.get("bias", 0), HALVES[kind])
            if not left:
                assert torch.equal(_wide(each["gatherOut"]), whole)


def test_rows_are_gathered_for_a_product_without_columns(fresh: None) -> None:
    shapes = {"output": (SIZE * M, 0), "gatherOut": (SIZE * M, K)}
    before, after = _run("all_gather_matmul", np.float16, shapes, "bias", x2=np.ones((K, 0), np.float16))
    assert torch.equal(_wide(after[1]["gatherOut"]), torch.cat([each["x1"] for each in before]))


@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_each_rank_gets_its_rows_of_the_sum(fresh: None, kind: Any) -> None:
    for turned, left in ((False, ()), (True, ("bias",))):
        before, after = _run("matmul_reduce_scatter", kind, {"output": (M // SIZE, N)}, *left, turned=turned)
        total = sum(each["x1"] @ each["x2"] + each.get("bias", 0) for each in before)
        for part, each in zip(total.chunk(SIZE), after, strict=True):
            _expect(each["output"], part, HALVES[kind])


@pytest.mark.parametrize("on", [Product.ATLAS_A2, Product.ASCEND_950])
@pytest.mark.parametrize("name", SCALED)
def test_second_versions_compute_the_results_of_the_first(fresh: None, name: str, on: Product) -> None:
    kind = np.dtype(np.float16)
    gathers, engine = name == SCALED[0], _engine(name, on)
    bias = () if on is Product.ASCEND_950 or not gathers else ("bias",)
    size = (SIZE * M, N) if gathers else (M // SIZE, N)
    before, after = _run(name, kind, {"output": size}, *bias, *("gatherOut",) * gathers, product=on, **engine)
    whole, total = (
        torch.cat([each["x1"] for each in before]),
        sum(each["x1"] @ each["x2"] + each.get("bias", 0) for each in before),
    )
    for rank, (own, each) in enumerate(zip(before, after, strict=True)):
        expected = whole @ own["x2"] + own.get("bias", 0) if gathers else total.chunk(SIZE)[rank]
        _expect(each["output"], expected, HALVES[kind])


def _integers(rank: int, kind: Any, with_bits: bool = False) -> dict[str, Any]:
    random = np.random.default_rng(rank)
    found = {
        name: random.integers(-128, 128, size).astype(np.int8) for name, size in {"x1": (M, K), "x2": (K, N)}.items()
    }
    factors = np.ldexp(random.uniform(0.5, 1, (1, N)), -14).astype(np.float32)
    bits = (factors.view(np.uint32) & 0xFFFFE000).astype(np.int64)
    scales = (
        {"x2Scale": bits}
        if with_bits
        else {"x2Scale": factors, "x1Scale": random.uniform(0.5, 2, (M, 1)).astype(np.float32)}
    )
    return found | scales | {"bias": random.normal(size=(N,)).astype(kind)}


def _scaled_product(x1: Any, own: dict[str, Any]) -> Any:
    scale = own["x2Scale"]
    if scale.dtype == np.int64:
        scale = scale.astype(np.uint32).view(np.float32)
    return x1.astype(np.float64) @ own["x2"].astype(np.float64) * scale


@pytest.mark.parametrize("with_bits", [False, True])
@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_int8_products_are_scaled_by_rows_and_columns(fresh: None, kind: Any, with_bits: bool) -> None:
    if with_bits and kind != np.float16:
        pytest.skip("bits of scales are for FLOAT16")
    given = [_integers(rank, kind, with_bits) for rank in range(SIZE)]
    rows = [each.get("x1Scale", np.ones((M, 1))) for each in given]
    gathered = [
        CALLS[SCALED[0]](D.FLOAT16)
        | each
        | {"bias": None, "gatherOut": np.zeros((SIZE * M, K), np.int8), "output": np.zeros((SIZE * M, N), kind)}
        for each in given
    ]
    whole = np.concatenate([each["x1"] for each in given])
    for own, each in zip(given, computed_by_ranks(SCALED[0], gathered), strict=True):
        np.testing.assert_array_equal(each["gatherOut"], whole)
        _expect(each["output"], _scaled_product(whole, own) * np.concatenate(rows), HALVES[kind])
    scattered = [CALLS[SCALED[1]](D.FLOAT16) | each | {"output": np.zeros((M // SIZE, N), kind)} for each in given]
    total = sum(
        _scaled_product(own["x1"], own) * row + own["bias"].astype(np.float64)
        for own, row in zip(given, rows, strict=True)
    )
    for rank, each in enumerate(computed_by_ranks(SCALED[1], scattered)):
        _expect(each["output"], np.split(total, SIZE)[rank], HALVES[kind])


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"x2Scale": T(D.FLOAT, (N,))}, r"x2Scale: expected shape \[1, 6\]"),
        ({"x2Scale": T(D.INT64, (1, N))}, r"x2Scale: expected data type ACL_FLOAT, got"),
        ({"x1Scale": T(D.FLOAT, (M,))}, r"x1Scale: expected shape \[4, 1\]"),
        ({"x1Scale": T(D.INT64, (M, 1))}, r"x1Scale: expected data type ACL_FLOAT, got"),
        ({"output": T(D.FLOAT, (M // SIZE, N))}, "output: expected data type"),
        ({"bias": T(D.FLOAT16, (N,))}, "bias: expected data type ACL_BF16 or ACL_FLOAT with ACL_INT8"),
    ],
)
def test_scales_of_int8_products_must_match_their_shapes(change: Arguments, expected: str) -> None:
    integers = {name: T(D.INT8, size) for name, size in {"x1": (M, K), "x2": (K, N)}.items()}
    call = CALLS[SCALED[1]](D.BF16) | integers | {"x2Scale": T(D.FLOAT, (1, N))}
    prepare(BY_NAME[SCALED[1]], described(call), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=expected):
        prepare(BY_NAME[SCALED[1]], described(call | change), Product.ATLAS_A2)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", [*BEFORE, *AFTER])
def test_parts_are_exchanged_before_or_after_the_product(fresh: None, name: str, kind: Any, turned: bool) -> None:
    before, random = name in BEFORE, np.random.default_rng(3)
    on = Product.ASCEND_950 if turned else Product.ATLAS_A2
    inner, rows = (SIZE * K, M // SIZE) if before else (K, M)
    given = []
    for _ in range(SIZE):
        x2 = random.normal(size=(N, inner) if turned else (inner, N)).astype(kind)
        bias = random.normal(size=N).astype(np.float32 if kind == ml_dtypes.bfloat16 else kind)
        outputs = {"output": np.zeros((rows, N) if before else (SIZE * M, N // SIZE), kind)}
        outputs |= {CROSSED: np.zeros((rows, SIZE * K), kind)} if before else {}
        operands = {"x1": random.normal(size=(M, K)).astype(kind), "x2": x2, BIAS: bias, "transposeX2": turned}
        given.append(CALLS[name](D.FLOAT16) | operands | outputs | _engine(name, on))
    wide = [{key: _wide(value) for key, value in each.items() if isinstance(value, np.ndarray)} for each in given]
    after = computed_by_ranks(name, given, on)
    for rank, (own, each) in enumerate(zip(wide, after, strict=True)):
        if before:
            whole = torch.cat([other["x1"].chunk(SIZE)[rank] for other in wide], 1)
            expected = whole @ (own["x2"].T if turned else own["x2"]) + own[BIAS]
            assert torch.equal(_wide(each[CROSSED]), whole)
        else:
            products = [other["x1"] @ (other["x2"].T if turned else other["x2"]) + other[BIAS] for other in wide]
            expected = torch.cat([product.chunk(SIZE, 1)[rank] for product in products])
        _expect(each["output"], expected, HALVES[kind])


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize("name", [*BEFORE, *AFTER])
def test_empty_rows_are_accepted_depending_on_the_product(name: str) -> None:
    empty = {"x1": (0, K), "output": (0, N if name in BEFORE else N // SIZE), CROSSED: (0, SIZE * K)}
    call = CALLS[name](D.FLOAT16)
    call |= {key: T(D.FLOAT16, size) for key, size in empty.items() if key in call} | _engine(name, Product.ASCEND_950)
    assert prepare(BY_NAME[name], described(call), Product.ASCEND_950).prepared.plan is None
    with pytest.raises(AclnnError, match="x1: expected elements"):
        prepare(BY_NAME[name], described(call | _engine(name, Product.ATLAS_A2)), Product.ATLAS_A2)


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize(
    ("name", "product", "expected"),
    [
        ("matmul_all_reduce", Product.ATLAS_A2, "1, 2, 4 or 8"),
        ("all_gather_matmul", Product.ATLAS_A3, "2, 4, 8, 16 or 32"),
        ("matmul_reduce_scatter", Product.ASCEND_950, "2, 4, 8, 16, 32 or 64"),
    ],
)
def test_numbers_of_ranks_depend_on_the_product(
    monkeypatch: pytest.MonkeyPatch, name: str, product: Product, expected: str
) -> None:
    call = CALLS[name](D.FLOAT16)
    prepare(BY_NAME[name], described(call), product)
    (alone,) = communicators.named(GROUP)
    monkeypatch.setattr(alone, "size", 3)
    with pytest.raises(AclnnError, match=f"group: expected {expected} ranks on {product.title}, got 3") as caught:
        prepare(BY_NAME[name], described(call), product)
    assert caught.value.code == TILING
