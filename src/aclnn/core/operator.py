"""What an operator is: plain frozen data. Everything else (C headers, entry points, torch operators, tests) follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from aclnn.core.dtypes import DataType
from aclnn.core.products import Product
from aclnn.core.tensor import Tensor

T = TypeVar("T")


class Kind(Enum):
    """What a parameter holds, with its C type in the first phase's signature."""

    INPUT = "const aclTensor *"
    OUTPUT = "aclTensor *"
    INPUT_LIST = "const aclTensorList *"
    OUTPUT_LIST = "aclTensorList *"
    SCALAR = "const aclScalar *"
    INT_ARRAY = "const aclIntArray *"
    BOOL_ARRAY = "const aclBoolArray *"
    STRING = "char *"
    DTYPE = "aclDataType "
    BOOL = "bool "
    DOUBLE = "double "
    FLOAT = "float "
    INT64 = "int64_t "
    INT32 = "int32_t "
    INT8 = "int8_t "

    __hash__ = object.__hash__  # as Product's: members are singletons, and every call with attributes looks them up

    @property
    def words(self) -> str:
        """For people: input tensor, int array, double."""
        spelt = self.name.lower().replace("_", " ")
        return f"{spelt} tensor" if self in TENSORS else spelt.replace("list", "tensor list")


TENSORS = (Kind.INPUT, Kind.OUTPUT)
LISTS = (Kind.INPUT_LIST, Kind.OUTPUT_LIST)
ATTRIBUTES = tuple(kind for kind in Kind if kind not in (*TENSORS, *LISTS))


@dataclass(frozen=True)
class Parameter:
    """One argument of an operator's first phase."""

    name: str
    """As the C interface and every error text spell it: gradOutput."""
    python_name: str
    """As PyTorch would: grad_output."""
    kind: Kind
    meaning: str
    optional: bool = False
    """Whether null is accepted in general (checks may still demand it)."""
    c_type: str | None = None
    """Where the C signature departs from the kind's own type."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is an input or output tensor."""
        return self.kind in TENSORS

    @property
    def declaration(self) -> str:
        """Its C declaration, such as ``const aclTensor *gradOutput``."""
        return f"{self.c_type or self.kind.value}{self.name}"


@dataclass(frozen=True)
class Call:
    """One call's arguments by C name (tensors, tuples, strings, numbers, None) on one product."""

    operator: Operator
    arguments: Mapping[str, Any]
    product: Product

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors given, by name, in the order of the signature."""
        return self.operator.tensors(self.arguments)


@dataclass(frozen=True)
class Check:
    """One row of an operator's "checks, in order" table."""

    name: str
    """What must hold, in a few words: ``same shape: self, gradOutput``."""
    code: int
    """The status when it does not hold."""
    complaint: Callable[[Call], str | None]
    """None when it holds, else a text ``argument: expected …, got …``."""


@dataclass(frozen=True)
class Part:
    """A range of a tensor's indices along one dimension, from begin to end."""

    tensor: str
    dim: int
    begin: int
    end: int


@dataclass(frozen=True)
class Elementwise:
    """``outputs = formula(*inputs, *numbers)`` for each element of the outputs' shape, to which inputs broadcast."""

    formula: Callable[..., Any]
    """In the words of ``aclnn.formula``; returns a tuple for several outputs."""
    inputs: tuple[str | Part, ...]
    outputs: tuple[str | Part, ...]
    numbers: tuple[float, ...] = ()
    """Attributes: the formula's last arguments."""
    dtype: DataType | None = None
    """What inputs are converted to first; by default those that are not floating to the type that all promote to."""
    on_every_product: ClassVar[bool] = False


@dataclass(frozen=True)
class LayerNormBackward:
    """The gradients of LayerNorm or RMSNorm; names are None for tensors that are absent or not wanted."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    normalized_dims: int
    on_every_product: bool = False
    """Needs no kernel of the product (there is nothing but zeros to write)."""
    centred: bool = True
    """False for RMSNorm, which has no mean."""


@dataclass(frozen=True)
class LayerNorm:
    """LayerNorm or RMSNorm; names are None for tensors that are absent or not wanted."""

    inputs: tuple[str | None, ...]
    """x, weight, bias."""
    outputs: tuple[str | None, ...]
    """out, mean, rstd."""
    normalized_dims: int
    eps: float
    on_every_product: bool = False
    """Needs no kernel of the product (there are no columns, only mean and rstd to fill)."""
    centred: bool = True
    """False for RMSNorm, which has neither mean nor bias."""


@dataclass(frozen=True)
class Library:
    """``outputs = function(*inputs)`` over NumPy arrays; results are converted to the outputs' types and broadcast."""

    function: Callable[..., Any]
    """Takes arrays of float32 for 16-bit floating types; returns an array, or a tuple of one for each output."""
    inputs: tuple[str, ...]
    """Tensors, elements of tensor lists (``x[0]``) and scalars."""
    outputs: tuple[str, ...]
    dtype: DataType | None = None
    """The data type to which inputs are converted before, and results after the computation; None keeps them."""
    sized_by_result: bool = False
    """The output's view takes the shape of the result, which depends on data."""
    on_every_product: ClassVar[bool] = False


Work = Elementwise | LayerNorm | LayerNormBackward | Library
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An aclnn operator: its two-phase C interface, its checks, what it computes."""

    name: str
    """Snake case; the same string as Python function, torch operator, kernel, test, benchmark and command."""
    function: str
    """The C name: aclnnSiluBackward."""
    summary: str
    formula: str
    """As in the operator's document, in plain text."""
    parameters: tuple[Parameter, ...]
    support: Mapping[Product, frozenset[DataType]]
    """Products that have a kernel, and the data types it takes there."""
    checks: tuple[Check, ...]
    """In order: the first that fails decides the status."""
    work: Callable[[Call], Work | None] = field(repr=False)
    """What to compute for checked arguments; None when there is nothing to do."""
    infer: Callable[[Call], Mapping[str, tuple[DataType, Shape]]] = field(repr=False, default=lambda call: {})
    """Data type and shape of each output for the inputs given (masked-out ones left away); for functions of arrays."""
    stream_type: str = "aclrtStream "
    in_header_of: str | None = None
    """The operator in whose C header it is declared; None for one of its own."""

    def tensors(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """The tensors among a call's arguments, by name, in the order of the signature; ``x[0]`` for one of a list."""
        for parameter in self.parameters:
            given = arguments[parameter.name]
            if parameter.is_tensor and given is not None:
                yield parameter.name, given
            elif parameter.kind in LISTS:
                yield from (
                    (f"{parameter.name}[{at}]", item) for at, item in enumerate(given or ()) if item is not None
                )

    @cached_property
    def inputs(self) -> tuple[Parameter, ...]:
        """The input tensors."""
        return tuple(p for p in self.parameters if p.kind is Kind.INPUT)

    @cached_property
    def outputs(self) -> tuple[Parameter, ...]:
        """The output tensors."""
        return tuple(p for p in self.parameters if p.kind is Kind.OUTPUT)

    @cached_property
    def attributes(self) -> tuple[Parameter, ...]:
        """The parameters that are neither tensors nor lists of them."""
        return tuple(p for p in self.parameters if p.kind in ATTRIBUTES)

    def parameter(self, name: str, kinds: Collection[Kind] = tuple(Kind)) -> Parameter:
        """A parameter by its C or Python name; a lone output also by none, a gradient's also as grad_input.

        Raises:
            ValueError: there is none of those kinds.
        """
        fitting = [p for p in self.parameters if p.kind in kinds]
        for parameter in fitting:
            if name in (parameter.name, parameter.python_name):
                return parameter
        outputs = [p for p in fitting if p.kind is Kind.OUTPUT]
        if len(outputs) == 1 and (name == "" or (name == "grad_input" and self.name.endswith("_backward"))):
            return outputs[0]
        known = ", ".join(p.python_name for p in fitting)
        expected = f"one of {known}" if known else "none"
        raise ValueError(f"{self.name}: expected {expected}, got {repr(name) if name else 'no name'}")

    def by_name(self, values: Iterable[tuple[str, T]], kinds: Collection[Kind] = tuple(Kind)) -> dict[str, T]:
        """Values under their parameters' Python names.

        Raises:
            ValueError: an unknown name, or a parameter twice.
        """
        found: dict[str, T] = {}
        for given, value in values:
            name = self.parameter(given, kinds).python_name
            if name in found:
                again = f" as {given!r}" if given else ""
                raise ValueError(f"{self.name}: {name}: expected once, got it again{again}")
            found[name] = value
        return found

    @property
    def header(self) -> str:
        """The C header's name without folder: aclnn_silu_backward.h."""
        return f"aclnn_{self.in_header_of or self.name}.h"
