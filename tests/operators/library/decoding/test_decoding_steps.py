"""Operators between two steps of decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.decoding import decoding_steps
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, computed

NAMES = ("advance_step", "advance_step_v2")
PROPOSED = ("specTokenOptional", "acceptedNumOptional")
UPDATED = ("inputTokens", "inputPositions", "seqLens", "slotMapping")
SEQUENCES, QUERIES, BLOCK, DRAFTS = 4, 3, 2, 2
LENGTHS = np.array([5, 1, 6, 9])


def _call(name: str, drafts: int = 0) -> Arguments:
    call: Arguments = {
        **dict.fromkeys(UPDATED, T(D.INT64, (SEQUENCES * (drafts + 1),))),
        "sampledTokenIds": T(D.INT64, (SEQUENCES, drafts + 1) if drafts else (QUERIES, 1)),
        "blockTables": T(D.INT64, (SEQUENCES, 8)),
        "specTokenOptional": T(D.INT64, (SEQUENCES, drafts)) if drafts else None,
        "acceptedNumOptional": T(D.INT64, (SEQUENCES,)) if drafts else None,
        "numSeqs": SEQUENCES,
        "numQueries": QUERIES,
        "blockSize": BLOCK,
    }
    return {p.name: call[p.name] for p in BY_NAME[name].parameters}


def _advanced(a: Mapping[str, Any]) -> Any:
    """The kernel's loop; the document's formula of slots has the row of a block added to its number too."""
    tokens, positions, lengths, slots = (a[name].clone() for name in UPDATED)
    columns = a["blockTables"].shape[1]
    for at in range(QUERIES):
        tokens[at], positions[at] = a["sampledTokenIds"][at, 0], lengths[at]
        block = a["blockTables"].flatten()[lengths[at] // BLOCK] + columns * at
        slots[at] = block * BLOCK + lengths[at] % BLOCK
        lengths[at] += 1
    tokens[QUERIES:], positions[QUERIES:], slots[QUERIES:] = 0, 0, -1
    return tokens, positions, lengths, slots


TILING = {
    "1 or more": lambda o, name: Break({name: 0}, "1 or more"),
    "more sequences than queries": lambda o, name: Break({name: QUERIES}, "from 4 (numQueries and 1)"),
    "one for each sequence": lambda o, name: Break(shape((3, 8), name), "4 (numSeqs)"),
    "shape is one for each query": lambda o, name: Break(shape((QUERIES, 2), name), "[3, 1]"),
    "of each sequence": lambda o, name: Break({name: T(D.INT64, (3, 2))}, "4 (numSeqs)"),
    "shape is tokens of all": lambda o, name: Break(_call(o.name, DRAFTS) | {name: T(D.INT64, (4,))}, "[12]"),
    "shape is tokens of each": lambda o, name: Break(_call(o.name, DRAFTS) | {name: T(D.INT64, (4, 1))}, "[4, 3]"),
    "blocks of each sequence": lambda o, name: Break(_call(o.name, DRAFTS) | {name: T(D.INT64, (4,))}, "2 dimensions"),
}


class TestDecodingSteps(LibraryTests):
    subject = Subject(
        decoding_steps.OPERATORS,
        calls={name: lambda d, name=name: _call(name) for name in NAMES},
        references=dict.fromkeys(NAMES, _advanced),
        default=(D.INT64,),
        empty={NAMES[0]: shape((0,), *UPDATED), NAMES[1]: shape((0,), *UPDATED) | dict.fromkeys(PROPOSED)},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.INT32, name), "ACL_INT64"),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "data type": lambda o, name: Break({name: T(D.INT32, (SEQUENCES, 2))}, "ACL_INT64"),
            **TILING,
        },
        numbers=lambda operator, name, array: LENGTHS if name == "seqLens" else array,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _arrays() -> dict[str, Array]:
    random = np.random.default_rng(3)
    call = _call(NAMES[1], DRAFTS)
    given = {name: random.integers(0, 9, of.shape) for name, of in call.items() if isinstance(of, T)}
    sampled = np.array([[7, 8, 9], [7, 8, -1], [7, -1, -1], [-1, -1, -1]])
    return call | given | {"sampledTokenIds": sampled, "acceptedNumOptional": np.array([2, 1, 0, 0])}


def test_proposed_tokens_follow_the_last_that_was_accepted() -> None:
    given = _arrays()
    found = computed(NAMES[1], given)
    for at, last in enumerate([9, 8, 7, -1]):
        rows = slice(3 * at, 3 * at + 3)
        assert found["inputTokens"][rows].tolist() == [last, *given["specTokenOptional"][at]]
        positions = given["inputPositions"][rows] + given["acceptedNumOptional"][at] + 1
        assert found["inputPositions"][rows].tolist() == positions.tolist()
        assert found["seqLens"][rows].tolist() == (positions + 1).tolist()
        slots = [given["blockTables"][at, p // BLOCK] * BLOCK + p % BLOCK for p in positions]
        assert found["slotMapping"][rows].tolist() == slots


@pytest.mark.parametrize(("name", "position"), [("inputPositions", 13), ("inputPositions", -4)])
def test_positions_beyond_the_blocks_are_rejected(name: str, position: int) -> None:
    given = _arrays()
    given[name][0] = position
    with pytest.raises(AclnnError, match=f"{name}: expected positions in blocks after the step from 0 to 15"):
        computed(NAMES[1], given)


def test_lengths_beyond_the_blocks_are_rejected() -> None:
    call = {name: np.zeros(of.shape, np.int64) if isinstance(of, T) else of for name, of in _call(NAMES[0]).items()}
    call["seqLens"][1] = 64
    with pytest.raises(AclnnError, match="seqLens: expected numbers of blocks from 0 to 31, got 32"):
        computed(NAMES[0], call)


def test_rows_may_be_columns() -> None:
    """The tensors of the document's example have a second dimension of 1."""
    ids = np.arange(8)[:, None]
    call = dict.fromkeys((*UPDATED, "blockTables"), ids) | {"sampledTokenIds": ids[:4]}
    found = computed(NAMES[0], call | {"numSeqs": 8, "numQueries": 4, "blockSize": 2})
    assert found["inputTokens"].ravel().tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    assert found["inputPositions"].ravel().tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    assert found["seqLens"].ravel().tolist() == [1, 2, 3, 4, 4, 5, 6, 7]
    assert found["slotMapping"].ravel().tolist() == [0, 3, 6, 9, -1, -1, -1, -1]
