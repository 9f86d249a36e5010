"""Functions of one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import unary
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    ALL,
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
    described,
    first,
    precise,
    torch,
    wide,
)
from tests.helpers.library import BREAKS as SHARED

#: Functions of one number by their names, which are PyTorch's, with the data types of their arguments.
ELEMENTARY: Mapping[str, tuple[D, ...]] = {
    "exp": (*FLOATING, D.INT64, D.BOOL, *COMPLEX),
    "expm1": (*TRAINED, D.INT64, D.BOOL),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "sin", "cos"), ALL),
    **dict.fromkeys(("log1p", "atan"), (*REAL, D.BOOL)),
    "erf": (*FLOATING, D.INT64, D.BOOL),
    "tanh": (*TRAINED, *INTEGERS, D.BOOL),
    **dict.fromkeys(("tan", "sinh", "cosh", "asinh", "acosh", "atanh"), (D.FLOAT, D.BF16, D.INT32, D.COMPLEX64)),
    **dict.fromkeys(("asin", "acos", "exp2", "sinc", "erfc", "erfinv"), (D.FLOAT, D.FLOAT16, D.BOOL)),
}


#: Those whose results have the type of their arguments.
OF_ONE_TYPE: Mapping[str, tuple[D, ...]] = {
    "ceil": FLOATING,
    "floor": REAL,
    "round": (*FLOATING, D.INT32, D.INT64),
    "trunc": TRAINED,
    "sign": (*FLOATING, D.INT32, D.INT64, D.BOOL, *COMPLEX),
    "square": (*TRAINED, D.INT32, D.INT64),
    "bitwise_not": (*INTEGERS, D.BOOL),
    "frac": (D.FLOAT, D.BF16),
    "reciprocal": (*FLOATING, *COMPLEX),
    "logical_not": (*REAL, D.BOOL),
}


ROUNDED = ("round_decimals", "inplace_round_decimals")
NAN = ("nan_to_num", "inplace_nan_to_num")

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "abs": lambda d: {"out": T(D.FLOAT if d == D.COMPLEX64 else d, GRID)},
    "real": lambda d: {"out": T({D.COMPLEX64: D.FLOAT, D.COMPLEX128: D.DOUBLE}.get(d, d), GRID)},
    **{
        name: lambda d: {"out": T(d if d in (*FLOATING, *COMPLEX) else D.FLOAT, GRID)}
        for name in (*ELEMENTARY, "reciprocal")
    },
    **{name: lambda d: {"decimals": -1 if d in INTEGERS else 1} for name in ROUNDED},
    "angle_v2": lambda d: {"out": T(d if d in TRAINED else D.FLOAT, GRID)},
    **{name: lambda d: {"nan": 1.5, "posinf": 7.0, "neginf": -2.0} for name in NAN},
    "sqrt": lambda d: {"out": T(D.DOUBLE if d == D.INT64 else d if d in (*FLOATING, *COMPLEX) else D.FLOAT, GRID)},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "abs": (*REAL, D.COMPLEX64),
    "real": (*COMPLEX, D.FLOAT16),
    **dict.fromkeys(NAN, (*TRAINED, D.INT32)),
    **dict.fromkeys(ROUNDED, (*FLOATING, D.INT32, D.INT64)),
    "angle_v2": (*TRAINED, *INTEGERS, D.BOOL, D.COMPLEX64),
    **ELEMENTARY,
    **{
        f"inplace_{name}": tuple(d for d in dtypes if d in (*FLOATING, *COMPLEX)) for name, dtypes in ELEMENTARY.items()
    },
    **{f"{where}{name}": dtypes for name, dtypes in OF_ONE_TYPE.items() for where in ("", "inplace_")},
    "reciprocal": ALL,
    "tanh_backward": FLOATING,
    **dict.fromkeys(("neg", "inplace_neg"), (*FLOATING, D.INT8, D.INT32, D.INT64, *COMPLEX)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "abs": lambda a: a["self"].abs(),
    **{name: lambda a: first(a).nan_to_num(1.5, 7.0, -2.0) for name in NAN},
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(precise(first(a)))
        for name in (*ELEMENTARY, "reciprocal")
        for where in ("", "inplace_")
    },
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(first(a))
        for name in OF_ONE_TYPE
        if name not in ("reciprocal", "sign", "round")
        for where in ("", "inplace_")
    },
    **{
        # PyTorch rounds no integers.
        name: lambda a: (
            first(a).float().round(decimals=1)
            if first(a).dtype.itemsize == 2
            else first(a).round(decimals=1)
            if first(a).is_floating_point()
            else (first(a) / 10).round() * 10
        )
        for name in ROUNDED
    },
    "angle_v2": lambda a: precise(a["x"]).angle(),
    "sign": lambda a: a["self"].sgn(),
    **dict.fromkeys(("round", "inplace_round"), lambda a: first(a).double().round()),
    "tanh_backward": lambda a: torch.ops.aten.tanh_backward(wide(a["gradOutput"]), wide(a["output"])),
    **dict.fromkeys(("neg", "inplace_neg"), lambda a: -first(a)),
    "real": lambda a: a["self"].real,
    "sqrt": lambda a: (a["self"].double() if a["self"].dtype == torch.int64 else a["self"]).sqrt(),
}

BREAKS: Mapping[str, Breaking] = {
    "same shape as x": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "data type … (of the real part of self)": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "data type … (of the absolute value of self)": lambda o, name: Break(dtype(D.COMPLEX64, "self", name), "ACL_FLOAT"),
    "no private format": lambda o, name: SHARED["no private format"](o, name)._replace(product=Product.ASCEND_950),
    "broadcasts with gradOutput": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of gradOutput and output": lambda o, name: Break(shape((4, 2, 3), name), "shape [2, 3]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if operator in NAN and array.dtype.kind != "i":
        return np.array([[np.nan, 1, np.inf], [2, -np.inf, 0]])
    if np.iscomplexobj(array):
        return array
    if operator.endswith(("asin", "acos", "atanh", "erfinv")):
        return np.sin(array.astype(np.float64))
    return np.abs(array) if operator.endswith(("sqrt", "log", "log2", "log10", "log1p")) else array


class TestUnary(LibraryTests):
    subject = Subject(
        unary.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, numbers=numbers, breaks=BREAKS
    )


def test_integers_are_rounded_to_the_even_multiple_of_a_power_of_ten() -> None:
    x = np.array([15, 25, -25, -35, 24, 26, 2**62], np.int64)
    out = Placed(x, "contiguous")
    prepare(BY_NAME["inplace_round_decimals"], {"selfRef": out.tensor, "decimals": -1}, Product.ATLAS_A2).run()
    assert out.view.tolist() == [20, 20, -20, -40, 20, 30, round(2**62, -1)]
    prepare(BY_NAME["inplace_round_decimals"], {"selfRef": out.tensor, "decimals": -40}, Product.ATLAS_A2).run()
    assert not out.view.any()


def test_the_angle_of_nan_is_nan_and_that_of_negative_zero_is_0() -> None:
    x, out = (
        Placed(np.array([np.nan, -0.0, -1], np.float32), "contiguous"),
        Placed(np.ones(3, np.float32), "contiguous"),
    )
    prepare(BY_NAME["angle_v2"], {"x": x.tensor, "out": out.tensor}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.array([np.nan, 0, np.pi], np.float32))


def test_integers_are_rounded_to_themselves() -> None:
    """NumPy's function made them float64."""
    x = np.array([2**53 + 1, -(2**62) - 1], np.int64)
    assert computed("round", {"self": x, "out": x * 0})["out"].tolist() == x.tolist()


@pytest.mark.parametrize("name", ["acos", "asin", "atan", "log1p"])
def test_no_complex_number_is_a_result_of_a_real_function(name: str) -> None:
    call = described({"self": T(D.FLOAT, GRID), "out": T(D.COMPLEX64, GRID)})
    with pytest.raises(AclnnError, match="out: expected data type"):
        prepare(BY_NAME[name], call, Product.ATLAS_A2)


def test_contiguous_truth_values_may_have_more_than_eight_dimensions() -> None:
    x = np.array([0.0, 2.0], np.float32).reshape((1,) * 8 + (2,))
    assert computed("logical_not", {"self": x, "out": np.zeros(x.shape, bool)})["out"].ravel().tolist() == [True, False]
    assert computed("inplace_logical_not", {"selfRef": x})["selfRef"].ravel().tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [D.INT64, D.BOOL])
def test_expm1_rejects_integers_on_ascend_950(dtype: D) -> None:
    call = {"self": Tensor(dtype, (2,)), "out": Tensor(D.FLOAT, (2,))}
    assert prepare(BY_NAME["expm1"], call, Product.ATLAS_A2).prepared.plan
    with pytest.raises(AclnnError, match="self: expected data type ACL_FLOAT, ACL_FLOAT16 or ACL_BF16"):
        prepare(BY_NAME["expm1"], call, Product.ASCEND_950)


def test_frac_rejects_integers_on_ascend_950() -> None:
    x = np.array([-3, 0, 120], np.int8)
    for name, arguments in (("trunc", {"self": x, "out": x * 0}), ("inplace_trunc", {"selfRef": x})):
        found = computed(name, arguments, Product.ASCEND_950)
        assert [*found.values()][-1].tolist() == x.tolist()
        with pytest.raises(AclnnError, match="expected data type ACL_FLOAT"):
            computed(name, arguments)
