"""Sorting, searching in order, numbers that occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import sorting
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, REAL, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch

SEARCH = {"sortedSequence": T(D.FLOAT, (2, 5)), "outInt32": True, "right": True, "sorter": T(D.INT64, (2, 5))}
GATE = "moe_gating_top_k_softmax"
GATED = ("yOut", "expertIdxOut", "rowIdxOut")


def _gate(x: T, k: int) -> Arguments:
    rows = x.shape[:-1]
    # Atlas inference takes only float16, and no flags.
    finished = None if x.dtype == D.FLOAT16 else T(D.BOOL, rows)
    outs = dict.fromkeys(GATED, T(D.INT32, (*rows, k))) | {"yOut": T(x.dtype, (*rows, k))}
    return {"x": x, "finishedOptional": finished, "k": k, **outs}


def _gated(a: Mapping[str, Any]) -> Any:
    x, k, finished = a["x"].double(), a["k"], a["finishedOptional"]
    values, experts = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
    experts = experts[..., :k]
    rows = experts.numel() // k
    places = torch.arange(rows * k).reshape(k, rows).T.reshape(experts.shape)
    return (
        values[..., :k],
        experts if finished is None else torch.where(finished[..., None], x.shape[-1], experts),
        places,
    )


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "sort": lambda d: {"stable": True, "dim": 0, "descending": True, "indicesOut": T(D.INT64, GRID)},
    "argsort": lambda d: {"dim": -1, "descending": True, "out": T(D.INT64, GRID)},
    "topk": lambda d: {
        "k": 2,
        "dim": -1,
        "largest": False,
        "sorted": True,
        "valuesOut": T(d, (2, 2)),
        "indicesOut": T(D.INT64, (2, 2)),
    },
    "search_sorted": lambda d: SEARCH | {"sortedSequence": T(d, (2, 5)), "out": T(D.INT32, GRID)},
    GATE: lambda d: _gate(T(d, (5, 16)), 3),
    "search_sorteds": lambda d: (
        SEARCH | {"sortedSequence": T(d, (5,)), "outInt32": False, "sorter": None, "out": T(D.INT64, ())}
    ),
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("search_sorted", "search_sorteds"), (D.FLOAT, D.BF16, D.INT32)),
    "argsort": REAL,
    GATE: TRAINED,
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "sort": lambda a: tuple(a["self"].sort(dim=0, descending=True, stable=True)),
    "argsort": lambda a: a["self"].argsort(dim=1, descending=True, stable=True),
    "topk": lambda a: tuple(each[:, :2] for each in a["self"].sort(dim=1, stable=True)),
    "search_sorted": lambda a: torch.searchsorted(
        a["sortedSequence"].contiguous(), a["self"].contiguous(), right=True, sorter=a["sorter"].contiguous()
    ),
    GATE: _gated,
    "search_sorteds": lambda a: torch.searchsorted(a["sortedSequence"].double(), a["self"], right=True),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    GATE: _gate(T(D.FLOAT, (0, 16)), 3),
    "topk": {"valuesOut": {"shape": (0, 2)}, "indicesOut": {"shape": (0, 2)}},
    "search_sorted": {"sortedSequence": {"shape": (0, 5)}, "sorter": None},
    "search_sorteds": {"sortedSequence": {"shape": (0,)}, "sorter": None, "out": {"shape": (1,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "elements along dim": lambda o, name: Break({name: 4}, "from 0 to 3"),
    "by outInt32": lambda o, name: Break({"outInt32": o.name == "search_sorteds"}, "by outInt32"),
    "rows of self": lambda o, name: Break(shape((3, 5), name, "sorter"), "1 dimension"),
    "1 dimension": lambda o, name: Break(shape((2, 5), name), "1 dimension"),
    "as many elements as one": lambda o, name: Break(shape((2,), name), "1"),
    "same data type as x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "null": lambda o, name: Break({name: T(D.BOOL, (5,))}, "null", D.FLOAT16, Product.ATLAS_INFERENCE),
    "2 to 3 dimensions": lambda o, name: Break(shape((16,), name), "2 to 3"),
    "extents of 32 bits": lambda o, name: Break(shape((2**31, 16), name), "2147483647"),
    "as many experts as the product takes": lambda o, name: Break(
        shape((5, 2049), name), "2048", product=Product.ASCEND_950
    ),
    "a flag for each row": lambda o, name: Break(shape((4,), name), "[5]"),
    "among the experts": lambda o, name: Break({name: 17}, "from 0 to 16"),
    "shape is a place for each chosen": lambda o, name: Break(shape((5, 4), name), "[5, 3]"),
    "as sortedSequence": lambda o, name: Break({name: T(D.INT32, (5,))}, "ACL_INT64"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "sorter":
        return np.broadcast_to(np.array([4, 2, 0, 1, 3]), array.shape)
    if operator == "search_sorted" and name == "sortedSequence":
        return np.broadcast_to(np.array([-1, 2, -3, 4, -5]), array.shape)
    if operator == "search_sorteds":
        return np.sort(array.astype(np.float64)) if name == "sortedSequence" else array
    return array


class TestSorting(LibraryTests):
    subject = Subject(
        sorting.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        default=(*REAL, D.BOOL),
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
        codes=dict.fromkeys(
            (
                *("null", "2 to 3 dimensions", "extents of 32 bits", "as many experts as the product takes"),
                *("a flag for each row", "among the experts", "shape is a place for each chosen"),
            ),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


def test_a_sequence_without_a_sorter_is_in_order_and_equals_are_passed_or_not() -> None:
    sequence = Placed(np.array([1, 3, 3, 7], np.int32), "contiguous")
    values = Placed(np.array([[0, 3], [8, 7]], np.int32), "transposed")
    for right, wanted in ((False, [[0, 1], [4, 3]]), (True, [[0, 3], [4, 4]])):
        out = Placed(np.zeros((2, 2), np.int64), "contiguous")
        call = {"sortedSequence": sequence.tensor, "self": values.tensor, "outInt32": False, "right": right}
        prepare(BY_NAME["search_sorted"], call | {"sorter": None, "out": out.tensor}, Product.ATLAS_A2).run()
        assert out.view.tolist() == wanted


@pytest.mark.parametrize("dims", [(97,), (5, 40), (40, 5), (3, 64, 2)])
@pytest.mark.parametrize("kind", [np.float32, np.int16, np.bool_])
def test_the_first_few_are_those_of_sorting_all(dims: tuple[int, ...], kind: Any) -> None:
    """Equal elements in their order, NaN the greatest, along any dimension."""
    random = np.random.default_rng(3)
    values = random.integers(-4, 5, dims).astype(kind)
    if kind is np.float32:
        values[random.random(dims) < 0.05] = np.nan
    for along in range(len(dims)):
        for descending in (False, True):
            most = dims[along]
            every = sorting._sorted(values, along, descending, most)
            for count in {1, 2, most // 4, most // 2, most} - {0}:
                found = sorting._sorted(values, along, descending, count)
                for one, all_of in zip(found, every, strict=True):
                    np.testing.assert_array_equal(one, all_of.take(range(count), along))


def _run_gate(x: Array, finished: Array | None, k: int, product: Product) -> list[Array]:
    placed = [Placed(np.full((*x.shape[:-1], k), 7, kind), "contiguous") for kind in (x.dtype, np.int32, np.int32)]
    given = {"x": Placed(x, "contiguous").tensor, "finishedOptional": None, "k": k}
    if finished is not None:
        given["finishedOptional"] = Placed(finished, "contiguous").tensor
    outs = dict(zip(GATED, (each.tensor for each in placed), strict=True))
    prepare(BY_NAME[GATE], given | outs, product).run()
    return [each.view for each in placed]


def test_rows_of_three_dimensions_are_numbered_in_order() -> None:
    """The document's formula is of two dimensions; among equal scores the first expert goes before."""
    finished = np.array([[False, True], [False, False]])
    shares, experts, places = _run_gate(np.zeros((2, 2, 4), np.float32), finished, 2, Product.ATLAS_A2)
    assert (shares == 0.25).all()
    assert experts.tolist() == [[[0, 1], [4, 4]], [[0, 1], [0, 1]]]
    assert places.tolist() == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]


def test_atlas_inference_numbers_no_rows_and_takes_blocks_of_experts() -> None:
    x = np.arange(32, dtype=np.float16).reshape(2, 16)
    _, experts, places = _run_gate(x, None, 2, Product.ATLAS_INFERENCE)
    assert experts.tolist() == [[15, 14]] * 2
    assert not places.any()
    for other in (x[:, :8], np.tile(x, 17), x[np.newaxis]):
        with pytest.raises(AclnnError, match="x: expected 2 dimensions, a multiple of 16 up to 256"):
            _run_gate(other, None, 2, Product.ATLAS_INFERENCE)
