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
from aclnn.operators.library import products_with_ranks
from aclnn.runtime import communicators
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, described, to_torch, torch
from tests.helpers.ranks import GROUP, a_group, computed_by_ranks  # noqa: F401  (fixture)

SIZE, M, K, N = 2, 4, 256, 6
HALVES = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}
REDUCING = ("matmul_all_reduce", "matmul_all_reduce_v2", "matmul_all_reduce_v3")


def _call(rows: int, x3: bool = False, gather_out: bool = False, **others: Any) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        optional = {"x3": T(d, (M, N))} if x3 else {"gatherOut": T(d, (SIZE * M, K))} if gather_out else {}
        factors = {"x1": T(d, (M, K)), "x2": T(d, (K, N)), "bias": T(d, (N,)), "output": T(d, (rows, N))}
        return factors | optional | {"group": GROUP, "commTurn": 0, "streamMode": 1} | others

    return call


CALLS = {
    "matmul_all_reduce": _call(M, reduceOp="sum"),
    "matmul_all_reduce_v2": _call(M, x3=True, reduceOp="sum"),
    "matmul_all_reduce_v3": _call(M, x3=True, reduceOp="sum", commMode="ai_cpu"),
    "all_gather_matmul": _call(SIZE * M, gather_out=True, gatherIndex=0),
    "matmul_reduce_scatter": _call(M // SIZE, reduceOp="sum"),
}


def _without_rows(name: str) -> Arguments:
    rowless = {"x1": (0, K), "x3": (0, N), "output": (0, N), "gatherOut": (0, K)}
    tensors = [key for key, value in CALLS[name](D.FLOAT16).items() if isinstance(value, T)]
    return {key: {"shape": rowless[key]} if key in rowless else {} for key in tensors}


def _other_value(o: Any, name: str) -> Break:
    is_text = o.parameter(name).kind.name == "STRING"
    return Break({name: "other" if is_text else 7}, "'" if is_text else "expected ")


BREAKS: dict[str, Callable[[Any, str], Break]] = {
    "data type": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "same data type as x1": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "allowed value": _other_value,
    "a text": lambda o, name: Break({name: None}, "a text"),
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((2, 2, 2), name), "2 dimensions"),
    "2 to 3 dimensions": lambda o, name: Break(shape((M,), name), "2 to 3 dimensions"),
    "as many rows as x1 has columns": lambda o, name: Break(shape((K - 1, N), name), "256 rows"),
    "shape is the product": lambda o, name: Break(shape((M, N + 1), name), "[4, 6]"),
    "same shape as output": lambda o, name: Break(shape((M, 1), name), "[4, 6]"),
    "shape is one for each column": lambda o, name: Break(shape((N + 1,), name), "[6]"),
    "contiguous or transposed": lambda o, name: Break({name: Tensor(D.FLOAT16, (K, N), (2 * N, 1))}, "contiguous"),
    "communicator of this device": lambda o, name: Break({name: "nobody"}, "a communicator with a rank"),
    "columns": lambda o, name: Break(shape((M, 0), name), "columns"),
    "not transposed": lambda o, name: Break({name: Tensor(D.FLOAT16, (M, K), (1, M))}, "no transposed matrix"),
    "256 to 65534 columns": lambda o, name: Break(shape((M, 255), "x1") | shape((255, N), "x2"), "256 to 65534"),
    "as many columns as x2": lambda o, name: Break(shape((SIZE * M, N + 1), name), "6 columns"),
    "as many columns as x1": lambda o, name: Break(shape((SIZE * M, K + 1), name), "256 columns"),
    "rows of all ranks": lambda o, name: Break(shape((M, N if name == "output" else K), name), "[8, "),
    "rows for each rank": lambda o, name: Break(
        *((shape((M + 1, K), "x1"), "2 rows") if name == "x1" else (shape((M, N), name), "[2, 6]"))
    ),
}
IN_TILING = {f"in tiling, {title}": breaking for title, breaking in BREAKS.items()}


@pytest.mark.usefixtures("a_group")
class TestProductsWithRanks(LibraryTests):
    subject = Subject(
        products_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=tuple(CALLS),
        default=(D.FLOAT16, D.BF16),
        empty={name: _without_rows(name) for name in CALLS},
        breaks=BREAKS | IN_TILING,
        codes=dict.fromkeys((*IN_TILING, "communicator of this device"), TILING) | {"a text": NULL},
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


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize(
    ("name", "product", "expected"),
    [
        ("matmul_all_reduce", Product.ATLAS_A2, "1, 2, 4 or 8"),
        ("all_gather_matmul", Product.ATLAS_A3, "2, 4, 8, 16 or 32"),
        ("matmul_reduce_scatter", Product.ASCEND_950, "2, 4, 8, 16, 32 or 64"),
    ],
)
def test_products_have_their_numbers_of_ranks(
    monkeypatch: pytest.MonkeyPatch, name: str, product: Product, expected: str
) -> None:
    call = CALLS[name](D.FLOAT16)
    prepare(BY_NAME[name], described(call), product)
    (alone,) = communicators.named(GROUP)
    monkeypatch.setattr(alone, "size", 3)
    with pytest.raises(AclnnError, match=f"group: expected {expected} ranks on {product.title}, got 3") as caught:
        prepare(BY_NAME[name], described(call), product)
    assert caught.value.code == TILING
