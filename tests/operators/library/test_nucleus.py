"""Which logits a sampler may choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library import nucleus
from tests.cases.table import T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, LibraryTests, Placed, Subject, torch, wide

ROWS, WORDS = 4, 9


def _filtered(a: Mapping[str, Any]) -> Any:
    """What vLLM does, with PyTorch's functions."""
    rising, order = wide(a["logits"]).sort(stable=True)
    least = rising.gather(1, (WORDS - a["k"].long())[:, None])
    rising = rising.masked_fill(rising < least, -torch.inf)
    below = rising.softmax(-1).cumsum(-1) <= 1 - wide(a["p"])[:, None]
    below[:, -1] = False
    return torch.empty_like(rising).scatter_(1, order, rising.masked_fill(below, -torch.inf))


def numbers(operator: str, name: str, array: Array) -> Array:
    given = {"p": np.array([1.0, 0.5, 0.25, 0.0]), "k": np.array([9, 9, 4, 1])}
    return given.get(name, array)


class TestNucleus(LibraryTests):
    subject = Subject(
        nucleus.OPERATORS,
        calls={
            "apply_top_k_top_p": lambda d: {
                "logits": T(d, (ROWS, WORDS)),
                "p": T(d, (ROWS,)),
                "k": T(D.INT32, (ROWS,)),
                "out": T(d, (ROWS, WORDS)),
            }
        },
        references={"apply_top_k_top_p": _filtered},
        default=TRAINED,
        empty={"apply_top_k_top_p": shape((0, WORDS), "logits", "out") | shape((0,), "p", "k")},
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as logits": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "p or k": lambda o, name: Break({"p": None, "k": None}, "one of them"),
            "1 dimension": lambda o, name: Break(shape((ROWS, 1), name), "1 dimension"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
            "2 dimensions": lambda o, name: Break(shape((WORDS,), name), "2 dimensions"),
            "same shape as logits": lambda o, name: Break(shape((ROWS, 8), name), "[4, 9]"),
            "shape is one for each row": lambda o, name: Break(shape((3,), name), "[4]"),
        },
        numbers=numbers,
    )


@pytest.mark.parametrize("k", [0, -3, 4])
def test_k_beyond_the_words_leaves_all(k: int) -> None:
    logits, out = (Placed(np.array([[1, 3, 2]], np.float32), "contiguous") for _ in range(2))
    p, count = (Placed(np.array([each]), "contiguous") for each in (np.float32(1), np.int32(k)))
    call = {"logits": logits.tensor, "p": p.tensor, "k": count.tensor, "out": out.tensor}
    prepare(BY_NAME["apply_top_k_top_p"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == [[1, 3, 2]]


@pytest.mark.parametrize(
    ("given", "expected"), [({"k": np.int32(2)}, [-np.inf, 3, 2]), ({"p": np.float32(0.5)}, [-np.inf, 3, -np.inf])]
)
def test_one_of_the_thresholds_may_be_null(given: Mapping[str, Any], expected: list[float]) -> None:
    logits, out = (Placed(np.array([[1, 3, 2]], np.float32), "contiguous") for _ in range(2))
    placed = {name: Placed(np.array([number]), "contiguous") for name, number in given.items()}
    thresholds = {"p": None, "k": None} | {name: each.tensor for name, each in placed.items()}
    call = {"logits": logits.tensor, "out": out.tensor, **thresholds}
    prepare(BY_NAME["apply_top_k_top_p"], call, Product.ATLAS_A2).run()
    assert out.view.tolist() == [expected]
