"""Products of experts whose rows ranks exchange."""

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
from aclnn.execution.executor import prepare
from aclnn.operators.library.distributed import experts_with_ranks
from tests.cases.table import NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, described, to_torch, torch
from tests.helpers.ranks import GROUP, a_group_of_eight, computed_by_ranks  # noqa: F401  (fixture)

BEFORE, AFTER = "allto_allv_grouped_mat_mul", "grouped_mat_mul_allto_allv"
VERSIONS = {BEFORE: (BEFORE, f"{BEFORE}_v2"), AFTER: (AFTER, f"{AFTER}_v2")}
EXPERTS, H, N, EIGHT = 2, 5, 3, 8
TENSORS = ("sendCountsTensorOptional", "recvCountsTensorOptional")
SHARED = ("mmXOptional", "mmWeightOptional", "mmYOptional")
PERMUTED = "permuteOutOptional"
HALVES = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}
OUTPUT = {name: output for of, output in ((BEFORE, "gmmY"), (AFTER, "y")) for name in VERSIONS[of]}


def _call(name: str) -> Callable[[D], Arguments]:
    def call(d: D) -> Arguments:
        counts = (1,) * (EIGHT * EXPERTS)
        rows = len(counts)
        shared = zip(SHARED, ((4, 6), (6, 7), (4, 7)), strict=True)
        permuted = {"permuteOutFlag": True, PERMUTED: T(d, (rows, H))} if name in VERSIONS[BEFORE] else {}
        engine = {"commMode": "aiv"} if name.endswith("_v2") else {}
        return (
            {"gmmX": T(d, (rows, H)), "gmmWeight": T(d, (EXPERTS, H, N)), OUTPUT[name]: T(d, (rows, N))}
            | {key: T(d, size) for key, size in shared}
            | dict.fromkeys(TENSORS)
            | {"group": GROUP, "epWorldSize": EIGHT, "sendCounts": counts, "recvCounts": counts}
            | {"transGmmWeight": False, "transMmWeight": False}
            | permuted
            | engine
        )

    return call


CALLS = {name: _call(name) for name in OUTPUT}
SIZES = {key: value.shape for name in CALLS for key, value in _call(name)(D.FLOAT16).items() if isinstance(value, T)}


def _wider(o: Any, name: str) -> Arguments:
    return shape((*SIZES[name][:-1], SIZES[name][-1] + 1), name)


def _columns(o: Any, name: str) -> Break:
    return Break(_wider(o, name), "[")


def _without(o: Any, name: str) -> Arguments:
    """No experts or no rows."""
    return shape((0, *SIZES[name][1:]), name)


def _counts(o: Any, name: str, change: tuple[int, ...]) -> Arguments:
    return {name: change}


BREAKS: dict[str, Callable[[Any, str], Break]] = {
    "null": lambda o, name: Break({name: T(D.INT64, (16,))}, "null"),
    "no tensors": lambda o, name: Break({name: T(D.INT64, (16,))}, "null"),
    "a name": lambda o, name: Break({name: ""}, "a name"),
    "all or none": lambda o, name: Break({name: None}, "a tensor with"),
    "as its flag says": lambda o, name: Break({"permuteOutFlag": False}, "null where permuteOutFlag is false"),
    "length of a name": lambda o, name: Break({name: "x" * 128}, "1 to 127 characters"),
    "numbers": lambda o, name: Break({name: ()}, "numbers"),
    "data type": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "same data type as gmmX": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((2, 2, 2), name), "2 dimensions"),
    "3 dimensions": lambda o, name: Break(shape((2, 2), name), "3 dimensions"),
    "as many rows as gmmX has columns": lambda o, name: Break(shape((EXPERTS, H + 1, N), name), "5 rows"),
    "few enough rows": lambda o, name: Break(shape((52428800, SIZES[name][1]), name), " rows"),
    "few enough": lambda o, name: Break(_without(o, name), "experts of 1 to 65535 rows"),
    "allowed value": lambda o, name: Break(
        {name: "other" if name == "commMode" else 3}, "expected", product=Product.ASCEND_950
    ),
    "one for each expert": lambda o, name: Break(_counts(o, name, (1,) * 15), "16 numbers"),
    "sum": lambda o, name: Break(_counts(o, name, (2,) * 16), "a sum of 16"),
    "shape is the product": _columns,
    "shape is rows of gmmX": _columns,
    "shape is the product of all rows": _columns,
    f"as many rows as {SHARED[0]} has columns": lambda o, name: Break(shape((5, 7), name), "6 rows"),
    "communicator of this device": lambda o, name: Break({name: "nobody"}, "a communicator with a rank"),
    "as many as epWorldSize": lambda o, name: Break(
        {
            "epWorldSize": 16,
            "sendCounts": (1, 0) * 16,
            "recvCounts": (1, 0) * 16,
        },
        "16 ranks",
        product=Product.ASCEND_950,
    ),
}
TILED = "in tiling, "


def _engine(name: str, product: Product) -> Arguments:
    """The engine of a second version that products but Atlas A2 take."""
    return {"commMode": "ai_cpu"} if name.endswith("_v2") and product is not Product.ATLAS_A2 else {}


@pytest.mark.usefixtures("a_group_of_eight")
class TestExpertsWithRanks(LibraryTests):
    subject = Subject(
        experts_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=tuple(CALLS),
        default=(D.FLOAT16, D.BF16),
        empty={
            name: {key: {} if isinstance(value, T) else None for key, value in call(D.FLOAT16).items() if value is None}
            | {key: {} for key, value in call(D.FLOAT16).items() if isinstance(value, T)}
            for name, call in CALLS.items()
        },
        breaks={prefix + title: breaking for prefix in ("", TILED) for title, breaking in BREAKS.items()},
        codes=dict.fromkeys(
            (*(TILED + title for title in BREAKS), "communicator of this device", "as many as epWorldSize"), TILING
        )
        | dict.fromkeys(("no tensors", "a name", "all or none", "as its flag says"), NULL),
        otherwise=_engine,
    )


def _wide(array: Any) -> Any:
    return to_torch(array).double()


#: Rows from each rank to each expert of each rank.
COUNTS = np.array([[[3, 0], [1, 2]], [[0, 4], [2, 0]]])


def _given(name: str, kind: Any, turned: bool, counts: Any) -> list[Arguments]:
    random, given = np.random.default_rng(5), []
    ranks, experts = counts.shape[1:]
    for rank in range(ranks):
        sent, received = counts[rank], counts[:, rank]
        rows, products = (sent.sum(), received.sum())
        weight = random.normal(size=(experts, N, H) if turned else (experts, H, N)).astype(kind)
        shared = [random.normal(size=size).astype(kind) for size in ((4, 6), (7, 6) if turned else (6, 7))]
        each: Arguments = {
            "gmmX": random.normal(size=(rows, H)).astype(kind),
            "gmmWeight": weight,
            "sendCounts": tuple(map(int, sent.reshape(-1))),
            "recvCounts": tuple(map(int, received.reshape(-1))),
            OUTPUT[name]: np.zeros((products, N), kind),
            **dict(zip(SHARED, (*shared, np.zeros((4, 7), kind)), strict=True)),
            "transGmmWeight": turned,
            "transMmWeight": turned,
            "epWorldSize": ranks,
        }
        given.append(each | ({PERMUTED: np.zeros((products, H), kind)} if name == BEFORE else {}))
    return given


def _matrix(own: Arguments, expert: int, turned: bool) -> Any:
    weight = _wide(own["gmmWeight"])[expert]
    return weight.T if turned else weight


def _expect(got: Any, wanted: Any, unit: float) -> None:
    np.testing.assert_allclose(_wide(got), wanted, rtol=unit, atol=16 * unit)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", VERSIONS[BEFORE])
def test_rows_go_to_their_experts_and_are_multiplied(fresh: None, name: str, kind: Any, turned: bool) -> None:
    given = _given(BEFORE, kind, turned, COUNTS)
    on = Product.ATLAS_A2 if name.endswith("_v2") else Product.ASCEND_950
    after = computed_by_ranks(name, [CALLS[name](D.FLOAT16) | each for each in given], on)
    blocks = [torch.split(_wide(each["gmmX"]), list(each["sendCounts"])) for each in given]
    for rank, (own, found) in enumerate(zip(given, after, strict=True)):
        rows = [[blocks[source][rank * EXPERTS + expert] for source in (0, 1)] for expert in range(EXPERTS)]
        whole = torch.cat([part for parts in rows for part in parts])
        expected = torch.cat([torch.cat(parts) @ _matrix(own, at, turned) for at, parts in enumerate(rows)])
        assert torch.equal(_wide(found[PERMUTED]), whole)
        _expect(found["gmmY"], expected, HALVES[kind])
        shared = _wide(own[SHARED[1]])
        _expect(found[SHARED[2]], _wide(own[SHARED[0]]) @ (shared.T if turned else shared), HALVES[kind])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("name", VERSIONS[AFTER])
def test_products_of_experts_go_to_their_ranks(fresh: None, name: str, kind: Any, turned: bool) -> None:
    given = _given(AFTER, kind, turned, COUNTS)
    on = Product.ATLAS_A2 if name.endswith("_v2") else Product.ASCEND_950
    after = computed_by_ranks(name, [CALLS[name](D.FLOAT16) | each for each in given], on)
    products = []
    for rank, own in enumerate(given):
        # Rows lie by expert, and of each expert by the rank to which they go.
        sizes = [int(COUNTS[rank, to, expert]) for expert in range(EXPERTS) for to in (0, 1)]
        parts = torch.split(_wide(own["gmmX"]), sizes)
        products.append([[parts[2 * at + to] @ _matrix(own, at, turned) for at in range(EXPERTS)] for to in (0, 1)])
    for rank, found in enumerate(after):
        expected = torch.cat([part for source in (0, 1) for part in products[source][rank]])
        _expect(found["y"], expected, HALVES[kind])


def test_the_expert_of_all_rows_and_the_rows_are_optional(fresh: None) -> None:
    left: Arguments = dict.fromkeys((*SHARED, PERMUTED)) | {"permuteOutFlag": False}
    usual = _given(BEFORE, np.float16, False, COUNTS)
    given = [CALLS[BEFORE](D.FLOAT16) | each | left for each in usual]
    after = computed_by_ranks(BEFORE, given, Product.ASCEND_950)
    both = computed_by_ranks(BEFORE, [CALLS[BEFORE](D.FLOAT16) | each for each in usual], Product.ASCEND_950)
    for each, other in zip(after, both, strict=True):
        np.testing.assert_array_equal(each["gmmY"], other["gmmY"])


@pytest.mark.usefixtures("a_group_of_eight")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sendCounts": (17, -1, *(0,) * 14)}, "sendCounts: expected numbers of 0 or more, got -1"),
        ({"permuteOutFlag": True, PERMUTED: None}, "expected a tensor where permuteOutFlag is true"),
        ({"group": None}, "group: expected a name"),
        ({"sendCounts": None}, "sendCounts: expected numbers"),
    ],
)
def test_inconsistent_arguments_are_rejected(change: Arguments, expected: str) -> None:
    with pytest.raises(AclnnError, match=expected):
        prepare(BY_NAME[BEFORE], described(CALLS[BEFORE](D.FLOAT16) | change), Product.ATLAS_A3)


@pytest.mark.usefixtures("a_group_of_eight")
@pytest.mark.parametrize(("name", "most", "direct"), [(VERSIONS[BEFORE][1], 48, 128), (VERSIONS[AFTER][1], 32, 128)])
def test_numbers_of_experts_depend_on_comm_mode(name: str, most: int, direct: int) -> None:
    def prepared(experts: int, engine: str) -> None:
        counts = (2, *(0,) * (EIGHT * experts - 1))
        sizes: Arguments = {
            key: (2, SIZES[key][1]) for key in ("gmmX", OUTPUT[name], PERMUTED) if key in CALLS[name](D.FLOAT16)
        }
        change = {key: T(D.FLOAT16, size) for key, size in sizes.items()}
        change |= {"gmmWeight": T(D.FLOAT16, (experts, H, N)), "sendCounts": counts, "recvCounts": counts}
        call = CALLS[name](D.FLOAT16) | change | {"commMode": engine}
        prepare(BY_NAME[name], described(call), Product.ATLAS_A3)

    prepared(32, "ai_cpu")
    prepared(direct, "aiv")
    with pytest.raises(AclnnError, match=f"gmmWeight: expected 1 to {most} experts"):
        prepared(most + 1, "ai_cpu")
    with pytest.raises(AclnnError, match="at most 1024 experts of all ranks, got 1032"):
        prepared(direct + 1, "aiv")
