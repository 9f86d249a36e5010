"""The fields of a case, an operator's row of the table, and helpers that cases share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.tensor import Scalar
from tests.helpers.exact import Forward

NULL, INVALID, NO_KERNEL = 161001, 161002, 561103
#: Of generated interfaces: a shape fault, and a product without a kernel, which they find before anything but nulls.
TILING, NO_KERNEL_FOUND = 561002, 561003

SOC_NAMES = {
    Product.ASCEND_950: "Ascend950DT_9571",
    Product.ATLAS_A3: "Ascend910_9391",
    Product.ATLAS_A2: "Ascend910B2",
    Product.ATLAS_200I_500_A2: "Ascend310B1",
    Product.ATLAS_INFERENCE: "Ascend310P3",
    Product.ATLAS_TRAINING: "Ascend910A",
}
PRODUCTS = tuple(SOC_NAMES)
A2_CLASS = (Product.ATLAS_A3, Product.ATLAS_A2)
MODERN = (Product.ASCEND_950, *A2_CLASS)
FLOAT, FLOAT16, BF16 = FLOATS = D.FLOAT, D.FLOAT16, D.BF16
REJECTED_DTYPES = tuple(
    D(number)
    for number in (-1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 28, 29, 30, 33, 34, 35, 36, 37, 38, 39, 40, 41)
)


class T(NamedTuple):
    """The description of a tensor argument, without memory."""

    dtype: D
    shape: tuple[int, ...]
    format: Format = Format.FORMAT_ND


Shape = tuple[int, ...]
#: An operator's arguments by C name: T, tuples, strings, None.
Arguments = dict[str, Any]
#: What to change about valid arguments: None for null, fields of a T (or functions of the valid T), another value.
Change = Mapping[str, Any]


def changed(arguments: Arguments, change: Change) -> Arguments:
    result = dict(arguments)
    for name, new in change.items():
        if isinstance(new, Mapping):
            old = result[name]
            assert isinstance(old, T), f"{name} is null"
            result[name] = old._replace(**{key: value(old) if callable(value) else value for key, value in new.items()})
        else:
            result[name] = new
    return result


def other(tensor: T) -> D:
    """Return another data type that every product takes."""
    return FLOAT16 if tensor.dtype != FLOAT16 else FLOAT


def dtype(new: D | Callable[[T], D], *names: str) -> Change:
    return {name: {"dtype": new} for name in names}


def scalar(value: Any, dtype: D = D.DOUBLE) -> Scalar:
    return Scalar(dtype, dtype.encode(value))


def shape(new: tuple[int, ...], *names: str) -> Change:
    return {name: {"shape": new} for name in names}


@dataclass(frozen=True)
class Rejected:
    """A call that breaks one row of the table "Checks, in order"."""

    check: str
    """The declaration's name for the row."""
    change: Change
    argument: str
    """The argument that the text names."""
    expected: str
    """The expectation that it states."""
    got: str
    """The value that it states."""
    code: int = INVALID
    products: tuple[Product, ...] = PRODUCTS
    dtypes: tuple[D, ...] = FLOATS
    """Data types of the valid call with which the change violates this check and no earlier one."""


class Accepted(NamedTuple):
    """A call at the edge of what is accepted."""

    name: str
    change: Change
    products: tuple[Product, ...] = PRODUCTS
    """Products that accept it, among those that have a kernel."""


class Example(NamedTuple):
    """The document's sample program: inputs, attributes and printed text."""

    inputs: Mapping[str, tuple[T, list[float]] | None]
    attributes: Mapping[str, Any]
    printed: Mapping[str, str]
    """The values of each output as ``%f`` prints them."""


class Curve(NamedTuple):
    """An elementwise operator's forward function, and its document's statements about the derivative."""

    forward: Forward
    attributes: Mapping[str, Any]
    zeros: tuple[float, ...]
    """Inputs at which the derivative changes sign or jumps."""
    at_infinity: tuple[float, float]
    """The table's values at -inf and inf, for dy = 1."""
    probes: Mapping[float, str]
    """The document's values for dy = 1, to six decimals."""
    selects: bool = False
    """True if a gradient is dy or 0 instead of a product, which is NaN for 0·inf and 0·NaN."""


def differs(other_name: str, *names: str, where: str = "", **fields: Any) -> tuple[Rejected, ...]:
    """Return changes that make ``same_dtype`` of tensors and another fail, one check each."""
    return tuple(
        Rejected(
            f"same data type as {other_name}: {name}{where}",
            dtype(other, name),
            name,
            f"that of {other_name}",
            "ACL_FLOAT",
            **fields,
        )
        for name in names
    )


def not_floating(*names: str, where: str = "", **fields: Any) -> tuple[Rejected, ...]:
    """Return changes that make ``dtype_in(floating, …)`` fail, a single check of all tensors."""
    check = f"data type: {', '.join(names)}{where}"
    return tuple(
        Rejected(check, dtype(D.DOUBLE, name), name, "data type ACL_FLOAT", "ACL_DOUBLE", **fields) for name in names
    )


def misshapen(what: str, got: Shape, *names: str, where: str = "", **fields: Any) -> tuple[Rejected, ...]:
    """Return changes that make ``shape_is`` fail, a single check of all tensors."""
    check = f"shape is {what}: {', '.join(names)}{where}"
    return tuple(Rejected(check, shape(got, name), name, f"({what})", str(list(got)), **fields) for name in names)


def every_null(check: str, names: str) -> tuple[Rejected, ...]:
    return tuple(Rejected(check, {name: None}, name, "an object", "null", NULL) for name in names.split())


def generated(
    names: str,
    products: tuple[Product, ...],
    alone: Mapping[str, Mapping[tuple[Product, ...], tuple[D, ...]]] = {},
) -> tuple[Rejected, ...]:
    """Return violations of the checks that generated interfaces make before the tiling function's.

    ``alone`` says of which valid calls, by product, another type of a tensor does not go together with those before it;
    by default of all.
    """
    first, *others = names.split()
    listed = ", ".join((first, *others))
    together, formats = f"data types that go together: {listed}", f"format that counts as ND: {listed}"
    without = tuple(product for product in PRODUCTS if product not in products)

    def wrong_types(name: str) -> tuple[Rejected, ...]:
        words = name, "data type ACL_"
        changed = {} if name == first else alone.get(name, {products: FLOATS})
        return (
            Rejected(together, dtype(D.DOUBLE, name), *words, "ACL_DOUBLE", products=products),
            *(Rejected(together, dtype(other, name), *words, "ACL_FLOAT", INVALID, *of) for of in changed.items()),
        )

    return (
        *every_null(f"present: {listed}", names),
        Rejected(
            "kernel of the product", {}, "product", "one with a kernel", "Atlas", NO_KERNEL_FOUND, products=without
        ),
        *(row for name in (first, *others) for row in wrong_types(name)),
        *(
            Rejected(formats, {name: {"format": got}}, name, "counts as ACL_FORMAT_ND", got.c_name, products=products)
            for name, got in ((first, Format.FORMAT_FRACTAL_NZ), *((n, Format.FORMAT_NDHWC) for n in (first, *others)))
        ),
    )


def tiled(products: tuple[Product, ...], code: int = TILING) -> Callable[[str, Change, str, str, str], Rejected]:
    """Return what makes rows of a generated interface's tiling function: check, change, argument, expected, got."""

    def row(check: str, change: Change, argument: str, expected: str, got: str) -> Rejected:
        return Rejected(f"{check} (unless every output is empty)", change, argument, expected, got, code, products)

    return row


def not_trailing(x: str, row: Callable[..., Rejected]) -> tuple[Rejected, ...]:
    """Return changes that make ``trailing_dims`` of gamma fail, for x of shape [2, 3] and gamma of [3]."""
    check = f"shape is trailing dimensions of {x}: gamma"
    return tuple(
        row(check, shape(got, "gamma"), "gamma", f"shape {expected}", str([*got]))
        for got, expected in (((4,), [3]), ((1, 3), [2, 3]), ((1, 2, 3), [2, 3]))
    )


def not_one_a_row(row: Callable[..., Rejected], *names: str) -> tuple[Rejected, ...]:
    """Return changes that make ``one_a_row`` of tensors fail, for x of shape [2, 3] and gamma of [3]."""
    check = f"shape is one element a row: {', '.join(names)}"
    return tuple(
        row(check, shape(got, name), name, "shape [2, 1]", str([*got]))
        for name in names
        for got in ((2,), (1, 1), (2, 3), (0, 1))
    )


@dataclass(frozen=True)
class Case:
    """An operator's row of the table."""

    operator: Operator
    python: Callable[..., Any]
    call: Callable[[D], Arguments]
    """A small valid call whose tensors have one data type."""
    dtypes: Mapping[Product, tuple[D, ...]]
    """Data types that each product computes."""
    rejected: tuple[Rejected, ...]
    """In the order of the table."""
    accepted: tuple[Accepted, ...]
    examples: tuple[Example, ...]
    unsupported: Mapping[Product, tuple[int, str]]
    """The rejection of a valid FLOAT call on products without a kernel: its code and a part of its text."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """Curves of elementwise operators, by name."""
    never_together: frozenset[tuple[str, str]] = frozenset()
    """Neighbouring checks of which no call breaks both, or whose rejected read the same."""
    reference: Callable[[Mapping[str, Any], Mapping[str, T]], dict[str, Any]] | None = None
    """For other operators: exact outputs and errors allowed, from arrays, attributes and the product."""
    reshape: Callable[[Shape, Shape], Change] | None = None
    """Changes a valid call of the others to rows of columns."""
    mixed: Callable[[st.DrawFn, Product, Arguments], Change] = lambda draw, product, arguments: {}
    """Changes a valid call to some mix of data types."""
    also: Mapping[Product, tuple[D, ...]] = field(default_factory=dict)
    """Data types that each product computes besides ``dtypes``, which have tests of their own."""
    no_kernel: frozenset[D] = frozenset()
    """Data types that the checks take and nothing computes."""
    unused: frozenset[str] = frozenset()
    """Inputs that are never read."""
    unwritten: Callable[[Arguments], frozenset[str]] = lambda arguments: frozenset()
    """Outputs that a call leaves alone, besides those that ``outputMask`` tells."""
    together: Mapping[tuple[str, str], Change] = field(default_factory=dict)
    """Calls that break both of two checks, where merging the two rejected' changes does not."""

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def product(self) -> Product:
        """Atlas A2, or another product if that has no kernel."""
        return Product.ATLAS_A2 if Product.ATLAS_A2 in self.dtypes else next(iter(self.dtypes))

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs that the operator reads."""
        return tuple(p.name for p in self.operator.inputs if p.name not in self.unused)

    def shaped(self, rows: Shape, columns: Shape) -> Change:
        """Changes that give a valid call tensors of shape rows + columns."""
        if self.reshape is not None:
            return self.reshape(rows, columns)
        return shape(rows + columns, *(p.name for p in self.operator.parameters if p.is_tensor))


GRID = (2, 3)
NINE = (1,) * 8 + (2,)
OLD = (Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING)
NOT_950 = tuple(product for product in PRODUCTS if product != Product.ASCEND_950)
ON_950, NOT_ON_950 = " (on Ascend 950PR / 950DT)", " (not on Ascend 950PR / 950DT)"
ONLY_950 = (Product.ASCEND_950,)
OLDEST = (Product.ATLAS_200I_500_A2,)
NAN = float("nan")
INFINITE = float("inf")
SAMPLE_X = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]


def tanh(u: Any) -> Any:
    return 1 - 2 / ((2 * u).exp() + 1)


def probes(x: list[float], values: str) -> dict[float, str]:
    return dict(zip(x, values.split(), strict=True))
