"""Positions of the tokens of samples: in tensors of samples, packed, or in pages, with lengths that are tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import each, extents, has_zero, listing, one_of, rule, shown, value_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Parameter
from aclnn.operators.library.common import attribute, expect_within

Array = np.ndarray[Any, Any]
ANY_TOKENS = 2**63 - 1
"""The only supported value of preTokens and nextTokens: no limit."""
EVERY, CAUSAL = 0, 3
"""Values of sparseMode: no mask, or a causal mask aligned at the last query and the last key."""
SAMPLES, PACKED, PAGES = "BSND", "TND", "PA_BSND"
_LARGEST_PAGE, _PAGE_UNIT = 1024, 16


def token_rows(layout: str, shape: Sequence[int], lengths: Any, table: Any = None, name: str = "key") -> list[Array]:
    """Return each sample's row indices in the tensor flattened to one row per token.

    Args:
        layout: layout of the tensor.
        shape: shape of the tensor.
        lengths: number of tokens per sample, cumulative if packed; None for full samples.
        table: page table, the pages of each sample.
        name: name of the tensor in error texts.
    """
    if layout == PACKED:
        expect_within(name, np.asarray(lengths), 0, shape[0], "ends of sequences")
        return [np.arange(begin, end) for begin, end in pairwise((0, *lengths))]
    if layout == SAMPLES:
        samples, room = shape[:2]
        lengths = np.full(samples, room) if lengths is None else np.asarray(lengths)
        expect_within(name, lengths, 0, room, "lengths")
        return [np.arange(length) + at * room for at, length in enumerate(lengths)]
    pages, size = shape[:2]
    expect_within(name, lengths, 0, table.shape[1] * size, "lengths")
    found = []
    for own, length in zip(table, lengths, strict=True):
        expect_within(name, own[: -(-int(length) // size)], 0, pages - 1, "numbers of its pages")
        places = np.arange(length)
        found.append(own[places // size] * size + places % size)
    return found


def visible(mode: int, queries: int, keys: int) -> Array:
    """Return the number of leading keys that each query of a sample sees."""
    if mode == EVERY:
        return np.full(queries, keys)
    return np.clip(np.arange(queries) + keys - queries + 1, 0, None)


def mask_attributes() -> tuple[Parameter, ...]:
    """Return the attributes that select the keys a query sees."""
    return (
        attribute("sparseMode", Kind.INT64, "the mask mode, 0: none; 3: causal, aligned at the last query and key"),
        attribute("preTokens", Kind.INT64, "2^63 - 1"),
        attribute("nextTokens", Kind.INT64, "2^63 - 1"),
    )


def mask_checks() -> tuple[Check, ...]:
    """Require the values that every sparse attention supports: both modes, no limit of tokens before and after."""
    return (one_of("sparseMode", EVERY, CAUSAL), one_of("preTokens", ANY_TOKENS), one_of("nextTokens", ANY_TOKENS))


class Sequences(NamedTuple):
    """Names of the arguments that locate the tokens of queries and of keys."""

    tensors: tuple[str, str]
    layouts: tuple[str, str]
    lengths: tuple[str, str]
    table: str | None = None

    def layout(self, call: Call, which: int) -> str:
        """Return the layout of queries (0) or keys (1); null means ``SAMPLES``."""
        return str(call[self.layouts[which]] or SAMPLES)

    def samples(self, call: Call) -> int:
        """Return the number of samples."""
        return int((call[self.lengths[0] if self.layout(call, 0) == PACKED else self.tensors[0]].shape or (0,))[0])

    def tokens(self, call: Call) -> tuple[int, ...]:
        """Return the queries' dimensions before the heads."""
        return tuple(call[self.tensors[0]].shape[:-2])

    def given(self, call: Call) -> tuple[str, ...]:
        """Return the names of the given tensors of lengths and pages."""
        return tuple(name for name in (*self.lengths, self.table) if name and call[name] is not None)

    def finder(self, call: Call) -> Callable[[Sequence[Array]], Iterator[tuple[Array, Array]]]:
        """Return a function of the arrays in ``given`` that yields each sample's rows of queries and of keys."""
        names = self.given(call)
        layouts, shapes = [self.layout(call, which) for which in (0, 1)], [call[name].shape for name in self.tensors]

        def find(arrays: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
            known = dict(zip(names, arrays, strict=True))
            table = known.get(self.table or "")
            rows = [
                token_rows(layout, shape, known.get(length), table, name)
                for layout, shape, length, name in zip(layouts, shapes, self.lengths, self.tensors, strict=True)
            ]
            return zip(*rows, strict=True)

        return find

    def checks(self) -> tuple[Check, ...]:
        """Return the checks of layouts, lengths and pages, and of the single key head."""
        layouts = (SAMPLES, PACKED)
        paged = [self.table] if self.table else []
        return (
            one_of(self.layouts[0], *layouts),
            *([rule(f"goes with that of queries: {self.layouts[1]}", self._layouts)] if paged else []),
            *(each("dimensions of the layout", (name,), self._dimensions) for name in self.tensors),
            *(rule(f"given with its layout: {name}", self._needed(name)) for name in (*self.lengths, *paged)),
            value_is(
                "data type ACL_INT32", lambda got: got == D.INT32, *self.lengths, *paged, of=lambda got: got.dtype
            ),
            each("one for each sample", (*self.lengths, *paged), self._samples),
            rule(f"a head, samples as queries have: {self.tensors[1]}", self._keys),
        )

    def _layouts(self, call: Call) -> str | None:
        name, got = self.layouts[1], self.layout(call, 1)
        allowed = (self.layout(call, 0), PAGES)
        return None if got in allowed else f"{name}: expected {listing(map(repr, allowed))}, got {shown(got)}"

    def _dimensions(self, call: Call, name: str) -> str | None:
        layout, got = self.layout(call, self.tensors.index(name)), call[name].shape
        expected = 3 if layout == PACKED else 4
        if len(got) != expected:
            return f"expected {expected} dimensions ({layout}), got {extents(got)}"
        return f"expected no dimension of 0, got {extents(got)}" if has_zero(got) else None

    def _needed(self, name: str) -> Callable[[Call], str | None]:
        which = 1 if name == self.table else self.lengths.index(name)

        def violation(call: Call) -> str | None:
            layout, is_given = self.layout(call, which), call[name] is not None
            needed = layout == PAGES or (name != self.table and layout == PACKED)
            if needed and not is_given:
                return f"{name}: expected a tensor ({self.layouts[which]} {layout}), got null"
            if name == self.table and is_given and not needed:
                return f"{name}: expected null ({self.layouts[which]} {layout}), got a tensor"
            return None

        return violation

    def _samples(self, call: Call, name: str) -> str | None:
        samples, got, dims = self.samples(call), call[name].shape, 2 if name == self.table else 1
        if samples and len(got) == dims and got[0] == samples and got[-1]:
            return None
        expected = f"{dims} dimension{'s' if dims > 1 else ''}, the first of {max(samples, 1)} (samples)"
        return f"expected {expected}, got {extents(got)}"

    def _keys(self, call: Call) -> str | None:
        name, layout, got = self.tensors[1], self.layout(call, 1), call[self.tensors[1]].shape
        if got[-2] != 1:
            return f"{name}: expected one head, got {got[-2]}"
        if layout == SAMPLES and got[0] != self.samples(call):
            return f"{name}: expected {self.samples(call)} samples (as queries), got {got[0]}"
        if layout == PAGES and (got[1] % _PAGE_UNIT or got[1] > _LARGEST_PAGE):
            return f"{name}: expected pages of a multiple of {_PAGE_UNIT} tokens up to {_LARGEST_PAGE}, got {got[1]}"
        return None
