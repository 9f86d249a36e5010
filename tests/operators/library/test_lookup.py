"""Embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import lookup
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, torch, wide

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "one_hot": lambda d: (
        {"self": T(D.INT64, (2, 3)), "numClasses": 4, "axis": 1}
        | {"onValue": T(d, (1,)), "offValue": T(d, ()), "out": T(d, (2, 4, 3))}
    ),
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
    "one_hot": (D.FLOAT, D.FLOAT16, D.INT64),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "one_hot": lambda a: torch.where(
        torch.nn.functional.one_hot(a["self"], 4).mT.bool(), a["onValue"][0], a["offValue"]
    ),
    "embedding": lambda a: a["weight"][a["indices"]],
    "embedding_dense_backward": lambda a: torch.ops.aten.embedding_dense_backward(
        wide(a["grad"]), a["indices"], 2, -1, True
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "one_hot": {"onValue": {"shape": (1,)}, "offValue": {"shape": ()}, "out": {"shape": (0, 4, 3)}},
    "embedding": {"indices": {"shape": (0,)}, "out": {"shape": (0, 3)}},
    "embedding_dense_backward": {"indices": {"shape": (0,)}, "numWeights": 0},
}

INDICES: Mapping[tuple[str, str], int] = {
    ("one_hot", "self"): 4,
    ("embedding", "indices"): 2,
    ("embedding_dense_backward", "indices"): 2,
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as out": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "enough": lambda o, name: Break({name: -1}, "at least 0"),
    "from -1 to the dimensions of self": lambda o, name: Break({name: 3}, "from -1 to 2"),
    "shape is the encoding": lambda o, name: Break(shape((2, 3, 4), name), "the encoding"),
    "same data type as weight": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "a row of weight for each index": lambda o, name: Break(shape((4, 4), name), "shape [4, 3]"),
    "as many as rows of grad": lambda o, name: Break(shape((5,), name), "4 of them"),
    "rows of the table": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
}


class TestLookup(LibraryTests):
    subject = Subject(
        lookup.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS, indices=INDICES
    )
