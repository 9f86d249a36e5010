"""The search for elements that are not finite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators.library.reduction import finite
from tests.cases.table import T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, computed, torch

BREAKS: Mapping[str, Breaking] = {
    "kernel of the product": lambda o, name: Break({}, "with a kernel", product=Product.ATLAS_TRAINING),
    "data types that go together": lambda o, name: Break(dtype(D.INT32, name), "data type ACL_"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
}


class TestFinite(LibraryTests):
    subject = Subject(
        finite.OPERATORS,
        calls={"all_finite": lambda d: {"gradient": T(d, (3, 4)), "out": T(D.BOOL, (1,))}},
        references={"all_finite": lambda a: a["out"] | ~torch.isfinite(a["gradient"]).all()},
        default=TRAINED,
        empty={"all_finite": {**shape((0,), "gradient"), **shape((1,), "out")}},
        breaks=BREAKS,
    )


@pytest.mark.parametrize("worst", [np.inf, -np.inf, np.nan])
def test_one_element_sets_the_flag(worst: float) -> None:
    """With the sizes of MindSpore's test of its kernel."""
    gradient = np.full((12960, 65), 10, np.float16)
    assert computed("all_finite", {"gradient": gradient, "out": np.zeros(1, bool)})["out"].tolist() == [False]
    gradient[-1, 7] = worst
    assert computed("all_finite", {"gradient": gradient, "out": np.zeros(1, bool)})["out"].tolist() == [True]


def test_a_flag_that_is_set_stays() -> None:
    """MindSpore clears it once and calls the function for each of its tensors."""
    assert computed("all_finite", {"gradient": np.ones(3, np.float32), "out": np.ones(1, bool)})["out"].tolist() == [
        True
    ]
