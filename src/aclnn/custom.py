"""User-defined operators: functions declared by a decorator, in files named by ``ACLNN_OPERATORS``.

Like the operators of this package, they have C functions with headers and entry points, ``aclnn.cann``, verdicts and,
if defined by a formula, a function of arrays, ``torch.ops.aclnn`` and ``aclnn run``. Checks and status codes are those
of the interfaces that CANN generates from an operator's definition.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from inspect import Parameter as Argument
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from aclnn.core.checks import (
    FLOATING,
    Column,
    broadcast_shape,
    extents,
    generated,
    limited_dims,
    listing,
    nothing_to_write,
    rule,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Elementwise, Kind, Library, Operator, Parameter, Shape, Work
from aclnn.core.products import Product
from aclnn.execution import arrays
from aclnn.kernels.trace import CONDITIONS, trace
from aclnn.support.env import SettingError

__all__ = ["array_function", "elementwise"]

VARIABLE = "ACLNN_OPERATORS"

Function = Callable[..., Any]
Dtypes = Sequence[str | Sequence[str]]

_FLOATS = tuple(str(dtype.numpy_name) for dtype in FLOATING)
_NUMBERS = {float: Kind.DOUBLE, int: Kind.INT64, bool: Kind.BOOL}
_ATTRIBUTES = {**_NUMBERS, str: Kind.STRING, list[int]: Kind.INT_ARRAY, list[bool]: Kind.BOOL_ARRAY}
"""Kinds of attributes by annotation, as CANN generates them. A parameter with another annotation is a tensor."""
_CONST = "const aclTensor *"


def elementwise(
    outputs: str | Sequence[str] = "out", dtypes: Dtypes = _FLOATS, products: Collection[Product] = tuple(Product)
) -> Callable[[Function], Function]:
    """Declare an elementwise operator by its formula; the inputs broadcast.

        @elementwise("y", dtypes=("float16", "float32"))
        def leaky_relu_custom(x, negative_slope: float = 0.01):
            return where(x > 0.0, x, negative_slope * x)

    This declares ``aclnnLeakyReluCustom`` with the parameters ``x``, ``negativeSlope`` and ``out``. The formula uses
    the functions of ``aclnn.formula``; it is computed in float64 and rounded once. Tensors come first, then attributes,
    annotated as float (rounded to float32), int or bool.

    Args:
        outputs: names of the outputs, one for each result; in C a single output is ``out``, and one of several, such as
            ``y``, is ``yOut``.
        dtypes: the supported combinations of data types: for each, the data type of all tensors, or a sequence with
            one for each input, then for each output. Outputs are float32, float16, bfloat16 or float64.
        products: products that support the operator; bfloat16 is left out for a product without it.

    Returns:
        A decorator that turns the formula into a function of arrays, with an additional parameter ``out``.

    Raises:
        TypeError: a formula cannot have such a parameter, or a data type is unknown.
    """

    def declare(formula: Function) -> Function:
        given = _parameters(formula)
        inputs = tuple(p.name for p in given if p.kind is Kind.INPUT)
        numbers = [p for p in given if p.kind in _NUMBERS.values()]
        if [p.name for p in given] != [*inputs, *(p.name for p in numbers)] or any(p.optional for p in given):
            wanted = "tensors without defaults, then attributes of type float, int or bool"
            raise TypeError(f"{formula.__name__}: expected {wanted}, got {signature(formula)}")
        program = trace(formula, len(given))
        conditions = [step.result for step in program.steps if step.template in CONDITIONS]
        names = _listed(outputs)
        if not inputs or len(program.results) != len(names) or not {*conditions}.isdisjoint(program.results):
            wanted = f"a formula of tensors with numbers for {listing(names, 'and')}"
            raise TypeError(f"{formula.__name__}: expected {wanted}, got {program.source.splitlines()[-1].strip()}")
        for entry in dtypes:
            if not {*([entry] if isinstance(entry, str) else entry[len(inputs) :])} <= {*_FLOATS, "float64"}:
                wanted = f"outputs of a formula in {listing((*_FLOATS, 'float64'))} (array_function has any)"
                raise TypeError(f"{formula.__name__}: dtypes: expected {wanted}, got {entry!r}")

        def work(call: Call) -> Elementwise:
            results = tuple(p.name for p in call.operator.outputs)
            return Elementwise(formula, inputs, results, tuple(float(_attribute(call, p)) for p in numbers))

        return _of_arrays(formula, _operator(formula, given, outputs, dtypes, products, work))

    return declare


def array_function(
    outputs: str | Sequence[str] = "out",
    dtypes: Dtypes = _FLOATS,
    products: Collection[Product] = tuple(Product),
    shapes: Callable[..., Any] | None = None,
) -> Callable[[Function], Operator]:
    """Declare an operator by a function of NumPy arrays.

        @array_function("c", shapes=lambda a, b: (a[0], b[1]))
        def matmul_custom(a, b):
            return a @ b

    This declares ``aclnnMatmulCustom`` with the parameters ``a``, ``b`` and ``out``. The function gets 16-bit
    floating-point tensors as float32, and all tensors as float64 if a verdict needs golden values. Results are
    converted to the outputs' data types. Attributes are annotated as float, int, bool, str, ``list[int]`` or
    ``list[bool]``. A tensor with the default None may be null.

    Args:
        outputs: names of the outputs, one for each result.
        dtypes: the supported combinations of data types: for each, the data type of all tensors, or a sequence with
            one for each input that may not be null, then for each output.
        products: products that support the operator; bfloat16 is left out for a product without it.
        shapes: takes the function's arguments, with shapes in place of arrays, and returns the output's shape, or a
            list with the shape of each output. By default the inputs broadcast.

    Returns:
        A decorator that turns the function into an ``Operator``.

    Raises:
        TypeError: a data type is unknown.
    """

    def declare(function: Function) -> Operator:
        given = _parameters(function)

        def work(call: Call) -> Library:
            present = [p for p in given if p.kind is Kind.INPUT and call[p.name] is not None]
            others = {p.python_name: _attribute(call, p) for p in given if p not in present}

            def compute(*operands: Any) -> Any:
                names = (p.python_name for p in present)
                return function(**others, **dict(zip(names, operands, strict=True)))

            return Library(compute, tuple(p.name for p in present), tuple(p.name for p in call.operator.outputs))

        return _operator(function, given, outputs, dtypes, products, work, shapes)

    return declare


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _parameters(function: Function) -> list[Parameter]:
    """Return the operator's parameters for those of a function."""
    found = []
    for name, argument in signature(function, eval_str=True).parameters.items():
        if argument.kind in (Argument.VAR_POSITIONAL, Argument.VAR_KEYWORD):
            raise TypeError(f"{function.__name__}: expected parameters with a name each, got {argument}")
        kind = _ATTRIBUTES.get(argument.annotation, Kind.INPUT)
        optional = kind is Kind.INPUT and argument.default is None
        found.append(Parameter(_camel(name, "Optional" * optional), name, kind, kind.label, optional))
    return found


def _attribute(call: Call, parameter: Parameter) -> Any:
    value = call[parameter.name]
    return float32(value) if parameter.kind is Kind.DOUBLE else value


def _camel(name: str, ending: str = "") -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest)) + ending


def _operator(
    function: Function,
    given: Sequence[Parameter],
    outputs: str | Sequence[str],
    dtypes: Dtypes,
    products: Collection[Product],
    work: Callable[[Call], Work],
    shapes: Callable[..., Any] | None = None,
) -> Operator:
    name = function.__name__
    names = _listed(outputs)
    results = [
        Parameter(_camel(each, "Out") if names[1:] else "out", each, Kind.OUTPUT, Kind.OUTPUT.label, c_type=_CONST)
        for each in names
    ]
    inputs = [p for p in given if p.kind is Kind.INPUT]
    required, written = [p.name for p in inputs if not p.optional], [p.name for p in results]
    columns = [_column(name, entry, [p.python_name for p in (*inputs, *results) if not p.optional]) for entry in dtypes]

    def of_product(product: Product) -> list[Column]:
        return [column for column in columns if product.has_bfloat16 or DataType.BF16 not in column]

    def wanted(call: Call) -> list[Shape] | str:
        """Return the outputs' shapes, or the error message if the inputs' shapes are invalid."""
        try:
            return _shapes(call, given, len(results), shapes)
        except Exception as error:
            got = ", ".join(f"{p.name} {extents(call[p.name].shape)}" for p in inputs if call[p.name] is not None)
            return f"expected shapes that {name} takes ({error}), got {got}"

    def violation(call: Call) -> str | None:
        expected = wanted(call)
        if isinstance(expected, str):
            return f"{inputs[0].name if inputs else name}: {expected}"
        for output, shape in zip(written, expected, strict=True):
            if call[output].shape != shape:
                return f"{output}: expected shape {extents(shape)}, got {extents(call[output].shape)}"
        return None

    def infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
        have = tuple(call[p].dtype for p in required)
        fitting = [column for column in of_product(call.product) if column[: len(have)] == have]
        found = wanted(call)
        # Without a fitting column the checks reject the inputs.
        kinds = fitting[0][len(have) :] if fitting else columns[0][len(have) :]
        extent = [()] * len(written) if isinstance(found, str) else found
        return dict(zip(written, zip(kinds, extent, strict=True), strict=True))

    return Operator(
        name=name,
        function=f"aclnn{''.join(map(str.capitalize, name.split('_')))}",
        summary=(function.__doc__ or f"The operator {name}.").strip().splitlines()[0],
        formula=f"{', '.join(p.python_name for p in results)} = {name}({', '.join(p.python_name for p in given)})",
        parameters=(*inputs, *(p for p in given if p.kind is not Kind.INPUT), *results),
        support={product: frozenset().union(*of_product(product)) for product in products if of_product(product)},
        checks=generated(
            required,
            written,
            of_product,
            limited_dims(*(p.name for p in inputs), *written),
            rule(f"shapes of {name}: {listing(written, 'and')}", violation),
        ),
        work=lambda call: None if nothing_to_write(call, written) else work(call),
        infer=infer,
    )


def _column(name: str, entry: str | Sequence[str], tensors: Sequence[str]) -> Column:
    known = {dtype.numpy_name: dtype for dtype in DataType if dtype.numpy_name}
    names = (entry,) * len(tensors) if isinstance(entry, str) else tuple(entry)
    if len(names) != len(tensors) or not set(names) <= {*known}:
        expected = f"one of {listing(known)}, or one each for {listing(tensors, 'and')}"
        raise TypeError(f"{name}: dtypes: expected {expected}, got {entry!r}")
    return tuple(known[each] for each in names)


def _shapes(call: Call, given: Sequence[Parameter], count: int, shapes: Callable[..., Any] | None) -> list[Shape]:
    tensors = [p for p in given if p.kind is Kind.INPUT and call[p.name] is not None]
    extents_of = {p.python_name: call[p.name].shape for p in tensors}
    if shapes is None:
        found = broadcast_shape(*extents_of.values())
        if found is None:
            raise ValueError("they do not broadcast")
        return [found] * count
    result = shapes(**{p.python_name: call[p.name] for p in given} | extents_of)
    return [tuple(shape) for shape in (result if isinstance(result, list) else [result])]


def _of_arrays(formula: Function, operator: Operator) -> Function:
    """Return an operator's function of arrays, with the formula's parameters and ``out``."""
    nothing = (None,) * len(operator.outputs)
    out = Argument("out", Argument.POSITIONAL_OR_KEYWORD, default=nothing if nothing[1:] else None)
    declared = signature(formula)
    declared = declared.replace(parameters=[*declared.parameters.values(), out])

    @wraps(formula)
    def function(*positional: Any, **named: Any) -> Any:
        bound = declared.bind(*positional, **named)
        bound.apply_defaults()
        inputs = [bound.arguments[p.python_name] for p in operator.inputs]
        attributes = tuple(bound.arguments[p.python_name] for p in operator.attributes)
        outs = bound.arguments["out"]
        return arrays.call(operator, inputs, attributes, outs if nothing[1:] else (outs,))

    vars(function).update(__signature__=declared, operator=operator)
    return function


def files() -> tuple[Path, ...]:
    """Return the files in ``ACLNN_OPERATORS``, which has the syntax of PATH."""
    return tuple(Path(name).absolute() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)


def declared(taken: Callable[[], Collection[str]]) -> dict[str, tuple[Operator, Function | None]]:
    """Run the files in ``ACLNN_OPERATORS``; return the operators declared, each with its function of arrays, if any.

    Files declare operators by the decorators of this module, or as global variables of type ``Operator``, each with a
    function of the operator's name.

    Args:
        taken: returns the C functions of other operators; called only if there are files.

    Raises:
        SettingError: a file cannot be read, or declares an operator that exists.
    """
    found: dict[str, tuple[Operator, Function | None]] = {}
    functions = {*taken()} if files() else set[str]()
    for file in files():
        names = vars(_run(file))
        for value in [*names.values()]:
            operator = value if isinstance(value, Operator) else getattr(value, "operator", None)
            if not isinstance(operator, Operator) or found.get(operator.name, (None,))[0] is operator:
                continue
            if operator.function in functions:
                raise SettingError(
                    f"{VARIABLE}: {file}: expected a new operator, got {operator.function}, which exists"
                )
            functions.add(operator.function)
            function = names.get(operator.name)
            found[operator.name] = operator, function if callable(function) else None
    return found


def _run(file: Path) -> ModuleType:
    name = f"aclnn_operators_{file.stem}"
    spec = spec_from_loader(name, SourceFileLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        raise SettingError(
            f"{VARIABLE}: expected files that can be run, got {str(file)!r} ({error.strerror})"
        ) from None
    return module
