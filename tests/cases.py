"""THE TABLE: one row per operator, from the operators' documents. Every test is parametrised over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flint import arb
from hypothesis import strategies as st

import aclnn
import normalization
from aclnn.declaration import Operator
from aclnn.dtypes import DataType as D
from aclnn.dtypes import Format
from aclnn.operators import BY_NAME
from aclnn.products import Product
from exact import Forward

NULL, INVALID, NO_KERNEL = 161001, 161002, 561103

SOC_NAMES = {
    Product.ASCEND_950: "Ascend950DT_9571",
    Product.ATLAS_A3: "Ascend910_9391",
    Product.ATLAS_A2: "Ascend910B2",
    Product.ATLAS_200I_500_A2: "Ascend310B1",
    Product.ATLAS_INFERENCE: "Ascend310P3",
    Product.ATLAS_TRAINING: "Ascend910A",
}
PRODUCTS = tuple(SOC_NAMES)
MODERN = (Product.ASCEND_950, Product.ATLAS_A3, Product.ATLAS_A2)
FLOAT, FLOAT16, BF16 = FLOATS = D.FLOAT, D.FLOAT16, D.BF16
REFUSED_DTYPES = tuple(
    D(number)
    for number in (-1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 28, 29, 30, 33, 34, 35, 36, 37, 38, 39, 40, 41)
)


class T(NamedTuple):
    """A tensor argument, without memory."""

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
    """Another data type that every product takes."""
    return FLOAT16 if tensor.dtype != FLOAT16 else FLOAT


def dtype(new: D | Callable[[T], D], *names: str) -> Change:
    return {name: {"dtype": new} for name in names}


def shape(new: tuple[int, ...], *names: str) -> Change:
    return {name: {"shape": new} for name in names}


@dataclass(frozen=True)
class Refusal:
    """A call that breaks one row of the table "Checks, in order"."""

    check: str
    """The declaration's name for the row."""
    change: Change
    argument: str
    """Which argument the text names,"""
    expected: str
    """what it says was expected"""
    got: str
    """and what came."""
    code: int = INVALID
    products: tuple[Product, ...] = PRODUCTS
    dtypes: tuple[D, ...] = FLOATS
    """Of the valid call: where the change breaks this row and no earlier one."""


class Accepted(NamedTuple):
    """A call at the edge of what is accepted."""

    name: str
    change: Change
    products: tuple[Product, ...] = PRODUCTS
    """Where it is accepted, among those that have a kernel."""


class Example(NamedTuple):
    """The document's sample program: its inputs, its attributes and the text that it prints."""

    inputs: Mapping[str, tuple[T, list[float]] | None]
    attributes: Mapping[str, Any]
    printed: Mapping[str, str]
    """The values of each output as ``%f`` prints them."""


class Curve(NamedTuple):
    """An elementwise operator's forward function, and what its document says of the derivative."""

    forward: Forward
    attributes: Mapping[str, Any]
    zeros: tuple[float, ...]
    """Where the derivative changes sign or jumps."""
    at_infinity: tuple[float, float]
    """The table's values at -inf and inf, for dy = 1."""
    probes: Mapping[float, str]
    """The document's values for dy = 1, to six decimals."""


def every_null(check: str, names: str) -> tuple[Refusal, ...]:
    return tuple(Refusal(check, {name: None}, name, "an object", "null", NULL) for name in names.split())


@dataclass(frozen=True)
class Case:
    """One operator's row."""

    operator: Operator
    python: Callable[..., Any]
    call: Callable[[D], Arguments]
    """A small valid call whose tensors have one data type."""
    dtypes: Mapping[Product, tuple[D, ...]]
    """What each product computes."""
    refusals: tuple[Refusal, ...]
    """In the order of the table."""
    accepted: tuple[Accepted, ...]
    examples: tuple[Example, ...]
    unsupported: Mapping[Product, tuple[int, str]]
    """The refusal of a valid FLOAT call on products without a kernel: its code and a part of its text."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """Of the elementwise operators, by name."""
    never_together: frozenset[tuple[str, str]] = frozenset()
    """Neighbouring checks of which no call breaks both, or whose refusals read the same."""
    reference: Callable[[Mapping[str, Any], Mapping[str, T]], dict[str, Any]] | None = None
    """Of the others: for arrays and attributes, the exact outputs and the errors allowed (see reference.py)."""
    reshape: Callable[[Shape, Shape], Change] | None = None
    """Changes a valid call of the others to rows of columns."""
    mixed: Callable[[st.DrawFn, Product, Arguments], Change] = lambda draw, product, arguments: {}
    """Changes a valid call to some mix of data types."""
    together: Mapping[tuple[str, str], Change] = field(default_factory=dict)
    """Calls that break both of two checks, where merging the two refusals' changes does not."""

    @property
    def name(self) -> str:
        return self.operator.name

    def shaped(self, rows: Shape, columns: Shape) -> Change:
        """What makes a valid call one on tensors of shape rows + columns."""
        if self.reshape is not None:
            return self.reshape(rows, columns)
        return shape(rows + columns, *(p.name for p in self.operator.parameters if p.is_tensor))


_GRID = (2, 3)
_NINE = (1,) * 8 + (2,)


def _tanh(u: Any) -> Any:
    return 1 - 2 / ((2 * u).exp() + 1)


def _fast_gelu(x: Any) -> Any:
    return x / (1 + (-arb("1.702") * x).exp())


def _silu(x: Any) -> Any:
    return x / (1 + (-x).exp())


def _gelu_erf(x: Any) -> Any:
    return x / 2 * (1 + (x / arb(2).sqrt()).erf())


def _gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + _tanh((2 / arb.pi()).sqrt() * (x + arb("0.044715") * x * x * x)))


def _hardswish(x: Any) -> Any:
    # The derivative at ±3 is the middle branch's, by the document.
    return 0 * x if x[0] < -3 else x if x[0] > 3 else x * (x + 3) / 6


_SAMPLE_X = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]


def _probes(x: list[float], values: str) -> dict[float, str]:
    return dict(zip(x, values.split(), strict=True))


FAST_GELU_BACKWARD = Case(
    operator=BY_NAME["fast_gelu_backward"],
    python=aclnn.fast_gelu_backward,
    call=lambda d: {"gradOutput": T(d, _GRID), "self": T(d, _GRID), "gradInput": T(d, _GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(PRODUCTS[3:], (INVALID, "gradInput: expected data type")),
    curves={
        "fast_gelu": Curve(
            _fast_gelu,
            {},
            (-0.751154255441,),
            (float("nan"), float("nan")),
            _probes(_SAMPLE_X, "-0.024548 -0.073815 -0.067780 0.120778 0.500000 0.879222 1.067780 1.073815 1.024548"),
        )
    },
    refusals=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        Refusal(
            "same data type as gradOutput: self",
            dtype(other, "self"),
            "self",
            "data type",
            "ACL_FLOAT",
            products=MODERN,
        ),
        Refusal(
            "same data type as gradOutput: gradInput",
            dtype(other, "gradInput"),
            "gradInput",
            "data type",
            "ACL_FLOAT",
            products=MODERN,
        ),
        Refusal(
            "data type: gradInput",
            dtype(D.INT32, "gradOutput", "self", "gradInput"),
            "gradInput",
            "data type",
            "ACL_INT32",
        ),
        Refusal(
            "same shape as gradOutput: self", shape((3, 2), "self"), "self", "shape [2, 3]", "[3, 2]", products=MODERN
        ),
        Refusal(
            "same shape as gradOutput: gradInput",
            shape((2, 4), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[2, 4]",
            products=MODERN,
        ),
        Refusal(
            "at most 8 dimensions: self",
            shape(_NINE, "gradOutput", "self", "gradInput"),
            "self",
            "at most 8 dimensions",
            "9",
            products=MODERN,
        ),
        Refusal(
            "same format as self: gradInput",
            {"gradInput": {"format": Format.FORMAT_NCHW}},
            "gradInput",
            "format ACL_FORMAT_ND",
            "ACL_FORMAT_NCHW",
            products=MODERN,
        ),
        Refusal(
            "same format as self: gradOutput",
            {"gradOutput": {"format": Format.FORMAT_FRACTAL_NZ}},
            "gradOutput",
            "format ACL_FORMAT_ND",
            "ACL_FORMAT_FRACTAL_NZ",
            products=MODERN,
        ),
    ),
    together={
        ("same data type as gradOutput: gradInput", "data type: gradInput"): dtype(D.INT32, "gradInput"),
        ("same shape as gradOutput: gradInput", "at most 8 dimensions: self"): shape(_NINE, "gradOutput", "self"),
    },
    accepted=(
        Accepted("empty", shape((0, 0), "gradOutput", "self", "gradInput"), MODERN),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "gradInput")),
        Accepted("one format", {n: {"format": Format.FORMAT_NCHW} for n in ("gradOutput", "self", "gradInput")}),
        Accepted(
            "one private format",
            {n: {"format": Format.FORMAT_FRACTAL_NZ} for n in ("gradOutput", "self", "gradInput")},
        ),
    ),
    examples=(
        Example(
            {"gradOutput": (T(FLOAT, (3, 3)), [0.0] * 9), "self": (T(FLOAT, (3, 3)), [0.0] * 9)},
            {},
            {"gradInput": " ".join(["0.000000"] * 9)},
        ),
        Example(
            {"gradOutput": (T(FLOAT, (3, 3)), [1.0] * 9), "self": (T(FLOAT, (3, 3)), [0.0] * 9)},
            {},
            {"gradInput": " ".join(["0.500000"] * 9)},
        ),
    ),
)

_OLD = (Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING)
_NOT_950 = tuple(product for product in PRODUCTS if product != Product.ASCEND_950)
_ONLY_950 = (Product.ASCEND_950,)


def _silu_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    if product != Product.ASCEND_950:
        return {}
    dy, x = (draw(st.sampled_from(FLOATS)) for _ in range(2))
    return dtype(dy, "gradOutput") | dtype(x, "self") | dtype(dy if dy == x else FLOAT, "gradInput")


SILU_BACKWARD = Case(
    mixed=_silu_mixed,
    operator=BY_NAME["silu_backward"],
    python=aclnn.silu_backward,
    call=lambda d: {"gradOutput": T(d, _GRID), "self": T(d, _GRID), "gradInput": T(d, _GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "silu": Curve(
            _silu,
            {},
            (-1.27846454276,),
            (float("nan"), float("nan")),
            _probes(_SAMPLE_X, "-0.088104 -0.090784 0.072329 0.260039 0.500000 0.739961 0.927671 1.090784 1.088104"),
        )
    },
    refusals=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        *(
            Refusal(
                "data type: gradOutput, self, gradInput",
                dtype(D.DOUBLE, name),
                name,
                "data type ACL_FLOAT",
                "ACL_DOUBLE",
            )
            for name in ("gradOutput", "self", "gradInput")
        ),
        Refusal(
            "data type of a mixed pair's gradInput",
            dtype(FLOAT, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "16",
            products=_ONLY_950,
            dtypes=(FLOAT16,),
        ),
        Refusal(
            "data type of a mixed pair's gradInput",
            dtype(FLOAT16, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "ACL_BF16",
            products=_ONLY_950,
            dtypes=(BF16,),
        ),
        Refusal(
            "same data type as gradInput: gradOutput",
            dtype(other, "gradOutput"),
            "gradOutput",
            "data type",
            "ACL_FLOAT",
            products=_NOT_950,
        ),
        Refusal(
            "same data type as gradInput: gradOutput",
            dtype(other, "gradInput"),
            "gradOutput",
            "that of gradInput",
            "ACL_",
            products=_ONLY_950,
        ),
        Refusal(
            "same data type as gradInput: self",
            dtype(other, "self"),
            "self",
            "data type",
            "ACL_FLOAT",
            products=_NOT_950,
        ),
        Refusal(
            "data type: self, gradOutput",
            dtype(BF16, "gradOutput", "self", "gradInput"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=_OLD,
        ),
        Refusal(
            "at most 8 dimensions: gradOutput, self",
            shape(_NINE, "gradOutput", "self", "gradInput"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Refusal("at most 8 dimensions: gradOutput, self", shape(_NINE, "self"), "self", "at most 8 dimensions", "9"),
        Refusal(
            "same shape as gradInput: gradOutput",
            shape((1, 3), "gradOutput"),
            "gradOutput",
            "shape [2, 3]",
            "[1, 3]",
            products=_NOT_950,
        ),
        Refusal("same shape as gradInput: self", shape((3,), "self"), "self", "shape [2, 3]", "[3]", products=_NOT_950),
        Refusal(
            "broadcasts with self: gradOutput",
            shape((4, 3), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[4, 3]",
            products=_ONLY_950,
        ),
        Refusal(
            "broadcast shape of gradOutput and self: gradInput",
            shape((1, 2, 3), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[1, 2, 3]",
            products=_ONLY_950,
        ),
    ),
    never_together=frozenset(
        {
            # One is for a mixed pair on the 950 class, the other for everything else.
            ("data type of a mixed pair's gradInput", "same data type as gradInput: gradOutput"),
            # One is for the older products, the other for the 950 class.
            ("same shape as gradInput: self", "broadcasts with self: gradOutput"),
            # The second compares with the broadcast shape, which then does not exist.
            ("broadcasts with self: gradOutput", "broadcast shape of gradOutput and self: gradInput"),
        }
    ),
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "self", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "gradInput")),
        Accepted("any formats", {"self": {"format": Format.FORMAT_NCHW}, "gradInput": {"format": Format.FORMAT_NHWC}}),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
            _ONLY_950,
        ),
        Accepted("broadcast to empty", shape((1,), "gradOutput") | shape((0,), "self", "gradInput"), _ONLY_950),
        Accepted("float16 with float32", dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "self", "gradInput"), _ONLY_950),
        Accepted(
            "bfloat16 with float16",
            dtype(BF16, "gradOutput") | dtype(FLOAT16, "self") | dtype(FLOAT, "gradInput"),
            _ONLY_950,
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 3)), [1.0] * 6),
                "self": (T(FLOAT, (2, 3)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            },
            {},
            {"gradInput": "0.927671 1.090784 1.088104 1.052665 1.026547 1.012326"},
        ),
    ),
)

_SMALLEST_SUBNORMAL = 2.0**-149  # what the document's integer ones read as


def _gelu_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    dy, x = (draw(st.sampled_from(FLOATS)) for _ in range(2))
    return dtype(dy, "gradOutput") | dtype(x, "self") | dtype(dy if dy == x else FLOAT, "gradInput")


GELU_BACKWARD_V2 = Case(
    mixed=_gelu_mixed,
    operator=BY_NAME["gelu_backward_v2"],
    python=aclnn.gelu_backward_v2,
    call=lambda d: {
        "gradOutput": T(d, _GRID),
        "self": T(d, _GRID),
        "approximate": "none",
        "gradInput": T(d, _GRID),
    },
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_200I_500_A2: (NO_KERNEL, "product")},
    curves={
        "gelu_none": Curve(
            _gelu_erf,
            {"approximate": "none"},
            (-0.751791524694,),
            (float("nan"), float("nan")),
            _probes(_SAMPLE_X, "-0.011946 -0.085232 -0.083315 0.132505 0.500000 0.867495 1.083315 1.085232 1.011946"),
        ),
        "gelu_tanh": Curve(
            _gelu_tanh,
            {"approximate": "tanh"},
            (-0.752461422071,),
            (0.0, 1.0),
            _probes(_SAMPLE_X, "-0.011584 -0.086099 -0.082964 0.132630 0.500000 0.867370 1.082964 1.086099 1.011584"),
        ),
    },
    refusals=(
        *every_null(
            "present: gradOutput, self, gradInput, approximate",
            "gradOutput self gradInput approximate",
        ),
        Refusal(
            "promotable: gradOutput, self", dtype(D.UINT16, "self"), "self", "data type that promotes", "ACL_UINT16"
        ),
        Refusal(
            "promotable: gradOutput, self",
            dtype(D.DT_UNDEFINED, "gradOutput", "self", "gradInput"),
            "self",
            "data type that promotes",
            "ACL_DT_UNDEFINED",
        ),
        Refusal("data type: gradOutput, self", dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type", "ACL_DOUBLE"),
        Refusal(
            "data type: gradOutput, self",
            dtype(BF16, "gradOutput", "self", "gradInput"),
            "gradOutput",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=_OLD,
        ),
        Refusal("data type: gradOutput, self", dtype(D.INT32, "self"), "self", "data type", "ACL_INT32"),
        Refusal(
            "data type: gradOutput, self",
            dtype(BF16, "self") | dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "gradInput"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=_OLD,
        ),
        Refusal("promoted data type: gradInput", dtype(other, "gradInput"), "gradInput", "data type", "ACL_FLOAT"),
        Refusal(
            "promoted data type: gradInput",
            dtype(FLOAT, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "16",
            dtypes=(FLOAT16, BF16),
        ),
        Refusal(
            "broadcasts with self: gradOutput",
            shape((4, 3), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[4, 3]",
        ),
        Refusal(
            "broadcasts with self: gradOutput",
            shape((0,), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[0]",
        ),
        Refusal(
            "broadcast shape of gradOutput and self: gradInput",
            shape((1, 2, 3), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[1, 2, 3]",
        ),
        Refusal("allowed value: approximate", {"approximate": "Tanh"}, "approximate", "'none' or 'tanh'", "'Tanh'"),
        Refusal("allowed value: approximate", {"approximate": ""}, "approximate", "'none' or 'tanh'", "''"),
        Refusal("allowed value: approximate", {"approximate": "none "}, "approximate", "'none' or 'tanh'", "'none '"),
        Refusal(
            "allowed value: approximate",
            {"approximate": "test"} | shape((0, 3), "gradOutput", "self", "gradInput"),
            "approximate",
            "'none' or 'tanh'",
            "'test'",
        ),
    ),
    never_together=frozenset(
        {
            # The second compares with the broadcast shape, which then does not exist.
            ("broadcasts with self: gradOutput", "broadcast shape of gradOutput and self: gradInput"),
        }
    ),
    together={
        # A pair that does not promote has no promoted type, but a partner that no kernel takes.
        ("promotable: gradOutput, self", "data type: gradOutput, self"): dtype(D.UINT16, "gradOutput"),
        ("data type: gradOutput, self", "promoted data type: gradInput"): dtype(D.DOUBLE, "gradOutput"),
    },
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "self", "gradInput")),
        Accepted("broadcast to empty", shape((1,), "gradOutput") | shape((0,), "self", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("0-dim with 2-dim", shape((), "gradOutput")),
        Accepted("9 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 1, 3), "gradOutput", "self", "gradInput")),
        Accepted("broadcast self", shape((3,), "self")),
        Accepted("tanh", {"approximate": "tanh"}),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
        ),
        Accepted(
            "any formats",
            {"self": {"format": Format.FORMAT_NC1HWC0}, "gradInput": {"format": Format.FORMAT_FRACTAL_NZ}},
        ),
        Accepted("float16 with float32", dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "self", "gradInput")),
        Accepted("float32 with float16", dtype(FLOAT16, "self") | dtype(FLOAT, "gradOutput", "gradInput")),
        Accepted(
            "bfloat16 with float16",
            dtype(BF16, "gradOutput") | dtype(FLOAT16, "self") | dtype(FLOAT, "gradInput"),
            MODERN,
        ),
        Accepted("bfloat16 with float32", dtype(BF16, "self") | dtype(FLOAT, "gradOutput", "gradInput"), MODERN),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [_SMALLEST_SUBNORMAL] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "tanh"},
            {"gradInput": " ".join(["0.000000"] * 8)},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "tanh"},
            {"gradInput": "0.500000 1.082964 1.086099 1.011584 1.000335 1.000002 1.000000 1.000000"},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "none"},
            {"gradInput": "0.500000 1.083315 1.085232 1.011946 1.000504 1.000007 1.000000 1.000000"},
        ),
    ),
)

HARDSWISH_BACKWARD = Case(
    operator=BY_NAME["hardswish_backward"],
    python=aclnn.hardswish_backward,
    call=lambda d: {"gradOutput": T(d, _GRID), "self": T(d, _GRID), "out": T(d, _GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "hardswish": Curve(
            _hardswish,
            {},
            (-3.0, -1.5, 3.0),
            (0.0, 1.0),
            _probes(
                [-4.0, -3.0, -2.0, -1.5, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
                "0.000000 -0.500000 -0.166667 0.000000 0.166667 0.500000 0.833333 1.166667 1.500000 1.000000",
            ),
        )
    },
    refusals=(
        *every_null("present: gradOutput, self, out", "gradOutput self out"),
        Refusal("data type: self, gradOutput", dtype(D.INT64, "self"), "self", "data type ACL_FLOAT", "ACL_INT64"),
        Refusal(
            "data type: self, gradOutput",
            dtype(BF16, "self", "gradOutput", "out"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=_OLD,
        ),
        Refusal(
            "data type: self, gradOutput",
            dtype(D.DOUBLE, "gradOutput"),
            "gradOutput",
            "data type ACL_FLOAT",
            "ACL_DOUBLE",
        ),
        Refusal(
            "same data type as self: gradOutput", dtype(other, "gradOutput"), "gradOutput", "data type", "ACL_FLOAT"
        ),
        Refusal("same data type as self: out", dtype(other, "out"), "out", "data type", "ACL_FLOAT"),
        Refusal(
            "at most 8 dimensions: gradOutput, self",
            shape(_NINE, "gradOutput", "self", "out"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Refusal("at most 8 dimensions: gradOutput, self", shape(_NINE, "self"), "self", "at most 8 dimensions", "9"),
        Refusal("same shape as self: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "shape [2, 3]", "[1, 3]"),
        Refusal("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    ),
    accepted=(
        Accepted("empty", shape((0, 3), "gradOutput", "self", "out")),
        Accepted("0-dim", shape((), "gradOutput", "self", "out")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "out")),
        Accepted(
            "any formats",
            {
                "gradOutput": {"format": Format.FORMAT_HWCN},
                "self": {"format": Format.FORMAT_NCDHW},
                "out": {"format": Format.FORMAT_NDHWC},
            },
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {},
            {"out": "0.000000 0.833333 2.333333 4.500000 4.000000 5.000000 6.000000 7.000000"},
        ),
    ),
)

_LAYER_NORM_OUTPUTS = ("gradInputOut", "gradWeightOut", "gradBiasOut")


def _layer_norm_call(d: D) -> Arguments:
    return {
        "gradOut": T(d, (2, 3)),
        "input": T(d, (2, 3)),
        "normalizedShape": (3,),
        "mean": T(d, (2, 1)),
        "rstd": T(d, (2, 1)),
        "weightOptional": T(d, (3,)),
        "biasOptional": T(d, (3,)),
        "outputMask": (True, True, True),
        "gradInputOut": T(d, (2, 3)),
        "gradWeightOut": T(d, (3,)),
        "gradBiasOut": T(d, (3,)),
    }


def _rows_and_columns(rows: tuple[int, ...], columns: tuple[int, ...], mean: tuple[int, ...] | None = None) -> Change:
    ones = (1,) * len(columns)
    return {
        **shape(rows + columns, "gradOut", "input", "gradInputOut"),
        **shape(rows + ones if mean is None else mean, "mean", "rstd"),
        **shape(columns, "weightOptional", "biasOptional", "gradWeightOut", "gradBiasOut"),
        "normalizedShape": columns,
    }


def _rows_and_columns_of_at_least_one(rows: Shape, columns: Shape) -> Change:
    # A mean has a dimension, a normalised shape too.
    columns = columns or (1,)
    return _rows_and_columns(rows, columns)


_LAYER_NORM_DTYPES = "data type: gradOut, input, mean, rstd"
_LAYER_NORM_PRESENT = "present: gradOut, input, normalizedShape, mean, rstd, outputMask"


def _layer_norm_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    any_of = st.sampled_from(FLOATS)
    free = ("mean", "rstd", "biasOptional", *_LAYER_NORM_OUTPUTS)
    change: dict[str, Any] = {name: {"dtype": draw(any_of)} for name in free}
    change |= dtype(draw(st.sampled_from((FLOAT, arguments["input"].dtype))), "weightOptional")
    change["outputMask"] = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    if draw(st.booleans()):
        change |= {"weightOptional": None, "biasOptional": None}
    return change


LAYER_NORM_BACKWARD = Case(
    mixed=_layer_norm_mixed,
    reshape=_rows_and_columns_of_at_least_one,
    reference=normalization.backward,
    operator=BY_NAME["layer_norm_backward"],
    python=aclnn.layer_norm_backward,
    call=_layer_norm_call,
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_200I_500_A2: (NO_KERNEL, "product")},
    refusals=(
        *every_null(_LAYER_NORM_PRESENT, "gradOut input normalizedShape mean rstd outputMask"),
        Refusal("three mask values", {"outputMask": (True, True)}, "outputMask", "3 values", "2"),
        Refusal("three mask values", {"outputMask": (False,) * 4}, "outputMask", "3 values", "4"),
        *(
            Refusal("wanted outputs present", {name: None}, name, f"outputMask[{i}] is true", "null", NULL)
            for i, name in enumerate(_LAYER_NORM_OUTPUTS)
        ),
        *(
            refusal
            for name in ("gradOut", "input", "mean", "rstd")
            for refusal in (
                Refusal(_LAYER_NORM_DTYPES, dtype(D.DOUBLE, name), name, "data type ACL_FLOAT", "ACL_DOUBLE"),
                Refusal(
                    _LAYER_NORM_DTYPES,
                    dtype(BF16, name),
                    name,
                    "data type ACL_FLOAT or ACL_FLOAT16",
                    "ACL_BF16",
                    products=_OLD,
                ),
            )
        ),
        Refusal("same data type as input: gradOut", dtype(other, "gradOut"), "gradOut", "that of input", "ACL_FLOAT"),
        Refusal(
            "data type: weightOptional", dtype(D.INT8, "weightOptional"), "weightOptional", "data type", "ACL_INT8"
        ),
        Refusal(
            "data type of input or float32: weightOptional",
            dtype(FLOAT16, "weightOptional"),
            "weightOptional",
            "data type ACL_FLOAT",
            "ACL_FLOAT16",
            dtypes=(FLOAT, BF16),
        ),
        Refusal(
            "data type of input or float32: weightOptional",
            dtype(BF16, "weightOptional"),
            "weightOptional",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=MODERN,
            dtypes=(FLOAT16,),
        ),
        Refusal("data type: biasOptional", dtype(D.BOOL, "biasOptional"), "biasOptional", "data type", "ACL_BOOL"),
        *(
            Refusal(
                "data type: gradInputOut, gradWeightOut, gradBiasOut",
                dtype(D.UINT64, name) | {"outputMask": mask},
                name,
                "data type ACL_FLOAT",
                "ACL_UINT64",
            )
            for name in _LAYER_NORM_OUTPUTS
            for mask in ((True, True, True), (False, False, False))
        ),
        *(
            Refusal(
                "at most 8 dimensions: gradOut, input, mean, rstd",
                shape(_NINE, name),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOut", "input", "mean", "rstd")
        ),
        Refusal(
            "at most 8 dimensions: normalizedShape",
            {"normalizedShape": _NINE},
            "normalizedShape",
            "at most 8 dimensions",
            "9",
        ),
        *(
            Refusal(
                "at most 8 dimensions: wanted outputs", shape((1,) * 8 + (3,), name), name, "at most 8 dimensions", "9"
            )
            for name in _LAYER_NORM_OUTPUTS
        ),
        Refusal(
            "at least 1 dimension: normalizedShape",
            {"normalizedShape": ()},
            "normalizedShape",
            "at least 1 dimension",
            "0",
        ),
        *(
            Refusal(
                "at least 1 dimension: mean, rstd, wanted outputs", shape((), name), name, "at least 1 dimension", "0"
            )
            for name in ("mean", "rstd", *_LAYER_NORM_OUTPUTS)
        ),
        Refusal(
            "rank of input covers normalizedShape",
            {"normalizedShape": (1, 2, 3)},
            "input",
            "at least 3 dimensions",
            "2",
        ),
        Refusal(
            "rank of input covers normalizedShape", shape((), "gradOut", "input"), "input", "at least 1 dimensions", "0"
        ),
        Refusal("trailing dimensions of input", {"normalizedShape": (4,)}, "input", "trailing dimensions [4]", "[3]"),
        Refusal(
            # The case that the vendor's loop would leave to the later checks.
            "trailing dimensions of input",
            {"normalizedShape": (1, 3)},
            "input",
            "trailing dimensions [1, 3]",
            "[2, 3]",
        ),
        Refusal(
            "at most 8 dimensions: weightOptional",
            shape((1,) * 8 + (3,), "weightOptional"),
            "weightOptional",
            "at most 8 dimensions",
            "9",
        ),
        Refusal(
            "shape is normalizedShape: weightOptional",
            shape((1, 3), "weightOptional"),
            "weightOptional",
            "shape [3]",
            "[1, 3]",
        ),
        Refusal(
            "shape is normalizedShape: weightOptional",
            shape((4,), "weightOptional"),
            "weightOptional",
            "shape [3]",
            "[4]",
        ),
        Refusal(
            "at most 8 dimensions: biasOptional",
            shape((1,) * 8 + (3,), "biasOptional"),
            "biasOptional",
            "at most 8 dimensions",
            "9",
        ),
        Refusal("shape is normalizedShape: biasOptional", shape((), "biasOptional"), "biasOptional", "shape [3]", "[]"),
        Refusal("same shape as input: gradOut", shape((1, 3), "gradOut"), "gradOut", "shape [2, 3]", "[1, 3]"),
        Refusal("same shape as rstd: mean", shape((2,), "mean"), "mean", "shape [2, 1]", "[2]"),
        Refusal("one mean a row", shape((2, 3), "mean", "rstd"), "mean", "2 elements", "6"),
        Refusal(
            "same shape as input: gradInputOut", shape((3, 2), "gradInputOut"), "gradInputOut", "shape [2, 3]", "[3, 2]"
        ),
        *(
            Refusal("one gradient a column: gradWeightOut, gradBiasOut", shape((2,), name), name, "3 elements", "2")
            for name in _LAYER_NORM_OUTPUTS[1:]
        ),
    ),
    together={("same shape as rstd: mean", "one mean a row"): shape((3, 1), "mean")},
    accepted=(
        Accepted("no rows", _rows_and_columns((0,), (3,))),
        Accepted("no rows, two masks", _rows_and_columns((2, 0), (3,)) | {"outputMask": (True, False, True)}),
        Accepted("no columns", _rows_and_columns((5,), (0, 3))),
        Accepted("neither", _rows_and_columns((0,), (0,))),
        Accepted("no leading dimensions", _rows_and_columns((), (3,), mean=(1,))),
        Accepted("8 dimensions", _rows_and_columns((2, 1, 2, 1), (2, 1, 1, 3))),
        Accepted("one column", _rows_and_columns((4,), (1,))),
        Accepted("flat mean", _rows_and_columns((3, 2), (2, 2), mean=(6,))),
        Accepted("mean without the ones", _rows_and_columns((3, 2), (2, 2), mean=(3, 2))),
        Accepted("no weight", {"weightOptional": None}),
        Accepted("no bias", {"biasOptional": None}),
        Accepted("no mask", {"outputMask": (False, False, False), **dict.fromkeys(_LAYER_NORM_OUTPUTS)}),
        Accepted("only dx", {"outputMask": (True, False, False), "gradWeightOut": None, "gradBiasOut": None}),
        Accepted("only dw", {"outputMask": (False, True, False), "gradInputOut": None, "gradBiasOut": None}),
        Accepted("only db", {"outputMask": (False, False, True), "gradWeightOut": None, "gradInputOut": None}),
        Accepted("unwanted outputs given", {"outputMask": (False, True, False)}),
        Accepted("unwanted outputs of any shape", {"outputMask": (False, False, True)} | shape((7, 7), "gradInputOut")),
        Accepted("shape of a gradient", shape((3, 1), "gradWeightOut") | shape((1, 3), "gradBiasOut")),
        Accepted("float32 statistics and weight", dtype(FLOAT, "mean", "rstd", "weightOptional", "gradInputOut")),
        Accepted("statistics of two types", dtype(FLOAT16, "mean") | dtype(FLOAT, "rstd")),
        Accepted("bias of another type", dtype(FLOAT16, "biasOptional")),
        Accepted("float16 gradients", dtype(FLOAT16, *_LAYER_NORM_OUTPUTS)),
        Accepted("bfloat16 gradients", dtype(BF16, *_LAYER_NORM_OUTPUTS), MODERN),
        Accepted("any formats", {"gradOut": {"format": Format.FORMAT_NDHWC}, "input": {"format": Format.FORMAT_NCDHW}}),
    ),
    examples=(
        Example(
            {
                "gradOut": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "input": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "mean": (T(FLOAT, (2, 1)), [2.0, 3.0]),
                "rstd": (T(FLOAT, (2, 1)), [4.0, 5.0]),
                "weightOptional": (T(FLOAT, (2,)), [1.0, 1.0]),
                "biasOptional": (T(FLOAT, (2,)), [0.0, 0.0]),
            },
            {"normalizedShape": (2,), "outputMask": (True, True, True)},
            {
                "gradInputOut": "-2.000000 -94.000000 -877.500000 -1747.500000",
                "gradWeightOut": "20.000000 62.000000",
                "gradBiasOut": "6.000000 8.000000",
            },
        ),
    ),
)

_NAN = float("nan")
_INFINITE = float("inf")
_OLDEST = (Product.ATLAS_200I_500_A2,)


def _forward_call(x: str, out: str, **attributes: Any) -> Callable[[D], Arguments]:
    return lambda d: {x: T(d, _GRID), **attributes, out: T(d, _GRID)}


def _forward_rows(*rows: str, x: str = "self", out: str = "out") -> tuple[Refusal, ...]:
    """The refusals of a forward function of one tensor, by kind, in the order given."""
    every: dict[str, tuple[Refusal, ...]] = {
        "null": every_null(f"present: {x}, {out}", f"{x} {out}"),
        "list": (
            Refusal(f"data type: {x}", dtype(D.DOUBLE, x, out), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
            Refusal(f"data type: {x}", dtype(BF16, x, out), x, "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=_OLD),
        ),
        "lists": (
            Refusal(f"data type: {x}, {out}", dtype(D.DOUBLE, x), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
            Refusal(f"data type: {x}, {out}", dtype(D.INT32, out), out, "data type ACL_FLOAT", "ACL_INT32"),
        ),
        "dtype": (Refusal(f"same data type as {x}: {out}", dtype(other, out), out, f"that of {x}", "ACL_FLOAT"),),
        "dtype of x": (
            Refusal(f"same data type as {out}: {x}", dtype(other, out), x, f"that of {out}", "ACL_", products=MODERN),
        ),
        "list on the newer": (Refusal(f"data type: {x}", dtype(D.INT8, x, out), x, "data type", "ACL_INT8"),),
        "bfloat16": (
            Refusal(f"data type: {x}", dtype(BF16, x, out), x, "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=_OLD),
        ),
        "private": (
            Refusal(
                f"no private format: {x}, {out}",
                {x: {"format": Format.FORMAT_NC1HWC0}},
                x,
                "a format such as ACL_FORMAT_ND",
                "ACL_FORMAT_NC1HWC0",
            ),
            Refusal(
                f"no private format: {x}, {out}",
                {out: {"format": Format.FORMAT_FRACTAL_Z}},
                out,
                "a format such as ACL_FORMAT_ND",
                "ACL_FORMAT_FRACTAL_Z",
            ),
        ),
        "rank": (Refusal(f"at most 8 dimensions: {x}", shape(_NINE, x, out), x, "at most 8 dimensions", "9"),),
        "shape": (Refusal(f"same shape as {x}: {out}", shape((3, 2), out), out, "shape [2, 3]", "[3, 2]"),),
        "format": (
            Refusal(
                f"same format as {x}: {out}",
                {out: {"format": Format.FORMAT_NCHW}},
                out,
                "format ACL_FORMAT_ND",
                "ACL_FORMAT_NCHW",
            ),
        ),
    }
    return tuple(refusal for row in rows for refusal in every[row])


def _forward_edges(x: str = "self", out: str = "out", most: int = 9) -> tuple[Accepted, ...]:
    return (
        Accepted("empty", shape((0, 4), x, out)),
        Accepted("0-dim", shape((), x, out)),
        Accepted(f"{most} dimensions", shape((2,) + (1,) * (most - 2) + (3,), x, out)),
    )


FAST_GELU = Case(
    operator=BY_NAME["fast_gelu"],
    python=aclnn.fast_gelu,
    call=_forward_call("self", "out"),
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(PRODUCTS[3:], (INVALID, "self: expected data type")),
    curves={
        "fast_gelu": Curve(
            _fast_gelu,
            {},
            (0.0,),
            (_NAN, _INFINITE),
            _probes(_SAMPLE_X, "-0.018071 -0.064341 -0.154204 -0.149612 0.000000 0.350388 0.845796 1.935659 2.981929"),
        )
    },
    refusals=tuple(
        refusal if refusal.check.startswith(("present", "data type")) else replace(refusal, products=MODERN)
        for refusal in _forward_rows("null", "dtype of x", "list on the newer", "shape", "rank", "format")
    ),
    together={
        ("same data type as out: self", "data type: self"): dtype(D.INT8, "self"),
        ("same shape as self: out", "at most 8 dimensions: self"): shape(_NINE, "self"),
    },
    accepted=tuple(accepted._replace(products=MODERN) for accepted in _forward_edges(most=8)),
    examples=(),
)

SILU = Case(
    operator=BY_NAME["silu"],
    python=aclnn.silu,
    call=_forward_call("self", "out"),
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(_OLDEST, (NO_KERNEL, "product")),
    curves={
        "silu": Curve(
            _silu,
            {},
            (0.0,),
            (_NAN, _INFINITE),
            _probes(_SAMPLE_X, "-0.142278 -0.238406 -0.268941 -0.188770 0.000000 0.311230 0.731059 1.761594 2.857722"),
        )
    },
    refusals=_forward_rows("null", "lists", "dtype", "bfloat16", "shape"),
    together={("same data type as self: out", "data type: self"): dtype(BF16, "self")},
    accepted=_forward_edges(),
    examples=(),
)

_GELU_TANH_PROBES = _probes(
    _SAMPLE_X, "-0.003637 -0.045402 -0.158808 -0.154286 0.000000 0.345714 0.841192 1.954598 2.996363"
)
_GELU_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_OLD[1:], (FLOAT, FLOAT16))

GELU = Case(
    operator=BY_NAME["gelu"],
    python=aclnn.gelu,
    call=_forward_call("self", "out"),
    dtypes=_GELU_DTYPES,
    unsupported=dict.fromkeys(_OLDEST, (NO_KERNEL, "product")),
    curves={"gelu_tanh": Curve(_gelu_tanh, {}, (0.0,), (_NAN, _INFINITE), _GELU_TANH_PROBES)},
    refusals=_forward_rows("null", "list", "dtype", "private", "rank", "shape"),
    together={
        ("data type: self", "same data type as self: out"): dtype(D.DOUBLE, "self"),
        ("at most 8 dimensions: self", "same shape as self: out"): shape(_NINE, "self"),
    },
    accepted=_forward_edges(most=8),
    examples=(),
)

GELU_V2 = Case(
    operator=BY_NAME["gelu_v2"],
    python=aclnn.gelu_v2,
    call=_forward_call("x", "y", approximate=0),
    dtypes=_GELU_DTYPES,
    unsupported=dict.fromkeys(_OLDEST, (NO_KERNEL, "product")),
    curves={
        "gelu_v2_erf": Curve(
            _gelu_erf,
            {"approximate": 0},
            (0.0,),
            (_NAN, _INFINITE),
            _probes(_SAMPLE_X, "-0.004050 -0.045500 -0.158655 -0.154269 0.000000 0.345731 0.841345 1.954500 2.995950"),
        ),
        "gelu_v2_other": Curve(_gelu_erf, {"approximate": 7}, (), (_NAN, _INFINITE), {}),
        "gelu_v2_tanh": Curve(_gelu_tanh, {"approximate": 1}, (0.0,), (_NAN, _INFINITE), _GELU_TANH_PROBES),
    },
    refusals=_forward_rows("null", "dtype", "list", "shape", x="x", out="y"),
    together={("same data type as x: y", "data type: x"): dtype(D.DOUBLE, "x")},
    accepted=(*_forward_edges("x", "y"), Accepted("tanh", {"approximate": 1})),
    examples=(),
)


def _hardswish_value(x: Any) -> Any:
    return 0 * x if x[0] <= -3 else x if x[0] >= 3 else x * (x + 3) / 6


_HARDSWISH_CURVES = {
    "hardswish": Curve(
        _hardswish_value,
        {},
        (-3.0, 0.0, 3.0),
        (0.0, _INFINITE),
        _probes(_SAMPLE_X, "0.000000 -0.333333 -0.333333 -0.208333 0.000000 0.291667 0.666667 1.666667 3.000000"),
    )
}
_HARDSWISH_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}

HARDSWISH = Case(
    operator=BY_NAME["hardswish"],
    python=aclnn.hardswish,
    call=_forward_call("self", "out"),
    dtypes=_HARDSWISH_DTYPES,
    unsupported=dict.fromkeys(_OLD[:2], (NO_KERNEL, "product")),
    curves=_HARDSWISH_CURVES,
    refusals=_forward_rows("null", "lists", "shape"),
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(FLOATS)), "out"),
    accepted=(
        *_forward_edges(),
        Accepted("another type", dtype(other, "out")),
        Accepted("narrowed", dtype(FLOAT, "self") | dtype(BF16, "out"), MODERN),
    ),
    examples=(),
)

INPLACE_HARDSWISH = Case(
    operator=BY_NAME["inplace_hardswish"],
    python=aclnn.inplace_hardswish,
    call=lambda d: {"self": T(d, _GRID)},
    dtypes=_HARDSWISH_DTYPES,
    unsupported=dict.fromkeys(_OLD[:2], (NO_KERNEL, "product")),
    curves=_HARDSWISH_CURVES,
    refusals=(
        *every_null("present: self", "self"),
        Refusal("data type: self", dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Refusal("data type: self", dtype(BF16, "self"), "self", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=_OLD),
    ),
    never_together=frozenset({("present: self", "data type: self")}),
    accepted=(
        Accepted("empty", shape((0, 4), "self")),
        Accepted("0-dim", shape((), "self")),
        Accepted("9 dimensions", shape((2,) + (1,) * 7 + (3,), "self")),
    ),
    examples=(),
)

_STATISTICS = ("meanOutOptional", "rstdOutOptional")


def _layer_norm_forward_call(d: D) -> Arguments:
    return {
        "input": T(d, (2, 3)),
        "normalizedShape": (3,),
        "weightOptional": T(d, (3,)),
        "biasOptional": T(d, (3,)),
        "eps": 1e-5,
        "out": T(d, (2, 3)),
        "meanOutOptional": T(FLOAT, (2, 1)),
        "rstdOutOptional": T(FLOAT, (2, 1)),
    }


def _layer_norm_forward_reshape(rows: Shape, columns: Shape) -> Change:
    columns = columns or (1,)
    return {
        **shape(rows + columns, "input", "out"),
        **shape(rows + (1,) * len(columns), *_STATISTICS),
        **shape(columns, "weightOptional", "biasOptional"),
        "normalizedShape": columns,
    }


def _layer_norm_forward_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few mixes: the kernel is compiled for each.
    out, statistic = draw(st.sampled_from(((FLOAT, FLOAT), (BF16, FLOAT16))))
    absent = ("weightOptional", "biasOptional") if draw(st.booleans()) else ()
    return {**dtype(out, "out"), **dtype(statistic, *_STATISTICS), **dict.fromkeys(absent)}


_WITH_8 = (1,) * 8 + (3,)
_AT_MOST_8 = "at most 8 dimensions: input, out, weightOptional, biasOptional, meanOutOptional, rstdOutOptional"

_LAYER_NORM_ROWS = (
    *every_null("present: input, normalizedShape, out", "input normalizedShape out"),
    *(
        Refusal("data type: input, weightOptional", dtype(D.DOUBLE, n), n, "data type ACL_FLOAT", "ACL_DOUBLE")
        for n in ("input", "weightOptional")
    ),
    Refusal(
        "data type of input or float32: weightOptional",
        dtype(FLOAT16, "weightOptional"),
        "weightOptional",
        "data type ACL_FLOAT",
        "ACL_FLOAT16",
        dtypes=(FLOAT, BF16),
    ),
    Refusal("data type: biasOptional", dtype(D.BOOL, "biasOptional"), "biasOptional", "data type", "ACL_BOOL"),
    Refusal(
        "data type of input or float32: biasOptional",
        dtype(FLOAT16, "biasOptional"),
        "biasOptional",
        "data type ACL_FLOAT",
        "ACL_FLOAT16",
        dtypes=(FLOAT, BF16),
    ),
    Refusal(
        "one data type: weightOptional, biasOptional",
        dtype(FLOAT, "biasOptional"),
        "biasOptional",
        "that of weightOptional",
        "ACL_FLOAT",
        dtypes=(FLOAT16, BF16),
    ),
    *(
        Refusal(
            "data type: out, meanOutOptional, rstdOutOptional", dtype(D.INT64, n), n, "data type ACL_FLOAT", "ACL_INT64"
        )
        for n in ("out", *_STATISTICS)
    ),
    *(
        Refusal(_AT_MOST_8, shape(_WITH_8, n), n, "at most 8 dimensions", "9")
        for n in ("input", "out", "weightOptional", "biasOptional", *_STATISTICS)
    ),
    Refusal(
        "at most 8 dimensions: normalizedShape",
        {"normalizedShape": _NINE},
        "normalizedShape",
        "at most 8 dimensions",
        "9",
    ),
    Refusal(
        "at least 1 dimension: normalizedShape", {"normalizedShape": ()}, "normalizedShape", "at least 1 dimension", "0"
    ),
    Refusal(
        "rank of input covers normalizedShape", {"normalizedShape": (1, 2, 3)}, "input", "at least 3 dimensions", "2"
    ),
    *(
        Refusal(
            "rank of normalizedShape: weightOptional, biasOptional",
            shape((1, 3), n),
            n,
            "1 dimensions (as normalizedShape)",
            "2",
        )
        for n in ("weightOptional", "biasOptional")
    ),
    Refusal("trailing dimensions of input", {"normalizedShape": (4,)}, "input", "trailing dimensions [4]", "[3]"),
    *(
        Refusal("shape is normalizedShape: weightOptional, biasOptional", shape((4,), n), n, "shape [3]", "[4]")
        for n in ("weightOptional", "biasOptional")
    ),
    Refusal("same shape as input: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    *(
        Refusal(
            "one statistic a row: meanOutOptional, rstdOutOptional",
            shape((2,), n),
            n,
            "shape [2, 1]",
            "[2]",
            products=_ONLY_950,
        )
        for n in _STATISTICS
    ),
    *(
        Refusal(
            "room for every row's statistic: meanOutOptional, rstdOutOptional",
            shape((3,), n),
            n,
            "2 elements",
            "3",
            products=_NOT_950,
        )
        for n in _STATISTICS
    ),
    Refusal(
        # An empty one passes the 950 class's check of its shape.
        "room for every row's statistic: meanOutOptional, rstdOutOptional",
        shape((0,), "rstdOutOptional"),
        "rstdOutOptional",
        "2 elements",
        "0",
    ),
)

_LAYER_NORM_NEVER = frozenset(
    {
        # normalizedShape has too many dimensions, none, or too many for input.
        ("at most 8 dimensions: normalizedShape", "at least 1 dimension: normalizedShape"),
        ("at least 1 dimension: normalizedShape", "rank of input covers normalizedShape"),
    }
)

LAYER_NORM = Case(
    operator=BY_NAME["layer_norm"],
    python=aclnn.layer_norm,
    call=_layer_norm_forward_call,
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_INFERENCE: (NO_KERNEL, "product")},
    refusals=_LAYER_NORM_ROWS,
    reshape=_layer_norm_forward_reshape,
    mixed=_layer_norm_forward_mixed,
    reference=normalization.forward,
    never_together=_LAYER_NORM_NEVER,
    together={
        ("data type of input or float32: weightOptional", "data type: biasOptional"): (
            dtype(FLOAT16, "weightOptional") | dtype(D.BOOL, "biasOptional")
        ),
    },
    accepted=(
        Accepted("no rows", _layer_norm_forward_reshape((0,), (3,))),
        Accepted("no columns", _layer_norm_forward_reshape((5,), (0, 3)) | dict.fromkeys(_STATISTICS)),
        Accepted("only statistics of no columns", _layer_norm_forward_reshape((5,), (0, 3))),
        Accepted("no leading dimensions", _layer_norm_forward_reshape((), (3,))),
        Accepted("8 dimensions", _layer_norm_forward_reshape((2, 1, 2, 1), (2, 1, 1, 3))),
        Accepted("no weight", {"weightOptional": None}),
        Accepted("no bias", {"biasOptional": None}),
        Accepted("no statistics", dict.fromkeys(_STATISTICS)),
        Accepted("float32 parameters", dtype(FLOAT, "weightOptional", "biasOptional")),
        Accepted("other outputs", dtype(FLOAT, "out") | dtype(FLOAT16, *_STATISTICS)),
    ),
    examples=(
        Example(
            {
                "input": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "weightOptional": None,
                "biasOptional": None,
            },
            {"normalizedShape": (2,), "eps": 1e-5},
            {
                "out": "-0.999980 0.999980 -0.999980 0.999980",
                "meanOutOptional": "2.500000 4.500000",
                "rstdOutOptional": "1.999960 1.999960",
            },
        ),
    ),
)

LAYER_NORM_WITH_IMPL_MODE = replace(
    LAYER_NORM,
    operator=BY_NAME["layer_norm_with_impl_mode"],
    python=aclnn.layer_norm_with_impl_mode,
    call=lambda d: _layer_norm_forward_call(d) | {"implMode": 0},
    refusals=(
        *_LAYER_NORM_ROWS,
        *(Refusal("known mode: implMode", {"implMode": m}, "implMode", "0, 1 or 2", str(m)) for m in (-1, 3)),
        Refusal(
            "float16 for implMode 2: input, weightOptional, biasOptional",
            {"implMode": 2},
            "input",
            "data type ACL_FLOAT16",
            "ACL_",
            dtypes=(FLOAT, BF16),
        ),
        Refusal(
            "float16 for implMode 2: input, weightOptional, biasOptional",
            {"implMode": 2, **dtype(FLOAT, "weightOptional", "biasOptional")},
            "weightOptional",
            "data type ACL_FLOAT16",
            "ACL_FLOAT",
            dtypes=(FLOAT16,),
        ),
    ),
    # A mode is known or not; what follows is for one that is.
    never_together=frozenset({("known mode: implMode", "float16 for implMode 2: input, weightOptional, biasOptional")})
    | _LAYER_NORM_NEVER,
    accepted=(*LAYER_NORM.accepted, Accepted("high performance", {"implMode": 1})),
    examples=tuple(
        example._replace(attributes={**example.attributes, "implMode": 0}) for example in LAYER_NORM.examples
    ),
)

CASES = tuple(value for value in list(globals().values()) if isinstance(value, Case))
CASE_BY_NAME = {case.name: case for case in CASES}
