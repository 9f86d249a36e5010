"""Operator declarations: frozen data from which C headers, entry points, torch operators and tests are generated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from aclnn.core.dtypes import DataType, Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.core.tensor import Scalar, Tensor

T = TypeVar("T")


class Kind(Enum):
    """Kind of a parameter, with its C type in the signature of phase one."""

    INPUT = "const aclTensor *"
    OUTPUT = "aclTensor *"
    INPUT_LIST = "const aclTensorList *"
    OUTPUT_LIST = "aclTensorList *"
    SCALAR = "const aclScalar *"
    SCALAR_LIST = "const aclScalarList *"
    INT_ARRAY = "const aclIntArray *"
    BOOL_ARRAY = "const aclBoolArray *"
    STRING = "char *"
    DTYPE = "aclDataType "
    BOOL = "bool "
    DOUBLE = "double "
    FLOAT = "float "
    INT64 = "int64_t "
    UINT64 = "uint64_t "
    INT32 = "int32_t "
    INT8 = "int8_t "

    __hash__ = object.__hash__  # faster than Enum's, and members are singletons; every call with attributes hashes them

    @property
    def label(self) -> str:
        """Readable description: input tensor, int array, double."""
        label = self.name.lower().replace("_", " ")
        if self in LISTS:
            return label.replace("list", "tensor list")
        return f"{label} tensor" if self in TENSORS else label


TENSORS = (Kind.INPUT, Kind.OUTPUT)
LISTS = (Kind.INPUT_LIST, Kind.OUTPUT_LIST)
ATTRIBUTES = tuple(kind for kind in Kind if kind not in (*TENSORS, *LISTS))


@dataclass(frozen=True)
class Parameter:
    """Parameter of an operator's phase one."""

    name: str
    """Name in the C interface and in error texts: gradOutput."""
    python_name: str
    """Name in Python, as PyTorch spells it: grad_output."""
    kind: Kind
    meaning: str
    optional: bool = False
    """True if the C interface accepts null (checks may still require a value)."""
    c_type: str | None = None
    """C type, if it differs from the kind's."""
    updated: bool = False
    """True for an input that the operator also writes, or an output that it also reads."""
    index_of: str | None = ""
    """For an output of indices: name of the tensor whose elements along ``dim``, or the last dimension, they choose.

    None if they choose by numbers that are computed, so that rounding may change them.
    """

    @property
    def is_tensor(self) -> bool:
        """True for an input or output tensor."""
        return self.kind in TENSORS

    @property
    def is_read(self) -> bool:
        """True for an input tensor, and for an output whose old contents the operator reads."""
        return self.kind is Kind.INPUT or (self.kind is Kind.OUTPUT and (self.updated or self.name.endswith("Ref")))

    @property
    def declaration(self) -> str:
        """C declaration, such as ``const aclTensor *gradOutput``."""
        return f"{self.c_type or self.kind.value}{self.name}"


@dataclass(frozen=True)
class Call:
    """Arguments of a call by C name (tensors, tuples, strings, numbers, None), and the product."""

    operator: Operator
    arguments: Mapping[str, Any]
    product: Product

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the given tensors with their names, in the order of the signature."""
        return self.operator.tensors(self.arguments)


@dataclass(frozen=True)
class Check:
    """Requirement on a call, with the status code of a violation."""

    name: str
    """Requirement in a few words: ``same shape: self, gradOutput``."""
    code: int
    """Status code of a violation."""
    violation: Callable[[Call], str | None]
    """Function that returns an error text ``argument: expected …, got …`` for a violation, None otherwise."""


#: How the names of checks made by ``present`` begin.
PRESENT = "present: "


def present(*names: str) -> Check:
    """Require that no argument is null."""
    names = tuple(dict.fromkeys(names))

    def find(call: Call) -> str | None:
        missing = next((name for name in names if call[name] is None), None)
        return None if missing is None else f"{missing}: expected an object, got null"

    return Check(PRESENT + ", ".join(names), ACLNN_ERR_PARAM_NULLPTR, find)


@dataclass(frozen=True)
class Part:
    """Slice of a tensor along one dimension, from ``begin`` to ``end``."""

    tensor: str
    dim: int
    begin: int
    end: int


@dataclass(frozen=True)
class Columns:
    """Every ``step``-th column of a tensor, viewed as a matrix whose rows are the dimensions before ``dim``."""

    tensor: str
    dim: int
    begin: int
    end: int
    step: int = 1


@dataclass(frozen=True)
class PerChannel:
    """Tensor with one element in all, or one per index along dimension 1 of the outputs, in row-major order."""

    tensor: str


@dataclass(frozen=True)
class View:
    """Tensor reshaped in row-major order: dimensions split, merged or added.

    An output may have more elements than the shape; the first ones are written.
    """

    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Sums:
    """Tensor that receives a formula's results summed over the dimensions in which its extent is 1.

    Sums are accumulated in float64, in an order that depends on the shape only, and rounded once.
    """

    of: str | View

    @property
    def tensor(self) -> str:
        """Name of the tensor."""
        return self.of if isinstance(self.of, str) else self.of.tensor


@dataclass(frozen=True)
class Elementwise:
    """Compute ``outputs = formula(*inputs, *numbers)`` for each element of the outputs' shape; inputs broadcast."""

    formula: Callable[..., Any]
    """Scalar function made of the functions of ``aclnn.formula``; returns a tuple for several outputs."""
    inputs: tuple[str | Part | PerChannel | Columns, ...]
    """``Columns`` occur in every input and output or in none."""
    outputs: tuple[str | Part | Columns, ...]
    numbers: tuple[float, ...] = ()
    """Attribute values: the formula's last arguments."""
    dtype: DataType | None = None
    """Data type to which inputs are converted first; by default, inputs that are not floating-point are promoted."""
    groups: str | None = None
    """Tensor of group sizes: only as many leading rows of the matrices are computed as their sum says."""
    clears: bool = False
    """True if the remaining rows are set to zero; by default they keep their contents."""
    on_every_product: ClassVar[bool] = False


@dataclass(frozen=True)
class Reduction:
    """Compute ``outputs = formula(*inputs, *numbers)`` over rows, whose elements lie along ``dims``.

    Inputs and outputs broadcast to one common shape, by NumPy's rules; the dimensions not in ``dims`` index the rows.
    The functions ``row_sum``, ``row_max`` and ``row_mean`` of ``aclnn.formula`` reduce a row's elements:

        def layer_norm(x, w, b, eps):
            centred = x - (mean := row_mean(x))
            rstd = 1.0 / sqrt(row_mean(centred * centred) + eps)
            return centred * rstd * w + b, mean, rstd

        Reduction(layer_norm, ("x", "w", "b"), ("y", View("mean", (M, 1)), View("rstd", (M, 1))), (1,), (eps,))

    with x of shape (M, N), w and b of (N,). GroupNorm is the same formula over views of (N, G, C/G, HW), with w and b
    as (1, G, C/G, 1), statistics as (N, G, 1, 1) and dims (2, 3); BatchNorm is the formula over (N, C, HW), with w as
    (1, C, 1) and dims (0, 2). LayerNorm's gradients for w and b are sums over rows of each element's contribution:

        def layer_norm_gradients(dy, x, mean, rstd, w):
            xhat, g = (x - mean) * rstd, dy * w
            return (g - row_mean(g) - xhat * row_mean(g * xhat)) * rstd, dy * xhat, dy

        Reduction(layer_norm_gradients, ("dy", "x", ...), ("dx", Sums("dw"), Sums("db")), (1,))

    Everything is computed in float64 and rounded once, at the end.
    """

    formula: Callable[..., Any]
    """Function made of the functions of ``aclnn.formula``; returns a tuple for several outputs."""
    inputs: tuple[str | View | float, ...]
    """A number replaces an absent tensor, such as 1.0 for a weight; it is compiled into the formula."""
    outputs: tuple[str | View | Sums | None, ...]
    """One per result, of extent 1 along ``dims`` if the result is one per row; None for an unwanted result."""
    dims: tuple[int, ...]
    """Dimensions of the common shape along which a row's elements lie."""
    numbers: tuple[float, ...] = ()
    """Attribute values: the formula's last arguments, not compiled into it."""
    on_every_product: bool = False
    """True if the computation runs on every product, with or without a kernel for the data types."""


@dataclass(frozen=True)
class LayerNormBackward:
    """Compute the gradients of LayerNorm or RMSNorm; None stands for an absent or unwanted tensor."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    normalized_dims: int
    on_every_product: bool = False
    """True if the product needs no kernel, since only zeros are written."""
    centred: bool = True
    """False for RMSNorm, which has no mean."""


@dataclass(frozen=True)
class LayerNorm:
    """Compute LayerNorm or RMSNorm on a GPU; None stands for an absent or unwanted tensor."""

    inputs: tuple[str | None, ...]
    """Names of x, weight, bias."""
    outputs: tuple[str | None, ...]
    """Names of out, mean, rstd."""
    normalized_dims: int
    eps: float
    on_every_product: bool = False
    """True if the product needs no kernel, since there are no columns and only mean and rstd are filled."""
    centred: bool = True
    """False for RMSNorm, which has neither mean nor bias."""


@dataclass(frozen=True)
class Library:
    """Compute ``outputs = function(*inputs)`` with NumPy; results are converted to the outputs' types and broadcast."""

    function: Callable[..., Any]
    """Function of arrays, with 16-bit floating-point types as float32; returns an array or one per output."""
    inputs: tuple[str, ...]
    """Names of tensors, elements of tensor lists (``x[0]``) and scalars."""
    outputs: tuple[str, ...]
    dtype: DataType | None = None
    """Data type to which inputs and results are converted; None converts nothing."""
    sized_by_result: bool = False
    """True if the output takes the shape of the result, which depends on the inputs' values."""
    on_every_product: bool = False
    """True if the computation runs on every product, with or without a kernel for the data types."""
    fills: bool = False
    """True if the function accepts ``out``: memory for its only result, whose old contents it may read first."""
    communicator: Any = None
    """Communicator over whose ranks the function exchanges data (see ``aclnn.runtime.communicators``)."""


Work = Elementwise | Reduction | LayerNorm | LayerNormBackward | Library
Shape = tuple[int, ...]


def camel(name: str) -> str:
    """Return an operator's usual name in C."""
    return "aclnn" + "".join(word.upper() if word == "nll" else word.capitalize() for word in name.split("_"))


#: Suffix of the first phase's function name.
PHASE_ONE = "GetWorkspaceSize"


@dataclass(frozen=True)
class Operator:
    """Declaration of an aclnn operator: two-phase C interface, checks, computation."""

    name: str
    """Name in snake case outside C: Python function, torch operator, test, benchmark, command."""
    function: str = field(default="", kw_only=True)
    """Name in C: aclnnSiluBackward; by default the name in camel case."""
    summary: str
    formula: str
    """Formula in plain text, from the operator's document."""
    parameters: tuple[Parameter, ...]
    support: Mapping[Product, frozenset[DataType]]
    """Data types for which each product has a kernel."""
    checks: tuple[Check, ...]
    """Checks in order: the first violation determines the status.

    Unless one of them is ``present``, the first one requires that no object is null whose parameter is not optional.
    """
    work: Callable[[Call], Work | None] = field(repr=False)
    """Function that returns the computation for checked arguments, None if there is nothing to compute."""
    infer: Callable[[Call], Mapping[str, tuple[DataType, Shape]]] = field(repr=False, default=lambda call: {})
    """Function that returns data type and shape of each wanted output, given the inputs; for functions of arrays."""
    gpu_work: Callable[[Call], LayerNorm | None] | None = field(repr=False, default=None)
    """Function that returns the computation on a GPU, if it differs from ``work``."""
    numbers: tuple[str, ...] = ()
    """Scalars and scalar lists whose values affect the results only, neither a check nor the plan."""
    stream_type: str = "aclrtStream "
    leaves: bool = False
    """True if some elements of outputs may be left unwritten; newly allocated outputs are then zeroed."""
    has_golden_values: bool = True
    """False if float64 operands make no sense, such as bytes that encode numbers of another data type."""
    in_header_of: str | None = None
    """Stem of the C header that declares the function, without ``aclnn_``; None for a header of its own."""

    def __post_init__(self) -> None:
        if not self.function:
            object.__setattr__(self, "function", camel(self.name))
        if not any(check.name.startswith(PRESENT) for check in self.checks):
            required = present(*(p.name for p in self.parameters if "*" in p.kind.value and not p.optional))
            object.__setattr__(self, "checks", (required, *self.checks))

    def operands(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor | Scalar]]:
        """Yield the tensors and ``numbers`` with their names, in the order of the signature; list items as ``x[0]``."""
        for parameter in self.parameters:
            given = arguments[parameter.name]
            if given is None:
                continue
            if parameter.is_tensor or (isinstance(given, Scalar) and parameter.name in self.numbers):
                yield parameter.name, given
            elif parameter.kind in LISTS or parameter.name in self.numbers:
                yield from ((f"{parameter.name}[{at}]", item) for at, item in enumerate(given) if item is not None)

    def tensors(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors with their names, in the order of the signature; list items as ``x[0]``."""
        return ((name, given) for name, given in self.operands(arguments) if not isinstance(given, Scalar))

    def inferred(self, call: Call) -> dict[str, Tensor]:
        """Return the outputs of ``infer`` as tensors without memory, each in the format of its rank."""
        described = self.infer(call).items()
        return {name: Tensor(dtype, shape, format=Format.of_rank(len(shape))) for name, (dtype, shape) in described}

    @cached_property
    def inputs(self) -> tuple[Parameter, ...]:
        """Input tensors."""
        return tuple(p for p in self.parameters if p.kind is Kind.INPUT)

    @cached_property
    def outputs(self) -> tuple[Parameter, ...]:
        """Output tensors."""
        return tuple(p for p in self.parameters if p.kind is Kind.OUTPUT)

    @cached_property
    def attributes(self) -> tuple[Parameter, ...]:
        """Parameters that are neither tensors nor lists of tensors."""
        return tuple(p for p in self.parameters if p.kind in ATTRIBUTES)

    def parameter(self, name: str, kinds: Collection[Kind] = tuple(Kind)) -> Parameter:
        """Find a parameter by its C or Python name.

        A lone output is also found by the empty name, and a lone gradient by grad_input.

        Raises:
            ValueError: there is none of those kinds.
        """
        found = self.find(name, kinds)
        if found is not None:
            return found
        known = ", ".join(p.python_name for p in self.parameters if p.kind in kinds)
        expected = f"one of {known}" if known else "none"
        raise ValueError(f"{self.name}: expected {expected}, got {repr(name) if name else 'no name'}")

    def find(self, name: str, kinds: Collection[Kind] = tuple(Kind)) -> Parameter | None:
        """Find a parameter as ``parameter`` does; return None if there is none."""
        fitting = [p for p in self.parameters if p.kind in kinds]
        for parameter in fitting:
            if name in (parameter.name, parameter.python_name):
                return parameter
        outputs = [p for p in fitting if p.kind is Kind.OUTPUT]
        lone = len(outputs) == 1 and (name == "" or (name == "grad_input" and self.name.endswith("_backward")))
        return outputs[0] if lone else None

    def by_name(self, values: Iterable[tuple[str, T]], kinds: Collection[Kind] = tuple(Kind)) -> dict[str, T]:
        """Key values by the Python names of their parameters.

        Raises:
            ValueError: an unknown name, or a parameter given twice.
        """
        found: dict[str, T] = {}
        for given, value in values:
            name = self.parameter(given, kinds).python_name
            if name in found:
                again = f", the second time as {given!r}" if given else ""
                raise ValueError(f"{self.name}: {name}: given twice{again}")
            found[name] = value
        return found

    @property
    def phase_one(self) -> str:
        """Name of the first phase in C: aclnnSiluBackwardGetWorkspaceSize."""
        return f"{self.function}{PHASE_ONE}"

    @property
    def header(self) -> str:
        """Name of the C header: aclnn_silu_backward.h, acl_stft.h."""
        prefix = "aclnn" if self.function.startswith("aclnn") else "acl"
        return f"{prefix}_{self.in_header_of or self.name}.h"


_SELF = Parameter("selfRef", "self", Kind.OUTPUT, "x, replaced by the result")


def in_place(forward: Operator, checks: tuple[Check, ...], target: Parameter = _SELF) -> Operator:
    """Return the in-place variant of a function whose first parameter is its only tensor.

    Args:
        forward: the operator, whose only output is its last parameter.
        checks: checks of the variant.
        target: the parameter for the tensor that is read and overwritten.
    """
    x, *attributes, out = forward.parameters
    written = (target.name,)

    def work(call: Call) -> Work | None:
        found = forward.work(replace(call, arguments={**call.arguments, x.name: call[target.name]}))
        assert found is None or isinstance(found, (Elementwise, Library))
        return found and replace(found, inputs=written, outputs=written)

    return replace(
        forward,
        name=f"inplace_{forward.name}",
        function=forward.function.replace("aclnn", "aclnnInplace", 1),
        summary=f"{forward.summary[:-1]}, its result written back into its argument.",
        formula=forward.formula.replace(out.name, "x", 1),
        parameters=(target, *attributes),
        checks=checks,
        work=work,
        infer=lambda call: {},
        in_header_of=forward.in_header_of or forward.name,
    )
