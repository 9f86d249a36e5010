"""Distribution of a mixture of experts over the ranks of a group, and common parts of its functions between ranks.

The first ranks have one shared expert each; the others have equally many routed experts each, in order. A shared expert
is replicated on several ranks, each of which serves its share of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import each, elsewhere, extents, listing, one_of, rule
from aclnn.core.operator import Call, Check, Kind, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, expect_within
from aclnn.operators.library.distributed.ranks import communicator, group, is_group

_A2 = frozenset({Product.ATLAS_A2})
_LONGEST_NAME = 127
_MOST_NUMBERED = 2**31 - 1
_RANKS_AT_FIRST = (8, 16, 32, 64, 128, 144, 256, 288)
#: Kinds of experts without a rank: they return zeros, the token itself, or a mixture of the token and a constant.
SPECIAL = ("zeroExpertNum", "copyExpertNum", "constExpertNum")


def is_first(call: Call) -> bool:
    """Return True for the unversioned functions, which have fewer features."""
    return "commAlg" not in call.arguments


class Experts(NamedTuple):
    """Distribution of experts."""

    ranks: int
    rank: int
    routed: int
    shared: int
    shared_ranks: int

    @classmethod
    def of(cls, call: Call) -> Experts:
        """Return the distribution of a call with checked attributes."""
        shared_ranks = 0 if call.product in _A2 else call["sharedExpertRankNum"]
        shared = call["sharedExpertNum"] if shared_ranks else 0
        return cls(call["epWorldSize"], call["epRankId"], call["moeExpertNum"], shared, shared_ranks)

    @property
    def each(self) -> int:
        """Routed experts per rank that has any."""
        return self.routed // (self.ranks - self.shared_ranks)

    @property
    def own(self) -> int:
        """Experts of this rank."""
        return 1 if self.rank < self.shared_ranks else self.each

    @property
    def replicas(self) -> int:
        """Number of ranks with the same shared expert."""
        return self.shared_ranks // self.shared

    def most_rows(self, tokens: int, chosen: int) -> int:
        """Return the number of rows that this rank may receive, given tokens per rank and chosen experts per token."""
        if self.rank < self.shared_ranks:
            return tokens * -(-self.ranks // self.replicas)
        return tokens * self.ranks * min(self.each, chosen)


class Routes(NamedTuple):
    """Rows that a rank sends to experts, ordered by rank, expert and token."""

    ranks: Any
    """Target rank of each row."""
    experts: Any
    """Index of the expert on that rank."""
    tokens: Any
    places: Any
    """Index among the token's experts; shared ones follow the routed ones."""
    numbers: Any
    """Global index of the expert; shared ones precede the routed ones."""

    @classmethod
    def of(cls, experts: Experts, ids: Any, active: Any) -> Routes:
        """Find the routes of tokens; routed experts count only where ``active`` is true."""
        tokens, places = np.nonzero(active & (ids < experts.routed))
        chosen = ids[tokens, places]
        ranks = [experts.shared_ranks + chosen // experts.each]
        shared_tokens = np.flatnonzero(active.any(1)) if experts.shared else tokens[:0]
        for shared in range(experts.shared):
            at = shared * experts.replicas + experts.rank % experts.replicas
            ranks.append(np.full(len(shared_tokens), at))
        of_shared = np.repeat(np.arange(experts.shared), len(shared_tokens))
        columns = (
            np.concatenate(ranks),
            np.concatenate([chosen % experts.each, np.zeros_like(of_shared)]),
            np.concatenate([tokens, np.tile(shared_tokens, experts.shared)]),
            np.concatenate([places, ids.shape[1] + of_shared]),
            np.concatenate([experts.shared + chosen, of_shared]),
        )
        order = np.lexsort(columns[1::-1])
        return cls(*(column[order] for column in columns))

    def to(self, rank: int) -> Any:
        """Return the slice of the rows to a rank."""
        return slice(*np.searchsorted(self.ranks, (rank, rank + 1)))


def active_experts(call: Call, ids: Any, mask: Any) -> Any:
    """Return which of the tokens' experts are active; ``mask`` may be absent, per token, or per expert."""
    active = np.broadcast_to(True if mask is None else mask.reshape(len(ids), -1), ids.shape)
    most = call["moeExpertNum"] + sum(special_experts(call)) - 1
    expect_within("expertIds", ids[active], 0, most, "experts")
    return active


def special_experts(call: Call) -> tuple[int, int, int]:
    """Return the number of experts of each kind without a rank."""
    zero, copy, const = (call.arguments.get(name, 0) for name in SPECIAL)
    return zero, copy, const


def tokens_of_a_rank(call: Call) -> int:
    """Return the maximum number of tokens of a rank."""
    return int(call["globalBs"] // call["epWorldSize"] or call["expertIds"].shape[0])


def rank_attributes() -> tuple[Parameter, ...]:
    """Return the attributes of ranks and of the distribution of experts."""
    return (
        group("groupEp", "the name of the communicator of all ranks"),
        attribute("epWorldSize", Kind.INT64, "the number of ranks"),
        attribute("epRankId", Kind.INT64, "the index of this rank"),
        attribute("moeExpertNum", Kind.INT64, "the number of routed experts"),
        group("groupTp", "ignored"),
        attribute("tpWorldSize", Kind.INT64, "0 or 1; ignored on Atlas A2"),
        attribute("tpRankId", Kind.INT64, "0; ignored on Atlas A2"),
        attribute("expertShardType", Kind.INT64, "0: the first ranks have the shared experts"),
        attribute("sharedExpertNum", Kind.INT64, "the number of shared experts; 0 on Atlas A2"),
        attribute("sharedExpertRankNum", Kind.INT64, "the number of ranks with shared experts; 0 on Atlas A2"),
    )


def special_attributes() -> tuple[Parameter, ...]:
    """Return the attributes of experts without a rank, in the order of their indices after the routed experts."""
    meanings = ("answer zeros", "answer the token", "answer a mixture of the token and a constant")
    return tuple(
        attribute(name, Kind.INT64, f"the number of experts that {meaning}")
        for name, meaning in zip(SPECIAL, meanings, strict=True)
    )


def named(name: str, code: int) -> tuple[Check, ...]:
    """Require a non-empty name; ``code`` is the status for a name that is too long."""

    def empty(call: Call) -> str | None:
        return None if call[name] else f"{name}: expected the name of a communicator, got {call[name]!r}"

    def long(call: Call) -> str | None:
        got = len(call[name] or "")
        return None if got <= _LONGEST_NAME else f"{name}: expected at most {_LONGEST_NAME} characters, got {got}"

    return (rule(f"a name: {name}", empty, ACLNN_ERR_PARAM_NULLPTR), rule(f"a short name: {name}", long, code))


def named_groups(code: int) -> tuple[Check, ...]:
    """Require names, of which the second may be empty; ``code`` is the status for a name that is too long."""
    return (*named("groupEp", code), *elsewhere(_A2, named("groupTp", code)[1]))


def _ranks(call: Call) -> str | None:
    got, first = call["epWorldSize"], is_first(call)
    if first and call.product not in _A2:
        known: Sequence[int] = (2, 4, *_RANKS_AT_FIRST) if call.product in CLASS_950 else _RANKS_AT_FIRST
        return None if got in known else f"epWorldSize: expected {listing(map(str, known))}, got {got}"
    if call.product in _A2:
        most = 256 if first else 384
        if 0 < got <= most and (got % 8 == 0 or (got < 8 and not first)):
            return None
        return f"epWorldSize: expected {'' if first else 'from 1 to 8 or '}a multiple of 8 to {most}, got {got}"
    return None if 2 <= got <= 768 else f"epWorldSize: expected from 2 to 768, got {got}"


def _rank(call: Call) -> str | None:
    got, ranks = call["epRankId"], call["epWorldSize"]
    return None if 0 <= got < ranks else f"epRankId: expected from 0 to {ranks - 1}, got {got}"


def _shared(call: Call) -> str | None:
    got, ranks = call["sharedExpertNum"], call["sharedExpertRankNum"]
    if is_first(call):
        return None if got == 1 else f"sharedExpertNum: expected 1, got {got}"
    if not 0 <= got <= 4:
        return f"sharedExpertNum: expected from 0 to 4, got {got}"
    if ranks == 0:
        return None if got < 2 else f"sharedExpertNum: expected 0 or 1 without sharedExpertRankNum, got {got}"
    return None if got else f"sharedExpertNum: expected from 1 to 4 with sharedExpertRankNum {ranks}, got {got}"


def _shared_ranks(call: Call) -> str | None:
    got, ranks, shared = call["sharedExpertRankNum"], call["epWorldSize"], call["sharedExpertNum"]
    if not 0 <= got < ranks:
        return f"sharedExpertRankNum: expected from 0 to {ranks - 1}, got {got}"
    if got and is_first(call) and ranks % got:
        return f"sharedExpertRankNum: expected a number that divides {ranks} (epWorldSize), got {got}"
    if got and shared and got % shared:
        return f"sharedExpertRankNum: expected a multiple of {shared} (sharedExpertNum), got {got}"
    return None


def _experts(call: Call) -> str | None:
    got, ranks = call["moeExpertNum"], call["epWorldSize"]
    if call.product not in _A2:
        ranks -= call["sharedExpertRankNum"]
    most = 512 if is_first(call) or call.product in _A2 else 1024
    each = 24 if is_first(call) and call.product in _A2 else 2048 // call["epWorldSize"]
    most = min(most, each * ranks)
    if 0 < got <= most and got % ranks == 0:
        return None
    return f"moeExpertNum: expected a multiple of {ranks} to {most}, got {got}"


def _special(call: Call, name: str) -> str | None:
    got, most = call[name], _MOST_NUMBERED - call["moeExpertNum"]
    for before in SPECIAL[: SPECIAL.index(name)]:
        most -= call[before]
    if name == "constExpertNum" and call.product in _A2:
        return None if got == 0 else f"expected 0 on {call.product.title}, got {got}"
    return None if 0 <= got <= most else f"expected from 0 to {most}, got {got}"


def _algorithm(call: Call) -> str | None:
    got = call["commAlg"] or ""
    if call.product in _A2:
        known = ("", "fullmesh", *(("hierarchy",) if call["epWorldSize"] <= 8 else ()))
    else:
        known = ("", "fullmesh_v1", "fullmesh_v2")
    return None if got in known else f"commAlg: expected {listing(map(repr, known))}, got {got!r}"


def _group_of(call: Call) -> str | None:
    comm = communicator(call, "groupEp")
    for name, expected in (("epWorldSize", comm.size), ("epRankId", comm.rank)):
        if call[name] != expected:
            return f"{name}: expected {expected} (that of groupEp), got {call[name]}"
    return None


def rank_checks(first: bool, special: bool) -> tuple[Check, ...]:
    """Check the attributes of ranks and experts; ``first`` if there is no ``commAlg``."""
    return (
        rule("known on the product: epWorldSize", _ranks),
        rule("one of the ranks: epRankId", _rank),
        *elsewhere(
            _A2,
            one_of("tpWorldSize", 0, 1),
            one_of("tpRankId", 0),
            one_of("expertShardType", 0),
            rule("with ranks of their own: sharedExpertNum", _shared),
            rule("ranks of shared experts: sharedExpertRankNum", _shared_ranks),
        ),
        rule("as many on each rank: moeExpertNum", _experts),
        *((each("not too many", SPECIAL, _special),) if special else ()),
        *(() if first else (rule("known on the product: commAlg", _algorithm),)),
        is_group("groupEp"),
        rule("those of groupEp: epWorldSize, epRankId", _group_of),
    )


def _chosen(call: Call) -> str | None:
    tokens, chosen = call["expertIds"].shape
    most = 8 if is_first(call) and call.product not in _A2 else 16
    most_tokens = 256 if call.product in _A2 else 512
    most = min(most, call["moeExpertNum"] + sum(special_experts(call)))
    if 0 < tokens <= most_tokens and 0 < chosen <= most:
        return None
    return f"expertIds: expected from 1 to {most_tokens} rows of 1 to {most}, got {extents((tokens, chosen))}"


def _all_tokens(call: Call) -> str | None:
    got, own = call["globalBs"], call["expertIds"].shape[0] * call["epWorldSize"]
    if got == 0 or (got >= own and got % call["epWorldSize"] == 0):
        return None
    return f"globalBs: expected 0 or a multiple of {call['epWorldSize']} (epWorldSize) from {own} on, got {got}"


def _mask(name: str) -> Callable[[Call], str | None]:
    def violation(call: Call) -> str | None:
        mask, ids = call[name], call["expertIds"].shape
        if mask is None:
            return None
        if mask.shape not in (ids, ids[:1]):
            return f"{name}: expected shape {extents(ids)} or {extents(ids[:1])}, got {extents(mask.shape)}"
        own = ids[0] * call["epWorldSize"]
        if call["globalBs"] > own:
            return f"{name}: expected null where ranks have more tokens (globalBs {call['globalBs']}), got an object"
        return None

    return violation


def token_checks(mask: str | None) -> tuple[Check, ...]:
    """Check the tokens' experts, a matrix, and the mask of active ones, if any."""
    return (
        rule("few tokens and experts: expertIds", _chosen),
        rule("tokens of all ranks: globalBs", _all_tokens),
        *((rule(f"of tokens or their experts: {mask}", _mask(mask)),) if mask else ()),
    )


def hidden(name: str) -> Check:
    """Require a hidden size that the product supports."""

    def violation(call: Call) -> str | None:
        got = call[name].shape[1]
        if call.product in _A2:
            known, expected = 0 < got <= 7168 and got % 32 == 0, "a multiple of 32 to 7168"
        elif is_first(call):
            known, expected = got == 7168, "7168"
        else:
            known, expected = 1024 <= got <= 8192, "from 1024 to 8192"
        return None if known else f"{name}: expected {expected} in the second dimension, got {got}"

    return rule(f"known length of tokens: {name}", violation)


def at_least(what: str, name: str, length: Callable[[Call], int]) -> Check:
    """Require one dimension of at least a length, described by ``what``."""

    def violation(call: Call) -> str | None:
        least, got = length(call), call[name].shape
        return (
            None if got[0] >= least else f"{name}: expected at least {least} in the first dimension, got {extents(got)}"
        )

    return rule(f"{what}: {name}", violation)


def most_rows(call: Call) -> int:
    """Return the number of rows that this rank may receive."""
    return Experts.of(call).most_rows(tokens_of_a_rank(call), call["expertIds"].shape[1])
