"""Sums, means, extremes, norms, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind
from aclnn.core.products import Product
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library import reduction
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    FLOATING,
    REAL,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    scalar,
    torch,
    wide,
)

SPREADS = ("std", "var_correction", "std_mean_correction", "var_mean")


def _mean(values: Any) -> Any:
    if values.is_floating_point() or values.is_complex():
        return values.mean(0, keepdim=True)
    return torch.div(values.sum(0, keepdim=True, dtype=values.dtype), values.shape[0], rounding_mode="floor")


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "reduce_sum": lambda d: {"dims": (1,), "keepDims": False, "dtype": d, "out": T(d, GRID[:1])},
    "mean": lambda d: {"dim": (-2,), "keepDim": True, "dtype": d, "out": T(d, (1, *GRID[1:]))},
    "min": lambda d: {"out": T(d, ())},
    "max": lambda d: {"out": T(d, (1,))},
    "linalg_vector_norm": lambda d: {
        "ord": scalar(D.DOUBLE, 2),
        "dims": (-1,),
        "keepDims": True,
        "dtype": d,
        "out": T(d, (2, 1)),
    },
    **{name: lambda d: {"dim": -1, "keepdim": False, "out": T(D.INT64, GRID[:1])} for name in ("arg_max", "arg_min")},
    **{name: lambda d: {"dim": (1,), "keepDim": False, "out": T(d, GRID[:1])} for name in ("amax", "amin")},
    **{name: lambda d: {"dim": (-2,), "keepdim": True, "out": T(D.BOOL, (1, 3))} for name in ("any", "all")},
    **{
        name: lambda d: {"dim": -1, "keepdim": False, "out": T(d, GRID[:1]), "indices": T(D.INT64, GRID[:1])}
        for name in ("max_dim", "min_dim")
    },
    "log_sum_exp": lambda d: {"dim": (1,), "keepDim": True, "out": T(d if d in FLOATING else D.FLOAT, (2, 1))},
    "norm": lambda d: {"pScalar": scalar(D.DOUBLE, 1.5), "dim": (1,), "keepdim": False, "out": T(d, GRID[:1])},
    **{
        name: lambda d: (
            {"dim": (1,), "correction": 1, "keepdim": False}
            | {name: T(d, GRID[:1]) for name in ("out", "stdOut", "meanOut", "varOut")}
        )
        for name in SPREADS
    },
    "prod": lambda d: {"dtype": d, "out": T(d, ())},
    "prod_dim": lambda d: {"dim": 0, "keepDim": False, "dtype": d, "out": T(d, GRID[1:])},
    "cumsum": lambda d: {"dim": 1, "dtype": d},
    "cumprod": lambda d: {"axis": scalar(D.INT64, 0), "dtype": d},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "mean": (*REAL, *COMPLEX),
    "min": (*REAL, D.BOOL),
    "max": (*REAL, D.BOOL),
    **dict.fromkeys(("arg_max", "arg_min"), REAL),
    **dict.fromkeys(("amax", "amin", "max_dim", "min_dim", "log_sum_exp"), (*REAL, D.BOOL)),
    **dict.fromkeys((*SPREADS, "norm"), FLOATING),
    **dict.fromkeys(("cumsum", "cumprod"), (*REAL, *COMPLEX)),
    "linalg_vector_norm": TRAINED,
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "reduce_sum": lambda a: a["self"].any(1) if a["self"].dtype == torch.bool else a["self"].sum(1).to(a["self"].dtype),
    "mean": lambda a: _mean(a["self"]),
    "min": lambda a: a["self"].min(),
    "max": lambda a: a["self"].max(),
    "linalg_vector_norm": lambda a: torch.linalg.vector_norm(a["self"], 2, -1, keepdim=True),
    "arg_max": lambda a: a["self"].argmax(-1),
    "arg_min": lambda a: a["self"].argmin(-1),
    "amax": lambda a: a["self"].amax(1),
    "amin": lambda a: a["self"].amin(1),
    "any": lambda a: a["self"].any(-2, keepdim=True),
    "all": lambda a: a["self"].all(-2, keepdim=True),
    "max_dim": lambda a: tuple(a["self"].max(-1)),
    "min_dim": lambda a: tuple(a["self"].min(-1)),
    "log_sum_exp": lambda a: wide(a["self"]).logsumexp(1, keepdim=True),
    "norm": lambda a: wide(a["self"]).norm(1.5, 1),
    "std": lambda a: wide(a["self"]).std(1),
    "var_correction": lambda a: wide(a["self"]).var(1),
    "std_mean_correction": lambda a: torch.std_mean(wide(a["self"]), 1),
    "var_mean": lambda a: torch.var_mean(wide(a["self"]), 1),
    "prod": lambda a: a["self"].all() if a["self"].dtype == torch.bool else a["self"].prod(dtype=a["self"].dtype),
    "prod_dim": lambda a: (
        a["self"].all(0) if a["self"].dtype == torch.bool else a["self"].prod(0, dtype=a["self"].dtype)
    ),
    "cumsum": lambda a: a["self"].cumsum(1, dtype=a["self"].dtype),
    "cumprod": lambda a: a["input"].cumprod(0, dtype=a["input"].dtype),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {each: {"shape": (0,)} for each in [p.name for p in BY_NAME[name].parameters if p.kind is Kind.OUTPUT]}
        for name in ("arg_max", "arg_min", "amax", "amin", "max_dim", "min_dim", "norm", *SPREADS)
    },
    **{name: {"out": {"shape": (1, 3)}} for name in ("any", "all")},
    "log_sum_exp": {"out": {"shape": (0, 1)}},
    "reduce_sum": {"out": {"shape": (0,)}},
    "mean": {"dim": (-1,), "out": {"shape": (0, 1)}},
    "prod": {"out": {"shape": ()}},
    "prod_dim": {"out": {"shape": (3,)}},
    "linalg_vector_norm": {"out": {"shape": (0, 1)}},
}

BREAKS: Mapping[str, Breaking] = {
    "data type dtype": lambda o, name: Break(
        dtype(D.FLOAT16 if o.name == "linalg_vector_norm" else D.DOUBLE, name), "ACL_FLOAT"
    ),
    "converts to dtype": lambda o, name: Break({"dtype": D.INT32}, "converts to ACL_INT32"),
    "dimensions of self, each once": lambda o, name: Break({name: (1, -1)}, "each dimension once"),
    "reduced shape": lambda o, name: Break(shape((3, 2), name), "shape ["),
    "dimension": lambda o, name: Break({name: scalar(D.INT64, 2) if name == "axis" else 2}, "from -2 to 1"),
    "FLOAT or that of self": lambda o, name: Break({name: D.BF16} | dtype(D.BF16, "out"), "ACL_FLOAT"),
    "known order": lambda o, name: Break({name: scalar(D.FLOAT, 4)}, "2, 3"),
}


class TestReduction(LibraryTests):
    subject = Subject(
        reduction.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS
    )


@pytest.mark.parametrize(("name", "expected"), [("reduce_sum", 0.0), ("mean", math.nan)])
def test_a_reduction_of_nothing_is_written(name: str, expected: float) -> None:
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
