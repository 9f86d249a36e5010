"""Sums, products, quotients, powers, extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import arithmetic
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    FLOATING,
    INTEGERS,
    REAL,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    precise,
    scalar,
    to_torch,
    torch,
)

#: Functions of two operands that exclude complex ones, by PyTorch's name.
OF_TWO = {
    "maximum": "maximum",
    "minimum": "minimum",
    "remainder_scalar_tensor": "remainder",
    **{
        f"{where}{name}": word
        for where in ("", "inplace_")
        for name, word in (
            ("remainder_tensor_tensor", "remainder"),
            ("remainder_tensor_scalar", "remainder"),
            ("fmod_tensor", "fmod"),
            ("fmod_scalar", "fmod"),
            ("floor_divide", "floor_divide"),
            ("floor_divides", "floor_divide"),
        )
    },
}
#: Their second operand is not 0.
ROUNDED = ("div_mod", "inplace_div_mod", "div_mods", "inplace_div_mods")
DIVIDING = (*OF_TWO, *ROUNDED)


def _whole(a: Mapping[str, Any]) -> list[Any]:
    """Two operands; 16-bit ones, for which PyTorch rounds between two steps, as float64."""
    return [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in (first(a), a["other"])]


def _power(base: Any, exponent: Any) -> Any:
    return torch.pow(
        *(
            x if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()) else precise(x)
            for x in (base, exponent)
        )
    )


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "div": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    "divs": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    **{name: lambda d: {"mode": 2 if d in INTEGERS else 1} for name in ROUNDED},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "inplace_div": (*FLOATING, *COMPLEX),
    "inplace_divs": (*FLOATING, *COMPLEX),
    **dict.fromkeys(("maximum", "minimum"), (*REAL, D.BOOL)),
    **{name: tuple(d for d in REAL if d != D.INT16 or "fmod" not in name) for name in DIVIDING[2:]},
    **{
        f"{where}pow_{kind}": (*REAL, *COMPLEX)
        for kind in ("tensor_scalar", "tensor_tensor", "scalar_tensor")
        for where in ("", "inplace_")
    },
    **dict.fromkeys(("rsub", "rsubs"), (*REAL, *COMPLEX)),
    **dict.fromkeys(("add_relu", "inplace_add_relu"), (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS)),
    **dict.fromkeys(("add_v3", "inplace_add_v3"), (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT8)),
    # PyTorch subtracts no booleans.
    **dict.fromkeys(("sub", "inplace_sub", "subs", "inplace_subs"), (*REAL, *COMPLEX)),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "add": lambda a: torch.add(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_add": lambda a: torch.add(a["selfRef"], a["other"], alpha=a["alpha"]),
    **{
        f"{where}add_relu": lambda a: torch.add(first(a), a["other"], alpha=a["alpha"]).clamp(min=0)
        for where in ("", "inplace_")
    },
    "add_v3": lambda a: a["self"] + a["alpha"] * _whole(a | {"self": 0})[1],
    "inplace_add_v3": lambda a: a["selfRef"] + a["alpha"] * _whole(a)[1],
    "adds": lambda a: torch.add(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_adds": lambda a: torch.add(a["selfRef"], a["other"], alpha=a["alpha"]),
    "sub": lambda a: torch.sub(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_sub": lambda a: torch.sub(a["selfRef"], a["other"], alpha=a["alpha"]),
    "subs": lambda a: torch.sub(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_subs": lambda a: torch.sub(a["selfRef"], a["other"], alpha=a["alpha"]),
    "mul": lambda a: a["self"] * a["other"],
    "inplace_mul": lambda a: a["selfRef"] * a["other"],
    "muls": lambda a: a["self"] * a["other"],
    "inplace_muls": lambda a: a["selfRef"] * a["other"],
    "div": lambda a: a["self"] / a["other"],
    "inplace_div": lambda a: a["selfRef"] / a["other"],
    "divs": lambda a: a["self"] / a["other"],
    "inplace_divs": lambda a: a["selfRef"] / a["other"],
    **{name: lambda a, word=word: getattr(torch, word)(*_whole(a)) for name, word in OF_TWO.items()},
    **{name: lambda a: torch.div(*_whole(a), rounding_mode="floor" if a["mode"] == 2 else "trunc") for name in ROUNDED},
    **{name: lambda a: torch.rsub(a["self"], a["other"], alpha=a["alpha"]) for name in ("rsub", "rsubs")},
    **{
        f"{where}pow_{kind}": lambda a: _power(first(a), a["exponent"])
        for kind in ("tensor_scalar", "tensor_tensor", "scalar_tensor")
        for where in ("", "inplace_")
    },
}


def _powered(operator: Operator) -> tuple[str, ...]:
    return operator.parameters[0].name, "exponent"


BREAKS: Mapping[str, Breaking] = {
    "converts to the result's data type": lambda o, name: Break(
        {name: scalar(D.FLOAT, 1)}, "converts to ACL_INT32", D.INT32
    ),
    "same shape as other": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "same shape as exponent": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcast shape of selfRef and exponent": lambda o, name: Break(shape((4, 2, 3), "exponent"), "shape [4, 2, 3]"),
    "broadcast shape of self and exponent": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "no complex numbers are rounded": lambda o, name: Break({name: 1}, "expected 0 for ACL_COMPLEX", D.COMPLEX64),
    "at least 0 for integers": lambda o, name: Break({name: scalar(D.INT64, -1)}, "at least 0", D.INT32),
    "no powers of truth values": lambda o, name: Break(
        {each: {"dtype": D.BOOL} if o.parameter(each).is_tensor else scalar(D.BOOL, True) for each in _powered(o)},
        "another data type than ACL_BOOL",
    ),
    "within the range": lambda o, name: Break(
        {name: scalar(D.DOUBLE, 1e39)}, "the range of ACL_FLOAT", product=Product.ASCEND_950
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "other" and operator in ("add", "mul", "maximum"):
        return array[:1]  # broadcast
    return array + (array == 0) if name == "other" and operator in DIVIDING else array


class TestArithmetic(LibraryTests):
    subject = Subject(
        arithmetic.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, numbers=numbers, breaks=BREAKS
    )


def test_products_of_sixteen_bits_are_not_rounded_before_they_are_added() -> None:
    a, b = np.array([-(1 + 2.0**-9)], np.float16), np.array([1 + 2.0**-10], np.float16)
    tensors = {
        name: Tensor(D.FLOAT16, (1,), address=array.__array_interface__["data"][0], owner=array)
        for name, array in (("self", a), ("other", b))
    }
    out = Placed(np.zeros(1, np.float16), "contiguous")
    alpha = {"alpha": scalar(D.DOUBLE, 1 + 2.0**-10)}
    prepare(BY_NAME["add"], tensors | alpha | {"out": out.tensor}, Product.ATLAS_A2).run()
    assert out.view[0] == 2.0**-20


def test_booleans_and_an_integer_scalar_are_added_as_integers() -> None:
    x, out = np.array([True, False]), Placed(np.zeros(2, np.int64), "contiguous")
    self = Tensor(D.BOOL, (2,), address=x.__array_interface__["data"][0], owner=x)
    scalars = {"other": scalar(D.INT64, 3), "alpha": scalar(D.INT64, 2)}
    for product in (Product.ATLAS_A2, Product.ASCEND_950):
        prepare(BY_NAME["adds"], {"self": self, **scalars, "out": out.tensor}, product).run()
        assert out.view.tolist() == [7, 6]


def test_integers_and_a_scalar_of_sixteen_bits_are_added_as_float32_on_ascend_950() -> None:
    """In float16 the sums were infinite."""
    call = {"self": np.array([100000], np.int32), "other": scalar(D.FLOAT16, 1), "alpha": scalar(D.INT64, 1)}
    found = computed("adds", call | {"out": np.zeros(1, np.float32)}, Product.ASCEND_950)
    assert found["out"].tolist() == [100001]


def test_a_scalar_takes_the_tensors_type_before_it_is_used() -> None:
    """A float16 times 0.1 is a float16 times the float16 nearest to 0.1 on Atlas A2, the float32 on Ascend 950."""
    x = np.array([3.0], np.float16)
    for product, factor in ((Product.ATLAS_A2, np.float16(0.1)), (Product.ASCEND_950, np.float32(0.1))):
        out = Placed(np.zeros(1, np.float32), "contiguous")
        self = Tensor(D.FLOAT16, (1,), address=x.__array_interface__["data"][0], owner=x)
        prepare(BY_NAME["muls"], {"self": self, "other": scalar(D.DOUBLE, 0.1), "out": out.tensor}, product).run()
        exact = np.float32(3) * np.float32(factor)
        assert out.view[0] == (exact if product is Product.ASCEND_950 else np.float32(np.float16(exact)))


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16])
def test_quotients_of_sixteen_bits_are_rounded_before_they_are_truncated(dtype: D) -> None:
    """CANN and PyTorch give the same: 2.9999 becomes 3."""
    values = np.random.default_rng(7).normal(size=(2, 4096)).astype(np.float32) * 100
    a, b = (Placed(each.astype(dtype.numpy), "contiguous") for each in values)
    b.view[:2048] = (a.view[:2048].astype(np.float32) / 3).astype(dtype.numpy)
    out = Placed(np.zeros(4096, dtype.numpy), "contiguous")
    call = {"self": a.tensor, "other": b.tensor, "mode": 1, "out": out.tensor}
    prepare(BY_NAME["div_mod"], call, Product.ASCEND_950).run()
    expected = torch.div(to_torch(a.view), to_torch(b.view), rounding_mode="trunc")
    np.testing.assert_array_equal(out.view.astype(np.float32), expected.float().numpy())
    call |= {"other": scalar(D.DOUBLE, 3)}
    prepare(BY_NAME["div_mods"], call, Product.ASCEND_950).run()
    expected = torch.div(to_torch(a.view), torch.tensor(3.0, dtype=expected.dtype), rounding_mode="trunc")
    np.testing.assert_array_equal(out.view.astype(np.float32), expected.float().numpy())


@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_integer_quotients_have_fractions_without_a_rounding_mode(product: Product) -> None:
    x, out = np.array([7, -7], np.int32), np.zeros(2, np.float32)
    tensors = {"self": x, "other": np.full(2, 2, np.int32), "mode": 0, "out": out}
    assert computed("div_mod", tensors, product)["out"].tolist() == [3.5, -3.5]
    assert computed("div_mods", tensors | {"other": scalar(D.INT64, 2)}, product)["out"].tolist() == [3.5, -3.5]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_booleans_are_divided_as_float32(product: Product, mode: int) -> None:
    x = np.array([True, False])
    call = {"self": x, "other": np.ones(2, bool), "mode": mode, "out": np.zeros(2, np.float32)}
    assert computed("div_mod", call, product)["out"].tolist() == [1, 0]
    assert computed("div_mods", call | {"other": scalar(D.FLOAT, 0.5)}, product)["out"].tolist() == [2, 0]
    if mode == 2:
        del call["mode"]
        assert computed("floor_divide", call, product)["out"].tolist() == [1, 0]
        assert computed("floor_divides", call | {"other": scalar(D.FLOAT, 0.5)}, product)["out"].tolist() == [2, 0]


def test_complex_quotients_are_computed() -> None:
    call = {"self": np.array([4 + 2j], np.complex64), "mode": 0, "out": np.zeros(1, np.complex64)}
    assert computed("div_mod", call | {"other": np.array([2j], np.complex64)})["out"].tolist() == [1 - 2j]
    assert computed("div_mods", call | {"other": scalar(D.DOUBLE, 2)})["out"].tolist() == [2 + 1j]


def test_a_divisor_is_not_rounded_to_sixteen_bits_before_quotients_are_rounded_down() -> None:
    """The float16 nearest to 0.1 goes ten times into 1, the float32 nine times."""
    call = {"self": np.ones(1, np.float16), "other": scalar(D.FLOAT, 0.1), "out": np.zeros(1, np.float16)}
    for product in (Product.ATLAS_A2, Product.ASCEND_950):
        assert computed("floor_divides", call, product)["out"].tolist() == [9]
        assert computed("div_mods", call | {"mode": 2}, product)["out"].tolist() == [9]


@pytest.mark.parametrize("operator", ["div_mod", "div_mods"])
def test_integers_hold_quotients_with_fractions_before_ascend_950_only(operator: str) -> None:
    other = scalar(D.INT64, 2) if operator == "div_mods" else np.full(2, 2, np.int32)
    call = {"self": np.array([7, -7], np.int32), "other": other, "mode": 0, "out": np.zeros(2, np.int32)}
    assert computed(operator, call)["out"].tolist() == [3, -3]
    with pytest.raises(AclnnError, match="out: expected a data type to which ACL_FLOAT"):
        computed(operator, call, Product.ASCEND_950)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", [scalar(D.INT64, 2**63 - 1), scalar(D.COMPLEX64, 1 + 2j)], ids=["large", "complex"])
def test_a_factor_out_of_the_16_bit_range_does_not_warn(alpha: Scalar) -> None:
    x = np.ones(2, np.float16)
    call = {"self": x, "other": scalar(D.INT64, 1), "alpha": alpha, "out": np.zeros(2, np.float32)}
    if alpha.dtype == D.COMPLEX64:
        with pytest.raises(AclnnError, match="alpha: expected a data type that converts to ACL_FLOAT"):
            computed("adds", call, Product.ASCEND_950)
    else:
        assert computed("adds", call, Product.ASCEND_950)["out"].tolist() == [2.0**63] * 2
