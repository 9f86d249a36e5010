"""Checks of lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aclnn.core.checks import MOST_DIMS, extents, rule, unless_real, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID

#: Function of a call, a list's name and an index: returns an error text about that tensor, or None.
Violation = Callable[[Call, str, int], str | None]


def each_of(title: str, names: tuple[str, ...], violation: Violation, code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Make a check that applies to each tensor of each list in order; error texts name the list and index.

    Null lists are skipped.
    """

    def find(call: Call) -> str | None:
        for name in names:
            for at in range(len(call[name] or ())):
                if (text := violation(call, name, at)) is not None:
                    return f"{name}[{at}]: {text}"
        return None

    return rule(f"{title}: {', '.join(names)}", find, code)


def not_null(call: Call, name: str, at: int) -> str | None:
    """Return an error text for a null tensor."""
    return "expected an object, got null" if call[name][at] is None else None


def real_number(call: Call, name: str, at: int) -> str | None:
    """Return an error text for a number that is not real."""
    return unless_real(call[name][at].dtype)


def of_types(dtypes: Collection[D] | Callable[[Product], Collection[D]]) -> Violation:
    """Require one of these data types, which may depend on the product."""
    taken = dtypes if callable(dtypes) else where_supported(dtypes)

    def violation(call: Call, name: str, at: int) -> str | None:
        got = call[name][at].dtype
        if got in taken(call.product):
            return None
        return f"expected a data type that {call.operator.function} takes, got {got.c_name}"

    return violation


def supported(call: Call, name: str, at: int) -> str | None:
    """Return an error text for a data type that the function does not support."""
    support = call.operator.support
    taken = support[call.product] if call.product in support else frozenset().union(*support.values())
    return of_types(taken)(call, name, at)


def alike(first: str) -> Violation:
    """Require the data type of the first tensor of a list."""

    def violation(call: Call, name: str, at: int) -> str | None:
        expected, got = call[first][0].dtype, call[name][at].dtype
        return (
            None if got == expected else f"expected data type {expected.c_name} (that of {first}[0]), got {got.c_name}"
        )

    return violation


def few_dims(call: Call, name: str, at: int) -> str | None:
    """Return an error text for too many dimensions."""
    shape = call[name][at].shape
    if len(shape) <= MOST_DIMS:
        return None
    return f"expected at most {MOST_DIMS} dimensions, got {len(shape)}: {extents(shape)}"


def of_same_shape(first: str) -> Violation:
    """Require the shape of the tensor at the same index of another list."""

    def violation(call: Call, name: str, at: int) -> str | None:
        expected, got = call[first][at].shape, call[name][at].shape
        if got == expected:
            return None
        return f"expected shape {extents(expected)} (that of {first}[{at}]), got {extents(got)}"

    return violation


def public(call: Call, name: str, at: int) -> str | None:
    """Return an error text for a private format."""
    got = call[name][at].format
    return f"expected a format such as ACL_FORMAT_ND, got the private {got.c_name}" if got.private else None


def single(call: Call, name: str, at: int) -> str | None:
    """Return an error text unless there is one element."""
    shape = call[name][at].shape
    return None if call[name][at].size == 1 else f"expected one element, got shape {extents(shape)}"


def as_many(first: str, names: tuple[str, ...], code: int = ACLNN_ERR_PARAM_INVALID) -> Check:
    """Require lists of the same length as another."""

    def violation(call: Call) -> str | None:
        expected = len(call[first])
        name = next((name for name in names if len(call[name]) != expected), None)
        if name is None:
            return None
        return f"{name}: expected {expected} elements (as many as {first}), got {len(call[name])}"

    return rule(f"as many as in {first}: {', '.join(names)}", violation, code)
