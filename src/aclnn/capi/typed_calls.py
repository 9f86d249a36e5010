"""Calls of operators by type: their tensors and attributes, and how these become an operator's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import listing
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Scalar, Tensor, contiguous_strides
from aclnn.operators.registry import BY_FUNCTION


class Given(NamedTuple):
    """Tensors and attributes of a call."""

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]
    attributes: Mapping[str, Any]
    values: Sequence[np.ndarray[Any, Any] | None]
    """Values of inputs in host memory; None for those on the device."""

    def tensor(self, place: int = 0) -> Tensor:
        """Return a required input.

        Raises:
            AclnnError: it is missing.
        """
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise invalid(f"inputs[{place}]: expected a tensor, got none")
        return found

    def output(self) -> Tensor:
        """Return the first output.

        Raises:
            AclnnError: there is none.
        """
        found = self.outputs[0] if self.outputs else None
        if found is None:
            raise invalid("outputs[0]: expected a tensor, got none")
        return found

    def integers(self, place: int) -> tuple[int, ...]:
        """Return the values of an input that determines a shape.

        Raises:
            AclnnError: they are not in host memory.
        """
        found = self.values[place] if place < len(self.values) else None
        if found is None:
            raise invalid(f"inputs[{place}]: expected values in host memory, got a tensor on the device, or none")
        return tuple(map(int, found.reshape(-1)))

    def attribute(self, name: str, default: Any, *, required: bool = False) -> Any:
        """Return an attribute as the default's type, from any number of equal value; an empty list counts as integers.

        Raises:
            AclnnError: it has another type or value, or is required and missing.
        """
        found = self.attributes.get(name, None if required else default)
        converted = _converted(found, default)
        if converted is None:
            raise invalid(f"{name}: expected a value such as {default!r}, got {found!r}")
        return converted


def _converted(found: Any, default: Any) -> Any:
    """Convert a value to the default's type; return None if the types are incompatible."""
    is_number = isinstance(found, (bool, int, float))
    match default:
        case bool() | float():
            return type(default)(found) if is_number else None
        case int():
            return int(found) if is_number and float(found).is_integer() else None
        case tuple() if isinstance(found, tuple):
            converted = tuple(_converted(each, default[0] if default else 0) for each in found)
            return None if None in converted else converted
    return found if isinstance(found, type(default)) else None


class ByType(NamedTuple):
    """An operator, and a function from a call by type to the operator's arguments."""

    operator: Operator
    arguments: Callable[[Given], dict[str, Any]]


Value = Callable[[Given], Any]
"""Computes an argument from a call."""


def invalid(text: str) -> AclnnError:
    """Return the error of an invalid argument."""
    return AclnnError(ACLNN_ERR_PARAM_INVALID, text)


def attribute(name: str, default: Any) -> Value:
    """Pass an attribute, or its default."""
    return lambda given: given.attribute(name, default)


def required(name: str, example: Any) -> Value:
    """Pass an attribute of the example's type, which must be there."""
    return lambda given: given.attribute(name, example, required=True)


def only_dim(name: str) -> Value:
    """Return the single dimension of a list attribute, by default the last dimension."""

    def dim(given: Given) -> int:
        dims = given.attribute(name, (-1,))
        if len(dims) != 1:
            raise invalid(f"{name}: expected one dimension, got {list(dims)}")
        return dims[0]  # type: ignore[no-any-return]  # as the default's

    return dim


def scalar(name: str, default: float) -> Value:
    """Pass an attribute as a scalar."""
    return lambda given: Scalar(D.FLOAT, D.FLOAT.encode(given.attribute(name, default)))


def constant(value: int) -> Value:
    """Pass an integer as a scalar."""
    return lambda given: Scalar(D.INT64, D.INT64.encode(value))


def on_host(place: int) -> Value:
    """Pass a one-element input in host memory as a scalar."""

    def number(given: Given) -> Scalar:
        found = given.values[place] if place < len(given.values) else None
        if found is None or found.size != 1:
            got = "none" if found is None else found.size
            raise invalid(f"inputs[{place}]: expected one number in host memory, got {got}")
        return Scalar(given.tensor(place).dtype, found.tobytes())

    return number


def choice(name: str, words: Sequence[str], default: int = 0) -> Value:
    """Pass the index of a string attribute among its possible values."""

    def choose(given: Given) -> int:
        found = given.attribute(name, words[default])
        if found not in words:
            raise invalid(f"{name}: expected {listing(words)}, got {found}")
        return words.index(found)

    return choose


def named(names: str, tensors: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
    """Name tensors by position; missing ones are None."""
    return dict.fromkeys(names.split()) | dict(zip(names.split(), tensors, strict=False))


def operator_call(operator: Operator, inputs: str, outputs: str, **others: Value) -> ByType:
    """Call an operator; ``inputs`` and ``outputs`` name its parameters in the order of the type."""

    def arguments(given: Given) -> dict[str, Any]:
        tensors = named(inputs, given.inputs) | named(outputs, given.outputs)
        found = tensors | {name: value(given) for name, value in others.items()}
        return {parameter.name: found.get(parameter.name) for parameter in operator.parameters}

    return ByType(operator, arguments)


def function_call(function: str, inputs: str = "self", outputs: str = "out", **others: Value) -> ByType:
    """Call an ``aclnn`` function as ``operator_call`` calls an operator."""
    return operator_call(BY_FUNCTION[function], inputs, outputs, **others)


def copied(
    source: Callable[[Given], Tensor] = Given.tensor, target: Callable[[Given], Tensor] = Given.output
) -> ByType:
    """Copy, by default the first input to the first output."""
    return ByType(BY_FUNCTION["aclnnInplaceCopy"], lambda given: {"selfRef": target(given), "src": source(given)})


def view_of(tensor: Tensor, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> Tensor:
    """Return a view of a tensor's memory, contiguous unless strides are given; ``offset`` counts elements."""
    steps = contiguous_strides(shape) if strides is None else strides
    return Tensor(tensor.dtype, shape, steps, offset, tensor.format, tensor.storage_shape, tensor.address)


def image(tensor: Tensor) -> Tensor:
    """Return the tensor in the format of its rank, as convolutions and pooling require."""
    of_rank = Format.of_rank(len(tensor.shape))
    label = tensor.format if of_rank is Format.FORMAT_ND else of_rank
    return Tensor(tensor.dtype, tensor.shape, tensor.strides, 0, label, tensor.storage_shape, tensor.address)


def reshaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a contiguous view of as many elements in another shape.

    Raises:
        AclnnError: the shape has another number of elements.
    """
    if min(shape, default=0) < 0 or math.prod(shape) != tensor.size:
        raise invalid(f"shape: expected one of {tensor.size} elements, got {list(shape)}")
    return view_of(tensor, shape)


def permuted(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a view with permuted dimensions.

    Raises:
        AclnnError: a dimension is missing or given twice.
    """
    if sorted(dims) != [*range(len(tensor.shape))]:
        raise invalid(f"perm: expected each of {len(tensor.shape)} dimensions once, got {list(dims)}")
    return view_of(tensor, [tensor.shape[dim] for dim in dims], [tensor.strides[dim] for dim in dims])


def integers(given: Given) -> tuple[int, ...]:
    """Return the integers of the second input, which is in host memory."""
    return given.integers(1)


def only_integer(place: int) -> Value:
    """The only integer of an input in the host's memory."""

    def integer(given: Given) -> int:
        found = given.integers(place)
        if len(found) != 1:
            raise invalid(f"inputs[{place}]: expected one integer, got {list(found)}")
        return found[0]

    return integer


def real(given: Given, place: int) -> float:
    """Return the only number of an input in host memory."""
    return float(on_host(place)(given).value)
