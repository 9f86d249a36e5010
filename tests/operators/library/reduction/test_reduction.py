"""Sums, means, variances, norms, products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.reduction import reduction
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import BREAKS as SHARED
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    FLOATING,
    INTEGERS,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    scalar,
    torch,
    wide,
)

SPREADS = ("std", "var", "var_correction", "std_mean_correction", "var_mean")


def _mean(values: Any) -> Any:
    if values.is_floating_point() or values.is_complex():
        return values.mean(0, keepdim=True)
    return torch.div(values.sum(0, keepdim=True, dtype=values.dtype), values.shape[0], rounding_mode="floor")


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "reduce_nansum": lambda d: {"dim": (1,), "keepDim": False, "dtype": d, "out": T(d, GRID[:1])},
    **{
        f"global_{name}_pool": lambda d: {"self": T(d, (2, 3, 2, 3)), "out": T(d, (2, 3, 1, 1))}
        for name in ("average", "max")
    },
    "reduce_log_sum": lambda d: {"axes": (1,), "keepDims": False, "noopWithEmptyAxes": False, "out": T(d, GRID[:1])},
    "reduce_sum": lambda d: {"dims": (1,), "keepDims": False, "dtype": d, "out": T(d, GRID[:1])},
    "mean": lambda d: {"dim": (-2,), "keepDim": True, "dtype": d, "out": T(d, (1, *GRID[1:]))},
    "mean_v2": lambda d: {"dim": (-2,), "keepDim": True, "noopWithEmptyAxes": True, "out": T(d, (1, *GRID[1:]))},
    "linalg_vector_norm": lambda d: {
        "ord": scalar(D.DOUBLE, 2),
        "dims": (-1,),
        "keepDims": True,
        "dtype": d,
        "out": T(d, (2, 1)),
    },
    **{name: lambda d: {"dim": (-2,), "keepdim": True, "out": T(D.BOOL, (1, 3))} for name in ("any", "all")},
    "log_sum_exp": lambda d: {"dim": (1,), "keepDim": True, "out": T(d if d in FLOATING else D.FLOAT, (2, 1))},
    "norm": lambda d: {"pScalar": scalar(D.DOUBLE, 1.5), "dim": (1,), "keepdim": False, "out": T(d, GRID[:1])},
    **{
        name: lambda d: (
            {"dim": (1,), "correction": 1, "unbiased": True, "keepdim": False}
            | {name: T(d, GRID[:1]) for name in ("out", "stdOut", "meanOut", "varOut")}
        )
        for name in SPREADS
    },
    "prod": lambda d: {"dtype": d, "out": T(d, ())},
    "prod_dim": lambda d: {"dim": 0, "keepDim": False, "dtype": d, "out": T(d, GRID[1:])},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "mean": (*REAL, *COMPLEX),
    "mean_v2": (*REAL, *COMPLEX),
    **dict.fromkeys(("any", "all"), (*REAL, D.BOOL)),
    "log_sum_exp": (*TRAINED, *INTEGERS, D.BOOL),
    **dict.fromkeys((*SPREADS, "linalg_vector_norm"), TRAINED),
    "var_mean": TRAINED[:2],
    "norm": FLOATING,
    "reduce_nansum": (*TRAINED, D.INT32),
    "reduce_log_sum": (D.FLOAT, D.FLOAT16),
    "global_average_pool": FLOATING,
    "global_max_pool": (D.FLOAT, D.FLOAT16, D.DOUBLE),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "global_average_pool": lambda a: torch.nn.functional.adaptive_avg_pool2d(wide(a["self"]), 1),
    "global_max_pool": lambda a: a["self"].amax((2, 3), keepdim=True),
    "reduce_log_sum": lambda a: wide(a["self"]).sum(1).log(),
    "reduce_nansum": lambda a: a["self"].nansum(1, dtype=a["self"].dtype),
    "reduce_sum": lambda a: a["self"].any(1) if a["self"].dtype == torch.bool else a["self"].sum(1).to(a["self"].dtype),
    **dict.fromkeys(("mean", "mean_v2"), lambda a: _mean(a["self"])),
    "linalg_vector_norm": lambda a: torch.linalg.vector_norm(a["self"], 2, -1, keepdim=True),
    "any": lambda a: a["self"].any(-2, keepdim=True),
    "all": lambda a: a["self"].all(-2, keepdim=True),
    "log_sum_exp": lambda a: wide(a["self"]).logsumexp(1, keepdim=True),
    "norm": lambda a: wide(a["self"]).norm(1.5, 1),
    "std": lambda a: wide(a["self"]).std(1),
    **dict.fromkeys(("var", "var_correction"), lambda a: wide(a["self"]).var(1)),
    "std_mean_correction": lambda a: torch.std_mean(wide(a["self"]), 1),
    "var_mean": lambda a: torch.var_mean(wide(a["self"]), 1),
    "prod": lambda a: a["self"].all() if a["self"].dtype == torch.bool else a["self"].prod(dtype=a["self"].dtype),
    "prod_dim": lambda a: (
        a["self"].all(0) if a["self"].dtype == torch.bool else a["self"].prod(0, dtype=a["self"].dtype)
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {each: {"shape": (0,)} for each in [p.name for p in BY_NAME[name].parameters if p.kind is Kind.OUTPUT]}
        for name in ("norm", *SPREADS)
    },
    **{name: {"out": {"shape": (1, 3)}} for name in ("any", "all")},
    "log_sum_exp": {"out": {"shape": (0, 1)}},
    **{
        f"global_{name}_pool": {"self": {"shape": (0, 3, 2, 3)}, "out": {"shape": (0, 3, 1, 1)}}
        for name in ("average", "max")
    },
    **{name: {"out": {"shape": (0,)}} for name in ("reduce_sum", "reduce_nansum", "reduce_log_sum")},
    **{name: {"dim": (-1,), "out": {"shape": (0, 1)}} for name in ("mean", "mean_v2")},
    "prod": {"out": {"shape": ()}},
    "prod_dim": {"out": {"shape": (3,)}},
    "linalg_vector_norm": {"out": {"shape": (0, 1)}},
}

BREAKS: Mapping[str, Breaking] = {
    "no private format": lambda o, name: SHARED["no private format"](o, name)._replace(product=Product.ASCEND_950),
    "real where self is empty": lambda o, name: Break(
        {"self": {"shape": (0, 3), "dtype": D.COMPLEX64}, "out": {"dtype": D.COMPLEX64}}
        | {p.name: D.COMPLEX64 for p in o.parameters if p.kind is Kind.DTYPE},
        "a real data type",
    ),
    "format of images": lambda o, name: Break(
        {each: {"format": Format.FORMAT_NHWC} for each in ("self", "out")}, "ACL_FORMAT_ND, ACL_FORMAT_NCHW"
    ),
    "4 to 8 dimensions": lambda o, name: Break(shape((2, 3, 2), name), "4 to 8 dimensions"),
    "shape is a number for each channel": lambda o, name: Break(shape((2, 3), name), "[2, 3, 1, 1]"),
    "a data type that converts to … (the argument dtype)": lambda o, name: Break(
        {"dtype": D.INT32}, "converts to ACL_INT32"
    ),
    "FLOAT or that of self": lambda o, name: Break({name: D.BF16} | dtype(D.BF16, "out"), "ACL_FLOAT"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if operator == "reduce_log_sum":
        return np.abs(array)
    return np.where(array > 0, array, np.nan) if operator == "reduce_nansum" and array.dtype.kind not in "iu" else array


class TestReduction(LibraryTests):
    subject = Subject(
        reduction.OPERATORS,
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
    )


def test_logarithms_of_sums_over_no_axes() -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    for none_is_all, expected in ((True, np.log(10)), (False, x)):
        given = {"axes": (), "keepDims": False, "noopWithEmptyAxes": not none_is_all}
        found = computed("reduce_log_sum", given | {"self": x, "out": np.zeros(np.shape(expected), np.float32)})["out"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("reduce_sum", 0.0), ("mean", math.nan)])
def test_a_reduction_of_an_empty_tensor_is_written(name: str, expected: float) -> None:
    out = Placed(np.ones((3,), np.float32), "contiguous")
    dims = {"reduce_sum": {"dims": (0,), "keepDims": False}, "mean": {"dim": (0,), "keepDim": False}}[name]
    arguments = {"self": Tensor(D.FLOAT, (0, 3)), **dims, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.full(3, expected, np.float32))


def test_sums_of_sixteen_bits_are_rounded_once() -> None:
    ones = np.ones((2, 70_000), np.float16)
    tensor = Tensor(D.FLOAT16, ones.shape, address=ones.__array_interface__["data"][0], owner=ones)
    out = Placed(np.zeros(2, np.float32), "contiguous")
    mean = {"self": tensor, "dim": (1,), "keepDim": False, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME["mean"], mean, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, 1)


@pytest.mark.parametrize("name", ["std", "var", "var_correction"])
def test_null_dimensions_are_all(name: str) -> None:
    x = np.array([[1, 2], [3, 6]], np.float32)
    numbers = {"unbiased": False} if name == "var" else {"correction": 0}
    found = computed(name, {"self": x, "dim": None, **numbers, "keepdim": False, "out": np.zeros((), np.float32)})
    assert found["out"] == np.float32(x.std() if name == "std" else x.var())


@pytest.mark.parametrize(("count", "correction", "expected"), [(3, 3, math.inf), (3, 5, math.inf), (1, 1, math.nan)])
def test_a_variance_of_too_few_elements(count: int, correction: int, expected: float) -> None:
    """Equal elements gave NaN."""
    call = {"self": np.ones((2, count), np.float32), "dim": (1,), "correction": correction, "keepdim": False}
    found = computed("var_correction", call | {"out": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(found["out"], np.full(2, expected, np.float32))


@pytest.mark.parametrize(
    ("name", "dtype", "product", "taken"),
    [
        ("var_mean", D.BF16, Product.ATLAS_A2, False),
        ("var_mean", D.BF16, Product.ASCEND_950, True),
        ("std_mean_correction", D.BF16, Product.ATLAS_A2, True),
        ("std_mean_correction", D.DOUBLE, Product.ATLAS_A2, False),
    ],
)
def test_std_and_var_data_types_depend_on_the_product(name: str, dtype: D, product: Product, taken: bool) -> None:
    outputs = [p.name for p in BY_NAME[name].parameters if p.kind is Kind.OUTPUT]
    call = {"self": Tensor(dtype, (2, 3)), "dim": (1,), "correction": 1, "keepdim": False}
    call |= {out: Tensor(dtype, (2,)) for out in outputs}
    if taken:
        assert prepare(BY_NAME[name], call, product).prepared.plan
    else:
        with pytest.raises(AclnnError, match="self: expected data type"):
            prepare(BY_NAME[name], call, product)


def test_integers_have_no_nan_to_leave_out_on_950() -> None:
    call = {"self": Tensor(D.INT32, (2, 3)), "dim": (1,), "keepDim": False, "dtype": D.INT32}
    call |= {"out": Tensor(D.INT32, (2,))}
    assert prepare(BY_NAME["reduce_nansum"], call, Product.ATLAS_A2).prepared.plan
    with pytest.raises(AclnnError, match="self: expected data type ACL_FLOAT, ACL_FLOAT16 or ACL_BF16"):
        prepare(BY_NAME["reduce_nansum"], call, Product.ASCEND_950)
