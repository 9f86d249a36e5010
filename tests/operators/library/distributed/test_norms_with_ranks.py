"""RMSNorm of what is added to the sum of all ranks' products."""

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
from aclnn.operators.library.distributed import norms_with_ranks
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, described, to_torch
from tests.helpers.ranks import GROUP, a_group, computed_by_ranks  # noqa: F401  (fixture)

SIZE, M, K, N = 2, 4, 64, 32
HALVES = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}
SCALE, FACTORS, OFFSET, GROUP_SIZE = "dequantScale", "antiquantScale", "antiquantOffset", "antiquantGroupSize"
FORMS = ("", "quant_", "weight_quant_")
EPSILON = 2.0**-3


def _name(form: str, in_place: bool = False) -> str:
    return f"{'inplace_' * in_place}{form}matmul_all_reduce_add_rms_norm"


QUANTIZED = tuple(_name("quant_", in_place) for in_place in (False, True))
WEIGHTED = tuple(_name("weight_quant_", in_place) for in_place in (False, True))


def _call(form: str, in_place: bool) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        half, of_integers = (D.FLOAT16 if d == D.INT8 else d), form == "quant_"
        further: Arguments = {}
        if of_integers:
            further = {SCALE: T(D.UINT64, (N,))}
        elif form:
            further = {FACTORS: T(d, (1, N)), OFFSET: T(d, (1, N)), GROUP_SIZE: 0}
        return (
            {"x1": T(d, (M, K)), "x2": T(D.INT8 if form else d, (K, N))}
            | {"bias": T(D.INT32 if of_integers else d, (N,)), "gamma": T(half, (N,))}
            | {each: T(half, (2, M // 2, N)) for each in ("residual", "normOut", *(() if in_place else ("y",)))}
            | {"epsilon": EPSILON, "group": GROUP, "reduceOp": "sum", "commTurn": 0, "streamMode": 1}
            | further
        )

    return call


CALLS = {_name(form, in_place): _call(form, in_place) for form in FORMS for in_place in (False, True)}


def _without_rows(name: str) -> Arguments:
    changed = {"x1": (0, K), **dict.fromkeys(("residual", "y", "normOut"), (0, 2, N))}
    return {
        key: {"shape": changed[key]} if key in changed else {}
        for key, value in CALLS[name](D.FLOAT16).items()
        if isinstance(value, T)
    }


def _value(o: Any, name: str) -> Break:
    return Break({name: "other" if name == "reduceOp" else 7}, "'sum'" if name == "reduceOp" else "expected ")


def _without_columns(o: Any, name: str) -> Break:
    return Break(shape((M, 0), name) | shape((0, N), "x2"), "columns")


def _groups(o: Any, name: str, odd: Callable[[], Tensor]) -> Break:
    """Of two groups, one tensor laid in another way."""
    usual = {each: T(D.FLOAT16, (2, N)) for each in (FACTORS, OFFSET)}
    return Break(usual | {GROUP_SIZE: 32, name: odd()}, "contiguous")


BREAKS: dict[str, Callable[[Any, str], Break]] = {
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "same data type as x1": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "same data type as residual": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "type with residual": lambda o, name: Break(dtype(D.BF16, name), "ACL_INT64 or ACL_UINT64"),
    "allowed value": _value,
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((2, 2, 2), name), "2 dimensions"),
    "2 to 3 dimensions": lambda o, name: Break(shape((M,), name), "2 to 3 dimensions"),
    "3 dimensions": lambda o, name: Break(shape((M, N), name), "3 dimensions"),
    "… rows (the columns of x1)": lambda o, name: Break(shape((K - 1, N), name), f"{K} rows"),
    "… columns (those of x2)": lambda o, name: Break(shape((2, M // 2, N + 1), name), f"{N} columns"),
    "columns": _without_columns,
    "shape is one for each column": lambda o, name: Break(shape((1, N), name), f"[{N}]"),
    "same shape as residual": lambda o, name: Break(shape((1, M, N), name), f"[2, {M // 2}, {N}]"),
    "as many rows as x1": lambda o, name: Break(
        {each: {"shape": (3, 2, N)} for each in ("y", "normOut", name) if each in CALLS[o.name](D.FLOAT16)},
        "as many rows",
    ),
    "a number between 0 and 1": lambda o, name: Break({name: 1.0}, "between 0 and 1"),
    "contiguous or transposed": lambda o, name: (
        _groups(o, name, lambda: Tensor(D.FLOAT16, (2, N), (2 * N, 1)))
        if name != "x2"
        else Break({name: Tensor(D.INT8 if o.name in (*QUANTIZED, *WEIGHTED) else D.FLOAT16, (K, N), (2 * N, 1))}, "")
    ),
    "laid as x2": lambda o, name: _groups(o, name, lambda: Tensor(D.FLOAT16, (2, N), (1, 2))),
    "factors of columns": lambda o, name: Break(shape((N + 1,), name), f"[1, {N}]"),
    "factors of the weight": lambda o, name: Break({GROUP_SIZE: 32}, f"[2, {N}]"),
    f"same shape as {FACTORS}": lambda o, name: Break(shape((N,), name), f"[1, {N}]"),
    "group size": lambda o, name: Break({name: 33}, "multiple of 32 from 32 to 63"),
    "even": lambda o, name: Break(_odd(o.name), "even number"),
    "communicator of this device": lambda o, name: Break({name: "nobody"}, "a communicator with a rank"),
}


def _odd(name: str) -> Arguments:
    sizes = {"bias": (3,), "gamma": (3,), FACTORS: (1, 3), OFFSET: (1, 3)}
    sizes |= {each: (2, M // 2, 3) for each in ("residual", "y", "normOut") if each in CALLS[name](D.FLOAT16)}
    return {"x2": Tensor(D.INT4, (K, 3), (3, 1))} | {each: {"shape": size} for each, size in sizes.items()}


TILED = "in tiling, "


@pytest.mark.usefixtures("a_group")
class TestNormsWithRanks(LibraryTests):
    subject = Subject(
        norms_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=tuple(CALLS),
        dtypes=dict.fromkeys(QUANTIZED, (D.INT8,)),
        default=(D.FLOAT16, D.BF16),
        empty={name: _without_rows(name) for name in CALLS},
        breaks={prefix + title: breaking for prefix in ("", TILED) for title, breaking in BREAKS.items()},
        codes=dict.fromkeys((*(TILED + title for title in BREAKS), "communicator of this device"), TILING),
    )


def _wide(array: Any) -> Any:
    return to_torch(array).double()


def _given(form: str, kind: Any, rank: int, batch: tuple[int, ...]) -> Arguments:
    """A rank's arguments; what is added to the sum and the weight of columns are those of all."""
    random, same = np.random.default_rng(rank), np.random.default_rng(9)
    factor = 1 if form != "quant_" else 2.0**16
    found: Arguments = {
        "x1": random.normal(size=(*batch, K)).astype(kind),
        "x2": random.normal(size=(K, N)).astype(kind),
        "bias": (random.normal(size=N) * factor).astype(np.int32 if factor > 1 else kind),
        "residual": same.normal(size=(2, M // 2, N)).astype(kind),
        "gamma": same.normal(size=N).astype(kind),
        "normOut": np.zeros((2, M // 2, N), kind),
        "y": np.zeros((2, M // 2, N), kind),
    }
    if form:
        found["x2"] = random.integers(-128, 128, (K, N)).astype(np.int8)
    if form == "quant_":
        found["x1"] = random.integers(-128, 128, (*batch, K)).astype(np.int8)
        scale = np.ldexp(random.uniform(0.5, 1, N), -14).astype(np.float32)
        bits = (scale.view(np.uint32) & 0xFFFFE000).astype(np.uint64)
        found[SCALE] = bits if kind == np.float16 else scale.astype(kind)
    elif form:
        found[FACTORS] = np.ldexp(random.uniform(0.5, 1, (2, N)), -6).astype(kind)
        found[OFFSET] = random.normal(size=(2, N)).astype(kind)
        found[GROUP_SIZE] = 32
    return found


def _term(form: str, given: Arguments) -> Any:
    """A rank's part of the sum in float64."""
    own = {key: _wide(each) for key, each in given.items() if isinstance(each, np.ndarray) and key != SCALE}
    if form == "quant_":
        stored = given[SCALE]
        bits = stored.dtype == np.uint64
        scale = _wide(stored.astype(np.uint32).view(np.float32)) if bits else _wide(stored)
        return (own["x1"] @ own["x2"] + own["bias"]) * scale
    weight = own["x2"]
    if form:
        weight = (weight + own[OFFSET].repeat_interleave(32, 0)) * own[FACTORS].repeat_interleave(32, 0)
    return own["x1"] @ weight + own["bias"]


@pytest.mark.parametrize("batch", [(M,), (2, M // 2)], ids=str)
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_the_sum_are_normalised(
    fresh: None, form: str, in_place: bool, kind: Any, batch: tuple[int, ...]
) -> None:
    given, unit, name = [_given(form, kind, rank, batch) for rank in range(SIZE)], HALVES[np.dtype(kind)], ""
    name = _name(form, in_place)
    total = sum(_term(form, each) for each in given).reshape(2, M // 2, N) + _wide(given[0]["residual"])
    norm = total / (total.square().mean(-1, keepdim=True) + EPSILON).sqrt() * _wide(given[0]["gamma"])
    calls = [CALLS[name](D.FLOAT16) | {k: v for k, v in each.items() if k != "y" or not in_place} for each in given]
    for each in computed_by_ranks(name, calls):
        np.testing.assert_allclose(_wide(each["residual" if in_place else "y"]), total, rtol=unit, atol=16 * unit)
        np.testing.assert_allclose(_wide(each["normOut"]), norm, rtol=unit, atol=4 * unit)
        if not in_place:
            assert each["residual"].tobytes() == given[0]["residual"].tobytes()


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize("name", CALLS)
def test_only_the_columns_of_x1_are_checked_for_empty_tensors(name: str) -> None:
    empty = {key: T(D.FLOAT16, (2, 0, N)) for key in ("residual",)} | {"streamMode": 2, "group": "nobody"}
    call = described(CALLS[name](D.INT8 if name in QUANTIZED else D.FLOAT16) | empty)
    assert prepare(BY_NAME[name], call, Product.ATLAS_A2).prepared.plan is None
    none = described({"x1": T(D.FLOAT16, (M, 0)), "x2": T(D.FLOAT16, (0, N))})
    with pytest.raises(AclnnError, match="x1: expected columns"):
        prepare(BY_NAME[name], call | none, Product.ATLAS_A2)
