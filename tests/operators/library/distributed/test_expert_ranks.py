"""Tokens on their way to experts on other ranks and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.distributed import expert_combine, expert_dispatch
from tests.cases.table import INVALID, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Array, Break, LibraryTests, Subject, product_of
from tests.helpers.ranks import Rank, called, on_devices, only_group

HIDDEN, TOKENS, CHOSEN = 64, 6, 2
ON_ALL = 7168
"""A length of tokens that every function takes on every product."""


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    only_group(monkeypatch, "experts")


def attributes(first: bool, special: bool, ranks: int = 8, rank: int = 1, experts: int = 8) -> Arguments:
    return {
        "groupEp": "experts",
        "epWorldSize": ranks,
        "epRankId": rank,
        "moeExpertNum": experts,
        "groupTp": "",
        "tpWorldSize": 0,
        "tpRankId": 0,
        "expertShardType": 0,
        "sharedExpertNum": 1,
        "sharedExpertRankNum": 0,
        "globalBs": 0,
        **({} if first else {"commAlg": ""}),
        **(dict.fromkeys(("zeroExpertNum", "copyExpertNum", "constExpertNum"), 0) if special else {}),
    }


def dispatch_call(version: int, d: D) -> Arguments:
    """A valid call on every product: two tokens of each of eight ranks, which have an expert each."""
    first, most = version == 1, 16
    optional, out = ("", "") if first else ("Optional", "Out")
    return {
        "x": T(d, (2, ON_ALL)),
        "expertIds": T(D.INT32, (2, CHOSEN)),
        f"scales{optional}": T(D.FLOAT, (8, ON_ALL)),
        f"xActiveMask{optional}": None if first else T(D.BOOL, (2,)),
        f"expertScales{optional}": T(D.FLOAT, (2, CHOSEN)),
        **({"elasticInfoOptional": None} if version > 2 else {}),
        **({"performanceInfoOptional": None} if version > 3 else {}),
        **attributes(first, version > 2),
        "quantMode": 2,
        "expertTokenNumsType": 1,
        f"expandX{out}": T(D.INT8, (most, ON_ALL)),
        f"dynamicScales{out}": T(D.FLOAT, (most,)),
        "expandIdx" if first else "assistInfoForCombineOut": T(D.INT32, (2 * CHOSEN if first else 128 * most,)),
        f"expertTokenNums{out}": T(D.INT64, (1,)),
        f"epRecvCounts{out}": T(D.INT32, (8,)),
        f"tpRecvCounts{out}": T(D.INT32, (0,)),
        f"expandScales{out}": T(D.FLOAT, (1,)),
    }


def combine_call(version: int, normed: bool, d: D) -> Arguments:
    first, most, special = version == 1, 16, version > 2
    optional, token_shape = "" if first else "Optional", (2, 1, ON_ALL)
    constants = ("constExpertAlpha1Optional", "constExpertAlpha2Optional", "constExpertVOptional")
    return {
        "expandX": T(d, (most, ON_ALL)),
        "expertIds": T(D.INT32, (2, CHOSEN)),
        "expandIdx" if first else "assistInfoForCombine": T(D.INT32, (2 * CHOSEN if first else 128 * most,)),
        "epSendCounts": T(D.INT32, (8,)),
        "expertScales": T(D.FLOAT, (2, CHOSEN)),
        **({"residualX": T(d, token_shape), "gamma": T(d, (ON_ALL,))} if normed else {}),
        f"tpSendCounts{optional}": T(D.INT32, (0,)),
        f"xActiveMask{optional}": None if first else T(D.BOOL, (2, CHOSEN)),
        **{f"{name}{optional}": None for name in ("activationScale", "weightScale", "groupList", "expandScales")},
        **({} if first else {"sharedExpertXOptional": T(d, (2, ON_ALL)) if normed else None}),
        **({"elasticInfoOptional": None, "oriXOptional": T(d, (2, ON_ALL))} if special else {}),
        **(dict.fromkeys(constants) if special else {}),
        **({"performanceInfoOptional": None} if version > 3 else {}),
        **attributes(first, special),
        "outDtype": 0,
        "commQuantMode": 0,
        "groupListType": 0,
        **({"normEps": 1e-6, "yOut": T(d, token_shape), "rstdOut": T(D.FLOAT, (2, 1, 1))} if normed else {}),
        "x" if first else "xOut": T(d, token_shape if normed else (2, ON_ALL)),
    }


def _elsewhere(change: Mapping[str, Any], expected: str) -> Break:
    """A change that counts on Atlas A3."""
    return Break(change, expected, product=Product.ATLAS_A3)


def _breaks(change: Any, expected: str) -> Any:
    return lambda o, name: Break(change(name), expected, product=product_of(o))


def _known(operator: Any, name: str) -> Break:
    most = 384 if product_of(operator) == Product.ATLAS_A2 else 768
    values = {"epWorldSize": most + 1, "commAlg": "ccu", "quantMode": 3, "commQuantMode": 2 if most == 384 else 3}
    return Break({name: values[name]}, {"commAlg": "'fullmesh"}.get(name, ""), product=product_of(operator))


def _one_of(operator: Any, name: str) -> Break:
    return _elsewhere({name: 3}, {"tpWorldSize": "0 or 1", "expertTokenNumsType": "0 or 1"}.get(name, "0"))


def _null(operator: Any, name: str) -> Break:
    d = D.BOOL if "Mask" in name else D.FLOAT16 if name.startswith(("sharedExpertX", "constExpert")) else D.FLOAT
    return Break({name: T(d, (1,))}, "null", product=product_of(operator))


def _of_type(operator: Any, name: str) -> Break:
    value = T(D.INT16, (2, ON_ALL)) if name.endswith("Optional") or "Mask" in name else None
    return Break({name: value} if value else dtype(D.INT16, name), "", product=product_of(operator))


def _special(operator: Any, name: str) -> Break:
    if name == "constExpertNum" and product_of(operator) == Product.ATLAS_A2:
        return Break({name: 1}, "0 on Atlas A2")
    return Break({name: 2**31 - 8}, "from 0 to 2147483639", product=product_of(operator))


def _constants(operator: Any, name: str) -> Break:
    needed = {"constExpertNum": 1} | {
        each: T(D.BF16 if len(operator.outputs) > 1 else D.FLOAT16, (1, ON_ALL))
        for each in ("constExpertAlpha1Optional", "constExpertAlpha2Optional", "constExpertVOptional")
    }
    return _elsewhere(needed | {name: None}, "an object with copyExpertNum or constExpertNum")


COMMON = {
    "a name": lambda o, name: Break({name: ""}, "the name", product=product_of(o)),
    "a short name": lambda o, name: _elsewhere({name: "x" * 128}, "at most 127"),
    "data types that go together": _breaks(partial(dtype, D.INT16), "ACL_"),
    "format that counts as ND": _breaks(lambda name: {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "data type": _of_type,
    "same data type as expandX": _of_type,
    "known on the product": _known,
    "one of the ranks": _breaks(lambda name: {name: 8}, "from 0 to 7"),
    "allowed value": _one_of,
    "with ranks of their own": lambda o, name: _elsewhere({name: 5}, ""),
    "ranks of shared experts": lambda o, name: _elsewhere({name: 8}, "from 0 to 7"),
    "as many on each rank": _breaks(lambda name: {name: 12}, "a multiple of 8"),
    "not too many": _special,
    "communicator of this device": _breaks(lambda name: {name: "nobody"}, "the name of a communicator"),
    "those of groupEp": _breaks(lambda name: {name: {"epWorldSize": 16, "epRankId": 2}[name], "moeExpertNum": 16}, ""),
    "null": _null,
    "2 dimensions": _breaks(partial(shape, (7,)), "2 dimensions"),
    "1 dimension": _breaks(partial(shape, (7, 7)), "1 dimension"),
    "few tokens and experts": _breaks(partial(shape, (2, 9)), "rows of 1 to 8"),
    "tokens of all ranks": _breaks(lambda name: {name: 15}, "0 or a multiple of 8"),
    "of tokens or their experts": _breaks(partial(shape, (3,)), "[2]"),
    "known length of tokens": _breaks(partial(shape, (16, 8193)), "in the second dimension"),
}


def _absent(calls: Mapping[str, Any]) -> dict[str, Arguments]:
    """Arguments that are null in a call with empty tensors."""
    return {
        name: {key: value for key, value in call(D.FLOAT16).items() if value is None} for name, call in calls.items()
    }


DISPATCHES = {each.name: partial(dispatch_call, at + 1) for at, each in enumerate(expert_dispatch.OPERATORS)}
COMBINES = {
    each.name: partial(combine_call, version, normed)
    for each, (version, normed) in zip(
        expert_combine.OPERATORS,
        [(1, False), (2, False), (3, False), (4, False), (2, True), (3, True)],
        strict=True,
    )
}


class _ChecksOnly(LibraryTests):
    @pytest.fixture(autouse=True)
    def _others(self, group: None) -> None:
        """The ranks of a group that never answer."""


class TestDispatch(_ChecksOnly):
    subject = Subject(
        expert_dispatch.OPERATORS,
        calls=DISPATCHES,
        empty=_absent(DISPATCHES),
        references={},
        elsewhere=[each.name for each in expert_dispatch.OPERATORS],
        default=(D.FLOAT16, D.BF16),
        breaks=COMMON
        | {
            "with its quantMode": lambda o, name: Break({"quantMode": 0}, "null with quantMode 0"),
            "stored for its quantMode": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_INT8"),
            "known length of tokens": lambda o, name: Break(shape((2, 7169), name), "a multiple of 32"),
            "a row for each token": lambda o, name: Break(shape((3, ON_ALL), "x"), "3 rows"),
            "one for each expert": lambda o, name: Break(shape((9, ON_ALL), name), "[8, 7168]"),
            "rows that may come": lambda o, name: Break(shape((15, ON_ALL), name), "at least 16 rows of 7168"),
            "one for each row that may come": lambda o, name: Break(shape((15,), name), "at least 16"),
            "enough for combine": lambda o, name: Break(shape((3,), name), "at least 4"),
            "shape is one for each own expert": lambda o, name: Break(shape((2,), name), "[1]"),
            "one for each own expert and rank": lambda o, name: Break(shape((7,), name), "at least 8"),
            "shape is tpWorldSize": lambda o, name: _elsewhere(shape((1,), name), "[0]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "data type", "format that counts as ND"), INVALID)
        | dict.fromkeys(("a name", "a short name"), NULL),
    )


class TestCombine(_ChecksOnly):
    subject = Subject(
        expert_combine.OPERATORS,
        calls=COMBINES,
        empty=_absent(COMBINES),
        references={},
        elsewhere=[each.name for each in expert_combine.OPERATORS],
        dtypes={each.name: (D.BF16,) for each in expert_combine.OPERATORS if len(each.outputs) > 1},
        default=(D.FLOAT16, D.BF16),
        breaks=COMMON
        | {
            "rows that may have come": _breaks(partial(shape, (15, ON_ALL)), "at least 16"),
            "enough of dispatch": _breaks(partial(shape, (3,)), "at least"),
            "one for each own expert and rank": _breaks(partial(shape, (7,)), "at least 8"),
            "shape … (tpWorldSize)": lambda o, name: _elsewhere(shape((1,), name), "[0]"),
            "same shape as expertIds": _breaks(partial(shape, (2, 3)), "[2, 2]"),
            "a row for each token": lambda o, name: _elsewhere(
                {name: T(D.BF16 if len(o.outputs) > 1 else D.FLOAT16, (2, 7))}, "2 rows of 7168"
            ),
            "for experts without ranks": _constants,
            "shape is a row for each token": _breaks(partial(shape, (2, 7)), "7168]"),
            "shape is one for each column": _breaks(partial(shape, (7,)), "[7168]"),
            "shape is one for each token": _breaks(partial(shape, (2, 1)), "[2, 1, 1]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(
            ("data types that go together", "data type", "same data type as expandX", "format that counts as ND"),
            INVALID,
        )
        | {"a name": NULL, "a short name": INVALID},
    )


class World(NamedTuple):
    """Ranks, and where experts lie on them."""

    version: int
    product: Product = Product.ATLAS_A2
    ranks: int = 2
    each: int = 2
    """Routed experts of each rank that has some."""
    shared: int = 0
    shared_ranks: int = 0
    special: tuple[int, int, int] = (0, 0, 0)
    """Numbers of experts that return zeros, the token, and a mixture of it with a constant."""
    hidden: int = HIDDEN
    dtype: D = D.FLOAT16
    quantized: int = 0
    tokens: Sequence[int] = (TOKENS,)
    """Numbers of tokens of the ranks, in turn."""

    @property
    def experts(self) -> int:
        return self.each * (self.ranks - self.shared_ranks)

    @property
    def most(self) -> int:
        """Tokens of the rank that has the most."""
        return max(self.tokens)

    def of(self, rank: int) -> int:
        """Tokens of a rank."""
        return self.tokens[rank % len(self.tokens)]

    def own(self, rank: int) -> int:
        return 1 if rank < self.shared_ranks else self.each

    def first(self, rank: int) -> int:
        """The number of a rank's first expert, with shared ones first."""
        if rank < self.shared_ranks:
            return rank // (self.shared_ranks // self.shared)
        return self.shared + (rank - self.shared_ranks) * self.each

    def samples(self, rank: int) -> dict[str, Array]:
        """Small integers as tokens, each with several experts and weights that are quarters."""
        random, count = np.random.default_rng(rank), self.of(rank)
        most = self.experts + sum(self.special)
        ids = np.stack([random.permutation(most)[: min(CHOSEN + 1, most)] for _ in range(count)])
        return {
            "x": random.integers(-4, 5, (count, self.hidden)).astype(self.dtype.numpy),
            "expertIds": ids.astype(np.int32),
            "expertScales": (random.integers(1, 5, ids.shape) / 4).astype(np.float32),
        }

    def attributes(self, rank: Rank) -> Arguments:
        found = attributes(self.version == 1, self.version > 2, self.ranks, rank.number, self.experts)
        found |= {"groupEp": rank.name, "globalBs": self.most * self.ranks if len(self.tokens) > 1 else 0}
        if self.shared:
            found |= {"sharedExpertNum": self.shared, "sharedExpertRankNum": self.shared_ranks}
        names = ("zeroExpertNum", "copyExpertNum", "constExpertNum")
        return found | (dict(zip(names, self.special, strict=True)) if self.version > 2 else {})

    def dispatch(self, rank: Rank, given: Mapping[str, Array]) -> dict[str, Array]:
        """Run it; the outputs by the names that the first version has."""
        first, count = self.version == 1, self.own(rank.number)
        rows = self.most * self.ranks * min(self.each, given["expertIds"].shape[1])
        if rank.number < self.shared_ranks:
            replicas = self.shared_ranks // self.shared
            rows = self.most * -(-self.ranks // replicas)
        optional, out = ("", "") if first else ("Optional", "Out")
        assist = "expandIdx" if first else "assistInfoForCombineOut"
        stored = np.int8 if self.quantized else self.dtype.numpy
        call = {
            "x": given["x"],
            "expertIds": given["expertIds"],
            f"scales{optional}": given.get("scales"),
            f"xActiveMask{optional}": given.get("mask"),
            f"expertScales{optional}": None,
            **({"elasticInfoOptional": None} if self.version > 2 else {}),
            **({"performanceInfoOptional": None} if self.version > 3 else {}),
            **self.attributes(rank),
            "quantMode": self.quantized,
            "expertTokenNumsType": 1,
            f"expandX{out}": np.zeros((rows, self.hidden), stored),
            f"dynamicScales{out}": np.zeros(rows, np.float32),
            assist: np.zeros(given["expertIds"].size if first else 128 * rows, np.int32),
            f"expertTokenNums{out}": np.zeros(count, np.int64),
            f"epRecvCounts{out}": np.zeros(count * self.ranks, np.int32),
            f"tpRecvCounts{out}": np.zeros(0, np.int32),
            f"expandScales{out}": np.zeros(0, np.float32),
        }
        name = f"moe_distribute_dispatch{'' if first else f'_v{self.version}'}"
        found = called(rank, name, call, self.product)
        return {key.removesuffix("Out"): value for key, value in found.items()} | {"assist": found[assist]}

    def combine(
        self, rank: Rank, given: Mapping[str, Array], sent: Mapping[str, Array], answers: Array, normed: bool = False
    ) -> dict[str, Array]:
        first = self.version == 1
        optional = "" if first else "Optional"
        shape = (self.of(rank.number), 1, self.hidden) if normed else (self.of(rank.number), self.hidden)
        special = ("oriX", "constExpertAlpha1", "constExpertAlpha2", "constExpertV") if self.version > 2 else ()
        call = {
            "expandX": answers,
            "expertIds": given["expertIds"],
            "expandIdx" if first else "assistInfoForCombine": sent["assist"],
            "epSendCounts": sent["epRecvCounts"],
            "expertScales": given["expertScales"],
            **({"residualX": given["residualX"], "gamma": given["gamma"]} if normed else {}),
            f"tpSendCounts{optional}": None,
            f"xActiveMask{optional}": given.get("mask"),
            **{f"{name}{optional}": None for name in ("activationScale", "weightScale", "groupList", "expandScales")},
            **({} if first else {"sharedExpertXOptional": given.get("shared")}),
            **({"elasticInfoOptional": None} if special else {}),
            **{f"{name}Optional": given.get(name) for name in special},
            **({"performanceInfoOptional": None} if self.version > 3 and not normed else {}),
            **self.attributes(rank),
            "outDtype": 0,
            "commQuantMode": int(given.get("by integers", 0)),
            "groupListType": 0,
            "x" if first else "xOut": np.full(shape, 9, self.dtype.numpy),
        }
        if normed:
            call |= {"normEps": 1e-6, "yOut": np.zeros(shape, self.dtype.numpy)}
            call["rstdOut"] = np.zeros((shape[0], 1, 1), np.float32)
        name = f"moe_distribute_combine{'_add_rms_norm' if normed else ''}"
        version = self.version - 1 if normed else self.version
        found = called(rank, f"{name}_v{version}" if version > 1 else name, call, self.product)
        return found | {"out": found["x" if first else "xOut"]}

    def there_and_back(self, change: Any = dict, normed: bool = False) -> list[tuple[Any, ...]]:
        """What each rank gives, sends and gets, where expert number e answers e + 1 times what it is asked."""

        def work(rank: Rank) -> tuple[Any, ...]:
            given = self.samples(rank.number)
            given |= change(rank.number, given) if change is not dict else {}
            sent = self.dispatch(rank, given)
            factors = np.repeat(np.arange(self.own(rank.number)) + 1 + self.first(rank.number), sent["expertTokenNums"])
            answers = np.zeros((len(sent["expandX"]), self.hidden), self.dtype.numpy)
            rows = sent["expandX"][: len(factors)].astype(np.float32)
            if self.quantized == 2:
                rows = rows * sent["dynamicScales"][: len(factors), None]
            answers[: len(factors)] = rows * factors[:, None]
            return given, sent, self.combine(rank, given, sent, answers, normed)

        return on_devices(work, self.ranks)

    def expected(self, given: Mapping[str, Array]) -> Array:
        """The weighted sums, token by token."""
        x, mask = given["x"].astype(np.float64), given.get("mask")
        found = np.zeros_like(x)
        active = np.ones(given["expertIds"].shape, bool)
        if mask is not None:
            active &= mask.reshape(len(mask), -1)
        zero, copied, _ = self.special
        for token, place in zip(*np.nonzero(active), strict=True):
            expert, weight = given["expertIds"][token, place], given["expertScales"][token, place]
            if expert < self.experts:
                found[token] += weight * (self.shared + expert + 1) * x[token]
            elif self.experts + zero <= expert < self.experts + zero + copied:
                found[token] += weight * x[token]
            elif expert >= self.experts + zero + copied:
                constant = expert - self.experts - zero - copied
                logits = [given[name][constant].astype(float) @ x[token] for name in ALPHAS]
                share = 1 / (1 + np.exp(logits[1] - logits[0]))
                found[token] += weight * (share * x[token] + (1 - share) * given["constExpertV"][constant])
        for token in np.flatnonzero(active.any(1)):
            found[token] += sum(number + 1 for number in range(self.shared)) * x[token]
            if "shared" in given:
                found[token] += given["shared"].reshape(x.shape)[token]
        return found


ALPHAS = ("constExpertAlpha1", "constExpertAlpha2")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", "8")


ON_A3: dict[str, Any] = {"product": Product.ATLAS_A3, "hidden": 1024}
WORLDS = {
    "A2": World(2),
    "A2 V4, 4 ranks": World(4, ranks=4, each=1),
    "A2 V1": World(1, ranks=8, each=1),
    "bfloat16": World(3, dtype=D.BF16),
    "A3": World(2, **ON_A3),
    "950": World(4, product=Product.ASCEND_950, hidden=1024),
    "one shared expert on a rank": World(2, shared=1, shared_ranks=1, ranks=3, **ON_A3),
    "two shared experts on two ranks each": World(3, shared=2, shared_ranks=4, ranks=6, **ON_A3),
    "more tokens on some ranks": World(2, tokens=(2, 5, 1), ranks=4, **ON_A3),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_tokens_come_back_as_weighted_sums(world: World, many: None) -> None:
    for given, _, got in world.there_and_back():
        np.testing.assert_array_equal(got["out"].astype(float), world.expected(given))


def test_rows_lie_by_experts_ranks_and_tokens(many: None) -> None:
    """For every version: the documented values, and those that the published kernels pass to combine."""
    for world in (World(4), World(1, ranks=8), World(2, shared=1, shared_ranks=2, ranks=4, **ON_A3)):
        ranks = world.there_and_back()
        for number, (_, sent, _) in enumerate(ranks):
            rows, triples, ends = [], [], []
            for expert in range(world.first(number), world.first(number) + world.own(number)):
                for source, (given, _, _) in enumerate(ranks):
                    for token, ids in enumerate(given["expertIds"]):
                        places = np.flatnonzero(ids == expert - world.shared).tolist()
                        if expert < world.shared:
                            # Each of a shared expert's ranks serves every other.
                            places = [len(ids) + expert] if source % world.shared_ranks == number else []
                        rows += [given["x"][token]] * len(places)
                        triples += [(source, token, place) for place in places]
                    ends.append(len(rows))
            counts = np.diff(ends[world.ranks - 1 :: world.ranks], prepend=0)
            np.testing.assert_array_equal(sent["expandX"][: len(rows)], np.array(rows))
            assert not sent["expandX"][len(rows) :].any()
            assert (sent["epRecvCounts"].tolist(), sent["expertTokenNums"].tolist()) == (ends, counts.tolist())
            if world.product == Product.ATLAS_A3:
                assert sent["assist"][: 3 * len(rows)].tolist() == [each for triple in triples for each in triple]
            else:
                chosen = ranks[number][0]["expertIds"].reshape(-1).tolist()
                before = [chosen[:at].count(expert) for at, expert in enumerate(chosen)]
                assert sent["assist"][: len(chosen)].tolist() == before


MASKS = {
    "of tokens": lambda ids: np.arange(len(ids)) < len(ids) - 2,
    "of experts": lambda ids: (ids + np.arange(len(ids))[:, None]) % 3 > 0,
    "of none": lambda ids: np.zeros(len(ids), bool),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("world", [World(2), World(2, shared=1, shared_ranks=1, ranks=3, **ON_A3)], ids=["A2", "A3"])
def test_masked_tokens_are_not_sent_and_give_zeros(world: World, mask: Any, many: None) -> None:
    for given, _, got in world.there_and_back(lambda rank, given: {"mask": mask(given["expertIds"])}):
        np.testing.assert_array_equal(got["out"].astype(float), world.expected(given))


def _beside(world: World, rank: int, given: Mapping[str, Array]) -> dict[str, Array]:
    random, constants = np.random.default_rng(rank + 9), world.special[2]
    small = {name: random.normal(size=(constants, world.hidden)) / 64 for name in (*ALPHAS, "constExpertV")}
    return {"oriX": given["x"]} | {name: each.astype(world.dtype.numpy) for name, each in small.items() if constants}


@pytest.mark.parametrize(
    "world", [World(3, special=(1, 2, 0)), World(4, special=(2, 1, 2), **ON_A3)], ids=["A2", "A3, with constants"]
)
def test_constant_and_copy_experts_are_computed_by_combine(world: World, many: None) -> None:
    for given, sent, got in world.there_and_back(partial(_beside, world)):
        np.testing.assert_allclose(got["out"].astype(float), world.expected(given), rtol=2**-10, atol=2**-10)
        assert (given["expertIds"] >= world.experts).any()
        assert sent["expertTokenNums"].sum() < world.ranks * given["expertIds"].size


@pytest.mark.parametrize("flat", [True, False], ids=["2 dimensions", "3 dimensions"])
def test_results_of_a_shared_expert_on_another_rank_are_added(flat: bool, many: None) -> None:
    world = World(2, **ON_A3)
    shape = (TOKENS, world.hidden) if flat else (2, TOKENS // 2, world.hidden)

    def beside(rank: int, given: Mapping[str, Array]) -> dict[str, Array]:
        return {"shared": given["x"][::-1].reshape(shape).copy(), "mask": np.arange(TOKENS) < TOKENS - 1}

    for given, _, got in world.there_and_back(beside):
        np.testing.assert_array_equal(got["out"].astype(float), world.expected(given))


@pytest.mark.parametrize("smooth", [False, True], ids=["plain", "smooth"])
@pytest.mark.parametrize(
    "world",
    [World(1, ranks=8, each=1, quantized=2), World(2, shared=1, shared_ranks=1, ranks=3, quantized=2, **ON_A3)],
    ids=["A2", "A3"],
)
def test_rows_are_sent_as_int8_with_a_scale_each(world: World, smooth: bool, many: None) -> None:
    """The integers are what the row's largest number, times its expert's factors, divided by 127 leaves."""
    scales = np.random.default_rng(1).integers(1, 4, (world.shared + world.experts, world.hidden)).astype(np.float32)
    ranks = world.there_and_back(lambda rank, given: {"scales": scales} if smooth else {})
    for number, (_, sent, _) in enumerate(ranks):
        at = 0
        for expert in range(world.first(number), world.first(number) + world.own(number)):
            for source, (given, _, _) in enumerate(ranks):
                for token, ids in enumerate(given["expertIds"]):
                    shared = expert < world.shared and source % world.shared_ranks == number
                    if shared or (expert >= world.shared and expert - world.shared in ids):
                        row = given["x"][token].astype(float) * (scales[expert] if smooth else 1)
                        factor = np.abs(row).max() / 127
                        np.testing.assert_allclose(sent["dynamicScales"][at], factor, rtol=1e-6)
                        assert np.abs(sent["expandX"][at] - row / factor).max() <= 0.5 + 1e-4
                        at += 1
        assert at == sent["expertTokenNums"].sum()
        assert not sent["dynamicScales"][at:].any()


@pytest.mark.parametrize("scales", [(), (1,), "columns", "experts"], ids=str)
def test_given_factors_quantise_on_ascend_950(scales: Any, many: None) -> None:
    world = World(2, product=Product.ASCEND_950, hidden=1024, quantized=1)
    if scales == ():
        with pytest.raises(AclnnError, match="scalesOptional: expected an object with quantMode 1, got null"):
            world.there_and_back()
        return
    shape = {"columns": (1024,), "experts": (world.experts, 1024)}.get(scales, scales)
    factors = np.random.default_rng(1).integers(1, 50, shape).astype(np.float32)
    ranks = world.there_and_back(lambda rank, given: {"scales": factors})
    rows = [
        np.clip(given["x"][token].astype(float) * (factors[expert] if scales == "experts" else factors), -128, 127)
        for expert in range(world.each)
        for given, _, _ in ranks
        for token, ids in enumerate(given["expertIds"])
        if expert in ids
    ]
    np.testing.assert_array_equal(ranks[0][1]["expandX"][: len(rows)], np.rint(rows))


def test_combine_may_send_int8(many: None) -> None:
    """Eight numbers have one factor, their largest divided by 127."""
    world = World(2, hidden=1030, product=Product.ATLAS_A3)
    for given, _, got in world.there_and_back(lambda rank, given: {"by integers": np.array(2)}):
        expected, off = world.expected(given), np.zeros((TOKENS, 1030))
        for token, place in np.ndindex(*given["expertIds"].shape):
            answer = np.abs(given["x"][token].astype(float)) * (given["expertIds"][token, place] + 1)
            blocks = np.pad(answer, (0, 2)).reshape(-1, 8).max(1).repeat(8)[:1030]
            off[token] += given["expertScales"][token, place] * blocks * (0.5 / 127 + 2**-10)
        difference = np.abs(got["out"].astype(float) - expected)
        assert (difference <= off + np.abs(expected) * 2**-10).all()
        assert difference.any()


@pytest.mark.parametrize("version", [2, 3])
def test_sums_with_a_residual_are_normed(version: int, many: None) -> None:
    world = World(version, dtype=D.BF16, **ON_A3)

    def beside(rank: int, given: Mapping[str, Array]) -> dict[str, Array]:
        gamma = np.random.default_rng(3).integers(-8, 9, world.hidden) / 8
        return {"residualX": given["x"][:, None], "gamma": gamma.astype(world.dtype.numpy)}

    for given, _, got in world.there_and_back(beside, normed=True):
        total = (world.expected(given) + given["x"].astype(float))[:, None]
        rstd = 1 / np.sqrt((total * total).mean(2, keepdims=True) + 1e-6)
        np.testing.assert_allclose(got["out"].astype(float), total, rtol=2**-8)
        np.testing.assert_allclose(got["rstdOut"], rstd, rtol=1e-5)
        np.testing.assert_allclose(got["yOut"].astype(float), total * rstd * given["gamma"].astype(float), rtol=2**-7)


def test_nonexistent_experts_and_excess_rows_are_reported(many: None) -> None:
    def of_experts(rank: int, given: Mapping[str, Array]) -> dict[str, Array]:
        return {"expertIds": np.full_like(given["expertIds"], 4)}

    def of_ends(rank: Rank) -> None:
        world = World(2)
        given = world.samples(rank.number)
        sent = world.dispatch(rank, given)
        ends = sent["epRecvCounts"] + len(sent["expandX"])
        world.combine(rank, given, sent | {"epRecvCounts": ends}, sent["expandX"])

    with pytest.raises(AssertionError, match="expertIds: expected experts from 0 to 3, got 4"):
        World(2).there_and_back(of_experts)
    with pytest.raises(AssertionError, match="epSendCounts: expected ends of rows from 0 to 24, got"):
        on_devices(of_ends)


def test_ranks_match_the_group(many: None) -> None:
    def work(rank: Rank) -> None:
        for change, expected in ({"epWorldSize": 4}, 2), ({"epRankId": 1 - rank.number}, rank.number):
            with pytest.raises(AclnnError, match=rf"{next(iter(change))}: expected {expected} \(that of groupEp\)"):
                _other(World(2), rank, change)

    on_devices(work)


def _other(world: World, rank: Rank, change: Arguments) -> None:
    class Other(World):
        def attributes(self, rank: Rank) -> Arguments:
            return super().attributes(rank) | change

    Other(*world).dispatch(rank, world.samples(rank.number))
