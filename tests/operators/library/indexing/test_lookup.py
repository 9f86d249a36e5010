"""Embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import lookup
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
    wide,
)


def _bags(a: Mapping[str, Any]) -> Any:
    """PyTorch counts rows only where it needs their numbers; of maxIndices without maxima, zeros are expected."""
    weights = a["perSampleWeights"] if a["perSampleWeights"] is None else wide(a["perSampleWeights"])
    found = torch.ops.aten._embedding_bag(
        *(wide(a["weight"]), a["indices"], a["offsets"], False, a["mode"], False, weights),
        *(a["includeLastOffset"], a["paddingIdx"]),
    )
    bags = torch.tensor([0, 0, 2, 2, 2, 2 if a["includeLastOffset"] else 3])
    counted = (a["indices"] != a["paddingIdx"]) & (torch.arange(6) < (5 if a["includeLastOffset"] else 6))
    sizes = torch.bincount(bags[counted], minlength=len(found[0]))
    return found[0], bags, sizes, found[3] if a["mode"] == 2 else torch.zeros(4)


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "one_hot": lambda d: (
        {"self": T(D.INT64, (2, 3)), "numClasses": 4, "axis": 1}
        | {"onValue": T(d, (1,)), "offValue": T(d, ()), "out": T(d, (2, 4, 3))}
    ),
    "embedding_bag": lambda d: {
        "weight": T(d, (5, 3)),
        "indices": T(D.INT64, (6,)),
        "offsets": T(D.INT64, (4,)),
        "scaleGradByFreq": False,
        "mode": {D.FLOAT: 0, D.FLOAT16: 1, D.BF16: 2}[d],
        "sparse": False,
        "perSampleWeights": T(d, (6,)) if d == D.FLOAT else None,
        "includeLastOffset": d == D.BF16,
        "paddingIdx": -1 if d == D.FLOAT16 else 1,
        "output": T(d, (3 if d == D.BF16 else 4, 3)),
        "offset2bag": T(D.INT64, (6,)),
        "bagSize": T(D.INT64, (3 if d == D.BF16 else 4,)),
        "maxIndices": T(D.INT64, (3, 3) if d == D.BF16 else (4,)),
    },
    "embedding_renorm": lambda d: {"indices": T(D.INT32, (4,)), "maxNorm": 1.5, "normType": 3.0},
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
    **dict.fromkeys(("embedding_dense_backward", "embedding_bag", "embedding_renorm"), TRAINED),
    "one_hot": (D.FLOAT, D.FLOAT16, D.INT64),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "one_hot": lambda a: torch.where(
        torch.nn.functional.one_hot(a["self"], 4).mT.bool(), a["onValue"][0], a["offValue"]
    ),
    "embedding_bag": lambda a: _bags(a),
    "embedding_renorm": lambda a: torch.embedding_renorm_(wide(a["selfRef"]), a["indices"].long(), 1.5, 3.0),
    "embedding": lambda a: a["weight"][a["indices"]],
    "embedding_dense_backward": lambda a: torch.ops.aten.embedding_dense_backward(
        wide(a["grad"]), a["indices"], 2, -1, True
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "one_hot": {"onValue": {"shape": (1,)}, "offValue": {"shape": ()}, "out": {"shape": (0, 4, 3)}},
    "embedding_bag": {
        "weight": {"shape": (5, 3)},
        "indices": {"shape": (0,)},
        "offsets": {"shape": (0,)},
        "perSampleWeights": None,
        "offset2bag": {"shape": (0,)},
        "bagSize": {"shape": (0,)},
        "maxIndices": {"shape": (0,)},
    },
    "embedding_renorm": {"selfRef": {"shape": (5, 3)}, "indices": {"shape": (0,)}},
    "embedding": {"indices": {"shape": (0,)}, "out": {"shape": (0, 3)}},
    "embedding_dense_backward": {"indices": {"shape": (0,)}, "numWeights": 0},
}

INDICES: Mapping[tuple[str, str], int] = {
    ("embedding_bag", "indices"): 5,
    ("embedding_renorm", "indices"): 2,
    ("one_hot", "self"): 4,
    ("embedding", "indices"): 2,
    ("embedding_dense_backward", "indices"): 2,
}

BREAKS: Mapping[str, Breaking] = {
    "as many as there are, or none": lambda o, name: Break(shape((5, 5), name), "elements or none", D.BF16),
    "2 dimensions": lambda o, name: Break(shape((1, 2, 3), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((2, 3), name), "1 dimension"),
    "as indices, for sums": lambda o, name: Break(shape((5,), name), "[6]"),
    "shape is a row of weight for each bag": lambda o, name: Break(shape((4, 4), name), "a row of weight"),
    "same data type as out": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "enough": lambda o, name: Break({name: -1}, "at least 0"),
    "from -1 to the dimensions of self": lambda o, name: Break({name: 3}, "from -1 to 2"),
    "shape is the encoding": lambda o, name: Break(shape((2, 3, 4), name), "the encoding"),
    "same data type as weight": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "a row of weight for each index": lambda o, name: Break(shape((4, 4), name), "shape [4, 3]"),
    "as many as rows of grad": lambda o, name: Break(shape((5,), name), "4 of them"),
    "shape …": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    # The second bag is empty, and the last where its end is told.
    return np.array([0, 2, 2, 5]) if (operator, name) == ("embedding_bag", "offsets") else array


class TestLookup(LibraryTests):
    subject = Subject(
        lookup.OPERATORS,
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        indices=INDICES,
    )


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_without_a_row_is_reported(index: int) -> None:
    for name, table in (("embedding", "weight"), ("embedding_renorm", "selfRef")):
        text = rf"^{BY_NAME[name].function}: indices: expected rows of {table} from 0 to 1, got {index}"
        with pytest.raises(AclnnError, match=text):
            TestLookup.subject.run_with_index(name, index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([-2, 0])}, "indices: expected rows of weight from 0 to 2, got -2"),
        ({"indices": np.array([3, 0])}, "indices: expected rows of weight from 0 to 2, got 3"),
        ({"offsets": np.array([1])}, "offsets: expected 0 first, got 1"),
        ({"offsets": np.array([3])}, "offsets: expected numbers from 0 to 2, got 3"),
    ],
)
def test_bags_with_nonexistent_rows_are_rejected(change: Mapping[str, Any], message: str) -> None:
    """A negative index was one from the end, and indices before the first bag were an internal error."""
    call = {"weight": np.ones((3, 2), np.float32), "indices": np.array([1, 0]), "offsets": np.array([0])}
    call |= {"output": np.zeros((1, 2), np.float32), "offset2bag": np.zeros(2, np.int64)}
    call |= {"bagSize": np.zeros(1, np.int64), "maxIndices": np.zeros((1, 2), np.int64)}
    call |= {"scaleGradByFreq": False, "mode": 0, "sparse": False, "includeLastOffset": False, "paddingIdx": -1}
    with pytest.raises(AclnnError, match=message):
        computed("embedding_bag", call | {"perSampleWeights": None} | change)


def test_on_ascend_950_the_last_offset_has_a_size_too() -> None:
    """It was rejected, so ``EmbeddingBag(include_last_offset=True)`` failed through torch_npu."""
    arrays = {
        "weight": np.arange(6, dtype=np.float32).reshape(3, 2),
        "indices": np.array([0, 2, 1]),
        "offsets": np.array([0, 2, 3]),
        "output": np.zeros((2, 2), np.float32),
        "offset2bag": np.zeros(3, np.int64),
        "bagSize": np.full(3, 7),
        "maxIndices": np.zeros(0, np.int64),
    }
    placed = {name: Placed(array, "contiguous") for name, array in arrays.items()}
    call = {name: each.tensor for name, each in placed.items()}
    numbers = {"scaleGradByFreq": False, "mode": 1, "sparse": False, "includeLastOffset": True, "paddingIdx": -1}
    prepare(BY_NAME["embedding_bag"], call | numbers | {"perSampleWeights": None}, Product.ASCEND_950).run()
    assert placed["output"].view.tolist() == [[2, 3], [2, 3]]
    assert placed["bagSize"].view.tolist() == [2, 1, 0]
