"""Tests that every library-backed operator must pass: each check fails for some call, each value is PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from aclnn.core.checks import KERNEL_OF_THE_PRODUCT
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import LISTS, TENSORS, Call, Kind, Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare, run_checks
from aclnn.operators.library import LIBRARY_OPERATORS
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
from tests.helpers.calls import run

Array = np.ndarray[Any, Any]
torch: Any = pytest.importorskip("torch", reason="PyTorch is the reference of the library-backed operators")

BY_NAME = {operator.name: operator for operator in LIBRARY_OPERATORS}
FLOATING = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)
INTEGERS = (D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64)
COMPLEX = (D.COMPLEX64, D.COMPLEX128)
TRAINED = (D.FLOAT, D.FLOAT16, D.BF16)
REAL = (*FLOATING, *INTEGERS)
ALL = (*REAL, D.BOOL, *COMPLEX)
#: One rounding of each, or two: PyTorch fuses some products and sums of float32, and rounds alpha to the type before.
UNITS = {
    D.FLOAT: 2.0**-22,
    D.FLOAT16: 2.0**-9,
    D.BF16: 2.0**-6,
    D.DOUBLE: 2.0**-50,
    D.COMPLEX64: 2.0**-20,
    D.COMPLEX128: 2.0**-50,
}
#: Planes of 5 × 4 in two samples of four channels; a kernel of 3 × 2 for two groups of channels.
IMAGES, KERNELS, FOUND = (2, 4, 5, 4), (6, 2, 3, 2), (2, 6, 2, 5)


def scalar(dtype: D, value: Any) -> Scalar:
    return Scalar(dtype, np.asarray(value).astype(dtype.numpy).tobytes())


def number_of(dtype: D) -> Scalar:
    """Return a scalar of the data type that PyTorch gives one with a tensor of this type."""
    if dtype == D.BOOL:
        return scalar(D.BOOL, True)
    return scalar(D.INT64, 3) if dtype in INTEGERS else scalar(D.DOUBLE, 2.5)


_LARGEST = 2**63 - 1
_FLOATS = (math.nan, math.inf, -math.inf, 1e308, 0.0, -1.0, 2.0)
ANY_NUMBER: Mapping[Kind, Sequence[Any]] = {
    Kind.SCALAR: (
        *(scalar(each, complex(1.0, 1e30)) for each in COMPLEX),
        *(scalar(D.DOUBLE, each) for each in (*_FLOATS, -0.0)),
        *(scalar(each, math.nan) for each in (D.FLOAT, D.FLOAT16, D.BF16)),
        *(scalar(D.INT64, each) for each in (-_LARGEST - 1, 0, _LARGEST)),
        *(scalar(D.BOOL, True), scalar(D.UINT8, 255)),
    ),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _FLOATS),
    Kind.INT64: (-_LARGEST - 1, -1, 0, 1000, _LARGEST),
    Kind.UINT64: (0, 2 * _LARGEST + 1),
    Kind.INT32: (-(2**31), -1, 0, 1000, 2**31 - 1),
    Kind.INT8: range(-128, 128, 51),
    Kind.SCALAR_LIST: ((), *((scalar(each, complex(1.0, 1e30)),) * 2 for each in COMPLEX), (None,)),
    Kind.INT_ARRAY: ((), (0,), (-1,), (0, 0), (2, 3), (-_LARGEST - 1,), (_LARGEST, 2), (2**31, 2**31), (1,) * 9),
    Kind.STRING: ("", "x", "none", "sum"),
    Kind.DTYPE: tuple(D),
}
"""Unusual values of attributes: numbers of any size, arrays of any length, strings and data types."""


def wide(values: Any) -> Any:
    return values.double()


def precise(values: Any) -> Any:
    return values.to(torch.complex128) if values.is_complex() else values.double()


def first(a: Mapping[str, Any]) -> Any:
    """Return the first operand, which in-place functions call ``selfRef``."""
    return a["selfRef"] if "selfRef" in a else a["self"]


def to_torch(array: Array) -> Any:
    array = np.array(array, order="C")
    if array.dtype == D.BF16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype.name.startswith("float8"):
        return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def lerp(start: Any, end: Any, weight: Any) -> Any:
    return torch.lerp(wide(start), wide(end), wide(weight) if isinstance(weight, torch.Tensor) else weight)


def product_of(operator: Operator) -> Product:
    """Return a product that has a kernel for an operator."""
    order = (Product.ATLAS_A2, Product.ASCEND_950, Product.ATLAS_A3, Product.ATLAS_INFERENCE)
    return next((product for product in order if product in operator.support), Product.ASCEND_950)


def no_samples(operator: Operator, call: Arguments) -> Mapping[str, Any]:
    """Return changes that make the first dimension of a call's tensors empty."""
    return {name: {"shape": (0, *call[name].shape[1:])} for name in tensors_of(operator)}


class Placed:
    """A view inside memory whose other bytes must not change: contiguous, transposed, or backwards with gaps."""

    def __init__(self, array: Array, layout: str) -> None:
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
        inside = np.lib.stride_tricks.as_strided(self._outside[at:], (*shape, itemsize), (*self.view.strides, 1))
        inside[...] = False
        self._before = self.memory.copy()

    def untouched_outside(self) -> bool:
        return bool((self.memory == self._before)[self._outside].all())


def tensors_of(operator: Operator) -> list[str]:
    return [p.name for p in operator.parameters if p.is_tensor]


def _of_type(operator: Operator, name: str, new: D) -> Mapping[str, Any]:
    kind = operator.parameter(name).kind
    if kind is Kind.DTYPE:
        return {name: new}
    return {name: Scalar(new, bytes(16))} if kind is Kind.SCALAR else dtype(new, name)


class Break(NamedTuple):
    change: Mapping[str, Any]
    expected: str
    dtype: D | None = None
    """The data type of the valid call; None for any."""
    product: Product = Product.ATLAS_A2


Breaking = Callable[[Operator, str], Break]
#: What breaks a check, by its title: from the operator and an argument that the check names.
BREAKS: dict[str, Breaking] = {
    "present": lambda o, name: Break({name: None}, "an object"),
    "data type": lambda o, name: Break(
        dtype(D.STRING, "self", "out")
        if "same data type as self: out" in [check.name for check in o.checks[:2]]
        else dtype(D.STRING, *(each for each in tensors_of(o) if each != "target"))
        if o.name.startswith("nll") and name == "self"
        else _of_type(o, name, D.STRING),
        "data type",
    ),
    "same data type as self": lambda o, name: Break(
        dtype(D.FLOAT16, name),
        "ACL_INT32" if o.name == "bitwise_not" else "ACL_FLOAT",
    ),
    "promotable": lambda o, name: _unpromotable(o, name),
    "holds the result": lambda o, name: _too_narrow(o, name),
    "data type dtype": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "dimensions of self, each once": lambda o, name: Break({name: (1, -1)}, "each dimension once"),
    "reduced shape": lambda o, name: Break(shape((3, 2), name), "shape ["),
    "at most 8 dimensions": lambda o, name: Break(_nine(o, name), "at most 8 dimensions"),
    "at most 8 dimensions unless contiguous": lambda o, name: Break(
        dict.fromkeys(tensors_of(o) if "logical" in o.name else [name], Tensor(D.FLOAT, (2,) * 9, (0,) * 9)),
        "at most 8 dimensions",
    ),
    "same shape as self": lambda o, name: Break(shape((5,) if o.name == "dot" else (3, 2), name), "shape ["),
    "same shape as selfRef": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcasts with self": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcasts with selfRef": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of self and other": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "broadcast shape of selfRef and other": lambda o, name: Break(shape((4, 2, 3), "other"), "shape [4, 2, 3]"),
    "no private format": lambda o, name: Break(
        {each: {"format": Format.FORMAT_FRACTAL_NZ} for each in ((name, "out") if o.name == "abs" else (name,))},
        "ACL_FORMAT_ND",
    ),
    "same format as self": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "format ACL_FORMAT_ND"),
    "one element": lambda o, name: Break(shape((2,), name), "one element"),
    "no null among them": lambda o, name: Break({name: (T(D.FLOAT, GRID), None)}, "an object"),
    "data type of each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.STRING, GRID))}, "data type"),
    "one data type": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT16, (4,)))}, "ACL_FLOAT"),
    "same shape each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (5,)))}, "shape [4]"),
    "at most 8 dimensions each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, NINE))}, "at most 8"),
    "same data type as selfRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as gradOutput": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "shape is the result": lambda o, name: Break(shape((7, 7), name), "the result"),
    "real number": lambda o, name: Break({name: scalar(D.COMPLEX64, 1j)}, "real number"),
    "finite number": lambda o, name: Break({name: scalar(D.FLOAT, math.nan)}, "a finite number"),
    "real number each": lambda o, name: Break({name: (scalar(D.FLOAT, 1), scalar(D.COMPLEX64, 1j))}, "real number"),
    "dimension of self": lambda o, name: Break({name: 2}, "from -2 to 1"),
    "same shape as input": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "allowed value": lambda o, name: Break({name: 5}, "0, 1 or 2" if name in ("mode", "reduce") else "0, 1, 2, 3 or 4"),
}
#: Where they are not "parameter invalid".
CODES = dict.fromkeys(("present", "no null among them", "a bound"), NULL)


def _unpromotable(operator: Operator, name: str) -> Break:
    if operator.name.endswith("eq_tensor"):
        return Break(dtype(D.UINT64, name), "promotes with", product=Product.ASCEND_950)
    if operator.parameter(name).kind is Kind.SCALAR and D.STRING not in operator.support[Product.ATLAS_A2]:
        listed = any(check.name.startswith("data type") and name in check.name for check in operator.checks)
        return Break(_of_type(operator, name, D.UINT16 if listed else D.HIFLOAT8), "promotes with", D.INT32)
    return Break(_of_type(operator, name, D.UINT16), "promotes with", D.INT32)


def _too_narrow(operator: Operator, name: str) -> Break:
    if operator.name in ("inplace_addcmul", "inplace_addcdiv"):
        return Break(dtype(D.FLOAT, "tensor1"), "ACL_FLOAT", D.INT64)
    if operator.name.startswith(("inplace_pow", "inplace_clamp", "inplace_hardtanh")):
        second = operator.parameters[1]
        change = {second.name: scalar(D.FLOAT, 1)} if second.kind is Kind.SCALAR else dtype(D.FLOAT, second.name)
        return Break(change, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    if "bitwise" in operator.name or "_shift" in operator.name:
        return Break(dtype(D.BOOL, name), "ACL_INT", D.INT32)
    if operator.name == "mean":
        return Break(dtype(D.INT32, name), "ACL_FLOAT")
    if operator.name == "inplace_add_v3":
        return Break({"selfRef": scalar(D.FLOAT, 1)}, "ACL_FLOAT", D.INT32)
    if name != "selfRef":
        product = Product.ASCEND_950 if operator.name in ("muls", "floor_divides") else Product.ATLAS_A2
        return Break(dtype(D.INT32, name), "ACL_FLOAT", D.FLOAT, product)
    if operator.name == "inplace_divs":
        return Break({}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    if operator.parameter("other").kind is Kind.SCALAR:
        return Break({"other": scalar(D.FLOAT, 1)}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    return Break(dtype(D.FLOAT, "other"), "ACL_FLOAT", D.INT32)


def _nine(operator: Operator, name: str) -> Mapping[str, Any]:
    # If an earlier check compares shapes, all tensors need nine dimensions.
    titles = [check.name for check in operator.checks]
    before = titles[: next(at for at, title in enumerate(titles) if title.startswith("at most 8"))]
    compared = any(title.startswith(("same shape", "broadcasts")) for title in before)
    return shape(NINE, *(tensors_of(operator) if compared else [name]))


def _described(value: Any) -> Any:
    if isinstance(value, T):
        return Tensor(value.dtype, value.shape, format=value.format)
    return tuple(map(_described, value)) if type(value) is tuple else value


class _Unread(Scalar):
    @property
    def value(self) -> Any:
        raise AssertionError("expected that nothing depends on this number")


def described(arguments: Arguments) -> dict[str, Any]:
    return {name: _described(value) for name, value in arguments.items()}


def values(dtype: D, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype == D.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return random.integers(1 if dtype == D.UINT8 else -9, 10, shape).astype(dtype.numpy)
    found = random.normal(size=shape) * 3
    if dtype in COMPLEX:
        found = found + 1j * random.normal(size=shape)
    return found.astype(dtype.numpy)


@dataclass(frozen=True)
class Subject:
    """The operators of one module, with a valid call of each and PyTorch's results."""

    operators: tuple[Operator, ...]
    references: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    """Functions that compute PyTorch's results from tensors, numbers and attributes by C name."""
    calls: Mapping[str, Callable[[D], Arguments]] = field(default_factory=dict)
    """Arguments of valid calls that are not tensors of the common data type and shape."""
    dtypes: Mapping[str, tuple[D, ...]] = field(default_factory=dict)
    default: tuple[D, ...] = ALL
    """The data types of valid calls of operators that ``dtypes`` does not list."""
    empty: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changes that make a call empty, where these are not tensors of shape (0, 3)."""
    breaks: Mapping[str, Breaking] = field(default_factory=dict)
    """Changes that make a check fail; these take precedence over those that several subjects share."""
    indices: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Upper bounds of indices, by operator and argument."""
    numbers: Callable[[str, str, Array], Array] = lambda operator, name, array: array
    """Replaces an argument's random values."""
    elsewhere: Collection[str] = ()
    """Operators whose values another test compares."""
    left: Collection[str] = ()
    """Outputs that are not compared."""
    plain: Collection[str] = ()
    """Operators whose arguments are contiguous."""
    code: int = INVALID
    """The status of a check that ``codes`` does not list."""
    codes: Mapping[str, int] = field(default_factory=dict)
    otherwise: Callable[[str, Product], Mapping[str, Any]] = lambda operator, product: {}
    """Changes to an operator's valid call on a product."""
    terms: int = 1
    """Factor by which the error of a float32 result may exceed that of one rounding."""

    def dtypes_of(self, operator: Operator) -> tuple[D, ...]:
        return self.dtypes.get(operator.name, self.default)

    def usual(self, operator: Operator, product: Product | None = None) -> D:
        """Return a data type to test with, one that the product takes if it has a kernel."""
        taken = operator.support.get(product) if product else None
        dtypes = [dtype for dtype in self.dtypes_of(operator) if taken is None or dtype in taken]
        return next((dtype for dtype in (D.FLOAT, D.INT32) if dtype in dtypes), dtypes[0])

    def valid(self, operator: Operator, dtype: D) -> Arguments:
        common: Arguments = {}
        for parameter in operator.parameters:
            common[parameter.name] = number_of(dtype) if parameter.kind is Kind.SCALAR else T(dtype, GRID)
        return common | self.calls.get(operator.name, lambda d: {})(dtype)

    def rows(self) -> Iterator[Any]:
        for operator in self.operators:
            for check in operator.checks:
                title, _, listed = check.name.partition(": ")
                names = [name for name in listed.partition(" (")[0].split(", ") if name]
                if title == "promotable":
                    names = names[1:]
                if check.name.startswith("at most 8") and operator.name in ("inplace_add", "inplace_sub"):
                    names = names[:1]
                for name in names:
                    yield pytest.param(operator, check, title, name, id=f"{operator.name}-{title}-{name}")

    def filled(
        self, operator: Operator, dtype: D, layout: str, random: np.random.Generator
    ) -> tuple[dict[str, Any], dict[str, Placed]]:
        """Return the arguments of a valid call and its tensors' memory by name; tensors of lists as ``name[index]``."""
        arguments: dict[str, Any] = {}
        placed: dict[str, Placed] = {}
        for name, value in self.valid(operator, dtype).items():
            if isinstance(value, T):
                placed[name] = self.place(operator, name, value, layout, random)
                arguments[name] = placed[name].tensor
            elif type(value) is tuple and any(isinstance(each, T) for each in value):
                listed = [each and self.place(operator, name, each, layout, random) for each in value]
                placed |= {f"{name}[{at}]": each for at, each in enumerate(listed) if each}
                arguments[name] = tuple(each and each.tensor for each in listed)
            else:
                arguments[name] = value
        return arguments, placed

    def run_with_index(self, name: str, index: int) -> None:
        """Run a valid call of an operator, with all elements of its first tensor of indices set to a number."""
        operator = next(each for each in self.operators if each.name == name)
        arguments, placed = self.filled(operator, D.FLOAT, "contiguous", np.random.default_rng(7))
        next(each for key, each in placed.items() if key.startswith("ind")).view[...] = index
        prepare(operator, arguments, product_of(operator)).run()

    def place(self, operator: Operator, name: str, value: T, layout: str, random: np.random.Generator) -> Placed:
        """Draw an argument's values and place them in memory."""
        array = values(value.dtype, value.shape, random)
        if (operator.name, name) in self.indices:
            array = array % self.indices[operator.name, name]
        array = self.numbers(operator.name, name, array).astype(array.dtype)
        placed = Placed(array, "contiguous" if operator.name in self.plain else layout)
        placed.tensor.format = value.format
        return placed


def labelled(call: Callable[[D], Arguments]) -> Callable[[D], Arguments]:
    """Wrap a function of valid calls so that tensors have the formats for their ranks."""

    def label(value: Any) -> Any:
        return value._replace(format=Format.of_rank(len(value.shape))) if isinstance(value, T) else value

    return lambda d: {name: label(value) for name, value in call(d).items()}


def label_by_rank(placed: Mapping[str, Placed]) -> None:
    """Give tensors the formats for their ranks."""
    for each in placed.values():
        each.tensor.format = Format.of_rank(len(each.tensor.shape))


def computed(name: str, arguments: Mapping[str, Any], product: Product = Product.ATLAS_A2) -> dict[str, Array]:
    """Run an operator on copies of arrays in place of tensors; return these afterwards, by name."""
    placed = {
        key: [Placed(each, "contiguous") for each in (value if type(value) is tuple else (value,))]
        for key, value in arguments.items()
        if isinstance(value, np.ndarray)
        or (type(value) is tuple and any(isinstance(each, np.ndarray) for each in value))
    }
    tensors: dict[str, Any] = {}
    for key, views in placed.items():
        handles = tuple(view.tensor for view in views)
        tensors[key] = handles if type(arguments[key]) is tuple else handles[0]
    prepare(BY_NAME[name], {**arguments, **tensors}, product).run()
    return {key: views[0].view for key, views in placed.items()}


_NULLABLE = (*TENSORS, *LISTS, Kind.SCALAR, Kind.SCALAR_LIST, Kind.INT_ARRAY, Kind.BOOL_ARRAY, Kind.STRING)
_ODD_SHAPES = ((), (0,), (2, 0), NINE)


def _odd_changes(operator: Operator, call: Arguments) -> Iterator[Mapping[str, Any]]:
    """Yield null for each object, and empty, scalar and nine-dimensional shapes for each tensor and for all."""
    for parameter in operator.parameters:
        name, value = parameter.name, call[parameter.name]
        if parameter.kind in _NULLABLE:
            yield {name: None}
        if isinstance(value, T):
            yield from (shape(each, name) for each in _ODD_SHAPES)
        if parameter.kind in LISTS and value:
            yield {name: (None, *value[1:])}
    yield from (shape(each, *(name for name in tensors_of(operator) if call[name])) for each in _ODD_SHAPES)


class LibraryTests:
    """The common tests; a subclass defines its subject."""

    subject: ClassVar[Subject]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "check" in metafunc.fixturenames:
            metafunc.parametrize(("operator", "check", "title", "name"), [*self.subject.rows()])
        elif "operator" in metafunc.fixturenames:
            excluded = self.subject.elsewhere if "layout" in metafunc.fixturenames else ()
            operators = [operator for operator in self.subject.operators if operator.name not in excluded]
            metafunc.parametrize("operator", operators, ids=lambda operator: operator.name)

    def test_every_check_rejects(self, operator: Operator, check: Any, title: str, name: str) -> None:
        broken = (BREAKS | self.subject.breaks)[title](operator, name)
        call = self.subject.valid(operator, broken.dtype or self.subject.usual(operator))
        call = changed(call, self.subject.otherwise(operator.name, broken.product))
        arguments = described(changed(call, broken.change))
        first = next(each for each in operator.checks if each.violation(Call(operator, arguments, broken.product)))
        assert first is check
        with pytest.raises(AclnnError) as caught:
            prepare(operator, arguments, broken.product)
        function, argument, text = caught.value.message.split(": ", 2)
        expected, got = text.rsplit(", got ", 1)
        code = (CODES | self.subject.codes).get(title, self.subject.code)
        assert (caught.value.code, function) == (code, operator.function)
        # The message about a relation names one of the arguments.
        assert argument.partition("[")[0] == name or title in ("converts to dtype", "data type")
        assert expected.startswith("expected ")
        assert broken.expected in expected
        assert got

    def test_numbers_decide_neither_checks_nor_the_plan(self, operator: Operator) -> None:
        def unread(given: Any) -> Any:
            return _Unread(*given) if isinstance(given, Scalar) else tuple(map(unread, given))

        for product, taken in operator.support.items() if operator.numbers else ():
            for of in taken.intersection(self.subject.dtypes_of(operator)):
                arguments = described(self.subject.valid(operator, of))
                first = prepare(operator, arguments, product).prepared
                call = Call(operator, arguments | {name: unread(arguments[name]) for name in operator.numbers}, product)
                assert prepare(operator, call.arguments, product).prepared is first
                run_checks(call)
                operator.work(call)

    def test_products_without_a_kernel_reject_after_all_checks(self, operator: Operator) -> None:
        """Generated interfaces fail before most checks, and functions withdrawn from a product before all."""
        for product in PRODUCTS:
            call = self.subject.valid(operator, self.subject.usual(operator, product))
            arguments = described(changed(call, self.subject.otherwise(operator.name, product)))
            if product in operator.support:
                prepare(operator, arguments, product)
                continue
            with pytest.raises(AclnnError, match="with a kernel") as caught:
                prepare(operator, arguments, product)
            of_product = [check for check in operator.checks if check.name.startswith(KERNEL_OF_THE_PRODUCT.name)]
            rejecting = [check for check in of_product if check.violation(Call(operator, arguments, product))]
            assert caught.value.code == (rejecting[0].code if rejecting else NO_KERNEL)
            if rejecting and rejecting[0] is operator.checks[0]:
                continue
            first = next(check.name for check in operator.checks if check.name.startswith("present: "))
            required = first.removeprefix("present: ").split(", ")[0]
            with pytest.raises(AclnnError, match="got null"):
                prepare(operator, arguments | {required: None}, product)

    def test_bfloat16_is_rejected_where_the_product_lacks_it(self, operator: Operator) -> None:
        for product in set(operator.support) - set(MODERN):
            if D.BF16 in self.subject.dtypes_of(operator):
                with pytest.raises(AclnnError) as caught:
                    prepare(operator, described(self.subject.valid(operator, D.BF16)), product)
                assert caught.value.code == INVALID

    @pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed with holes"])
    def test_values_are_pytorchs(self, operator: Operator, layout: str) -> None:
        random = np.random.default_rng(7)
        dtypes = self.subject.dtypes_of(operator)
        # If there are many data types, each has one other layout with the contiguous one.
        shares = {"transposed": 0, "reversed with holes": 1}
        for d in dtypes if layout == "contiguous" or len(dtypes) < 3 else dtypes[shares[layout] :: 2]:
            arguments, placed = self.subject.filled(operator, d, layout, random)
            tensors = {name: to_torch(each.view) for name, each in placed.items()}
            expected_of: dict[str, Any] = {}
            for name, value in arguments.items():
                if isinstance(value, Scalar):
                    expected_of[name] = value.value.item()
                elif type(value) is tuple and any(isinstance(each, Tensor) for each in value):
                    expected_of[name] = [each and tensors[f"{name}[{at}]"] for at, each in enumerate(value)]
                else:
                    expected_of[name] = tensors.get(name, value)
            expected = self.subject.references[operator.name](expected_of)
            run(prepare(operator, arguments, product_of(operator)))
            outs = [
                name
                for p in operator.parameters
                if p.kind in (Kind.OUTPUT, Kind.OUTPUT_LIST)
                for name in (
                    [f"{p.name}[{at}]" for at in range(len(arguments[p.name] or ()))] if p.kind in LISTS else [p.name]
                )
                if p.name not in self.subject.left
            ]
            for name, result in zip(outs, expected if isinstance(expected, (tuple, list)) else [expected], strict=True):
                out = placed[name]
                # An output of data-dependent size fills the first part of its memory.
                got = (
                    out.view
                    if out.tensor.shape == out.view.shape
                    else out.view.flatten()[: math.prod(out.tensor.shape)]
                )
                is_complex = result.is_complex() or out.tensor.dtype in COMPLEX
                wanted = result.to(torch.complex128 if is_complex else torch.float64).numpy()
                terms = self.subject.terms if D.FLOAT in (d, out.tensor.dtype) else 1
                tolerance = UNITS.get(out.tensor.dtype, 0.0) * terms
                np.testing.assert_allclose(
                    got.astype(wanted.dtype).reshape(wanted.shape),
                    wanted,
                    rtol=tolerance,
                    atol=4 * tolerance,
                    err_msg=d.c_name,
                )
            assert all(each.untouched_outside() for each in placed.values()), d

    @pytest.mark.filterwarnings("error")
    def test_any_attribute_is_rejected_or_computed_with(self, operator: Operator) -> None:
        """Unusual attributes, such as NaN or repeated dimensions, cause no internal error."""
        for parameter in operator.parameters:
            for number in ANY_NUMBER.get(parameter.kind, ()):
                random = np.random.default_rng(8)
                arguments, placed = self.subject.filled(operator, self.subject.usual(operator), "contiguous", random)
                with suppress(AclnnError):
                    prepare(operator, arguments | {parameter.name: number}, product_of(operator)).run()
                assert all(each.untouched_outside() for each in placed.values()), (parameter.name, number)

    def test_any_tensors_are_rejected_or_planned(self, operator: Operator) -> None:
        """Nulls and unusual shapes cause no internal error in checks."""
        call, product = self.subject.valid(operator, self.subject.usual(operator)), product_of(operator)
        for change in _odd_changes(operator, call):
            with suppress(AclnnError):
                prepare(operator, described(changed(call, change)), product)

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        empty: dict[str, Any] = {name: {"shape": (0, 3)} for name in tensors_of(operator)}
        empty |= self.subject.empty.get(operator.name, {})
        call = self.subject.valid(operator, self.subject.usual(operator))
        executor = prepare(operator, described(changed(call, empty)), product_of(operator))
        room = np.zeros(1 << 16, np.uint8)
        for tensor in executor.tensors.values():
            tensor.address = room.ctypes.data
        executor.run()
