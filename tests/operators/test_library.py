"""Library-backed operators: every check has a call that breaks it, every value is PyTorch's."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases.table import (
    GRID,
    INVALID,
    MODERN,
    NINE,
    NO_KERNEL,
    NULL,
    PRODUCTS,
    Arguments,
    T,
    changed,
    dtype,
    shape,
)

from aclnn.capi import operators as entries
from aclnn.capi.prototype import CALLS, FUNCTIONS
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare, prepare_layouts
from aclnn.kernels.numpy_plans import convert
from aclnn.operators import BY_NAME as OPERATOR_BY_NAME
from aclnn.operators.library import LIBRARY_OPERATORS

torch: Any = pytest.importorskip("torch", reason="PyTorch is the reference of the library-backed operators")

BY_NAME = {operator.name: operator for operator in LIBRARY_OPERATORS}
FLOATING = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)
INTEGERS = (D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64)
COMPLEX = (D.COMPLEX64, D.COMPLEX128)
REAL = (*FLOATING, *INTEGERS)
ALL = (*REAL, D.BOOL, *COMPLEX)

every_operator = pytest.mark.parametrize("operator", LIBRARY_OPERATORS, ids=lambda operator: operator.name)


def scalar(dtype: D, value: Any) -> Scalar:
    return Scalar(dtype, np.asarray(value).astype(dtype.numpy).tobytes())


def number_of(dtype: D) -> Scalar:
    """A scalar as PyTorch gives one beside a tensor of that type."""
    if dtype == D.BOOL:
        return scalar(D.BOOL, True)
    return scalar(D.INT64, 3) if dtype in INTEGERS else scalar(D.DOUBLE, 2.5)


#: What a valid call has beyond tensors of one type and shape.
SPECIAL: Mapping[str, Callable[[D], Arguments]] = {
    "cast": lambda d: {"dtype": D.FLOAT, "out": T(D.FLOAT, GRID)},
    "reduce_sum": lambda d: {"dims": (1,), "keepDims": False, "dtype": d, "out": T(d, GRID[:1])},
    "mean": lambda d: {"dim": (-2,), "keepDim": True, "dtype": d, "out": T(d, (1, *GRID[1:]))},
    "min": lambda d: {"out": T(d, ())},
    "max": lambda d: {"out": T(d, (1,))},
    "abs": lambda d: {"out": T(D.FLOAT if d == D.COMPLEX64 else d, GRID)},
    "masked_select": lambda d: {"mask": T(D.BOOL, GRID), "out": T(d, (math.prod(GRID),))},
    "div": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    "divs": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    "cat": lambda d: {"tensors": (T(d, (2, 1)), T(d, (0,)), T(d, (2, 2))), "dim": -1, "out": T(d, GRID)},
    **{
        name: lambda d: {"out": T(D.BOOL, GRID)}
        for name in ("ne_tensor", "ne_scalar", "gt_scalar", "lt_scalar", "is_finite")
    },
}

#: The data types of valid calls where these are not all.
DTYPES: Mapping[str, tuple[D, ...]] = {
    "inplace_div": (*FLOATING, *COMPLEX),
    "inplace_divs": (*FLOATING, *COMPLEX),
    "inplace_one": (*REAL, D.BOOL),
    "mean": (*REAL, *COMPLEX),
    "min": (*REAL, D.BOOL),
    "max": (*REAL, D.BOOL),
    "abs": (*REAL, D.COMPLEX64),
    "ceil": FLOATING,
    "gt_scalar": (*REAL, D.BOOL),
    "lt_scalar": (*REAL, D.BOOL),
    "is_finite": (*REAL, D.BOOL),
    "bitwise_and_tensor": (*INTEGERS, D.BOOL),
    "bitwise_and_scalar": (*INTEGERS, D.BOOL),
    "masked_select": (*REAL, D.BOOL),
    "cat": (*REAL, D.BOOL, D.COMPLEX64),
    # PyTorch subtracts no booleans.
    **dict.fromkeys(("sub", "inplace_sub", "subs", "inplace_subs"), (*REAL, *COMPLEX)),
}

#: PyTorch's answer: from tensors, numbers and attributes by C name.
REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "add": lambda a: torch.add(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_add": lambda a: torch.add(a["selfRef"], a["other"], alpha=a["alpha"]),
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
    "cast": lambda a: a["self"].real.to(torch.float32),
    "inplace_copy": lambda a: a["src"],
    "inplace_fill_scalar": lambda a: torch.full_like(a["selfRef"], a["value"]),
    "inplace_one": lambda a: torch.ones_like(a["selfRef"]),
    "inplace_zero": lambda a: torch.zeros_like(a["selfRef"]),
    "reduce_sum": lambda a: a["self"].any(1) if a["self"].dtype == torch.bool else a["self"].sum(1).to(a["self"].dtype),
    "mean": lambda a: _mean(a["self"]),
    "min": lambda a: a["self"].min(),
    "max": lambda a: a["self"].max(),
    "abs": lambda a: a["self"].abs(),
    "ceil": lambda a: a["self"].ceil(),
    "ne_tensor": lambda a: a["self"] != a["other"],
    "ne_scalar": lambda a: a["self"] != a["other"],
    "gt_scalar": lambda a: a["self"] > a["other"],
    "lt_scalar": lambda a: a["self"] < a["other"],
    "is_finite": lambda a: a["self"].isfinite(),
    "bitwise_and_tensor": lambda a: a["self"] & a["other"],
    "bitwise_and_scalar": lambda a: a["self"] & a["other"],
    "masked_select": lambda a: torch.masked_select(a["self"], a["mask"]),
    "cat": lambda a: torch.cat(a["tensors"], -1),
}


def _mean(values: Any) -> Any:
    if values.is_floating_point() or values.is_complex():
        return values.mean(0, keepdim=True)
    return torch.div(values.sum(0, keepdim=True, dtype=values.dtype), values.shape[0], rounding_mode="floor")


def valid(operator: Operator, dtype: D) -> Arguments:
    common: Arguments = {}
    for parameter in operator.parameters:
        common[parameter.name] = number_of(dtype) if parameter.kind is Kind.SCALAR else T(dtype, GRID)
    return common | SPECIAL.get(operator.name, lambda d: {})(dtype)


def dtypes_of(operator: Operator) -> tuple[D, ...]:
    return DTYPES.get(operator.name, ALL)


def described(arguments: Arguments) -> dict[str, Any]:
    return {name: _described(value) for name, value in arguments.items()}


def _described(value: Any) -> Any:
    if isinstance(value, T):
        return Tensor(value.dtype, value.shape, format=value.format)
    return tuple(map(_described, value)) if type(value) is tuple else value


# What breaks a check, by its title: from the operator, a valid call and an argument that the check names.


class Break(NamedTuple):
    change: Mapping[str, Any]
    expected: str
    dtype: D | None = None
    """Of the valid call; None for any."""
    product: Product = Product.ATLAS_A2


def _tensors(operator: Operator) -> list[str]:
    return [p.name for p in operator.parameters if p.is_tensor]


def _of_type(operator: Operator, name: str, new: D) -> Mapping[str, Any]:
    kind = operator.parameter(name).kind
    if kind is Kind.DTYPE:
        return {name: new}
    return {name: Scalar(new, bytes(16))} if kind is Kind.SCALAR else dtype(new, name)


BREAKS: Mapping[str, Callable[[Operator, str], Break]] = {
    "present": lambda o, name: Break({name: None}, "an object"),
    "data type": lambda o, name: Break(
        dtype(D.STRING, "self", "out") if o.name == "ceil" else _of_type(o, name, D.STRING), "data type"
    ),
    "data type dtype": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "data type ACL_BOOL": lambda o, name: Break(dtype(D.UINT8, name), "ACL_BOOL"),
    "data type of the absolute value": lambda o, name: Break(dtype(D.COMPLEX64, "self", name), "ACL_FLOAT"),
    "same data type as self": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "promotable": lambda o, name: _unpromotable(o, name),
    "converts to the result's data type": lambda o, name: Break(
        {name: scalar(D.FLOAT, 1)}, "converts to ACL_INT32", D.INT32
    ),
    "converts to dtype": lambda o, name: Break({"dtype": D.INT32}, "converts to ACL_INT32"),
    "holds the result": lambda o, name: _too_narrow(o, name),
    "at most 8 dimensions": lambda o, name: Break(_nine(o, name), "at most 8 dimensions"),
    "same shape as self": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcasts with self": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcasts with selfRef": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of self and other": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "broadcast shape of selfRef and other": lambda o, name: Break(shape((4, 2, 3), "other"), "shape [4, 2, 3]"),
    "broadcast shape of selfRef and src": lambda o, name: Break(shape((4, 2, 3), "src"), "shape [4, 2, 3]"),
    "no private format": lambda o, name: Break(
        {each: {"format": Format.FORMAT_FRACTAL_NZ} for each in ((name, "out") if o.name == "abs" else (name,))},
        "ACL_FORMAT_ND",
    ),
    "same format as self": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "format ACL_FORMAT_ND"),
    "dimensions of self, each once": lambda o, name: Break({name: (1, -1)}, "each dimension once"),
    "reduced shape": lambda o, name: Break(shape((3, 2), name), "shape ["),
    "one element": lambda o, name: Break(shape((2,), name), "one element"),
    "no null among them": lambda o, name: Break({name: (T(D.FLOAT, GRID), None)}, "an object"),
    "data type of each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.STRING, GRID))}, "data type"),
    "promotable to one": lambda o, name: Break({name: (T(D.DOUBLE, GRID), T(D.COMPLEX64, GRID))}, "promote to one"),
    "one public format": lambda o, name: Break(
        {"out": {"format": Format.FORMAT_NCHW}}
        if name == "out"
        else {name: (T(D.FLOAT, GRID, Format.FORMAT_FRACTAL_NZ),)},
        "format ACL_FORMAT_ND" if name == "out" else "ACL_FORMAT_ND",
    ),
    "at most 8 dimensions each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, NINE))}, "at most 8"),
    "dimension of the tensors": lambda o, name: Break({name: 2}, "one of the 2 dimensions"),
    "same shape but for dim": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (3, 3)))}, "shape [2, 3]"),
    "shape of the tensors together": lambda o, name: Break(shape((2, 4), name), "shape [2, 3]"),
    "size of self and mask": lambda o, name: Break(shape((5,), name), "shape [6]"),
}


def _unpromotable(operator: Operator, name: str) -> Break:
    if operator.parameter(name).kind is Kind.SCALAR and D.STRING not in operator.support[Product.ATLAS_A2]:
        listed = any(check.name.startswith("data type") and name in check.name for check in operator.checks)
        return Break(_of_type(operator, name, D.UINT16 if listed else D.HIFLOAT8), "promotes with", D.INT32)
    return Break(_of_type(operator, name, D.UINT16), "promotes with", D.INT32)


def _too_narrow(operator: Operator, name: str) -> Break:
    if operator.name.startswith("bitwise"):
        return Break(dtype(D.BOOL, name), "ACL_INT", D.INT32)
    if operator.name == "mean":
        return Break(dtype(D.INT32, name), "ACL_FLOAT")
    if name != "selfRef":
        product = Product.ASCEND_950 if operator.name == "muls" else Product.ATLAS_A2
        return Break(dtype(D.INT32, name), "ACL_FLOAT", D.FLOAT, product)
    if operator.name == "inplace_divs":
        return Break({}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    if operator.parameter("other").kind is Kind.SCALAR:
        return Break({"other": scalar(D.FLOAT, 1)}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    return Break(dtype(D.FLOAT, "other"), "ACL_FLOAT", D.INT32)


def _nine(operator: Operator, name: str) -> Mapping[str, Any]:
    # Where the shapes are compared before, all have as many.
    compared = operator.name in ("muls", "ceil", "inplace_add", "inplace_sub")
    return shape(NINE, *(_tensors(operator) if compared else [name]))


def rows() -> Iterator[Any]:
    for operator in LIBRARY_OPERATORS:
        for check in operator.checks:
            title, _, listed = check.name.partition(": ")
            names = [name for name in listed.partition(" (")[0].split(", ") if name]
            if title == "promotable":
                names = names[1:]
            if check.name.startswith("at most 8") and operator.name in ("inplace_add", "inplace_sub"):
                names = names[:1]
            for name in names:
                yield pytest.param(operator, check, title, name, id=f"{operator.name}-{title}-{name}")


@pytest.mark.parametrize(("operator", "check", "title", "name"), [*rows()])
def test_every_check_refuses(operator: Operator, check: Any, title: str, name: str) -> None:
    broken = BREAKS[title](operator, name)
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    arguments = described(changed(valid(operator, broken.dtype or default), broken.change))
    call = Call(operator, arguments, broken.product)
    first = next(each for each in operator.checks if each.complaint(call) is not None)
    assert first is check
    with pytest.raises(AclnnError) as caught:
        prepare(operator, arguments, broken.product)
    function, argument, text = caught.value.message.split(": ", 2)
    expected, got = text.rsplit(", got ", 1)
    code = NULL if title in ("present", "no null among them") else INVALID
    assert (caught.value.code, function) == (code, operator.function)
    # A relation is told of one of the arguments.
    assert argument.partition("[")[0] == name or title in ("converts to dtype", "data type")
    assert expected.startswith("expected ")
    assert broken.expected in expected
    assert got


@every_operator
def test_products_without_a_kernel_refuse_after_all_checks(operator: Operator) -> None:
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    for product in PRODUCTS:
        arguments = described(valid(operator, default))
        if product in operator.support:
            prepare(operator, arguments, product)
            continue
        with pytest.raises(AclnnError, match="product with a kernel") as caught:
            prepare(operator, arguments, product)
        assert caught.value.code == NO_KERNEL
        with pytest.raises(AclnnError, match="got null"):
            prepare(operator, arguments | {operator.parameters[0].name: None}, product)


@every_operator
def test_bfloat16_is_refused_where_the_product_lacks_it(operator: Operator) -> None:
    for product in set(operator.support) - set(MODERN):
        if D.BF16 in dtypes_of(operator):
            with pytest.raises(AclnnError) as caught:
                prepare(operator, described(valid(operator, D.BF16)), product)
            assert caught.value.code == INVALID


def values(dtype: D, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype == D.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return random.integers(1 if dtype == D.UINT8 else -9, 10, shape).astype(dtype.numpy)
    found = random.normal(size=shape) * 3
    if dtype in COMPLEX:
        found = found + 1j * random.normal(size=shape)
    return found.astype(dtype.numpy)


def to_torch(array: np.ndarray[Any, Any]) -> Any:
    array = np.asarray(array)
    if array.dtype == D.BF16.numpy:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)


class Placed:
    """A view in the middle of memory whose other bytes must stay: strides forwards, backwards, with holes."""

    def __init__(self, array: np.ndarray[Any, Any], layout: str) -> None:
        shape, itemsize = array.shape, array.dtype.itemsize
        self.memory = np.full(array.size * 4 * itemsize + 64 * itemsize, 0xA5, np.uint8)
        flat = self.memory.view(array.dtype)[16:]
        if layout == "contiguous" or not shape:
            self.view = flat[: array.size].reshape(shape)
        elif layout == "transposed":
            self.view = flat[: array.size].reshape(shape[::-1]).T
        else:
            self.view = flat[: array.size * 2].reshape(*shape[:-1], -1)[..., ::-2]
        self.view[...] = array
        self.tensor = Tensor(
            D.of_numpy(array.dtype),
            shape,
            [stride // itemsize for stride in self.view.strides],
            address=self.view.__array_interface__["data"][0],
            owner=self.memory,
        )
        self._outside = np.ones(self.memory.size, bool)
        at = self.tensor.address - self.memory.ctypes.data
        for index in itertools.product(*map(range, shape)):
            begin = at + sum(i * s for i, s in zip(index, self.view.strides, strict=True))
            self._outside[begin : begin + itemsize] = False
        self._before = self.memory.copy()

    def untouched_outside(self) -> bool:
        return bool((self.memory == self._before)[self._outside].all())


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed with holes"])
@every_operator
def test_values_are_pytorchs(operator: Operator, layout: str) -> None:
    random = np.random.default_rng(7)
    for d in dtypes_of(operator):
        arguments, expected_of, placed = {}, {}, {}
        for name, value in valid(operator, d).items():
            if isinstance(value, T):
                array = values(value.dtype, value.shape, random)
                if name == "other" and operator.name in ("add", "mul", "ne_tensor", "bitwise_and_tensor"):
                    array = array[:1]  # broadcast
                placed[name] = Placed(array, "contiguous" if operator.name == "masked_select" else layout)
                arguments[name], expected_of[name] = placed[name].tensor, to_torch(array)
            elif operator.name == "cat" and name == "tensors":
                arrays = [values(each.dtype, each.shape, random) for each in value]
                kept = [Placed(array, layout if array.ndim > 1 else "contiguous") for array in arrays]
                placed |= {f"{name}[{at}]": each for at, each in enumerate(kept)}
                arguments[name] = tuple(each.tensor for each in kept)
                expected_of[name] = [to_torch(array) for array in arrays]
            else:
                arguments[name] = value
                expected_of[name] = value.value.item() if isinstance(value, Scalar) else value
        (output,) = operator.outputs
        expected = REFERENCES[operator.name](expected_of)
        prepare(operator, arguments, Product.ATLAS_A2).run()
        out = placed[output.name]
        got = out.view[tuple(map(slice, arguments[output.name].shape))]
        wanted = expected.to(torch.complex128 if expected.is_complex() else torch.float64).numpy()
        # One rounding of each; PyTorch fuses some products and sums of float32, and rounds alpha to the type before.
        unit = {D.FLOAT: 2.0**-22, D.FLOAT16: 2.0**-9, D.BF16: 2.0**-6, D.COMPLEX64: 2.0**-20}
        tolerance = unit.get(d, 2.0**-22 if "div" in operator.name and d in INTEGERS else 2.0**-50)
        tolerance = tolerance if d in (*FLOATING, *COMPLEX) or "div" in operator.name else 0
        np.testing.assert_allclose(
            got.astype(wanted.dtype).reshape(wanted.shape), wanted, rtol=tolerance, atol=tolerance, err_msg=d.c_name
        )
        assert all(each.untouched_outside() for each in placed.values()), d


@every_operator
def test_empty_tensors_are_nothing_to_do(operator: Operator) -> None:
    empty = {name: {"shape": (0, 3)} for name in _tensors(operator)}
    if operator.name == "cat":
        empty["tensors"] = (T(D.FLOAT, (0,)), T(D.FLOAT, (0,)))
    if operator.name == "masked_select":
        empty["out"] = {"shape": (0,)}
    if operator.name in ("reduce_sum", "mean"):
        empty["out"] = {"shape": (3,) if operator.name == "mean" else (0,)}
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    executor = prepare(operator, described(changed(valid(operator, default), empty)), Product.ATLAS_A2)
    if operator.name != "mean":
        executor.run()


def test_tensors_of_several_types_are_joined_in_the_promoted_one() -> None:
    parts = [Placed(np.array([1, 2], np.int32), "contiguous"), Placed(np.array([0.5], np.float32), "contiguous")]
    out = Placed(np.zeros(3, np.float32), "contiguous")
    arguments = {"tensors": tuple(part.tensor for part in parts), "dim": 0, "out": out.tensor}
    prepare(BY_NAME["cat"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, [1, 2, 0.5])


@pytest.mark.parametrize(("name", "expected"), [("reduce_sum", 0.0), ("mean", math.nan)])
def test_a_reduction_of_nothing_is_written(name: str, expected: float) -> None:
    out = Placed(np.ones((3,), np.float32), "contiguous")
    dims = {"reduce_sum": {"dims": (0,), "keepDims": False}, "mean": {"dim": (0,), "keepDim": False}}[name]
    arguments = {"self": Tensor(D.FLOAT, (0, 3)), **dims, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.full(3, expected, np.float32))


def test_numpy_is_not_given_addresses_of_a_gpu() -> None:
    operator = OPERATOR_BY_NAME["gelu_backward"]
    arguments = {p.name: Tensor(D.FLOAT, GRID) for p in operator.parameters} | {"gradOutput": Tensor(D.INT32, GRID)}
    with pytest.raises(AclnnError, match="expected the CPU as the device") as caught:
        prepare_layouts(operator, arguments, Product.ATLAS_A2, device="cuda")
    assert caught.value.code == NO_KERNEL


def test_inputs_that_overlap_the_output_are_read_first() -> None:
    memory = np.arange(9, dtype=np.float32)
    at = memory.__array_interface__["data"][0]
    first = Tensor(D.FLOAT, (8,), address=at, owner=memory)
    second = Tensor(D.FLOAT, (8,), address=at + 4, owner=memory)
    arguments = {"self": first, "other": second, "alpha": scalar(D.FLOAT, 1), "out": second}
    prepare(BY_NAME["add"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(memory, [0, 1, 3, 5, 7, 9, 11, 13, 15])


def test_sums_of_sixteen_bits_are_rounded_once() -> None:
    ones = np.ones((2, 70_000), np.float16)
    tensor = Tensor(D.FLOAT16, ones.shape, address=ones.__array_interface__["data"][0], owner=ones)
    out = Placed(np.zeros(2, np.float32), "contiguous")
    mean = {"self": tensor, "dim": (1,), "keepDim": False, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME["mean"], mean, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, 1)


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


def test_a_scalar_takes_the_tensors_type_before_it_is_used() -> None:
    """A float16 times 0.1 is a float16 times the float16 nearest to 0.1 on Atlas A2, the float32 on Ascend 950."""
    x = np.array([3.0], np.float16)
    for product, factor in ((Product.ATLAS_A2, np.float16(0.1)), (Product.ASCEND_950, np.float32(0.1))):
        out = Placed(np.zeros(1, np.float32), "contiguous")
        self = Tensor(D.FLOAT16, (1,), address=x.__array_interface__["data"][0], owner=x)
        prepare(BY_NAME["muls"], {"self": self, "other": scalar(D.DOUBLE, 0.1), "out": out.tensor}, product).run()
        exact = np.float32(3) * np.float32(factor)
        assert out.view[0] == (exact if product is Product.ASCEND_950 else np.float32(np.float16(exact)))


@given(
    st.lists(st.one_of(st.floats(width=32), st.sampled_from([2.0**31, -(2.0**31), 2.0**63, -(2.0**63)])), min_size=1),
    st.sampled_from([D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64, D.UINT16, D.UINT32, D.UINT64]),
)
def test_floating_numbers_become_integers_by_truncation_within_the_range(numbers: list[float], target: D) -> None:
    limits = np.iinfo(target.numpy)
    expected = [
        0
        if math.isnan(x)
        else min(max(math.trunc(x) if math.isfinite(x) else math.copysign(2**70, x), limits.min), limits.max)
        for x in numbers
    ]
    got = convert(np.array(numbers, np.float32), target.numpy)
    assert got.dtype == target.numpy
    assert got.tolist() == expected


@pytest.mark.usefixtures("device")
def test_a_selection_tells_its_size_when_phase_two_returns() -> None:
    """Callers look at the view next, without synchronising the stream."""
    from aclnn import cann

    status, stream = cann.aclrtCreateStream()
    n = 100_000
    x, mask = np.arange(n, dtype=np.float32), np.arange(n) % 3 == 0
    handles = []
    for array in (x, mask, np.zeros(n, np.float32)):
        _, memory = cann.aclrtMalloc(array.nbytes, 0)
        assert cann.aclrtMemcpy(memory, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
        number = D.of_numpy(array.dtype)
        handles.append((cann.aclCreateTensor([n], 1, number, None, 0, 2, [n], 1, memory), memory))
    (self, _), (chosen, _), (out, memory) = handles
    status, size, executor = cann.aclnnMaskedSelectGetWorkspaceSize(self, chosen, out)
    assert status == 0
    assert cann.aclnnMaskedSelect(0, size, executor, stream) == 0
    status, dims, rank = cann.aclGetViewShape(out)
    assert (status, dims, rank) == (0, [mask.sum()], 1)
    found = np.zeros(mask.sum(), np.float32)
    assert cann.aclrtMemcpy(found.ctypes.data, found.nbytes, memory, found.nbytes, 2) == 0
    np.testing.assert_array_equal(found, x[mask])
    assert cann.aclrtDestroyStream(stream) == 0


@pytest.mark.usefixtures("device")
def test_an_operator_may_take_lists_and_numbers_of_any_width() -> None:
    """The engine's own promise to operators that are yet to come: lists in and out, int8_t, float, bool."""
    from aclnn import cann

    def work(call: Call) -> Library:
        count = len(call["x"])
        factor = call["factor"] * (-1 if call["negate"] else 1) + call["shift"]
        return Library(
            lambda *tensors: tuple(tensor * factor for tensor in tensors),
            tuple(f"x[{at}]" for at in range(count)),
            tuple(f"y[{at}]" for at in range(count)),
        )

    operator = Operator(
        name="scale_list",
        function="aclnnScaleList",
        summary="Scale.",
        formula="y = x * (+-factor + shift)",
        parameters=(
            Parameter("x", "x", Kind.INPUT_LIST, "tensors"),
            Parameter("factor", "factor", Kind.FLOAT, "factor"),
            Parameter("shift", "shift", Kind.INT8, "shift"),
            Parameter("negate", "negate", Kind.BOOL, "negate"),
            Parameter("y", "y", Kind.OUTPUT_LIST, "results"),
        ),
        support=dict.fromkeys(Product, frozenset({D.FLOAT})),
        checks=(),
        work=work,
    )
    entries._enter_first_phase(operator)
    entries._enter_second_phase(operator)
    try:
        tensors, addresses = [], []
        for rows in (2, 3, 2, 3):
            _, memory = cann.aclrtMalloc(rows * 4, 0)
            ones = np.arange(rows, dtype=np.float32)
            assert cann.aclrtMemcpy(memory, rows * 4, ones.ctypes.data, rows * 4, 1) == 0
            tensors.append(cann.aclCreateTensor([rows], 1, 0, None, 0, 2, [rows], 1, memory))
            addresses.append(memory)
        x, y = cann.aclCreateTensorList(tensors[:2], 2), cann.aclCreateTensorList(tensors[2:], 2)
        status, size, executor = CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, -4, True, y)
        assert status == 0
        assert CALLS["aclnnScaleList"](0, size, executor, None) == 0
        for address, rows in zip(addresses[2:], (2, 3), strict=True):
            found = np.zeros(rows, np.float32)
            assert cann.aclrtMemcpy(found.ctypes.data, rows * 4, address, rows * 4, 2) == 0
            np.testing.assert_array_equal(found, np.arange(rows) * -6.5)
        with pytest.raises(ValueError, match="int8_t"):
            CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, 128, True, y)
    finally:
        for name in ("aclnnScaleList", "aclnnScaleListGetWorkspaceSize"):
            CALLS.pop(name)
            FUNCTIONS.pop(name)
        gc.collect()
