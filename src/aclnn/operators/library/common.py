"""Data types, products and parameters common to library operators."""

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
#: Eight-bit floating-point types that NumPy converts, and all types that it can move.
EIGHT_BITS_OF_NUMPY = (D.FLOAT8_E5M2, D.FLOAT8_E4M3FN)
EIGHT_BITS = (*EIGHT_BITS_OF_NUMPY, D.HIFLOAT8)
COMPLEX = (D.COMPLEX64, D.COMPLEX128)
INDEX_TYPES = (D.INT32, D.INT64)
#: Types closed under promotion.
REAL = (*REAL_FLOATING, *INTEGERS, D.BOOL)
#: Types of most operators.
NUMBERS = (*REAL, *COMPLEX)

MODERN = A2_CLASS | CLASS_950
WITH_TRAINING = MODERN | {Product.ATLAS_TRAINING}
WITH_INFERENCE = WITH_TRAINING | {Product.ATLAS_INFERENCE}


def support(dtypes: Collection[D], products: Collection[Product] = WITH_INFERENCE) -> Mapping[Product, frozenset[D]]:
    """Return the supported data types by product, with BF16 only on products that have it."""
    narrow = frozenset(dtypes) - {D.BF16}
    return {product: frozenset(dtypes) if product.has_bfloat16 else narrow for product in products}


def on_950(more: Collection[D], dtypes: Collection[D]) -> Callable[[Product], Collection[D]]:
    """Return a function of the product: these data types, and more on the 950 class."""
    taken = where_supported(dtypes)
    return lambda product: frozenset(taken(product)) | set(more) if product in CLASS_950 else taken(product)


def tensor_in(name: str, meaning: str) -> Parameter:
    """Declare an input tensor."""
    return Parameter(name, name, Kind.INPUT, meaning)


def optional_in(name: str, meaning: str) -> Parameter:
    """Declare an input tensor that may be null."""
    return Parameter(name, name, Kind.INPUT, meaning, optional=True)


def tensor_out(
    name: str = "out",
    meaning: str = "the result",
    const: bool = False,
    optional: bool = False,
    updated: bool = False,
    index_of: str | None = "",
) -> Parameter:
    """Declare an output tensor, which may be null if optional, or declared const in the prototype.

    If ``updated``, the function also reads its old contents; for ``index_of`` see ``Parameter``.
    """
    c_type = "const aclTensor *" if const else None
    return Parameter(name, name, Kind.OUTPUT, meaning, optional, c_type, updated, index_of)


def replaced(const: bool = False) -> Parameter:
    """Declare the first operand of an in-place function; some prototypes declare it const."""
    return tensor_out("selfRef", "the first operand, replaced by the result", const)


def scalar(name: str, meaning: str) -> Parameter:
    """Declare a scalar of any data type."""
    return Parameter(name, name, Kind.SCALAR, meaning)


def attribute(name: str, kind: Kind, meaning: str) -> Parameter:
    """Declare a number, flag or text of a C type."""
    return Parameter(name, name, kind, meaning)


def constant_text(name: str, meaning: str) -> Parameter:
    """Declare a text that the prototype declares const, as most prototypes that are not generated do."""
    return Parameter(name, name, Kind.STRING, meaning, c_type="const char *")


def promoted_dtype(first: D, second: D) -> D:
    """Return the type that two types promote to, DT_UNDEFINED if there is none."""
    found = promote(first, second)
    return D.DT_UNDEFINED if found is None else found


def promoted(call: Call, first: str, second: str) -> D:
    """Return the type to which two tensors promote, whose existence has been checked."""
    found = promote(call[first].dtype, call[second].dtype)
    assert found is not None
    return found


class Form(NamedTuple):
    """Form of a function of two operands: with an output of its own, or with the first operand replaced."""

    prefix: str
    first: str
    out: str

    @property
    def in_place(self) -> bool:
        """True if the result replaces the first operand."""
        return self.first == self.out

    @property
    def names(self) -> tuple[str, ...]:
        """Distinct names of the operands and the output."""
        return (self.first, "other") if self.in_place else (self.first, "other", self.out)

    def parameters(self, *others: Parameter, result: Parameter, const: bool = False) -> tuple[Parameter, ...]:
        """The parameters; ``const`` is of the operand that is replaced."""
        if self.in_place:
            return replaced(const), *others
        return tensor_in(self.first, "the first operand"), *others, result

    def summary(self, sentence: str) -> str:
        """Return the sentence, with a note if the function works in place."""
        return f"{sentence[:-1]}, in place." if self.in_place else sentence

    def promoted(self, call: Call) -> D:
        """Return the type to which two tensors promote, whose existence has been checked."""
        return promoted(call, self.first, "other")


FORMS = (Form("", "self", "out"), Form("inplace_", "selfRef", "selfRef"))


def type_with_scalar(call: Call, name: str, out: str, scalar: str = "other") -> D | None:
    """Return the type in which a tensor and a scalar are computed; None if there is none."""
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
    """Require a type in which a tensor and the scalar ``other`` can be computed."""

    def violation(call: Call) -> str | None:
        if dtype(call) is not None:
            return None
        mine, theirs = call["other"].dtype.c_name, call[name].dtype.c_name
        return f"other: expected a data type that promotes with {theirs} (that of {name}), got {mine}"

    return rule(f"promotable: {name}, other", violation)


def within_range(name: str, dtype: Callable[[Call], D | None]) -> Check:
    """Require a real scalar within the range of a type; BF16, BOOL and complex types accept any."""

    def violation(call: Call) -> str | None:
        target, number = dtype(call), call[name].value.item()
        if target not in (D.FLOAT, D.FLOAT16, D.DOUBLE, *INTEGERS):
            return None
        is_integer = target in INTEGERS
        limits: Any = np.iinfo(target.numpy) if is_integer else np.finfo(target.numpy)
        greatest = limits.max if is_integer else float(limits.max)
        # Negative numbers wrap around in unsigned types.
        least = -math.inf if target == D.UINT8 else limits.min if is_integer else -greatest
        if least <= number <= greatest or not (is_integer or math.isfinite(number)):
            return None
        return f"{name}: expected a number within the range of {target.c_name}, got {number}"

    return rule(f"within the range: {name}", violation)


def power(base: Any, exponent: Any) -> Any:
    """Return powers; integers to integers give integers, 0 if a negative exponent leaves a fraction."""
    exponent = np.asarray(exponent)
    if base.dtype.kind in "fc" or exponent.dtype.kind in "fc":
        # NumPy's float32 powers are off by several ULP.
        wide = np.result_type(base, exponent, np.float64)
        return np.power(base.astype(wide), exponent.astype(wide))
    inverse = np.where(np.abs(base) == 1, np.power(base, exponent & 1), 0)
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0)))


def logistic(x: Any) -> Any:
    """Return 1 / (1 + e^-x), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def expect_within(name: str, numbers: Any, least: int, most: int, what: str = "numbers") -> None:
    """Raise IndexError for an index that would read out of bounds, or another number that is out of range."""
    beyond = numbers[(numbers < least) | (numbers > most)]
    if beyond.size:
        raise IndexError(f"{name}: expected {what} from {least} to {most}, got {beyond.flat[0]}")


def parts_between(ends: Any, most: int, name: str) -> list[slice]:
    """Return the slices between ends; ``name`` is the name of the tensor of ends."""
    before = [0, *ends[:-1].tolist()]
    wrong = next(
        (at for at, (begin, end) in enumerate(zip(before, ends, strict=True)) if not begin <= end <= most), None
    )
    if wrong is not None:
        expected = f"expected an end from {before[wrong]}, that of the one before, to {most}"
        raise IndexError(f"{name}[{wrong}]: {expected}, got {ends[wrong]}")
    return [*map(slice, before, ends.tolist())]


def add_at(total: Any, places: Any, values: Any) -> None:
    """Add values to elements in sequence, with repeated indices.

    ``np.add.at`` takes several times as long with an index per dimension, or with values of another type.

    Args:
        total: C-contiguous array.
        places: flat indices into ``total``.
        values: values, broadcast to ``places``.
    """
    given = np.broadcast_to(values, places.shape).astype(total.dtype, copy=False)
    np.add.at(total.reshape(-1), places.reshape(-1), given.reshape(-1))


def add_rows(total: Any, rows: Any, values: Any) -> None:
    """Add each row of values to a row of the C-contiguous matrix ``total``, in sequence."""
    columns = total.shape[1]
    add_at(total, rows[:, None] * columns + np.arange(columns), values)


CUBE = Parameter("cubeMathType", "cube_math_type", Kind.INT8, "which precision the cube unit may use")
#: Precision modes: the operands' type; a lower one if the unit prefers it; FLOAT16; HFLOAT32.
KEEP_DTYPE, ALLOW_DOWN_PRECISION, USE_FP16, USE_HF32 = range(4)
_WITHOUT_CUBES_OF_FLOAT = (Product.ATLAS_TRAINING, Product.ATLAS_INFERENCE)


def cube_math(*names: str, further: Collection[int] = (), before_950: Collection[int] = ()) -> Check:
    """Require a precision mode of the product's cube unit for these operands.

    Args:
        names: the operands.
        further: additional modes of the function.
        before_950: additional modes before Ascend 950; for FLOAT only if the unit multiplies that type.
    """

    def violation(call: Call) -> str | None:
        given, allowed = call["cubeMathType"], {KEEP_DTYPE, ALLOW_DOWN_PRECISION, USE_FP16, USE_HF32, *further}
        if call.product not in CLASS_950:
            allowed.update(before_950)
        if call.product in _WITHOUT_CUBES_OF_FLOAT and D.FLOAT in [call[name].dtype for name in names]:
            allowed.difference_update((KEEP_DTYPE, USE_HF32, *before_950))
        if given in allowed:
            return None
        return f"cubeMathType: expected {listing(map(str, sorted(allowed)))} on {call.product.title}, got {given}"

    return rule("allowed value: cubeMathType", violation)


def library_operator(
    name: str,
    formula: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    function: Callable[..., Any],
    header: str | None = None,
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
    """Declare an operator whose outputs NumPy computes from tensors, scalars and attributes.

    Args:
        name: name in snake case, from which the C name follows.
        formula: formula as text, with the parameters' names.
        summary: one sentence.
        parameters: parameters of the first phase; an output named ``selfRef`` is also an input.
        checks: checks in order.
        function: takes the tensors and scalars, then the attributes.
        header: the C header's name without ``aclnn_``; None for the operator's own.
        dtype: data type of the computation; None for the inputs' own.
        dtypes: data types of the kernels.
        products: products with a kernel.
        stream_type: C type of the second phase's last parameter.
        empty: tensors with the outputs that leave nothing to compute if empty.
        inputs: inputs of the function; None for all tensors and scalars in the signature's order.
        attributes: attributes passed to the function.
        numbers: scalars whose values affect neither a check nor ``dtype``.
        fills: True if the function accepts ``out`` (see ``Library``), as every ufunc does.
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
    """Declare an operator with a header and a work function of its own; see ``library_operator``."""
    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=tuple(parameters),
        support=support(dtypes, products),
        checks=tuple(checks),
        work=work,
        stream_type=stream_type,
    )
