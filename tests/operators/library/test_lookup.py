"""Embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import lookup
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, torch, wide

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "embedding": lambda d: {"indices": T(D.INT64, (4,)), "out": T(d, (4, 3))},
    "embedding_dense_backward": lambda d: {
        "grad": T(d, (2, 2, 3)),
        "indices": T(D.INT64, (2, 2)),
        "numWeights": 2,
        "paddingIdx": 2**64 - 1,
        "scaleGradByFreq": True,
        "out": T(d, GRID),
    },
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "embedding_dense_backward": TRAINED,
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "embedding": lambda a: a["weight"][a["indices"]],
    "embedding_dense_backward": lambda a: torch.ops.aten.embedding_dense_backward(
        wide(a["grad"]), a["indices"], 2, -1, True
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "embedding": {"indices": {"shape": (0,)}, "out": {"shape": (0, 3)}},
    "embedding_dense_backward": {"indices": {"shape": (0,)}, "numWeights": 0},
}

INDICES: Mapping[tuple[str, str], int] = {
    ("embedding", "indices"): 2,
    ("embedding_dense_backward", "indices"): 2,
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as weight": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "a row of weight for each index": lambda o, name: Break(shape((4, 4), name), "shape [4, 3]"),
    "as many as rows of grad": lambda o, name: Break(shape((5,), name), "4 of them"),
    "rows of the table": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
}


class TestLookup(LibraryTests):
    subject = Subject(
        lookup.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS, indices=INDICES
    )
