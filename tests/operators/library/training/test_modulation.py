"""Sequences scaled and shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library.training import modulation
from tests.cases.table import T, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, torch, wide

X = (2, 4, 3)


def _reference(a: Any) -> Any:
    return torch.addcmul(wide(a["shiftOptional"]), wide(a["self"]), 1 + wide(a["scaleOptional"])[:, None])


class TestModulation(LibraryTests):
    subject = Subject(
        modulation.OPERATORS,
        calls={
            "modulate": lambda d: {
                **{name: T(d, X) for name in ("self", "out")},
                "scaleOptional": T(d, (2, 3)),
                "shiftOptional": T(d, (2, 1, 3)),
            }
        },
        references={"modulate": _reference},
        empty={"modulate": {name: {"shape": (0, 4, 3)} for name in ("self", "out")}},
        breaks={
            "same data type as self": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "3 dimensions": lambda o, name: Break(shape((2, 3), name), "3 dimensions"),
            "same shape as self": lambda o, name: Break(shape((2, 4, 4), name), "[2, 4, 3]"),
            "one for each sample": lambda o, name: Break(shape((2, 4, 3), name), "[2, 3] or [2, 1, 3]"),
        },
        default=TRAINED,
    )


@pytest.mark.parametrize("name", ["scaleOptional", "shiftOptional", None])
def test_either_factor_may_be_null(name: str | None) -> None:
    x, factor = np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.full((2, 3), 2, np.float32)
    call: dict[str, Any] = {"self": x, "scaleOptional": None, "shiftOptional": None, "out": np.zeros_like(x)}
    call |= {} if name is None else {name: factor}
    expected = {"scaleOptional": x * 3, "shiftOptional": x + 2, None: x}[name]
    np.testing.assert_array_equal(computed("modulate", call)["out"], expected)
