"""Products of tokens with the matrices of experts on other ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import grouped_products_with_ranks
from tests.cases.table import INVALID, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, described
from tests.helpers.ranks import Rank, called, on_devices, only_group

ROWS, COLUMNS, EXPERTS, WIDTH = 1024, 8192, 2, 6
FORTH, BACK = "allto_allv_grouped_mat_mul", "grouped_mat_mul_allto_allv"


def call(forth: bool, later: bool, d: D) -> Arguments:
    """A valid call on Atlas A3 and Ascend 950: 64 rows for each expert of each of eight ranks."""
    counts = (ROWS // 8 // EXPERTS,) * (8 * EXPERTS)
    return {
        "gmmX": T(d, (ROWS, COLUMNS)),
        "gmmWeight": T(d, (EXPERTS, COLUMNS, WIDTH)),
        "sendCountsTensorOptional": None,
        "recvCountsTensorOptional": None,
        "mmXOptional": T(d, (ROWS // 2, 5)),
        "mmWeightOptional": T(d, (3, 5)),
        "group": "all",
        **({"commMode": "ai_cpu"} if later else {}),
        "epWorldSize": 8,
        "sendCounts": counts,
        "recvCounts": counts,
        "transGmmWeight": False,
        "transMmWeight": True,
        **({"permuteOutFlag": True} if forth else {}),
        "gmmY" if forth else "y": T(d, (ROWS, WIDTH)),
        "mmYOptional": T(d, (ROWS // 2, 3)),
        **({"permuteOutOptional": T(d, (ROWS, COLUMNS))} if forth else {}),
    }


CALLS = {
    each.name: partial(call, "gmmY" in [parameter.name for parameter in each.parameters], each.name.endswith("v2"))
    for each in grouped_products_with_ranks.OPERATORS
}


def on_a3(change: Any, expected: str) -> Any:
    return lambda operator, name: Break(change(name), expected, product=Product.ATLAS_A3)


def counts(change: dict[int, int]) -> Any:
    """The numbers of a valid call, some of them changed by so much."""
    return lambda name: {name: tuple(64 + change.get(at, 0) for at in range(16))}


class TestProducts(LibraryTests):
    subject = Subject(
        grouped_products_with_ranks.OPERATORS,
        calls=CALLS,
        references={},
        elsewhere=[*CALLS],
        default=(D.FLOAT16, D.BF16),
        empty={name: {"sendCountsTensorOptional": None, "recvCountsTensorOptional": None} for name in CALLS},
        breaks={
            "data types that go together": on_a3(partial(dtype, D.FLOAT), "ACL_FLOAT16"),
            "data type of gmmX": on_a3(partial(dtype, D.BF16), "ACL_FLOAT16 (that of gmmX)"),
            "format that counts as ND": on_a3(lambda name: {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_"),
            "not taken yet": on_a3(lambda name: {name: T(D.INT64, (16,))}, "null"),
            "null": on_a3(lambda name: {name: T(D.INT64, (16,))}, "null"),
            "a name": on_a3(lambda name: {name: ""}, "the name of a communicator"),
            "a short name": on_a3(lambda name: {name: "x" * 128}, "at most 127 characters"),
            "all or none": on_a3(lambda name: {name: None}, "all or none"),
            "wanted": on_a3(lambda name: {name: None}, "an object with that permuteOutFlag"),
            "some": on_a3(lambda name: {name: None}, "numbers"),
            "an engine": lambda operator, name: Break({name: "hccs"}, "'ai_cpu'", product=Product.ASCEND_950),
            "known on the product": on_a3(lambda name: {name: 4}, "8, 16, 32, 64 or 128"),
            "2 dimensions": on_a3(partial(shape, (8,)), "2 dimensions"),
            "3 dimensions": on_a3(partial(shape, (8,)), "3 dimensions"),
            "rows of tokens": on_a3(partial(shape, (0, COLUMNS)), "from 1 to 52428799 rows"),
            "matrices of experts": on_a3(partial(shape, (33, COLUMNS, WIDTH)), "1 to 32 matrices"),
            "of each rank and expert": on_a3(lambda name: {name: (64,) * 15}, "16 numbers"),
            "of all rows": on_a3(counts({0: 1}), "numbers from 0 on whose sum is 1024"),
            "enough for each rank": on_a3(counts({0: -1, 2: 1}), "at least 2097152 bytes"),
            "beside its matrix": lambda operator, name: Break(
                dict.fromkeys(("mmXOptional", "mmWeightOptional", "mmYOptional")), "False", product=Product.ATLAS_A3
            ),
            "tokens of the shared expert": on_a3(partial(shape, (ROWS, 5)), "those of the routed tokens (1024)"),
            "matrix of the shared expert": on_a3(partial(shape, (3, 6)), "5 rows"),
            "columns of the products": on_a3(partial(shape, (ROWS, 7)), "6 columns"),
            "shape is a row for each token": on_a3(partial(shape, (ROWS, 3)), "[512, 3]"),
            "shape is what experts get": on_a3(partial(shape, (ROWS, 3)), "[1024, 8192]"),
            "communicator of this device": on_a3(lambda name: {name: "none"}, "the name of a communicator"),
            "that of group": lambda operator, name: Break(
                {name: 4, "sendCounts": (128,) * 8, "recvCounts": (128,) * 8},
                "8 (that of group)",
                product=Product.ASCEND_950,
            ),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={
            **dict.fromkeys(("data types that go together", "data type of gmmX", "format that counts as ND"), INVALID),
            **dict.fromkeys(("a name", "all or none", "wanted", "null"), NULL),
            **dict.fromkeys(("a short name", "some", "an engine", "not taken yet"), INVALID),
        },
    )

    @pytest.fixture(autouse=True)
    def _others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only_group(monkeypatch, "all")


def samples(rank: int, of: D, turned: bool, sent: Array, rows: int) -> dict[str, Array]:
    """A rank's tensors, of small integers, whose products are exact."""
    random = np.random.default_rng(rank)
    wide, narrow = (4, 3) if turned else (3, 4)
    shapes = {"gmmX": (rows, 5), "mmXOptional": (4, 3), "mmWeightOptional": (wide, narrow)}
    shapes["gmmWeight"] = (sent.shape[2], 6, 5) if turned else (sent.shape[2], 5, 6)
    return {name: random.integers(-4, 5, each).astype(of.numpy) for name, each in shapes.items()}


@pytest.mark.parametrize("later", [False, True], ids=["V1", "V2"])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("forth", [True, False], ids=["forth", "back"])
def test_rows_meet_the_matrices_of_their_experts(forth: bool, turned: bool, later: bool, fresh: None) -> None:
    # How many rows of each rank's tokens belong to each rank's experts.
    routed = np.array([[[1, 3], [0, 4]], [[2, 0], [5, 1]]])
    of = D.BF16 if turned else D.FLOAT16
    totals = routed.sum((1, 2)), routed.sum((0, 2))
    given = [samples(rank, of, turned, routed, totals[0 if forth else 1][rank]) for rank in range(2)]
    name = (FORTH if forth else BACK) + ("_v2" if later else "")

    def work(rank: Rank) -> dict[str, Array]:
        own = rank.number
        to, back = (tuple(each.reshape(-1).tolist()) for each in (routed[own], routed[:, own]))
        arguments: dict[str, Any] = call(forth, later, of) | given[own] | {"group": rank.name, "epWorldSize": 2}
        arguments |= {"sendCounts": to if forth else back, "recvCounts": back if forth else to}
        arguments |= {"transGmmWeight": turned, "transMmWeight": turned}
        out = np.zeros((totals[1 if forth else 0][own], 6), of.numpy)
        arguments |= {"gmmY" if forth else "y": out, "mmYOptional": np.zeros((4, 4), of.numpy)}
        if forth:
            arguments["permuteOutOptional"] = np.zeros((len(out), 5), of.numpy)
        return called(rank, name, arguments, Product.ASCEND_950)

    def matrix(rank: int, expert: int | None) -> Array:
        found = given[rank]["mmWeightOptional"] if expert is None else given[rank]["gmmWeight"][expert]
        return (found.T if turned else found).astype(float)

    # Of each rank's tokens, each rank's experts: their rows, from where they lie on the side that sends.
    rows: dict[tuple[int, int, int], Array] = {}
    for side in range(2):
        at = 0
        order = [(a, b) for a in range(2) for b in range(2)]
        for first, second in order:
            source, to, expert = (side, first, second) if forth else (second, side, first)
            count = routed[source, to, expert]
            rows[source, to, expert] = given[side]["gmmX"][at : at + count].astype(float)
            at += count
    for rank, got in enumerate(on_devices(work)):
        keys = (
            [(a, rank, b) for b in range(2) for a in range(2)]
            if forth
            else [(rank, a, b) for a in range(2) for b in range(2)]
        )
        wanted = np.concatenate([rows[key] @ matrix(key[1], key[2]) for key in keys])
        np.testing.assert_array_equal(got["gmmY" if forth else "y"].astype(float), wanted)
        np.testing.assert_array_equal(
            got["mmYOptional"].astype(float), given[rank]["mmXOptional"].astype(float) @ matrix(rank, None)
        )
        if forth:
            np.testing.assert_array_equal(
                got["permuteOutOptional"].astype(float), np.concatenate([rows[key] for key in keys])
            )


def test_the_group_has_as_many_ranks(fresh: None) -> None:
    def work(rank: Rank) -> None:
        arguments = call(True, False, D.FLOAT16) | {"group": rank.name}
        with pytest.raises(AclnnError, match=r"epWorldSize: expected 2 \(that of group\), got 8"):
            prepare(BY_NAME[FORTH], described(arguments), Product.ASCEND_950)

    on_devices(work)
