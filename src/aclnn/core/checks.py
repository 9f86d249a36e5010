"""Reusable checks for operator declarations: each has a status code and an error text that states what was expected."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from aclnn.core.dtypes import DataType, Format
from aclnn.core.operator import Call, Check, Operator, present
from aclnn.core.products import Product
from aclnn.core.promotion import castable, promote
from aclnn.core.status import ACLNN_ERR_INNER_FIND_KERNEL_ERROR, ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID
from aclnn.core.tensor import Tensor

FLOATING = (DataType.FLOAT, DataType.FLOAT16, DataType.BF16)

#: Floating-point types of the operators' kernels: bfloat16 exists on the A2, A3 and 950 products only.
WITH_BFLOAT16 = frozenset(FLOATING)
WITHOUT_BFLOAT16 = frozenset({DataType.FLOAT, DataType.FLOAT16})


def computed(operator: Operator) -> tuple[DataType, ...]:
    """Return float32, float16, bfloat16, then the other data types that an operator computes on some product."""
    taken = frozenset[DataType]().union(*operator.support.values())
    return (*FLOATING, *sorted(taken - WITH_BFLOAT16))


#: Maximum number of dimensions of a tensor, for operators that state a limit.
MOST_DIMS = 8

#: Maximum length of a rejected value in an error text, in characters.
_SHOWN = 80
_EXTENTS = 16

#: Function of a call and an argument's name: returns an error text for a violation, None otherwise.
Violation = Callable[[Call, str], str | None]


def listing(items: Iterable[str], last: str = "or") -> str:
    """Join words for a sentence: ``a``, ``a or b``, ``a, b or c``."""
    words = list(items)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "none"


def shown(value: object) -> str:
    """Format a rejected value for an error text: at most 80 characters, bytes that are not UTF-8 as ``\\xff``."""
    text = repr(value).replace(r"\udc", r"\x")  # such bytes are decoded as U+DC80 to U+DCFF
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def extents(shape: Sequence[int]) -> str:
    """Format a shape or strides for an error text: at most 16 numbers, and their count if there are more."""
    if len(shape) <= _EXTENTS:
        return str(list(shape))
    return f"{str(list(shape[:_EXTENTS]))[:-1]}, … {len(shape)} in all]"


def worded(value: object) -> str:
    """Format a value for an error text: a shape as a list, a data type or format by its name in C, a text quoted."""
    if isinstance(value, (DataType, Format)):
        return value.c_name
    if isinstance(value, (tuple, list)):
        return extents(value)
    return shown(value) if isinstance(value, str) else str(value)


def rule(name: str, violation: Callable[[Call], str | None], code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Make a check from a function that returns an error text for a violation, None otherwise."""
    return Check(name, code, violation)


def each(name: str, names: Sequence[str], violation: Violation, code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Make a check that applies to each of several arguments in order; null arguments are skipped."""
    names = tuple(dict.fromkeys(names))

    def find(call: Call) -> str | None:
        for argument in names:
            if call[argument] is not None and (text := violation(call, argument)) is not None:
                return f"{argument}: {text}"
        return None

    return Check(f"{name}: {', '.join(names)}", code, find)


def value_is(
    what: str,
    holds: Callable[[Any], object],
    *names: str,
    of: Callable[[Any], Any] = lambda argument: argument.shape if isinstance(argument, Tensor) else argument,
    code: int = ACLNN_ERR_PARAM_INVALID,
) -> Check:
    """Require a property of arguments.

    Args:
        what: the property, as in ``at least 1``.
        holds: function of the value that returns true if it has the property.
        names: the arguments.
        of: function of an argument that returns the value; by default a tensor's shape, an attribute itself.
        code: status code of a violation.
    """

    def violation(call: Call, name: str) -> str | None:
        got = of(call[name])
        return None if holds(got) else f"expected {what}, got {worded(got)}"

    return each(what, names, violation, code)


def fits(
    what: str,
    values: Callable[[Call, Any], tuple[Any, ...]],
    *names: str,
    holds: Callable[..., object] = operator.eq,
    code: int = ACLNN_ERR_PARAM_INVALID,
) -> Check:
    """Require a value that fits others of the call, by default one that equals another.

    Args:
        what: the expected value, with ``{}`` for the others in order: ``{} rows (as many as x)``.
        values: function of the call and the argument that returns the other values, then the argument's.
        names: the arguments.
        holds: function of all values that returns true if the last one fits.
        code: status code of a violation.
    """

    def violation(call: Call, name: str) -> str | None:
        *others, got = values(call, call[name])
        return None if holds(*others, got) else f"expected {what.format(*map(worded, others))}, got {worded(got)}"

    return each(what.replace("{}", "…"), names, violation, code)


def among(
    what: str,
    values: Callable[[Call, Any], tuple[Collection[Any], Any]],
    *names: str,
    code: int = ACLNN_ERR_PARAM_INVALID,
) -> Check:
    """Require one of several values: ``fits`` with a collection as the only other value, which is listed in words."""

    def violation(call: Call, name: str) -> str | None:
        allowed, got = values(call, call[name])
        return None if got in allowed else f"expected {what.format(listing(map(worded, allowed)))}, got {worded(got)}"

    return each(what.replace("{}", "…"), names, violation, code)


def dtype_in(allowed: Collection[DataType] | Callable[[Product], Collection[DataType]], *names: str) -> Check:
    """Require one of a set of data types, which may depend on the product."""

    def violation(call: Call, name: str) -> str | None:
        accepted, dtype = allowed(call.product) if callable(allowed) else allowed, call[name].dtype
        if dtype in accepted:
            return None
        # BF16 is not listed on products without it: a later check rejects it there even if this one accepts it.
        lacks = set() if call.product.has_bfloat16 else {DataType.BF16}
        expected = listing(member.c_name for member in DataType if member in accepted and member not in lacks)
        return f"expected data type {expected} on {call.product.title}, got {dtype.c_name}"

    return each("data type", names, violation)


def where_supported(dtypes: Collection[DataType]) -> Callable[[Product], frozenset[DataType]]:
    """Return a function that maps a product to these data types, without BF16 on products that lack it."""
    without = frozenset(dtypes) - {DataType.BF16}
    return lambda product: frozenset(dtypes) if product.has_bfloat16 else without


def floating(product: Product) -> frozenset[DataType]:
    """Return float32 and float16, and bfloat16 where the product has it."""
    return WITH_BFLOAT16 if product.has_bfloat16 else WITHOUT_BFLOAT16


def promotable(first: str, second: str) -> Check:
    """Require a common data type to which two tensors or scalars promote."""

    def violation(call: Call) -> str | None:
        got, expected = call[second].dtype, call[first].dtype
        if promote(expected, got) is not None:
            return None
        return (
            f"{second}: expected a data type that promotes with {expected.c_name} (that of {first}), got {got.c_name}"
        )

    return rule(f"promotable: {first}, {second}", violation)


def castable_from(dtype: Callable[[Call], DataType], *names: str) -> Check:
    """Require data types to which the result's data type converts implicitly."""

    def violation(call: Call, name: str) -> str | None:
        computed, got = dtype(call), call[name].dtype
        if castable(computed, got):
            return None
        return f"expected a data type to which {computed.c_name} (that of the result) converts, got {got.c_name}"

    return each("holds the result", names, violation)


def unless_real(dtype: DataType) -> str | None:
    """Return an error text for a data type that is not boolean, integer or real floating-point."""
    return None if castable(dtype, DataType.DOUBLE) else f"expected a real number, got one of {dtype.c_name}"


def real(*names: str) -> Check:
    """Require scalars that are booleans, integers or real floating-point numbers."""

    return each("real number", names, lambda call, name: unless_real(call[name].dtype))


def finite(*names: str) -> Check:
    """Require real scalars that are neither infinite nor NaN."""

    def violation(call: Call, name: str) -> str | None:
        got = float(call[name].value)
        return None if math.isfinite(got) else f"expected a finite number, got {got}"

    return each("finite number", names, violation)


def same_dtype(name: str, other: str) -> Check:
    """Require equal data types."""

    def violation(call: Call, name: str) -> str | None:
        got, expected = call[name].dtype, call[other].dtype
        return None if got == expected else f"expected data type {expected.c_name} (that of {other}), got {got.c_name}"

    return each(f"same data type as {other}", (name,), violation)


def one_dtype(first: str, second: str) -> Check:
    """Require equal data types of two arguments if both are given."""

    def violation(call: Call) -> str | None:
        if call[first] is None or call[second] is None or call[first].dtype == call[second].dtype:
            return None
        expected, got = call[first].dtype, call[second].dtype
        return f"{second}: expected data type {expected.c_name} (that of {first}), got {got.c_name}"

    return rule(f"one data type: {first}, {second}", violation)


def dtype_or_float32(other: str, *names: str) -> Check:
    """Require float32 or the data type of another argument, if that argument is given."""

    def violation(call: Call, name: str) -> str | None:
        if call[other] is None:
            return None
        allowed, got = dict.fromkeys((call[other].dtype, DataType.FLOAT)), call[name].dtype
        expected = listing(dtype.c_name for dtype in allowed)
        return None if got in allowed else f"expected data type {expected} with {other}, got {got.c_name}"

    return each(f"data type of {other} or float32", names, violation)


def has_zero(shape: Sequence[int]) -> bool:
    """Return True if a dimension is known to be 0; symbolic dimensions are not."""
    return any(isinstance(extent, int) and extent == 0 for extent in shape)


def no_zero_dims(*names: str) -> Check:
    """Require that no dimension is 0."""

    def violation(call: Call, name: str) -> str | None:
        shape = call[name].shape
        return f"expected no dimension of 0, got {extents(shape)}" if has_zero(shape) else None

    return each("no dimension of 0", names, violation)


def _mask_of_three(call: Call) -> str | None:
    length = len(call["outputMask"] or ())
    return None if length == 3 else f"outputMask: expected 3 values, got {length}"


#: Mask of the gradients of input, weight and bias.
THREE_MASK_VALUES = rule("three mask values", _mask_of_three)


def same_shape(name: str, other: str) -> Check:
    """Require equal view shapes."""

    def violation(call: Call, name: str) -> str | None:
        got, expected = call[name].shape, call[other].shape
        return None if got == expected else f"expected shape {extents(expected)} (that of {other}), got {extents(got)}"

    return each(f"same shape as {other}", (name,), violation)


def shape_is(what: str, shape: Callable[[Call], Sequence[int]], *names: str) -> Check:
    """Require a shape computed from the call; ``what`` describes the shape in the check's name."""

    def violation(call: Call, name: str) -> str | None:
        expected, got = tuple(shape(call)), call[name].shape
        return None if got == expected else f"expected shape {extents(expected)} ({what}), got {extents(got)}"

    return each(f"shape is {what}", names, violation)


def size_is(what: str, size: Callable[[Call], int], *names: str) -> Check:
    """Require a number of elements computed from the call, in any shape."""

    def violation(call: Call, name: str) -> str | None:
        expected, got = size(call), call[name].size
        return None if got == expected else f"expected {expected} elements ({what}), got {got}"

    return each(f"as many elements as {what}", names, violation)


def single(*names: str) -> Check:
    """Require one element, in any shape."""

    def violation(call: Call, name: str) -> str | None:
        return None if call[name].size == 1 else f"expected one element, got shape {extents(call[name].shape)}"

    return each("one element", names, violation)


def dims_between(least: int, most: int, *names: str) -> Check:
    """Require a number of dimensions."""
    limits = f"{least} to {most} dimensions" if least < most else f"{least} dimension{'s' if least != 1 else ''}"

    def violation(call: Call, name: str) -> str | None:
        shape = call[name].shape
        return None if least <= len(shape) <= most else f"expected {limits}, got {len(shape)}: {extents(shape)}"

    return each(limits, names, violation)


def same_format(name: str, other: str) -> Check:
    """Require equal storage formats."""

    def violation(call: Call, name: str) -> str | None:
        got, expected = call[name].format, call[other].format
        return None if got == expected else f"expected format {expected.c_name} (that of {other}), got {got.c_name}"

    return each(f"same format as {other}", (name,), violation)


def format_is(expected: Format, *names: str) -> Check:
    """Require a storage format."""

    def violation(call: Call, name: str) -> str | None:
        got = call[name].format
        return None if got == expected else f"expected format {expected.c_name}, got {got.c_name}"

    return each(f"format {expected.c_name}", names, violation)


def public_format(*names: str) -> Check:
    """Require public storage formats."""

    def violation(call: Call, name: str) -> str | None:
        got = call[name].format
        return f"expected a format such as ACL_FORMAT_ND, got the private {got.c_name}" if got.private else None

    return each("no private format", names, violation)


def format_of_rank(*names: str) -> Check:
    """Require the storage format of the tensor's rank, such as ACL_FORMAT_NCHW for four dimensions."""

    def violation(call: Call, name: str) -> str | None:
        expected, got = Format.of_rank(len(call[name].shape)), call[name].format
        dims = f"(of {len(call[name].shape)} dimensions)"
        return None if got == expected else f"expected format {expected.c_name} {dims}, got {got.c_name}"

    return each("format of the dimensions", names, violation)


_ND_FORMATS = (
    Format.FORMAT_ND,
    Format.FORMAT_NCHW,
    Format.FORMAT_NHWC,
    Format.FORMAT_NCDHW,
    Format.FORMAT_NCL,
    Format(41),  # DHWCN
)


def nd_format(*names: str) -> Check:
    """Require storage formats that generated interfaces treat as ND."""

    def violation(call: Call, name: str) -> str | None:
        got = call[name].format
        return None if got in _ND_FORMATS else f"expected a format that counts as ACL_FORMAT_ND, got {got.c_name}"

    return each("format that counts as ND", names, violation)


def _without_kernel(call: Call) -> str | None:
    if call.product in call.operator.support:
        return None
    expected = listing(product.title for product in Product if product in call.operator.support)
    return f"product: expected one with a kernel, {expected}, got {call.product.title}"


#: First check of generated interfaces, which look for a kernel before they look at data types.
KERNEL_OF_THE_PRODUCT = rule("kernel of the product", _without_kernel, ACLNN_ERR_INNER_FIND_KERNEL_ERROR)


def some_dims(*names: str) -> Check:
    """Require at least one dimension."""

    def violation(call: Call, name: str) -> str | None:
        return None if call[name].shape else "expected at least 1 dimension, got 0"

    return each("at least 1 dimension", names, violation)


def null(*names: str, why: str = "") -> Check:
    """Require null; ``why`` gives the reason."""
    text = f"expected null{f' ({why})' if why else ''}, got a tensor"
    return each("null", names, lambda call, name: text)


def not_empty(*names: str) -> Check:
    """Require at least one element."""

    def violation(call: Call, name: str) -> str | None:
        return None if call[name].size else f"expected elements, got shape {extents(call[name].shape)}"

    return each("not empty", names, violation)


def axis(name: str, tensor: str) -> Check:
    """Require an attribute to be a dimension of a tensor, where a 0-dim tensor counts as one of dimension 1.

    Negative numbers count from the end.
    """

    def violation(call: Call) -> str | None:
        dim, rank = call[name], max(1, len(call[tensor].shape))
        return None if -rank <= dim < rank else f"{name}: expected from {-rank} to {rank - 1}, got {dim}"

    return rule(f"dimension of {tensor}: {name}", violation)


def limited_dims(*names: str) -> Check:
    """Require at most ``MOST_DIMS`` dimensions."""
    limit = f"at most {MOST_DIMS} dimensions"

    def violation(call: Call, name: str) -> str | None:
        shape = call[name].shape
        return None if len(shape) <= MOST_DIMS else f"expected {limit}, got {len(shape)}: {extents(shape)}"

    return each(limit, names, violation)


def limited_dims_unless_contiguous(*names: str, out: str | None = None) -> Check:
    """Require at most ``MOST_DIMS`` dimensions unless all of these tensors, and the output, are contiguous."""
    limited = limited_dims(*names)
    looked_at = names if out is None else (*names, out)

    def find(call: Call) -> str | None:
        return None if all(call[name].is_contiguous for name in looked_at) else limited.violation(call)

    return replace(limited, name=limited.name.replace(":", " unless contiguous:"), violation=find)


def one_of(name: str, *allowed: object) -> Check:
    """Require an attribute to be one of the given values; case matters."""

    def violation(call: Call, name: str) -> str | None:
        value = call[name]
        return None if value in allowed else f"expected {listing(map(repr, allowed))}, got {shown(value)}"

    return each("allowed value", (name,), violation)


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape to which shapes broadcast, aligned at the right (1 and 0 give 0); None if they do not."""
    rank = max(map(len, shapes))
    aligned = ((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)
    result = tuple(reduce(_broadcast_extent, extents) for extents in zip(*aligned, strict=True))
    return None if None in result else result


def _broadcast_extent(first: int | None, second: int | None) -> int | None:
    """Return the extent to which two extents broadcast, None if they do not.

    Extents may be symbolic (PyTorch): an unknown extent equals itself, but it cannot be compared with a number.
    """
    for extent, other in ((first, second), (second, first)):
        if isinstance(extent, int) and extent == 1:
            return other
    if first == second or second == 1:
        return first
    return second if first == 1 else None


def broadcastable(name: str, other: str) -> Check:
    """Require shapes that broadcast."""

    def violation(call: Call, name: str) -> str | None:
        got, expected = call[name].shape, call[other].shape
        if broadcast_shape(got, expected) is not None:
            return None
        return f"expected a shape that broadcasts with {extents(expected)} (that of {other}), got {extents(got)}"

    return each(f"broadcasts with {other}", (name,), violation)


def broadcast_shape_of(name: str, first: str, second: str) -> Check:
    """Require exactly the shape to which two other tensors broadcast."""

    def violation(call: Call, name: str) -> str | None:
        expected = broadcast_shape(call[first].shape, call[second].shape)
        if expected is None or call[name].shape == expected:
            return None
        return (
            f"expected shape {extents(expected)} (broadcast of {first} and {second}), got {extents(call[name].shape)}"
        )

    return each(f"broadcast shape of {first} and {second}", (name,), violation)


def holds_promotion(name: str, first: str, second: str) -> Check:
    """Require a data type to which the promotion of two other tensors' types converts implicitly."""

    def violation(call: Call) -> str | None:
        promoted, got = promote(call[first].dtype, call[second].dtype), call[name].dtype
        if promoted is not None and castable(promoted, got):
            return None
        pair = f"{'none' if promoted is None else promoted.c_name} (promotion of {first} and {second})"
        return f"{name}: expected a data type to which {pair} converts, got {got.c_name}"

    return rule(f"holds the promotion of {first} and {second}: {name}", violation)


def promoted_dtype(name: str, first: str, second: str) -> Check:
    """Require the data type to which two other tensors promote, if there is one."""

    def violation(call: Call) -> str | None:
        promoted, got = promote(call[first].dtype, call[second].dtype), call[name].dtype
        if promoted is None or got == promoted:
            return None
        expected = f"{promoted.c_name} (promotion of {first} and {second})"
        return f"{name}: expected data type {expected}, got {got.c_name}"

    return rule(f"promoted data type: {name}", violation)


def promoted_and_broadcast(first: Tensor, second: Tensor) -> tuple[DataType, tuple[int, ...]]:
    """Return the data type and shape that two tensors promote and broadcast to; the first tensor's if there is none."""
    dtype, shape = promote(first.dtype, second.dtype), broadcast_shape(first.shape, second.shape)
    return first.dtype if dtype is None else dtype, first.shape if shape is None else shape


def on(products: Collection[Product], *checks: Check) -> tuple[Check, ...]:
    """Restrict checks to some products, which the checks' names then state."""
    return restricted(f"on {_titles(products)}", lambda call: call.product in products, *checks)


def elsewhere(products: Collection[Product], *checks: Check) -> tuple[Check, ...]:
    """Restrict checks to all products but these, which the checks' names then state."""
    return restricted(f"not on {_titles(products)}", lambda call: call.product not in products, *checks)


def _titles(products: Collection[Product]) -> str:
    return listing(product.title for product in Product if product in products)


def only_if(check: Check, when: str, applies: Callable[[Call], bool]) -> Check:
    """Restrict a check to calls for which ``applies`` holds; ``when`` describes these calls in the check's name."""
    return Check(f"{check.name} ({when})", check.code, lambda call: check.violation(call) if applies(call) else None)


def restricted(when: str, applies: Callable[[Call], bool], *checks: Check) -> tuple[Check, ...]:
    """Restrict several checks with ``only_if``."""
    return tuple(only_if(check, when, applies) for check in checks)


def with_code(code: int, *checks: Check) -> tuple[Check, ...]:
    """Return the checks with another status code."""
    return tuple(replace(check, code=code) for check in checks)


def unless_empty(
    names: Sequence[str], *checks: Check, which: str = "", among: Callable[[Iterable[bool]], bool] = any
) -> tuple[Check, ...]:
    """Skip checks if any (or all) of these tensors are empty.

    Args:
        names: the tensors.
        checks: the checks, which may read properties that an empty tensor lacks.
        which: description of the tensors in the checks' names; by default their names.
        among: ``any`` or ``all``.
    """

    def spare(check: Check) -> Check:
        def find(call: Call) -> str | None:
            if among(has_zero(call[name].shape) for name in names):
                return None
            text = check.violation(call)
            # Only after a violation: it may be unknown whether a symbolic size is 0.
            return None if text is None or among(call[name].size == 0 for name in names) else text

        return Check(f"{check.name} (unless {which or listing(names)} is empty)", check.code, find)

    return tuple(map(spare, checks))


#: Data types of an operator's required tensors, inputs before outputs: one supported combination.
Column = tuple[DataType, ...]


def generated(
    inputs: Sequence[str],
    outputs: Sequence[str],
    columns: Callable[[Product], Collection[Column]],
    *tiling: Check,
    written: Sequence[str] = (),
    optional: Sequence[Check] = (),
    code: int = ACLNN_ERR_INNER_TILING_ERROR,
) -> tuple[Check, ...]:
    """Return the checks of an interface that the vendor generates from an operator's definition.

    Args:
        inputs: the required input tensors, in order.
        outputs: the output tensors.
        columns: the supported combinations of data types on a product.
        tiling: checks made by the tiling function, which does not run if every output is empty.
        written: the tensors that count as outputs for that purpose, if some are inputs too.
        optional: checks of optional tensors' data types, made after the required tensors'.
        code: status code of the tiling function's checks.
    """
    names = (*inputs, *outputs)

    def types_match(call: Call) -> str | None:
        fitting = list(columns(call.product))
        for place, name in enumerate(names):
            dtype, known = call[name].dtype, {column[place] for column in fitting}
            fitting = [column for column in fitting if column[place] == dtype]
            if not fitting:
                expected = listing(member.c_name for member in DataType if member in known)
                where = f"on {call.product.title}" if place == 0 else f"with {listing(names[:place], 'and')}"
                return f"{name}: expected data type {expected} {where}, got {dtype.c_name}"
        return None

    return (
        present(*names),
        KERNEL_OF_THE_PRODUCT,
        rule(f"data types that go together: {', '.join(names)}", types_match),
        nd_format(*names),
        *optional,
        *unless_empty(written or outputs, *with_code(code, *tiling), which="every output", among=all),
    )


def nothing_to_write(call: Call, outputs: Sequence[str]) -> bool:
    """Return True if every output is empty."""
    return all(call[name].size == 0 for name in outputs)


_LARGEST_EXTENT_BYTES = 2**63 - 1


def view_violation(name: str, tensor: Tensor) -> str | None:
    """Return an error text for a view that no memory can hold (negative dimensions, too many bytes), None otherwise."""
    if any(extent < 0 for extent in tensor.shape):
        return f"{name}: expected dimensions of 0 or more, got {extents(tensor.shape)}"
    if len(tensor.strides) != len(tensor.shape):
        return f"{name}: expected {len(tensor.shape)} strides, got {extents(tensor.strides)}"
    begin, end = tensor.layout.span
    if max(end - begin, tensor.size * tensor.dtype.itemsize) > _LARGEST_EXTENT_BYTES:
        return (
            f"{name}: expected shape and strides that stay within {_LARGEST_EXTENT_BYTES} bytes, "
            f"got shape {extents(tensor.shape)} with strides {extents(tensor.strides)}"
        )
    return None
