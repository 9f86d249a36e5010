"""Attention of new tokens to selected blocks of keys in pages, compared with PyTorch over their keys in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.attention import selected_inference
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch, wide

NAME = "nsa_selected_attention_infer"
B, HEADS, SHARED, SIZE, COUNT, PAGE, SCALE = 3, 4, 2, 48, 4, 64, 0.1
LENGTHS = (130, 64, 100)
TABLE = np.array([[4, 0, 5], [2, -1, -1], [1, 3, -1]], np.int32)
#: The last block of the first sample has 34 keys, that of the third 4; the second sample's second head sees nothing.
NUMBERS = np.array(
    [[[2, 0, -1, 1], [0, 1, 2, -1]], [[1, -1, -1, -1], [-1, 0, 1, 0]], [[2, -1, 0, 0], [0, 2, 1, -1]]], np.int32
)


def _call(d: D, layout: str | None = "BSH") -> Arguments:
    def heads(*before: int, count: int, elements: int) -> T:
        return T(d, (*before, count * elements) if layout == "BSH" else (*before, count, elements))

    return {
        "query": heads(B, 1, count=HEADS, elements=192),
        "key": heads(6, PAGE, count=SHARED, elements=192),
        "value": heads(6, PAGE, count=SHARED, elements=128),
        "topkIndices": T(D.INT32, NUMBERS.shape),
        "attenMaskOptional": None,
        "blockTableOptional": T(D.INT32, TABLE.shape),
        "actualQSeqLenOptional": None,
        "actualKvSeqLenOptional": LENGTHS,
        "layoutOptional": layout,
        "numHeads": HEADS,
        "numKeyValueHeads": SHARED,
        "selectBlockSize": SIZE,
        "selectBlockCount": COUNT,
        "pageBlockSize": PAGE,
        "scaleValue": SCALE,
        "sparseMode": 0,
        "output": heads(B, 1, count=HEADS, elements=128),
    }


def attention(query: Any, key: Any, value: Any) -> Any:
    query, key, value = query.reshape(B, HEADS, 192), key.reshape(6, PAGE, SHARED, 192), value.reshape(6, PAGE, -1, 128)
    found = torch.zeros(B, HEADS, 128, dtype=query.dtype)
    for sample, length in enumerate(LENGTHS):
        for head in range(HEADS):
            shared, places = head // 2, []
            for block in NUMBERS[sample, shared]:
                if block < 0:
                    break
                places += range(int(block) * SIZE, min(int(block + 1) * SIZE, length))
            if places:
                own = [(int(TABLE[sample, place // PAGE]), place % PAGE) for place in places]
                pages, at = (list(each) for each in zip(*own, strict=True))
                scores = key[pages, at, shared] @ query[sample, head] * SCALE
                found[sample, head] = scores.softmax(0) @ value[pages, at, shared]
    return found


def _expected(a: Mapping[str, Any]) -> Any:
    return attention(*(wide(a[name]) for name in ("query", "key", "value"))).reshape(B, 1, -1)


def _numbers(operator: str, name: str, array: Any) -> Any:
    return {"topkIndices": NUMBERS, "blockTableOptional": TABLE}.get(name, array / 4)


#: What is rejected before the kernel.
EARLY = {"data type": INVALID, "same data type as query": INVALID}


class TestSelectedInference(LibraryTests):
    subject = Subject(
        selected_inference.OPERATORS,
        calls={NAME: _call},
        references={NAME: _expected},
        default=(D.FLOAT16, D.BF16),
        empty={NAME: _call(D.FLOAT16) | {"output": T(D.FLOAT16, (0, 1, HEADS * 128))}},
        breaks={
            "present": lambda o, name: Break({name: None}, "an object"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16"),
            "allowed value": lambda o, name: Break({name: "TND"}, "'BSH' or 'BSND'"),
            "dimensions of the layout": lambda o, name: Break(shape((3, 768), name), "3 dimensions (BSH)"),
            "at most 3072 samples of one query": lambda o, name: Break(
                shape((3, 2, 768), name), "samples of one query"
            ),
            "heads": lambda o, name: Break({name: 3}, "a multiple up to 16 times numKeyValueHeads"),
            "blocks with a kernel": lambda o, name: Break({name: 24}, "a multiple of 16 up to 128"),
            "64 or 128": lambda o, name: Break({name: 32}, "64 or 128"),
            "pages of heads": lambda o, name: Break(shape((6, 32, 384), name), "pages of pageBlockSize"),
            "pages of each sample": lambda o, name: Break(shape((2, 3), name), "shape [3, …]"),
            "a length of each sample": lambda o, name: Break({name: (130, 64, 193)}, "3 lengths from 1 to 192"),
            "numbers for each head of keys": lambda o, name: Break(shape((3, 2, 2, 4), name), "or [3, 1, 2, 4]"),
            **{
                f"shape is {what}": lambda o, name: Break(shape((3, 1, 384), name), "shape [")
                for what in ("of the heads", "of the attention")
            },
        },
        numbers=_numbers,
        terms=8,
        code=NO_KERNEL,
        codes=EARLY,
    )

    def test_every_check_rejects(self, operator: Any, check: Any, title: str, name: str) -> None:
        """A null argument that only the kernel needs has a different code."""
        null = NO_KERNEL if name in ("blockTableOptional", "actualKvSeqLenOptional") else NULL
        object.__setattr__(self.subject, "codes", {**EARLY, "present": null})
        super().test_every_check_rejects(operator, check, title, name)


@pytest.mark.parametrize("layout", ["BSND", None])
def test_heads_may_have_a_dimension(layout: str | None) -> None:
    random, call = np.random.default_rng(6), _call(D.FLOAT16, layout)
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    arrays |= {"topkIndices": NUMBERS, "blockTableOptional": TABLE}
    results = computed(NAME, call | arrays)
    found = attention(*(torch.tensor(arrays[name]).double() for name in ("query", "key", "value")))
    np.testing.assert_allclose(results["output"], found.reshape(B, 1, HEADS, 128), 2e-3, 2e-3)
    with pytest.raises(AclnnError, match="expected numbers of its pages from 0 to 5, got 6"):
        computed(NAME, call | arrays | {"blockTableOptional": np.full_like(TABLE, 6)})


def test_numbers_of_blocks_may_have_a_dimension_of_queries() -> None:
    random, call = np.random.default_rng(7), _call(D.FLOAT16)
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    arrays |= {"topkIndices": NUMBERS, "blockTableOptional": TABLE}
    expected = computed(NAME, call | arrays)["output"]
    found = computed(NAME, call | arrays | {"topkIndices": NUMBERS[:, None]})["output"]
    np.testing.assert_array_equal(found, expected)
