"""aclnnAdvanceStep: inputs of a decoding step derived from the previous one, for a language model server."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dtype_in, each, extents, generated, nothing_to_write, restricted, rule, shape_is, value_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import attribute, expect_within, optional_in, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_UPDATED = ("inputTokens", "inputPositions", "seqLens", "slotMapping")
_DRAFTS = ("specTokenOptional", "acceptedNumOptional")
_COUNTS = ("numSeqs", "numQueries", "blockSize")
_MOST_SEQUENCES = 200_000_000


def _drafted(call: Call) -> bool:
    """Return True if there are speculative tokens for the step."""
    given = [call.arguments.get(name) for name in _DRAFTS]
    return all(tensor is not None and tensor.size for tensor in given)


def _tokens(call: Call) -> int:
    """Return the number of tokens per sequence."""
    return int(call[_DRAFTS[0]].shape[1]) + 1


def _more_sequences(call: Call) -> str | None:
    least, got = call["numQueries"] + 1, call["numSeqs"]
    if least <= got < _MOST_SEQUENCES:
        return None
    return f"numSeqs: expected from {least} (numQueries and 1) to {_MOST_SEQUENCES - 1}, got {got}"


def _one_each(call: Call, name: str) -> str | None:
    count, got = call["numSeqs"], call[name].shape
    return None if got[:1] == (count,) else f"expected {count} (numSeqs) in the first dimension, got {extents(got)}"


def _rows_of_each(call: Call, name: str) -> str | None:
    count, got = call["numSeqs"], call[name].shape
    rank = 1 if name == _DRAFTS[1] else 2
    if len(got) == rank and got[0] == count:
        return None
    return f"expected {rank} dimensions, {count} (numSeqs) in the first, got {extents(got)}"


def _with_drafts(*checks: Check) -> tuple[Check, ...]:
    return restricted("with proposed tokens", _drafted, *checks)


def _without_drafts(*checks: Check) -> tuple[Check, ...]:
    return restricted("without proposed tokens", lambda call: not _drafted(call), *checks)


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, _UPDATED):
        return None
    if _drafted(call):
        size = call["blockSize"]

        def accept(
            tokens: Array, sampled: Array, positions: Array, lengths: Array, slots: Array, tables: Array, *drafts: Array
        ) -> tuple[Array, ...]:
            proposed, accepted = drafts
            now = positions.reshape(sampled.shape) + accepted[:, None] + 1
            expect_within("inputPositions", now, 0, tables.shape[1] * size - 1, "positions in blocks after the step")
            ended = np.append(sampled, np.full((len(sampled), 1), -1), 1).argmin(1)
            rows = np.arange(len(sampled))
            last = np.where(ended == 0, -1, sampled[rows, ended - 1])
            places = np.take_along_axis(tables, now // size, 1) * size + now % size
            following = np.concatenate([last[:, None], proposed], 1)
            return tuple(found.reshape(tokens.shape) for found in (following, now, now + 1, places))

        names = ("inputTokens", "sampledTokenIds", *_UPDATED[1:], "blockTables", *_DRAFTS)
        return Library(accept, names, _UPDATED)
    count, size = call["numQueries"], call["blockSize"]

    def advance(
        tokens: Array, sampled: Array, positions: Array, lengths: Array, slots: Array, tables: Array
    ) -> tuple[Array, ...]:
        results = [np.array(given, order="C") for given in (tokens, positions, lengths, slots)]
        following, now, after, places = (result.reshape(-1) for result in results)
        for numbers, padding in ((following, 0), (now, 0), (places, -1)):
            numbers[count : len(tokens)] = padding
        position = after[:count].copy()
        expect_within("seqLens", position // size, 0, tables.size - 1, "numbers of blocks")
        following[:count], now[:count], after[:count] = sampled[:, 0], position, position + 1
        stride = tables.size // len(tables)
        blocks = tables.reshape(-1)[position // size] + stride * np.arange(count)
        places[:count] = blocks * size + position % size
        return tuple(results)

    return Library(advance, ("inputTokens", "sampledTokenIds", *_UPDATED[1:], "blockTables"), _UPDATED)


def _advance(name: str, *drafts: Parameter) -> Operator:
    names = ("inputTokens", "sampledTokenIds", *_UPDATED[1:], "blockTables")
    return Operator(
        name=name,
        summary="Prepare the next decoding step: set its tokens, and advance positions, lengths and slots.",
        formula="inputTokens = sampledTokenIds, inputPositions = seqLens, seqLens = seqLens + 1, slotMapping[i] = "
        "(blockTables[0, p / blockSize] + i * columns of blockTables) * blockSize + p % blockSize, p = "
        "inputPositions[i]; rows without a query: 0, 0, as before, -1"
        + (
            "; with specToken: inputTokens[i] = the last of sampledTokenIds[i] before -1, specToken[i], inputPositions "
            "+= acceptedNum + 1, seqLens = inputPositions + 1, slotMapping likewise from blockTables[i, p / blockSize]"
            if drafts
            else ""
        ),
        parameters=(
            tensor_out("inputTokens", "one element per sequence; INT64", const=True, updated=True),
            tensor_in("sampledTokenIds", "the sampled tokens, (numQueries, 1), or a row per sequence; INT64"),
            tensor_out("inputPositions", "as inputTokens", const=True, updated=True),
            tensor_out("seqLens", "as inputTokens", const=True, updated=True),
            tensor_out("slotMapping", "as inputTokens", const=True, updated=True),
            tensor_in("blockTables", "the block table of each sequence; INT64"),
            *drafts,
            attribute("numSeqs", Kind.INT64, "the number of sequences"),
            attribute("numQueries", Kind.INT64, "the number of sequences with a sampled token"),
            attribute("blockSize", Kind.INT64, "the number of tokens per block"),
        ),
        support=support((D.INT64,), A2_CLASS),
        checks=generated(
            names,
            (),
            lambda product: [(D.INT64,) * len(names)],
            value_is("1 or more", lambda got: got >= 1, *_COUNTS),
            *(each("of each sequence", (draft.name,), _rows_of_each) for draft in drafts),
            *_without_drafts(
                rule("more sequences than queries: numSeqs", _more_sequences),
                each("one for each sequence", (*_UPDATED, "blockTables"), _one_each),
                shape_is("one for each query", lambda call: (call["numQueries"], 1), "sampledTokenIds"),
            ),
            *(
                _with_drafts(
                    shape_is("tokens of all", lambda call: (call["numSeqs"] * _tokens(call),), *_UPDATED),
                    shape_is("tokens of each", lambda call: (call["numSeqs"], _tokens(call)), "sampledTokenIds"),
                    each("blocks of each sequence", ("blockTables",), _rows_of_each),
                )
                if drafts
                else ()
            ),
            written=_UPDATED,
            optional=(dtype_in((D.INT64,), *(draft.name for draft in drafts)),) if drafts else (),
        ),
        work=_work,
    )


OPERATORS = (
    _advance("advance_step"),
    _advance(
        "advance_step_v2",
        optional_in(_DRAFTS[0], "the draft tokens of each sequence; INT64; null: none"),
        optional_in(_DRAFTS[1], "the number of draft tokens that each sequence accepted in the last step; INT64"),
    ),
)
