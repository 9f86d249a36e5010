"""Data types, products and parameters that several library-backed operators share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import FLOATING, listing, rule, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import is_floating, promote

REAL_FLOATING = (D.FLOAT, D.FLOAT16, D.DOUBLE, D.BF16)
INTEGERS = (D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64)
UNSIGNED = (D.UINT16, D.UINT32, D.UINT64)
#: Floating-point numbers of eight bits that NumPy converts, and all that it moves.
EIGHT_BITS_OF_NUMPY = (D.FLOAT8_E5M2, D.FLOAT8_E4M3FN)
EIGHT_BITS = (*EIGHT_BITS_OF_NUMPY, D.HIFLOAT8)
COMPLEX = (D.COMPLEX64, D.COMPLEX128)
INDEX_TYPES = (D.INT32, D.INT64)
#: Any two of these promote to one of them.
REAL = (*REAL_FLOATING, *INTEGERS, D.BOOL)
#: What most of the operators take.
NUMBERS = (*REAL, *COMPLEX)

MODERN = A2_CLASS | CLASS_950
WITH_TRAINING = MODERN | {Product.ATLAS_TRAINING}
WITH_INFERENCE = WITH_TRAINING | {Product.ATLAS_INFERENCE}


def support(dtypes: Collection[D], products: Collection[Product] = WITH_INFERENCE) -> Mapping[Product, frozenset[D]]:
    """The products that have a kernel, each with those data types, BF16 only where it exists."""
    narrow = frozenset(dtypes) - {D.BF16}
    return {product: frozenset(dtypes) if product.has_bfloat16 else narrow for product in products}


def on_950(more: Collection[D], dtypes: Collection[D]) -> Callable[[Product], Collection[D]]:
    """The data types of a product, with more on the 950 class."""
    taken = where_supported(dtypes)
    return lambda product: frozenset(taken(product)) | set(more) if product in CLASS_950 else taken(product)


def tensor_in(name: str, meaning: str) -> Parameter:
    """An input tensor."""
    return Parameter(name, name, Kind.INPUT, meaning)


def optional_in(name: str, meaning: str) -> Parameter:
    """An input tensor that may be null."""
    return Parameter(name, name, Kind.INPUT, meaning, optional=True)


def tensor_out(
    name: str = "out",
    meaning: str = "the result",
    const: bool = False,
    optional: bool = False,
    updated: bool = False,
) -> Parameter:
    """An output tensor, which may be null where it is optional; some prototypes call it const.

    Where it is ``updated``, what it replaces is read.
    """
    return Parameter(name, name, Kind.OUTPUT, meaning, optional, "const aclTensor *" if const else None, updated)


def replaced(const: bool = False) -> Parameter:
    """The first operand of a function in place; some prototypes call it const."""
    return tensor_out("selfRef", "the first operand, replaced by the result", const)


def scalar(name: str, meaning: str) -> Parameter:
    """A number of any data type."""
    return Parameter(name, name, Kind.SCALAR, meaning)


def attribute(name: str, kind: Kind, meaning: str) -> Parameter:
    """A number, flag or text of a C type."""
    return Parameter(name, name, kind, meaning)


def constant_text(name: str, meaning: str) -> Parameter:
    """A text that the prototype calls const, as it does with most that are not generated."""
    return Parameter(name, name, Kind.STRING, meaning, c_type="const char *")


def promoted_dtype(first: D, second: D) -> D:
    """Return the type that two types promote to, DT_UNDEFINED if there is none."""
    found = promote(first, second)
    return D.DT_UNDEFINED if found is None else found


def promoted(call: Call, first: str, second: str) -> D:
    """The type that two tensors promote to, which an earlier check has found to exist."""
    found = promote(call[first].dtype, call[second].dtype)
    assert found is not None
    return found


class Form(NamedTuple):
    """A function of two operands with an output of its own, or the one that replaces the first operand."""

    prefix: str
    first: str
    out: str

    @property
    def in_place(self) -> bool:
        """True where the result replaces the first operand."""
        return self.first == self.out

    @property
    def names(self) -> tuple[str, ...]:
        """The operands and the output, each once."""
        return (self.first, "other") if self.in_place else (self.first, "other", self.out)

    def parameters(self, *others: Parameter, result: Parameter, const: bool = False) -> tuple[Parameter, ...]:
        """The parameters; ``const`` is of the operand that is replaced."""
        if self.in_place:
            return replaced(const), *others
        return tensor_in(self.first, "the first operand"), *others, result

    def summary(self, sentence: str) -> str:
        """The sentence, which says so where the function works in place."""
        return f"{sentence[:-1]}, in place." if self.in_place else sentence

    def promoted(self, call: Call) -> D:
        """The type that two tensors promote to, which an earlier check has found to exist."""
        return promoted(call, self.first, "other")


FORMS = (Form("", "self", "out"), Form("inplace_", "selfRef", "selfRef"))


def type_with_scalar(call: Call, name: str, out: str, scalar: str = "other") -> D | None:
    """The type in which a tensor and a scalar are computed; None when the two have none."""
    tensor: D = call[name].dtype
    number: D = call[scalar].dtype
    if promote(number, number) is None:
        return None
    modern = call.product in CLASS_950
    if modern and (tensor in COMPLEX or number in COMPLEX):
        return tensor if tensor in COMPLEX else D.COMPLEX128 if tensor == D.DOUBLE else D.COMPLEX64
    if tensor in COMPLEX or number in COMPLEX:
        return promote(tensor, number)
    if is_floating(tensor):
        return tensor
    if is_floating(number):
        single = modern or (number == D.DOUBLE and call[out].dtype == D.FLOAT)
        return promote(tensor, D.FLOAT if single else number)
    return promote(tensor, number) if tensor == D.BOOL else tensor


def scalar_promotes(dtype: Callable[[Call], D | None], name: str) -> Check:
    """A tensor and the scalar ``other`` have a type to be computed in."""

    def complain(call: Call) -> str | None:
        if dtype(call) is not None:
            return None
        mine, theirs = call["other"].dtype.c_name, call[name].dtype.c_name
        return f"other: expected a data type that promotes with {theirs} (that of {name}), got {mine}"

    return rule(f"promotable: {name}, other", complain)


def within_range(name: str, dtype: Callable[[Call], D | None]) -> Check:
    """Require a real scalar within the range of a type; of BF16, BOOL and complex types any."""

    def complain(call: Call) -> str | None:
        target, number = dtype(call), call[name].value.item()
        if target not in (D.FLOAT, D.FLOAT16, D.DOUBLE, *INTEGERS):
            return None
        is_integer = target in INTEGERS
        limits: Any = np.iinfo(target.numpy) if is_integer else np.finfo(target.numpy)
        greatest = limits.max if is_integer else float(limits.max)
        # A negative number wraps around where there is no sign.
        least = -math.inf if target == D.UINT8 else limits.min if is_integer else -greatest
        if least <= number <= greatest or not (is_integer or math.isfinite(number)):
            return None
        return f"{name}: expected a number within the range of {target.c_name}, got {number}"

    return rule(f"within the range: {name}", complain)


def power(base: Any, exponent: Any) -> Any:
    """Powers; of integers by integers an integer, 0 where a negative exponent leaves a fraction."""
    exponent = np.asarray(exponent)
    if base.dtype.kind in "fc" or exponent.dtype.kind in "fc":
        # NumPy's powers of float32 are off by several units.
        wide = np.result_type(base, exponent, np.float64)
        return np.power(base.astype(wide), exponent.astype(wide))
    inverse = np.where(np.abs(base) == 1, np.power(base, exponent & 1), 0)
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0)))


def logistic(x: Any) -> Any:
    """1 / (1 + e^-x), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def expect_within(name: str, numbers: Any, least: int, most: int, what: str = "numbers") -> None:
    """Raise IndexError for an index that would read out of bounds, or another number that is out of range."""
    beyond = numbers[(numbers < least) | (numbers > most)]
    if beyond.size:
        raise IndexError(f"{name}: expected {what} from {least} to {most}, got {beyond.flat[0]}")


def add_at(total: Any, places: Any, values: Any) -> None:
    """Add values to elements, in order.

    ``np.add.at`` takes several times as long with an index for each dimension, or with values of another type.

    Args:
        total: C-contiguous.
        places: indices into the elements of ``total`` in one row.
        values: broadcast to ``places``.
    """
    given = np.broadcast_to(values, places.shape).astype(total.dtype, copy=False)
    np.add.at(total.reshape(-1), places.reshape(-1), given.reshape(-1))


def add_rows(total: Any, rows: Any, values: Any) -> None:
    """Add each row of values to one of the C-contiguous matrix ``total``, in order."""
    columns = total.shape[1]
    add_at(total, rows[:, None] * columns + np.arange(columns), values)


CUBE = Parameter("cubeMathType", "cube_math_type", Kind.INT8, "which precision the cube unit may use")
#: In the operands' type; in less if the unit prefers it; in FLOAT16; in HFLOAT32.
KEEP_DTYPE, ALLOW_DOWN_PRECISION, USE_FP16, USE_HF32 = range(4)
_WITHOUT_CUBES_OF_FLOAT = (Product.ATLAS_TRAINING, Product.ATLAS_INFERENCE)


def cube_math(*names: str, further: Collection[int] = (), before_950: Collection[int] = ()) -> Check:
    """Require a precision that the product's cube unit has for these operands.

    Args:
        names: the operands.
        further: more numbers that the function takes.
        before_950: more that it takes before Ascend 950, of FLOAT only where the unit multiplies that.
    """

    def complain(call: Call) -> str | None:
        given, allowed = call["cubeMathType"], {KEEP_DTYPE, ALLOW_DOWN_PRECISION, USE_FP16, USE_HF32, *further}
        if call.product not in CLASS_950:
            allowed.update(before_950)
        if call.product in _WITHOUT_CUBES_OF_FLOAT and D.FLOAT in [call[name].dtype for name in names]:
            allowed.difference_update((KEEP_DTYPE, USE_HF32, *before_950))
        if given in allowed:
            return None
        return f"cubeMathType: expected {listing(map(str, sorted(allowed)))} on {call.product.title}, got {given}"

    return rule("allowed value: cubeMathType", complain)


def camel(name: str) -> str:
    """The C function's name."""
    return "aclnn" + "".join(word.upper() if word == "nll" else word.capitalize() for word in name.split("_"))


def library_operator(
    name: str,
    formula: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    function: Callable[..., Any],
    header: str,
    dtype: Callable[[Call], D | None] | None = None,
    dtypes: Collection[D] = NUMBERS,
    products: Collection[Product] = WITH_INFERENCE,
    stream_type: str = "aclrtStream ",
    empty: tuple[str, ...] = (),
    inputs: tuple[str, ...] | None = None,
    attributes: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
    fills: bool = False,
) -> Operator:
    """An operator whose outputs NumPy computes from its tensors, scalars and attributes.

    Args:
        name: in snake case; the C name follows.
        formula: as text, with the parameters' names.
        summary: one sentence.
        parameters: of the first phase; an output named ``selfRef`` is an input too.
        checks: in order.
        function: takes the tensors and scalars, then the attributes.
        header: the C header's name without ``aclnn_``.
        dtype: in which to compute; None for what the inputs have.
        dtypes: what the kernels take.
        products: those that have a kernel.
        stream_type: of the second phase's last parameter.
        empty: tensors beside the outputs that leave nothing to do when they are empty.
        inputs: what the function takes; None for all tensors and scalars in the signature's order.
        attributes: those of other kinds that the function takes.
        numbers: scalars whose values decide neither a check nor ``dtype``.
        fills: the function takes ``out`` (see ``Library``); so does every ufunc.
    """
    outputs = tuple(p.name for p in parameters if p.kind is Kind.OUTPUT)
    if inputs is None:
        inputs = tuple(p.name for p in parameters if p.kind in (Kind.INPUT, Kind.SCALAR) or p.name == "selfRef")

    def work(call: Call) -> Library | None:
        if all(call[each].size == 0 for each in outputs) or any(call[each].size == 0 for each in empty):
            return None
        values = [call[name] for name in attributes]
        bound = (lambda *operands, **out: function(*operands, *values, **out)) if values else function
        takes_out = fills or isinstance(function, np.ufunc)
        return Library(bound, inputs, outputs, None if dtype is None else dtype(call), fills=takes_out)

    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula=formula,
        parameters=parameters,
        support=support(dtypes, products),
        checks=checks,
        work=work,
        numbers=numbers,
        stream_type=stream_type,
        in_header_of=header,
    )


def declared(
    name: str,
    formula: str,
    summary: str,
    parameters: Sequence[Parameter],
    checks: Sequence[Check],
    work: Callable[[Call], Library | None],
    dtypes: Collection[D] = FLOATING,
    products: Collection[Product] = MODERN,
    stream_type: str = "aclrtStream ",
) -> Operator:
    """An operator with a header and a work of its own; see ``library_operator``."""
    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula=formula,
        parameters=tuple(parameters),
        support=support(dtypes, products),
        checks=tuple(checks),
        work=work,
        stream_type=stream_type,
    )
